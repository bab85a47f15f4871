// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The verdict: what B loses that A does not, and to whom, in one sentence.

use super::document::{
    Behind, Change, Detectable, Loss, LossChange, Measure, MeasureOf, Outcome, ProcessPair,
    ProcessSide, Verdict,
};
use crate::finding::{Entity, EntityKind};
use crate::stats::{Interval, MIN_BLOCKS};
use crate::text::ticked;
use crate::text::units::{counted, duration, share};

/// Shares below this are not named in the sentence.
const NAMED_SHARE: f64 = 0.1;
/// A difference below this share of the largest one does not decide the outcome: CPUs that are busy all the time need not
/// wake up, which saves a little of what their neighbours cost.
const MINOR: f64 = 0.1;
/// A difference that would have shown says nothing if it is this many times the loss itself.
const TELLS_NOTHING: f64 = 5.0;

pub(super) fn verdict(processes: &[ProcessPair], measures: &[Measure]) -> Verdict {
    let all = || {
        let of = |pair| losses(pair).map(move |it| (pair, it));
        processes.iter().flat_map(of)
    };
    let changed = all().filter(|(_, it)| matches!(it.change, Change::Grown | Change::Shrunk));
    let largest = changed.map(|(_, it)| size(it)).fold(0.0, f64::max);
    let of = |change: Change| {
        let decides = |it: &LossChange| it.change == change && size(it) >= MINOR * largest;
        let mut some: Vec<_> = all().filter(|(_, it)| decides(it)).collect();
        some.sort_by(|x, y| size(y.1).total_cmp(&size(x.1)));
        some
    };
    let (grown, shrunk) = (of(Change::Grown), of(Change::Shrunk));
    let outcome = match (grown.len(), shrunk.len()) {
        (0, 0) => return of_host(measures).unwrap_or_else(|| no_difference(processes)),
        (_, 0) => Outcome::Worse,
        (0, _) => Outcome::Better,
        _ => Outcome::Mixed,
    };
    let first =
        |some: &[(&ProcessPair, &LossChange)]| some.first().map(|(pair, it)| told(pair, it));
    let more = |some: &[(&ProcessPair, &LossChange)]| match some.len() {
        0 | 1 => String::new(),
        n => format!("; {} more", counted(n as u64 - 1, "loss is", "losses are")) + " told below",
    };
    let sentence = match (first(&grown), first(&shrunk)) {
        (Some(grown_first), None) => {
            format!("B loses what A does not: {grown_first}{}", more(&grown))
        }
        (None, Some(shrunk_first)) => {
            format!("A loses what B does not: {shrunk_first}{}", more(&shrunk))
        }
        (Some(grown_first), Some(shrunk_first)) => {
            format!(
                "B loses what A does not: {grown_first}; but also the other way round: {shrunk_first}"
            )
        }
        (None, None) => String::new(),
    };
    let leading = grown.first().or(shrunk.first());
    Verdict {
        outcome,
        sentence,
        victim: leading.map(|(pair, _)| pair.b.process.clone()),
        causes: leading.map(|(_, it)| it.behind.clone()).unwrap_or_default(),
        could_have_seen: None,
    }
}

/// What a pair of processes loses. Requests under way are none of that: who has more of them at once may lose nothing.
fn losses(pair: &ProcessPair) -> impl Iterator<Item = &LossChange> {
    pair.losses.iter().filter(|it| it.loss != Loss::Requests)
}

/// The verdict if no process loses more or less: devices or CPUs may be slower all the same. Pressure is none of that: it
/// also depends on the load.
fn of_host(measures: &[Measure]) -> Option<Verdict> {
    let counts = |it: &&Measure| {
        let of_load = [MeasureOf::CpuPressure, MeasureOf::IoPressure, MeasureOf::MemoryPressure];
        !of_load.contains(&it.what) && matches!(it.change, Change::Grown | Change::Shrunk)
    };
    let all: Vec<&Measure> = measures.iter().filter(counts).collect();
    let has = |change| all.iter().any(|it| it.change == change);
    let (outcome, first) = match (has(Change::Grown), has(Change::Shrunk)) {
        (true, true) => (Outcome::Mixed, Change::Grown),
        (true, false) => (Outcome::Worse, Change::Grown),
        (false, true) => (Outcome::Better, Change::Shrunk),
        (false, false) => return None,
    };
    let leading = all.iter().find(|it| it.change == first)?;
    let begin = match outcome {
        Outcome::Better => "A loses what B does not",
        _ => "B loses what A does not",
    };
    let what = match leading.what {
        MeasureOf::ReadLatency => {
            format!("reads of {} take {}", device(leading), duration(leading.b))
        }
        MeasureOf::WriteLatency => {
            format!("writes of {} take {}", device(leading), duration(leading.b))
        }
        _ => format!("the hypervisor takes {} of every second", duration(leading.b)),
    };
    let against = match (leading.ratio, leading.what) {
        (Some(Interval { value, low: Some(low), high: Some(high) }), _) => {
            format!("{} times as long as in A ({} to {})", times(value), times(low), times(high))
        }
        _ => format!("{} in A", duration(leading.a)),
    };
    Some(Verdict {
        outcome,
        sentence: format!(
            "{begin}: {what}, {against}; no process that is in both loses more or less by it"
        ),
        victim: Some(leading.of.clone()),
        causes: vec![],
        could_have_seen: None,
    })
}

fn device(it: &Measure) -> String {
    it.of.device.as_deref().map_or_else(|| "a device".into(), ticked)
}

fn size(it: &LossChange) -> f64 {
    (it.b_ns_per_s - it.a_ns_per_s).abs()
}

fn told(pair: &ProcessPair, it: &LossChange) -> String {
    let name = name(&pair.b.process);
    let mut text = format!(
        "{name} {} {} of every second, {}",
        doing(it.loss),
        duration(it.b_ns_per_s),
        against(it)
    );
    let named: Vec<&Behind> = it
        .behind
        .iter()
        .filter(|it| it.share.get() >= NAMED_SHARE && it.process.kind == EntityKind::Process)
        .collect();
    if !named.is_empty() {
        let of = if it.change == Change::Grown { "increase" } else { "decrease" };
        let parts: Vec<String> = named
            .iter()
            .take(3)
            .map(|it| format!("{} behind {}", share(it.share.get()), self::name(&it.process)))
            .collect();
        text += &format!("; of the {of} {}", parts.join(", "));
    }
    text
}

/// `` `api` in `/web/api` ``.
pub(super) fn name(entity: &Entity) -> String {
    let comm = entity.comm.as_deref().map_or_else(|| "a process".to_owned(), ticked);
    match &entity.cgroup {
        Some(cgroup) if cgroup != "/" => format!("{comm} in {}", ticked(cgroup)),
        _ => comm,
    }
}

fn doing(loss: Loss) -> &'static str {
    match loss {
        Loss::Queued => "is queued for a CPU for",
        Loss::WakeUp => "waits for an idle CPU to wake up for",
        Loss::Throttled => "is throttled for",
        Loss::QueuedOrThrottled => "is queued or throttled for",
        Loss::BlockIo => "waits for block IO for",
        Loss::Sync => "is held up in syncs for",
        Loss::DirtyThrottle => "is paused for its dirty pages for",
        Loss::Requests => "has requests under way for",
        Loss::MemStall => "waits for memory for",
    }
}

/// `3.1 times as long as in A (2.7 to 3.5)`, or `102 ms more than in A (95 ms to 109 ms)`.
pub(super) fn against(it: &LossChange) -> String {
    match (it.ratio, it.difference_ns_per_s) {
        (Some(Interval { value, low: Some(low), high: Some(high) }), _) => {
            format!("{} times as long as in A ({} to {})", times(value), times(low), times(high))
        }
        (_, Some(Interval { value, low: Some(low), high: Some(high) })) => {
            let (word, ends) =
                if value < 0.0 { ("less", [-high, -low]) } else { ("more", [low, high]) };
            let ends = ends.map(|end| duration(end.max(0.0)));
            format!("{} {word} than in A ({} to {})", duration(value.abs()), ends[0], ends[1])
        }
        _ => format!("{} in A", duration(it.a_ns_per_s)),
    }
}

/// A ratio in words: two decimals below 2, one below 10, none above.
#[must_use]
pub fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 9.95 => format!("{ratio:.0}"),
        ratio if ratio >= 1.995 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}

fn no_difference(processes: &[ProcessPair]) -> Verdict {
    let none = |outcome, sentence: String, could_have_seen| Verdict {
        outcome,
        sentence,
        victim: None,
        causes: vec![],
        could_have_seen,
    };
    if processes.is_empty() {
        let why = "no process is in both recordings, so there is nothing to compare";
        return none(Outcome::NotComparable, why.into(), None);
    }
    let enough = |side: &ProcessSide| side.blocks as usize >= MIN_BLOCKS;
    if !processes.iter().any(|pair| enough(&pair.a) && enough(&pair.b)) {
        let most = |side: fn(&ProcessPair) -> &ProcessSide| {
            processes.iter().map(|pair| side(pair).blocks).max().unwrap_or(0)
        };
        let why = format!(
            "too short to compare: A has {} of a process and B has {}, and it takes {MIN_BLOCKS} of each; \
             record 30 s or more",
            counted(most(|pair| &pair.a).into(), "whole second", "whole seconds"),
            most(|pair| &pair.b)
        );
        return none(Outcome::NotComparable, why, None);
    }
    let all = processes.iter().flat_map(|pair| losses(pair).map(move |it| (pair, it)));
    let best =
        all.filter_map(|(pair, it)| Some((pair, it, it.detectable_ns_per_s?))).max_by(|x, y| {
            x.1.a_ns_per_s.max(x.1.b_ns_per_s).total_cmp(&y.1.a_ns_per_s.max(y.1.b_ns_per_s))
        });
    let begin = "no difference that this much data can show";
    match best {
        None => none(
            Outcome::NoDifference,
            format!("{begin}: no process that is in both loses 1 ms of a second in either"),
            None,
        ),
        Some((pair, it, detectable)) if varies_too_much(it) => {
            let name = name(&pair.b.process);
            let loss = duration(it.a_ns_per_s.max(it.b_ns_per_s));
            let sentence = format!(
                "{begin}: what {name} loses ({loss} of every second in one of them) varies too much from second to \
                 second for so short a time; record longer, under a steady load"
            );
            let of = format!("{:?}: {name}", it.loss);
            let could = Detectable { of, a_ns_per_s: it.a_ns_per_s, ns_per_s: detectable };
            none(Outcome::NoDifference, sentence, Some(could))
        }
        Some((pair, it, detectable)) => {
            let name = name(&pair.b.process);
            let sentence = format!(
                "{begin}; it would have shown if {name} {} {} of every second more or less than the {} in A",
                would(it.loss),
                duration(detectable),
                duration(it.a_ns_per_s)
            );
            let of = format!("{:?}: {name}", it.loss);
            let could = Detectable { of, a_ns_per_s: it.a_ns_per_s, ns_per_s: detectable };
            none(Outcome::NoDifference, sentence, Some(could))
        }
    }
}

/// Whether the seconds of a loss differ so much that hardly any difference could have been seen.
#[must_use]
pub fn varies_too_much(it: &LossChange) -> bool {
    tells_nothing(it.change, it.detectable_ns_per_s, it.a_ns_per_s.max(it.b_ns_per_s))
}

/// The same of what is measured of a host or a device.
#[must_use]
pub fn measure_varies_too_much(it: &Measure) -> bool {
    tells_nothing(it.change, it.detectable, it.a.max(it.b))
}

fn tells_nothing(change: Change, detectable: Option<f64>, most: f64) -> bool {
    change == Change::Alike && detectable.is_some_and(|it| it > TELLS_NOTHING * most)
}

fn would(loss: Loss) -> &'static str {
    match loss {
        Loss::Queued => "were queued for a CPU for",
        Loss::WakeUp => "waited for an idle CPU to wake up for",
        Loss::Throttled => "were throttled for",
        Loss::QueuedOrThrottled => "were queued or throttled for",
        Loss::BlockIo => "waited for block IO for",
        Loss::Sync => "were held up in syncs for",
        Loss::DirtyThrottle => "were paused for its dirty pages for",
        Loss::Requests => "had requests under way for",
        Loss::MemStall => "waited for memory for",
    }
}
