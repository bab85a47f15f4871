// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text from the host, made safe to show: every character is visible, on one line, with a bounded length.
//!
//! Hidden characters ([`is_hidden`]) become `\xNN` (ASCII) or `\u{...}`. Backslashes stay as they are, because
//! systemd's unit names contain many (`dev-disk-by\x2duuid`) and people paste what they see. Only a run of
//! backslashes right before an escape, or before text that looks like one, is doubled: an odd run then starts
//! an escape and an even one does not, so two different names never look the same. (`\xNN` with NN of 80 or
//! above comes from [`decode`](crate::text::name::decode), for a byte that is not UTF-8, and stays.)

use super::name::is_hidden;
use std::fmt::Write as _;
use unicode_width::UnicodeWidthChar;

/// Longest sentence in columns. Only hostile or invalid input comes near it.
const SENTENCE_COLUMNS: usize = 600;

/// Replaces the middle of a text that is too long: the ends of a path are more informative than its middle.
const ELLIPSIS: &str = "...";

/// Columns that a text takes on a terminal: the sum over its characters.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Columns that a character takes.
pub(crate) fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// A sentence, escaped and cut to [`SENTENCE_COLUMNS`].
pub(crate) fn sentence(text: &str) -> String {
    capped(&pieces(text, false), SENTENCE_COLUMNS)
}

/// A short text that is not an identifier, such as the name of a number.
pub(crate) fn label(text: &str, columns: usize) -> String {
    capped(&pieces(text, false), columns)
}

/// An identifier in backticks; backticks in it are escaped. `columns` does not count the two around it.
pub(crate) fn identifier(name: &str, columns: usize) -> String {
    format!("`{}`", capped(&pieces(name, true), columns))
}

/// A shell command, escaped. It is never cut and no backslash is doubled, because either would change the command.
pub(crate) fn command(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { escape(c) } else { c.to_string() }).collect()
}

/// A whole text, escaped; nothing is cut. Different texts stay different.
#[must_use]
pub fn visible(text: &str) -> String {
    pieces(text, false).concat()
}

/// A JSON document with all hidden characters ([`is_hidden`]) except newlines escaped.
#[must_use]
pub fn json(plain: &str) -> String {
    let mut document = String::with_capacity(plain.len());
    for c in plain.chars() {
        // Apart from newlines, hidden characters can only be in strings.
        if c == '\n' || !is_hidden(c) {
            document.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(document, "\\u{unit:04x}");
        }
    }
    document
}

fn escape(c: char) -> String {
    if c.is_ascii() {
        format!("\\x{:02x}", u32::from(c))
    } else {
        format!("\\u{{{:x}}}", u32::from(c))
    }
}

/// The text in units that must not be split: characters and escapes.
fn pieces(text: &str, backticks: bool) -> Vec<String> {
    let must_go = |c: char| is_hidden(c) || (backticks && c == '`');
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '\\' {
            let after = rest.trim_start_matches('\\');
            let doubled = after.starts_with(must_go) || reads_like_escape(after);
            for _ in 0..rest.len() - after.len() {
                pieces.push(if doubled { "\\\\" } else { "\\" }.into());
            }
            rest = after;
        } else {
            pieces.push(if must_go(c) { escape(c) } else { c.into() });
            rest = &rest[c.len_utf8()..];
        }
    }
    pieces
}

/// Whether text after a backslash could be mistaken for an escape that [`escape`] wrote.
fn reads_like_escape(after: &str) -> bool {
    let hex = |digits: &str| u8::from_str_radix(digits, 16).ok();
    after.starts_with("u{")
        || after
            .strip_prefix('x')
            .and_then(|digits| digits.get(..2))
            .and_then(hex)
            .is_some_and(|byte| byte == b'`' || is_hidden(char::from(byte)) && byte.is_ascii())
}

/// The pieces as one text. If it is wider than `columns`, its middle is replaced by [`ELLIPSIS`]. Characters without
/// width count as one column here, so that a thousand combining marks are cut too.
fn capped(pieces: &[String], columns: usize) -> String {
    let cost = |piece: &String| width(piece).max(1);
    if pieces.iter().map(cost).sum::<usize>() <= columns {
        return pieces.concat();
    }
    let room = columns.saturating_sub(ELLIPSIS.len());
    let take = |room: usize, pieces: &mut dyn Iterator<Item = &String>| {
        let mut left = room;
        pieces
            .take_while(|piece| left.checked_sub(cost(piece)).map(|rest| left = rest).is_some())
            .count()
    };
    let head = take(room.div_ceil(2), &mut pieces.iter());
    let tail = take(room / 2, &mut pieces[head..].iter().rev());
    format!("{}{ELLIPSIS}{}", pieces[..head].concat(), pieces[pieces.len() - tail..].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hidden_characters_are_written_out() {
        for (name, shown) in [
            ("nginx: worker", "nginx: worker"),
            ("\x1b[2J\x07", r"\x1b[2J\x07"),
            ("a\nb\rc\td\x7f", r"a\x0ab\x0dc\x09d\x7f"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("gpj.\u{202e}exe", r"gpj.\u{202e}exe"),
            ("ad\u{200b}min\u{feff}", r"ad\u{200b}min\u{feff}"),
            ("毛刺 é", "毛刺 é"),
            // A byte that is not UTF-8, as `decode` wrote it.
            (r"a\xff", r"a\xff"),
        ] {
            assert_eq!(sentence(name), shown);
        }
        assert_eq!(identifier("a`b", 20), r"`a\x60b`");
    }

    #[test]
    fn backslashes_are_doubled_only_where_they_could_be_taken_for_an_escape() {
        for (name, shown) in [
            (r"dev-disk-by\x2duuid", r"dev-disk-by\x2duuid"),
            (r"C:\dir\\file\", r"C:\dir\\file\"),
            (r"\x1b", r"\\x1b"),
            ("\x1b", r"\x1b"),
            ("\\\x1b", r"\\\x1b"),
            (r"\\x1b", r"\\\\x1b"),
            (r"\u{202e}", r"\\u{202e}"),
        ] {
            assert_eq!(sentence(name), shown);
        }
    }

    #[test]
    fn long_names_keep_both_ends_and_no_escape_is_torn() {
        let path = format!("/kubepods.slice/{}/nginx.scope", "a".repeat(100));
        assert_eq!(label(&path, 31), "/kubepods.slic...aa/nginx.scope");
        assert_eq!(label(&"\x1b".repeat(9), 15), r"\x1b...\x1b");
        assert_eq!(label(&"毛".repeat(9), 10), "毛毛...毛");
        assert_eq!(label("abcdef", 2), "...");
        assert!(label(&"\u{301}".repeat(1000), 20).chars().count() <= 20);
    }

    /// The text that was escaped, read back by the rule in the module's documentation.
    fn unescape(shown: &str) -> String {
        let mut text = String::new();
        let mut rest = shown;
        while let Some(c) = rest.chars().next() {
            let after = rest.trim_start_matches('\\');
            let run = rest.len() - after.len();
            if run == 0 {
                text.push(c);
                rest = &rest[c.len_utf8()..];
            } else if !reads_like_escape(after) {
                text.push_str(&rest[..run]);
                rest = after;
            } else {
                text.push_str(&rest[..run / 2]);
                rest = after;
                if run % 2 == 1 {
                    let (digits, end) = match after.strip_prefix("u{") {
                        Some(braced) => (braced.split('}').next().unwrap(), 3),
                        None => (&after[1..3], 1),
                    };
                    let code = u32::from_str_radix(digits, 16).unwrap();
                    text.push(char::from_u32(code).unwrap());
                    rest = &after[digits.len() + end..];
                }
            }
        }
        text
    }

    proptest! {
        #[test]
        fn different_names_look_different(name in r"(?s)(\\|x|1|b|u|\{|\}|`|\x1b|\x{202e}|.){0,24}") {
            let shown = pieces(&name, true).concat();
            prop_assert!(!shown.contains(is_hidden) && !shown.contains('`'));
            prop_assert_eq!(unescape(&shown), name);
        }

        #[test]
        fn a_cap_holds(name in any::<String>(), columns in 0usize..60) {
            prop_assert!(width(&label(&name, columns)) <= columns.max(ELLIPSIS.len()));
            prop_assert!(!command(&name).contains(is_hidden));
        }
    }
}
