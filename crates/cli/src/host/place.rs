// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a setting is that can be changed and put back: a file of the kernel, one line of such a file, a property of a
//! thread, or a module. Each is read and written as text.

use super::module::Module;
use super::task::{Property, Thread};
use anyhow::{Context as _, Result};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A place of a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Place {
    /// A property of one thread.
    Thread { thread: Thread, property: Property },
    /// A module: whether it is loaded, and its parameters.
    Module(Module),
    /// What a file of a cgroup says about one device (`MAJOR:MINOR`).
    Line { file: PathBuf, device: String },
    /// A file of /proc/sys, /sys or a cgroup, as a whole.
    File { file: PathBuf },
}

impl Place {
    /// The place of a file.
    pub(crate) fn file(file: &Path) -> Self {
        Self::File { file: file.to_owned() }
    }

    /// What it holds now; `None` if there is no such thing any more.
    pub(crate) fn read(&self) -> Result<Option<String>> {
        let text = match self {
            Self::Thread { thread, property } => thread.read(*property),
            Self::Module(module) => module.read().map(Some),
            Self::File { file } => fs::read_to_string(file).map(|text| Some(chosen(&text))),
            Self::Line { file, device } => {
                fs::read_to_string(file).map(|text| Some(line_of(&text, file, device)))
            }
        };
        match text {
            Err(error) if is_gone(&error) => Ok(None),
            read => read.with_context(|| format!("cannot read {self}")),
        }
    }

    /// Gives it a value.
    pub(crate) fn write(&self, value: &str) -> Result<()> {
        let written = match self {
            Self::Thread { thread, property } => thread.write(*property, value),
            Self::Module(module) => module.write(value),
            Self::File { file } => write(file, value),
            Self::Line { file, device } => write(file, &format!("{device} {value}")),
        };
        written.with_context(|| format!("cannot set {self} to `{value}`"))
    }
}

/// Whether there is no such thing any more. A file of a removed cgroup that was open has no device.
fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NODEV, Errno::SRCH].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| gone.contains(&code))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread { thread, property } => write!(f, "{property} of {thread}"),
            Self::Module(it) => write!(f, "module `{}`", it.module),
            Self::File { file } => write!(f, "`{}`", file.display()),
            Self::Line { file, device } => write!(f, "`{}` of disk {device}", file.display()),
        }
    }
}

/// Writes a setting that exists.
fn write(file: &Path, value: &str) -> io::Result<()> {
    let mut open = OpenOptions::new();
    let mut file = open.write(true).truncate(true).open(file)?;
    // Nothing at all is no value: a list of CPUs may be empty.
    file.write_all(if value.is_empty() { b"\n" } else { value.as_bytes() })
}

/// The present value of a setting: of a list with the choice in brackets the choice, else the whole text.
pub(super) fn chosen(text: &str) -> String {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(choice, _)| choice).to_owned()
}

/// What a file with a line for each device says about one. A device without a line has no limits.
fn line_of(text: &str, file: &Path, device: &str) -> String {
    let own = text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' '));
    let none = match file.file_name().and_then(|name| name.to_str()) {
        Some("io.max") => "rbps=max wbps=max riops=max wiops=max",
        _ => "0",
    };
    own.unwrap_or(none).trim().to_owned()
}

/// Pairs of settings that express the same limit in two units. When one is written, the kernel clears the other; a 0
/// cannot be written. So the setting of the pair that is in effect is restored. Both are 0 only if no dirty pages are
/// wanted at all.
const PAIRS: [[&str; 2]; 2] =
    [["dirty_bytes", "dirty_ratio"], ["dirty_background_bytes", "dirty_background_ratio"]];

/// The other setting of such a pair, if that is the one in effect.
pub(crate) fn other_of_pair(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?;
    let pair = PAIRS.iter().find(|pair| pair.contains(&name))?;
    let other = file.with_file_name(pair.iter().find(|other| **other != name)?);
    let holds = fs::read_to_string(&other).is_ok_and(|value| value.trim() != "0");
    holds.then_some(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_list_the_choice_is_put_back() {
        assert_eq!(chosen("none [mq-deadline] kyber\n"), "mq-deadline");
        assert_eq!(chosen("3000\n"), "3000");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn a_device_without_a_line_has_no_limits() {
        let text = "8:16 rbps=1 wbps=max riops=max wiops=max\n";
        let of = |device| line_of(text, Path::new("/c/io.max"), device);
        assert_eq!(of("8:16"), "rbps=1 wbps=max riops=max wiops=max");
        assert_eq!(of("8:1"), "rbps=max wbps=max riops=max wiops=max");
        let v1 = |device| line_of("8:0 5\n", Path::new("/c/blkio.throttle.x"), device);
        assert_eq!((v1("8:0"), v1("8:1")), ("5".into(), "0".into()));
    }

    #[test]
    fn a_setting_that_is_gone_is_neither_an_error_nor_made() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::file(&dir.path().join("setting"));
        assert_eq!(place.read().unwrap(), None);
        assert!(place.write("1").is_err());
        fs::write(dir.path().join("setting"), "1000\n").unwrap();
        place.write("5").unwrap();
        assert_eq!(place.read().unwrap().unwrap(), "5");
        place.write("").unwrap();
        assert_eq!(place.read().unwrap().unwrap(), "");
    }
}
