// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoes what an experiment changed, whatever happens to the process that runs it.
//!
//! Only the janitor undoes anything: a child process that is started before the first change. It gets the cgroup and
//! the directory to remove as arguments, and every other change as a line on its standard input before the change is
//! made. It waits for the end of its input, which the kernel brings about when the runner ends in any way, including
//! by SIGKILL.

use super::cgroup;
use super::undo::{Undo, undo_all};
use anyhow::{Context as _, Result, bail, ensure};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longest time that processes may take to end, and that a filesystem may stay in use.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The cgroup, below that of the experiment, of processes that serve a disk: they must live until it is unmounted.
pub(crate) const SERVERS: &str = "disk";

/// Ensures that a cgroup, a directory and all other registered changes are undone when it is dropped, or when its
/// process is killed.
#[derive(Debug)]
pub(crate) struct Guard {
    janitor: Child,
    finished: bool,
}

impl Guard {
    /// Starts the janitor. Neither path needs to exist yet, and `scratch` may be `None`.
    pub(crate) fn new(program: &Path, cgroup: &Path, scratch: Option<&Path>) -> Result<Self> {
        let janitor = Command::new(program)
            .args(["lab-worker", "janitor"])
            .arg(cgroup)
            .args(scratch)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", program.display()))?;
        let mut guard = Self { janitor, finished: false };
        // It is ready once signals to the runner's process group no longer reach it.
        let stdout = guard.janitor.stdout.as_mut().context("the janitor's output is not a pipe")?;
        let mut byte = [0];
        stdout.read_exact(&mut byte).context("the janitor did not start")?;
        Ok(guard)
    }

    /// Registers a change to be undone at the end. Must be called before the change is made.
    pub(crate) fn will_undo(&mut self, undo: &Undo) -> Result<()> {
        let stdin = self.janitor.stdin.as_mut().context("the janitor is gone")?;
        let mut line = serde_json::to_string(undo)?;
        line.push('\n');
        stdin.write_all(line.as_bytes()).context("the janitor has ended early")
    }

    /// Undoes everything now; an error if something could not be undone.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.undo()
    }

    fn undo(&mut self) -> Result<()> {
        self.finished = true;
        drop(self.janitor.stdin.take());
        let status = self.janitor.wait().context("the janitor is lost")?;
        ensure!(status.success(), "deburr could not undo everything, see above");
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = self.undo()
        {
            eprintln!("deburr: {error:#}");
        }
    }
}

/// The main function of the janitor: `paths` are the cgroup and, if there is one, the scratch directory.
pub(crate) fn janitor(paths: &[PathBuf]) -> Result<()> {
    let (cgroup, scratch) = match paths {
        [cgroup] => (cgroup, None),
        [cgroup, scratch] => (cgroup, Some(scratch)),
        _ => bail!("the janitor needs one path or two"),
    };
    // A session of its own, so that neither Ctrl-C nor a kill of the process group reaches it.
    rustix::process::setsid().context("cannot make a session")?;
    println!(".");
    // Whatever ends the reading, the runner has ended. A line that is cut off is of a change that was not made yet.
    let mut told = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut told);
    let made: Vec<Undo> = told
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    cgroup::kill(cgroup, Some(SERVERS));
    let undone = undo_all(&made, REMOVE_TIMEOUT);
    let killed = cgroup::destroy(cgroup, REMOVE_TIMEOUT);
    // The processes that were killed last may have changed something until then.
    let undone = undone.and(undo_all(&made, REMOVE_TIMEOUT));
    let removed = scratch.map_or(Ok(()), |scratch| match std::fs::remove_dir_all(scratch) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", scratch.display()))
        }
        _ => Ok(()),
    });
    undone.and(killed).and(removed)
}
