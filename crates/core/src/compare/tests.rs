// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Comparisons of small recordings, second by second.

use super::document::{Change, Comparison, LedgerPair, Loss, MeasureOf, Outcome};
use super::{Plan, Summary, compare, sizes};
use crate::host_diff::HostInput;
use crate::recording::{
    BlameTick, BlockRecord, CgroupId, CpuReading, Culprit, DevId, Device, DeviceTick, HostFacts,
    IoOp, IoPurpose, IoTick, ProcId, ProcessTick, PsiReading, PsiResource, Record, Setting,
    StallKind, ThreadStates, WaitHist,
};
use crate::rules;
use crate::snapshot::Snapshot;
use crate::testkit::{MS, S, Scene, transfers, view};
use proptest::prelude::*;

/// What a process did in one second, in milliseconds: on a CPU, queued, and behind whom.
type Second = (u64, u64, Option<ProcId>);

/// A host of 2 CPUs whose processes are told second by second.
struct Host {
    scene: Scene,
    seconds: u64,
}

impl Host {
    fn new(seconds: u64) -> Self {
        Self { scene: Scene::new(2, seconds * S), seconds }
    }

    fn cgroup(&mut self, path: &str) -> CgroupId {
        self.scene.cgroup(path, None, None)
    }

    fn process(
        &mut self,
        comm: &str,
        cgroup: Option<CgroupId>,
        did: impl Fn(u64) -> Second,
    ) -> ProcId {
        let proc = self.scene.process(comm, cgroup);
        for second in 0..self.seconds {
            let (on_cpu, queued, behind) = did(second);
            let (t0_ns, t1_ns) = (second * S, (second + 1) * S);
            let mut waits = WaitHist::default();
            (0..queued).for_each(|_| waits.add(MS));
            let awake = ThreadStates {
                on_cpu_ns: on_cpu * MS,
                queued_ns: queued * MS,
                ..Default::default()
            };
            let wall_ns = S.max(awake.total_ns());
            self.scene.push(Record::ProcessTick(Box::new(ProcessTick {
                t0_ns,
                t1_ns,
                proc,
                threads: 1,
                wall_ns,
                states: ThreadStates { sleep_ns: wall_ns - awake.total_ns(), ..awake },
                wait_max_ns: if queued > 0 { MS } else { 0 },
                switches: waits.total_count(),
                waits,
                wakeup_latency_ns: 0,
            })));
            if let Some(behind) = behind {
                let (culprit, ns) = (Culprit::Process(behind), queued * MS);
                self.scene.push(Record::Blame(BlameTick {
                    t0_ns,
                    t1_ns,
                    victim: proc,
                    culprit,
                    ns,
                }));
            }
        }
        proc
    }

    fn records(&self) -> Vec<Record> {
        self.scene.records()
    }
}

fn compared(a: &[Record], b: &[Record]) -> Comparison {
    let summary = |records: &[Record]| {
        let view = view(records);
        let report = rules::report(&view, "0.1.0", false);
        Summary::of(&view, report)
    };
    let plan = Plan::new(summary(a), summary(b));
    let mut series = [plan.series(0), plan.series(1)];
    for (series, records) in series.iter_mut().zip([a, b]) {
        records.iter().for_each(|record| series.push(record));
    }
    compare(&plan, [&series[0], &series[1]], ["a.deburr", "b.deburr"], "0.1.0")
}

/// A comparison in which B loses more, and its device is slower.
pub(crate) fn sample() -> Comparison {
    let [mut a, mut b] = [neighbours(20, 100, 20), neighbours(20, 900, 300)];
    with_requests(&mut a, 20, 100, 400);
    with_requests(&mut b, 20, 100, 1600);
    let mut found = compared(&a, &b);
    found.unpaired.push(super::document::Unpaired {
        only_in: "b".into(),
        process: found.processes[0].b.process.clone(),
        on_cpu_ns_per_s: 5e8,
        lost_ns_per_s: 1e8,
    });
    found
}

/// A level with some variation that has no period of a few seconds.
fn about(level: u64, second: u64) -> u64 {
    level * (90 + second * second * 7 % 21) / 100
}

/// `api` beside `batch`, which runs on `batch_ms` of each second, and `api` waits behind it for `queued_ms`.
fn neighbours(seconds: u64, batch_ms: u64, queued_ms: u64) -> Vec<Record> {
    let mut host = Host::new(seconds);
    host.cgroup("/");
    let (web, other) = (host.cgroup("/web"), host.cgroup("/batch"));
    let batch = host.process("batch", Some(other), |s| (about(batch_ms, s), 0, None));
    host.process("api", Some(web), |s| (about(200, s), about(queued_ms, s), Some(batch)));
    host.records()
}

fn losses(it: &Comparison) -> Vec<(Loss, Change)> {
    let all = it.processes.iter().flat_map(|pair| &pair.losses);
    all.map(|it| (it.loss, it.change)).collect()
}

#[test]
fn the_neighbour_is_named_and_the_ratio_has_its_interval() {
    let found = sample();
    assert_eq!(found.verdict.outcome, Outcome::Worse, "{:?}", found.verdict);
    let sentence = &found.verdict.sentence;
    assert!(sentence.contains("`api` in `/web` is queued for a CPU"), "{sentence}");
    assert!(sentence.contains("times as long as in A"), "{sentence}");
    assert!(sentence.contains("; of the increase 100 % behind `batch` in `/batch`"), "{sentence}");
    let loss = &found.processes[0].losses[0];
    let ratio = loss.ratio.unwrap();
    assert!((14.0..16.0).contains(&ratio.value) && ratio.low.unwrap() > 10.0, "{ratio:?}");
    let finding = found.findings.iter().find(|it| it.code == "SCH001").unwrap();
    assert_eq!((finding.change, finding.beyond_chance), (Change::New, Some(true)));
    assert!(finding.a.is_none() && finding.absent_because.is_some(), "{finding:?}");
}

#[test]
fn the_way_back_is_a_gain() {
    let found = compared(&neighbours(20, 900, 300), &neighbours(20, 100, 20));
    assert_eq!(found.verdict.outcome, Outcome::Better);
    assert!(
        found.verdict.sentence.starts_with("A loses what B does not: `api`"),
        "{:?}",
        found.verdict
    );
    let finding = found.findings.iter().find(|it| it.code == "SCH001").unwrap();
    assert_eq!((finding.change, finding.b.is_none()), (Change::Gone, true));
}

#[test]
fn a_few_seconds_prove_nothing() {
    for seconds in 1..8 {
        let found = compared(&neighbours(seconds, 0, 0), &neighbours(seconds, 900, 500));
        assert_eq!(found.verdict.outcome, Outcome::NotComparable, "{seconds}");
        assert!(found.verdict.sentence.starts_with("too short"), "{:?}", found.verdict);
        assert!(found.findings.iter().all(|it| it.beyond_chance != Some(true)));
    }
}

/// A neighbour that runs more, and behind whom nobody waits, is not to blame.
#[test]
fn a_louder_neighbour_is_not_to_blame_if_nobody_waits_behind_it() {
    let found = compared(&neighbours(30, 100, 100), &neighbours(30, 900, 100));
    assert_eq!(found.verdict.outcome, Outcome::NoDifference, "{:?}", found.verdict);
    assert!(!found.verdict.sentence.contains("batch"));
    // The victim waits more, but behind its own threads.
    let host = |queued: u64, behind_batch: bool| {
        let mut host = Host::new(20);
        let web = host.cgroup("/web");
        let batch = host.process("batch", Some(web), |s| (about(900, s), 0, None));
        let api = ProcId(batch.0 + 1);
        let behind = Some(if behind_batch { batch } else { api });
        host.process("api", Some(web), |s| (about(200, s), about(queued, s), behind));
        host.records()
    };
    let found = compared(&host(10, true), &host(400, false));
    assert_eq!(found.verdict.outcome, Outcome::Worse);
    let causes: Vec<_> = found.verdict.causes.iter().map(|it| it.process.comm.as_deref()).collect();
    assert_eq!(causes, [Some("api")]);
}

/// Ten seconds of one level and ten of another are two samples, not twenty.
#[test]
fn a_load_that_changes_once_in_the_window_proves_little() {
    let host = |queued: [u64; 2]| {
        let mut host = Host::new(20);
        host.process("api", None, |s| (200, about(queued[usize::from(s >= 10)], s), None));
        host.records()
    };
    let found = compared(&host([450, 50]), &host([400, 900]));
    assert_eq!(found.verdict.outcome, Outcome::NoDifference, "{:?}", found.verdict);
    assert!(found.verdict.sentence.contains("varies too much"), "{:?}", found.verdict);
}

#[test]
fn a_longer_window_is_no_difference() {
    let found = compared(&neighbours(10, 500, 100), &neighbours(60, 500, 100));
    assert_eq!(found.verdict.outcome, Outcome::NoDifference, "{:?}", found.verdict);
    let could = found.verdict.could_have_seen.unwrap();
    assert!(could.ns_per_s > 1e6 && could.ns_per_s < 500e6, "{could:?}");
}

/// Less load is queued less, for the same work as before.
#[test]
fn a_host_with_less_to_do_is_not_healthier() {
    let host = |load: u64| {
        let mut host = Host::new(30);
        let batch = host.process("batch", None, |s| (about(300, s), 0, None));
        host.process("api", None, |s| (about(40 * load, s), about(20 * load, s), Some(batch)));
        host.records()
    };
    let found = compared(&host(10), &host(2));
    assert_eq!(losses(&found), [(Loss::Queued, Change::OtherLoad)], "{:?}", found.processes);
    assert_eq!(found.verdict.outcome, Outcome::NoDifference);
}

#[test]
fn processes_in_one_recording_only_are_told_and_not_compared() {
    let mut host = Host::new(20);
    let cgroup = host.cgroup("/batch");
    host.process("stress", Some(cgroup), |_| (900, 500, None));
    let found = compared(&neighbours(20, 100, 20), &host.records());
    assert_eq!(found.verdict.outcome, Outcome::NotComparable);
    let alone: Vec<_> =
        found.unpaired.iter().map(|it| (&*it.only_in, it.process.comm.as_deref())).collect();
    assert_eq!(alone, [("b", Some("stress")), ("a", Some("api")), ("a", Some("batch"))]);
}

#[test]
fn containers_are_found_again_after_they_were_started_anew() {
    let host = |id: &str| {
        let mut host = Host::new(10);
        host.cgroup("/");
        host.cgroup("/docker");
        let cgroup = host.cgroup(&format!("/docker/{id}"));
        let other = host.cgroup("/docker/sidecar");
        host.process("api", Some(cgroup), |s| (about(200, s), about(50, s), None));
        host.process("api", Some(other), |s| (about(100, s), about(9, s), None));
        host.records()
    };
    let found = compared(&host("0f3c9a77be21"), &host("77aa00b1c2d3"));
    assert_eq!(found.processes.len(), 2, "{:?}", found.processes);
    assert!(found.unpaired.is_empty());
}

/// Requests of a device, `number` in each second, of `each_us`.
fn with_requests(records: &mut Vec<Record>, seconds: u64, number: u64, each_us: u64) {
    let dev = DevId { major: 8, minor: 0 };
    let device = Device {
        dev,
        name: "sda".into(),
        disk: None,
        start_sector: None,
        sectors: None,
        backing: None,
        gone: false,
    };
    let mut more = vec![BlockRecord::Device(device)];
    for second in 0..seconds {
        let mut total = WaitHist::default();
        (0..about(number, second)).for_each(|at| total.add((each_us + at % 7) * 1000));
        more.push(BlockRecord::DeviceTick(DeviceTick {
            t0_ns: second * S,
            t1_ns: (second + 1) * S,
            device: dev,
            op: IoOp::Write,
            device_time: total.clone(),
            total,
            queue: WaitHist::default(),
            max_ns: (each_us + 6) * 1000,
            before: None,
            sampled_one_in: 1,
        }));
        let ios = transfers(dev, IoPurpose::Journal, IoOp::Write, 9, 9 << 12, each_us * 1000);
        more.push(BlockRecord::Io(IoTick { t0_ns: second * S, t1_ns: (second + 1) * S, ..ios }));
    }
    let end = records.pop().unwrap();
    records.extend(more.into_iter().map(|record| Record::Block(Box::new(record))));
    records.push(end);
}

#[test]
fn a_device_is_slower_by_its_latency_and_not_by_its_load() {
    let host = |number: u64, each_us: u64| {
        let mut records = neighbours(20, 500, 50);
        with_requests(&mut records, 20, number, each_us);
        records
    };
    let found = compared(&host(100, 400), &host(100, 1600));
    assert_eq!(found.verdict.outcome, Outcome::Worse, "{:?}", found.verdict);
    assert!(
        found.verdict.sentence.contains("writes of `sda` take 1.6 ms, 4.0 times"),
        "{:?}",
        found.verdict
    );
    let busier = compared(&host(100, 400), &host(900, 400));
    assert_eq!(busier.verdict.outcome, Outcome::NoDifference, "{:?}", busier.measures);
    assert_eq!(busier.measures.len(), 1);
    let [a, b] = [&busier.devices[0].a, &busier.devices[0].b].map(|it| it.as_ref().unwrap());
    for side in [a, b] {
        assert_eq!(side.requests[0].op, "write");
        let count: u64 = side.requests[0].sizes.iter().map(|it| it.count).sum();
        assert_eq!(count, side.latency[0].requests);
    }
    let pairs = sizes::requests(&busier, "sda", "write");
    let bounds: Vec<_> = pairs.iter().map(|it| (it.from_ns, it.to_ns)).collect();
    assert_eq!(bounds, [(256_000, Some(512_000))]);
    assert_eq!(pairs[0].sides.map(|it| it.count_share), [1.0, 1.0]);
}

/// Readings of `/proc/pressure` and `/proc/stat`: per second the milliseconds of pressure, steal and busy time.
fn with_readings(records: &mut Vec<Record>, seconds: u64, [pressure, steal, busy]: [u64; 3]) {
    let end = records.pop().unwrap();
    let mut sums = [0; 3];
    for second in 0..=seconds {
        let t_ns = second * S;
        records.push(Record::Psi(PsiReading {
            t_ns,
            cgroup: None,
            resource: PsiResource::Cpu,
            some_ns: sums[0] * MS,
            full_ns: None,
        }));
        records.push(Record::Cpu(CpuReading {
            t_ns,
            cpu: 0,
            user_ns: sums[2] * MS,
            system_ns: 0,
            idle_ns: 0,
            iowait_ns: 0,
            irq_ns: 0,
            steal_ns: sums[1] * MS,
        }));
        for (sum, level) in sums.iter_mut().zip([pressure, steal, busy]) {
            *sum += about(level, second);
        }
    }
    records.push(end);
}

#[test]
fn steal_is_a_loss_and_pressure_may_be_the_load() {
    let host = |levels| {
        let mut records = neighbours(20, 500, 50);
        with_readings(&mut records, 20, levels);
        records
    };
    let stolen = compared(&host([100, 20, 500]), &host([100, 300, 500]));
    assert_eq!(stolen.verdict.outcome, Outcome::Worse);
    assert!(stolen.verdict.sentence.contains("the hypervisor takes"), "{:?}", stolen.verdict);
    let loaded = compared(&host([600, 100, 500]), &host([60, 20, 100]));
    assert_eq!(loaded.verdict.outcome, Outcome::NoDifference, "{:?}", loaded.verdict);
    let changes: Vec<_> = loaded.measures.iter().map(|it| (it.what, it.change)).collect();
    assert_eq!(
        changes,
        [(MeasureOf::Steal, Change::OtherLoad), (MeasureOf::CpuPressure, Change::Shrunk)]
    );
}

#[test]
fn quotas_and_settings_are_put_side_by_side() {
    let host = |quota_us, value: &str| {
        let mut host = Host::new(10);
        host.scene.cgroup("/", None, None);
        host.scene.cgroup("/web", quota_us, None);
        let setting = Setting { t_ns: 0, path: "/proc/sys/vm/x".into(), value: Some(value.into()) };
        host.scene.push(Record::Block(Box::new(BlockRecord::Setting(setting))));
        host.records()
    };
    let found = compared(&host(None, "1"), &host(Some(50_000), "2"));
    let quota = &found.quotas[0];
    assert_eq!((quota.cgroup.as_str(), quota.a, quota.b.unwrap().cpus), ("/web", None, Some(0.5)));
    let setting = &found.settings[0];
    assert_eq!((setting.a.as_deref(), setting.b.as_deref()), (Some("1"), Some("2")));
    assert!(compared(&host(None, "1"), &host(None, "1")).settings.is_empty());
}

#[test]
fn ledgers_are_put_side_by_side_and_sum_to_the_wall_time() {
    let found = compared(&neighbours(20, 100, 20), &neighbours(20, 900, 300));
    let ledger = &found.processes[0].ledger;
    for sum in [|it: &LedgerPair| it.a_ns_per_s, |it: &LedgerPair| it.b_ns_per_s] {
        let whole: f64 = ledger.iter().map(sum).sum();
        assert!((whole - 1e9).abs() < 1e3, "{ledger:?}");
    }
}

#[test]
fn a_comparison_has_at_most_so_many_pairs() {
    let mut host = Host::new(1);
    for number in 0..super::MOST_PAIRS + 50 {
        host.process(&format!("p{number}"), None, |_| (number as u64 % 7, 2, None));
    }
    let records = host.records();
    let found = compared(&records, &records);
    assert_eq!(found.processes.len(), super::MOST_PAIRS);
}

/// `writer` is paused for its dirty pages for so many milliseconds of each second.
fn paused(seconds: u64, paused_ms: impl Fn(u64) -> u64) -> Vec<Record> {
    let mut host = Host::new(seconds);
    let writer = host.process("writer", None, |s| (about(100, s), 0, None));
    for second in 0..seconds {
        let pauses = paused_ms(second) / 10;
        let at = second * S..(second + 1) * S;
        host.scene.io_wait(at, writer, StallKind::DirtyThrottle, None, &[(pauses, 10 * MS)]);
    }
    host.records()
}

#[test]
fn an_io_finding_is_told_from_chance_by_what_its_victim_loses() {
    let told = |a: &[Record], b: &[Record]| {
        let found = compared(a, b);
        let finding = found.findings.iter().find(|it| it.code == "BLK006").unwrap().clone();
        (found.verdict.outcome, finding.change, finding.beyond_chance)
    };
    let (none, much) = (paused(30, |_| 0), paused(30, |s| about(300, s)));
    assert_eq!(told(&none, &much), (Outcome::Worse, Change::New, Some(true)));
    assert_eq!(told(&much, &none), (Outcome::Better, Change::Gone, Some(true)));
    assert_eq!(told(&much, &much).1, Change::Alike);
    // The finding is there, but one pause in half a minute may be chance.
    let once = paused(30, |s| if (10..13).contains(&s) { 900 } else { 0 });
    assert_eq!(told(&none, &once), (Outcome::NoDifference, Change::New, Some(false)));
}

/// Requests that are under way are no loss by themselves.
#[test]
fn more_requests_at_once_are_no_verdict() {
    let host = |under_way_ms: u64| {
        let mut host = Host::new(30);
        let id = host.process("copy", None, |s| (about(100, s), 0, None));
        for second in 0..30 {
            let at = second * S..(second + 1) * S;
            let waits = [(about(under_way_ms, second), MS)];
            host.scene.io_wait(at, id, StallKind::Request, None, &waits);
        }
        host.records()
    };
    let found = compared(&host(100), &host(4000));
    assert_eq!(losses(&found), [(Loss::Requests, Change::Grown)]);
    assert_eq!(found.verdict.outcome, Outcome::NoDifference, "{:?}", found.verdict);
}

/// A recording of a host of which a snapshot says what it is.
fn with_facts(document: &str) -> Vec<Record> {
    let mut host = Host::new(10);
    host.process("api", None, |s| (about(200, s), 0, None));
    host.scene.push(Record::HostFacts(Box::new(HostFacts { document: document.into() })));
    host.records()
}

const HEALTHY: &str = include_str!("../../../../fixtures/snapshots/drift-healthy.json");
const SLOW: &str = include_str!("../../../../fixtures/snapshots/drift-slow.json");

#[test]
fn how_the_hosts_differ_is_told_and_not_taken_for_the_reason() {
    let found = compared(&with_facts(HEALTHY), &with_facts(SLOW));
    assert_eq!(found.verdict.outcome, Outcome::NoDifference, "{:?}", found.verdict);
    let told = found.configuration.unwrap();
    let snapshots = [HEALTHY, SLOW].map(|it| Snapshot::parse(it.as_bytes()).unwrap());
    let hosts = [&snapshots[0], &snapshots[1]].map(|snapshot| HostInput {
        snapshot,
        label: "",
        slow: None,
        golden: false,
    });
    let wanted = crate::host_diff::diff(&hosts, &[], "");
    assert_eq!((told.facts, told.differences), (wanted.facts, wanted.differences));
    let found = compared(&with_facts(SLOW), &with_facts(SLOW));
    assert_eq!(found.configuration.unwrap().differences, []);
}

#[test]
fn facts_that_are_not_there_or_cannot_be_read_are_named() {
    let bare = neighbours(10, 100, 20);
    let notes = |a: &[Record], b: &[Record]| {
        let found = compared(a, b);
        assert!(found.configuration.is_none());
        found.notes.join("\n")
    };
    assert!(notes(&bare, &bare).starts_with("A and B: each says nothing"));
    assert!(notes(&with_facts(SLOW), &bare).starts_with("B says nothing"));
    let garbled = notes(&with_facts("{}"), &with_facts(SLOW));
    assert!(garbled.starts_with("A has facts") && garbled.contains("schema"), "{garbled}");
}

/// Seconds of three processes.
fn any_host() -> impl Strategy<Value = Vec<Record>> {
    let second = prop::collection::vec((0..900u64, 0..900u64), 3);
    prop::collection::vec(second, 1..25).prop_map(|seconds| {
        let mut host = Host::new(seconds.len() as u64);
        for (at, comm) in ["api", "batch", "cron"].into_iter().enumerate() {
            host.process(comm, None, |s| {
                let (on_cpu, queued) = seconds[s as usize][at];
                (on_cpu, queued, Some(ProcId(1 + (at as u32 + 1) % 3)))
            });
        }
        host.records()
    })
}

fn mirrored(change: Change) -> Change {
    match change {
        Change::New => Change::Gone,
        Change::Gone => Change::New,
        Change::Grown => Change::Shrunk,
        Change::Shrunk => Change::Grown,
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_recording_does_not_differ_from_itself(host in any_host()) {
        let found = compared(&host, &host);
        prop_assert!(matches!(found.verdict.outcome, Outcome::NoDifference | Outcome::NotComparable));
        prop_assert!(losses(&found).iter().all(|(_, it)| matches!(it, Change::Alike | Change::NotComparable)));
        let alike = [Change::Alike, Change::InBoth, Change::NotComparable];
        prop_assert!(found.findings.iter().all(|it| alike.contains(&it.change)));
        prop_assert!(found.unpaired.is_empty());
    }

    #[test]
    fn who_is_called_a_does_not_matter(a in any_host(), b in any_host()) {
        let (there, back) = (compared(&a, &b), compared(&b, &a));
        let mut there_changes: Vec<_> =
            losses(&there).into_iter().map(|(loss, it)| (loss, mirrored(it))).collect();
        let mut back_changes = losses(&back);
        there_changes.sort();
        back_changes.sort();
        prop_assert_eq!(there_changes, back_changes);
        let mut there_found: Vec<_> = there.findings.iter().map(|it| (&it.code, mirrored(it.change))).collect();
        let mut back_found: Vec<_> = back.findings.iter().map(|it| (&it.code, it.change)).collect();
        there_found.sort();
        back_found.sort();
        prop_assert_eq!(there_found, back_found);
        for it in there.processes.iter().chain(&back.processes).flat_map(|pair| &pair.losses) {
            let sum: f64 = it.behind.iter().map(|it| it.share.get()).sum();
            prop_assert!((0.0..=1.0 + 1e-9).contains(&sum), "{:?}", it);
            prop_assert!(it.chance.is_none_or(|it| (0.0..=1.0).contains(&it)));
        }
        let document = crate::render::json_document(&there).unwrap();
        prop_assert_eq!(serde_json::from_str::<Comparison>(&document).unwrap().verdict.outcome, there.verdict.outcome);
    }
}

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/compare");

/// `UPDATE=1 cargo test` rewrites the golden files.
#[test]
fn comparisons_look_as_they_are_kept() {
    let style = crate::render::TextStyle { columns: 100, color: false, verbosity: 1 };
    let mut hostile = Host::new(10);
    let cgroup = hostile.cgroup("/\u{1b}[2Jx`\n");
    hostile.process("`\u{1b}]0;x", Some(cgroup), |s| (about(100, s), about(200, s), None));
    let hostile = hostile.records();
    let kept = [
        ("worse", compared(&neighbours(20, 100, 20), &neighbours(20, 900, 300))),
        ("alike", compared(&neighbours(30, 100, 100), &neighbours(30, 900, 100))),
        ("short", compared(&neighbours(5, 100, 20), &neighbours(5, 900, 300))),
        ("hostile", compared(&hostile, &hostile)),
    ]
    .map(|(name, it)| (format!("{name}.txt"), crate::render::comparison(&it, style)));
    crate::render::golden::assert_kept(FOLDER, &kept);
    assert!(kept.iter().all(|(_, text)| !text.contains('\u{1b}')));
}
