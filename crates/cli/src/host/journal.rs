// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal of an experiment: what it changes on this host, written down and flushed before each change, so that it
//! can be undone by whoever comes later.
//!
//! A journal is a file of its own in a directory that only root may enter. Runner and janitor hold a shared lock on it:
//! a journal that can be locked exclusively belongs to an experiment whose processes were both killed.

use super::undo::{Undo, undo_all};
use crate::claim::random_name;
use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of the journals. It is in memory, like most of what they name.
const DIRECTORY: &str = "/run/deburr";
const SUFFIX: &str = "journal";
/// Number of tries to create a journal that nobody removes in the same moment.
const TRIES: u32 = 8;

/// The journal of one experiment.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Creates a journal with a new random name, for an experiment of this kind (`lab`, `sweep`).
    pub(crate) fn create(kind: &str) -> Result<Self> {
        make_directory().with_context(|| format!("cannot keep a journal in `{DIRECTORY}`"))?;
        for _ in 0..TRIES {
            let name = format!("deburr-{kind}-{}-{}", std::process::id(), random_name()?);
            let path = Path::new(DIRECTORY).join(name).with_extension(SUFFIX);
            let shown = path.display();
            let mut open = OpenOptions::new();
            let open = open.append(true).read(true).create_new(true).mode(0o600);
            let file = open.open(&path).with_context(|| format!("cannot create `{shown}`"))?;
            flock(&file, FlockOperation::LockShared)?;
            // `lab clean` may have removed an empty journal before it was locked.
            if file.metadata()?.nlink() > 0 {
                let mut journal = Self { file, path };
                journal.add(&Undo::Boot { id: boot_id() })?;
                return Ok(journal);
            }
        }
        bail!("cannot keep a journal in `{DIRECTORY}`: it is removed at once")
    }

    /// The same, for a kind of which there must be no other on this host: neither under way nor left behind.
    pub(crate) fn create_alone(kind: &str) -> Result<Self> {
        make_directory().with_context(|| format!("cannot keep a journal in `{DIRECTORY}`"))?;
        // Of two that start in the same moment, one sees the journal of the other.
        let directory = File::open(DIRECTORY)?;
        flock(&directory, FlockOperation::LockExclusive)?;
        let prefix = format!("deburr-{kind}-");
        if let Some(left) = left_behind().iter().find(|it| it.name().starts_with(&prefix)) {
            bail!(
                "`{}` was killed with its guard, and what it changed on this host is still there: `deburr lab clean` \
                 undoes it",
                left.name()
            );
        }
        let own = |path: &PathBuf| path.file_name()?.to_str()?.starts_with(&prefix).then_some(());
        if let Some(other) = paths().iter().find(|path| own(path).is_some()) {
            let name = other.file_stem().unwrap_or_default().to_string_lossy();
            bail!(
                "another experiment is under way on this host (`{name}`): there can be only one, wait for its end"
            );
        }
        Self::create(kind)
    }

    /// Opens a journal of an experiment that is under way.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = open(path)?;
        flock(&file, FlockOperation::LockShared)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// The name of the experiment, which everything gets that it makes.
    pub(crate) fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds an entry. When this returns, it is in the file, whatever happens to this process.
    pub(crate) fn add(&mut self, undo: &Undo) -> Result<()> {
        let mut line = serde_json::to_string(undo)?;
        line.push('\n');
        let added = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        added.with_context(|| format!("cannot write `{}`", self.path.display()))
    }

    /// The entries so far. A line that is cut off is of a change that was not made.
    pub(crate) fn entries(&self) -> Result<Vec<Undo>> {
        let shown = self.path.display();
        let mut text = String::new();
        File::open(&self.path)
            .and_then(|mut file| file.read_to_string(&mut text))
            .with_context(|| format!("cannot read `{shown}`"))?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let entries = whole.lines().map(serde_json::from_str);
        entries.collect::<Result<_, _>>().with_context(|| format!("`{shown}` is damaged"))
    }

    /// Undoes everything, and removes the journal. If something could not be undone, the journal stays. Returns what was
    /// left alone, as [`undo_all`] does.
    pub(crate) fn undo(&self, timeout: Duration, careful: bool) -> Result<Vec<String>> {
        let mut entries = self.entries()?;
        let boot = boot_id();
        let rebooted =
            entries.iter().any(|entry| matches!(entry, Undo::Boot { id } if *id != boot));
        if rebooted {
            // Everything else went with the old kernel.
            entries.retain(|entry| matches!(entry, Undo::Directory { .. }));
        }
        let left = undo_all(&entries, timeout, careful)?;
        fs::remove_file(&self.path)
            .with_context(|| format!("cannot remove `{}`", self.path.display()))?;
        Ok(left)
    }
}

/// What became of the journals that were left behind.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The names of experiments of which everything is undone.
    pub(crate) undone: Vec<String>,
    /// What was left as it is, because it is not what the experiment made of it.
    pub(crate) left: Vec<String>,
    /// What could not be undone, and why. Its journal stays.
    pub(crate) failed: Vec<String>,
}

/// Undoes what the journals name whose runner and janitor are both gone.
pub(crate) fn recover(timeout: Duration) -> Recovered {
    let mut all = Recovered::default();
    for journal in left_behind() {
        match journal.undo(timeout, true) {
            Ok(left) => {
                all.left.extend(left);
                all.undone.push(journal.name());
            }
            Err(error) => all.failed.push(format!("`{}`: {error:#}", journal.path().display())),
        }
    }
    all
}

/// The files of all journals, in the order of their names.
fn paths() -> Vec<PathBuf> {
    let files = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == SUFFIX))
        .collect();
    paths.sort();
    paths
}

/// The journals of experiments whose processes were all killed. Those that name no change are removed.
pub(crate) fn left_behind() -> Vec<Journal> {
    let left = paths().into_iter().filter_map(|path| {
        let file = open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let journal = (file.metadata().ok()?.nlink() > 0).then_some(Journal { file, path })?;
        // Both were killed before the first change: there is nothing to undo.
        let is_empty =
            |entries: Vec<Undo>| entries.iter().all(|entry| matches!(entry, Undo::Boot { .. }));
        if journal.entries().is_ok_and(is_empty) {
            let _ = fs::remove_file(&journal.path);
            return None;
        }
        Some(journal)
    });
    left.collect()
}

/// Opens a journal, if nobody but root can have written it.
fn open(path: &Path) -> Result<File> {
    is_private(Path::new(DIRECTORY))?;
    let mut open = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = open.read(true).custom_flags(flags).open(path);
    let file = file.with_context(|| format!("cannot read `{}`", path.display()))?;
    let meta = file.metadata()?;
    let own = meta.is_file() && meta.uid() == 0 && meta.mode() & 0o077 == 0;
    ensure!(own, "`{}` is no journal of deburr", path.display());
    Ok(file)
}

fn make_directory() -> Result<()> {
    match DirBuilder::new().mode(0o700).create(DIRECTORY) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error)?,
        _ => is_private(Path::new(DIRECTORY)),
    }
}

/// An error unless this is a directory of root's that nobody else may enter.
fn is_private(directory: &Path) -> Result<()> {
    let meta = directory.symlink_metadata()?;
    let private = meta.is_dir() && meta.uid() == 0 && meta.mode() & 0o077 == 0;
    ensure!(private, "`{}` is not a directory of root's with mode 0700", directory.display());
    Ok(())
}

/// Distinguishes this run of the kernel from others; empty if that cannot be known.
fn boot_id() -> String {
    let read = || -> io::Result<String> { fs::read_to_string("/proc/sys/kernel/random/boot_id") };
    read().map(|id| id.trim().to_owned()).unwrap_or_default()
}
