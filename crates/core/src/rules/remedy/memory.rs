// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of memory: raising the one that binds, and what is said where that cannot be a command.

use super::setting::{Setting, owner_note, set};
use crate::finding::Fix;
use crate::recording::{Cgroup, CgroupId, CgroupVersion, MemoryBound};
use crate::rules::words::ticked;
use crate::text::units;
use crate::view::View;

/// Limits above this are none: no host has so much memory.
const MOST_BYTES: u64 = 1 << 50;

/// Raises the limit of a cgroup that made threads free memory by half. `None` if the cgroup, which limit of it, or what
/// that limit is, is not known, or if no command reaches it.
///
/// Nothing is promised: how much is freed at a limit depends on how much of what is below it is used again. A cache that
/// nearly fits is then at rest, and a file that is only streamed fills any limit.
pub(in crate::rules) fn raise_limit(view: &View, id: CgroupId, bound: MemoryBound) -> Option<Fix> {
    let cgroup = view.cgroups().get(&id)?.facts.as_ref()?;
    let now = view.reclaim().level(id).limit_bytes.filter(is_limit)?;
    let bytes = now + now / 2;
    let setting = match bound {
        MemoryBound::Max => Setting::MemoryMax(bytes),
        MemoryBound::High => Setting::MemoryHigh(bytes),
    };
    Some(Fix {
        action: format!(
            "raise `{}` of {} by half, from {} to {}",
            file(cgroup, bound),
            ticked(&cgroup.path),
            units::bytes(now as f64),
            units::bytes(bytes as f64)
        ),
        command: Some(set(cgroup, setting)?),
        risk: Some(format!(
            "the memory that it gets is taken from the host's other processes{}; files that are used once fill any \
             limit{}{}",
            free(view),
            swap_note(cgroup, bound),
            owner_note(cgroup, setting)
        )),
        expect: None,
    })
}

/// Has the kernel begin to write back dirty pages before they fill the limit of a cgroup of version 1. Without that, whoever
/// needs a page there waits for the disk: dirty pages are counted for the whole host, which may have gigabytes of them before
/// anybody writes. `None` for version 2, where they are counted for each cgroup; if the limit or the setting is not known, or
/// if it is low enough already.
///
/// Nothing is promised: that the threads waited for the disk, and not for each other, is not recorded.
pub(in crate::rules) fn write_earlier(
    view: &View,
    id: CgroupId,
    bound: MemoryBound,
) -> Option<Fix> {
    let cgroup = view.cgroups().get(&id)?.facts.as_ref()?;
    if cgroup.version == CgroupVersion::V2 || bound == MemoryBound::High {
        return None;
    }
    let limit = view.reclaim().level(id).limit_bytes.filter(is_limit)?;
    let bytes = limit / 4;
    let vm = |name: &str| -> Option<u64> {
        let path = format!("/proc/sys/vm/dirty_background_{name}");
        view.block().setting(&path)?.trim().parse().ok()
    };
    let (now, begins) = match (vm("bytes")?, vm("ratio")?) {
        (0, ratio) => {
            let free = view.reclaim().counters(None)?.least_free_bytes?;
            // At least: pages of files that can be dropped count, too.
            let begins = free / 100 * ratio.min(100);
            (
                format!(
                    "`vm.dirty_background_ratio` is {ratio}, and setting the one clears the other"
                ),
                begins,
            )
        }
        (bytes, _) => (format!("`vm.dirty_background_bytes` is {bytes}"), bytes),
    };
    (bytes > 0 && begins > bytes).then(|| Fix {
        action: format!(
            "have the kernel begin to write back when {} of the host are dirty, a quarter of that limit (now {} or more): \
             cgroup v1 does not count what is dirty in {}, and whoever needs a page there waits until some are written",
            units::bytes(bytes as f64),
            units::bytes(begins as f64),
            ticked(&cgroup.path)
        ),
        command: Some(format!("sysctl -w vm.dirty_background_bytes={bytes}")),
        risk: Some(format!(
            "for the whole host: what is written again and again goes to the disk more often (cgroup v2 counts it for each \
             cgroup, and needs no such setting); now {now}"
        )),
        expect: None,
    })
}

fn is_limit(bytes: &u64) -> bool {
    (1..=MOST_BYTES).contains(bytes)
}

fn file(cgroup: &Cgroup, bound: MemoryBound) -> &'static str {
    match (bound, cgroup.version) {
        (MemoryBound::High, _) => "memory.high",
        (MemoryBound::Max, CgroupVersion::V2) => "memory.max",
        (MemoryBound::Max, CgroupVersion::V1) => "memory.limit_in_bytes",
    }
}

/// How much memory the host had free, as the rest of a sentence.
fn free(view: &View) -> String {
    let least = view.reclaim().counters(None).and_then(|host| host.least_free_bytes);
    least.map_or_else(String::new, |bytes| {
        format!(" (at least {} of the host's were free all the time)", units::bytes(bytes as f64))
    })
}

/// Version 1 and runtimes of containers refuse a limit above that of memory and swap together.
fn swap_note(cgroup: &Cgroup, bound: MemoryBound) -> &'static str {
    let runs = cgroup.container.as_ref().is_some_and(|it| !it.is_unit());
    match (bound, cgroup.version) {
        (MemoryBound::Max, CgroupVersion::V1) => {
            "; it is refused above `memory.memsw.limit_in_bytes`, which then has to be raised first"
        }
        (MemoryBound::Max, CgroupVersion::V2) if runs => {
            "; it is refused above the container's limit on memory and swap, which then has to be raised, too"
        }
        _ => "",
    }
}
