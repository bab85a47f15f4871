// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens the collectors of a session. Where the BPF scheduler probe is missing, `/proc/PID/schedstat` stands in.

use crate::collect::{
    BlockCollector, CgroupCollector, Collector, Context, CpuTimeCollector, DiskstatsCollector,
    InterruptCollector, LoadedBlock, LoadedNet, NetCollector, ProcStatCollector, ProfileCollector,
    PsiCollector, ReclaimCollector, RuntimeCollector, SchedCollector, SchedstatCollector,
    SettingsCollector, SyscallCollector, possible_cpus, without_writeback,
};
use crate::failure::{Exit, Failure};
use deburr_bpf::irq::{IrqPlan, IrqProbe, Serving};
use deburr_core::recording::{Source, State};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// An open collector.
pub(crate) struct Running {
    /// The sources that the collector provides.
    pub(crate) sources: &'static [Source],
    pub(crate) collector: Box<dyn Collector>,
}

impl Running {
    fn new(sources: &'static [Source], collector: impl Collector + 'static) -> Self {
        Self { sources, collector: Box::new(collector) }
    }
}

/// The probes that need nothing of that of the scheduler: the table that they share is made before both.
struct Loaded {
    interrupts: Result<(IrqPlan, IrqProbe), String>,
    block: Result<LoadedBlock, String>,
    net: LoadedNet,
}

/// Loads them in a thread of its own. Each object keeps a CPU busy for 10 to 130 ms: libbpf relocates it, the kernel
/// verifies its programs.
struct Loading {
    cpus: u32,
    has_target: bool,
    serving: Option<Arc<Serving>>,
    /// `None` = no thread could be created.
    thread: Option<JoinHandle<Loaded>>,
}

impl Loading {
    fn start(cx: &Context) -> Self {
        let (cpus, has_target) = (possible_cpus(&cx.roots), cx.has_target);
        // Without it, it is not told by which interrupts threads are woken.
        let serving = Serving::new(cpus).ok().map(Arc::new);
        let thread = thread::Builder::new().name("deburr-load".into());
        let of_thread = serving.clone();
        let thread = thread.spawn(move || load(cpus, has_target, of_thread.as_deref())).ok();
        Self { cpus, has_target, serving, thread }
    }

    fn finish(self) -> Loaded {
        match self.thread {
            Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => load(self.cpus, self.has_target, self.serving.as_deref()),
        }
    }
}

fn load(cpus: u32, has_target: bool, serving: Option<&Serving>) -> Loaded {
    Loaded {
        interrupts: InterruptCollector::load(cpus, serving),
        block: LoadedBlock::load(cpus),
        net: LoadedNet::load(cpus, has_target),
    }
}

/// Opens every collector. Returns those that are open, and the states of the sources that are not.
pub(crate) fn open(cx: &mut Context) -> (Vec<Running>, Vec<(Source, State)>) {
    let loading = Loading::start(cx);
    let mut running = vec![Running::new(&[Source::CgroupCpu], CgroupCollector::open(cx))];
    let mut missing = Vec::new();
    let (mut threads, mut watched) = (None, None);
    match SchedCollector::open(cx, loading.serving.as_deref()) {
        Ok(sched) => {
            threads = sched.thread_maps();
            watched = sched.watched();
            running.push(Running::new(&[Source::Sched, Source::Timeline], sched));
            let reason = "not read: the BPF scheduler probe tells more".into();
            missing.push((Source::Schedstat, State::Missing { reason, gain: String::new() }));
        }
        Err(state) => {
            missing.push((Source::Sched, state.clone()));
            missing.push((Source::Timeline, state));
            match SchedstatCollector::open(cx) {
                Ok(delays) => running.push(Running::new(&[Source::Schedstat], delays)),
                Err(state) => missing.push((Source::Schedstat, state)),
            }
        }
    }
    match ReclaimCollector::open(cx, threads.as_ref()) {
        Ok(reclaim) => running.push(Running::new(&[Source::Reclaim], reclaim)),
        Err(state) => missing.push((Source::Reclaim, state)),
    }
    let Loaded { interrupts, block, net } = loading.finish();
    match InterruptCollector::open(cx, interrupts) {
        Ok(interrupts) => running.push(Running::new(&[Source::Interrupts], interrupts)),
        Err(state) => missing.push((Source::Interrupts, state)),
    }
    match ProcStatCollector::open(cx) {
        Ok(cpus) => running.push(Running::new(&[Source::ProcStat], cpus)),
        Err(state) => missing.push((Source::ProcStat, state)),
    }
    match PsiCollector::open(cx) {
        Ok(pressure) => running.push(Running::new(&[Source::Psi], pressure)),
        Err(state) => missing.push((Source::Psi, state)),
    }
    // After the collectors that discover processes.
    running.push(Running::new(&[], CpuTimeCollector::open()));
    running.push(Running::new(&[Source::Runtime], RuntimeCollector::open(cx)));
    // Before the collectors that refer to devices: this one finds the mounted ones.
    running.push(Running::new(&[Source::Settings], SettingsCollector::open(cx)));
    match DiskstatsCollector::open(cx) {
        Ok(disks) => running.push(Running::new(&[Source::Diskstats], disks)),
        Err(state) => missing.push((Source::Diskstats, state)),
    }
    match BlockCollector::open(cx, block) {
        Ok(block) => running.push(Running::new(&[Source::Block, Source::Writeback], block)),
        Err(state) => {
            missing.push((Source::Writeback, without_writeback(&state)));
            missing.push((Source::Block, state));
        }
    }
    running.push(Running::new(
        &[Source::Tcp, Source::Connections, Source::Unread, Source::Sockets],
        NetCollector::open(cx, net),
    ));
    if cx.asked.profile {
        match ProfileCollector::open(cx, watched.as_ref()) {
            Ok(profile) => running.push(Running::new(&[Source::Profile], profile)),
            Err(state) => missing.push((Source::Profile, state)),
        }
    }
    if cx.asked.syscalls {
        match SyscallCollector::open(cx) {
            Ok(calls) => running.push(Running::new(&[Source::Syscalls], calls)),
            Err(state) => missing.push((Source::Syscalls, state)),
        }
    }
    (running, missing)
}

/// Fails if neither the scheduler probe nor its stand-in is open: waits for CPUs cannot be measured without them.
pub(crate) fn require_delays(not_open: &[(Source, State)]) -> anyhow::Result<()> {
    let reason_of = |wanted| {
        let (_, state) = not_open.iter().find(|(source, _)| *source == wanted)?;
        match state {
            State::Missing { reason, .. } => Some(format!("{}: {reason}", wanted.label())),
            _ => None,
        }
    };
    match (reason_of(Source::Sched), reason_of(Source::Schedstat)) {
        (Some(probe), Some(file)) => Err(Failure::error(
            Exit::Missing,
            format!("nothing here tells how long processes wait for a CPU; {probe}; {file}"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(source: Source) -> (Source, State) {
        let reason = format!("no {}", source.label());
        (source, State::Missing { reason, gain: String::new() })
    }

    #[test]
    fn one_way_to_see_waiting_is_enough_and_none_says_why() {
        assert!(require_delays(&[]).is_ok());
        assert!(require_delays(&[missing(Source::Sched), missing(Source::Timeline)]).is_ok());
        assert!(require_delays(&[missing(Source::Schedstat), missing(Source::Psi)]).is_ok());
        let both = [missing(Source::Sched), missing(Source::Schedstat)];
        let error = require_delays(&both).unwrap_err();
        assert_eq!(error.downcast_ref::<Failure>().unwrap().exit, Exit::Missing);
        let text = error.to_string();
        assert!(text.contains("no bpf:sched") && text.contains("no /proc/PID/schedstat"), "{text}");
    }
}
