// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of a profile, for text and page.

use super::super::names;
use crate::finding::{
    FunctionShare, ProcessProfile, Profile, SleepProfile, SleepStackShare, StackShare,
};
use crate::recording::KERNEL_MARK;
use crate::text::escape::identifier;
use crate::text::units::{count, counted, duration, share};

/// Columns of the name of a function.
const NAME_COLUMNS: usize = 100;
/// Functions of a stack that are shown: the innermost ones, of a stack that goes on in the kernel those of each part.
const FRAMES: usize = 8;
const FRAMES_OF_PART: usize = 4;
/// Share from which on it is said that names are missing.
const MANY: f64 = 0.1;

/// The title of the section.
pub(in super::super) const TITLE: &str = "in what functions CPU time is spent";

/// The titles of the parts about sleep.
pub(in super::super) const SLEEPS: &str = "in what functions threads go to sleep";
pub(in super::super) const BEGINS: &str = "begins";
pub(in super::super) const ENDS: &str = "ends";

/// How it was sampled.
pub(in super::super) fn sampled(profile: &Profile) -> String {
    let lost = match profile.lost {
        0 => String::new(),
        lost => format!("; {} more were lost", count(lost as f64)),
    };
    let too_few = match profile.processes.is_empty() {
        true => "; no process has enough of them to tell shares",
        false => "",
    };
    format!(
        "{} of what ran on this host, one for each {} of CPU time{lost}{too_few}",
        counted(profile.samples, "sample", "samples"),
        duration(profile.period_ns as f64)
    )
}

/// Whose functions.
pub(in super::super) fn whose(process: &ProcessProfile) -> String {
    let nameless = process.without_name.get();
    let missing = match nameless >= MANY {
        true => format!(", {} of them in functions without a name", share(nameless)),
        false => String::new(),
    };
    let samples = counted(process.samples, "sample", "samples");
    format!("{}: {samples}{missing}", names::entity(&process.entity))
}

/// The name of a function, and whether it is the kernel's.
pub(in super::super) fn function(function: &FunctionShare) -> String {
    let of = if function.kernel { " (kernel)" } else { "" };
    format!("{}{of}", identifier(&function.name, NAME_COLUMNS))
}

/// The innermost functions of a stack, from the outermost on.
pub(in super::super) fn stack(stack: &StackShare) -> String {
    innermost(&stack.frames)
}

fn innermost(frames: &[String]) -> String {
    let of_program = frames.iter().take_while(|frame| !frame.ends_with(KERNEL_MARK)).count();
    let (program, kernel) = frames.split_at(of_program);
    let most = if program.is_empty() || kernel.is_empty() { FRAMES } else { FRAMES_OF_PART };
    let shown = [program, kernel].into_iter().flat_map(|part| {
        let left_out = part.len().saturating_sub(most);
        let dots = (left_out > 0).then(|| "…".to_owned());
        dots.into_iter().chain(part[left_out..].iter().map(|it| identifier(it, NAME_COLUMNS)))
    });
    shown.collect::<Vec<_>>().join(" > ")
}

/// Whose sleep.
pub(in super::super) fn whose_sleep(sleep: &SleepProfile) -> String {
    let samples = counted(sleep.samples, "sleep was", "sleeps were");
    format!("{}: {samples} looked at", names::entity(&sleep.entity))
}

/// Where a sleep begins or ends.
pub(in super::super) fn sleep_stack(stack: &SleepStackShare) -> String {
    let call = identifier(&stack.call, NAME_COLUMNS);
    let by = stack.waker.as_ref().map(|waker| format!(", by {},", names::entity(waker)));
    format!("{call}{} in {}", by.unwrap_or_default(), innermost(&stack.frames))
}

#[cfg(test)]
mod tests {
    use super::innermost;

    #[test]
    fn a_stack_that_goes_on_in_the_kernel_shows_the_programs_part_too() {
        let frames = |all: &str| all.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let program = innermost(&frames("a b c d e f g h i"));
        assert_eq!(program, "… > `b` > `c` > `d` > `e` > `f` > `g` > `h` > `i`");
        let both = innermost(&frames("a b c d e 1_[k] 2_[k] 3_[k] 4_[k] 5_[k]"));
        let kernel = "`2_[k]` > `3_[k]` > `4_[k]` > `5_[k]`";
        assert_eq!(both, format!("… > `b` > `c` > `d` > `e` > … > {kernel}"));
        assert_eq!(innermost(&frames("a 1_[k]")), "`a` > `1_[k]`");
    }
}
