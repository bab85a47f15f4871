// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/diskstats`: cumulative counters of each disk and partition.

use super::{ParseError, Position, fields, lines, number};
use crate::recording::{DevId, DiskCounters};

/// The line of one device. Its times wrap around after 2^32 ms; [`WrapCorrection`] corrects that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Device number.
    pub device: DevId,
    /// Device name, with `/` where sysfs has `!`.
    pub name: Vec<u8>,
    /// Counters of the device.
    pub counters: DiskCounters,
}

/// Sector size in this file, independent of the device's sector size.
const SECTOR_BYTES: u64 = 512;
const MS_NS: u64 = 1_000_000;
/// The kernel prints times as 32-bit numbers of milliseconds.
const WRAP_NS: u64 = (1 << 32) * MS_NS;

/// Parses the file: one line per device.
///
/// # Errors
/// If a line lacks its device, its name or one of the first eleven numbers.
pub fn parse(text: &[u8]) -> Result<Vec<Line>, ParseError> {
    let mut devices = Vec::new();
    for (line, bytes) in lines(text).filter(|(_, bytes)| !bytes.is_empty()) {
        let at = Position { file: "/proc/diskstats", line };
        let mut fields = fields(bytes);
        let major = at.number("major", fields.next())?;
        let minor = at.number("minor", fields.next())?;
        let name = fields.next().ok_or_else(|| at.error("name", "a name"))?.to_vec();
        let mut next = |item| at.number::<u64>(item, fields.next());
        let reads = next("reads completed")?;
        next("reads merged")?;
        let read_bytes = next("sectors read")?.saturating_mul(SECTOR_BYTES);
        let read_ns = next("time reading")?.saturating_mul(MS_NS);
        let writes = next("writes completed")?;
        next("writes merged")?;
        let write_bytes = next("sectors written")?.saturating_mul(SECTOR_BYTES);
        let write_ns = next("time writing")?.saturating_mul(MS_NS);
        let in_flight = next("in flight")?;
        let busy_ns = next("time doing I/O")?.saturating_mul(MS_NS);
        let depth_ns = next("weighted time")?.saturating_mul(MS_NS);
        // Discards since 4.18: completed, merged, sectors, time. Flushes since 5.5: completed, time.
        let mut later = fields.map(number::<u64>);
        let discarded = later.nth(2).flatten().unwrap_or(0);
        let flushes = later.nth(1).flatten().unwrap_or(0);
        let counters = DiskCounters {
            reads,
            read_bytes,
            read_ns,
            writes,
            write_bytes,
            write_ns,
            discard_bytes: discarded.saturating_mul(SECTOR_BYTES),
            flushes,
            busy_ns,
            depth_ns,
            in_flight,
        };
        devices.push(Line { device: DevId { major, minor }, name, counters });
    }
    Ok(devices)
}

/// Counters of a device, compared with the previous reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterChange {
    /// The counters of the same device, with its times corrected for wrap-around.
    On(DiskCounters),
    /// The counters went back: another device reuses the device number.
    Anew(DiskCounters),
}

/// Corrects the times of one device for wrap-around. With 100 requests in flight, the summed times wrap around every
/// half a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrapCorrection {
    /// Counters of the last reading, uncorrected.
    last: DiskCounters,
    /// Corrections to add to the times of reads, writes, busy and depth.
    added_ns: [u64; 4],
}

impl WrapCorrection {
    /// Starts with a first reading.
    #[must_use]
    pub fn from(counters: DiskCounters) -> Self {
        Self { last: counters, added_ns: [0; 4] }
    }

    /// Takes the next reading.
    pub fn next(&mut self, now: DiskCounters) -> CounterChange {
        let last = std::mem::replace(&mut self.last, now);
        let counts = |c: &DiskCounters| {
            [c.reads, c.read_bytes, c.writes, c.write_bytes, c.discard_bytes, c.flushes]
        };
        if counts(&now).into_iter().zip(counts(&last)).any(|(now, last)| now < last) {
            *self = Self::from(now);
            return CounterChange::Anew(now);
        }
        let mut on = now;
        let times = [
            (&mut on.read_ns, last.read_ns),
            (&mut on.write_ns, last.write_ns),
            (&mut on.busy_ns, last.busy_ns),
            (&mut on.depth_ns, last.depth_ns),
        ];
        for ((now, last), added) in times.into_iter().zip(&mut self.added_ns) {
            match last.saturating_sub(*now) {
                0 => {}
                // Not a wrap-around: the kernel sums over CPUs without a lock.
                step_ns if step_ns < WRAP_NS / 2 => *now = last,
                _ => *added = added.saturating_add(WRAP_NS),
            }
            *now = now.saturating_add(*added);
        }
        CounterChange::On(on)
    }
}

#[cfg(test)]
mod tests {
    use super::{CounterChange, MS_NS, WRAP_NS, WrapCorrection, parse};
    use crate::recording::{DevId, DiskCounters};
    use proptest::prelude::*;

    const NOW: &[u8] = b"   7       0 loop0 1357 8 16442 56 9800 5072 888074 4343 1 1104 4828 20 0 3211278 1 4410 427\n \
        254       0 vda 2556237 80922 76643674 4679518 205237 315363 158653440 621111 0 184588 5333350 249120 41 116436576 31792 15443 927\n";

    #[test]
    fn units_are_bytes_and_nanoseconds() {
        let lines = parse(NOW).unwrap();
        let loop0 = DiskCounters {
            reads: 1357,
            read_bytes: 16_442 * 512,
            read_ns: 56 * MS_NS,
            writes: 9800,
            write_bytes: 888_074 * 512,
            write_ns: 4343 * MS_NS,
            discard_bytes: 3_211_278 * 512,
            flushes: 4410,
            busy_ns: 1104 * MS_NS,
            depth_ns: 4828 * MS_NS,
            in_flight: 1,
        };
        assert_eq!((lines[0].name.as_slice(), lines[0].counters), (&b"loop0"[..], loop0));
        assert_eq!(lines[1].device, DevId { major: 254, minor: 0 });
    }

    #[test]
    fn older_kernels_tell_less_and_newer_ones_more() {
        let old = parse(b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n").unwrap()[0].counters;
        assert_eq!((old.discard_bytes, old.flushes, old.in_flight), (0, 0, 9));
        let middle = parse(b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n").unwrap()[0].counters;
        assert_eq!((middle.discard_bytes, middle.flushes), (14 * 512, 0));
        let newer = b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x\n";
        assert_eq!(parse(newer).unwrap()[0].counters.flushes, 16);
    }

    #[test]
    fn a_short_line_names_its_item() {
        assert_eq!(parse(b"8 0 sda 1 2 3\n").unwrap_err().item, "time reading");
        assert_eq!(parse(b"8 0\n").unwrap_err().item, "name");
        assert_eq!(parse(b"\n").unwrap(), []);
    }

    #[test]
    fn another_device_with_the_same_number_begins_anew() {
        let before = DiskCounters { writes: 5, busy_ns: 9, ..DiskCounters::default() };
        let after = DiskCounters { writes: 4, busy_ns: 10, ..before };
        assert_eq!(WrapCorrection::from(before).next(after), CounterChange::Anew(after));
        assert_eq!(WrapCorrection::from(before).next(before), CounterChange::On(before));
    }

    #[test]
    fn a_time_that_falls_a_little_stays() {
        let before = DiskCounters { busy_ns: 9 * MS_NS, ..DiskCounters::default() };
        let after = DiskCounters { busy_ns: 8 * MS_NS, ..before };
        assert_eq!(WrapCorrection::from(before).next(after), CounterChange::On(before));
    }

    proptest! {
        #[test]
        fn times_go_on_over_the_ends_of_what_the_kernel_prints(
            start in 0u64..1 << 32,
            steps in prop::collection::vec(0u64..1 << 31, 0..20),
        ) {
            let printed = |ms: u64| DiskCounters {
                depth_ns: ms * MS_NS % WRAP_NS,
                ..DiskCounters::default()
            };
            let mut unwrap = WrapCorrection::from(printed(start));
            let mut ms = start;
            for step in steps {
                ms += step;
                let on = DiskCounters { depth_ns: ms * MS_NS, ..DiskCounters::default() };
                prop_assert_eq!(unwrap.next(printed(ms)), CounterChange::On(on));
            }
        }

        #[test]
        fn what_the_kernel_prints_is_read(n in any::<[u32; 17]>(), major: u8, minor: u16) {
            let numbers: Vec<String> = n.iter().map(u32::to_string).collect();
            let text = format!("{major:4} {minor:7} nvme0n1p1 {}\n", numbers.join(" "));
            let line = parse(text.as_bytes()).unwrap().remove(0);
            prop_assert_eq!(line.device, DevId { major: major.into(), minor: minor.into() });
            let c = line.counters;
            let read = (c.reads, c.read_bytes, c.in_flight, c.depth_ns, c.discard_bytes, c.flushes);
            let n = n.map(u64::from);
            prop_assert_eq!(read, (n[0], n[2] * 512, n[8], n[10] * MS_NS, n[13] * 512, n[15]));
        }
    }
}
