// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A module of the kernel as a setting: `unloaded`, or `loaded` and the values of its parameters, written as the kernel
//! takes them.
//!
//! The kernel's own calls unload and load it, not `modprobe`. Whoever undoes an experiment may be the last process that
//! runs: it needs no other program that way, no configuration decides what it does, and nothing is loaded or unloaded but
//! this one file. What the module needs itself is there still, because only modules that nobody uses are unloaded, and
//! only they. Just a compressed file that this kernel does not decompress is left to `insmod`, which loads that file too.

use deburr_core::procfs::modules;
use deburr_core::prove::knob::UNLOADED;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::system::{delete_module, finit_module};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, c_int};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a module is that is loaded; its parameters follow.
const LOADED: &str = "loaded";
/// That the file is compressed (`MODULE_INIT_COMPRESSED_FILE`).
const COMPRESSED: c_int = 4;
/// The compression of a file by the end of its name, and what the kernel calls it.
const COMPRESSIONS: [(&str, &str); 3] = [("xz", "xz"), ("zst", "zstd"), ("gz", "gzip")];
/// What parameters without a value read as.
const NOTHING: [&str; 2] = ["", "(null)"];

/// A module and how it is loaded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Module {
    /// Its name.
    pub(crate) module: String,
    /// Its file.
    pub(crate) image: PathBuf,
    /// The parameters that it gets again, of those that can be read.
    pub(crate) parameters: Vec<String>,
}

impl Module {
    /// Whether it is loaded, and with which parameters.
    pub(crate) fn read(&self) -> io::Result<String> {
        self.read_in(Path::new("/sys"))
    }

    /// The same below another directory.
    pub(crate) fn read_in(&self, sys: &Path) -> io::Result<String> {
        let directory = sys.join("module").join(&self.module);
        let state = || match fs::read_to_string(directory.join("initstate")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(UNLOADED.to_owned()),
            state => state.map(|state| state.trim().to_owned()),
        };
        let now = state()?;
        if now != "live" {
            // Beside `unloaded`: one that is about to come or to go.
            return Ok(now);
        }
        let mut text = LOADED.to_owned();
        for name in &self.parameters {
            let content = match fs::read(directory.join("parameters").join(name)) {
                // It may have been unloaded in this moment.
                Err(_) if state()? == UNLOADED => return Ok(UNLOADED.to_owned()),
                content => content.map_err(|error| io::Error::other(format!("{name}: {error}")))?,
            };
            let value = modules::parameter(&content).ok_or_else(|| {
                io::Error::other(format!(
                    "its parameter `{name}` has a value that no module can be given"
                ))
            })?;
            if !NOTHING.contains(&value) {
                let quote = if value.contains(char::is_whitespace) { "\"" } else { "" };
                text += &format!(" {name}={quote}{value}{quote}");
            }
        }
        Ok(text)
    }

    /// Unloads it, or loads it with the parameters that are in the value. One that is so already stays as it is. An error
    /// if the module has made something else of its parameters.
    pub(crate) fn write(&self, value: &str) -> io::Result<()> {
        if value == UNLOADED {
            return self.unload();
        }
        if self.read()? == value {
            return Ok(());
        }
        let parameters = value.strip_prefix(LOADED).ok_or(io::ErrorKind::InvalidInput)?;
        self.load(parameters.trim_start())?;
        match self.read()? {
            now if now == value => Ok(()),
            now => Err(io::Error::other(format!("it is loaded again, but reads `{now}`"))),
        }
    }

    /// The kernel itself refuses, and waits for nothing, if it is in use by now.
    fn unload(&self) -> io::Result<()> {
        let name = CString::new(self.module.as_bytes())?;
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        delete_module(&name, flags).map_err(|error| match error {
            Errno::AGAIN => io::Error::other("somebody uses it now"),
            other => other.into(),
        })
    }

    fn load(&self, parameters: &str) -> io::Result<()> {
        let packed = self.compression().is_some();
        if packed && !self.kernel_unpacks(Path::new("/sys")) {
            return self.insmod(parameters);
        }
        let text = CString::new(parameters)?;
        let flags = if packed { COMPRESSED } else { 0 };
        Ok(finit_module(File::open(&self.image)?, &text, flags)?)
    }

    /// How its file is compressed, in the kernel's words.
    fn compression(&self) -> Option<&'static str> {
        let end = self.image.extension()?.to_str()?;
        COMPRESSIONS.iter().find(|(suffix, _)| *suffix == end).map(|(_, words)| *words)
    }

    /// Whether the kernel decompresses its file.
    fn kernel_unpacks(&self, sys: &Path) -> bool {
        let able = fs::read_to_string(sys.join("module/compression"));
        able.is_ok_and(|able| Some(able.trim()) == self.compression())
    }

    /// Whether another program has to load it.
    pub(crate) fn needs_insmod(&self, sys: &Path) -> bool {
        self.compression().is_some() && !self.kernel_unpacks(sys)
    }

    fn insmod(&self, parameters: &str) -> io::Result<()> {
        let mut command = Command::new("insmod");
        command.arg(&self.image).args(words(parameters)).stdin(Stdio::null());
        let done =
            command.output().map_err(|error| io::Error::other(format!("`insmod`: {error}")))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        Err(io::Error::other(said.trim().to_owned()))
    }
}

/// The parameters of a value one by one: spaces within quotes do not divide them.
fn words(parameters: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let ends = |c: char| {
        is_quoted ^= c == '"';
        c == ' ' && !is_quoted
    };
    parameters.split(ends).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sys: &Path, files: &[(&str, &str)]) -> Module {
        for (file, text) in files {
            let file = sys.join("module").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let parameters = ["rd_nr", "label", "unset", "name"].map(str::to_owned).to_vec();
        Module { module: "brd".into(), image: "/lib/modules/x/brd.ko.xz".into(), parameters }
    }

    #[test]
    fn its_parameters_read_as_the_kernel_takes_them() {
        let dir = tempfile::tempdir().unwrap();
        let brd = of(dir.path(), &[]);
        assert_eq!(brd.read_in(dir.path()).unwrap(), "unloaded");
        let brd = of(
            dir.path(),
            &[
                ("brd/initstate", "live\n"),
                ("brd/parameters/rd_nr", "16\n"),
                ("brd/parameters/label", "a b\n"),
                ("brd/parameters/unset", "(null)\n"),
                ("brd/parameters/name", "\n"),
                ("brd/parameters/another", "1\n"),
            ],
        );
        assert_eq!(brd.read_in(dir.path()).unwrap(), "loaded rd_nr=16 label=\"a b\"");
        of(dir.path(), &[("brd/parameters/name", "a\"b\n")]);
        let error = brd.read_in(dir.path()).unwrap_err();
        assert!(error.to_string().contains("`name` has a value that no module can be given"));
        of(dir.path(), &[("brd/initstate", "going\n")]);
        assert_eq!(brd.read_in(dir.path()).unwrap(), "going");
    }

    #[test]
    fn parameters_are_divided_outside_of_quotes() {
        assert_eq!(words("a=1 b=\"x y\"  c=\"\" d=2"), ["a=1", "b=\"x y\"", "c=\"\"", "d=2"]);
        assert_eq!(words(""), Vec::<&str>::new());
    }

    #[test]
    fn who_decompresses_a_file_is_told_by_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let mut brd = of(dir.path(), &[]);
        assert!(brd.needs_insmod(dir.path()));
        of(dir.path(), &[("compression", "zstd\n")]);
        assert!(brd.needs_insmod(dir.path()));
        of(dir.path(), &[("compression", "xz\n")]);
        assert!(!brd.needs_insmod(dir.path()));
        brd.image = "/lib/modules/x/brd.ko".into();
        fs::remove_file(dir.path().join("module/compression")).unwrap();
        assert!(!brd.needs_insmod(dir.path()));
    }

    #[test]
    fn this_kernel_loads_no_file_that_is_no_module() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("no.ko");
        fs::write(&image, "no module").unwrap();
        let module = Module { module: "deburr_no_such".into(), image, parameters: vec![] };
        assert_eq!(module.read().unwrap(), "unloaded");
        assert!(module.write("loaded").is_err() && module.write("unloaded").is_err());
        assert_eq!(module.read().unwrap(), "unloaded");
    }
}
