// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A worker: computes chunk after chunk in a slot of time, and reads the clock after each.

use super::lengths::Lengths;
use crate::clock;
use crate::signals::Signals;
use deburr_core::recording::{Mix, Run};
use deburr_sys::{realtime, spin};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::io;
use std::thread;

/// Shortest gap that counts: shorter stops are interrupts.
pub(super) const MIN_GAP_NS: u64 = 100_000;
/// A chunk takes this many times as long as reading the clock, so that reading it does not matter.
const CHUNK_TO_CLOCK: u64 = 100;
/// Shortest and longest chunk: much shorter than the time slices in which a hypervisor runs virtual CPUs.
const CHUNK_NS: (u64, u64) = (5_000, 100_000);
/// Number of chunks after which a worker checks on which CPU it is.
const CHUNKS_TO_CPU: u64 = 16;

/// Whether to stop, because of a signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halt<'a> {
    signals: &'a Signals,
}

impl<'a> Halt<'a> {
    pub(super) fn new(signals: &'a Signals) -> Self {
        Self { signals }
    }

    pub(super) fn is_on(self) -> bool {
        self.signals.pending().is_some()
    }
}

/// A fixed amount of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    mix: Mix,
    rounds: u64,
    /// How long it took, undisturbed, when it was calibrated, in nanoseconds.
    pub(super) length_ns: u64,
}

impl Chunk {
    /// Determines how many rounds of the work make a chunk on this machine.
    pub(super) fn calibrated(mix: Mix) -> Self {
        const TRIES: u32 = 20;
        let shortest = |rounds: u64| {
            let probe = Self { mix, rounds, length_ns: 0 };
            let time = || {
                let start_ns = clock::monotonic_ns();
                probe.work();
                clock::monotonic_ns().saturating_sub(start_ns)
            };
            (0..TRIES).map(|_| time()).min().unwrap_or_default().max(1)
        };
        let look_ns = (0..TRIES)
            .map(|_| {
                let start_ns = clock::monotonic_ns();
                clock::monotonic_ns().saturating_sub(start_ns)
            })
            .min()
            .unwrap_or_default();
        let wanted_ns = (look_ns * CHUNK_TO_CLOCK).clamp(CHUNK_NS.0, CHUNK_NS.1);
        let mut rounds = 64;
        // Doubled until reading the clock does not matter.
        while shortest(rounds) < wanted_ns / 2 && rounds < 1 << 30 {
            rounds *= 2;
        }
        let rounds = (rounds * wanted_ns / shortest(rounds)).max(1);
        Self { mix, rounds, length_ns: shortest(rounds) }
    }

    fn work(self) {
        let result = match self.mix {
            Mix::Adds => spin::adds(self.rounds),
            Mix::Divs => spin::divs(self.rounds),
        };
        black_box(result);
    }

    pub(super) fn mix(self) -> Mix {
        self.mix
    }
}

/// A time range on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// What a worker did so far.
#[derive(Debug, Default)]
pub(super) struct Account {
    run: Run,
    lengths: Lengths,
    /// How often it was found on another CPU than before.
    pub(super) migrations: u32,
    /// The CPU on which it was last; `None` before its first chunk.
    pub(super) cpu: Option<u32>,
}

impl Account {
    /// The sum of its slots.
    pub(super) fn run(&self) -> Run {
        Run { chunk_ns: self.lengths.median_ns(), ..self.run }
    }

    /// The sum of two accounts.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        let (a, b) = (&mut self.run, &other.run);
        a.wall_ns += b.wall_ns;
        a.cpu_ns += b.cpu_ns;
        a.chunks += b.chunks;
        a.gaps += b.gaps;
        a.gap_ns += b.gap_ns;
        self.lengths.merge(&other.lengths);
        self
    }

    /// Sleeps until the slot begins, then works until it is over or a signal comes.
    pub(super) fn work(&mut self, slot: Slot, chunk: Chunk, halt: Halt<'_>) {
        while clock::monotonic_ns() < slot.from_ns && !halt.is_on() {
            clock::sleep_until(slot.from_ns);
        }
        // The wall time is read before the CPU time here, and after it at the end: a stop in between must not make the
        // CPU time the larger one.
        let start_ns = clock::monotonic_ns();
        let start_cpu_ns = thread_cpu_ns();
        let mut now_ns = clock::monotonic_ns();
        let mut chunks = 0;
        while now_ns < slot.to_ns && !halt.is_on() {
            chunk.work();
            let then_ns = std::mem::replace(&mut now_ns, clock::monotonic_ns());
            let length_ns = now_ns.saturating_sub(then_ns);
            self.lengths.add(length_ns);
            let stopped_ns = length_ns.saturating_sub(chunk.length_ns);
            if stopped_ns >= MIN_GAP_NS {
                self.run.gaps += 1;
                self.run.gap_ns += stopped_ns;
            }
            if chunks % CHUNKS_TO_CPU == 0 {
                self.look_where();
            }
            chunks += 1;
        }
        self.run.chunks += chunks;
        self.run.cpu_ns += thread_cpu_ns().saturating_sub(start_cpu_ns);
        self.run.wall_ns += clock::monotonic_ns().saturating_sub(start_ns);
    }

    fn look_where(&mut self) {
        let here = u32::try_from(sched_getcpu()).ok();
        if self.cpu.is_some() && self.cpu != here {
            self.migrations += 1;
        }
        self.cpu = here;
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

/// Binds the calling thread to a CPU; with `realtime`, also gives it precedence over ordinary tasks.
pub(super) fn bind(cpu: u32, realtime: bool) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set)?;
    if realtime { realtime::take_precedence() } else { Ok(()) }
}

/// Whether threads may have precedence over ordinary tasks. An error means that no thread can be started.
pub(super) fn may_take_precedence() -> io::Result<bool> {
    let probe = thread::Builder::new().spawn(|| realtime::take_precedence().is_ok())?;
    Ok(probe.join().unwrap_or(false))
}
