// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/PID/maps`: the files that a process has mapped.

/// The mapping of the beginning of a file in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Address at which the beginning of the file is mapped.
    pub start: u64,
    /// End address of that mapping.
    pub end: u64,
    /// Path in the process's mount namespace, as the kernel prints it.
    pub path: Vec<u8>,
}

/// Parses a line; `None` if it does not map the beginning of a file.
#[must_use]
pub fn parse(line: &[u8]) -> Option<Mapping> {
    // `start-end perms offset device inode`, then blanks and the path.
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let range = std::str::from_utf8(fields.next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let offset = fields.nth(1)?;
    let path = fields.nth(2)?.trim_ascii_start();
    let begins = offset.iter().all(|&digit| digit == b'0') && path.starts_with(b"/");
    begins.then(|| Mapping { start, end, path: path.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::{Mapping, parse};

    #[test]
    fn only_the_beginning_of_a_file_is_where_it_was_loaded() {
        let line =
            b"55d0c0400000-55d0c0428000 r--p 00000000 fe:00 1309   /opt/a b/server (deleted)";
        let path = b"/opt/a b/server (deleted)".to_vec();
        let expected = Mapping { start: 0x55d0_c040_0000, end: 0x55d0_c042_8000, path };
        assert_eq!(parse(line), Some(expected));
        for line in [
            "55d0c0428000-55d0c0500000 r-xp 00028000 fe:00 1309   /opt/server",
            "7ffd1c9e0000-7ffd1ca01000 rw-p 00000000 00:00 0      [stack]",
            "7ffd1c9e0000-7ffd1ca01000 rw-p 00000000 00:00 0 ",
            "",
            "x-y r--p 00000000 fe:00 1 /x",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
