// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/pressure/*` and `*.pressure` of a cgroup: pressure-stall information.

use super::{ParseError, Position, fields, lines};

/// Cumulative stall times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Wall time in which some task was stalled.
    pub some_ns: u64,
    /// Wall time in which all non-idle tasks were stalled; cpu pressure has none before Linux 5.13.
    pub full_ns: Option<u64>,
}

/// Parses a pressure file. Only `total` is used: it is more precise than the averages.
///
/// # Errors
/// If `some` or a `total` is missing.
pub fn parse(text: &[u8]) -> Result<Pressure, ParseError> {
    let file = "/proc/pressure";
    let (mut some_ns, mut full_ns) = (None, None);
    for (line, bytes) in lines(text) {
        let at = Position { file, line };
        let mut fields = fields(bytes);
        let kind = fields.next();
        let slot = match kind {
            Some(b"some") => &mut some_ns,
            Some(b"full") => &mut full_ns,
            _ => continue,
        };
        let total = fields.find_map(|field| field.strip_prefix(b"total="));
        *slot = Some(at.number::<u64>("total", total)?.saturating_mul(1000));
    }
    let some_ns = some_ns.ok_or_else(|| Position { file, line: 1 }.error("some", "a line"))?;
    Ok(Pressure { some_ns, full_ns })
}

#[cfg(test)]
mod tests {
    use super::{Pressure, parse};

    #[test]
    fn totals_are_microseconds_in_the_file() {
        let text =
            b"some avg10=0.21 avg60=0.53 avg300=0.89 total=20509863\nfull avg10=0.00 total=7\n";
        let expected = Pressure { some_ns: 20_509_863_000, full_ns: Some(7000) };
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse(b"some avg10=0.0 total=1\n").unwrap().full_ns, None);
        assert_eq!(parse(b"full total=1\n").unwrap_err().item, "some");
        assert_eq!(parse(b"\nsome avg10=1\n").unwrap_err().line, 2);
    }
}
