// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do events fall inside certain spans of time more often than by chance?

use super::{Span, merge, tail};

/// Fewer episodes do not support a claim, whatever the p-value.
pub const MIN_EPISODES: u64 = 3;
/// Events with less time between them count as one episode: many threads that wait for one disk are one episode.
const EPISODE_GAP_NS: u64 = 500_000_000;
/// [`heaviest`] selects the longest events that together have this share of the total time ...
const HEAVY_SHARE: f64 = 0.7;
/// ... but at least this number of events.
const MIN_HEAVY: usize = 5;

/// How events and spans coincide.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coincidence {
    /// Number of episodes: events, with those close together counted once.
    pub episodes: u64,
    /// Number of episodes that touch a span.
    pub inside: u64,
    /// Share of the window that the spans cover, 0..1.
    pub cover: f64,
    /// Probability of at least that many episodes inside by chance, if events were uniformly distributed in time.
    pub p: f64,
    /// Whether only the longest events were counted, which have most of the total time.
    pub longest_only: bool,
    /// Number of episodes of all events, including short ones, that touch a span; for comparison with other spans.
    pub all_inside: u64,
}

impl Coincidence {
    /// Whether the coincidence is significant enough to claim that the spans cause the events.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.inside >= MIN_EPISODES && self.p < super::SIGNIFICANT
    }

    /// How much longer to observe until a claim is possible, at the observed rate of episodes; `None` if there are
    /// enough of them, or none at all.
    #[must_use]
    pub fn needs_ns(&self, window_ns: u64) -> Option<u64> {
        if self.episodes == 0 || self.episodes >= MIN_EPISODES {
            return None;
        }
        // One more than needed, because the next one may be outside.
        Some(window_ns.saturating_mul(MIN_EPISODES + 1 - self.episodes) / self.episodes)
    }
}

/// Compares events with spans in a window.
///
/// An event of length `l` at a uniformly distributed time touches a span if its start lies in a span or less than `l`
/// before one. This probability differs by event. For independent events with different probabilities, that many
/// hits or more are at most as likely as with the mean probability for all (Hoeffding 1956, *On the distribution
/// of the number of successes in independent trials*), so the binomial tail is conservative.
#[must_use]
pub fn coincidence(events: &[Span], spans: &[Span], window_ns: u64) -> Coincidence {
    let episodes = episodes(events);
    let spans = merge(spans.to_vec(), 0);
    let window = window_ns.max(1) as f64;
    let (mut inside, mut chances) = (0, 0.0);
    for episode in &episodes {
        chances += (reached_ns(&spans, episode.length_ns(), window_ns) as f64 / window).min(1.0);
        inside += u64::from(overlaps(&spans, *episode));
    }
    let number = episodes.len() as u64;
    let p = tail::binomial(inside, number, chances / number.max(1) as f64);
    let cover = (covered_ns(&spans) as f64 / window).min(1.0);
    Coincidence { episodes: number, inside, cover, p, longest_only: false, all_inside: inside }
}

/// Compares spans with all events and with the [`heaviest`], and returns the more significant result. Its p-value is
/// doubled, because two tests were made.
#[must_use]
pub fn coincidence_by_length(events: &[Span], spans: &[Span], window_ns: u64) -> Coincidence {
    let all = coincidence(events, spans, window_ns);
    let longest = coincidence(&heaviest(events), spans, window_ns);
    let clearer =
        if longest.p < all.p { Coincidence { longest_only: true, ..longest } } else { all };
    Coincidence { p: (2.0 * clearer.p).min(1.0), all_inside: all.inside, ..clearer }
}

/// Episodes: events, with those close together merged.
#[must_use]
pub fn episodes(events: &[Span]) -> Vec<Span> {
    merge(events.to_vec(), EPISODE_GAP_NS)
}

/// The start of the longest event of each episode, as spans of length 0.
///
/// Of the events around a burst, those that wait for the burst are the longest, whatever else happens near them. A
/// timestamp has no length, so for [`coincidence`] its probability of being inside is the spans' share of the window.
#[must_use]
pub fn worst_moments(events: &[Span]) -> Vec<Span> {
    worst(events).into_iter().map(|event| Span::at(event.t0_ns)).collect()
}

/// The longest events, which together have 70 % of the total time; at least 5. Of events close together, only the
/// longest one counts.
///
/// On a busy host, every thread is delayed by some milliseconds now and then. If such events counted as much as a delay
/// of a second by a disk, they would hide the cause of the loss. Events are selected by length alone, so if lengths are
/// independent of times, the selected events are uniformly distributed in time, as [`coincidence`] assumes.
#[must_use]
fn heaviest(events: &[Span]) -> Vec<Span> {
    let mut events = worst(events);
    events.sort_by_key(|event| std::cmp::Reverse(event.length_ns()));
    let whole: f64 = events.iter().map(|event| event.length_ns() as f64).sum();
    let mut before = 0.0;
    let mut number = 0;
    for event in &events {
        if number >= MIN_HEAVY && before >= HEAVY_SHARE * whole {
            break;
        }
        before += event.length_ns() as f64;
        number += 1;
    }
    events.truncate(number);
    events.sort_unstable();
    events
}

/// The longest event of each episode, in the order of time; among equally long events, the earliest.
fn worst(events: &[Span]) -> Vec<Span> {
    let mut events = events.to_vec();
    events.sort_unstable();
    let episodes = merge(events.clone(), EPISODE_GAP_NS);
    let mut rest = events.as_slice();
    let worst = episodes.into_iter().filter_map(|episode| {
        let begun = rest.partition_point(|event| event.t0_ns <= episode.t1_ns);
        let (inside, after) = rest.split_at(begun);
        rest = after;
        inside.iter().rev().max_by_key(|event| event.length_ns()).copied()
    });
    worst.collect()
}

/// Total time that is in at least one of the spans, in nanoseconds.
#[must_use]
pub fn covered_ns(spans: &[Span]) -> u64 {
    merge(spans.to_vec(), 0).iter().map(|span| span.length_ns()).fold(0, u64::saturating_add)
}

/// The median length of spans, the upper one of an even number; 0 without any.
#[must_use]
pub fn median_length_ns(spans: impl IntoIterator<Item = Span>) -> u64 {
    let mut lengths: Vec<u64> = spans.into_iter().map(Span::length_ns).collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or(0)
}

/// Total length of the start times from which an event of that length touches a span, in nanoseconds. The spans are
/// sorted and disjoint.
fn reached_ns(spans: &[Span], length_ns: u64, window_ns: u64) -> u64 {
    let mut end_ns = 0;
    let mut sum = 0u64;
    for span in spans {
        let from = span.t0_ns.saturating_sub(length_ns).max(end_ns);
        let to = span.t1_ns.min(window_ns);
        sum = sum.saturating_add(to.saturating_sub(from));
        end_ns = end_ns.max(to);
    }
    sum
}

/// Whether an event touches one of the spans, which are sorted and disjoint, as [`merge`] returns them.
#[must_use]
pub fn overlaps(spans: &[Span], event: Span) -> bool {
    let first = spans.partition_point(|span| span.t1_ns < event.t0_ns);
    spans.get(first).is_some_and(|span| span.t0_ns <= event.t1_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn stalls_that_are_always_inside_passes_are_no_chance() {
        let passes: Vec<_> = (0..18).map(|i| Span::new(i * 2 * S, i * 2 * S + 500 * MS)).collect();
        let in_pass = |pass: &Span| Span::new(pass.t0_ns + 100 * MS, pass.t0_ns + 200 * MS);
        let stalls: Vec<_> = passes.iter().take(14).map(in_pass).collect();
        let found = coincidence(&stalls, &passes, 36 * S);
        assert_eq!((found.episodes, found.inside), (14, 14));
        assert!(
            (found.cover - 0.25).abs() < 0.01 && found.p < 1e-6 && found.is_sure(),
            "{found:?}"
        );
    }

    #[test]
    fn many_threads_that_wait_at_once_are_one_event() {
        let stalls: Vec<_> = (0..50).map(|i| Span::new(S + i * MS, S + 30 * MS)).collect();
        let found = coincidence(&stalls, &[Span::new(S, 2 * S)], 10 * S);
        assert_eq!((found.episodes, found.is_sure()), (1, false));
        assert_eq!(found.needs_ns(10 * S), Some(30 * S));
    }

    #[test]
    fn of_stalls_about_a_burst_the_longest_tells_when() {
        let events = [(S, S + 10 * MS), (S + 300 * MS, S + 370 * MS), (S + 350 * MS, S + 360 * MS)]
            .map(Span::from);
        let more = [(3 * S, 3 * S + 20 * MS), (3 * S + 5 * MS, 3 * S + 25 * MS)].map(Span::from);
        let moments = worst_moments(&[&more[..], &events[..]].concat());
        assert_eq!(moments, [Span::at(S + 300 * MS), Span::at(3 * S)]);
        assert_eq!(worst_moments(&[]), []);
    }

    #[test]
    fn stalls_that_hardly_count_are_left_out() {
        let long = |n: u64| Span::new(4 * n * S, 4 * n * S + 400 * MS);
        let short = |n: u64| Span::new(n * S + 700 * MS, n * S + 715 * MS);
        let events: Vec<_> = (0..10).map(long).chain((0..40).map(short)).collect();
        let heavy = heaviest(&events);
        assert_eq!(heavy, (0..8).map(long).collect::<Vec<_>>(), "8 of 10 hold 70 %");
        assert_eq!(heaviest(&events[8..12]).len(), 4, "few are all that there are");
        assert_eq!(heaviest(&[]), []);
    }

    #[test]
    fn a_pass_that_never_ends_proves_nothing() {
        let stalls: Vec<_> = (0..9).map(|i| Span::new(i * S, i * S + 50 * MS)).collect();
        let found = coincidence(&stalls, &[Span::new(0, 10 * S)], 10 * S);
        assert_eq!((found.inside, found.p), (9, 1.0));
        assert_eq!(coincidence(&[], &[], 0).needs_ns(0), None);
    }

    proptest! {
        #[test]
        fn an_event_is_found_where_a_walk_finds_it(
            spans in prop::collection::vec((0..1000u64, 0..50u64), 0..20), event in (0..1000u64, 0..50u64),
        ) {
            let spans = merge(spans.into_iter().map(|(t, length)| Span::new(t, t + length)).collect(), 0);
            let event = Span::new(event.0, event.0 + event.1);
            let walk = spans.iter().any(|it| event.t0_ns <= it.t1_ns && it.t0_ns <= event.t1_ns);
            prop_assert_eq!(overlaps(&spans, event), walk);
            let touches = |t: u64| spans.iter().any(|it| t < it.t1_ns && t + 7 >= it.t0_ns);
            let starts = (0..1100).filter(|&t| touches(t)).count() as u64;
            let edges = spans.iter().filter(|it| it.length_ns() == 0).count() as u64;
            prop_assert!(reached_ns(&spans, 7, 1100).abs_diff(starts) <= edges);
        }

        #[test]
        fn any_events_get_a_chance(
            events in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
            spans in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
            window in any::<u64>(),
        ) {
            let [events, spans] = [events, spans].map(|all| all.into_iter().map(Span::from).collect::<Vec<_>>());
            let found = coincidence(&events, &spans, window);
            prop_assert_eq!(worst_moments(&events).len() as u64, found.episodes);
            let heavy = heaviest(&events);
            prop_assert!(heavy.len() as u64 <= found.episodes && heavy.iter().all(|it| events.contains(it)));
            prop_assert!((0.0..=1.0).contains(&found.p) && (0.0..=1.0).contains(&found.cover));
            prop_assert!(found.inside <= found.episodes);
            let by_length = coincidence_by_length(&events, &spans, window);
            prop_assert!((0.0..=1.0).contains(&by_length.p) && by_length.p <= (2.0 * found.p).min(1.0));
        }
    }
}
