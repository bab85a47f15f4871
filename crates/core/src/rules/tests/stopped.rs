// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that others stop.

use super::judged;
use crate::finding::Severity;
use crate::recording::{ProcId, Record, SleepState, Slept, SleptOn, Source, TargetSpec, WokenBy};
use crate::testkit::{MS, ProcessActivity, S, Scene};

/// A service of four threads that is stopped for so long in all, which another process ends in that call.
fn service(stopped_ns: u64, ended: &[(&str, u64)]) -> (Scene, ProcId) {
    let mut scene = Scene::new(4, 10 * S);
    scene.cgroup("/", None, None);
    let [api, other] = ["api", "gdb"].map(|comm| scene.process(comm, None));
    scene.target(api);
    let did = ProcessActivity { threads: 4, on_cpu_ns: 2 * S, stopped_ns, ..Default::default() };
    scene.did(api, &did).did(other, &ProcessActivity { on_cpu_ns: 10 * MS, ..Default::default() });
    for &(call, ns) in ended {
        let woken = WokenBy::Thread { proc: other, call: call.into() };
        let (state, on) = (SleepState::Stopped, SleptOn::NotKnown);
        let slept = Slept { state, call: "(not known)".into(), on, woken };
        scene.slept(api, "api", (slept, vec![]), ns);
    }
    (scene, api)
}

pub(super) fn scene(kind: &str) -> Option<Scene> {
    Some(match kind {
        "fires" => service(12 * S, &[("ptrace", 11 * S)]).0,
        "quiet" => service(0, &[]).0,
        "nodata" => {
            let mut scene = Scene::new(4, 10 * S);
            scene.without(Source::Sched, "no BTF", "");
            scene
        }
        _ => return None,
    })
}

#[test]
fn who_is_stopped_is_told_with_who_lets_it_go_on() {
    for (call, what) in [
        ("ptrace", "`gdb` traces it"),
        ("kill", "`gdb` sends the signal that continues it"),
        ("write", "`gdb` thaws its cgroup"),
        ("futex", "`gdb` lets it go on"),
    ] {
        let report = judged(&service(12 * S, &[(call, 11 * S)]).0);
        let [it] = &report.findings[..] else { panic!("{:?}", report.findings) };
        assert_eq!((it.code.as_str(), it.severity), ("SCH005", Severity::High));
        // Twelve seconds of four threads in ten.
        assert_eq!(it.cost.lost_ns_per_s, 300 * MS);
        assert!(it.title.contains("is stopped for 300 ms of every second"), "{}", it.title);
        assert!(it.title.ends_with(what), "{}", it.title);
        assert_eq!(it.causes[0].entity.comm.as_deref(), Some("gdb"));
        assert!((it.causes[0].share.get() - 11.0 / 12.0).abs() < 1e-9);
    }
}

#[test]
fn a_seldom_stop_is_told_if_it_is_long_and_a_short_one_is_not() {
    for (longest_ns, severity) in [(90 * MS, None), (110 * MS, Some(Severity::Low))] {
        let (mut scene, _) = service(400 * MS, &[("kill", 400 * MS)]);
        scene.last(|record| match record {
            Record::Sleep(tick) => tick.longest_ns = longest_ns,
            other => panic!("{other:?}"),
        });
        let report = judged(&scene);
        assert_eq!(report.findings.first().map(|it| it.severity), severity, "{longest_ns}");
    }
}

#[test]
fn of_a_host_who_stays_stopped_keeps_nobody_waiting() {
    let of = |ended: &[_]| {
        let (mut scene, _) = service(20 * S, ended);
        scene.meta(|meta| meta.target = TargetSpec::Host);
        judged(&scene).findings.iter().any(|it| it.code == "SCH005")
    };
    assert!(!of(&[]) && of(&[("kill", 15 * S)]));
}

#[test]
fn a_target_that_stays_stopped_is_told() {
    let report = judged(&service(20 * S, &[]).0);
    let [it] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert!(it.title.ends_with("who lets it go on was not seen"), "{}", it.title);
    assert_eq!(it.causes.len(), 1);
}
