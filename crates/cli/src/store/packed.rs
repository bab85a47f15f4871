// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of numbers as packed bytes. They take a third of their size as JSON, which was half of the recording of a
//! busy host.
//!
//! [`packed`](deburr_core::recording::packed) says how. [`sql`] lets readers with `sqlite3` see the lists as JSON.

pub(super) use deburr_core::recording::packed::{bytes, numbers};

/// An SQL expression for a column of packed bytes as JSON: a list of lists of `of` numbers each.
pub(super) fn sql(column: &str, of: usize) -> String {
    // SQLite has no function for the value of a byte. The position of a hex digit in this text is the digit's value;
    // `0` is not in the text, so its position is 0.
    let digit = |at, half| {
        format!("instr('123456789ABCDEF', substr(hex(substr({column}, {at}, 1)), {half}, 1))")
    };
    let byte = |at| format!("16 * {} + {}", digit(at, 1), digit(at, 2));
    // Each row holds a byte, and the value and shift from the earlier bytes of the same number.
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

    /// What the SQL expression yields for those bytes.
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
            // Numbers of all lengths.
            let rows: Vec<[u64; 3]> =
                rows.into_iter().map(|row| row.map(|(number, less)| number >> less)).collect();
            let packed = bytes(rows.iter().flatten().copied());
            let all: Vec<u64> = rows.iter().flatten().copied().collect();
            prop_assert_eq!(numbers(&packed), Some(all));
            prop_assert_eq!(read(Some(&packed), 3).unwrap(), serde_json::to_string(&rows).unwrap());
        }
    }
}
