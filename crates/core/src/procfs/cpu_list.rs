// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU lists (`0-3,8`), as in `Cpus_allowed_list`, `cpuset.cpus.effective` and `/sys/devices/system/cpu/online`.

use super::{ParseError, Position, number};
use std::fmt::Write as _;

/// Above any `CONFIG_NR_CPUS`. Prevents that a malformed range expands to gigabytes of CPU numbers.
const MAX_CPUS: u32 = 1 << 16;

/// The CPUs of a list, ascending, each once. An empty list contains no CPU.
///
/// # Errors
/// If a part is neither a number nor an ascending range.
pub fn parse(text: &[u8]) -> Result<Vec<u32>, ParseError> {
    let error = Position { file: "CPU list", line: 1 }.error("CPUs", "a list like `0-3,8`");
    let mut cpus = Vec::new();
    for part in text.trim_ascii().split(|&b| b == b',').filter(|part| !part.is_empty()) {
        let mut ends = part.splitn(2, |&b| b == b'-').map(number::<u32>);
        let (Some(Some(first)), last) = (ends.next(), ends.next()) else {
            return Err(error);
        };
        match last.unwrap_or(Some(first)) {
            Some(last) if first <= last && last < MAX_CPUS => cpus.extend(first..=last),
            _ => return Err(error),
        }
        // Overlapping ranges must not accumulate without bound.
        if cpus.len() > MAX_CPUS as usize {
            cpus.sort_unstable();
            cpus.dedup();
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Formats CPUs as a list. They need not be sorted.
#[must_use]
pub fn format(cpus: &[u32]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let mut list = String::new();
    for run in cpus.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let comma = if list.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = match run.len() {
            1 => write!(list, "{comma}{first}"),
            _ => write!(list, "{comma}{first}-{last}"),
        };
    }
    list
}

#[cfg(test)]
mod tests {
    use super::{format, parse};
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(parse(b"0-3,8\n").unwrap(), [0, 1, 2, 3, 8]);
        assert_eq!(parse(b"\n").unwrap(), [0; 0]);
        assert_eq!(format(&[8, 0, 1, 3, 2, 8]), "0-3,8");
        assert_eq!(format(&[]), "");
    }

    #[test]
    fn refuses_what_is_no_list() {
        for bad in ["3-1", "a", "1-", "-1", "0-4294967295", "1,,x"] {
            let error = parse(bad.as_bytes()).unwrap_err();
            assert_eq!(error.item, "CPUs", "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_list_survives_the_round_trip(cpus in prop::collection::btree_set(0u32..1024, 0..200)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(parse(format(&cpus).as_bytes()).unwrap(), cpus);
        }
    }
}
