// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of the cgroup cpu controller, v1 and v2: limits and counters.

use super::{ParseError, Position, fields, lines, number};

/// CPU time that a cgroup may use in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMax {
    /// Quota per period, in microseconds; `None` = no limit.
    pub quota_us: Option<u64>,
    /// Length of a period, in microseconds.
    pub period_us: u64,
}

/// Parses v2 `cpu.max`.
///
/// # Errors
/// If the text is not `max PERIOD` or `QUOTA PERIOD`.
pub fn cpu_max(text: &[u8]) -> Result<CpuMax, ParseError> {
    let at = Position { file: "cpu.max", line: 1 };
    let mut fields = fields(text.trim_ascii());
    let quota_us = match fields.next() {
        Some(b"max") => None,
        quota => Some(at.number("quota", quota)?),
    };
    Ok(CpuMax { quota_us, period_us: at.number("period", fields.next())? })
}

/// Parses v1 `cpu.cfs_quota_us`; -1 is `None`, no limit.
///
/// # Errors
/// If the text is not a number.
pub fn cfs_quota_us(text: &[u8]) -> Result<Option<u64>, ParseError> {
    let at = Position { file: "cpu.cfs_quota_us", line: 1 };
    Ok(at.number::<i64>("quota", Some(text.trim_ascii()))?.try_into().ok())
}

/// Parses a file that contains a single number: v1 `cpu.cfs_period_us`, `cpu.cfs_burst_us` and `cpu.shares`, v2
/// `cpu.max.burst` and `cpu.weight`, `cpuacct.usage` (nanoseconds).
///
/// # Errors
/// If the text is not a number.
pub fn single(file: &'static str, text: &[u8]) -> Result<u64, ParseError> {
    Position { file, line: 1 }.number("value", Some(text.trim_ascii()))
}

/// `cpu.stat` of either version, in nanoseconds. A counter is `None` where it does not exist: at the root, in a v2
/// cgroup without the cpu controller, on kernels without bursts (before 5.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// CPU time used (v2 only).
    pub usage_ns: Option<u64>,
    /// Number of periods in which the cgroup was active.
    pub nr_periods: Option<u64>,
    /// Number of periods in which it ran out of quota.
    pub nr_throttled: Option<u64>,
    /// Sum over per-CPU run queues of the time that each was throttled.
    pub throttled_ns: Option<u64>,
    /// Number of periods in which accumulated quota was used.
    pub nr_bursts: Option<u64>,
    /// CPU time used from accumulated quota.
    pub burst_ns: Option<u64>,
}

/// Parses `cpu.stat` of v1 or v2: their items have different names (`throttled_time` in nanoseconds,
/// `throttled_usec`), so one function reads both. Malformed items are `None`.
#[must_use]
pub fn cpu_stat(text: &[u8]) -> CpuStat {
    let mut stat = CpuStat::default();
    for (_, line) in lines(text) {
        let mut fields = fields(line);
        let (name, value) = (fields.next().unwrap_or_default(), fields.next().and_then(number));
        let from_us = |us: Option<u64>| us.map(|us| us.saturating_mul(1000));
        match name {
            b"usage_usec" => stat.usage_ns = from_us(value),
            b"nr_periods" => stat.nr_periods = value,
            b"nr_throttled" => stat.nr_throttled = value,
            b"throttled_time" => stat.throttled_ns = value,
            b"throttled_usec" => stat.throttled_ns = from_us(value),
            b"nr_bursts" => stat.nr_bursts = value,
            b"burst_time" => stat.burst_ns = value,
            b"burst_usec" => stat.burst_ns = from_us(value),
            _ => {}
        }
    }
    stat
}

#[cfg(test)]
mod tests {
    use super::{CpuMax, CpuStat, cfs_quota_us, cpu_max, cpu_stat, single};
    use proptest::prelude::*;

    #[test]
    fn v1_counts_nanoseconds_and_v2_microseconds() {
        let v1 = cpu_stat(
            b"nr_periods 10\nnr_throttled 4\nthrottled_time 5000\nnr_bursts 1\nburst_time 70\n",
        );
        let expected = CpuStat {
            usage_ns: None,
            nr_periods: Some(10),
            nr_throttled: Some(4),
            throttled_ns: Some(5000),
            nr_bursts: Some(1),
            burst_ns: Some(70),
        };
        assert_eq!(v1, expected);
        let v2 =
            cpu_stat(b"usage_usec 9\nuser_usec 5\nnr_periods 2\nthrottled_usec 3\nburst_usec 1\n");
        assert_eq!(
            (v2.usage_ns, v2.throttled_ns, v2.burst_ns),
            (Some(9000), Some(3000), Some(1000))
        );
        assert_eq!(v2.nr_throttled, None);
        assert_eq!(cpu_stat(b"nr_periods\nnr_throttled x\n"), CpuStat::default());
    }

    #[test]
    fn no_limit_is_none() {
        assert_eq!(cpu_max(b"max 100000\n").unwrap().quota_us, None);
        assert_eq!(cfs_quota_us(b"-1\n").unwrap(), None);
        assert_eq!(cfs_quota_us(b"50000\n").unwrap(), Some(50_000));
        assert_eq!(cpu_max(b"max\n").unwrap_err().item, "period");
        assert_eq!(single("cpu.weight", b"100\n").unwrap(), 100);
        assert_eq!(single("cpu.weight", b"idle\n").unwrap_err().file, "cpu.weight");
    }

    proptest! {
        #[test]
        fn a_quota_survives_the_round_trip(quota: u64, period: u64) {
            let text = format!("{quota} {period}\n");
            let expected = CpuMax { quota_us: Some(quota), period_us: period };
            prop_assert_eq!(cpu_max(text.as_bytes()).unwrap(), expected);
        }
    }
}
