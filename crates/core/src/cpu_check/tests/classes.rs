// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Classes and groups of pairs.

use super::*;

/// Ratios of the speeds of the first and second CPU and of the chunk duration, and the class of the pair. Recorded for
/// two virtual CPUs of a provider while they were on one core, and while something else ran on the core of one of them;
/// for emulated CPUs run in turns on one CPU of the host; and for dedicated CPUs.
#[test]
fn recorded_pairs_are_told_apart() {
    for (a, b, chunk, class) in [
        (0.50, 0.50, 0.50, PairClass::SharedCore),
        (0.53, 0.51, 0.53, PairClass::SharedCore),
        (0.53, 0.63, 1.00, PairClass::TimeSliced),
        (0.69, 0.41, 0.98, PairClass::TimeSliced),
        (0.60, 1.00, 0.80, PairClass::Independent),
        (1.00, 0.75, 0.88, PairClass::Independent),
        (0.992, 1.004, 1.00, PairClass::Independent),
        (0.94, 0.93, 0.94, PairClass::Independent),
    ] {
        let run = |slots: u64, speed: f64, chunk: f64| Run {
            wall_ns: slots * schedule::SLOT_NS,
            cpu_ns: slots * schedule::SLOT_NS,
            chunks: (speed * (slots * schedule::SLOT_NS) as f64 / 50.0) as u64,
            chunk_ns: (5000.0 / chunk) as u64,
            ..Run::default()
        };
        let round = PairRound {
            t0_ns: 0,
            t1_ns: 1,
            mix: Mix::Adds,
            slot_ns: schedule::SLOT_NS,
            a: 0,
            b: 1,
            a_alone: run(1, 1.0, 1.0),
            b_alone: run(1, 1.0, 1.0),
            a_together: run(2, a, chunk),
            b_together: run(2, b, chunk),
        };
        let setup = CheckSetup { cpus: vec![0, 1], ..CheckSetup::default() };
        let found = pairs::pairs(&setup, &[round; 8], &BTreeMap::new());
        assert_eq!(found[0].class, class, "{a} {b} {chunk}");
        let held_up = a.min(b) < 0.8 && class == PairClass::Independent;
        assert_eq!(found[0].one_sided, if held_up { 8 } else { 0 });
        let few = pairs::pairs(&setup, &[round; 3], &BTreeMap::new());
        assert_eq!(few[0].class, PairClass::Unclear);
    }
}

/// What two emulated CPUs each on two CPUs of a host showed while those two were slowed down now and then: three of the
/// four rounds of one pair made all of them one.
#[test]
fn a_pair_that_shares_by_chance_does_not_join_two_groups() {
    let pair = |(a, b, valid, shared, class)| Pair { a, b, valid, shared, ..summed_of(class) };
    use PairClass::{SharedCore, Sometimes, TimeSliced};
    let seen = [
        (0, 1, 4, 4, TimeSliced),
        (0, 2, 9, 2, Sometimes),
        (0, 3, 4, 3, SharedCore),
        (1, 2, 9, 2, Sometimes),
        (1, 3, 12, 3, Sometimes),
        (2, 3, 4, 4, TimeSliced),
    ];
    assert_eq!(pairs::groups(&[0, 1, 2, 3], &seen.map(pair)), [[0, 1], [2, 3]]);
    // One pair of three that seems not to share does not divide a core.
    let seen = [(0, 1, 8, 8, SharedCore), (0, 2, 9, 2, Sometimes), (1, 2, 8, 8, SharedCore)];
    assert_eq!(pairs::groups(&[0, 1, 2], &seen.map(pair)), [[0, 1, 2]]);
}

#[test]
fn a_pair_across_two_groups_shares_now_and_then() {
    let mut scene = Machine { rounds: 8, sliced: true, ..Machine::siblings(4) }.checked();
    let rounds: Vec<PairRound> = scene
        .records()
        .into_iter()
        .filter_map(|record| match record {
            Record::CpuCheck(record) => match *record {
                CpuCheckRecord::Round(round) if (round.a, round.b) == (0, 2) => Some(round),
                _ => None,
            },
            _ => None,
        })
        .collect();
    // Of 32 rounds of CPUs 0 and 1, 24 are shared; none of CPUs 0 and 3, 1 and 2, 2 and 3.
    for round in rounds.iter().cycle().filter(|round| round.mix == Mix::Adds).take(24) {
        scene.check(CpuCheckRecord::Round(PairRound { b: 1, ..*round }));
    }
    let check = judge(&scene.view()).unwrap();
    let seen = check.pairs.iter().find(|pair| (pair.a, pair.b) == (0, 1)).unwrap();
    assert_eq!((seen.shared, seen.valid), (24, 32));
    assert_eq!(seen.class, PairClass::Sometimes);
    assert_eq!(cpus(&check), [[0, 2], [1, 3]]);
    assert_eq!((check.verdict.class, check.verdict.usable_cores), (Class::TimeSliced, Some(2)));
}

#[test]
fn rounds_that_do_not_count_are_counted() {
    let mut scene = Machine { rounds: 8, ..Machine::siblings(2) }.checked();
    let mut late = None;
    for record in scene.records() {
        if let Record::CpuCheck(record) = record
            && let CpuCheckRecord::Round(round) = *record
        {
            late.get_or_insert(round);
        }
    }
    let mut round = late.unwrap();
    round.b_together.wall_ns /= 2;
    scene.check(CpuCheckRecord::Round(round));
    round.b_together.wall_ns *= 2;
    round.a_alone.chunks /= 2;
    scene.check(CpuCheckRecord::Round(round));
    let pair = &judge(&scene.view()).unwrap().pairs[0];
    assert_eq!((pair.rounds, pair.valid, pair.missed, pair.disturbed), (10, 8, 1, 1));
    assert_eq!(pair.class, PairClass::SharedCore);
}

#[test]
fn pairs_that_few_rounds_leave_open_want_more() {
    let pair = |valid, shared, class| Pair { valid, shared, ..summed_of(class) };
    for (valid, shared, class, decided) in [
        (3, 3, PairClass::Unclear, false),
        (8, 0, PairClass::Independent, true),
        (8, 1, PairClass::Independent, true),
        (8, 8, PairClass::TimeSliced, true),
        (4, 3, PairClass::Unclear, false),
        // Either a pair that shares permanently with some disturbed rounds, or one that shares occasionally.
        (7, 5, PairClass::Sometimes, false),
        (8, 3, PairClass::Sometimes, false),
        (24, 12, PairClass::Sometimes, true),
    ] {
        assert_eq!(
            pair(valid, shared, class).is_decided(),
            decided,
            "{shared} of {valid}, {class:?}"
        );
    }
}

fn summed_of(class: PairClass) -> Pair {
    Pair {
        a: 0,
        b: 1,
        class,
        told: false,
        rounds: 0,
        valid: 0,
        shared: 0,
        one_sided: 0,
        disturbed: 0,
        missed: 0,
        ratio: None,
        chunk_ratio: None,
        confirmed: None,
        one_way_ns: None,
    }
}

/// Two virtual CPUs that the hypervisor ran on one core during the pair test, and on two during the sweep.
#[test]
fn a_sweep_that_does_the_work_of_two_cores_refutes_that_there_is_one() {
    let scene = Machine::even(2).checked();
    let (mut records, siblings) = (scene.records(), Machine::siblings(2).checked().records());
    let is_round = |record: &Record| matches!(record, Record::CpuCheck(r) if matches!(**r, CpuCheckRecord::Round(_)));
    records.retain(|record| !is_round(record));
    records.extend(siblings.into_iter().filter(is_round));
    let check = judge(&view(&records)).unwrap();
    assert_eq!(check.pairs[0].shared, check.pairs[0].valid);
    assert_eq!((check.pairs[0].class, check.groups.len()), (PairClass::Sometimes, 0));
    assert_eq!((check.verdict.class, check.verdict.usable_cores), (Class::Even, Some(2)));
    assert_eq!(check.verdict.held_up_share, 1.0, "{}", check.verdict.summary);
    assert!(check.verdict.doubts[0].contains("did not during the sweep"), "{:?}", check.verdict);
}

/// Where something outside slows down workers that are alone, what all of them do together does not show shared cores.
#[test]
fn a_disturbed_host_whose_pairs_are_unclear_is_not_one_of_few_cores() {
    let mut scene = Machine { rounds: 3, ..Machine::siblings(4) }.checked();
    let rounds = scene.records().into_iter().filter_map(|record| match record {
        Record::CpuCheck(record) => match *record {
            CpuCheckRecord::Round(round) => Some(round),
            _ => None,
        },
        _ => None,
    });
    let disturbed = |mut round: PairRound| {
        round.a_alone.chunks /= 2;
        CpuCheckRecord::Round(round)
    };
    rounds.map(disturbed).collect::<Vec<_>>().into_iter().for_each(|round| {
        scene.check(round);
    });
    let verdict = judge(&scene.view()).unwrap().verdict;
    assert_eq!((verdict.class, verdict.usable_cores), (Class::Foreign, None), "{verdict:?}");
}

proptest! {
    /// Where each pair says clearly what is so, the groups are the cores; whatever pairs say, each CPU is in one group.
    #[test]
    fn groups_are_the_cores_and_each_cpu_is_in_one(
        cores in prop::collection::vec(0..4u32, 1..12),
        said in prop::collection::vec((4..12u64, 0.0..1.0f64), 66),
        clearly in any::<bool>(),
    ) {
        let cpus: Vec<u32> = (0..cores.len() as u32).collect();
        let core = |cpu: u32| cores[cpu as usize];
        let all = cpus.iter().flat_map(|&b| (0..b).map(move |a| (a, b))).zip(&said);
        let seen: Vec<Pair> = all.map(|((a, b), &(valid, by_chance))| {
            let part = match clearly {
                true if core(a) == core(b) => by_chance.mul_add(0.25, 0.75),
                true => by_chance * 0.25,
                false => by_chance,
            };
            let shared = (valid as f64 * part).round() as u64;
            let is_shared = shared as f64 >= 0.75 * valid as f64;
            let class = if is_shared { PairClass::SharedCore } else { PairClass::Sometimes };
            Pair { a, b, valid, shared, ..summed_of(class) }
        }).collect();
        let found = pairs::groups(&cpus, &seen);
        let mut members: Vec<u32> = found.concat();
        members.sort_unstable();
        prop_assert_eq!(&members, &cpus);
        // Rounding may leave a pair on the other side of the limit; such cases are left out.
        let is_clear = |pair: &Pair| (core(pair.a) == core(pair.b)) == pair.class.is_shared();
        if clearly && seen.iter().all(is_clear) {
            for group in &found {
                prop_assert!(group.iter().all(|&cpu| core(cpu) == core(group[0])), "{:?}", found);
            }
            let distinct: std::collections::BTreeSet<u32> = cores.iter().copied().collect();
            prop_assert_eq!(found.len(), distinct.len());
        }
    }
}
