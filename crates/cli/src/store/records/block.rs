// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of block IO.

use crate::store::encodings::{DefaultIfAbsent, JsonOrNull};
use crate::store::table::{Presence, tables};
use deburr_core::recording::{
    BlockRecord, Device, DeviceBins, DeviceTick, DiskReading, File, HeldTick, IoBlameTick, IoPace,
    IoTick, IoWaitTick, JournalCommit, Mount, Record, RequestBin, Setting, Stall, WritebackPass,
};

fn whole(record: BlockRecord) -> Record {
    Record::Block(Box::new(record))
}

tables! {
    BlockRecord in whole, since 2, Presence::Always;

    /// A block device, when it is first seen and again when it disappears. The last row of a `device` is valid. This
    /// table and all that follow exist since version 2.
    "device" => Device(Device) {
        /// its number
        dev = "device",
        /// its name below `/sys/class/block`
        name,
        /// the disk that it is a partition of, or that it alone lies on (LVM, dm-crypt); NULL = it is a whole disk, or
        /// lies on several
        disk,
        /// first sector of a partition, in units of 512 bytes
        start_sector,
        /// length in units of 512 bytes
        sectors,
        /// what is below a stacked device: the backing file of a loop device, the disks of an array
        backing,
        /// 1 = it disappeared during the window
        gone,
    }
    /// A mounted filesystem, when it is first seen.
    "mount" => Mount(Mount) {
        /// the filesystem's device number; `0:N` if there is no device behind it
        fs,
        /// `ext4`, `xfs`, `btrfs`, ...
        fstype,
        /// what is mounted
        source,
        /// where the filesystem's root is mounted, or what is nearest to it
        point,
        /// options of the mount and of the filesystem, joined by commas
        options,
    }
    /// A kernel file that holds a setting, at the start and again when it changed.
    "setting" => Setting(Setting) {
        /// when it was read
        t_ns,
        /// its path
        path,
        /// its content, truncated to 256 bytes; NULL = it does not exist or may not be read
        value,
    }
    /// A file that was read or written, when it is first seen and again when more is known about its name or about
    /// which process dirtied it. The last row of a `file` is valid.
    "file" => File(File) {
        /// identity within the recording, from 1; 4294967295 in other tables = files beyond those that are
        /// distinguished
        id = "file",
        /// the filesystem that holds it; an overlay's files are those of the layer below
        fs,
        /// inode number; on btrfs unique within a subvolume only
        ino,
        /// inode generation, since inode numbers are reused
        generation,
        /// its name, as far as `state` says; may be empty
        path,
        /// `linked`: its absolute path when last checked; `deleted`: the path that it had; `in_filesystem`: relative to
        /// its filesystem's root, after `.../` only the end of it; `nameless`: no name was found
        state,
        /// the first process (`proc`) that was seen to dirty it while it was clean; NULL = none was seen
        dirtied_by,
    }
    /// Transfers of one kind in one tick (BPF block probe). A request for several files counts as one transfer for
    /// each.
    "io_tick" over tick => Io(IoTick) {
        /// the whole disk
        device,
        /// `what`: what the transfer was for: `file`, `metadata`, `journal`, `flush`, `discard`, `swap`, `raw_device`
        /// or `unknown`
        /// `file`: the file, if `what` is `file`
        what,
        /// `read`, `write` or `other`
        op,
        /// `proc` of the process that submitted it; a kernel thread for writeback
        submitter,
        /// the cgroup that owns the pages, or the submitter's
        owner,
        /// why the kernel wrote back, in its own word; NULL = no writeback
        reason,
        /// transfers that ended; where the probe sampled, scaled up to all
        ios,
        /// their bytes; where the probe sampled, they are scaled because requests differ in size: together with what
        /// was followed completely they sum, over the reads or the writes of a disk, to what `/proc/diskstats` counted
        /// (the factor is limited to one half to two)
        bytes,
        /// sum of their time from creation to completion; where the probe sampled, scaled up as `ios` are
        total_ns,
        /// longest one seen
        max_ns,
    }
    /// How long the requests of a device took (BPF block probe).
    "device_tick" over tick => DeviceTick(DeviceTick) {
        /// the whole disk
        device,
        /// `read`, `write` or `other`
        op,
        /// from creation to completion: a JSON list as `process_tick.waits`; NULL = none
        total,
        /// the part from creation to issue, likewise: in the scheduler, or in the queue of a driver
        queue,
        /// the part from issue to completion, likewise
        device_time,
        /// longest from creation to completion
        max_ns,
        /// one in so many requests was measured and is in the lists, at the coarsest sampling within the second; 1 =
        /// all
        sampled_one_in,
        /// the time before creation, for a tag or in writeback throttling, likewise, of those requests in `total` that
        /// waited 4 096 ns and more; `[]` = none did, NULL = not examined; older recordings of version 2 lack the
        /// column
        before,
    }
    /// How long the requests of a device took that completed in one bin of 100 ms (BPF block probe). They are in
    /// `device_tick` too. Several rows may be about the same bin: their amounts add up. A recording of version 2 may lack
    /// the table, which was added later.
    "request_bin", since 2, Presence::Added => Requests(RequestBin) {
        /// start
        t0_ns,
        /// end
        t1_ns,
        /// the whole disk
        device,
        /// `read`, `write` or `other`
        op,
        /// from creation to completion, as `device_tick.total`
        total,
    }
    /// A device's activity in bins of 10 ms (BPF block probe), for bursts that an average over a second hides.
    "device_bins" over tick => Bins(DeviceBins) {
        /// the whole disk
        device,
        /// `bins`: number of bins of equal length in the range
        /// `active`: those with any activity: a JSON list of `[bin, busy_ns, depth_ns, ios, bytes]`, bins from 0; NULL
        /// = none. `busy_ns` is the time with a request in the queue or the device, `depth_ns` the integral of the
        /// number of requests, `ios` and `bytes` are those that ended
        bins,
    }
    /// A line of `/proc/diskstats`, cumulative, ten times a second.
    "disk_reading" => Disk(DiskReading) {
        /// when
        t_ns,
        /// disk or partition
        device,
        /// `reads`: reads completed
        /// `read_bytes`: bytes read
        /// `read_ns`: time of reads, summed over requests
        /// `writes`: writes completed
        /// `write_bytes`: bytes written
        /// `write_ns`: time of writes, summed over requests
        /// `discard_bytes`: bytes discarded
        /// `flushes`: cache flushes completed; 0 before Linux 5.5
        /// `busy_ns`: time with a request in flight; in jiffies, and too long on fast devices
        /// `depth_ns`: integral over time of the requests in flight
        /// `in_flight`: requests in flight at that moment: the only column that is not cumulative
        counters,
    }
    /// A pass of the kernel's flusher over one device (BPF writeback probe): pieces of work with pauses of less than a
    /// second between them.
    "writeback_pass" => Pass(WritebackPass) {
        /// its first piece began
        t0_ns,
        /// its last piece ended
        t1_ns,
        /// the device, or the filesystem's number if there is no device behind it
        device,
        /// why, in the kernel's own word: `periodic`, `background`, `sync`, ...
        reason,
        /// inodes that were written
        inodes,
        /// bytes of the requests for it
        bytes,
        /// transfers for it
        ios,
        /// how long inodes had been dirty: a JSON list of `[seconds, inodes]`; NULL = none known
        ages: JsonOrNull,
        /// time since the same inode was last written back, for those seen before: likewise
        since_last: JsonOrNull,
        /// the processes that first dirtied them, at most 16: a JSON list of `[proc, inodes]`; NULL = none known
        dirtied_by: JsonOrNull,
        /// the processes that asked the flusher for it (`sync(2)`, `syncfs(2)`, ...), at most 16: a JSON list of
        /// `[proc, times]`; NULL = none, the flusher's own clock; or none known
        asked_by: JsonOrNull,
    }
    /// A commit of a filesystem's journal (BPF writeback probe).
    "journal_commit" => Commit(JournalCommit) {
        /// it began
        t0_ns,
        /// it was on the device
        t1_ns,
        /// the device that holds the filesystem
        device,
        /// `jbd2`, `xfs` or `btrfs`
        kind,
        /// blocks logged, where the kernel reports them
        blocks,
    }
    /// How a process's threads were held up by block IO (BPF), for hold-ups that ended in the tick.
    "io_wait" over tick => Wait(IoWaitTick) {
        /// the process
        proc,
        /// `sync`: `fsync` and the like; `dirty_throttle`: a pause that the kernel made a writer take; `request`: a
        /// read, a synchronous write, a flush of the device's cache, or a commit of the journal
        kind,
        /// for which device; NULL = not reported
        device,
        /// their sizes: a JSON list as `process_tick.waits`; NULL = none. A hold-up whose end is not known counts with
        /// the time that it lasted at least
        waits,
        /// longest one
        max_ns,
        /// number of further hold-ups of which it is only known that they began, and that they were over at the next
        /// check
        // Versions without this column counted none.
        unmeasured: DefaultIfAbsent,
    }
    /// One hold-up of 10 ms and more (BPF), and how many others it stands for.
    "stall" => Stall(Stall) {
        /// it began
        t0_ns,
        /// it ended; with `latest_ns`, it was still in progress
        t1_ns,
        /// the process
        proc,
        /// as in `io_wait`
        kind,
        /// for which device; NULL = not reported
        device,
        /// the file that was synced, read or written, if known
        file,
        /// where the kernel does not report ends and they are checked for at intervals: the time by which it was over
        /// at the latest; NULL = `t1_ns` is the end
        latest_ns,
        /// number of further hold-ups that have no row of their own because there were too many. They are of the same
        /// process, kind and device, ended in the same second, lay within the time of this one and of others that have
        /// a row (to 10 ms), and were no longer than it; NULL = none
        // Versions without these columns merged no stalls.
        within: DefaultIfAbsent,
        /// sum of their lengths, in ns of thread time; NULL = none
        within_ns: DefaultIfAbsent,
    }
    /// Beside whose requests a process waited for its own (BPF block probe). The sum over all culprits is the time of
    /// kind `request` in `io_wait`. A row whose `proc` is the `victim` stands for its own other requests; older
    /// recordings of version 2 have no such rows and count that time as `device`.
    "io_blame" over tick => Blame(IoBlameTick) {
        /// `proc` of the process that waited
        victim,
        /// for which device
        device,
        /// `culprit`: `process`; `writeback`; `filesystem`: its journal or structures; `device`: the part of the
        /// request itself
        /// `proc`: the process, if `culprit` is `process`
        /// `cgroup`: the owner of the pages, if `culprit` is `writeback` and it is known
        culprit,
        /// waiting time
        ns,
    }
    /// When each process asked a device for IO, and for how much (BPF block probe): requests in bins of 100 ms, by the
    /// time at which they were created. A range of time starts at a multiple of 100 ms; where the window ends, the last
    /// bin is shorter. The four with most in each second are listed separately; the others are one, as process
    /// 4294967295. A recording of version 2 may lack the table, which was added later.
    "io_pace" over tick, since 2, Presence::Added => Pace(IoPace) {
        /// the device
        device,
        /// numbers as LEB128: the number of bins; then, for each source of requests, its kind as `culprit` in
        /// `io_blame`: 0 and `proc`, 1 and the `cgroup` of the pages written back, 2 for writeback of an unknown
        /// cgroup, 3 for the filesystem, or 4 for the device; and its bins in units of 512 bytes
        sectors,
    }
    /// Transfers that a limit of block IO (`io.max`, `blkio.throttle.*`) held back and that the kernel released in a
    /// second (BPF block probe). The kernel does not report how long each was held back. A recording of version 2 may
    /// lack the table, which was added later.
    "io_held" over tick, since 2, Presence::Added => Held(HeldTick) {
        /// the whole disk
        device,
        /// `read`, `write` or `other`
        op,
        /// directory of the cgroup in the tree of the `blkio` or `io` controller; the limit is its own or a parent's;
        /// NULL = the cgroup no longer existed
        cgroup,
        /// all transfers, as they were submitted
        ios,
        /// their bytes
        bytes,
        /// how long the requests for such transfers of the device took on average after their release; NULL = none was
        /// seen to end
        service_ns,
        /// processes in the cgroup, at most 64, as a JSON list of `proc`; NULL = none
        members: JsonOrNull,
    }
}
