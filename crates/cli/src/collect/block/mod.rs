// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BPF probes of block IO and writeback as a collector: transfers by file, latency and activity of devices,
//! passes of the flusher, journal commits, and stalls of processes.
//!
//! The probes' logs are read at each beat. Most records are emitted in the second in which their events ended. Those
//! that depend on everything that was in flight (bins, waits for requests and the blame for them) are emitted
//! [`flight::LAG_NS`] later, or at the end of the window.

mod account;
mod classify;
mod commits;
mod demand_bins;
mod flight;
mod held;
mod inode;
mod mounted;
mod passes;
mod sampling;
mod scale;
mod session_files;
mod transfer_sums;
mod waits;
mod writeback;

use super::cost::{Cost, CostCounters};
use super::{Beat, BeatTime, Collector, Context, Emit};
use crate::clock;
use account::{Account, flushed};
use deburr_bpf::TimedRuns;
use deburr_bpf::block::{BlockPlan, BlockProbe, RequestHook};
use deburr_bpf::facts::facts;
use deburr_core::recording::{BlockRecord, Coverage, Record, Source, State};
use deburr_core::stats::Span;
use sampling::Sampling;
use std::collections::BTreeMap;
use writeback::Writeback;
pub(crate) use writeback::without_writeback;

/// What the probe would add where it is missing.
const GAIN: &str = "the probe names the files, directories and processes behind each device's transfers, and \
                    shows bursts of 10 ms";

pub(crate) struct BlockCollector {
    probe: BlockProbe,
    writeback: Result<Writeback, State>,
    account: Account,
    sampling: Sampling,
    cost: Cost,
    /// Coverage of the writeback probe, as it was last emitted.
    covered: Option<State>,
    /// End of the last records, in nanoseconds since the start of the window.
    t0_ns: u64,
    /// The same for the records that are emitted later.
    past_ns: u64,
    /// When the logs were last read.
    read_ns: u64,
}

/// The probes, loaded and attached.
pub(crate) struct LoadedBlock {
    plan: BlockPlan,
    probe: BlockProbe,
    writeback: Result<Writeback, State>,
}

impl LoadedBlock {
    /// Loads and attaches the probes; `Err` = why that of block IO, without which there is no other, cannot be used.
    pub(crate) fn load(cpus: u32) -> Result<Self, String> {
        let facts = facts();
        let plan = BlockPlan::new(&facts)?;
        let probe = BlockProbe::open(&plan, cpus)?;
        Ok(Self { plan, probe, writeback: Writeback::open(&facts, cpus) })
    }
}

impl BlockCollector {
    /// With what [`LoadedBlock::load`] returned; `Err` = the coverage of [`Source::Block`] without the probes.
    pub(crate) fn open(cx: &Context, loaded: Result<LoadedBlock, String>) -> Result<Self, State> {
        let missing = |reason| State::Missing { reason, gain: GAIN.into() };
        let LoadedBlock { plan, mut probe, writeback } = loaded.map_err(missing)?;
        let sampling = Sampling::new(cx.asked.io_one_in);
        probe.follow(sampling.one_in(), sampling.may_change());
        Ok(Self {
            probe,
            writeback,
            account: Account::new(cx, plan.queue != RequestHook::Absent),
            sampling,
            cost: Cost::default(),
            covered: None,
            t0_ns: 0,
            past_ns: 0,
            read_ns: 0,
        })
    }

    fn start(&mut self, emit: Emit<'_>) {
        emit(Record::Coverage(Coverage { t_ns: 0, source: Source::Block, state: State::Active }));
        self.cover_writeback(0, &mut *emit);
        self.cost.begin(&Probes(&self.probe, self.writeback.as_ref().ok()), &[]);
    }

    /// Emits what the writeback probe can see, at the start and when that changes, as with a new kind of filesystem.
    fn cover_writeback(&mut self, t_ns: u64, emit: Emit<'_>) {
        let Account { mounted, commits_unmeasured, syncs_open, .. } = &self.account;
        let has_btrfs = mounted.all_btrfs().next().is_some();
        let state = match &self.writeback {
            Ok(writeback) => {
                let has = (mounted.has_xfs(), has_btrfs);
                writeback.state(has, *commits_unmeasured > 0, *syncs_open)
            }
            Err(state) => state.clone(),
        };
        if self.covered.as_ref() != Some(&state) {
            self.covered = Some(state.clone());
            emit(Record::Coverage(Coverage { t_ns, source: Source::Writeback, state }));
        }
    }

    /// Reads the logs of the probes.
    fn read(&mut self, cx: &mut Context, t_ns: u64, last: bool, emit: Emit<'_>) {
        let until_ns = if last { u64::MAX } else { clock::monotonic_ns() };
        let Self { probe, writeback, account, .. } = self;
        let mut of_flusher = Vec::new();
        let mut named = Vec::new();
        let mut requests = 0;
        probe.read(
            &mut |transfer| {
                // The probe is older than the window. A command that is the target is not, and its transfers may
                // come before the first beat.
                if transfer.done_ns < cx.window.start_mono_ns() {
                    return;
                }
                requests += u64::from(transfer.first) * u64::from(transfer.weight);
                account.transfer(cx, t_ns, transfer, &mut *emit);
                if transfer.reason != 0 {
                    of_flusher.push(flushed(transfer, &cx.window));
                }
            },
            &mut |name| named.push(name),
        );
        account.end_request(t_ns);
        for name in named {
            account.name(name);
        }
        if let Ok(writeback) = writeback {
            let window = cx.window.clone();
            let since_start = move |t: u64| window.since_start_ns(t);
            writeback.read(
                cx.window.start_mono_ns()..until_ns,
                since_start,
                &mut |passes, event| {
                    account.writeback_event(cx, passes, event, &mut *emit);
                },
            );
            account.look_at_syncs(cx, until_ns.min(clock::monotonic_ns()), &mut *emit);
            for (kind, start_ns, ios, bytes) in of_flusher {
                writeback.passes.transferred(kind, start_ns, ios, bytes);
            }
        }
        let one_in = self.sampling.one_in();
        let due = self.sampling.rate(requests, t_ns.saturating_sub(self.read_ns));
        if due != one_in {
            self.probe.follow(due, true);
        }
        self.read_ns = t_ns;
    }
}

impl BlockCollector {
    fn second(&mut self, cx: &mut Context, t_ns: u64, last: bool, emit: Emit<'_>) {
        let Self { probe, writeback, account, cost, .. } = self;
        let passes = writeback.as_ref().map(|writeback| &writeback.passes);
        account.names(last, |inode| passes.ok()?.dirtier(inode), &mut *emit);
        let past_ns = if last { t_ns } else { t_ns.saturating_sub(flight::LAG_NS) };
        account.settle(Span::new(self.past_ns, past_ns), last, &mut *emit);
        self.past_ns = past_ns;
        let span = Span::new(self.t0_ns, t_ns);
        // What cannot be read now is read in the next second: the amounts only grow.
        let held = probe.held().unwrap_or_default();
        account.held.second(cx, span, &held, &mut *emit);
        let reason = |number| probe.reason_name(number).to_owned();
        let records = account.tally.take(span, |device| cx.devices.counters(device), reason);
        let records = records.into_iter().chain(account.hold_ups.take(span));
        let passes = match writeback {
            Ok(writeback) => writeback.passes.take(t_ns, last, reason),
            Err(_) => Vec::new(),
        };
        for pass in &passes {
            account.sight_flushed(cx, pass.device, &mut *emit);
        }
        let passes = passes.into_iter().map(BlockRecord::Pass);
        for record in records.chain(passes) {
            emit(Record::Block(Box::new(record)));
        }
        let lost = account.lost();
        let probes = Probes(probe, writeback.as_ref().ok());
        emit(Record::Observer(cost.second(&probes, t_ns, &lost)));
        self.t0_ns = t_ns;
    }
}

impl Collector for BlockCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            self.account.look_at_mounts(cx, &mut *emit);
            self.account.tally.scale.begin(cx.devices.all_counters());
            self.start(emit);
            return Ok(());
        }
        self.cost.bin(&Probes(&self.probe, self.writeback.as_ref().ok()));
        self.read(cx, now.t_ns, now.beat == Beat::End, &mut *emit);
        if now.beat.is_second() {
            self.account.look_at_mounts(cx, &mut *emit);
            self.cover_writeback(now.t_ns, &mut *emit);
            self.second(cx, now.t_ns, now.beat == Beat::End, &mut *emit);
        }
        if now.beat == Beat::End {
            let cut = self.account.mounts_are_cut().then(|| {
                "there are more mounts than are looked through: files on some may have no path"
                    .to_owned()
            });
            let reasons: Vec<String> =
                cut.into_iter().chain(cx.processes.reader().filesystems_given_up()).collect();
            if reasons.is_empty() {
                return Ok(());
            }
            let state = State::Partial { reason: reasons.join("; ") };
            emit(Record::Coverage(Coverage { t_ns: now.t_ns, source: Source::Block, state }));
        }
        Ok(())
    }
}

/// The sum of both probes' cost.
struct Probes<'a>(&'a BlockProbe, Option<&'a Writeback>);

impl CostCounters for Probes<'_> {
    fn runs(&self) -> u64 {
        self.0.runs() + self.1.map_or(0, |writeback| writeback.probe.runs())
    }

    fn timed_runs(&self) -> Option<TimedRuns> {
        let writeback = self.1.and_then(|writeback| writeback.probe.timed_runs());
        self.0.timed_runs().map(|block| block + writeback.unwrap_or_default())
    }

    fn map_bytes(&self) -> u64 {
        self.0.map_bytes() + self.1.map_or(0, |writeback| writeback.probe.map_bytes())
    }

    fn lost(&self) -> BTreeMap<String, u64> {
        let block =
            self.0.lost().into_iter().map(|(name, amount)| (format!("block_{name}"), amount));
        let writeback = self.1.map(|writeback| writeback.probe.lost()).unwrap_or_default();
        let writeback =
            writeback.into_iter().map(|(name, amount)| (format!("writeback_{name}"), amount));
        // A name that could not be looked up in the interrupt is looked up at the next transfer: no loss.
        block.chain(writeback).filter(|(name, _)| name != "block_names_deferred").collect()
    }
}
