// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who holds the host's memory: the anonymous memory of each process at the start of the window, and while the kernel looks
//! for memory that it can free for the host.
//!
//! `/proc/PID/statm` is a few counters, for which no lock of the process is taken; a look costs some 5 us a process.

use super::{Beat, BeatTime, Context, Emit, ObservedProcess, Roots, read_stat, read_statm};
use crate::clock::{self, Clocks};
use deburr_core::procfs::{memory, pid, stat};
use deburr_core::recording::{MemoryHeld, Record};
use rustix::param::{clock_ticks_per_second, page_size};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};

/// Processes that are told: those that hold most.
const LARGEST: usize = 5;
/// The same for those that hold most more than at the start.
const GROWN: usize = 15;
/// Less is not told.
const LEAST_BYTES: u64 = 1 << 20;
/// The next look waits for so many times as long as the last one took: a thousandth of a CPU.
const PAUSE: u64 = 1000;
/// A look that takes longer, as on a host of 20 000 processes, is given up: nothing is told of a part of them. What else is read
/// at the end of a second is late by that.
const LONGEST_NS: u64 = 100_000_000;
/// By how much all processes may have grown in sum, where the host's anonymous memory has grown by a given amount: the two are
/// read one after the other.
const SLACK: f64 = 1.1;

/// The memory of the host's processes.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// At the start of the window. `None` = to look at all took too long.
    first: Option<BTreeMap<u32, u64>>,
    /// The host's anonymous memory at that time, swapped out or not.
    host: Option<i64>,
    /// The boot clock at that time.
    boot_ns: u64,
    /// Pages that the kernel had looked at for the host, at the last second.
    scanned: Option<u64>,
    /// Whether the kernel looked for memory since the last look.
    short: bool,
    /// The monotonic clock, when the next look may be.
    next_ns: u64,
}

/// A process that is told.
#[derive(Clone, Copy, Debug)]
struct Holder {
    pid: u32,
    bytes: u64,
    /// More than at the start of the window. Unless it was there then, all of it.
    grown: u64,
    was_there: bool,
}

impl Held {
    /// The state at the start of the window. `vmstat` = `/proc/vmstat` then.
    pub(super) fn start(roots: &Roots, vmstat: &[u8]) -> Self {
        Self {
            first: anonymous(roots),
            host: of_host(vmstat),
            boot_ns: Clocks::now().boot_ns,
            scanned: scanned(vmstat),
            ..Self::default()
        }
    }

    /// At the end of a second: looks at who holds memory, if the kernel looked for some since the last look, and that is long
    /// enough ago or the window is over.
    pub(super) fn second(
        &mut self,
        cx: &mut Context,
        vmstat: &[u8],
        now: BeatTime,
        emit: Emit<'_>,
    ) {
        let scanned = scanned(vmstat);
        let before = std::mem::replace(&mut self.scanned, scanned);
        self.short |= matches!((before, scanned), (Some(before), Some(now)) if now > before);
        let began_ns = clock::monotonic_ns();
        if !self.short || (began_ns < self.next_ns && now.beat != Beat::End) {
            return;
        }
        self.short = false;
        let Some(all) = anonymous(&cx.roots) else {
            self.pause(began_ns);
            return;
        };
        let all = self.compared(all);
        let grown: u64 = all.iter().map(|it| it.grown).fold(0, u64::saturating_add);
        let of_host =
            self.host.zip(of_host(vmstat)).map(|(before, now)| now.saturating_sub(before));
        // Pages that a fork leaves to both count for both. Then it is not known what is new.
        let is_sum = of_host.is_some_and(|more| grown as f64 <= SLACK * more.max(0) as f64);
        for it in worth_telling(&all) {
            self.tell(cx, it, is_sum, now.t_ns, &mut *emit);
        }
        self.pause(began_ns);
    }

    /// Has the next look wait, after one that began at that time.
    fn pause(&mut self, began_ns: u64) {
        let took_ns = clock::monotonic_ns().saturating_sub(began_ns);
        self.next_ns = began_ns.saturating_add(took_ns.saturating_mul(PAUSE));
    }

    fn compared(&self, all: BTreeMap<u32, u64>) -> Vec<Holder> {
        let first = |pid| self.first.as_ref().and_then(|first| first.get(&pid)).copied();
        let holder = |(pid, bytes): (u32, u64)| {
            let first = first(pid);
            let grown = bytes.saturating_sub(first.unwrap_or(0));
            Holder { pid, bytes, grown, was_there: first.is_some() }
        };
        all.into_iter().map(holder).collect()
    }

    /// Emits what a process holds, unless it is gone. `is_sum`: no page counts for two that have grown.
    fn tell(&self, cx: &mut Context, it: Holder, is_sum: bool, t_ns: u64, emit: Emit<'_>) {
        let Holder { pid, bytes, grown, was_there } = it;
        let Context { roots, processes, cgroups, target, .. } = cx;
        let Some(facts) = read_stat(roots, pid) else { return };
        let start_ns = stat::ticks_ns(facts.start_ticks, clock_ticks_per_second());
        // It may have the number of one that was there at the start.
        let is_new = start_ns >= self.boot_ns || !was_there;
        let grown_bytes = match is_new {
            true => (is_sum && self.first.is_some()).then_some(bytes),
            false => Some(grown),
        };
        let sighting =
            ObservedProcess { pid, start_ns: Some(start_ns), ..ObservedProcess::default() };
        let status = fs::read(roots.proc.join(pid.to_string()).join("status")).unwrap_or_default();
        let proc = processes.intern(roots, cgroups, target, sighting, &mut *emit);
        emit(Record::Held(MemoryHeld {
            t_ns,
            proc,
            anon_bytes: bytes,
            swapped_bytes: pid::status(&status).swapped_bytes,
            grown_bytes,
        }));
    }
}

/// Those that hold most, and those that have grown most.
fn worth_telling(all: &[Holder]) -> Vec<Holder> {
    let most = |of: fn(&Holder) -> u64, n: usize| {
        let mut most: Vec<_> = all.iter().map(|it| (Reverse(of(it)), it.pid)).collect();
        most.retain(|(bytes, _)| bytes.0 >= LEAST_BYTES);
        most.sort_unstable();
        most.into_iter().take(n).map(|(_, pid)| pid)
    };
    let told: BTreeSet<u32> =
        most(|it| it.bytes, LARGEST).chain(most(|it| it.grown, GROWN)).collect();
    all.iter().filter(|it| told.contains(&it.pid)).copied().collect()
}

/// The anonymous memory of each process, in bytes; `None` = to read it takes too long.
fn anonymous(roots: &Roots) -> Option<BTreeMap<u32, u64>> {
    let until_ns = clock::monotonic_ns().saturating_add(LONGEST_NS);
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(&roots.proc).ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if clock::monotonic_ns() > until_ns {
            return None;
        }
        // One that has ended meanwhile has no such file.
        let statm = File::open(entry.path().join("statm")).ok();
        if let Some(statm) = statm.and_then(|file| read_statm(&file)) {
            all.insert(pid, in_bytes(statm.anonymous()));
        }
    }
    Some(all)
}

/// Pages that the kernel has looked at to free memory for the host, in the background or for a thread that waits for it;
/// those at the limit of a cgroup are not among them. `None` = not counted.
fn scanned(vmstat: &[u8]) -> Option<u64> {
    let of = |name| memory::counter(vmstat, name);
    Some(of("pgscan_kswapd")?.saturating_add(of("pgscan_direct")?))
}

/// The host's anonymous memory in bytes, each page once, with what went to swap since the boot less what came back.
fn of_host(vmstat: &[u8]) -> Option<i64> {
    let of = |name| Some(in_bytes(memory::counter(vmstat, name)?).min(i64::MAX as u64) as i64);
    let swapped = of("pswpout").unwrap_or(0).saturating_sub(of("pswpin").unwrap_or(0));
    Some(of("nr_anon_pages")?.saturating_add(swapped))
}

fn in_bytes(pages: u64) -> u64 {
    pages.saturating_mul(page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::fixture::Host;

    const MIB: u64 = 1 << 20;

    /// `/proc/vmstat` with so many pages looked at, and so much anonymous memory.
    fn vmstat(scanned: u64, anonymous: u64) -> Vec<u8> {
        let pages = anonymous / page_size() as u64;
        format!(
            "nr_free_pages 7\nnr_anon_pages {pages}\npgscan_kswapd 5\npgscan_direct {scanned}\n"
        )
        .into_bytes()
    }

    fn holds(host: &Host, pid: u32, mib: u64) {
        if !host.path(&format!("proc/{pid}")).exists() {
            host.process(pid, &format!("p{pid}"));
        }
        let resident = 100 + mib * MIB / page_size() as u64;
        host.write(&format!("proc/{pid}/statm"), format!("90000 {resident} 100 9 0 77 0\n"));
    }

    /// A process that starts in the window.
    fn starts(host: &Host, pid: u32, mib: u64) {
        holds(host, pid, mib);
        let line = crate::collect::fixture::stat(pid, "new", 1, 0);
        let start = format!(" {} 0\n", 500 + pid);
        host.write(
            &format!("proc/{pid}/stat"),
            line.replace(&start, &format!(" {} 0\n", u64::MAX / 100_000_000_000)),
        );
    }

    /// (anonymous memory, what it grew by) of what is told at the end of a window, in MiB, by pid.
    fn told(held: &mut Held, cx: &mut Context, vmstat: &[u8]) -> Vec<(u64, Option<u64>)> {
        let mut told = Vec::new();
        let now = BeatTime { t_ns: 1, beat: Beat::End };
        held.second(cx, vmstat, now, &mut |record| {
            if let Record::Held(it) = record {
                told.push((it.anon_bytes / MIB, it.grown_bytes.map(|bytes| bytes / MIB)));
            }
        });
        told
    }

    #[test]
    fn who_took_memory_and_who_holds_most_are_told_when_the_host_is_short_of_it() {
        let host = Host::empty();
        for pid in 1..=30 {
            holds(&host, pid, 0);
        }
        holds(&host, 7, 900);
        holds(&host, 8, 100);
        let mut cx = host.context();
        let mut held = Held::start(&host.roots, &vmstat(1, 1000 * MIB));
        holds(&host, 8, 300);
        starts(&host, 40, 50);
        assert_eq!(told(&mut held, &mut cx, &vmstat(1, 1250 * MIB)), [], "memory is not short");
        let expected = [(900, Some(0)), (300, Some(200)), (50, Some(50))];
        assert_eq!(told(&mut held, &mut cx, &vmstat(2, 1250 * MIB)), expected);
    }

    /// A copy of a process has all its pages, and has taken none.
    #[test]
    fn what_a_fork_shares_is_not_new() {
        let host = Host::empty();
        holds(&host, 7, 900);
        let mut cx = host.context();
        let mut held = Held::start(&host.roots, &vmstat(1, 900 * MIB));
        starts(&host, 40, 900);
        assert_eq!(told(&mut held, &mut cx, &vmstat(2, 901 * MIB)), [(900, Some(0)), (900, None)]);
    }

    #[test]
    fn a_new_process_with_the_number_of_another_has_taken_what_it_holds() {
        let host = Host::empty();
        holds(&host, 7, 900);
        let mut cx = host.context();
        let mut held = Held::start(&host.roots, &vmstat(1, 900 * MIB));
        starts(&host, 7, 20);
        assert_eq!(told(&mut held, &mut cx, &vmstat(2, 920 * MIB)), [(20, Some(20))]);
    }

    #[test]
    fn what_is_swapped_out_is_taken_all_the_same() {
        let with = |out: u64, back: u64| {
            let swap = format!("pswpout {}\npswpin {back}\n", out + 5);
            of_host(&[vmstat(1, 8 * MIB), swap.into_bytes()].concat()).unwrap()
        };
        assert_eq!(with(3, 1) - with(0, 0), 2 * page_size() as i64);
        assert_eq!(of_host(b"nr_free_pages 7\n"), None);
    }

    #[test]
    fn where_the_first_look_took_too_long_it_is_not_known_what_is_new() {
        let host = Host::empty();
        let mut cx = host.context();
        let mut held = Held { first: None, ..Held::start(&host.roots, &vmstat(1, 0)) };
        holds(&host, 8, 100);
        assert_eq!(told(&mut held, &mut cx, &vmstat(2, 100 * MIB)), [(100, None)]);
    }

    #[test]
    fn the_next_look_waits_for_a_thousand_times_what_the_last_one_took() {
        let host = Host::empty();
        holds(&host, 8, 100);
        let mut cx = host.context();
        let mut held = Held::start(&host.roots, &vmstat(1, 0));
        let mut looks = |held: &mut Held, beat| {
            let mut records = 0;
            let now = BeatTime { t_ns: 1, beat };
            held.second(&mut cx, &vmstat(2, 0), now, &mut |_| records += 1);
            records > 0
        };
        held.next_ns = u64::MAX;
        assert!(!looks(&mut held, Beat::Second));
        assert!(looks(&mut held, Beat::End), "what was short before counts");
        assert!(held.next_ns < u64::MAX && held.next_ns > clock::monotonic_ns());
    }
}
