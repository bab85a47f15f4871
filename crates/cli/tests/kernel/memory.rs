// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sleep on pages that are read back because memory was short: memory, not block IO. And reads that have to be: block IO.

use crate::common;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");
const MIB: u64 = 1 << 20;
/// What the process may have in memory, and what it reads: a little more, so that what is dropped was in use. Of much more,
/// most would be dropped before it was used twice: the kernel does not take that for a shortage, and counts it as a first read.
const LIMIT: u64 = 32 * MIB;
const FILES: u64 = 34;

/// A memory cgroup of this test's own.
struct Small {
    dir: PathBuf,
    v2: bool,
}

impl Small {
    /// `Err` = why this host has no place for it.
    fn make() -> Result<Self, String> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let v2 = Path::new("/sys/fs/cgroup");
        let control = fs::read_to_string(v2.join("cgroup.subtree_control")).unwrap_or_default();
        let is_v1 = v1.join("memory.limit_in_bytes").exists();
        let root = match is_v1 {
            true => v1,
            false if control.split_whitespace().any(|name| name == "memory") => v2,
            false => return Err("no cgroup tree has the memory controller".into()),
        };
        let small =
            Self { dir: root.join(format!("deburr-test-{}", std::process::id())), v2: !is_v1 };
        fs::create_dir(&small.dir).map_err(|error| format!("{}: {error}", small.dir.display()))?;
        let file = if small.v2 { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(small.dir.join(file), LIMIT.to_string())
            .map_err(|error| format!("{file}: {error}"))?;
        Ok(small)
    }

    fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Pages of files that were dropped from it in use and came back.
    fn refaults(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join("memory.stat")).unwrap();
        let value = |line: &str| line.strip_prefix("workingset_refault_file ")?.parse().ok();
        text.lines().find_map(value).unwrap()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // The dead leave their cgroup a moment after they were waited for.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() || !self.dir.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A process that reads files one after the other.
struct Reader(Child);

impl Reader {
    fn start(procs: &Path, files: &[PathBuf]) -> Self {
        let script = "echo $$ > \"$0\" && exec cat \"$@\"";
        let mut sh = Command::new("sh");
        let child = sh.args(["-c", script]).arg(procs).args(files);
        Self(child.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
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

/// Files of a MiB each, none of it in memory.
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

/// So many of these in an order without rhyme: what is read soon again becomes part of what is in use.
fn shuffled(paths: &[PathBuf], number: usize) -> Vec<PathBuf> {
    let mut seed = 1_u64;
    let mut pick = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        paths[(seed >> 33) as usize % paths.len()].clone()
    };
    (0..number).map(|_| pick()).collect()
}

/// `total` of `some` of the host's memory pressure, ns; `None` where the kernel does not count it.
fn pressure_ns() -> Option<u64> {
    let text = fs::read_to_string("/proc/pressure/memory").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    Some(some.rsplit_once("total=")?.1.parse::<u64>().ok()? * 1000)
}

/// What the ledger says that a process waited for in so many seconds: memory, block IO, in ns.
fn waited(pid: u32, seconds: u32) -> (u64, u64) {
    let output = Command::new(DEBURR)
        .args(["-q", "--json", "-p", &pid.to_string(), "-d", &seconds.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).expect(&text);
    let parts = report["ledger"][0]["parts"].as_array().expect("a ledger").clone();
    let of = |state: &str| -> u64 {
        let of_state = parts.iter().filter(|part| part["state"] == state);
        of_state.map(|part| part["ns"].as_u64().unwrap()).sum()
    };
    (of("mem_stall"), of("block_io"))
}

#[test]
fn pages_that_come_back_are_memory_and_first_reads_are_block_io() {
    const TEST: &str = "pages_that_come_back_are_memory_and_first_reads_are_block_io";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let Some(before_ns) = pressure_ns() else {
        return common::skip("kernel", TEST, "the kernel does not count memory pressure (PSI)");
    };
    let small = match Small::make() {
        Ok(small) => small,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    // Not on a tmpfs: its pages are nowhere else.
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let all = files(scratch.path(), FILES);
    let reader = Reader::start(&small.procs(), &shuffled(&all, 20_000));
    // Until what it reads was dropped and read again several times.
    for _ in 0..600 {
        if small.refaults() > 2 * FILES * MIB / 4096 {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let refaults = small.refaults();
    let (memory_ns, disk_ns) = waited(reader.pid(), 4);
    let again = small.refaults() - refaults;
    let pressed_ns = pressure_ns().unwrap() - before_ns;
    drop(reader);
    let said = format!(
        "memory {memory_ns} ns, block IO {disk_ns} ns; {again} pages came back, pressure {pressed_ns} ns"
    );
    assert!(again > FILES * MIB / 4096, "the witness saw no shortage: {said}");
    // Measured 3 to 15 times as much; without the order of the two tests in the probe it is 0.
    assert!(memory_ns > disk_ns, "{said}");
    // Pressure also counts the time in which such a wait is over and the process is queued.
    assert!(memory_ns <= pressed_ns, "{said}");

    // The decoy: reads past the page cache, in the same cgroup. They wait for the disk, and memory is none of it.
    let big = scratch.path().join("big");
    fs::write(&big, vec![b'x'; 128 * MIB as usize]).unwrap();
    let mut dd = Command::new("sh");
    let script =
        "echo $$ > \"$0\" && exec dd if=\"$1\" of=/dev/null bs=4k iflag=direct status=none";
    let child = dd.args(["-c", script]).arg(small.procs()).arg(&big).stdin(Stdio::null()).spawn();
    let reader = Reader(child.unwrap());
    let (memory_ns, disk_ns) = waited(reader.pid(), 2);
    assert!(disk_ns > 100 * memory_ns, "memory {memory_ns} ns, block IO {disk_ns} ns");
}
