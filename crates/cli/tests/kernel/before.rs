// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time before a request exists, as the block probe reports it: readers wait there when a device has few tags, and it
//! is known for every request, whatever became of its bio.

use crate::block::cpus;
use crate::common::{root_or_skip, skip};
use crate::disk;
use deburr_bpf::block::{BlockPlan, BlockProbe, Op, Transfer};
use deburr_bpf::facts::facts;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Size of the test disks, in MiB.
const DISK_MIB: u64 = 64;

/// A setting of a device's request queue, restored on drop: a loop device keeps it after its file is detached.
struct Knob {
    path: PathBuf,
    before: String,
}

impl Knob {
    fn set(device: &str, name: &str, value: u32) -> Self {
        let disk = device.rsplit('/').next().unwrap();
        let path = PathBuf::from(format!("/sys/block/{disk}/queue/{name}"));
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, value.to_string()).unwrap();
        Self { path, before: before.trim().to_owned() }
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.path, &self.before);
    }
}

fn number(device: &str) -> u32 {
    let dev = std::fs::metadata(device).unwrap().rdev();
    rustix::fs::major(dev) << 20 | rustix::fs::minor(dev)
}

fn direct(device: &str) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
        .open(device)
        .unwrap()
}

/// Requests of a disk that complete while `work` runs. The probe's log is short: `work` may call its argument to read
/// what was logged so far.
fn requests(disk: u32, work: impl FnOnce(&mut dyn FnMut())) -> Vec<Transfer> {
    let plan = BlockPlan::new(&facts()).unwrap();
    let mut probe = BlockProbe::open(&plan, cpus()).unwrap();
    let mut told = Vec::new();
    let mut look = || {
        let take = &mut |transfer: &Transfer| {
            if transfer.disk == disk && transfer.first {
                told.push(transfer.clone());
            }
        };
        probe.read(take, &mut |_| {});
    };
    work(&mut look);
    look();
    assert_eq!(probe.lost().get("log_overrun"), None);
    told
}

/// Reads blocks at pseudo-random offsets for `length`. Returns the sum of the durations of the reads.
fn read_for(file: &File, bytes: usize, seed: u64, length: Duration) -> Duration {
    let mut memory = vec![0_u8; bytes + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    let memory = &mut memory[skip..skip + bytes];
    let places = DISK_MIB * MIB / bytes as u64;
    let (begin, mut place, mut sum) = (Instant::now(), seed, Duration::ZERO);
    while begin.elapsed() < length {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (place >> 33) % places * bytes as u64;
        let from = Instant::now();
        file.read_exact_at(memory, at).unwrap();
        sum += from.elapsed();
    }
    sum
}

fn sum_ns(requests: &[Transfer], of: impl Fn(&Transfer) -> u64) -> f64 {
    requests.iter().map(of).sum::<u64>() as f64
}

/// Shares of the time that 16 readers measure: before their requests exist, and from then to completion.
fn shares(device: &str, tags: u32) -> (f64, f64) {
    const READERS: u64 = 16;
    let _knob = Knob::set(device, "nr_requests", tags);
    let file = direct(device);
    let mut felt = Duration::ZERO;
    let told = requests(number(device), |look| {
        felt = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|seed| {
                    let file = &file;
                    let length = Duration::from_millis(1000);
                    scope.spawn(move || read_for(file, MIB as usize / 2, seed, length))
                })
                .collect();
            while !readers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                std::thread::sleep(Duration::from_millis(50));
                look();
            }
            readers.into_iter().map(|reader| reader.join().unwrap()).sum()
        });
    });
    let known = told.iter().filter(|request| request.queued_ns.is_some()).count();
    assert!(known * 100 >= told.len() * 99 && known > 100, "{known} of {}", told.len());
    let before = sum_ns(&told, |r| r.start_ns - r.queued_ns.unwrap_or(r.start_ns));
    let after = sum_ns(&told, |r| r.done_ns - r.start_ns);
    let felt = felt.as_nanos() as f64;
    (before / felt, after / felt)
}

#[test]
fn with_few_tags_readers_wait_before_their_requests() {
    crate::common::tried(
        "kernel",
        "with_few_tags_readers_wait_before_their_requests",
        try_with_few_tags_readers_wait_before_their_requests,
    );
}

fn try_with_few_tags_readers_wait_before_their_requests() {
    const TEST: &str = "with_few_tags_readers_wait_before_their_requests";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let disk = match disk::Disk::new(DISK_MIB) {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", TEST, &why),
    };
    // A worker of the loop device serves the requests one by one. With 4 tags, 12 of the 16 readers wait for one at any
    // time.
    let few = shares(&disk.device, 4);
    let many = shares(&disk.device, 64);
    println!("few tags {few:?}, many {many:?}");
    assert!((0.5..0.85).contains(&few.0), "{few:?}");
    assert!(few.0 > 2.0 * few.1, "before the request is where they wait: {few:?}");
    assert!(many.0 < 0.1 && many.0 < few.0 / 5.0, "{many:?} after {few:?}");
    // The probe reports nearly all that the readers measure; the rest is their own time on the CPU and in the run
    // queue.
    for (before, after) in [few, many] {
        assert!((0.7..1.02).contains(&(before + after)), "{before} + {after}");
    }
}

#[test]
fn every_part_of_a_bio_was_queued_with_it() {
    const TEST: &str = "every_part_of_a_bio_was_queued_with_it";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let mut disk = match disk::Disk::new(DISK_MIB) {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", TEST, &why),
    };
    let whole = disk.device.clone();
    let _knob = Knob::set(&whole, "max_sectors_kb", 16);
    let part = match disk.partition(1, 2048, 32 * MIB / 512) {
        Ok(part) => part,
        Err(why) => return skip("kernel", TEST, &why),
    };
    for device in [&whole, &part] {
        let file = direct(device);
        let mut memory = vec![0_u8; 2 * MIB as usize];
        let skip = memory.as_ptr().align_offset(4096);
        let told = requests(number(&whole), |_| {
            file.read_exact_at(&mut memory[skip..skip + MIB as usize], 0).unwrap();
        });
        assert_eq!(told.len(), 64, "{device}: {told:?}");
        let mut queued: Vec<u64> = told.iter().filter_map(|request| request.queued_ns).collect();
        assert_eq!(queued.len(), told.len(), "{device}: {told:?}");
        queued.sort_unstable();
        // The probe keeps it in units of 32 ns.
        queued.dedup_by(|later, earlier| *later - *earlier < 32);
        assert!(queued.len() <= 8, "{device}: a bio's parts began to wait at once: {queued:?}");
        assert!(told.iter().all(|r| r.queued_ns <= Some(r.start_ns)), "{device}: {told:?}");
    }
}

#[test]
fn merged_bios_leave_nothing_behind_that_others_take_for_theirs() {
    const TEST: &str = "merged_bios_leave_nothing_behind_that_others_take_for_theirs";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let (disk, point) = match disk::mounted(64, "ext4") {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", TEST, &why),
    };
    let mut begin = 0;
    let told = requests(number(&disk.device), |look| {
        begin = now_ns();
        for round in 0..20_u8 {
            for name in 0..100 {
                std::fs::write(point.join(name.to_string()), [round; 8192]).unwrap();
            }
            rustix::fs::syncfs(File::open(&point).unwrap()).unwrap();
            look();
        }
    });
    let writes = |r: &&Transfer| r.op == Op::Write;
    let known = told.iter().filter(writes).filter(|r| r.queued_ns.is_some()).count();
    let all = told.iter().filter(writes).count();
    assert!(known * 100 >= all * 95 && all > 20, "{known} of {all} writes");
    // Many of these bios were merged; a time left behind by one of them would be seconds old.
    for request in &told {
        if let Some(queued_ns) = request.queued_ns {
            assert!(begin <= queued_ns && queued_ns <= request.start_ns, "{request:?}");
        }
    }
    let mut before: Vec<u64> =
        told.iter().filter_map(|r| Some(r.start_ns - r.queued_ns?)).collect();
    before.sort_unstable();
    let median = before[before.len() / 2];
    let took = told.iter().map(|r| r.done_ns - r.start_ns).max().unwrap();
    assert!(median < took, "{median} ns before, {took} ns at most from there on");
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
