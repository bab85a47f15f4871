// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a setting is that can be changed and put back: a file of the kernel, one line of such a file, a property of a
//! thread, or a module. Each is read and written as text.

use super::cgroup;
use super::module::Module;
use super::task::{Property, Thread};
use anyhow::{Context as _, Result};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Settings that the kernel changes by itself when the first one is written. They are in the same directory.
const ALONG: [(&str, &[&str]); 5] = [
    ("scheduler", &["nr_requests", "wbt_lat_usec"]),
    ("max_sectors_kb", &["read_ahead_kb"]),
    ("cpu.idle", &["cpu.weight"]),
    ("min_ratio", &["min_ratio_fine"]),
    ("max_ratio", &["max_ratio_fine"]),
];
/// The settings of a queue's scheduler: they go with it.
const OF_SCHEDULER: &str = "iosched";
/// How long the kernel may take until a value that was written can be read: limits of frequencies come into effect later.
const TAKES_EFFECT: Duration = Duration::from_secs(1);
const LOOKS_AGAIN: Duration = Duration::from_millis(5);
/// What a file with a line for each device calls the line for all others.
pub(crate) const DEFAULT: &str = "default";

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

    /// The settings that the kernel changes along with this one, those that can be read and written now.
    pub(crate) fn along(&self) -> Vec<Self> {
        let Self::File { file } = self else { return vec![] };
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let ("cpuset.cpus", Some(cgroup)) = (name, file.parent()) {
            let property = Property::Affinity;
            let threads = cgroup::threads_with_fewer_cpus(cgroup).into_iter();
            return threads.map(|thread| Self::Thread { thread, property }).collect();
        }
        let Some((_, names)) = ALONG.iter().find(|(it, _)| *it == name) else { return vec![] };
        let mut files: Vec<PathBuf> = names.iter().map(|name| file.with_file_name(name)).collect();
        if name == "scheduler" {
            let own = fs::read_dir(file.with_file_name(OF_SCHEDULER)).into_iter().flatten();
            files.extend(own.flatten().map(|entry| entry.path()));
        }
        files.sort();
        let can_be_put_back = |file: &PathBuf| {
            let is_writable = file.metadata().is_ok_and(|meta| !meta.permissions().readonly());
            is_writable && fs::read_to_string(file).is_ok()
        };
        files.retain(can_be_put_back);
        files.iter().map(|file| Self::file(file)).collect()
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

    /// The same, once what was written to it has come into effect, for which a file has [`TAKES_EFFECT`].
    pub(crate) fn read_once(&self, is_in_effect: impl Fn(&str) -> bool) -> Result<Option<String>> {
        let deadline = Instant::now() + TAKES_EFFECT;
        loop {
            let now = self.read()?;
            let waits = matches!(self, Self::File { .. }) && Instant::now() < deadline;
            if !waits || now.as_deref().is_none_or(&is_in_effect) {
                return Ok(now);
            }
            thread::sleep(LOOKS_AGAIN);
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

/// A value in a message: a list of CPUs may be empty.
pub(crate) fn shown(value: &str) -> &str {
    if value.is_empty() { "empty" } else { value }
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
            Self::Line { file, device } if device == DEFAULT => {
                write!(f, "the default of `{}`", file.display())
            }
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
        let weight = line_of("default 70\n8:0 50\n", Path::new("/c/io.weight"), DEFAULT);
        assert_eq!(weight, "70");
        let v1 = |device| line_of("8:0 5\n", Path::new("/c/blkio.throttle.x"), device);
        assert_eq!((v1("8:0"), v1("8:1")), ("5".into(), "0".into()));
    }

    #[test]
    fn a_value_may_come_into_effect_later_or_never() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("scaling_max_freq");
        let place = Place::file(&file);
        fs::write(&file, "16\n").unwrap();
        let kernel = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            fs::write(file, "12\n").unwrap();
        });
        // The file may be empty for a moment, since this is no kernel.
        let now = place.read_once(|now| now == "12").unwrap();
        assert_eq!(now.as_deref(), Some("12"));
        kernel.join().unwrap();
        let now = place.read_once(|now| now == "20").unwrap();
        assert_eq!(now.as_deref(), Some("12"));
    }

    #[test]
    fn what_the_kernel_changes_along_is_known_as_far_as_it_can_be_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("iosched")).unwrap();
        for name in
            ["scheduler", "nr_requests", "nr_zones", "iosched/b", "iosched/a", "iosched/shown"]
        {
            fs::write(at(name), "1\n").unwrap();
        }
        let mut mode = at("iosched/shown").metadata().unwrap().permissions();
        mode.set_readonly(true);
        fs::set_permissions(at("iosched/shown"), mode).unwrap();
        let along = Place::file(&at("scheduler")).along();
        let names = ["iosched/a", "iosched/b", "nr_requests"];
        assert_eq!(along, names.map(|name| Place::file(&at(name))));
        assert_eq!(Place::file(&at("nr_requests")).along(), []);
        let line = Place::Line { file: at("scheduler"), device: "8:0".into() };
        assert_eq!(line.along(), []);
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
