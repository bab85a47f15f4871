// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to the bytes of program files and of the memory of processes, by position.

use crate::collect::Roots;
use deburr_core::limits::Image;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Mappings that are read per process: some have hundreds of thousands.
const MAX_MAPPINGS: usize = 20_000;

/// A file, read by offset; or `/proc/PID/mem`, read by address.
#[derive(Debug)]
pub(super) struct FileImage(File);

impl FileImage {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // There may be a FIFO in its place, which opening would block on.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(path).map(Self)
    }

    /// The memory of a process. Needs the privileges of a debugger.
    pub(super) fn memory(roots: &Roots, pid: u32) -> io::Result<Self> {
        Self::open(&roots.proc.join(pid.to_string()).join("mem"))
    }
}

impl Image for FileImage {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        self.0.read_exact_at(buf, at).is_ok()
    }
}

/// The mapping of a file in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Address at which the beginning of the file is mapped.
    pub(super) start: u64,
    /// End address of that mapping.
    end: u64,
    /// Path in the process's mount namespace, as the kernel prints it.
    pub(super) path: Vec<u8>,
}

impl Mapping {
    /// Paths of the mapped file, the most reliable first: the kernel's own link, which works even if the file was
    /// replaced since but needs a privileged user, and its path in the root directory of the process.
    pub(super) fn places(&self, roots: &Roots, pid: u32) -> [PathBuf; 2] {
        let dir = roots.proc.join(pid.to_string());
        let path = self.path.strip_prefix(b"/").unwrap_or(&self.path);
        [
            dir.join(format!("map_files/{:x}-{:x}", self.start, self.end)),
            dir.join("root").join(OsStr::from_bytes(path)),
        ]
    }
}

/// The first mapping of the beginning of a file whose path is `wanted`.
pub(super) fn mapping(roots: &Roots, pid: u32, wanted: impl Fn(&[u8]) -> bool) -> Option<Mapping> {
    let file = File::open(roots.proc.join(pid.to_string()).join("maps")).ok()?;
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    lines.take(MAX_MAPPINGS).find_map(|line| parse(&line).filter(|mapping| wanted(&mapping.path)))
}

/// Parses a line of `/proc/PID/maps`; `None` if it does not map the beginning of a file.
fn parse(line: &[u8]) -> Option<Mapping> {
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

/// Address at which the program of a process is mapped.
pub(super) fn program_start(roots: &Roots, pid: u32) -> Option<u64> {
    let exe = std::fs::read_link(roots.proc.join(pid.to_string()).join("exe")).ok()?;
    // In `maps` the kernel escapes newlines in paths as `\012`, and nothing else.
    let path = exe.as_os_str().as_bytes();
    let mut escaped = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'\n' => escaped.extend(b"\\012"),
            byte => escaped.push(byte),
        }
    }
    Some(mapping(roots, pid, |path| path == escaped)?.start)
}

#[cfg(test)]
mod tests {
    use super::{Mapping, parse};
    use crate::collect::Roots;

    #[test]
    fn only_the_beginning_of_a_file_is_where_it_was_loaded() {
        let line =
            b"55d0c0400000-55d0c0428000 r--p 00000000 fe:00 1309   /opt/a b/server (deleted)";
        let path = b"/opt/a b/server (deleted)".to_vec();
        let expected = Mapping { start: 0x55d0_c040_0000, end: 0x55d0_c042_8000, path };
        assert_eq!(parse(line), Some(expected.clone()));
        let roots = Roots::default();
        assert_eq!(
            expected.places(&roots, 7).map(|place| place.display().to_string()),
            [
                "/proc/7/map_files/55d0c0400000-55d0c0428000",
                concat!("/proc/7/", "root/opt/a b/server (deleted)")
            ]
        );
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
