// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inputs of the rules about memory, and what would look the same if it were not the cause.

use super::decoys::finding;
use super::{codes, judged};
use crate::finding::Finding;
use crate::recording::{MemoryBound, MemoryReading, ReclaimKind, ReclaimTick, Record, Source};
use crate::testkit::{MS, ProcessActivity, S, Scene, reclaim};

/// A service in a cgroup at its limit, and a batch job in the same one.
pub(super) fn at_limit() -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    scene.cgroup("/", None, None);
    let shop = scene.cgroup("/shop", None, None);
    let [api, backup] = ["api", "backup"].map(|name| scene.process(name, Some(shop)));
    let did =
        ProcessActivity { on_cpu_ns: 3 * S, mem_stall_ns: 500 * MS, ..ProcessActivity::default() };
    scene.did(api, &ProcessActivity { threads: 4, ..did.clone() }).did(backup, &did);
    for second in 0..10 {
        scene.reclaims(reclaim(second, api, Some(shop), 200 * MS, 2_000));
        scene.reclaims(reclaim(second, backup, Some(shop), 90 * MS, 18_000));
    }
    scene.refaults(None, 40);
    scene
}

/// A service on a host without free memory, which compacts some, too.
pub(super) fn full_host() -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    let api = scene.process("api", None);
    let kcompactd = scene.process("kcompactd0", None);
    scene.facts(kcompactd, |facts| facts.kernel_thread = Some(true));
    scene.did(
        api,
        &ProcessActivity { on_cpu_ns: 2 * S, mem_stall_ns: 300 * MS, ..ProcessActivity::default() },
    );
    for second in 0..10 {
        scene.reclaims(reclaim(second, api, None, 100 * MS, 900));
        let moved =
            ReclaimTick { kind: ReclaimKind::Compaction, ..reclaim(second, api, None, 20 * MS, 0) };
        scene.reclaims(moved);
        scene.reclaims(ReclaimTick { proc: kcompactd, kernel: true, ns: 400 * MS, ..moved });
    }
    scene.refaults(None, 40);
    scene
}

fn of(scene: &Scene, code: &str) -> Finding {
    finding(&judged(scene), code).clone()
}

#[test]
fn the_one_that_allocates_at_the_limit_is_named_with_its_part_of_the_victims_time() {
    let report = judged(&at_limit());
    let found = finding(&report, "MEM001");
    assert_eq!(found.cost.lost_ns_per_s, 200_000_000);
    assert!(
        found.title.contains("`/shop` (64 MiB), 90 % of it for what `backup`"),
        "{}",
        found.title
    );
    let causes: Vec<_> =
        found.causes.iter().map(|it| (it.entity.comm.as_deref(), it.share.get())).collect();
    assert_eq!(causes, [(Some("backup"), 0.9), (Some("api"), 0.1)]);
}

/// The neighbour reclaims as much, at a limit of its own; the victim does not.
#[test]
fn who_reclaims_at_another_limit_is_no_cause_and_no_loss_of_others() {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    scene.cgroup("/", None, None);
    let [own, other] = ["/shop", "/batch"].map(|path| scene.cgroup(path, None, None));
    let (api, batch) = (scene.process("api", Some(own)), scene.process("batch", Some(other)));
    let did = ProcessActivity { on_cpu_ns: 3 * S, ..ProcessActivity::default() };
    scene.did(api, &ProcessActivity { block_io_ns: 2 * S, ..did.clone() }).did(batch, &did);
    for second in 0..10 {
        scene.reclaims(reclaim(second, batch, Some(other), 300 * MS, 9000));
    }
    scene.target(api);
    let report = judged(&scene);
    let found = codes(&report);
    assert!(!found.iter().any(|code| code.starts_with("MEM")), "{found:?}");
    for second in 0..10 {
        scene.reclaims(reclaim(second, api, Some(own), 300 * MS, 10));
    }
    let causes = of(&scene, "MEM001").causes;
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!(causes[0].entity.comm.as_deref(), Some("api"));
}

#[test]
fn the_kernels_own_threads_hurt_nobody() {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    let kcompactd = scene.process("kcompactd0", None);
    scene.facts(kcompactd, |facts| facts.kernel_thread = Some(true));
    scene.did(kcompactd, &ProcessActivity { on_cpu_ns: 4 * S, ..ProcessActivity::default() });
    let own = ReclaimTick { kernel: true, ..reclaim(0, kcompactd, None, 4 * S, 0) };
    scene.reclaims(ReclaimTick { kind: ReclaimKind::Compaction, ..own });
    assert!(!codes(&judged(&scene)).iter().any(|code| code.starts_with("MEM")));
    let found = of(&full_host(), "MEM002");
    assert_eq!(found.cost.lost_ns_per_s, 120_000_000, "without that of the kernel's thread");
    assert!(found.evidence.iter().any(|line| line.name == "compaction in the background"));
}

/// Free memory is below where the kernel's own thread begins, which frees it in time: it computes, and sleeps for memory itself.
/// Pages of others come back from the disk, from which the service reads, too. Nobody frees any memory for himself.
#[test]
fn what_the_kernel_frees_in_the_background_hurts_nobody() {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    let [api, batch, kswapd] = ["api", "batch", "kswapd0"].map(|name| scene.process(name, None));
    scene.facts(kswapd, |facts| facts.kernel_thread = Some(true));
    let frees =
        ProcessActivity { on_cpu_ns: 5 * S, mem_stall_ns: 4 * S, ..ProcessActivity::default() };
    scene.did(kswapd, &frees);
    let reads =
        ProcessActivity { on_cpu_ns: 3 * S, block_io_ns: 2 * S, ..ProcessActivity::default() };
    scene.did(api, &ProcessActivity { threads: 4, ..reads.clone() }).did(batch, &reads);
    for (t_ns, refaults) in [(0, 1_000), (10 * S, 500_000)] {
        scene.push(Record::Memory(MemoryReading {
            t_ns,
            cgroup: None,
            refaults_file: Some(refaults),
            refaults_anon: Some(0),
            free_bytes: Some(60 << 20),
            low_bytes: Some(80 << 20),
            ..MemoryReading::default()
        }));
    }
    let quiet = |scene: &Scene| {
        let report = judged(scene);
        let found = codes(&report);
        assert!(!found.iter().any(|code| code.starts_with("MEM")), "{found:?}");
        for code in ["MEM001", "MEM002", "MEM003"] {
            assert!(report.ruled_out.iter().any(|it| it.code == code), "{code} was judged");
        }
    };
    quiet(&scene);
    scene.target(api);
    quiet(&scene);
    // If the service waits for memory itself, that is told.
    let waits = ProcessActivity { mem_stall_ns: S, ..ProcessActivity::default() };
    scene.did(api, &waits);
    assert_eq!(of(&scene, "MEM003").cost.lost_ns_per_s, 100_000_000);
}

/// A host whose free memory is in pieces may have half of it free: more is of no use.
#[test]
fn who_needs_large_pages_is_not_told_to_free_memory_first() {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    let api = scene.process("api", None);
    scene.did(api, &ProcessActivity { on_cpu_ns: 2 * S, ..ProcessActivity::default() });
    for second in 0..10 {
        let moved = ReclaimTick {
            kind: ReclaimKind::Compaction,
            ..reclaim(second, api, None, 100 * MS, 0)
        };
        scene.reclaims(moved);
    }
    let expected = |found: &Finding| found.confirm.as_ref().and_then(|it| it.expect.clone());
    let (moves, frees) = (of(&scene, "MEM002"), of(&full_host(), "MEM002"));
    assert!(moves.title.contains("moving memory"), "{}", moves.title);
    assert!(expected(&moves).unwrap().contains("large pages"), "{moves:?}");
    assert!(moves.fix[1].action.contains("vm.compaction_proactiveness"), "{:?}", moves.fix);
    assert!(expected(&frees).unwrap().contains("more free memory"), "{frees:?}");
}

/// A service that waits for memory for 3 s, of which it frees some itself.
fn waiting(freed_ns: u64, bound: MemoryBound, own_refaults: Option<u64>, of_host: u64) -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    scene.cgroup("/", None, None);
    let cgroup = scene.cgroup("/search", None, None);
    let index = scene.process("index", Some(cgroup));
    scene.did(
        index,
        &ProcessActivity { on_cpu_ns: 4 * S, mem_stall_ns: 3 * S, ..ProcessActivity::default() },
    );
    let tick = reclaim(0, index, Some(cgroup), 4 * freed_ns, 100);
    scene.reclaims(ReclaimTick { bound: Some(bound), ..tick });
    if let Some(pages) = own_refaults {
        scene.refaults(Some(cgroup), pages);
    }
    scene.refaults(None, of_host);
    scene
}

#[test]
fn time_at_a_limit_counts_once() {
    let lost = |scene: &Scene, code: &str| {
        let report = judged(scene);
        let found = report.findings.iter().find(|it| it.code == code);
        found.map_or(0, |it| it.cost.lost_ns_per_s)
    };
    let scene = waiting(S, MemoryBound::Max, Some(9_000), 0);
    assert_eq!(lost(&scene, "MEM003"), 200_000_000, "3 s less the second that it freed memory");
    assert_eq!(lost(&scene, "MEM001"), 400_000_000, "asleep or not");
    let all = waiting(3 * S, MemoryBound::Max, Some(9_000), 0);
    assert_eq!(lost(&all, "MEM003"), 0, "all of it was reclaim");
}

/// Others' pages come back; the victim waits for something else.
#[test]
fn refaults_of_others_are_not_those_of_a_cgroup_that_has_none() {
    let title = |scene: &Scene| of(scene, "MEM003").title;
    let came_back = "pages that were in memory a short while ago";
    assert!(title(&waiting(S, MemoryBound::Max, Some(9_000), 0)).contains(came_back));
    let others = title(&waiting(S, MemoryBound::Max, Some(0), 90_000));
    assert!(!others.contains(came_back) && others.contains("because memory is short"), "{others}");
    let paused = title(&waiting(S, MemoryBound::High, Some(0), 90_000));
    assert!(paused.contains("above `memory.high`"), "{paused}");
}

#[test]
fn a_few_pages_are_no_reason_for_long_waiting() {
    let title = |pages| of(&waiting(S, MemoryBound::Max, Some(pages), 0), "MEM003").title;
    // 2 s in all.
    assert!(title(19).contains("because memory is short"));
    assert!(title(20).contains("a short while ago"));
}

#[test]
fn without_the_probe_of_reclaim_all_waiting_for_memory_is_told() {
    let mut scene = Scene::new(4, 10 * S);
    let index = scene.process("index", None);
    scene.did(
        index,
        &ProcessActivity { on_cpu_ns: S, mem_stall_ns: 3 * S, ..ProcessActivity::default() },
    );
    let report = judged(&scene);
    assert_eq!(finding(&report, "MEM003").cost.lost_ns_per_s, 300_000_000);
    let blind: Vec<_> = report.not_checked.iter().map(|it| it.code.as_str()).collect();
    assert!(blind.contains(&"MEM001") && blind.contains(&"MEM002"), "{blind:?}");
}

/// No probe of reclaim: what BPF needs is missing.
pub(super) fn blind() -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.without(
        Source::Reclaim,
        "this kernel's type information lacks the tracepoints of reclaim",
        "",
    );
    scene
}
