// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was in flight on a device, moment by moment: its activity in bins of 10 ms, and beside whose requests
//! a process waited for its own.
//!
//! A device that has `n` requests in its queue or in service gives each, on average, a part of `1/n` of its
//! time. A request's waiting is therefore shared: at every moment, each other request in flight takes `1/n` of
//! it, other ones of its own process too, and its own part is the device's. So the shares of a wait sum to the wait,
//! exactly. Where one in `w` requests is followed, each stands for `w` and its own part is `w/n`: that finds too few
//! other ones of its own, and never some where there are none.
//!
//! A thread waits once, however many of its requests are in flight (readahead, asynchronous IO): its waiting is
//! the time in which at least one is. Each request that is done tells the part of it that was not told yet.
//!
//! Before its request exists, a thread may wait for a tag, or because writeback is throttled. Its waiting begins
//! then; the requests in flight at that time take all of it.
//!
//! A sync may wait for a commit, whose requests the journal submits: that time is shared the same way, among all that is
//! in flight then.
//!
//! A request is told of when it is done. So the past is gone through some time later ([`LAG_NS`]), when nearly
//! all that was in flight then is known; a request that took longer counts from there on only.

use super::pace::{Pace, Paced};
use super::waits::LONG_NS;
use deburr_core::recording::{DeviceBin, FileId, IoCulprit, ProcId, WaitHist};
use std::collections::{BTreeMap, VecDeque};

/// How far the past must lie back.
pub(super) const LAG_NS: u64 = 2_000_000_000;
/// Length of a bin.
pub(super) const BIN_NS: u64 = 10_000_000;
/// Culprits that are told apart in a session; the others are one.
const CULPRITS: usize = 64;
/// Requests that may be waiting to be gone through: 14 MB.
const PENDING: usize = 100_000;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Asked for: whoever waits for it waits from then on. Not after its creation.
    pub(super) queued_ns: u64,
    /// Created.
    pub(super) start_ns: u64,
    /// Completed.
    pub(super) done_ns: u64,
    /// On whose account it is.
    pub(super) account: IoCulprit,
    /// The thread that waits for it.
    pub(super) waiter: Option<Waiter>,
    /// The file that it is of.
    pub(super) file: Option<FileId>,
    /// Its bytes.
    pub(super) bytes: u64,
    /// It stands for so many.
    pub(super) weight: u32,
}

impl Request {
    /// What a thread waits for that others submit, as a journal's commit: takes no place of its own, for their requests
    /// do.
    pub(super) fn of_others((start_ns, done_ns): (u64, u64), waiter: Waiter, file: FileId) -> Self {
        let (waiter, file) = (Some(waiter), Some(file));
        let account = IoCulprit::Filesystem;
        let queued_ns = start_ns;
        Self { queued_ns, start_ns, done_ns, account, waiter, file, bytes: 0, weight: 0 }
    }
}

/// A thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiter {
    /// Its process.
    pub(super) proc: ProcId,
    /// Its id.
    pub(super) tid: u32,
}

/// A long wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongWait {
    /// It began.
    pub(super) t0_ns: u64,
    /// It ended.
    pub(super) t1_ns: u64,
    /// Whose.
    pub(super) proc: ProcId,
    /// For a request of that file.
    pub(super) file: Option<FileId>,
}

/// What a stretch of the past holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Past {
    /// Its bins, all of them; they begin where those of the last stretch ended.
    pub(super) bins: Vec<DeviceBin>,
    /// Waits for requests that were done in it.
    pub(super) waits: BTreeMap<ProcId, Waits>,
    /// The time of those waits by culprit: sums to it.
    pub(super) blame: BTreeMap<(ProcId, IoCulprit), u64>,
    /// Those of [`LONG_NS`] and more.
    pub(super) long: Vec<LongWait>,
}

/// Waits of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Waits {
    /// Their sizes.
    pub(super) sizes: WaitHist,
    /// The longest.
    pub(super) max_ns: u64,
}

/// Ends sort before starts of the same moment: one request after another is not two at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Done,
    /// Somebody begins to wait for a request that does not exist yet.
    Queue,
    Start,
}

/// A start or an end, sorted by time, ends first, and then by the requests' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct At {
    t_ns: u64,
    edge: Edge,
    number: u64,
}

/// A device's flight log.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// What was not gone through yet, in no order.
    edges: Vec<At>,
    /// Those requests by number, from `first` on; those that are done are gone.
    requests: VecDeque<Option<Active>>,
    first: u64,
    /// Everything before was gone through.
    now_ns: u64,
    culprits: Vec<IoCulprit>,
    index: BTreeMap<IoCulprit, usize>,
    /// Requests in flight, by culprit.
    in_flight: Vec<u64>,
    total: u64,
    /// Integral over time of `in_flight / total`, by culprit: what one request's waiting owes to each.
    owed_ns: Vec<f64>,
    /// Integral over time of `1 / total`: the part of one request in flight.
    turn_ns: f64,
    waiting: BTreeMap<Waiter, Waiting>,
    past: Past,
    pace: Pace,
    /// Where the bins of `past` begin.
    bins_from_ns: u64,
    /// Requests that were told of too late, or were too many.
    pub(super) late: u64,
}

#[derive(Debug)]
struct Active {
    request: Request,
    culprit: usize,
}

/// A thread's waiting that was not told yet.
#[derive(Debug)]
struct Waiting {
    requests: u32,
    since_ns: u64,
    /// `owed_ns` then.
    before: Vec<f64>,
    turn: Turn,
}

/// The part that a thread's own request has in its waiting: of one at a time, and none before it is in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Its requests in flight.
    in_flight: u32,
    /// The first of them stands for so many.
    weight: u32,
    /// `turn_ns` up to which it is in `ns`.
    before_ns: f64,
    /// Since the waiting was last told of.
    ns: f64,
}

impl Turn {
    fn start(&mut self, turn_ns: f64, weight: u32) {
        if self.in_flight == 0 {
            (self.weight, self.before_ns) = (weight, turn_ns);
        }
        self.in_flight += 1;
    }

    /// Takes what it was up to now.
    fn take(&mut self, turn_ns: f64) -> f64 {
        if self.in_flight > 0 {
            self.ns += (turn_ns - self.before_ns) * f64::from(self.weight);
            self.before_ns = turn_ns;
        }
        std::mem::take(&mut self.ns)
    }
}

impl Request {
    /// Whether it is in flight on the account of who waits for it.
    fn is_own(&self) -> bool {
        let waits = self.waiter.map(|waiter| IoCulprit::Process(waiter.proc));
        self.weight > 0 && waits == Some(self.account)
    }
}

impl Flight {
    /// Begins at that moment.
    pub(super) fn begin(now_ns: u64) -> Self {
        Self { now_ns, bins_from_ns: now_ns, pace: Pace::begin(now_ns), ..Self::default() }
    }

    /// Takes a request that was done.
    pub(super) fn push(&mut self, mut request: Request) {
        if request.queued_ns < self.now_ns {
            self.late += u64::from(request.weight);
            request.queued_ns = self.now_ns;
            request.start_ns = request.start_ns.max(self.now_ns);
        }
        if self.edges.len() >= 3 * PENDING || self.requests.len() >= 2 * PENDING {
            self.late += u64::from(request.weight);
            return;
        }
        // An end sorts before a start of the same moment, and each must find its request.
        request.done_ns = request.done_ns.max(request.start_ns + 1);
        let culprit = self.culprit(request.account);
        let number = self.first + self.requests.len() as u64;
        if request.waiter.is_some() {
            self.edges.push(At { t_ns: request.queued_ns, edge: Edge::Queue, number });
        }
        self.edges.push(At { t_ns: request.start_ns, edge: Edge::Start, number });
        self.edges.push(At { t_ns: request.done_ns, edge: Edge::Done, number });
        self.requests.push_back(Some(Active { request, culprit }));
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

    /// Goes through the past up to that moment and returns it. Bins end at the last whole one.
    pub(super) fn past(&mut self, to_ns: u64) -> Past {
        let (mut due, later): (Vec<At>, Vec<At>) =
            std::mem::take(&mut self.edges).into_iter().partition(|at| at.t_ns <= to_ns);
        self.edges = later;
        // Requests come CPU by CPU, in order of their ends: a stable sort makes use of such runs.
        due.sort();
        for At { t_ns, edge, number } in due {
            self.go_to(t_ns);
            match edge {
                Edge::Queue => self.queue(number),
                Edge::Start => self.start(number),
                Edge::Done => self.done(number),
            }
        }
        self.go_to(to_ns);
        let whole = (to_ns.saturating_sub(self.bins_from_ns) / BIN_NS) as usize;
        self.past.bins.resize(whole.max(self.past.bins.len()), DeviceBin::default());
        let rest = self.past.bins.split_off(whole);
        self.bins_from_ns += whole as u64 * BIN_NS;
        let past = std::mem::take(&mut self.past);
        self.past.bins = rest;
        past
    }

    /// Who asked for how much when, up to that moment, to which the past must have been gone through.
    pub(super) fn pace(&mut self, to_ns: u64, last: bool) -> Option<Paced> {
        self.pace.take(to_ns, last)
    }

    /// Where the bins that the next call of [`Self::past`] returns will begin.
    pub(super) fn bins_from_ns(&self) -> u64 {
        self.bins_from_ns
    }

    fn start(&mut self, number: u64) {
        let at = (number - self.first) as usize;
        let Some(Some(Active { request, culprit })) = self.requests.get(at) else { return };
        self.in_flight[*culprit] += u64::from(request.weight);
        self.total += u64::from(request.weight);
        let sectors = request.bytes.div_ceil(512).saturating_mul(request.weight.into());
        self.pace.add(self.now_ns, self.culprits[*culprit], sectors);
        let Some(waiter) = request.waiter.filter(|_| request.is_own()) else { return };
        if let Some(waiting) = self.waiting.get_mut(&waiter) {
            waiting.turn.start(self.turn_ns, request.weight);
        }
    }

    /// Whoever waits for it begins to. It is not in flight, so all that is takes part in this waiting.
    fn queue(&mut self, number: u64) {
        let at = (number - self.first) as usize;
        let Some(Some(Active { request, .. })) = self.requests.get(at) else { return };
        let Some(waiter) = request.waiter else { return };
        let (since_ns, owed_ns) = (self.now_ns, &self.owed_ns);
        let waiting = self.waiting.entry(waiter).or_insert_with(|| Waiting {
            requests: 0,
            since_ns,
            before: owed_ns.clone(),
            turn: Turn::default(),
        });
        waiting.requests += 1;
    }

    fn done(&mut self, number: u64) {
        let at = (number - self.first) as usize;
        let Some(Active { request, culprit }) = self.requests.get_mut(at).and_then(Option::take)
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

    /// One of a thread's requests was done: tells what it waited since the last one.
    fn waited(&mut self, waiter: Waiter, request: &Request) {
        let Some(waiting) = self.waiting.get_mut(&waiter) else { return };
        let (t0_ns, t1_ns) = (waiting.since_ns, self.now_ns);
        waiting.requests -= 1;
        waiting.since_ns = t1_ns;
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
        if last {
            self.waiting.remove(&waiter);
        } else if let Some(waiting) = self.waiting.get_mut(&waiter) {
            before.clone_from(&self.owed_ns);
            waiting.before = before;
        }
    }

    /// Shares a wait among the culprits; the turn of the request itself and what rounding leaves is the device's.
    fn share_out(&mut self, victim: ProcId, wait_ns: u64, before: &[f64], turn_ns: f64) {
        let waits = self.past.waits.entry(victim).or_default();
        waits.sizes.add(wait_ns);
        waits.max_ns = waits.max_ns.max(wait_ns);
        let mut left_ns = wait_ns;
        for (index, &owed_ns) in self.owed_ns.iter().enumerate() {
            let culprit = self.culprits[index];
            let itself_ns = if culprit == IoCulprit::Process(victim) { turn_ns } else { 0.0 };
            let owed_ns = owed_ns - before.get(index).unwrap_or(&0.0);
            // Of sums that rounding makes differ, less than a nanosecond is left: no time beside anybody.
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

    /// Lets time pass.
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
