// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the network lost: segments that connections of TCP sent again (BPF network probe), and what sockets dropped
//! (`/proc/PID/net`). Read once a second, the probe's log at each beat.

mod connections;
mod owners;
mod sockets;
#[cfg(test)]
mod tests;

use super::cost::{Cost, CostCounters};
use super::{Beat, BeatTime, Collector, Context, Emit};
use connections::Connections;
use deburr_bpf::TimedRuns;
use deburr_bpf::facts::facts;
use deburr_bpf::net::{NetPlan, NetProbe};
use deburr_core::recording::{Coverage, Record, Source, State};
use owners::Owners;
use sockets::Sockets;
use std::collections::BTreeMap;

/// What the probe would add where it is missing.
const GAIN: &str =
    "the probe tells which connections had to send again, and for how long that held them up";

pub(crate) struct NetCollector {
    probe: Result<NetProbe, State>,
    cost: Cost,
    connections: Connections,
    sockets: Result<Sockets, State>,
    owners: Owners,
    /// End of the last records, in nanoseconds since the start of the window.
    t0_ns: u64,
}

impl NetCollector {
    /// Loads and attaches the probe, where that is possible.
    pub(crate) fn open(cx: &Context) -> Self {
        let cpus = super::possible_cpus(&cx.roots);
        let plan = NetPlan::new(&facts());
        let probe = plan.and_then(|plan| NetProbe::open(&plan, cpus));
        Self::with(cx, probe)
    }

    fn with(cx: &Context, probe: Result<NetProbe, String>) -> Self {
        let no_files = || State::Missing {
            reason: "`/proc/self/net/netstat` cannot be read".into(),
            gain: String::new(),
        };
        Self {
            probe: probe.map_err(|reason| State::Missing { reason, gain: GAIN.into() }),
            cost: Cost::default(),
            connections: Connections::default(),
            sockets: Sockets::can_see(&cx.roots).then(Sockets::default).ok_or_else(no_files),
            owners: Owners::default(),
            t0_ns: 0,
        }
    }

    fn start(&mut self, cx: &Context, emit: Emit<'_>) {
        let probe = self.probe.as_ref().err().cloned().unwrap_or(State::Active);
        let sockets = self.sockets.as_ref().err().cloned().unwrap_or(State::Active);
        for (source, state) in [(Source::Tcp, probe), (Source::Sockets, sockets)] {
            emit(Record::Coverage(Coverage { t_ns: 0, source, state }));
        }
        if let Ok(probe) = &self.probe {
            self.cost.begin(&Counted(probe), &[]);
        }
        self.owners.second(cx);
        if let Ok(sockets) = &mut self.sockets {
            sockets.look(cx, &mut self.owners, (0, 0), emit);
        }
    }

    fn read(&mut self, cx: &Context) {
        let Ok(probe) = &mut self.probe else { return };
        let mut all = Vec::new();
        probe.read(&mut |resent| {
            // The probe is older than the window.
            if resent.t_ns >= cx.window.start_mono_ns() {
                all.push(resent);
            }
        });
        // They come CPU by CPU.
        all.sort_by_key(|resent| resent.t_ns);
        all.iter().for_each(|resent| self.connections.push(resent));
        // At once: a connection may be closed before the second ends.
        self.owners.find(cx, self.connections.unowned());
        self.connections.owned_by(&self.owners);
    }

    fn second(&mut self, cx: &Context, t_ns: u64, last: bool, emit: Emit<'_>) {
        let span = (std::mem::replace(&mut self.t0_ns, t_ns), t_ns);
        for tick in self.connections.take(span.0, span.1) {
            emit(Record::Resent(Box::new(tick)));
        }
        if let Ok(sockets) = &mut self.sockets {
            sockets.look(cx, &mut self.owners, span, &mut *emit);
            if last && !sockets.gaps.is_empty() {
                let gaps: Vec<&str> = sockets.gaps.iter().copied().collect();
                let (source, state) = (Source::Sockets, State::Partial { reason: gaps.join("; ") });
                emit(Record::Coverage(Coverage { t_ns, source, state }));
            }
        }
        if let Ok(probe) = &self.probe {
            emit(Record::Observer(self.cost.second(&Counted(probe), t_ns, &[])));
        }
        self.owners.second(cx);
    }
}

impl Collector for NetCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            self.start(cx, emit);
            return Ok(());
        }
        if let Ok(probe) = &self.probe {
            self.cost.bin(&Counted(probe));
        }
        self.read(cx);
        if now.beat.is_second() {
            self.second(cx, now.t_ns, now.beat == Beat::End, emit);
        }
        Ok(())
    }
}

struct Counted<'a>(&'a NetProbe);

impl CostCounters for Counted<'_> {
    fn runs(&self) -> u64 {
        self.0.runs()
    }

    fn timed_runs(&self) -> Option<TimedRuns> {
        self.0.timed_runs()
    }

    fn map_bytes(&self) -> u64 {
        self.0.map_bytes()
    }

    fn lost(&self) -> BTreeMap<String, u64> {
        let lost = self.0.lost().into_iter();
        lost.map(|(name, amount)| (format!("tcp_{name}"), amount)).collect()
    }
}
