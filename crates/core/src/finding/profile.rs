// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In what functions processes spend their CPU time, and go to sleep, by samples.

use super::Entity;
use crate::text::Share;
use serde::{Deserialize, Serialize};

/// The profile of the observed processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// CPU time that a sample stands for.
    pub period_ns: u64,
    /// Samples of all processes of the host.
    pub samples: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Those of the target, and those with most samples, in this order.
    pub processes: Vec<ProcessProfile>,
    /// In what functions processes of the target go to sleep, and in what functions those are that wake them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sleeps: Vec<SleepProfile>,
}

/// In what functions processes of a name sleep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SleepProfile {
    /// The processes.
    pub entity: Entity,
    /// Sleeps that were looked at.
    pub samples: u64,
    /// The stacks with which most of the sleep begins, most first.
    pub begins: Vec<SleepStackShare>,
    /// The stacks with which most of the sleep ends that a thread ends, most first.
    pub ends: Vec<SleepStackShare>,
}

/// A stack's share of the sleep that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SleepStackShare {
    /// The call that they sleep in; in parentheses what is none.
    pub call: String,
    /// Who ends it, if it is that thread's stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waker: Option<Entity>,
    /// The functions, from the outermost to the innermost, as they are recorded.
    pub frames: Vec<String>,
    /// The share.
    pub share: Share,
}

/// In what functions processes of a name spend their CPU time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessProfile {
    /// The processes.
    pub entity: Entity,
    /// Their samples.
    pub samples: u64,
    /// Share of them that is in functions whose name is not known.
    pub without_name: Share,
    /// The functions with most samples of their own, most first.
    pub functions: Vec<FunctionShare>,
    /// The stacks with most samples, most first.
    pub stacks: Vec<StackShare>,
}

/// A function's share of the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionShare {
    /// Its name; that of its file in brackets, if the name is not known.
    pub name: String,
    /// Whether it is a function of the kernel.
    pub kernel: bool,
    /// Share in the function itself.
    pub own: Share,
    /// Share in the function and in what it called.
    pub with_callees: Share,
}

/// A stack's share of the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackShare {
    /// The functions, from the outermost to the innermost, as they are recorded.
    pub frames: Vec<String>,
    /// The share.
    pub share: Share,
}
