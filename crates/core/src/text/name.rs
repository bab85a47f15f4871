// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names from the host, decoded to text without loss.
//!
//! The kernel's names are bytes: a comm may be any 15 bytes, a path any bytes except NUL. [`decode`] keeps valid
//! UTF-8 as it is and writes every other byte as `\xNN`. Control characters stay: they are escaped when the name is
//! shown.

use std::fmt::Write as _;

/// Decodes the bytes of a kernel name up to the first NUL. Each byte that is not valid UTF-8 becomes `\xNN`.
#[must_use]
pub fn decode(bytes: &[u8]) -> String {
    let bytes = bytes.split(|&b| b == 0).next().unwrap_or_default();
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Decodes a command line: words that are each followed by a NUL become words with spaces between them.
#[must_use]
pub fn decode_words(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let words: Vec<u8> =
        bytes[..end].iter().map(|&byte| if byte == 0 { b' ' } else { byte }).collect();
    decode(&words)
}

/// Whether a character must not be shown as it is, because it controls the terminal (control characters, line and
/// paragraph separators), reorders the text around it (bidirectional controls), or is invisible
/// (zero-width and other default-ignorable characters, blanks that look like spaces).
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202f}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::{decode, decode_words, is_hidden};

    #[test]
    fn letters_of_any_script_are_shown_and_what_steers_or_hides_is_not() {
        for c in "az09 ~é毛ضक🦀".chars() {
            assert!(!is_hidden(c), "{c:?}");
        }
        for c in
            "\0\t\n\r\x1b\x7f\u{9b}\u{a0}\u{2000}\u{3000}\u{200b}\u{202e}\u{2066}\u{feff}\u{e0041}"
                .chars()
        {
            assert!(is_hidden(c), "{c:?}");
        }
    }

    #[test]
    fn stops_at_nul_and_keeps_every_byte() {
        assert_eq!(decode(b"java\0garbage"), "java");
        assert_eq!(decode("毛刺".as_bytes()), "毛刺");
        assert_eq!(decode(b"a\xff\xc3(b"), "a\\xff\\xc3(b");
        assert_eq!(decode(b"\x1b[31m"), "\x1b[31m");
        assert_eq!(decode(b""), "");
    }

    #[test]
    fn words_are_parted_by_spaces() {
        assert_eq!(decode_words(b"java\0-jar\0a b.jar\0\0"), "java -jar a b.jar");
        assert_eq!(decode_words(b"\0\0x\xff\0"), "  x\\xff");
        assert_eq!(decode_words(b"\0"), "");
    }
}
