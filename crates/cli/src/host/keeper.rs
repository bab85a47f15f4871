// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps a command that an experiment starts: a process between the two, which starts the command and ends it with all that
//! is below it when its input ends. The kernel brings that about when the experiment ends in any way, including by SIGKILL.
//! What the command leaves behind becomes a child of the keeper, so nothing of it is lost.

use super::descendants::{below, kill_below};
use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, pidfd_open,
    set_child_subreaper, wait,
};
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What the keeper writes before it starts the command, once a byte tells it to.
pub(crate) const READY: &str = "ready";
/// What the line begins with that says how the command ended by itself.
pub(crate) const ENDED: &str = "ended: ";
/// What a command that is asked to end (SIGTERM) is given before it is killed.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// Longest time that killed processes may take to end.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// How often it looks for processes that have ended.
const LOOK: Duration = Duration::from_millis(10);
/// The same while nothing else happens.
const IDLE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Arguments of the keeper.
#[derive(Debug, clap::Args)]
pub(crate) struct KeeperArgs {
    /// Directory of a cgroup in which the command is started; several are of several trees
    #[arg(long)]
    within: Vec<PathBuf>,
    /// The command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// The main function of the keeper. Prints [`READY`], waits for a byte, starts the command, prints its number, and at the
/// end of the command [`ENDED`] with its status.
pub(crate) fn keep(args: &KeeperArgs) -> Result<()> {
    // A session of its own, so that neither Ctrl-C nor a kill of the process group reaches it.
    rustix::process::setsid().context("cannot make a session")?;
    set_child_subreaper(Some(getpid())).context("cannot adopt processes")?;
    say(READY)?;
    if std::io::stdin().read(&mut [0]).unwrap_or(0) == 0 {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    // It joins the cgroup before it executes the command, so that no part of the command runs outside.
    let mut command = Command::new(program);
    command.arg("lab-worker");
    for dir in &args.within {
        command.arg("--cgroup").arg(dir);
    }
    command.args(["tool", "--"]).args(&args.command).process_group(0);
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    let child = command.spawn().context("cannot start a process")?;
    let leader = Pid::from_child(&child);
    let handle = pidfd_open(leader, PidfdFlags::empty()).context("the command is lost")?;
    say(&leader.as_raw_nonzero().to_string())?;
    if let Some(status) = until_it_ends(leader, &handle)? {
        // Nobody may be left to read it.
        let _ = say(&format!("{ENDED}{}", words(status)));
        return end(None);
    }
    end(Some(leader))
}

fn say(line: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("nobody reads")
}

/// Waits for the end of the command, and returns its status, or for that of the input.
fn until_it_ends(leader: Pid, handle: &OwnedFd) -> Result<Option<WaitStatus>> {
    let stdin = std::io::stdin();
    loop {
        let mut files = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(handle, PollFlags::IN)];
        match poll(&mut files, Some(&IDLE)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait"),
        }
        let told = !files[0].revents().is_empty();
        if let Some(status) = reap(leader) {
            return Ok(Some(status));
        }
        if told && stdin.lock().read(&mut [0]).unwrap_or(0) == 0 {
            return Ok(None);
        }
    }
}

/// Takes note of all children that have ended. Returns the status of the command if it is among them.
fn reap(leader: Pid) -> Option<WaitStatus> {
    let mut status = None;
    while let Ok(Some((pid, ended))) = wait(WaitOptions::NOHANG) {
        if pid == leader {
            status = Some(ended);
        }
    }
    status
}

/// Ends all that is below this process: the command, if it runs, first by a request.
fn end(leader: Option<Pid>) -> Result<()> {
    let own = getpid().as_raw_nonzero().get();
    if let Some(leader) = leader {
        // While it has not been waited for, nobody else has its number.
        let _ = kill_process_group(leader, Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while reap(leader).is_none() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
    }
    let deadline = Instant::now() + KILLED_WITHIN;
    while kill_below(own) > 0 && Instant::now() < deadline {
        thread::sleep(LOOK);
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
    let left: Vec<String> = below(own).iter().map(ToString::to_string).collect();
    ensure!(
        left.is_empty(),
        "what the command has started does not end, although it was killed: process {}",
        left.join(", ")
    );
    Ok(())
}

/// How a process ended, in words.
fn words(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => format!("exit status {status}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "in an unknown way".into(),
    }
}
