// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sleeps of a second, alike ones together.

use super::chain::Link;
use super::files::Files;
use super::history;
use super::kind::{Slept, Woken, device_of};
use crate::collect::Emit;
use deburr_core::recording::{self, Awaited, Did, ProcId, Record, SleepTick, SleptOn, WokenBy};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Kinds of sleep of a process that have a record of their own in each second: those that took longest. Of the others,
/// summed without addresses of conditions, which a runtime has one of for each thread, as many again as the second number; of
/// the rest, without their threads' own names, as many as the third; without names of threads that they waited for, as many as
/// the fourth; and without what was waited for, as many as the fifth. What is left is summed.
const KINDS: [usize; 5] = [40, 24, 16, 16, 16];

/// What makes sleeps alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) slept: Slept,
    pub(super) thread: Option<String>,
    /// See [`SleepTick::entry`].
    pub(super) entry: Option<u32>,
    /// See [`SleepTick::asked`].
    pub(super) asked: Option<bool>,
    /// See [`SleepTick::in_request`].
    pub(super) in_request: bool,
    pub(super) behind: Vec<NamedLink>,
}

impl Kind {
    /// The same without the addresses of conditions.
    fn of_any_condition(mut self) -> Self {
        let any = |slept: &mut Slept| slept.on = std::mem::take(&mut slept.on).of_any_condition();
        any(&mut self.slept);
        for link in &mut self.behind {
            if let history::Did::Slept(slept) = &mut link.did {
                any(slept);
            }
        }
        self
    }

    /// The same without the names of the threads that it waited for, where any of its process does, and without repetitions:
    /// of threads that wait for each other, every order has a chain of its own.
    fn of_any_thread(mut self, own: u32) -> Self {
        self.behind.iter_mut().filter(|it| it.tgid == own).for_each(|it| it.name.clear());
        self.behind.dedup();
        self
    }
}

/// A thread of a chain: its process, its name, and what it did.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NamedLink {
    pub(super) tgid: u32,
    pub(super) name: String,
    /// See [`Awaited::too`].
    pub(super) too: bool,
    pub(super) did: history::Did<Slept>,
}

impl NamedLink {
    pub(super) fn of(it: &Link<Slept>, name: String) -> Self {
        Self { tgid: it.thread.tgid, name, too: false, did: it.did.clone() }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) ns: u64,
    pub(super) looked_at: u64,
    pub(super) longest_ns: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.ns += other.ns;
        self.looked_at += other.looked_at;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// The sleeps of processes in a second.
#[derive(Debug, Default)]
pub(super) struct Sums {
    of: BTreeMap<u32, BTreeMap<Kind, Sum>>,
}

/// The range of time of a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) t0_ns: u64,
    pub(super) t1_ns: u64,
}

/// The identity of a process, and whether it is of the target; `None` if nothing is known of it.
pub(super) type Identity<'a> = &'a mut dyn FnMut(u32, Emit<'_>) -> Option<(ProcId, bool)>;

impl Sums {
    pub(super) fn add(&mut self, tgid: u32, kind: Kind, sum: Sum) {
        self.of.entry(tgid).or_default().entry(kind).or_default().add(sum);
    }

    /// Emits the records of the processes of the target, and begins anew.
    pub(super) fn emit(
        &mut self,
        range: Range,
        files: &Files,
        identity: Identity<'_>,
        emit: Emit<'_>,
    ) {
        for (pid, kinds) in std::mem::take(&mut self.of) {
            let Some((proc, true)) = identity(pid, &mut *emit) else { continue };
            for (kind, sum) in largest(pid, kinds) {
                let mut known = |pid: u32| Some(identity(pid, &mut *emit)?.0);
                let behind =
                    kind.behind.iter().map_while(|it| awaited(it, files, &mut known)).collect();
                let slept = told((pid, &kind.slept), files, &mut known);
                let recording::Slept { state, call, on, woken } = slept;
                emit(Record::Sleep(Box::new(SleepTick {
                    t0_ns: range.t0_ns,
                    t1_ns: range.t1_ns,
                    proc,
                    state,
                    call,
                    on,
                    woken,
                    thread: kind.thread.filter(|name| !name.is_empty()),
                    entry: kind.entry,
                    asked: kind.asked,
                    in_request: kind.in_request.then_some(true),
                    behind,
                    ns: sum.ns,
                    looked_at: sum.looked_at,
                    longest_ns: sum.longest_ns,
                })));
            }
        }
    }
}

fn told(
    (tgid, it): (u32, &Slept),
    files: &Files,
    known: &mut dyn FnMut(u32) -> Option<ProcId>,
) -> recording::Slept {
    let mut on = it.on.clone();
    let named = match &mut on {
        SleptOn::KernelLock { within, .. } => &mut **within,
        on => on,
    };
    match named {
        SleptOn::Unix { peer, .. } => *peer = it.peer.and_then(&mut *known),
        SleptOn::File { device, inode, path, .. } => {
            let device = device_of(device);
            *path = device.and_then(|device| Some(files.name(tgid, device, *inode)?.to_owned()));
        }
        _ => {}
    }
    let woken = match it.woken {
        Woken::NotKnown => WokenBy::NotKnown,
        Woken::NotYet => WokenBy::NotYet,
        Woken::SoftInterrupt => WokenBy::SoftInterrupt,
        Woken::HardInterrupt => WokenBy::HardInterrupt,
        Woken::Timer => WokenBy::Timer,
        Woken::KernelTimer => WokenBy::KernelTimer,
        Woken::Network => WokenBy::Network,
        Woken::Disk => WokenBy::Disk,
        Woken::OtherCpu => WokenBy::OtherCpu,
        Woken::Device => WokenBy::Device,
        Woken::Thread(pid, call) => {
            let thread = |proc| WokenBy::Thread { proc, call: call.name().into_owned() };
            known(pid).map_or(WokenBy::NotKnown, thread)
        }
        Woken::Sender(pid) => known(pid).map_or(WokenBy::Network, |proc| WokenBy::Sender { proc }),
    };
    let call = it.call.map_or_else(|| "(others)".into(), |call| call.name().into_owned());
    recording::Slept { state: it.state, call, on, woken }
}

fn awaited(
    it: &NamedLink,
    files: &Files,
    known: &mut dyn FnMut(u32) -> Option<ProcId>,
) -> Option<Awaited> {
    let proc = known(it.tgid)?;
    let did = match &it.did {
        history::Did::NotSeen => Did::NotSeen,
        history::Did::OnCpu => Did::OnCpu,
        history::Did::Queued => Did::Queued,
        history::Did::Throttled => Did::Throttled,
        history::Did::Slept(slept) => Did::Slept(told((it.tgid, slept), files, known)),
    };
    Some(Awaited { proc, thread: it.name.clone(), too: it.too, did })
}

/// Kinds of sleep, each with its sum.
type Summed = Vec<(Kind, Sum)>;

/// Those of a process that took longest, and the sums of the others.
fn largest(pid: u32, kinds: BTreeMap<Kind, Sum>) -> Summed {
    let [own, shared, of_any, nameless, alone] = KINDS;
    let (mut all, rest) = divided(kinds, own);
    let anywhere = |(kind, sum): (Kind, Sum)| (kind.of_any_condition(), sum);
    let (more, rest) = divided(summed(rest.into_iter().map(anywhere)), shared);
    all.extend(more);
    let by_any = |(kind, sum): (Kind, Sum)| (Kind { thread: None, ..kind }, sum);
    let (more, rest) = divided(summed(rest.into_iter().map(by_any)), of_any);
    all.extend(more);
    let of_any = |(kind, sum): (Kind, Sum)| (kind.of_any_thread(pid), sum);
    let (more, rest) = divided(summed(rest.into_iter().map(of_any)), nameless);
    all.extend(more);
    let alike = |(kind, sum): (Kind, Sum)| (Kind { behind: vec![], ..kind }, sum);
    let (more, rest) = divided(summed(rest.into_iter().map(alike)), alone);
    let of_state = |(kind, sum): (Kind, Sum)| {
        let state = kind.slept.state;
        let slept =
            Slept { state, call: None, on: SleptOn::Others, peer: None, woken: Woken::NotKnown };
        let entry = kind.entry;
        (Kind { slept, thread: None, entry, asked: None, in_request: false, behind: vec![] }, sum)
    };
    all.extend(more);
    all.extend(summed(rest.into_iter().map(of_state)));
    all
}

fn summed(all: impl Iterator<Item = (Kind, Sum)>) -> BTreeMap<Kind, Sum> {
    let mut sums: BTreeMap<Kind, Sum> = BTreeMap::new();
    all.for_each(|(kind, sum)| sums.entry(kind).or_default().add(sum));
    sums
}

/// As many as these that took longest, and the others.
fn divided(kinds: BTreeMap<Kind, Sum>, most: usize) -> (Summed, Summed) {
    let mut all: Summed = kinds.into_iter().collect();
    all.sort_by_key(|(_, sum)| Reverse(sum.ns));
    let rest = all.split_off(all.len().min(most));
    (all, rest)
}

#[cfg(test)]
mod tests {
    use super::super::super::super::listening::Listening;
    use super::super::kind::tests::sleep;
    use super::*;
    use deburr_bpf::sched::{Context, Object, Sleep};

    /// What is told of 200 sleeps of a thread each, on words at addresses of their own, behind the same thread.
    fn told_of_words(value: u64) -> Vec<SleepTick> {
        let mut sums = Sums::default();
        for address in 1..=200 {
            let arguments = [address, 0, value];
            let it = Sleep { arguments, ..sleep(Object::None, Context::Thread) };
            let slept = Slept::of(&it, &Listening::default()).unwrap();
            let link =
                NamedLink { tgid: 8, name: "holder".into(), too: false, did: history::Did::OnCpu };
            let thread = Some(format!("worker-{address}"));
            let kind = Kind {
                slept,
                thread,
                entry: Some(3),
                asked: Some(true),
                in_request: true,
                behind: vec![link],
            };
            sums.add(7, kind, Sum { ns: 10, looked_at: 1, longest_ns: 10 });
        }
        let mut told = Vec::new();
        let mut identity = |pid, _: Emit<'_>| Some((ProcId(pid), pid == 7));
        let range = Range { t0_ns: 0, t1_ns: 1000 };
        sums.emit(range, &Files::default(), &mut identity, &mut |record| match record {
            Record::Sleep(it) => told.push(*it),
            other => panic!("{other:?}"),
        });
        assert_eq!(told.iter().map(|it| it.ns).sum::<u64>(), 2000);
        assert!(told.iter().all(|it| it.entry == Some(3)));
        assert_eq!(told[0].woken, WokenBy::Thread { proc: ProcId(8), call: "write".into() });
        assert!(told[0].thread.as_ref().is_some_and(|it| it.starts_with("worker-")));
        told
    }

    fn held() -> Vec<Awaited> {
        vec![Awaited { proc: ProcId(8), thread: "holder".into(), too: false, did: Did::OnCpu }]
    }

    #[test]
    fn of_many_kinds_nothing_is_lost() {
        let told = told_of_words(2);
        let [own, shared, of_any, nameless, _] = KINDS;
        assert_eq!(told.len(), KINDS.iter().sum::<usize>() + 1);
        let last = told.last().unwrap();
        assert_eq!((&last.on, &last.thread, &last.behind), (&SleptOn::Others, &None, &vec![]));
        assert_eq!((told[0].asked, last.asked), (Some(true), None));
        assert_eq!((&told[0].behind, told[0].on == told[1].on), (&held(), false));
        assert_eq!((told[own].thread.is_some(), &told[own].behind), (true, &held()));
        assert_eq!((&told[own + shared].thread, &told[own].behind), (&None, &held()));
        let without = &told[own + shared + of_any + nameless];
        assert_eq!((&without.thread, &without.behind), (&None, &vec![]));
        assert!(matches!(without.on, SleptOn::Futex { .. }), "{without:?}");
    }

    /// Of threads that wait for each other every order is a chain of its own.
    #[test]
    fn chains_without_names_are_alike() {
        let slept =
            Slept::of(&sleep(Object::None, Context::Thread), &Listening::default()).unwrap();
        let link = |tgid, name: &str| {
            let did = history::Did::Slept(slept.clone());
            NamedLink { tgid, name: name.into(), too: false, did }
        };
        let of = |names: &[(u32, &str)]| {
            let behind = names.iter().map(|(tgid, name)| link(*tgid, name)).collect();
            let slept = slept.clone();
            Kind { slept, thread: None, entry: None, asked: None, in_request: true, behind }
        };
        let one = of(&[(7, "a"), (7, "b"), (8, "x")]).of_any_thread(7);
        assert_eq!(one, of(&[(7, ""), (8, "x")]));
        assert_eq!(of(&[(7, "c"), (8, "x")]).of_any_thread(7), one);
        assert_ne!(of(&[(7, "c"), (8, "y")]).of_any_thread(7), one, "others keep their names");
    }

    /// A runtime parks each of its threads on a word of its own.
    #[test]
    fn of_many_conditions_it_is_told_what_they_waited_for() {
        let told = told_of_words(0);
        let [own, shared, ..] = KINDS;
        assert_eq!(told.len(), own + shared + 1);
        let last = told.last().unwrap();
        assert_eq!(last.on, SleptOn::Futex { address: 0, value: 0, op: 0, user: None });
        assert_eq!((&last.thread, &last.behind), (&None, &held()));
    }
}
