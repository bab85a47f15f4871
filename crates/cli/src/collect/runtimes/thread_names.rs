// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the threads of a process did, by thread name: those that a runtime's number applies to, and others.
//!
//! A thread takes some 8 us to read. So looks are a second apart, or a thousand times as long as the last one took.

use crate::collect::{Emit, Roots};
use deburr_core::procfs::schedstat::{self, Schedstat};
use deburr_core::recording::{NamedThreads, ProcId, Record};
use deburr_core::text::name;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Threads that are read per process.
const MAX_THREADS: usize = 4096;
/// Names that are kept apart: those that ran or waited longest.
const MAX_NAMES: usize = 16;
/// At most one part in this many of the time is spent on looking.
const RARITY: u64 = 1000;
const SECOND_NS: u64 = 1_000_000_000;

/// The processes that were looked at before.
#[derive(Debug, Default)]
pub(super) struct ThreadNames {
    watched: BTreeMap<ProcId, LastReading>,
    due_ns: u64,
}

/// A process, as of the last look.
#[derive(Debug)]
struct LastReading {
    t_ns: u64,
    threads: BTreeMap<u32, Schedstat>,
}

/// What the threads of one name did since the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    threads: u32,
    on_cpu_ns: u64,
    delay_ns: u64,
}

impl ThreadNames {
    /// Whether it is time to look.
    pub(super) fn is_due(&self, t_ns: u64) -> bool {
        t_ns >= self.due_ns
    }

    /// Takes the cost of a round of looks, which determines when the next one is due.
    pub(super) fn next_after(&mut self, t_ns: u64, spent: Duration) {
        let spent_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        // Half a second, since rounds are a second apart: beats are late and early by microseconds.
        self.due_ns = t_ns + (SECOND_NS / 2).max(spent_ns.saturating_mul(RARITY));
    }

    /// Forgets the processes that are not among these.
    pub(super) fn retain(&mut self, known: &HashSet<ProcId>) {
        self.watched.retain(|id, _| known.contains(id));
    }

    /// Emits what the threads of a process did since the last look; nothing at the first look.
    pub(super) fn look(
        &mut self,
        roots: &Roots,
        (id, pid): (ProcId, u32),
        t_ns: u64,
        emit: Emit<'_>,
    ) {
        let dir = roots.proc.join(pid.to_string()).join("task");
        let Ok(tasks) = fs::read_dir(&dir) else {
            self.watched.remove(&id);
            return;
        };
        let own = comm_of(&dir.join(pid.to_string())).unwrap_or_default();
        let before = self.watched.remove(&id);
        let mut threads = BTreeMap::new();
        let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
        for task in tasks.flatten().take(MAX_THREADS) {
            let Some(tid) = task.file_name().to_str().and_then(|text| text.parse().ok()) else {
                continue;
            };
            let Some((comm, now)) = look_at(&task.path()) else { continue };
            threads.insert(tid, now);
            let Some(before) = &before else { continue };
            // A thread that is new counts from 0, and so does one that reuses a thread id.
            let then = before.threads.get(&tid).copied().unwrap_or_default();
            let since = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
            let sum = sums.entry(kind_of(&comm, &own).to_owned()).or_default();
            sum.threads += 1;
            sum.on_cpu_ns += since(now.on_cpu_ns, then.on_cpu_ns);
            sum.delay_ns += since(now.delay_ns, then.delay_ns);
        }
        if let Some(before) = before.filter(|before| before.t_ns < t_ns) {
            for (comm, sum) in largest(sums) {
                let Sum { threads, on_cpu_ns, delay_ns } = sum;
                let (t0_ns, t1_ns, proc) = (before.t_ns, t_ns, id);
                let tick = NamedThreads { t0_ns, t1_ns, proc, comm, threads, on_cpu_ns, delay_ns };
                emit(Record::NamedThreads(Box::new(tick)));
            }
        }
        self.watched.insert(id, LastReading { t_ns, threads });
    }
}

fn comm_of(task: &Path) -> Option<String> {
    let bytes = fs::read(task.join("comm")).ok()?;
    Some(name::decode(bytes.strip_suffix(b"\n").unwrap_or(&bytes)))
}

fn look_at(task: &Path) -> Option<(String, Schedstat)> {
    let counters = schedstat::parse(&fs::read(task.join("schedstat")).ok()?).ok()?;
    Some((comm_of(task)?, counters))
}

/// A name without its trailing number: `GC Thread#` of `GC Thread#12`. The process's own comm stays whole.
fn kind_of<'t>(comm: &'t str, own: &str) -> &'t str {
    let kind = comm.trim_end_matches(|letter: char| letter.is_ascii_digit());
    if comm == own || kind.is_empty() { comm } else { kind }
}

/// The names that ran or waited longest, and the rest as one.
fn largest(sums: BTreeMap<String, Sum>) -> Vec<(String, Sum)> {
    let mut all: Vec<(String, Sum)> = sums.into_iter().collect();
    // A stable sort: equals stay in the order of their names.
    all.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.on_cpu_ns + sum.delay_ns));
    let rest = all.split_off(all.len().min(MAX_NAMES));
    if !rest.is_empty() {
        let mut others = Sum::default();
        for (_, sum) in rest {
            others.threads += sum.threads;
            others.on_cpu_ns += sum.on_cpu_ns;
            others.delay_ns += sum.delay_ns;
        }
        all.push((String::new(), others));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::fixture::Host;

    fn thread(host: &Host, tid: u32, comm: &str, on_cpu_ns: u64, delay_ns: u64) {
        host.write(&format!("proc/50/task/{tid}/comm"), format!("{comm}\n"));
        host.schedstat(50, tid, on_cpu_ns, delay_ns, 1);
    }

    fn look(named: &mut ThreadNames, host: &Host, t_ns: u64) -> Vec<(String, u32, u64, u64)> {
        let mut told = Vec::new();
        named.look(&host.roots, (ProcId(1), 50), t_ns, &mut |record| match record {
            Record::NamedThreads(tick) => {
                assert_eq!((tick.t1_ns, tick.proc), (t_ns, ProcId(1)));
                told.push((tick.comm, tick.threads, tick.on_cpu_ns, tick.delay_ns));
            }
            other => panic!("{other:?}"),
        });
        told
    }

    #[test]
    fn what_threads_did_is_told_by_their_names_from_the_second_look_on() {
        let host = Host::empty();
        thread(&host, 50, "java8", 1_000, 10);
        thread(&host, 51, "GC Thread#0", 500, 0);
        let mut named = ThreadNames::default();
        assert_eq!(look(&mut named, &host, 1), []);
        thread(&host, 50, "java8", 1_100, 15);
        thread(&host, 51, "GC Thread#0", 700, 40);
        // A new thread; below, another one reuses its id.
        thread(&host, 52, "GC Thread#12", 30, 2);
        let told = look(&mut named, &host, 2);
        assert_eq!(told, [("GC Thread#".into(), 2, 230, 42), ("java8".into(), 1, 100, 5)]);
        thread(&host, 52, "worker-1\u{7}2", 7, 1);
        let told = look(&mut named, &host, 3);
        assert_eq!(told[0], ("worker-1\u{7}".into(), 1, 7, 1));
        // A process that is gone is forgotten.
        fs::remove_dir_all(host.path("proc/50")).unwrap();
        assert_eq!(look(&mut named, &host, 4), []);
        assert!(named.watched.is_empty());
    }

    #[test]
    fn names_beyond_the_largest_are_one_and_nothing_is_left_out() {
        let host = Host::empty();
        for tid in 50..90_u32 {
            thread(&host, tid, &format!("n-{tid}-"), 0, 0);
        }
        let mut named = ThreadNames::default();
        look(&mut named, &host, 1);
        for tid in 50..90_u32 {
            thread(&host, tid, &format!("n-{tid}-"), u64::from(tid), 1);
        }
        let told = look(&mut named, &host, 2);
        assert_eq!(told.len(), MAX_NAMES + 1);
        assert_eq!((told[0].0.as_str(), told[MAX_NAMES].0.as_str()), ("n-89-", ""));
        assert_eq!(told.iter().map(|told| told.2).sum::<u64>(), (50..90_u64).sum::<u64>());
        assert_eq!(told.iter().map(|told| told.1).sum::<u32>(), 40);
    }

    #[test]
    fn dear_looks_are_rare() {
        let mut named = ThreadNames::default();
        named.next_after(SECOND_NS, Duration::from_micros(10));
        assert!(named.is_due(2 * SECOND_NS));
        named.next_after(2 * SECOND_NS, Duration::from_millis(10));
        assert!(!named.is_due(11 * SECOND_NS) && named.is_due(12 * SECOND_NS));
    }
}
