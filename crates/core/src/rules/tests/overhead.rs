// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the observer says of its own cost.

use super::judged;
use crate::finding::{Finding, Report, Severity};
use crate::recording::ObserverTick;
use crate::testkit::{MS, S, Scene};

fn finding<'r>(report: &'r Report, code: &str) -> &'r Finding {
    report.findings.iter().find(|it| it.code == code).expect("it fires")
}

#[test]
fn only_what_is_above_its_budget_is_said_to_be() {
    let title = |cpu_ns, rss_bytes| {
        let mut scene = Scene::new(4, 10 * S);
        scene.observer(ObserverTick {
            cpu_ns,
            rss_bytes,
            bpf_run_ns: Some(0),
            ..ObserverTick::default()
        });
        scene.busy(0.6);
        finding(&judged(&scene), "OBS003").title.clone()
    };
    let memory =
        "the observer costs more than it should: it took 60 MiB of memory, more than 38 MiB";
    assert_eq!(title(20 * MS, 60 << 20), memory, "its CPU time is within the budget");
    let cpu = "the observer costs more than it should: its process took 4.0 % of one CPU, more than 2.0 %";
    assert_eq!(title(400 * MS, 20 << 20), cpu);
    assert_eq!(title(400 * MS, 40_100_000), cpu, "38 MiB are not more than 38 MiB");
    let both = title(400 * MS, 60 << 20);
    assert!(both.contains("4.0 % of one CPU") && both.contains("60 MiB of memory"), "{both}");
}

#[test]
fn the_observers_programs_are_judged_by_the_time_that_the_host_uses() {
    let severity = |cpus: u32, busy, bpf_ms: u64| {
        let mut scene = Scene::new(cpus, 10 * S);
        scene.observer(ObserverTick {
            cpu_ns: 100 * MS,
            rss_bytes: 20 << 20,
            bpf_run_ns: Some(bpf_ms * MS),
            ..ObserverTick::default()
        });
        if let Some(busy) = busy {
            scene.busy(busy);
        }
        let report = judged(&scene);
        report.findings.iter().find(|it| it.code == "OBS003").map(|it| it.severity)
    };
    // A busy host of 2 CPUs with 45 000 switches a second.
    assert_eq!(severity(2, Some(1.0), 170), None, "0.9 % of what the host uses");
    assert_eq!(severity(2, Some(1.0), 500), Some(Severity::Info), "2.5 %");
    assert_eq!(severity(2, Some(1.0), 1100), Some(Severity::Low), "5.5 %");
    assert_eq!(severity(64, Some(1.0), 1100), None, "the same on 64 CPUs is 0.2 %");
    assert_eq!(severity(64, Some(0.001), 190), None, "at rest, one CPU is the measure");
    assert_eq!(severity(64, Some(0.001), 250), Some(Severity::Info));
    assert_eq!(severity(2, None, 250), Some(Severity::Info), "not known what the host used");
}
