// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that stops others a part of the time, as a tool does that limits the CPU time of a process from outside.

use super::io::Pace;
use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StopsArgs {
    /// Directory of the cgroup whose processes are stopped
    #[arg(long)]
    of: PathBuf,
    /// From one stop to the next
    #[arg(long)]
    period_us: u64,
    /// Time that they are stopped
    #[arg(long)]
    stopped_us: u64,
}

impl StopsArgs {
    /// The arguments of a worker that does this.
    pub(crate) fn words(of: &Path, period_us: u64, stopped_us: u64) -> Vec<String> {
        let (period, stopped) =
            (format!("--period-us={period_us}"), format!("--stopped-us={stopped_us}"));
        vec!["stops".into(), "--of".into(), of.display().to_string(), period, stopped]
    }
}

/// Stops the processes of the cgroup in each period, and lets them go on.
pub(crate) fn stop_for_ever(args: &StopsArgs) -> Result<()> {
    let mut pace = Pace::new(args.period_us.saturating_mul(1000));
    loop {
        pace.wait();
        let processes = members(&args.of)?;
        signal(&processes, Signal::STOP);
        thread::sleep(Duration::from_micros(args.stopped_us));
        signal(&processes, Signal::CONT);
    }
}

fn members(of: &Path) -> Result<Vec<Pid>> {
    let file = of.join("cgroup.procs");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let pids = text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
    Ok(pids.collect())
}

/// One that has ended meanwhile gets no signal.
fn signal(processes: &[Pid], signal: Signal) {
    for &pid in processes {
        let _ = kill_process(pid, signal);
    }
}
