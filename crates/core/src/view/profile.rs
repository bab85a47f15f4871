// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In what functions the CPU time of processes is spent, by samples.

use super::sleep_stacks::SleepStacks;
use crate::recording::{FRAME_END, KERNEL_MARK, ProcId, ProfileRecord, ProfileSpan};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of stacks of all processes; of further ones only the samples are counted.
const MAX_STACKS: usize = 20_000;

/// The samples of all processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileView {
    /// How it was sampled; with several spans, their sum.
    span: ProfileSpan,
    stacks: BTreeMap<ProcId, BTreeMap<String, u64>>,
    kept: usize,
    sleeps: SleepStacks,
}

/// The samples of some processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples<'v> {
    /// All of them.
    pub all: u64,
    /// How often each stack was found; without those for which there was no room.
    pub stacks: BTreeMap<&'v str, u64>,
}

/// How much CPU time a function takes, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionSamples {
    /// In the function itself.
    pub own: u64,
    /// In the function, or in what it called.
    pub with_callees: u64,
}

impl ProfileView {
    pub(super) fn push(&mut self, record: &ProfileRecord) {
        match record {
            ProfileRecord::Span(span) => {
                let sum = &mut self.span;
                let first = sum.t1_ns == 0;
                sum.t0_ns = if first { span.t0_ns } else { sum.t0_ns.min(span.t0_ns) };
                sum.t1_ns = sum.t1_ns.max(span.t1_ns);
                sum.period_ns = span.period_ns;
                sum.samples = sum.samples.saturating_add(span.samples);
                sum.lost = sum.lost.saturating_add(span.lost);
            }
            ProfileRecord::Stack(it) => {
                let of_process = self.stacks.entry(it.process).or_default();
                let is_new = !it.stack.is_empty() && !of_process.contains_key(&it.stack);
                let has_room = !is_new || self.kept < MAX_STACKS;
                self.kept += usize::from(is_new && has_room);
                let stack = if has_room { it.stack.as_str() } else { "" };
                let samples = of_process.entry(stack.to_owned()).or_default();
                *samples = samples.saturating_add(it.samples);
            }
            ProfileRecord::Sleep(it) => self.sleeps.push(it),
        }
    }

    /// In what functions threads went to sleep, and who woke them.
    #[must_use]
    pub fn sleeps(&self) -> &SleepStacks {
        &self.sleeps
    }

    /// How it was sampled.
    #[must_use]
    pub fn span(&self) -> &ProfileSpan {
        &self.span
    }

    /// The samples of these processes.
    #[must_use]
    pub fn of(&self, processes: impl IntoIterator<Item = ProcId>) -> Samples<'_> {
        let mut samples = Samples::default();
        for (stack, count) in processes.into_iter().filter_map(|id| self.stacks.get(&id)).flatten()
        {
            samples.all = samples.all.saturating_add(*count);
            if !stack.is_empty() {
                let sum = samples.stacks.entry(stack).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        samples
    }
}

impl<'v> Samples<'v> {
    /// The functions, those of the kernel with [`KERNEL_MARK`]. A function that calls itself counts once in a stack.
    #[must_use]
    pub fn functions(&self) -> BTreeMap<&'v str, FunctionSamples> {
        let mut functions: BTreeMap<&str, FunctionSamples> = BTreeMap::new();
        for (stack, &count) in &self.stacks {
            for function in stack.split(FRAME_END).collect::<BTreeSet<_>>() {
                let sum = &mut functions.entry(function).or_default().with_callees;
                *sum = sum.saturating_add(count);
            }
            let own = &mut functions.entry(innermost(stack)).or_default().own;
            *own = own.saturating_add(count);
        }
        functions
    }

    /// Those in functions whose name is not known.
    #[must_use]
    pub fn without_name(&self) -> u64 {
        let nameless = self.stacks.iter().filter(|(stack, _)| is_nameless(innermost(stack)));
        nameless.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

fn innermost(stack: &str) -> &str {
    stack.rsplit(FRAME_END).next().unwrap_or(stack)
}

/// Whether it is the name of a file in place of a function's.
#[must_use]
pub fn is_nameless(function: &str) -> bool {
    let name = function.strip_suffix(KERNEL_MARK).unwrap_or(function);
    name.starts_with('[') && name.ends_with(']')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::ProfileStack;

    fn found(process: u32, stack: &str, samples: u64) -> ProfileRecord {
        let (process, stack) = (ProcId(process), stack.to_owned());
        ProfileRecord::Stack(ProfileStack { t0_ns: 0, t1_ns: 1, process, stack, samples })
    }

    fn view(stacks: &[(u32, &str, u64)]) -> ProfileView {
        let mut view = ProfileView::default();
        for &(process, stack, samples) in stacks {
            view.push(&found(process, stack, samples));
        }
        view
    }

    #[test]
    fn a_function_has_its_own_time_and_that_of_what_it_calls_once() {
        let view = view(&[(1, "main;f;f;g", 3), (1, "main;f", 4), (2, "main;g", 5), (1, "", 6)]);
        let samples = view.of([ProcId(1), ProcId(2)]);
        assert_eq!(samples.all, 18);
        let of = |name: &str| {
            let it = samples.functions()[name];
            (it.own, it.with_callees)
        };
        assert_eq!((of("main"), of("f"), of("g")), ((0, 12), (4, 7), (8, 8)));
        assert_eq!(view.of([ProcId(3)]), Samples::default());
    }

    #[test]
    fn files_in_place_of_functions_have_no_name() {
        let samples = view(&[(1, "main;[libc.so.6]", 3), (1, "main;[x];f", 1), (1, "[k]_[k]", 2)]);
        assert_eq!(samples.of([ProcId(1)]).without_name(), 5);
        assert!(!is_nameless("main") && !is_nameless("f_[k]") && !is_nameless("[x"));
    }

    #[test]
    fn of_too_many_stacks_the_samples_are_counted() {
        let mut view = ProfileView { kept: MAX_STACKS - 1, ..ProfileView::default() };
        for (stack, samples) in [("a", 1), ("b", 2), ("a", 4)] {
            view.push(&found(1, stack, samples));
        }
        let samples = view.of([ProcId(1)]);
        assert_eq!((samples.all, samples.stacks), (7, [("a", 5)].into()));
    }
}
