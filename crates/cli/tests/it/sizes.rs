// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What reading a recording takes, by what it holds: time and memory in proportion to its size, for each kind of record
//! that a host or somebody's hand can make many of.
//!
//! `make sizes` does the same with files of 100 MB and prints what each takes.

use crate::program::{deburr, run, scratch, stderr};
use deburr_sys::child;
use rusqlite::Connection;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// A kind of recording.
struct Shape {
    /// Numbers `n` for a megabyte.
    per_megabyte: u64,
    /// Statements that add its rows, for `n` of the table `number`. Keys are made unique after that.
    statements: &'static str,
    /// Most memory of a report, in times of the file's size.
    most_times: f64,
}

/// Megabytes of the larger file, unless `SIZES_MB` says so.
const MEGABYTES: u64 = 4;
/// Times that a file is larger than the one with which it is compared.
const LARGER: u64 = 4;
/// Times as long as in proportion to its size a report may take. What grows with the square takes [`LARGER`] times.
const MOST_SLOWER: f64 = 2.0;
/// A time that is less than this is compared as if it were this.
const LEAST_S: f64 = 0.1;
/// Times that a command is run on each file until it is not slower than that. CPU time grows, by twice and more, with what
/// else the machine does (the other half of a core, caches, a hypervisor), and never shrinks: the least counts.
const MOST_ROUNDS: usize = 6;

/// Waits of a process in a second.
macro_rules! waits {
    () => {
        "x'03018a200401c54d0c01cab5f8010e01f0c78d07'"
    };
}

/// A process `n`, its second, and its waits.
macro_rules! brief_process {
    ($comm:literal, $cmdline:literal, $cgroup:literal) => {
        concat!(
            "INSERT INTO process SELECT seq(n), 1000000 + n, 1 + n % 4000000, n, ", $comm, ", ", $cmdline,
            ", 0, ", $cgroup, ", NULL, NULL, 0, 1, 0, NULL, NULL, 0 FROM number;
             INSERT INTO process_tick_packed SELECT seq(n), 1000000 + n / 100, 1000000 + n, 1, 400000000, 4689343,
             83208148, 0, 0, 0, 0, 309638996, 0, ", waits!(), ", 33632992, 11, 0 FROM number;"
        )
    };
}

const PROCESSES: Shape = Shape {
    per_megabyte: 2_300,
    statements: concat!(
        brief_process!("'job-' || n % 3000", "'sh -c job ' || n", "1"),
        "INSERT INTO idle_packed SELECT seq(n), 1000000 + n / 100, 1000000 + n, 100000, 7, 20170135, 0, 0, NULL, 0
         FROM number;
         INSERT INTO blame SELECT seq(n) + of, 1000000 + n / 100, 1000000 + n, 1000000 + abs(n - of * of), 1000000 + n
         FROM number, (WITH RECURSIVE c(of) AS (SELECT 1 UNION ALL SELECT of + 1 FROM c LIMIT 13) SELECT of FROM c);"
    ),
    most_times: 2.5,
};

const SECONDS: Shape = Shape {
    per_megabyte: 7_000,
    statements: concat!(
        "INSERT INTO process SELECT seq(n), 1000000 + n, 1 + n, n, 'server-' || n, 'server', 0, 1, NULL, NULL, 0, 1, 0,
         NULL, NULL, 0 FROM number WHERE n <= 300;
         INSERT INTO process_tick_packed SELECT seq(n), 1000000 + n / 100, 1000001 + n % 300, 1, 400000000, 4689343,
         83208148, 0, 0, 0, 0, 309638996, 0, ", waits!(), ", 33632992, 11, 0 FROM number;
         INSERT INTO load_bin SELECT seq(n), 'host', n * 100000000, (n + 1) * 100000000, 1, 538927723, 0, 0, 1, 1
         FROM number;"
    ),
    most_times: 2.0,
};

const BLAME: Shape = Shape {
    per_megabyte: 40_000,
    statements: concat!(
        "INSERT INTO process SELECT seq(n), 1000000 + n, 1 + n, n, 'job-' || n % 100, 'job', 0, 1, NULL, NULL, 0, 1, 0,
         NULL, NULL, 0 FROM number WHERE n % 20 = 0;
         INSERT INTO process_tick_packed SELECT seq(n), 1000000 + n / 100, 1000000 + n, 1, 400000000, 4689343,
         83208148, 0, 0, 0, 0, 309638996, 0, ", waits!(), ", 33632992, 11, 0 FROM number WHERE n % 20 = 0;
         INSERT INTO blame SELECT seq(n), 1000000 + n / 100, 1000000 + n / 20 % 50 * 20,
         1000000 + n * 7919 % (SELECT max(n) FROM number) / 20 * 20, 1000 FROM number;"
    ),
    most_times: 3.0,
};

const IO: Shape = Shape {
    per_megabyte: 2_000,
    statements: concat!(
        "INSERT INTO device SELECT seq(n), '254:0', 'vdx', NULL, 0, 1000000, NULL, 0 FROM number LIMIT 1;",
        brief_process!("'writer-' || n % 3000", "'writer'", "1 + n % 100"),
        "INSERT INTO file SELECT seq(n), n, '254:0', n, 0, '/srv/data/' || n % 777 || '/file-' || n, 'linked',
         1000000 + n FROM number;
         INSERT INTO io_tick SELECT seq(n), 1000000 + n / 100, '254:0', 'file', n, 'write', 1000000 + n, 1 + n % 100,
         'periodic', 2, 8192, 4686316, 440687 FROM number;
         INSERT INTO io_wait_packed SELECT seq(n), 1000000 + n / 100, 1000000 + n,
         CASE n % 2 WHEN 0 THEN 'sync' ELSE 'request' END, '254:0', ", waits!(), ", 33632992, 0 FROM number;
         INSERT INTO stall SELECT seq(n), n * 10000000, n * 10000000 + 14000000, 1000000 + n,
         CASE n % 2 WHEN 0 THEN 'sync' ELSE 'request' END, '254:0', n, NULL, 0, 0 FROM number;
         INSERT INTO io_blame SELECT seq(n), 1000000 + n / 100, 1000000 + n, '254:0', 'writeback', NULL, 1 + n % 100,
         13613600 FROM number;
         INSERT INTO writeback_pass SELECT seq(n), n * 10000000, n * 10000000 + 9000000, '254:0', 'sync', 3, 4096, 1,
         NULL, NULL, NULL, NULL FROM number WHERE n % 10 = 0;
         INSERT INTO journal_commit SELECT seq(n), n * 10000000, n * 10000000 + 4000000, '254:0', 'jbd2', 3
         FROM number WHERE n % 10 = 0;"
    ),
    most_times: 6.5,
};

const NAMES: Shape = Shape {
    per_megabyte: 115,
    statements: concat!(
        "INSERT INTO cgroup SELECT seq(n), 1000000 + n, 1, '/' || printf('%04000d', n), 'v2', 100000, 100000, 0, 100, NULL
         FROM number;",
        brief_process!("printf('%0200d', n)", "printf('%04000d', n)", "1000000 + n"),
    ),
    most_times: 2.5,
};

const CGROUPS: Shape = Shape {
    per_megabyte: 2_800,
    statements: concat!(
        "INSERT INTO cgroup SELECT seq(n), 1000000 + n, 1000000 + n / 10, '/pods/pod-' || n, 'v2', 100000, 100000, 0, 100,
         NULL FROM number;",
        brief_process!("'server'", "'server'", "1000000 + n"),
        "INSERT INTO cgroup_reading SELECT seq(n), 1000000000, 1000000 + n, 0, 0, 0, 0, 0, 0 FROM number;
         INSERT INTO cgroup_reading SELECT seq(n), 9000000000, 1000000 + n, 900000000, 90, 40, 300000000, 0, 0
         FROM number;
         INSERT INTO psi_reading SELECT seq(n), 1000000000, 1000000 + n, 'cpu', 5544985139, 0 FROM number;"
    ),
    most_times: 14.0,
};

/// Adds the rows for numbers up to `most`.
fn fill(path: &Path, shape: &Shape, most: u64) {
    let connection = Connection::open(path).unwrap();
    // The rows of a number follow each other in the recording.
    let mut statements = shape.statements.split("seq(n)");
    let first = statements.next().unwrap_or_default().to_owned();
    let statements = (0..)
        .zip(statements)
        .fold(first, |all, (place, next)| all + &format!("1000000 + n * 64 + {place}") + next);
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
             UPDATE coverage SET state = 'active', reason = NULL, gain = NULL;
             CREATE TEMP TABLE number(n INTEGER PRIMARY KEY);
             WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT {most}) INSERT INTO number SELECT n FROM c;
             INSERT INTO tick SELECT 1000000 + n, n * 1000000000, (n + 1) * 1000000000 FROM
             (SELECT 0 AS n UNION ALL SELECT n FROM number) WHERE n <= {most} / 100;
             {statements}"
        ))
        .unwrap();
}

/// What a command took.
struct Taken {
    code: Option<i32>,
    /// CPU time: waiting for a CPU does not count.
    cpu_s: f64,
    /// Most memory, as of a moment before it ended.
    memory_bytes: u64,
}

#[allow(clippy::zombie_processes, reason = "it is waited for, by its pid")]
fn taken(command: &str, path: &Path) -> Taken {
    let mut command = deburr(&[command, path.to_str().unwrap()]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // What `wait4` knows includes the memory of this program, from which it was forked.
    let mut memory_bytes = 0;
    while let Some(kilobytes) = most_kilobytes(child.id()) {
        memory_bytes = kilobytes * 1024;
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = loop {
        if let Some(ended) = child::wait(child.id()).unwrap() {
            break ended;
        }
    };
    Taken { code: ended.code, cpu_s: (ended.user_ns + ended.system_ns) as f64 / 1e9, memory_bytes }
}

/// The most memory that a process has had; `None` once it has ended.
fn most_kilobytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Megabytes of the larger file.
fn megabytes() -> u64 {
    std::env::var("SIZES_MB").ok().and_then(|word| word.parse().ok()).unwrap_or(MEGABYTES)
}

fn judge(name: &str, shape: &Shape) {
    let directory = scratch();
    let made = |name: &str, megabytes: u64| {
        let path = directory.path().join(name);
        run(&["record", "-d", "0.3", "-o", path.to_str().unwrap()], 0);
        fill(&path, shape, (megabytes * shape.per_megabyte).max(1));
        let bytes = path.metadata().unwrap().len();
        (path, bytes)
    };
    let ((empty, _), (small, small_bytes), (large, large_bytes)) =
        (made("empty", 0), made("small", megabytes() / LARGER), made("large", megabytes()));
    for command in ["check", "report"] {
        let took = |path: &Path| {
            let took = taken(command, path);
            if took.code != Some(0) && !(command == "check" && took.code == Some(1)) {
                let said = stderr(&deburr(&[command, path.to_str().unwrap()]).output().unwrap());
                let full = megabytes() > MEGABYTES && said.contains("takes more than 400 MB");
                assert!(full, "{command} {name}, {large_bytes} bytes: {:?}: {said}", took.code);
                eprint!("refused: {said}");
            }
            took
        };
        let mut least = [&empty, &small, &large].map(|path| took(path));
        // What ends within milliseconds may not be seen at its largest.
        let again = (0..2).map(|_| taken(command, &empty).memory_bytes);
        let nothing_bytes = again.fold(least[0].memory_bytes, u64::max);
        let grown = least[2].memory_bytes.saturating_sub(nothing_bytes) as f64;
        let times = grown / large_bytes as f64;
        let size = large_bytes as f64 / small_bytes as f64;
        let mut rounds = 1;
        loop {
            let [nothing_s, small_s, large_s] = [least[0].cpu_s, least[1].cpu_s, least[2].cpu_s];
            let (less_s, more_s) = (small_s - nothing_s, large_s - nothing_s);
            eprintln!(
                "{name}: {command} of {} MB: {more_s:.2} s of CPU time, {less_s:.2} s for {} MB; {:.0} MB of memory, \
                 {times:.2} times the file",
                large_bytes >> 20,
                small_bytes >> 20,
                grown / f64::from(1 << 20),
            );
            if more_s.max(LEAST_S) / less_s.max(LEAST_S) / size < MOST_SLOWER {
                break;
            }
            assert!(
                rounds < MOST_ROUNDS,
                "{command} {name}: {less_s} s, and {more_s} s for {size} times"
            );
            rounds += 1;
            for (least, path) in least.iter_mut().zip([&empty, &small, &large]) {
                least.cpu_s = least.cpu_s.min(took(path).cpu_s);
            }
        }
        assert!(times < shape.most_times, "{command} {name}: {times} times the file");
    }
}

#[test]
fn many_short_lived_processes() {
    judge("processes", &PROCESSES);
}

#[test]
fn many_seconds() {
    judge("seconds", &SECONDS);
}

#[test]
fn much_blame() {
    judge("blame", &BLAME);
}

#[test]
fn much_io() {
    judge("io", &IO);
}

#[test]
fn long_names() {
    judge("names", &NAMES);
}

#[test]
fn many_cgroups() {
    judge("cgroups", &CGROUPS);
}
