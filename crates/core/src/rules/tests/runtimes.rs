// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH004: a Go service with a quota of four CPUs on a host of 96.

use super::{codes, judged};
use crate::finding::{Finding, Report, Severity};
use crate::recording::{
    CgroupId, Confidence, Container, Culprit, Parallelism, ProcId, RuntimeKind, RuntimeReading,
    SeenQuota, Source,
};
use crate::testkit::{Did, MS, S, Scene};

const WINDOW_NS: u64 = 30 * S;

/// What a Go program's runtime was found to be.
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

/// The service under load: stopped nearly all the time, and its threads in each other's way before that.
fn saturated(scene: &mut Scene, cgroup: CgroupId, service: ProcId) {
    let did = Did {
        threads: 101,
        on_cpu_ns: 118 * S,
        throttled_ns: 1400 * S,
        waits: vec![(60_000, 2 * MS)],
        ..Did::default()
    };
    scene.did(service, &did);
    scene.blame(service, Culprit::Process(service), 96 * S);
    scene.cpu_stat(cgroup, 119 * S, 300, 296, 900 * S);
}

/// The service with the number that fits, at the same load.
fn at_ease(scene: &mut Scene, cgroup: CgroupId, service: ProcId) {
    let did = Did {
        threads: 12,
        on_cpu_ns: 60 * S,
        throttled_ns: 40 * MS,
        waits: vec![(9_000, 60_000)],
        ..Did::default()
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
    let [cause] = finding.causes.as_slice() else { panic!("{:?}", finding.causes) };
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
    assert_eq!(found(&report).severity, Severity::High);
    assert_eq!(codes(&report)[0], "SCH004");
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
