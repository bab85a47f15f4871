// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to the bytes of program files and of the memory of processes, by position.

use crate::collect::Roots;
use deburr_core::limits::Image;
use deburr_core::procfs::maps::{self, CodeMapping, Mapping};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Mappings that are read per process: some have hundreds of thousands.
const MAX_MAPPINGS: usize = 20_000;
/// The same where few of them are kept, in bytes of their text.
const MAX_BYTES: u64 = 16 << 20;

/// A file, read by offset; or `/proc/PID/mem`, read by address.
#[derive(Debug)]
pub(crate) struct FileImage(File);

impl FileImage {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // There may be a FIFO in its place, which opening would block on.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(path).map(Self)
    }

    /// The memory of a process. Needs the privileges of a debugger.
    pub(crate) fn memory(roots: &Roots, pid: u32) -> io::Result<Self> {
        Self::open(&roots.proc.join(pid.to_string()).join("mem"))
    }
}

impl Image for FileImage {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        self.0.read_exact_at(buf, at).is_ok()
    }
}

/// Paths of a mapped file, the most reliable first: the kernel's own link, which works even if the file was replaced
/// since but needs a privileged user, and its path in the root directory of the process.
pub(crate) fn places(
    (start, end): (u64, u64),
    path: &[u8],
    roots: &Roots,
    pid: u32,
) -> [PathBuf; 2] {
    let dir = roots.proc.join(pid.to_string());
    let path = path.strip_prefix(b"/").unwrap_or(path);
    [
        dir.join(format!("map_files/{start:x}-{end:x}")),
        dir.join("root").join(OsStr::from_bytes(path)),
    ]
}

/// The first mapping of the beginning of a file whose path is `wanted`.
pub(super) fn mapping(roots: &Roots, pid: u32, wanted: impl Fn(&[u8]) -> bool) -> Option<Mapping> {
    let file = File::open(roots.proc.join(pid.to_string()).join("maps")).ok()?;
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    lines
        .take(MAX_MAPPINGS)
        .find_map(|line| maps::parse(&line).filter(|mapping| wanted(&mapping.path)))
}

/// The first mappings for which that holds, of all.
pub(crate) fn code_mappings_of(
    roots: &Roots,
    pid: u32,
    wanted: impl Fn(&CodeMapping) -> bool,
    most: usize,
) -> io::Result<Vec<CodeMapping>> {
    let file = File::open(roots.proc.join(pid.to_string()).join("maps"))?;
    let lines = BufReader::new(file.take(MAX_BYTES)).split(b'\n').map_while(Result::ok);
    Ok(lines.filter_map(|line| maps::code(&line)).filter(wanted).take(most).collect())
}

/// What a process has mapped that may be executed, in the order of addresses.
pub(crate) fn code_mappings(roots: &Roots, pid: u32) -> io::Result<Vec<CodeMapping>> {
    let file = File::open(roots.proc.join(pid.to_string()).join("maps"))?;
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    Ok(lines.take(MAX_MAPPINGS).filter_map(|line| maps::code(&line)).collect())
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
    use super::places;
    use crate::collect::Roots;

    #[test]
    fn a_mapped_file_is_looked_for_where_the_process_sees_it() {
        let range = (0x55d0_c040_0000, 0x55d0_c042_8000);
        let path = b"/opt/a b/server (deleted)";
        assert_eq!(
            places(range, path, &Roots::default(), 7).map(|place| place.display().to_string()),
            [
                "/proc/7/map_files/55d0c0400000-55d0c0428000",
                concat!("/proc/7/", "root/opt/a b/server (deleted)")
            ]
        );
    }
}
