// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a suggested command may read or change. A recording or snapshot names them, and may be anybody's: a path
//! becomes a part of a command only as a [`Target`], and a value only as [`value`].

use super::name::is_hidden;
use super::shell_quote;
use std::fmt;

/// The directories of what is observed.
const OBSERVED: [&str; 2] = ["/proc/", "/sys/"];

/// A file in a place that is known. Shown as a word of a shell command, in which `*` remains a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(String);

impl Target {
    /// A file of the kernel's that is in the caller's table: below `/proc` or `/sys`, of plain characters, and without a way
    /// up. In the patterns of the table `*` stands for any text.
    #[must_use]
    pub fn of_kernel(path: &str, table: &[&str]) -> Option<Self> {
        let is_listed = table.iter().any(|pattern| fits(pattern, path));
        let below = |place: &&'static str| Self::plain(place, path.strip_prefix(place)?);
        OBSERVED.iter().find_map(below).filter(|_| is_listed)
    }

    /// A file of that name below a directory, of plain characters, and without a way up.
    #[must_use]
    pub fn plain(place: &'static str, rest: &str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_@:,.+-!/*".contains(c);
        (stays_below(rest) && rest.chars().all(plain)).then(|| Self(format!("{place}{rest}")))
    }

    /// A file of a cgroup. Its path may have any characters that can be seen.
    #[must_use]
    pub fn of_cgroup(tree: &'static str, path: &str, file: &'static str) -> Option<Self> {
        let below = path.strip_prefix('/')?;
        let fits = stays_below(below) && !below.contains('*') && !below.chars().any(is_hidden);
        fits.then(|| Self(format!("{tree}/{below}/{file}")))
    }

    /// The path as it is, not quoted.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.split('*').enumerate() {
            f.write_str(if at > 0 { "*" } else { "" })?;
            if !part.is_empty() {
                f.write_str(&shell_quote(part))?;
            }
        }
        Ok(())
    }
}

/// Whether a path leads to something below the directory that it starts in.
fn stays_below(rest: &str) -> bool {
    rest.len() < 4096 && rest.split('/').all(|name| !["", ".", ".."].contains(&name))
}

/// Whether a key matches a pattern in which `*` stands for any text.
#[must_use]
pub fn fits(pattern: &str, key: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = key.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The choice of a setting that lists all choices, with this one in brackets (`none [mq-deadline] kyber`); else the whole
/// text.
#[must_use]
pub fn chosen(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(choice, _)| choice)
}

/// A value of a setting that a command may write: words and numbers, on one line, without a way up: some values are paths.
#[must_use]
pub fn value(text: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || " \t_.,:=+-%/@".contains(c);
    let fits = !text.is_empty() && text.len() < 1000 && !text.contains("..");
    (fits && text.chars().all(plain)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_elsewhere() {
        for path in [
            "/sys/devices/../../etc/cron.d/x",
            "/sys/devices/./x",
            "/sys//etc",
            "/sys/",
            "/sys/..",
            "/etc/passwd",
            "/sysx",
            "sys/x",
            "/sys/a b",
            "/sys/a;reboot",
            "/sys/$(reboot)",
            "/sys/a\n",
            "/sys/a'b",
        ] {
            assert_eq!(Target::of_kernel(path, &["*"]), None, "{path}");
        }
        let named = Target::of_kernel("/sys/a/cpu*/b", &["/sys/a/cpu*/b"]).unwrap();
        assert_eq!(named.to_string(), "/sys/a/cpu*/b");
        for path in ["/sys/a/c/b", "/sys/b/cpu0/b", "/proc/sys/kernel/core_pattern"] {
            assert_eq!(Target::of_kernel(path, &["/sys/a/cpu*/b"]), None, "{path}");
        }
        for path in ["/..", "/a/../../etc", "a", "/", "/a/", "/a\nb", "/a\u{202e}b", "/*"] {
            assert_eq!(Target::of_cgroup("/sys/fs/cgroup", path, "cpu.max"), None, "{path}");
        }
        let named = Target::of_cgroup("/sys/fs/cgroup", "/a b;c", "cpu.max").unwrap();
        assert_eq!(named.to_string(), "'/sys/fs/cgroup/a b;c/cpu.max'");
    }

    #[test]
    fn the_choice_is_what_is_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none\n"), "none");
    }

    #[test]
    fn a_value_is_words_and_numbers() {
        assert_eq!(value("4096\t131072 6291456"), Some("4096\t131072 6291456"));
        for text in ["", "$(reboot)", "a\nb", "|/tmp/x", "a;b", "`a`", "a'b", "x ../../etc"] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
