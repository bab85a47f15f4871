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
use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal};
use std::fs::DirBuilder;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that processes may take to end, and that a filesystem may stay in use.
pub(crate) const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The cgroup, below that of the experiment, of processes that serve a disk: they must live until it is unmounted.
pub(crate) const SERVERS: &str = "disk";
/// The cgroup, below that of the lab, of an experiment with its own janitor: both end by themselves, and must not be killed
/// before the host is as it was.
pub(crate) const EXPERIMENT: &str = "experiment";

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
        Self::with(program, Journal::create(kind)?, &[])
    }

    /// The same for one that must be the only one of its kind, and whose janitor leaves settings alone that somebody else
    /// has changed.
    pub(crate) fn careful(program: &Path, kind: &str) -> Result<Self> {
        let runner = format!("--runner={}", std::process::id());
        Self::with(program, Journal::create_alone(kind)?, &["--careful", &runner])
    }

    fn with(program: &Path, journal: Journal, arguments: &[&str]) -> Result<Self> {
        let janitor = Command::new(program)
            .args(["lab-worker", "janitor"])
            .args(arguments)
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
        self.check()?;
        self.journal.add(undo)
    }

    /// An error if nobody would undo the changes when this process is killed.
    pub(crate) fn check(&mut self) -> Result<()> {
        ensure!(self.janitor.try_wait()?.is_none(), "the janitor has ended early");
        Ok(())
    }

    /// From now on, the janitor kills this process and undoes everything when this time is over; `None` = never.
    pub(crate) fn deadline(&mut self, after: Option<Duration>) -> Result<()> {
        let ms =
            after.map_or(0, |after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1));
        let pipe = self.janitor.stdin.as_mut().context("the janitor has no input")?;
        pipe.write_all(&ms.to_ne_bytes()).context("the janitor has ended early")
    }

    /// The entries of the journal so far.
    pub(crate) fn entries(&self) -> Result<Vec<Undo>> {
        self.journal.entries()
    }

    /// Undoes everything now; an error if something could not be undone. Nothing can be registered afterwards.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.finished = true;
        drop(self.janitor.stdin.take());
        let status = self.janitor.wait().context("the janitor is lost")?;
        if status.code().is_none() && self.journal.path().exists() {
            // It was killed: nobody else does its work.
            self.journal.undo(REMOVE_TIMEOUT, true)?.iter().for_each(output::say);
            return Ok(());
        }
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

/// Arguments of the janitor.
#[derive(Debug, clap::Args)]
pub(crate) struct JanitorArgs {
    /// Leave settings alone that somebody else has changed
    #[arg(long)]
    careful: bool,
    /// The process whose changes these are, to be killed when it misses its deadline
    #[arg(long)]
    runner: Option<i32>,
    /// The journal
    path: PathBuf,
}

/// The main function of the janitor.
pub(crate) fn janitor(args: &JanitorArgs) -> Result<()> {
    let journal = Journal::open(&args.path)?;
    // A session of its own, so that neither Ctrl-C nor a kill of the process group reaches it.
    rustix::process::setsid().context("cannot make a session")?;
    let runner = args.runner.and_then(parent);
    println!(".");
    if has_missed_its_deadline() {
        output::say(
            "the experiment did not put back its changes in time: it is ended, and they are put back",
        );
        if let Some(runner) = runner {
            // Whatever it was about to change, it cannot any more. One that the kernel holds fast must be left.
            let _ = pidfd_send_signal(&runner, Signal::KILL);
            let wait = Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&runner, PollFlags::IN)], Some(&wait));
        }
    }
    for note in journal.undo(REMOVE_TIMEOUT, args.careful)? {
        output::say(note);
    }
    Ok(())
}

/// A handle of the parent process, if it has this number.
fn parent(pid: i32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(pid)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // While it is the parent, nobody else has its number.
    (getppid() == Some(pid)).then_some(handle)
}

/// Waits for the end of the runner, or for its deadline. Standard input is a sequence of numbers: milliseconds until the
/// runner must have said something else, or 0. Whatever else ends the reading, the runner has ended.
fn has_missed_its_deadline() -> bool {
    let stdin = std::io::stdin();
    let mut deadline: Option<Instant> = None;
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return false,
        }
        // Each is written at once, so a pipe gives each as a whole.
        let mut number = [0; 8];
        match rustix::io::read(&stdin, &mut number) {
            Ok(8) => {
                let ms = u64::from_ne_bytes(number);
                deadline = (ms > 0)
                    .then(|| Instant::now().checked_add(Duration::from_millis(ms)))
                    .flatten();
            }
            Err(Errno::INTR) => {}
            _ => return false,
        }
    }
}
