// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::recording::{
    BlameTick, Cgroup, CgroupId, CgroupReading, CgroupVersion, Coverage, Culprit, IdleTick,
    LoadBin, LongWait, Meta, ObserverTick, ProcId, Process, ProcessTick, PsiReading, PsiResource,
    SchedstatTick, Source, State, TargetSpec, ThreadStates, WaitHist,
};
use proptest::prelude::*;

fn check(records: &[Record]) -> Checked {
    let mut checker = Checker::default();
    records.iter().for_each(|record| checker.push(record));
    checker.finish()
}

fn process(id: u32) -> Record {
    Record::Process(Box::new(Process {
        id: ProcId(id),
        pid: id,
        start_ns: 0,
        comm: "x".into(),
        cmdline: String::new(),
        kernel_thread: None,
        cgroup: None,
        cpus_allowed: None,
        cpuset_cpus: None,
        memory_cgroup: None,
        nice: None,
        in_target: true,
        observer: false,
        scheduling: vec![],
        many: false,
    }))
}

fn cgroup(id: u64, parent: Option<u64>) -> Record {
    Record::Cgroup(Box::new(Cgroup {
        id: CgroupId(id),
        parent: parent.map(CgroupId),
        path: "/".into(),
        version: CgroupVersion::V2,
        quota_us: None,
        period_us: None,
        burst_us: None,
        weight: None,
        container: None,
    }))
}

fn tick(second: u64) -> ProcessTick {
    let mut waits = WaitHist::default();
    waits.add(3_000_000);
    waits.add(100_000_000);
    ProcessTick {
        t0_ns: second * 1_000_000_000,
        t1_ns: (second + 1) * 1_000_000_000,
        proc: ProcId(1),
        threads: 2,
        wall_ns: 1_500_000_000,
        states: ThreadStates {
            queued_ns: 110_000_000,
            sleep_ns: 1_300_000_000,
            ..ThreadStates::default()
        },
        waits,
        wait_max_ns: 100_000_000,
        switches: 2,
        wakeup_latency_ns: 3_000_000,
    }
}

fn reading(t_ns: u64, usage_ns: u64) -> Record {
    Record::CgroupCpu(CgroupReading {
        t_ns,
        cgroup: CgroupId(2),
        usage_ns: Some(usage_ns),
        nr_periods: None,
        nr_throttled: None,
        throttled_ns: None,
        nr_bursts: None,
        burst_ns: None,
    })
}

fn bin(t0_ns: u64, t1_ns: u64) -> LoadBin {
    LoadBin {
        t0_ns,
        t1_ns,
        on_cpu_ns: 0,
        queued_ns: 0,
        throttled_ns: 0,
        block_io_ns: 0,
        waits: 0,
        switches: 0,
    }
}

fn blame(ns: u64) -> Record {
    let culprit = Culprit::Process(ProcId(2));
    Record::Blame(BlameTick { t0_ns: 0, t1_ns: 1, victim: ProcId(1), culprit, ns })
}

fn coverage(source: Source, state: State) -> Record {
    Record::Coverage(Coverage { t_ns: 0, source, state })
}

/// A recording without violations.
pub(super) fn good() -> Vec<Record> {
    let target = TargetSpec::Process { pid: 1, comm: "x".into() };
    let mut records = vec![Record::Meta(Box::new(Meta { target, ..Meta::default() }))];
    records.extend(Source::ALL.map(|source| coverage(source, State::Active)));
    records.extend([process(1), process(2), cgroup(1, None), cgroup(2, Some(1))]);
    records.extend([
        Record::ProcessTick(Box::new(tick(0))),
        blame(100_000_000),
        Record::TargetBin(bin(0, 100)),
        reading(0, 5),
        Record::ProcessTick(Box::new(tick(1))),
        reading(1_000_000_000, 6),
        Record::End { window_ns: 2_000_000_000 },
    ]);
    records
}

#[test]
fn the_parts_of_a_wait_do_not_exceed_it() {
    let part = |t_ns, ns| {
        let culprit = Culprit::Process(ProcId(2));
        Record::LongWait(LongWait { t_ns, victim: ProcId(1), tid: 1, wait_ns: 10, culprit, ns })
    };
    let violated = |parts: &[(u64, u64)]| -> Vec<&str> {
        let mut records = good();
        let at = records.len() - 1;
        records.splice(at..at, parts.iter().map(|&(t_ns, ns)| part(t_ns, ns)));
        check(&records).violations.into_iter().map(|violation| violation.invariant).collect()
    };
    assert_eq!(violated(&[(5, 6), (5, 4), (6, 10), (5, 10)]), Vec::<&str>::new());
    assert_eq!(violated(&[(5, 6), (5, 5)]), [amounts::WHOLE]);
}

/// The invariants that are violated when `record` is inserted before the end.
pub(super) fn violated_by(record: Record) -> Vec<&'static str> {
    let mut records = good();
    records.insert(records.len() - 1, record);
    check(&records).violations.into_iter().map(|violation| violation.invariant).collect()
}

/// A third tick, valid except for the change.
fn tick_with(change: impl FnOnce(&mut ProcessTick)) -> Record {
    let mut tick = tick(1);
    (tick.t0_ns, tick.t1_ns) = (2_000_000_000, 3_000_000_000);
    change(&mut tick);
    Record::ProcessTick(Box::new(tick))
}

#[test]
fn a_good_recording_has_no_violation() {
    let checked = check(&good());
    assert_eq!(checked.violations, []);
    assert_eq!(checked.window_ns, Some(2_000_000_000));
    assert_eq!(checked.records, good().len() as u64);
    assert_eq!(violated_by(tick_with(|_| ())), [] as [&str; 0]);
}

#[test]
fn one_that_was_cut_short_at_any_place_has_none_either() {
    for length in 1..good().len() {
        let checked = check(&good()[..length]);
        assert_eq!(checked.violations, [], "{length}");
        assert_eq!(checked.window_ns, None);
    }
}

#[test]
fn amounts_that_cannot_be() {
    let cases: [(&str, Record); 16] = [
        ("states", tick_with(|t| t.states.on_cpu_ns = 20_000_000_000)),
        ("wall time does not", tick_with(|t| (t.threads, t.states.sleep_ns) = (1, 0))),
        ("longest", tick_with(|t| t.wait_max_ns = 300_000_000)),
        ("longest", tick_with(|t| t.waits = WaitHist::default())),
        ("bucket", tick_with(|t| t.waits.ns[3] = 1)),
        ("bucket", tick_with(|t| t.waits.count[12] += 1)),
        ("overlap", tick_with(|t| t.t0_ns = 1_900_000_000)),
        ("blame", blame(200_000_000)),
        ("blame", tick_with(|t| t.wakeup_latency_ns = 400_000_000)),
        ("does not end before", Record::TargetBin(bin(200, 199))),
        ("bins do not overlap", Record::TargetBin(bin(99, 200))),
        ("backwards", reading(2_000_000_000, 5)),
        ("backwards", reading(0, 7)),
        ("end of the window", reading(4_000_000_000, 7)),
        ("lost", {
            let lost = [("x".to_owned(), 0)].into();
            Record::Observer(ObserverTick { lost, ..ObserverTick::default() })
        }),
        ("no longer than the wait", {
            Record::Idle(Box::new(IdleTick {
                t0_ns: 0,
                t1_ns: 1,
                victim: ProcId(1),
                min_wait_ns: 0,
                waits: 1,
                waits_ns: 10_000_000,
                skipped_ns: 0,
                idle_allowed_ns: 9_000_000,
                idle_forbidden_ns: 3_000_000,
                cpus: vec![],
            }))
        }),
    ];
    for (expected, record) in cases {
        let violated = violated_by(record.clone());
        assert!(
            violated.iter().any(|i| i.contains(expected)),
            "{expected}: {violated:?} {record:?}"
        );
    }
}

#[test]
fn schedstat_beyond_wall_time_and_pressure_that_falls() {
    let schedstat = SchedstatTick {
        t0_ns: 0,
        t1_ns: 1_000_000_000,
        proc: ProcId(1),
        threads: 1,
        wall_ns: 1_000_000_000,
        on_cpu_ns: 600_000_000,
        delay_ns: 900_000_000,
        slices: 1,
    };
    assert_eq!(violated_by(Record::Schedstat(schedstat)), [] as [&str; 0]);
    for too_much in [
        SchedstatTick { on_cpu_ns: 1_400_000_000, ..schedstat },
        SchedstatTick { wall_ns: 1_400_000_000, ..schedstat },
    ] {
        assert_eq!(violated_by(Record::Schedstat(too_much)).len(), 1);
    }

    let pressure = |t_ns, some_ns, full_ns| {
        Record::Psi(PsiReading { t_ns, cgroup: None, resource: PsiResource::Cpu, some_ns, full_ns })
    };
    let pair = |second| {
        let mut records = good();
        let end = records.len() - 1;
        records.splice(end..end, [pressure(0, 5, Some(5)), second]);
        check(&records).violations.len()
    };
    assert_eq!(pair(pressure(1, 5, None)), 0);
    assert_eq!(pair(pressure(1, 4, Some(5))), 1);
    assert_eq!(pair(pressure(1, 5, Some(4))), 1);
}

#[test]
fn references_that_lead_nowhere() {
    for (expected, record) in [
        ("process is described", tick_with(|t| t.proc = ProcId(9))),
        ("cgroup is described", cgroup(3, Some(9))),
        ("identity 0", process(0)),
        ("identity 0", process(u32::MAX)),
        ("circumstances", Record::Meta(Box::default())),
    ] {
        assert!(violated_by(record).iter().any(|i| i.contains(expected)), "{expected}");
    }
    assert_eq!(violated_by(tick_with(|t| t.proc = ProcId::OTHERS)), [] as [&str; 0]);
}

#[test]
fn a_source_that_saw_nothing_yields_nothing() {
    let mut records = good();
    for record in &mut records {
        if let Record::Coverage(coverage) = record
            && coverage.source == Source::Sched
        {
            coverage.state = State::Missing { reason: "x".into(), gain: "y".into() };
        }
    }
    let violations = check(&records).violations;
    assert_eq!(violations.len(), 1);
    // Two ticks, one blame, one bin.
    assert_eq!(violations[0].count, 4);
    assert!(violations[0].to_string().contains("4 times"), "{}", violations[0]);
}

#[test]
fn the_stream_has_a_head_and_an_end() {
    assert_eq!(check(&[]).violations.len(), 1);
    let mut records = good();
    records.push(Record::End { window_ns: 1 });
    assert!(!check(&records).violations.is_empty());
    let mut silent = good();
    silent.retain(|r| !matches!(r, Record::Coverage(c) if c.source == Source::Psi));
    assert!(check(&silent).violations[0].first.contains("/proc/pressure"));
}

proptest! {
    #[test]
    fn no_amount_makes_it_panic(n in any::<[u64; 16]>(), threads in any::<u32>(), waits in any::<[u64; 4]>()) {
        let mut hist = WaitHist::default();
        (hist.count[23], hist.ns[23], hist.count[0], hist.ns[0]) = waits.into();
        let tick = ProcessTick {
            t0_ns: n[0],
            t1_ns: n[1],
            proc: ProcId(1),
            threads,
            wall_ns: n[2],
            states: ThreadStates {
                on_cpu_ns: n[3],
                queued_ns: n[4],
                throttled_ns: n[5],
                block_io_ns: n[6],
                mem_stall_ns: n[7],
                uninterruptible_ns: n[8],
                sleep_ns: n[9],
                stopped_ns: n[10],
            },
            waits: hist,
            wait_max_ns: n[11],
            switches: n[12],
            wakeup_latency_ns: n[13],
        };
        let tick = Record::ProcessTick(Box::new(tick));
        let end = Record::End { window_ns: n[15] };
        check(&[tick.clone(), blame(n[14]), tick, blame(n[14]), end]);
    }
}
