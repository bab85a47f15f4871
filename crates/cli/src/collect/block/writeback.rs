// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the events of the writeback probe into passes of the flusher, and into what the collector makes records of.

use super::inode::Inode;
use super::passes::{PassKind, Passes};
use deburr_bpf::block::Requester;
use deburr_bpf::facts::Facts;
use deburr_bpf::writeback::{Event, Journal, WritebackPlan, WritebackProbe};
use deburr_core::recording::{DevId, JournalCommit, State};
use std::ops::Range;

/// What the probe would add where it is missing.
const GAIN: &str = "the probe ties stalls to passes of the flusher, to commits of a journal and to pauses of writers";

/// Coverage of [`deburr_core::recording::Source::Writeback`] where the block probe is missing for that reason.
pub(crate) fn without_writeback(block: &State) -> State {
    match block {
        State::Missing { reason, .. } => {
            State::Missing { reason: reason.clone(), gain: GAIN.into() }
        }
        other => other.clone(),
    }
}

/// An event that the collector turns into a record, because only the collector assigns identities.
#[derive(Clone, Debug)]
pub(super) enum WritebackEvent<'a> {
    /// A process asked the flusher for work.
    Asked {
        /// Nanoseconds since the start of the window.
        t_ns: u64,
        by: &'a Requester,
        /// The device, and the reason.
        kind: PassKind,
    },
    /// A process made a clean inode dirty.
    Dirtied { inode: Inode, by: &'a Requester },
    /// A process begins to sync a file, and the kernel will not report the end.
    SyncBegan {
        /// The time, `CLOCK_MONOTONIC`.
        t_ns: u64,
        by: &'a Requester,
        inode: Inode,
    },
    /// A process synced a file.
    Synced {
        /// Start, `CLOCK_MONOTONIC`.
        begin_ns: u64,
        /// End, `CLOCK_MONOTONIC`.
        end_ns: u64,
        by: &'a Requester,
        inode: Inode,
    },
    /// A writer was made to pause.
    Paused {
        /// Start, `CLOCK_MONOTONIC`.
        begin_ns: u64,
        /// Length of the pause.
        pause_ns: u64,
        by: &'a Requester,
        /// The device that it wrote to.
        device: Option<DevId>,
    },
    /// A journal was committed; the flag says whether the start of the commit is known.
    Committed(JournalCommit, bool),
}

/// The probe and the passes made of its events.
pub(super) struct Writeback {
    pub(super) probe: WritebackProbe,
    pub(super) passes: Passes,
    /// Events that were read but are not processed yet.
    pending: Vec<Event>,
    plan: WritebackPlan,
}

impl Writeback {
    /// Loads and attaches the probe; `Err` = the coverage of [`Source::Writeback`] without it.
    pub(super) fn open(facts: &Facts, cpus: u32) -> Result<Self, State> {
        let missing = |reason| State::Missing { reason, gain: GAIN.into() };
        let plan = WritebackPlan::new(facts).map_err(missing)?;
        let probe = WritebackProbe::open(&plan, cpus).map_err(missing)?;
        Ok(Self { probe, passes: Passes::default(), pending: Vec::new(), plan })
    }

    /// What the probe covers on a host with or without xfs and btrfs. `unmeasured`: some commits came without their
    /// start. `looked`: some syncs came without their end, and the threads are looked at instead.
    pub(super) fn state(
        &self,
        (has_xfs, has_btrfs): (bool, bool),
        unmeasured: bool,
        looked: bool,
    ) -> State {
        let plan = &self.plan;
        let mut gaps = Vec::new();
        if has_xfs && !plan.xfs_syncs || has_btrfs && !(plan.btrfs_syncs || plan.btrfs_both) {
            gaps.push("this kernel does not report all syncs on xfs and btrfs");
        }
        let begins = has_xfs && plan.xfs_syncs || has_btrfs && plan.btrfs_syncs;
        if looked || begins && !plan.returns {
            gaps.push(
                "this kernel does not tell when a sync on xfs or btrfs ends: those that ten looks a second miss are \
                 counted only, of the others it is known to 100 ms",
            );
        }
        if has_xfs && !plan.xfs_commits {
            gaps.push("this kernel does not tell of commits of xfs");
        }
        if has_btrfs && (!plan.btrfs_commits || unmeasured) {
            gaps.push("this kernel does not tell when a commit of btrfs began");
        }
        if gaps.is_empty() { State::Active } else { State::Partial { reason: gaps.join("; ") } }
    }

    /// Reads the log and processes the events in that range of `CLOCK_MONOTONIC`, in order of time. Older events are
    /// dropped; later ones are kept. The log is read CPU by CPU, so the later events may not be complete yet: a flusher
    /// that moved to another CPU would seem to end its work before it began.
    pub(super) fn read(
        &mut self,
        range_ns: Range<u64>,
        since_start: impl Fn(u64) -> u64,
        handle: &mut dyn FnMut(&mut Passes, WritebackEvent<'_>),
    ) {
        let Self { probe, passes, pending, .. } = self;
        probe.read(&mut |event| pending.push(event));
        pending.retain(|event| time_ns(event) >= range_ns.start);
        pending.sort_by_key(time_ns);
        let due = pending.partition_point(|event| time_ns(event) < range_ns.end);
        for event in pending.drain(..due) {
            take(&event, passes, &since_start, handle);
        }
    }
}

/// The time of an event; for one with a length, its end.
fn time_ns(event: &Event) -> u64 {
    match event {
        Event::PassBegan { t_ns, .. }
        | Event::PassEnded { t_ns, .. }
        | Event::PassAsked { t_ns, .. }
        | Event::InodeWritten { t_ns, .. }
        | Event::InodeDirtied { t_ns, .. }
        | Event::SyncBegan { t_ns, .. }
        | Event::Pause { t_ns, .. } => *t_ns,
        Event::Commit { end_ns, .. } | Event::Sync { end_ns, .. } => *end_ns,
    }
}

fn take(
    event: &Event,
    passes: &mut Passes,
    since_start: &impl Fn(u64) -> u64,
    handle: &mut dyn FnMut(&mut Passes, WritebackEvent<'_>),
) {
    match event {
        Event::PassBegan { t_ns, tid, bdi, reason } => {
            if let Some(kind) = kind(bdi, *reason) {
                passes.began(since_start(*t_ns), *tid, kind);
            }
        }
        Event::PassEnded { t_ns, tid, .. } => passes.ended(since_start(*t_ns), *tid),
        Event::PassAsked { t_ns, by, bdi, reason } => {
            if let Some(kind) = kind(bdi, *reason) {
                handle(passes, WritebackEvent::Asked { t_ns: since_start(*t_ns), by, kind });
            }
        }
        Event::InodeWritten {
            tid,
            fs,
            ino,
            generation,
            subvolume,
            dirty_for_ns,
            since_last_ns,
            ..
        } => {
            let inode = Inode::new(*fs, *ino, *generation, *subvolume);
            passes.wrote(*tid, inode, *dirty_for_ns, *since_last_ns);
        }
        Event::InodeDirtied { fs, ino, generation, subvolume, by, .. } => {
            let inode = Inode::new(*fs, *ino, *generation, *subvolume);
            handle(passes, WritebackEvent::Dirtied { inode, by });
        }
        Event::SyncBegan { t_ns, by, fs, ino, generation, subvolume } => {
            let inode = Inode::new(*fs, *ino, *generation, *subvolume);
            handle(passes, WritebackEvent::SyncBegan { t_ns: *t_ns, by, inode });
        }
        Event::Sync { begin_ns, end_ns, by, fs, ino, generation, subvolume, .. } => {
            let inode = Inode::new(*fs, *ino, *generation, *subvolume);
            let (begin_ns, end_ns) = (*begin_ns, *end_ns);
            handle(passes, WritebackEvent::Synced { begin_ns, end_ns, by, inode });
        }
        Event::Pause { t_ns, pause_ns, by, bdi } => {
            let (begin_ns, pause_ns) = (*t_ns, *pause_ns);
            handle(
                passes,
                WritebackEvent::Paused { begin_ns, pause_ns, by, device: bdi.parse().ok() },
            );
        }
        Event::Commit { begin_ns, end_ns, fs, kind, blocks } => {
            let t1_ns = since_start(*end_ns);
            let commit = JournalCommit {
                t0_ns: begin_ns.map_or(t1_ns, since_start).min(t1_ns),
                t1_ns,
                device: DevId::from_kernel(*fs),
                kind: journal_name(kind).into(),
                blocks: *blocks,
            };
            handle(passes, WritebackEvent::Committed(commit, begin_ns.is_some()));
        }
    }
}

/// The device and reason of a pass; `None` for one without a device number (network filesystems).
fn kind(bdi: &str, reason: u8) -> Option<PassKind> {
    Some((bdi.parse().ok()?, reason))
}

fn journal_name(journal: &Journal) -> &'static str {
    match journal {
        Journal::Jbd2 => "jbd2",
        Journal::Xfs => "xfs",
        Journal::Btrfs => "btrfs",
    }
}
