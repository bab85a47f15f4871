// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OBS002: the window is too short for what one would like to conclude from it.

use crate::finding::{Confirm, Cost, Entity, EntityKind, Finding, Severity, Unit};
use crate::recording::TargetSpec;
use crate::render::units;
use crate::rules::words::evidence;
use crate::rules::{Limit, Rule, Status, Verdict};
use crate::view::{Usage, View};

const MIN_WINDOW: Limit = Limit {
    name: "min_window",
    value: 5.0,
    unit: "s",
    why: "a cron job, a flush or a collection of garbage may fill or miss less",
};
const MIN_WAITS: Limit = Limit {
    name: "min_waits",
    value: 100.0,
    unit: "waits",
    why: "a 99th percentile needs as many",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OBS002",
    name: "window-too-short",
    summary: "too little was observed for what one would like to conclude",
    needs: &[],
    helps: &[],
    limits: &[MIN_WINDOW, MIN_WAITS],
    status: Status::Preview("0.1"),
    doc: include_str!("window_too_short.md"),
    file: file!(),
    check,
};

fn check(view: &View) -> Verdict {
    let window_s = view.window_ns() as f64 / 1e9;
    if window_s <= 0.0 {
        return Verdict::NoData {
            missing: vec!["the recording holds nothing but its start".into()],
        };
    }
    // Few waits matter only where they cost something: an idle target has few and that is fine.
    let waits = super::waits_of_losers(view, Usage::contended_ns).into_iter().min();
    let few = waits.filter(|&waits| (waits as f64) < MIN_WAITS.value);
    if window_s >= MIN_WINDOW.value && few.is_none() {
        let waits = match waits {
            Some(waits) => format!(", {}", units::counted(waits, "wait", "waits")),
            None => String::new(),
        };
        return Verdict::Quiet {
            closest: format!("{} observed{waits}", units::duration(window_s * 1e9)),
        };
    }
    let title = match few {
        Some(waits) if window_s >= MIN_WINDOW.value => format!(
            "only {} of the target that loses time: no percentiles",
            units::counted(waits, "wait", "waits")
        ),
        _ => format!(
            "the window of {} is too short to tell a state from a moment",
            units::duration(window_s * 1e9)
        ),
    };
    let mut lines = vec![evidence(view, "window", window_s * 1e9, Unit::Ns, "deburr", None)];
    if let Some(waits) = waits {
        let note = "of the processes whose loss is above the limits".to_owned();
        lines.push(evidence(view, "waits", waits as f64, Unit::Count, "bpf:sched", note));
    }
    Verdict::Fired(vec![Finding {
        code: RULE.code.into(),
        name: RULE.name.into(),
        severity: Severity::Info,
        confidence: 1.0,
        title,
        victim: Entity::new(EntityKind::Observer),
        cost: Cost::default(),
        causes: vec![],
        evidence: lines,
        sizes: vec![],
        fix: vec![],
        confirm: Some(Confirm {
            command: again(view),
            expect: Some("the same findings with a higher confidence".into()),
        }),
    }])
}

/// The same look at the same target, longer.
fn again(view: &View) -> String {
    use crate::finding::shell_quote;
    match view.meta().map(|meta| &meta.target) {
        Some(TargetSpec::Process { pid, .. }) => format!("deburr -p {pid} -d 30"),
        Some(TargetSpec::Comm { comm }) => format!("deburr --comm={} -d 30", shell_quote(comm)),
        Some(TargetSpec::Cgroup { path }) => format!("deburr --cgroup={} -d 30", shell_quote(path)),
        Some(TargetSpec::Container { container, .. }) => {
            format!("deburr --container={} -d 30", shell_quote(&container.id))
        }
        Some(TargetSpec::Host | TargetSpec::Command { .. }) | None => "deburr -d 30".into(),
    }
}
