// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of the threads in which chains of waiting end.

use super::judged;
use super::waiting::{asks, behind, clients, connection, finding, lock, service};
use crate::finding::Report;
use crate::recording::{Culprit, Did, IoCulprit, ProcId};
use crate::testkit::{MS, ProcessActivity, S};

/// What the other probes know of the thread in which the chains end.
fn ends(report: &Report, code: &str) -> Vec<String> {
    let lines = finding(report, code).evidence.iter().filter(|line| line.name == "ends");
    lines.map(|line| line.note.clone().unwrap_or_default()).collect()
}

#[test]
fn whom_the_holder_of_a_lock_waits_behind_for_a_cpu_is_named() {
    let queued = || service(|api, _| vec![(lock(), behind(api, "db-writer", Did::Queued), 20 * S)]);
    let mut scene = queued();
    let (spinner, cron) = (scene.process("spinner", None), scene.process("cron", None));
    scene.blame(ProcId(1), Culprit::Process(spinner), 900 * MS);
    scene.blame(ProcId(1), Culprit::Process(cron), 100 * MS);
    let expected = "100 % of it: `db-writer` waits for a CPU behind `spinner` (pid 1003): 90 %, `cron` (pid 1004): 10 %, \
                    of all that its process waits for one";
    assert_eq!(ends(&judged(&scene), "OFF001"), [expected]);
    // Where that is a finding of its own, it is named.
    let waits = vec![(90, 100 * MS)];
    scene.did(ProcId(1), &ProcessActivity { threads: 1, waits, ..ProcessActivity::default() });
    scene.blame(ProcId(1), Culprit::Process(spinner), 8 * S);
    let report = judged(&scene);
    assert!(report.findings.iter().any(|it| it.code == "SCH001"), "{:?}", report.findings);
    assert!(ends(&report, "OFF001")[0].ends_with(" (see SCH001)"), "{:?}", ends(&report, "OFF001"));
    // Nobody is named if nobody is known.
    assert!(ends(&judged(&queued()), "OFF001").is_empty());
}

#[test]
fn behind_whom_others_wait_is_said_to_be_not_known_where_it_is_not() {
    let scene = service(|_, postgres| {
        let by = behind(postgres, "postgres", Did::Queued);
        vec![(connection(Some(true)), by, 15 * S)]
    });
    let [end] = <[String; 1]>::try_from(ends(&judged(&scene), "OFF002")).unwrap();
    assert!(end.ends_with("waits for a CPU; behind whom is not known"), "{end}");
}

/// Whose ledger a report has, and whether that is of somebody for whom the target waits.
fn ledgers(report: &Report) -> Vec<(Option<&str>, bool)> {
    report.ledger.iter().map(|it| (it.victim.comm.as_deref(), it.awaited)).collect()
}

#[test]
fn whom_the_target_waits_for_has_a_ledger() {
    let mut scene = asks();
    let bystander = scene.process("bystander", None);
    scene.facts(bystander, |it| it.in_target = false);
    let busy = ProcessActivity { threads: 1, on_cpu_ns: 9 * S, ..ProcessActivity::default() };
    scene.did(bystander, &busy);
    let report = judged(&scene);
    assert_eq!(finding(&report, "OFF002").causes[0].entity.comm.as_deref(), Some("postgres"));
    assert_eq!(ledgers(&report), [(Some("api"), false), (Some("postgres"), true)]);
    // Who waits for nobody has its own ledger only.
    let idle = service(|_, _| vec![(clients(), vec![], 40 * S)]);
    assert_eq!(ledgers(&judged(&idle)), [(Some("api"), false)]);
}

#[test]
fn the_quota_that_stops_the_holder_of_a_lock_is_named() {
    let by = |api| behind(api, "db-writer", Did::Throttled);
    let mut scene = service(|api, _| vec![(lock(), by(api), 20 * S)]);
    let (above, own) = (scene.cgroup("/pod", None, None), scene.cgroup("/pod/api", None, None));
    scene.facts(ProcId(1), |it| it.cgroup = Some(own));
    assert!(ends(&judged(&scene), "OFF001").is_empty());
    scene.cpu_stat(above, 10 * S, 100, 90, 40 * S).cpu_stat(own, 10 * S, 100, 0, 0);
    let [end] = <[String; 1]>::try_from(ends(&judged(&scene), "OFF001")).unwrap();
    assert_eq!(end, "100 % of it: `db-writer` is stopped by the CPU quota of `/pod`");
}

#[test]
fn beside_whom_the_last_of_a_chain_waits_for_a_disk_is_named() {
    let mut scene = asks();
    assert!(ends(&judged(&scene), "OFF002").is_empty());
    let backup = scene.process("backup", None);
    let disk = scene.disk("vda");
    let whole = 0..10 * S;
    scene.io_blame(whole.clone(), ProcId(2), disk, IoCulprit::Process(backup), 3 * S);
    scene.io_blame(whole, ProcId(2), disk, IoCulprit::Device, S);
    let expected = "75 % of it: `postgres` waits for a disk beside requests of `backup` (pid 1003): 75 % of all that its \
                    process waits for requests";
    assert_eq!(ends(&judged(&scene), "OFF002"), [expected]);
}
