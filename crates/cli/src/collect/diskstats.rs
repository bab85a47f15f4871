// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of `/proc/diskstats`, ten times a second, for devices that are mounted or do any IO.

use super::{Beat, BeatTime, Collector, Context, Emit, reread};
use deburr_core::procfs::diskstats::{self, CounterChange, Line, WrapCorrection};
use deburr_core::recording::{
    BlockRecord, Coverage, DevId, DiskCounters, DiskReading, Record, Source, State,
};
use std::collections::BTreeMap;
use std::fs::{self, File};

#[derive(Debug)]
pub(crate) struct DiskstatsCollector {
    file: File,
    devices: BTreeMap<DevId, TrackedDisk>,
    last_ns: u64,
    /// What the file held at `last_ns`.
    last_text: Vec<u8>,
}

/// A device in the file.
#[derive(Clone, Copy, Debug)]
struct TrackedDisk {
    unwrap: WrapCorrection,
    counters: DiskCounters,
    /// Whether its counters are recorded.
    recorded: bool,
    /// Whether the last read of the file listed it.
    there: bool,
}

impl DiskstatsCollector {
    pub(crate) fn open(cx: &Context) -> Result<Self, State> {
        let opened = File::open(cx.roots.proc.join("diskstats"))
            .and_then(|file| reread::text(&file).map(|_| file));
        let file = opened.map_err(|error| State::Missing {
            reason: format!("`/proc/diskstats`: {error}"),
            gain:
                "with a whole `/proc` (not mounted with `subset=pid`) one sees bursts of block IO"
                    .into(),
        })?;
        Ok(Self { file, devices: BTreeMap::new(), last_ns: 0, last_text: vec![] })
    }

    fn look(&mut self, cx: &mut Context, now: &BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        let (t_ns, second) = (now.t_ns, now.beat == Beat::Start || now.beat.is_second());
        let text = reread::text(&self.file)?;
        // On a quiet host no counter has changed, and mounts are looked at once a second only.
        if text == self.last_text && !second {
            for (&device, known) in self.devices.iter().filter(|(_, known)| known.recorded) {
                say(device, t_ns, known.counters, emit);
            }
            self.last_ns = t_ns;
            return Ok(());
        }
        for followed in self.devices.values_mut() {
            followed.there = false;
        }
        for line in diskstats::parse(&text)? {
            self.follow(&line, cx, t_ns, emit);
        }
        self.last_text = text;
        self.devices.retain(|dev, followed| {
            if !followed.there && followed.recorded {
                cx.devices.gone(*dev, emit);
            }
            cx.devices.set_counters(*dev, followed.there.then_some(followed.counters));
            followed.there
        });
        self.last_ns = t_ns;
        Ok(())
    }

    fn follow(&mut self, line: &Line, cx: &mut Context, t_ns: u64, emit: Emit<'_>) {
        let device = line.device;
        let new = TrackedDisk {
            unwrap: WrapCorrection::from(line.counters),
            counters: line.counters,
            recorded: false,
            there: true,
        };
        let Some(known) = self.devices.get_mut(&device) else {
            // A device that appears within the window is recorded from then on.
            let appeared = t_ns > 0;
            let recorded = appeared || cx.devices.is_mounted(device);
            if recorded {
                cx.devices.sight_as(device, Some(&line.name), emit);
                say(device, t_ns, line.counters, emit);
            }
            self.devices.insert(device, TrackedDisk { recorded, ..new });
            return;
        };
        known.there = true;
        let before = known.counters;
        match known.unwrap.next(line.counters) {
            CounterChange::On(counters) => known.counters = counters,
            CounterChange::Anew(counters) => {
                // Another device has this number now: the old counters do not continue.
                if known.recorded {
                    cx.devices.gone(device, emit);
                    cx.devices.sight_as(device, Some(&line.name), emit);
                }
                *known = TrackedDisk { counters, recorded: known.recorded, ..new };
            }
        }
        let acts = known.counters != before;
        if !known.recorded && (acts || cx.devices.is_mounted(device)) {
            known.recorded = true;
            cx.devices.sight_as(device, Some(&line.name), emit);
            // The reading before its first IO, so that none of that IO is missing.
            say(device, self.last_ns, before, emit);
        }
        if known.recorded {
            say(device, t_ns, known.counters, emit);
        }
    }
}

fn say(device: DevId, t_ns: u64, counters: DiskCounters, emit: Emit<'_>) {
    let reading = DiskReading { t_ns, device, counters };
    emit(Record::Block(Box::new(BlockRecord::Disk(reading))));
}

/// Partial if some of the disks seen have IO accounting switched off.
fn coverage(cx: &Context) -> State {
    let iostats =
        |disk: &str| fs::read(cx.roots.sys.join("block").join(disk).join("queue/iostats"));
    let disks = cx.devices.disks().map(|disk| disk.name.as_str());
    let silent: Vec<&str> =
        disks.filter(|disk| iostats(disk).is_ok_and(|text| text.trim_ascii() == b"0")).collect();
    if silent.is_empty() {
        return State::Active;
    }
    State::Partial {
        reason: format!("`iostats` of the queue is 0, nothing is counted: {}", silent.join(", ")),
    }
}

impl Collector for DiskstatsCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            let state = coverage(cx);
            emit(Record::Coverage(Coverage { t_ns: 0, source: Source::Diskstats, state }));
        } else if now.beat.is_second() {
            cx.devices.refresh(emit);
        }
        self.look(cx, &now, emit)
    }
}

#[cfg(test)]
mod tests;
