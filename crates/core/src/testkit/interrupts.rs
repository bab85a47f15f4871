// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of a scene.

use super::{S, Scene};
use crate::recording::{
    Coverage, InterruptContext, InterruptKind, InterruptTick, ProcId, Record, Source, State,
};

/// Soft interrupts that receive packets, on CPU 1, in the window of a scene of 10 s: so much time in so many of them, which
/// interrupted the process.
#[must_use]
pub fn interrupts(proc: ProcId, ns: u64, count: u64) -> InterruptTick {
    InterruptTick {
        t0_ns: 0,
        t1_ns: 10 * S,
        proc,
        cpu: 1,
        kind: InterruptKind::Soft,
        irq: None,
        name: "NET_RX".into(),
        context: InterruptContext::Interrupts,
        ns,
        count,
        longest_ns: (2 * ns / count.max(1)).min(ns),
        bursts: count.min(1000),
    }
}

impl Scene {
    /// The probe of interrupts sees everything.
    pub fn sees_interrupts(&mut self) -> &mut Self {
        let (source, state) = (Source::Interrupts, State::Active);
        self.push(Record::Coverage(Coverage { t_ns: 0, source, state }))
    }

    /// Adds interrupts.
    pub fn interrupts(&mut self, tick: InterruptTick) -> &mut Self {
        self.push(Record::Interrupts(Box::new(tick)))
    }
}
