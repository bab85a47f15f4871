// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tails that a mean hides: when they are reported, and when not. And the ledger of a whole host.

use super::{disks, judged};
use crate::finding::{EntityKind, Finding, LedgerState, Report, Severity, TailOf};
use crate::recording::{Culprit, IoCulprit, LoadBin, ProcId, Record};
use crate::testkit::{MS, ProcessActivity, S, Scene, US};

fn finding<'r>(report: &'r Report, code: &str) -> Option<&'r Finding> {
    report.findings.iter().find(|finding| finding.code == code)
}

/// A server with 1 600 turns of 1 ms beside a spinner, `long` of which wait (number, nanoseconds each): 8 s on 2 CPUs.
fn server(long: (u64, u64)) -> (Scene, ProcId, ProcId) {
    let mut scene = Scene::new(2, 8 * S);
    let server = scene.process("server", None);
    let spinner = scene.process("spinner", None);
    let waits = vec![(1600 - long.0, 0), long];
    scene.did(
        server,
        &ProcessActivity { on_cpu_ns: 1600 * MS, waits, ..ProcessActivity::default() },
    );
    scene.did(spinner, &ProcessActivity { on_cpu_ns: 7 * S, ..ProcessActivity::default() });
    scene.blame(server, Culprit::Process(spinner), long.0 * long.1);
    scene.busy(1.0);
    (scene, server, spinner)
}

#[test]
fn a_target_is_told_of_its_tail_where_the_mean_is_quiet() {
    let (mut scene, server, _) = server((38, 4100 * US));
    assert!(finding(&judged(&scene), "SCH001").is_none(), "nobody asked for it");
    scene.target(server);
    let report = judged(&scene);
    let found = finding(&report, "SCH001").expect("its tail is long");
    assert_eq!(found.severity, Severity::Medium);
    assert_eq!(
        found.title,
        "one in 42 turns of `server` (pid 1001) waits 4.1 ms for a CPU, 100 % of its waiting behind `spinner` \
         (pid 1002): their 99th percentile is 5.1 ms instead of 1.0 ms"
    );
    assert!(found.cost.share < 0.1 && found.cost.lost_ns_per_s < 20 * MS, "the mean is quiet");
    let tail = found.cost.tail.expect("a tail");
    assert_eq!((tail.of, tail.events, tail.late), (TailOf::RunQueue, 1600, 38));
    assert_eq!(report.ledger[0].tails, [tail], "and its ledger tells the same");
}

#[test]
fn a_tail_that_is_rare_short_or_its_own_is_none() {
    for (long, why) in [
        ((16, 4 * MS), "one in a hundred"),
        ((38, 900 * US), "shorter than a turn"),
        ((38, 300 * US), "nothing that is felt"),
    ] {
        let (mut scene, server, _) = server(long);
        scene.target(server);
        assert!(finding(&judged(&scene), "SCH001").is_none(), "{why}");
    }
    let (mut scene, broker, _) = server((38, 4100 * US));
    scene.did(
        broker,
        &ProcessActivity { threads: 16, block_io_ns: 64 * S, ..ProcessActivity::default() },
    );
    scene.target(broker);
    assert!(finding(&judged(&scene), "SCH001").is_none(), "its turns are about a disk");
    let (mut scene, server, _) = server((38, 4 * MS));
    scene.blame(server, Culprit::Process(server), 2 * 38 * 4 * MS);
    scene.target(server);
    assert!(finding(&judged(&scene), "SCH001").is_none(), "behind its own threads");
}

#[test]
fn a_cpu_that_wakes_up_late_is_nobody_who_makes_a_tail() {
    let (mut scene, server, _) = server((0, 0));
    let waits = vec![(1600, 20 * US), (38, 4 * MS)];
    let woken_ns = 38 * 4 * MS + 1600 * 20 * US;
    let did = ProcessActivity {
        on_cpu_ns: 0,
        waits,
        wakeup_latency_ns: woken_ns,
        ..ProcessActivity::default()
    };
    scene.did(server, &did);
    scene.target(server);
    assert!(finding(&judged(&scene), "SCH001").is_none());
}

#[test]
fn a_quota_that_stops_few_requests_for_long_is_told_by_the_tail() {
    let mut scene = Scene::new(2, 10 * S);
    let shop = scene.cgroup("/shop", Some(50_000), None);
    let server = scene.process("server", Some(shop));
    // 40 stops of 4 ms in 2000 turns: 16 ms of every second, 7 % of the time in which it wants to run.
    let waits = vec![(2000, 0)];
    let did = ProcessActivity {
        on_cpu_ns: 2 * S,
        throttled_ns: 160 * MS,
        waits,
        ..ProcessActivity::default()
    };
    scene.did(server, &did).cpu_stat(shop, 2 * S, 100, 40, 160 * MS);
    assert!(finding(&judged(&scene), "SCH002").is_none(), "nobody asked for it");
    scene.target(server);
    let throttled = |t_ns: u64, throttled_ns| {
        let bin = LoadBin { t0_ns: t_ns, t1_ns: t_ns + S, throttled_ns, ..LoadBin::default() };
        Record::TargetBin(bin)
    };
    let mut once = scene.clone();
    for second in 0..10 {
        scene.push(throttled(second * S, 16 * MS));
    }
    let report = judged(&scene);
    let found = finding(&report, "SCH002").expect("its tail is long");
    assert_eq!(found.severity, Severity::Medium);
    assert!(
        found.title.starts_with("one in 50 turns of `server` (pid 1001) is stopped for 4.0 ms by the CPU quota of `/shop`"),
        "{}",
        found.title
    );
    once.push(throttled(3 * S, 160 * MS));
    assert!(finding(&judged(&once), "SCH002").is_none(), "one moment");
}

#[test]
fn requests_beside_others_make_a_tail_and_slow_ones_alone_do_not() {
    let scene = |others: u64| {
        let (mut scene, disk) = disks::host(30);
        let rsync = disks::service(&mut scene, "rsync", "/rsync.service", 30);
        let shop = disks::service(&mut scene, "shop", "/shop.service", 30);
        let beside = [(IoCulprit::Process(rsync), others), (IoCulprit::Device, 100 - others)];
        disks::requests(&mut scene, shop, disk, &[(2000, 300 * US), (40, 12 * MS)], &beside);
        scene.target(shop);
        judged(&scene)
    };
    let report = scene(45);
    let found = finding(&report, "BLK004").expect("its tail is long");
    assert!(found.title.contains("instead of"), "{}", found.title);
    let tail = found.cost.tail.expect("a tail");
    assert_eq!((tail.of, tail.late), (TailOf::BlockIo, 40));
    assert!(tail.times() > 10.0, "{tail:?}");
    assert!(finding(&scene(9), "BLK004").is_none(), "the disk itself is slow now and then");
}

#[test]
fn the_ledger_of_a_host_without_findings_is_the_hosts() {
    let mut scene = Scene::new(2, 10 * S);
    let web = scene.process("web", None);
    let kernel = scene.process("kswapd0", None);
    scene.facts(kernel, |process| process.kernel_thread = Some(true));
    scene.process("idle", None);
    scene.did(
        web,
        &ProcessActivity {
            on_cpu_ns: 3 * S,
            waits: vec![(100, 500 * US)],
            ..ProcessActivity::default()
        },
    );
    scene.did(
        kernel,
        &ProcessActivity { on_cpu_ns: S, block_io_ns: 9 * S, ..ProcessActivity::default() },
    );
    let report = judged(&scene);
    let kinds: Vec<_> = report.ledger.iter().map(|ledger| ledger.victim.kind).collect();
    assert_eq!(kinds, [EntityKind::Host, EntityKind::Process], "{:?}", report.ledger);
    let host = &report.ledger[0];
    let part = |state| host.parts.iter().find(|part| part.state == state).unwrap().ns;
    assert_eq!(host.wall_ns, host.parts.iter().map(|part| part.ns).sum::<u64>());
    assert_eq!((part(LedgerState::OnCpu), part(LedgerState::Queued)), (4 * S, 50 * MS));
    assert_eq!(report.ledger[1].victim.comm.as_deref(), Some("web"), "who lost something");
    let text = super::shown(&report);
    assert!(text.contains("the host's threads wanted to run"), "{text}");
    assert!(!text.contains("kswapd0"), "{text}");
}
