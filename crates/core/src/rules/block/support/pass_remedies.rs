// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remedies for passes of the flusher, with the cost of each, and the experiment that would disprove that they are the
//! cause.

use super::{knobs, pass_lines};
use crate::finding::{Confirm, FileTable, Fix};
use crate::recording::{DevId, WritebackPass};
use crate::rules::words::ticked;
use crate::view::View;

/// The value that is proposed for `wbt_lat_usec`, in microseconds: on a slow disk, passes then cost a tenth of what
/// they did.
const WBT_US: u64 = 2_000;
/// Passes with fewer bytes per inode than this have about as many requests as inodes, whatever the amount of data.
const MIN_INODE_BYTES: u64 = 64 << 10;

/// The remedies, those that address the cause first.
pub(in crate::rules::block) fn of_passes(
    view: &View,
    device: DevId,
    passes: &[&WritebackPass],
    table: Option<&FileTable>,
) -> Vec<Fix> {
    let mut fixes = vec![by_the_application(table)];
    fixes.extend(throttling(view, device));
    fixes.extend(earlier(view, passes));
    fixes.push(fewer_files(passes));
    fixes.extend(interval(view));
    fixes
}

fn by_the_application(table: Option<&FileTable>) -> Fix {
    let first = table.and_then(|table| table.rows.iter().find(|row| row.is_path));
    let what = first.map_or("its files".into(), |row| ticked(&row.name));
    Fix {
        action: format!(
            "let the application write {what} back itself, a little at a time: `sync_file_range(SYNC_FILE_RANGE_WRITE)` or \
             `fdatasync` after each batch, from a thread that nothing waits for"
        ),
        command: None,
        risk: Some(
            "more and smaller writes; `fdatasync` waits and flushes the disk's cache".into(),
        ),
        expect: None,
    }
}

/// Remedy: writeback throttling, where the kernel supports it and does not throttle as much already.
fn throttling(view: &View, device: DevId) -> Option<Fix> {
    let value: i64 = knobs::queue(view, device, "wbt_lat_usec")?.trim().parse().ok()?;
    if (1..=WBT_US as i64).contains(&value) {
        return None;
    }
    let file = knobs::queue_file(view, device, "wbt_lat_usec");
    let bfq = knobs::queue(view, device, "scheduler").is_some_and(|line| line.contains("[bfq]"));
    Some(Fix {
        action: "let the kernel hold back background writes when reads and syncs get slow (writeback throttling)".into(),
        command: file.map(|file| format!("echo {WBT_US} > {file}")),
        risk: Some(format!(
            "passes take longer and more stays dirty; it was {value}, and -1 restores the default{}",
            if bfq { "; the scheduler `bfq` turns it off: choose another one first" } else { "" }
        )), expect: None,
    })
}

/// Remedy: start background writeback before much has gathered. `None` where the amount is not the problem: many small
/// files expire by age, and each needs a request of its own.
fn earlier(view: &View, passes: &[&WritebackPass]) -> Option<Fix> {
    let sum = |of: fn(&WritebackPass) -> u64| passes.iter().map(|pass| of(pass)).sum::<u64>();
    if sum(|pass| pass.bytes) / sum(|pass| pass.inodes).max(1) < MIN_INODE_BYTES {
        return None;
    }
    let mut bytes: Vec<u64> =
        passes.iter().map(|pass| pass.bytes).filter(|&bytes| bytes > 0).collect();
    bytes.sort_unstable();
    let median = bytes.get(bytes.len() / 2).copied()?;
    let target = (median / 4).next_power_of_two().clamp(1 << 20, 256 << 20);
    let now = knobs::background_limit(view);
    Some(Fix {
        action: "start writing in the background earlier, so that each pass has less to do".into(),
        command: Some(format!("sysctl -w vm.dirty_background_bytes={target}")),
        risk: Some(format!(
            "it holds for the whole host: what is overwritten again soon is written more often, and a big writer then \
             keeps the disk busy all the time; {now}"
        )),
        expect: None,
    })
}

fn fewer_files(passes: &[&WritebackPass]) -> Fix {
    let inodes = passes.iter().map(|pass| pass.inodes).max().unwrap_or(0);
    Fix {
        action: format!(
            "spread the work: a pass writes every inode for itself (up to {inodes} here), so appending to fewer files, or \
             putting these on another disk than what is synced, takes the requests out of its way"
        ),
        command: None,
        risk: Some("a change of the application's layout; another disk has its own queue but the same flusher interval".into()), expect: None,
    }
}

/// The flusher's interval, which everybody tries first: why to leave it for last.
fn interval(view: &View) -> Option<Fix> {
    let interval_ns = knobs::interval_ns(view)?;
    Some(Fix {
        action: format!(
            "leave the interval (`vm.dirty_writeback_centisecs`, now {}) until last: it moves the bursts but does not end them",
            interval_ns / 10_000_000
        ),
        command: None,
        risk: Some(
            "shorter makes more bursts, and each is smaller only as far as pages are not dirtied again: at 1 s there is one \
             every second; longer makes fewer and bigger ones, and more is lost when the power fails"
                .into(),
        ), expect: None,
    })
}

/// Another look, which changes nothing; and in words what would prove it, which changes a setting of the host.
pub(in crate::rules::block) fn look_again(view: &View) -> Option<Confirm> {
    let centisecs = knobs::interval_ns(view)? / 10_000_000;
    let other_ns = centisecs.saturating_mul(2).saturating_mul(10_000_000);
    let key = "vm.dirty_writeback_centisecs";
    Some(Confirm {
        command: format!("deburr -d {}", (other_ns * 8).div_ceil(1_000_000_000).clamp(30, 600)),
        expect: Some(format!(
            "the stalls fall into passes again. Proof, which changes the host for that time: with `{key}` at {} instead of \
             {centisecs} the passes come every {} plus their length; stalls that keep their old rhythm are not the flusher's",
            centisecs.saturating_mul(2),
            pass_lines::seconds(other_ns)
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{S, Scene, pass};

    #[test]
    fn starting_earlier_is_for_much_and_not_for_many_small_files() {
        let view = Scene::new(1, S).view();
        let disk = DevId { major: 8, minor: 0 };
        let command = |inodes, bytes| {
            let pass = pass(disk, "periodic", inodes, inodes, bytes);
            earlier(&view, &[&pass]).and_then(|fix| fix.command)
        };
        assert_eq!(command(1_500, 9_000_000), None);
        let target = "sysctl -w vm.dirty_background_bytes=67108864";
        assert_eq!(command(3, 256 << 20).as_deref(), Some(target));
        assert_eq!(command(0, 0), None);
    }
}
