// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OBS001: the observer lost some of the events that it should have seen.

use super::losses;
use crate::finding::{Area, Cost, Entity, EntityKind, Evidence, Finding, Question, Severity, Unit};
use crate::recording::{EventKind, ObserverTick, Source};
use crate::rules::words::evidence;
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{Usage, View};

const MIN_SHARE: Limit = Limit {
    name: "min_share",
    value: 0.01,
    unit: "of what there was to see",
    why: "less than a hundredth changes no conclusion: shares are told to a whole percent",
};
const MIN_EVENTS: Limit = Limit {
    name: "min_events",
    value: 10.0,
    unit: "events of a kind of which it is known how many there were",
    why: "a few requests of an idle host are a large share of next to nothing",
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
    question: Question::Observer,
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

/// An amount that was lost.
struct Lost<'a> {
    name: &'a str,
    amount: u64,
    /// Its share of what there was to see, 0..1, if that is known.
    share: Option<f64>,
}

impl Lost<'_> {
    fn unit(&self) -> Unit {
        ObserverTick::unit_of(self.name)
    }

    /// Whether so few events were lost that their share has no meaning.
    fn is_few(&self) -> bool {
        self.share.is_some()
            && self.unit() == Unit::Count
            && (self.amount as f64) < MIN_EVENTS.value
    }

    fn amount_text(&self) -> String {
        let amount = match self.unit() {
            Unit::Count => units::counted(self.amount, "event", "events"),
            unit => units::value(self.amount as f64, unit),
        };
        format!("{amount} (`{}`)", self.name)
    }

    fn part(&self) -> String {
        match self.share {
            Some(share) => {
                format!("{} of {}", units::share(share), losses::whole(self.name).words())
            }
            None => "of an unknown number".into(),
        }
    }

    fn line(&self, view: &View) -> Evidence {
        let meaning = losses::meaning(self.name).unwrap_or("not known to this version of deburr");
        let note = format!("{}; {meaning}", self.part());
        evidence(view, self.name, self.amount as f64, self.unit(), Source::Observer.label(), note)
    }
}

fn check(view: &View) -> Verdict {
    let lost: Vec<Lost<'_>> = losses::of_events(view)
        .filter(|&(_, amount)| amount > 0)
        .map(|(name, amount)| Lost { name, amount, share: losses::share(view, name, amount) })
        .collect();
    let late_ns = late_ns(view);
    let late_share = late_ns as f64 / (view.window_ns().max(1)) as f64;
    // A loss without anything to compare it with always counts.
    let by_share =
        |a: &&Lost<'_>, b: &&Lost<'_>| a.share.unwrap_or(1.0).total_cmp(&b.share.unwrap_or(1.0));
    let worst = lost.iter().filter(|lost| !lost.is_few()).max_by(by_share);
    let worst_share = worst.map_or(0.0, |worst| worst.share.unwrap_or(MIN_SHARE.value));
    if worst_share < MIN_SHARE.value && late_share < LATE_SHARE.value {
        let closest = match lost.iter().max_by(by_share) {
            Some(most) => format!("the most was {}: {}", most.amount_text(), most.part()),
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
        Some(worst) if worst_share >= MIN_SHARE.value => {
            format!("the observer lost {}, {}", worst.amount_text(), worst.part())
        }
        _ => format!(
            "the observer was late by {} in total, {} of the window",
            units::duration(late_ns as f64),
            units::share(late_share)
        ),
    };
    let mut lines: Vec<Evidence> = lost.iter().map(|lost| lost.line(view)).collect();
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

/// The time for which the observer was late: that of the beats that it missed, or of its late ticks in recordings from
/// before those were counted.
fn late_ns(view: &View) -> u64 {
    let by_events = view.events().iter().map(|event| match event.kind {
        EventKind::LateTick { by_ns } => by_ns,
        _ => 0,
    });
    let missed = view.observer().lost.get(ObserverTick::BEATS_MISSED).copied().unwrap_or(0);
    by_events.sum::<u64>().max(missed.saturating_mul(ObserverTick::BEAT_NS))
}

#[cfg(test)]
mod tests {
    use super::Lost;

    #[test]
    fn one_event_of_an_idle_host_is_no_share() {
        let is_few = |name, amount, share| Lost { name, amount, share }.is_few();
        assert!(is_few("block_start_unseen", 9, Some(0.09)));
        assert!(!is_few("block_start_unseen", 10, Some(0.1)));
        assert!(!is_few("block_start_unseen", 1, None), "of what, is not known");
        assert!(!is_few("blame_table_full_ns", 2, Some(0.02)), "times are no events");
    }
}
