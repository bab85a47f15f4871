// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arbitrary records.

use deburr_core::recording::{
    BlameTick, Cgroup, CgroupId, CgroupReading, CgroupVersion, Container, Coverage, CpuReading,
    Culprit, Event, EventKind, IdleCpu, IdleTick, LoadBin, Meta, ObserverTick, ProcId, Process,
    ProcessTick, PsiReading, PsiResource, Record, SchedPolicy, SchedstatTick, Scheduling, Source,
    State, TargetSpec, ThreadStates, WAIT_BUCKETS, WaitHist,
};
use proptest::prelude::*;

pub(super) fn text() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC{0,8}", Just("a\u{1b}[31m\n\t\"'\\</script>".to_owned()), any::<String>()]
}

pub(super) fn maybe<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop::option::of(value)
}

fn container() -> impl Strategy<Value = Container> {
    (text(), text(), maybe(text()), maybe(text()), maybe(text())).prop_map(
        |(runtime, id, name, pod, namespace)| Container { runtime, id, name, pod, namespace },
    )
}

fn scheduling() -> impl Strategy<Value = Scheduling> {
    let policy = (0..8u32).prop_filter_map("4 is none", SchedPolicy::of_number);
    (policy, any::<(u32, i32, u32, u32, u64)>()).prop_map(|(policy, n)| Scheduling {
        policy,
        priority: n.0,
        nice: n.1,
        threads: n.2,
        tid: n.3,
        ran_ns: n.4,
    })
}

fn version() -> impl Strategy<Value = CgroupVersion> {
    prop_oneof![Just(CgroupVersion::V1), Just(CgroupVersion::V2)]
}

fn target() -> impl Strategy<Value = TargetSpec> {
    prop_oneof![
        Just(TargetSpec::Host),
        (any::<u32>(), text()).prop_map(|(pid, comm)| TargetSpec::Process { pid, comm }),
        text().prop_map(|comm| TargetSpec::Comm { comm }),
        text().prop_map(|path| TargetSpec::Cgroup { path }),
        (container(), text())
            .prop_map(|(container, path)| TargetSpec::Container { container, path }),
        (text(), any::<u32>()).prop_map(|(command, pid)| TargetSpec::Command { command, pid }),
    ]
}

fn meta() -> impl Strategy<Value = Record> {
    let names = (text(), text(), text(), text());
    let times = any::<(i64, u64, Option<u64>, bool)>();
    let cpus = prop::collection::vec(any::<u32>(), 0..5);
    (names, times, maybe(version()), target(), cpus).prop_map(
        |(names, times, cpu_controller, target, cpus_online)| {
            Record::Meta(Box::new(Meta {
                tool_version: names.0,
                host_name: names.1,
                kernel: names.2,
                cpus_online,
                cgroup_layout: names.3,
                cpu_controller,
                start_unix_ns: times.0,
                start_mono_ns: times.1,
                asked_ns: times.2,
                target,
                root: times.3,
            }))
        },
    )
}

fn facts() -> impl Strategy<Value = Record> {
    let state = prop_oneof![
        Just(State::Active),
        text().prop_map(|reason| State::Partial { reason }),
        (text(), text()).prop_map(|(reason, gain)| State::Missing { reason, gain }),
    ];
    let coverage = (any::<u64>(), prop::sample::select(Source::ALL.to_vec()), state)
        .prop_map(|(t_ns, source, state)| Record::Coverage(Coverage { t_ns, source, state }));
    let numbers = any::<(u32, u32, u64, Option<u64>, Option<i32>)>();
    let flags = any::<(Option<bool>, bool, bool, bool)>();
    let names = (text(), text(), maybe(text()), maybe(text()), maybe(text()));
    let kinds = prop::collection::vec(scheduling(), 0..3);
    let process = (numbers, flags, names, kinds).prop_map(|(n, flags, names, scheduling)| {
        Record::Process(Box::new(Process {
            id: ProcId(n.0),
            pid: n.1,
            start_ns: n.2,
            comm: names.0,
            cmdline: names.1,
            kernel_thread: flags.0,
            cgroup: n.3.map(CgroupId),
            cpus_allowed: names.2,
            cpuset_cpus: names.3,
            nice: n.4,
            in_target: flags.1,
            observer: flags.2,
            memory_cgroup: names.4,
            scheduling,
            many: flags.3,
        }))
    });
    let limits = any::<[Option<u64>; 4]>();
    let ids = any::<(u64, Option<u64>)>();
    let cgroup = (ids, text(), version(), limits, maybe(container())).prop_map(
        |((id, parent), path, version, limits, container)| {
            Record::Cgroup(Box::new(Cgroup {
                id: CgroupId(id),
                parent: parent.map(CgroupId),
                path,
                version,
                quota_us: limits[0],
                period_us: limits[1],
                burst_us: limits[2],
                weight: limits[3],
                container,
            }))
        },
    );
    let kind = prop_oneof![
        any::<i64>().prop_map(|by_ns| EventKind::ClockJump { by_ns }),
        any::<u64>().prop_map(|for_ns| EventKind::Suspend { for_ns }),
        any::<u64>().prop_map(|by_ns| EventKind::LateTick { by_ns }),
        Just(EventKind::TargetGone),
        text().prop_map(|signal| EventKind::Interrupted { signal }),
        text().prop_map(|reason| EventKind::StoreFailed { reason }),
    ];
    let event = (any::<u64>(), kind).prop_map(|(t_ns, kind)| Record::Event(Event { t_ns, kind }));
    prop_oneof![meta(), coverage, process, cgroup, event]
}

pub(super) fn proc_id() -> impl Strategy<Value = ProcId> {
    prop_oneof![any::<u32>().prop_map(ProcId), Just(ProcId::OTHERS)]
}

pub(super) fn waits() -> impl Strategy<Value = WaitHist> {
    prop::collection::vec((0..WAIT_BUCKETS, any::<u64>(), any::<u64>()), 0..6).prop_map(|filled| {
        let mut hist = WaitHist::default();
        for (bucket, count, ns) in filled {
            hist.count[bucket] = count;
            hist.ns[bucket] = ns;
        }
        hist
    })
}

/// Few ranges, so that some rows share one.
pub(super) fn range() -> impl Strategy<Value = (u64, u64)> {
    (0u64..3, 3u64..5)
}

fn process_tick() -> impl Strategy<Value = Record> {
    (range(), proc_id(), any::<[u64; 12]>(), waits()).prop_map(
        |((t0_ns, t1_ns), proc, n, waits)| {
            Record::ProcessTick(Box::new(ProcessTick {
                t0_ns,
                t1_ns,
                proc,
                threads: 7,
                wall_ns: n[0],
                states: ThreadStates {
                    on_cpu_ns: n[1],
                    queued_ns: n[2],
                    throttled_ns: n[3],
                    block_io_ns: n[4],
                    mem_stall_ns: n[5],
                    uninterruptible_ns: n[6],
                    sleep_ns: n[7],
                    stopped_ns: n[8],
                },
                waits,
                wait_max_ns: n[9],
                switches: n[10],
                wakeup_latency_ns: n[11],
            }))
        },
    )
}

fn ticks() -> impl Strategy<Value = Record> {
    let culprit = prop_oneof![
        proc_id().prop_map(Culprit::Process),
        Just(Culprit::Migrated),
        Just(Culprit::NotSampled)
    ];
    let blame = (range(), proc_id(), culprit, any::<u64>()).prop_map(
        |((t0_ns, t1_ns), victim, culprit, ns)| {
            Record::Blame(BlameTick { t0_ns, t1_ns, victim, culprit, ns })
        },
    );
    let cpus = prop::collection::vec(
        any::<(u32, bool, u64)>().prop_map(|(cpu, allowed, idle_ns)| IdleCpu {
            cpu,
            allowed,
            idle_ns,
        }),
        0..4,
    );
    let idle = (range(), proc_id(), any::<[u64; 5]>(), cpus).prop_map(
        |((t0_ns, t1_ns), victim, n, cpus)| {
            Record::Idle(Box::new(IdleTick {
                t0_ns,
                t1_ns,
                victim,
                min_wait_ns: n[0],
                waits: n[1],
                waits_ns: n[2],
                idle_allowed_ns: n[3],
                idle_forbidden_ns: n[4],
                cpus,
            }))
        },
    );
    let schedstat = (range(), proc_id(), any::<u32>(), any::<[u64; 4]>()).prop_map(
        |((t0_ns, t1_ns), proc, threads, n)| {
            Record::Schedstat(SchedstatTick {
                t0_ns,
                t1_ns,
                proc,
                threads,
                wall_ns: n[0],
                on_cpu_ns: n[1],
                delay_ns: n[2],
                slices: n[3],
            })
        },
    );
    let lost = prop::collection::btree_map(text(), any::<u64>(), 0..3);
    let observer = (range(), any::<[u64; 4]>(), any::<Option<u64>>(), lost).prop_map(
        |((t0_ns, t1_ns), n, bpf_run_ns, lost)| {
            Record::Observer(ObserverTick {
                t0_ns,
                t1_ns,
                cpu_ns: n[0],
                bpf_runs: n[1],
                bpf_run_ns,
                rss_bytes: n[2],
                bpf_map_bytes: n[3],
                lost,
            })
        },
    );
    prop_oneof![process_tick(), blame, idle, schedstat, observer]
}

fn readings() -> impl Strategy<Value = Record> {
    let bin = any::<([u64; 8], bool)>().prop_map(|(n, host)| {
        let wrap = if host { Record::HostBin } else { Record::TargetBin };
        wrap(LoadBin {
            t0_ns: n[0],
            t1_ns: n[1],
            on_cpu_ns: n[2],
            queued_ns: n[3],
            throttled_ns: n[4],
            block_io_ns: n[5],
            waits: n[6],
            switches: n[7],
        })
    });
    let cpu = any::<([u64; 7], u32)>().prop_map(|(n, cpu)| {
        Record::Cpu(CpuReading {
            t_ns: n[0],
            cpu,
            user_ns: n[1],
            system_ns: n[2],
            idle_ns: n[3],
            iowait_ns: n[4],
            irq_ns: n[5],
            steal_ns: n[6],
        })
    });
    let cgroup = any::<(u64, u64, [Option<u64>; 6])>().prop_map(|(t_ns, id, n)| {
        Record::CgroupCpu(CgroupReading {
            t_ns,
            cgroup: CgroupId(id),
            usage_ns: n[0],
            nr_periods: n[1],
            nr_throttled: n[2],
            throttled_ns: n[3],
            nr_bursts: n[4],
            burst_ns: n[5],
        })
    });
    let resource =
        prop_oneof![Just(PsiResource::Cpu), Just(PsiResource::Io), Just(PsiResource::Memory)];
    let psi = (any::<(u64, Option<u64>, u64, Option<u64>)>(), resource).prop_map(
        |((t_ns, cgroup, some_ns, full_ns), resource)| {
            let cgroup = cgroup.map(CgroupId);
            Record::Psi(PsiReading { t_ns, cgroup, resource, some_ns, full_ns })
        },
    );
    let end = any::<u64>().prop_map(|window_ns| Record::End { window_ns });
    prop_oneof![bin, cpu, cgroup, psi, end]
}

/// Any record at all, made sense or not.
pub(super) fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        facts().boxed(),
        ticks().boxed(),
        readings().boxed(),
        super::arbitrary_block::record().boxed(),
        super::arbitrary_runtime::record().boxed(),
        super::arbitrary_runtime::named_threads().boxed(),
        super::arbitrary_cpu_check::record().boxed(),
        super::arbitrary_syscalls::record().boxed()
    ]
}
