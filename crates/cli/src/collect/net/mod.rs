// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the network lost: segments that connections of TCP sent again, by what those are held up that have something to
//! send, and what they have received that nobody fetches (all BPF network probe), and what sockets dropped
//! (`/proc/PID/net`). Read once a second, the probe's log and what waits to be read at each beat.

mod accept_queue;
mod connections;
mod held_back;
mod other_ends;
mod owners;
mod sending;
mod sockets;
#[cfg(test)]
mod tests;
mod unread;

use super::cost::{Cost, CostCounters};
use super::{Beat, BeatTime, Collector, Context, Emit};
use connections::Connections;
use deburr_bpf::TimedRuns;
use deburr_bpf::facts::facts;
use deburr_bpf::net::{NetPlan, NetProbe};
use deburr_core::recording::{Coverage, Record, Source, State};
use other_ends::OtherEnds;
use owners::Owners;
use sending::Senders;
use sockets::Sockets;
use std::collections::BTreeMap;
use unread::Unread;

/// What the probe would add where it is missing.
const GAIN: &str =
    "the probe tells which connections had to send again, and for how long that held them up";

const GAIN_OF_SENDERS: &str = "the probe tells whose slow reading, or which small buffer, holds up what connections have to send";

const GAIN_OF_UNREAD: &str = "the probe tells what others have sent that waits for a reader that is occupied, or to be accepted, and what connections hold back";

pub(crate) struct NetCollector {
    probe: Result<NetProbe, State>,
    cost: Cost,
    connections: Connections,
    senders: Result<Senders, State>,
    others: OtherEnds,
    unread: Result<Unread, State>,
    sockets: Result<Sockets, State>,
    owners: Owners,
    /// End of the last records, in nanoseconds since the start of the window.
    t0_ns: u64,
}

/// The probe, loaded and attached where that is possible.
pub(crate) struct LoadedNet {
    probe: Result<NetProbe, String>,
    /// Whether it can tell by what connections are held up, or why not.
    senders: Result<(), String>,
    /// Likewise, what waits to be read.
    unread: Result<(), String>,
}

impl LoadedNet {
    /// Loads and attaches the probe.
    pub(crate) fn load(cpus: u32, has_target: bool) -> Self {
        let plan = NetPlan::new(&facts());
        let can = |no: fn(&NetPlan) -> &Option<String>| match &plan {
            Ok(plan) => no(plan).clone().map_or(Ok(()), Err),
            Err(reason) => Err(reason.clone()),
        };
        let (senders, unread) = (can(|plan| &plan.no_sending), can(|plan| &plan.no_unread));
        let probe = plan.and_then(|plan| NetProbe::open(&plan, cpus, has_target));
        Self { probe, senders, unread }
    }
}

impl NetCollector {
    pub(crate) fn open(cx: &Context, LoadedNet { probe, senders, unread }: LoadedNet) -> Self {
        let if_loaded = |can: Result<(), String>, gain: &str| {
            let can = probe.as_ref().map_or_else(|reason| Err(reason.clone()), |_| can);
            can.map_err(|reason| State::Missing { reason, gain: gain.into() })
        };
        let senders = if_loaded(senders, GAIN_OF_SENDERS).map(|()| Senders::default());
        let unread = if_loaded(unread, GAIN_OF_UNREAD).map(|()| Unread::default());
        let no_files = || State::Missing {
            reason: "`/proc/self/net/netstat` cannot be read".into(),
            gain: String::new(),
        };
        Self {
            probe: probe.map_err(|reason| State::Missing { reason, gain: GAIN.into() }),
            cost: Cost::default(),
            connections: Connections::default(),
            senders,
            others: OtherEnds::default(),
            unread,
            sockets: Sockets::can_see(&cx.roots).then(Sockets::default).ok_or_else(no_files),
            owners: Owners::default(),
            t0_ns: 0,
        }
    }

    fn start(&mut self, cx: &mut Context, emit: Emit<'_>) {
        let probe = self.probe.as_ref().err().cloned().unwrap_or(State::Active);
        let senders = self.senders.as_ref().err().cloned().unwrap_or(State::Active);
        let unread = self.unread.as_ref().err().cloned().unwrap_or(State::Active);
        let sockets = self.sockets.as_ref().err().cloned().unwrap_or(State::Active);
        for (source, state) in [
            (Source::Tcp, probe),
            (Source::Connections, senders),
            (Source::Unread, unread),
            (Source::Sockets, sockets),
        ] {
            emit(Record::Coverage(Coverage { t_ns: 0, source, state }));
        }
        if let Ok(probe) = &self.probe {
            self.cost.begin(&Counted(probe), &[]);
        }
        self.owners.second(cx);
        self.send(cx, (0, false), &mut *emit);
        self.look(cx, 0, true);
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

    fn send(&mut self, cx: &mut Context, at: (u64, bool), emit: Emit<'_>) {
        if let (Ok(senders), Ok(probe)) = (&mut self.senders, &self.probe) {
            senders.look(probe, cx, &mut self.others, at, emit);
        }
    }

    fn look(&mut self, cx: &Context, t_ns: u64, all: bool) {
        if let (Ok(unread), Ok(probe)) = (&mut self.unread, &self.probe) {
            unread.look(probe, cx, t_ns, all);
        }
    }

    fn second(&mut self, cx: &mut Context, t_ns: u64, last: bool, emit: Emit<'_>) {
        let span = (std::mem::replace(&mut self.t0_ns, t_ns), t_ns);
        for tick in self.connections.take(span.0, span.1) {
            emit(Record::Resent(Box::new(tick)));
        }
        self.send(cx, (t_ns, last), &mut *emit);
        if let Ok(unread) = &mut self.unread {
            unread.second(&mut *emit);
        }
        if let Ok(sockets) = &mut self.sockets {
            sockets.look(cx, &mut self.owners, span, &mut *emit);
        }
        let gaps = [
            (Source::Connections, self.senders.as_ref().map(|it| &it.gaps).ok()),
            (Source::Unread, self.unread.as_ref().map(|it| &it.gaps).ok()),
            (Source::Sockets, self.sockets.as_ref().map(|it| &it.gaps).ok()),
        ];
        for (source, gaps) in gaps {
            if let Some(gaps) = gaps.filter(|gaps| last && !gaps.is_empty()) {
                let gaps: Vec<&str> = gaps.iter().copied().collect();
                let state = State::Partial { reason: gaps.join("; ") };
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
        self.look(cx, now.t_ns, now.beat.is_second());
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
