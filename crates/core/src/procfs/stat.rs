// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/stat`: the time of each CPU since boot, by state.

use super::{ParseError, Position, fields, lines};

/// Time of one CPU. As in the kernel, `user_ns` includes the time of guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// CPU number.
    pub cpu: u32,
    /// user + nice.
    pub user_ns: u64,
    /// system.
    pub system_ns: u64,
    /// idle.
    pub idle_ns: u64,
    /// iowait.
    pub iowait_ns: u64,
    /// irq + softirq.
    pub irq_ns: u64,
    /// steal.
    pub steal_ns: u64,
}

/// Parses the lines of the online CPUs. `user_hz` is the unit of the file in ticks per second, from
/// `sysconf(_SC_CLK_TCK)`.
///
/// # Errors
/// If a CPU's line lacks one of its first eight numbers, or there is no line of any CPU.
pub fn parse(text: &[u8], user_hz: u64) -> Result<Vec<CpuTimes>, ParseError> {
    let mut cpus = Vec::new();
    for (line, bytes) in lines(text) {
        let at = Position { file: "/proc/stat", line };
        let mut fields = fields(bytes);
        let Some(digits) = fields.next().and_then(|name| name.strip_prefix(b"cpu")) else {
            continue;
        };
        // The line with the sum over all CPUs has no number.
        if digits.is_empty() {
            continue;
        }
        let cpu = at.number("cpu", Some(digits))?;
        let mut next = |item| Ok(ticks_ns(at.number(item, fields.next())?, user_hz));
        let user: u64 = next("user")?;
        let nice = next("nice")?;
        let (system_ns, idle_ns, iowait_ns) = (next("system")?, next("idle")?, next("iowait")?);
        let irq: u64 = next("irq")?;
        let softirq = next("softirq")?;
        cpus.push(CpuTimes {
            cpu,
            user_ns: user.saturating_add(nice),
            system_ns,
            idle_ns,
            iowait_ns,
            irq_ns: irq.saturating_add(softirq),
            steal_ns: next("steal")?,
        });
    }
    if cpus.is_empty() {
        return Err(Position { file: "/proc/stat", line: 1 }.error("cpu0", "a line of a CPU"));
    }
    Ok(cpus)
}

/// Converts ticks of 1/`user_hz` s to nanoseconds.
#[must_use]
pub fn ticks_ns(ticks: u64, user_hz: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(user_hz.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{CpuTimes, parse};

    const TEXT: &[u8] =
        b"cpu  30 0 0 0 0 0 0 0 0 0\ncpu0 10 1 2 3 4 5 6 7 0 0 99\ncpu3 20 0 0 0 0 0 0 0 0 0\n\
        intr 5 0\nctxt 1\n";

    #[test]
    fn ticks_become_nanoseconds_by_user_hz() {
        let cpus = parse(TEXT, 100).unwrap();
        let tick = 10_000_000;
        let first = CpuTimes {
            cpu: 0,
            user_ns: 11 * tick,
            system_ns: 2 * tick,
            idle_ns: 3 * tick,
            iowait_ns: 4 * tick,
            irq_ns: 11 * tick,
            steal_ns: 7 * tick,
        };
        assert_eq!(cpus[0], first);
        assert_eq!((cpus[1].cpu, cpus.len()), (3, 2));
        assert_eq!(parse(TEXT, 1000).unwrap()[0].steal_ns, 7_000_000);
    }

    #[test]
    fn a_short_line_names_its_item_and_line() {
        let error = parse(b"cpu 1\ncpu0 1 2 3\n", 100).unwrap_err();
        assert_eq!((error.line, error.item), (2, "idle"));
        assert_eq!(parse(b"intr 1\n", 100).unwrap_err().item, "cpu0");
    }
}
