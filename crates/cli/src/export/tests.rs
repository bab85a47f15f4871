// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every number has a unit and a meaning in time, and `docs/export.md` says so. `UPDATE=1` writes it.

use super::schema::{Field, From, Holds, Kind, OTHERWISE, Table, Unit, tables};
use super::*;
use crate::store;
use crate::store::tests::{joined, wrapped};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

const DOCUMENT: &str = "../../docs/export.md";
/// What precedes the generated part, which goes to the end.
const BEFORE: &str =
    "Written by `make docs` from `crates/cli/src/export/schema.rs`; not by hand.\n\n";

/// What a column means, in the words of the declarations of recordings.
fn meaning(of: Option<&store::Table>, field: &Field) -> String {
    match field.from {
        From::Made(meaning) => meaning.into(),
        From::Seq => "counts up over all tables".into(),
        From::Wall(_) => format!("`{}` on the wall clock", field.name.replace("wall", "ns")),
        From::Cell(..) if ["t0_ns", "t1_ns"].contains(&field.name) && of.is_some_and(in_tick) => {
            if field.name == "t0_ns" { "start of the range" } else { "end of the range" }.into()
        }
        From::Cell(_, column) => {
            let fields = of.map(|of| (of.fields)()).unwrap_or_default();
            let described = fields.iter().find(|it| it.columns.contains(&column));
            described.map(|it| it.meaning_of(&column)).unwrap_or_default()
        }
    }
}

fn in_tick(of: &store::Table) -> bool {
    of.columns().first() == Some(&store::TICK)
}

fn section(table: &Table, of: Option<&store::Table>) -> String {
    let about = match table.name {
        made::FINDING => {
            "What the rules say: a row for each rule, and for a rule that fired one for each victim. The report \
                          has all its evidence; this has what can be compared. Not in the recording."
        }
        made::FACT => {
            "What is known of the host: of a recording the settings that it holds and the kernel's release, of a \
                       snapshot all its facts. Not in the recording under this name."
        }
        _ => &joined(of.unwrap().meaning),
    };
    let mut text = format!("### `{}`\n\n{}\n\n", table.name, wrapped(about));
    text += "| column | type | unit | holds | meaning |\n|---|---|---|---|---|\n";
    for field in &table.columns {
        let meaning = meaning(of, field);
        assert!(!meaning.is_empty(), "`{}.{}` has no meaning", table.name, field.name);
        let null = if field.nullable { " or null" } else { "" };
        let (kind, unit, holds) = (field.kind.word(), field.unit.word(), field.holds.word());
        writeln!(text, "| `{}` | {kind}{null} | {unit} | {holds} | {meaning} |", field.name)
            .unwrap();
    }
    text + "\n"
}

#[test]
fn the_document_says_what_is_exported() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let found = std::fs::read_to_string(&path).unwrap();
    let (before, _) = found.split_once(BEFORE).unwrap();
    let stored = store::tables().map(Some).chain(std::iter::repeat(None));
    let mut sections: Vec<String> =
        tables().iter().zip(stored).map(|(table, of)| section(table, of)).collect();
    // The tables that are made come first.
    sections.rotate_right(2);
    let sections = sections.concat();
    let wanted = [before, BEFORE, sections.trim_end(), "\n"].concat();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found == wanted, "{DOCUMENT} is not up to date: `make docs` writes it");
    assert!(found.contains(SCHEMA), "it names the schema");
}

#[test]
fn every_number_has_a_unit() {
    let numbers = |table: &Table| {
        let is_number = |field: &Field| [Kind::Integer, Kind::Real].contains(&field.kind);
        let without = |field: &&Field| is_number(field) && field.unit == Unit::None;
        let of = table.name;
        table.columns.iter().filter(without).map(|field| format!("{of}.{}", field.name)).collect()
    };
    let without: Vec<Vec<String>> = tables().iter().map(numbers).collect();
    assert_eq!(without.concat(), Vec::<String>::new());
}

#[test]
fn a_column_has_one_unit_and_one_name_in_its_table() {
    for table in tables() {
        let names: BTreeSet<&str> = table.columns.iter().map(|field| field.name).collect();
        assert_eq!(names.len(), table.columns.len(), "{}", table.name);
        let is_made = [made::FINDING, made::FACT].contains(&table.name);
        assert_eq!(table.columns[0].name, if is_made { "host" } else { "seq" });
    }
}

#[test]
fn counters_are_not_taken_for_amounts() {
    let holds = |table: &str, column: &str| {
        let tables = tables();
        let table = tables.iter().find(|it| it.name == table).unwrap();
        table.columns.iter().find(|it| it.name == column).unwrap().holds
    };
    for (table, column, expected) in [
        ("process_tick", "queued_ns", Holds::Amount),
        ("process_tick", "wait_max_ns", Holds::Maximum),
        ("process_tick", "threads", Holds::Level),
        ("process_tick", "proc", Holds::Identity),
        ("cpu_reading", "steal_ns", Holds::Cumulative),
        ("cgroup_reading", "nr_throttled", Holds::Cumulative),
        ("psi_reading", "some_ns", Holds::Cumulative),
        ("disk_reading", "busy_ns", Holds::Cumulative),
        ("disk_reading", "in_flight", Holds::Level),
        ("observer_tick", "rss_bytes", Holds::Level),
        ("cgroup", "quota_us", Holds::Fact),
        ("stall", "t0_ns", Holds::Moment),
        ("io_tick", "t1_wall", Holds::Moment),
    ] {
        assert_eq!(holds(table, column), expected, "{table}.{column}");
    }
    for exception in OTHERWISE {
        // It exists.
        holds(exception.0, exception.1);
    }
}

/// What a sink writes of a row of `setting`.
fn of_setting(value: Cell<'_>, write: impl FnOnce(usize, &[Cell<'_>])) {
    let tables = tables();
    let at = tables.iter().position(|table| table.name == "setting").unwrap();
    let (t_ns, t_wall) = (Cell::Integer(5), Cell::Time(1_700_000_000_000_000_005));
    let path = Cell::Text("/proc/x".into());
    write(at, &[Cell::Integer(7), t_ns, t_wall, path, value]);
}

fn as_csv(value: Cell<'_>) -> String {
    let here = tempfile::tempdir().unwrap();
    let make = |name: &str| File::create(here.path().join(name));
    let mut csv = Csv::new(&make).unwrap();
    of_setting(value, |at, cells| csv.row(at, cells).unwrap());
    csv.finish().unwrap();
    let text = std::fs::read_to_string(here.path().join("setting.csv")).unwrap();
    let line = text.strip_prefix("seq,t_ns,t_wall,path,value\n").unwrap();
    let line = line.strip_prefix("7,5,2023-11-14T22:13:20.000000005Z,\"/proc/x\",").unwrap();
    line.strip_suffix('\n').unwrap().to_owned()
}

fn as_json(value: Cell<'_>) -> String {
    let mut bytes = Vec::new();
    let mut jsonl = Jsonl::new(&mut bytes).unwrap();
    of_setting(value, |at, cells| jsonl.row(at, cells).unwrap());
    jsonl.finish().unwrap();
    drop(jsonl);
    let text = String::from_utf8(bytes).unwrap();
    let (head, line) = text.split_once('\n').unwrap();
    assert!(head.contains(SCHEMA), "{head}");
    let before = "{\"table\":\"setting\",\"seq\":7,\"t_ns\":5,\"t_wall\":\"2023-11-14T22:13:20.000000005Z\",\
                  \"path\":\"/proc/x\",\"value\":";
    line.strip_prefix(before).unwrap().strip_suffix("}\n").unwrap().to_owned()
}

#[test]
fn hostile_names_neither_break_lines_nor_become_formulas() {
    for (name, csv, json) in [
        ("a,b \"c\"", "\"a,b \"\"c\"\"\"", r#""a,b \"c\"""#),
        ("=1+1", "\"'=1+1\"", "\"=1+1\""),
        ("@x", "\"'@x\"", "\"@x\""),
        ("-x", "\"'-x\"", "\"-x\""),
        ("'x", "\"''x\"", "\"'x\""),
        ("＝1", "\"'＝1\"", "\"＝1\""),
        ("\t=1", "\"\\x09=1\"", r#""\t=1""#),
        ("a\nb\r\0", "\"a\\x0ab\\x0d\\x00\"", r#""a\nb\r\u0000""#),
        ("\u{202e}x\\x0a", "\"\\u{202e}x\\\\x0a\"", r#""\u202ex\\x0a""#),
        // A byte that was not UTF-8, as it was decoded.
        ("a\\xff", "\"a\\xff\"", r#""a\\xff""#),
        ("", "\"\"", "\"\""),
    ] {
        assert_eq!(as_csv(Cell::Text(name.into())), csv);
        assert_eq!(as_json(Cell::Text(name.into())), json);
    }
    assert_eq!((as_csv(Cell::Null), as_json(Cell::Null)), (String::new(), "null".into()));
    assert_eq!(as_csv(Cell::Json("{\"a\":[1,2]}".into())), "\"{\"\"a\"\":[1,2]}\"");
    assert_eq!(as_json(Cell::Json("{\"a\":[1,2]}".into())), "{\"a\":[1,2]}");
}

#[test]
fn moments_have_nine_digits() {
    assert_eq!(rfc3339(0).unwrap(), "1970-01-01T00:00:00.000000000Z");
    assert_eq!(rfc3339(-1).unwrap(), "1969-12-31T23:59:59.999999999Z");
    assert_eq!(rfc3339(i64::MAX).unwrap(), "2262-04-11T23:47:16.854775807Z");
}
