// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a connection holds back what is to be sent for long enough to matter, and what to do about it.

use crate::finding::{Fix, Severity};
use crate::recording::ProcId;
use crate::rules::Limit;
use crate::view::{HeldBack, NetKey, View};

const LEAST_LOOKS: Limit = Limit {
    name: "least_looks",
    value: 5.0,
    unit: "looks at which something was held back",
    why: "a look stands for a tenth of a second and more: fewer may be one message at a bad time",
};
const LOW_HELD: Limit = Limit {
    name: "low_held",
    value: 20.0,
    unit: "ms of each second",
    why: "as for other connections that are held up",
};
const MEDIUM_HELD: Limit = Limit {
    name: "medium_held",
    value: 50.0,
    unit: "ms of each second",
    why: "a twentieth of the time of a connection",
};
const HIGH_HELD: Limit = Limit {
    name: "high_held",
    value: 100.0,
    unit: "ms of each second",
    why: "as for any other loss of time that is high",
};

pub(super) const LIMITS: [Limit; 4] = [LEAST_LOOKS, LOW_HELD, MEDIUM_HELD, HIGH_HELD];

/// For how long connections of a process to that address held back what was asked there, of those that NET007 tells, and how much of that
/// as the program asked for it.
pub(in crate::rules) fn told_ns(view: &View, proc: ProcId, remote: &str) -> (u64, u64) {
    let own = |key: &NetKey| key.proc == Some(proc) && key.remote == remote;
    let all = view.net().held_back().iter().filter(|(key, _)| own(key));
    let told = all.filter(|(_, it)| severity_of(view, it).is_some());
    told.fold((0, 0), |(sum, corked): (u64, u64), (_, it)| {
        let ns = it.sum.held_ns;
        (sum.saturating_add(ns), corked.saturating_add(if is_corked(it) { ns } else { 0 }))
    })
}

/// What is corked may not be complete yet, as a file that comes from a disk.
pub(super) fn severity_of(view: &View, it: &HeldBack) -> Option<Severity> {
    if (it.sum.held_looks as f64) < LEAST_LOOKS.value {
        return None;
    }
    let ms = view.per_second(it.sum.held_ns) as f64 / 1e6;
    let levels =
        [(HIGH_HELD, Severity::High), (MEDIUM_HELD, Severity::Medium), (LOW_HELD, Severity::Low)];
    let (_, severity) = levels.iter().find(|(limit, _)| ms >= limit.value)?;
    Some(if is_corked(it) { (*severity).min(Severity::Medium) } else { *severity })
}

/// Whether the program asked for it most of the time.
pub(super) fn is_corked(it: &HeldBack) -> bool {
    2 * it.sum.corked_looks > it.sum.held_looks
}

pub(in crate::rules) fn fixes(is_corked: bool) -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let whole = fix(
        "hand over each message in one call: a buffer that is written out when the message is complete, or `writev`",
        "none",
    );
    let other = match is_corked {
        true => fix("take the cork off when the message is complete: `TCP_CORK` set to 0", "none"),
        false => fix(
            "set `TCP_NODELAY` on the connection, or the option of that name of the library that makes it",
            "a program that goes on to send small pieces sends as many small packets",
        ),
    };
    match is_corked {
        true => vec![other, whole],
        false => vec![whole, other],
    }
}
