// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of numbers in few bytes: a third of what they take as JSON, which was half of a busy host's recording.
//!
//! A sequence of numbers, each as LEB128: seven bits a byte from the lowest on, the eighth says that more follow.
//! [`sql`] gives everybody with `sqlite3` the lists as JSON all the same.

/// The numbers as bytes.
pub(super) fn bytes(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for mut rest in numbers {
        while rest >= 0x80 {
            // The lowest seven bits.
            bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

/// The numbers again; `None` if the last one has no end, or one has more than 64 bits.
pub(super) fn numbers(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let (mut number, mut shift) = (0u64, 0);
    for &byte in bytes {
        let bits = u64::from(byte & 0x7f);
        let shifted = bits.checked_shl(shift)?;
        if shifted >> shift != bits {
            return None;
        }
        number |= shifted;
        shift += 7;
        if byte < 0x80 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    (shift == 0).then_some(numbers)
}

/// Expression for a column with such bytes as JSON: a list of lists of `of` numbers each.
pub(super) fn sql(column: &str, of: usize) -> String {
    // SQLite has no function for the number in a byte; where a digit stands in this text is its value, and a 0 does
    // not stand there.
    let digit = |at, half| {
        format!("instr('123456789ABCDEF', substr(hex(substr({column}, {at}, 1)), {half}, 1))")
    };
    let byte = |at| format!("16 * {} + {}", digit(at, 1), digit(at, 2));
    // Each row holds a byte, and of the number that it belongs to what the bytes before it say.
    format!(
        "CASE WHEN {column} NOTNULL THEN (
  WITH RECURSIVE leb(at, byte, low, shift, number) AS (
    SELECT 1, {}, 0, 0, 0 WHERE length({column}) > 0
    UNION ALL
    SELECT at + 1, {}, iif(byte < 128, 0, low | ((byte & 127) << shift)), iif(byte < 128, 0, shift + 7),
      number + (byte < 128)
    FROM leb WHERE at < length({column}))
  SELECT '[' || coalesce(substr(group_concat(
    iif(number % {of}, ',', '],[') || printf('%u', low | (byte << shift)), ''), 3) || ']', '') || ']'
  FROM leb WHERE byte < 128) END AS {column}",
        byte("1"),
        byte("at + 1"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rusqlite::Connection;

    #[test]
    fn what_does_not_end_is_no_number() {
        assert_eq!(numbers(&[0x80]), None);
        assert_eq!(numbers(&[0xff; 11]), None);
        assert_eq!(numbers(&[0x7f, 0x80, 0x01]), Some(vec![127, 128]));
    }

    /// What everybody reads of those bytes.
    fn read(bytes: Option<&[u8]>, of: usize) -> Option<String> {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t(list BLOB)").unwrap();
        connection.execute("INSERT INTO t VALUES (?)", [bytes]).unwrap();
        let select = format!("SELECT {} FROM t", sql("list", of));
        connection.query_row(&select, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn no_list_and_an_empty_one_are_not_the_same() {
        assert_eq!(read(None, 3), None);
        assert_eq!(read(Some(&[]), 3).as_deref(), Some("[]"));
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (numbers(&bytes), read(Some(&bytes), 3));
        }

        #[test]
        fn all_numbers_come_back_by_both_ways(
            rows in prop::collection::vec(prop::array::uniform3((any::<u64>(), 0..64u32)), 0..20),
        ) {
            // Of all lengths.
            let rows: Vec<[u64; 3]> =
                rows.into_iter().map(|row| row.map(|(number, less)| number >> less)).collect();
            let packed = bytes(rows.iter().flatten().copied());
            let all: Vec<u64> = rows.iter().flatten().copied().collect();
            prop_assert_eq!(numbers(&packed), Some(all));
            prop_assert_eq!(read(Some(&packed), 3).unwrap(), serde_json::to_string(&rows).unwrap());
        }
    }
}
