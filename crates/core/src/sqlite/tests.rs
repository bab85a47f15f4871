// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use proptest::prelude::*;

/// A recording of five seconds. The tests of the store compare what is read of files that SQLite wrote, and of their logs.
const KEPT: &[u8] = include_bytes!("../../../../fixtures/recordings/v2/made-up.deburr");

/// Number of rows and cells of all tables of those names.
fn read(file: &[u8], log: Option<&[u8]>) -> Result<(u64, usize)> {
    let database = Database::open(file, log)?;
    let schema = Schema::read(&database)?;
    let pass = Pass::new(&database);
    let (mut count, mut cells) = (0, 0);
    for name in ["meta", "tick", "process", "process_tick", "io_tick", "device_bins"] {
        let Some(table) = schema.table(name)? else { continue };
        let mut rows = pass.rows(table.root)?;
        while rows.advance()?.is_some() {
            count += 1;
            cells += (0..rows.columns()).filter(|&at| rows.get(at) != Value::Null).count();
        }
    }
    Ok((count, cells))
}

#[test]
fn a_file_is_read_and_a_cut_one_is_not() {
    let (rows, cells) = read(KEPT, None).unwrap();
    assert!(rows > 20 && cells > 4 * rows as usize, "{rows} {cells}");
    assert!(matches!(read(&KEPT[..KEPT.len() - 1], None), Err(Fault::Damaged(_))));
    assert!(matches!(read(&KEPT[..99], None), Err(Fault::Damaged(_))));
    // What is no log is none.
    assert_eq!(read(KEPT, Some(&[0; 5000])), Ok((rows, cells)));
}

#[test]
fn only_a_plain_table_is_one() {
    let of = |sql: &str| {
        // Numbers of two bytes.
        let varint = |number: usize| [0x80 | (number >> 7) as u8, number as u8 & 0x7f];
        let mut row = vec![7, 0x17, 0x0f, 0x0f, 1];
        row.extend(varint(13 + 2 * sql.len()));
        row.extend(b"tablett\x02");
        row.extend(sql.bytes());
        // A schema of one page with one row.
        let mut page = vec![0; 1024];
        let at = page.len() - row.len() - 3;
        page[..16].copy_from_slice(MAGIC);
        page[16..24].copy_from_slice(&[4, 0, 1, 1, 0, 64, 32, 32]);
        page[100] = 0x0d;
        page[104] = 1;
        page[108..110].copy_from_slice(&(at as u16).to_be_bytes());
        page[at..at + 2].copy_from_slice(&varint(row.len()));
        page[at + 2] = 1;
        page[at + 3..].copy_from_slice(&row);
        let database = Database::open(&page[..], None).unwrap();
        Schema::read(&database).unwrap().table("t").map(|table| table.unwrap().columns.len())
    };
    for (sql, columns) in [
        ("CREATE TABLE t(k INTEGER PRIMARY KEY)", 1),
        ("create table \"t\" (k integer primary key, a TEXT NOT NULL,b BLOB_OF_3\n)", 3),
    ] {
        assert_eq!(of(sql), Ok(columns), "{sql}");
    }
    for sql in [
        "CREATE VIRTUAL TABLE t USING x",
        "CREATE TABLE t(k INT, a TEXT)",
        "CREATE TABLE t(k INTEGER PRIMARY KEY DESC)",
        "CREATE TABLE t(k INTEGER PRIMARY KEY) STRICT",
        "CREATE TABLE t(k INTEGER PRIMARY KEY, a AS (1))",
        "CREATE TABLE t(k INTEGER PRIMARY KEY, a TEXT UNIQUE)",
        "CREATE TABLE t AS SELECT 1",
        "",
    ] {
        assert!(matches!(of(sql), Err(Fault::Damaged(_))), "{sql}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60),
        in_head in prop::collection::vec((0..1200usize, any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = KEPT.to_vec();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        for (place, byte) in in_head {
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = read(&bytes, Some(&bytes));
        let _ = read(&bytes, None);
    }

    #[test]
    fn any_varint_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        if let Some((_, length)) = row::varint(&bytes) {
            prop_assert!(length <= bytes.len().min(9));
        }
    }
}
