// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For any filesystem that supports FIEMAP: reads the extents of all files below a directory, once for all places that
//! are looked for. Nothing is written, not even dirty pages.

use super::device::dev_of;
use deburr_core::recording::DevId;
use deburr_sys::fiemap;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Number of files after which a walk is given up.
const MAX_FILES: u64 = 20_000_000;
/// Number of files between two reports of progress.
const PROGRESS_EVERY: u64 = 1000;

/// A file that is at one of the places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundFile {
    pub(super) ino: u64,
    pub(super) path: Vec<u8>,
    /// Offset of the place in the file.
    pub(super) offset_bytes: u64,
    pub(super) directory: bool,
}

/// The results of a walk.
#[derive(Debug, Default)]
pub(super) struct WalkResult {
    /// The files at each place.
    pub(super) hits: Vec<Vec<FoundFile>>,
    /// Files and directories that were opened.
    pub(super) files: u64,
    /// Files and directories that could not be opened.
    pub(super) unopened: u64,
    /// Whether the walk was given up before its end.
    pub(super) cut: bool,
}

/// Looks for the places (bytes from the start of the filesystem's device, ascending) in the files below `start` that
/// are on the same filesystem. Ends early when all places are found with all names of their files, unless files may
/// share blocks (`shared`).
pub(super) fn walk(
    start: &Path,
    places: &[u64],
    shared: bool,
    progress: &mut dyn FnMut(u64, usize),
) -> Result<WalkResult, String> {
    let mut walked = WalkResult { hits: vec![Vec::new(); places.len()], ..WalkResult::default() };
    let cannot = |error| format!("cannot walk `{}`: {error}", start.display());
    let dev = fs::metadata(start).map_err(cannot)?.dev();
    let mut found = 0;
    // Inode of a file that was found -> number of its names (hard links) that were not seen yet.
    let mut other_names: BTreeMap<u64, u64> = BTreeMap::new();
    let mut waiting = vec![start.to_owned()];
    while let Some(path) = waiting.pop() {
        if walked.files.is_multiple_of(PROGRESS_EVERY) {
            progress(walked.files, found);
        }
        let complete = found == places.len() && other_names.is_empty();
        if (complete && !shared) || walked.files >= MAX_FILES {
            walked.cut = walked.files >= MAX_FILES;
            break;
        }
        let file = match open(&path) {
            Ok(file) => file,
            // It was removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(_) => {
                walked.unopened += 1;
                continue;
            }
        };
        let Ok(metadata) = file.metadata() else { continue };
        // Another filesystem, or something else by now.
        if metadata.dev() != dev || !(metadata.is_dir() || metadata.is_file()) {
            continue;
        }
        walked.files += 1;
        let (ino, directory) = (metadata.ino(), metadata.is_dir());
        let mut is_there = false;
        // A file whose extents cannot be read is not found.
        let _ = each_place(&file, places, |index, offset_bytes| {
            is_there = true;
            let path = path.clone().into_os_string().into_vec();
            found += usize::from(walked.hits[index].is_empty());
            walked.hits[index].push(FoundFile { ino, path, offset_bytes, directory });
        });
        if is_there && !directory && metadata.nlink() > 1 {
            let left = other_names.entry(ino).or_insert(metadata.nlink());
            *left -= 1;
            if *left == 0 {
                other_names.remove(&ino);
            }
        }
        if directory {
            below(&path, &mut waiting);
        }
    }
    progress(walked.files, found);
    Ok(walked)
}

/// Looks for the places in files of a filesystem that have no name any more, but are open in some process.
pub(super) fn deleted(proc: &Path, dev: DevId, places: &[u64]) -> Vec<Vec<FoundFile>> {
    let mut hits = vec![Vec::new(); places.len()];
    let mut seen = BTreeSet::new();
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    // Without privileges, the open files of other users' processes cannot be read.
    let open = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok());
    for link in open.flatten().flatten().map(|entry| entry.path()) {
        let is_it = fs::metadata(&link).is_ok_and(|found| {
            found.nlink() == 0
                && found.is_file()
                && dev_of(found.dev()) == dev
                && seen.insert(found.ino())
        });
        // Opens the file behind the link, not the link.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOATIME;
        if !is_it {
            continue;
        }
        let Ok(file) = rustix::fs::open(&link, flags, Mode::empty()).map(File::from) else {
            continue;
        };
        let Ok(ino) = file.metadata().map(|metadata| metadata.ino()) else { continue };
        let path = fs::read_link(&link).unwrap_or_default().into_os_string().into_vec();
        let path = path.strip_suffix(b" (deleted)").map_or(path.clone(), <[u8]>::to_vec);
        let _ = each_place(&file, places, |index, offset_bytes| {
            hits[index].push(FoundFile { ino, path: path.clone(), offset_bytes, directory: false });
        });
    }
    hits
}

/// Offset of a place in a file; `None` if the place is not in the file.
pub(super) fn offset_in(path: &[u8], place: u64) -> Option<u64> {
    let file = open(Path::new(&OsString::from_vec(path.to_vec()))).ok()?;
    let mut offset = None;
    each_place(&file, &[place], |_, offset_bytes| offset = Some(offset_bytes)).ok()?;
    offset
}

/// Calls `at` with the index of each place (ascending) that is in the file, and with its offset in the file.
fn each_place(file: &File, places: &[u64], mut at: impl FnMut(usize, u64)) -> std::io::Result<()> {
    fiemap::extents(file.as_fd(), |extent| {
        if let Some(begin) = extent.physical_bytes {
            let end = begin.saturating_add(extent.length_bytes);
            let from = places.partition_point(|&place| place < begin);
            let to = places.partition_point(|&place| place < end);
            for (index, place) in places.iter().enumerate().take(to).skip(from) {
                at(index, extent.logical_bytes.saturating_add(place - begin));
            }
        }
        true
    })
}

/// Adds the files and directories in a directory; other entries have no extents.
fn below(directory: &Path, waiting: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_file()) {
            waiting.push(entry.path());
        }
    }
}

fn open(path: &Path) -> Result<File, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    // Opening must not change the access time of a file. O_NOATIME is only permitted to the owner of the file.
    let quiet = rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty());
    match quiet {
        Err(Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
        other => other,
    }
    .map(File::from)
}
