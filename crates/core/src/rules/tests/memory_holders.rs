// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who takes the host's memory, and what would look the same if it were not the cause.

use super::decoys::finding;
use super::judged;
use crate::finding::Finding;
use crate::recording::{IoOp, IoPurpose, IoTick, MemoryReading, ProcId, Record};
use crate::testkit::{MS, ProcessActivity, S, Scene, reclaim, transfers};

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
    let others = found.evidence.iter().find(|line| line.name == "others who wait").unwrap();
    assert!(others.note.as_ref().unwrap().contains("to free for the host"), "{others:?}");
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
    assert!(held(&found)[0].contains("which of it is new is not known"), "{:?}", held(&found));
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

/// A service that waits for the disk, from which it reads so much; of what the host reads, so much came back soon.
fn reads(
    own_bytes: u64,
    others_bytes: u64,
    came_back: Option<u64>,
    (writes, restored): (u64, u64),
) -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    let disk = scene.disk("vda");
    let [index, etl] = ["index", "etl"].map(|name| scene.process(name, None));
    let did = ProcessActivity { on_cpu_ns: S, block_io_ns: 4 * S, ..ProcessActivity::default() };
    scene.did(index, &did).did(etl, &did);
    let what = IoPurpose::Unknown;
    for (proc, op, bytes) in [
        (index, IoOp::Read, own_bytes),
        (etl, IoOp::Read, others_bytes),
        (index, IoOp::Write, writes),
    ] {
        let tick = transfers(disk, what, op, bytes / 4096, bytes, MS);
        scene.io(0..10 * S, IoTick { submitter: Some(proc), ..tick });
    }
    for (t_ns, bytes) in [(0, Some(0)), (10 * S, came_back)] {
        let activated_bytes = came_back.and(bytes).map(|bytes| 7 + bytes);
        scene.push(Record::Memory(MemoryReading {
            t_ns,
            activated_bytes,
            restored_bytes: Some(5 + t_ns / (10 * S) * restored),
            ..MemoryReading::default()
        }));
    }
    scene.target(index);
    scene.holds(etl, 340 * MIB, 300 * MIB);
    scene
}

/// The kernel calls it block IO; nothing is wrong with the disk.
#[test]
fn who_reads_again_what_was_in_memory_waits_for_memory() {
    let found = of(&reads(40 * MIB, MIB, Some(41 * MIB), (0, 0)), "MEM003");
    assert!(
        found.title.contains("to read what was in memory a short while ago"),
        "{}",
        found.title
    );
    assert_eq!(found.cost.lost_ns_per_s, 400_000_000);
    assert!((found.cost.share - 0.8).abs() < 1e-9, "{:?}", found.cost);
    assert_eq!(causes(&found), []);
    assert!(held(&found)[0].contains("`etl`"));
    assert!(!found.evidence.iter().any(|line| line.name == "others who wait"), "{found:?}");
    // Half of it is enough, and then half of the waiting counts.
    let half = of(&reads(40 * MIB, 0, Some(20 * MIB), (0, 0)), "MEM003");
    assert_eq!(half.cost.lost_ns_per_s, 200_000_000);
}

/// As much waiting for the same disk.
#[test]
fn first_reads_beside_pages_of_others_that_come_back_are_block_io() {
    let quiet = |scene: &Scene| {
        let report = judged(scene);
        assert!(report.ruled_out.iter().any(|it| it.code == "MEM003"), "{:?}", report.findings);
    };
    // All of it may be what the other one read.
    quiet(&reads(40 * MIB, 40 * MIB, Some(40 * MIB), (0, 0)));
    quiet(&reads(40 * MIB, 100 * MIB, Some(100 * MIB), (0, 0)));
    // Too little for most of the waiting.
    quiet(&reads(40 * MIB, 0, Some(19 * MIB), (0, 0)));
    // Nothing came back, or the kernel does not count it.
    quiet(&reads(40 * MIB, 0, Some(0), (0, 0)));
    quiet(&reads(40 * MIB, 0, None, (0, 0)));
    // Waiting for those that were in use for longer is waiting for memory already.
    quiet(&reads(100 * MIB, 0, Some(60 * MIB), (0, 60 * MIB)));
    // They came from elsewhere: a network filesystem, or a compressed image.
    quiet(&reads(40 * MIB, 0, Some(41 * MIB), (0, 0)));
    // The counters lag behind by so much.
    quiet(&reads(4 * MIB - 4096, 0, Some(4 * MIB - 4096), (0, 0)));
    // It may wait for what it writes.
    quiet(&reads(40 * MIB, 0, Some(40 * MIB), (10 * MIB, 0)));
}
