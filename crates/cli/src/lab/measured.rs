// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a report's stalls and files agree with what the victim and the disk measured themselves.

use super::check::{Check, Topic};
use super::disk::WritesByMark;
use super::io::GROUPS;
use super::observed::Observed;
use super::victim::Stall;
use deburr_core::finding::FileTable;
use deburr_core::text::units::tenths_of_ms;

/// Stalls that the victim measured must be in the recording from this length on. A commit is a write and a sync. The
/// recorder keeps syncs from 10 ms on, so each of the two may be too short in a commit of less than twice that.
const SURE_NS: u64 = 20_000_000;
/// Minimum share of their time that recorded stalls must cover. The rest is the write and the difference of the
/// clocks.
const COVERED: f64 = 0.9;
/// Minimum share of the recorded stalls that must be the victim's own: it is the only process that syncs.
const ITS_OWN: f64 = 0.9;
/// Largest difference, for a group of files, between its shares of the bytes written back by report and by disk.
const SHARE_POINTS: f64 = 0.03;

/// The checks on the finding `code` of a run.
pub(super) fn checks(code: &str, run: &Observed) -> Vec<Check> {
    let finding = run.report.findings.iter().find(|finding| finding.code == code);
    let table = finding.and_then(|finding| finding.files.as_ref());
    let recorded = &run.recorded;
    vec![
        stalls(run.victim.io.as_ref().map_or(&[], |io| &io.stalls), recorded),
        match (table, &run.written) {
            (Some(table), Some(marks)) => files(table, marks),
            _ => Check::new(false, format!("`{code}` has a table of files")),
        },
    ]
}

/// Whether the long syncs in a recording are those that the victim measured.
pub(super) fn stalls(own: &[Stall], recorded: &[Stall]) -> Check {
    let sure: Vec<_> = own.iter().filter(|stall| stall.length_ns >= SURE_NS).collect();
    let whole_ns: u64 = sure.iter().map(|stall| stall.length_ns).sum();
    let seen_ns: u64 = sure.iter().map(|stall| covered_ns(stall, recorded)).sum();
    let of_victim = recorded.iter().filter(|stall| covered_ns(stall, own) > 0).count();
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let covered = share(seen_ns as f64, whole_ns as f64);
    let is_own = share(of_victim as f64, recorded.len() as f64);
    Check::new(
        covered >= COVERED && is_own >= ITS_OWN,
        format!(
            "recorded stalls are the victim's own: {:.1} % of the {} ms of its {} longest are recorded, \
             {of_victim} of {} recorded are its",
            covered * 100.0,
            tenths_of_ms(whole_ns as f64),
            sure.len(),
            recorded.len()
        ),
    )
    .about(Topic::Loss)
}

/// How much of a stall is covered by other stalls. These do not overlap: the stalls of a thread follow each other.
fn covered_ns(stall: &Stall, others: &[Stall]) -> u64 {
    let end_ns = stall.at_ns + stall.length_ns;
    others
        .iter()
        .map(|other| {
            let until_ns = end_ns.min(other.at_ns + other.length_ns);
            until_ns.saturating_sub(stall.at_ns.max(other.at_ns))
        })
        .sum()
}

/// Compares the shares of the groups that the flusher writes, by the report's table and by what the disk saw.
fn files(table: &FileTable, marks: &WritesByMark) -> Check {
    // The log is synced by the victim, not written back by the flusher.
    let groups = GROUPS.iter().filter(|(mark, _)| *mark != 'l');
    let bytes: Vec<_> = groups
        .map(|(mark, path)| {
            let rows = table.rows.iter();
            let is_in = |name: &str| name.contains(&format!("/{path}/"));
            let told: u64 = rows.filter(|row| is_in(&row.name)).map(|row| row.bytes).sum();
            (path, told, marks.get(mark).map_or(0, |written| written.bytes))
        })
        .collect();
    let sum = |of: fn(&(&&str, u64, u64)) -> u64| bytes.iter().map(of).sum::<u64>().max(1) as f64;
    let (told_sum, seen_sum) = (sum(|it| it.1), sum(|it| it.2));
    let mut worst: f64 = 0.0;
    let shown: Vec<_> = bytes
        .iter()
        .map(|(path, told, seen)| {
            let (told, seen) = (*told as f64 / told_sum, *seen as f64 / seen_sum);
            worst = worst.max((told - seen).abs());
            format!("`{path}` {:.1} and {:.1} %", told * 100.0, seen * 100.0)
        })
        .collect();
    let all = told_sum / seen_sum;
    Check::new(
        worst <= SHARE_POINTS && all > 0.5,
        format!(
            "report and disk agree on the files written back: {}; {:.1} % of all bytes",
            shown.join(", "),
            all * 100.0
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::disk::MarkedWrites;
    use deburr_core::finding::FileShare;

    fn stall(at_ms: u64, length_ms: u64) -> Stall {
        Stall { at_ns: at_ms * 1_000_000, length_ns: length_ms * 1_000_000 }
    }

    #[test]
    fn stalls_must_cover_each_other() {
        let own = [stall(0, 100), stall(200, 12), stall(300, 50)];
        assert!(stalls(&own, &[stall(2, 98), stall(301, 49)]).pass);
        // One stall is not recorded, one has no counterpart, none is recorded.
        assert!(!stalls(&own, &[stall(2, 98)]).pass);
        assert!(!stalls(&own, &[stall(2, 98), stall(301, 49), stall(500, 20)]).pass);
        assert!(!stalls(&own, &[]).pass);
    }

    fn table(rows: &[(&str, u64)]) -> FileTable {
        let row = |&(name, bytes): &(&str, u64)| FileShare {
            name: name.into(),
            is_path: true,
            files: 1,
            ios: 1,
            ios_share: 0.0,
            bytes,
            bytes_share: 0.0,
        };
        FileTable { of: "o".into(), ios: 1, bytes: 1, rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn shares_may_differ_by_three_points() {
        let marks = [('h', 50), ('c', 30), ('i', 20), ('l', 1000), ('-', 9)]
            .map(|(mark, bytes)| (mark, MarkedWrites { requests: 1, bytes }))
            .into_iter()
            .collect();
        let of = |hot, cold, index| {
            let rows = [
                ("/m/store/consumequeue/*/0000", hot),
                ("/m/store/retry/*/0000", cold),
                ("/m/store/index/0000", index),
                ("/m/store/commitlog/0000", 500),
                ("the journal", 70),
            ];
            files(&table(&rows), &marks).pass
        };
        assert!(of(50, 30, 20) && of(52, 29, 19));
        assert!(!of(54, 27, 19), "four points");
        assert!(!of(10, 6, 4), "the right shares of a fifth of the bytes");
        assert!(!of(0, 0, 0));
    }
}
