// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In what functions CPUs were found at the beats of a clock, and threads went to sleep (BPF profile probe), where it was
//! requested.

use super::observed::{Observed, observed};
use super::{ProcId, Source};
use serde::{Deserialize, Serialize};

/// Separates the functions of a stack.
pub const FRAME_END: char = ';';

/// What follows the name of a function of the kernel.
pub const KERNEL_MARK: &str = "_[k]";

/// A record of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProfileRecord {
    /// How it was sampled.
    Span(ProfileSpan),
    /// A stack, and how often it was found.
    Stack(ProfileStack),
    /// A stack with which threads go to sleep, or are woken.
    Sleep(SleepStack),
}

/// A time range in which CPUs were sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileSpan {
    /// Start of the range.
    pub t0_ns: u64,
    /// End of the range.
    pub t1_ns: u64,
    /// CPU time that a sample stands for.
    pub period_ns: u64,
    /// Samples of all processes.
    pub samples: u64,
    /// Those that were lost before they were read.
    pub lost: u64,
}

observed! { it: ProfileSpan over t0_ns..t1_ns, from Source::Profile }

/// A stack of a process, and how often it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileStack {
    /// Start of the range.
    pub t0_ns: u64,
    /// End of the range.
    pub t1_ns: u64,
    /// The process.
    pub process: ProcId,
    /// The functions from the outermost to the innermost, separated by [`FRAME_END`]: those of the kernel end in
    /// [`KERNEL_MARK`], and where a name is not known, the file is named in brackets. Empty = the stacks of that process
    /// for which there was no room.
    pub stack: String,
    /// How often.
    pub samples: u64,
}

observed! { it: ProfileStack over t0_ns..t1_ns, from Source::Profile; to [it.process] }

/// In what functions threads of the target go to sleep, or in what functions those are that wake them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepStack {
    /// Start of the range.
    pub t0_ns: u64,
    /// End of the range.
    pub t1_ns: u64,
    /// The process that sleeps.
    pub process: ProcId,
    /// In which call, as in [`SleepTick::call`](super::SleepTick::call).
    pub call: String,
    /// The word that it sleeps for, if the call is `futex`.
    pub address: Option<u64>,
    /// The process whose thread ends the sleep, if it is that thread's stack.
    pub waker: Option<ProcId>,
    /// As in [`ProfileStack::stack`]. Functions of the kernel are in it only where a sleep is uninterruptible, outside of a
    /// system call, or in `ioctl`.
    pub stack: String,
    /// Sleeps that were looked at.
    pub samples: u64,
    /// Sleep that they stand for: an estimate.
    pub ns: u64,
}

observed! { it: SleepStack over t0_ns..t1_ns, from Source::Profile; to [it.process], it.waker }

impl ProfileRecord {
    /// What the record tells of itself.
    pub(super) fn observed(&self) -> &dyn Observed {
        match self {
            Self::Span(it) => it,
            Self::Stack(it) => it,
            Self::Sleep(it) => it,
        }
    }
}
