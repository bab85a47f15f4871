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

/// A mapping whose bytes may be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    /// First address.
    pub start: u64,
    /// End address.
    pub end: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Path of the file in the process's mount namespace, as the kernel prints it, or what the kernel calls it in brackets;
    /// empty = it has no file.
    pub path: Vec<u8>,
}

/// Parses a line; `None` if it does not map the beginning of a file.
#[must_use]
pub fn parse(line: &[u8]) -> Option<Mapping> {
    let (CodeMapping { start, end, offset, path }, _) = fields(line)?;
    (offset == 0 && path.starts_with(b"/")).then_some(Mapping { start, end, path })
}

/// Parses a line; `None` if what it maps may not be executed.
#[must_use]
pub fn code(line: &[u8]) -> Option<CodeMapping> {
    let (mapping, rights) = fields(line)?;
    rights.contains(&b'x').then_some(mapping)
}

/// The fields of a line, and the rights.
fn fields(line: &[u8]) -> Option<(CodeMapping, &[u8])> {
    // `start-end perms offset device inode`, then blanks and the path.
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let hex = |text: &[u8]| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
    let range = fields.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    let rights = fields.next()?;
    let offset = hex(fields.next()?)?;
    let path = fields.nth(2).unwrap_or_default().trim_ascii_start().to_vec();
    Some((CodeMapping { start, end, offset, path }, rights))
}

#[cfg(test)]
mod tests {
    use super::{CodeMapping, Mapping, code, parse};

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

    #[test]
    fn code_may_be_anywhere_in_a_file_or_in_none() {
        let of = |line: &str| code(line.as_bytes());
        let (start, end) = (0x55d0_c042_8000, 0x55d0_c050_0000);
        let path = b"/opt/server".to_vec();
        assert_eq!(
            of("55d0c0428000-55d0c0500000 r-xp 00028000 fe:00 1309   /opt/server"),
            Some(CodeMapping { start, end, offset: 0x28000, path })
        );
        let jit = of("7ffd1c9e0000-7ffd1ca01000 rwxp 00000000 00:00 0 ").unwrap();
        assert_eq!((jit.path.as_slice(), jit.offset), (&b""[..], 0));
        assert_eq!(of("7ffd1c9e0000-7ffd1ca01000 rwxp 00000000 00:00 0").unwrap().path, b"");
        assert_eq!(of("7ffd1c9e0000-7ffd1ca01000 rw-p 00000000 00:00 0 [stack]"), None);
        assert_eq!(of("7ffd1c9e0000 r-xp 00000000 00:00 0 x"), None);
    }
}
