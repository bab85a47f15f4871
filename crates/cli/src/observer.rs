// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the overhead of deburr itself.

use crate::clock;
use crate::collect::{Roots, read_statm};
use crate::reader::Reader;
use deburr_core::recording::ObserverTick;
use std::fs::File;
use std::path::PathBuf;

/// Measures the overhead from tick to tick: that of this process and of the one that reads for it, and that of the
/// BPF programs as their collectors report it.
#[derive(Debug)]
pub(crate) struct SelfCost {
    /// Open from the start, because later the limit on open files may be reached.
    statm: Option<File>,
    proc: PathBuf,
    reader: Reader,
    t_ns: u64,
    cpu_ns: u64,
    /// Cost and losses of the BPF programs since the last tick, summed over the collectors.
    programs: ObserverTick,
}

impl SelfCost {
    /// To be called before collectors open files.
    pub(crate) fn open(roots: &Roots, reader: Reader) -> Self {
        Self {
            statm: File::open(roots.proc.join("self/statm")).ok(),
            proc: roots.proc.clone(),
            reader,
            t_ns: 0,
            cpu_ns: 0,
            programs: ObserverTick::default(),
        }
    }

    /// Counts from now on: the start of the program is not part of the window.
    pub(crate) fn start(&mut self) {
        self.cpu_ns = clock::cpu_time_ns() + self.reader.cpu_ns();
    }

    /// Adds the cost and the losses of a collector's BPF programs.
    pub(crate) fn add(&mut self, tick: ObserverTick) {
        let sum = &mut self.programs;
        sum.bpf_runs += tick.bpf_runs;
        if let Some(ns) = tick.bpf_run_ns {
            *sum.bpf_run_ns.get_or_insert(0) += ns;
        }
        sum.bpf_map_bytes += tick.bpf_map_bytes;
        for (name, amount) in tick.lost {
            *sum.lost.entry(name).or_default() += amount;
        }
    }

    /// Returns the overhead since the last tick, and starts a new tick.
    pub(crate) fn tick(&mut self, t_ns: u64) -> ObserverTick {
        let cpu_ns = clock::cpu_time_ns() + self.reader.cpu_ns();
        let tick = ObserverTick {
            t0_ns: self.t_ns,
            t1_ns: t_ns,
            cpu_ns: cpu_ns.saturating_sub(self.cpu_ns),
            rss_bytes: self.rss_bytes().unwrap_or(0),
            ..std::mem::take(&mut self.programs)
        };
        self.t_ns = t_ns;
        self.cpu_ns = cpu_ns;
        tick
    }

    /// Resident memory of this process and of the one that reads for it, in bytes. The pages of files are counted once:
    /// both are the same program.
    fn rss_bytes(&self) -> Option<u64> {
        let of_reader = self.reader.pid().and_then(|pid| {
            let statm = File::open(self.proc.join(pid.to_string()).join("statm")).ok()?;
            Some(read_statm(&statm)?.anonymous())
        });
        let own = read_statm(self.statm.as_ref()?)?.resident;
        Some((own + of_reader.unwrap_or(0)) * rustix::param::page_size() as u64)
    }
}
