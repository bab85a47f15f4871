// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory: size, NUMA nodes, huge pages, reclaim, writeback.

use super::{ChangeMethod, Knowledge, SlowerSide, known};
use crate::host_diff::document::Effect::{BlockIo, Memory, System, User};

const TOTAL: &str = "/proc/meminfo#MemTotal";

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        72,
        "size of memory",
        &[TOTAL],
        "less memory, earlier reclaim and less page cache; limits given in hundredths of it differ too",
    )
    .slows(&[Memory, BlockIo], SlowerSide::Lower)
    .group("machine")
    .change(ChangeMethod::Machine)
    .scales(),
    known(
        70,
        "memory nodes",
        &["/sys/devices/system/node/*"],
        "memory of another node takes half as long again to reach; how they are laid out is chosen in firmware",
    )
    .slows(&[User], SlowerSide::Unknown)
    .look("numactl -H")
    .group("machine")
    .change(ChangeMethod::Firmware("NUMA and interleaving in the firmware's set-up"))
    .follows(&[TOTAL, "/proc/cpuinfo#model name"])
    .scales(),
    known(
        74,
        "transparent huge pages",
        &["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/transparent_hugepage/defrag", "/proc/cmdline#transparent_hugepage"],
        "`always` with direct defragmentation makes page faults wait for compaction, up to milliseconds; `never` costs \
         TLB misses: a tenth of the time where much memory is used",
    )
    .slows(&[User, System, Memory], SlowerSide::Unknown)
    .risk("it holds for memory that is allocated from then on")
    .group("huge pages"),
    known(
        45,
        "huge pages in the background",
        &["/sys/kernel/mm/transparent_hugepage/*"],
        "how hard khugepaged works",
    )
    .slows(&[System], SlowerSide::Unknown)
    .group("huge pages"),
    known(
        62,
        "reserved huge pages",
        &["/proc/sys/vm/nr_hugepages*", "/proc/meminfo#HugePages_Total", "/sys/kernel/mm/hugepages/*", "/proc/cmdline#hugepages*", "/proc/cmdline#default_hugepagesz"],
        "memory that is set aside for huge pages is not there for anything else",
    )
    .slows(&[Memory, User], SlowerSide::Unknown)
    .group("huge pages"),
    known(
        70,
        "swap",
        &["/proc/swaps", "/proc/meminfo#SwapTotal"],
        "with swap, memory that was idle comes back at the disk's pace; without, the kernel drops code pages instead",
    )
    .slows(&[Memory, BlockIo], SlowerSide::Unknown)
    .look("swapon --show")
    .risk("without swap memory runs out earlier")
    .group("swap")
    .change(ChangeMethod::Boot("/etc/fstab, `swapon`, `swapoff`")),
    known(
        64,
        "readiness to swap",
        &["/proc/sys/vm/swappiness"],
        "a high value swaps idle memory out to keep file pages",
    )
    .slows(&[Memory, BlockIo], SlowerSide::Higher)
    .group("swap"),
    known(
        66,
        "when dirty pages are written",
        &["/proc/sys/vm/dirty_*", "/proc/sys/vm/dirtytime_*"],
        "they decide how much is written at once and how often: bursts that fill the disk's queue, and writers that are made to wait",
    )
    .slows(&[BlockIo], SlowerSide::Unknown)
    .risk("dirty pages that are not yet written are lost when power fails")
    .group("writeback"),
    known(
        68,
        "reclaim within the own node",
        &["/proc/sys/vm/zone_reclaim_mode"],
        "not 0: the kernel reclaims within a node although others have free memory",
    )
    .slows(&[Memory], SlowerSide::Higher),
    known(
        60,
        "free memory that is kept",
        &["/proc/sys/vm/min_free_kbytes", "/proc/sys/vm/watermark_*"],
        "too little makes allocations reclaim by themselves, too much wastes memory",
    )
    .slows(&[Memory], SlowerSide::Unknown)
    .follows(&[TOTAL])
    .scales(),
    known(
        56,
        "same-page merging and compressed swap",
        &["/sys/kernel/mm/ksm/*", "/sys/module/zswap/parameters/*", "/sys/block/zram*", "/proc/cmdline#zswap*"],
        "they spend CPU time to save memory, in page faults too",
    )
    .slows(&[System, Memory], SlowerSide::Unknown),
    known(
        55,
        "reclaim in generations",
        &["/sys/kernel/mm/lru_gen/*"],
        "another way to choose which pages go",
    )
    .slows(&[Memory], SlowerSide::Unknown),
    known(
        54,
        "compaction",
        &["/proc/sys/vm/compaction_proactiveness", "/proc/sys/vm/compact*", "/proc/sys/vm/extfrag_threshold", "/proc/sys/vm/defrag_mode"],
        "moving pages to make huge ones takes CPU time, and makes who touches a moved page wait",
    )
    .slows(&[System, Memory], SlowerSide::Unknown),
    known(
        50,
        "caches of names and inodes",
        &["/proc/sys/vm/vfs_cache_pressure*"],
        "a high value drops them early: paths are looked up on disk again",
    )
    .slows(&[BlockIo, System], SlowerSide::Higher),
    known(
        12,
        "limit that follows from the size of memory",
        &[
            "/proc/sys/vm/*reserve_kbytes",
            "/proc/sys/vm/overcommit_kbytes",
            "/proc/sys/kernel/threads-max",
            "/proc/sys/fs/file-max",
            "/proc/sys/fs/epoll/max_user_watches",
            "/proc/sys/fs/*max_user_*",
            "/proc/sys/net/*mem*",
            "/proc/sys/net/*thresh*",
            "/proc/sys/net/*limit*",
            "/proc/sys/net/*ehash*",
            "/proc/sys/net/ipv4/route/max_size",
            "/proc/sys/net/netfilter/nf_conntrack_max",
            "/proc/sys/net/netfilter/nf_conntrack_buckets",
            "/proc/sys/net/ipv4/tcp_max_*",
            "/proc/sys/user/*",
        ],
        "the kernel chooses it by the size of memory",
    )
    .follows(&[TOTAL])
    .scales(),
    known(36, "memory management", &["/proc/sys/vm/*"], "it changes when memory is reclaimed and what is kept")
        .slows(&[Memory], SlowerSide::Unknown),
];
