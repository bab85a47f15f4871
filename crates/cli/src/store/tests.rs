// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::schema::{self, Kind};
use super::*;
use deburr_core::recording::{
    BlameTick, Cgroup, CgroupId, CgroupReading, CgroupVersion, Container, Coverage, CpuReading,
    Culprit, Event, EventKind, IdleCpu, IdleTick, LoadBin, Meta, ObserverTick, ProcId, Process,
    ProcessTick, PsiReading, PsiResource, Record, SchedstatTick, Source, State, TargetSpec,
    ThreadStates, WAIT_BUCKETS, WaitHist,
};
use proptest::prelude::*;
use rusqlite::Connection;

fn read(path: &Path) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let reader = Reader::open(path).map_err(|error| error.to_string())?;
    reader.for_each(|record| records.push(record.clone())).map_err(|error| error.to_string())?;
    Ok(records)
}

fn write(path: &Path, records: &[Record]) {
    let mut writer = Writer::create(path, true).unwrap();
    for record in records {
        writer.push(record).unwrap();
    }
    writer.finish().unwrap();
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC{0,8}", Just("a\u{1b}[31m\n\t\"'\\</script>".to_owned()), any::<String>()]
}

fn maybe<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop::option::of(value)
}

fn container() -> impl Strategy<Value = Container> {
    (text(), text(), maybe(text()), maybe(text()), maybe(text())).prop_map(
        |(runtime, id, name, pod, namespace)| Container { runtime, id, name, pod, namespace },
    )
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
    let flags = any::<(Option<bool>, bool, bool)>();
    let names = (text(), text(), maybe(text()), maybe(text()));
    let process = (numbers, flags, names).prop_map(|(n, flags, names)| {
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

fn proc_id() -> impl Strategy<Value = ProcId> {
    prop_oneof![any::<u32>().prop_map(ProcId), Just(ProcId::OTHERS)]
}

fn waits() -> impl Strategy<Value = WaitHist> {
    prop::collection::vec((0..WAIT_BUCKETS, any::<u64>(), any::<u64>()), 0..6).prop_map(|filled| {
        let mut hist = WaitHist::default();
        for (bucket, count, ns) in filled {
            hist.count[bucket] = count;
            hist.ns[bucket] = ns;
        }
        hist
    })
}

fn ticks() -> impl Strategy<Value = Record> {
    // Few ranges, so that some rows share one.
    let range = || (0u64..3, 3u64..5);
    let process = (range(), proc_id(), any::<[u64; 12]>(), waits()).prop_map(
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
    );
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
    prop_oneof![process, blame, idle, schedstat, observer]
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

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![facts(), ticks(), readings()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_back_in_order(records in prop::collection::vec(record(), 0..40)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.deburr");
        write(&path, &records);
        prop_assert_eq!(read(&path).unwrap(), records);
        prop_assert!(!companion(&path, "-wal").exists());
        prop_assert!(!companion(&path, "-shm").exists());
    }

    #[test]
    fn what_was_committed_survives_its_writer(
        records in prop::collection::vec(record(), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.deburr");
        let committed = cut.index(records.len());
        let mut writer = Writer::create(&path, false).unwrap();
        for record in &records[..committed] {
            writer.push(record).unwrap();
        }
        writer.commit().unwrap();
        for record in &records[committed..] {
            writer.push(record).unwrap();
        }
        prop_assert_eq!(&read(&path).unwrap()[..], &records[..committed], "read along");
        drop(writer);
        prop_assert_eq!(&read(&path).unwrap()[..], &records[..committed], "afterwards");
    }

    #[test]
    fn no_damage_makes_the_reader_panic(
        records in prop::collection::vec(record(), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.deburr");
        write(&path, &records);
        let mut bytes = std::fs::read(&path).unwrap();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&path, bytes).unwrap();
        let _ = read(&path);
    }
}

#[test]
fn a_full_disk_keeps_what_was_written_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.deburr");
    let mut writer = Writer::create(&path, false).unwrap();
    let filler = |t_ns| {
        Record::Event(Event { t_ns, kind: EventKind::Interrupted { signal: "x".repeat(1000) } })
    };
    writer.limit_to_pages(60);
    let mut committed = Vec::new();
    let error = 'full: loop {
        let second = committed.len() as u64;
        for t_ns in second..second + 10 {
            if let Err(error) = writer.push(&filler(t_ns)) {
                break 'full error;
            }
        }
        writer.commit().unwrap();
        committed.extend((second..second + 10).map(filler));
    };
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull), "{error}");
    let last = Record::Event(Event {
        t_ns: 1,
        kind: EventKind::StoreFailed { reason: error.to_string() },
    });
    writer.abandon(&last);
    let records = read(&path).unwrap();
    assert!(!committed.is_empty());
    assert_eq!(&records[..committed.len()], &committed[..]);
    assert_eq!(records.last(), Some(&last));
}

#[test]
fn files_that_are_no_recording_are_called_by_their_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let whole = directory.path().join("whole");
    write(&whole, &[Record::End { window_ns: 1 }]);
    let bytes = std::fs::read(&whole).unwrap();
    let foreign = directory.path().join("foreign");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    let newer = directory.path().join("newer");
    std::fs::copy(&whole, &newer).unwrap();
    let version = schema::VERSION + 1;
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", version).unwrap();
    for (path, expected) in [
        (directory.path().join("nothing"), "does not exist"),
        (directory.path().to_owned(), "is a directory"),
        ("/dev/null".into(), "not a regular file"),
        (file("empty", b""), "is empty"),
        (file("text", b"hello\n"), "is not a recording"),
        (file("cut", &bytes[..bytes.len() / 2]), "damaged or cut off"),
        (file("head", &bytes[..20]), "damaged or cut off"),
        (foreign, "not a recording of deburr"),
        (newer, "use a newer deburr"),
    ] {
        let error = read(&path).expect_err(expected);
        assert!(error.contains(expected), "{}: {error}", path.display());
        assert!(error.contains(&format!("`{}`", path.display())), "{error}");
    }
}

#[test]
fn reading_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a b%41?#.deburr");
    write(&path, &[Record::End { window_ns: 1 }]);
    let before = (std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
    assert_eq!(read(&path).unwrap().len(), 1);
    let after = (std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
    assert!(before == after);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_file_is_only_replaced_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    std::fs::write(&path, "precious").unwrap();
    let refuse = |path: &Path, force| Writer::create(path, force).expect_err("refused").to_string();
    assert!(refuse(&path, false).contains("--force"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert!(refuse(directory.path(), true).contains("directory"));
    assert!(refuse(Path::new("/dev/null"), true).contains("regular file"));
    assert!(refuse(&directory.path().join("no/x"), false).contains("there is no directory"));
    let writer = Writer::create(&path, true).unwrap();
    writer.discard();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_views_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let proc = |id, pid, comm: &str| {
        Record::Process(Box::new(Process {
            id: ProcId(id),
            pid,
            start_ns: 0,
            comm: comm.into(),
            cmdline: String::new(),
            kernel_thread: Some(false),
            cgroup: None,
            cpus_allowed: None,
            cpuset_cpus: None,
            nice: None,
            in_target: true,
            observer: false,
        }))
    };
    let mut waits = WaitHist::default();
    waits.add(5_000);
    let tick = |t0_ns| {
        Record::ProcessTick(Box::new(ProcessTick {
            t0_ns,
            t1_ns: t0_ns + 10,
            proc: ProcId(1),
            threads: 1,
            wall_ns: 10,
            states: ThreadStates { queued_ns: 5_000, ..ThreadStates::default() },
            waits: waits.clone(),
            wait_max_ns: 5_000,
            switches: 1,
            wakeup_latency_ns: 0,
        }))
    };
    let blame = |culprit, ns| {
        Record::Blame(BlameTick { t0_ns: 0, t1_ns: 10, victim: ProcId(1), culprit, ns })
    };
    write(
        &path,
        &[
            proc(1, 11, "old"),
            proc(2, 22, "hog"),
            proc(1, 11, "new"),
            tick(0),
            tick(10),
            blame(Culprit::Process(ProcId(2)), 4_000),
            blame(Culprit::Migrated, 1_000),
        ],
    );
    let connection = Connection::open(&path).unwrap();
    let one = |sql: &str| -> String {
        connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(one("SELECT comm || ' ' || queued_ns FROM process_totals"), "new 10000");
    assert_eq!(
        one("SELECT group_concat(culprit_comm || ns) FROM blame_totals"),
        "hog4000,(migrated)1000"
    );
    assert_eq!(one("SELECT bucket || ' ' || waits || ' ' || ns FROM wait_sizes"), "3 2 10000");
    assert_eq!(one("SELECT count(*) || '' FROM process_seconds"), "2");
    for kind in Kind::ALL {
        connection.prepare(&format!("SELECT * FROM {}", kind.table().name)).unwrap();
    }
}
