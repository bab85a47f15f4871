// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports made by hand, for tests of what is shown and of the JSON schema. No rule made them, so they stay
//! the same when rules change.

use crate::finding::{
    Cause, Confirm, Cost, Entity, EntityKind, Evidence, Finding, Fix, Host, Ledger, LedgerPart,
    LedgerState, NotChecked, Observer, REPORT_SCHEMA, Report, RuledOut, Severity, SizeClass,
    Target, Tool, Unit, Window,
};
use crate::recording::Container;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// Every sample with its name.
#[must_use]
pub fn all() -> Vec<(&'static str, Report)> {
    vec![
        ("healthy", healthy()),
        ("neighbour", neighbour()),
        ("quota", quota()),
        ("pinned", pinned()),
        ("unprivileged", unprivileged()),
        ("interrupted", interrupted()),
        ("many", many()),
        ("hostile", hostile()),
    ]
}

/// A host without a fault, seen with everything.
#[must_use]
pub fn healthy() -> Report {
    Report {
        schema: REPORT_SCHEMA.into(),
        tool: Tool { version: "0.1.0".into() },
        host: Host {
            name: "web-17".into(),
            kernel: "6.1.0-18-amd64".into(),
            cpus: 4,
            cgroup: "v2".into(),
        },
        window: Window {
            start: "2026-01-02T03:04:05Z".into(),
            seconds: 30.0,
            source: "live".into(),
            events: vec![],
        },
        target: Target { kind: "host".into(), name: None, pid: None, processes: 143 },
        findings: vec![],
        ruled_out: vec![
            ruled_out(
                "SCH001",
                "run-queue-contention",
                "the most is 1.2 ms of every second, by `nginx` (pid 812); reported from 20 ms",
            ),
            ruled_out(
                "SCH002",
                "quota-throttle",
                "3 cgroups have a quota, none was throttled in 900 periods",
            ),
            ruled_out(
                "SCH003",
                "idle-while-waiting",
                "2 waits of 1 ms and more found an allowed CPU idle, 4.1 ms in all",
            ),
            ruled_out("OBS001", "events-lost", "nothing lost"),
            ruled_out("OBS002", "window-too-short", "30 s observed, 10 s needed"),
            ruled_out("OBS003", "observer-overhead", "0.2 % of a CPU; reported from 1 %"),
        ],
        not_checked: vec![],
        ledger: vec![],
        observer: Observer {
            cpu_seconds: 0.041,
            bpf_run_ns: Some(12_400_000),
            bpf_runs: 412_380,
            rss_bytes: 18 << 20,
            bpf_map_bytes: 9 << 20,
            lost: [("bpf:sched".into(), 0), ("bpf:timeline".into(), 0)].into(),
            lost_detail: [].into(),
            coverage: [
                "bpf:sched",
                "bpf:timeline",
                "cgroup cpu.stat",
                "/proc/stat",
                "/proc/pressure",
            ]
            .map(|source| (source.into(), "active".into()))
            .into(),
        },
    }
}

/// A container that waits behind another one's spinners.
#[must_use]
pub fn neighbour() -> Report {
    let victim = docker(process(15919, "ruby"), "shop-web", "bbda0b6e9d3f");
    let stress =
        Entity { processes: Some(16), ..docker(process(13733, "stress"), "batch", "f9ab12c0ffee") };
    let mut report = healthy();
    report.findings = vec![Finding {
        code: "SCH001".into(),
        name: "run-queue-contention".into(),
        severity: Severity::High,
        confidence: 0.95,
        title:
            "`ruby` (pid 15919) waits 212 ms of every second for a CPU, 71 % of it behind `stress`"
                .into(),
        victim: victim.clone(),
        cost: Cost {
            lost_ns_per_s: 212 * MS,
            share: 0.64,
            p50_ns: Some(16 * US),
            p99_ns: Some(4096 * US),
            max_ns: Some(13_100 * US),
        },
        causes: vec![
            cause(stress, 0.71),
            cause(victim.clone(), 0.12),
            cause(process(33, "kworker/1:2"), 0.06),
            cause(
                Entity {
                    note: Some("moved between run queues meanwhile".into()),
                    ..Entity::new(EntityKind::Unknown)
                },
                0.03,
            ),
        ],
        evidence: vec![
            evidence(
                "run-queue wait",
                6.36e9,
                Unit::Ns,
                "bpf:sched",
                Some("of 900 s of thread time, in 62 962 waits"),
            ),
            evidence(
                "waits of 1.0 ms and more",
                0.036,
                Unit::Ratio,
                "bpf:sched",
                Some("of all waits; they hold 62 % of the time"),
            ),
            evidence(
                "wait while an allowed CPU idled",
                0.004,
                Unit::Ratio,
                "bpf:timeline",
                Some("of the waits of 1.0 ms and more"),
            ),
            evidence("throttled", 0.0, Unit::Ns, "cgroup cpu.stat", None),
            evidence("CPU time of `stress`", 3.12, Unit::Cpus, "bpf:sched", Some("of 4 CPUs")),
        ],
        sizes: vec![
            size(0, Some(16), 48_210, 410 * MS),
            size(16, Some(64), 9_421, 260 * MS),
            size(64, Some(256), 2_105, 290 * MS),
            size(256, Some(1024), 960, 540 * MS),
            size(1024, Some(4096), 1_640, 2_900 * MS),
            size(4096, Some(16_384), 626, 1_960 * MS),
            size(16_384, None, 0, 0),
        ],
        fix: vec![
            Fix {
                action: "give the container of `stress` a smaller share of the CPUs".into(),
                command: Some("docker update --cpu-shares 128 f9ab12c0ffee".into()),
                risk: Some("`stress` finishes later; it still gets what nobody else wants".into()),
            },
            Fix {
                action: "run the two containers on different hosts".into(),
                command: None,
                risk: None,
            },
        ],
        confirm: Some(Confirm {
            command: "deburr -p 15919 -d 30".into(),
            expect: Some("the share behind `stress` falls below 10 %".into()),
        }),
    }];
    report.ruled_out.remove(0);
    report.ledger = vec![ledger(
        victim,
        30,
        900,
        &[
            (LedgerState::OnCpu, 0.0039),
            (LedgerState::Queued, 0.00707),
            (LedgerState::Throttled, 0.0),
            (LedgerState::BlockIo, 0.0004),
            (LedgerState::MemStall, 0.0),
            (LedgerState::Uninterruptible, 0.0),
            (LedgerState::Sleep, 0.9879),
            (LedgerState::Stopped, 0.0),
        ],
    )];
    report
}

/// A process under a quota that a directory above it sets.
#[must_use]
pub fn quota() -> Report {
    let victim = Entity {
        cgroup: Some("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f.slice/cri-containerd-5d2e.scope".into()),
        container: Some(Container {
            runtime: "containerd".into(),
            id: "5d2e".repeat(16),
            name: Some("api".into()),
            pod: Some("api-7f9c".into()),
            namespace: Some("prod".into()),
        }),
        ..process(4711, "java")
    };
    let parent = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f.slice";
    let binding = Entity { cgroup: Some(parent.into()), ..Entity::new(EntityKind::Cgroup) };
    let mut report = healthy();
    report.target =
        Target { kind: "process".into(), name: Some("java".into()), pid: Some(4711), processes: 1 };
    report.findings = vec![Finding {
        code: "SCH002".into(),
        name: "quota-throttle".into(),
        severity: Severity::High,
        confidence: 1.0,
        title: "`java` (pid 4711) is stopped by a CPU quota for 1.4 s of thread time every second"
            .into(),
        victim: victim.clone(),
        cost: Cost { lost_ns_per_s: 1_400 * MS, share: 0.58, ..Cost::default() },
        causes: vec![cause(binding, 1.0)],
        evidence: vec![
            evidence(
                "periods that ran out of quota",
                0.93,
                Unit::Ratio,
                "cgroup cpu.stat",
                Some("279 of 300"),
            ),
            evidence(
                "quota",
                100_000.0,
                Unit::Us,
                &format!("/sys/fs/cgroup{parent}/cpu.max"),
                Some("in each period of 100 000 us: 1.0 CPUs"),
            ),
            evidence("allowed CPUs", 0.0, Unit::Text, "/proc/4711/status", Some("0-3")),
        ],
        sizes: vec![],
        fix: vec![Fix {
            action: "raise the limit of the pod, or take it away".into(),
            command: Some(format!("echo 'max 100000' > /sys/fs/cgroup{parent}/cpu.max")),
            risk: Some(
                "the kubelet may put it back; the neighbours on this host lose what it wins".into(),
            ),
        }],
        confirm: None,
    }];
    report.ruled_out.remove(1);
    report.ledger = vec![ledger(
        victim,
        8,
        240,
        &[
            (LedgerState::OnCpu, 0.125),
            (LedgerState::Queued, 0.0061),
            (LedgerState::Throttled, 0.175),
            (LedgerState::BlockIo, 0.0),
            (LedgerState::Sleep, 0.69),
        ],
    )];
    report
}

/// A process pinned to a busy CPU while others idle.
#[must_use]
pub fn pinned() -> Report {
    let victim = Entity {
        container: Some(Container {
            runtime: "systemd".into(),
            id: "redis-server.service".into(),
            ..Container::default()
        }),
        cgroup: Some("/system.slice/redis-server.service".into()),
        ..process(901, "redis-server")
    };
    let affinity = Entity {
        key: Some("CPUs allowed".into()),
        value: Some("0".into()),
        note: Some("CPUs 1-3 idled meanwhile".into()),
        ..Entity::new(EntityKind::Setting)
    };
    let mut report = healthy();
    report.findings = vec![Finding {
        code: "SCH003".into(),
        name: "idle-while-waiting".into(),
        severity: Severity::Medium,
        confidence: 0.8,
        title: "`redis-server` (pid 901) queues on CPU 0 while CPUs 1-3, where it may not run, are idle".into(),
        victim: victim.clone(),
        cost: Cost { lost_ns_per_s: 31 * MS, share: 0.08, p50_ns: Some(64 * US), p99_ns: None, max_ns: Some(8 * MS) },
        causes: vec![cause(affinity, 0.97)],
        evidence: vec![evidence("wait while only forbidden CPUs idled", 0.97, Unit::Ratio, "bpf:timeline", None)],
        sizes: vec![],
        fix: vec![Fix {
            action: "allow it all CPUs".into(),
            command: Some("taskset -acp 0-3 901".into()),
            risk: Some("it may move away from the memory or interrupts it was pinned for".into()),
        }],
        confirm: Some(Confirm { command: "deburr -p 901 -d 30".into(), expect: None }),
    }];
    report.ruled_out.remove(2);
    report.ledger = vec![ledger(
        victim,
        1,
        30,
        &[(LedgerState::OnCpu, 0.356), (LedgerState::Queued, 0.031), (LedgerState::Sleep, 0.612)],
    )];
    report
}

/// A session without root: the fallback sources.
#[must_use]
pub fn unprivileged() -> Report {
    let victim = process(15919, "ruby");
    let mut report = neighbour();
    let finding = &mut report.findings[0];
    finding.severity = Severity::Medium;
    finding.confidence = 0.6;
    finding.title = "`ruby` (pid 15919) waits 212 ms of every second for a CPU or for quota".into();
    finding.victim = victim.clone();
    finding.cost = Cost { lost_ns_per_s: 212 * MS, share: 0.64, ..Cost::default() };
    finding.causes.clear();
    finding.sizes.clear();
    finding.evidence = vec![evidence(
        "run-queue delay",
        6.36e9,
        Unit::Ns,
        "/proc/PID/schedstat",
        Some("queueing and throttling together"),
    )];
    finding.fix = vec![Fix {
        action: "look again as root, to see behind whom it waits".into(),
        command: Some("sudo deburr -p 15919 -d 30".into()),
        risk: None,
    }];
    finding.confirm = None;
    report.ruled_out.retain(|it| it.code.starts_with("OBS"));
    report.not_checked = vec![
        not_checked(
            "SCH002",
            "quota-throttle",
            &["cgroup cpu.stat: no cgroup file system is mounted"],
        ),
        not_checked(
            "SCH003",
            "idle-while-waiting",
            &[
                "bpf:timeline: BPF programs need root or CAP_BPF and CAP_PERFMON",
                "run as root to see which CPUs idle meanwhile",
            ],
        ),
    ];
    report.ledger = vec![ledger(
        victim,
        30,
        900,
        &[(LedgerState::OnCpu, 0.0039), (LedgerState::QueuedOrThrottled, 0.00707)],
    )];
    report.observer.bpf_run_ns = None;
    report.observer.bpf_runs = 0;
    report.observer.bpf_map_bytes = 0;
    report.observer.lost = [("/proc/PID/schedstat".into(), 0)].into();
    report.observer.coverage = [
        ("bpf:sched".into(), "missing: BPF programs need root or CAP_BPF and CAP_PERFMON; run as root to see behind whom processes wait".into()),
        ("/proc/PID/schedstat".into(), "partial: processes of other users are not readable".into()),
        ("/proc/stat".into(), "active".into()),
    ]
    .into();
    report
}

/// A session that a signal ended early and that lost events.
#[must_use]
pub fn interrupted() -> Report {
    let mut report = healthy();
    report.window.seconds = 4.2;
    report.window.source = "recording".into();
    report.window.events = vec![
        "SIGINT ended the window after 4.2 s of 30 s".into(),
        "the wall clock jumped by -2.0 s at 1.3 s".into(),
    ];
    report.target =
        Target { kind: "comm".into(), name: Some("nginx".into()), pid: None, processes: 5 };
    report.findings = vec![Finding {
        code: "OBS001".into(),
        name: "events-lost".into(),
        severity: Severity::Info,
        confidence: 1.0,
        title: "the probe lost 0.8 % of the context switches, so waits are undercounted by up to as much".into(),
        victim: Entity::new(EntityKind::Observer),
        cost: Cost::default(),
        causes: vec![],
        evidence: vec![],
        sizes: vec![],
        fix: vec![],
        confirm: None,
    }];
    report.ruled_out.truncate(3);
    report.not_checked =
        vec![not_checked("OBS002", "window-too-short", &["4.2 s observed, 10 s needed"])];
    report.observer.lost = [("bpf:sched".into(), 3_211), ("bpf:timeline".into(), 0)].into();
    report.observer.lost_detail = [
        ("thread_table_full".into(), 3_011),
        ("torn_read".into(), 200),
        ("unseen_ns".into(), 18 * MS),
    ]
    .into();
    report
}

/// Many findings of every severity.
#[must_use]
pub fn many() -> Report {
    let mut report = neighbour();
    report.findings.extend(quota().findings);
    report.findings.extend(pinned().findings);
    let severities = [Severity::Medium, Severity::Low, Severity::Low, Severity::Info];
    for i in 0..9 {
        let mut finding = report.findings[i % 3].clone();
        let pid = 20_000 + i as u32;
        finding.severity = severities[(i / 3).min(3)];
        finding.victim = process(pid, "后台任务");
        finding.title =
            format!("`后台任务` (pid {pid}) waits {} ms of every second for a CPU", 30 - i);
        finding.cost.lost_ns_per_s = (30 - i as u64) * MS;
        report.findings.push(finding);
    }
    let victims: Vec<Ledger> = (0..5)
        .map(|i| {
            ledger(
                process(20_000 + i, "后台任务"),
                1,
                30,
                &[
                    (LedgerState::OnCpu, 0.7),
                    (LedgerState::Queued, 0.029),
                    (LedgerState::Sleep, 0.271),
                ],
            )
        })
        .collect();
    report.ledger.extend(victims);
    report.ruled_out.retain(|it| it.code.starts_with("OBS"));
    report
}

/// Names that try to steer the terminal, in every field that a host can fill.
#[must_use]
pub fn hostile() -> Report {
    let evil = "a\x1b[2J\x1b]0;pwn\x07\nhigh[SCH999]: `x`\u{202e}\u{200b}\u{9b}31m";
    let long = format!("/{}/{}", "kubepods.slice".repeat(12), "leaf\r\x08");
    let mut report = neighbour();
    report.host.name = evil.into();
    report.host.kernel = evil.into();
    report.target =
        Target { kind: "cgroup".into(), name: Some(long.clone()), pid: None, processes: 2 };
    let finding = &mut report.findings[0];
    finding.title = format!("`{evil}` (pid 15919) waits 212 ms of every second for a CPU");
    finding.victim.comm = Some(evil.into());
    finding.victim.container = None;
    finding.victim.cgroup = Some(long);
    finding.causes[0].entity.comm = Some(r"\x1b[31m and `ticks`".into());
    finding.causes[0].entity.container = Some(Container {
        runtime: "docker".into(),
        id: evil.into(),
        name: Some("</script><b>".into()),
        ..Container::default()
    });
    finding.causes[2].entity.comm = Some(r"\xff\xfeworker".into());
    finding.evidence[0].note = Some(evil.into());
    finding.fix[0].command =
        Some(format!("docker update --cpu-shares 128 {}", crate::finding::shell_quote(evil)));
    report
}

fn process(pid: u32, comm: &str) -> Entity {
    Entity { pid: Some(pid), comm: Some(comm.into()), ..Entity::new(EntityKind::Process) }
}

fn docker(entity: Entity, name: &str, id: &str) -> Entity {
    let id = id.repeat(6)[..64].to_owned();
    let cgroup = Some(format!("/system.slice/docker-{id}.scope"));
    let container =
        Container { runtime: "docker".into(), id, name: Some(name.into()), ..Container::default() };
    Entity { cgroup, container: Some(container), ..entity }
}

fn cause(entity: Entity, share: f64) -> Cause {
    Cause { entity, share }
}

fn evidence(name: &str, value: f64, unit: Unit, source: &str, note: Option<&str>) -> Evidence {
    Evidence {
        name: name.into(),
        value,
        unit,
        source: source.into(),
        from_s: 0.0,
        to_s: 30.0,
        note: note.map(Into::into),
    }
}

fn size(from_us: u64, to_us: Option<u64>, count: u64, ns: u64) -> SizeClass {
    SizeClass { from_ns: from_us * US, to_ns: to_us.map(|us| us * US), count, ns }
}

fn ruled_out(code: &str, name: &str, closest: &str) -> RuledOut {
    RuledOut { code: code.into(), name: name.into(), closest: closest.into() }
}

fn not_checked(code: &str, name: &str, missing: &[&str]) -> NotChecked {
    NotChecked {
        code: code.into(),
        name: name.into(),
        missing: missing.iter().map(|&it| it.into()).collect(),
    }
}

/// A ledger whose parts are shares of its wall time; what they leave is unattributed.
fn ledger(victim: Entity, threads: u32, wall_s: u64, shares: &[(LedgerState, f64)]) -> Ledger {
    let wall_ns = wall_s * 1_000_000_000;
    let mut parts: Vec<LedgerPart> = shares
        .iter()
        .map(|&(state, share)| LedgerPart { state, ns: (share * wall_ns as f64) as u64 })
        .collect();
    let seen: u64 = parts.iter().map(|part| part.ns).sum();
    parts.push(LedgerPart { state: LedgerState::Unattributed, ns: wall_ns - seen });
    Ledger { victim, wall_ns, threads, parts }
}
