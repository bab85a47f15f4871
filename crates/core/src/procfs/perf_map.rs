// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/tmp/perf-PID.map`: the functions that a runtime has made, as it writes them for `perf` (Java, Node.js, Python, .NET).

/// A function that a runtime has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeFunction<'a> {
    /// Address of its first byte.
    pub start: u64,
    /// Address after its last byte.
    pub end: u64,
    /// Its name: any bytes but a newline.
    pub name: &'a [u8],
}

/// Parses a line, `START SIZE NAME` with hexadecimal numbers, with or without `0x`; `None` if it is no such line.
#[must_use]
pub fn parse(line: &[u8]) -> Option<MadeFunction<'_>> {
    let mut fields = line.splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let text = std::str::from_utf8(fields.next()?).ok()?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = fields.next()?.trim_ascii();
    let end = start.checked_add(size)?;
    (size > 0 && !name.is_empty()).then_some(MadeFunction { start, end, name })
}

#[cfg(test)]
mod tests {
    use super::{MadeFunction, parse};

    #[test]
    fn numbers_are_hexadecimal_with_or_without_a_prefix() {
        let expected = Some(MadeFunction { start: 0x7f00, end: 0x7f20, name: b"~ add a.js:3" });
        assert_eq!(parse(b"7f00 20 ~ add a.js:3"), expected);
        assert_eq!(parse(b"0x7f00 0x20 ~ add a.js:3"), expected);
    }

    #[test]
    fn what_is_no_such_line_is_refused() {
        for line in
            ["", "7f00", "7f00 20", "7f00 20 ", "7f00 0 f", "x 20 f", "ffffffffffffffff 2 f"]
        {
            assert_eq!(parse(line.as_bytes()), None, "{line:?}");
        }
    }
}
