// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file reads of a worker thread: each is timed, announced before it begins, and not tried again if it hung
//! before.

use super::limits::Limits;
use super::tree::Tree;
use crate::clock;
use deburr_core::snapshot::{Instance, Value};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of numbered instances, such as CPUs: no kernel has more CPUs.
const MAX_NUMBERS: usize = 8192;
/// The same for named instances, such as disks and network cards: far more than hosts have, and few enough for a
/// small file.
const MAX_NAMES: usize = 1024;
/// Name prefixes of block devices that are not looked at: they come and go, or hold nothing.
const NO_DISKS: [&str; 5] = ["loop", "ram", "nbd", "fd", "sr"];

/// State that the workers and the thread that watches them share.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) tree: Tree,
    pub(super) limits: Limits,
    started_ns: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the current worker; earlier ones were given up.
    worker: u64,
    /// The file that it reads, and since when on `CLOCK_MONOTONIC`.
    reading: Option<(String, u64)>,
    /// Files whose reading did not end.
    hung: BTreeSet<String>,
}

impl SharedState {
    pub(super) fn new(tree: Tree, limits: Limits) -> Self {
        Self { tree, limits, started_ns: clock::monotonic_ns(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a new worker. From now on results of other workers are ignored.
    pub(super) fn new_worker(&self) -> u64 {
        let mut state = self.state();
        state.worker += 1;
        state.reading = None;
        state.worker
    }

    /// Gives up the worker's current read if it takes too long. Returns whether it did.
    pub(super) fn give_up(&self) -> bool {
        let mut state = self.state();
        let limit_ns = nanoseconds(self.limits.file);
        let Some((path, since_ns)) = &state.reading else { return false };
        if clock::monotonic_ns().saturating_sub(*since_ns) < limit_ns {
            return false;
        }
        let path = path.clone();
        state.hung.insert(path);
        // From now on results of that worker are ignored.
        state.worker += 1;
        state.reading = None;
        true
    }

    /// Files whose reading did not end.
    pub(super) fn hung(&self) -> BTreeSet<String> {
        self.state().hung.clone()
    }

    /// Time since the start of the snapshot.
    pub(super) fn elapsed_ns(&self) -> u64 {
        clock::monotonic_ns().saturating_sub(self.started_ns)
    }
}

/// A read that ended.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    pub(super) path: String,
    /// Key of the fact, without its part.
    pub(super) key: String,
    pub(super) wall_ns: u64,
    pub(super) cpu_ns: u64,
    pub(super) bytes: u64,
}

/// A worker's access to files.
#[derive(Debug)]
pub(super) struct Files {
    shared: Arc<SharedState>,
    worker: u64,
    listed: BTreeMap<String, Rc<Vec<(String, Instance)>>>,
    /// Reads of the current entry.
    pub(super) timings: Vec<Timing>,
    /// Number of files that the current entry asked for.
    pub(super) asked: u64,
    /// Remarks for the user about the current entry.
    pub(super) notes: BTreeSet<String>,
    /// Time that the current entry took so far.
    spent_ns: u64,
}

impl Files {
    pub(super) fn new(shared: Arc<SharedState>, worker: u64) -> Self {
        let (listed, timings, notes) = Default::default();
        Self { shared, worker, listed, timings, notes, asked: 0, spent_ns: 0 }
    }

    /// Begins the next entry.
    pub(super) fn begin_entry(&mut self) {
        self.timings.clear();
        self.notes.clear();
        (self.asked, self.spent_ns) = (0, 0);
    }

    /// Content of a file of at most `cap` bytes.
    pub(super) fn content(&mut self, path: &str, key: &str, cap: usize) -> Result<Vec<u8>, Value> {
        self.timed(path, key, |tree| tree.content(path, cap), Vec::len)
    }

    /// Last path component of the target of a symbolic link.
    pub(super) fn link(&mut self, path: &str, key: &str) -> Result<String, Value> {
        self.timed(path, key, |tree| tree.link(path), |_| 0)
    }

    /// Whether the path exists.
    pub(super) fn exists(&mut self, path: &str) -> Result<bool, Value> {
        self.timed(path, path, |tree| tree.exists(path), |_| 0)
    }

    /// Names in a directory.
    pub(super) fn names(&mut self, path: &str) -> Result<Vec<String>, Value> {
        self.timed(path, path, |tree| tree.names(path), |_| 0)
    }

    /// Opens a file.
    pub(super) fn open(&mut self, path: &str) -> Result<std::os::fd::OwnedFd, Value> {
        self.timed(path, path, |tree| tree.file(path), |_| 0)
    }

    /// The entries of a directory that are instances of something: real disks, network cards, interrupts by the names
    /// of their handlers. A directory that cannot be listed counts as empty.
    pub(super) fn instances(&mut self, path: &str) -> Rc<Vec<(String, Instance)>> {
        if let Some(known) = self.listed.get(path) {
            return Rc::clone(known);
        }
        let mut names = self.names(path).unwrap_or_default();
        names.retain(|name| !name.starts_with('.'));
        let mut found = Vec::new();
        for name in names {
            if let Some(instance) = self.instance(path, &name) {
                found.push((name, instance));
            }
        }
        // In numerical order: 2 before 10.
        found.sort_by_key(|(name, _)| number_in(name));
        let numbered = found.iter().filter(|(name, _)| number_in(name).is_some()).count();
        let most = if numbered * 2 > found.len() { MAX_NUMBERS } else { MAX_NAMES };
        if found.len() > most {
            self.notes
                .insert(format!("{path}: only the first {most} of {} were looked at", found.len()));
            found.truncate(most);
        }
        let found = Rc::new(found);
        self.listed.insert(path.into(), Rc::clone(&found));
        found
    }

    fn instance(&mut self, directory: &str, name: &str) -> Option<Instance> {
        let there = |files: &mut Self, what: &str| {
            files.exists(&format!("{directory}/{name}/{what}")) == Ok(true)
        };
        let plain = || Instance::Name(name.to_owned());
        match directory {
            "/sys/block" => {
                let numbered = |kind: &&str| {
                    name.strip_prefix(*kind).is_some_and(|rest| rest.parse::<u32>().is_ok())
                };
                (!NO_DISKS.iter().any(numbered)).then(plain)
            }
            // Network cards and bonds. Virtual functions and veth pairs come and go with containers.
            "/sys/class/net" => {
                let card = there(self, "device") && !there(self, "device/physfn");
                (card || there(self, "bonding")).then(plain)
            }
            "/proc/irq" | "/sys/kernel/irq" => {
                name.parse::<u32>().ok()?;
                let actions = format!("/sys/kernel/irq/{name}/actions");
                let content = self.content(&actions, "/sys/kernel/irq/*/actions", 4096).ok()?;
                let actions = deburr_core::text::name::decode(content.trim_ascii());
                (!actions.is_empty()).then_some(Instance::Name(actions))
            }
            _ => Some(name.parse().map_or_else(|_| plain(), Instance::Number)),
        }
    }

    pub(super) fn timed<T>(
        &mut self,
        path: &str,
        key: &str,
        look: impl FnOnce(&Tree) -> Result<T, Value>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Result<T, Value> {
        self.asked += 1;
        let shared = Arc::clone(&self.shared);
        if let Some(refusal) = self.may_not(&shared, path) {
            return Err(refusal);
        }
        let cpu_ns = thread_cpu_ns();
        let start_ns = clock::monotonic_ns();
        shared.state().reading = Some((path.to_owned(), start_ns));
        let result = look(&shared.tree);
        let wall_ns = clock::monotonic_ns().saturating_sub(start_ns);
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        self.spent_ns += wall_ns;
        let mut state = shared.state();
        if state.worker != self.worker {
            return Err(timed_out(&shared));
        }
        state.reading = None;
        drop(state);
        if !matches!(result, Err(Value::Absent)) {
            let bytes = result.as_ref().map_or(0, bytes) as u64;
            self.timings.push(Timing {
                path: path.into(),
                key: key.into(),
                wall_ns,
                cpu_ns,
                bytes,
            });
        }
        result
    }

    /// Why a file must not be read; `None` if it may.
    fn may_not(&mut self, shared: &SharedState, path: &str) -> Option<Value> {
        let state = shared.state();
        let hung = state.hung.contains(path);
        let mine = state.worker == self.worker;
        drop(state);
        if hung {
            self.spent_ns += nanoseconds(shared.limits.file);
        }
        if hung || !mine {
            return Some(timed_out(shared));
        }
        let not_tried = |why: &str| Some(Value::Unreadable(format!("not tried: {why}")));
        if self.spent_ns > nanoseconds(shared.limits.entry) {
            return not_tried("reading others of its kind took too long");
        }
        if shared.elapsed_ns() > nanoseconds(shared.limits.whole) {
            return not_tried("reading what comes before it took too long");
        }
        None
    }
}

fn timed_out(shared: &SharedState) -> Value {
    Value::TimedOut { after_ms: u64::try_from(shared.limits.file.as_millis()).unwrap_or(u64::MAX) }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of the calling thread.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let ns =
        time.tv_sec.saturating_mul(clock::SECOND_NS.cast_signed()).saturating_add(time.tv_nsec);
    ns.cast_unsigned()
}

/// The number at the end of a name.
fn number_in(name: &str) -> Option<u64> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[name.len() - digits..].parse().ok()
}
