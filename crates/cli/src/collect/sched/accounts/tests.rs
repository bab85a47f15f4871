// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which records come of what threads did.

use super::culprits::CULPRITS;
use super::*;
use crate::collect::fixture::Host;
use std::os::unix::fs::MetadataExt as _;

fn thread(pid: u32, name: &str) -> ThreadDelta {
    let mut comm = [0; 16];
    comm[..name.len()].copy_from_slice(name.as_bytes());
    ThreadDelta {
        tid: pid,
        tgid: pid,
        leader_boot_ns: u64::from(pid),
        start_boot_ns: u64::from(pid),
        parent: 1,
        comm,
        cgroup_id: 1,
        dead: false,
        wall_ns: 0,
        from_ns: 0,
        behind: false,
        states_ns: [0; 8],
        waits: WaitHist::default(),
        wait_max_ns: 0,
        waiting_ns: 0,
        switches: 0,
        slot: Some(pid as usize),
    }
}

/// Pids of the processes that are emitted when they are met, and the slots of the target's threads.
fn met(target: TargetSpec) -> (Vec<u32>, Vec<usize>) {
    let host = Host::empty();
    let mut cx = host.context_of(target);
    let mut tally = Tally::default();
    for (pid, name) in [(7, "api"), (8, "cron"), (9, "api")] {
        tally.meet(&thread(pid, name));
    }
    let mut pids = Vec::new();
    let mut emit = |record| {
        if let Record::Process(process) = record {
            pids.push(process.pid);
        }
    };
    tally.meet_all(&mut cx, &mut emit);
    let slots = tally.take_target(&mut cx, &mut emit).slots;
    (pids, slots)
}

/// The cgroup of a process whose id the probe reads as 0, and the paths of the cgroups that were announced.
fn place_of_session(host: &Host) -> (Option<CgroupId>, Vec<String>) {
    let mut cx = host.context();
    let mut tally = Tally::default();
    tally.add(&ThreadDelta { cgroup_id: 0, wall_ns: 1000, ..thread(7, "bash") }, true);
    let (mut cgroup, mut announced) = (None, Vec::new());
    tally.emit(&mut cx, 1_000_000, true, &mut |record| match record {
        Record::Process(process) => cgroup = process.cgroup,
        Record::Cgroup(it) => announced.push(it.path),
        _ => {}
    });
    (cgroup, announced)
}

#[test]
fn a_session_in_the_root_is_in_the_root_although_its_task_group_has_no_cgroup() {
    let host = Host::like("cgroup/mixed");
    let root = host.path("sys/fs/cgroup/cpu").metadata().unwrap().ino();
    assert_eq!(place_of_session(&host), (Some(CgroupId(root)), vec!["/".to_owned()]));
    for other in ["cgroup/pod", "cgroup/v2"] {
        assert_eq!(place_of_session(&Host::like(other)), (None, vec![]), "{other}");
    }
}

#[test]
fn only_those_who_may_be_of_the_target_are_met_at_once() {
    let one = TargetSpec::Process { pid: 8, comm: "cron".into() };
    assert_eq!(met(one), (vec![8], vec![8]));
    assert_eq!(met(TargetSpec::Comm { comm: "api".into() }), (vec![7, 9], vec![7, 9]));
}

#[test]
fn the_record_of_a_thread_that_is_met_late_covers_its_time() {
    let host = Host::empty();
    let mut cx = host.context();
    let mut tally = Tally::default();
    let mut ticks = Vec::new();
    for second in 1..=3 {
        let t1_ns = second * 1_000_000_000;
        tally.add(
            &ThreadDelta {
                from_ns: t1_ns - 1_000_000_000,
                wall_ns: 1_000_000_000,
                ..thread(7, "known")
            },
            second == 3,
        );
        if second == 3 {
            tally.add(&ThreadDelta { wall_ns: 3_000_000_000, ..thread(8, "late") }, true);
        }
        tally.emit(&mut cx, t1_ns, second == 3, &mut |record| {
            if let Record::ProcessTick(tick) = record {
                ticks.push((tick.t0_ns, tick.t1_ns, tick.wall_ns));
            }
        });
    }
    assert_eq!(ticks.len(), 2);
    for (t0_ns, t1_ns, wall_ns) in ticks {
        assert_eq!(t1_ns - t0_ns, wall_ns, "one thread has as much wall time as there is");
    }
}

#[test]
fn who_ended_before_he_is_blamed_has_his_name_whatever_the_order_of_pids() {
    let host = Host::empty();
    let mut cx = host.context();
    let mut tally = Tally::default();
    let pids: Vec<u32> = (10..10 + 2 * SMALL_DEATHS as u32).chain([5000]).collect();
    for &pid in &pids {
        let victim = pid == 5000;
        let name = if victim { "victim" } else { "short" };
        tally.add(&ThreadDelta { dead: !victim, wall_ns: 1000, ..thread(pid, name) }, false);
    }
    let behind = |&pid: &u32| ((5000, ProbeCulprit::Process(pid)), 100_000 + u64::from(pid));
    tally.blame(pids.iter().filter(|&&pid| pid != 5000).map(behind).collect());
    let (mut names, mut blamed) = (BTreeMap::new(), Vec::new());
    tally.emit(&mut cx, 1_000_000, true, &mut |record| match record {
        Record::Process(process) => drop(names.insert(process.id, process.comm)),
        Record::Blame(tick) => blamed.push(tick.culprit),
        _ => {}
    });
    assert!(!blamed.is_empty());
    for culprit in blamed {
        let Culprit::Process(id) = culprit else { panic!("{culprit:?}") };
        assert_eq!(names.get(&id).map(String::as_str), Some("short"), "{id:?}");
    }
}

#[test]
fn the_largest_of_many_culprits_are_named_and_nothing_is_lost() {
    let host = Host::empty();
    let mut cx = host.context();
    let mut tally = Tally::default();
    let pids = 10..1010_u32;
    for pid in pids.clone() {
        tally.meet(&thread(pid, "short"));
    }
    let blame: BTreeMap<ProbeCulprit, u64> = pids
        .clone()
        .map(|pid| (ProbeCulprit::Process(pid), u64::from(pid * 7919 % 1009)))
        .collect();
    let (mut named, mut many) = (BTreeMap::new(), Vec::new());
    let sums = tally.culprits(&mut cx, &blame, &mut |record| {
        if let Record::Process(process) = record {
            match process.many {
                true => many.push(process),
                false => drop(named.insert(process.id, process.pid)),
            }
        }
    });
    assert_eq!(sums.values().sum::<u64>(), blame.values().sum::<u64>());
    let mut largest: Vec<u64> = blame.values().copied().collect();
    largest.sort_unstable_by_key(|&ns| std::cmp::Reverse(ns));
    let own = |pid: u32| blame[&ProbeCulprit::Process(pid)];
    assert_eq!((named.len(), many.len()), (CULPRITS, 1));
    for (id, &pid) in &named {
        assert_eq!(sums[&Culprit::Process(*id)], own(pid));
        assert!(own(pid) >= largest[CULPRITS - 1], "{pid}");
    }
    let folded_ns: u64 = largest[CULPRITS..].iter().sum();
    assert_eq!(sums[&Culprit::Process(many[0].id)], folded_ns);
    assert_eq!((many[0].comm.as_str(), many[0].cgroup), ("short", Some(CgroupId(1))));
}

#[test]
fn a_process_whose_end_is_not_reported_leaves_unless_proc_has_it() {
    let host = Host::empty();
    host.process(7, "sleeps");
    let mut cx = host.context();
    let mut tally = Tally::default();
    let mut told_ns = 0;
    for second in 1..=200 {
        let t1_ns = second * 1_000_000_000;
        let pids = 100 * second as u32..100 * (second as u32 + 1);
        for pid in pids.chain([7].into_iter().filter(|_| second == 1)) {
            tally.add(&ThreadDelta { wall_ns: 1000, ..thread(pid, "short") }, false);
        }
        tally.emit(&mut cx, t1_ns, second == 200, &mut |record| {
            if let Record::ProcessTick(tick) = record {
                told_ns += tick.wall_ns;
            }
        });
        let kept = tally.accounts.len();
        assert!(kept <= 100 * (UNSEEN_S as usize + 3), "{kept}");
        assert!(tally.leaders.len() == kept && tally.accounts.contains_key(&(7, 7)));
    }
    assert_eq!(told_ns, 1000 * (200 * 100 + 1), "all that they did is told");
}

/// The ledgers of processes, as `(t0, t1, threads, wall)`, and the sum of their blame.
fn emitted(tally: &mut Tally, cx: &mut Context, t1_ns: u64, last: bool) -> (Vec<[u64; 4]>, u64) {
    let (mut ticks, mut blame_ns) = (Vec::new(), 0);
    tally.emit(cx, t1_ns, last, &mut |record| match record {
        Record::ProcessTick(tick) => {
            ticks.push([tick.t0_ns, tick.t1_ns, tick.threads.into(), tick.wall_ns]);
            blame_ns += tick.wakeup_latency_ns;
        }
        Record::Blame(tick) => blame_ns += tick.ns,
        _ => {}
    });
    (ticks, blame_ns)
}

#[test]
fn a_process_is_told_of_when_all_its_threads_are() {
    let host = Host::empty();
    let mut cx = host.context();
    let mut tally = Tally::default();
    const SECOND: u64 = 1_000_000_000;
    let runs = |tid, from_ns, wall_ns| ThreadDelta {
        tid,
        from_ns,
        wall_ns,
        states_ns: [wall_ns, 0, 0, 0, 0, 0, 0, 0],
        ..thread(7, "api")
    };
    tally.add(&runs(7, 0, SECOND), false);
    tally.add(&ThreadDelta { behind: true, ..runs(8, 0, 0) }, false);
    assert_eq!(emitted(&mut tally, &mut cx, SECOND, false).0, [[0; 4]; 0]);
    tally.add(&runs(7, SECOND, SECOND), false);
    tally.add(&runs(8, 0, 2 * SECOND), false);
    let (ticks, _) = emitted(&mut tally, &mut cx, 2 * SECOND, false);
    assert_eq!(ticks, [[0, 2 * SECOND, 2, 4 * SECOND]]);
    // At the end nothing comes later.
    tally.add(&runs(7, 2 * SECOND, SECOND), true);
    tally.add(&ThreadDelta { behind: true, ..runs(8, 2 * SECOND, 0) }, true);
    let (ticks, _) = emitted(&mut tally, &mut cx, 3 * SECOND, true);
    assert_eq!(ticks, [[2 * SECOND, 3 * SECOND, 1, SECOND]]);
}

/// A thread of which nobody told before the records that cover its time were made.
#[test]
fn of_a_thread_that_is_met_late_a_record_has_what_it_did_since_it_began() {
    const SECOND: u64 = 1_000_000_000;
    let host = Host::empty();
    let mut cx = host.context();
    let mut tally = Tally::default();
    let did = |tid, from_ns, states_ns: [u64; 8]| ThreadDelta {
        tid,
        from_ns,
        wall_ns: SECOND.max(states_ns.iter().sum()),
        states_ns,
        ..thread(7, "api")
    };
    for second in 0..2 {
        tally.add(&did(7, second * SECOND, [SECOND, 0, 0, 0, 0, 0, 0, 0]), false);
        let (ticks, _) = emitted(&mut tally, &mut cx, (second + 1) * SECOND, false);
        assert_eq!(ticks, [[second * SECOND, (second + 1) * SECOND, 1, SECOND]]);
    }
    tally.add(&did(7, 2 * SECOND, [SECOND, 0, 0, 0, 0, 0, 0, 0]), false);
    let mut late = did(8, 0, [0, 2 * SECOND, 0, SECOND, 0, 0, 0, 0]);
    late.waits.add(2 * SECOND);
    tally.add(&late, false);
    let (mut states, mut waits_ns) = (vec![], 0);
    tally.emit(&mut cx, 3 * SECOND, false, &mut |record| {
        if let Record::ProcessTick(tick) = record {
            states.push((tick.threads, tick.wall_ns, tick.states.queued_ns, tick.states.sleep_ns));
            waits_ns = tick.waits.total_ns();
        }
    });
    assert_eq!(states, [(2, 2 * SECOND, 2 * SECOND / 3, SECOND / 3)]);
    assert_eq!(waits_ns, 2 * SECOND, "a wait that ended is told as a whole");
}

#[test]
fn blame_waits_for_the_waiting_and_never_exceeds_it() {
    let host = Host::empty();
    let mut cx = host.context();
    let mut tally = Tally::default();
    const MS: u64 = 1_000_000;
    let waits = |from_ns, queued_ns| ThreadDelta {
        from_ns,
        wall_ns: 100 * MS,
        states_ns: [0, queued_ns, 0, 100 * MS - queued_ns, 0, 0, 0, 0],
        ..thread(7, "api")
    };
    let behind =
        |ns| Sums::from([((7, ProbeCulprit::Process(9)), ns), ((7, ProbeCulprit::Idle), ns)]);
    tally.add(&waits(0, 20 * MS), false);
    tally.blame(behind(20 * MS));
    assert_eq!(emitted(&mut tally, &mut cx, 100 * MS, false).1, 20 * MS);
    tally.add(&waits(100 * MS, 10 * MS), false);
    assert_eq!(emitted(&mut tally, &mut cx, 200 * MS, false).1, 10 * MS, "what was held");
    // What is left is of a thread that was never read.
    tally.add(&waits(200 * MS, 2 * MS), true);
    assert_eq!(emitted(&mut tally, &mut cx, 300 * MS, true).1, 2 * MS);
}

/// A thread that was told of, was lost and whose end was never read counts in the record that has its time; its wait
/// comes later, by itself.
#[test]
fn what_is_told_of_a_thread_whose_end_is_never_read_is_of_one_thread() {
    let host = Host::empty();
    let mut cx = host.context();
    let mut tally = Tally::default();
    let mut ticks = Vec::new();
    let mut keep = |record| {
        if let Record::ProcessTick(tick) = record {
            ticks.push((tick.threads, tick.wall_ns, tick.waits.total_count()));
        }
    };
    let lost = ThreadDelta { behind: true, ..thread(7, "true") };
    let queued = [0, 5_000_000, 0, 0, 0, 0, 0, 0];
    tally.add(&ThreadDelta { wall_ns: 5_000_000, states_ns: queued, ..lost.clone() }, false);
    tally.emit(&mut cx, 1_000_000_000, false, &mut keep);
    tally.add(&lost, false);
    tally.emit(&mut cx, 2_000_000_000, false, &mut keep);
    // Another thread has its slot.
    tally.emit(&mut cx, 3_000_000_000, false, &mut keep);
    let mut waits = WaitHist::default();
    waits.add(5_000_000);
    let from_ns = 3_000_000_000;
    tally.add(
        &ThreadDelta { dead: true, from_ns, waits, wait_max_ns: 5_000_000, ..thread(7, "true") },
        false,
    );
    tally.emit(&mut cx, 4_000_000_000, false, &mut keep);
    assert_eq!(ticks, [(1, 5_000_000, 0), (1, 0, 1)]);
}
