// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Syncs and commits of filesystems that do not report both their beginning and their end (XFS, btrfs): what is
//! reported of them on a slow disk agrees with what the caller measured.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::block::{cpus, number};
use crate::common::{root_or_skip, skip, skip_or_fail};
use crate::disk::Disk;
use deburr_bpf::facts::facts;
use deburr_bpf::writeback::syncs::{EndedSync, Syncs, find};
use deburr_bpf::writeback::{Event, WritebackPlan, WritebackProbe};
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of syncs.
const SYNCS: u64 = 12;
/// Service time of each request of the disk, in microseconds.
const REQUEST_US: u64 = 20_000;
const REQUEST_NS: u64 = REQUEST_US * 1000;

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Makes and mounts a slow disk with that filesystem. `None` = it cannot be had here; the test is then noted as
/// skipped.
fn slow(test: &str, fs_type: &str) -> Option<(Disk, PathBuf)> {
    if !root_or_skip("kernel", test) {
        return None;
    }
    let made = Disk::slow(400).and_then(|mut disk| {
        let device = disk.device.clone();
        let point = disk.mount(&device, fs_type)?;
        Ok((disk, point))
    });
    match made {
        Ok((mut disk, point)) => {
            rustix::fs::syncfs(File::open(&point).unwrap()).unwrap();
            disk.take_us(REQUEST_US);
            Some((disk, point))
        }
        Err(why) => {
            skip_or_fail("kernel", test, &why);
            None
        }
    }
}

fn events(probe: &mut WritebackProbe, told: &mut Vec<Event>, enough: impl Fn(&[Event]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        probe.read(&mut |event| told.push(event));
        if enough(told) {
            return;
        }
        assert!(Instant::now() < deadline, "{told:?}; lost: {:?}", probe.lost());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Appends to a file and syncs it, [`SYNCS`] times. Returns begin and end of each sync (`CLOCK_MONOTONIC`, ns).
fn sync_often(file: &mut File) -> Vec<(u64, u64)> {
    let sync = |_| {
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(&[7; 16 << 10]).unwrap();
        let begin_ns = monotonic_ns();
        file.sync_all().unwrap();
        (begin_ns, monotonic_ns())
    };
    (0..SYNCS).map(sync).collect()
}

fn a_sync_is_told_with_both_ends(fs_type: &str) {
    let test = format!("a_sync_is_told_with_both_ends_on_{fs_type}");
    let Some((_disk, point)) = slow(&test, fs_type) else { return };
    let plan = WritebackPlan::new(&facts()).unwrap();
    let begins = if fs_type == "xfs" { plan.xfs_syncs } else { plan.btrfs_syncs };
    if !(begins && plan.returns || fs_type == "btrfs" && plan.btrfs_both) {
        return skip("kernel", &test, "this kernel does not tell of both ends");
    }
    let mut probe = WritebackProbe::open(&plan, cpus()).unwrap();
    let mut file = File::create(point.join("file")).unwrap();
    let (me, fs, ino) = (std::process::id(), number(&point), file.metadata().unwrap().ino());
    let measured = sync_often(&mut file);
    let mine = |told: &[Event]| -> Vec<(u64, u64)> {
        told.iter()
            .filter_map(|event| match *event {
                Event::Sync { begin_ns, end_ns, by, fs: on, ino: of, .. } => {
                    ((on, of, by.tgid) == (fs, ino, me)).then_some((begin_ns, end_ns))
                }
                _ => None,
            })
            .collect()
    };
    let mut told = Vec::new();
    events(&mut probe, &mut told, |told| mine(told).len() as u64 >= SYNCS);
    let mut found = mine(&told);
    found.sort_unstable();
    assert_eq!(found.len(), measured.len());
    for (found, measured) in found.iter().zip(&measured) {
        // Within the call, and most of it: the disk takes longer than entering and leaving the system call.
        assert!(measured.0 <= found.0 && found.1 <= measured.1, "{found:?} {measured:?}");
        let share = (found.1 - found.0) as f64 / (measured.1 - measured.0) as f64;
        assert!(share > 0.5, "{found:?} {measured:?}");
    }
    let sum = |spans: &[(u64, u64)]| spans.iter().map(|span| span.1 - span.0).sum::<u64>() as f64;
    let ratio = sum(&found) / sum(&measured);
    assert!((0.9..=1.0).contains(&ratio), "{ratio} of what was measured: {found:?} {measured:?}");
}

#[test]
fn a_sync_is_told_with_both_ends_on_xfs() {
    crate::common::tried(
        "kernel",
        "a_sync_is_told_with_both_ends_on_xfs",
        try_a_sync_is_told_with_both_ends_on_xfs,
    );
}

fn try_a_sync_is_told_with_both_ends_on_xfs() {
    a_sync_is_told_with_both_ends("xfs");
}

#[test]
fn a_sync_is_told_with_both_ends_on_btrfs() {
    crate::common::tried(
        "kernel",
        "a_sync_is_told_with_both_ends_on_btrfs",
        try_a_sync_is_told_with_both_ends_on_btrfs,
    );
}

fn try_a_sync_is_told_with_both_ends_on_btrfs() {
    a_sync_is_told_with_both_ends("btrfs");
}

/// Number of syncs that are over before the next look.
const SHORT: usize = 50;

/// Looks at this process's syncs ten times a second, in this thread, until `done` is set, and five times more.
fn look_until(probe: &mut WritebackProbe, done: &AtomicBool) -> Vec<EndedSync<u64>> {
    let (mut syncs, mut over) = (Syncs::default(), Vec::new());
    let me = std::process::id();
    // A sync that is found running is looked at again.
    let mut looks = 5;
    while looks > 0 {
        looks -= u32::from(done.load(Ordering::Acquire));
        let told_ns = monotonic_ns();
        let mut told = Vec::new();
        probe.read(&mut |event| told.push(event));
        for event in told {
            if let Event::SyncBegan { t_ns, by, ino, .. } = event
                && by.tgid == me
            {
                over.extend(syncs.began(t_ns, &by, ino));
            }
        }
        over.extend(syncs.look(told_ns, monotonic_ns, |tid| find(Path::new("/proc"), tid)));
        std::thread::sleep(Duration::from_millis(100));
    }
    over
}

fn a_long_sync_is_known_to_a_look(fs_type: &str) {
    let test = format!("a_long_sync_is_known_to_a_look_on_{fs_type}");
    let Some((mut disk, point)) = slow(&test, fs_type) else { return };
    let mut plan = WritebackPlan::new(&facts()).unwrap();
    if !(if fs_type == "xfs" { plan.xfs_syncs } else { plan.btrfs_syncs }) {
        return skip("kernel", &test, "this kernel does not tell of these syncs");
    }
    // As on a kernel that does not report the end of syncs.
    plan.returns = false;
    let mut probe = WritebackProbe::open(&plan, cpus()).unwrap();
    disk.take_us(10 * REQUEST_US);
    let mut file = File::create(point.join("file")).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let ended = done.clone();
    let syncer = std::thread::spawn(move || {
        let long = sync_often(&mut file);
        disk.take_us(0);
        for _ in 0..SHORT {
            file.write_all(&[8; 4096]).unwrap();
            file.sync_all().unwrap();
        }
        ended.store(true, Ordering::Release);
        (disk, long)
    });
    let over = look_until(&mut probe, &done);
    let (_disk, measured) = syncer.join().unwrap();
    for (begin_ns, end_ns) in &measured {
        let within = |over: &&EndedSync<u64>| (*begin_ns..*end_ns).contains(&over.begin_ns);
        let found: Vec<&EndedSync<u64>> = over.iter().filter(within).collect();
        let [found] = found[..] else { panic!("{found:?} of {begin_ns} to {end_ns}") };
        // The caller may have waited for a CPU before it read its clock: up to the interval of looks is allowed.
        let latest_ns = found.latest_ns + 100_000_000;
        assert!(found.seen_ns <= *end_ns && *end_ns <= latest_ns, "{found:?} until {end_ns}");
        assert!(found.seen_ns > found.begin_ns, "{found:?} of {begin_ns} to {end_ns} was not seen");
    }
    // The short ones that follow were not measured.
    let is_long = |over: &&EndedSync<u64>| {
        measured.iter().any(|(begin_ns, end_ns)| (*begin_ns..*end_ns).contains(&over.begin_ns))
    };
    let seen: u64 = over.iter().filter(is_long).map(|over| over.seen_ns - over.begin_ns).sum();
    let real: u64 = measured.iter().map(|span| span.1 - span.0).sum();
    let ratio = seen as f64 / real as f64;
    assert!((0.6..=1.0).contains(&ratio), "{ratio} of what was measured: {over:?} {measured:?}");
    assert_eq!(over.len(), measured.len() + SHORT, "each is told once");
}

#[test]
fn a_long_sync_is_known_to_a_look_on_xfs() {
    a_long_sync_is_known_to_a_look("xfs");
}

#[test]
fn a_long_sync_is_known_to_a_look_on_btrfs() {
    a_long_sync_is_known_to_a_look("btrfs");
}

/// Records six runs of `step` on a slow disk. Returns the tables of the recording, the device as `major:minor`, and the
/// sum of the durations of the steps as the script measured them, in nanoseconds.
fn recorded(test: &str, fs_type: &str, step: &str) -> Option<(Connection, String, f64)> {
    let (disk, point) = slow(test, fs_type)?;
    let directory = tempfile::tempdir().unwrap();
    let (recording, log) = (directory.path().join("x.deburr"), directory.path().join("log"));
    // What exists at the first beat is no change. A commit of btrfs is known only if it is alone in its beat.
    let script = format!(
        "set -e; cd \"$POINT\"; sleep 0.5; for n in 1 2 3 4 5 6; do a=$(date +%s%N); {step}; b=$(date +%s%N); \
         echo $((b - a)) >> \"$LOG\"; sleep 0.3; done"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_deburr"))
        .args(["record", "-q", "-o"])
        .arg(&recording)
        .args(["--", "sh", "-c", &script])
        .envs([("POINT", &point), ("LOG", &log)])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let check = Command::new(env!("CARGO_BIN_EXE_deburr")).arg("check").arg(&recording).output();
    let check = check.unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    let steps: Vec<u64> =
        std::fs::read_to_string(&log).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(steps.len(), 6);
    let rdev = std::fs::metadata(&disk.device).unwrap().rdev();
    let device = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    // The open file stays when its directory is removed. It has ended: nothing will change it.
    let uri = format!("file:{}?immutable=1", recording.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).unwrap();
    // SQLite opens the file with the first question.
    number_of(&connection, "SELECT count(*) FROM tick WHERE ?1 != ''", &device);
    Some((connection, device, steps.iter().sum::<u64>() as f64))
}

fn number_of(connection: &Connection, sql: &str, device: &str) -> f64 {
    let value = connection.query_row(sql, [device], |row| row.get::<_, Option<f64>>(0));
    value.unwrap().unwrap_or(0.0)
}

fn commits_are_recorded(fs_type: &str) {
    let test = format!("commits_are_recorded_of_{fs_type}");
    let step = "mkdir d$n; sync -f .";
    let Some((connection, device, ns)) = recorded(&test, fs_type, step) else { return };
    let lacks = number_of(
        &connection,
        &format!("SELECT count(*) FROM coverage WHERE reason LIKE '%of {fs_type}%' AND ?1 != ''"),
        &device,
    );
    if lacks > 0.0 {
        return skip("kernel", &test, "this kernel does not tell of both ends");
    }
    let of = format!("FROM journal_commit WHERE kind = '{fs_type}' AND device = ?1");
    let count = number_of(&connection, &format!("SELECT 1.0 * count(*) {of}"), &device);
    assert!(count >= 6.0, "{count} commits");
    let sum = number_of(&connection, &format!("SELECT sum(t1_ns - t0_ns) * 1.0 {of}"), &device);
    // Each commit takes at least one request of the slow disk; of several log buffers at once, each counts. The kernel
    // counts in whole milliseconds.
    assert!(sum >= count * REQUEST_NS as f64 * 0.9, "{count} commits in {sum} ns");
    assert!(sum < 1.5 * ns, "{} of the syncs is in commits", sum / ns);
}

#[test]
fn commits_are_recorded_of_xfs() {
    crate::common::tried("kernel", "commits_are_recorded_of_xfs", try_commits_are_recorded_of_xfs);
}

fn try_commits_are_recorded_of_xfs() {
    commits_are_recorded("xfs");
}

#[test]
fn commits_are_recorded_of_btrfs() {
    crate::common::tried(
        "kernel",
        "commits_are_recorded_of_btrfs",
        try_commits_are_recorded_of_btrfs,
    );
}

fn try_commits_are_recorded_of_btrfs() {
    commits_are_recorded("btrfs");
}

fn stalls_in_syncs_are_recorded(fs_type: &str) {
    let test = format!("stalls_in_syncs_are_recorded_on_{fs_type}");
    let step = "dd if=/dev/zero of=f$n bs=64k count=4 conv=fsync 2>/dev/null";
    let Some((connection, device, ns)) = recorded(&test, fs_type, step) else { return };
    let of = "FROM stall JOIN file USING (file) WHERE kind = 'sync' AND device = ?1 AND file.seq IN \
              (SELECT max(seq) FROM file GROUP BY file) AND path LIKE '%/f_'";
    let count = number_of(&connection, &format!("SELECT 1.0 * count(*) {of}"), &device);
    assert!(count == 6.0, "{count} syncs stalled");
    let sum = number_of(&connection, &format!("SELECT sum(t1_ns - t0_ns) * 1.0 {of}"), &device);
    // Where syncs are looked at ten times a second, only the first part of a sync of some 100 ms may be known.
    let exact = number_of(
        &connection,
        &format!("SELECT count(*) = count(t1_ns) - count(latest_ns) {of}"),
        &device,
    );
    let least = if exact == 1.0 { 0.6 } else { 0.05 };
    assert!((least..=1.0).contains(&(sum / ns)), "{} of the time of the commands", sum / ns);
    let dirtied = format!("SELECT 1.0 * count(*) {of} AND dirtied_by = stall.proc");
    assert_eq!(number_of(&connection, &dirtied, &device), 6.0, "who synced them dirtied them");
}

#[test]
fn stalls_in_syncs_are_recorded_on_xfs() {
    crate::common::tried(
        "kernel",
        "stalls_in_syncs_are_recorded_on_xfs",
        try_stalls_in_syncs_are_recorded_on_xfs,
    );
}

fn try_stalls_in_syncs_are_recorded_on_xfs() {
    stalls_in_syncs_are_recorded("xfs");
}

#[test]
fn stalls_in_syncs_are_recorded_on_btrfs() {
    crate::common::tried(
        "kernel",
        "stalls_in_syncs_are_recorded_on_btrfs",
        try_stalls_in_syncs_are_recorded_on_btrfs,
    );
}

fn try_stalls_in_syncs_are_recorded_on_btrfs() {
    stalls_in_syncs_are_recorded("btrfs");
}

#[test]
fn a_sync_waits_beside_whom_the_disk_works_for() {
    crate::common::tried(
        "kernel",
        "a_sync_waits_beside_whom_the_disk_works_for",
        try_a_sync_waits_beside_whom_the_disk_works_for,
    );
}

fn try_a_sync_waits_beside_whom_the_disk_works_for() {
    const TEST: &str = "a_sync_waits_beside_whom_the_disk_works_for";
    // The victim (`log`) writes and syncs block by block into a file that grows, which needs the journal.
    let step = "dd if=/dev/zero of=other bs=256k count=10000 oflag=direct 2>/dev/null & other=$!; \
                dd if=/dev/zero of=log bs=4k count=6 oflag=dsync 2>/dev/null; kill $other; wait || true";
    let Some((connection, device, _)) = recorded(TEST, "ext4", step) else { return };
    let of = |kind: &str| {
        let sql = format!(
            "SELECT 1.0 * sum(json_extract(s.value, '$[2]')) FROM io_wait w JOIN json_each(w.waits) s \
             JOIN process p USING (proc) WHERE w.kind = '{kind}' AND w.device = ?1 AND cmdline LIKE '%oflag=dsync%'"
        );
        number_of(&connection, &sql, &device)
    };
    let (synced, waited) = (of("sync"), of("request"));
    // A sync waits for requests: its own, and the journal's.
    let ratio = waited / synced;
    assert!((0.7..1.2).contains(&ratio), "{waited} ns of {synced} ns");
    let blamed = "SELECT 1.0 * sum(b.ns) FROM io_blame b JOIN process v ON v.proc = b.victim \
                  JOIN process c ON c.proc = b.proc WHERE b.device = ?1 AND v.cmdline LIKE '%oflag=dsync%' \
                  AND c.cmdline LIKE '%oflag=direct%'";
    let blamed = number_of(&connection, blamed, &device);
    // The two writers take turns at the disk; the other one has up to two requests in flight, and often both. While the
    // disk's server gets no CPU, all that waits there is the other one's queue.
    assert!(
        (0.25..0.99).contains(&(blamed / waited)),
        "{blamed} ns of {waited} ns are beside the other"
    );
}
