// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenes and decoys of the network.

use super::scenes::{healthy, no_bpf};
use super::{codes, judged};
use crate::finding::{EntityKind, Severity};
use crate::recording::{
    AcceptQueueTick, Coverage, DatagramTick, HeldBackTick, ListenerTick, NetnsTick, ProcId, Record,
    ResentTick, SendingTick, Source, State, UnreadTick,
};
use crate::testkit::{MS, ProcessActivity, S, Scene};

const LOCAL: &str = "10.0.0.1:40312";

/// Everything about the network is seen.
pub(super) fn covered(scene: &mut Scene) {
    for source in [Source::Tcp, Source::Connections, Source::Unread, Source::Sockets] {
        scene.push(Record::Coverage(Coverage { t_ns: 0, source, state: State::Active }));
    }
}

/// A service that is the target, beside another process.
fn service() -> (Scene, ProcId, ProcId) {
    let mut scene = Scene::new(4, 10 * S);
    covered(&mut scene);
    scene.cgroup("/", None, None);
    let group = scene.cgroup("/api.service", None, None);
    let (api, other) = (scene.process("api", Some(group)), scene.process("backup", None));
    scene.target(api);
    for id in [api, other] {
        scene.did(id, &ProcessActivity { on_cpu_ns: S, ..ProcessActivity::default() });
    }
    (scene, api, other)
}

/// A connection to a database with these timeouts of 200 ms, and 20 losses that answers showed in so many segments.
fn resent(proc: Option<ProcId>, timeouts: u64, data_segments: u64) -> Record {
    Record::Resent(Box::new(ResentTick {
        t0_ns: 0,
        t1_ns: 10 * S,
        proc,
        netns: Some(7),
        local: Some(LOCAL.into()),
        remote: Some("10.0.0.2:5432".into()),
        connections: 1,
        times: timeouts + 60,
        timeouts,
        timeout_ns: timeouts * 200 * MS,
        recoveries: 20,
        recovery_ns: 20 * 9 * MS,
        srtt_ns: Some(9 * MS),
        rto_ns: 209 * MS,
        segments: timeouts + 60,
        data_segments,
        total_segments: timeouts + 60,
        ..ResentTick::default()
    }))
}

fn datagrams(proc: Option<ProcId>, drops: u64) -> Record {
    Record::Datagrams(Box::new(DatagramTick {
        t0_ns: 0,
        t1_ns: 10 * S,
        proc,
        netns: 7,
        local: "0.0.0.0:8125".into(),
        remote: None,
        drops,
        waiting_bytes: 212_000,
        buffer_bytes: Some(212_992),
        most_buffer_bytes: Some(212_992),
    }))
}

fn listener(proc: Option<ProcId>, drops: Option<u64>) -> Record {
    Record::Listener(Box::new(ListenerTick {
        t0_ns: 0,
        t1_ns: 10 * S,
        proc,
        netns: 7,
        local: "0.0.0.0:443".into(),
        drops,
        waiting: 129,
        limit: Some(128),
        most_limit: Some(4096),
    }))
}

fn requests(opened: u64, overflows: u64, drops: u64) -> Record {
    let (t0_ns, t1_ns, netns) = (0, 10 * S, 7);
    Record::Netns(Box::new(NetnsTick { t0_ns, t1_ns, netns, opened, overflows, drops }))
}

/// A connection to a queue that takes what comes more slowly than it is sent, in ten seconds.
fn sending(
    proc: Option<ProcId>,
    accepted: Option<bool>,
    (busy_ms, window_ms, buffer_ms): (u64, u64, u64),
) -> Record {
    Record::Sending(Box::new(SendingTick {
        t0_ns: 0,
        t1_ns: 10 * S,
        proc,
        netns: Some(7),
        local: Some(LOCAL.into()),
        remote: Some("10.0.0.3:9092".into()),
        peer: None,
        connections: 1,
        accepted,
        busy_ns: busy_ms * MS,
        window_ns: window_ms * MS,
        buffer_ns: buffer_ms * MS,
        srtt_ns: Some(2 * MS),
        window_bytes: 0,
        buffer_bytes: 87_040,
        waiting_bytes: 61_440,
    }))
}

/// An event loop for which something waited in so many milliseconds of ten seconds, while it was on a CPU, queued and asleep.
fn unread(proc: ProcId, (on_cpu_ms, queued_ms, asleep_ms): (u64, u64, u64)) -> Record {
    let late_ms = on_cpu_ms + queued_ms + asleep_ms;
    Record::Unread(Box::new(UnreadTick {
        t0_ns: 0,
        t1_ns: 10 * S,
        proc: Some(proc),
        tid: Some(42),
        connections: 40,
        looks: 100,
        occupied_looks: (on_cpu_ms + asleep_ms) / 100,
        samples: late_ms / 100 * 12,
        unread_ns: late_ms * 12 * MS,
        late_ns: late_ms * MS,
        on_cpu_ns: on_cpu_ms * MS,
        queued_ns: queued_ms * MS,
        asleep_ns: asleep_ms * MS,
        longest_ns: 380 * MS,
        local: "10.0.0.1:6379".into(),
        remote: "10.0.0.9:51200".into(),
        waiting_bytes: 64,
    }))
}

/// Eight clients at a time that waited to be accepted in so many milliseconds of ten seconds.
fn accept_queue(proc: ProcId, late_ms: u64) -> Record {
    Record::AcceptQueue(Box::new(AcceptQueueTick {
        t0_ns: 0,
        t1_ns: 10 * S,
        proc: Some(proc),
        inode: Some(17),
        local: "10.0.0.1:8085".into(),
        looks: 100,
        late_looks: late_ms / 100,
        waiting_ns: 8 * late_ms * MS,
        late_ns: late_ms * MS,
        most_waiting: 9,
        longest_ns: 398 * MS,
    }))
}

/// A connection that held something back in so many milliseconds of ten seconds.
fn held_back(proc: ProcId, held_ms: u64) -> Record {
    Record::HeldBack(Box::new(HeldBackTick {
        t0_ns: 0,
        t1_ns: 10 * S,
        proc: Some(proc),
        local: "10.0.0.1:40100".into(),
        remote: "10.0.0.2:6379".into(),
        looks: 100,
        held_looks: held_ms / 100,
        corked_looks: 0,
        held_ns: held_ms * MS,
        longest_ns: 39 * MS,
        most_bytes: 200,
    }))
}

pub(super) fn scene(code: &str, kind: &str) -> Option<Scene> {
    let (mut scene, api, _) = service();
    match (code, kind) {
        ("NET001", "fires") => scene.push(resent(Some(api), 8, 4000)),
        ("NET002", "fires") => {
            scene.push(requests(900, 100, 100)).push(listener(Some(api), Some(100)))
        }
        ("NET003", "fires") => scene.push(datagrams(Some(api), 8067)),
        ("NET004", "fires") => scene.push(sending(Some(api), Some(false), (8000, 6500, 0))),
        ("NET004", "quiet") => scene.push(sending(Some(api), Some(true), (8000, 6500, 0))),
        ("NET005", "fires") => scene.push(unread(api, (1900, 100, 0))),
        ("NET005", "quiet") => scene.push(unread(api, (100, 1900, 0))),
        ("NET006", "fires") => scene.push(accept_queue(api, 9900)),
        ("NET006", "quiet") => scene.push(accept_queue(api, 100)),
        ("NET007", "fires") => scene.push(held_back(api, 9200)),
        ("NET007", "quiet") => scene.push(held_back(api, 100)),
        (_, "quiet") => return Some(healthy()),
        ("NET001", "nodata") => return Some(no_bpf()),
        ("NET004", "nodata") => {
            scene.without(Source::Connections, "this kernel has no iterator over files", "")
        }
        ("NET005" | "NET006" | "NET007", "nodata") => {
            scene.without(Source::Unread, "this kernel has no iterator over files", "")
        }
        (_, "nodata") => {
            scene.without(Source::Sockets, "`/proc/self/net/netstat` cannot be read", "")
        }
        _ => return None,
    };
    Some(scene)
}

fn severity(code: &str, records: impl IntoIterator<Item = Record>) -> Option<Severity> {
    let (mut scene, ..) = service();
    for record in records {
        scene.push(record);
    }
    let report = judged(&scene);
    let found = report.findings.iter().find(|finding| finding.code == code);
    assert_eq!(found.is_some(), codes(&report).contains(&code));
    found.map(|finding| finding.severity)
}

/// Segments are sent again, as on every busy path, and no timer expires: the connection goes on meanwhile.
#[test]
fn losses_that_are_repaired_on_the_way_are_no_loss_of_time() {
    let api = Some(ProcId(1));
    assert_eq!(severity("NET001", [resent(api, 0, 600_000)]), None);
    // As many, with timers that expired.
    assert_eq!(severity("NET001", [resent(api, 8, 600_000)]), Some(Severity::High));
}

#[test]
fn what_timers_waited_decides_how_bad_it_is() {
    let api = Some(ProcId(1));
    let of = |timeouts| severity("NET001", [resent(api, timeouts, 4000)]);
    assert_eq!(
        [of(0), of(1), of(2), of(5)],
        [None, Some(Severity::Low), Some(Severity::Low), Some(Severity::High)]
    );
    // One of a hundred connections.
    let many = (0..100).map(|n| match resent(api, 1, 4000) {
        Record::Resent(mut it) => {
            it.remote = Some(format!("10.0.1.{n}:5432"));
            it.timeout_ns = 2 * MS;
            Record::Resent(it)
        }
        other => other,
    });
    assert_eq!(severity("NET001", many), None);
}

/// Somebody else's connection, socket and queue: in the recording, and not of the target.
#[test]
fn what_others_lose_is_not_the_targets() {
    let (mut scene, _, other) = service();
    for proc in [Some(other), None] {
        scene.push(resent(proc, 40, 4000)).push(datagrams(proc, 8067));
        scene.push(listener(proc, Some(100)));
        scene.push(sending(proc, Some(false), (8000, 6500, 0)));
    }
    scene.push(requests(900, 100, 100));
    let report = judged(&scene);
    assert!(!codes(&report).iter().any(|code| code.starts_with("NET")), "{:?}", codes(&report));
}

/// Where the target is the host, what nobody is known to own counts as well.
#[test]
fn on_a_host_nobodys_sockets_count() {
    let mut scene = Scene::new(4, 10 * S);
    covered(&mut scene);
    scene.push(resent(None, 40, 4000)).push(datagrams(None, 8067));
    scene.push(requests(900, 100, 100)).push(listener(None, None));
    let report = judged(&scene);
    let found: Vec<&str> =
        codes(&report).into_iter().filter(|code| code.starts_with("NET")).collect();
    assert_eq!(found.len(), 3, "{found:?}");
}

/// A listening socket drops requests for another reason than a full queue.
#[test]
fn requests_that_are_dropped_for_another_reason_are_no_full_queue() {
    let api = Some(ProcId(1));
    let of =
        |overflows| severity("NET002", [requests(900, overflows, 100), listener(api, Some(100))]);
    assert_eq!((of(0), of(100)), (None, Some(Severity::High)));
}

#[test]
fn the_share_of_requests_decides_how_bad_it_is() {
    let api = Some(ProcId(1));
    let of = |opened, drops| {
        severity("NET002", [requests(opened, drops, drops), listener(api, Some(drops))])
    };
    assert_eq!(of(0, 2), None);
    assert_eq!(of(100_000, 50), None);
    assert_eq!(of(100_000, 200), Some(Severity::Low));
    assert_eq!(of(10_000, 200), Some(Severity::Medium));
    assert_eq!(of(1000, 200), Some(Severity::High));
}

/// A few datagrams are lost, as at a start.
#[test]
fn the_number_of_datagrams_decides_how_bad_it_is() {
    let api = Some(ProcId(1));
    let of = |drops| severity("NET003", [datagrams(api, drops)]);
    assert_eq!(
        [of(9), of(10), of(100), of(1000)],
        [None, Some(Severity::Low), Some(Severity::Medium), Some(Severity::High)]
    );
}

/// Whoever waits for a CPU or a quota reads late, too: that is told by the findings about these.
#[test]
fn what_waits_for_a_reader_that_waits_for_a_cpu_is_no_loss_of_its_own() {
    let of = |ms| severity("NET005", [unread(ProcId(1), ms)]);
    assert_eq!(
        [of((900, 0, 0)), of((0, 9000, 0)), of((0, 0, 900))].map(|it| it.is_some()),
        [true, false, true]
    );
    assert_eq!(of((100, 9000, 0)), None);
    assert_eq!(
        [of((499, 0, 0)), of((500, 0, 0)), of((400, 0, 600))],
        [None, Some(Severity::Medium), Some(Severity::High)]
    );
}

/// Of one look, at which forty connections waited, nobody can say how long that was.
#[test]
fn many_connections_at_one_look_are_one_look() {
    let of = |occupied_looks| {
        let Record::Unread(mut it) = unread(ProcId(1), (1600, 0, 0)) else { unreachable!() };
        (it.looks, it.occupied_looks, it.samples) = (6, occupied_looks, 40);
        severity("NET005", [Record::Unread(it)])
    };
    assert_eq!((of(1), of(5)), (None, Some(Severity::High)));
}

/// Sixteen loops of a process, each of which is occupied for a part of the time, at other times than the others.
#[test]
fn loops_are_late_for_their_own_clients_only() {
    let loops = |on_cpu_ms| {
        (0..16).map(move |n| {
            let Record::Unread(mut it) = unread(ProcId(1), (on_cpu_ms, 0, 0)) else {
                unreachable!()
            };
            it.tid = Some(100 + n);
            it.occupied_looks = 9;
            Record::Unread(it)
        })
    };
    assert_eq!(severity("NET005", loops(190)), None);
    assert_eq!(severity("NET005", loops(210)), Some(Severity::Low));
}

#[test]
fn a_client_that_waits_now_and_then_to_be_accepted_is_no_queue() {
    let of = |late_ms| severity("NET006", [accept_queue(ProcId(1), late_ms)]);
    // Less than five looks, and then less than 20 ms of a second.
    assert_eq!([of(400), of(500), of(1000)], [None, Some(Severity::Medium), Some(Severity::High)]);
    let full = |drops| {
        let Record::AcceptQueue(mut it) = accept_queue(ProcId(1), 9900) else { unreachable!() };
        let Record::Listener(of) = listener(Some(ProcId(1)), Some(drops)) else { unreachable!() };
        it.local.clone_from(&of.local);
        severity("NET006", [Record::AcceptQueue(it), Record::Listener(of)])
    };
    assert_eq!([full(0), full(9)], [Some(Severity::High), Some(Severity::Medium)]);
    let with_looks = |late_ms| {
        let Record::AcceptQueue(mut it) = accept_queue(ProcId(1), late_ms) else { unreachable!() };
        it.late_looks = 9;
        severity("NET006", [Record::AcceptQueue(it)])
    };
    assert_eq!([with_looks(190), with_looks(200)], [None, Some(Severity::Low)]);
    // Sockets at which others wait are not added up, whether they share an address or not.
    let other = |n: u64| {
        let Record::AcceptQueue(mut it) = accept_queue(ProcId(1), 190) else { unreachable!() };
        (it.late_looks, it.inode, it.local) = (9, Some(n), format!("10.0.0.1:{}", n % 2));
        Record::AcceptQueue(it)
    };
    assert_eq!(severity("NET006", (1..9).map(other)), None);
}

#[test]
fn what_is_held_back_now_and_then_is_no_loss() {
    let of = |held_ms| severity("NET007", [held_back(ProcId(1), held_ms)]);
    // Less than five looks.
    assert_eq!([of(400), of(500), of(1000)], [None, Some(Severity::Medium), Some(Severity::High)]);
    // Connections are not added up.
    let other = |n: u64| {
        let Record::HeldBack(mut it) = held_back(ProcId(1), 190) else { unreachable!() };
        (it.held_looks, it.local) = (9, format!("10.0.0.1:{n}"));
        Record::HeldBack(it)
    };
    assert_eq!(severity("NET007", (1..9).map(other)), None);
}

#[test]
fn who_asks_for_a_cork_hears_of_it() {
    let title = |corked_looks| {
        let Record::HeldBack(mut it) = held_back(ProcId(1), 9200) else { unreachable!() };
        it.corked_looks = corked_looks;
        let (mut scene, ..) = service();
        scene.push(Record::HeldBack(it));
        let report = judged(&scene);
        report.findings.iter().find(|it| it.code == "NET007").unwrap().title.clone()
    };
    assert!(title(92).contains("TCP_CORK"), "{}", title(92));
    assert!(title(40).contains("until the other end acknowledges"), "{}", title(40));
}

/// Of two services that wait as long for answers, one asks late.
#[test]
fn who_holds_back_what_it_asks_does_not_wait_for_its_peer() {
    // The connections that held something back, to which address, and how long.
    let told = |connections: &[(&str, u64)]| {
        let mut scene = super::waiting::asks();
        for (n, (remote, held_ms)) in connections.iter().enumerate() {
            let Record::HeldBack(mut it) = held_back(ProcId(1), *held_ms) else { unreachable!() };
            (it.local, it.remote) = (format!("10.0.0.1:{n}"), (*remote).into());
            scene.push(Record::HeldBack(it));
        }
        let report = judged(&scene);
        let it = report.findings.iter().find(|it| it.code == "OFF002").unwrap();
        let is_remark = it.severity == Severity::Info;
        assert_eq!(
            it.title.contains("holds back what it asks (NET007)"),
            is_remark,
            "{}",
            it.title
        );
        assert_eq!(it.fix[0].action.contains("in one call"), is_remark, "{:?}", it.fix);
        assert_eq!(it.causes.is_empty(), is_remark, "{:?}", it.causes);
        (is_remark, it.evidence.iter().any(|line| line.name == "not asked yet"))
    };
    const PEER: &str = "10.0.0.7:5432";
    assert_eq!(told(&[(PEER, 10_000), (PEER, 9_000)]), (true, true));
    // Half of the time is the peer's; another address; and of no connection NET007 says anything.
    assert_eq!(told(&[(PEER, 4000)]), (false, true));
    assert_eq!(told(&[("10.0.0.8:5432", 10_000)]), (false, false));
    assert_eq!(told(&[(PEER, 400); 40]), (false, false));
}

/// Clients that read slowly, as a download over a phone does: whose fault a full window is decides.
#[test]
fn clients_that_read_slowly_delay_nobody_but_themselves() {
    let api = Some(ProcId(1));
    let of = |accepted, ms| severity("NET004", [sending(api, accepted, ms)]);
    let slow = (8000, 6500, 0);
    assert_eq!(
        [of(Some(false), slow), of(Some(true), slow), of(None, slow)],
        [Some(Severity::Medium), None, None]
    );
    // Its own buffer is its own, whoever asked for the connection.
    assert_eq!(of(Some(true), (8000, 0, 6500)), Some(Severity::Medium));
}

/// A bulk transfer fills the window of a reader that keeps up, for moments.
#[test]
fn a_window_that_is_full_now_and_then_is_no_slow_reader() {
    let of = |ms| severity("NET004", [sending(Some(ProcId(1)), Some(false), ms)]);
    assert_eq!(of((10_000, 950, 120)), None);
    assert_eq!(of((100, 95, 0)), None);
    assert_eq!(of((1500, 500, 0)), Some(Severity::Low));
    assert_eq!(of((1500, 1200, 0)), Some(Severity::Medium));
}

/// One slow connection of many is told, and one in a thousand of the time of many is not.
#[test]
fn of_many_connections_each_of_which_is_hardly_held_up_none_is_slow() {
    let many = |ms: u64| {
        (0..100).map(move |n| match sending(Some(ProcId(1)), Some(false), (10 * ms, 9 * ms, 0)) {
            Record::Sending(mut it) => {
                it.remote = Some(format!("10.0.1.{n}:9092"));
                Record::Sending(it)
            }
            other => other,
        })
    };
    assert_eq!(severity("NET004", many(5)), None);
    assert_eq!(severity("NET004", many(50)), Some(Severity::Low));
}

/// What holds up connections, as data.
#[test]
fn causes_are_those_of_the_loss_and_sum_to_no_more() {
    let (mut scene, api, other) = service();
    let to = |remote: &str, peer, window_ms| {
        let Record::Sending(mut it) = sending(Some(api), Some(false), (9000, window_ms, 0)) else {
            unreachable!()
        };
        (it.remote, it.peer) = (Some(remote.into()), peer);
        Record::Sending(it)
    };
    scene.push(to("127.0.0.1:5432", Some(other), 6000)).push(to("10.0.0.9:9092", None, 3000));
    scene.push(resent(Some(api), 40, 4000));
    scene.push(requests(900, 100, 100)).push(listener(Some(api), Some(100)));
    scene.push(datagrams(Some(api), 8067)).push(unread(api, (3000, 0, 0)));
    let report = judged(&scene);
    let causes = |code: &str| {
        let found = report.findings.iter().find(|it| it.code == code).expect(code);
        assert!(found.causes.iter().map(|it| it.share.get()).sum::<f64>() <= 1.0 + 1e-9);
        found.causes.clone()
    };
    let [local, remote] = &causes("NET004")[..] else { panic!() };
    assert_eq!(
        (local.entity.kind, local.entity.comm.as_deref(), local.entity.address.as_deref()),
        (EntityKind::Process, Some("backup"), Some("127.0.0.1:5432"))
    );
    assert!((local.share.get() - 2.0 / 3.0).abs() < 0.01, "{local:?}");
    assert_eq!(remote.entity.kind, EntityKind::Socket);
    let address = |code| causes(code)[0].entity.address.clone();
    assert_eq!(address("NET001").as_deref(), Some("10.0.0.2:5432"));
    assert_eq!(address("NET002").as_deref(), Some("0.0.0.0:443"));
    assert_eq!(address("NET003").as_deref(), Some("0.0.0.0:8125"));
    let reader = &causes("NET005")[0].entity;
    assert_eq!((reader.kind, reader.tid), (EntityKind::Thread, Some(42)));
    let net004 = report.findings.iter().find(|it| it.code == "NET004").unwrap();
    assert!(net004.title.contains("because `backup` (pid "), "{}", net004.title);
    assert!(net004.fix[0].command.as_deref().unwrap().starts_with("sudo deburr -p "));
}

/// What another process's connection to the same address is to is nothing to this one: it may be in another network namespace.
#[test]
fn who_has_the_other_end_is_known_for_each_process() {
    let (mut scene, api, other) = service();
    let of = |proc, peer| {
        let Record::Sending(mut it) = sending(Some(proc), Some(false), (9000, 6000, 0)) else {
            unreachable!()
        };
        it.peer = peer;
        Record::Sending(it)
    };
    scene.push(of(api, None)).push(of(other, Some(api)));
    let view = scene.view();
    let net = view.net();
    assert_eq!(net.at_other_end(api, "10.0.0.3:9092"), None);
    assert_eq!(net.at_other_end(other, "10.0.0.3:9092"), Some(api));
    assert_eq!(net.at_other_end(other, "10.0.0.4:9092"), None);
}
