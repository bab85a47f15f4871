// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of the files on which threads sleep, as their processes see them.

use super::super::super::Roots;
use super::kind::file_of;
use deburr_bpf::sched::Sleep;
use deburr_core::text::name::decode;
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

/// Names that are kept.
const NAMES: usize = 1024;
/// Names that are read in a second, at some 20 us each.
const READS: u32 = 32;
/// Longest name that is kept, in bytes.
const LONGEST: usize = 512;

/// A file of a process: the process, and the file's device and inode.
type File = (u32, u32, u64);

/// The names of some files.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Names that were read in this second.
    reads: u32,
    /// `None` = it could not be read.
    of: HashMap<File, Option<String>>,
}

impl Files {
    /// A second is over.
    pub(super) fn second(&mut self) {
        self.reads = 0;
        if self.of.len() > NAMES {
            self.of.clear();
        }
    }

    /// The pid is another process's now.
    pub(super) fn forget(&mut self, tgid: u32) {
        self.of.retain(|(of, ..), _| *of != tgid);
    }

    /// A thread sleeps, or has slept a moment ago. If it is on a file, the file's name is read, unless it is known.
    pub(super) fn meet(&mut self, roots: &Roots, sleep: &Sleep) {
        let Some((fd, device, inode)) = file_of(sleep) else { return };
        let file = (sleep.tgid, device, inode);
        if self.reads >= READS || self.of.contains_key(&file) {
            return;
        }
        self.reads += 1;
        self.of.insert(file, read(roots, sleep.tgid, fd, inode));
    }

    /// The name of a file on which a thread of that process slept.
    pub(super) fn name(&self, tgid: u32, device: u32, inode: u64) -> Option<&str> {
        self.of.get(&(tgid, device, inode))?.as_deref()
    }
}

/// What the process has open there, if it still is that inode. No call that the file's own filesystem would answer: it may be
/// the one that hangs.
fn read(roots: &Roots, tgid: u32, fd: u64, inode: u64) -> Option<String> {
    let process = roots.proc.join(tgid.to_string());
    let link = fs::read_link(process.join(format!("fd/{fd}"))).ok()?;
    let info = fs::read_to_string(process.join(format!("fdinfo/{fd}"))).ok()?;
    // Kernels before 5.14 do not have it.
    let open = info.lines().find_map(|line| line.strip_prefix("ino:"))?;
    let name = link.as_os_str().as_bytes();
    let is_it = open.trim().parse() == Ok(inode) && name.starts_with(b"/");
    (is_it && name.len() <= LONGEST).then(|| decode(name))
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::sleep;
    use super::*;
    use deburr_bpf::sched::{Call, Context, Object};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_file_has_the_name_under_which_it_is_open() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a b");
        let file = fs::File::create(&path).unwrap();
        let (fd, inode) = (file.as_raw_fd() as u64, file.metadata().unwrap().ino());
        let own = std::process::id();
        let on = |inode| {
            let object = Object::File { mode: 0o100_644, device: 5, inode, served: false };
            let it = sleep(object, Context::HardIrq);
            Sleep { tgid: own, call: Call::System(74), arguments: [fd, 0, 0], ..it }
        };
        let (roots, mut files) = (Roots::default(), Files::default());
        files.meet(&roots, &on(inode));
        files.meet(&roots, &on(inode + 1));
        assert_eq!(files.name(own, 5, inode), path.to_str());
        assert_eq!(files.name(own, 5, inode + 1), None, "the descriptor is another file's now");
        assert_eq!(files.name(own, 6, inode), None);
        // Not more than so many in a second.
        for inode in 10..100 {
            files.meet(&roots, &on(inode));
        }
        assert_eq!(files.of.len(), READS as usize);
    }
}
