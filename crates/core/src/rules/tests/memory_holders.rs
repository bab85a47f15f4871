// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who takes the host's memory, and what would look the same if it were not the cause.

use super::decoys::finding;
use super::judged;
use crate::finding::Finding;
use crate::recording::ProcId;
use crate::testkit::{MS, ProcessActivity, S, Scene, reclaim};

const MIB: u64 = 1 << 20;

/// A service that waits for pages of the host's that come back, beside a batch job.
fn waits() -> (Scene, ProcId, ProcId) {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    scene.cgroup("/", None, None);
    let cgroup = scene.cgroup("/search", None, None);
    let index = scene.process("index", Some(cgroup));
    let etl = scene.process("etl", None);
    let did =
        ProcessActivity { on_cpu_ns: 4 * S, mem_stall_ns: 3 * S, ..ProcessActivity::default() };
    scene.did(index, &did);
    scene.did(etl, &ProcessActivity { on_cpu_ns: S, ..ProcessActivity::default() });
    scene.refaults(None, 9_000);
    (scene, index, etl)
}

/// The batch job took the memory that the service needs.
pub(super) fn taken() -> Scene {
    let (mut scene, index, etl) = waits();
    scene.holds(index, 500 * MIB, 20 * MIB).holds(etl, 340 * MIB, 300 * MIB);
    scene
}

fn of(scene: &Scene, code: &str) -> Finding {
    finding(&judged(scene), code).clone()
}

fn causes(found: &Finding) -> Vec<(Option<&str>, f64)> {
    found.causes.iter().map(|it| (it.entity.comm.as_deref(), it.share.get())).collect()
}

fn held(found: &Finding) -> Vec<&str> {
    let lines = found.evidence.iter().filter(|line| line.name == "memory held");
    lines.filter_map(|line| line.note.as_deref()).collect()
}

/// Whose pages are dropped for it is not known.
#[test]
fn who_took_the_hosts_memory_is_told_first_and_is_no_cause() {
    let found = of(&taken(), "MEM003");
    assert_eq!(causes(&found), []);
    let [first, second] = held(&found)[..] else { panic!("{:?}", found.evidence) };
    assert!(first.contains("`etl`") && first.contains("300 MiB more than at the start"), "{first}");
    assert!(second.contains("`index`") && second.contains("20 MiB more"), "{second}");
    assert!(found.fix.iter().any(|fix| fix.action.contains("`memory held`")), "{:?}", found.fix);
}

/// What the kernel keeps free anyway, 80 MiB here, is nothing that was taken from others.
#[test]
fn who_took_little_comes_after_who_holds_most() {
    let (mut scene, index, etl) = waits();
    scene.holds(index, 500 * MIB, 0).holds(etl, 340 * MIB, 79 * MIB);
    let found = of(&scene, "MEM003");
    assert!(held(&found)[0].contains("no more than at the start"), "{:?}", held(&found));
    let (mut scene, index, etl) = waits();
    scene.holds(index, 500 * MIB, 0).holds(etl, 340 * MIB, 80 * MIB);
    assert!(held(&of(&scene, "MEM003"))[0].contains("`etl`"));
}

#[test]
fn of_a_copy_of_a_process_it_is_not_known_what_is_new() {
    let (mut scene, _, etl) = waits();
    scene.holds(etl, 900 * MIB, None);
    let found = of(&scene, "MEM003");
    assert!(held(&found)[0].contains("a fork shares its pages"), "{:?}", held(&found));
}

/// The victim's own limit pushes its pages out, while another process takes memory of the host.
#[test]
fn where_a_limit_of_its_own_binds_nobody_else_is_told() {
    let (mut scene, index, etl) = waits();
    let cgroup = scene.cgroup("/search/pod", None, None);
    scene.holds(etl, 340 * MIB, 300 * MIB);
    scene.reclaims(reclaim(5, index, Some(cgroup), 40 * MS, 500)).refaults(Some(cgroup), 5_000);
    let found = of(&scene, "MEM003");
    assert!(!found.causes.is_empty(), "{found:?}");
    assert!(found.causes.iter().all(|it| it.entity.comm.is_none()), "{:?}", found.causes);
    assert_eq!(held(&found), Vec::<&str>::new());
}

/// Both free the host's memory, the one for what the other allocates.
#[test]
fn whose_allocations_make_others_free_memory_is_the_cause() {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    let [api, etl] = ["api", "etl"].map(|name| scene.process(name, None));
    for proc in [api, etl] {
        scene.did(proc, &ProcessActivity { on_cpu_ns: 2 * S, ..ProcessActivity::default() });
    }
    for second in 0..10 {
        scene.reclaims(reclaim(second, api, None, 100 * MS, 100));
        scene.reclaims(reclaim(second, etl, None, 10 * MS, 900));
    }
    scene.refaults(None, 40).holds(etl, 900 * MIB, 0);
    let report = judged(&scene);
    let found = finding(&report, "MEM002");
    assert_eq!(causes(found), [(Some("etl"), 0.9), (Some("api"), 0.1)]);
    assert!(
        found.title.contains("90 % of it for what `etl` (pid 1002) allocates"),
        "{}",
        found.title
    );
    assert!(held(found)[0].contains("`etl`"));
    assert!(found.fix[0].action.contains("`memory held`"), "{:?}", found.fix);
}

/// The same where the neighbour is at a limit of its own.
#[test]
fn who_frees_memory_at_its_own_limit_allocates_nothing_of_the_hosts() {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    scene.cgroup("/", None, None);
    let jobs = scene.cgroup("/jobs", None, None);
    let [api, etl] = [("api", None), ("etl", Some(jobs))].map(|(name, at)| scene.process(name, at));
    for proc in [api, etl] {
        scene.did(proc, &ProcessActivity { on_cpu_ns: 2 * S, ..ProcessActivity::default() });
    }
    for second in 0..10 {
        scene.reclaims(reclaim(second, api, None, 100 * MS, 100));
        scene.reclaims(reclaim(second, etl, Some(jobs), 10 * MS, 900));
    }
    assert_eq!(causes(&of(&scene, "MEM002")), [(Some("api"), 1.0)]);
}
