// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conclusions of a sweep in sentences, and notes on their limitations.

use super::knee::{P99_FACTOR, P99_FLOOR_NS, accepted_ns};
use super::points::cpu_per_request_ns;
use super::{Knee, KneeReason, Point, Run, Setup};
use crate::stats::{Interval, ratio};
use crate::text::ticked;
use crate::text::units::{duration, share};

/// The conclusions, one sentence each.
pub(super) fn verdict(
    setup: &Setup,
    runs: &[Run],
    points: &[Point],
    knees: &[Knee],
) -> Vec<String> {
    let mut said: Vec<String> = knees.iter().map(|knee| keeps_up(setup, points, knee)).collect();
    if setup.variants.len() < 2 {
        return said;
    }
    if setup.is_of_command() {
        said.extend(against_best(setup, runs, points, None, best_of_command(points)));
        return said;
    }
    for rate in telling_rates(points, knees) {
        said.extend(against_best(setup, runs, points, Some(rate), best(knees)));
    }
    said
}

/// Sentence about the knee of one variant.
fn keeps_up(setup: &Setup, points: &[Point], knee: &Knee) -> String {
    let name = ticked(&setup.variants[knee.variant].name);
    let up_to = match (knee.good_per_s, knee.bad_per_s.or(knee.unknown_per_s)) {
        (Some(good), Some(_)) => format!("{name} keeps up with {}/s", rate_text(good)),
        (Some(good), None) => {
            return format!(
                "{name} keeps up with every rate asked for, up to {}/s",
                rate_text(good)
            );
        }
        (None, Some(unknown)) if knee.bad_per_s.is_none() => {
            return format!(
                "it is not known what {name} keeps up with: the generator did not reach even {}/s",
                rate_text(unknown)
            );
        }
        (None, _) => format!("{name} keeps up with no rate asked for"),
    };
    let Some(bad) = knee.bad_per_s else {
        let unknown = knee.unknown_per_s.map_or(String::new(), rate_text);
        return format!("{up_to}; {unknown}/s cannot be judged: the generator did not reach it");
    };
    let at_bad = |point: &&Point| point.variant == knee.variant && point.rate_per_s == Some(bad);
    let Some(point) = points.iter().find(at_bad) else { return up_to };
    let why = match knee.reason {
        Some(KneeReason::Behind) => {
            let answered = point.answered_per_s.map_or(0.0, |it| it.value);
            format!("it answers {}", share((answered / bad).min(1.0)))
        }
        Some(KneeReason::Failures) => format!("it fails {}", share(point.failed_share)),
        _ => {
            // With too few answers for a 99th percentile, it is the mean that is above the limit.
            let (of, latency) = match (point.p99_ns, point.mean_ns) {
                (Some(p99), _) => ("p99", p99.value),
                (None, mean) => ("mean latency", mean.map_or(f64::NAN, |it| it.value)),
            };
            let more = if point.at_least { "more than " } else { "" };
            format!("its {of} is {more}{}", duration(latency))
        }
    };
    let throttled = point.throttled_share.filter(|it| it.value > 0.0).map_or(String::new(), |it| {
        format!(", throttled in {} of the periods", share(it.value.min(1.0)))
    });
    format!("{up_to}; at {}/s {why}{throttled}", rate_text(bad))
}

/// The variant with the highest sustained rate; the first of equal ones.
fn best(knees: &[Knee]) -> Option<usize> {
    let mut best: Option<&Knee> = None;
    for knee in knees {
        if best.is_none_or(|it| knee.good_per_s > it.good_per_s) {
            best = Some(knee);
        }
    }
    best.map(|knee| knee.variant)
}

fn best_of_command(points: &[Point]) -> Option<usize> {
    let wall = |point: &Point| point.wall_ns.map_or(f64::INFINITY, |it| it.value);
    points.iter().min_by(|a, b| wall(a).total_cmp(&wall(b))).map(|point| point.variant)
}

/// Rates at which variants are compared: the lowest and the highest rate with which one variant keeps up and another
/// does not. If there is none, the highest rate.
fn telling_rates(points: &[Point], knees: &[Knee]) -> Vec<f64> {
    let highest_good = knees.iter().filter_map(|knee| knee.good_per_s).max_by(f64::total_cmp);
    let lowest_bad = knees.iter().filter_map(|knee| knee.bad_per_s).min_by(f64::total_cmp);
    match (highest_good, lowest_bad) {
        (Some(good), Some(bad)) if bad < good => vec![bad, good],
        (Some(good), Some(bad)) if bad == good => vec![bad],
        _ => {
            let rates = points.iter().filter_map(|point| point.rate_per_s);
            rates.max_by(f64::total_cmp).into_iter().collect()
        }
    }
}

/// A quantity by which variants are compared: its name, and its value for a run.
type Quantity<'a> = (&'a str, &'a dyn Fn(&Run) -> Option<f64>);

/// Sentences that compare every other variant with the best one, at one rate.
fn against_best(
    setup: &Setup,
    runs: &[Run],
    points: &[Point],
    rate: Option<f64>,
    best: Option<usize>,
) -> Vec<String> {
    let Some(best) = best else { return Vec::new() };
    let p99 = |run: &Run| run.latency?.p99_ns.map(|ns| ns as f64);
    let mean = |run: &Run| run.latency.map(|it| it.mean_ns);
    let wall = |run: &Run| Some(run.window_ns as f64);
    let cpu = |run: &Run| Some(run.cpu_ns as f64);
    let of_requests: [Quantity<'_>; 3] = [
        ("p99", &p99),
        ("mean latency", &mean),
        ("CPU time for each request", &cpu_per_request_ns),
    ];
    let of_command: [Quantity<'_>; 2] = [("wall time", &wall), ("CPU time", &cpu)];
    let quantities: &[Quantity<'_>] = if rate.is_some() { &of_requests } else { &of_command };
    let name = |variant: usize| ticked(&setup.variants[variant].name);
    let at = rate.map_or(String::new(), |rate| format!("at {}/s ", rate_text(rate)));
    let mut said = Vec::new();
    for point in points.iter().filter(|point| point.rate_per_s == rate && point.variant != best) {
        let mut parts = Vec::new();
        for (what, of) in quantities {
            let pairs = pairs(runs, rate, (best, point.variant), of);
            if let Some(factor) = ratio(&pairs).filter(Interval::differs_from_one) {
                parts.push(format!("{what} {}", times(&factor)));
            }
        }
        let against = format!("{at}{} against {}", name(point.variant), name(best));
        said.push(if parts.is_empty() {
            format!("{against}: no difference that chance does not make as well")
        } else {
            format!("{against}: {}", parts.join(", "))
        });
    }
    said
}

/// Values of two variants, paired by repetition.
fn pairs(
    runs: &[Run],
    rate: Option<f64>,
    (first, second): (usize, usize),
    of: &dyn Fn(&Run) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let of_variant = |variant: usize| {
        runs.iter().filter(move |run| run.variant == variant && run.rate_per_s == rate)
    };
    of_variant(first)
        .filter_map(|run| {
            let other = of_variant(second).find(|other| other.repetition == run.repetition)?;
            Some((of(run)?, of(other)?))
        })
        .collect()
}

/// `x 1.4 (1.3 to 1.5)`.
fn times(factor: &Interval) -> String {
    let (Some(low), Some(high)) = (factor.low, factor.high) else {
        return format!("x {}", factor_text(factor.value));
    };
    format!("x {} ({} to {})", factor_text(factor.value), factor_text(low), factor_text(high))
}

fn factor_text(factor: f64) -> String {
    match factor {
        ..0.95 => format!("{factor:.2}"),
        0.95..9.95 => format!("{factor:.1}"),
        _ => format!("{factor:.0}"),
    }
}

/// Limitations that a reader must know to judge the conclusions.
pub(super) fn notes(
    setup: &Setup,
    runs: &[Run],
    points: &[Point],
    interrupted: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    if interrupted {
        notes.push(match runs {
            [] => "it ended before a run was complete: nothing was measured".to_owned(),
            _ => "it was interrupted: not all runs were made".to_owned(),
        });
    }
    let answered =
        |run: &Run| run.requests.as_ref().is_some_and(|it| it.answered + it.answered_in_window > 0);
    if !setup.is_of_command() && !runs.is_empty() && !runs.iter().any(answered) {
        notes.push(
            "not one request was answered: see whether the service speaks this protocol at all"
                .into(),
        );
    }
    if !setup.is_of_command()
        && let Some(accepted_ns) = accepted_ns(setup, points)
    {
        let whence = match setup.accepted_p99_ns {
            Some(_) => "as asked for".to_owned(),
            None => format!(
                "{P99_FACTOR} times the lowest one of all, but not below {}; --accept sets another",
                duration(P99_FLOOR_NS)
            ),
        };
        notes.push(format!(
            "keeps up = at least 95 % of the requests answered in time, at most 1 % failed, p99 up to {} \
             ({whence})",
            duration(accepted_ns)
        ));
    }
    let late: Vec<String> = points
        .iter()
        .filter(|point| point.generator_late)
        .map(|point| {
            let name = ticked(&setup.variants[point.variant].name);
            format!("{} {}/s", name, point.rate_per_s.map_or(String::new(), rate_text))
        })
        .collect();
    if !late.is_empty() {
        notes.push(format!(
            "the load generator itself did not keep up, so latencies are partly its own (marked ~): {}",
            late.join(", ")
        ));
    }
    if points.iter().any(|point| point.at_least) {
        notes.push(
            "> = requests had no answer yet when waiting for them ended: the truth is more".into(),
        );
    }
    let exhausted = |run: &&Run| run.requests.as_ref().is_some_and(|it| it.connections_exhausted);
    let exhausted = runs.iter().filter(exhausted).count();
    if exhausted > 0 {
        notes.push(format!(
            "in {exhausted} of {} runs requests waited for one of {} connections, which is in their latency: \
             --connections allows more",
            runs.len(),
            setup.max_connections.unwrap_or_default()
        ));
    }
    if setup.repetitions < 2 {
        notes.push("one repetition has no confidence interval: --reps 3 or more gives one".into());
    }
    notes
}

/// A rate with up to three decimals.
pub(crate) fn rate_text(rate: f64) -> String {
    let text = format!("{rate:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
