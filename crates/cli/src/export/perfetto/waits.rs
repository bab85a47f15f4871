// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process waited for within a second, and whose fault that was, as a slice of that second.

use super::names::Names;
use super::proto::Detail;
use super::tracks::Trace;
use deburr_core::recording::{
    BlameTick, Culprit, DevId, IoBlameTick, IoCulprit, LongWait, ProcId, ProcessTick,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Less waiting than this in a second is no slice.
const LEAST_NS: u64 = 1_000_000;

/// The waits of the current second.
#[derive(Debug, Default)]
pub(super) struct Waits {
    span: (u64, u64),
    /// By process; and, of waits for block IO, the disk.
    of: BTreeMap<(ProcId, Option<DevId>), Wait>,
    /// The longest wait of a process whose parts are being read: its end, victim, thread and length.
    long: Option<((u64, ProcId, u32, u64), Wait)>,
}

#[derive(Debug, Default)]
struct Wait {
    ns: u64,
    max_ns: Option<u64>,
    culprits: Vec<(Who, u64)>,
}

/// Who or what a process waited behind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Process(ProcId),
    Itself,
    /// No process, in words.
    Other(&'static str),
}

impl Who {
    fn on_cpu(victim: ProcId, culprit: Culprit) -> Self {
        match culprit {
            Culprit::Process(id) if id == victim => Self::Itself,
            Culprit::Process(id) => Self::Process(id),
            Culprit::Migrated => Self::Other("others, on another run queue"),
            Culprit::NotSampled => Self::Other("others that were not looked up"),
            Culprit::Throttled => Self::Other("its CPU quota"),
        }
    }
}

impl Waits {
    /// Notes the time that a process waited for a CPU.
    pub(super) fn of_cpu(&mut self, tick: &ProcessTick) {
        let wait = self.of.entry((tick.proc, None)).or_default();
        wait.ns = tick.states.queued_ns;
        wait.max_ns = Some(tick.wait_max_ns);
        if tick.wakeup_latency_ns > 0 {
            wait.culprits.push((Who::Other("the CPU's own waking up"), tick.wakeup_latency_ns));
        }
    }

    /// Notes behind whom it did.
    pub(super) fn blame(&mut self, tick: &BlameTick) {
        let who = Who::on_cpu(tick.victim, tick.culprit);
        self.of.entry((tick.victim, None)).or_default().culprits.push((who, tick.ns));
    }

    /// Notes beside whose requests it waited for its own.
    pub(super) fn blame_io(&mut self, tick: &IoBlameTick) {
        let who = match tick.culprit {
            IoCulprit::Process(id) if id == tick.victim => Who::Itself,
            IoCulprit::Process(id) => Who::Process(id),
            IoCulprit::Writeback(_) => Who::Other("writeback"),
            IoCulprit::Filesystem => Who::Other("the filesystem"),
            IoCulprit::Device => Who::Other("the device itself"),
        };
        let wait = self.of.entry((tick.victim, Some(tick.device))).or_default();
        wait.ns = wait.ns.saturating_add(tick.ns);
        wait.culprits.push((who, tick.ns));
    }

    /// Notes a part of the longest wait of a process, and writes the wait before it, if it is of another one.
    pub(super) fn part<W: Write>(
        &mut self,
        part: &LongWait,
        names: &mut Names,
        trace: &mut Trace<W>,
    ) -> io::Result<()> {
        let key = (part.t_ns, part.victim, part.tid, part.wait_ns);
        if self.long.as_ref().is_some_and(|(of, _)| *of != key) {
            self.settle_long(names, trace)?;
        }
        let (_, wait) =
            self.long.get_or_insert_with(|| (key, Wait { ns: part.wait_ns, ..Wait::default() }));
        wait.culprits.push((Who::on_cpu(part.victim, part.culprit), part.ns));
        Ok(())
    }

    /// Writes the longest wait whose parts were read.
    pub(super) fn settle_long<W: Write>(
        &mut self,
        names: &mut Names,
        trace: &mut Trace<W>,
    ) -> io::Result<()> {
        let Some(((t_ns, victim, tid, wait_ns), wait)) = self.long.take() else { return Ok(()) };
        let span = (t_ns.saturating_sub(wait_ns), t_ns);
        let called =
            Called { track: "longest waits for a CPU".into(), word: "behind", tid: Some(tid) };
        wait.write(victim, called, span, names, trace)
    }

    /// Writes the waits of the second before, if `span` is another one.
    pub(super) fn settle<W: Write>(
        &mut self,
        span: (u64, u64),
        names: &mut Names,
        trace: &mut Trace<W>,
    ) -> io::Result<()> {
        if span == self.span {
            return Ok(());
        }
        for ((victim, disk), wait) in std::mem::take(&mut self.of) {
            if wait.ns >= LEAST_NS {
                let called = match disk {
                    Some(disk) => {
                        let track = format!("waits for {}", names.device_name(disk));
                        Called { track, word: "beside", tid: None }
                    }
                    None => Called { track: "waits for a CPU".into(), word: "behind", tid: None },
                };
                wait.write(victim, called, self.span, names, trace)?;
            }
        }
        self.span = span;
        Ok(())
    }
}

/// How waits are called.
struct Called {
    track: String,
    /// What stands before the culprit.
    word: &'static str,
    /// The thread that waited, if it was one.
    tid: Option<u32>,
}

impl Wait {
    fn write<W: Write>(
        mut self,
        victim: ProcId,
        called: Called,
        span: (u64, u64),
        names: &mut Names,
        trace: &mut Trace<W>,
    ) -> io::Result<()> {
        let Called { track, word, tid } = called;
        let process = names.process(victim, trace)?;
        let lane = trace.lane(process, &track, span)?;
        self.culprits.sort_by_key(|(_, ns)| Reverse(*ns));
        let name = match self.culprits.first() {
            Some((Who::Process(id), _)) => format!("{word} {}", names.comm(*id)),
            Some((Who::Itself, _)) => format!("{word} its own threads"),
            Some((Who::Other(what), _)) => format!("{word} {what}"),
            None => track,
        };
        let culprit = |(who, ns): &(Who, u64)| {
            let name = match who {
                Who::Process(id) => names.of(*id),
                Who::Itself => "itself".into(),
                Who::Other(what) => (*what).into(),
            };
            (name, Detail::Uint(*ns))
        };
        let culprits = Detail::Dict(self.culprits.iter().map(culprit).collect());
        let mut details = vec![("waited ns", Detail::Uint(self.ns))];
        details.extend(tid.map(|tid| ("tid", Detail::Uint(tid.into()))));
        details.extend(self.max_ns.map(|ns| ("longest ns", Detail::Uint(ns))));
        details.push(("culprits ns", culprits));
        trace.slice(lane, span, &name, &details)
    }
}
