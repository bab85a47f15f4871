// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which collectors a session has, and which stands in for which.

use crate::collect::{
    CgroupCollector, Cgroups, Collector, Context, ProcStatCollector, Processes, PsiCollector,
    Roots, SchedCollector, SchedstatCollector,
};
use deburr_core::procfs::cpu_list;
use deburr_core::recording::{Source, State, TargetSpec};

/// A collector at work.
pub(crate) struct Running {
    /// What it provides.
    pub(crate) sources: &'static [Source],
    /// It.
    pub(crate) collector: Box<dyn Collector>,
}

impl Running {
    fn new(sources: &'static [Source], collector: impl Collector + 'static) -> Self {
        Self { sources, collector: Box::new(collector) }
    }
}

/// Opens every collector. What cannot be opened is coverage.
pub(crate) fn open(cx: &Context) -> (Vec<Running>, Vec<(Source, State)>) {
    let mut running = vec![Running::new(&[Source::CgroupCpu], CgroupCollector::default())];
    let mut missing = Vec::new();
    match SchedCollector::open(cx) {
        Ok(sched) => running.push(Running::new(&[Source::Sched, Source::Timeline], sched)),
        Err(state) => {
            missing.push((Source::Sched, state.clone()));
            missing.push((Source::Timeline, state));
            match SchedstatCollector::open(cx) {
                Ok(delays) => running.push(Running::new(&[Source::Schedstat], delays)),
                Err(state) => missing.push((Source::Schedstat, state)),
            }
        }
    }
    match ProcStatCollector::open(cx) {
        Ok(cpus) => running.push(Running::new(&[Source::ProcStat], cpus)),
        Err(state) => missing.push((Source::ProcStat, state)),
    }
    match PsiCollector::open(cx) {
        Ok(pressure) => running.push(Running::new(&[Source::Psi], pressure)),
        Err(state) => missing.push((Source::Psi, state)),
    }
    (running, missing)
}

/// What the collectors share. `start_mono_ns` and the pid of a command are set when they are known.
pub(crate) fn context(roots: Roots, target: TargetSpec) -> Context {
    let cgroups = Cgroups::open(&roots);
    Context { roots, start_mono_ns: 0, target, processes: Processes::default(), cgroups }
}

/// The CPUs that are online, in ascending order; empty if the kernel does not tell.
pub(crate) fn cpus_online(roots: &Roots) -> Vec<u32> {
    let text = std::fs::read(roots.sys.join("devices/system/cpu/online")).unwrap_or_default();
    cpu_list::parse(&text).unwrap_or_default()
}
