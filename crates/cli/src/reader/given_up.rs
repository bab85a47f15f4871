// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was given up, on whom, and who is therefore not asked about any more.

use crate::collect::Roots;
use crate::files::Inquiry;
use deburr_core::procfs::pid;
use deburr_core::recording::DevId;
use deburr_core::text::{name, ticked, units};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::time::{Duration, Instant};

/// Reads that may be given up: in all, and about processes of one user. Each of them delays the caller.
const MOST_GIVEN_UP: usize = 16;
const MOST_OF_USER: usize = 4;
/// Time that slow reads may take: in all, and about processes of one user.
const MOST_TIME: Duration = Duration::from_secs(20);
const MOST_TIME_OF_USER: Duration = Duration::from_secs(5);
/// What takes less is not counted as slow.
const SLOW: Duration = Duration::from_millis(20);
/// Containers whose files are looked at: whoever may make cgroups can make any number of them look like containers.
const MOST_CONTAINERS: usize = 4096;
/// Look-ups of one filesystem that may be given up, and the time after which a second one is tried: a disk may have been
/// silent for a moment.
const MOST_OF_FILESYSTEM: usize = 2;
const FILESYSTEM_RESTS: Duration = Duration::from_secs(5);
/// Processes, or filesystems, that are named.
const MOST_NAMED: usize = 4;

/// Why something was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NotRead {
    /// The read did not end in time.
    Stuck,
    /// The process that reads came to grief over it.
    Failed,
    /// There is no process that reads: it could not be started.
    NotStarted,
    /// It was not tried, because others of the same user or too many of all did not end or took too long.
    NotTried,
}

/// What a question is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    Process(u32),
    /// The names of the kernel's functions.
    Kernel,
    /// The files of container runtimes.
    Containers,
    /// Files of a filesystem.
    Files(&'a Inquiry),
}

/// The account of what was not read.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Processes about which a read did not end or failed, by pid: their comm. They are not asked about again.
    processes: BTreeMap<u32, (String, NotRead)>,
    /// Processes that were not asked about.
    not_tried: BTreeSet<u32>,
    users: HashMap<Option<u32>, User>,
    all: User,
    containers: usize,
    containers_failed: bool,
    /// Filesystems about which a look-up did not end or failed.
    filesystems: BTreeMap<DevId, SilentFilesystem>,
    /// What was not read because there was no process to read it.
    not_started: u64,
}

/// A filesystem that did not answer.
#[derive(Debug)]
struct SilentFilesystem {
    point: String,
    times: usize,
    last: Instant,
}

/// What processes of a user have cost.
#[derive(Clone, Copy, Debug, Default)]
struct User {
    given_up: usize,
    slow: Duration,
}

impl User {
    fn is_above(&self, given_up: usize, slow: Duration) -> bool {
        self.given_up >= given_up || self.slow >= slow
    }
}

impl Ledger {
    /// Whether that may be asked about.
    pub(super) fn may_ask(&mut self, roots: &Roots, about: About<'_>) -> Result<(), NotRead> {
        let pid = match about {
            About::Files(inquiry) => return self.may_look_up(inquiry.fs),
            About::Kernel => return Ok(()),
            About::Containers => {
                self.containers += 1;
                let may = !self.containers_failed && self.containers <= MOST_CONTAINERS;
                return may.then_some(()).ok_or(NotRead::NotTried);
            }
            About::Process(pid) => pid,
        };
        if let Some((_, why)) = self.processes.get(&pid) {
            return Err(*why);
        }
        let is_above = self.all.is_above(MOST_GIVEN_UP, MOST_TIME)
            || self.users.values().any(|user| user.is_above(MOST_OF_USER, MOST_TIME_OF_USER))
                && self
                    .users
                    .get(&user_of(roots, pid))
                    .is_some_and(|user| user.is_above(MOST_OF_USER, MOST_TIME_OF_USER));
        if is_above {
            if self.not_tried.len() < 1 << 16 {
                self.not_tried.insert(pid);
            }
            return Err(NotRead::NotTried);
        }
        Ok(())
    }

    /// Takes what came of a question.
    pub(super) fn note(
        &mut self,
        roots: &Roots,
        about: About<'_>,
        took: Duration,
        not_read: Option<NotRead>,
    ) {
        if not_read == Some(NotRead::NotStarted) {
            self.not_started += 1;
            return;
        }
        if not_read.is_none() && took < SLOW {
            return;
        }
        let pid = match about {
            About::Files(inquiry) => {
                if not_read.is_some() {
                    self.note_silent(inquiry);
                }
                return;
            }
            About::Kernel => return,
            About::Containers => {
                self.containers_failed |= not_read.is_some();
                return;
            }
            About::Process(pid) => pid,
        };
        let user = self.users.entry(user_of(roots, pid)).or_default();
        for account in [user, &mut self.all] {
            account.given_up += usize::from(not_read.is_some());
            account.slow += took;
        }
        if let Some(why) = not_read {
            let comm = fs::read(roots.proc.join(pid.to_string()).join("comm")).unwrap_or_default();
            self.processes.insert(pid, (name::decode(comm.trim_ascii_end()), why));
        }
    }

    fn may_look_up(&self, fs: DevId) -> Result<(), NotRead> {
        let given_up: usize = self.filesystems.values().map(|silent| silent.times).sum();
        let rests = self.filesystems.get(&fs).is_some_and(|silent| {
            silent.times >= MOST_OF_FILESYSTEM || silent.last.elapsed() < FILESYSTEM_RESTS
        });
        let may = !rests && given_up < MOST_GIVEN_UP;
        may.then_some(()).ok_or(NotRead::NotTried)
    }

    fn note_silent(&mut self, inquiry: &Inquiry) {
        let point = name::decode(inquiry.point());
        let last = Instant::now();
        let silent = self.filesystems.entry(inquiry.fs);
        let silent = silent.or_insert(SilentFilesystem { point, times: 0, last });
        (silent.times, silent.last) = (silent.times + 1, last);
    }

    /// The filesystems that did not answer, as part of a sentence.
    pub(super) fn filesystems_text(&self) -> Option<String> {
        let named = |(fs, silent): (&DevId, &SilentFilesystem)| match silent.point.is_empty() {
            true => fs.to_string(),
            false => format!("{fs} ({})", ticked(&silent.point)),
        };
        let names = shortened(self.filesystems.iter().map(named).collect());
        (!names.is_empty()).then(|| {
            format!(
                "looking up files of {names} did not end: they have the path at which they were first seen, or none"
            )
        })
    }

    /// All about processes and containers, as part of a sentence.
    pub(super) fn text(&self) -> Option<String> {
        let mut parts = Vec::new();
        for (why, what) in [(NotRead::Stuck, "did not end"), (NotRead::Failed, "failed")] {
            let those = self.processes.iter().filter(|(_, (_, of))| *of == why);
            let names = shortened(
                those.map(|(pid, (comm, _))| format!("{} (pid {pid})", ticked(comm))).collect(),
            );
            if !names.is_empty() {
                parts.push(format!("reading the program, environment or memory of {names} {what}"));
            }
        }
        if !self.not_tried.is_empty() {
            parts.push(format!(
                "{} of users whose processes held up such reads, or beyond the time for them, were not tried",
                units::counted(self.not_tried.len() as u64, "process", "processes")
            ));
        }
        if self.containers_failed {
            parts.push("reading the files of container runtimes did not end".into());
        } else if self.containers > MOST_CONTAINERS {
            parts.push(format!("names of only {MOST_CONTAINERS} containers were looked up"));
        }
        if self.not_started > 0 {
            parts.push(format!(
                "the process that reads what may never end could not be started, so {} not asked",
                units::counted(self.not_started, "question was", "questions were")
            ));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The first of these names, and the number of the others.
fn shortened(mut names: Vec<String>) -> String {
    if let more @ 1.. = names.len().saturating_sub(MOST_NAMED) {
        names.truncate(MOST_NAMED);
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// The user of a process; `None` if it is gone.
fn user_of(roots: &Roots, pid: u32) -> Option<u32> {
    // Not the owner of its directory: that is root, if the process does not want to be looked at.
    pid::status(&fs::read(roots.proc.join(pid.to_string()).join("status")).ok()?).euid
}
