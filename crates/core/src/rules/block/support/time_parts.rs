// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time before a request exists: which share of the waiting it is, and which setting of the queue causes it.

use super::knobs;
use crate::finding::{Evidence, Fix, Unit};
use crate::recording::{DevId, IoOp, Source};
use crate::rules::Limit;
use crate::rules::words::evidence;
use crate::text::units;
use crate::view::View;
use crate::view::block::Latency;

pub(in crate::rules::block) const BEFORE: Limit = Limit {
    name: "before",
    value: 0.3,
    unit: "of the time from when transfers are asked for until they are done, before their requests exist",
    why: "less is not what they wait for most",
};
/// If at least this share of the tags is in use on average, all of them are taken at times.
const NEAR_ALL: f64 = 0.5;

/// Parts of the time of transfers in one direction, summed over requests; nanoseconds.
#[derive(Clone, Copy, Debug)]
struct TimeParts {
    before_ns: f64,
    queue_ns: f64,
    device_ns: f64,
}

impl TimeParts {
    fn of(latency: &Latency) -> Option<Self> {
        let before_ns = latency.before.as_ref()?.total_ns() as f64;
        let queue_ns = latency.queue.total_ns() as f64;
        let device_ns = (latency.total.total_ns() as f64 - queue_ns).max(0.0);
        (before_ns + queue_ns + device_ns > 0.0).then_some(Self { before_ns, queue_ns, device_ns })
    }

    fn share(&self, ns: f64) -> f64 {
        ns / (self.before_ns + self.queue_ns + self.device_ns)
    }
}

/// Shares of the time before the request, in the queue and in the device, in words; `None` if the first is not known.
pub(in crate::rules::block) fn parts(latency: &Latency) -> Option<String> {
    let parts = TimeParts::of(latency)?;
    let share = |ns| units::share(parts.share(ns));
    Some(format!(
        "{} of the time before the request, {} in the queue, {} in the device",
        share(parts.before_ns),
        share(parts.queue_ns),
        share(parts.device_ns)
    ))
}

/// The setting that makes transfers wait for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knob {
    /// `nr_requests`: all tags are taken.
    Tags,
    /// `wbt_lat_usec`: writeback throttling, which holds back writes only.
    Throttling,
}

fn knob(view: &View, device: DevId) -> Option<Knob> {
    let waits = |op| {
        let parts = TimeParts::of(view.block().latency().get(&(device, op))?)?;
        Some(parts.share(parts.before_ns) >= BEFORE.value)
    };
    let [reads, writes] = [IoOp::Read, IoOp::Write].map(|op| waits(op).unwrap_or(false));
    if !reads && !writes {
        return None;
    }
    let number = |name| knobs::queue(view, device, name).and_then(|v| v.trim().parse::<i64>().ok());
    let activity = view.block().activity().get(&device);
    let depth = activity.map_or(0.0, |it| {
        let most =
            it.depth.fullest().map_or(0.0, |(t0, t1, ns)| ns as f64 / (t1 - t0).max(1) as f64);
        most.max(it.depth.total() as f64 / it.busy_ns.max(1) as f64)
    });
    let throttled = number("wbt_lat_usec").is_some_and(|us| us > 0);
    match number("nr_requests") {
        Some(tags) if depth >= NEAR_ALL * tags as f64 => Some(Knob::Tags),
        // With tags to spare, reads wait for something that is not known here: a cost model, a latency target, a zone.
        _ if !reads && throttled => Some(Knob::Throttling),
        _ => None,
    }
}

/// Evidence line: which setting makes transfers wait, if that is at least [`BEFORE`] of the time.
pub(in crate::rules::block) fn line(view: &View, device: DevId) -> Option<Evidence> {
    let value = |name| knobs::queue(view, device, name).map_or("not known", str::trim);
    let note = match knob(view, device)? {
        Knob::Tags => format!(
            "for a tag: `nr_requests` is {}, and as many may be in the queue and the device at once",
            value("nr_requests")
        ),
        Knob::Throttling => format!(
            "only writes, and not for a tag: `wbt_lat_usec` is {}, and the kernel holds writes back when reads take longer",
            value("wbt_lat_usec")
        ),
    };
    let label = Source::Settings.label();
    Some(evidence(view, "waits for a request", 0.0, Unit::Text, label, note))
}

/// Remedy for waits before requests: a change of that setting.
pub(in crate::rules::block) fn fix(view: &View, device: DevId) -> Option<Fix> {
    let set = |name, to: String| {
        knobs::queue_file(view, device, name).map(|file| format!("echo {to} > {file}"))
    };
    let was =
        |name| knobs::queue(view, device, name).map_or("not known".into(), |v| v.trim().to_owned());
    Some(match knob(view, device)? {
        Knob::Tags => {
            let more = was("nr_requests").parse::<u64>().map_or(256, |tags| (tags * 2).max(64));
            Fix {
                action: "let more requests be in the queue at once, so that a read need not wait for a tag behind writes".into(),
                command: set("nr_requests", more.to_string()),
                risk: Some(format!(
                    "the device is no faster: what does not wait for a tag waits in the queue, where a scheduler can put it \
                     first; a driver may refuse more than it has; it was {}",
                    was("nr_requests")
                )), expect: None,
            }
        }
        Knob::Throttling => Fix {
            action: "let the kernel hold writes back less".into(),
            command: set("wbt_lat_usec", "0".into()),
            risk: Some(format!(
                "reads then wait behind writeback; it was {}, and -1 restores the default",
                was("wbt_lat_usec")
            )),
            expect: None,
        },
    })
}
