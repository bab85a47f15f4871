// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens the collectors of a session. Where the BPF scheduler probe is missing, `/proc/PID/schedstat` stands in.

use crate::collect::{
    BlockCollector, CgroupCollector, Collector, Context, CpuTimeCollector, DiskstatsCollector,
    InterruptCollector, NetCollector, ProcStatCollector, ProfileCollector, PsiCollector,
    ReclaimCollector, RuntimeCollector, SchedCollector, SchedstatCollector, SettingsCollector,
    SyscallCollector, without_writeback,
};
use crate::failure::{Exit, Failure};
use deburr_core::recording::{Source, State};

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

/// Opens every collector. Returns those that are open, and the states of the sources that are not.
pub(crate) fn open(cx: &mut Context) -> (Vec<Running>, Vec<(Source, State)>) {
    let mut running = vec![Running::new(&[Source::CgroupCpu], CgroupCollector::open(cx))];
    let mut missing = Vec::new();
    let mut threads = None;
    match SchedCollector::open(cx) {
        Ok(sched) => {
            threads = sched.thread_maps();
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
    match InterruptCollector::open(cx) {
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
    match BlockCollector::open(cx) {
        Ok(block) => running.push(Running::new(&[Source::Block, Source::Writeback], block)),
        Err(state) => {
            missing.push((Source::Writeback, without_writeback(&state)));
            missing.push((Source::Block, state));
        }
    }
    running.push(Running::new(
        &[Source::Tcp, Source::Connections, Source::Sockets],
        NetCollector::open(cx),
    ));
    if cx.asked.profile {
        match ProfileCollector::open(cx) {
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
