// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was in flight on a device over time: its activity in bins of 10 ms, and whose requests were in flight while a
//! process waited for its own.
//!
//! A device that has `n` requests in its queue or in service gives each, on average, `1/n` of its time. The wait for
//! a request is therefore shared: at any time each other request in flight is charged `1/n` of it, including other
//! requests of the same process, and the request's own share is charged to the device. So the shares of a wait sum
//! exactly to the wait. Where one in `w` requests is followed, each stands for `w`, and its own share is `w/n`: this
//! charges too little to other requests of the same process, and never anything where there are none.
//!
//! A thread waits once, however many of its requests are in flight (readahead, asynchronous IO): its wait is the time
//! in which at least one is. Each request that completes accounts for the part that was not accounted for yet.
//!
//! Before its request exists, a thread may wait for a tag, or because writeback is throttled. Its wait begins then;
//! the requests in flight at that time are charged all of it.
//!
//! A sync may wait for a commit, whose requests the journal submits. That time is shared in the same way among all
//! requests in flight.
//!
//! A request is reported when it completes. So the past is processed [`LAG_NS`] later, when nearly all that was in
//! flight then is known. A request that took longer is in flight only from the processed time on, but its thread waited
//! from its beginning: those that were in flight meanwhile are charged from the kept history of their shares.

use super::demand_bins::{DemandBins, FinishedBins};
use super::waits::LONG_NS;
use crate::collect::kept::is_roomy;
use deburr_core::recording::{DeviceBin, FileId, IoCulprit, ProcId, WaitHist};
use deburr_core::stats::Span;
use std::collections::{BTreeMap, VecDeque};

/// How long after the fact the past is processed.
pub(super) const LAG_NS: u64 = 2_000_000_000;
/// Length of a bin.
pub(super) const BIN_NS: u64 = 10_000_000;
/// How far back a wait for a request that took longer is accounted for: the time after which the kernel's SCSI and NVMe
/// drivers give a command up.
const HISTORY_NS: u64 = 30_000_000_000;
/// Culprits that are kept apart in a session; the others are merged.
const CULPRITS: usize = 64;
/// Requests that may be kept until they are processed: 14 MB.
const PENDING: usize = 100_000;

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// When its bio was queued: its waiter waits from then on. Not after `start_ns`.
    pub(super) queued_ns: u64,
    /// When it was created.
    pub(super) start_ns: u64,
    /// When it was completed.
    pub(super) done_ns: u64,
    /// Who is to blame for its share of other requests' waits.
    pub(super) account: IoCulprit,
    /// The thread that waits for it.
    pub(super) waiter: Option<Waiter>,
    /// The file that it reads or writes.
    pub(super) file: Option<FileId>,
    pub(super) bytes: u64,
    /// Number of requests that it stands for.
    pub(super) weight: u32,
}

impl Request {
    /// Something that a thread waits for and others submit, such as a journal commit. Its weight is 0, because the
    /// requests of the others are in flight themselves.
    pub(super) fn of_others(span: Span, waiter: Waiter, file: FileId) -> Self {
        let (waiter, file) = (Some(waiter), Some(file));
        let account = IoCulprit::Filesystem;
        let (queued_ns, start_ns, done_ns) = (span.t0_ns, span.t0_ns, span.t1_ns);
        Self { queued_ns, start_ns, done_ns, account, waiter, file, bytes: 0, weight: 0 }
    }
}

/// A thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiter {
    pub(super) proc: ProcId,
    pub(super) tid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongWait {
    pub(super) t0_ns: u64,
    pub(super) t1_ns: u64,
    /// The process that waited.
    pub(super) proc: ProcId,
    /// The file of the request that it waited for.
    pub(super) file: Option<FileId>,
}

/// The results for a stretch of the past.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Accounted {
    /// All of its bins; they begin where those of the last stretch ended.
    pub(super) bins: Vec<DeviceBin>,
    /// Waits for requests that were completed in it.
    pub(super) waits: BTreeMap<ProcId, Waits>,
    /// The time of those waits by victim and culprit, in nanoseconds; sums to the waits.
    pub(super) blame: BTreeMap<(ProcId, IoCulprit), u64>,
    /// The waits of [`LONG_NS`] and more.
    pub(super) long: Vec<LongWait>,
}

/// Waits of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Waits {
    /// Histogram of their lengths.
    pub(super) sizes: WaitHist,
    pub(super) max_ns: u64,
}

/// The kinds of events. Ends sort before starts of the same time, so that of two requests one right after the other
/// only one is in flight at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Done,
    /// A thread begins to wait for a request that does not exist yet.
    Queue,
    Start,
}

/// An event, sorted by time, then ends first, then by the requests' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimedEdge {
    t_ns: u64,
    edge: Edge,
    number: u64,
}

/// The requests of a device over time.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Events that were not processed yet, in no order.
    edges: Vec<TimedEdge>,
    /// The requests of these events by number, from `first` on; completed ones are `None`.
    requests: VecDeque<Option<InFlight>>,
    first: u64,
    /// The time up to which everything was processed.
    now_ns: u64,
    culprits: Vec<IoCulprit>,
    index: BTreeMap<IoCulprit, usize>,
    /// Requests in flight, by culprit.
    in_flight: Vec<u64>,
    total: u64,
    /// Integral over time of `in_flight / total`, by culprit: the share of each in a wait over that time.
    owed_ns: Vec<f64>,
    /// Integral over time of `1 / total`: the share of one request in flight.
    turn_ns: f64,
    /// `owed_ns` at the ends of the stretches of the last [`HISTORY_NS`], oldest first.
    history: VecDeque<(u64, Vec<f64>)>,
    /// Threads that wait, and those that waited within the last [`HISTORY_NS`].
    waiting: BTreeMap<Waiter, Waiting>,
    past: Accounted,
    pace: DemandBins,
    /// Where the bins of `past` begin.
    bins_from_ns: u64,
    /// Number of requests that began before what was processed already, or exceeded [`PENDING`].
    pub(super) late: u64,
}

#[derive(Debug)]
struct InFlight {
    request: Request,
    culprit: usize,
}

/// A thread's wait that was not accounted for yet.
#[derive(Debug, Default)]
struct Waiting {
    /// The requests that it waits for; 0 = it does not wait.
    requests: u32,
    since_ns: u64,
    /// The time up to which its waits are accounted for.
    accounted_ns: u64,
    /// `owed_ns` at `since_ns`.
    before: Vec<f64>,
    turn: OwnShare,
}

/// The share that a thread's own request has in its wait: of one request at a time, and only while it is in flight.
#[derive(Clone, Copy, Debug, Default)]
struct OwnShare {
    /// Requests of the thread in flight.
    in_flight: u32,
    /// Number of requests that the first of them stands for.
    weight: u32,
    /// The value of `turn_ns` up to which the share is contained in `ns`.
    before_ns: f64,
    /// The share since the wait was last accounted for.
    ns: f64,
}

impl OwnShare {
    fn start(&mut self, turn_ns: f64, weight: u32) {
        if self.in_flight == 0 {
            (self.weight, self.before_ns) = (weight, turn_ns);
        }
        self.in_flight += 1;
    }

    /// Takes the share up to now.
    fn take(&mut self, turn_ns: f64) -> f64 {
        if self.in_flight > 0 {
            self.ns += (turn_ns - self.before_ns) * f64::from(self.weight);
            self.before_ns = turn_ns;
        }
        std::mem::take(&mut self.ns)
    }
}

impl Request {
    /// Whether the process that waits for it is also the one to blame for it.
    fn is_own(&self) -> bool {
        let waits = self.waiter.map(|waiter| IoCulprit::Process(waiter.proc));
        self.weight > 0 && waits == Some(self.account)
    }
}

impl Flight {
    /// Begins at that time.
    pub(super) fn begin(now_ns: u64) -> Self {
        let history = VecDeque::from([(now_ns, vec![])]);
        Self {
            now_ns,
            bins_from_ns: now_ns,
            pace: DemandBins::begin(now_ns),
            history,
            ..Self::default()
        }
    }

    /// Adds a completed request.
    pub(super) fn push(&mut self, request: Request) {
        self.late += if request.queued_ns < self.now_ns { u64::from(request.weight) } else { 0 };
        if self.edges.len() >= 3 * PENDING || self.requests.len() >= 2 * PENDING {
            self.late += u64::from(request.weight);
            return;
        }
        let start_ns = request.start_ns.max(self.now_ns);
        // An end sorts before a start of the same time, and each must find its request.
        let done_ns = request.done_ns.max(start_ns + 1);
        let culprit = self.culprit(request.account);
        let number = self.first + self.requests.len() as u64;
        if request.waiter.is_some() {
            let queued_ns = request.queued_ns.max(self.now_ns);
            self.edges.push(TimedEdge { t_ns: queued_ns, edge: Edge::Queue, number });
        }
        self.edges.push(TimedEdge { t_ns: start_ns, edge: Edge::Start, number });
        self.edges.push(TimedEdge { t_ns: done_ns, edge: Edge::Done, number });
        self.requests.push_back(Some(InFlight { request, culprit }));
    }

    fn culprit(&mut self, account: IoCulprit) -> usize {
        let account = match self.culprits.len() {
            known if known + 1 < CULPRITS || self.index.contains_key(&account) => account,
            _ => IoCulprit::Process(ProcId::OTHERS),
        };
        if let Some(&index) = self.index.get(&account) {
            return index;
        }
        self.index.insert(account, self.culprits.len());
        self.culprits.push(account);
        self.in_flight.push(0);
        self.owed_ns.push(0.0);
        self.culprits.len() - 1
    }

    /// Processes the past up to `to_ns` and returns the results. Only whole bins are returned.
    pub(super) fn settle(&mut self, to_ns: u64) -> Accounted {
        let (mut due, later): (Vec<TimedEdge>, Vec<TimedEdge>) =
            std::mem::take(&mut self.edges).into_iter().partition(|at| at.t_ns <= to_ns);
        self.edges = later;
        // Requests come CPU by CPU, in order of their ends: a stable sort takes advantage of such runs.
        due.sort();
        for TimedEdge { t_ns, edge, number } in due {
            self.go_to(t_ns);
            match edge {
                Edge::Queue => self.queue(number),
                Edge::Start => self.start(number),
                Edge::Done => self.done(number),
            }
        }
        self.go_to(to_ns);
        self.remember();
        if is_roomy(self.requests.len(), self.requests.capacity()) {
            self.requests.shrink_to(2 * self.requests.len());
        }
        let whole = (to_ns.saturating_sub(self.bins_from_ns) / BIN_NS) as usize;
        self.past.bins.resize(whole.max(self.past.bins.len()), DeviceBin::default());
        let rest = self.past.bins.split_off(whole);
        self.bins_from_ns += whole as u64 * BIN_NS;
        let past = std::mem::take(&mut self.past);
        self.past.bins = rest;
        past
    }

    /// Which culprit asked for how much and when, up to `to_ns`. The past must have been processed up to there.
    pub(super) fn pace(&mut self, to_ns: u64, last: bool) -> Option<FinishedBins> {
        self.pace.take(to_ns, last)
    }

    /// Where the bins that the next call of [`Self::past`] returns will begin.
    pub(super) fn bins_from_ns(&self) -> u64 {
        self.bins_from_ns
    }

    fn start(&mut self, number: u64) {
        let at = (number - self.first) as usize;
        let Some(Some(InFlight { request, culprit })) = self.requests.get(at) else { return };
        self.in_flight[*culprit] += u64::from(request.weight);
        self.total += u64::from(request.weight);
        let sectors = request.bytes.div_ceil(512).saturating_mul(request.weight.into());
        self.pace.add(self.now_ns, self.culprits[*culprit], sectors);
        let Some(waiter) = request.waiter.filter(|_| request.is_own()) else { return };
        if let Some(waiting) = self.waiting.get_mut(&waiter) {
            waiting.turn.start(self.turn_ns, request.weight);
        }
    }

    /// The request's waiter begins to wait. The request is not in flight yet, so all requests that are share in the
    /// wait. If the request was reported late, the wait began earlier.
    fn queue(&mut self, number: u64) {
        let at = (number - self.first) as usize;
        let Some(Some(InFlight { request, .. })) = self.requests.get(at) else { return };
        let Some(waiter) = request.waiter else { return };
        let queued_ns = request.queued_ns.max(self.now_ns.saturating_sub(HISTORY_NS));
        let known = self.waiting.get(&waiter);
        let since_ns = known.map_or(queued_ns, |waiting| queued_ns.max(waiting.accounted_ns));
        let is_first = known.is_none_or(|it| it.requests == 0 || since_ns < it.since_ns);
        let before = is_first.then(|| self.owed_at(since_ns));
        let waiting = self.waiting.entry(waiter).or_default();
        if let Some(before) = before {
            (waiting.since_ns, waiting.before) = (since_ns, before);
        }
        waiting.requests += 1;
    }

    /// `owed_ns` at that time, interpolated; at the beginning of the history if that is later.
    fn owed_at(&self, t_ns: u64) -> Vec<f64> {
        let next = self.history.partition_point(|(at_ns, _)| *at_ns <= t_ns);
        let (to_ns, to) = match self.history.get(next) {
            Some((at_ns, owed_ns)) => (*at_ns, owed_ns),
            None if t_ns < self.now_ns => (self.now_ns, &self.owed_ns),
            None => return self.owed_ns.clone(),
        };
        let Some((from_ns, from)) = next.checked_sub(1).and_then(|last| self.history.get(last))
        else {
            return to.clone();
        };
        let part = (t_ns - from_ns) as f64 / (to_ns - from_ns) as f64;
        let between = |(index, to): (usize, &f64)| {
            let from = from.get(index).unwrap_or(&0.0);
            from + (to - from) * part
        };
        to.iter().enumerate().map(between).collect()
    }

    /// Adds the present to the history, and forgets what is too old.
    fn remember(&mut self) {
        let from_ns = self.now_ns.saturating_sub(HISTORY_NS);
        if self.history.back().is_some_and(|(at_ns, _)| *at_ns < self.now_ns) {
            self.history.push_back((self.now_ns, self.owed_ns.clone()));
        }
        while self.history.get(1).is_some_and(|(at_ns, _)| *at_ns <= from_ns) {
            self.history.pop_front();
        }
        self.waiting.retain(|_, it| it.requests > 0 || it.accounted_ns > from_ns);
    }

    fn done(&mut self, number: u64) {
        let at = (number - self.first) as usize;
        let Some(InFlight { request, culprit }) = self.requests.get_mut(at).and_then(Option::take)
        else {
            return;
        };
        while self.requests.front().is_some_and(Option::is_none) {
            self.requests.pop_front();
            self.first += 1;
        }
        self.in_flight[culprit] -= u64::from(request.weight);
        self.total -= u64::from(request.weight);
        let bin = self.bin(request.done_ns.saturating_sub(1).max(self.bins_from_ns));
        bin.ios = bin.ios.saturating_add(request.weight);
        bin.bytes = bin.bytes.saturating_add(request.bytes * u64::from(request.weight));
        if let Some(waiter) = request.waiter {
            self.waited(waiter, &request);
        }
    }

    /// One of a thread's requests was completed: accounts for the thread's wait since the last one.
    fn waited(&mut self, waiter: Waiter, request: &Request) {
        let Some(waiting) = self.waiting.get_mut(&waiter) else { return };
        let t0_ns = waiting.since_ns;
        let t1_ns = request.done_ns.max(t0_ns);
        waiting.requests -= 1;
        (waiting.since_ns, waiting.accounted_ns) = (t1_ns, t1_ns);
        let mut before = std::mem::take(&mut waiting.before);
        let last = waiting.requests == 0;
        let turn_ns = waiting.turn.take(self.turn_ns);
        waiting.turn.in_flight -= u32::from(request.is_own());
        if t1_ns > t0_ns {
            self.share_out(waiter.proc, t1_ns - t0_ns, &before, turn_ns);
            if t1_ns - t0_ns >= LONG_NS {
                self.past.long.push(LongWait {
                    t0_ns,
                    t1_ns,
                    proc: waiter.proc,
                    file: request.file,
                });
            }
        }
        if !last && let Some(waiting) = self.waiting.get_mut(&waiter) {
            before.clone_from(&self.owed_ns);
            waiting.before = before;
        }
    }

    /// Shares a wait among the culprits. The share of the request itself and what rounding leaves is the device's.
    fn share_out(&mut self, victim: ProcId, wait_ns: u64, before: &[f64], turn_ns: f64) {
        let waits = self.past.waits.entry(victim).or_default();
        waits.sizes.add(wait_ns);
        waits.max_ns = waits.max_ns.max(wait_ns);
        let mut left_ns = wait_ns;
        for (index, &owed_ns) in self.owed_ns.iter().enumerate() {
            let culprit = self.culprits[index];
            let itself_ns = if culprit == IoCulprit::Process(victim) { turn_ns } else { 0.0 };
            let owed_ns = owed_ns - before.get(index).unwrap_or(&0.0);
            // Sums that differ by rounding only leave less than a nanosecond, which is cut off here.
            let ns = ((owed_ns - itself_ns) as u64).min(left_ns);
            if ns > 0 {
                left_ns -= ns;
                *self.past.blame.entry((victim, culprit)).or_default() += ns;
            }
        }
        if left_ns > 0 {
            *self.past.blame.entry((victim, IoCulprit::Device)).or_default() += left_ns;
        }
    }

    /// Advances the time to `to_ns`.
    fn go_to(&mut self, to_ns: u64) {
        let from_ns = self.now_ns;
        if to_ns <= from_ns {
            return;
        }
        self.now_ns = to_ns;
        if self.total == 0 {
            return;
        }
        let (ns, total) = ((to_ns - from_ns) as f64, self.total as f64);
        self.turn_ns += ns / total;
        for (owed_ns, &count) in self.owed_ns.iter_mut().zip(&self.in_flight) {
            if count > 0 {
                *owed_ns += ns * count as f64 / total;
            }
        }
        let mut at_ns = from_ns;
        while at_ns < to_ns {
            let end_ns = (at_ns - (at_ns - self.bins_from_ns) % BIN_NS + BIN_NS).min(to_ns);
            let total = self.total;
            let bin = self.bin(at_ns);
            bin.busy_ns += end_ns - at_ns;
            bin.depth_ns += (end_ns - at_ns) * total;
            at_ns = end_ns;
        }
    }

    fn bin(&mut self, at_ns: u64) -> &mut DeviceBin {
        let index = (at_ns.saturating_sub(self.bins_from_ns) / BIN_NS) as usize;
        if self.past.bins.len() <= index {
            self.past.bins.resize(index + 1, DeviceBin::default());
        }
        &mut self.past.bins[index]
    }
}

#[cfg(test)]
mod tests;
