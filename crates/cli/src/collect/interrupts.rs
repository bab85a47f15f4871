// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BPF probe of interrupts as a collector: what they took from which process, on which CPU.

use super::cost::{Cost, CostCounters};
use super::irq_devices::DeviceNames;
use super::{Beat, BeatTime, Collector, Context, Emit, ObservedProcess, possible_cpus};
use deburr_bpf::TimedRuns;
use deburr_bpf::facts::facts;
use deburr_bpf::irq::{self, Interrupts, IrqPlan, IrqProbe, Kind, Serving};
use deburr_core::recording::{
    Coverage, InterruptContext, InterruptKind, InterruptTick, ProcId, Record, Source, State,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What the probe would add where it is missing.
const GAIN: &str = "the probe tells which interrupts take time from which process, on which CPU";

/// Rows of a second that have a process; those that took less are summed over the processes.
const KEPT: usize = 200;
/// What took less from a process in a second is summed too: a ten-thousandth of a CPU.
const LEAST_NS: u64 = 100_000;
/// Interrupts of the kinds that may be frequent, soft ones and those by other CPUs, that are watched in a second, for each
/// CPU; at half a microsecond each, a percent of it.
const WATCHED_PER_S: u64 = 20_000;
/// Where there are more, they are watched in one beat of so many at least. It is no divisor of a second: what comes once a
/// second is met in time.
const ONE_IN: u32 = 9;

/// The vectors of soft interrupts, as in `/proc/softirqs`. The kernel has not changed their order since 2010.
const VECTORS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

pub(crate) struct InterruptCollector {
    probe: IrqProbe,
    partial: Option<String>,
    names: DeviceNames,
    pace: Pace,
    cost: Cost,
    t0_ns: u64,
    /// The second that ended at the last beat, and is not read yet.
    ended: Option<Second>,
}

/// A second that has ended, and what the probe needs to read it.
#[derive(Clone, Copy, Debug)]
struct Second {
    half: u8,
    t0_ns: u64,
    t1_ns: u64,
    /// Those that may be frequent were not watched all the time: each of them stands for so many.
    frequent_stands_for: f64,
}

impl CostCounters for IrqProbe {
    fn runs(&self) -> u64 {
        Self::runs(self)
    }

    fn timed_runs(&self) -> Option<TimedRuns> {
        Self::timed_runs(self)
    }

    fn map_bytes(&self) -> u64 {
        Self::map_bytes(self)
    }

    fn lost(&self) -> BTreeMap<String, u64> {
        let lost = Self::lost(self).into_iter();
        lost.map(|(name, amount)| (format!("irq_{name}"), amount)).collect()
    }
}

impl InterruptCollector {
    /// Loads and attaches the probe; `Err` = why there is none.
    pub(crate) fn load(
        cpus: u32,
        serving: Option<&Serving>,
    ) -> Result<(IrqPlan, IrqProbe), String> {
        let plan = IrqPlan::new(&facts())?;
        let probe = IrqProbe::open(&plan, cpus, serving)?;
        Ok((plan, probe))
    }

    /// With what [`Self::load`] returned; `Err` = the coverage of [`Source::Interrupts`] without the probe.
    pub(crate) fn open(
        cx: &Context,
        loaded: Result<(IrqPlan, IrqProbe), String>,
    ) -> Result<Self, State> {
        let missing = |reason| State::Missing { reason, gain: GAIN.into() };
        let (plan, probe) = loaded.map_err(missing)?;
        let unshared =
            "which interrupts wake threads is not told: the kernel made no table for that";
        let mut gaps = plan.gaps();
        gaps.extend((!probe.tells_serving()).then_some(unshared));
        Ok(Self {
            probe,
            partial: (!gaps.is_empty()).then(|| gaps.join("; ")),
            names: DeviceNames::new(&cx.roots),
            pace: Pace::new(possible_cpus(&cx.roots)),
            cost: Cost::default(),
            t0_ns: 0,
            ended: None,
        })
    }

    fn start(&mut self, emit: Emit<'_>) -> Result<(), String> {
        let state = match self.partial.clone() {
            Some(reason) => State::Partial { reason },
            None => State::Active,
        };
        emit(Record::Coverage(Coverage { t_ns: 0, source: Source::Interrupts, state }));
        self.probe.begin_window()?;
        self.pace.begin(self.probe.frequent_seen());
        self.cost.begin(&self.probe, &[]);
        Ok(())
    }

    /// Reads a second that has ended.
    fn read(&mut self, cx: &mut Context, second: Second, emit: Emit<'_>) -> Result<(), String> {
        let all = self.probe.take(second.half)?;
        let ticks = ticks(all, second, &mut self.names, &mut |of| intern(cx, of, &mut *emit));
        for tick in ticks {
            emit(Record::Interrupts(Box::new(tick)));
        }
        Ok(())
    }
}

impl Collector for InterruptCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            return self.start(emit).map_err(anyhow::Error::msg);
        }
        self.cost.bin(&self.probe);
        let watch = self.pace.beat(self.probe.frequent_seen(), now.t_ns);
        self.probe.watch_frequent(watch).map_err(anyhow::Error::msg)?;
        if let Some(second) = self.ended.take() {
            self.read(cx, second, &mut *emit).map_err(anyhow::Error::msg)?;
        }
        if !now.beat.is_second() {
            return Ok(());
        }
        let half = self.probe.end_second();
        let t0_ns = std::mem::replace(&mut self.t0_ns, now.t_ns);
        let frequent_stands_for = self.pace.second(now.t_ns - t0_ns);
        let second = Second { half, t0_ns, t1_ns: now.t_ns, frequent_stands_for };
        // Programs that run now still add to it: it is read at the next beat, unless there is none.
        if now.beat == Beat::End {
            self.read(cx, second, &mut *emit).map_err(anyhow::Error::msg)?;
        } else {
            self.ended = Some(second);
        }
        emit(Record::Observer(self.cost.second(&self.probe, now.t_ns, &[])));
        Ok(())
    }
}

/// In which beats interrupts are watched that may be frequent: in all, unless there are too many.
#[derive(Debug)]
struct Pace {
    most_per_s: u64,
    seen: u64,
    t_ns: u64,
    watches: bool,
    /// Beats that are still let pass.
    pause: u32,
    /// Time in which they were watched since the last second.
    watched_ns: u64,
}

impl Pace {
    fn new(cpus: u32) -> Self {
        let most_per_s = WATCHED_PER_S * u64::from(cpus);
        Self { most_per_s, seen: 0, t_ns: 0, watches: true, pause: 0, watched_ns: 0 }
    }

    fn begin(&mut self, seen: u64) {
        self.seen = seen;
    }

    /// Whether they are to be watched in the beat that begins now.
    fn beat(&mut self, seen: u64, t_ns: u64) -> bool {
        let (came, took_ns) = (seen.saturating_sub(self.seen), t_ns.saturating_sub(self.t_ns));
        (self.seen, self.t_ns) = (seen, t_ns);
        if self.watches {
            self.watched_ns += took_ns;
            let per_s = u128::from(came) * 1_000_000_000 / u128::from(took_ns.max(1));
            let one_in = per_s.div_ceil(self.most_per_s.max(1).into());
            self.pause = u32::try_from(one_in).unwrap_or(u32::MAX).clamp(1, ONE_IN) - 1;
        } else {
            self.pause -= 1;
        }
        self.watches = self.pause == 0;
        self.watches
    }

    /// Ends a second of that length. What was seen in it stands for so many times as much.
    fn second(&mut self, length_ns: u64) -> f64 {
        let watched_ns = std::mem::take(&mut self.watched_ns);
        if watched_ns == 0 { 1.0 } else { (length_ns as f64 / watched_ns as f64).max(1.0) }
    }
}

/// The identity of the process that something was taken from.
fn intern(cx: &mut Context, of: &Interrupts, emit: Emit<'_>) -> ProcId {
    let sighting = ObservedProcess {
        pid: of.tgid,
        start_ns: Some(of.leader_boot_ns),
        comm: Some(&of.comm),
        ..ObservedProcess::default()
    };
    let Context { roots, processes, cgroups, target, .. } = cx;
    processes.intern(roots, cgroups, target, sighting, emit)
}

/// The records of a second: what took little from a process is summed over the processes.
fn ticks(
    mut all: Vec<Interrupts>,
    second: Second,
    names: &mut DeviceNames,
    intern: &mut dyn FnMut(&Interrupts) -> ProcId,
) -> Vec<InterruptTick> {
    all.sort_by_key(|one| (Reverse(one.ns), one.tgid, one.cpu, one.kind, one.context));
    let mut sums: BTreeMap<_, InterruptTick> = BTreeMap::new();
    for (rank, one) in all.iter().enumerate() {
        let alone = one.tgid != 0 && rank < KEPT && one.ns >= LEAST_NS;
        let proc = if alone { intern(one) } else { ProcId::OTHERS };
        let tick = tick(one, second, proc, names);
        let key = (tick.proc, tick.cpu, tick.kind, tick.irq, tick.name.clone(), tick.context);
        sums.entry(key).and_modify(|sum| add(sum, &tick)).or_insert(tick);
    }
    sums.into_values().collect()
}

fn tick(one: &Interrupts, second: Second, proc: ProcId, names: &mut DeviceNames) -> InterruptTick {
    // What a thread that serves soft interrupts does is its work.
    let serves = one.kernel && one.comm.starts_with(b"ksoftirqd/");
    let (kind, irq, name) = match one.kind {
        Kind::Soft(vector) => {
            let name = VECTORS.get(vector as usize).copied().unwrap_or_default();
            (InterruptKind::Soft, None, name.to_owned())
        }
        Kind::Device(irq) => (InterruptKind::Device, Some(irq), names.of(irq)),
        Kind::Timer => (InterruptKind::Timer, None, String::new()),
        Kind::Call => (InterruptKind::Processor, None, "CAL".to_owned()),
    };
    let all = |of: u64| match one.kind.is_frequent() {
        true => (of as f64 * second.frequent_stands_for) as u64,
        false => of,
    };
    InterruptTick {
        t0_ns: second.t0_ns,
        t1_ns: second.t1_ns,
        proc,
        cpu: one.cpu,
        kind,
        irq,
        name,
        context: match one.context {
            _ if serves && kind == InterruptKind::Soft => InterruptContext::OwnCall,
            irq::Context::Interrupts => InterruptContext::Interrupts,
            irq::Context::OwnCall => InterruptContext::OwnCall,
            irq::Context::NotKnown => InterruptContext::NotKnown,
        },
        ns: all(one.ns),
        count: all(one.count),
        longest_ns: one.longest_ns,
        bursts: all(one.bursts),
    }
}

fn add(sum: &mut InterruptTick, more: &InterruptTick) {
    sum.ns += more.ns;
    sum.count += more.count;
    sum.longest_ns = sum.longest_ns.max(more.longest_ns);
    sum.bursts += more.bursts;
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Second =
        Second { half: 0, t0_ns: 0, t1_ns: 1_000_000_000, frequent_stands_for: 1.0 };

    fn one(tgid: u32, ns: u64, kind: Kind) -> Interrupts {
        Interrupts {
            tgid,
            leader_boot_ns: 0,
            comm: *b"api\0\0\0\0\0\0\0\0\0\0\0\0\0",
            kernel: false,
            cpu: 1,
            kind,
            context: irq::Context::Interrupts,
            ns,
            count: 2,
            longest_ns: ns / 2,
            bursts: 1,
        }
    }

    fn ticks_of(all: Vec<Interrupts>) -> Vec<InterruptTick> {
        let mut names = DeviceNames::of_test(36, "virtio1-req.0");
        ticks(all, SECOND, &mut names, &mut |of| ProcId(of.tgid))
    }

    #[test]
    fn of_many_processes_nothing_is_lost() {
        let many = KEPT as u32 + 50;
        let all = (1..=many).map(|tgid| one(tgid, LEAST_NS + u64::from(tgid), Kind::Soft(3)));
        let told = ticks_of(all.collect());
        assert_eq!(told.len(), KEPT + 1);
        let expected: u64 = (1..=many).map(|tgid| LEAST_NS + u64::from(tgid)).sum();
        assert_eq!(told.iter().map(|it| it.ns).sum::<u64>(), expected);
        let others = told.iter().find(|it| it.proc == ProcId::OTHERS).unwrap();
        assert_eq!((others.count, others.longest_ns), (100, (LEAST_NS + 50) / 2), "the smallest");
    }

    #[test]
    fn idle_cpus_and_small_amounts_have_no_process() {
        let told = ticks_of(vec![
            one(0, 90 * LEAST_NS, Kind::Timer),
            one(7, LEAST_NS - 1, Kind::Timer),
            one(8, LEAST_NS, Kind::Timer),
        ]);
        let of: Vec<_> = told.iter().map(|it| (it.proc, it.ns)).collect();
        assert_eq!(of, [(ProcId(8), LEAST_NS), (ProcId::OTHERS, 91 * LEAST_NS - 1)]);
    }

    #[test]
    fn what_interrupts_has_the_name_that_the_kernel_gives_it() {
        let told = ticks_of(vec![
            one(7, LEAST_NS, Kind::Soft(3)),
            one(7, LEAST_NS, Kind::Soft(99)),
            one(7, LEAST_NS, Kind::Device(36)),
            one(7, LEAST_NS, Kind::Device(5)),
        ]);
        let names: Vec<_> = told.iter().map(|it| (it.irq, it.name.as_str())).collect();
        assert_eq!(
            names,
            [(None, ""), (None, "NET_RX"), (Some(5), ""), (Some(36), "virtio1-req.0")]
        );
    }

    #[test]
    fn a_thread_that_serves_soft_interrupts_is_not_interrupted_by_them() {
        let comm = *b"ksoftirqd/1\0\0\0\0\0";
        let serving = |kind| Interrupts { kernel: true, comm, ..one(16, LEAST_NS, kind) };
        let told = ticks_of(vec![serving(Kind::Soft(3)), serving(Kind::Timer)]);
        let contexts: Vec<_> = told.iter().map(|it| it.context).collect();
        assert_eq!(contexts, [InterruptContext::OwnCall, InterruptContext::Interrupts]);
    }

    #[test]
    fn where_there_are_too_many_they_are_watched_now_and_then() {
        let mut pace = Pace::new(2);
        let (mut seen, mut watched) = (0, 0);
        for beat in 1..=90 {
            // Four times as many as are watched all the time.
            seen += if pace.watches { 2 * 4 * WATCHED_PER_S / 10 } else { 0 };
            watched += u32::from(pace.beat(seen, beat * 100_000_000));
        }
        assert!((22..=23).contains(&watched), "{watched} of 90 beats");
        assert!((pace.second(9_000_000_000) - 4.0).abs() < 0.2);
        // Whether there are fewer now is seen in the next beat that is watched.
        let later: Vec<bool> = (91..99).map(|beat| pace.beat(seen, beat * 100_000_000)).collect();
        assert!(later[4..].iter().all(|watches| *watches), "{later:?}");
    }

    #[test]
    fn what_was_watched_for_a_part_of_the_time_stands_for_the_rest() {
        let mut names = DeviceNames::of_test(36, "virtio1-req.0");
        let second = Second { frequent_stands_for: 5.0, ..SECOND };
        let all = [Kind::Soft(3), Kind::Timer, Kind::Call];
        let all = all.map(|kind| one(7, LEAST_NS, kind)).to_vec();
        let told = ticks(all, second, &mut names, &mut |of| ProcId(of.tgid));
        let of: BTreeMap<_, _> = told
            .iter()
            .map(|it| ((it.kind, &*it.name), (it.ns, it.count, it.longest_ns)))
            .collect();
        let (many, few) = ((5 * LEAST_NS, 10, LEAST_NS / 2), (LEAST_NS, 2, LEAST_NS / 2));
        let expected = [
            ((InterruptKind::Soft, "NET_RX"), many),
            ((InterruptKind::Timer, ""), few),
            ((InterruptKind::Processor, "CAL"), many),
        ];
        assert_eq!(of, expected.into());
    }
}
