// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimates from a sample of requests agree with the kernel's own counters of the disk.

use crate::block::{MOST_NESTED, Seen, disk_counters, most_unseen, quiet};
use crate::common::{root_or_skip, skip};
use crate::disk;
use deburr_bpf::block::Op;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};

const MIB: u64 = 64;
const BLOCK: usize = 4096;
/// Number of transfers past the page cache.
const DIRECT: u64 = 16_000;
/// Number of blocks written through the page cache, which the kernel writes back together with adjacent ones.
const BUFFERED: u64 = 4_000;
/// Bytes of the largest transfer.
const LARGEST: u64 = 8 * BLOCK as u64;
/// A pseudo-random number for each `n`, the same in every run.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Makes transfers of 1, 2, 4 or 8 blocks all over the disk, every eighth a read, the others writes: the first half in
/// one thread, the second half in four.
fn direct(device: &str, numbers: std::ops::Range<u64>) {
    let work = |from: u64, to: u64| {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
            .open(device)
            .unwrap();
        let mut memory = vec![9_u8; 9 * BLOCK];
        let skip = memory.as_ptr().align_offset(BLOCK);
        for n in from..to {
            let blocks = 1 << (scattered(n) % 4);
            let place = scattered(n ^ 0x5555) % (MIB * 256 - 8) * BLOCK as u64;
            let memory = &mut memory[skip..skip + blocks * BLOCK];
            if n % 8 == 0 {
                file.read_exact_at(memory, place).unwrap();
            } else {
                file.write_all_at(memory, place).unwrap();
            }
        }
    };
    let (first, count) = (numbers.start, numbers.end - numbers.start);
    work(first, first + count / 2);
    std::thread::scope(|scope| {
        for part in 4..8 {
            scope.spawn(move || work(first + part * count / 8, first + (part + 1) * count / 8));
        }
    });
}

fn buffered(device: &str, numbers: std::ops::Range<u64>) {
    let file = OpenOptions::new().write(true).open(device).unwrap();
    for n in numbers {
        let place = scattered(n) % (MIB * 256) * BLOCK as u64;
        file.write_all_at(&[7; BLOCK], place).unwrap();
    }
    file.sync_all().unwrap();
}

#[test]
fn what_a_sample_stands_for_agrees_with_the_counters_of_the_disk() {
    const TEST: &str = "what_a_sample_stands_for_agrees_with_the_counters_of_the_disk";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let disk = match disk::Disk::new(MIB) {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", TEST, &why),
    };
    let rdev = std::fs::metadata(&disk.device).unwrap().rdev();
    // With one in 64, some 300 requests stand for 20 000. Sizes of which the largest is 8 times the smallest have a
    // standard deviation below their mean, so an estimate from 300 is off by 1.3/sqrt(300) = 8 % at most; three times
    // that is allowed.
    for (one_in, tolerance) in [(1, 0.0), (8, 0.08), (64, 0.24)] {
        let mut seen = Seen::begin(rustix::fs::major(rdev) << 20 | rustix::fs::minor(rdev));
        seen.probe.follow(one_in, false);
        quiet(&disk.device);
        let before = disk_counters(&disk.device);
        // The log of a CPU is read before it is full, however late this thread runs.
        for from in (0..DIRECT).step_by(2000) {
            direct(&disk.device, from..from + 2000);
            seen.look();
        }
        for from in (0..BUFFERED).step_by(1000) {
            buffered(&disk.device, from..from + 1000);
            seen.look();
        }
        quiet(&disk.device);
        seen.settle();
        let after = disk_counters(&disk.device);
        let lost = seen.probe.lost();
        let nested = lost.get("nested").copied().unwrap_or(0);
        // Completed in an interrupt in the context of a process in which this kernel runs no program.
        let completions = lost.get("completion_unseen").copied().unwrap_or(0);
        let unseen = nested * u64::from(one_in) + completions;
        for (op, place) in [(Op::Read, 0), (Op::Write, 1)] {
            let moved = seen.transfers.iter().filter(|moved| moved.op == op);
            let (ios, bytes) = moved.fold((0, 0), |(ios, bytes), moved| {
                let weight = u64::from(moved.weight);
                (ios + weight * u64::from(moved.first), bytes + weight * u64::from(moved.bytes))
            });
            let done = (after[place].0 - before[place].0, after[place].1 - before[place].1);
            // Reads are an eighth of all requests, so their estimates vary more.
            let allowed = if op == Op::Read { tolerance * 8_f64.sqrt() } else { tolerance };
            // Some kernels count an empty write, which is a flush, as a write: each `sync_all` makes one.
            let empty = if op == Op::Write { BUFFERED / 1000 } else { 0 };
            // An unseen completion is noticed when the request's memory is reused; the last one is not.
            let last = 1;
            let counts = [
                ("requests", ios, done.0, empty + unseen + last),
                ("bytes", bytes, done.1, (unseen + last) * LARGEST),
            ];
            for (what, told, done, known) in counts {
                let off = told.abs_diff(done).saturating_sub(known) as f64 / done as f64;
                assert!(
                    off <= allowed,
                    "one in {one_in}, {op:?}: {told} of {done} {what}; {lost:?}"
                );
            }
        }
        assert!(!lost.contains_key("starts_full"), "{lost:?}");
        assert!(nested <= MOST_NESTED, "{lost:?}");
        // A request that is followed stands for `one_in`.
        let requests = after[0].0 + after[1].0 - before[0].0 - before[1].0;
        assert!(completions <= most_unseen(requests).max(40 * u64::from(one_in)), "{lost:?}");
    }
}
