// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steal time: for a target, its part of the machine's steal time counts; for a whole host, the group that loses most.

use super::judged;
use crate::finding::{Finding, Report, Severity};
use crate::recording::{CpuReading, LoadBin, ProcId, Record};
use crate::testkit::{MS, ProcessActivity, S, Scene};

fn finding<'r>(report: &'r Report, code: &str) -> Option<&'r Finding> {
    report.findings.iter().find(|finding| finding.code == code)
}

/// Counters of a machine of 2 CPUs that is busy for `busy` and loses `steal` seconds of each second to the hypervisor,
/// over both CPUs.
fn stolen(scene: &mut Scene, busy: f64, steal: f64) {
    for second in 0..=10u64 {
        for cpu in 0..2 {
            let ns = |share: f64| (share * (second * S) as f64 / 2.0) as u64;
            scene.push(Record::Cpu(CpuReading {
                t_ns: second * S,
                cpu,
                user_ns: ns(busy),
                system_ns: 0,
                idle_ns: second * S - ns(busy) - ns(steal),
                iowait_ns: 0,
                irq_ns: 0,
                steal_ns: ns(steal),
            }));
        }
    }
}

#[test]
fn what_the_hypervisor_takes_from_others_is_not_the_targets_loss() {
    let mut scene = Scene::new(2, 10 * S);
    let small = scene.process("small", None);
    let big = scene.process("big", None);
    scene.did(small, &ProcessActivity { on_cpu_ns: 400 * MS, ..ProcessActivity::default() });
    scene.did(big, &ProcessActivity { on_cpu_ns: 8 * S, ..ProcessActivity::default() });
    stolen(&mut scene, 0.6, 0.24);
    let target = |id: ProcId, on_cpu_ns: u64| {
        let mut scene = scene.clone();
        scene.target(id);
        for second in 0..10 {
            let t0_ns = second * S;
            let bin = LoadBin { t0_ns, t1_ns: t0_ns + S, on_cpu_ns, ..LoadBin::default() };
            scene.push(Record::TargetBin(bin));
        }
        judged(&scene)
    };
    let of_small = target(small, 40 * MS);
    assert!(finding(&of_small, "CPU001").is_none(), "11 ms of its 40: {:?}", of_small.findings);
    let why = of_small.ruled_out.iter().find(|rule| rule.code == "CPU001").unwrap();
    assert!(why.closest.contains("about 11 ms of every second from `small`"), "{}", why.closest);
    let of_big = target(big, 800 * MS);
    let found = finding(&of_big, "CPU001").expect("it is robbed");
    assert_eq!((found.severity, found.victim.pid), (Severity::High, Some(1002)));
    // 240 of 840 ms of each second are stolen, and the process is on a CPU for 800.
    assert!((220..=235).contains(&(found.cost.lost_ns_per_s / MS)), "{:?}", found.cost);
    assert_eq!(finding(&judged(&scene), "CPU001").unwrap().severity, Severity::High, "the host");
}

#[test]
fn a_host_that_does_next_to_nothing_loses_nothing_that_counts() {
    let mut scene = Scene::new(2, 10 * S);
    for name in ["cron", "sshd", "systemd", "agent"] {
        let id = scene.process(name, None);
        scene.did(id, &ProcessActivity { on_cpu_ns: 200 * MS, ..ProcessActivity::default() });
    }
    // 45 % of the time in which the host has work.
    stolen(&mut scene, 0.066, 0.054);
    let report = judged(&scene);
    assert!(finding(&report, "CPU001").is_none(), "{:?}", report.findings);
}
