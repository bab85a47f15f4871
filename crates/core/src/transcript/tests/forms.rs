// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever form pasted text has: columns in another order, colours, prompts, lines cut off; and any bytes at all.

use super::super::{Document, Given, MAX_LINE_BYTES, Reader};
use super::{assert_whole, cpus, one, read, said};
use crate::render::{TextStyle, json_document, read_text};
use proptest::prelude::*;

const VMSTAT: &str = include_str!("../../../../../fixtures/transcripts/neighbour-vmstat.txt");
const RUNQLAT: &str = include_str!("../../../../../fixtures/transcripts/neighbour-runqlat.txt");
const IOSTAT: &str = include_str!("../../../../../fixtures/transcripts/writeback-iostat-xmt.txt");
const ALL: [&str; 10] = [
    VMSTAT,
    RUNQLAT,
    IOSTAT,
    include_str!("../../../../../fixtures/transcripts/writeback-bpftrace-writeback.txt"),
    include_str!("../../../../../fixtures/transcripts/writeback-biosnoop.txt"),
    include_str!("../../../../../fixtures/transcripts/spinners-lc-9.txt"),
    include_str!("../../../../../fixtures/transcripts/spinners-psr.txt"),
    include_str!("../../../../../fixtures/transcripts/stress16-top.txt"),
    include_str!("../../../../../fixtures/transcripts/writeback-fdisk.txt"),
    include_str!("../../../../../fixtures/transcripts/container-proc-self-mountinfo.txt"),
];

fn style() -> TextStyle {
    TextStyle { columns: 80, color: false, verbosity: 2 }
}

/// What is said, without the places.
fn statements(document: &Document) -> Vec<(String, Vec<f64>)> {
    let each = document.statements.iter();
    each.map(|it| (it.title.clone(), it.numbers.iter().map(|number| number.value).collect()))
        .collect()
}

/// Applies a permutation to the words of each line that has as many.
fn reordered(text: &str, order: &[usize]) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.len() == order.len() {
            true => order.iter().map(|at| words[*at]).collect::<Vec<_>>().join(" "),
            false => line.to_owned(),
        }
    };
    text.lines().map(|it| line(it) + "\n").collect()
}

#[test]
fn columns_may_be_added_missing_and_reordered() {
    let expected = statements(&read(&[("f", VMSTAT)], cpus(4)));
    // A column that nobody knows, and one that old versions do not have.
    let more = VMSTAT
        .replace("wa st", "wa st gu")
        .replace("  0  0\n", "  0  0 0\n")
        .replace("  0  1\n", "  0  1 0\n");
    assert_eq!(statements(&read(&[("f", &more)], cpus(4))), expected);
    let order: Vec<usize> = [0, 1].into_iter().chain((2..17).rev()).collect();
    assert_eq!(statements(&read(&[("f", &reordered(VMSTAT, &order))], cpus(4))), expected);
    let without: Vec<usize> = (0..16).collect();
    let fewer: String = VMSTAT
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let kept = without.iter().filter_map(|at| words.get(*at)).copied();
            if words.len() == 17 {
                kept.collect::<Vec<_>>().join(" ") + "\n"
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    let document = read(&[("f", &fewer)], cpus(4));
    assert_whole(&document);
    assert_eq!(said(&document, "runnable-bursts").title, expected[0].0);

    let expected = statements(&one(IOSTAT));
    let order: Vec<usize> = [0].into_iter().chain((1..14).rev()).collect();
    assert_eq!(statements(&one(&reordered(IOSTAT, &order))), expected);
    // The new names of the same columns.
    let renamed = IOSTAT.replace("Device:", "Device ").replace("avgqu-sz", "aqu-sz");
    assert_eq!(statements(&one(&renamed)), expected);
    // The decimal sign of other locales, and their dates.
    let german = IOSTAT.replace('.', ",").replace("05/31/2020", "31.05.2020").replace(" AM", "");
    assert_eq!(statements(&one(&german)), expected);
}

#[test]
fn colours_line_ends_and_blank_lines_change_nothing() {
    for text in ALL {
        let expected = statements(&one(text));
        let windows = text.replace('\n', "\r\n");
        assert_eq!(statements(&one(&windows)), expected);
        let coloured: String =
            text.lines().map(|line| format!("\x1b[1;32m{line}\x1b[0m\x1b[K\n")).collect();
        assert_eq!(statements(&one(&coloured)), expected);
        let gaps = text.replace('\n', "\n\n");
        assert_eq!(statements(&one(&gaps)), expected);
        let no_newline = text.trim_end();
        assert_eq!(statements(&one(no_newline)), expected);
    }
}

#[test]
fn several_runs_in_one_file_are_kept_apart() {
    let text = format!("{VMSTAT}{RUNQLAT}{IOSTAT}some words\n{VMSTAT}");
    let document = read(&[("f", &text)], cpus(4));
    let file = &document.files[0];
    let tools: Vec<&str> = file.sections.iter().map(|it| it.tool.as_str()).collect();
    assert_eq!(tools, ["vmstat", "runqlat", "iostat", "vmstat"]);
    assert_eq!(file.unread_lines, 1);
    let line = VMSTAT.lines().count() + RUNQLAT.lines().count() + IOSTAT.lines().count() + 1;
    let unread = &file.unread[0];
    assert_eq!((unread.from_line, unread.text.as_str()), (line as u64, "some words"));
    assert_eq!(document.statements.iter().filter(|it| it.name == "runnable-bursts").count(), 2);
}

#[test]
fn what_is_cut_off_is_named_and_the_rest_is_read() {
    // The first line of the file is the end of a row, the last one the beginning of another.
    let text = format!("0 340756 1069680\n{}", &VMSTAT[..VMSTAT.len() - 60]);
    let document = read(&[("f", &text)], cpus(4));
    let file = &document.files[0];
    assert_eq!(file.unread_lines, 2, "{file:#?}");
    assert_eq!(file.unread[0].from_line, 1);
    assert!(file.unread[1].reason.contains("cut off"), "{file:#?}");
    assert_eq!(file.sections[0].samples, "7 rows");
    // Rows without a header have no meaning.
    let headless: String = VMSTAT.lines().skip(3).map(|line| format!("{line}\n")).collect();
    let document = read(&[("f", &headless)], cpus(4));
    assert!(document.statements.is_empty() && document.files[0].unread_lines == 9, "{document:#?}");
}

#[test]
fn elisions_are_normal_and_noted() {
    let text = VMSTAT.replace(" 9  0 ", "...\n 9  0 ");
    let document = read(&[("f", &text)], cpus(4));
    assert_whole(&document);
    let notes = &document.files[0].sections[0].notes;
    assert!(notes.iter().any(|note| note.contains("left out")), "{notes:?}");
}

#[test]
fn lists_are_bounded_whatever_is_read() {
    let mut text = String::new();
    for at in 0..3000 {
        text += &format!("words {at}\n\nreal 0m1.{at}s\n$\n");
    }
    let document = one(&text);
    let file = &document.files[0];
    assert!(file.unread.len() <= 20 && file.unread_lines >= 3000, "{}", file.unread.len());
    assert!(file.sections.len() <= 500 && document.statements.len() <= 200);
    let mut reader = Reader::new(Given::default());
    reader.file("f");
    reader.line(&vec![b'x'; MAX_LINE_BYTES + 1]);
    let document = reader.finish("0").document;
    assert!(document.files[0].unread[0].reason.contains("64 KiB"));
}

#[test]
fn names_in_the_text_are_shown_escaped() {
    let text = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n0.0 e\u{202e}v`il</script> 1 sd\u{7f}a W 100 4096 0.1\n";
    let document = read(&[("f\x1b[2J", text)], Given::default());
    let shown = read_text(&document, style());
    assert!(shown.contains("\\u{202e}") && shown.contains("\\x1b[2J"), "{shown}");
    assert!(!shown.contains(['\u{202e}', '\x1b', '\u{7f}']));
    assert!(!json_document(&document).unwrap().contains(['\u{202e}', '\x1b']));
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{1,12}",
        "[0-9]{0,3}[.,:][0-9]{0,3}",
        "\\PC{0,6}",
        prop::sample::select(vec![
            "r",
            "b",
            "us",
            "sy",
            "id",
            "->",
            ":",
            "|**|",
            "Device",
            "avg-cpu:",
            "%user",
            "%util",
            "aqu-sz",
            "w/s",
            "r/s",
            "usecs",
            "msecs",
            "count",
            "distribution",
            "TIME",
            "DEVICE",
            "PAGES",
            "REASON",
            "ms",
            "periodic",
            "PID",
            "PSR",
            "COMMAND",
            "%CPU",
            "TIME(s)",
            "COMM",
            "LAT(ms)",
            "SECTOR",
            "real",
            "0m5.8s",
            "loading",
            "CPUs",
            "for",
            "seconds",
            "lc",
            "#",
            "$",
            "...",
            "-",
            "cgroup",
            "/",
            "18446744073709551615",
            "pid",
            "=",
        ])
        .prop_map(str::to_owned),
    ]
}

fn check(document: &Document) {
    let text = read_text(document, style());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
    assert!(json_document(document).is_ok());
    for number in document.statements.iter().flat_map(|it| &it.numbers) {
        assert!(number.value.is_finite() && !number.source.is_empty(), "{number:?}");
    }
    for file in &document.files {
        let mut last = 0;
        for section in &file.sections {
            assert!(section.from_line > last && section.from_line <= section.to_line, "{file:#?}");
            assert!(section.to_line <= file.lines);
            last = section.to_line;
        }
    }
}

proptest! {
    #[test]
    fn any_lines_are_read_without_panic(
        lines in prop::collection::vec(prop::collection::vec(words(), 0..18), 0..40), of in prop::option::of(0..9u32),
    ) {
        let text: String = lines.iter().map(|words| words.join(" ") + "\n").collect();
        check(&read(&[("f", &text)], Given { cpus: of, interval_s: Some(1.0) }));
    }

    #[test]
    fn any_damage_to_a_capture_is_survived(
        which in 0..ALL.len(), cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = ALL[which].as_bytes().to_vec();
        for (at, byte) in cuts {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut reader = Reader::new(Given { cpus: Some(4), interval_s: Some(1.0) });
        reader.file("f");
        bytes.split(|byte| *byte == b'\n').for_each(|line| reader.line(line));
        check(&reader.finish("0").document);
    }
}
