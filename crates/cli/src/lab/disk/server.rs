// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that serves the disk: a filesystem with one file, in memory, whose requests take time. It has a single
//! server, so requests queue. Its clock is absolute, so a late wake-up does not make the disk slower than configured.

use super::write_log::WriteLog;
use crate::lab::victim::{Window, now_ns, sleep_until};
use anyhow::{Context as _, Result, bail};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::setpriority_process;
use rustix::thread::{ClockId, set_current_timer_slack};
use std::ffi::OsStr;
use std::fs::File;
use std::io::BufRead as _;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// Name of the one file.
pub(crate) const FILE: &str = "disk";
const FILE_INODE: INodeNo = INodeNo(2);
/// How long the kernel may cache attributes: they never change.
const TTL: Duration = Duration::from_secs(3600);

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct DiskArgs {
    /// Where to mount it
    #[arg(long)]
    at: PathBuf,
    #[arg(long)]
    size_mib: u64,
    /// Bytes that take a microsecond
    #[arg(long)]
    bytes_per_us: u64,
}

/// Serves until it is unmounted. Each line of standard input is a command: `base_us N` sets the fixed time of every
/// request (0 = no request takes any time, which is the initial state), `written FROM TO` asks what was written in
/// that window. When the input ends, requests take no time any more.
pub(crate) fn serve(args: &DiskArgs) -> Result<()> {
    // Ctrl-C or a kill of the process group must not end it before the filesystem is unmounted.
    rustix::process::setsid().context("cannot make a session")?;
    let memory = memfd_create("deburr-lab-disk", MemfdFlags::CLOEXEC)
        .context("cannot make a file in memory")?;
    let size = args.size_mib << 20;
    let store = File::from(memory);
    store.set_len(size)?;
    let state = Arc::new(State::default());
    let disk = Disk {
        store,
        size,
        bytes_per_us: args.bytes_per_us,
        free_ns: 0.into(),
        state: state.clone(),
    };
    hurry();
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("deburr-lab".into()),
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoExec,
    ];
    let session = Session::new(disk, &args.at, &config)
        .with_context(|| format!("cannot mount a FUSE filesystem at `{}`", args.at.display()))?;
    println!("ready");
    std::thread::spawn(move || {
        if let Err(error) = answer_lines(&state) {
            eprintln!("deburr: the lab's disk: {error:#}");
        }
        state.base_us.store(0, Ordering::Relaxed);
    });
    session.run().context("the lab's disk ended early")
}

/// A disk does not wait for a CPU, so its server gets real-time priority. Without it, the disk is slightly slower
/// than configured.
fn hurry() {
    let _ = setpriority_process(None, -20);
    let pid = std::process::id().to_string();
    let _ = Command::new("chrt")
        .args(["--fifo", "--all-tasks", "--pid", "5", &pid])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

fn answer_lines(state: &State) -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("base_us", base_us)) => {
                state.base_us.store(base_us.parse()?, Ordering::Relaxed);
                println!("ok");
            }
            Some(("written", window)) => {
                let window: Window = window.parse()?;
                let marks = state.tally.lock().unwrap_or_else(PoisonError::into_inner).of(window);
                println!("{}", serde_json::to_string(&marks)?);
            }
            _ => bail!("unknown question"),
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct State {
    /// Fixed time of a request, in microseconds; 0 = requests take no time at all.
    base_us: AtomicU64,
    tally: Mutex<WriteLog>,
}

struct Disk {
    store: File,
    size: u64,
    bytes_per_us: u64,
    /// When all requests so far will be completed, in nanoseconds.
    free_ns: AtomicU64,
    state: Arc<State>,
}

impl Disk {
    /// Waits as long as a request of this many bytes takes. Returns its completion time, in nanoseconds.
    fn take_time(&self, bytes: usize) -> u64 {
        let now_ns = now_ns(ClockId::Monotonic);
        let base_us = self.state.base_us.load(Ordering::Relaxed);
        if base_us == 0 {
            return now_ns;
        }
        let service_ns = base_us * 1000 + bytes as u64 * 1000 / self.bytes_per_us;
        let done_ns = self.free_ns.load(Ordering::Relaxed).max(now_ns) + service_ns;
        self.free_ns.store(done_ns, Ordering::Relaxed);
        sleep_until(done_ns);
        done_ns
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_file = inode == FILE_INODE;
        FileAttr {
            ino: inode,
            size: if is_file { self.size } else { 0 },
            blocks: if is_file { self.size / 512 } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o700 },
            nlink: if is_file { 1 } else { 2 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == FILE {
            reply.entry(&TTL, &self.attributes(FILE_INODE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            // One entry fits into any buffer.
            let _ = reply.add(FILE_INODE, 1, FileType::RegularFile, FILE);
        }
        reply.ok();
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Otherwise the kernel would cache the disk's blocks in a page cache of their own.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size.min(1 << 24) as usize];
        match self.store.read_at(&mut data, offset) {
            Ok(length) => {
                self.take_time(length);
                reply.data(&data[..length]);
            }
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > self.size) {
            return reply.error(Errno::ENOSPC);
        }
        if self.store.write_all_at(data, offset).is_err() {
            return reply.error(Errno::EIO);
        }
        let done_ns = self.take_time(data.len());
        self.state.tally.lock().unwrap_or_else(PoisonError::into_inner).add(done_ns, data);
        // The kernel limits the size of a write to less than 4 GiB.
        reply.written(data.len() as u32);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        // A loop device only asks for holes and zeros, which are the same in memory.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.store, flags, offset, length) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // It has no cache of its own.
        reply.ok();
    }
}
