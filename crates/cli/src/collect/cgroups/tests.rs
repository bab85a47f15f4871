// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::{CgroupCollector, Cgroups};
use crate::collect::fixture::{Host, beat};
use crate::collect::{Beat, Context, ObservedProcess, Roots};
use deburr_core::recording::{
    Cgroup, CgroupId, CgroupReading, CgroupVersion, Record, Source, State, TargetSpec,
};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A copy of a fixture tree, which the test may change.
fn host(fixture: &str) -> Host {
    Host::like(&format!("cgroup/{fixture}"))
}

fn id(host: &Host, dir: &str) -> CgroupId {
    CgroupId(host.path("sys/fs/cgroup").join(dir).metadata().unwrap().ino())
}

fn write(host: &Host, file: &str, text: &str) {
    host.write(&format!("sys/fs/cgroup/{file}"), text);
}

fn sight(cgroups: &mut Cgroups, id: CgroupId) -> Vec<Cgroup> {
    let mut seen = vec![];
    cgroups.sight(id, &mut |record| {
        if let Record::Cgroup(cgroup) = record {
            seen.push(*cgroup);
        }
    });
    seen
}

fn readings(records: &[Record]) -> Vec<CgroupReading> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::CgroupCpu(reading) => Some(*reading),
            _ => None,
        })
        .collect()
}

#[test]
fn layouts_are_told_apart() {
    let open = |fixture| Cgroups::open(&host(fixture).roots);
    let mixed = open("mixed");
    assert_eq!((mixed.layout(), mixed.cpu_controller()), ("mixed", Some(CgroupVersion::V1)));
    let v2 = open("v2");
    assert_eq!((v2.layout(), v2.cpu_controller()), ("v2", Some(CgroupVersion::V2)));
    let nothing = Cgroups::open(&Roots { proc: "/nonexistent".into(), ..Roots::default() });
    assert_eq!((nothing.layout(), nothing.cpu_controller()), ("none", None));
}

#[test]
fn a_cgroup_comes_after_its_ancestors_and_once() {
    let host = host("mixed");
    let mut cgroups = Cgroups::open(&host.roots);
    let seen = sight(&mut cgroups, id(&host, "cpu/jobs/batch"));
    let paths: Vec<&str> = seen.iter().map(|cgroup| cgroup.path.as_str()).collect();
    assert_eq!(paths, ["/", "/jobs", "/jobs/batch"]);
    assert_eq!(seen[0].parent, None);
    assert_eq!(seen[2].parent, Some(seen[1].id));
    assert_eq!((seen[1].quota_us, seen[1].period_us), (Some(50_000), Some(100_000)));
    assert_eq!((seen[1].burst_us, seen[1].weight), (Some(0), Some(1024)));
    assert_eq!((seen[2].quota_us, seen[2].version), (None, CgroupVersion::V1));
    assert_eq!(sight(&mut cgroups, id(&host, "cpu/jobs/batch")), []);
}

#[test]
fn v2_limits_are_read_and_a_level_without_the_controller_has_none() {
    let host = host("v2");
    let mut cgroups = Cgroups::open(&host.roots);
    let seen = sight(&mut cgroups, id(&host, "kubepods.slice"));
    let pod = seen.last().unwrap();
    assert_eq!((pod.quota_us, pod.period_us), (Some(150_000), Some(100_000)));
    assert_eq!((pod.burst_us, pod.weight), (Some(20_000), Some(79)));
    let leaf = sight(&mut cgroups, id(&host, "system.slice/nginx.service"));
    let leaf = leaf.last().unwrap();
    assert_eq!((leaf.quota_us, leaf.period_us), (None, None));
    assert_eq!(leaf.container.as_ref().map(|unit| unit.id.as_str()), Some("nginx.service"));
}

#[test]
fn an_unknown_id_is_looked_for_once() {
    let host = host("mixed");
    let mut cgroups = Cgroups::open(&host.roots);
    assert_eq!(sight(&mut cgroups, CgroupId(u64::MAX)), []);
    assert!(cgroups.absent.contains(&CgroupId(u64::MAX)));
    assert!(cgroups.wanted.is_empty());
}

#[test]
fn a_process_is_found_in_the_tree_of_the_cpu_controller() {
    let host = host("mixed");
    let mut cgroups = Cgroups::open(&host.roots);
    let place = cgroups.place_of(42);
    assert_eq!(place.cgroup, Some(id(&host, "cpu/jobs/batch")));
    assert_eq!(place.cpuset_cpus.as_deref(), Some("1"));
    assert_eq!(place.memory.as_deref(), Some("/jobs/accounted"));
    assert_eq!(cgroups.of_pid(43), None, "outside of the observer's namespace");
    assert_eq!(cgroups.of_pid(44), None, "no such process");
    let id = id(&host, "cpu/jobs/batch");
    assert!(cgroups.is_within(id, "/jobs") && cgroups.is_within(id, "/jobs/batch"));
    assert!(cgroups.is_within(id, "/") && !cgroups.is_within(id, "/job"));
}

#[test]
fn inside_a_pod_its_own_limit_is_seen_and_those_above_are_said_to_be_unknown() {
    let host = host("pod");
    let mut cx = host.context_of(TargetSpec::Host);
    let own = cx.cgroups.of_pid(7).unwrap();
    assert_eq!(own, id(&host, "cpu,cpuacct"));
    assert_eq!(cx.cgroups.place_of(7).cpuset_cpus.as_deref(), Some("0-95"));
    let start = beat(&mut CgroupCollector::default(), &mut cx, Beat::Start);
    let Some(Record::Coverage(coverage)) = start.first() else { panic!("{start:?}") };
    let State::Partial { reason } = &coverage.state else { panic!("{coverage:?}") };
    assert!(reason.contains("limits above it"), "{reason}");
    let [reading] = readings(&start)[..] else { panic!("{start:?}") };
    assert_eq!((reading.nr_throttled, reading.usage_ns), (Some(420), Some(240_000_000_000)));
    let cgroup = cx.cgroups.get(own).unwrap();
    assert_eq!(
        (cgroup.parent, cgroup.quota_us, cgroup.period_us),
        (None, Some(400_000), Some(100_000))
    );
    let container = cgroup.container.as_ref().unwrap();
    assert!(container.id.starts_with("c2ccf53dabe5"));
    assert_eq!(container.pod.as_deref(), Some("5bb7d18f-1440-4104-bf00-bf4998acc6ff"));
}

#[test]
fn users_may_name_a_path_or_a_directory() {
    let host = host("mixed");
    let cgroups = Cgroups::open(&host.roots);
    let from_user = |given: &Path| cgroups.path_from_user(given).unwrap();
    assert_eq!(from_user(Path::new("/jobs/batch/")), b"/jobs/batch");
    assert_eq!(from_user(Path::new("jobs")), b"/jobs");
    assert_eq!(from_user(&host.roots.sys.join("fs/cgroup/cpu/jobs")), b"/jobs");
    assert_eq!(from_user(&host.roots.sys.join("fs/cgroup/cpu")), b"/");
}

#[test]
fn containers_are_listed_with_their_topmost_cgroup() {
    let host = host("mixed");
    let mut cgroups = Cgroups::open(&host.roots);
    cgroups.walk();
    let all = cgroups.containers();
    let [(container, path)] = &all[..] else { panic!("{all:?}") };
    assert_eq!(*path, format!("/docker/{}", "d".repeat(64)));
    assert_eq!(container.runtime, "docker");
}

#[test]
fn quotas_are_read_at_every_level_without_anybody_in_them() {
    let host = host("mixed");
    let mut cx = host.context_of(TargetSpec::Process { pid: 1, comm: "init".into() });
    let mut collector = CgroupCollector::open(&mut cx);
    let start = beat(&mut collector, &mut cx, Beat::Start);
    let Some(Record::Coverage(coverage)) = start.first() else { panic!("{start:?}") };
    assert_eq!((coverage.source, &coverage.state), (Source::CgroupCpu, &State::Active));
    let read = readings(&start);
    assert_eq!(read.len(), 2, "`/jobs` has a quota, `/` is above it");
    let jobs = read.iter().find(|reading| reading.cgroup == id(&host, "cpu/jobs")).unwrap();
    assert_eq!((jobs.nr_periods, jobs.nr_throttled), (Some(120), Some(60)));
    assert_eq!((jobs.throttled_ns, jobs.usage_ns), (Some(3_000_000_000), None));
    assert_eq!(readings(&beat(&mut collector, &mut cx, Beat::Bin)), []);

    write(
        &host,
        "cpu/jobs/cpu.stat",
        "nr_periods 130\nnr_throttled 70\nthrottled_time 3500000000\n",
    );
    let end = readings(&beat(&mut collector, &mut cx, Beat::End));
    assert_eq!(
        end.iter().find(|r| r.cgroup == id(&host, "cpu/jobs")).unwrap().nr_periods,
        Some(130)
    );
}

#[test]
fn whether_a_quota_is_in_use_is_known_after_a_walk() {
    let host = host("mixed");
    let quota_in_use = || {
        let mut cgroups = Cgroups::open(&host.roots);
        cgroups.walk();
        cgroups.quota_in_use()
    };
    assert!(quota_in_use());
    write(&host, "cpu/jobs/cpu.cfs_quota_us", "-1\n");
    assert!(!quota_in_use());
}

#[test]
fn the_targets_cgroup_is_read_without_a_quota_anywhere() {
    let host = host("v2");
    let mut cx = host.context_of(TargetSpec::Host);
    let mut collector = CgroupCollector::open(&mut cx);
    beat(&mut collector, &mut cx, Beat::Start);
    let Context { roots, cgroups, target, processes, .. } = &mut cx;
    let sighting = ObservedProcess { pid: 42, ..ObservedProcess::default() };
    processes.intern(roots, cgroups, target, sighting, &mut |_| {});
    let second = readings(&beat(&mut collector, &mut cx, Beat::Second));
    let own = second.iter().find(|r| r.cgroup == id(&host, "system.slice/nginx.service")).unwrap();
    assert_eq!(own.usage_ns, Some(7_000_000));
}

#[test]
fn a_changed_quota_goes_out_again() {
    let host = host("mixed");
    let mut cx = host.context_of(TargetSpec::Host);
    let mut collector = CgroupCollector::open(&mut cx);
    beat(&mut collector, &mut cx, Beat::Start);
    write(&host, "cpu/jobs/cpu.cfs_quota_us", "-1\n");
    let second = beat(&mut collector, &mut cx, Beat::Second);
    let changed: Vec<&Cgroup> = second
        .iter()
        .filter_map(|record| match record {
            Record::Cgroup(cgroup) => Some(&**cgroup),
            _ => None,
        })
        .collect();
    let [jobs] = changed[..] else { panic!("{changed:?}") };
    assert_eq!((jobs.path.as_str(), jobs.quota_us), ("/jobs", None));
}

#[test]
fn processes_without_a_known_cgroup_are_said_once() {
    let host = host("mixed");
    let mut cx = host.context_of(TargetSpec::Host);
    let mut collector = CgroupCollector::open(&mut cx);
    beat(&mut collector, &mut cx, Beat::Start);
    let mut churn = |cx: &mut Context, pids: std::ops::Range<u32>| {
        let Context { roots, cgroups, target, processes, .. } = cx;
        for pid in pids {
            let sighting = ObservedProcess { pid, ..ObservedProcess::default() };
            processes.intern(roots, cgroups, target, sighting, &mut |_| {});
        }
        let second = beat(&mut collector, cx, Beat::Second);
        second.into_iter().find(|record| matches!(record, Record::Coverage(_)))
    };
    assert_eq!(churn(&mut cx, 1000..1100), None);
    let Some(Record::Coverage(coverage)) = churn(&mut cx, 2000..5000) else { panic!() };
    let State::Partial { reason } = &coverage.state else { panic!("{coverage:?}") };
    assert!(reason.contains("come and go"), "{reason}");
    assert_eq!(churn(&mut cx, 5000..9000), None);
}

#[test]
fn hostile_names_are_data() {
    use std::os::unix::ffi::OsStrExt as _;
    let host = host("mixed");
    let name = std::ffi::OsStr::from_bytes(b"\x1b[2J \xff (deleted)`$(x)`");
    let dir = host.path("sys/fs/cgroup/cpu").join(name);
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("cpu.cfs_quota_us"), "not a number\n").unwrap();
    fs::write(dir.join("cpu.stat"), b"nr_periods \xff\nnr_throttled 99999999999999999999\n")
        .unwrap();
    let mut cx = host.context_of(TargetSpec::Host);
    let mut collector = CgroupCollector::open(&mut cx);
    beat(&mut collector, &mut cx, Beat::Start);
    let seen = sight(&mut cx.cgroups, CgroupId(dir.metadata().unwrap().ino()));
    let hostile = seen.last().unwrap();
    assert_eq!(hostile.path, "/\x1b[2J \\xff (deleted)`$(x)`");
    assert_eq!((hostile.quota_us, &hostile.container), (None, &None));
    assert_eq!(cx.cgroups.by_path(b"/\x1b[2J \xff (deleted)`$(x)`"), Some(hostile.id));
}

#[test]
fn no_controller_is_said_with_what_one_would_gain() {
    let host = host("v2");
    write(&host, "cgroup.controllers", "hugetlb\n");
    let mut cx = host.context_of(TargetSpec::Host);
    let start = beat(&mut CgroupCollector::open(&mut cx), &mut cx, Beat::Start);
    let [Record::Coverage(coverage)] = &start[..] else { panic!("{start:?}") };
    let State::Missing { reason, gain } = &coverage.state else { panic!("{coverage:?}") };
    assert_eq!(reason, "no mounted cgroup tree has the cpu controller");
    assert!(gain.contains("quota"));
    // Processes are still placed in the v2 tree.
    assert_eq!(cx.cgroups.of_pid(42), Some(id(&host, "system.slice/nginx.service")));
}

#[test]
fn removed_cgroups_are_forgotten_and_the_others_never() {
    let host = host("mixed");
    let mut cx = host.context();
    let batch = id(&host, "cpu/jobs/batch");
    sight(&mut cx.cgroups, batch);
    let (known, path_bytes) = (cx.cgroups.nodes.len(), cx.cgroups.path_bytes);
    for round in 0..10 {
        let dirs: Vec<_> = (0..300).map(|at| format!("cpu/jobs/{round}-{at}")).collect();
        for dir in &dirs {
            write(&host, &format!("{dir}/cpu.cfs_quota_us"), "5000");
        }
        let ids: Vec<CgroupId> = dirs.iter().map(|dir| id(&host, dir)).collect();
        cx.cgroups.walk();
        let mut emit = |_| {};
        for (pid, id) in (1000..).zip(&ids) {
            let (cgroup, start_ns) = (Some(*id), Some(round * 1000 + 1));
            let sighting = ObservedProcess { pid, start_ns, cgroup, ..ObservedProcess::default() };
            let Context { roots, processes, cgroups, target, .. } = &mut cx;
            processes.intern(roots, cgroups, target, sighting, &mut emit);
        }
        assert_eq!(cx.cgroups.nodes.len(), known + 300);
        assert!(cx.processes.target_cgroups().len() >= 300);
        for dir in &dirs {
            fs::remove_dir_all(host.path("sys/fs/cgroup").join(dir)).unwrap();
        }
        cx.forget_ended();
        assert!(cx.cgroups.path_of(ids[0]).is_some(), "its last amounts are to come");
        for _ in 0..25 {
            cx.forget_ended();
        }
        assert_eq!((cx.cgroups.nodes.len(), cx.cgroups.path_bytes), (known, path_bytes));
        assert_eq!(cx.processes.target_cgroups().len(), 0);
        assert_eq!(cx.cgroups.with_quota().count(), 1, "/jobs");
        // A late sighting does not make it search for them again.
        assert!(cx.cgroups.absent.contains(&ids[0]) && !cx.cgroups.may_exist(ids[0]));
    }
    assert!(cx.cgroups.absent.len() <= 2 * super::ABSENT_KEPT);
    assert_eq!(cx.cgroups.path_of(batch), Some("/jobs/batch"));
}

#[test]
fn a_cgroup_that_was_made_again_is_another_one() {
    let host = host("mixed");
    let mut cgroups = Cgroups::open(&host.roots);
    let old = id(&host, "cpu/jobs/batch");
    sight(&mut cgroups, old);
    let dir = host.path("sys/fs/cgroup/cpu/jobs/batch");
    fs::rename(&dir, dir.with_file_name("moved")).unwrap();
    fs::create_dir(&dir).unwrap();
    let new = cgroups.by_path(b"/jobs/batch").unwrap();
    assert_ne!(old, new);
    for _ in 0..25 {
        cgroups.forget_removed();
    }
    assert_eq!((cgroups.path_of(old), cgroups.path_of(new)), (None, Some("/jobs/batch")));
}
