// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that writes to one file: a backup, a batch job, a copy.

use super::{IoArgs, Pace, Random, filled_file, flush_filesystem};
use anyhow::{Context as _, Result, ensure};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Parameters of a writer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriterSpec {
    /// Whether it bypasses the page cache (`O_DIRECT`).
    pub(crate) direct: bool,
    /// Whether it writes at random positions. Otherwise it writes from the start to the end of the file, again and
    /// again.
    pub(crate) random: bool,
    /// Number of threads, each with one write at a time.
    pub(crate) depth: u64,
    /// Length of each write, in KiB.
    pub(crate) block_kib: u64,
    /// Size of the file, in MiB.
    pub(crate) file_mib: u64,
    /// Whether each write is followed by `fdatasync`.
    #[serde(default)]
    pub(crate) synced: bool,
    /// Writes per second of each thread. Absent = one write after the other.
    pub(crate) per_s: Option<u64>,
    /// Instead of a rate: bursts of writes at intervals, with no writes between them.
    pub(crate) burst: Option<BurstSpec>,
}

/// Work that a timer starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BurstSpec {
    /// Interval between the starts of bursts, in milliseconds.
    pub(crate) every_ms: u64,
    /// Writes of each thread in a burst.
    pub(crate) writes: u64,
}

impl WriterSpec {
    /// Refuses parameters that cannot work.
    pub(crate) fn validate(&self) -> Result<()> {
        ensure!((1..=64).contains(&self.depth), "`fault.write.depth` must be 1 to 64");
        ensure!(
            (4..=4096).contains(&self.block_kib) && self.block_kib.is_multiple_of(4),
            "`fault.write.block_kib` must be 4 to 4096, in steps of 4"
        );
        ensure!(
            (1..=1024).contains(&self.file_mib) && self.file_mib << 10 >= self.block_kib,
            "`fault.write.file_mib` must be 1 to 1024 and hold a block"
        );
        ensure!(self.per_s != Some(0), "`fault.write.per_s` must be positive");
        if let Some(burst) = self.burst {
            ensure!(self.per_s.is_none(), "either `fault.write.per_s` or `fault.write.burst`");
            ensure!(
                burst.every_ms > 0 && burst.writes > 0,
                "`every_ms` and `writes` of `fault.write.burst` must be positive"
            );
        }
        Ok(())
    }

    /// A description in words.
    pub(crate) fn describe(&self) -> String {
        let order = if self.random { "random" } else { "sequential" };
        let way = if self.direct { "direct" } else { "buffered" };
        let rate = match (self.per_s, self.burst) {
            (Some(n), _) => format!(", {n} /s each"),
            (None, Some(burst)) => {
                let every_s = burst.every_ms as f64 / 1000.0;
                format!(", {} per {every_s} s", self.depth * burst.writes)
            }
            (None, None) => String::new(),
        };
        let synced = if self.synced { " and fdatasyncs" } else { "" };
        let depth = match self.depth {
            1 => String::new(),
            depth => format!(", {depth} at once"),
        };
        format!("{order} {way} {} KiB writes{synced}{depth}{rate}", self.block_kib)
    }
}

/// Creates its file, prints `ready`, and writes for ever.
pub(crate) fn write(args: &IoArgs) -> Result<()> {
    let spec: WriterSpec = args.spec()?;
    let path = args.dir.join("data");
    let size = spec.file_mib << 20;
    drop(filled_file(&path, b'w', size)?);
    flush_filesystem(&args.dir)?;
    let flags = if spec.direct { OFlags::DIRECT } else { OFlags::empty() };
    let file = File::options()
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(&path)
        .with_context(|| format!("cannot open `{}`", path.display()))?;
    println!("ready");
    let position = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 1..=spec.depth {
            let (file, spec, position) = (&file, &spec, &position);
            scope.spawn(move || {
                let Err(error) = write_blocks(file, spec, position, number);
                // An error in one thread ends the process: a writer at a smaller depth would be another scenario.
                eprintln!("deburr: the lab's writer: {error}");
                std::process::exit(1);
            });
        }
    });
    Ok(())
}

fn write_blocks(
    file: &File,
    spec: &WriterSpec,
    position: &AtomicU64,
    number: u64,
) -> std::io::Result<Infallible> {
    let length = (spec.block_kib << 10) as usize;
    // Direct writes need memory that is aligned to a block.
    let memory = vec![b'w'; length + 4096];
    let begin = memory.as_ptr().align_offset(4096);
    let block = &memory[begin..begin + length];
    let blocks = (spec.file_mib << 20) / length as u64;
    let mut random = Random(0x2545_f491_4f6c_dd1d ^ number);
    let (period_ns, writes) = match (spec.per_s, spec.burst) {
        (Some(per_s), _) => (Some(1_000_000_000 / per_s), 1),
        (None, Some(burst)) => (Some(burst.every_ms * 1_000_000), burst.writes),
        (None, None) => (None, 1),
    };
    let mut pace = period_ns.map(Pace::new);
    loop {
        if let Some(pace) = &mut pace {
            pace.wait();
        }
        for _ in 0..writes {
            let at = match spec.random {
                true => random.below(blocks),
                false => position.fetch_add(1, Ordering::Relaxed) % blocks,
            };
            file.write_all_at(block, at * length as u64)?;
            if spec.synced {
                file.sync_data()?;
            }
        }
    }
}
