// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what the target's threads sleep, who wakes them, and what those did meanwhile.

mod callers;
mod chain;
mod entries;
mod files;
mod history;
mod kind;
mod names;
mod open;
mod rings;
mod sums;
mod turns;

use super::super::irq_devices::{Purpose, Purposes};
use super::super::listening::Listening;
use super::super::{Context, Emit, Roots};
use crate::clock;
use callers::Callers;
use chain::{Chains, Link, Tell};
use deburr_bpf::sched::{
    Call, Client, Clock, Context as Woke, Object, Run, SchedProbe, Sleep, State, ThreadDelta, Waker,
};
use deburr_core::recording::Entry;
use entries::Entries;
use files::Files;
use history::{Did, Found, History, Successor, Thread};
use kind::{Slept, asked_at, port_of};
use names::Names;
use open::Open;
use rings::Rings;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use sums::{Identity, Kind, NamedLink, Range, Sum, Sums};

/// Processes of the target whose threads are watched.
const PROCESSES: usize = 1000;
/// Further processes that are watched, because threads of the target waited for them, and the seconds for which they are.
const PEERS: usize = 32;
const PEER_FOR_S: u32 = 10;
/// Processes in a second that are followed from when they first end a sleep, at some 10 us each.
const NEW_WAKERS: usize = 256;
/// Threads of a process that exist when it is met.
const THREADS: usize = 20_000;
/// Records of ended sleeps of a target in a second, on all CPUs. The reader takes 1 to 3 us for each: 1 % of a CPU at most. Of
/// sleeps in progress there are half as many.
pub(super) const RECORDS: u64 = 3000;
/// Sleeps in a second of which more is told than what they are themselves.
const PENDING: usize = 10_000;
/// For so long it is kept back what the piece of a wait was for that goes on.
const WAITS_ON_NS: u64 = 1_000_000_000;
/// Parts of time that are looked at in a second, for what sleeps waited for.
const PARTS: usize = 25_000;

/// The sleeps of the target since the last second.
#[derive(Debug, Default)]
pub(super) struct Asleep {
    t0_ns: u64,
    has_begun: bool,
    watched: BTreeSet<u32>,
    /// Those of them whose pid is another process's than before.
    anew: BTreeSet<u32>,
    /// Processes that are watched for what they do while the target waits for them, and for how many seconds more.
    peers: BTreeMap<u32, u32>,
    /// Those of them that had ended were left out in this second.
    has_made_room: bool,
    listening: Listening,
    names: Names,
    entries: Entries,
    files: Files,
    callers: Callers,
    rings: Rings,
    purposes: Purposes,
    history: History,
    /// Processes of this second that are followed because they ended a sleep.
    new_wakers: usize,
    /// Up to when the runs of all CPUs are known, on the run queues' clock.
    known_to_ns: u64,
    open: Open,
    /// Sleeps that are not in the sums yet.
    pending: Vec<Sleep>,
    sums: Sums,
}

impl Tell for Listening {
    type Told = Slept;

    fn told(&self, sleep: &Sleep) -> Option<Slept> {
        Slept::of(sleep, self)
    }

    fn goes_on(&self, told: &Slept) -> bool {
        told.is_behind_somebody()
    }

    fn is_for_whatever_comes(&self, sleep: &Sleep) -> bool {
        kind::is_for_whatever_comes(sleep, self)
    }
}

/// Whether nearly all of a sleep was behind a thread that waited for whichever client came next, and told of that. Who serves
/// several was at rest then, though nothing was sent to the client from which it had read last: that one wanted no answer.
fn is_given_work(behind: &BTreeMap<Vec<Link<Slept>>, u64>) -> bool {
    let waits =
        |it: &Link<Slept>| matches!(&it.did, Did::Slept(slept) if slept.is_for_any_client());
    let of = |only: bool| {
        let parts = behind.iter().filter(|(path, _)| !only || path.iter().any(waits));
        parts.fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns))
    };
    of(true) as f64 > 0.9 * of(false) as f64
}

/// The threads that a process has now.
fn threads_of(roots: &Roots, pid: u32) -> impl Iterator<Item = u32> {
    let tasks = fs::read_dir(roots.proc.join(pid.to_string()).join("task"));
    let names = tasks.into_iter().flatten().flatten().take(THREADS);
    names.filter_map(|it| it.file_name().to_str()?.parse().ok())
}

impl Asleep {
    /// Begins with the first look, at that time in the window.
    /// `entries` = which threads serve requests, as the user said.
    pub(super) fn begin(first_look_ns: u64, entries: Vec<Entry>) -> Self {
        let entries = Entries::new(entries);
        Self { t0_ns: first_look_ns, has_begun: true, entries, ..Self::default() }
    }

    /// Whether anybody's sleeps are looked at.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Watches these processes, those that they waited for, and no others. `now_ns` on the run queues' clock.
    pub(super) fn watch(
        &mut self,
        probe: &mut SchedProbe,
        roots: &Roots,
        target: &BTreeSet<u32>,
        now_ns: u64,
    ) {
        if !probe.can_watch() {
            return;
        }
        self.peers.retain(|pid, seconds| {
            *seconds = seconds.saturating_sub(1);
            *seconds > 0 && !target.contains(pid)
        });
        self.has_made_room = false;
        let peers = self.peers.keys().copied();
        let new: BTreeSet<u32> = target.iter().copied().take(PROCESSES).chain(peers).collect();
        for &gone in self.watched.difference(&new) {
            probe.watch_no_more(gone, threads_of(roots, gone));
        }
        let anew = std::mem::take(&mut self.anew);
        let is_new = |pid: &&u32| !self.watched.contains(pid) || anew.contains(pid);
        for &pid in new.iter().filter(is_new) {
            probe.watch(pid, threads_of(roots, pid), now_ns);
            // Of what it ran since the last reading of runs, all is told later.
            let from_ns = if self.known_to_ns == 0 { now_ns } else { self.known_to_ns };
            self.history.follow(pid, from_ns);
        }
        self.watched = new;
        self.new_wakers = 0;
        self.history.retain(&self.watched);
        let watched = &self.watched;
        self.entries.retain(|pid| watched.contains(&pid));
        self.listening.second(&self.watched);
        self.names.second();
        self.files.second();
        self.callers.second();
        self.rings.second();
    }

    /// A thread has run.
    pub(super) fn ran(&mut self, run: Run) {
        if !self.watched.is_empty() {
            self.history.ran(run);
        }
    }

    /// A look at all threads has found that one. What is known of another one that had its number is forgotten.
    pub(super) fn found(&mut self, thread: &ThreadDelta, clock: Clock) {
        if self.watched.is_empty() || thread.behind {
            return;
        }
        let it = Thread { tgid: thread.tgid, tid: thread.tid };
        let ThreadDelta { start_boot_ns, leader_boot_ns, dead: has_ended, .. } = *thread;
        let found = Found { thread: it, start_boot_ns, leader_boot_ns, has_ended };
        let began = |boot_ns: u64| clock.at(boot_ns.saturating_sub(clock::suspended_ns()));
        let successor = self.history.found(found, began);
        self.forget(it, successor);
        // Nobody can read the name of one that has ended; a process has another one after it has executed a program.
        if self.history.has(it, start_boot_ns) && (has_ended || it.tid == it.tgid) {
            self.names.is(it, &thread.comm);
        }
    }

    fn forget(&mut self, it: Thread, successor: Option<Successor>) {
        let Some(successor) = successor else { return };
        let is_process = successor == Successor::Process;
        let is_gone = |other: Thread| other.tgid == it.tgid && (is_process || other.tid == it.tid);
        self.names.forget(is_gone);
        self.entries.forget(is_gone);
        if is_process {
            self.files.forget(it.tgid);
            self.callers.forget(it.tgid);
            self.listening.forget(it.tgid);
            self.anew.insert(it.tgid);
        }
    }

    /// All runs up to then have been told, but for those in progress.
    pub(super) fn known_to(&mut self, clock_ns: u64) {
        self.known_to_ns = clock_ns;
    }

    /// Takes the sleeps that ended since the last call.
    pub(super) fn follow(&mut self, probe: &mut SchedProbe, cx: &mut Context, clock: Clock) {
        for sleep in probe.sleeps() {
            self.take(cx, clock, sleep);
        }
    }

    fn take(&mut self, cx: &mut Context, clock: Clock, mut sleep: Sleep) {
        let Context { roots, requesters, .. } = cx;
        if sleep.state == State::Stopped as u8 {
            // Its call goes on afterwards, and did not wait meanwhile.
            let (call, object) = (Call::Unknown, Object::None);
            sleep = Sleep { call, object, client: None, lock: None, ..sleep };
        }
        if let Woke::Device(irq) = sleep.waker.context {
            sleep.waker.context = match self.purposes.of(roots, irq) {
                Purpose::Timer => Woke::Timer,
                Purpose::Network => Woke::Network,
                Purpose::Disk => Woke::Disk,
                Purpose::OtherCpu => Woke::OtherCpu,
                Purpose::Device => Woke::Device(irq),
                Purpose::NotKnown => Woke::HardIrq,
            };
        }
        self.callers.meet(roots, &mut sleep);
        self.rings.meet(&mut sleep, clock, requesters);
        self.history.slept(&sleep);
        self.follow_waker(&sleep);
        self.files.meet(roots, &sleep);
        if self.peers.contains_key(&sleep.tgid) {
            return;
        }
        // Of a short one that ends a wait in pieces, only that is told now: a later one stands for it.
        if let Some(sleep) = self.open.take(sleep).filter(|it| it.stands_for_ns > 0) {
            self.pend(roots, sleep);
        }
    }

    /// Who ended a sleep may have begun in this second, and may have ended: what is still kept of its process's runs is
    /// known from now on.
    fn follow_waker(&mut self, sleep: &Sleep) {
        let Waker { context, tgid, .. } = sleep.waker;
        let is_new = context == Woke::Thread && tgid != 0 && !self.history.follows(tgid);
        if is_new && self.new_wakers < NEW_WAKERS {
            self.new_wakers += 1;
            self.history.follow(tgid, self.known_to_ns);
        }
    }

    fn pend(&mut self, roots: &Roots, sleep: Sleep) {
        if self.pending.len() < PENDING {
            self.pending.push(sleep);
        } else if let Some(slept) = Slept::of(&sleep, &self.listening) {
            let (_, entry) = self.who(roots, &sleep);
            let in_request = kind::is_in_request(&sleep, &self.listening);
            let kind = Kind { slept, thread: None, entry, asked: None, in_request, behind: vec![] };
            self.add(&sleep, kind, sleep.stands_for_ns);
        }
    }

    fn add(&mut self, sleep: &Sleep, kind: Kind, ns: u64) {
        let sum = Sum { ns, looked_at: 1, longest_ns: sleep.slept_ns };
        self.sums.add(sleep.tgid, kind, sum);
    }

    /// Adds what is known of the sleeps in progress, and looks what those waited for that ended. `running` = the runs in
    /// progress. `last` = there is no further look.
    pub(super) fn look(
        &mut self,
        probe: &mut SchedProbe,
        cx: &mut Context,
        clock: Clock,
        (running, last): (Vec<Run>, bool),
    ) -> Result<(), String> {
        self.follow(probe, cx, clock);
        for sleep in probe.asleep(last)? {
            self.take(cx, clock, sleep);
        }
        let roots = &cx.roots;
        for sleep in self.open.second(last) {
            self.pend(roots, sleep);
        }
        let asked = self.pending.iter().flat_map(|it| port_of(it).or_else(|| asked_at(it)));
        let unknown = asked.filter(|&(pid, port)| self.listening.has(pid, port).is_none());
        self.listening.look(roots, &unknown.collect());
        for run in running {
            self.history.runs_now(run);
        }
        let known_to_ns = self.known_to_ns;
        let until_ns = if last { u64::MAX } else { known_to_ns.saturating_sub(WAITS_ON_NS) };
        self.history.settle(known_to_ns, until_ns);
        // What a thread did that ended a sleep a moment ago is not known yet.
        let is_early = |it: &Sleep| {
            let woken_ns = it.since_ns.saturating_add(it.slept_ns);
            let has_ended = it.waker.context != Woke::NotYet;
            !last && has_ended && (woken_ns > known_to_ns || self.history.goes_on(it))
        };
        let (early, known) = std::mem::take(&mut self.pending).into_iter().partition(is_early);
        self.pending = early;
        self.explain(roots, known);
        self.history.end_of_look();
        Ok(())
    }

    /// Adds sleeps with what they waited for.
    fn explain(&mut self, roots: &Roots, sleeps: Vec<Sleep>) {
        let mut budget = PARTS;
        for sleep in sleeps {
            let sleep = self.history.within_wait(&sleep);
            let Some(slept) = Slept::of(&sleep, &self.listening) else { continue };
            let (name, entry) = self.who(roots, &sleep);
            let thread = Some(name);
            let asked =
                entry.and_then(|_| self.entries.asked(&sleep, &self.history, &self.listening));
            let in_request = kind::is_in_request(&sleep, &self.listening);
            let of = |in_request, behind| Kind {
                slept: slept.clone(),
                thread: thread.clone(),
                entry,
                asked,
                in_request,
                behind,
            };
            if !slept.is_behind_somebody() || budget == 0 {
                self.add(&sleep, of(in_request, vec![]), sleep.stands_for_ns);
                continue;
            }
            let takes_turns = in_request && turns::before(&sleep, &self.history, &self.listening);
            let (history, tell) = (&self.history, &self.listening);
            let mut chains = Chains { history, tell, budget };
            let behind = chains.behind(&sleep, sleep.stands_for_ns);
            budget = chains.budget;
            let serves_several =
                matches!(sleep.client, Some(Client::Port { one_of_several: true, .. }));
            let is_at_rest = serves_several && !takes_turns && is_given_work(&behind);
            let in_request = in_request && !is_at_rest;
            for (path, ns) in behind {
                path.iter().for_each(|link| self.meet(roots, link.thread.tgid));
                let named =
                    |link: &Link<Slept>| NamedLink::of(link, self.names.of(roots, link.thread));
                let mut behind: Vec<NamedLink> = path.iter().map(named).collect();
                if let Some(at) = turns::user(&sleep, &behind, &self.history) {
                    behind[at].too = true;
                } else if takes_turns
                    && let Some(first) = behind.first_mut().filter(|it| !turns::asks(it))
                {
                    first.too = true;
                }
                self.add(&sleep, of(in_request, behind), ns);
            }
        }
    }

    /// The name of the thread that slept, and the entry that it belongs to.
    fn who(&mut self, roots: &Roots, sleep: &Sleep) -> (String, Option<u32>) {
        let name = self.names.of(roots, Thread { tgid: sleep.tgid, tid: sleep.tid });
        let entry = self.entries.of(sleep, &name, &self.listening);
        (name, entry)
    }

    /// A thread of the target waited for this process, which is watched from now on.
    fn meet(&mut self, roots: &Roots, pid: u32) {
        let is_new = !self.watched.contains(&pid) && pid != std::process::id();
        if is_new && self.peers.len() >= PEERS && !self.has_made_room {
            // A script starts dozens of processes that soon have ended.
            self.peers.retain(|pid, _| roots.proc.join(pid.to_string()).exists());
            self.has_made_room = true;
        }
        if self.peers.contains_key(&pid) || (is_new && self.peers.len() < PEERS) {
            self.peers.insert(pid, PEER_FOR_S);
        }
    }

    /// Ends the second.
    pub(super) fn end(&mut self, t1_ns: u64, identity: Identity<'_>, emit: Emit<'_>) {
        let t1_ns = t1_ns.max(self.t0_ns);
        let t0_ns = std::mem::replace(&mut self.t0_ns, t1_ns);
        self.sums.emit(Range { t0_ns, t1_ns }, &self.files, identity, emit);
    }
}

#[cfg(test)]
mod tests {
    use super::kind::tests::{inet, sleep};
    use super::*;
    use deburr_bpf::sched::Inet;

    fn behind(parts: &[(&[Object], u64)]) -> BTreeMap<Vec<Link<Slept>>, u64> {
        let listening = Listening::of(7, 80, 40_000);
        let link = |object: &Object| {
            let slept = Slept::of(&sleep(*object, Woke::SoftIrq), &listening).unwrap();
            Link { thread: Thread { tgid: 7, tid: 8 }, did: Did::Slept(slept) }
        };
        parts.iter().map(|(path, ns)| (path.iter().map(link).collect(), *ns)).collect()
    }

    /// A script starts more processes than are watched for what they do, and they end.
    #[test]
    fn who_has_ended_takes_nobodys_place() {
        let proc = tempfile::tempdir().unwrap();
        let roots = Roots { proc: proc.path().into(), ..Roots::default() };
        let mut asleep = Asleep::default();
        (0..PEERS as u32).for_each(|pid| asleep.meet(&roots, 2_000_000_000 + pid));
        fs::create_dir(proc.path().join("7")).unwrap();
        asleep.meet(&roots, 7);
        assert_eq!(asleep.peers.keys().copied().collect::<Vec<_>>(), [7]);
    }

    /// What ends the rest of a worker is told by one that waits for whichever client comes; not by one that waits for its own.
    #[test]
    fn who_is_told_of_the_next_client_is_given_work() {
        let of = |port, ready| match inet(port) {
            Object::Inet(it) => Object::Inet(Inet { ready, ..it }),
            other => other,
        };
        let (worker, clients) = (Object::None, of(80, true));
        assert!(is_given_work(&behind(&[(&[clients], 95), (&[worker], 5)])));
        assert!(is_given_work(&behind(&[(&[worker, clients], 95), (&[worker], 5)])));
        assert!(!is_given_work(&behind(&[(&[clients], 50), (&[worker], 50)])), "for a part of it");
        assert!(!is_given_work(&behind(&[(&[of(80, false)], 100)])), "a transaction of one client");
        assert!(!is_given_work(&behind(&[(&[of(40_000, true)], 100)])), "an answer");
        assert!(!is_given_work(&behind(&[])));
    }
}
