// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoes what an experiment changed, whatever happens to the process that runs it.
//!
//! Only the janitor undoes anything: a child process that is started before the first change. It gets the path of the
//! journal, in which every change is written before it is made, and waits for the end of its input, which the kernel
//! brings about when the runner ends in any way, including by SIGKILL. If the janitor is killed too, the journal is
//! left, and `deburr lab clean` does its work.

use super::journal::Journal;
use super::undo::{DirectoryKind, Identity, Undo, unix_ns};
use crate::output;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::DirBuilder;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longest time that processes may take to end, and that a filesystem may stay in use.
pub(crate) const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The cgroup, below that of the experiment, of processes that serve a disk: they must live until it is unmounted.
pub(crate) const SERVERS: &str = "disk";

/// Ensures that all registered changes are undone when it is dropped, or when its process is killed.
#[derive(Debug)]
pub(crate) struct Guard {
    journal: Journal,
    janitor: Child,
    finished: bool,
}

impl Guard {
    /// Starts the journal and the janitor of an experiment of this kind (`lab`, `sweep`).
    pub(crate) fn new(program: &Path, kind: &str) -> Result<Self> {
        let journal = Journal::create(kind)?;
        let janitor = Command::new(program)
            .args(["lab-worker", "janitor"])
            .arg(journal.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", program.display()))?;
        let mut guard = Self { journal, janitor, finished: false };
        // It is ready once signals to the runner's process group no longer reach it.
        let stdout = guard.janitor.stdout.as_mut().context("the janitor's output is not a pipe")?;
        let mut byte = [0];
        stdout.read_exact(&mut byte).context("the janitor did not start")?;
        Ok(guard)
    }

    /// The name of the experiment, for everything that it makes: nobody can guess it.
    pub(crate) fn name(&self) -> String {
        self.journal.name()
    }

    /// Makes a cgroup or a directory of the experiment, which is removed at the end with all that is in it. Returns
    /// `false` if something of that name exists: that is somebody else's.
    pub(crate) fn make(&mut self, kind: DirectoryKind, path: &Path) -> Result<bool> {
        let entry =
            |made| Undo::Directory { kind, path: path.to_owned(), since_ns: unix_ns(), made };
        self.will_undo(&entry(None))?;
        match DirBuilder::new().mode(kind.mode()).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make `{}`", path.display()));
            }
        }
        let identity = Identity::of(path).with_context(|| format!("`{}`", path.display()))?;
        self.will_undo(&entry(Some(identity)))?;
        Ok(true)
    }

    /// Registers a change to be undone at the end. Must be called before the change is made.
    pub(crate) fn will_undo(&mut self, undo: &Undo) -> Result<()> {
        ensure!(self.janitor.try_wait()?.is_none(), "the janitor has ended early");
        self.journal.add(undo)
    }

    /// Undoes everything now; an error if something could not be undone. Nothing can be registered afterwards.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.finished = true;
        drop(self.janitor.stdin.take());
        let status = self.janitor.wait().context("the janitor is lost")?;
        ensure!(
            status.success(),
            "deburr could not undo everything, see above; `deburr lab clean` tries again"
        );
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = self.finish()
        {
            eprintln!("deburr: {error:#}");
        }
    }
}

/// The main function of the janitor: `paths` is the path of the journal.
pub(crate) fn janitor(paths: &[PathBuf]) -> Result<()> {
    let [path] = paths else { bail!("the janitor needs one path") };
    let journal = Journal::open(path)?;
    // A session of its own, so that neither Ctrl-C nor a kill of the process group reaches it.
    rustix::process::setsid().context("cannot make a session")?;
    println!(".");
    // Whatever ends the reading, the runner has ended.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    for note in journal.undo(REMOVE_TIMEOUT, false)? {
        output::say(note);
    }
    Ok(())
}
