// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of block IO: counters do not run backwards, bins fill their time range, all waits for requests are
//! blamed.

use super::amounts::{BINS, COUNTERS, LONGEST, about_fits, buckets, fits, longest_bounds, sum};
use super::{Faults, Invariant};
use crate::recording::{
    BlockRecord, DevId, DeviceBins, DeviceTick, DiskCounters, DiskReading, HeldTick, IoBlameTick,
    IoPace, IoTick, IoWaitTick, ProcId, RequestBin, StallKind, WaitHist, WritebackPass,
};
use crate::stats::Span;
use std::collections::BTreeMap;

const EQUAL_BINS: Invariant = "bins of a device are of equal length and fill their range";
const PACE_BINS: Invariant = "bins of a pace are 100 ms long, but for the last one";
const BUSY: Invariant =
    "a device is busy in a bin for no longer than the bin, nor than its requests take";
const PARTS: Invariant = "the time in the queue and in the device do not exceed the whole";
const SAMPLED: Invariant = "at least every request is looked at, or one in some";
const TRANSFERS: Invariant = "the longest transfer takes no longer than all of them";
const BEFORE: Invariant = "the time before a request is that of requests that ended";
const HELD: Invariant =
    "what a limit held back is transfers, of a cgroup with at most 64 processes named";
const AGES: Invariant = "ages are in ascending order, each once";
const WITHIN: Invariant = "hold-ups that are told with another one are not longer than it";
const LATEST: Invariant = "a hold-up whose end is not known was not over before it was last seen";
const DIRTIERS: Invariant = "at most 16 are named who dirtied";
const BLAME: Invariant = "what a process waited for requests is blamed, no more and no less";

/// State between records.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    disks: BTreeMap<DevId, DiskReading>,
    bins_end_ns: BTreeMap<DevId, u64>,
    blamed: BTreeMap<ProcId, Blamed>,
    paces_end_ns: BTreeMap<DevId, u64>,
}

/// A process's wait for requests in one tick: as measured, and as blamed.
#[derive(Clone, Copy, Debug, Default)]
struct Blamed {
    span: Span,
    waits_ns: u64,
    blame_ns: u64,
}

impl Block {
    pub(super) fn push(&mut self, record: &BlockRecord, faults: &mut Faults) {
        match record {
            // A new device may reuse the number, and counts from 0.
            BlockRecord::Device(device) if device.gone => {
                self.disks.remove(&device.dev);
            }
            BlockRecord::Io(tick) => transfers(tick, faults),
            BlockRecord::DeviceTick(tick) => device_tick(tick, faults),
            BlockRecord::Requests(bin) => request_bin(bin, faults),
            BlockRecord::Bins(bins) => self.bins(bins, faults),
            BlockRecord::Disk(reading) => self.disk(reading, faults),
            BlockRecord::Pass(pass) => writeback(pass, faults),
            BlockRecord::Wait(tick) => self.wait(tick, faults),
            BlockRecord::Blame(tick) => self.blame(tick, faults),
            BlockRecord::Pace(pace) => self.pace(pace, faults),
            BlockRecord::Stall(stall) => {
                let holds = stall.latest_ns.is_none_or(|latest_ns| latest_ns >= stall.t1_ns);
                faults.unless(holds, LATEST, || format!("process {}", stall.proc.0));
                // None of the stalls that are recorded with this one is longer than it.
                let most_ns = stall.length_ns().saturating_mul(stall.within);
                let holds = stall.within_ns <= most_ns;
                faults.unless(holds, WITHIN, || format!("process {}", stall.proc.0));
            }
            BlockRecord::Held(tick) => held(tick, faults),
            _ => {}
        }
    }

    /// Only for complete recordings: a truncated one may lack the blame of its last tick.
    pub(super) fn finish(&self, faults: &mut Faults) {
        for (id, blamed) in &self.blamed {
            blamed.check(*id, faults);
        }
    }

    fn bins(&mut self, bins: &DeviceBins, faults: &mut Faults) {
        let (device, length_ns) = (bins.device, bins.t1_ns.saturating_sub(bins.t0_ns));
        let end_ns = self.bins_end_ns.entry(device).or_default();
        faults.unless(bins.t0_ns >= *end_ns, BINS, || format!("{device} at {} ns", bins.t0_ns));
        *end_ns = bins.t1_ns;
        let count = bins.bins.len() as u64;
        let equal = length_ns.checked_rem(count) == Some(0);
        faults.unless(equal, EQUAL_BINS, || format!("{device}: {count} in {length_ns} ns"));
        let bin_ns = length_ns.checked_div(count).unwrap_or(0);
        for (i, bin) in bins.bins.iter().enumerate() {
            let (busy_ns, depth_ns) = (bin.busy_ns, bin.depth_ns);
            let holds = fits(busy_ns, bin_ns) && fits(busy_ns, depth_ns);
            faults.unless(holds, BUSY, || {
                format!("{device}, bin {i}: {busy_ns} ns of {bin_ns} ns, depth {depth_ns} ns")
            });
        }
    }

    fn pace(&mut self, pace: &IoPace, faults: &mut Faults) {
        let (device, t0_ns) = (pace.device, pace.t0_ns);
        let end_ns = self.paces_end_ns.entry(device).or_default();
        faults.unless(t0_ns >= *end_ns, BINS, || format!("{device} at {t0_ns} ns"));
        *end_ns = pace.t1_ns;
        let length_ns = pace.t1_ns.saturating_sub(t0_ns);
        let due = length_ns.div_ceil(IoPace::BIN_NS);
        let fills = due > 0 && pace.sectors.values().all(|bins| bins.len() as u64 == due);
        faults.unless(fills, PACE_BINS, || format!("{device}: not {due} in {length_ns} ns"));
    }

    fn disk(&mut self, now: &DiskReading, faults: &mut Faults) {
        let Some(before) = self.disks.insert(now.device, *now) else { return };
        let pairs = cumulative(&before.counters).into_iter().zip(cumulative(&now.counters));
        let forward = pairs.into_iter().all(|(before, now)| now >= before);
        faults.unless(forward && now.t_ns >= before.t_ns, COUNTERS, || {
            format!("device {}", now.device)
        });
    }

    fn wait(&mut self, tick: &IoWaitTick, faults: &mut Faults) {
        let id = tick.proc;
        sizes(&tick.waits, tick.max_ns, faults, || format!("process {}", id.0));
        if tick.kind == StallKind::Request {
            let blamed = self.blamed_in(id, Span::new(tick.t0_ns, tick.t1_ns), faults);
            blamed.waits_ns = blamed.waits_ns.saturating_add(sum(&tick.waits.ns));
        }
    }

    fn blame(&mut self, tick: &IoBlameTick, faults: &mut Faults) {
        let blamed = self.blamed_in(tick.victim, Span::new(tick.t0_ns, tick.t1_ns), faults);
        blamed.blame_ns = blamed.blame_ns.saturating_add(tick.ns);
    }

    /// The sums of a process's tick. At the first record of a new tick, the sums of the previous one are complete and
    /// are compared.
    fn blamed_in(&mut self, id: ProcId, span: Span, faults: &mut Faults) -> &mut Blamed {
        let blamed = self.blamed.entry(id).or_insert(Blamed { span, ..Blamed::default() });
        // Merged processes may have amounts from several time ranges.
        if blamed.span != span && id != ProcId::OTHERS {
            blamed.check(id, faults);
            *blamed = Blamed { span, ..Blamed::default() };
        }
        blamed
    }
}

impl Blamed {
    fn check(&self, id: ProcId, faults: &mut Faults) {
        let Self { waits_ns, blame_ns, .. } = *self;
        // Without any blame, the probe could not determine it.
        let holds =
            blame_ns == 0 || (about_fits(blame_ns, waits_ns) && about_fits(waits_ns, blame_ns));
        faults.unless(holds, BLAME, || {
            let at_ns = self.span.t0_ns;
            format!("process {} at {at_ns} ns: {blame_ns} ns of {waits_ns} ns", id.0)
        });
    }
}

/// All counters except the number of requests in flight.
fn cumulative(c: &DiskCounters) -> [u64; 10] {
    [
        c.reads,
        c.read_bytes,
        c.read_ns,
        c.writes,
        c.write_bytes,
        c.write_ns,
        c.discard_bytes,
        c.flushes,
        c.busy_ns,
        c.depth_ns,
    ]
}

fn transfers(tick: &IoTick, faults: &mut Faults) {
    let IoTick { ios, bytes, total_ns, max_ns, .. } = *tick;
    let holds = fits(max_ns, total_ns) && (ios > 0 || (bytes, total_ns) == (0, 0));
    faults.unless(holds, TRANSFERS, || {
        format!("device {}: {ios} transfers, {total_ns} ns, longest {max_ns} ns", tick.device)
    });
}

fn request_bin(bin: &RequestBin, faults: &mut Faults) {
    buckets(&bin.total, faults, || format!("device {}", bin.device));
}

fn device_tick(tick: &DeviceTick, faults: &mut Faults) {
    let whose = || format!("device {}", tick.device);
    sizes(&tick.total, tick.max_ns, faults, whose);
    buckets(&tick.queue, faults, whose);
    buckets(&tick.device_time, faults, whose);
    let parts_ns = sum(&tick.queue.ns).saturating_add(sum(&tick.device_time.ns));
    let total_ns = sum(&tick.total.ns);
    faults.unless(fits(parts_ns, total_ns), PARTS, || {
        format!("{}: {parts_ns} ns of {total_ns} ns", whose())
    });
    if let Some(before) = &tick.before {
        buckets(before, faults, whose);
        let (known, all) = (sum(&before.count), sum(&tick.total.count));
        faults.unless(known <= all, BEFORE, || format!("{}: {known} of {all}", whose()));
    }
    faults.unless(tick.sampled_one_in > 0, SAMPLED, whose);
}

fn held(tick: &HeldTick, faults: &mut Faults) {
    let holds = tick.ios > 0 && tick.members.len() <= HeldTick::MEMBERS;
    faults.unless(holds, HELD, || {
        format!("device {}: {} of {}", tick.device, tick.ios, tick.members.len())
    });
}

fn sizes(waits: &WaitHist, max_ns: u64, faults: &mut Faults, whose: impl Fn() -> String) {
    buckets(waits, faults, &whose);
    let (from_ns, to_ns) = longest_bounds(waits);
    faults.unless((from_ns..=to_ns).contains(&max_ns), LONGEST, || {
        format!("{}: {max_ns} ns, not in {from_ns} to {to_ns} ns", whose())
    });
}

fn writeback(pass: &WritebackPass, faults: &mut Faults) {
    for ages in [&pass.ages, &pass.since_last] {
        let ascending = ages.windows(2).all(|pair| pair[0].0 < pair[1].0);
        faults.unless(ascending, AGES, || format!("device {}", pass.device));
    }
    let named = pass.dirtied_by.len().max(pass.asked_by.len());
    faults.unless(named <= 16, DIRTIERS, || format!("device {}: {named}", pass.device));
}
