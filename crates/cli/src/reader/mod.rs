// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads what may never end, in a process of its own that can be given up.
//!
//! Others decide how long it takes to read the memory of their processes (command line, environment, numbers of a
//! runtime), a program on a filesystem whose server does not answer, or a file behind a mount of theirs. A disk that
//! does not answer, or whose mount point lies below such a filesystem, holds up whoever looks up its files. The kernel
//! lets some of these reads wait where not even SIGKILL ends them, and a process with such a thread cannot end either.
//! So another process reads, answers within a time limit or is left behind, and is then replaced.
//!
//! Users whose processes held up reads are not asked about for ever: there is a limit per user, and one for the host.

mod given_up;
mod helper;
mod protocol;
mod serve;

pub(crate) use given_up::NotRead;
pub(crate) use serve::{ReaderArgs, run};

use crate::collect::Roots;
use crate::files::{AskFilesystem, Inquiry, Lookup};
use crate::limits::HiddenReason;
use crate::snapshot::Limits;
use deburr_core::recording::{Container, RuntimeReading};
use deburr_core::snapshot::Snapshot;
use given_up::{About, Ledger};
use helper::Helper;
use protocol::Question;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Interval at which it is tried to start a process, if that fails.
const START_EVERY: Duration = Duration::from_secs(1);

/// Has things read. Clones share one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    helper: Option<Helper>,
    /// If one could not be started: when that is tried again.
    next_start: Option<Instant>,
    ledger: Ledger,
    /// CPU time of the processes before this one.
    cpu_ns: u64,
    /// Pids of all of them.
    pids: Vec<u32>,
}

impl Reader {
    /// Starts the process that reads before it is needed. If it cannot be started now, that is tried again.
    pub(crate) fn start(&self, roots: &Roots) {
        let _ = self.0.borrow_mut().helper(roots);
    }

    /// The runtime of a process; `None` = no known one.
    pub(crate) fn runtime(
        &self,
        roots: &Roots,
        pid: u32,
        threads: u32,
    ) -> Result<Option<RuntimeReading>, HiddenReason> {
        let question = Question::Runtime { pid, threads };
        let answer: Result<Result<_, HiddenReason>, NotRead> =
            self.ask(roots, About::Process(pid), &question);
        answer.unwrap_or_else(|why| Err(HiddenReason::NotRead(why)))
    }

    /// The first bytes of the command line of a process, decoded, with spaces between the words; `None` if there is none.
    pub(crate) fn command_line(
        &self,
        roots: &Roots,
        pid: u32,
        bytes: u64,
    ) -> Result<Option<String>, NotRead> {
        self.ask(roots, About::Process(pid), &Question::CommandLine { pid, bytes })
    }

    /// The functions of these addresses in a process, in their order; `None` = what it has mapped cannot be read.
    pub(crate) fn functions(
        &self,
        roots: &Roots,
        pid: u32,
        addresses: &[u64],
    ) -> Result<Vec<String>, NotRead> {
        let question = Question::Functions { pid: Some(pid), addresses: addresses.to_vec() };
        let answer: Option<Vec<String>> = self.ask(roots, About::Process(pid), &question)?;
        answer.filter(|names| names.len() == addresses.len()).ok_or(NotRead::Failed)
    }

    /// The same in the kernel.
    pub(crate) fn kernel_functions(
        &self,
        roots: &Roots,
        addresses: &[u64],
    ) -> Result<Vec<String>, NotRead> {
        let question = Question::Functions { pid: None, addresses: addresses.to_vec() };
        let answer: Option<Vec<String>> = self.ask(roots, About::Kernel, &question)?;
        answer.filter(|names| names.len() == addresses.len()).ok_or(NotRead::Failed)
    }

    /// Adds to a container what the files of container runtimes say about it.
    pub(crate) fn complete(&self, roots: &Roots, container: &mut Container) {
        let question = Question::Container(container.clone());
        if let Ok(complete) = self.ask(roots, About::Containers, &question) {
            *container = complete;
        }
    }

    /// Asks filesystems for files.
    pub(crate) fn files(&self, roots: &Roots) -> FileReader {
        FileReader { reader: self.clone(), roots: roots.clone() }
    }

    /// Which filesystems did not answer, as part of a sentence; `None` = none.
    pub(crate) fn filesystems_given_up(&self) -> Option<String> {
        self.0.borrow().ledger.filesystems_text()
    }

    /// What was given up of processes and containers, and on whom, as part of a sentence; `None` = nothing.
    pub(crate) fn given_up(&self) -> Option<String> {
        self.0.borrow().ledger.text()
    }

    /// CPU time that reading has taken so far.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let state = self.0.borrow();
        state.cpu_ns + state.helper.as_ref().map_or(0, |helper| helper.cpu_ns)
    }

    /// Pid of the process that reads, if one runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.0.borrow().helper.as_ref().map(|helper| helper.pid)
    }

    /// Whether that is the pid of a process that reads or has read.
    pub(crate) fn is_own(&self, pid: u32) -> bool {
        self.0.borrow().pids.contains(&pid)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        roots: &Roots,
        about: About<'_>,
        question: &Question,
    ) -> Result<T, NotRead> {
        let mut state = self.0.borrow_mut();
        state.ledger.may_ask(roots, about)?;
        let begin = Instant::now();
        let answer = state.answer(roots, question);
        state.ledger.note(roots, about, begin.elapsed(), answer.as_ref().err().copied());
        answer
    }
}

/// A snapshot of the tree at `root`, which must be an absolute path, or why that tree cannot be opened. Taking one
/// limits itself, so it may take as long as it does.
pub(crate) fn snapshot(
    root: PathBuf,
    limits: Limits,
    redact: bool,
) -> Result<Result<Snapshot, String>, NotRead> {
    let roots = Roots { root, ..Roots::default() };
    let mut helper = Helper::start(&roots).map_err(|_| NotRead::NotStarted)?;
    helper.ask_patiently(&Question::Snapshot { limits, redact })
}

/// Asks filesystems through a [`Reader`].
#[derive(Clone, Debug)]
pub(crate) struct FileReader {
    reader: Reader,
    roots: Roots,
}

impl AskFilesystem for FileReader {
    fn ask(&mut self, inquiry: &Inquiry) -> Option<Vec<Lookup>> {
        let question = Question::Files(inquiry.clone());
        self.reader.ask(&self.roots, About::Files(inquiry), &question).ok()
    }
}

impl State {
    fn answer<T: DeserializeOwned>(
        &mut self,
        roots: &Roots,
        question: &Question,
    ) -> Result<T, NotRead> {
        let helper = self.helper(roots).ok_or(NotRead::NotStarted)?;
        let answer = helper.ask(question);
        if answer.is_err()
            && let Some(helper) = self.helper.take()
        {
            self.cpu_ns += helper.cpu_ns;
        }
        answer
    }

    fn helper(&mut self, roots: &Roots) -> Option<&mut Helper> {
        if self.helper.is_none() {
            let now = Instant::now();
            if self.next_start.is_some_and(|next| now < next) {
                return None;
            }
            match Helper::start(roots) {
                Ok(helper) => {
                    self.pids.push(helper.pid);
                    self.helper = Some(helper);
                }
                Err(_) => self.next_start = Some(now + START_EVERY),
            }
        }
        self.helper.as_mut()
    }
}

#[cfg(test)]
mod tests;
