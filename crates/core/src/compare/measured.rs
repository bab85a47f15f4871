// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is measured of a host and its devices, second by second: latency of requests, pressure, steal.

use super::decide::{Decided, Tested};
use super::document::{Measure, MeasureOf};
use super::series::{MOST_BLOCKS, SECOND_NS, rates, whole_blocks};
use crate::finding::{Entity, EntityKind};
use crate::recording::{
    BlockRecord, CpuReading, DevId, DeviceTick, IoOp, PsiReading, PsiResource, Record,
};
use crate::text::Unit;
use crate::view::Series;
use std::collections::{BTreeMap, BTreeSet};

/// Least difference of pressure and steal that matters: 10 ms of each second.
const LEAST_NS_PER_S: f64 = 1e7;
/// Least difference of a mean latency that matters, as a part of the larger one.
const LEAST_OF_LATENCY: f64 = 0.1;
/// Latency below this is not compared: the code path itself takes that long.
const LEAST_LATENCY_NS: f64 = 10_000.0;

/// An amount over time, and the number of events or the work that it is for.
#[derive(Clone, Debug)]
struct Sums {
    amount: Series,
    per: Series,
}

impl Default for Sums {
    fn default() -> Self {
        let series = || Series::new(SECOND_NS, MOST_BLOCKS);
        Self { amount: series(), per: series() }
    }
}

/// Series of the host and its devices. Their number is bounded by that of the devices.
#[derive(Clone, Debug, Default)]
pub(super) struct MeasuredSeries {
    devices: BTreeSet<DevId>,
    latency: BTreeMap<(DevId, IoOp), Sums>,
    steal: Sums,
    pressure: BTreeMap<PsiResource, Sums>,
    /// Time, steal and busy time of the last reading of each CPU.
    last_cpu: BTreeMap<u32, (u64, u64, u64)>,
    last_pressure: BTreeMap<PsiResource, (u64, u64)>,
}

/// Most CPUs that are followed.
const MOST_CPUS: usize = 8192;

impl MeasuredSeries {
    pub(super) fn new(devices: BTreeSet<DevId>) -> Self {
        Self { devices, ..Self::default() }
    }

    pub(super) fn push(&mut self, record: &Record) {
        match record {
            Record::Block(record) => {
                if let BlockRecord::DeviceTick(tick) = &**record {
                    self.requests(tick);
                }
            }
            Record::Cpu(reading) => self.cpu(reading),
            Record::Psi(reading) if reading.cgroup.is_none() => self.pressure(reading),
            _ => {}
        }
    }

    fn requests(&mut self, tick: &DeviceTick) {
        if self.devices.contains(&tick.device) {
            let sums = self.latency.entry((tick.device, tick.op)).or_default();
            sums.amount.add(tick.t0_ns, tick.t1_ns, tick.total.total_ns());
            sums.per.add(tick.t0_ns, tick.t1_ns, tick.total.total_count());
        }
    }

    fn cpu(&mut self, now: &CpuReading) {
        if self.last_cpu.len() >= MOST_CPUS && !self.last_cpu.contains_key(&now.cpu) {
            return;
        }
        let busy_ns = now.user_ns.saturating_add(now.system_ns).saturating_add(now.irq_ns);
        let before = self.last_cpu.insert(now.cpu, (now.t_ns, now.steal_ns, busy_ns));
        if let Some((t_ns, steal_ns, last_busy_ns)) = before {
            let stolen_ns = now.steal_ns.saturating_sub(steal_ns);
            let ran_ns = busy_ns.saturating_sub(last_busy_ns);
            self.steal.amount.add(t_ns, now.t_ns, stolen_ns);
            self.steal.per.add(t_ns, now.t_ns, ran_ns.saturating_add(stolen_ns));
        }
    }

    fn pressure(&mut self, now: &PsiReading) {
        let before = self.last_pressure.insert(now.resource, (now.t_ns, now.some_ns));
        if let Some((t_ns, some_ns)) = before {
            let sums = self.pressure.entry(now.resource).or_default();
            sums.amount.add(t_ns, now.t_ns, now.some_ns.saturating_sub(some_ns));
            sums.per.add(t_ns, now.t_ns, now.t_ns.saturating_sub(t_ns));
        }
    }

    /// Latency of a device by name. Of several devices of a name the last one counts.
    fn by_name(&self, names: &BTreeMap<DevId, String>) -> BTreeMap<(String, IoOp), &Sums> {
        let named = self
            .latency
            .iter()
            .filter_map(|((dev, op), sums)| Some(((names.get(dev)?.clone(), *op), sums)));
        named.collect()
    }
}

/// What is compared of two hosts, with its name.
pub(super) fn tested(
    sides: [&MeasuredSeries; 2],
    names: [&BTreeMap<DevId, String>; 2],
    windows_ns: [u64; 2],
) -> Vec<(MeasureOf, Entity, Tested)> {
    let mut all = Vec::new();
    let by_name = [0, 1].map(|side| sides[side].by_name(names[side]));
    for ((name, op), in_a) in &by_name[0] {
        let what = match op {
            IoOp::Read => MeasureOf::ReadLatency,
            IoOp::Write => MeasureOf::WriteLatency,
            IoOp::Other => continue,
        };
        let Some(in_b) = by_name[1].get(&(name.clone(), *op)) else { continue };
        let [amounts, numbers] = blocks([*in_a, *in_b], windows_ns);
        let tested = Tested::mean(borrowed(&amounts), borrowed(&numbers), LEAST_OF_LATENCY);
        if let Some(tested) = tested.filter(|it| it.most() >= LEAST_LATENCY_NS) {
            let device = Entity { device: Some(name.clone()), ..Entity::new(EntityKind::Device) };
            all.push((what, device, tested));
        }
    }
    let host = || Entity::new(EntityKind::Host);
    let [stolen, wanted] = blocks([&sides[0].steal, &sides[1].steal], windows_ns);
    let steal = Tested::amount(borrowed(&stolen), borrowed(&wanted), LEAST_NS_PER_S);
    if steal.most() >= LEAST_NS_PER_S {
        all.push((MeasureOf::Steal, host(), steal));
    }
    for (resource, in_a) in &sides[0].pressure {
        let what = match resource {
            PsiResource::Cpu => MeasureOf::CpuPressure,
            PsiResource::Io => MeasureOf::IoPressure,
            PsiResource::Memory => MeasureOf::MemoryPressure,
        };
        let Some(in_b) = sides[1].pressure.get(resource) else { continue };
        let [amounts, _] = blocks([in_a, in_b], windows_ns);
        let tested = Tested::share(borrowed(&amounts), LEAST_NS_PER_S);
        if tested.most() >= LEAST_NS_PER_S {
            all.push((what, host(), tested));
        }
    }
    all
}

fn borrowed(sides: &[Vec<f64>; 2]) -> [&[f64]; 2] {
    [&sides[0], &sides[1]]
}

/// Amounts and numbers of two sides in blocks of equal width.
fn blocks(sides: [&Sums; 2], windows_ns: [u64; 2]) -> [[Vec<f64>; 2]; 2] {
    let widths = sides.iter().flat_map(|it| [it.amount.width_ns(), it.per.width_ns()]);
    let width_ns = widths.max().unwrap_or(SECOND_NS);
    [|it: &Sums| it.amount.clone(), |it: &Sums| it.per.clone()].map(|of| {
        [0, 1].map(|side| {
            rates(
                &of(sides[side]),
                width_ns,
                whole_blocks(width_ns, windows_ns[side]).min(MOST_BLOCKS as usize),
            )
        })
    })
}

pub(super) fn measure(what: MeasureOf, of: Entity, it: Decided) -> Measure {
    let is_latency = matches!(what, MeasureOf::ReadLatency | MeasureOf::WriteLatency);
    Measure {
        what,
        of,
        unit: if is_latency { Unit::Ns } else { Unit::NsPerS },
        change: it.change,
        a: it.means[0],
        b: it.means[1],
        difference: it.difference,
        ratio: it.ratio,
        chance: it.chance,
        detectable: it.detectable,
    }
}
