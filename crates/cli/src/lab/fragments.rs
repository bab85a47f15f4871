// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that takes the host's free memory in small pages and gives most of them back: what is free then lies between
//! pages that are not.

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use std::time::Duration;

/// Memory that is taken at once.
const STEP: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// Free memory of which no more is taken.
const LEFT: u64 = 320 << 20;
/// A large page consists of so many small ones, as a power of two.
const LARGE: usize = 9;
/// Memory in blocks of at least that size, below which the memory counts as fragmented.
const FEW: u64 = 64 << 20;

/// Free memory of a host that can be fragmented: enough for all, and little enough to be taken in seconds.
const LEAST_FREE: u64 = 3 << 30;
const MOST_FREE: u64 = 24 << 30;

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct FragmentsArgs {
    /// Of so many pages one is kept
    #[arg(long)]
    keep_one_of: u64,
}

impl FragmentsArgs {
    /// The words of a command line that has such a process work.
    pub(super) fn words(keep_one_of: u64) -> Vec<String> {
        vec!["fragments".into(), format!("--keep-one-of={keep_one_of}")]
    }
}

/// Fragments the free memory, and keeps it so for ever.
pub(crate) fn fragment_for_ever(args: &FragmentsArgs) -> Result<()> {
    // Where memory runs out, this process is to be ended, and no other.
    std::fs::write("/proc/self/oom_score_adj", "1000")?;
    // Pages of a file in memory are not cleared before somebody uses them.
    let file = memfd_create("fragments", MemfdFlags::CLOEXEC)?;
    let mut taken = 0;
    loop {
        let free = free()?;
        if free.large < FEW || free.all < LEFT + STEP {
            break;
        }
        fallocate(&file, FallocateFlags::empty(), taken, STEP).context("cannot take memory")?;
        taken += STEP;
    }
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let every = args.keep_one_of * PAGE;
    for at in (0..taken).step_by(usize::try_from(every)?) {
        let end = (at + every).min(taken);
        ensure!(at + PAGE <= end, "pages are counted in whole ones");
        if end > at + PAGE {
            fallocate(&file, holes, at + PAGE, end - at - PAGE).context("cannot give back")?;
        }
    }
    println!("ready");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Why memory cannot be fragmented here so that somebody waits for it; `None` if it can.
pub(super) fn unmet() -> Option<String> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let chosen = |file: &str| {
        let text = read(&format!("/sys/kernel/mm/transparent_hugepage/{file}"));
        text.split_once('[').and_then(|it| Some(it.1.split_once(']')?.0.to_owned()))
    };
    let large = chosen("enabled").is_some_and(|it| it != "never");
    let waits = ["always", "defer+madvise", "madvise"];
    let waits = chosen("defrag").is_some_and(|it| waits.contains(&it.as_str()));
    if !large || !waits || read("/proc/sys/vm/compaction_proactiveness").is_empty() {
        return Some(
            "nobody waits for large pages here (`/sys/kernel/mm/transparent_hugepage`, \
             `vm.compaction_proactiveness`)"
                .into(),
        );
    }
    let meminfo = read("/proc/meminfo");
    let bytes = |name: &str| -> u64 {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    };
    let (free, available) = (bytes("MemFree:"), bytes("MemAvailable:"));
    if !(LEAST_FREE..=MOST_FREE).contains(&free) || available < LEAST_FREE {
        return Some(format!(
            "it takes the free memory, which must be {} to {} GiB, and is {:.1} GiB",
            LEAST_FREE >> 30,
            MOST_FREE >> 30,
            free as f64 / f64::from(1 << 30)
        ));
    }
    None
}

/// Free memory, in bytes, without that for devices which reach only the lowest addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Free {
    all: u64,
    /// The part in blocks from which large pages can be taken.
    large: u64,
}

fn free() -> Result<Free> {
    let text = std::fs::read_to_string("/proc/buddyinfo").context("cannot read buddyinfo")?;
    Ok(free_of(&text))
}

/// `Node 0, zone   Normal    507    414 ...`: free blocks of 1, 2, 4, ... pages.
fn free_of(buddyinfo: &str) -> Free {
    let mut free = Free::default();
    for line in buddyinfo.lines() {
        let mut words = line.split_whitespace().skip_while(|word| *word != "zone").skip(1);
        if words.next().is_none_or(|zone| zone == "DMA") {
            continue;
        }
        for (order, count) in words.enumerate() {
            let bytes = (count.parse::<u64>().unwrap_or(0) * PAGE) << order;
            free.all += bytes;
            free.large += if order >= LARGE { bytes } else { 0 };
        }
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_by_their_size() {
        let text = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 \n\
                    Node 0, zone    DMA32      1      2      0      0      0      0      0      0      0      1      2 \n";
        let pages = 1 + 2 * 2 + 512 + 2 * 1024;
        assert_eq!(free_of(text), Free { all: pages * PAGE, large: (512 + 2048) * PAGE });
        assert_eq!(free_of("nonsense\nNode 0, zone\n"), Free::default());
    }
}
