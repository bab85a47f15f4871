// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes of an experiment, and how each is undone. Each may be undone twice, and also before it was made. What
//! somebody else has put in the place of something that the experiment made is left alone.
//!
//! For each setting the entries say, in their order, what it can hold by the experiment's doing: after a `Setting` any
//! value, since it is about to be written; after a `Set` only that value, those of earlier entries, and what it held
//! before. With `careful`, a setting that holds anything else is somebody else's, and stays.

use super::cgroup;
use super::guard::{EXPERIMENT, SERVERS};
use super::keeper::GRACE;
use super::place::{Place, other_of_pair, shown};
use super::task::{Process, Property, Thread, heirs};
use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// What kind of a directory was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DirectoryKind {
    /// A cgroup.
    Cgroup,
    /// An ordinary directory.
    Files,
}

impl DirectoryKind {
    /// Permissions of a new one.
    pub(crate) fn mode(self) -> u32 {
        match self {
            Self::Cgroup => 0o755,
            Self::Files => 0o700,
        }
    }
}

/// Which directory a path led to when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    dev: u64,
    ino: u64,
}

impl Identity {
    /// The identity of a directory; `None` if the path leads to none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let meta = path.symlink_metadata().ok().filter(Metadata::is_dir)?;
        Some(Self { dev: meta.dev(), ino: meta.ino() })
    }
}

/// Nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub(crate) enum Undo {
    /// A filesystem that is mounted there.
    Mount { at: PathBuf },
    /// Loop devices over that file.
    Loop { backing: PathBuf },
    /// A setting, and what it held before.
    Setting {
        #[serde(flatten)]
        place: Place,
        before: String,
    },
    /// A value that the experiment gave to that setting.
    Set {
        #[serde(flatten)]
        place: Place,
        value: String,
    },
    /// Threads that a changed process starts inherit that value: they get `before` instead.
    Heirs { process: Process, property: Property, value: String, before: String },
    /// A process that is stopped for a while, and goes on.
    Paused { process: Process },
    /// A process that ends a command, and then itself, when the experiment has ended.
    Kept { keeper: Process },
    /// A directory that was made, with all that is in it. The first entry of a path is written before it is made, and
    /// has no identity.
    Directory { kind: DirectoryKind, path: PathBuf, since_ns: u64, made: Option<Identity> },
    /// The run of the kernel in which all of this was done.
    Boot { id: String },
}

impl Undo {
    /// How to restore a setting to its present value; `None` if there is no such setting on this host.
    pub(crate) fn setting(file: &Path) -> Result<Option<Self>> {
        let place = Place::file(file);
        let Some(before) = place.read()? else { return Ok(None) };
        match other_of_pair(file).filter(|_| before == "0") {
            Some(other) => Self::setting(&other),
            None => Ok(Some(Self::Setting { place, before })),
        }
    }

    /// Whether it is about that thread.
    fn is_about(&self, thread: &Thread) -> bool {
        let Self::Setting { place: Place::Thread { thread: own, .. }, .. } = self else {
            return false;
        };
        own == thread
    }

    /// What this setting holds now, to be registered after it was changed; `None` for other entries.
    pub(crate) fn as_set(&self) -> Option<Self> {
        let Self::Setting { place, .. } = self else { return None };
        let value = place.read().ok()??;
        Some(Self::Set { place: place.clone(), value })
    }
}

pub(crate) fn write_setting(file: &Path, value: &str) -> Result<()> {
    Place::file(file).write(value)
}

/// Undoes all changes. A failure does not stop it: the error names all failures. Returns what was left as it is because
/// it is not, or not any more, what the experiment made; with `careful`, also settings that somebody else has changed
/// meanwhile.
pub(crate) fn undo_all(done: &[Undo], timeout: Duration, careful: bool) -> Result<Vec<String>> {
    let (made, ours) = (Made::of(done), Ours::of(done));
    for cgroup in made.all(DirectoryKind::Cgroup) {
        cgroup::let_end(&cgroup.join(EXPERIMENT), timeout);
        cgroup::kill(cgroup, Some(SERVERS));
    }
    let mut failures = changes(done, &made, timeout, careful);
    let destroyed =
        made.all(DirectoryKind::Cgroup).filter_map(|it| cgroup::destroy(it, timeout).err());
    failures.extend(destroyed.map(|error| format!("{error:#}")));
    // The processes that were killed last may have changed something until then.
    failures.extend(changes(done, &made, timeout, careful));
    let removed = made.all(DirectoryKind::Files).filter_map(|it| remove_files(it).err());
    failures.extend(removed.map(|error| format!("{error:#}")));
    let mut seen = BTreeSet::new();
    failures.retain(|failure| seen.insert(failure.clone()));
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    let settings = done.iter().filter_map(|undo| match undo {
        Undo::Setting { place, before } if careful => {
            match ours.get(place).map(|ours| ours.whose(place))? {
                Whose::Others(now) => Some(stays(place, before, &now)),
                // A thread takes along what was changed of it.
                Whose::Gone if !matches!(place, Place::Thread { .. }) => {
                    Some(format!("{place} is gone"))
                }
                _ => None,
            }
        }
        _ => None,
    });
    let mut left: Vec<String> = settings.collect();
    // A setting has an entry for each value that it got.
    left.sort();
    left.dedup();
    left.extend(made.remove_unsure());
    left.extend(made.strangers());
    Ok(left)
}

/// Puts settings back, then removes mounts and loop devices, which may take longer; each the latest first. Returns what
/// failed.
fn changes(done: &[Undo], made: &Made, timeout: Duration, careful: bool) -> Vec<String> {
    // Before anything is put back: the kernel changes others along. One that is gone may come back with another one.
    let ours: BTreeSet<&Place> = Ours::of(done)
        .into_iter()
        .filter(|(place, ours)| !matches!(ours.whose(place), Whose::Others(_)))
        .map(|(place, _)| place)
        .collect();
    let settings = done.iter().rev().filter_map(|undo| match undo {
        Undo::Setting { place, before } if careful => {
            if ours.contains(place) {
                put_back(place, before).err()
            } else {
                None
            }
        }
        Undo::Setting { place, before } => place.write(before).err(),
        Undo::Heirs { process, property, value, before } => {
            let known = |thread: &Thread| done.iter().any(|undo| undo.is_about(thread));
            disinherit(process, *property, [value, before], known).err()
        }
        Undo::Paused { process } => {
            process.go_on().with_context(|| format!("{process} may be stopped")).err()
        }
        Undo::Kept { keeper } => let_end(keeper, timeout).err(),
        _ => None,
    });
    let mut failures: Vec<_> = settings.map(|error| format!("{error:#}")).collect();
    let rest = done.iter().rev().filter_map(|undo| match undo {
        // Only root can have mounted or opened anything in a directory of the experiment.
        Undo::Mount { at } if made.holds(at) => unmount_all(at, timeout).err(),
        Undo::Loop { backing } if made.holds(backing) => detach(backing, timeout).err(),
        _ => None,
    });
    failures.extend(rest.map(|error| format!("{error:#}")));
    failures
}

/// What a setting can hold by the experiment's doing.
#[derive(Default)]
struct Ours<'d> {
    values: BTreeSet<&'d str>,
    /// Until the next entry says which, it may have any value.
    any: bool,
}

/// Whose the present value of a setting is.
enum Whose {
    Ours,
    /// There is no such setting any more.
    Gone,
    /// Somebody else's, and what it is.
    Others(String),
}

impl<'d> Ours<'d> {
    /// By the entries of a journal.
    fn of(done: &'d [Undo]) -> BTreeMap<&'d Place, Self> {
        let mut all = BTreeMap::<&Place, Self>::new();
        for undo in done {
            let (place, value, any) = match undo {
                Undo::Setting { place, before } => (place, before, true),
                Undo::Set { place, value } => (place, value, false),
                _ => continue,
            };
            let ours = all.entry(place).or_default();
            ours.values.insert(value);
            ours.any = any;
        }
        all
    }

    /// Whose the present value is. One that cannot be read is ours: that it cannot be written either is to be told.
    fn whose(&self, place: &Place) -> Whose {
        match place.read() {
            Ok(None) => Whose::Gone,
            Ok(Some(now)) if !self.any && !self.values.contains(now.as_str()) => Whose::Others(now),
            _ => Whose::Ours,
        }
    }
}

/// That somebody else has changed a setting in the meantime.
pub(crate) fn stays(place: &Place, before: &str, now: &str) -> String {
    let [before, now] = [before, now].map(shown);
    format!("{place} was {before}, and somebody has set it to {now} since: it stays so")
}

/// Gives the threads that inherited a value from a changed thread of their process what they would have otherwise.
pub(crate) fn disinherit(
    process: &Process,
    property: Property,
    [value, before]: [&str; 2],
    is_known: impl FnMut(&Thread) -> bool,
) -> Result<()> {
    for thread in heirs(process, property, value, is_known) {
        put_back(&Place::Thread { thread, property }, before)?;
    }
    Ok(())
}

/// Gives a setting the value that it had. One that is gone by now needs nothing. It is written even if it seems to be so:
/// something else that was written may come into effect only now. Not every value that can be read can be written, though.
pub(crate) fn put_back(place: &Place, before: &str) -> Result<()> {
    let written = place.write(before);
    let now = place.read_once(|now| now == before)?;
    if now.is_some_and(|now| now != before) { written } else { Ok(()) }
}

/// The directories of an experiment.
struct Made {
    /// Kind, path, and identity if the path still leads to what was made.
    own: Vec<(DirectoryKind, PathBuf, Identity)>,
    /// Directories that were to be made: it is not known whether they were.
    unsure: Vec<(PathBuf, u64)>,
    /// Paths at which there is something else by now.
    others: Vec<PathBuf>,
}

impl Made {
    fn of(done: &[Undo]) -> Self {
        let mut made = Self { own: vec![], unsure: vec![], others: vec![] };
        for undo in done {
            let Undo::Directory { kind, path, since_ns, made: identity } = undo else { continue };
            let Some(identity) = identity else {
                made.unsure.push((path.clone(), *since_ns));
                continue;
            };
            made.unsure.retain(|(unsure, _)| unsure != path);
            match Identity::of(path) {
                Some(now) if now == *identity => made.own.push((*kind, path.clone(), now)),
                // It was removed already.
                None if path.symlink_metadata().is_err() => {}
                _ => made.others.push(path.clone()),
            }
        }
        made
    }

    /// The directories of a kind that are still what was made, the latest first.
    fn all(&self, kind: DirectoryKind) -> impl Iterator<Item = &Path> {
        let of_kind = self.own.iter().rev().filter(move |(it, ..)| *it == kind);
        let still = of_kind.filter(|(_, path, identity)| Identity::of(path) == Some(*identity));
        still.map(|(_, path, _)| path.as_path())
    }

    /// Whether a path is in one of these directories.
    fn holds(&self, path: &Path) -> bool {
        self.all(DirectoryKind::Files).any(|directory| path.starts_with(directory))
    }

    /// Removes directories that the experiment may have made just before it was killed: empty ones of this user, which
    /// were not there before.
    fn remove_unsure(&self) -> Vec<String> {
        let user = rustix::process::geteuid().as_raw();
        let failed = self.unsure.iter().filter_map(|(path, since_ns)| {
            let meta = path.symlink_metadata().ok()?;
            let changed_ns =
                meta.ctime().checked_mul(1_000_000_000)?.checked_add(meta.ctime_nsec())?;
            // The kernel's clock for files lags by up to one of its ticks.
            let is_new = u64::try_from(changed_ns).ok()? + TICK_NS >= *since_ns;
            if !meta.is_dir() || meta.uid() != user || !is_new {
                return None;
            }
            let error = std::fs::remove_dir(path).err()?;
            Some(format!("`{}` may be a part of it, and was left: {error}", path.display()))
        });
        failed.collect()
    }

    fn strangers(&self) -> impl Iterator<Item = String> {
        let said = |path: &PathBuf| {
            format!("`{}` is not what was made there: it was left as it is", path.display())
        };
        self.others.iter().map(said)
    }
}

/// Longest tick of the kernel, in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// Removes a directory with all that is in it, unless something is mounted in it.
fn remove_files(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("no list of mounts")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let mounted = points.map(Path::new).any(|point| point.starts_with(directory));
    ensure!(!mounted, "something is mounted in `{shown}`: it was not removed");
    std::fs::remove_dir_all(directory).with_context(|| format!("cannot remove `{shown}`"))
}

/// Waits until a keeper has ended its command and itself. One that does not is killed, and the command's first process with
/// it.
fn let_end(keeper: &Process, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout + GRACE;
    while keeper.stat().is_ok() {
        if Instant::now() > deadline {
            if let Ok(handle) = keeper.handle() {
                let _ = pidfd_send_signal(handle, Signal::KILL);
            }
            return Err(anyhow!(
                "{keeper} was killed, since it did not end the command that it had started: what that has started may \
                 still run"
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
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
mod tests;
