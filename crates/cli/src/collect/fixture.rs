// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fake host made of files, for tests of collectors.

use super::{Beat, BeatTime, Collector, Context, Roots};
use crate::args::Asked;
use deburr_core::recording::{Record, TargetSpec};
use std::fs;
use std::path::{Path, PathBuf};

/// A directory with `proc` and `sys` in it, which the test may change.
pub(crate) struct Host {
    dir: tempfile::TempDir,
    pub(crate) roots: Roots,
}

impl Host {
    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let roots = Roots { proc: root.join("proc"), sys: root.join("sys"), root: root.into() };
        Self { dir, roots }
    }

    /// A copy of a tree of `fixtures/`.
    pub(crate) fn like(fixture: &str) -> Self {
        let host = Self::empty();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        copy(&fixtures.join(fixture), host.dir.path());
        host
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Writes a file and creates the directories above it. An existing file is overwritten in place, so that open
    /// handles see the new text.
    pub(crate) fn write(&self, file: &str, text: impl AsRef<[u8]>) {
        let file = self.path(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// A process in `/proc` with one thread.
    pub(crate) fn process(&self, pid: u32, comm: &str) {
        self.write(&format!("proc/{pid}/stat"), stat(pid, comm, 1, 0));
        self.write(&format!("proc/{pid}/status"), format!("Tgid:\t{pid}\n"));
        self.write(&format!("proc/{pid}/cmdline"), format!("{comm}\0"));
    }

    /// A thread's `schedstat` counters.
    pub(crate) fn schedstat(&self, pid: u32, tid: u32, on_cpu_ns: u64, delay_ns: u64, slices: u64) {
        let text = format!("{on_cpu_ns} {delay_ns} {slices}\n");
        self.write(&format!("proc/{pid}/task/{tid}/schedstat"), text);
    }

    /// A block device in `/sys`. `place` is its directory below `/sys/devices`; a partition's directory lies in that of
    /// its disk.
    pub(crate) fn device(&self, dev: &str, place: &str, sectors: u64) {
        self.write(&format!("sys/devices/{place}/dev"), format!("{dev}\n"));
        self.write(&format!("sys/devices/{place}/size"), format!("{sectors}\n"));
        let links = self.path("sys/dev/block");
        fs::create_dir_all(&links).unwrap();
        std::os::unix::fs::symlink(format!("../../devices/{place}"), links.join(dev)).unwrap();
    }

    pub(crate) fn context(&self) -> Context {
        self.context_of(TargetSpec::Host)
    }

    pub(crate) fn context_of(&self, target: TargetSpec) -> Context {
        Context::new(self.roots.clone(), target, Asked::default())
    }
}

/// `/proc/PID/stat` of a process that started `500 + pid` ticks after boot.
pub(crate) fn stat(pid: u32, comm: &str, threads: u32, cpu_ticks: u64) -> String {
    let start = 500 + pid;
    format!(
        "{pid} ({comm}) S 1 {pid} 1 0 -1 4194304 0 0 0 0 {cpu_ticks} 0 0 0 20 0 {threads} 0 {start} 0\n"
    )
}

/// The records that a collector emits at that beat.
pub(crate) fn beat(collector: &mut impl Collector, cx: &mut Context, beat: Beat) -> Vec<Record> {
    let mut records = Vec::new();
    let t_ns = if beat == Beat::Start { 0 } else { 1_000_000_000 };
    let now = BeatTime { t_ns, beat };
    collector.beat(cx, now, &mut |record| records.push(record)).unwrap();
    records
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
