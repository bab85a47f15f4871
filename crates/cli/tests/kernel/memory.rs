// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sleep on pages that are read back because memory was short is memory stall, not block IO. Sleep on reads that cannot
//! be avoided is block IO.

use crate::common;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");
const MIB: u64 = 1 << 20;
/// Memory limit of the process, in bytes. It reads a little more ([`FILES`]), so that pages were in use when they were
/// dropped. Of much more, most pages would be dropped before they were used twice: the kernel does not take that for a
/// shortage, and counts the next read as a first one.
const LIMIT: u64 = 32 * MIB;
/// Files of 1 MiB each that it reads.
const FILES: u64 = 34;

/// A memory cgroup limited to [`LIMIT`], and one in which the kernel counts pressure, removed on drop. In a host with
/// only cgroup v2 they are the same.
struct Small {
    dir: PathBuf,
    pressed: PathBuf,
}

impl Small {
    /// Creates the cgroup; `Err` = why that is not possible on this host.
    fn make() -> Result<Self, String> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let v2 = Path::new("/sys/fs/cgroup");
        let hybrid = v2.join("unified");
        let control = fs::read_to_string(v2.join("cgroup.subtree_control")).unwrap_or_default();
        let is_v1 = v1.join("memory.limit_in_bytes").exists();
        let root = match is_v1 {
            true => v1,
            false if control.split_whitespace().any(|name| name == "memory") => v2,
            false => return Err("no cgroup tree has the memory controller".into()),
        };
        let name = format!("deburr-test-{}", std::process::id());
        let pressed = if is_v1 { hybrid.join(&name) } else { v2.join(&name) };
        let small = Self { dir: root.join(name), pressed };
        for dir in [&small.dir, &small.pressed] {
            fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        if !small.pressed.join("memory.pressure").exists() {
            return Err("the kernel does not count memory pressure (PSI) by cgroup".into());
        }
        let file = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(small.dir.join(file), LIMIT.to_string())
            .map_err(|error| format!("{file}: {error}"))?;
        Ok(small)
    }

    fn procs(&self) -> [PathBuf; 2] {
        [&self.dir, &self.pressed].map(|dir| dir.join("cgroup.procs"))
    }

    /// Time for which a process of the cgroup lacked memory: `total` of `some` in its `memory.pressure`, in nanoseconds.
    /// The kernel weighs CPUs by how busy the cgroup keeps them, so this is right if all run on one CPU. The host's own
    /// pressure is less than that: CPUs on which others compute count as well.
    fn pressure_ns(&self) -> u64 {
        let text = fs::read_to_string(self.pressed.join("memory.pressure")).unwrap();
        let total =
            text.lines().find_map(|line| line.strip_prefix("some ")?.split("total=").nth(1));
        total.unwrap().parse::<u64>().unwrap() * 1000
    }

    /// File pages of the cgroup that were dropped while in use and read again.
    fn refaults(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join("memory.stat")).unwrap();
        let value = |line: &str| line.strip_prefix("workingset_refault_file ")?.parse().ok();
        text.lines().find_map(value).unwrap()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A process leaves its cgroup a moment after it was waited for.
        for dir in [&self.dir, &self.pressed] {
            for _ in 0..100 {
                if fs::remove_dir(dir).is_ok() || !dir.exists() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// A process on one CPU that reads, killed on drop.
struct Reader(Child);

impl Reader {
    /// Starts a command in these cgroups.
    fn start<A: AsRef<OsStr>>(small: &Small, command: &str, arguments: &[A]) -> Self {
        let [procs, pressed] = small.procs();
        let script = "echo $$ > \"$0\" && echo $$ > \"$1\" && shift && exec \"$@\"";
        let mut sh = Command::new("sh");
        sh.args(["-c", script]).args([procs, pressed]).arg(command).args(arguments);
        let child = sh.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let allowed = sched_getaffinity(Some(pid)).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
        sched_setaffinity(Some(pid), &one).unwrap();
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes `number` files of 1 MiB each, and drops them from the page cache.
fn files(dir: &Path, number: u64) -> Vec<PathBuf> {
    let content = vec![b'x'; MIB as usize];
    let paths: Vec<PathBuf> = (0..number).map(|i| dir.join(i.to_string())).collect();
    for path in &paths {
        fs::write(path, &content).unwrap();
        let file = fs::File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    paths
}

/// `number` of these paths in pseudo-random order: pages that are read again soon become part of the working set.
fn shuffled(paths: &[PathBuf], number: usize) -> Vec<PathBuf> {
    let mut seed = 1_u64;
    let mut pick = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        paths[(seed >> 33) as usize % paths.len()].clone()
    };
    (0..number).map(|_| pick()).collect()
}

/// What a ledger says of a process, in nanoseconds.
#[derive(Debug)]
struct Waited {
    memory_ns: u64,
    disk_ns: u64,
    /// For what it waited when memory was short; what is not known with what it may be.
    memory_by: BTreeMap<String, u64>,
}

/// Time that a process waited for memory and for block IO within `seconds`, according to the ledger.
fn waited(pid: u32, seconds: u32) -> Waited {
    let output = Command::new(DEBURR)
        .args(["-q", "--json", "-p", &pid.to_string(), "-d", &seconds.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).expect(&text);
    let ledger = &report["ledger"][0];
    let parts = ledger["parts"].as_array().expect("a ledger").clone();
    let of = |state: &str| -> u64 {
        let of_state = parts.iter().filter(|part| part["state"] == state);
        of_state.map(|part| part["ns"].as_u64().unwrap()).sum()
    };
    let by = ledger["mem_stall_by"].as_array().map_or(&[][..], Vec::as_slice);
    let of_kind = |it: &Value| {
        let may_be = it["may_be"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let kinds: Vec<&str> =
            iter::once(&it["kind"]).chain(may_be).flat_map(Value::as_str).collect();
        (kinds.join(" "), it["ns"].as_u64().unwrap())
    };
    let memory_by = by.iter().map(of_kind).collect();
    let waited = Waited { memory_ns: of("mem_stall"), disk_ns: of("block_io"), memory_by };
    assert_eq!(waited.memory_by.values().sum::<u64>(), waited.memory_ns, "{waited:?}");
    waited
}

/// Swapped pages that came back, of the whole host.
fn swapped_back() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    let value = |line: &str| line.strip_prefix("workingset_refault_anon ")?.parse().ok();
    text.lines().find_map(value).unwrap()
}

#[test]
fn pages_that_come_back_are_memory_and_first_reads_are_block_io() {
    const TEST: &str = "pages_that_come_back_are_memory_and_first_reads_are_block_io";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let small = match Small::make() {
        Ok(small) => small,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    // Not on a tmpfs: its pages have no copy on a disk.
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let all = files(scratch.path(), FILES);
    let reader = Reader::start(&small, "cat", &shuffled(&all, 20_000));
    // Waits until its pages were dropped and read again twice on average.
    for _ in 0..600 {
        if small.refaults() > 2 * FILES * MIB / 4096 {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let (refaults, swapped) = (small.refaults(), swapped_back());
    let Waited { memory_ns, disk_ns, memory_by } = waited(reader.pid(), 4);
    let again = small.refaults() - refaults;
    let pressed_ns = small.pressure_ns();
    drop(reader);
    let said = format!(
        "memory {memory_ns} ns: {memory_by:?}, block IO {disk_ns} ns; {again} pages came back, pressure {pressed_ns} ns"
    );
    assert!(again > FILES * MIB / 4096, "the witness saw no shortage: {said}");
    // Measured: 3 to 15 times as much. If the probe made its two tests in the other order, it would be 0.
    assert!(memory_ns > disk_ns, "{said}");
    // Pressure also counts the time after such a wait in which the process is queued for a CPU.
    assert!(memory_ns <= pressed_ns, "{said}");
    println!("{said}");
    // Most of it is for the pages that the kernel counts, and what it slept while it freed others is another part.
    let of_files = match swapped_back() - swapped {
        0 => "refault_file",
        _ => "not_known refault_file refault_swap",
    };
    let back_ns = memory_by.get(of_files).copied().unwrap_or(0);
    assert!(2 * back_ns > memory_ns, "{of_files}: {said}");

    // The decoy: reads past the page cache, in the same cgroup. They wait for the disk, not for memory.
    let big = scratch.path().join("big");
    fs::write(&big, vec![b'x'; 128 * MIB as usize]).unwrap();
    let from = format!("if={}", big.display());
    let dd = [from.as_str(), "of=/dev/null", "bs=4k", "iflag=direct", "status=none"];
    let reader = Reader::start(&small, "dd", &dd);
    let Waited { memory_ns, disk_ns, .. } = waited(reader.pid(), 2);
    assert!(disk_ns > 100 * memory_ns, "memory {memory_ns} ns, block IO {disk_ns} ns");
}
