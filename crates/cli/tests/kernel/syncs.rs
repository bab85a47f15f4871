// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Syncs and commits of filesystems that do not tell of both ends of them: what is told of them on a slow disk agrees
//! with what their caller measured.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::block::{cpus, number};
use crate::common::{root_or_skip, skip, skip_or_fail};
use crate::disk::Disk;
use deburr_bpf::io_facts::io_facts;
use deburr_bpf::writeback::syncs::{Over, Syncs, find};
use deburr_bpf::writeback::{Event, Journal, WritebackPlan, WritebackProbe};
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Syncs that are made.
const SYNCS: u64 = 12;
/// Time that the disk takes for each request.
const REQUEST_US: u64 = 20_000;
const REQUEST_NS: u64 = REQUEST_US * 1000;

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// A slow disk with that filesystem, or `None` after it was said why there is none.
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

/// Grows a file and syncs it, so often; from when to when each sync took.
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
    let plan = WritebackPlan::new(&io_facts()).unwrap();
    let begins = if fs_type == "xfs" { plan.xfs_syncs } else { plan.btrfs_syncs };
    if !(begins && plan.returns) {
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
        // Within the call, and most of it: the disk alone takes longer than entering and leaving.
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
    a_sync_is_told_with_both_ends("xfs");
}

#[test]
fn a_sync_is_told_with_both_ends_on_btrfs() {
    a_sync_is_told_with_both_ends("btrfs");
}

/// Syncs that are over before the next look.
const SHORT: usize = 50;

/// Runs the looks of ten times a second until `done`, in this thread.
fn look_until(probe: &mut WritebackProbe, done: &AtomicBool) -> Vec<Over<u64>> {
    let (mut syncs, mut over) = (Syncs::default(), Vec::new());
    let me = std::process::id();
    // One that is found running is looked at again.
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
    let mut plan = WritebackPlan::new(&io_facts()).unwrap();
    if !(if fs_type == "xfs" { plan.xfs_syncs } else { plan.btrfs_syncs }) {
        return skip("kernel", &test, "this kernel does not tell of these syncs");
    }
    // As on a kernel that does not tell of ends.
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
        let within = |over: &&Over<u64>| (*begin_ns..*end_ns).contains(&over.begin_ns);
        let found: Vec<&Over<u64>> = over.iter().filter(within).collect();
        let [found] = found[..] else { panic!("{found:?} of {begin_ns} to {end_ns}") };
        // Its caller may have had to wait for a CPU before it looked at its clock.
        assert!(found.seen_ns <= *end_ns && *end_ns <= found.latest_ns + REQUEST_NS, "{found:?}");
        assert!(found.seen_ns > found.begin_ns, "{found:?} of {begin_ns} to {end_ns} was not seen");
    }
    let seen: u64 = over.iter().map(|over| over.seen_ns - over.begin_ns).sum();
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

fn a_commit_is_told(fs_type: &str, kind: Journal) {
    let test = format!("a_commit_is_told_of_{fs_type}");
    let Some((_disk, point)) = slow(&test, fs_type) else { return };
    let plan = WritebackPlan::new(&io_facts()).unwrap();
    if !(if fs_type == "xfs" { plan.xfs_commits } else { plan.btrfs_commits }) {
        return skip("kernel", &test, "this kernel does not tell of them");
    }
    let mut probe = WritebackProbe::open(&plan, cpus()).unwrap();
    let fs = number(&point);
    let directory = File::open(&point).unwrap();
    // Each makes something that has to be in the log, and waits until it is.
    let measured: Vec<(u64, u64)> = (0..SYNCS)
        .map(|at| {
            std::fs::create_dir(point.join(at.to_string())).unwrap();
            let begin_ns = monotonic_ns();
            rustix::fs::syncfs(&directory).unwrap();
            (begin_ns, monotonic_ns())
        })
        .collect();
    let commits = |told: &[Event]| -> Vec<(Option<u64>, u64)> {
        told.iter()
            .filter_map(|event| match *event {
                Event::Commit { begin_ns, end_ns, fs: on, kind: of, .. } => {
                    ((on, of) == (fs, kind)).then_some((begin_ns, end_ns))
                }
                _ => None,
            })
            .collect()
    };
    let mut told = Vec::new();
    let within = |told: &[Event], (begin_ns, end_ns): (u64, u64)| -> Vec<(Option<u64>, u64)> {
        let ended = |commit: &(Option<u64>, u64)| (begin_ns..=end_ns).contains(&commit.1);
        commits(told).into_iter().filter(ended).collect()
    };
    events(&mut probe, &mut told, |told| !within(told, measured[SYNCS as usize - 1]).is_empty());
    let found = commits(&told);
    if kind == Journal::Btrfs && found.iter().all(|commit| commit.0.is_none()) {
        return skip("kernel", &test, "this kernel does not tell when a commit of btrfs began");
    }
    let (mut in_commits, mut in_syncs) = (0, 0);
    for measured in measured {
        let within = within(&told, measured);
        assert!(!within.is_empty(), "{measured:?} committed nothing: {found:?}");
        for (begin_ns, end_ns) in within {
            let begin_ns = begin_ns.unwrap();
            // A commit that a timer began may have been under way.
            assert!(begin_ns < end_ns && end_ns <= measured.1, "{begin_ns} {end_ns} {measured:?}");
            in_commits += end_ns - begin_ns.max(measured.0);
        }
        in_syncs += measured.1 - measured.0;
    }
    // It waits for little else. One after another: of several buffers at once the sum would be longer.
    let ratio = in_commits as f64 / in_syncs as f64;
    assert!((0.2..1.1).contains(&ratio), "{ratio} of the syncs are in commits");
}

#[test]
fn a_commit_is_told_of_xfs() {
    a_commit_is_told("xfs", Journal::Xfs);
}

#[test]
fn a_commit_is_told_of_btrfs() {
    a_commit_is_told("btrfs", Journal::Btrfs);
}
