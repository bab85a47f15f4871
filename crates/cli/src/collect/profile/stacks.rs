// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts how often each stack was found, and how long threads slept that had it, and keeps the names of its functions.

use crate::symbols::NOT_CODE;
use deburr_bpf::profile::Sample;
use deburr_bpf::sched::Call;
use deburr_bpf::stacks::ThreadStack;
use deburr_core::recording::{FRAME_END, KERNEL_MARK};
use std::collections::{BTreeMap, BTreeSet};

/// Stacks that are kept of all processes; of further ones the samples are counted.
const MAX_STACKS: usize = 8192;

/// A process: its pid, and the start of its main thread in nanoseconds of the boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) pid: u32,
    pub(super) start_ns: u64,
}

/// Whose function: of a process's program, or of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Kernel,
    Of(Owner),
}

/// Addresses of a stack, innermost first, each within the instruction that runs or calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stack {
    kernel: Vec<u64>,
    user: Vec<u64>,
}

impl Stack {
    /// That of a thread which goes to sleep, or wakes another one: all its functions have called one.
    pub(super) fn of_sleep(it: &ThreadStack) -> Self {
        let [kernel, user] = [&it.kernel, &it.user].map(|part| within_calls(part, false));
        Self { kernel, user }
    }
}

/// Sleeps, by the stack of a process with which they begin, or end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SleepKind {
    /// Whose sleep it is that a thread of the process ends; `None` = the process sleeps itself.
    pub(super) sleeper: Option<Owner>,
    /// In what.
    pub(super) call: Call,
    /// The word that it sleeps for, if the call is `futex`.
    pub(super) address: Option<u64>,
    stack: Stack,
}

/// How many sleeps, and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SleepSum {
    pub(super) samples: u64,
    pub(super) ns: u64,
}

/// The samples of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct OfProcess {
    pub(super) samples: u64,
    stacks: BTreeMap<Stack, u64>,
    sleeps: BTreeMap<SleepKind, SleepSum>,
}

impl OfProcess {
    /// How often it was found, running or asleep.
    pub(super) fn seen(&self) -> u64 {
        self.sleeps.values().fold(self.samples, |sum, it| sum.saturating_add(it.samples))
    }

    /// Addresses of functions of the kernel.
    fn kernel_addresses(&self) -> impl Iterator<Item = u64> {
        let asleep = self.sleeps.keys().map(|kind| &kind.stack);
        self.stacks.keys().chain(asleep).flat_map(|stack| &stack.kernel).copied()
    }

    /// Addresses of its own functions.
    fn addresses(&self) -> impl Iterator<Item = u64> {
        let running = self.stacks.keys().flat_map(|stack| &stack.user);
        running.chain(self.sleeps.keys().flat_map(|kind| &kind.stack.user)).copied()
    }
}

/// The samples of all processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Stacks {
    pub(super) samples: u64,
    processes: BTreeMap<Owner, OfProcess>,
    kept: usize,
    names: BTreeMap<Program, BTreeMap<u64, String>>,
}

impl Stacks {
    /// Counts a sample.
    pub(super) fn add(&mut self, sample: &Sample) {
        let owner = Owner { pid: sample.tgid, start_ns: sample.leader_boot_ns };
        self.samples += 1;
        let process = self.processes.entry(owner).or_default();
        process.samples += 1;
        let stack = Stack {
            user: within_calls(&sample.user_stack, sample.kernel_stack.is_empty()),
            kernel: within_calls(&sample.kernel_stack, true),
        };
        if let Some(count) = process.stacks.get_mut(&stack) {
            *count += 1;
        } else if self.kept < MAX_STACKS {
            self.kept += 1;
            process.stacks.insert(stack, 1);
        }
    }

    /// Counts a sleep, by the stack of a process with which it began, or ended.
    pub(super) fn add_sleep(
        &mut self,
        of: Owner,
        (sleeper, call, address): (Option<Owner>, Call, Option<u64>),
        stack: Stack,
        ns: u64,
    ) {
        let process = self.processes.entry(of).or_default();
        let mut kind = SleepKind { sleeper, call, address, stack };
        if !process.sleeps.contains_key(&kind) {
            match self.kept < MAX_STACKS {
                true => self.kept += 1,
                false => kind.stack = Stack::default(),
            }
        }
        let sum = process.sleeps.entry(kind).or_default();
        sum.samples += 1;
        sum.ns = sum.ns.saturating_add(ns);
    }

    /// The processes that were found, and how often.
    pub(super) fn processes(&self) -> impl Iterator<Item = (Owner, &OfProcess)> {
        self.processes.iter().map(|(owner, process)| (*owner, process))
    }

    /// Addresses of a process's own functions that have no name yet.
    pub(super) fn without_name(&self, owner: Owner) -> Vec<u64> {
        let process = self.processes.get(&owner).into_iter();
        self.unnamed(Program::Of(owner), process.flat_map(OfProcess::addresses))
    }

    /// Addresses of functions of the kernel that have no name yet.
    pub(super) fn without_name_in_kernel(&self) -> Vec<u64> {
        let addresses = self.processes.values().flat_map(OfProcess::kernel_addresses);
        self.unnamed(Program::Kernel, addresses)
    }

    fn unnamed(&self, program: Program, addresses: impl Iterator<Item = u64>) -> Vec<u64> {
        let known = self.names.get(&program);
        let is_known = |address: &u64| known.is_some_and(|names| names.contains_key(address));
        let all: BTreeSet<u64> = addresses.filter(|address| !is_known(address)).collect();
        all.into_iter().collect()
    }

    /// Keeps the names of functions.
    pub(super) fn learn(&mut self, program: Program, addresses: &[u64], names: Vec<String>) {
        let known = self.names.entry(program).or_default();
        known.extend(addresses.iter().copied().zip(names));
    }

    /// The stacks of a process by the names of their functions, from the outermost on, and how often each was found. Under
    /// the empty name: those for which there was no room.
    pub(super) fn named(&self, owner: Owner) -> BTreeMap<String, u64> {
        let mut named = BTreeMap::new();
        let Some(process) = self.processes.get(&owner) else { return named };
        let mut left = process.samples;
        for (stack, count) in &process.stacks {
            let kernel = self.kernel_names(stack);
            *named.entry(self.folded(owner, stack, kernel)).or_insert(0) += count;
            left -= count;
        }
        if left > 0 {
            named.insert(String::new(), left);
        }
        named
    }

    /// The sleeps that threads of a process began or ended, and the names of the functions.
    pub(super) fn sleeps(
        &self,
        owner: Owner,
    ) -> impl Iterator<Item = (&SleepKind, String, SleepSum)> {
        let process = self.processes.get(&owner).into_iter();
        let sleeps = process.flat_map(|process| &process.sleeps);
        sleeps.map(move |(kind, sum)| {
            let kernel = until_switch(self.kernel_names(&kind.stack));
            (kind, self.folded(owner, &kind.stack, kernel), *sum)
        })
    }

    /// The names of the kernel's functions, from the outermost on.
    fn kernel_names(&self, stack: &Stack) -> Vec<&str> {
        stack.kernel.iter().rev().map(|at| self.name(Program::Kernel, *at)).collect()
    }

    /// The names of the functions of a stack, from the outermost on: those of the program, and these of the kernel.
    fn folded(&self, owner: Owner, stack: &Stack, kernel: Vec<&str>) -> String {
        let user = stack.user.iter().rev().map(|at| self.name(Program::Of(owner), *at).to_owned());
        let kernel = kernel.into_iter().map(|name| format!("{name}{KERNEL_MARK}"));
        let frames: Vec<String> = user.chain(kernel).filter(|name| name != NOT_CODE).collect();
        match frames.is_empty() {
            true => "[not seen]".to_owned(),
            false => frames.join(&FRAME_END.to_string()),
        }
    }

    fn name(&self, program: Program, address: u64) -> &str {
        let name = self.names.get(&program).and_then(|names| names.get(&address));
        name.map_or("[not read]", String::as_str)
    }
}

/// Addresses within the instructions that run or call: what is on a stack is where a call returns to, which may be the
/// beginning of the next function.
fn within_calls(stack: &[u64], innermost_runs: bool) -> Vec<u64> {
    let each = stack.iter().enumerate();
    each.map(|(i, at)| at - u64::from((i > 0 || !innermost_runs) && *at > 0)).collect()
}

/// The functions of the kernel, from the outermost on, before those in which every thread goes to sleep, or wakes another
/// one: they say nothing, and end in the program that read the stack.
fn until_switch(mut functions: Vec<&str>) -> Vec<&str> {
    const ENDS: [&str; 4] = ["schedule", "__schedule", "io_schedule", "try_to_wake_up"];
    let ends = |name: &&str| ENDS.iter().any(|end| name.starts_with(end));
    if let Some(at) = functions.iter().position(ends) {
        functions.truncate(at);
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tgid: u32, user: &[u64], kernel: &[u64]) -> Sample {
        Sample {
            tgid,
            leader_boot_ns: 5,
            comm: [0; 16],
            kernel: false,
            kernel_stack: kernel.to_vec(),
            user_stack: user.to_vec(),
        }
    }

    #[test]
    fn stacks_are_told_by_names_and_those_of_the_same_names_are_one() {
        let mut stacks = Stacks::default();
        for one in
            [sample(1, &[100, 201], &[]), sample(1, &[102, 201], &[]), sample(1, &[50], &[7])]
        {
            stacks.add(&one);
        }
        let owner = Owner { pid: 1, start_ns: 5 };
        assert_eq!(stacks.without_name(owner), [49, 100, 102, 200]);
        assert_eq!(stacks.without_name_in_kernel(), [7]);
        let names = ["f", "f", "main"].map(String::from).to_vec();
        stacks.learn(Program::Of(owner), &[100, 102, 200], names);
        stacks.learn(Program::Kernel, &[7], vec!["sys".into()]);
        // Where code leaves no frame pointers, what is taken for one leads anywhere.
        stacks.add(&sample(1, &[100, 4], &[]));
        stacks.learn(Program::Of(owner), &[3], vec![NOT_CODE.into()]);
        assert_eq!(stacks.without_name(owner), [49]);
        let expected = [("[not read];sys_[k]", 1), ("f", 1), ("main;f", 2)]
            .map(|(stack, count)| (stack.to_owned(), count));
        assert_eq!(stacks.named(owner), expected.into());
    }

    #[test]
    fn the_part_of_a_sleep_in_the_kernel_ends_where_every_sleep_does() {
        let mut stacks = Stacks::default();
        let owner = Owner { pid: 1, start_ns: 5 };
        let (user, kernel) = (vec![100], vec![1, 2, 3, 4]);
        let (call, argument) = (Call::Fault, 0);
        let thread = ThreadStack { tgid: 1, leader_boot_ns: 5, call, argument, user, kernel };
        stacks.add_sleep(owner, (None, call, None), Stack::of_sleep(&thread), 7);
        assert_eq!(stacks.without_name_in_kernel(), [0, 1, 2, 3]);
        let names = ["bpf_prog_1", "__schedule", "io_schedule", "folio_wait_bit_common"];
        stacks.learn(Program::Kernel, &[0, 1, 2, 3], names.map(String::from).to_vec());
        stacks.learn(Program::Of(owner), &[99], vec!["main".into()]);
        let told: Vec<_> = stacks.sleeps(owner).map(|(_, stack, sum)| (stack, sum.ns)).collect();
        assert_eq!(told, [("main;folio_wait_bit_common_[k]".to_owned(), 7)]);
    }

    #[test]
    fn of_too_many_stacks_every_sample_is_counted() {
        let mut stacks = Stacks { kept: MAX_STACKS - 1, ..Stacks::default() };
        for user in [1, 2, 3, 1] {
            stacks.add(&sample(1, &[user], &[]));
        }
        let named = stacks.named(Owner { pid: 1, start_ns: 5 });
        assert_eq!(named, [(String::new(), 2), ("[not read]".into(), 2)].into());
    }
}
