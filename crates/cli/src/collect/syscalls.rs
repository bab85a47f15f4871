// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls of the target's processes; if the target is the host, of the processes that use most system time. Only
//! done where it is asked for, because it makes every system call of the host a little slower.

use super::processes::{ObservedProcess, read_stat};
use super::{Beat, BeatTime, Collector, Context, Emit, Roots, possible_cpus};
use crate::syscalls::{GroupCounts, Meter};
use deburr_core::recording::{Coverage, ProcId, Record, Source, State, SyscallRecord, TargetSpec};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Accounts on all CPUs together: each process that is kept apart takes 0.3 MB of kernel memory on each CPU.
const ACCOUNTS: u32 = 64;
/// Maximum number of processes that are kept apart.
const MAX_PROCESSES: u32 = 4;
/// Files that are recorded per process; the others are summed.
const MAX_FILES: usize = 300;

pub(crate) struct SyscallCollector {
    meter: Meter,
    groups: usize,
    /// The processes that are watched, in the order of their accounts, and since when.
    watched: Vec<(ProcId, u64)>,
    /// Pid -> system time at the start, in ticks.
    before: HashMap<u32, u64>,
}

impl SyscallCollector {
    /// Attaches the probe; `Err` = the coverage of [`Source::Syscalls`] without it.
    pub(crate) fn open(cx: &Context) -> Result<Self, State> {
        let groups = (ACCOUNTS / possible_cpus(&cx.roots).max(1)).clamp(1, MAX_PROCESSES);
        let meter = Meter::open(&cx.roots, groups)
            .map_err(|reason| State::Missing { reason, gain: String::new() })?;
        let before = match cx.target {
            TargetSpec::Host => system_ticks(&cx.roots),
            _ => HashMap::new(),
        };
        Ok(Self { meter, groups: groups as usize, watched: Vec::new(), before })
    }

    /// Watches these processes, in that order, as long as there are accounts.
    fn watch(&mut self, cx: &mut Context, t_ns: u64, pids: &[u32], emit: Emit<'_>) {
        for &pid in pids {
            if self.watched.len() == self.groups {
                return;
            }
            let group = self.watched.len() as u32;
            if self.meter.watch(&[pid], group) == 0 {
                continue;
            }
            let sighting = ObservedProcess { pid, ..ObservedProcess::default() };
            let Context { processes, roots, cgroups, target, .. } = &mut *cx;
            let id = processes.intern(roots, cgroups, target, sighting, &mut *emit);
            self.watched.push((id, t_ns));
        }
    }

    /// The target's processes; if the target is the host, those that used system time since the start, most first.
    fn candidates(&self, cx: &Context) -> Vec<u32> {
        match &cx.target {
            TargetSpec::Process { pid, .. } | TargetSpec::Command { pid, .. } => vec![*pid],
            TargetSpec::Host => {
                let used = system_ticks(&cx.roots).into_iter().filter_map(|(pid, ticks)| {
                    let before = self.before.get(&pid).copied().unwrap_or(0);
                    Some((ticks.checked_sub(before).filter(|used| *used > 0)?, pid))
                });
                let mut used: Vec<_> = used.collect();
                used.sort_unstable_by_key(|(ticks, pid)| (Reverse(*ticks), *pid));
                used.into_iter().map(|(_, pid)| pid).collect()
            }
            _ => {
                let mut pids: Vec<u32> = cx.processes.of_target().map(|it| it.pid).collect();
                pids.sort_unstable();
                pids
            }
        }
    }

    fn end(&self, t_ns: u64, emit: Emit<'_>) -> anyhow::Result<()> {
        let reading = self.meter.read().map_err(anyhow::Error::msg)?;
        for (group, &(id, since_ns)) in self.watched.iter().enumerate() {
            let known = self.meter.waits_known;
            let span = (since_ns, t_ns.max(since_ns));
            let mut counted = GroupCounts::of(&reading, group as u32, Some(id), span, known);
            for file in counted.files.drain(MAX_FILES.min(counted.files.len())..) {
                counted.span.beyond_calls += file.all_calls();
                counted.span.beyond_ns += file.all_ns();
            }
            let mut push = |record| emit(Record::Syscalls(Box::new(record)));
            push(SyscallRecord::Span(counted.span));
            counted.calls.into_iter().for_each(|call| push(SyscallRecord::Call(call)));
            counted.files.into_iter().for_each(|file| push(SyscallRecord::File(file)));
        }
        self.meter.forget_all();
        Ok(())
    }
}

/// Pid -> system time in ticks, of all processes except this one and kernel threads.
fn system_ticks(roots: &Roots) -> HashMap<u32, u64> {
    let own = std::process::id();
    let entries = std::fs::read_dir(&roots.proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let others = pids.filter(|pid| *pid != own);
    let stats = others.filter_map(|pid| Some((pid, read_stat(roots, pid)?)));
    stats
        .filter(|(_, stat)| !stat.kernel_thread)
        .map(|(pid, stat)| (pid, stat.system_ticks))
        .collect()
}

impl Collector for SyscallCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        match now.beat {
            Beat::Start => {
                let (source, state) = (Source::Syscalls, State::Active);
                emit(Record::Coverage(Coverage { t_ns: 0, source, state }));
                if cx.target != TargetSpec::Host {
                    let pids = self.candidates(cx);
                    self.watch(cx, now.t_ns, &pids, emit);
                }
            }
            // It takes a second to see which processes use most system time.
            Beat::Second if self.watched.is_empty() => {
                let pids = self.candidates(cx);
                self.watch(cx, now.t_ns, &pids, emit);
            }
            Beat::End => self.end(now.t_ns, emit)?,
            Beat::Bin | Beat::Second => {}
        }
        Ok(())
    }
}
