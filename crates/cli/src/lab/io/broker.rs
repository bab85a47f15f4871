// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses files like a message broker: many small files that are all appended to at once, many that are appended to
//! now and then, an index that is written at random positions, and a log whose every record must be on the disk
//! before the broker answers. It measures the latency of the log, which is what its users notice.

use super::{IoArgs, Pace, Random, filled_file, flush_filesystem};
use crate::lab::stage::Stage;
use crate::lab::victim::{IoSummary, Stall, Summary, Window, now_ns, percentile};
use crate::lab::victims::{Running, Victim, VictimSpec, WhichRun};
use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{ClockId, set_current_timer_slack, set_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Its groups of files: the letter that they are filled with, and their directory.
pub(crate) const GROUPS: [(char, &str); 4] = [
    ('h', "store/consumequeue"),
    ('c', "store/retry"),
    ('i', "store/index"),
    ('l', "store/commitlog"),
];

const PAGE: u64 = 4096;
/// Initial size of the index and the log, at least: blocks that are written one after the other are then not
/// neighbours on the disk.
const FILLED: u64 = 64 << 10;
/// Initial size of every small file. Its last block has room, so that the first records need no new block. New blocks
/// would be allocated to all files of a pass side by side, and the pass would result in a few large requests.
const SMALL: u64 = 61 << 10;
/// Length of a record that is appended to a small file, and of one in the index, in bytes.
const RECORD: usize = 20;
/// A commit that takes at least this long is a stall.
const STALL_NS: u64 = 10_000_000;
/// Maximum number of stalls that are listed.
const LISTED: usize = 4000;

/// Parameters of a broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BrokerSpec {
    /// Number of small files that are all appended to every `hot_period_ms`.
    pub(crate) hot_files: u64,
    /// Interval of these appends, in milliseconds.
    pub(crate) hot_period_ms: u64,
    /// Number of small files that are appended to in random order, `cold_per_s` of them per second.
    pub(crate) cold_files: u64,
    /// Appends to these files per second.
    pub(crate) cold_per_s: u64,
    /// Size of the index, in MiB.
    pub(crate) index_mib: u64,
    /// Pages of the index that are written per second.
    pub(crate) index_per_s: u64,
    /// Whether these pages are read instead.
    pub(crate) index_read: bool,
    /// Size of the log, in MiB; at its end, records start again at the beginning. 0 = it grows.
    pub(crate) log_mib: u64,
    /// Time from one record of the log to the next, in microseconds.
    pub(crate) log_period_us: u64,
    /// Length of a record of the log, in KiB; 0 = 4 KiB.
    pub(crate) log_record_kib: u64,
    /// Whether records are only written, and writeback is left to the kernel.
    pub(crate) log_unsynced: bool,
}

impl BrokerSpec {
    fn record_bytes(&self) -> u64 {
        if self.log_record_kib == 0 { PAGE } else { self.log_record_kib << 10 }
    }
}

impl Victim for BrokerSpec {
    fn validate(&self, _cgroup: &str) -> Result<()> {
        ensure!(self.log_period_us > 0, "`victim.broker.log_period_us` must be positive");
        for (key, files, rate) in [
            ("hot_period_ms", self.hot_files, self.hot_period_ms),
            ("cold_per_s", self.cold_files, self.cold_per_s),
            ("index_per_s", self.index_mib, self.index_per_s),
        ] {
            ensure!((files == 0) == (rate == 0), "`victim.broker.{key}` needs files, and they it");
            ensure!(files <= 6000 && rate <= 1_000_000, "`victim.broker.{key}`: too much");
        }
        ensure!(self.log_mib <= 1024, "`victim.broker.log_mib` must be at most 1024");
        ensure!(self.log_record_kib <= 1024, "`victim.broker.log_record_kib` is at most 1024");
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.hot_files > 0 {
            lines.push(format!(
                "{} files appended to every {} ms",
                self.hot_files, self.hot_period_ms
            ));
        }
        if self.cold_files > 0 {
            lines.push(format!(
                "{} files, {} of them appended to every second",
                self.cold_files, self.cold_per_s
            ));
        }
        if self.index_mib > 0 {
            lines.push(format!(
                "an index of {} MiB, {} pages of it {} every second",
                self.index_mib,
                self.index_per_s,
                if self.index_read { "read" } else { "written to" }
            ));
        }
        let grows = if self.log_mib == 0 { " that grows" } else { "" };
        lines.push(format!(
            "a log{grows}: {} KiB{} every {} ms, whose latency it measures",
            self.record_bytes() >> 10,
            if self.log_unsynced { "" } else { " and fdatasync" },
            self.log_period_us as f64 / 1000.0
        ));
        lines
    }

    fn needs_files(&self) -> bool {
        true
    }

    fn measures_syncs(&self) -> bool {
        !self.log_unsynced
    }

    fn start(&self, spec: &VictimSpec, stage: &Stage, _run: WhichRun<'_>) -> Result<Running> {
        spec.start_worker(stage, &IoArgs::to_arguments("broker", stage.files()?, self)?)
    }
}

/// Creates its files, prints `ready`, works from the first line on standard input to the second, which gives a
/// [`Window`], and prints the [`Summary`] of that window as JSON.
pub(crate) fn serve(args: &IoArgs) -> Result<()> {
    let spec: BrokerSpec = args.spec()?;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("cannot have more open files")?;
    let files = Files::make(&spec, &args.dir)?;
    println!("ready");
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    line.clear();
    let stop = AtomicBool::new(false);
    let (written, commits) = thread::scope(|scope| {
        let hot = scope.spawn(|| named("rmq-hot", || append_hot(&files.hot, &spec, &stop)));
        let cold = scope.spawn(|| named("rmq-cold", || append_cold(&files.cold, &spec, &stop)));
        let index = scope.spawn(|| named("rmq-index", || write_index(&files.index, &spec, &stop)));
        let log = scope.spawn(|| named("rmq-log", || commit(&files.log, &spec, &stop)));
        let waited = stdin.read_line(&mut line);
        stop.store(true, Ordering::Relaxed);
        let join = "a thread of the broker does not panic";
        let written =
            [hot.join().expect(join)?, cold.join().expect(join)?, index.join().expect(join)?];
        let commits = log.join().expect(join)?;
        waited?;
        anyhow::Ok((written, commits))
    })?;
    let window = line.parse()?;
    let summary = summary(&written, &commits, spec.record_bytes(), window);
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

fn named<T>(name: &str, work: impl FnOnce() -> std::io::Result<T>) -> Result<T> {
    set_name(&std::ffi::CString::new(name)?)?;
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    work().with_context(|| format!("in the thread `{name}`"))
}

struct Files {
    hot: Vec<File>,
    cold: Vec<PathBuf>,
    index: File,
    log: File,
}

impl Files {
    /// Creates and fills the files, and writes them to the disk.
    fn make(spec: &BrokerSpec, dir: &Path) -> Result<Self> {
        let [hot, cold, index, log] = GROUPS.map(|(mark, path)| (mark as u8, dir.join(path)));
        let small = |(mark, root): &(u8, PathBuf), name: &str, number| {
            let path = root.join(format!("{name}-{number}/0000"));
            filled_file(&path, *mark, SMALL).map(|file| (path, file))
        };
        let hot: Result<Vec<_>> =
            (0..spec.hot_files).map(|n| small(&hot, "topic", n).map(|(_, file)| file)).collect();
        let cold: Result<Vec<_>> =
            (0..spec.cold_files).map(|n| small(&cold, "group", n).map(|(path, _)| path)).collect();
        let one = |(mark, root): (u8, PathBuf), mib: u64| {
            filled_file(&root.join("0000"), mark, (mib << 20).max(FILLED))
        };
        let files = Self {
            hot: hot?,
            cold: cold?,
            index: one(index, spec.index_mib)?,
            log: one(log, spec.log_mib)?,
        };
        flush_filesystem(dir)?;
        Ok(files)
    }
}

/// Writes, each with its time in nanoseconds and its bytes.
type Writes = Vec<(u64, u64)>;

fn append_hot(files: &[File], spec: &BrokerSpec, stop: &AtomicBool) -> std::io::Result<Writes> {
    let mut pace = Pace::new(spec.hot_period_ms * 1_000_000);
    let (mut writes, mut end) = (Writes::new(), SMALL);
    while !files.is_empty() && !stop.load(Ordering::Relaxed) {
        let at_ns = pace.wait();
        for file in files.iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
            file.write_all_at(&[b'h'; RECORD], end)?;
        }
        end += RECORD as u64;
        writes.push((at_ns, (files.len() * RECORD) as u64));
    }
    Ok(writes)
}

fn append_cold(paths: &[PathBuf], spec: &BrokerSpec, stop: &AtomicBool) -> std::io::Result<Writes> {
    let mut pace = Pace::new(1_000_000_000 / spec.cold_per_s.max(1));
    let (mut writes, mut random) = (Writes::new(), Random(0x9e37_79b9_7f4a_7c15));
    while !paths.is_empty() && !stop.load(Ordering::Relaxed) {
        let at_ns = pace.wait();
        let path = &paths[random.below(paths.len() as u64) as usize];
        File::options().append(true).open(path)?.write_all(&[b'c'; RECORD])?;
        writes.push((at_ns, RECORD as u64));
    }
    Ok(writes)
}

fn write_index(index: &File, spec: &BrokerSpec, stop: &AtomicBool) -> std::io::Result<Writes> {
    let mut pace = Pace::new(1_000_000_000 / spec.index_per_s.max(1));
    let (mut writes, mut random) = (Writes::new(), Random(0xd1b5_4a32_d192_ed03));
    let pages = (spec.index_mib << 20) / PAGE;
    while pages > 0 && !stop.load(Ordering::Relaxed) {
        let at_ns = pace.wait();
        let at = random.below(pages) * PAGE;
        if spec.index_read {
            index.read_exact_at(&mut [0; RECORD], at)?;
        } else {
            index.write_all_at(&[b'i'; RECORD], at)?;
            writes.push((at_ns, RECORD as u64));
        }
    }
    Ok(writes)
}

/// Appends records to the log. Returns when each was begun and when it was on the disk, in nanoseconds.
fn commit(log: &File, spec: &BrokerSpec, stop: &AtomicBool) -> std::io::Result<Vec<(u64, u64)>> {
    let mut pace = Pace::new(spec.log_period_us * 1000);
    let record = vec![b'l'; spec.record_bytes() as usize];
    let length = record.len() as u64;
    let (mut commits, mut number) = (Vec::new(), 0u64);
    while !stop.load(Ordering::Relaxed) {
        let begun_ns = pace.wait();
        let at = match spec.log_mib {
            0 => FILLED + number * length,
            mib => number % ((mib << 20) / length) * length,
        };
        log.write_all_at(&record, at)?;
        if !spec.log_unsynced {
            log.sync_data()?;
        }
        commits.push((begun_ns, now_ns(ClockId::Monotonic)));
        number += 1;
    }
    Ok(commits)
}

/// Summarises what falls into a window.
fn summary(
    written: &[Writes; 3],
    commits: &[(u64, u64)],
    record_bytes: u64,
    window: Window,
) -> Summary {
    let inside = |at_ns: u64| (window.from_ns..window.to_ns).contains(&at_ns);
    let commits: Vec<_> = commits.iter().filter(|(_, done_ns)| inside(*done_ns)).collect();
    let mut latencies: Vec<u64> = commits.iter().map(|(begun, done)| done - begun).collect();
    latencies.sort_unstable();
    let stalls: Vec<_> = commits
        .iter()
        .map(|&&(at_ns, done_ns)| Stall { at_ns, length_ns: done_ns - at_ns })
        .filter(|stall| stall.length_ns >= STALL_NS)
        .collect();
    let logged = commits.len() as u64 * record_bytes;
    let sums = written
        .iter()
        .map(|writes| writes.iter().filter(|(at_ns, _)| inside(*at_ns)).map(|(_, n)| n).sum())
        .chain([logged]);
    let written_bytes: BTreeMap<String, u64> =
        GROUPS.iter().zip(sums).map(|((_, path), bytes)| ((*path).to_owned(), bytes)).collect();
    Summary {
        wall_ns: window.to_ns.saturating_sub(window.from_ns),
        requests: latencies.len() as u64,
        p50_ns: percentile(&latencies, 50),
        p99_ns: percentile(&latencies, 99),
        max_ns: percentile(&latencies, 100),
        io: Some(IoSummary {
            stall_count: stalls.len() as u64,
            stalled_ns: stalls.iter().map(|stall| stall.length_ns).sum(),
            stalls: stalls.into_iter().take(LISTED).collect(),
            written_bytes,
        }),
        ..Summary::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_counts_what_it_wrote_and_when_it_stalled() {
        let commits = [(0, 5_000_000), (10_000_000, 30_000_000), (90_000_000, 200_000_000)];
        let written = [vec![(1, 20), (150_000_000, 20)], vec![(2, 20)], vec![]];
        let summary = summary(&written, &commits, PAGE, Window { from_ns: 0, to_ns: 100_000_000 });
        assert_eq!((summary.requests, summary.max_ns), (2, 20_000_000));
        let io = summary.io.unwrap();
        assert_eq!((io.stall_count, io.stalled_ns), (1, 20_000_000));
        assert_eq!(io.stalls, [Stall { at_ns: 10_000_000, length_ns: 20_000_000 }]);
        let bytes: Vec<_> = io.written_bytes.values().copied().collect();
        // In the order of the paths: commitlog, consumequeue, index, retry.
        assert_eq!(bytes, [2 * PAGE, 20, 0, 20]);
    }

    #[test]
    fn it_fills_its_files_with_their_marks() {
        let dir = tempfile::tempdir().unwrap();
        let spec = BrokerSpec {
            hot_files: 2,
            hot_period_ms: 1,
            cold_files: 1,
            cold_per_s: 1,
            log_period_us: 1,
            ..BrokerSpec::default()
        };
        let files = Files::make(&spec, dir.path()).unwrap();
        assert_eq!((files.hot.len(), files.cold.len()), (2, 1));
        for (mark, path) in
            [('h', "store/consumequeue/topic-1/0000"), ('c', "store/retry/group-0/0000")]
        {
            let content = std::fs::read(dir.path().join(path)).unwrap();
            assert_eq!(content.len() as u64, SMALL);
            assert!(content.iter().all(|byte| *byte == mark as u8));
        }
        spec.validate("victim").unwrap();
        assert!(BrokerSpec { cold_files: 0, ..spec }.validate("victim").is_err());
    }
}
