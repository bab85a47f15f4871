// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names from the host, quoted as words of shell commands that users paste as root.

use crate::text::name::is_hidden;
use std::borrow::Cow;
use std::fmt::Write as _;

/// A name as one word of a shell command, whatever it contains. Plain names stay as they are.
///
/// Names with control characters or other hidden characters become `$'...'` with octal bytes (bash, zsh, ksh,
/// POSIX 2024), so that the command shows what it does and fits on one line; all other names that need quotes become
/// `'...'`. A name that starts with `-` is still an option to the command: put `--` before it.
///
/// A `\xNN` in the name stays these four characters: systemd's unit names contain such text, and it cannot be
/// distinguished from bytes that [`decode`](crate::text::name::decode) wrote in the same form.
#[must_use]
pub fn shell_quote(name: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@:,./+-".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return Cow::Borrowed(name);
    }
    if !name.chars().any(is_hidden) {
        return Cow::Owned(format!("'{}'", name.replace('\'', r"'\''")));
    }
    let mut word = String::from("$'");
    for c in name.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            c if is_hidden(c) => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    // Writing to a String cannot fail.
                    let _ = write!(word, "\\{byte:03o}");
                }
            }
            c => word.push(c),
        }
    }
    word.push('\'');
    Cow::Owned(word)
}

/// A name from the host in backticks, as an identifier in a sentence. A backtick in the name becomes an apostrophe, so
/// that it does not end the identifier early; the exact name is in the entity.
#[must_use]
pub fn ticked(name: &str) -> String {
    format!("`{}`", name.replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a POSIX shell reads from a word in one of the three forms that `shell_quote` writes.
    fn shell_reads(word: &str) -> Option<Vec<u8>> {
        if let Some(body) = word.strip_prefix("$'") {
            let mut bytes = Vec::new();
            let mut rest = body.strip_suffix('\'')?.bytes();
            while let Some(b) = rest.next() {
                match (b, rest.clone().next()) {
                    (b'\'', _) => return None,
                    (b'\\', Some(b'0'..=b'7')) => {
                        let digits: Vec<u8> = rest.by_ref().take(3).collect();
                        let digits = std::str::from_utf8(&digits).ok()?;
                        bytes.push(u8::from_str_radix(digits, 8).ok()?);
                    }
                    (b'\\', _) => bytes.push(rest.next()?),
                    _ => bytes.push(b),
                }
            }
            return Some(bytes);
        }
        if let Some(body) = word.strip_prefix('\'') {
            let body = body.strip_suffix('\'')?.replace(r"'\''", "\0");
            return (!body.contains('\'')).then(|| body.replace('\0', "'").into_bytes());
        }
        let inert = |c: char| c.is_ascii_alphanumeric() || "_@:,./+-".contains(c);
        (!word.is_empty() && word.chars().all(inert)).then(|| word.as_bytes().to_vec())
    }

    #[test]
    fn plain_names_stay_and_others_are_quoted_in_the_simplest_form() {
        for (name, word) in [
            ("nginx", "nginx"),
            ("/docker/bbda", "/docker/bbda"),
            ("", "''"),
            ("two words", "'two words'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's", r"'it'\''s'"),
            ("~root", "'~root'"),
            (r"dev-disk-by\x2duuid.device", r"'dev-disk-by\x2duuid.device'"),
            ("毛刺", "'毛刺'"),
            ("a\x1b[2Jb", r"$'a\033[2Jb'"),
            ("a\nb'c\\", r"$'a\012b\'c\\'"),
            ("\u{202e}", r"$'\342\200\256'"),
        ] {
            assert_eq!(shell_quote(name), word);
        }
    }

    proptest! {
        #[test]
        fn a_shell_reads_back_the_name_and_nothing_hides_in_the_word(name in any::<String>()) {
            let name = name.replace('\0', "");
            let word = shell_quote(&name);
            prop_assert!(!word.chars().any(is_hidden));
            prop_assert_eq!(shell_reads(&word), Some(name.into_bytes()));
        }
    }
}
