// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reclaim at the limit of a memory cgroup, as recorded, against the victim's own clock around its calls, the kernel's
//! pressure of the cgroup and its count of charges that failed.

use crate::common;
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");
const MIB: u64 = 1 << 20;
/// Limit of the outer cgroup, which binds; that of the inner one, in which the process is, does not.
const LIMIT: u64 = 32 * MIB;
const INNER_LIMIT: u64 = 512 * MIB;

/// Writes a file of 96 MiB again and again for three seconds, in the cgroups of its arguments, on one CPU. Whole pages are
/// written, so that none is read back. It writes in nanoseconds what its writes took, without waiting for a CPU, what those of 1 ms
/// and more took, and its system CPU time.
const WRITER: &str = r#"
import json, os, resource, sys, time
path, groups = sys.argv[1], sys.argv[2:]
for group in groups:
    open(group + "/cgroup.procs", "w").write(str(os.getpid()))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
block, size, at, all_ns, slow_ns = b"x" * (256 << 10), 96 << 20, 0, 0, 0
file = os.open(path, os.O_RDWR | os.O_CREAT)
schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
def running():
    # Without the time in which it waits for a CPU.
    return time.monotonic_ns() - int(os.pread(schedstat, 99, 0).split()[1])
end = time.monotonic() + 3
while time.monotonic() < end:
    begin = running()
    os.pwrite(file, block, at)
    took = running() - begin
    all_ns += took
    slow_ns += took if took >= 1000000 else 0
    at = (at + len(block)) % size
system_ns = int(resource.getrusage(resource.RUSAGE_SELF).ru_stime * 1e9)
json.dump({"all_ns": all_ns, "slow_ns": slow_ns, "system_ns": system_ns}, open(path + ".json", "w"))
"#;

/// A cgroup with a limit, one within it, and one in which the kernel counts pressure; removed on drop. In a host with only
/// cgroup v2 the latter two are the same.
struct Nested {
    outer: PathBuf,
    inner: PathBuf,
    pressed: PathBuf,
    is_v1: bool,
}

impl Nested {
    /// Creates the cgroups; `Err` = why that is not possible on this host.
    fn make() -> Result<Self, String> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let v2 = Path::new("/sys/fs/cgroup");
        let is_v1 = v1.join("memory.limit_in_bytes").exists();
        let control = fs::read_to_string(v2.join("cgroup.subtree_control")).unwrap_or_default();
        if !is_v1 && !control.split_whitespace().any(|name| name == "memory") {
            return Err("no cgroup tree has the memory controller".into());
        }
        let name = format!("deburr-reclaim-{}", std::process::id());
        let outer = if is_v1 { v1.join(&name) } else { v2.join(&name) };
        let inner = outer.join("in");
        let pressed = if is_v1 { v2.join("unified").join(name) } else { inner.clone() };
        let nested = Self { outer, inner, pressed, is_v1 };
        let failed = |error: std::io::Error| format!("cannot make cgroups: {error}");
        fs::create_dir_all(&nested.outer).map_err(failed)?;
        if !is_v1 {
            fs::write(nested.outer.join("cgroup.subtree_control"), "+memory").map_err(failed)?;
        }
        for dir in [&nested.inner, &nested.pressed] {
            fs::create_dir_all(dir).map_err(failed)?;
        }
        let file = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        for (dir, limit) in [(&nested.outer, LIMIT), (&nested.inner, INNER_LIMIT)] {
            fs::write(dir.join(file), limit.to_string()).map_err(failed)?;
        }
        Ok(nested)
    }

    /// Time in which a thread of the cgroup was short of memory, on a CPU or not, in nanoseconds; `None` = not counted.
    fn pressure_ns(&self) -> Option<u64> {
        let text = fs::read_to_string(self.pressed.join("memory.pressure")).ok()?;
        let some = text.lines().find(|line| line.starts_with("some "))?;
        Some(some.split("total=").nth(1)?.trim().parse::<u64>().ok()? * 1000)
    }

    /// Charges that found the outer cgroup at its limit.
    fn failed_charges(&self) -> u64 {
        if self.is_v1 {
            let text = fs::read_to_string(self.outer.join("memory.failcnt")).unwrap();
            return text.trim().parse().unwrap();
        }
        let text = fs::read_to_string(self.outer.join("memory.events")).unwrap();
        let max = text.lines().find_map(|line| line.strip_prefix("max ")).unwrap();
        max.trim().parse().unwrap()
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        // A process leaves its cgroup a moment after it was waited for.
        for dir in [&self.pressed, &self.inner, &self.outer] {
            for _ in 0..100 {
                if fs::remove_dir(dir).is_ok() || !dir.exists() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// What a recording has of processes of one name, at limits: time, sleep for memory, time off CPUs, number, and the paths
/// of the cgroups with their limits.
#[derive(Debug, Default)]
struct Recorded {
    ns: u64,
    memory_ns: u64,
    off_cpu_ns: u64,
    count: u64,
    pages: u64,
    levels: Vec<(Option<String>, Option<u64>, u64)>,
}

fn recorded(connection: &Connection, comm: &str) -> Recorded {
    let mut sum = Recorded::default();
    let sql = "SELECT ns, memory_ns, off_cpu_ns, count, pages, limit_bytes,
               (SELECT path FROM cgroup WHERE cgroup.cgroup = r.cgroup ORDER BY seq DESC LIMIT 1)
               FROM reclaim r WHERE kind = 'limit' AND kernel = 0
               AND proc IN (SELECT proc FROM process WHERE comm = ?)";
    let mut query = connection.prepare(sql).unwrap();
    let mut rows = query.query([comm]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let of = |at: usize| row.get::<_, i64>(at).unwrap().cast_unsigned();
        sum.ns += of(0);
        sum.memory_ns += of(1);
        sum.off_cpu_ns += of(2);
        sum.count += of(3);
        sum.pages += of(4);
        let limit: Option<i64> = row.get(5).unwrap();
        sum.levels.push((row.get(6).unwrap(), limit.map(i64::cast_unsigned), of(0)));
    }
    sum
}

fn ledger_memory_ns(connection: &Connection, comm: &str) -> u64 {
    let sql = "SELECT coalesce(sum(mem_stall_ns), 0) FROM process_tick
               WHERE proc IN (SELECT proc FROM process WHERE comm = ?)";
    connection.query_row(sql, [comm], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

/// What the ledger of a recording's report says of the waiting for memory, by kind, in nanoseconds.
fn ledger_memory_by(recording: &Path) -> BTreeMap<String, u64> {
    let output = Command::new(DEBURR).args(["report", "--json"]).arg(recording).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let parts = report["ledger"][0]["mem_stall_by"].as_array().map_or(&[][..], Vec::as_slice);
    let mut sums = BTreeMap::new();
    for part in parts {
        *sums.entry(part["kind"].as_str().unwrap().to_owned()).or_default() +=
            part["ns"].as_u64().unwrap();
    }
    sums
}

/// The ledger has the sleep only, and takes next to nothing for pages that come back: none is read.
fn assert_ledger(recording: &Path, of: &Recorded, ledger_ns: u64) {
    let by = ledger_memory_by(recording);
    println!("{by:?}");
    assert_eq!(by.values().sum::<u64>(), ledger_ns, "{by:?}");
    assert_eq!(by.get("limit_reclaim").copied().unwrap_or(0), of.memory_ns, "{by:?}, {of:?}");
    // Measured: 0.5 to 1.2 %, all of it reclaim of which it is not known how much was sleep.
    let rest_ns = ledger_ns - of.memory_ns;
    assert!(rest_ns as f64 <= 0.05 * ledger_ns as f64 + 1e6, "{by:?}, {of:?}");
}

fn python() -> bool {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

#[test]
fn reclaim_at_a_limit_takes_as_long_as_the_writes_and_the_kernels_pressure_say() {
    const TEST: &str =
        "reclaim_at_a_limit_takes_as_long_as_the_writes_and_the_kernels_pressure_say";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    if !python() {
        return common::skip("kernel", TEST, "python3 is not here");
    }
    let nested = match Nested::make() {
        Ok(nested) => nested,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    // Not on a tmpfs: its pages cannot be dropped.
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = scratch.path().join("written");
    let recording = scratch.path().join("recording.deburr");
    let mut groups = vec![nested.inner.to_str().unwrap()];
    if nested.pressed != nested.inner {
        groups.push(nested.pressed.to_str().unwrap());
    }
    // The decoy: a writer like that, beside it and without a limit.
    let free = scratch.path().join("free");
    let mut beside = Command::new("dd");
    beside.args([
        "if=/dev/zero",
        "bs=256k",
        "count=200",
        "oflag=append",
        "conv=notrunc",
        "status=none",
    ]);
    let mut beside = beside.arg(format!("of={}", free.display())).spawn().unwrap();
    let output = Command::new(DEBURR)
        .args(["record", "-q", "-o", recording.to_str().unwrap(), "--", "python3", "-c", WRITER])
        .arg(&file)
        .args(&groups)
        .output()
        .unwrap();
    beside.wait().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let own: Value =
        serde_json::from_slice(&fs::read(scratch.path().join("written.json")).unwrap()).unwrap();
    let own = |name: &str| own[name].as_u64().unwrap();
    let (pressure_ns, failed) = (nested.pressure_ns(), nested.failed_charges());
    let connection = Connection::open(&recording).unwrap();
    let of = recorded(&connection, "python3");
    let ledger_ns = ledger_memory_ns(&connection, "python3");
    let said = format!(
        "{of:?}; writes {} ns, slow ones {} ns, system time {} ns, pressure {pressure_ns:?} ns, {failed} failed charges, \
         ledger {ledger_ns} ns",
        own("all_ns"),
        own("slow_ns"),
        own("system_ns")
    );
    println!("{said}");
    assert!(of.count > 100 && own("slow_ns") > 0, "the witnesses saw no reclaim: {said}");

    // Of its own clock, both without waiting for a CPU: no more than all writes took, and much of the slow ones. Those may
    // wait for the disk as well.
    let unqueued_ns = of.ns - (of.off_cpu_ns - of.memory_ns);
    assert!(unqueued_ns as f64 <= own("all_ns") as f64 * 1.02, "{said}");
    assert!(unqueued_ns as f64 >= own("slow_ns") as f64 * 0.5, "{said}");
    // Of the kernel's pressure, which has other waiting for memory too, and is brought up to date now and then.
    if let Some(pressure_ns) = pressure_ns {
        let ratio = of.ns as f64 / pressure_ns as f64;
        // Measured: 0.996 and 0.999.
        assert!((0.85..=1.1).contains(&ratio), "{ratio}: {said}");
    }
    // Each reclaim follows a charge that failed, and the other way round, but for those that need no memory at once.
    // Measured: as many of both.
    assert!(of.count <= failed && failed as f64 <= 1.25 * of.count as f64, "{said}");
    // What the parts are.
    assert!(of.memory_ns <= of.off_cpu_ns && of.off_cpu_ns <= of.ns, "{said}");
    let on_cpu_ns = of.ns - of.off_cpu_ns;
    // Its system time has the copying of pages as well. It is counted in ticks where the kernel does not measure it.
    assert!(on_cpu_ns as f64 <= own("system_ns") as f64 * 1.15, "{said}");
    assert!(of.memory_ns <= ledger_ns, "{said}");
    assert_ledger(&recording, &of, ledger_ns);
    assert!(of.pages * 4096 > LIMIT, "{said}");

    // Whose limit: the outer one's, although the process is in the inner one.
    let name = nested.outer.file_name().unwrap().to_str().unwrap();
    let outer_ns: u64 = of
        .levels
        .iter()
        .filter(|(path, limit, _)| {
            path.as_deref().is_some_and(|path| path.ends_with(name)) && *limit == Some(LIMIT)
        })
        .map(|(.., ns)| ns)
        .sum();
    assert!(outer_ns as f64 >= 0.95 * of.ns as f64, "{said}");
    assert_eq!(recorded(&connection, "dd").count, 0, "the decoy has no limit");
}
