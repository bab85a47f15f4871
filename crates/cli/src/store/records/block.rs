// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of block IO.

use crate::store::encodings::{DefaultIfAbsent, JsonOrNull};
use crate::store::table::{Presence, tables};
use deburr_core::recording::{
    BlockRecord, Device, DeviceBins, DeviceTick, DiskReading, File, HeldTick, IoBlameTick, IoPace,
    IoTick, IoWaitTick, JournalCommit, Mount, Record, Setting, Stall, WritebackPass,
};

fn whole(record: BlockRecord) -> Record {
    Record::Block(Box::new(record))
}

tables! {
    BlockRecord in whole, since 2, Presence::Always;

    "device" => Device(Device) {
        dev = "device",
        name,
        disk,
        start_sector,
        sectors,
        backing,
        gone,
    }
    "mount" => Mount(Mount) { fs, fstype, source, point, options }
    "setting" => Setting(Setting) { t_ns, path, value }
    "file" => File(File) { id = "file", fs, ino, generation, path, state, dirtied_by }
    "io_tick" over tick => Io(IoTick) {
        device,
        what,
        op,
        submitter,
        owner,
        reason,
        ios,
        bytes,
        total_ns,
        max_ns,
    }
    "device_tick" over tick => DeviceTick(DeviceTick) {
        device,
        op,
        total,
        queue,
        device_time,
        max_ns,
        sampled_one_in,
        before,
    }
    "device_bins" over tick => Bins(DeviceBins) { device, bins }
    "disk_reading" => Disk(DiskReading) { t_ns, device, counters }
    "writeback_pass" => Pass(WritebackPass) {
        t0_ns,
        t1_ns,
        device,
        reason,
        inodes,
        bytes,
        ios,
        ages: JsonOrNull,
        since_last: JsonOrNull,
        dirtied_by: JsonOrNull,
        asked_by: JsonOrNull,
    }
    "journal_commit" => Commit(JournalCommit) { t0_ns, t1_ns, device, kind, blocks }
    "io_wait" over tick => Wait(IoWaitTick) {
        proc,
        kind,
        device,
        waits,
        max_ns,
        // Versions without this column counted none.
        unmeasured: DefaultIfAbsent,
    }
    "stall" => Stall(Stall) {
        t0_ns,
        t1_ns,
        proc,
        kind,
        device,
        file,
        latest_ns,
        // Versions without these columns merged no stalls.
        within: DefaultIfAbsent,
        within_ns: DefaultIfAbsent,
    }
    "io_blame" over tick => Blame(IoBlameTick) { victim, device, culprit, ns }
    "io_pace" over tick, since 2, Presence::Added => Pace(IoPace) { device, sectors }
    "io_held" over tick, since 2, Presence::Added => Held(HeldTick) {
        device,
        op,
        cgroup,
        ios,
        bytes,
        service_ns,
        members: JsonOrNull,
    }
}
