// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF007: threads wait for a lock of a file.

use super::waits::{self, For, Waits};
use crate::finding::{Area, Finding, Fix, Question, Severity};
use crate::recording::{SleptOn, Source};
use crate::rules::asleep::kind::is_file_lock;
use crate::rules::asleep::words as sleep_words;
use crate::rules::words::{self, group_name};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::view::View;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF007",
    area: Area::Waiting,
    question: Question::Others,
    name: "file-lock",
    summary: "threads wait for a lock of a file",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("file_lock.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    waits::verdict(
        view,
        |(_, key, _)| is_file_lock(&key.slept),
        (For::Turn, "for locks of files"),
        finding,
    )
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let behind = waits.behind(view);
    let most = waits.sleeps.iter().max_by_key(|(.., ns)| *ns);
    let on = most.and_then(|(_, key, _)| sleep_words::on(view, &key.slept.call, &key.slept.on));
    let file = format!("a lock of {}", on.as_deref().unwrap_or("a file"));
    let holder = behind.whom.as_ref().map(|whom| format!(" that {whom} holds")).unwrap_or_default();
    let finding = waits.finding(view, (&RULE, severity), ("file lock", &behind));
    Finding {
        title: format!(
            "{} {} {} for {file}{holder}",
            group_name(waits.group),
            words::verb(waits.group, "waits", "wait"),
            words::of_every_second(waits.ns_per_s)
        ),
        fix: vec![Fix {
            action: "hold the lock only while the file is changed, lock a range instead of the file (`F_OFD_SETLK`), or \
                     give each process a file of its own"
                .into(),
            command: most.and_then(|(_, key, _)| match &key.slept.on {
                SleptOn::File { inode, .. } => Some(format!("grep ':{inode} ' /proc/locks")),
                _ => None,
            }),
            risk: Some("what the lock protects must still not be written by two at a time".into()),
            expect: None,
        }],
        confirm: Some(waits.look_again(view,
            "after the change, the waiting for locks of files falls".into(),
        )),
        ..finding
    }
}
