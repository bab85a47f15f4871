// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smallest recordings that make each rule answer, kept as `fixtures/rules/CODE/KIND.jsonl`.

use super::{
    disks, interrupts, memory, memory_holders, network, runtimes, stopped, syscalls, waiting,
};
use crate::recording::{
    Container, CpuTimeReading, Culprit, IdleCpu, IdleTick, LongWait, ObserverTick, ProcId, Record,
    Source,
};
use crate::testkit::{MS, Machine, ProcessActivity, S, Scene, US, runqlat};

/// The three answers that each rule must be able to give.
pub(super) const KINDS: [&str; 3] = ["fires", "quiet", "nodata"];

/// The recording that makes the rule with that code give that answer.
pub(super) fn scene(code: &str, kind: &str) -> Option<Scene> {
    Some(match (code, kind) {
        ("SCH001", "fires") => neighbour(),
        ("SCH001" | "OBS001" | "OBS003", "quiet") | ("SCH002" | "SCH003", "quiet") => healthy(),
        ("SCH001", "nodata") => {
            let mut scene = no_bpf();
            scene.without(Source::Schedstat, "the kernel has no scheduler statistics", "");
            scene
        }
        ("SCH002", "fires") => nested_quota(),
        ("SCH002", "nodata") => {
            let mut scene = no_bpf();
            scene.without(Source::CgroupCpu, "no cgroup file system is mounted", "");
            scene
        }
        ("SCH003", "fires") => pinned(),
        ("SCH003", "nodata") => no_bpf(),
        ("CPU001", "fires") => {
            let mut scene = Scene::new(4, 10 * S);
            scene.stolen(0.5, 0.2);
            scene
        }
        ("CPU001", "quiet") => healthy(),
        ("CPU001", "nodata") => {
            let mut scene = Scene::new(4, 10 * S);
            scene.without(Source::ProcStat, "`/proc/stat`: not there", "");
            scene
        }
        ("CPU002", "fires") => Machine { sliced: true, ..Machine::siblings(4) }.checked(),
        ("CPU002", "quiet") => Machine::even(4).checked(),
        ("CPU002", "nodata") => healthy(),
        ("CPU005", kind) => kernel_share(kind)?,
        ("IRQ001", kind) => interrupts::scene(kind)?,
        ("MEM001", "fires") => memory::at_limit(),
        ("MEM002", "fires") => memory::full_host(),
        ("MEM001" | "MEM002", "nodata") => memory::blind(),
        ("MEM003", "fires") => memory_holders::taken(),
        ("MEM003", "nodata") => no_bpf(),
        ("MEM001" | "MEM002" | "MEM003", "quiet") => healthy(),
        ("OBS001", "fires") => losses(),
        ("OBS002", "fires") => Scene::new(4, 2 * S),
        ("OBS002", "quiet") => Scene::new(4, 10 * S),
        ("OBS002", "nodata") => Scene::new(4, 0),
        ("OBS003", "fires") => expensive(),
        ("OBS001" | "OBS003", "nodata") => {
            let mut scene = Scene::new(4, 10 * S);
            scene.without(Source::Observer, "no reading of `/proc/self/stat`", "");
            scene
        }
        ("NET001" | "NET002" | "NET003" | "NET004" | "NET005" | "NET006" | "NET007", kind) => {
            network::scene(code, kind)?
        }
        ("SCH004", kind) => runtimes::scene(kind)?,
        ("SCH005", kind) => stopped::scene(kind)?,
        (
            "OFF001" | "OFF002" | "OFF003" | "OFF004" | "OFF005" | "OFF006" | "OFF007" | "OFF008"
            | "OFF009" | "OFF010",
            kind,
        ) => waiting::scene(code, kind)?,
        ("SYS001" | "SYS002", kind) => syscalls::scene(code, kind)?,
        _ => return disks::scene(code, kind),
    })
}

fn container(runtime: &str, id: &str, name: &str) -> Option<Container> {
    let (runtime, id) = (runtime.to_owned(), id.to_owned());
    Some(Container { runtime, id, name: Some(name.into()), ..Container::default() })
}

/// Output of `runqlat -p` for a service beside a noisy neighbour, 15 s on 4 CPUs: three intervals.
pub(super) const NEIGHBOUR: &str =
    include_str!("../../../../../fixtures/rules/SCH001/neighbour-runqlat.txt");

/// A service in one container, 16 spinners in another, 4 CPUs. The service's waits were measured; the processes and
/// their shares of the blame are made up to fit.
pub(super) fn neighbour() -> Scene {
    let mut scene = Scene::new(4, 15 * S);
    scene.cgroup("/", None, None);
    scene.cgroup("/docker", None, None);
    let shop =
        scene.cgroup("/docker/bbda0b6e9d3f", None, container("docker", "bbda0b6e9d3f", "shop-web"));
    let batch =
        scene.cgroup("/docker/f9ab12c0ffee", None, container("docker", "f9ab12c0ffee", "batch"));
    let ruby = scene.process("ruby", Some(shop));
    let stress: Vec<ProcId> = (0..16).map(|_| scene.process("stress", Some(batch))).collect();
    let kworker = scene.process("kworker/1:2", None);
    scene.facts(kworker, |process| process.kernel_thread = Some(true));
    scene.target(ruby);
    let did = ProcessActivity {
        threads: 30,
        on_cpu_ns: 4 * S,
        waits: runqlat(NEIGHBOUR),
        wakeup_latency_ns: 20 * MS,
        ..ProcessActivity::default()
    };
    let lost_ns =
        did.waits.iter().map(|(count, ns)| count * ns).sum::<u64>() - did.wakeup_latency_ns;
    scene.did(ruby, &did);
    for &id in &stress {
        scene.blame(ruby, Culprit::Process(id), lost_ns * 71 / 100 / 16);
    }
    scene.blame(ruby, Culprit::Process(ruby), lost_ns * 12 / 100);
    scene.blame(ruby, Culprit::Process(kworker), lost_ns * 6 / 100);
    scene.blame(ruby, Culprit::Migrated, lost_ns * 3 / 100);
    longest_wait(
        &mut scene,
        ruby,
        &did,
        &[(Culprit::Process(stress[4]), 40), (Culprit::Process(stress[9]), 31)],
    );
    scene.idle(IdleTick {
        t0_ns: 0,
        t1_ns: 0,
        victim: ruby,
        min_wait_ns: 100 * US,
        waits: 5_600,
        waits_ns: lost_ns * 9 / 10,
        skipped_ns: 0,
        idle_allowed_ns: lost_ns / 250,
        idle_forbidden_ns: 0,
        cpus: vec![IdleCpu { cpu: 3, allowed: true, idle_ns: lost_ns / 250 }],
    });
    scene.busy(0.97).cpu_pressure(0.62);
    scene
}

/// Tells the longest wait of a process whole: parts in hundredths. For the rest the CPU woke up.
fn longest_wait(
    scene: &mut Scene,
    victim: ProcId,
    did: &ProcessActivity,
    parts: &[(Culprit, u64)],
) {
    let wait_ns = did.waits.iter().map(|&(_, ns)| ns).max().unwrap_or(0);
    for &(culprit, hundredths) in parts {
        let ns = wait_ns * hundredths / 100;
        let tid = victim.0 + 7;
        scene.push(Record::LongWait(LongWait { t_ns: 7 * S, victim, tid, wait_ns, culprit, ns }));
    }
}

/// A process that spends that part of its CPU time in the kernel.
fn kernel_share(kind: &str) -> Option<Scene> {
    let mut scene = Scene::new(4, 10 * S);
    let copier = scene.process("copier", None);
    if kind == "nodata" {
        return Some(scene);
    }
    scene.target(copier);
    let did = ProcessActivity { on_cpu_ns: 5 * S, ..ProcessActivity::default() };
    scene.did(copier, &did);
    let of_ten = match kind {
        "fires" => 8,
        "quiet" => 2,
        _ => return None,
    };
    for (t_ns, cpu_ns) in [(0, 90 * S), (10 * S, 95 * S)] {
        let system_ns = 90 * S / 2 + (cpu_ns - 90 * S) * of_ten / 10;
        let user_ns = cpu_ns - system_ns;
        scene.push(Record::CpuTime(CpuTimeReading { t_ns, proc: copier, user_ns, system_ns }));
    }
    Some(scene)
}

/// Two services that rarely compete, one with a quota that it never uses up.
pub(super) fn healthy() -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    scene.sees_interrupts();
    network::covered(&mut scene);
    scene.cgroup("/", None, None);
    let web = scene.cgroup("/web", Some(200_000), None);
    let web_process = scene.process("nginx", Some(web));
    let other = scene.process("postgres", None);
    let some = |on_cpu_ns| ProcessActivity {
        threads: 4,
        on_cpu_ns,
        waits: vec![(20_000, 8 * US), (400, 300 * US), (10, 2 * MS)],
        wakeup_latency_ns: 100 * MS,
        ..ProcessActivity::default()
    };
    scene.did(web_process, &some(6 * S)).did(other, &some(4 * S));
    scene.blame(web_process, Culprit::Process(other), 100 * MS);
    scene.idle(IdleTick {
        t0_ns: 0,
        t1_ns: 0,
        victim: web_process,
        min_wait_ns: 100 * US,
        waits: 410,
        waits_ns: 140 * MS,
        skipped_ns: 0,
        idle_allowed_ns: 20 * MS,
        idle_forbidden_ns: 0,
        cpus: vec![IdleCpu { cpu: 2, allowed: true, idle_ns: 20 * MS }],
    });
    scene.cpu_stat(web, 6 * S, 100, 0, 0);
    scene.observer(ObserverTick {
        cpu_ns: 20 * MS,
        bpf_runs: 200_000,
        bpf_run_ns: Some(10 * MS),
        rss_bytes: 18 << 20,
        bpf_map_bytes: 9 << 20,
        ..ObserverTick::default()
    });
    scene.busy(0.25);
    scene
}

/// A Java process of 8 threads and a sidecar in a container without a quota, in a pod with a quota of one CPU.
pub(super) fn nested_quota() -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.cgroup("/", None, None);
    let pod = Some(Container {
        runtime: "kubernetes".into(),
        id: "1f".into(),
        pod: Some("api-7f9c".into()),
        namespace: Some("prod".into()),
        ..Container::default()
    });
    scene.cgroup("/kubepods.slice", None, None);
    let pod = scene.cgroup("/kubepods.slice/pod1f", Some(100_000), pod);
    let api =
        scene.cgroup("/kubepods.slice/pod1f/5d2e", None, container("containerd", "5d2e", "api"));
    let java = scene.process("java", Some(api));
    let sidecar = scene.process("envoy", Some(api));
    scene.did(
        java,
        &ProcessActivity {
            threads: 8,
            on_cpu_ns: 9_600 * MS,
            throttled_ns: 14 * S,
            waits: vec![(4_000, 20 * US), (300, MS)],
            ..ProcessActivity::default()
        },
    );
    scene.did(
        sidecar,
        &ProcessActivity {
            on_cpu_ns: 400 * MS,
            throttled_ns: 600 * MS,
            ..ProcessActivity::default()
        },
    );
    for (culprit, ns) in
        [(Culprit::Process(sidecar), 1_800 * US), (Culprit::Throttled, 68_300 * US)]
    {
        let (t_ns, tid, wait_ns) = (7 * S, java.0 + 7, 70_200 * US);
        scene.push(Record::LongWait(LongWait { t_ns, victim: java, tid, wait_ns, culprit, ns }));
    }
    scene.cpu_stat(pod, 10 * S, 100, 93, 21 * S).cpu_stat(api, 10 * S, 0, 0, 0);
    scene.busy(0.3);
    scene
}

/// A server that is bound to CPU 0 of four, and a spinner that it waits behind.
pub(super) fn pinned() -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.cgroup("/", None, None);
    let unit = container("systemd", "redis-server.service", "redis-server.service");
    let unit = scene.cgroup("/redis-server.service", None, unit);
    let redis = scene.process("redis-server", Some(unit));
    let spinner = scene.process("spinner", None);
    scene.facts(redis, |process| process.cpus_allowed = Some("0".into()));
    scene.target(redis);
    let waits = vec![(2_000, 20 * US), (500, 3 * MS)];
    scene.did(redis, &ProcessActivity { on_cpu_ns: 2 * S, waits, ..ProcessActivity::default() });
    scene.blame(redis, Culprit::Process(spinner), 1_530 * MS);
    let idle_cpu = |cpu, idle_ns| IdleCpu { cpu, allowed: false, idle_ns };
    scene.idle(IdleTick {
        t0_ns: 0,
        t1_ns: 0,
        victim: redis,
        min_wait_ns: 100 * US,
        waits: 500,
        waits_ns: 1_500 * MS,
        skipped_ns: 0,
        idle_allowed_ns: 0,
        idle_forbidden_ns: 1_480 * MS,
        cpus: vec![idle_cpu(1, 1_400 * MS), idle_cpu(2, 1_300 * MS), idle_cpu(3, 1_350 * MS)],
    });
    scene.busy(0.3);
    scene
}

/// A process on a host without BPF.
pub(super) fn no_bpf() -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.without_bpf();
    let process = scene.process("ruby", None);
    scene.schedstat(process, 2 * S, 10 * MS, 5_000);
    scene
}

fn losses() -> Scene {
    let mut scene = healthy();
    scene.observer(ObserverTick {
        lost: [("thread_table_full".into(), 4_000), ("blame_table_full_ns".into(), 9 * MS)].into(),
        ..ObserverTick::default()
    });
    scene
}

fn expensive() -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.observer(ObserverTick {
        cpu_ns: 280 * MS,
        bpf_runs: 9_000_000,
        bpf_run_ns: Some(620 * MS),
        rss_bytes: 31 << 20,
        bpf_map_bytes: 13 << 20,
        ..ObserverTick::default()
    });
    scene.busy(0.6);
    scene
}
