// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoing what an experiment made, whatever happens to the process that runs it.
//!
//! The undoing is done in one place only: by the janitor, a child process that is started before anything is
//! made and told what to remove: the cgroup and the directory as arguments, and whatever else is made, before
//! it is made, by a line on its standard input. It waits for the end of that, which the kernel brings about
//! when the runner ends in any way, SIGKILL included.

use super::cgroup;
use super::undo::{Undo, undo_all};
use anyhow::{Context as _, Result, bail, ensure};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longest time that processes may take to die, and a filesystem to be free of users.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The cgroup, below the experiment's own, of what serves a disk: it must live until that is unmounted.
pub(crate) const SERVERS: &str = "disk";

/// Sees to it that a cgroup, a directory and what else it was told of are gone when it is dropped, or when its
/// process is killed.
#[derive(Debug)]
pub(crate) struct Guard {
    janitor: Child,
    finished: bool,
}

impl Guard {
    /// Starts the janitor. Neither path needs to exist yet, and there may be no directory to remove.
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
        // It is ready when it no longer dies of the signals that reach the runner's process group.
        let stdout = guard.janitor.stdout.as_mut().context("the janitor's output is not a pipe")?;
        let mut byte = [0];
        stdout.read_exact(&mut byte).context("the janitor did not start")?;
        Ok(guard)
    }

    /// Has something undone in the end. To be called before it is done.
    pub(crate) fn will_undo(&mut self, undo: &Undo) -> Result<()> {
        let stdin = self.janitor.stdin.as_mut().context("the janitor is gone")?;
        let mut line = serde_json::to_string(undo)?;
        line.push('\n');
        stdin.write_all(line.as_bytes()).context("the janitor has ended early")
    }

    /// Undoes everything now and says what could not be undone.
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

/// The janitor's whole life: `paths` are the cgroup and, if there is one, the scratch directory.
pub(crate) fn janitor(paths: &[PathBuf]) -> Result<()> {
    let (cgroup, scratch) = match paths {
        [cgroup] => (cgroup, None),
        [cgroup, scratch] => (cgroup, Some(scratch)),
        _ => bail!("the janitor needs one path or two"),
    };
    // A session of its own: neither Ctrl-C nor a kill of the process group may reach it.
    rustix::process::setsid().context("cannot make a session")?;
    println!(".");
    // Whatever ends the reading, the runner is done. Of a line that is cut off, nothing was done yet.
    let mut told = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut told);
    let made: Vec<Undo> = told
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    cgroup::kill(cgroup, Some(SERVERS));
    let undone = undo_all(&made, REMOVE_TIMEOUT);
    let killed = cgroup::destroy(cgroup, REMOVE_TIMEOUT);
    // Whoever was killed last may have made something until then.
    let undone = undone.and(undo_all(&made, REMOVE_TIMEOUT));
    let removed = scratch.map_or(Ok(()), |scratch| match std::fs::remove_dir_all(scratch) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", scratch.display()))
        }
        _ => Ok(()),
    });
    undone.and(killed).and(removed)
}
