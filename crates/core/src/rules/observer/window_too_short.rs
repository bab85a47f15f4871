// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OBS002: the window is too short for the conclusions that one would like to draw.

use crate::finding::{Area, Confirm, Cost, Entity, EntityKind, Finding, Question, Severity, Unit};
use crate::recording::{Source, TargetSpec};
use crate::rules::words::{evidence, group_name};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
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
    area: Area::Observer,
    question: Question::Observer,
    name: "window-too-short",
    summary: "too little was observed for what one would like to conclude",
    any_of: &[],
    helps: &[],
    limits: &[&[MIN_WINDOW, MIN_WAITS]],
    status: Status::Preview("0.1"),
    doc: include_str!("window_too_short.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let window_s = view.window_ns() as f64 / 1e9;
    if window_s <= 0.0 {
        return Verdict::NoData {
            missing: vec!["the recording holds nothing but its start".into()],
        };
    }
    // Few waits matter only where they cost something: an idle target has few, and that is fine.
    let groups = view.groups();
    let loser = super::losers(view, &groups, Usage::contended_ns).into_iter().next();
    let waits = loser.map(|(group, usage)| (group_name(group), usage.waits.total_count()));
    let few = waits.as_ref().filter(|(_, waits)| (*waits as f64) < MIN_WAITS.value);
    let window = units::duration(window_s * 1e9);
    if window_s >= MIN_WINDOW.value && few.is_none() {
        let closest = match &waits {
            Some((name, waits)) => {
                format!("{window} observed, {} of {name}", units::counted(*waits, "wait", "waits"))
            }
            None => format!("{window} observed"),
        };
        return Verdict::Quiet { closest };
    }
    let title = match few {
        Some((name, waits)) if window_s >= MIN_WINDOW.value => format!(
            "{name} loses time in only {}: too few for percentiles",
            units::counted(*waits, "wait", "waits")
        ),
        _ => format!("the window of {window} is too short to tell a state from a moment"),
    };
    let mut lines = vec![evidence(view, "window", window_s * 1e9, Unit::Ns, "deburr", None)];
    if let Some((name, waits)) = waits {
        let note = format!("of {name}, whose loss is the biggest above the limits");
        lines.push(evidence(view, "waits", waits as f64, Unit::Count, Source::Sched.label(), note));
    }
    Verdict::Fired(vec![Finding {
        title,
        victim: Entity::new(EntityKind::Observer),
        cost: Cost::default(),
        evidence: lines,
        confirm: Some(Confirm {
            command: again(view),
            expect: Some("the same findings with a higher confidence".into()),
        }),
        ..RULE.finding(Severity::Info, 1.0)
    }])
}

/// The command for a longer recording of the same target.
fn again(view: &View) -> String {
    use crate::text::shell_quote;
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
