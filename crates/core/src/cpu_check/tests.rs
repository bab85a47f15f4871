// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated machines with known properties, and figures recorded on real ones.

mod classes;

use super::document::{AffinityLimit, Class, CpuCheck};
use super::pairs::{self, Pair, PairClass};
use super::sweep::{self, Regime};
use super::{judge, schedule};
use crate::recording::{
    BlockRecord, CheckSetup, CpuCheckRecord, EventKind, Mix, PairRound, Record, Run, Setting,
    SweepWorker,
};
use crate::render::{TextStyle, json_document};
use crate::testkit::{CHUNK_NS, Machine, S, Scene, view};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn checked(machine: &Machine) -> CpuCheck {
    judge(&machine.checked().view()).expect("there is a check")
}

fn cpus(check: &CpuCheck) -> Vec<Vec<u32>> {
    check.groups.iter().map(|group| group.cpus.clone()).collect()
}

#[test]
fn a_machine_with_nothing_wrong_is_even() {
    for n in [2, 4, 7, 16] {
        let check = checked(&Machine::even(n));
        let verdict = &check.verdict;
        assert_eq!((verdict.class, verdict.usable_cores), (Class::Even, Some(n)), "{verdict:?}");
        assert_eq!(verdict.even_workers, Some(n));
        assert!(verdict.confidence > 0.8 && check.groups.is_empty(), "{verdict:?}");
        let over = check.sweep.last().unwrap();
        assert_eq!((over.workers, over.regime), (2 * n, Regime::Even), "each has half of a CPU");
        assert!((over.share - 0.5).abs() < 0.01 && (over.work - f64::from(n)).abs() < 0.1);
    }
}

#[test]
fn hidden_siblings_are_found_with_their_groups() {
    let check = checked(&Machine::siblings(16));
    let verdict = &check.verdict;
    assert_eq!((verdict.class, verdict.usable_cores), (Class::SharedCore, Some(8)), "{verdict:?}");
    assert_eq!(cpus(&check)[..2], [vec![0, 8], vec![1, 9]]);
    assert_eq!(check.groups.len(), 8);
    // Here the scheduler first uses the first CPU of each core, as it did on the recorded machine.
    assert_eq!(verdict.even_workers, Some(8));
    let step = |n: u32| check.sweep.iter().find(|step| step.workers == n).unwrap();
    assert_eq!(step(9).regime, Regime::Slower);
    assert_eq!(step(16).regime, Regime::AllSlower);
    assert!((step(16).work - 8.0).abs() < 0.1);
    assert!(verdict.summary.contains("16 CPUs are 8 cores"), "{}", verdict.summary);
    assert!(verdict.advice.iter().any(|line| line.contains("taskset -c 0-7")), "{verdict:?}");
}

#[test]
fn time_sliced_cpus_are_told_from_siblings() {
    let check = checked(&Machine { sliced: true, ..Machine::siblings(4) });
    assert_eq!(check.verdict.class, Class::TimeSliced);
    assert_eq!(check.verdict.usable_cores, Some(2));
    assert!(check.groups.iter().all(|group| group.time_sliced && !group.told));
    assert_eq!(cpus(&check), [[0, 2], [1, 3]]);
    let step = check.sweep.iter().find(|step| step.workers == 3).unwrap();
    assert_eq!((step.regime, step.migrations), (Regime::Stopped, 0));
    assert!((step.slowest_gaps - 0.5).abs() < 0.02 && step.share > 0.99);
}

#[test]
fn where_some_pairs_could_not_be_told_the_sweep_says_how_many_cores_there_are() {
    let mut scene = Machine { sliced: true, rounds: 3, ..Machine::siblings(6) }.checked();
    let rounds: Vec<_> = scene
        .records()
        .into_iter()
        .filter_map(|record| match record {
            Record::CpuCheck(record) => Some(*record),
            _ => None,
        })
        .filter(|record| matches!(record, CpuCheckRecord::Round(r) if (r.a, r.b) == (0, 3)))
        .collect();
    for round in rounds {
        scene.check(round);
    }
    let check = judge(&scene.view()).unwrap();
    assert_eq!((cpus(&check), check.verdict.class), (vec![vec![0, 3]], Class::TimeSliced));
    assert_eq!(check.verdict.usable_cores, Some(3), "by the sweep: five by the known pairs");
    assert!(check.verdict.doubts.join("; ").contains("14 pairs could not be told"));
    // Without a sweep the number of cores is not known.
    let mut records = scene.records();
    let is_worker = |record: &Record| matches!(record, Record::CpuCheck(r) if matches!(**r, CpuCheckRecord::Worker(_)));
    records.retain(|record| !is_worker(record));
    let verdict = judge(&view(&records)).unwrap().verdict;
    assert_eq!(verdict.usable_cores, None);
    assert!(verdict.summary.contains("less than as many cores"), "{}", verdict.summary);
    assert!(verdict.advice[0].contains("without `--quick`"), "{:?}", verdict.advice);
}

#[test]
fn where_no_pair_could_be_told_workers_that_stand_still_say_enough() {
    let of = |machine: Machine| {
        let check = checked(&Machine { rounds: 3, ..machine });
        assert!(check.groups.is_empty());
        (check.verdict.class, check.verdict.usable_cores, check.verdict)
    };
    let (class, cores, verdict) = of(Machine { sliced: true, ..Machine::siblings(8) });
    assert_eq!((class, cores, verdict.held_up_share), (Class::TimeSliced, Some(4), 1.0));
    assert!(verdict.summary.contains("which with which could not be told"), "{}", verdict.summary);
    assert!(!verdict.advice.join("; ").contains("taskset"), "{:?}", verdict.advice);
    assert!((verdict.held_up_speed.unwrap() - 0.5).abs() < 0.02 && verdict.confidence < 0.5);
    assert_eq!(of(Machine::siblings(8)).0, Class::SharedCore);
    assert_eq!(of(Machine::even(8)).0, Class::Even);
    // With other tasks running, the work of the workers is not conclusive.
    assert_eq!(of(Machine { share: 0.5, ..Machine::siblings(8) }).0, Class::Inconclusive);
}

#[test]
fn slots_are_as_long_as_time_allows() {
    assert_eq!(schedule::slot_ns(8, 3 * S), 5_859_375);
    assert_eq!(schedule::slot_ns(1, 3 * S), schedule::SLOT_NS);
    assert_eq!(schedule::slot_ns(1000, S), schedule::SCREEN_SLOT_NS);
}

#[test]
fn three_and_more_on_one_core_are_one_group() {
    let machine = Machine { cores: vec![vec![0, 1, 2], vec![3, 4, 5]], ..Machine::even(6) };
    let check = checked(&machine);
    assert_eq!(cpus(&check), [[0, 1, 2], [3, 4, 5]]);
    assert_eq!(check.verdict.usable_cores, Some(2));
}

#[test]
fn what_the_kernel_knows_is_no_surprise() {
    let cores = Machine::siblings(8).cores;
    let check = checked(&Machine { told: Some(cores), ..Machine::siblings(8) });
    assert_eq!(check.verdict.class, Class::SharedAsTold);
    assert_eq!((check.verdict.usable_cores, check.cpus.cores_told), (Some(4), Some(4)));
    let lying = Machine { told: Some(vec![vec![0, 1]]), ..Machine::siblings(4) };
    assert_eq!(checked(&lying).verdict.class, Class::SharedCore, "told of others than share");
}

#[test]
fn cpus_that_float_share_now_and_then() {
    let machine = Machine { every: 12, rounds: 120, ..Machine::siblings(2) };
    let check = checked(&machine);
    assert_eq!(check.pairs[0].class, PairClass::Sometimes);
    assert_eq!((check.pairs[0].shared, check.pairs[0].valid), (10, 120));
    assert_eq!((check.verdict.class, check.verdict.usable_cores), (Class::Even, Some(2)));
    assert!(check.verdict.summary.contains("8.3 % of the looks"), "{}", check.verdict.summary);
    let once = checked(&Machine { every: 1000, rounds: 375, ..machine });
    assert_eq!(once.pairs[0].class, PairClass::Independent, "once is chance");
}

#[test]
fn a_neighbour_outside_is_one_sided() {
    let check = checked(&Machine { foreign: Some((1, 3, 0.6)), rounds: 30, ..Machine::even(2) });
    assert_eq!(check.verdict.class, Class::Foreign);
    assert_eq!((check.pairs[0].one_sided, check.pairs[0].shared), (10, 0));
    assert_eq!(check.verdict.usable_cores, Some(2));
    let held_up = check.verdict.held_up_speed.unwrap();
    assert!((held_up - 0.8).abs() < 0.02, "the mean of both: {held_up}");
}

/// One of eight rounds is above the threshold, but a single round is chance.
#[test]
fn one_slow_round_accuses_nobody() {
    let once = Machine { foreign: Some((1, 8, 0.5)), rounds: 8, ..Machine::even(2) };
    let check = checked(&once);
    assert_eq!((check.pairs[0].one_sided, check.verdict.class), (1, Class::Even));
    let twice = checked(&Machine { rounds: 16, ..once });
    assert_eq!((twice.pairs[0].one_sided, twice.verdict.class), (2, Class::Foreign));
}

#[test]
fn cpus_of_different_speed_are_neither_shared_nor_held_up() {
    let check =
        checked(&Machine { clock: |cpu| if cpu == 3 { 0.7 } else { 1.0 }, ..Machine::even(4) });
    assert_eq!(check.verdict.class, Class::Clock);
    assert!(check.verdict.summary.contains("70 %"), "{}", check.verdict.summary);
    assert!(check.groups.is_empty());
}

#[test]
fn a_busy_machine_is_inconclusive_and_says_why() {
    let busy = Machine { share: 0.4, realtime: false, ..Machine::siblings(4) };
    let check = checked(&busy);
    let verdict = &check.verdict;
    assert_eq!((verdict.class, verdict.usable_cores), (Class::Inconclusive, None), "{verdict:?}");
    assert!(verdict.summary.contains("other tasks"), "{}", verdict.summary);
    assert!(check.pairs.iter().all(|pair| pair.missed == pair.rounds));
    // With real-time priority, pairs and speeds are still measured correctly.
    let check = checked(&Machine { realtime: true, ..busy });
    assert_eq!((check.verdict.class, check.verdict.usable_cores), (Class::SharedCore, Some(2)));
}

/// A check that runs under a CPU limit reports that limit instead of blaming other tasks.
#[test]
fn a_limit_of_its_own_is_named() {
    let under = |machine: &Machine, quota_us: Option<u64>| {
        let mut scene = machine.checked();
        scene.cgroup("/", None, None);
        let pod = scene.cgroup("/pod", quota_us, None);
        let own = scene.process("deburr", Some(pod));
        scene.facts(own, |facts| facts.observer = true);
        // Limits of other cgroups must not be reported.
        let other = scene.cgroup("/other", Some(1_000), None);
        scene.process("other", Some(other));
        judge(&scene.view()).unwrap()
    };
    let slow = Machine { share: 0.25, realtime: false, ..Machine::even(2) };
    let check = under(&slow, Some(50_000));
    let limit = check.cpus.limit.unwrap();
    assert_eq!((limit.cpus, limit.cgroup.as_str()), (0.5, "/pod"));
    let verdict = check.verdict;
    assert_eq!(verdict.class, Class::Inconclusive);
    assert!(verdict.summary.contains("a CPU limit of its own"), "{}", verdict.summary);
    assert_eq!(verdict.advice, ["run it outside of `/pod`, or lift its limit"]);
    assert!(verdict.doubts[..2].join("; ").contains("0.5 CPUs' worth of time"), "{verdict:?}");
    // With real-time priority the pairs are known; the advice still names what the limit leaves.
    let check = under(&Machine { realtime: true, ..slow.clone() }, Some(50_000));
    assert_eq!((check.verdict.class, check.verdict.usable_cores), (Class::Even, Some(2)));
    assert!(check.verdict.advice[1].contains("0.5 CPUs' worth of time in all"), "{check:?}");
    // A limit that does not restrict the CPUs is not reported, and neither is a missing one.
    for quota_us in [Some(200_000), None] {
        let check = under(&slow, quota_us);
        assert_eq!(check.cpus.limit, None, "{quota_us:?}");
        assert!(check.verdict.summary.contains("other tasks"), "{}", check.verdict.summary);
    }
}

#[test]
fn cpus_that_are_offline_are_named() {
    let with = |lists: &[(&str, &str)]| {
        let mut scene = Machine::even(2).checked();
        for (name, list) in lists {
            let (path, value) = (format!("/sys/devices/system/cpu/{name}"), Some((*list).into()));
            let setting = BlockRecord::Setting(Setting { t_ns: 0, path, value });
            scene.push(Record::Block(Box::new(setting)));
        }
        let check = judge(&scene.view()).unwrap();
        (check.cpus.offline, check.verdict.doubts.join("; "))
    };
    let (offline, doubts) = with(&[("offline", "2-3,8-63"), ("present", "0-3")]);
    assert_eq!(offline, [2, 3]);
    assert!(doubts.contains("offline, so not looked at: CPUs 2-3"), "{doubts}");
    // CPUs that are possible, but not present, are not reported as offline.
    assert_eq!(with(&[("offline", "2-63"), ("present", "0-1")]).0, [0u32; 0]);
    assert_eq!(with(&[("offline", ""), ("present", "0-1")]).0, [0u32; 0]);
    assert_eq!(with(&[]).0, [0u32; 0]);
}

#[test]
fn what_keeps_it_from_cpus_is_named() {
    let kept_by = |cpuset: &str, affinity: &str| {
        let machine = Machine { cpus: vec![2, 3], ..Machine::even(0) };
        let mut scene = machine.checked();
        scene.meta(|meta| meta.cpus_online = (0..8).collect());
        let own = scene.process("deburr", None);
        scene.facts(own, |facts| {
            facts.observer = true;
            facts.cpuset_cpus = Some(cpuset.into());
            facts.cpus_allowed = Some(affinity.into());
        });
        let check = judge(&scene.view()).unwrap();
        (check.cpus.kept_by, check.verdict.doubts.join("; "))
    };
    for (cpuset, affinity, by, word) in [
        ("2-3", "2-3", AffinityLimit::Cpuset, "those of its cpuset"),
        ("0-7", "2-3", AffinityLimit::Affinity, "those of its affinity mask"),
        ("2-5", "2-3", AffinityLimit::Affinity, "those of its affinity mask"),
    ] {
        let (found, doubts) = kept_by(cpuset, affinity);
        assert_eq!(found, Some(by));
        assert!(doubts.contains("may use 2 (2-3)") && doubts.contains(word), "{doubts}");
    }
}

#[test]
fn one_cpu_has_no_pairs() {
    let check = checked(&Machine::even(1));
    assert_eq!((check.verdict.class, check.verdict.usable_cores), (Class::Even, Some(1)));
    assert_eq!((check.pairs.len(), check.pairs_in_all), (0, 0));
    assert_eq!(check.verdict.advice, ["size for 1 process that computes at a time"]);
    assert_eq!(check.sweep.iter().map(|step| step.workers).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn some_of_the_cpus_are_looked_at_where_only_they_may_be_used() {
    let machine = Machine { cpus: vec![2, 5, 7, 11], cores: vec![vec![5, 11]], ..Machine::even(0) };
    let mut scene = machine.checked();
    scene.meta(|meta| meta.cpus_online = (0..12).filter(|cpu| *cpu != 3).collect());
    let check = judge(&scene.view()).unwrap();
    assert_eq!(cpus(&check), [[5, 11]]);
    assert_eq!(check.verdict.usable_cores, Some(3));
    let doubts = check.verdict.doubts.join("; ");
    assert!(doubts.contains("of 11 online CPUs this process may use 4 (2,5,7,11)"), "{doubts}");
    assert!(check.verdict.advice[1].contains("taskset -c 2,5,7 "), "{:?}", check.verdict.advice);
}

#[test]
fn two_hundred_and_fifty_six_cpus_with_the_pairs_that_there_was_time_for() {
    let mut machine = Machine::siblings(256);
    machine.rounds = 0;
    let mut scene = machine.checked();
    let run = |slots: u64, speed: f64| Run {
        wall_ns: slots * schedule::SLOT_NS,
        cpu_ns: slots * schedule::SLOT_NS,
        chunks: (slots as f64 * 2000.0 * speed) as u64,
        chunk_ns: (CHUNK_NS as f64 / speed) as u64,
        ..Run::default()
    };
    for at in 0..8 {
        for (a, b) in (0..128).map(|cpu| (cpu, cpu + 128)).chain((0..127).map(|cpu| (cpu, cpu + 1)))
        {
            let together = if b - a == 128 { 0.52 } else { 1.0 };
            scene.check(CpuCheckRecord::Round(PairRound {
                t0_ns: at,
                t1_ns: at,
                mix: Mix::Adds,
                slot_ns: schedule::SLOT_NS,
                a,
                b,
                a_alone: run(1, 1.0),
                b_alone: run(1, 1.0),
                a_together: run(2, together),
                b_together: run(2, together),
            }));
        }
    }
    let check = judge(&scene.view()).unwrap();
    assert_eq!((check.verdict.class, check.verdict.usable_cores), (Class::SharedCore, Some(128)));
    assert_eq!(check.pairs_in_all, 32_640);
    assert!(check.verdict.doubts[0].contains("255 of 32 640 pairs"), "{:?}", check.verdict.doubts);
    assert!(
        check.sweep.len() <= schedule::QUICK.steps && check.sweep.last().unwrap().workers == 512
    );
}

#[test]
fn what_was_interrupted_is_judged_as_far_as_it_came() {
    let mut scene = Machine { rounds: 0, ..Machine::even(4) }.checked();
    scene.event(EventKind::Interrupted { signal: "SIGINT".into() });
    let check = judge(&scene.view()).unwrap();
    // The sweep alone shows that nothing is shared: four workers did the work of four.
    assert_eq!((check.verdict.class, check.verdict.usable_cores), (Class::Even, Some(4)));
    let check = judge(&Machine { rounds: 0, ..Machine::siblings(4) }.checked().view()).unwrap();
    assert_eq!(check.verdict.class, Class::Inconclusive);
    assert!(check.verdict.summary.contains("before the pairs"), "{}", check.verdict.summary);
}

/// A worker that had a CPU for 30 s and completed `chunks` chunks with a median duration of `chunk_ns`.
fn worker(workers: u32, worker: u32, chunks: u64, chunk_ns: u64) -> SweepWorker {
    let (wall_ns, cpu_ns) = (30 * S, 30 * S);
    let run = Run { wall_ns, cpu_ns, chunks, chunk_ns, ..Run::default() };
    SweepWorker { t0_ns: 0, t1_ns: wall_ns, workers, worker, run, migrations: 0, cpu: worker }
}

/// Nine shell loops that counted for 30 s on 16 CPUs of eight cores, recorded on a provider's machine in 2017.
#[test]
fn nine_loops_on_eight_hidden_cores_are_uneven() {
    let counts = [
        9_900_143, 5_245_844, 11_243_929, 11_228_044, 11_160_811, 11_253_889, 11_238_050,
        5_247_578, 9_922_461,
    ];
    let chunk_ns = |count: u64| 30 * S / count;
    let mut workers = vec![worker(1, 0, 11_253_889, chunk_ns(11_253_889))];
    workers.extend((0..).zip(counts).map(|(i, count)| worker(9, i, count, chunk_ns(count))));
    let steps = sweep::steps(16, &workers);
    assert_eq!((steps[1].regime, steps[1].migrations), (Regime::Slower, 0));
    assert!((steps[1].evenness - 0.466).abs() < 0.001, "{}", steps[1].evenness);
    assert_eq!(sweep::even_up_to(16, &steps), 1);
}

#[test]
fn plans_fit_their_time() {
    for budget in [schedule::QUICK, schedule::FULL] {
        for cpus in [1, 2, 3, 4, 16, 63, 256, 4096] {
            let sweep = schedule::sweep(cpus, &budget);
            let n = cpus as u32;
            assert!(sweep.workers.is_sorted() && sweep.workers.len() <= budget.steps.max(7));
            for wanted in [1, n, 2 * n] {
                assert!(sweep.workers.contains(&wanted), "{wanted} of {:?}", sweep.workers);
            }
            assert!(sweep.workers.contains(&(n / 2 + 1)), "one more than the cores of siblings");
            assert!(2 * sweep.step_ns * sweep.workers.len() as u64 <= budget.sweep_ns);
        }
    }
    let quick = schedule::QUICK;
    assert!(quick.sweep_ns + quick.distances_ns + quick.pairs_ns < 14 * S);
    assert!(!schedule::needs_screening(10, &quick) && schedule::needs_screening(120, &quick));
}

#[test]
fn pairs_are_tested_in_the_order_of_their_worth() {
    let distances = BTreeMap::from([((0, 1), 30), ((0, 2), 900_000), ((1, 2), 170), ((0, 3), 28)]);
    let order = schedule::by_worth(schedule::all_pairs(&[0, 1, 2, 3]), &[vec![2, 3]], &distances);
    assert_eq!(order, [(2, 3), (0, 2), (0, 3), (0, 1), (1, 2), (1, 3)]);
}

#[test]
fn the_chart_has_a_column_for_each_step() {
    let scene = Machine { sliced: true, ..Machine::siblings(4) }.checked();
    let report = crate::rules::report(&scene.view(), "0.1.0", true);
    let document = super::Document::new(judge(&scene.view()).unwrap(), &report);
    let style = TextStyle { columns: 100, color: false, verbosity: 1 };
    let text = crate::render::cpu_check(&document, style);
    let workers = text.lines().find(|line| line.trim_start().starts_with("workers")).unwrap();
    let columns: Vec<_> = workers.split_whitespace().collect();
    assert_eq!(columns, ["workers", "1", "2", "3", "4", "5", "6", "7", "8"]);
    assert!(text.contains(" 0.5 |"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let page = crate::render::cpu_check_html(&document).unwrap();
    crate::render::check_page(&page);
    let dots = page.matches("<circle ").count();
    assert!(dots >= document.check.sweep.len(), "{dots}");
    let both = crate::render::html(&report, None, Some(&document)).unwrap();
    crate::render::check_page(&both);
    let read = crate::render::read_page(both.as_bytes()).unwrap();
    let expected = crate::render::InPage::Report(Box::new(report), Some(Box::new(document)));
    assert_eq!(read, expected);
}

fn any_run() -> impl Strategy<Value = Run> {
    any::<[u32; 6]>().prop_map(|n| {
        let [wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns] = n.map(u64::from);
        Run { wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_measurement_is_judged(
        used in prop::collection::btree_set(0u32..6, 0..5),
        workers in prop::collection::vec((1u32..9, any_run(), any::<u32>()), 0..20),
        rounds in prop::collection::vec((0u32..6, 0u32..6, [any_run(), any_run(), any_run(), any_run()]), 0..20),
    ) {
        let mut scene = Scene::new(4, S);
        scene.check(CpuCheckRecord::Setup(CheckSetup {
            cpus: used.into_iter().collect(),
            ..CheckSetup::default()
        }));
        for (workers, run, migrations) in workers {
            scene.check(CpuCheckRecord::Worker(SweepWorker {
                t0_ns: 0, t1_ns: 1, workers, worker: 0, run, migrations, cpu: 0,
            }));
        }
        for (a, b, runs) in rounds {
            scene.check(CpuCheckRecord::Round(PairRound {
                t0_ns: 0, t1_ns: 1, mix: Mix::Adds, slot_ns: 1_000_000, a, b,
                a_alone: runs[0], b_alone: runs[1], a_together: runs[2], b_together: runs[3],
            }));
        }
        let view = view(&scene.records());
        let check = judge(&view).unwrap();
        prop_assert!((0.0..=1.0).contains(&check.verdict.confidence), "{:?}", check.verdict);
        prop_assert!((0.0..=1.0).contains(&check.verdict.held_up_share), "{:?}", check.verdict);
        let report = crate::rules::report(&view, "0.1.0", true);
        let document = super::Document::new(check, &report);
        let text = json_document(&document).unwrap();
        prop_assert!(!text.contains("null"), "{text}");
        let read: super::Document = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read.check.verdict.class, document.check.verdict.class);
        let style = TextStyle { columns: 100, color: false, verbosity: 2 };
        let shown = crate::render::cpu_check(&document, style);
        prop_assert!(!shown.contains("NaN") && !shown.contains("inf "), "{shown}");
        let page = crate::render::cpu_check_html(&document).unwrap();
        crate::render::check_page(&page);
        prop_assert!(!page.contains("NaN") && !page.contains("=\"inf"));
        let read = crate::render::read_page(page.as_bytes()).unwrap();
        let crate::render::InPage::Check(read) = read else { panic!("{read:?}") };
        prop_assert_eq!(read.check.verdict, document.check.verdict);
    }
}
