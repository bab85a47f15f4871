// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/PID/task/TID/schedstat`: the scheduler's counters of one thread.

use super::{ParseError, Position, fields};

/// Cumulative counters since the creation of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a CPU.
    pub on_cpu_ns: u64,
    /// Time runnable but not running, throttling included. The kernel adds a wait when the thread gets a CPU.
    pub delay_ns: u64,
    /// Number of times that the thread got a CPU.
    pub slices: u64,
}

/// Parses the file.
///
/// # Errors
/// If one of the three numbers is missing.
pub fn parse(text: &[u8]) -> Result<Schedstat, ParseError> {
    let at = Position { file: "/proc/PID/schedstat", line: 1 };
    let mut fields = fields(text.trim_ascii());
    Ok(Schedstat {
        on_cpu_ns: at.number("run time", fields.next())?,
        delay_ns: at.number("run delay", fields.next())?,
        slices: at.number("timeslices", fields.next())?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Schedstat, parse};

    #[test]
    fn reads_three_numbers() {
        let expected = Schedstat { on_cpu_ns: 12_345, delay_ns: 67, slices: 8 };
        assert_eq!(parse(b"12345 67 8\n").unwrap(), expected);
        assert_eq!(parse(b"12345 67").unwrap_err().item, "timeslices");
    }
}
