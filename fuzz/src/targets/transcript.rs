// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of other tools, line by line: understood, judged and shown.

use crate::judged::{STYLE, visible};
use deburr_core::render;
use deburr_core::rules;
use deburr_core::transcript::{Given, Reader};
use deburr_core::view::Fold;

pub(crate) fn read(data: &[u8]) -> bool {
    // The first byte says what the user says.
    let Some((&given, text)) = data.split_first() else { return false };
    let given = Given {
        cpus: (given & 1 != 0).then_some(u32::from(given >> 2) + 1),
        interval_s: (given & 2 != 0).then_some(f64::from(given >> 2) + 0.5),
    };
    let mut reader = Reader::new(given);
    reader.file("a");
    text.split(|&byte| byte == b'\n').for_each(|line| reader.line(line));
    let done = reader.finish("0.1.0");
    let document = done.document;
    let file = &document.files[0];
    let mut last = 0;
    for section in &file.sections {
        assert!(section.from_line > last && section.from_line <= section.to_line, "{section:?}");
        last = section.to_line;
    }
    assert!(last <= file.lines && file.unread_lines <= file.lines, "{file:?}");
    for number in document.statements.iter().flat_map(|it| &it.numbers) {
        assert!(number.value.is_finite() && !number.source.is_empty(), "{number:?}");
    }
    for it in document.statements.iter().flat_map(|it| &it.sizes) {
        let shares = [it.time_share_least, it.time_share, it.time_share_most];
        let are_shares = shares.iter().all(|share| (0.0..=1.0).contains(share));
        assert!(it.from_ns < it.to_ns && it.ns.is_finite() && are_shares, "{it:?}");
    }
    visible(&render::read_text(&document, STYLE));
    visible(&render::json_document(&document).expect("numbers are finite"));
    if !done.records.is_empty() {
        let mut fold = Fold::default();
        done.records.iter().for_each(|record| fold.push(record));
        let report = rules::report(fold.view(), "0.1.0", false);
        visible(&render::text(&report, STYLE));
        assert!(render::json(&report).is_ok(), "numbers are finite");
    }
    !file.sections.is_empty()
}
