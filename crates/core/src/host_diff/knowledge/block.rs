// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks, their queues, and filesystems.

use super::{ChangeMethod, Knowledge, SlowerSide, known};
use crate::host_diff::document::Effect::{BlockIo, System};

const MODEL: &str = "/sys/block/*/device/model";

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        78,
        "model of a disk",
        &[MODEL, "/sys/class/nvme/nvme*/model", "/sys/block/*/queue/rotational"],
        "another disk has another latency",
    )
    .slows(&[BlockIo], SlowerSide::Unknown)
    .look("lsblk -d -o NAME,MODEL,ROTA,SIZE,REV")
    .group("machine")
    .change(ChangeMethod::Machine),
    known(
        66,
        "firmware of a disk",
        &["/sys/block/*/device/rev", "/sys/block/*/device/firmware_rev", "/sys/class/nvme/nvme*/firmware_rev"],
        "firmware decides on caches, wear levelling and pauses",
    )
    .slows(&[BlockIo], SlowerSide::Unknown)
    .change(ChangeMethod::Firmware("the maker's tool; `nvme fw-commit`"))
    .follows(&[MODEL, "/sys/class/nvme/nvme*/model"]),
    known(
        74,
        "IO scheduler",
        &["/sys/block/*/queue/scheduler"],
        "`none` passes requests on as they come, `mq-deadline` bounds how long reads wait behind writes, `bfq` shares out the disk",
    )
    .slows(&[BlockIo], SlowerSide::Unknown)
    .risk("requests in flight are waited for; what suits reads can starve writes")
    .group("IO scheduler"),
    known(
        60,
        "settings of the IO scheduler",
        &["/sys/block/*/queue/iosched/*"],
        "how long requests may wait, how many go at once",
    )
    .slows(&[BlockIo], SlowerSide::Unknown)
    .group("IO scheduler")
    .follows(&["/sys/block/*/queue/scheduler"]),
    known(
        72,
        "cache of a disk",
        &["/sys/block/*/queue/write_cache", "/sys/block/*/cache_type", "/sys/block/*/queue/fua"],
        "with a volatile cache every fsync is a flush of the disk: milliseconds",
    )
    .slows(&[BlockIo], SlowerSide::Unknown)
    .risk("a cache that is said to be safe and is not loses data when power fails"),
    known(
        68,
        "throttling of writeback",
        &["/sys/block/*/queue/wbt_lat_usec"],
        "it holds background writes back while reads are slow; 0 is off: writeback bursts fill the queue",
    )
    .slows(&[BlockIo], SlowerSide::Unknown),
    known(
        64,
        "requests in a disk's queue",
        &["/sys/block/*/queue/nr_requests", "/sys/block/*/device/queue_depth", "/sys/class/nvme/*/queue_count", "/sys/class/nvme/*/sqsize"],
        "a long queue raises throughput, and the wait of whoever is last",
    )
    .slows(&[BlockIo], SlowerSide::Unknown),
    known(
        58,
        "read ahead",
        &["/sys/block/*/queue/read_ahead_kb"],
        "much helps sequential reads, and makes random ones through mmap read what nobody wants",
    )
    .slows(&[BlockIo], SlowerSide::Unknown),
    known(
        62,
        "power management of a disk or its link",
        &["/sys/class/scsi_host/*/link_power_management_policy", "/sys/class/nvme/*/power/*"],
        "a link or disk that sleeps takes up to milliseconds to answer",
    )
    .slows(&[BlockIo], SlowerSide::Unknown),
    known(
        56,
        "layout of an array",
        &["/sys/block/*/md/*", "/proc/sys/dev/raid/*"],
        "level, chunk and pace of rebuilding",
    )
    .slows(&[BlockIo], SlowerSide::Unknown),
    known(
        50,
        "who completes requests",
        &["/sys/block/*/queue/rq_affinity", "/sys/block/*/queue/nomerges", "/sys/block/*/queue/io_poll*", "/sys/block/*/queue/max_sectors_kb"],
        "on which CPU a request ends, and how large it may be",
    )
    .slows(&[BlockIo, System], SlowerSide::Unknown),
    known(
        60,
        "filesystem and its options",
        &["/proc/self/mountinfo#/*", "/proc/self/mounts*"],
        "journal mode, barriers, atime and discard decide how much is written, and who waits for it",
    )
    .slows(&[BlockIo], SlowerSide::Unknown)
    .look("findmnt")
    .change(ChangeMethod::Boot("the options in /etc/fstab; many can be changed by `mount -o remount`"))
    .group("filesystem")
    .comes_and_goes(),
    known(
        15,
        "what a disk can do",
        &["/sys/block/*/queue/*", "/sys/block/*/size"],
        "it follows from the disk",
    )
    .follows(&[MODEL, "/sys/class/nvme/nvme*/model"]),
];
