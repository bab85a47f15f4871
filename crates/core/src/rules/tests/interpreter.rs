// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for the lock of an interpreter.

use super::judged;
use super::waiting::{behind, service, slept, timer};
use crate::finding::{Finding, Report, SleepKind};
use crate::recording::{Did, FutexUser, Slept, SleptOn, WokenBy};
use crate::testkit::S;

/// A timer ends each piece of the wait but the last.
fn waits(user: Option<FutexUser>) -> Slept {
    let on = SleptOn::Futex { address: 0x1000, value: 0, op: 9, user };
    Slept { woken: WokenBy::Timer, ..slept("futex", on) }
}

fn report(user: Option<FutexUser>, holder: &Did) -> Report {
    judged(&service(|api, _| vec![(waits(user), behind(api, "python3", holder.clone()), 20 * S)]))
}

fn found(report: &Report) -> Option<&Finding> {
    report.findings.iter().find(|it| it.code == "OFF001")
}

#[test]
fn who_waits_for_the_lock_of_an_interpreter_is_told_of_more_processes_or_of_letting_go() {
    let naps = Did::Slept(timer());
    for (holder, does, advice) in [
        (Did::OnCpu, "while it computes", "more workers with fewer threads"),
        (naps, "while it sleeps", "Py_BEGIN_ALLOW_THREADS"),
        (Did::Queued, "while it waits for a CPU", "let the thread that holds the lock get a CPU"),
    ] {
        let report = report(Some(FutexUser::Interpreter), &holder);
        let it = found(&report).expect("a lock is waited for");
        let holds = "the interpreter's lock (GIL), which another of its threads holds";
        assert!(it.title.contains(&format!("{holds} {does}")), "{}", it.title);
        assert!(it.fix[0].action.contains(advice), "{:?}", it.fix);
        let locks = it.evidence.iter().find(|line| line.name == "locks").unwrap();
        assert_eq!(locks.note.as_deref(), Some("100 % of it for the interpreter's"));
    }
}

/// The decoy: the same call at a condition, as of a worker that looks now and then whether it is to end.
#[test]
fn who_waits_at_a_condition_with_a_limit_waits_for_no_lock() {
    let report = report(None, &Did::OnCpu);
    assert!(found(&report).is_none());
    let told = report.ledger[0].asleep.iter().find(|it| it.on.is_some()).unwrap();
    assert_eq!((told.kind, told.ns), (SleepKind::OwnTimer, 20 * S));
}
