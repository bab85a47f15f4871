// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block probe on this kernel: it loads within an instruction budget, and bytes written to a filesystem on a loop
//! device are attributed to the right files, whichever way they were written.

use crate::common::{root_or_skip, skip};
use crate::disk;
use deburr_bpf::block::{BlockPlan, BlockProbe, FirstName, Op, Target, Transfer};
use deburr_bpf::facts::facts;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of possible CPUs of this host.
pub(crate) fn cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    text.trim().rsplit(['-', ',']).next().unwrap().parse::<u32>().unwrap() + 1
}

/// Device number of the filesystem mounted at `point`, as the kernel encodes it. The filesystem must be on a whole
/// disk.
pub(crate) fn number(point: &Path) -> u32 {
    let fs = disk::fs_of(point);
    fs.major << 20 | fs.minor
}

/// All that a probe reported about one disk.
pub(crate) struct Seen {
    pub(crate) probe: BlockProbe,
    disk: u32,
    pub(crate) transfers: Vec<Transfer>,
    names: BTreeMap<u64, FirstName>,
}

impl Seen {
    pub(crate) fn begin(disk: u32) -> Self {
        let plan = BlockPlan::new(&facts()).unwrap();
        let probe = BlockProbe::open(&plan, cpus()).unwrap();
        Self { probe, disk, transfers: Vec::new(), names: BTreeMap::new() }
    }

    pub(crate) fn look(&mut self) {
        let disk = self.disk;
        let (transfers, names) = (&mut self.transfers, &mut self.names);
        self.probe.read(
            &mut |transfer| {
                if transfer.disk == disk {
                    transfers.push(transfer.clone());
                }
            },
            &mut |named| {
                names.insert(named.ino, named);
            },
        );
    }

    /// Reads until no transfer was reported for 200 ms, for 20 s at most.
    pub(crate) fn settle(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let before = self.transfers.len();
            std::thread::sleep(Duration::from_millis(200));
            self.look();
            if self.transfers.len() == before || Instant::now() > deadline {
                return;
            }
        }
    }

    /// Bytes written, by inode number.
    fn written(&self) -> BTreeMap<u64, u64> {
        let mut sum = BTreeMap::new();
        for transfer in self.transfers.iter().filter(|transfer| transfer.op == Op::Write) {
            if let Target::File { ino, .. } = transfer.target {
                *sum.entry(ino).or_insert(0) += u64::from(transfer.bytes);
            }
        }
        sum
    }
}

/// What was written to a file, and the name that it should get; `|` separates names of which either will do.
struct Expected {
    path: String,
    ino: u64,
    bytes: u64,
    deleted: bool,
}

struct Writer {
    root: PathBuf,
    expected: Vec<Expected>,
    open: Vec<File>,
}

impl Writer {
    fn expect(&mut self, path: &str, file: &File, bytes: u64, deleted: bool) {
        let ino = file.metadata().unwrap().ino();
        self.expected.push(Expected { path: path.to_owned(), ino, bytes, deleted });
    }

    fn create(&self, path: &str) -> File {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap()
    }

    fn buffered(&mut self, path: &str, blocks: usize) {
        let mut file = self.create(path);
        file.write_all(&vec![7; blocks * 4096]).unwrap();
        self.expect(path, &file, blocks as u64 * 4096, false);
    }

    /// Appends and syncs block by block.
    fn appended(&mut self, path: &str, blocks: u64) {
        let mut file = self.create(path);
        for _ in 0..blocks {
            file.seek(SeekFrom::End(0)).unwrap();
            file.write_all(&[8; 4096]).unwrap();
            file.sync_data().unwrap();
        }
        self.expect(path, &file, blocks * 4096, false);
    }

    fn direct(&mut self, path: &str, blocks: u64) {
        drop(self.create(path));
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
            .open(self.root.join(path))
            .unwrap();
        let memory = vec![9_u8; 3 * 4096];
        let skip = memory.as_ptr().align_offset(4096);
        for block in 0..blocks {
            file.write_all_at(&memory[skip..skip + 4096], block * 4096).unwrap();
        }
        self.expect(path, &file, blocks * 4096, false);
    }

    fn all(root: &Path) -> Self {
        let mut writer = Self { root: root.to_owned(), expected: Vec::new(), open: Vec::new() };
        // Small files side by side: their blocks are merged into the same requests.
        for number in 0..100 {
            writer.buffered(&format!("many/{number}"), 1 + number % 8);
        }
        writer.buffered("a/b/c/large", 2000);
        writer.appended("a/appended", 30);
        writer.direct("a/b/direct", 50);

        let mut renamed = writer.create("a/before");
        renamed.write_all(&[1; 20 * 4096]).unwrap();
        std::fs::rename(root.join("a/before"), root.join("a/after")).unwrap();
        writer.expect("a/after", &renamed, 20 * 4096, false);

        let mut linked = writer.create("a/first");
        linked.write_all(&[2; 30 * 4096]).unwrap();
        std::fs::hard_link(root.join("a/first"), root.join("a/second")).unwrap();
        writer.expect("a/first|a/second", &linked, 30 * 4096, false);

        let mut deleted = writer.create("a/deleted");
        deleted.write_all(&[3; 40 * 4096]).unwrap();
        std::fs::remove_file(root.join("a/deleted")).unwrap();
        writer.expect("a/deleted", &deleted, 40 * 4096, true);
        deleted.sync_all().unwrap();
        writer.open.push(deleted);

        rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
        writer
    }
}

fn files_are_found(test: &str, fs_type: &str) {
    if !root_or_skip("kernel", test) {
        return;
    }
    let (disk, point) = match disk::mounted(400, fs_type) {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", test, &why),
    };
    quiet(&disk.device);
    let mut seen = Seen::begin(number(&point));
    let before = disk_counters(&disk.device);
    let writer = Writer::all(&point);
    seen.settle();

    let written = seen.written();
    let (mut wanted, mut right) = (0, 0);
    for file in &writer.expected {
        let got = written.get(&file.ino).copied().unwrap_or(0);
        wanted += file.bytes;
        right += got.min(file.bytes);
        // A filesystem may write some blocks again, but never more than twice the bytes.
        assert!(got <= file.bytes * 2, "{}: {got} bytes for {}", file.path, file.bytes);
        let named = seen.names.get(&file.ino);
        let name = named.map(|named| String::from_utf8_lossy(&named.path).into_owned());
        let name = name.unwrap_or_else(|| panic!("{} was not named", file.path));
        assert!(file.path.split('|').any(|path| path == name), "{}: {name}", file.path);
        assert_eq!(named.map(|named| (named.complete, named.deleted)), Some((true, file.deleted)));
    }
    assert!(right * 100 >= wanted * 99, "{right} of {wanted} bytes; lost: {:?}", seen.probe.lost());
    for name in ["log_overrun", "starts_full", "bios_beyond", "names_deferred", "nested"] {
        assert_eq!(seen.probe.lost().get(name), None, "{:?}", seen.probe.lost());
    }
    assert_submitters_and_times(&seen, &writer);
    assert_counters_agree(&seen, before, disk_counters(&disk.device));
    if fs_type == "ext4" {
        assert_journal_and_reason(&seen);
    }
    let known: Vec<u64> = writer.expected.iter().map(|file| file.ino).collect();
    drop(writer);
    // The remount writes out all that the filesystem has held back; in XFS that is in memory of all kinds.
    disk::run("mount", &["-o", "remount,ro", &point.to_string_lossy()]).unwrap();
    seen.settle();
    let strange = seen.written().into_keys().find(|ino| !known.contains(ino));
    assert_eq!(strange, None, "a file that nobody wrote: {:?}", seen.transfers);
}

fn assert_submitters_and_times(seen: &Seen, writer: &Writer) {
    let appended = writer.expected.iter().find(|file| file.path == "a/appended").unwrap().ino;
    let mut requests: BTreeMap<(u64, u32), u32> = BTreeMap::new();
    for transfer in &seen.transfers {
        let request = (transfer.start_ns, transfer.submitter.tid);
        *requests.entry(request).or_insert(0) += u32::from(transfer.first);
        assert!(transfer.start_ns <= transfer.done_ns, "{transfer:?}");
        assert!(transfer.issue_ns <= transfer.done_ns, "{transfer:?}");
        assert_eq!(transfer.weight, 1);
        if matches!(transfer.target, Target::File { ino, .. } if ino == appended) {
            assert_eq!(transfer.submitter.tgid, std::process::id(), "{transfer:?}");
        }
    }
    assert!(requests.values().all(|firsts| *firsts == 1), "each request has one first part");
}

/// Requests completed and bytes moved by a device, as the kernel counts them: reads, then writes.
pub(crate) fn disk_counters(device: &str) -> [(u64, u64); 2] {
    let name = device.rsplit('/').next().unwrap();
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    [(numbers[0], numbers[2] * 512), (numbers[4], numbers[6] * 512)]
}

/// Maximum number of events that the kernel may withhold (`nested`), of some thousands. It does not run a program for
/// an event that interrupts the same program on its CPU, for example where a hypervisor preempts the CPU in the middle
/// of it, and interrupts are due when it resumes.
pub(crate) const MOST_NESTED: u64 = 20;

/// Maximum number of completions that the kernel withholds (`completion_unseen`), of this many requests. A kernel that
/// protects a process runs no program in its context, nor in the interrupts that arrive there. The share of requests is
/// about the share of time in which that process has a CPU. Measured here: 0 to 6 of 20 000 requests where it has one
/// for 1 % of the time, 57 of 20 000 where it is busier.
pub(crate) fn most_unseen(requests: u64) -> u64 {
    (requests / 50).max(40)
}

/// Waits until the device's counters do not change for 200 ms.
pub(crate) fn quiet(device: &str) {
    let mut last = disk_counters(device);
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(200));
        let now = disk_counters(device);
        if now == last {
            return;
        }
        last = now;
    }
    panic!("{device} is never quiet");
}

/// Every transfer is reported once, except for requests of which the kernel withheld an event; those are counted.
fn assert_counters_agree(seen: &Seen, before: [(u64, u64); 2], after: [(u64, u64); 2]) {
    let lost = seen.probe.lost();
    let [nested, unseen] =
        ["nested", "completion_unseen"].map(|name| lost.get(name).copied().unwrap_or(0));
    let requests = after[0].0 + after[1].0 - before[0].0 - before[1].0;
    assert!(nested <= MOST_NESTED && unseen <= most_unseen(requests), "{lost:?}");
    let missing = nested + unseen;
    for (op, before, after) in [(Op::Read, before[0], after[0]), (Op::Write, before[1], after[1])] {
        let moved: Vec<_> = seen.transfers.iter().filter(|moved| moved.op == op).collect();
        let bytes: u64 = moved.iter().map(|moved| u64::from(moved.bytes)).sum();
        let counted = after.1 - before.1;
        let all =
            if missing == 0 { bytes == counted } else { (counted / 2..=counted).contains(&bytes) };
        assert!(all, "{op:?}: {bytes} of {counted} bytes; {lost:?}");
        let requests = moved.iter().filter(|moved| moved.first).count() as u64;
        // Empty writes, which are flushes, are counted as writes by some kernels.
        let flushes =
            seen.transfers.iter().filter(|moved| moved.op == Op::Flush && moved.first).count();
        let counted = after.0 - before.0;
        assert!(
            (requests..=requests + flushes as u64 + missing).contains(&counted),
            "{op:?}: {requests} requests told, {counted} counted, {flushes} flushes"
        );
    }
}

fn assert_journal_and_reason(seen: &Seen) {
    let journal = |moved: &&Transfer| moved.target == Target::Journal && moved.bytes > 0;
    let journal: Vec<_> = seen.transfers.iter().filter(journal).collect();
    assert!(!journal.is_empty(), "the journal was written");
    assert!(journal.iter().all(|moved| moved.submitter.comm.starts_with(b"jbd2/")));
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for moved in seen.transfers.iter().filter(|moved| moved.reason != 0) {
        *reasons.entry(seen.probe.reason_name(moved.reason)).or_insert(0) += 1;
        assert_ne!(moved.submitter.tgid, std::process::id());
    }
    assert!(reasons.contains_key("sync"), "syncfs makes the flusher write: {reasons:?}");
}

#[test]
fn files_on_ext4_are_found() {
    files_are_found("files_on_ext4_are_found", "ext4");
}

#[test]
fn files_on_xfs_are_found() {
    files_are_found("files_on_xfs_are_found", "xfs");
}

#[test]
fn a_sample_stands_for_all_requests() {
    const TEST: &str = "a_sample_stands_for_all_requests";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let (_disk, point) = match disk::mounted(64, "ext4") {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", TEST, &why),
    };
    let mut seen = Seen::begin(number(&point));
    seen.probe.follow(7, false);
    let mut writer = Writer { root: point, expected: Vec::new(), open: Vec::new() };
    // One at a time: the kernel uses the same request structure again and again.
    writer.direct("direct", 4000);
    seen.settle();
    let file = &writer.expected[0];
    let sampled = seen
        .transfers
        .iter()
        .filter(|moved| matches!(moved.target, Target::File { ino, .. } if ino == file.ino));
    let (count, weight) = sampled.fold((0, 0), |sum, moved| (sum.0 + 1, sum.1 + moved.weight));
    assert!((300..800).contains(&count), "{count} of 4000 requests are told");
    assert!((3000..5000).contains(&weight), "which stand for {weight}");
}

#[test]
fn what_comes_faster_than_it_is_read_is_sampled_and_what_is_lost_is_counted() {
    const TEST: &str = "what_comes_faster_than_it_is_read_is_sampled_and_what_is_lost_is_counted";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let (_disk, point) = match disk::mounted(64, "ext4") {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", TEST, &why),
    };
    let mut seen = Seen::begin(number(&point));
    let mut writer = Writer { root: point, expected: Vec::new(), open: Vec::new() };
    let mut write = |thousands: u64| {
        for round in 0..thousands {
            writer.direct(&format!("direct{}", round % 2), 1000);
        }
    };
    // More than a CPU's log holds, whichever CPU they complete on, but fewer than half of it plus eight times its other
    // half.
    write(9);
    seen.look();
    let (told, weight) =
        seen.transfers.iter().fold((0, 0), |sum, moved| (sum.0 + 1, sum.1 + moved.weight));
    let lost = seen.probe.lost();
    assert!(!lost.contains_key("log_overrun"), "{lost:?}");
    // Where they complete on many CPUs, no log is half full, and nothing is sampled.
    assert!(told < 9000 || cpus() > 4, "{told}");
    assert!((8500..10_000).contains(&weight), "{told} told stand for {weight} of some 9000");
    // So many that logs overrun, however many CPUs they complete on: an eighth of them fills the logs of sixteen.
    seen.transfers.clear();
    write(40 * u64::from(cpus().min(8)));
    seen.look();
    assert!(seen.probe.lost()["log_overrun"] > 0);
    assert!(seen.transfers.len() > 1000, "the latest are told");
}

/// The memory that a process writes from without the page cache is often shared with other processes (a database's
/// buffers), or maps a file.
#[test]
fn a_direct_write_belongs_to_the_file_that_is_written_not_to_the_one_in_memory() {
    const TEST: &str =
        "a_direct_write_belongs_to_the_file_that_is_written_not_to_the_one_in_memory";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let (_disk, point) = match disk::mounted(64, "ext4") {
        Ok(mounted) => mounted,
        Err(reason) => return skip("kernel", TEST, &reason),
    };
    const BYTES: u64 = 64 * 4096;
    let memory = tempfile::tempfile_in("/dev/shm").unwrap();
    memory.write_all_at(&[5; BYTES as usize], 0).unwrap();
    let page_cache = point.join("read");
    std::fs::write(&page_cache, [6; BYTES as usize]).unwrap();
    File::open(&page_cache).unwrap().sync_all().unwrap();
    for source in [memory, File::open(&page_cache).unwrap()] {
        // A new probe, which has not learned yet what such transfers look like.
        let mut seen = Seen::begin(number(&point));
        let target = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
            .open(point.join("written"))
            .unwrap();
        let mut offset = 0;
        while offset < BYTES {
            let left = usize::try_from(BYTES - offset).unwrap();
            let sent = rustix::fs::sendfile(&target, &source, Some(&mut offset), left).unwrap();
            assert!(sent > 0);
        }
        seen.settle();
        let ino = target.metadata().unwrap().ino();
        assert_eq!(seen.written(), BTreeMap::from([(ino, BYTES)]), "{:?}", seen.transfers);
    }
}

#[test]
fn the_block_device_itself_is_no_file() {
    const TEST: &str = "the_block_device_itself_is_no_file";
    if !root_or_skip("kernel", TEST) {
        return;
    }
    let disk = match disk::Disk::new(16) {
        Ok(disk) => disk,
        Err(why) => return skip("kernel", TEST, &why),
    };
    let rdev = std::fs::metadata(&disk.device).unwrap().rdev();
    let mut seen = Seen::begin(rustix::fs::major(rdev) << 20 | rustix::fs::minor(rdev));
    let direct = OpenOptions::new()
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
        .open(&disk.device)
        .unwrap();
    let memory = vec![9_u8; 3 * 4096];
    let skip = memory.as_ptr().align_offset(4096);
    direct.write_all_at(&memory[skip..skip + 4096], 0).unwrap();
    let buffered = OpenOptions::new().write(true).open(&disk.device).unwrap();
    buffered.write_all_at(&[7; 8192], 1 << 20).unwrap();
    buffered.sync_all().unwrap();
    // A direct write from shared memory.
    let shared = tempfile::tempfile_in("/dev/shm").unwrap();
    shared.write_all_at(&[5; 4096], 0).unwrap();
    assert_eq!(rustix::fs::sendfile(&direct, &shared, Some(&mut 0), 4096), Ok(4096));
    seen.settle();
    let bytes = |target: Target| -> u64 {
        let of = |moved: &&Transfer| moved.target == target && moved.op == Op::Write;
        seen.transfers.iter().filter(of).map(|moved| u64::from(moved.bytes)).sum()
    };
    assert_eq!(bytes(Target::Anonymous), 8192, "{:?}", seen.transfers);
    assert_eq!(bytes(Target::BlockDevice), 8192, "{:?}", seen.transfers);
    assert!(seen.written().is_empty(), "{:?}", seen.transfers);
}

#[test]
fn the_block_probe_loads_within_a_budget_of_instructions() {
    if !root_or_skip("kernel", "the_block_probe_loads_within_a_budget_of_instructions") {
        return;
    }
    let plan = BlockPlan::new(&facts()).unwrap();
    let probe = BlockProbe::open(&plan, cpus()).unwrap();
    let verified = probe.verified_instructions();
    if verified.is_empty() {
        return skip("kernel", "the_block_probe_loads_within_a_budget_of_instructions", "not told");
    }
    let sum: u64 = verified.values().sum();
    assert!(sum < 12_000, "the verifier looked at {sum} instructions: {verified:?}");
}
