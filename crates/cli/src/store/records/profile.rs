// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of a profile.

use crate::store::table::{OnDemand, Presence, tables};
use deburr_core::recording::{ProfileRecord, ProfileSpan, ProfileStack, Record, SleepStack};

fn whole(record: ProfileRecord) -> Record {
    Record::Profile(Box::new(record))
}

tables! {
    ProfileRecord in whole, since 2, Presence::OnDemand(OnDemand::Profile);

    /// How CPUs were sampled. This table and the next two exist only in recordings that were made with `--profile`.
    "profile_span" => Span(ProfileSpan) {
        /// start
        t0_ns,
        /// end
        t1_ns,
        /// CPU time that a sample stands for
        period_ns,
        /// samples of all processes
        samples,
        /// samples that were lost
        lost,
    }
    /// A stack of a process, and how often it was found. `SELECT stack || ' ' || samples FROM profile_stack` is what
    /// programs that draw flame graphs read.
    "profile_stack" => Stack(ProfileStack) {
        /// start
        t0_ns,
        /// end
        t1_ns,
        /// the process
        process = "proc",
        /// functions from the outermost to the innermost, separated by `;`: those of the kernel end in `_[k]`, and where
        /// a name is not known, the file is named in brackets; empty = stacks for which there was no room
        stack,
        /// how often
        samples,
    }
    /// In what functions threads of the target go to sleep, or in what functions those are that wake them.
    "sleep_stack" => Sleep(SleepStack) {
        /// start
        t0_ns,
        /// end
        t1_ns,
        /// the process that sleeps
        process = "proc",
        /// in which call, as in `sleep`
        call,
        /// the word that it sleeps for, if the call is `futex`
        address,
        /// process whose thread ends the sleep, if the stack is that thread's
        waker,
        /// as in `profile_stack`; functions of the kernel are in it only where a sleep is uninterruptible, outside of a
        /// system call, or in `ioctl`
        stack,
        /// sleeps that were looked at
        samples,
        /// sleep that they stand for, an estimate
        ns,
    }
}
