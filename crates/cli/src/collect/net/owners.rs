// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which process of the target has a socket open, by the inode number of its file.

use super::super::{Context, Roots};
use deburr_core::recording::ProcId;
use deburr_sys::socket::{Memory, accept_queue, memory};
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};

/// Open files that are looked at in a second, at some 2 us each.
const FILES_PER_SECOND: usize = 2000;
/// Open files of a process that are looked at.
const FILES: usize = 1000;
/// Seconds for which a socket that nobody was found to have open is not looked for.
const NOBODYS_FOR_S: u32 = 10;
/// Sockets that are remembered.
const KEPT: usize = 8192;

/// A process that has a socket open, and under which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) proc: ProcId,
    pid: u32,
    file: i32,
}

#[derive(Debug, Default)]
pub(super) struct Owners {
    known: BTreeMap<u64, Owner>,
    /// Sockets that nobody was found to have open, and until which second that counts.
    nobodys: BTreeMap<u64, u32>,
    second: u32,
    left: usize,
    /// Where the last search ended.
    last: u32,
}

impl Owners {
    /// A second is over.
    pub(super) fn second(&mut self, cx: &Context) {
        self.second += 1;
        self.left = FILES_PER_SECOND;
        self.nobodys.retain(|_, until| *until > self.second);
        if self.known.len() > KEPT {
            self.known.clear();
        }
        let here: BTreeSet<ProcId> = cx.processes.of_target().map(|it| it.id).collect();
        self.known.retain(|_, owner| here.contains(&owner.proc));
    }

    /// Looks for the owners of these sockets, as far as it may in this second.
    pub(super) fn find(&mut self, cx: &Context, sockets: impl IntoIterator<Item = u64>) {
        let is_new =
            |inode: &u64| !self.known.contains_key(inode) && !self.nobodys.contains_key(inode);
        let mut wanted: BTreeSet<u64> = sockets.into_iter().filter(is_new).collect();
        if wanted.is_empty() || self.left == 0 {
            return;
        }
        let mut pids: Vec<(u32, ProcId)> = cx
            .processes
            .of_target()
            .filter(|it| it.kernel_thread != Some(true) && !it.many)
            .map(|it| (it.pid, it.id))
            .collect();
        if pids.is_empty() {
            return;
        }
        pids.sort_unstable();
        let from = pids.partition_point(|(pid, _)| *pid <= self.last);
        pids.rotate_left(from);
        for (pid, proc) in pids {
            if wanted.is_empty() {
                return;
            }
            if self.left == 0 {
                // The next search goes on here; nobody is known not to have them.
                return;
            }
            self.last = pid;
            self.look(&cx.roots, pid, proc, &mut wanted);
        }
        let until = self.second + NOBODYS_FOR_S;
        self.nobodys.extend(wanted.into_iter().take(KEPT).map(|inode| (inode, until)));
    }

    fn look(&mut self, roots: &Roots, pid: u32, proc: ProcId, wanted: &mut BTreeSet<u64>) {
        let files = fs::read_dir(roots.proc.join(pid.to_string()).join("fd"));
        for file in files.into_iter().flatten().flatten().take(FILES.min(self.left)) {
            self.left -= 1;
            let link = fs::read_link(file.path()).ok();
            let inode = link.as_ref().and_then(|link| inode_of(link.to_str()?, "socket:["));
            let Some(inode) = inode.filter(|inode| wanted.remove(inode)) else { continue };
            let name = file.file_name();
            let Some(file) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            self.known.insert(inode, Owner { proc, pid, file });
        }
    }

    /// Whether it has been looked for, be it that nobody was found to have it open.
    pub(super) fn searched(&self, inode: u64) -> bool {
        self.known.contains_key(&inode) || self.nobodys.contains_key(&inode)
    }

    /// The process that has that socket open, as far as it is known.
    pub(super) fn of(&self, inode: u64) -> Option<ProcId> {
        Some(self.known.get(&inode)?.proc)
    }

    /// Memory of a socket whose owner is known; `None` = it could not be read.
    pub(super) fn memory(&self, inode: u64) -> Option<Memory> {
        memory(self.open(inode)?.as_fd()).ok()
    }

    /// Of a listening socket: memory, how many connections wait to be accepted, and how many may.
    pub(super) fn listener(&self, inode: u64) -> Option<(Memory, u32, u32)> {
        let socket = self.open(inode)?;
        let (waiting, limit) = accept_queue(socket.as_fd()).ok()??;
        Some((memory(socket.as_fd()).ok()?, waiting, limit))
    }

    /// The socket itself: a descriptor of our own for a moment. Nothing is read from it or written to it.
    fn open(&self, inode: u64) -> Option<OwnedFd> {
        let owner = self.known.get(&inode)?;
        let pid = Pid::from_raw(i32::try_from(owner.pid).ok()?)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let socket = pidfd_getfd(&process, owner.file, PidfdGetfdFlags::empty()).ok()?;
        // It may have been closed since, and another file opened under that number.
        let stat = fstat(&socket).ok()?;
        let same = stat.st_ino == inode && FileType::from_raw_mode(stat.st_mode).is_socket();
        same.then_some(socket)
    }
}

/// The number in `socket:[17]` or `net:[17]`.
pub(super) fn inode_of<N: std::str::FromStr>(link: &str, prefix: &str) -> Option<N> {
    link.strip_prefix(prefix)?.strip_suffix(']')?.parse().ok()
}
