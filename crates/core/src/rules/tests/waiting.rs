// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services whose threads wait for others, and decoys whose threads only seem to.

use super::judged;
use crate::finding::{Finding, Report, Severity, SleepKind};
use crate::recording::{
    Awaited, Did, Entry, KernelLock, ProcId, SleepState, Slept, SleptOn, Source, WokenBy,
};
use crate::testkit::{MS, ProcessActivity, S, Scene};

pub(super) const LOCK: u64 = 0x7f00_0000_00a8;

pub(super) fn slept(call: &str, on: SleptOn) -> Slept {
    let (state, woken) = (SleepState::Asleep, WokenBy::SoftInterrupt);
    Slept { state, call: call.into(), on, woken }
}

fn futex(value: u32, op: u32) -> Slept {
    slept("futex", SleptOn::Futex { address: LOCK, value, op, user: None })
}

pub(super) fn lock() -> Slept {
    futex(2, 0)
}

pub(super) fn condition() -> Slept {
    futex(0, 9)
}

fn file_lock() -> Slept {
    let (device, path) = ("8:1".into(), Some("/srv/a.db".into()));
    slept("flock", SleptOn::File { device, inode: 4711, path, served: false })
}

pub(super) fn connection(asked: Option<bool>) -> Slept {
    let (protocol, remote) = ("tcp".into(), Some("10.0.0.7:5432".into()));
    let (listens, port, ready) = (Some(false), None, false);
    slept("recvfrom", SleptOn::Inet { protocol, listens, port, remote, asked, ready })
}

pub(super) fn clients() -> Slept {
    let (protocol, remote) = ("tcp".into(), None);
    let (listens, port, asked, ready) = (Some(true), Some(8080), None, true);
    slept("epoll_wait", SleptOn::Inet { protocol, listens, port, remote, asked, ready })
}

/// Uninterruptible sleep in `mmap` that a thread of that process ended, in that call.
fn mapping(call: &str, proc: ProcId) -> Slept {
    let (state, woken) = (SleepState::Uninterruptible, WokenBy::Thread { proc, call: call.into() });
    Slept { state, woken, ..slept("mmap", SleptOn::NotKnown) }
}

/// Sleep in a write for a lock of the kernel, as it says itself, which a thread of that process released.
fn inode(lock: KernelLock, proc: ProcId) -> Slept {
    let path = Some("/srv/journal".into());
    let within = Box::new(SleptOn::File { device: "8:1".into(), inode: 7, path, served: false });
    let (state, call) = (SleepState::Uninterruptible, "write".to_owned());
    let woken = WokenBy::Thread { proc, call: "pwritev".into() };
    Slept { state, call, on: SleptOn::KernelLock { lock, within }, woken }
}

/// A socket that was made by the process itself, as one of a pair.
fn pair() -> Slept {
    slept("epoll_wait", SleptOn::Unix { peer: None, accepted: false, ready: true })
}

fn fsync() -> Did {
    let on = SleptOn::File { device: "8:1".into(), inode: 12, path: None, served: false };
    Did::Slept(Slept { state: SleepState::BlockIo, ..slept("fsync", on) })
}

pub(super) fn behind(proc: ProcId, thread: &str, did: Did) -> Vec<Awaited> {
    vec![Awaited { proc, thread: thread.into(), too: false, did }]
}

/// A service of 8 threads that sleep, each part as given: who slept how, behind what, and how long.
pub(super) fn service(parts: impl Fn(ProcId, ProcId) -> Vec<(Slept, Vec<Awaited>, u64)>) -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.cgroup("/", None, None);
    let api = scene.process("api", None);
    let other = scene.process("postgres", None);
    scene.target(api);
    let did = ProcessActivity { threads: 8, on_cpu_ns: 4 * S, ..ProcessActivity::default() };
    scene.did(api, &did).did(other, &ProcessActivity { threads: 1, ..did });
    for (slept, behind, ns) in parts(api, other) {
        scene.slept(api, "worker", (slept, behind), ns);
    }
    scene
}

/// Eight workers wait for a lock whose holder syncs a file, waits for a CPU, and computes.
pub(super) fn convoy() -> Scene {
    service(|api, _| {
        let by = |did| behind(api, "db-writer", did);
        vec![
            (lock(), by(fsync()), 20 * S),
            (lock(), by(Did::Queued), 6 * S),
            (lock(), by(Did::OnCpu), 3 * S),
            (lock(), vec![], S),
            (clients(), vec![], 40 * S),
        ]
    })
}

/// Workers without work: they wait on a condition for a dispatcher that waits for clients, and now and then runs.
fn pool() -> Scene {
    service(|api, _| {
        let by = |did| behind(api, "dispatcher", did);
        vec![
            (condition(), by(Did::Slept(clients())), 60 * S),
            (condition(), by(Did::OnCpu), 3 * S),
            (condition(), by(Did::NotSeen), 5 * S),
        ]
    })
}

/// A service that asks a database on this host, which reads its files.
pub(super) fn asks() -> Scene {
    service(|_, postgres| {
        vec![
            (connection(Some(true)), behind(postgres, "postgres", fsync()), 15 * S),
            (connection(Some(true)), behind(postgres, "postgres", Did::OnCpu), 5 * S),
            (clients(), vec![], 40 * S),
        ]
    })
}

/// A service whose dispatcher waits for a CPU while the workers wait for it.
fn late() -> Scene {
    service(|api, _| {
        let by = |did| behind(api, "dispatcher", did);
        vec![
            (condition(), by(Did::Slept(clients())), 40 * S),
            (condition(), by(Did::Queued), 12 * S),
        ]
    })
}

pub(super) fn timer() -> Slept {
    slept("clock_nanosleep", SleptOn::NotKnown)
}

/// A service whose workers sleep for 10 ms in each request.
fn naps() -> Scene {
    let mut scene = jobs(true);
    scene.timed(ProcId(1), ("worker-1", Some(0)), &timer(), (10 * MS, 11 * MS, 40));
    scene
}

/// A service whose threads map memory while one of them populates a large mapping.
fn maps() -> Scene {
    service(|api, _| {
        vec![
            (mapping("munmap", api), behind(api, "mapper", Did::OnCpu), 10 * S),
            (clients(), vec![], 50 * S),
        ]
    })
}

/// A service that sends to a process which is busy with something else.
fn sends() -> Scene {
    service(|_, other| {
        let waits = Slept { call: "sendto".into(), ..connection(Some(true)) };
        vec![(waits, behind(other, "postgres", Did::OnCpu), 10 * S), (clients(), vec![], 50 * S)]
    })
}

/// A service whose threads share a few connections to a database.
fn shares() -> Scene {
    service(|api, other| {
        let user = |too| Awaited {
            proc: api,
            thread: "worker".into(),
            too,
            did: Did::Slept(connection(Some(true))),
        };
        let database = behind(other, "postgres", Did::OnCpu);
        let chain = |first: Vec<Awaited>| first.into_iter().chain(database.clone()).collect();
        let waits = behind(api, "worker", Did::Slept(condition())).remove(0);
        vec![
            (condition(), chain(vec![user(true)]), 14 * S),
            // The user waited for its turn, too, behind another one.
            (condition(), chain(vec![waits, user(true)]), 6 * S),
            // A thread that hands out what it was answered, and takes no turns.
            (condition(), chain(vec![user(false)]), 9 * S),
            (connection(Some(true)), database.clone(), 5 * S),
        ]
    })
}

/// Processes that share a file, one of which syncs it with the lock held.
fn shared_file() -> Scene {
    service(|_, other| {
        vec![(file_lock(), behind(other, "postgres", fsync()), 8 * S), (clients(), vec![], 60 * S)]
    })
}

pub(super) fn scene(code: &str, kind: &str) -> Option<Scene> {
    Some(match (code, kind) {
        ("OFF001", "fires") => convoy(),
        ("OFF002", "fires") => asks(),
        ("OFF003", "fires") => late(),
        ("OFF004", "fires") => naps(),
        ("OFF005", "fires") => maps(),
        ("OFF006", "fires") => sends(),
        ("OFF007", "fires") => shared_file(),
        ("OFF008", "fires") => shares(),
        ("OFF009", "fires") => super::held_in_kernel::scanned(),
        ("OFF010", "fires") => super::runtime_stops::collects(),
        (_, "quiet") => pool(),
        (_, "nodata") => {
            let mut scene = Scene::new(4, 10 * S);
            scene.without(Source::Sched, "no BTF", "");
            scene
        }
        _ => return None,
    })
}

pub(super) fn finding<'r>(report: &'r Report, code: &str) -> &'r Finding {
    report.findings.iter().find(|it| it.code == code).expect(code)
}

fn found(report: &Report) -> Vec<&str> {
    report.findings.iter().map(|it| it.code.as_str()).filter(|it| it.starts_with("OFF")).collect()
}

#[test]
fn who_holds_a_lock_is_named_with_what_it_did() {
    let report = judged(&convoy());
    let it = finding(&report, "OFF001");
    assert_eq!(found(&report), ["OFF001"]);
    assert_eq!(it.causes[0].entity.comm.as_deref(), Some("db-writer"));
    assert!((it.causes[0].share.get() - 29.0 / 30.0).abs() < 1e-9);
    assert!(it.title.contains("`db-writer`") && it.title.contains("block IO"), "{}", it.title);
    assert_eq!(it.cost.lost_ns_per_s, 3 * S);
    let lines: Vec<(f64, &str)> = it
        .evidence
        .iter()
        .filter(|line| line.name == "behind")
        .map(|line| (line.value / S as f64, line.note.as_deref().unwrap_or_default()))
        .collect();
    assert_eq!(lines.iter().map(|(s, _)| *s).collect::<Vec<_>>(), [20.0, 6.0, 3.0, 1.0]);
    assert!(lines[0].1.contains("`db-writer` in fsync: inode 12 of 8:1, block IO"), "{lines:?}");
}

/// The waiting is there in all of these, and nobody is late.
#[test]
fn who_waits_for_work_for_clients_or_for_what_it_has_not_asked_for_has_no_finding() {
    let by = |api, did| behind(api, "dispatcher", did);
    for scene in [
        pool(),
        service(|_, _| vec![(clients(), vec![], 70 * S)]),
        // A subscriber, and one whose first answer has not come.
        service(|_, _| vec![(connection(Some(false)), vec![], 70 * S)]),
        service(|_, _| vec![(connection(None), vec![], 70 * S)]),
        // A thread that works off what another one makes every second.
        service(|api, _| vec![(condition(), by(api, Did::Slept(timer())), 70 * S)]),
        service(|_, _| vec![(timer(), vec![], 70 * S)]),
        // An event loop, which one of its own threads wakes through a pair of sockets.
        service(|api, _| vec![(pair(), by(api, Did::OnCpu), 20 * S)]),
        service(|api, _| vec![(pair(), by(api, Did::Slept(clients())), 70 * S)]),
        // A dispatcher that asks somebody, for workers that ask nobody.
        service(|api, other| {
            let asks = behind(api, "dispatcher", Did::Slept(connection(Some(true))));
            let answers = behind(other, "postgres", Did::Queued);
            vec![(condition(), asks.into_iter().chain(answers).collect(), 20 * S)]
        }),
        // Of this no thread is late; it computes.
        service(|api, _| vec![(condition(), by(api, Did::OnCpu), 20 * S)]),
        // A short wait for a lock, now and then.
        service(|api, _| vec![(lock(), by(api, Did::OnCpu), S / 10)]),
    ] {
        let report = judged(&scene);
        assert_eq!(found(&report), [] as [&str; 0], "{:?}", report.findings);
        let quiet = report.ruled_out.iter().filter(|it| it.code.starts_with("OFF")).count();
        assert_eq!(quiet, 10, "all of them were checked");
    }
}

/// Workers wait for jobs that a thread fetches, which asks a broker for them, and inside of a job for a helper, which asks a
/// database; a flusher waits for a lock.
fn jobs(with_entries: bool) -> Scene {
    let mut scene = service(|_, _| vec![]);
    let (api, other) = (ProcId(1), ProcId(2));
    let entry = with_entries.then_some(0);
    if with_entries {
        scene.meta(|meta| meta.entries = vec![Entry::Name { name: "worker*".into() }]);
    }
    let asks = |thread, did| {
        let asks = behind(api, thread, Did::Slept(connection(Some(true))));
        asks.into_iter().chain(behind(other, "postgres", did)).collect::<Vec<_>>()
    };
    let (fetches, helps) = (asks("fetcher", Did::OnCpu), asks("helper", fsync()));
    let mut sleeps = |thread, asked: Option<bool>, slept, ns| {
        let (entry, asked) = if thread == "worker-1" { (entry, asked) } else { (None, None) };
        scene.slept_as(api, (thread, entry, asked.filter(|_| with_entries)), slept, ns);
    };
    let woken = WokenBy::Thread { proc: api, call: "futex".into() };
    let condition = || Slept { woken: woken.clone(), ..condition() };
    sleeps("worker-1", Some(false), (condition(), fetches), 30 * S);
    sleeps("worker-1", Some(true), (condition(), helps), 12 * S);
    sleeps("flusher", None, (lock(), behind(api, "keeper", Did::OnCpu)), 9 * S);
    scene
}

#[test]
fn of_threads_that_serve_requests_only_what_they_asked_for_keeps_them_waiting() {
    let of = |report: &Report, kind| -> u64 {
        let parts = report.ledger.iter().flat_map(|ledger| &ledger.asleep);
        parts.filter(|part| part.kind == kind).map(|part| part.ns).sum()
    };
    let report = judged(&jobs(false));
    assert_eq!(found(&report), ["OFF001"], "a lock that no request needs");
    assert_eq!(of(&report, SleepKind::WaitsForWork), 0);
    let others = of(&report, SleepKind::WaitsForOthers);
    let report = judged(&jobs(true));
    assert_eq!(found(&report), [] as [&str; 0], "{:?}", report.findings);
    let kinds = [SleepKind::WaitsForWork, SleepKind::WaitsForOthers, SleepKind::NoEntry];
    let kinds = kinds.map(|kind| of(&report, kind));
    assert_eq!(kinds.iter().sum::<u64>(), others);
    assert_eq!(kinds.map(|ns| ns / S), [30, 12, 9]);
    let mut scene = service(|_, _| vec![]);
    scene.meta(|meta| meta.entries = vec![Entry::Port { port: 80 }]);
    assert_eq!(judged(&scene).target.entries[0].asleep_ns, None, "it was not recorded");
    assert_eq!(report.target.entries[0].asleep_ns, Some(42 * S));
    let style = crate::render::TextStyle { columns: 100, color: false, verbosity: 1 };
    let text = crate::render::text(&report, style);
    assert!(text.contains("entries: threads named `worker*` (asleep for 42 s in all)"), "{text}");
}

#[test]
fn a_timer_of_equal_length_inside_of_requests_is_a_suspicion() {
    let report = judged(&naps());
    assert_eq!(found(&report), ["OFF004"]);
    let it = finding(&report, "OFF004");
    assert_eq!(it.cost.lost_ns_per_s, 400 * MS);
    assert!(it.severity < Severity::High && it.confidence < 0.5, "{it:?}");
    let command = &it.confirm.as_ref().unwrap().command;
    assert!(command.ends_with("-d 30 --entry 'name:worker*'"), "{command}");
    assert!(it.title.contains("10 ms each") && it.title.contains("`worker-1`"), "{}", it.title);
    assert_eq!(it.causes[0].entity.comm.as_deref(), Some("worker-1"));
    // Of a thread that holds a lock which others wait for, whoever serves requests.
    let mut scene = service(|api, _| {
        let naps = Slept { woken: WokenBy::HardInterrupt, ..timer() };
        vec![(lock(), behind(api, "holder", Did::Slept(naps)), 20 * S)]
    });
    scene.timed(ProcId(1), ("holder", None), &timer(), (40 * MS, 40 * MS, 12));
    let report = judged(&scene);
    assert_eq!(found(&report), ["OFF001", "OFF004"]);
    let it = finding(&report, "OFF004");
    assert_eq!(
        (it.cost.lost_ns_per_s, it.causes[0].entity.comm.as_deref()),
        (2 * S, Some("holder"))
    );
    // A helper that a worker asked naps in between.
    let mut scene = service(|_, _| vec![]);
    let api = ProcId(1);
    scene.meta(|meta| meta.entries = vec![Entry::Name { name: "worker".into() }]);
    let naps = Did::Slept(Slept { woken: WokenBy::HardInterrupt, ..timer() });
    let woken = WokenBy::Thread { proc: api, call: "futex".into() };
    let waits = (Slept { woken, ..condition() }, behind(api, "helper", naps));
    scene.slept_as(api, ("worker", Some(0), Some(true)), waits, 20 * S);
    scene.timed(api, ("helper", None), &timer(), (5 * MS, 5 * MS, 100));
    assert_eq!(found(&judged(&scene)), ["OFF004"]);
}

/// Each limit has a case at each side of it.
#[test]
fn timers_at_rest_of_different_lengths_or_seldom_are_no_suspicion() {
    let of = |(thread, entry), slept: &Slept, lengths| {
        let mut scene = jobs(true);
        scene.timed(ProcId(1), (thread, entry), slept, lengths);
        found(&judged(&scene)).len()
    };
    let worker = || ("worker-1", Some(0));
    let poll = slept("epoll_wait", SleptOn::Anonymous { name: "eventpo".into() });
    // The same sleeps, of a thread that flushes something, or of one of which nothing is known.
    assert_eq!(of(("flusher", None), &timer(), (100 * MS, 100 * MS, 9)), 0);
    // Housekeeping of an event loop, and a pool whose threads look now and then whether they should end.
    assert_eq!(of(worker(), &poll, (100 * MS, 100 * MS, 9)), 0);
    assert_eq!(of(worker(), &condition(), (100 * MS, 100 * MS, 9)), 0);
    // Lengths.
    assert_eq!(of(worker(), &timer(), (81 * MS, 100 * MS, 9)), 1);
    assert_eq!(of(worker(), &timer(), (79 * MS, 100 * MS, 9)), 0);
    assert_eq!(of(worker(), &timer(), (MS, MS / 2, 400)), 0, "they were not all looked at");
    // Numbers: 20 in 10 s, and 10.
    assert_eq!(of(worker(), &timer(), (300 * MS, 300 * MS, 2)), 1);
    assert_eq!(of(worker(), &timer(), (600 * MS, 600 * MS, 1)), 0);
    // Without entries, a thread that makes work for others in a rhythm.
    let mut scene =
        service(|api, _| vec![(condition(), behind(api, "ticker", Did::Slept(timer())), 60 * S)]);
    scene.timed(ProcId(1), ("ticker", None), &timer(), (100 * MS, 100 * MS, 9));
    assert_eq!(found(&judged(&scene)), [] as [&str; 0]);
}

#[test]
fn a_pool_without_work_is_idle_and_a_late_dispatcher_is_not() {
    let kinds = |scene: &Scene, kind| {
        let report = judged(scene);
        let parts = report.ledger.iter().flat_map(|ledger| &ledger.asleep);
        parts.filter(|part| part.kind == kind).map(|part| part.ns).sum::<u64>() as f64
    };
    let (work, others) = (SleepKind::WaitsForWork, SleepKind::WaitsForOthers);
    assert!(kinds(&pool(), work) > 15.0 * kinds(&pool(), others));
    let ratio = kinds(&late(), others) / kinds(&late(), work);
    assert!((ratio - 12.0 / 40.0).abs() < 1e-6, "{ratio}");
    let woken = service(|api, _| vec![(pair(), behind(api, "dispatcher", Did::Queued), 12 * S)]);
    for scene in [late(), woken] {
        let report = judged(&scene);
        assert_eq!(found(&report), ["OFF003"]);
        let it = finding(&report, "OFF003");
        assert!(it.title.contains("`dispatcher`") && it.title.contains("a CPU"), "{}", it.title);
    }
}

#[test]
fn who_takes_turns_waits_for_a_connection() {
    let report = judged(&shares());
    assert_eq!(found(&report), ["OFF008", "OFF002"]);
    let it = finding(&report, "OFF008");
    assert_eq!(it.cost.lost_ns_per_s, 2 * S, "not what a dispatcher waited for");
    assert!(it.title.contains("10.0.0.7:5432"), "{}", it.title);
    assert_eq!(it.causes[0].entity.comm.as_deref(), Some("worker"));
    let command = it.fix[1].command.as_deref().unwrap();
    assert!(command.starts_with("sudo deburr -p "), "{command}");
}

/// A runtime has a word for each of its threads, on which that waits for work. Of locks, each is another one.
#[test]
fn sleeps_that_differ_in_the_condition_only_are_told_together() {
    let scene = service(|api, _| {
        let on =
            |value, address| slept("futex", SleptOn::Futex { address, value, op: 0, user: None });
        let first = |address| {
            let waits = Did::Slept(on(0, address));
            [behind(api, "first", waits), behind(api, "dispatcher", Did::Slept(clients()))].concat()
        };
        let held = || behind(api, "holder", Did::OnCpu);
        vec![
            (on(0, 64), first(16), 20 * S),
            (on(0, 128), first(24), 10 * S),
            (on(0, 192), vec![], 5 * S),
            (on(2, 64), held(), 4 * S),
            (on(2, 128), held(), 3 * S),
        ]
    });
    let report = judged(&scene);
    let parts = report.ledger.iter().flat_map(|ledger| &ledger.asleep);
    let told = parts.filter_map(|part| Some((part.on.as_deref()?, part.kind, part.ns / S)));
    let (work, others) = (SleepKind::WaitsForWork, SleepKind::WaitsForOthers);
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("several futexes", work, 30),
            ("a lock at 0x40", others, 4),
            ("a lock at 0x80", others, 3),
            ("a futex at 0xc0", SleepKind::NotKnown, 5),
        ]
    );
}

/// The threads of Go's runtime wait for whatever comes next one after the other, while the others have nothing to run.
#[test]
fn threads_that_take_turns_in_an_event_loop_have_no_turns_at_a_connection() {
    let polls = Slept { call: "epoll_pwait".into(), ..connection(Some(true)) };
    let scene = service(|api, other| {
        let too = |slept: &Slept| Awaited {
            proc: api,
            thread: "api".into(),
            too: true,
            did: Did::Slept(slept.clone()),
        };
        let database = behind(other, "postgres", Did::OnCpu);
        let chain = [vec![too(&polls)], database.clone()].concat();
        vec![(condition(), chain, 14 * S), (polls.clone(), database, 5 * S)]
    });
    assert_eq!(found(&judged(&scene)), ["OFF002"]);
}

#[test]
fn an_address_space_is_blamed_only_on_who_changed_it() {
    let report = judged(&maps());
    assert_eq!(found(&report), ["OFF005"]);
    let it = finding(&report, "OFF005");
    assert!(it.title.contains("`mapper`"), "{}", it.title);
    let calls = it.evidence.iter().find(|line| line.name == "calls").unwrap();
    assert!(calls.note.as_deref().unwrap().contains("munmap"), "{calls:?}");
    // Woken by a thread that did something else, or by another process, which that finding names.
    for (call, own, told) in [("read", true, &[] as &[&str]), ("munmap", false, &["OFF009"])] {
        let scene = service(|api, other| {
            let by = if own { api } else { other };
            vec![(mapping(call, by), behind(by, "other", Did::OnCpu), 10 * S)]
        });
        assert_eq!(found(&judged(&scene)), told);
    }
}

#[test]
fn a_lock_of_the_kernel_is_told_by_what_its_holder_did() {
    let behind_writer = |lock| {
        service(move |_, other| {
            vec![(inode(lock, other), behind(other, "postgres", Did::OnCpu), 10 * S)]
        })
    };
    let report = judged(&behind_writer(KernelLock::RwsemWrite));
    assert_eq!(found(&report), ["OFF005"]);
    let it = finding(&report, "OFF005");
    assert!(
        it.title.contains("a lock of the kernel in write on `/srv/journal`, which `postgres` uses"),
        "{}",
        it.title
    );
    let calls = it.evidence.iter().find(|line| line.name == "calls").unwrap();
    let note = calls.note.as_deref().unwrap();
    assert!(
        note.contains("a semaphore of the kernel, to write") && note.contains("pwritev"),
        "{note}"
    );
    // The kernel says which lock it is, whoever released it in whatever call.
    let report = judged(&behind_writer(KernelLock::MmapLock));
    let it = finding(&report, "OFF005");
    assert!(it.title.contains("address space") && it.title.contains("`postgres`"), "{}", it.title);
    // It says that it is another one, though both threads were in calls that take that of the address space.
    let scene = service(|api, _| {
        let on = SleptOn::KernelLock { lock: KernelLock::Mutex, within: Box::default() };
        let slept = Slept { on, ..mapping("munmap", api) };
        vec![(slept, behind(api, "mapper", Did::OnCpu), 10 * S)]
    });
    let report = judged(&scene);
    let it = finding(&report, "OFF005");
    assert!(it.title.contains("a lock of the kernel in mmap, which `mapper`"), "{}", it.title);
}

#[test]
fn a_file_whose_lock_is_waited_for_is_named() {
    let report = judged(&shared_file());
    assert_eq!(found(&report), ["OFF007"]);
    let it = finding(&report, "OFF007");
    assert!(it.title.contains("a lock of `/srv/a.db` that `postgres` holds"), "{}", it.title);
    assert_eq!(it.fix[0].command.as_deref(), Some("grep ':4711 ' /proc/locks"));
}

#[test]
fn who_does_not_read_is_named() {
    let report = judged(&sends());
    assert_eq!(found(&report), ["OFF006"]);
    let it = finding(&report, "OFF006");
    assert!(it.title.contains("until `postgres` reads"), "{}", it.title);
    assert_eq!(it.causes[0].entity.comm.as_deref(), Some("postgres"));
}

#[test]
fn a_peer_is_looked_at_itself() {
    let report = judged(&asks());
    let it = finding(&report, "OFF002");
    assert_eq!(it.causes[0].entity.comm.as_deref(), Some("postgres"));
    let command = it.fix[0].command.as_deref().unwrap();
    assert!(command.starts_with("sudo deburr -p "), "{command}");
    let peers = it.evidence.iter().find(|line| line.name == "other end").unwrap();
    assert!(peers.note.as_deref().unwrap().contains("10.0.0.7:5432"));
    // On another host.
    let report = judged(&service(|_, _| vec![(connection(Some(true)), vec![], 20 * S)]));
    let it = finding(&report, "OFF002");
    assert!(it.title.contains("10.0.0.7:5432") && it.fix[0].command.is_none(), "{}", it.title);
}

/// The kernel confirms by a timer what was read: that it, and no thread, ended a wait does not mean that nobody is to blame. The
/// decoy is an address at which several processes read.
#[test]
fn who_reads_at_an_address_is_known_from_other_waits() {
    let report = |readers: u32| {
        let mut scene = sends();
        let sends = Slept { call: "sendto".into(), ..connection(Some(true)) };
        for reader in 1..readers {
            let more = scene.process(&format!("reader-{reader}"), None);
            scene.slept(
                ProcId(1),
                "worker",
                (sends.clone(), behind(more, "reader", Did::OnCpu)),
                S,
            );
        }
        let by_timer = Slept { woken: WokenBy::SoftInterrupt, ..sends };
        scene.slept(ProcId(1), "worker", (by_timer, vec![]), 20 * S);
        let report = judged(&scene);
        finding(&report, "OFF006").clone()
    };
    let [one, several] = [1, 2].map(report);
    assert_eq!(one.causes.len(), 1, "{:?}", one.causes);
    assert!(
        one.title.ends_with("until `postgres` reads what it sent, which computes"),
        "{}",
        one.title
    );
    assert!(several.causes.iter().all(|it| it.share.get() < 0.7), "{:?}", several.causes);
    assert!(several.confidence < one.confidence);
}
