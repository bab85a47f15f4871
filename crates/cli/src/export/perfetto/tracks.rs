// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracks of a Perfetto trace, each described when it is first used, and what is on them.

use super::proto::{Detail, Message};
use std::collections::HashMap;
use std::io::{self, Write};

/// `BuiltinClock.REALTIME`: times of the trace are wall-clock times.
const REALTIME: u64 = 1;
/// `BuiltinClock.MONOTONIC`.
const MONOTONIC: u64 = 3;
/// All packets come from one writer.
const SEQUENCE: u64 = 1;
/// `TrackEvent.Type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Identity of a track in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Track(u64);

/// What a counter counts, in words: the unit in which Perfetto shows it.
pub(super) type UnitName = &'static str;

/// A trace that is being written.
#[derive(Debug)]
pub(super) struct Trace<W: Write> {
    to: W,
    tracks: u64,
    /// Start of the window on the wall clock, in nanoseconds.
    start_unix_ns: u64,
    children: HashMap<(Option<Track>, String), Track>,
    /// Tracks for slices that may overlap, by name: when the last slice of each ends.
    lanes: HashMap<(Track, String), Vec<(Track, u64)>>,
}

impl<W: Write> Trace<W> {
    pub(super) fn new(to: W) -> Self {
        let (children, lanes) = (HashMap::new(), HashMap::new());
        Self { to, tracks: 0, start_unix_ns: 0, children, lanes }
    }

    /// Says what the clocks showed at the start of the window.
    pub(super) fn begin(&mut self, start_unix_ns: u64, start_mono_ns: u64) -> io::Result<()> {
        self.start_unix_ns = start_unix_ns;
        let clock = |id, ns| Message::default().uint(1, id).uint(2, ns);
        let clocks = Message::default()
            .message(1, &clock(REALTIME, start_unix_ns))
            .message(1, &clock(MONOTONIC, start_mono_ns))
            .uint(2, REALTIME);
        self.packet(
            Message::default().uint(58, REALTIME).uint(8, start_unix_ns).message(6, &clocks),
        )
    }

    fn packet(&mut self, packet: Message) -> io::Result<()> {
        self.to.write_all(&packet.uint(10, SEQUENCE).as_packet())
    }

    fn describe(
        &mut self,
        parent: Option<Track>,
        more: impl FnOnce(Message) -> Message,
    ) -> io::Result<Track> {
        self.tracks += 1;
        let track = Track(self.tracks);
        let mut descriptor = Message::default().uint(1, track.0);
        if let Some(parent) = parent {
            descriptor = descriptor.uint(5, parent.0);
        }
        let descriptor = more(descriptor);
        self.packet(Message::default().message(60, &descriptor))?;
        Ok(track)
    }

    /// The track of a process.
    pub(super) fn process(&mut self, pid: u32, name: &str) -> io::Result<Track> {
        let process = Message::default().uint(1, pid.into()).text(6, name);
        self.describe(None, |to| to.message(3, &process))
    }

    /// The track of that name, below another one or at the top.
    pub(super) fn track(&mut self, parent: Option<Track>, name: &str) -> io::Result<Track> {
        self.child(parent, name, |to| to)
    }

    /// The counter of that name.
    pub(super) fn counter(
        &mut self,
        parent: Track,
        name: &str,
        unit: UnitName,
    ) -> io::Result<Track> {
        let counter = Message::default().text(6, unit);
        self.child(Some(parent), name, |to| to.message(8, &counter))
    }

    fn child(
        &mut self,
        parent: Option<Track>,
        name: &str,
        more: impl FnOnce(Message) -> Message,
    ) -> io::Result<Track> {
        let key = (parent, name.to_owned());
        if let Some(track) = self.children.get(&key) {
            return Ok(*track);
        }
        let track = self.describe(parent, |to| more(to.text(2, name)))?;
        self.children.insert(key, track);
        Ok(track)
    }

    /// A track of that name on which nothing is in progress from `t0_ns` to `t1_ns`. Slices may come in any order. The viewer
    /// shows tracks of one name as one.
    pub(super) fn lane(
        &mut self,
        parent: Track,
        name: &str,
        (t0_ns, t1_ns): (u64, u64),
    ) -> io::Result<Track> {
        let key = (parent, name.to_owned());
        let free =
            self.lanes.entry(key.clone()).or_default().iter_mut().find(|(_, end)| *end <= t0_ns);
        if let Some((track, end)) = free {
            *end = t1_ns;
            return Ok(*track);
        }
        let track = self.describe(Some(parent), |to| to.text(2, name))?;
        self.lanes.entry(key).or_default().push((track, t1_ns));
        Ok(track)
    }

    fn event(&mut self, track: Track, t_ns: u64, event: Message) -> io::Result<()> {
        let event = event.uint(11, track.0);
        let unix_ns = self.start_unix_ns.saturating_add(t_ns);
        self.packet(Message::default().uint(8, unix_ns).uint(58, REALTIME).message(11, &event))
    }

    /// Adds a slice with its details. `t0_ns` and `t1_ns` count from the start of the window.
    pub(super) fn slice(
        &mut self,
        track: Track,
        (t0_ns, t1_ns): (u64, u64),
        name: &str,
        details: &[(&str, Detail)],
    ) -> io::Result<()> {
        let begin = Message::default().uint(9, SLICE_BEGIN).text(23, name);
        let begin = details.iter().fold(begin, |to, (name, it)| to.message(4, &it.named(name)));
        self.event(track, t0_ns, begin)?;
        self.event(track, t1_ns.max(t0_ns), Message::default().uint(9, SLICE_END))
    }

    /// Adds a moment.
    pub(super) fn instant(&mut self, track: Track, t_ns: u64, name: &str) -> io::Result<()> {
        self.event(track, t_ns, Message::default().uint(9, INSTANT).text(23, name))
    }

    /// Sets a counter from that moment on.
    pub(super) fn set(&mut self, counter: Track, t_ns: u64, value: f64) -> io::Result<()> {
        self.event(counter, t_ns, Message::default().uint(9, COUNTER).double(44, value))
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
