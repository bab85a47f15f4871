// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts beginnings and ends of sleeps together.

use super::stacks::{Owner, Stack, Stacks};
use deburr_bpf::sched::Call;
use deburr_bpf::stacks::{StackEvent, ThreadStack};
use std::collections::BTreeMap;

/// A sleep that has begun.
#[derive(Clone, Debug)]
struct Begun {
    since_ns: u64,
    weight: u64,
    stack: ThreadStack,
}

/// The sleeps in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Sleeps {
    /// Start of the window, by `CLOCK_MONOTONIC`: what was before does not count.
    start_ns: u64,
    /// By the thread that sleeps.
    begun: BTreeMap<u32, Begun>,
    /// Ends whose beginnings were not read yet.
    early: Vec<StackEvent>,
    /// Ends whose beginnings were lost.
    pub(super) lost: u64,
}

impl Sleeps {
    /// Begins the window, at this time of `CLOCK_MONOTONIC`.
    pub(super) fn begin(start_ns: u64) -> Self {
        Self { start_ns, ..Self::default() }
    }

    /// Counts the sleeps that ended, of what was read at once.
    pub(super) fn add(&mut self, mut events: Vec<StackEvent>, stacks: &mut Stacks) {
        let early = std::mem::take(&mut self.early);
        let waited = early.len();
        events.splice(0..0, early);
        let mut all: Vec<(bool, StackEvent)> =
            events.into_iter().enumerate().map(|(at, event)| (at < waited, event)).collect();
        // Of a sleep, its beginning first.
        all.sort_by_key(|(_, it)| (it.since_ns, it.slept_ns.is_some()));
        for (is_old, event) in all {
            match event.slept_ns {
                None => {
                    let StackEvent { sleeper, since_ns, weight, stack, .. } = event;
                    let begun = stack.map(|stack| Begun { since_ns, weight: weight.into(), stack });
                    self.begun.extend(begun.map(|begun| (sleeper, begun)));
                }
                Some(slept_ns) => match self.begun.get(&event.sleeper).cloned() {
                    Some(begun) if begun.since_ns == event.since_ns => {
                        self.begun.remove(&event.sleeper);
                        let end_ns = event.since_ns.saturating_add(slept_ns);
                        self.count(&begun, event.stack.as_ref(), end_ns, stacks);
                    }
                    // It began before the window.
                    _ if event.since_ns < self.start_ns => {}
                    _ if is_old => self.lost += 1,
                    _ => self.early.push(event),
                },
            }
        }
    }

    /// Counts the sleeps that go on at this time of `CLOCK_MONOTONIC`.
    pub(super) fn end(&mut self, now_ns: u64, stacks: &mut Stacks) {
        for begun in std::mem::take(&mut self.begun).into_values() {
            self.count(&begun, None, now_ns, stacks);
        }
    }

    fn count(&self, it: &Begun, waker: Option<&ThreadStack>, end_ns: u64, stacks: &mut Stacks) {
        let slept_ns = end_ns.saturating_sub(it.since_ns.max(self.start_ns));
        let ns = slept_ns.saturating_mul(it.weight);
        let (sleeper, call) = (owner(&it.stack), it.stack.call);
        let address = is_futex(call).then_some(it.stack.argument);
        stacks.add_sleep(sleeper, (None, call, address), Stack::of_sleep(&it.stack), ns);
        if let Some(waker) = waker {
            let of = (Some(sleeper), call, address);
            stacks.add_sleep(owner(waker), of, Stack::of_sleep(waker), ns);
        }
    }
}

fn owner(stack: &ThreadStack) -> Owner {
    Owner { pid: stack.tgid, start_ns: stack.leader_boot_ns }
}

fn is_futex(call: Call) -> bool {
    matches!(call, Call::System(_)) && call.name() == "futex"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(tgid: u32, frame: u64) -> Option<ThreadStack> {
        let call = (0..512).map(Call::System).find(|call| is_futex(*call)).unwrap();
        let (argument, user, kernel) = (0xa8, vec![frame], Vec::new());
        Some(ThreadStack { tgid, leader_boot_ns: 5, call, argument, user, kernel })
    }

    fn event(since_ns: u64, slept_ns: u64, stack: Option<ThreadStack>) -> StackEvent {
        let slept_ns = (slept_ns > 0).then_some(slept_ns);
        StackEvent { sleeper: 7, since_ns, weight: 3, slept_ns, stack }
    }

    fn told(stacks: &Stacks, pid: u32) -> Vec<(bool, Option<u64>, u64, u64)> {
        let of = Owner { pid, start_ns: 5 };
        let of = stacks.sleeps(of);
        of.map(|(kind, _, sum)| (kind.sleeper.is_some(), kind.address, sum.samples, sum.ns))
            .collect()
    }

    #[test]
    fn a_sleep_counts_for_those_that_it_stands_for_with_both_stacks() {
        let (mut sleeps, mut stacks) = (Sleeps::begin(100), Stacks::default());
        // The end is read first: it was written by another CPU.
        sleeps.add(vec![event(200, 50, stack(2, 9))], &mut stacks);
        sleeps.add(vec![event(200, 0, stack(1, 8))], &mut stacks);
        assert_eq!(told(&stacks, 1), [(false, Some(0xa8), 1, 150)]);
        assert_eq!(told(&stacks, 2), [(true, Some(0xa8), 1, 150)]);
        assert_eq!(sleeps.lost, 0);
    }

    #[test]
    fn only_what_is_within_the_window_counts() {
        let (mut sleeps, mut stacks) = (Sleeps::begin(100), Stacks::default());
        sleeps.add(vec![event(90, 0, stack(1, 8)), event(90, 30, None)], &mut stacks);
        assert_eq!(told(&stacks, 1), [(false, Some(0xa8), 1, 60)]);
        // It began before the window, unseen.
        sleeps.add(vec![event(80, 90, None)], &mut stacks);
        // It goes on when the window ends.
        sleeps.add(vec![event(300, 0, stack(1, 8))], &mut stacks);
        sleeps.end(310, &mut stacks);
        assert_eq!(told(&stacks, 1), [(false, Some(0xa8), 2, 90)]);
        assert_eq!(sleeps.lost, 0);
    }

    #[test]
    fn ends_without_a_beginning_are_counted() {
        let (mut sleeps, mut stacks) = (Sleeps::begin(100), Stacks::default());
        sleeps.add(vec![event(200, 50, None)], &mut stacks);
        sleeps.add(vec![], &mut stacks);
        assert_eq!((sleeps.lost, told(&stacks, 1).len()), (1, 0));
    }
}
