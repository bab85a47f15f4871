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
    let is_limit = |bytes: &u64| (1..=MOST_BYTES).contains(bytes);
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
