// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts: what they took, on which CPU, and whose thread held it meanwhile.

use super::observed::observed;
use super::{ProcId, Source};
use serde::{Deserialize, Serialize};

/// What interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptKind {
    /// A soft interrupt: what the kernel puts off until a hard interrupt is over.
    Soft,
    /// A hard interrupt of a device.
    Device,
    /// A hard interrupt of the CPU's timer.
    Timer,
    /// A hard interrupt by another CPU.
    Processor,
}

impl InterruptKind {
    /// What interrupts, in words: `` `NET_RX` ``, `` interrupt 36 (`virtio1-req.0`) ``, `the timer`. `name` is as it is shown,
    /// in backticks; `None` = not known.
    #[must_use]
    pub fn in_words(self, irq: Option<u32>, name: Option<String>) -> String {
        match (self, irq) {
            (Self::Soft, _) => name.unwrap_or_else(|| "a soft interrupt".into()),
            (Self::Device, None) => "the interrupt of a device".into(),
            (Self::Device, Some(irq)) => match name {
                Some(name) => format!("interrupt {irq} ({name})"),
                None => format!("interrupt {irq}"),
            },
            (Self::Timer, _) => "the timer".into(),
            (Self::Processor, _) => "calls by other CPUs (CAL)".into(),
        }
    }
}

/// In what an interrupt was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptContext {
    /// It interrupted the thread that held the CPU.
    Interrupts,
    /// That thread asked for it: it was served at the end of a call of its own, or it is the kernel's thread that serves
    /// soft interrupts.
    OwnCall,
    /// Which of both is not known.
    NotKnown,
}

/// Interrupts of one kind on one CPU, while threads of one process held it (BPF probe of interrupts), in one second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// The process; [`ProcId::OTHERS`] = the CPU was idle, or it took little from each of several.
    pub proc: ProcId,
    /// Number of the CPU.
    pub cpu: u32,
    /// What interrupts.
    pub kind: InterruptKind,
    /// Number of a device's interrupt, as in `/proc/interrupts`.
    pub irq: Option<u32>,
    /// The vector of a soft interrupt as in `/proc/softirqs`, the names of a device's handlers, the row of a processor's in
    /// `/proc/interrupts`: `CAL` (another CPU has this one call a function); empty = not known.
    pub name: String,
    /// In what it was served.
    pub context: InterruptContext,
    /// Time that it took. Hard interrupts that came during a soft one are not in that of the soft one.
    pub ns: u64,
    /// How many.
    pub count: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Times at which the one before, of the same kind for the same process, had ended a millisecond or more ago.
    pub bursts: u64,
}

observed! { it: InterruptTick over t0_ns..t1_ns, from Source::Interrupts; to [it.proc] }
