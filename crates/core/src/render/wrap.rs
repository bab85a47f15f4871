// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wraps text into lines of bounded width.

use crate::text::escape::{char_width, width};

/// Units that are kept on the line of their number.
const UNITS: &[&str] = &[
    "%", "ns", "us", "ms", "s", "min", "h", "B", "KiB", "MiB", "GiB", "TiB", "M", "G", "CPUs",
    "CPU",
];

/// Breaks a text at spaces, but not between a number and its unit, within a grouped number, or within backticks. A
/// word wider than the line is broken anywhere. Returns at least one line, which may be empty.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    wrap_hanging(text, columns, columns)
}

/// The same with a different width for the first line.
pub(super) fn wrap_hanging(text: &str, first: usize, rest: usize) -> Vec<String> {
    let mut done: Vec<String> = Vec::new();
    let mut line = String::new();
    let room = |done: &Vec<String>| if done.is_empty() { first } else { rest }.max(2);
    for word in words(text, first.min(rest)) {
        if !line.is_empty() {
            if width(&line) + 1 + width(word) <= room(&done) {
                line.push(' ');
            } else {
                done.push(std::mem::take(&mut line));
            }
        }
        for c in word.chars() {
            if width(&line) + char_width(c) > room(&done) {
                done.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    done.push(line);
    done
}

/// The parts of a text between which a line may be broken.
fn words(text: &str, columns: usize) -> Vec<&str> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    for word in text.split(' ') {
        let (start, end) = (at, at + word.len());
        at = end + 1;
        if word.is_empty() {
            continue;
        }
        let joined = spans.last().copied().filter(|&(from, to)| {
            let before = &text[from..to];
            (glued(before, word) || open_backtick(before, &text[start..]))
                && width(&text[from..end]) <= columns
        });
        match (joined, spans.last_mut()) {
            (Some(_), Some(last)) => last.1 = end,
            _ => spans.push((start, end)),
        }
    }
    spans.into_iter().map(|(from, to)| &text[from..to]).collect()
}

/// Whether two words are parts of one number, or a number and its unit.
fn glued(before: &str, word: &str) -> bool {
    let core = word.trim_end_matches(|c: char| ",.;:)".contains(c));
    let unit = core.split('/').next().unwrap_or(core);
    let group = core.len() == 3 && core.bytes().all(|b| b.is_ascii_digit());
    before.ends_with(|c: char| c.is_ascii_digit()) && (UNITS.contains(&unit) || group)
}

/// Whether `before` opens a backtick that the text after it closes.
fn open_backtick(before: &str, after: &str) -> bool {
    before.matches('`').count() % 2 == 1 && after.contains('`')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_stay_with_their_units_and_identifiers_in_one_piece() {
        assert_eq!(wrap("it waits 212 ms", 12), ["it waits", "212 ms"]);
        assert_eq!(wrap("it has 58 210 waits", 10), ["it has", "58 210", "waits"]);
        assert_eq!(wrap("it has 5.0 % (of 9.0 ms/s).", 15), ["it has 5.0 %", "(of 9.0 ms/s)."]);
        assert_eq!(wrap("by `two words` here", 12), ["by", "`two words`", "here"]);
        assert_eq!(wrap("a lone ` tick here", 8), ["a lone `", "tick", "here"]);
        assert_eq!(wrap("", 10), [""]);
    }

    #[test]
    fn a_word_wider_than_the_line_is_broken() {
        assert_eq!(wrap("a 毛刺毛刺毛 b", 5), ["a", "毛刺", "毛刺", "毛 b"]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide_and_nothing_but_spaces_is_lost(text in "[a-c0-9`%毛 ]{0,60}", columns in 2usize..30) {
            let lines = wrap(&text, columns);
            prop_assert!(lines.iter().all(|line| width(line) <= columns), "{lines:?}");
            prop_assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
        }
    }
}
