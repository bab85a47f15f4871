// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenes and decoys of interrupts.

use super::decoys::finding;
use super::scenes::{healthy, no_bpf};
use super::{codes, judged};
use crate::finding::{Finding, InterruptPart, Severity};
use crate::recording::{
    CpuTimeReading, InterruptContext, InterruptKind, InterruptTick, ProcId, Record, SleepState,
    SleepTick, SleptOn, WokenBy,
};
use crate::testkit::{MS, ProcessActivity, S, Scene, US, interrupts};
use crate::text::Share;
use proptest::prelude::*;

/// A service that computes half of the time, and another process that sends.
fn service() -> (Scene, ProcId, ProcId) {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_interrupts();
    let (api, sender) = (scene.process("api", None), scene.process("sender", None));
    scene.target(api);
    for id in [api, sender] {
        scene.did(id, &ProcessActivity { on_cpu_ns: 5 * S, ..ProcessActivity::default() });
    }
    (scene, api, sender)
}

pub(super) fn scene(kind: &str) -> Option<Scene> {
    let (mut scene, api, sender) = service();
    Some(match kind {
        "fires" => {
            let of_disk = InterruptTick {
                kind: InterruptKind::Device,
                irq: Some(36),
                name: "virtio1-req.0".into(),
                ..interrupts(api, 120 * MS, 9_000)
            };
            let own = |proc, ns| InterruptTick {
                context: InterruptContext::OwnCall,
                ..interrupts(proc, ns, 40_000)
            };
            for (t_ns, user_ns, system_ns) in [(0, 0, 0), (10 * S, 3200 * MS, 1800 * MS)] {
                scene.push(Record::CpuTime(CpuTimeReading { t_ns, proc: api, user_ns, system_ns }));
            }
            scene
                .interrupts(interrupts(api, 1200 * MS, 60_000))
                .interrupts(of_disk)
                .interrupts(own(api, 80 * MS))
                .interrupts(own(sender, 300 * MS))
                .interrupts(interrupts(ProcId::OTHERS, 900 * MS, 50_000));
            scene
        }
        "quiet" => healthy(),
        "nodata" => no_bpf(),
        _ => return None,
    })
}

fn found(ticks: impl IntoIterator<Item = InterruptTick>) -> Option<Finding> {
    let (mut scene, ..) = service();
    for tick in ticks {
        scene.interrupts(tick);
    }
    let report = judged(&scene);
    let found = codes(&report).contains(&"IRQ001");
    found.then(|| finding(&report, "IRQ001").clone())
}

const API: ProcId = ProcId(1);
const SENDER: ProcId = ProcId(2);

#[test]
fn what_interrupts_most_is_named_with_its_cpu_and_its_rhythm() {
    let report = judged(&scene("fires").unwrap());
    let found = finding(&report, "IRQ001");
    assert_eq!((found.severity, found.cost.lost_ns_per_s), (Severity::High, 132_000_000));
    assert!(found.title.contains("`NET_RX` on CPU 1"), "{}", found.title);
    assert_eq!(found.rhythm_ns, Some(5 * MS), "5 s of its time, 1000 bursts");
    let names: Vec<_> = found.causes.iter().filter_map(|it| it.entity.comm.as_deref()).collect();
    assert_eq!(names, ["NET_RX", "virtio1-req.0"]);
    let share = report.ledger[0].interrupted.unwrap().get();
    assert!((share - 1.32 / 5.0).abs() < 1e-9, "its own calls are its own: {share}");
}

/// The host serves as many soft interrupts for as long, on another CPU or while another process runs.
#[test]
fn who_is_not_interrupted_loses_nothing_to_a_flood() {
    assert!(found([interrupts(API, 1200 * MS, 60_000)]).is_some());
    let elsewhere = InterruptTick { cpu: 2, ..interrupts(ProcId::OTHERS, 9 * S, 900_000) };
    assert_eq!(found([elsewhere, interrupts(SENDER, S, 60_000)]), None);
}

/// What the ledger of the service says of its interrupts: the share of its time on CPUs, and the parts.
fn told(ticks: impl IntoIterator<Item = InterruptTick>) -> (Share, Vec<InterruptPart>) {
    let (mut scene, ..) = service();
    for tick in ticks {
        scene.interrupts(tick);
    }
    let ledger = judged(&scene).ledger.swap_remove(0);
    (ledger.interrupted.unwrap(), ledger.interrupted_by)
}

fn of_device(irq: u32, ns: u64) -> InterruptTick {
    let (kind, name) = (InterruptKind::Device, format!("virtio{irq}-input.0"));
    InterruptTick { kind, irq: Some(irq), name, ..interrupts(API, ns, 900) }
}

/// On two CPUs, hard and soft. The decoys: interrupts of the same kinds on a CPU that another process held, or nobody, and
/// those that its own calls asked for.
#[test]
fn the_ledger_says_by_which_interrupts_time_was_taken() {
    let of = |kind, name: &str, ns| InterruptTick {
        kind,
        name: name.into(),
        ..interrupts(API, ns, 900)
    };
    let on_cpu_2 = InterruptTick { cpu: 2, ..interrupts(API, 100 * MS, 900) };
    let context = InterruptContext::NotKnown;
    let not_known = InterruptTick { context, ..interrupts(API, 50 * MS, 900) };
    let context = InterruptContext::OwnCall;
    let (share, parts) = told([
        interrupts(API, 200 * MS, 900),
        on_cpu_2,
        not_known,
        of(InterruptKind::Timer, "", 90 * MS),
        of(InterruptKind::Processor, "CAL", 30 * MS),
        of_device(36, 80 * MS),
        InterruptTick { context, ..interrupts(API, 700 * MS, 900) },
        InterruptTick { cpu: 2, ..interrupts(SENDER, 3 * S, 900) },
        InterruptTick { proc: ProcId::OTHERS, ..of_device(37, 2 * S) },
    ]);
    let brief = |it: &InterruptPart| (it.kind, it.irq, it.name.clone(), it.ns, it.not_known_ns);
    let parts: Vec<_> = parts.iter().map(brief).collect();
    let (device, name) = (InterruptKind::Device, |name: &str| Some(name.to_owned()));
    assert_eq!(
        parts,
        [
            (InterruptKind::Soft, None, name("NET_RX"), 350 * MS, 50 * MS),
            (InterruptKind::Timer, None, None, 90 * MS, 0),
            (device, Some(36), name("virtio36-input.0"), 80 * MS, 0),
            (InterruptKind::Processor, None, name("CAL"), 30 * MS, 0),
        ]
    );
    assert!((share.get() - 0.55 / 5.0).abs() < 1e-9, "{share:?}");
}

#[test]
fn no_source_of_interrupts_is_left_out() {
    let (_, parts) = told((1..=40).map(|irq| of_device(irq, u64::from(irq) * MS)));
    let sources: u32 = parts.iter().map(|it| it.sources.unwrap_or(1)).sum();
    let last = parts.last().unwrap();
    assert_eq!((parts.len(), sources, last.sources, last.irq), (13, 40, Some(28), None));
    assert_eq!(last.ns, (1..=28).sum::<u64>() * MS);
    // A sum of one would say less than it does.
    let (_, parts) = told((1..=13).map(|irq| of_device(irq, u64::from(irq) * MS)));
    assert!(parts.iter().all(|it| it.sources.is_none()), "{parts:?}");
}

#[test]
fn without_their_probe_nothing_is_said_of_interrupts() {
    let ledger = judged(&no_bpf()).ledger.swap_remove(0);
    assert_eq!((ledger.interrupted, ledger.interrupted_by), (None, vec![]));
}

proptest! {
    /// 5 s on CPUs, of which interrupts may have taken more, as two probes measured it.
    #[test]
    fn parts_of_what_interrupts_took_sum_to_it(
        all in proptest::collection::vec((0..60_u32, 0..2 * S, any::<bool>()), 0..40),
    ) {
        let tick = |&(irq, ns, is_known): &(u32, u64, bool)| {
            let not_known = InterruptContext::NotKnown;
            let context = if is_known { InterruptContext::Interrupts } else { not_known };
            InterruptTick { context, ..of_device(irq, ns) }
        };
        let (share, parts) = told(all.iter().map(tick));
        let sum: u64 = parts.iter().map(|it| it.ns).sum();
        prop_assert_eq!(sum, all.iter().map(|it| it.1).sum::<u64>().min(5 * S));
        prop_assert!((share.get() - sum as f64 / 5e9).abs() < 1e-9);
        prop_assert!(parts.iter().all(|it| it.ns > 0 && it.not_known_ns <= it.ns));
        prop_assert!(parts.len() <= 13);
    }
}

#[test]
fn many_interrupts_of_little_time_are_no_reason() {
    let each = |ns, count: u64| found([interrupts(API, ns * count, count)]).map(|it| it.severity);
    assert_eq!(each(US, 400_000), None, "40 000 a second, 40 ms of each");
    assert_eq!(each(4 * US, 400_000), Some(Severity::High));
}

/// Whoever sets timers is not observed, and sends nothing.
#[test]
fn who_sets_timers_is_not_known_and_how_to_see_it_is_told() {
    let timers = InterruptTick {
        kind: InterruptKind::Timer,
        name: String::new(),
        ..interrupts(API, 1600 * MS, 320_000)
    };
    let said = |found: &Finding| {
        let notes = found.evidence.iter().filter_map(|line| line.note.as_ref());
        notes.chain(found.fix.iter().map(|fix| &fix.action)).fold(String::new(), |all, it| all + it)
    };
    let of_timers = said(&found([timers]).unwrap());
    let of_packets = said(&found([interrupts(API, 1600 * MS, 320_000)]).unwrap());
    for (words, of) in [
        ("who sets these timers is not observed", &of_timers),
        ("timer:hrtimer_start", &of_timers),
        ("nobody send so much", &of_packets),
    ] {
        let other = if std::ptr::eq(of, &of_timers) { &of_packets } else { &of_timers };
        assert!(of.contains(words) && !other.contains(words), "{words}: {of_timers}\n{of_packets}");
    }
}

/// A process that sends to its own host serves the soft interrupts of what it sends, at the end of its calls.
#[test]
fn what_a_process_asks_for_itself_is_its_work() {
    let own = |context| InterruptTick { context, ..interrupts(API, 2 * S, 400_000) };
    assert_eq!(found([own(InterruptContext::OwnCall)]), None);
    let confidence = |context| found([own(context)]).unwrap().confidence;
    let told = confidence(InterruptContext::Interrupts);
    assert!(confidence(InterruptContext::NotKnown) < 0.6 * told);
}

fn inet() -> SleptOn {
    SleptOn::Inet {
        protocol: "tcp".into(),
        listens: Some(true),
        port: Some(443),
        remote: None,
        asked: Some(false),
        ready: true,
    }
}

/// It waits for clients of the network: packets that interrupt it may be theirs.
#[test]
fn who_waits_for_the_network_may_be_interrupted_by_its_own_packets() {
    let confidence = |on: SleptOn| {
        let (mut scene, api, _) = service();
        scene.interrupts(interrupts(api, 1200 * MS, 60_000));
        scene.push(Record::Sleep(Box::new(SleepTick {
            t0_ns: 0,
            t1_ns: 10 * S,
            proc: api,
            state: SleepState::Asleep,
            call: "epoll_wait".into(),
            on,
            woken: WokenBy::SoftInterrupt,
            thread: None,
            entry: None,
            asked: None,
            in_request: None,
            behind: vec![],
            ns: 4 * S,
            looked_at: 9,
            longest_ns: S,
        })));
        let report = judged(&scene);
        finding(&report, "IRQ001").confidence
    };
    assert!(confidence(inet()) < 0.7 * confidence(SleptOn::NotKnown));
}

/// Other CPUs have this one called: for a thread that is alone in its process, others must do that. Threads of one process do
/// it to each other.
#[test]
fn who_has_several_threads_may_be_interrupted_by_them() {
    let found = |threads| {
        let mut scene = Scene::new(4, 10 * S);
        scene.sees_interrupts();
        let api = scene.process("api", None);
        scene.target(api);
        let did = ProcessActivity { on_cpu_ns: 5 * S, threads, ..ProcessActivity::default() };
        scene.did(api, &did).interrupts(InterruptTick {
            kind: InterruptKind::Processor,
            name: "CAL".into(),
            ..interrupts(api, 1200 * MS, 60_000)
        });
        finding(&judged(&scene), "IRQ001").clone()
    };
    let [alone, several] = [1, 4].map(found);
    assert!(alone.title.contains("calls by other CPUs (CAL) on CPU 1"), "{}", alone.title);
    assert_eq!(alone.causes[0].entity.comm.as_deref(), Some("CAL"));
    assert!(alone.fix[0].action.contains("ipi:ipi_send_cpu"), "{:?}", alone.fix);
    let own = |it: &Finding| it.evidence.iter().any(|line| line.name == "own threads");
    assert!(own(&several) && !own(&alone));
    assert!(several.confidence < 0.7 * alone.confidence);
}

/// What may be pasted against what interrupts a service that may use the CPUs `mask`.
fn pasted(mask: Option<&str>, ticks: impl IntoIterator<Item = InterruptTick>) -> Vec<String> {
    let (mut scene, api, _) = service();
    scene.facts(api, |process| process.cpus_allowed = mask.map(str::to_owned));
    for tick in ticks {
        scene.interrupts(tick);
    }
    let fixes = finding(&judged(&scene), "IRQ001").fix.clone();
    assert!(fixes.iter().all(|fix| fix.expect.is_none()), "nothing is promised: {fixes:?}");
    fixes.into_iter().filter_map(|fix| fix.command).collect()
}

#[test]
fn who_stays_on_the_cpu_of_the_interrupts_is_sent_to_others() {
    let storm = || interrupts(API, 1200 * MS, 60_000);
    assert_eq!(pasted(Some("1"), [storm()]), ["taskset -acp 0,2-3 1001"]);
    assert_eq!(pasted(Some("0-3"), [storm()]), ["taskset -acp 0,2-3 1001"]);
    assert_eq!(pasted(None, [storm()]), [""; 0], "where it may run is not known");
    let elsewhere = |ns| InterruptTick { cpu: 2, ..interrupts(API, ns, 5_000) };
    assert_eq!(pasted(Some("0-3"), [storm(), elsewhere(130 * MS)]).len(), 1);
    assert_eq!(pasted(Some("0-3"), [storm(), elsewhere(140 * MS)]), [""; 0], "it moves about");
    let calls = InterruptTick { kind: InterruptKind::Processor, name: "CAL".into(), ..storm() };
    assert_eq!(pasted(Some("1"), [calls]), [""; 0], "calls follow their threads");
}

#[test]
fn the_interrupt_of_a_device_goes_where_the_service_does_not_run() {
    let of_disk = |ns, irq| InterruptTick {
        kind: InterruptKind::Device,
        irq,
        name: "nvme0q1; reboot".into(),
        ..interrupts(API, ns, 9_000)
    };
    let own = "taskset -acp 0,2-3 1001";
    let moved = |list: &str| format!("echo {list} > /proc/irq/36/smp_affinity_list");
    assert_eq!(pasted(Some("1"), [of_disk(S, Some(36))]), [moved("0,2-3").as_str(), own]);
    let shared = pasted(Some("0-1"), [of_disk(S, Some(36))]);
    assert_eq!(shared, [moved("2-3").as_str(), "taskset -acp 0 1001"]);
    assert_eq!(pasted(Some("1"), [of_disk(S, None)]), [own], "which one it is, is not known");
    let less = [interrupts(API, S, 9_000), of_disk(S / 2, Some(36))];
    assert_eq!(pasted(Some("1"), less), [own], "most of the loss would be left");
}
