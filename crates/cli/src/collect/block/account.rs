// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The account of a session's block IO: takes transfers and writeback events, and emits records.

use super::classify::{self, DeviceFacts, TransferPurpose};
use super::commits::Committed;
use super::demand_bins::FinishedBins;
use super::flight::{self, Flight, Request, Waiter, Waits};
use super::held::HeldBack;
use super::inode::Inode;
use super::mounted::Mounted;
use super::passes::{self, Passes};
use super::session_files::{Hint, SessionFiles};
use super::transfer_sums::{Key, RequestTimes, Tally};
use super::waits::HoldUps;
use super::writeback::WritebackEvent;
use crate::clock::{self, WindowClock};
use crate::collect::{Context, Emit, ObservedProcess};
use crate::files::{self, Resolver};
use deburr_bpf::block::{FirstName, Requester, Target, Transfer};
use deburr_bpf::writeback::syncs::{self, EndedSync, Syncs};
use deburr_core::recording::{
    BlockRecord, DevId, DeviceBins, IoBlameTick, IoPace, IoPurpose, IoWaitTick, JournalCommit,
    ProcId, Record, StallKind,
};
use deburr_core::stats::Span;
use std::collections::{BTreeMap, BTreeSet};

/// Most bins of a device in one record. A recording may hold four times as many.
const MOST_BINS: usize = 1000;

/// State of the account.
pub(super) struct Account {
    names: SessionFiles,
    pub(super) tally: Tally,
    pub(super) held: HeldBack,
    pub(super) hold_ups: HoldUps,
    flights: BTreeMap<DevId, Flight>,
    pub(super) mounted: Mounted,
    /// Filesystems without a device whose mount was emitted, or was not found.
    reported_mounts: BTreeSet<DevId>,
    resolver: Resolver,
    syncs: Syncs<Inode>,
    /// Whether a process began a sync of which the kernel will not report the end.
    pub(super) syncs_open: bool,
    committed: Committed,
    /// Number of commits of each btrfs, as the kernel counted them last.
    commits: BTreeMap<DevId, u64>,
    /// Commits that were not emitted because their start is unknown.
    pub(super) commits_unmeasured: u64,
    request: Option<PendingRequest>,
}

/// A request whose transfers are still being read.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    device: DevId,
    request: Request,
}

/// What a pass needs of a transfer: its kind, its start since the start of the window, requests and bytes.
pub(super) fn flushed(
    transfer: &Transfer,
    window: &WindowClock,
) -> (passes::PassKind, u64, u64, u64) {
    let weight = u64::from(transfer.weight);
    (
        (DevId::from_kernel(transfer.disk), transfer.reason),
        window.since_start_ns(transfer.start_ns),
        weight,
        u64::from(transfer.bytes) * weight,
    )
}

impl Account {
    /// Starts empty. `before` = the time before a request is created is measured.
    pub(super) fn new(cx: &Context, before: bool) -> Self {
        Self {
            names: SessionFiles::default(),
            tally: Tally::new(before),
            held: HeldBack::new(&cx.roots),
            hold_ups: HoldUps::default(),
            flights: BTreeMap::new(),
            mounted: Mounted::new(&cx.roots),
            reported_mounts: BTreeSet::new(),
            resolver: Resolver::new(&cx.roots.proc, cx.processes.reader().files(&cx.roots)),
            syncs: Syncs::default(),
            syncs_open: false,
            committed: Committed::default(),
            commits: BTreeMap::new(),
            commits_unmeasured: 0,
            request: None,
        }
    }

    /// Adds a completed transfer.
    pub(super) fn transfer(
        &mut self,
        cx: &mut Context,
        t_ns: u64,
        transfer: &Transfer,
        emit: Emit<'_>,
    ) {
        let device = cx.devices.sight(DevId::from_kernel(transfer.disk), &mut *emit);
        self.syncs.request_done(transfer.submitter.tid, transfer.start_ns, transfer.done_ns);
        let what = self.what(device, transfer);
        let submitter = identity(cx, &transfer.submitter, &mut *emit);
        let owner = cx.cgroups.owner(transfer.owner_cgroup, &mut *emit);
        let op = classify::direction(transfer.op);
        let start_ns = cx.window.since_start_ns(transfer.start_ns);
        let before_ns = transfer.queued_ns.map(|t| transfer.start_ns.saturating_sub(t));
        let done_ns = cx.window.since_start_ns(transfer.done_ns).max(start_ns);
        let total_ns = transfer.done_ns.saturating_sub(transfer.start_ns);
        let bytes = u64::from(transfer.bytes);
        let key = Key { device, what, op, submitter, owner, reason: transfer.reason };
        self.tally.transfer(key, bytes, total_ns, transfer.weight);
        if !transfer.first {
            if let Some(carried) = &mut self.request {
                carried.request.bytes += bytes;
            }
            return;
        }
        self.end_request(t_ns);
        let queue_ns =
            (transfer.issue_ns != 0).then(|| transfer.issue_ns.saturating_sub(transfer.start_ns));
        self.tally.request(
            device,
            op,
            RequestTimes { total_ns, before_ns, queue_ns, weight: transfer.weight, done_ns },
        );
        if transfer.held {
            self.held.served(device, op, total_ns + before_ns.unwrap_or(0));
        }
        // The wait of a kernel thread is not a loss to any process.
        let by_kernel = cx.processes.is_kernel_thread(transfer.submitter.tgid);
        let waiter = submitter.filter(|_| classify::is_waited_for(transfer) && !by_kernel);
        let waiter = waiter.map(|proc| Waiter { proc, tid: transfer.submitter.tid });
        if waiter.is_some() {
            let in_flight = Span { t0_ns: transfer.start_ns, t1_ns: transfer.done_ns };
            cx.requesters.note(transfer.submitter.tid, in_flight);
        }
        let file = match what {
            IoPurpose::File(file) => Some(file),
            _ => None,
        };
        let account = classify::account(transfer, what, submitter, by_kernel, owner);
        let weight = transfer.weight;
        let queued_ns = start_ns.saturating_sub(before_ns.unwrap_or(0));
        let request =
            Request { queued_ns, start_ns, done_ns, account, waiter, file, bytes, weight };
        self.request = Some(PendingRequest { device, request });
    }

    pub(super) fn look_at_mounts(&mut self, cx: &mut Context, emit: Emit<'_>) {
        let Context { roots, devices, .. } = cx;
        self.mounted.look(roots, |dev| devices.sight(dev, &mut *emit));
        for fs in self.mounted.all_btrfs() {
            if let Some(now) = self.mounted.commits_of(fs) {
                self.commits.entry(fs).or_insert(now.count);
            }
        }
    }

    fn what(&mut self, device: DevId, transfer: &Transfer) -> IoPurpose {
        let btrfs = match transfer.target {
            Target::File { fs, .. } => self.mounted.is_btrfs(DevId::from_kernel(fs)),
            _ => false,
        };
        let place = DeviceFacts { has_filesystem: self.mounted.is_on(device), btrfs };
        match classify::kind(transfer, place) {
            TransferPurpose::Data(inode) => IoPurpose::File(self.names.id(inode)),
            TransferPurpose::Other(what) => what,
        }
    }

    /// All transfers of the current request were read: passes the request on.
    pub(super) fn end_request(&mut self, t_ns: u64) {
        let Some(PendingRequest { device, request }) = self.request.take() else { return };
        let begin = t_ns.saturating_sub(flight::LAG_NS) / flight::BIN_NS * flight::BIN_NS;
        self.flights.entry(device).or_insert_with(|| Flight::begin(begin)).push(request);
    }

    pub(super) fn name(&mut self, name: FirstName) {
        let inode = Inode::new(name.fs, name.ino, name.generation, name.subvolume);
        let FirstName { path, complete, deleted, .. } = name;
        self.names.hint(inode, Hint { path, complete, deleted });
    }

    /// Processes an event of writeback.
    pub(super) fn writeback_event(
        &mut self,
        cx: &mut Context,
        passes: &mut Passes,
        event: WritebackEvent<'_>,
        emit: Emit<'_>,
    ) {
        let window = cx.window.clone();
        let since_start = |t: u64| window.since_start_ns(t);
        match event {
            WritebackEvent::Asked { t_ns, by, kind } => {
                if let Some(process) = identity(cx, by, emit) {
                    passes.asked(t_ns, kind, process);
                }
            }
            WritebackEvent::Dirtied { inode, by } => {
                if let Some(process) = identity(cx, by, emit) {
                    passes.dirtied(inode, process);
                    self.names.dirtied(inode, process);
                }
            }
            WritebackEvent::SyncBegan { t_ns, by, inode } => {
                self.syncs_open |= !cx.processes.is_kernel_thread(by.tgid);
                if let Some(over) = self.syncs.began(t_ns, by, inode) {
                    self.sync_is_over(cx, &over, emit);
                }
            }
            WritebackEvent::Synced { begin_ns, end_ns, by, inode } => {
                self.synced(cx, (by, inode), Span::new(begin_ns, end_ns), None, emit);
            }
            WritebackEvent::Paused { begin_ns, pause_ns, by, device } => {
                let Some(process) = identity(cx, by, &mut *emit) else { return };
                let device = device.and_then(|device| self.disk_of(cx, device, emit));
                let of = (process, StallKind::DirtyThrottle);
                self.hold_ups.add(of.0, of.1, device, pause_ns);
                let t0_ns = since_start(begin_ns);
                let span = Span::new(t0_ns, t0_ns.saturating_add(pause_ns));
                self.hold_ups.long(span, of, device, None, None);
            }
            WritebackEvent::Committed(mut commit, begin_known) => {
                if !begin_known && !self.measure(&mut commit) {
                    self.commits_unmeasured += 1;
                    return;
                }
                let Some(device) = self.disk_of(cx, commit.device, &mut *emit) else { return };
                commit.device = device;
                self.committed.push(device, commit.span());
                emit(Record::Block(Box::new(BlockRecord::Commit(commit))));
            }
        }
    }

    /// Sets the start of a btrfs commit from the length of the last commit as the kernel counted it. Returns whether
    /// this is right: no other commit came in between.
    fn measure(&mut self, commit: &mut JournalCommit) -> bool {
        let Some(now) = self.mounted.commits_of(commit.device) else { return false };
        let before = self.commits.insert(commit.device, now.count);
        commit.t0_ns = commit.t1_ns.saturating_sub(now.last_ns);
        before.is_some_and(|before| before + 1 == now.count)
    }

    /// Adds a sync of a file, `at` by `CLOCK_MONOTONIC`; `latest_ns` as in `Stall`.
    fn synced(
        &mut self,
        cx: &mut Context,
        (by, inode): (&Requester, Inode),
        at: Span,
        latest_ns: Option<u64>,
        emit: Emit<'_>,
    ) {
        let window = cx.window.clone();
        let since_start = |t: u64| window.since_start_ns(t);
        let Some(process) = identity(cx, by, &mut *emit) else { return };
        let device = self.disk_of(cx, inode.fs, emit);
        let file = self.names.id(inode);
        let of = (process, StallKind::Sync);
        if latest_ns.is_some() && at.t0_ns == at.t1_ns {
            return self.hold_ups.add_unmeasured(of.0, of.1, device);
        }
        self.hold_ups.add(of.0, of.1, device, at.length_ns());
        let t0_ns = since_start(at.t0_ns);
        let span = Span::new(t0_ns, since_start(at.t1_ns).max(t0_ns));
        self.hold_ups.long(span, of, device, Some(file), latest_ns.map(since_start));
        let Some(device) = device.filter(|_| latest_ns.is_none()) else { return };
        if let Some(flight) = self.flights.get_mut(&device) {
            for commit in self.committed.waited_for(device, span) {
                let waiter = Waiter { proc: process, tid: by.tid };
                flight.push(Request::of_others(commit, waiter, file));
            }
        }
    }

    fn sync_is_over(&mut self, cx: &mut Context, over: &EndedSync<Inode>, emit: Emit<'_>) {
        let at = Span::new(over.begin_ns, over.seen_ns);
        self.synced(cx, (&over.by, over.file), at, Some(over.latest_ns), emit);
    }

    /// Looks at the threads whose syncs are not known to be over. Events up to `reported_until_ns` (`CLOCK_MONOTONIC`) were
    /// processed.
    pub(super) fn look_at_syncs(
        &mut self,
        cx: &mut Context,
        reported_until_ns: u64,
        emit: Emit<'_>,
    ) {
        let proc = &cx.roots.proc;
        let found = |tid| syncs::find(proc, tid);
        for over in self.syncs.look(reported_until_ns, clock::monotonic_ns, found) {
            self.sync_is_over(cx, &over, &mut *emit);
        }
    }

    /// Emits the waits, blame, bins and pace of the past; `last` = the window ends with it.
    pub(super) fn settle(&mut self, past: Span, last: bool, emit: Emit<'_>) {
        let Span { t0_ns, t1_ns } = past;
        for (&device, flight) in &mut self.flights {
            let from_ns = flight.bins_from_ns();
            let past = flight.settle(t1_ns);
            let bins_to_ns = flight.bins_from_ns();
            for (proc, Waits { sizes: waits, max_ns }) in past.waits {
                let (kind, device) = (StallKind::Request, Some(device));
                let tick =
                    IoWaitTick { t0_ns, t1_ns, proc, kind, device, waits, max_ns, unmeasured: 0 };
                emit(Record::Block(Box::new(BlockRecord::Wait(tick))));
            }
            for long in past.long {
                let of = (long.proc, StallKind::Request);
                self.hold_ups.long(
                    Span::new(long.t0_ns, long.t1_ns),
                    of,
                    Some(device),
                    long.file,
                    None,
                );
            }
            for ((victim, culprit), ns) in past.blame {
                let tick = IoBlameTick { t0_ns, t1_ns, victim, device, culprit, ns };
                emit(Record::Block(Box::new(BlockRecord::Blame(tick))));
            }
            if let Some(FinishedBins { t0_ns, t1_ns, sectors }) = flight.pace(t1_ns, last) {
                let pace = IoPace { t0_ns, t1_ns, device, sectors };
                emit(Record::Block(Box::new(BlockRecord::Pace(pace))));
            }
            let width_ns = (bins_to_ns - from_ns) / (past.bins.len() as u64).max(1);
            // After a long pause of this process there are more of them than a record may hold.
            for (part, bins) in past.bins.chunks(MOST_BINS).enumerate() {
                if bins.iter().any(|bin| bin.busy_ns > 0) {
                    let t0_ns = from_ns + (part * MOST_BINS) as u64 * width_ns;
                    let t1_ns = t0_ns + bins.len() as u64 * width_ns;
                    let bins = DeviceBins { t0_ns, t1_ns, device, bins: bins.to_vec() };
                    emit(Record::Block(Box::new(BlockRecord::Bins(bins))));
                }
            }
        }
    }

    /// Makes sure that the device or mount of a flusher pass was emitted. It may be a filesystem without a device of
    /// its own, or a device on which nothing else happened.
    pub(super) fn sight_flushed(&mut self, cx: &mut Context, device: DevId, emit: Emit<'_>) {
        if device.major == 0 {
            if !self.reported_mounts.insert(device) {
                return;
            }
            if let Some(mount) = self.resolver.mount(device) {
                return emit(Record::Block(Box::new(BlockRecord::Mount(mount))));
            }
        }
        cx.devices.sight(device, emit);
    }

    /// Whether mounts were left out, because there are too many.
    pub(super) fn mounts_are_cut(&self) -> bool {
        self.resolver.mounts_are_cut()
    }

    /// Emits the records of files that are due. `dirtier` returns the process that was last seen to dirty an inode.
    pub(super) fn names(
        &mut self,
        last: bool,
        dirtier: impl Fn(Inode) -> Option<ProcId>,
        emit: Emit<'_>,
    ) {
        let Self { names, resolver, .. } = self;
        if last {
            resolver.last_second();
        } else {
            resolver.second();
        }
        let records = names.take(last, dirtier, |files| {
            let observed = files.iter().map(|&(inode, hint)| files::ObservedFile {
                fs: inode.fs,
                ino: inode.ino,
                generation: inode.generation,
                subvolume: inode.subvolume,
                in_fs: hint.map(|hint| &*hint.path),
                complete: hint.is_some_and(|hint| hint.complete),
                deleted: hint.is_some_and(|hint| hint.deleted),
            });
            resolver.names(&observed.collect::<Vec<_>>())
        });
        for file in records {
            emit(Record::Block(Box::new(BlockRecord::File(file))));
        }
    }

    /// The disk of a filesystem; `None` if it lies on several disks, or on none.
    fn disk_of(&self, cx: &mut Context, fs: DevId, emit: Emit<'_>) -> Option<DevId> {
        let device = if fs.major == 0 { self.mounted.only_disk_of(fs)? } else { fs };
        Some(cx.devices.sight(device, emit))
    }

    pub(super) fn lost(&self) -> Vec<(&'static str, u64)> {
        let late = self.flights.values().map(|flight| flight.late).sum();
        vec![
            ("block_late", late),
            ("block_unnamed", self.names.untold),
            ("block_folded", self.tally.folded),
            ("block_stalls_untold", self.hold_ups.stalls_lost),
            ("writeback_syncs_not_followed", self.syncs.lost),
            ("writeback_commits_unmeasured", self.commits_unmeasured),
        ]
    }
}

/// The identity of the requesting process; `None` for the idle thread, in whose context interrupts run.
fn identity(cx: &mut Context, by: &Requester, emit: Emit<'_>) -> Option<ProcId> {
    if by.tgid == 0 {
        return None;
    }
    let sighting = ObservedProcess {
        pid: by.tgid,
        start_ns: Some(by.leader_boot_ns),
        comm: (by.tid == by.tgid).then_some(&by.comm[..]),
        ..ObservedProcess::default()
    };
    let Context { roots, processes, cgroups, target, .. } = cx;
    Some(processes.intern(roots, cgroups, target, sighting, emit))
}
