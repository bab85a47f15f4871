// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes of an experiment that outlive its processes and its cgroup, and how each is undone. Each may be undone
//! twice, and also before it was made.

use super::cgroup;
use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// One thing to undo: a line of JSON on the janitor's standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub(crate) enum Undo {
    /// A filesystem that is mounted there.
    Mount { at: PathBuf },
    /// Loop devices over that file.
    Loop { backing: PathBuf },
    /// A file of /proc/sys or /sys, and what it held before.
    Setting { file: PathBuf, before: String },
    /// A cgroup in another tree than the experiment's own, with all that is in it.
    Cgroup { dir: PathBuf },
}

impl Undo {
    /// How to restore a setting to its present value; `None` if there is no such setting on this host.
    pub(crate) fn setting(file: &Path) -> Result<Option<Self>> {
        match std::fs::read_to_string(file) {
            Ok(text) => {
                let before = chosen(&text);
                match other_of_pair(file).filter(|_| before == "0") {
                    Some(other) => Self::setting(&other),
                    None => Ok(Some(Self::Setting { file: file.into(), before })),
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read `{}`", file.display())),
        }
    }

    fn undo(&self, timeout: Duration) -> Result<()> {
        match self {
            Self::Mount { at } => unmount_all(at, timeout),
            Self::Loop { backing } => detach(backing, timeout),
            Self::Setting { file, before } => write_setting(file, before),
            Self::Cgroup { dir } => cgroup::destroy(dir, timeout),
        }
    }
}

pub(crate) fn write_setting(file: &Path, value: &str) -> Result<()> {
    std::fs::write(file, value)
        .with_context(|| format!("cannot write `{value}` to `{}`", file.display()))
}

/// Undoes all changes, the latest first; settings before the rest, which may take longer. A failure does not stop it:
/// the error names all failures.
pub(crate) fn undo_all(done: &[Undo], timeout: Duration) -> Result<()> {
    let is_setting = |undo: &&Undo| matches!(undo, Undo::Setting { .. });
    let latest_first = || done.iter().rev();
    let failures: Vec<_> = latest_first()
        .filter(is_setting)
        .chain(latest_first().filter(|undo| !is_setting(undo)))
        .filter_map(|undo| undo.undo(timeout).err())
        .map(|error| format!("{error:#}"))
        .collect();
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

/// Pairs of settings that express the same limit in two units. When one is written, the kernel clears the other; a 0
/// cannot be written. So the setting of the pair that is in effect is restored. Both are 0 only if no dirty pages are
/// wanted at all.
const PAIRS: [[&str; 2]; 2] =
    [["dirty_bytes", "dirty_ratio"], ["dirty_background_bytes", "dirty_background_ratio"]];

/// The other setting of such a pair, if that is the one in effect.
fn other_of_pair(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?;
    let pair = PAIRS.iter().find(|pair| pair.contains(&name))?;
    let other = file.with_file_name(pair.iter().find(|other| **other != name)?);
    let holds = std::fs::read_to_string(&other).is_ok_and(|value| value.trim() != "0");
    holds.then_some(other)
}

/// The present value of a setting: of a list with the choice in brackets the choice, else the whole text.
fn chosen(text: &str) -> String {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(choice, _)| choice).to_owned()
}

/// Unmounts whatever is mounted there. A mount that is still in use at the end of `timeout` is detached, so that it
/// vanishes with its last user.
fn unmount_all(at: &Path, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        match unmount(at, UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INTR) => {}
            // Not mounted (any more), or the directory does not exist.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::BUSY) => {
                unmount(at, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?;
                return Err(anyhow!(
                    "`{}` was still in use: it goes with its last user",
                    at.display()
                ));
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot unmount `{}`", at.display()));
            }
        }
    }
}

/// Detaches the loop devices over a file.
fn detach(backing: &Path, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let devices = loop_devices(backing);
        let Some(device) = devices.first() else { return Ok(()) };
        // This fails if another process was quicker; what counts is whether the device is still there.
        let _ = Command::new("losetup").arg("--detach").arg(device).status();
        if loop_devices(backing).is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "cannot detach `{}`", device.display());
        thread::sleep(Duration::from_millis(20));
    }
}

/// The loop devices over a file.
pub(crate) fn loop_devices(backing: &Path) -> Vec<PathBuf> {
    let blocks = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    blocks
        .filter(|block| {
            let file = std::fs::read_to_string(block.path().join("loop/backing_file"));
            file.is_ok_and(|file| {
                let file = file.trim_end_matches('\n');
                Path::new(file.strip_suffix(" (deleted)").unwrap_or(file)) == backing
            })
        })
        .map(|block| Path::new("/dev").join(block.file_name()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_pair_the_one_that_holds_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, ratio) =
            (dir.path().join("dirty_background_bytes"), dir.path().join("dirty_background_ratio"));
        let set = |bytes_now: &str, ratio_now: &str| {
            std::fs::write(&bytes, bytes_now).unwrap();
            std::fs::write(&ratio, ratio_now).unwrap();
            Undo::setting(&bytes).unwrap().unwrap()
        };
        let undo =
            |file: &Path, before: &str| Undo::Setting { file: file.into(), before: before.into() };
        assert_eq!(set("0\n", "10\n"), undo(&ratio, "10"));
        assert_eq!(set("4096\n", "0\n"), undo(&bytes, "4096"));
        assert_eq!(set("0\n", "0\n"), undo(&bytes, "0"));
    }

    #[test]
    fn of_a_list_the_choice_is_put_back() {
        assert_eq!(chosen("none [mq-deadline] kyber\n"), "mq-deadline");
        assert_eq!(chosen("3000\n"), "3000");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn settings_go_back_in_reverse_and_one_failure_does_not_keep_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&first, "1\n").unwrap();
        std::fs::write(&second, "none [x]\n").unwrap();
        let mut done = vec![Undo::setting(&first).unwrap().unwrap()];
        write_setting(&first, "2").unwrap();
        // Changed twice: the first value counts.
        done.push(Undo::setting(&first).unwrap().unwrap());
        done.push(Undo::Setting { file: dir.path().join("no/such"), before: "1".into() });
        done.push(Undo::setting(&second).unwrap().unwrap());
        write_setting(&first, "3").unwrap();
        let error = undo_all(&done, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("no/such"), "{error}");
        assert_eq!(std::fs::read_to_string(&first).unwrap(), "1");
        assert_eq!(std::fs::read_to_string(&second).unwrap(), "x");
        assert_eq!(Undo::setting(&dir.path().join("none")).unwrap(), None);
    }

    #[test]
    fn what_was_never_made_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let done = [
            Undo::Mount { at: dir.path().join("m") },
            Undo::Loop { backing: dir.path().into() },
            Undo::Cgroup { dir: dir.path().join("c") },
        ];
        undo_all(&done, Duration::ZERO).unwrap();
    }

    #[test]
    fn an_entry_reads_back_as_it_was_written() {
        for undo in [
            Undo::Mount { at: "/a b".into() },
            Undo::Loop { backing: "/d\"\n".into() },
            Undo::Setting { file: "/f".into(), before: "1 2\n".into() },
            Undo::Cgroup { dir: "/c".into() },
        ] {
            let line = serde_json::to_string(&undo).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Undo>(&line).unwrap(), undo);
        }
    }
}
