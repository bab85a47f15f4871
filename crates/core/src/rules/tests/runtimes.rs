// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH004: a Go service with a quota of four CPUs on a host of 96, and smaller services.

use super::{codes, judged};
use crate::finding::{EntityKind, Finding, Report, Severity};
use crate::recording::{
    CgroupId, Confidence, Container, Culprit, Parallelism, ProcId, RuntimeKind, RuntimeReading,
    SeenQuota, Source,
};
use crate::testkit::{MS, ProcessActivity, S, Scene};

const WINDOW_NS: u64 = 30 * S;

/// The reading of a Go program's runtime.
pub(super) fn go(proc: ProcId, version: &str, value: u32) -> RuntimeReading {
    RuntimeReading {
        t_ns: S,
        proc,
        kind: RuntimeKind::Go,
        version: Some(version.into()),
        threads: 101,
        parallelism: vec![Parallelism {
            name: "GOMAXPROCS".into(),
            value,
            confidence: Confidence::Exact,
            source: "memory".into(),
        }],
        unread: None,
        settings: [].into(),
        seen: SeenQuota::Leaf { quota_us: Some(400_000), period_us: Some(100_000), part: false },
    }
}

/// The host, the service's cgroup with its quota, and the service.
fn host() -> (Scene, CgroupId, ProcId) {
    let mut scene = Scene::new(96, WINDOW_NS);
    scene.cgroup("/", None, None);
    scene.cgroup("/docker", None, None);
    let docker = Container {
        runtime: "docker".into(),
        id: "3c0ffee1badb".into(),
        name: Some("orders".into()),
        ..Container::default()
    };
    let cgroup = scene.cgroup("/docker/3c0ffee1badb", Some(400_000), Some(docker));
    let service = scene.process("orders", Some(cgroup));
    scene.busy(0.2);
    (scene, cgroup, service)
}

/// The service under load: throttled nearly all the time, its threads queued behind each other before that.
fn saturated(scene: &mut Scene, cgroup: CgroupId, service: ProcId) {
    let did = ProcessActivity {
        threads: 101,
        on_cpu_ns: 118 * S,
        throttled_ns: 1400 * S,
        waits: vec![(60_000, 2 * MS)],
        ..ProcessActivity::default()
    };
    scene.did(service, &did);
    scene.blame(service, Culprit::Process(service), 96 * S);
    scene.cpu_stat(cgroup, 119 * S, 300, 296, 900 * S);
}

/// The service at a moderate load, with next to no throttling.
fn at_ease(scene: &mut Scene, cgroup: CgroupId, service: ProcId) {
    let did = ProcessActivity {
        threads: 12,
        on_cpu_ns: 60 * S,
        throttled_ns: 40 * MS,
        waits: vec![(9_000, 60_000)],
        ..ProcessActivity::default()
    };
    scene.did(service, &did);
    scene.cpu_stat(cgroup, 60 * S, 300, 1, 50 * MS);
}

pub(super) fn scene(kind: &str) -> Option<Scene> {
    let (mut scene, cgroup, service) = host();
    match kind {
        "fires" => {
            saturated(&mut scene, cgroup, service);
            scene.runtime(go(service, "go1.24.3", 96));
        }
        "quiet" => {
            at_ease(&mut scene, cgroup, service);
            scene.runtime(go(service, "go1.24.3", 4));
        }
        "nodata" => {
            saturated(&mut scene, cgroup, service);
            scene.without(Source::Runtime, "no process may be looked into", "run as root");
        }
        _ => return None,
    }
    Some(scene)
}

fn found(report: &Report) -> &Finding {
    report.findings.iter().find(|finding| finding.code == "SCH004").expect("SCH004")
}

#[test]
fn too_many_threads_come_before_the_quota_that_they_use_up() {
    let report = judged(&scene("fires").unwrap());
    assert_eq!(codes(&report)[..2], ["SCH004", "SCH002"]);
    let finding = found(&report);
    assert_eq!(finding.severity, Severity::High);
    assert!(
        finding.title.contains("lets 96 threads run at a time and may use 4 CPUs"),
        "{}",
        finding.title
    );
    // At least 47 threads at once; 4 and Go's own one fit. The rest is the quota's share.
    let [cause, quota] = finding.causes.as_slice() else { panic!("{:?}", finding.causes) };
    assert!((cause.share.get() - 0.89).abs() < 0.01 && (quota.share.get() - 0.11).abs() < 0.01);
    let setting = (cause.entity.key.as_deref(), cause.entity.value.as_deref());
    assert_eq!(setting, (Some("GOMAXPROCS"), Some("96")));
    assert!(
        finding.fix[0].action.contains("GOMAXPROCS=4") && finding.fix[1].action.contains("go 1.25")
    );
}

#[test]
fn a_misfit_that_costs_nothing_is_a_risk() {
    let (mut scene, cgroup, service) = host();
    at_ease(&mut scene, cgroup, service);
    scene.runtime(go(service, "go1.24.3", 96));
    let report = judged(&scene);
    assert_eq!(codes(&report), ["SCH004"]);
    let finding = found(&report);
    assert_eq!((finding.severity, finding.cost.lost_ns_per_s), (Severity::Info, 0));
    assert!(finding.causes.is_empty() && !finding.fix.is_empty());
}

#[test]
fn the_quota_that_runs_out_is_no_fault_of_a_number_that_fits() {
    for value in [4, 5] {
        let (mut scene, cgroup, service) = host();
        saturated(&mut scene, cgroup, service);
        scene.runtime(go(service, "go1.26.8", value));
        assert_eq!(codes(&judged(&scene))[0], "SCH002", "{value}");
        assert!(!codes(&judged(&scene)).contains(&"SCH004"), "{value}");
    }
}

#[test]
fn threads_alone_never_fire() {
    let (mut scene, cgroup, service) = host();
    saturated(&mut scene, cgroup, service);
    let mut reading = go(service, "go1.24.3", 96);
    reading.kind = RuntimeKind::Tokio;
    reading.version = None;
    reading.parallelism[0] = Parallelism {
        name: "worker threads".into(),
        value: 96,
        confidence: Confidence::Bound,
        source: "threads".into(),
    };
    scene.runtime(reading);
    assert!(!codes(&judged(&scene)).contains(&"SCH004"));
}

#[test]
fn without_the_probe_the_counters_of_the_level_that_binds_tell() {
    let (mut scene, cgroup, service) = host();
    scene.without_bpf();
    scene.schedstat(service, 118 * S, 900 * S, 100_000);
    scene.cpu_stat(cgroup, 119 * S, 300, 296, 900 * S);
    scene.runtime(go(service, "go1.24.3", 96));
    let report = judged(&scene);
    let finding = found(&report);
    assert_eq!(
        (finding.severity, finding.causes[0].entity.kind),
        (Severity::High, EntityKind::Setting)
    );
    // Both have the same loss to the nanosecond; that the quota ran out is the surer of the two.
    assert!(codes(&report).contains(&"SCH002"));
}

#[test]
fn a_target_whose_number_cannot_be_read_is_not_ruled_out() {
    let (mut scene, cgroup, service) = host();
    at_ease(&mut scene, cgroup, service);
    let unread = Some("its function table was not found".into());
    scene.runtime(RuntimeReading { parallelism: vec![], unread, ..go(service, "go1.12", 1) });
    scene.target(service);
    let report = judged(&scene);
    let missing =
        report.not_checked.iter().find(|rule| rule.code == "SCH004").expect("not checked");
    assert!(missing.missing[0].contains("function table"), "{missing:?}");
}

/// A service with a quota of half a CPU on a host of two CPUs, throttled for `stopped_ns`, its queues for `queues_ns`.
fn small(
    stopped_ns: u64,
    queues_ns: u64,
    reading: impl Fn(ProcId) -> RuntimeReading,
) -> (Scene, ProcId) {
    let mut scene = Scene::new(2, WINDOW_NS);
    scene.cgroup("/", None, None);
    let cgroup = scene.cgroup("/service", Some(50_000), None);
    let service = scene.process("orders", Some(cgroup));
    // Threads of one process also queue behind each other a little.
    let waits = vec![(1_000, MS)];
    let did = ProcessActivity {
        threads: 16,
        on_cpu_ns: 15 * S,
        throttled_ns: stopped_ns,
        waits,
        ..ProcessActivity::default()
    };
    scene.did(service, &did);
    scene.blame(service, Culprit::Process(service), S);
    scene.cpu_stat(cgroup, 15 * S, 300, 299, queues_ns);
    scene.busy(0.3);
    scene.runtime(reading(service));
    (scene, service)
}

/// A decoy: `GOMAXPROCS` is 32, but only one goroutine runs, which wants 0.8 of a CPU. With `GOMAXPROCS=1` it would be
/// throttled for as long.
#[test]
fn one_busy_goroutine_is_stopped_by_the_quota_whatever_gomaxprocs_is() {
    let (mut scene, service) = small(14 * S, 14 * S, |proc| go(proc, "go1.24.3", 32));
    scene.named(service, "orders", 6, 15 * S, 14 * S);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["SCH002", "SCH004"]);
    let finding = found(&report);
    assert_eq!((finding.severity, finding.cost.lost_ns_per_s), (Severity::Info, 0));
    assert!(finding.causes.is_empty(), "{:?}", finding.causes);
    assert!(finding.title.contains("because of that, or because it wants"), "{}", finding.title);
    let expect = finding.confirm.as_ref().unwrap().expect.as_ref().unwrap();
    assert!(expect.contains("500 ms of every second"), "{expect}");
}

/// A quota that runs out late in its periods throttles many threads for a short time: at least 1.5 at once, little more
/// than what fits. Blaming the demand would be as much of a guess as blaming the number.
#[test]
fn a_bound_that_is_too_low_to_blame_the_number_does_not_acquit_it() {
    let (mut scene, service) = small(60 * S, 28 * S, |proc| go(proc, "go1.24.3", 32));
    scene.named(service, "orders", 16, 28 * S, 60 * S);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["SCH002", "SCH004"]);
    let finding = found(&report);
    assert!(finding.causes.is_empty(), "{:?}", finding.causes);
    assert!(finding.title.ends_with("than it may, is not known"), "{}", finding.title);
}

#[test]
fn of_threads_that_are_stopped_together_those_that_fit_are_the_quotas() {
    let (mut scene, service) = small(240 * S, 25 * S, |proc| go(proc, "go1.24.3", 32));
    scene.named(service, "orders", 16, 15 * S, 240 * S);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["SCH004", "SCH002"]);
    let finding = found(&report);
    let shares: Vec<_> =
        finding.causes.iter().map(|cause| (cause.entity.kind, cause.share.get())).collect();
    let [(EntityKind::Setting, setting), (EntityKind::Cgroup, quota)] = shares[..] else {
        panic!("{shares:?}")
    };
    // Eight at once; one and Go's own one fit.
    assert!((setting - 0.75).abs() < 0.01 && (quota - 0.25).abs() < 0.01, "{shares:?}");
    // All of the quota is used: whether the work would fit with one thread is not known.
    assert!(finding.confidence <= 0.6, "{}", finding.confidence);
}

fn java(proc: ProcId) -> RuntimeReading {
    let mut reading = go(proc, "17.0.15", 16);
    reading.kind = RuntimeKind::Jvm;
    reading.parallelism[0].name = "processors".into();
    reading.settings = [("ActiveProcessorCount".to_owned(), "16".to_owned())].into();
    reading
}

/// A decoy: sixteen processors, so as many garbage collection threads, but it is eight threads that the program itself
/// started that run. With `-XX:ActiveProcessorCount=1` they would still be eight.
#[test]
fn threads_that_a_program_started_itself_are_not_of_the_number_of_processors() {
    let (mut scene, service) = small(200 * S, 28 * S, java);
    scene.named(service, "Thread-", 8, 15 * S, 199 * S);
    scene.named(service, "GC Thread#", 16, 50 * MS, 600 * MS);
    scene.named(service, "C2 CompilerThre", 3, 50 * MS, 400 * MS);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["SCH002", "SCH004"]);
    assert!(found(&report).causes.is_empty());
    assert!(found(&report).title.contains("it is other threads"), "{}", found(&report).title);
    // The same amounts by the collector's threads are the number's effect.
    let (mut scene, service) = small(200 * S, 28 * S, java);
    scene.named(service, "Thread-", 8, 2 * S, 20 * S);
    scene.named(service, "GC Thread#", 16, 13 * S, 180 * S);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["SCH004", "SCH002"]);
    let share = found(&report).causes[0].share.get();
    assert!((0.7..0.9).contains(&share), "{share}");
}

#[test]
fn without_names_of_threads_less_is_claimed() {
    // For Java, nothing: an old recording without thread names, or a Java that does not name its threads.
    let (scene, _) = small(200 * S, 28 * S, java);
    let (mut old, service) = small(200 * S, 28 * S, java);
    old.named(service, "orders", 30, 15 * S, 200 * S);
    for scene in [scene, old] {
        let report = judged(&scene);
        assert_eq!(codes(&report), ["SCH002", "SCH004"]);
        let finding = found(&report);
        assert!(
            finding.causes.is_empty() && finding.title.contains("is not known"),
            "{}",
            finding.title
        );
    }
    // Nearly all threads of a Go program belong to its runtime.
    let (scene, service) = small(200 * S, 28 * S, |proc| go(proc, "go1.24.3", 32));
    let mut named = scene.clone();
    named.named(service, "orders", 16, 15 * S, 200 * S);
    let confidence = |scene: &Scene| found(&judged(scene)).confidence;
    assert!(confidence(&scene) < confidence(&named));
}
