// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For what a ledger says that threads waited when memory was short, and what would look the same.

use super::judged;
use super::memory::{at_limit, full_host};
use crate::finding::MemoryWait::{
    AboveHigh, BesideReclaim, Compaction, DirectReclaim, LimitReclaim, NotKnown, RefaultFile,
    RefaultSwap,
};
use crate::finding::{LedgerState, MemoryPart, MemoryWait};
use crate::recording::{
    CgroupId, Coverage, MemoryBound, MemoryReading, ObserverTick, ProcId, ReclaimKind, ReclaimTick,
    Record, Source, State,
};
use crate::testkit::{MS, ProcessActivity, S, Scene, reclaim};
use proptest::prelude::*;

const INDEX: ProcId = ProcId(1);

/// A service that waits for memory for 3 s, in a cgroup, and another one that does the same beside it.
fn service() -> (Scene, CgroupId) {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    scene.cgroup("/", None, None);
    let cgroup = scene.cgroup("/search", None, None);
    let [index, other] = ["index", "other"].map(|name| scene.process(name, Some(cgroup)));
    assert_eq!(index, INDEX);
    let did =
        ProcessActivity { on_cpu_ns: 4 * S, mem_stall_ns: 3 * S, ..ProcessActivity::default() };
    scene.did(index, &did).did(other, &did);
    // The decoy: what it frees is not what the service frees.
    let others = reclaim(0, other, Some(cgroup), 8 * S, 100);
    scene.reclaims(ReclaimTick { bound: Some(MemoryBound::High), ..others });
    scene.reclaims(ReclaimTick { kind: ReclaimKind::Direct, cgroup: None, bound: None, ..others });
    scene.target(index);
    (scene, cgroup)
}

/// Counts pages that came back on the whole host: of files, and from swap.
fn came_back(scene: &mut Scene, file: Option<u64>, swap: Option<u64>) {
    for (t_ns, times) in [(0, 0), (10 * S, 1)] {
        scene.push(Record::Memory(MemoryReading {
            t_ns,
            cgroup: None,
            refaults_file: file.map(|pages| 500 + times * pages),
            refaults_anon: swap.map(|pages| 70 + times * pages),
            free_bytes: None,
            low_bytes: None,
            ..MemoryReading::default()
        }));
    }
}

/// What the first ledger says; its parts sum to the state.
fn parts(scene: &Scene) -> Vec<(MemoryWait, Vec<MemoryWait>, u64)> {
    let ledger = judged(scene).ledger.swap_remove(0);
    let of_state = ledger.parts.iter().filter(|part| part.state == LedgerState::MemStall);
    let whole_ns: u64 = of_state.map(|part| part.ns).sum();
    let parts = ledger.mem_stall_by;
    assert_eq!(parts.iter().map(|part| part.ns).sum::<u64>(), whole_ns, "{parts:?}");
    parts.into_iter().map(|MemoryPart { kind, may_be, ns }| (kind, may_be, ns)).collect()
}

/// The service frees memory for 4 s at this limit, of which it sleeps for 1 s.
fn at(bound: Option<MemoryBound>) -> Scene {
    let (mut scene, cgroup) = service();
    scene.reclaims(ReclaimTick { bound, ..reclaim(0, INDEX, Some(cgroup), 4 * S, 100) });
    scene
}

#[test]
fn what_threads_sleep_while_they_free_or_move_memory_is_told_by_kind() {
    let mut scene = at_limit();
    scene.target(INDEX);
    assert_eq!(parts(&scene), [(LimitReclaim, vec![], 500 * MS)]);
    let mut scene = full_host();
    scene.target(INDEX);
    let both = [(DirectReclaim, vec![], 250 * MS), (Compaction, vec![], 50 * MS)];
    assert_eq!(parts(&scene), both, "that of the kernel's thread is not in it");
}

/// A reclaim is mostly time on a CPU, which is not waiting for memory.
#[test]
fn time_on_a_cpu_is_no_waiting_for_memory() {
    let (mut scene, cgroup) = service();
    let computes = ReclaimTick {
        memory_ns: 20 * MS,
        off_cpu_ns: 60 * MS,
        ..reclaim(0, INDEX, Some(cgroup), 9 * S, 100)
    };
    scene.reclaims(computes);
    came_back(&mut scene, Some(9_000), Some(0));
    assert_eq!(parts(&scene), [(RefaultFile, vec![], 2980 * MS), (LimitReclaim, vec![], 20 * MS)]);
}

#[test]
fn pages_are_read_back_where_nothing_else_is_possible() {
    let rest = |bound, file, swap| {
        let mut scene = at(bound);
        came_back(&mut scene, file, swap);
        let [(kind, may_be, ns), (LimitReclaim, _, 1_000_000_000)] = &parts(&scene)[..] else {
            panic!("{:?}", parts(&scene))
        };
        assert_eq!(*ns, 2 * S);
        (*kind, may_be.clone())
    };
    let max = Some(MemoryBound::Max);
    assert_eq!(rest(max, Some(9_000), Some(0)), (RefaultFile, vec![]));
    assert_eq!(rest(max, Some(0), Some(9_000)), (RefaultSwap, vec![]));
    let either = (NotKnown, vec![RefaultFile, RefaultSwap]);
    assert_eq!(rest(max, Some(9_000), Some(1)), either);
    assert_eq!(rest(max, None, None), either, "not counted is not 0");
    // 2 s: for each page less than any disk takes, and more.
    assert_eq!(rest(max, Some(20), Some(0)), (RefaultFile, vec![]));
    assert_eq!(rest(max, Some(19), Some(0)), (NotKnown, vec![RefaultFile]));
    assert_eq!(rest(max, Some(0), Some(0)), (NotKnown, vec![]), "nothing came back");
    for high in [Some(MemoryBound::High), None] {
        assert_eq!(rest(high, Some(9_000), Some(0)), (NotKnown, vec![RefaultFile, AboveHigh]));
        assert_eq!(rest(high, Some(0), Some(0)), (AboveHigh, vec![]));
    }
}

#[test]
fn who_frees_memory_of_the_host_may_be_held_up_beside_that() {
    let (mut scene, _) = service();
    scene.reclaims(reclaim(0, INDEX, None, 4 * S, 100));
    came_back(&mut scene, Some(9_000), Some(0));
    let rest = (NotKnown, vec![RefaultFile, BesideReclaim], 2 * S);
    assert_eq!(parts(&scene), [rest, (DirectReclaim, vec![], S)]);
}

/// Of a reclaim that goes on at the end, or of a thread without a place in a table, it is known how long it took, and not what
/// the thread did.
#[test]
fn reclaim_of_which_the_sleep_is_not_known_is_not_taken_for_anything_else() {
    let (mut scene, cgroup) = service();
    let unmeasured = ReclaimTick {
        known_ns: S,
        memory_ns: 250 * MS,
        off_cpu_ns: 500 * MS,
        ..reclaim(0, INDEX, Some(cgroup), 3 * S, 100)
    };
    scene.reclaims(unmeasured);
    came_back(&mut scene, Some(9_000), Some(0));
    let known = [(RefaultFile, vec![], 750 * MS), (LimitReclaim, vec![], 250 * MS)];
    let not_known = (NotKnown, vec![LimitReclaim], 2 * S);
    assert_eq!(parts(&scene), [&[not_known][..], &known].concat());
}

/// Reclaim that was lost, or that this kernel does not report, is in what is left.
#[test]
fn what_was_not_seen_is_not_ruled_out() {
    let rest = |scene: &Scene| parts(scene).into_iter().find(|it| it.2 == 2 * S).unwrap();
    let lost = |amount: u64| {
        let (mut scene, cgroup) = service();
        came_back(&mut scene, Some(9_000), Some(0));
        scene.reclaims(ReclaimTick { count: 1000, ..reclaim(0, INDEX, Some(cgroup), 4 * S, 100) });
        let lost = [("reclaim_tasks_collide".to_owned(), amount)].into();
        scene.observer(ObserverTick { lost, ..ObserverTick::default() });
        rest(&scene).0
    };
    assert_eq!((lost(10), lost(11)), (RefaultFile, NotKnown), "a hundredth of the reclaims");
    let mut scene = at(Some(MemoryBound::Max));
    came_back(&mut scene, Some(9_000), Some(0));
    assert_eq!(rest(&scene).0, RefaultFile);
    let state = State::Partial { reason: "this kernel does not tell of compaction".into() };
    scene.push(Record::Coverage(Coverage { t_ns: 0, source: Source::Reclaim, state }));
    let all = [LimitReclaim, DirectReclaim, Compaction, RefaultFile, AboveHigh, BesideReclaim];
    assert_eq!(rest(&scene), (NotKnown, all.to_vec(), 2 * S));
}

/// It frees memory in the background, while pages come back to others.
#[test]
fn why_threads_of_the_kernel_wait_is_not_known() {
    let (mut scene, _) = service();
    scene.facts(INDEX, |facts| facts.kernel_thread = Some(true));
    came_back(&mut scene, Some(9_000), Some(0));
    assert_eq!(parts(&scene), [(NotKnown, vec![], 3 * S)]);
}

#[test]
fn without_its_probe_or_without_waiting_nothing_is_said() {
    let (mut scene, _) = service();
    scene.without(Source::Reclaim, "no type information", "");
    assert_eq!(judged(&scene).ledger[0].mem_stall_by, []);
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    let api = scene.process("api", None);
    scene.did(api, &ProcessActivity { on_cpu_ns: S, ..ProcessActivity::default() }).target(api);
    came_back(&mut scene, Some(9_000), Some(0));
    assert_eq!(parts(&scene), []);
}

proptest! {
    /// Whatever the two probes measured: they begin and end at different times.
    #[test]
    fn parts_of_waiting_for_memory_sum_to_it(
        all in proptest::collection::vec((0..4 * S, 0..=100_u64, 0..=100_u64, 0..3_u8), 0..12),
        pages in proptest::option::of(0..1_000_u64),
    ) {
        let (mut scene, cgroup) = service();
        for (ns, known, memory, kind) in all {
            let tick = reclaim(0, INDEX, Some(cgroup), ns, 10);
            let known_ns = ns * known / 100;
            let memory_ns = known_ns * memory / 100;
            let kinds = [ReclaimKind::Limit, ReclaimKind::Direct, ReclaimKind::Compaction];
            let kind = kinds[usize::from(kind)];
            scene.reclaims(ReclaimTick { kind, known_ns, memory_ns, off_cpu_ns: known_ns, ..tick });
        }
        came_back(&mut scene, pages, Some(0));
        let parts = parts(&scene);
        prop_assert!(parts.iter().all(|it| it.2 > 0), "{:?}", parts);
        let is_known = |it: &&(MemoryWait, Vec<MemoryWait>, u64)| it.0 != NotKnown;
        prop_assert!(parts.iter().filter(is_known).all(|it| it.1.is_empty()), "{:?}", parts);
    }
}
