// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads of one worker: timed each, announced before they begin, and not tried again where one never ended.

use super::tree::Tree;
use crate::clock;
use deburr_core::snapshot::{Instance, Value};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// CPUs and the like of which there are more are not looked at: no kernel has more CPUs.
const MAX_NUMBERS: usize = 8192;
/// The same for disks and network cards: far more than hosts have, and few enough for a small file.
const MAX_NAMES: usize = 1024;
/// Where disks are listed, those that come and go or hold nothing.
const NO_DISKS: [&str; 5] = ["loop", "ram", "nbd", "fd", "sr"];

/// How long reading may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// One file.
    pub(crate) file: Duration,
    /// All files of one line of the whitelist; at least two of [`Limits::file`], so that one more is tried.
    pub(crate) entry: Duration,
    /// Everything.
    pub(crate) whole: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file: Duration::from_secs(1),
            entry: Duration::from_secs(3),
            whole: Duration::from_secs(30),
        }
    }
}

/// What workers and the one who watches them share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tree: Tree,
    pub(super) limits: Limits,
    started_ns: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Which worker reads; others were given up.
    worker: u64,
    /// What it reads, and since when.
    reading: Option<(String, u64)>,
    /// Files whose reading did not end.
    hung: BTreeSet<String>,
}

impl Shared {
    pub(super) fn new(tree: Tree, limits: Limits) -> Self {
        Self { tree, limits, started_ns: clock::monotonic_ns(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of a new worker; from now on what others say does not count.
    pub(super) fn new_worker(&self) -> u64 {
        let mut state = self.state();
        state.worker += 1;
        state.reading = None;
        state.worker
    }

    /// Gives the worker's read up if it takes too long, and says whether.
    pub(super) fn give_up(&self) -> bool {
        let mut state = self.state();
        let limit_ns = nanoseconds(self.limits.file);
        let Some((path, since_ns)) = &state.reading else { return false };
        if clock::monotonic_ns().saturating_sub(*since_ns) < limit_ns {
            return false;
        }
        let path = path.clone();
        state.hung.insert(path);
        // Whatever it was given, it is nobody's worker any more.
        state.worker += 1;
        state.reading = None;
        true
    }

    /// Files whose reading did not end.
    pub(super) fn hung(&self) -> BTreeSet<String> {
        self.state().hung.clone()
    }

    /// Time since it was made.
    pub(super) fn elapsed_ns(&self) -> u64 {
        clock::monotonic_ns().saturating_sub(self.started_ns)
    }
}

/// A read that came to its end.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    /// The file.
    pub(super) path: String,
    /// Key of the fact, without part.
    pub(super) key: String,
    pub(super) wall_ns: u64,
    pub(super) cpu_ns: u64,
    pub(super) bytes: u64,
}

/// A worker's way to files.
#[derive(Debug)]
pub(super) struct Files {
    shared: Arc<Shared>,
    worker: u64,
    listed: BTreeMap<String, Rc<Vec<(String, Instance)>>>,
    /// Reads of the entry at hand.
    pub(super) timings: Vec<Timing>,
    /// Files that the entry at hand asked for.
    pub(super) asked: u64,
    /// What should be known, of the entry at hand.
    pub(super) notes: BTreeSet<String>,
    /// Time that the entry at hand took so far.
    spent_ns: u64,
}

impl Files {
    pub(super) fn new(shared: Arc<Shared>, worker: u64) -> Self {
        let (listed, timings, notes) = Default::default();
        Self { shared, worker, listed, timings, notes, asked: 0, spent_ns: 0 }
    }

    /// Begins with another entry.
    pub(super) fn begin_entry(&mut self) {
        self.timings.clear();
        self.notes.clear();
        (self.asked, self.spent_ns) = (0, 0);
    }

    /// Content of a file of at most `cap` bytes.
    pub(super) fn content(&mut self, path: &str, key: &str, cap: usize) -> Result<Vec<u8>, Value> {
        self.timed(path, key, |tree| tree.content(path, cap), Vec::len)
    }

    /// Last name of what a symbolic link points to.
    pub(super) fn link(&mut self, path: &str, key: &str) -> Result<String, Value> {
        self.timed(path, key, |tree| tree.link(path), |_| 0)
    }

    /// Whether there is anything of that name.
    pub(super) fn exists(&mut self, path: &str) -> Result<bool, Value> {
        self.timed(path, path, |tree| tree.exists(path), |_| 0)
    }

    /// Names in a directory.
    pub(super) fn names(&mut self, path: &str) -> Result<Vec<String>, Value> {
        self.timed(path, path, |tree| tree.names(path), |_| 0)
    }

    /// A file, opened.
    pub(super) fn open(&mut self, path: &str) -> Result<std::os::fd::OwnedFd, Value> {
        self.timed(path, path, |tree| tree.file(path), |_| 0)
    }

    /// What is in a directory and stands for something: disks that are real, interrupts by the name of who asked for them.
    /// A directory that cannot be listed has nothing in it.
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
        // In the order of numbers: 2 before 10.
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
            // Cards, and what bundles them; virtual functions and pairs come and go with containers.
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

    /// Why a file is not tried.
    fn may_not(&mut self, shared: &Shared, path: &str) -> Option<Value> {
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

fn timed_out(shared: &Shared) -> Value {
    Value::TimedOut { after_ms: u64::try_from(shared.limits.file.as_millis()).unwrap_or(u64::MAX) }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of this thread.
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
