// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OBS001: the observer lost some of the events that it should have seen.

use super::losses;
use crate::finding::{Area, Cost, Entity, EntityKind, Evidence, Finding, Severity, Unit};
use crate::recording::{EventKind, Source};
use crate::rules::words::evidence;
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{Usage, View};

const MIN_SHARE: Limit = Limit {
    name: "min_share",
    value: 0.001,
    unit: "of what there was to see",
    why: "a thousandth changes no conclusion",
};
const MIN_EVENTS: Limit = Limit {
    name: "min_events",
    value: 3.0,
    unit: "events of a kind of which it is known how many there were",
    why: "one or two requests of an idle host are a large share of next to nothing",
};
const DANGER_SHARE: Limit = Limit {
    name: "danger_share",
    value: 0.05,
    unit: "of what there was to see",
    why: "shares of causes may be wrong by as much",
};
const LATE_SHARE: Limit = Limit {
    name: "late_share",
    value: 0.10,
    unit: "of the window in which the observer itself was late",
    why: "per-second figures are then spread over the wrong seconds",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OBS001",
    area: Area::Observer,
    name: "events-lost",
    summary: "the observer lost some of what it should have seen",
    any_of: &[Source::Observer],
    helps: &[Source::Sched],
    limits: &[&[MIN_SHARE, MIN_EVENTS, DANGER_SHARE, LATE_SHARE]],
    status: Status::Preview("0.1"),
    doc: include_str!("events_lost.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// A loss: its name, its amount, and its share of what there was to see, if that is known.
type LossLine<'a> = (&'a str, u64, Option<f64>);

/// Whether so few events were lost that their share has no meaning.
fn is_few(&(name, amount, share): &LossLine<'_>) -> bool {
    share.is_some() && !name.ends_with("_ns") && (amount as f64) < MIN_EVENTS.value
}

fn check(view: &View) -> Verdict {
    let lost: Vec<LossLine<'_>> = losses::all(view)
        .filter(|&(_, amount)| amount > 0)
        .map(|(name, amount)| (name, amount, losses::share(view, name, amount)))
        .collect();
    let late_ns: u64 = view
        .events()
        .iter()
        .map(|event| match event.kind {
            EventKind::LateTick { by_ns } => by_ns,
            _ => 0,
        })
        .sum();
    let late_share = late_ns as f64 / (view.window_ns().max(1)) as f64;
    // A loss without anything to compare it with always counts.
    let by_share =
        |a: &&LossLine<'_>, b: &&LossLine<'_>| a.2.unwrap_or(1.0).total_cmp(&b.2.unwrap_or(1.0));
    let worst = lost.iter().filter(|lost| !is_few(lost)).max_by(by_share);
    let worst_share = worst.map_or(0.0, |worst| worst.2.unwrap_or(MIN_SHARE.value));
    if worst_share < MIN_SHARE.value && late_share < LATE_SHARE.value {
        let closest = match lost.iter().max_by(by_share) {
            Some((name, amount, share)) => {
                format!("the most was {}: {}", amount_text(name, *amount), part(*share, name))
            }
            None => "nothing was lost".into(),
        };
        return Verdict::Quiet { closest };
    }
    // Where no group loses time above the limits, no conclusion is in danger.
    let lost_ns = |usage: &Usage| usage.contended_ns() + usage.states.throttled_ns;
    let danger = worst_share >= DANGER_SHARE.value
        && !super::losers(view, &view.groups(), lost_ns).is_empty();
    let severity = if danger { Severity::Low } else { Severity::Info };
    let title = match worst {
        Some((name, amount, share)) if worst_share >= MIN_SHARE.value => {
            format!("the observer lost {}, {}", amount_text(name, *amount), part(*share, name))
        }
        _ => format!(
            "the observer was late by {} in total, {} of the window",
            units::duration(late_ns as f64),
            units::share(late_share)
        ),
    };
    let mut lines: Vec<Evidence> =
        lost.iter().map(|(name, amount, share)| line(view, name, *amount, *share)).collect();
    if late_ns > 0 {
        let note = "the observer waited for a CPU itself".to_owned();
        lines.push(evidence(view, "observer late", late_ns as f64, Unit::Ns, "observer", note));
    }
    Verdict::Fired(vec![Finding {
        title,
        victim: Entity::new(EntityKind::Observer),
        cost: Cost { share: worst_share.max(late_share).min(1.0), ..Cost::default() },
        evidence: lines,
        fix: super::narrower(view),
        ..RULE.finding(severity, 1.0)
    }])
}

fn amount_text(name: &str, amount: u64) -> String {
    if name.ends_with("_ns") {
        format!("{} (`{name}`)", units::duration(amount as f64))
    } else {
        format!("{} (`{name}`)", units::counted(amount, "event", "events"))
    }
}

fn part(share: Option<f64>, name: &str) -> String {
    let whole = losses::whole(name);
    match share {
        Some(share) => format!("{} of {whole}", units::share(share)),
        None => "of an unknown number".into(),
    }
}

fn line(view: &View, name: &str, amount: u64, share: Option<f64>) -> Evidence {
    let unit = if name.ends_with("_ns") { Unit::Ns } else { Unit::Count };
    let meaning = losses::meaning(name).unwrap_or("not known to this version of deburr");
    let note = format!("{}; {meaning}", part(share, name));
    evidence(view, name, amount as f64, unit, Source::Observer.label(), note)
}

#[cfg(test)]
mod tests {
    use super::is_few;

    #[test]
    fn one_event_of_an_idle_host_is_no_share() {
        assert!(is_few(&("block_start_unseen", 2, Some(0.02))));
        assert!(!is_few(&("block_start_unseen", 3, Some(0.03))));
        assert!(!is_few(&("block_start_unseen", 1, None)), "of what, is not known");
        assert!(!is_few(&("blame_table_full_ns", 2, Some(0.02))), "times are no events");
    }
}
