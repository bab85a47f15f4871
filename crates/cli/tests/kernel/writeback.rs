// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writeback probe on this kernel: it loads within an instruction budget, and its events name the file on a loop
//! device and the process that wrote or synced it.

use crate::block::{cpus, number};
use crate::common::{root_or_skip, skip};
use crate::disk;
use deburr_bpf::facts::facts;
use deburr_bpf::writeback::{Event, WritebackPlan, WritebackProbe};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Reads events until `found` returns a value for one of them; panics after 60 s. `what` names the event in that
/// message.
fn until<R>(
    probe: &mut WritebackProbe,
    told: &mut Vec<Event>,
    what: &str,
    found: impl Fn(&Event) -> Option<R>,
) -> R {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        probe.read(&mut |event| told.push(event));
        if let Some(value) = told.iter().find_map(&found) {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} was not told; lost: {:?}", probe.lost());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[test]
fn the_life_of_a_dirty_file_is_told() {
    const TEST: &str = "the_life_of_a_dirty_file_is_told";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let plan = WritebackPlan::new(&facts()).unwrap();
    if !(plan.passes && plan.inodes && plan.dirtied && plan.commits && plan.syncs) {
        return skip("kernel", TEST, &format!("not all hooks are there: {plan:?}"));
    }
    let (_disk, point) = match disk::mounted(64, "ext4") {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", TEST, &why),
    };
    let mut probe = WritebackProbe::open(&plan, cpus()).unwrap();
    let began_ns = monotonic_ns();
    let mut file = File::create(point.join("file")).unwrap();
    let (me, number, ino) = (std::process::id(), number(&point), file.metadata().unwrap().ino());
    let mut told = Vec::new();

    file.write_all(&[1; 4096]).unwrap();
    until(&mut probe, &mut told, "who dirtied", |event| match event {
        Event::InodeDirtied { fs, ino: of, by, .. } => {
            (*fs == number && *of == ino && by.tgid == me && by.leader_boot_ns > 0).then_some(())
        }
        _ => None,
    });
    file.sync_data().unwrap();
    let sync = |event: &Event, after_ns: u64| match event {
        Event::Sync { begin_ns, end_ns, by, fs, ino: of, .. } => {
            let mine = *fs == number && *of == ino && by.tgid == me && *begin_ns > after_ns;
            mine.then_some((*begin_ns, *end_ns))
        }
        _ => None,
    };
    let (begin_ns, end_ns) = until(&mut probe, &mut told, "fdatasync", |event| sync(event, 0));
    assert!(began_ns < begin_ns && begin_ns < end_ns && end_ns < monotonic_ns());
    file.write_all(&[2; 4096]).unwrap();
    file.sync_all().unwrap();
    until(&mut probe, &mut told, "fsync", |event| sync(event, end_ns));
    until(&mut probe, &mut told, "a commit", |event| match event {
        Event::Commit { begin_ns, end_ns, fs, blocks, .. } if *fs == number => {
            let begin_ns = begin_ns.unwrap();
            assert!(began_ns < begin_ns && begin_ns < *end_ns);
            assert!(blocks.is_some_and(|blocks| blocks > 0), "{event:?}");
            Some(())
        }
        _ => None,
    });

    for value in [3, 4] {
        file.write_all(&[value; 4096]).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        rustix::fs::syncfs(&file).unwrap();
    }
    let (dirty_for_ns, since_last_ns) =
        until(&mut probe, &mut told, "an inode written again", |event| match event {
            Event::InodeWritten { fs, ino: of, dirty_for_ns, since_last_ns, .. } => {
                let again = since_last_ns.filter(|ns| *ns >= 300_000_000);
                (*fs == number && *of == ino).then_some((*dirty_for_ns, again?))
            }
            _ => None,
        });
    // The kernel measures dirty time in ticks of some milliseconds.
    let dirty_for_ns = dirty_for_ns.unwrap();
    assert!(dirty_for_ns >= 280_000_000, "dirty for {dirty_for_ns} ns");
    assert!(dirty_for_ns <= since_last_ns + 50_000_000, "{dirty_for_ns} {since_last_ns}");
    let bdi = disk::fs_of(&point).to_string();
    let reason = until(&mut probe, &mut told, "a pass", |event| match event {
        Event::PassBegan { bdi: of, reason, .. } if *of == bdi => Some(*reason),
        _ => None,
    });
    assert_eq!(probe.reason_name(reason), "sync");
    until(&mut probe, &mut told, "the end of a pass", |event| match event {
        Event::PassEnded { bdi: of, .. } if *of == bdi => Some(()),
        _ => None,
    });
    assert_eq!(probe.lost().get("log_overrun"), None);
}

/// A changed kernel setting, restored on drop.
struct Changed {
    path: PathBuf,
    before: String,
}

impl Changed {
    /// Writes `value` to the file; `None` = it cannot be set.
    fn to(path: PathBuf, value: &str) -> Option<Self> {
        let before = std::fs::read_to_string(&path).ok()?;
        std::fs::write(&path, value).ok()?;
        Some(Self { path, before })
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.path, self.before.trim());
    }
}

#[test]
fn a_writer_that_is_paused_is_told() {
    const TEST: &str = "a_writer_that_is_paused_is_told";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let plan = WritebackPlan::new(&facts()).unwrap();
    if plan.pause_args.is_none() {
        return skip("kernel", TEST, "balance_dirty_pages is not there or of an unknown shape");
    }
    let (_disk, point) = match disk::mounted(400, "ext4") {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", TEST, &why),
    };
    let bdi = disk::fs_of(&point).to_string();
    let dir = Path::new("/sys/class/bdi").join(&bdi);
    let strict = Changed::to(dir.join("strict_limit"), "1");
    let ratio = Changed::to(dir.join("max_ratio"), "0");
    if strict.is_none() || ratio.is_none() {
        return skip("kernel", TEST, "no limit can be set");
    }
    let mut probe = WritebackProbe::open(&plan, cpus()).unwrap();
    let mut file = File::create(point.join("file")).unwrap();
    let mut told = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut found = None;
    while found.is_none() && Instant::now() < deadline {
        let written = file.write_all(&vec![1; 1 << 20]);
        if written.is_err() {
            file.set_len(0).unwrap();
            file = File::create(point.join("file")).unwrap();
        }
        probe.read(&mut |event| told.push(event));
        found = told.iter().find_map(|event| match event {
            Event::Pause { pause_ns, by, bdi: of, .. } if *of == bdi => {
                (by.tgid == std::process::id()).then_some(*pause_ns)
            }
            _ => None,
        });
    }
    let pause_ns = found.expect("a pause");
    assert!((1..=1_000_000_000).contains(&pause_ns), "{pause_ns}");
}

#[test]
fn the_writeback_probe_loads_within_a_budget_of_instructions() {
    if !root_or_skip("kernel", "the_writeback_probe_loads_within_a_budget_of_instructions") {
        return;
    }
    let plan = WritebackPlan::new(&facts()).unwrap();
    let probe = WritebackProbe::open(&plan, cpus()).unwrap();
    let verified = probe.verified_instructions();
    if verified.is_empty() {
        let test = "the_writeback_probe_loads_within_a_budget_of_instructions";
        return skip("kernel", test, "not told");
    }
    let sum: u64 = verified.values().sum();
    assert!(sum < 5_000, "the verifier looked at {sum} instructions: {verified:?}");
}
