// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr snapshot` of a slow file, and of one whose read never ends, not even by SIGKILL.

use crate::common;
use deburr_core::snapshot::{Snapshot, Value};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request, Session,
};
use std::ffi::OsStr;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

/// File names; the inode number is the index plus 2.
const FILES: [&str; 3] = ["swappiness", "laptop_mode", "stat_interval"];
const HANGS: INodeNo = INodeNo(3);
const SLOW: INodeNo = INodeNo(4);
const SLOW_FOR: Duration = Duration::from_millis(60);
/// Time after which a read is given up: more than other answers of the process that reads may take.
const AFTER_MS: u64 = 700;
const TTL: Duration = Duration::from_secs(3600);

/// A FUSE filesystem of three files: one answers at once, one never, one after [`SLOW_FOR`].
struct Files {
    /// Replies to reads that are never answered.
    held: Arc<Mutex<Vec<ReplyData>>>,
}

fn attributes(inode: INodeNo) -> FileAttr {
    let is_root = inode == INodeNo::ROOT;
    FileAttr {
        ino: inode,
        size: 4096,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_root { FileType::Directory } else { FileType::RegularFile },
        perm: if is_root { 0o755 } else { 0o444 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match FILES.iter().zip(2..).find(|(file, _)| name == **file) {
            Some((_, inode)) => reply.entry(&TTL, &attributes(INodeNo(inode)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let data: &[u8] = if offset == 0 { b"60\n" } else { b"" };
        match inode {
            HANGS => self.held.lock().unwrap().push(reply),
            SLOW => drop(thread::spawn(move || {
                thread::sleep(SLOW_FOR);
                reply.data(data);
            })),
            _ => reply.data(data),
        }
    }
}

#[test]
fn a_file_that_hangs_for_ever_is_reported_and_nobody_waits_for_it() {
    let test = "a_file_that_hangs_for_ever_is_reported_and_nobody_waits_for_it";
    if !common::root_or_skip("kernel", test) {
        return;
    }
    if !std::path::Path::new("/dev/fuse").exists() {
        return common::skip("kernel", test, "no /dev/fuse");
    }
    let tree = tempfile::tempdir().unwrap();
    let place = tree.path().join("proc/sys/vm");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::create_dir_all(tree.path().join("proc/sys/kernel")).unwrap();
    std::fs::write(tree.path().join("proc/sys/kernel/pid_max"), "32768\n").unwrap();
    let held = Arc::new(Mutex::new(Vec::new()));
    let session = Session::new(Files { held: held.clone() }, &place, &Config::default()).unwrap();
    let mounted = session.spawn().unwrap();

    let output = Command::new(env!("CARGO_BIN_EXE_deburr"))
        .args(["snapshot", "--file-timeout-ms", &AFTER_MS.to_string(), "--root"])
        .arg(tree.path())
        .output()
        .unwrap();

    // The read still hangs, so the process in it cannot have ended.
    let hanging = held.lock().unwrap().len();
    held.lock().unwrap().clear();
    drop(mounted);
    // Whoever has read from it may keep it from being unmounted.
    let _ = rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH);
    assert_eq!(hanging, 1, "it is read once");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    let taken = Snapshot::parse(&output.stdout).unwrap();
    let value = |name: &str| taken.fact(&format!("/proc/sys/{name}")).unwrap().value.clone();
    assert_eq!(value("vm/laptop_mode"), Value::TimedOut { after_ms: AFTER_MS });
    assert_eq!(value("vm/swappiness"), Value::integer(60));
    assert_eq!(value("kernel/pid_max"), Value::integer(32768));
    assert!(message.contains("reading `/proc/sys/vm/laptop_mode` did not end"), "{message}");
    let slow = taken.reading.slow.iter().find(|slow| slow.path.ends_with("stat_interval")).unwrap();
    let (wall_ns, cpu_ns) = (slow.wall_ns, slow.cpu_ns.unwrap());
    assert!(Duration::from_nanos(wall_ns) >= SLOW_FOR && cpu_ns * 2 < wall_ns, "{slow:?}");
    assert!(slow.again_ns.is_some_and(|again_ns| Duration::from_nanos(again_ns) >= SLOW_FOR));
    assert_eq!(taken.fact("/proc/sys/vm/stat_interval").unwrap().read_ns, Some(wall_ns));
    assert!(message.contains("most of it asleep"), "{message}");
}
