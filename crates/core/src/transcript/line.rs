// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A line of a transcript as a person saw it: without colours, without what the cursor overwrote, in words.

use crate::text::name;
use std::borrow::Cow;

/// Longest line that is read, in bytes. The mounts of overlays have some thousand.
pub const MAX_LINE_BYTES: usize = 64 << 10;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;

/// A line in words.
#[derive(Clone, Debug)]
pub(super) struct Line<'t> {
    /// Its number in its file, from 1.
    pub(super) number: u64,
    /// The text, without blanks at its end.
    pub(super) text: &'t str,
    /// The words of the text.
    pub(super) words: Vec<&'t str>,
}

impl<'t> Line<'t> {
    pub(super) fn new(number: u64, text: &'t str) -> Self {
        let text = text.trim_end();
        Self { number, text, words: text.split_whitespace().collect() }
    }

    /// The word at a position as a number.
    pub(super) fn number_at(&self, at: usize) -> Option<f64> {
        self.words.get(at).and_then(|word| number(word))
    }

    /// Whether the first words are these.
    pub(super) fn begins(&self, words: &[&str]) -> bool {
        self.words.len() >= words.len() && self.words.iter().zip(words).all(|(a, b)| a == b)
    }
}

/// A decimal number that fills the whole word; the decimal sign may be a comma. Neither `inf` nor `1e9`: no tool prints
/// them.
pub(super) fn number(word: &str) -> Option<f64> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    if !plain || !digits.as_bytes().first()?.is_ascii_digit() {
        return None;
    }
    match word.contains(',') {
        true => word.replacen(',', ".", 1).parse().ok(),
        false => word.parse().ok(),
    }
}

/// A whole number that fills the whole word.
pub(super) fn whole<N: std::str::FromStr>(word: &str) -> Option<N> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

/// What of a line is visible on a terminal. Bytes that are not UTF-8 become `\xNN`, zero bytes become spaces.
pub(super) fn visible(bytes: &[u8]) -> Cow<'_, str> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let plain = !bytes.iter().any(|byte| matches!(*byte, 0 | ESC | b'\r' | 8));
    if plain && let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text.strip_prefix("^C").unwrap_or(text));
    }
    let mut shown = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match *first {
            ESC => rest = after_escape(tail),
            // The cursor went back to the beginning: what follows is written over what was there.
            b'\r' => shown.clear(),
            8 => drop(shown.pop()),
            0 => shown.push(b' '),
            byte => shown.push(byte),
        }
    }
    let text = name::decode(&shown);
    Cow::Owned(text.strip_prefix("^C").map_or_else(|| text.clone(), str::to_owned))
}

/// What follows an escape sequence of which the first byte was read.
fn after_escape(rest: &[u8]) -> &[u8] {
    let end = match rest.first() {
        Some(b'[') => {
            rest.iter().skip(1).position(|byte| (0x40..=0x7e).contains(byte)).map(|at| at + 2)
        }
        Some(b']') => rest.iter().position(|byte| *byte == BEL || *byte == ESC).map(|at| at + 1),
        Some(b'(' | b')') => Some(2),
        Some(_) => Some(1),
        None => None,
    };
    rest.get(end.unwrap_or(rest.len())..).unwrap_or_default()
}

/// Whether a line only says that something was left out: `...`, `[...]`, `.......`, `[snip]`.
pub(super) fn is_elision(text: &str) -> bool {
    let inner = text.trim().trim_matches(|c| matches!(c, '[' | ']' | '(' | ')' | '<' | '>'));
    let dots = inner.chars().filter(|&c| c == '.' || c == '\u{2026}').count();
    let only = inner.chars().all(|c| matches!(c, '.' | '\u{2026}' | ' ' | '-'));
    (only && (dots >= 3 || inner.contains('\u{2026}'))) || matches!(inner, "snip" | "cut")
}

/// A command that the text says was run, at a prompt or after a `#`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// The words.
    pub(super) words: Vec<String>,
}

/// Longest text before a prompt's sign.
const MAX_PROMPT: usize = 120;

/// What follows a prompt: `root@host:~# vmstat 1`, `[root@host ~]# vmstat 1`, `$ vmstat 1`, `#vmstat 1`.
pub(super) fn after_prompt(text: &str) -> Option<&str> {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix(['#', '$']) {
        return Some(rest.trim());
    }
    let at = text.find(['#', '$']).filter(|&at| at <= MAX_PROMPT)?;
    let (before, rest) = (&text[..at], &text[at + 1..]);
    let names_host = before.contains('@') || (before.starts_with('[') && before.ends_with(']'));
    let ends = rest.is_empty() || rest.starts_with(' ');
    (names_host && ends).then(|| rest.trim())
}

impl Command {
    /// The command in a line, if it runs one of the tools; starts at the tool's own name.
    pub(super) fn of(text: &str, tools: impl Fn(&str) -> bool) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().take(64).collect();
        let at = words.iter().take(6).position(|word| tools(tool_name(word)))?;
        Some(Self { words: words[at..].iter().map(|&word| word.to_owned()).collect() })
    }

    /// Name of the tool: without its directory, and without what distributions append.
    pub(super) fn tool(&self) -> &str {
        self.words.first().map_or("", |word| tool_name(word))
    }

    /// Value of an option: `-p 15919`, `-p15919` or `--pid=15919`.
    pub(super) fn value(&self, names: &[&str]) -> Option<&str> {
        let words = self.words.get(1..).unwrap_or_default();
        words.iter().enumerate().find_map(|(at, word)| {
            names.iter().find_map(|name| {
                let rest = word.strip_prefix(name)?;
                match rest.strip_prefix('=') {
                    Some(value) => Some(value),
                    None if rest.is_empty() => words.get(at + 1).map(String::as_str),
                    None => (!name.starts_with("--")).then_some(rest),
                }
            })
        })
    }

    /// Whether an option without a value is given, alone or among other letters: `-y`, `-xyt`.
    pub(super) fn has(&self, letter: char, long: &str) -> bool {
        self.words.iter().skip(1).any(|word| {
            let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            word == long || letters.is_some_and(|letters| letters.contains(letter))
        })
    }

    /// The numbers that are not values of options: interval and count. `with_value` lists the options that have one.
    pub(super) fn numbers(&self, with_value: &[&str]) -> Vec<f64> {
        let words = self.words.get(1..).unwrap_or_default();
        let mut before = "";
        let mut numbers = Vec::new();
        for word in words {
            if !with_value.contains(&before) {
                numbers.extend(number(word));
            }
            before = word;
        }
        numbers
    }
}

fn tool_name(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    [".py", ".bt", "-bpfcc"].iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_would_show_is_left() {
        for (bytes, shown) in [
            (&b"plain\r\n"[..], "plain"),
            (b"\x1b[1;31mred\x1b[0m text", "red text"),
            (b"\x1b]0;title\x07after", "after"),
            (b"10 %\r100 %", "100 %"),
            (b"ab\x08c", "ac"),
            (b"^C     usecs  : count", "     usecs  : count"),
            (b"\xff\x00x", "\\xff x"),
            (b"\xef\xbb\xbfr b", "r b"),
        ] {
            assert_eq!(visible(bytes), shown);
        }
    }

    #[test]
    fn prompts_and_commands() {
        let command =
            |text| after_prompt(text).and_then(|rest| Command::of(rest, |name| name == "runqlat"));
        for text in [
            "root@ip-172-1-47-54:~# /usr/share/bcc/tools/runqlat 5 3 -p 15919",
            "[root@h ~]# runqlat-bpfcc 5 3 -p 15919",
            "$ sudo runqlat.py 5 3 --pid=15919",
            "# ./runqlat 5 3 -p15919",
        ] {
            let command = command(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(command.tool(), "runqlat");
            assert_eq!(command.numbers(&["-p", "--pid"]), [5.0, 3.0], "{text}");
            assert_eq!(command.value(&["-p", "--pid"]), Some("15919"));
        }
        assert!(command("11  0      0 340756").is_none());
        assert!(after_prompt("price: 5 $ each").is_none());
        assert!(
            Command::of("iostat -xyt 1", |name| name == "iostat").unwrap().has('y', "--since-boot")
        );
    }

    #[test]
    fn elisions() {
        assert!(
            ["...", ".......................", "[...]", "\u{2026}", "[snip]"]
                .into_iter()
                .all(is_elision)
        );
        assert!(["", ".", "-", "0.00", "a...", "--"].into_iter().all(|text| !is_elision(text)));
    }

    #[test]
    fn numbers_of_any_locale() {
        assert_eq!(
            [number("0,05"), number("12.5"), number("-3")],
            [Some(0.05), Some(12.5), Some(-3.0)]
        );
        for word in ["", "-", "inf", "nan", "1e9", "1.2.3", "0x1", ".", "\u{663}"] {
            assert_eq!(number(word), None, "{word}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_become_a_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = visible(&bytes);
            prop_assert!(!text.contains('\x1b') && text.len() <= bytes.len() * 4);
            let _ = (is_elision(&text), after_prompt(&text), number(&text));
        }
    }
}
