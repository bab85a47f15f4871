// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers that limits of block IO held back, each second: by device, direction and cgroup, with the processes in
//! the cgroup.

use crate::collect::settings::io_trees;
use crate::collect::{Context, Emit, ObservedProcess, Roots};
use deburr_bpf::block::{Direction, HeldTransfers};
use deburr_core::recording::{BlockRecord, DevId, HeldTick, IoOp, ProcId, Record};
use deburr_core::stats::Span;
use deburr_core::text::name;
use deburr_sys::handle;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// `FILEID_KERNFS` of `linux/exportfs.h`: the handle of a cgroup's directory is its id.
const KERNFS: i32 = 0xfe;

/// Processes of a cgroup that are looked at in a second. In the root cgroup the first ones are kernel threads.
const LOOKED_AT: usize = 256;

/// Amounts of transfers that were held back.
#[derive(Debug)]
pub(super) struct HeldBack {
    /// Mount point of the cgroup tree whose controller limits IO.
    tree: Option<PathBuf>,
    /// (disk, cgroup, direction) -> transfers and bytes when they were last read.
    before: BTreeMap<(u32, u64, Direction), (u64, u64)>,
    dirs: HashMap<u64, Option<PathBuf>>,
    /// Requests of this second for transfers that had been held back: their number, and their total time in
    /// nanoseconds.
    served: BTreeMap<(DevId, IoOp), (u64, u64)>,
}

impl HeldBack {
    /// Starts without any amounts.
    pub(super) fn new(roots: &Roots) -> Self {
        let (v1, v2) = io_trees(roots);
        Self {
            // Where both versions are mounted, v1 has the controller.
            tree: v1.or(v2),
            before: BTreeMap::new(),
            dirs: HashMap::new(),
            served: BTreeMap::new(),
        }
    }

    /// Adds a request for a transfer that had been held back, with the time that the request took.
    pub(super) fn served(&mut self, device: DevId, op: IoOp, ns: u64) {
        let (count, sum_ns) = self.served.entry((device, op)).or_default();
        *count += 1;
        *sum_ns += ns;
    }

    /// Emits what was held back and released in a second. `held` holds the amounts since the probe was loaded.
    pub(super) fn second(
        &mut self,
        cx: &mut Context,
        Span { t0_ns, t1_ns }: Span,
        held: &[HeldTransfers],
        emit: Emit<'_>,
    ) {
        let served = std::mem::take(&mut self.served);
        for now in held {
            let before = self.before.insert((now.disk, now.cgroup, now.op), (now.ios, now.bytes));
            let (ios, bytes) = before.unwrap_or_default();
            if now.ios <= ios {
                continue;
            }
            let dir = self.dir(now.cgroup);
            let members = dir.as_deref().map(|dir| members(cx, dir, &mut *emit));
            let device = cx.devices.sight(DevId::from_kernel(now.disk), &mut *emit);
            let op = direction(now.op);
            let tick = HeldTick {
                t0_ns,
                t1_ns,
                device,
                op,
                cgroup: dir.map(|dir| name::decode(dir.as_os_str().as_bytes())),
                ios: now.ios - ios,
                bytes: now.bytes.saturating_sub(bytes),
                service_ns: served.get(&(device, op)).map(|(count, ns)| ns / count),
                members: members.unwrap_or_default(),
            };
            emit(Record::Block(Box::new(BlockRecord::Held(tick))));
        }
    }

    fn dir(&mut self, cgroup: u64) -> Option<PathBuf> {
        let tree = self.tree.as_deref();
        self.dirs.entry(cgroup).or_insert_with(|| tree.and_then(|tree| find(tree, cgroup))).clone()
    }
}

fn direction(op: Direction) -> IoOp {
    match op {
        Direction::Read => IoOp::Read,
        Direction::Write => IoOp::Write,
        Direction::Other => IoOp::Other,
    }
}

/// The directory of a cgroup of that tree; `None` if it is gone.
fn find(tree: &Path, cgroup: u64) -> Option<PathBuf> {
    let mount = File::open(tree).ok()?;
    let dir = handle::open_path(mount.as_fd(), KERNFS, &cgroup.to_ne_bytes()).ok()?;
    let path = fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).ok()?;
    path.starts_with(tree).then_some(path)
}

/// The processes in a cgroup, without kernel threads.
fn members(cx: &mut Context, dir: &Path, emit: Emit<'_>) -> Vec<ProcId> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut members = Vec::new();
    for pid in text.lines().filter_map(|line| line.trim().parse().ok()).take(LOOKED_AT) {
        if members.len() == HeldTick::MEMBERS {
            break;
        }
        let Context { roots, processes, cgroups, target, .. } = cx;
        let sighting = ObservedProcess { pid, ..ObservedProcess::default() };
        let member = processes.intern(roots, cgroups, target, sighting, &mut *emit);
        if !processes.is_kernel_thread(pid) {
            members.push(member);
        }
    }
    members
}
