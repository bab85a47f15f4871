// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the captures of the incidents say (`fixtures/transcripts`).

use super::super::{Given, SizeEstimate, Weight};
use super::{assert_whole, cpus, number, one, read, said, transcript};
use crate::recording::Record;
use crate::recording::check::Checker;
use proptest::prelude::*;

macro_rules! capture {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../../fixtures/transcripts/", $name)))
    };
}

const RUNQLAT: (&str, &str) = capture!("neighbour-runqlat.txt");
const VMSTAT: (&str, &str) = capture!("neighbour-vmstat.txt");
const STRESS: [(&str, &str); 5] = [
    capture!("stress8-runqlat-m.txt"),
    capture!("stress8-top.txt"),
    capture!("stress16-runqlat-m.txt"),
    capture!("stress16-top.txt"),
    capture!("stress32-runqlat-m.txt"),
];
const WRITEBACK: [(&str, &str); 5] = [
    capture!("writeback-iostat-xmt.txt"),
    capture!("writeback-bpftrace-writeback.txt"),
    capture!("writeback-biosnoop.txt"),
    capture!("writeback-fdisk.txt"),
    capture!("writeback-debugfs.txt"),
];
const SPINNERS: [(&str, &str); 2] = [capture!("spinners-lc-9.txt"), capture!("spinners-psr.txt")];
const CONTAINER: [(&str, &str); 2] =
    [capture!("container-proc-self-cgroup.txt"), capture!("container-proc-self-mountinfo.txt")];
const TIMES: (&str, &str) = capture!("lscpu-time.txt");

#[test]
fn every_line_of_every_capture_is_understood() {
    let mut all = vec![RUNQLAT, VMSTAT, TIMES];
    all.extend(STRESS.iter().chain(&WRITEBACK).chain(&SPINNERS).chain(&CONTAINER));
    assert_eq!(all.len(), 17);
    let document = read(&all, cpus(4));
    assert_whole(&document);
    assert!(document.files.iter().all(|file| !file.sections.is_empty()), "{:#?}", document.files);
    let there = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/transcripts");
    let there = std::path::Path::new(there).read_dir().unwrap().flatten();
    let texts = there.filter(|entry| entry.path().extension().is_some_and(|end| end == "txt"));
    assert_eq!(texts.count(), 17, "each fixture is read here");
}

#[test]
fn the_neighbour_makes_few_waits_long_and_they_are_most_of_the_waiting() {
    let document = read(&[RUNQLAT], Given::default());
    let said = said(&document, "tail-heavy");
    assert_eq!(said.weight, Weight::Found);
    let first = number(said, "in histogram 1 of 3, by time");
    assert!((first - 0.62).abs() < 0.02, "{first}");
    let source = &said.numbers.iter().find(|it| it.name.contains("1 of 3")).unwrap().source;
    assert_eq!(source, "neighbour-runqlat.txt:4-18");
    assert!(said.title.contains("pid 15919") && said.title.contains("2.9 %"), "{}", said.title);
    assert!(said.cannot_say.iter().any(|it| it.contains("behind which")));
    assert_eq!(said.settle.as_deref(), Some("deburr -d 30 -p 15919"));
}

#[test]
fn a_histogram_is_told_row_by_row_with_the_limits_of_its_time() {
    let document = read(&[RUNQLAT], Given::default());
    let said = said(&document, "tail-heavy");
    let sizes = &said.sizes;
    assert_eq!(
        sizes.iter().map(|it| it.count).sum::<u64>() as f64,
        number(said, "waits for a CPU")
    );
    let time: f64 = sizes.iter().map(|it| it.ns).sum();
    assert!((time / number(said, "time in them") - 1.0).abs() < 1e-9);
    for shares in [|it: &SizeEstimate| it.count_share, |it: &SizeEstimate| it.time_share] {
        assert!((sizes.iter().map(shares).sum::<f64>() - 1.0).abs() < 1e-9);
    }
    for pair in sizes.windows(2) {
        assert_eq!(pair[0].to_ns, pair[1].from_ns);
    }
    // A turn is no tail, and is one row of its histogram.
    let document = read(&STRESS, Given::default());
    let turns = document.statements.iter().find(|it| it.name == "takes-turns").unwrap();
    assert!(turns.sizes.iter().any(|it| it.count_share > 0.9), "{:?}", turns.sizes);
    // What a row that was left out holds is not known.
    let gap: String = RUNQLAT
        .1
        .lines()
        .filter(|it| !it.contains(" 8 -> 15 "))
        .fold(String::new(), |text, line| text + line + "\n");
    assert!(one(&gap).statements.iter().all(|it| it.sizes.is_empty()));
}

proptest! {
    #[test]
    fn the_time_of_a_row_is_within_its_limits(counts in prop::collection::vec(0..u64::MAX, 1..30)) {
        let mut text = "     usecs               : count     distribution\n".to_owned();
        for (row, count) in counts.iter().enumerate() {
            let from = if row == 0 { 0 } else { 1u64 << row };
            text += &format!("{from:>10} -> {:<10} : {count:<8} |**|\n", (2u64 << row) - 1);
        }
        for it in one(&text).statements.iter().flat_map(|it| &it.sizes) {
            prop_assert!(it.time_share_least <= it.time_share + 1e-9, "{:?}", it);
            prop_assert!(it.time_share <= it.time_share_most + 1e-9, "{:?}", it);
            prop_assert!((0.0..=1.0).contains(&it.time_share_least), "{:?}", it);
            prop_assert!((0.0..=1.0).contains(&it.time_share_most), "{:?}", it);
        }
    }
}

#[test]
fn the_neighbours_load_comes_in_bursts() {
    let document = read(&[VMSTAT], cpus(4));
    let found = said(&document, "runnable-bursts");
    assert_eq!(found.weight, Weight::Found);
    assert_eq!(number(found, "rows with more tasks than CPUs"), 5.0);
    assert!(
        found.title.contains("5 of 8 rows") && found.title.contains("17 to 28 %"),
        "{}",
        found.title
    );
    // Without the number of CPUs nobody knows.
    let document = read(&[VMSTAT], Given::default());
    assert_eq!(said(&document, "runnable-tasks").weight, Weight::Open);
    let document = read(&[VMSTAT], cpus(16));
    assert_eq!(said(&document, "runnable-tasks").weight, Weight::RuledOut);
}

#[test]
fn tasks_that_only_compute_wait_for_the_slices_of_the_others() {
    let document = read(&STRESS, Given::default());
    let turns: Vec<_> = document.statements.iter().filter(|it| it.name == "takes-turns").collect();
    assert_eq!(turns.len(), 3, "{:#?}", document.statements);
    for (pid, tasks) in [(13733, 2), (13808, 4), (13831, 8)] {
        let said = turns.iter().find(|it| it.title.contains(&format!("pid {pid} "))).unwrap();
        assert!(said.title.contains(&format!("{tasks} tasks share its CPU")), "{}", said.title);
        let slices = number(said, "wait") / number(said, "slice");
        assert!((slices - f64::from(tasks - 1)).abs() < 0.1, "{slices}");
    }
    // No slice is known without a table of `top`.
    let document = read(&STRESS[4..], Given::default());
    assert!(document.statements.iter().all(|it| it.name != "takes-turns"));
}

#[test]
fn the_disk_has_two_bursts_and_no_period_is_claimed() {
    let document = read(&WRITEBACK[..1], Given::default());
    let found = said(&document, "device-bursts");
    assert_eq!(found.weight, Weight::Found);
    assert!(
        found.title.contains("2 bursts, each shorter than the 1.0 s of a report, 5.0 s apart"),
        "{}",
        found.title
    );
    assert!(found.cannot_say.iter().any(|it| it.contains("too few, 33 s more")), "{found:#?}");
    assert!(found.numbers.iter().all(|it| it.name != "period"));
    assert!(!found.title.contains("every"));
    let worst = &found.numbers[0];
    assert!(worst.note.as_deref().unwrap().contains("busy for 393 ms"), "{worst:?}");
    assert_eq!(worst.source, "writeback-iostat-xmt.txt:14");
}

#[test]
fn the_flusher_has_a_period_and_every_second_pass_is_heavy() {
    let document = read(&WRITEBACK[1..2], Given::default());
    let found = said(&document, "flusher");
    assert_eq!(found.weight, Weight::Found);
    assert_eq!(number(found, "period"), 5e9);
    assert!(found.title.ends_with("every 5.0 s; every second pass is heavy"), "{}", found.title);
    assert!((7.7e7..1.01e8).contains(&number(found, "heavy passes, until submitted")));
    // The budget in PAGES is not used, and the time of submission is not the disk's.
    assert!(found.numbers.iter().all(|it| (it.value - 46_702.0).abs() > 3000.0));
    assert!(found.cannot_say.iter().any(|it| it.contains("PAGES")));
    assert!(found.cannot_say.iter().any(|it| it.contains("disk took")));
}

#[test]
fn a_sector_leads_to_its_file_with_the_files_that_explain_it() {
    let document = read(&WRITEBACK, Given::default());
    let found = said(&document, "file-of-sector");
    assert!(
        found.title.contains("254486424") && found.title.contains("consumequeue"),
        "{}",
        found.title
    );
    assert_eq!(number(found, "block"), 16_081_395.0);
    let document = read(&WRITEBACK[2..4], Given::default());
    let found = said(&document, "file-of-sector");
    assert!(
        found.title.contains("`sda5`")
            && found.settle.as_deref() == Some("deburr sector sda 997907720")
    );
    let document = read(&WRITEBACK[2..3], Given::default());
    assert!(document.statements.iter().all(|it| it.name != "file-of-sector"));
}

#[test]
fn two_workers_share_a_core() {
    let document = read(&SPINNERS, Given::default());
    let found = said(&document, "shared-core");
    assert_eq!(found.weight, Weight::Found);
    assert!(found.title.contains("two workers on one core"), "{}", found.title);
    assert!((0.45..0.5).contains(&number(found, "work of each that shares")));
    assert_eq!(number(found, "CPUs that they were on"), 9.0);
    let placed = said(&document, "processes-by-cpu");
    assert_eq!(placed.weight, Weight::Fact);
}

#[test]
fn the_directory_with_the_limit_is_found() {
    let document = read(&CONTAINER, Given::default());
    let found = said(&document, "cgroup-directory");
    assert!(found.title.contains("`/sys/fs/cgroup/cpu,cpuacct`"), "{}", found.title);
    assert!(found.cannot_say.iter().any(|it| it.contains("limits above it")));
    let document = read(&CONTAINER[..1], Given::default());
    assert_eq!(said(&document, "cgroup-directory").weight, Weight::Open);
}

#[test]
fn slow_runs_spend_their_time_in_the_kernel() {
    let document = read(&[TIMES], Given::default());
    let found = said(&document, "run-times");
    assert_eq!(found.weight, Weight::Found);
    assert!(
        found.title.contains("504 times") && found.title.contains("in the kernel"),
        "{}",
        found.title
    );
    let notes: Vec<_> = found.numbers.iter().filter_map(|it| it.note.as_deref()).collect();
    assert!(notes.iter().any(|note| note.contains("old kernel command line")), "{notes:?}");
}

#[test]
fn devices_become_records() {
    let all = transcript(&WRITEBACK[..1], Given::default());
    assert!(matches!(all.records.first(), Some(Record::Meta(_))));
    assert!(matches!(all.records.last(), Some(Record::End { window_ns: 7_000_000_000 })));
    let mut checker = Checker::default();
    all.records.iter().for_each(|record| checker.push(record));
    assert_eq!(checker.finish().violations, []);
}
