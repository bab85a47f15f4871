// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use proptest::prelude::*;
use serde_json::json;

pub(super) fn snapshot(facts: Vec<Fact>) -> Snapshot {
    Snapshot {
        schema: SCHEMA.into(),
        tool: Tool { version: "0.1.0".into() },
        taken: "2026-01-02T03:04:05Z".into(),
        host: Host { name: Some("web-17".into()), kernel: "6.1.0".into(), arch: "x86_64".into() },
        reading: Reading {
            files: 3,
            took_ns: 30_000,
            median_ns: 5_000,
            as_root: true,
            ..Reading::default()
        },
        facts,
    }
}

pub(super) fn fact(key: &str, value: Value) -> Fact {
    Fact { key: key.into(), class: Class::Configuration, area: Area::Memory, value, read_ns: None }
}

fn written(snapshot: &Snapshot) -> String {
    snapshot.document().unwrap()
}

fn refused(document: &str) -> SnapshotError {
    Snapshot::parse(document.as_bytes()).unwrap_err()
}

#[test]
fn a_document_looks_like_this() {
    let kib = Integer { amount: 8192, unit: Some(Unit::Kib) };
    let each = fold([
        (Instance::Number(0), Value::text("performance")),
        (Instance::Number(1), Value::text("performance")),
        (Instance::Number(2), Value::Absent),
    ]);
    let mut facts = vec![
        fact("/proc/cmdline#quiet", Value::Boolean(true)),
        fact("/proc/meminfo#MemTotal", Value::Integer(kib)),
        fact("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", each),
        fact("/sys/hung", Value::TimedOut { after_ms: 500 }),
    ];
    facts[1].read_ns = Some(21_000_000);
    let value: serde_json::Value = serde_json::from_str(&written(&snapshot(facts))).unwrap();
    assert_eq!(
        value["facts"],
        json!([
            {"key": "/proc/cmdline#quiet", "class": "configuration", "area": "memory", "value": {"boolean": true}},
            {"key": "/proc/meminfo#MemTotal", "class": "configuration", "area": "memory",
             "value": {"integer": {"amount": 8192, "unit": "kib"}}, "read_ns": 21_000_000},
            {"key": "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "class": "configuration", "area": "memory",
             "value": {"each": [{"of": ["0-1"], "value": {"text": "performance"}}, {"of": ["2"], "value": "absent"}]}},
            {"key": "/sys/hung", "class": "configuration", "area": "memory", "value": {"timed_out": {"after_ms": 500}}},
        ])
    );
}

#[test]
fn facts_are_found_by_key_whatever_their_order_in_the_document() {
    let shuffled = snapshot(vec![
        fact("/b", Value::integer(2)),
        fact("/a#x", Value::integer(1)),
        fact("/a", Value::Absent),
    ]);
    let read = Snapshot::parse(written(&shuffled).as_bytes()).unwrap();
    assert_eq!(read.fact("/b").unwrap().value, Value::integer(2));
    assert_eq!(read.fact("/a").unwrap().value, Value::Absent);
    assert_eq!(read.fact("/c"), None);
}

#[test]
fn what_later_versions_add_is_no_error() {
    let mut document = serde_json::to_value(snapshot(vec![fact("/a", Value::integer(1))])).unwrap();
    document["later"] = json!([1]);
    document["facts"][0]["area"] = json!("quantum");
    document["facts"][0]["value"]["integer"]["unit"] = json!("parsecs");
    document["facts"][0]["later"] = json!({});
    let read = Snapshot::parse(document.to_string().as_bytes()).unwrap();
    assert_eq!(read.facts[0].area, Area::Other);
    let Value::Integer(integer) = &read.facts[0].value else { panic!("{read:?}") };
    assert_eq!((integer.amount, integer.unit), (1, Some(Unit::Other)));
}

#[test]
fn documents_that_are_no_snapshot_are_told_apart() {
    assert_eq!(refused(" \n"), SnapshotError::Empty);
    assert_eq!(refused("SQLite format 3\0..."), SnapshotError::Recording);
    assert_eq!(refused("hello"), SnapshotError::NotJson { line: 1, column: 1 });
    assert_eq!(refused("{}"), SnapshotError::OtherKind { schema: None });
    let report = refused(r#"{"schema": "deburr.report/1"}"#).to_string();
    assert_eq!(report, "is no snapshot: its schema is `deburr.report/1`");
    assert!(matches!(refused("[]"), SnapshotError::Malformed { .. }));
    assert_eq!(
        Snapshot::parse(b"{\"schema\": \"\xff\"}").unwrap_err().to_string().split(':').next(),
        Some("is not a snapshot")
    );
}

#[test]
fn another_version_is_named_with_the_deburr_that_reads_it() {
    let mut document = serde_json::to_value(snapshot(vec![])).unwrap();
    document["schema"] = json!("deburr.snapshot/2");
    document["tool"]["version"] = json!("3.0.0");
    document["facts"] = json!("in a form of its own");
    let error = refused(&document.to_string()).to_string();
    assert!(error.contains("`deburr.snapshot/2`") && error.contains("deburr 3.0.0"), "{error}");
}

#[test]
fn damage_is_named_with_its_place() {
    let whole =
        written(&snapshot(vec![fact("/a", Value::integer(1)), fact("/b", Value::integer(1))]));
    let error = refused(&whole.replace("\"configuration\"", "\"colour\""));
    assert!(
        matches!(&error, SnapshotError::Malformed { line, what, .. } if *line > 1 && what.contains("colour")),
        "{error}"
    );
    let error = refused(&whole.replace("\"facts\"", "\"fancies\"")).to_string();
    assert!(error.contains("`facts`"), "{error}");
    assert_eq!(refused(&whole.replace("/b", "/a")), SnapshotError::Twice { key: "/a".into() });
    let inner = Part { of: vec!["0".into()], value: Value::Each(vec![]) };
    let nested = written(&snapshot(vec![fact("/n", Value::Each(vec![inner]))]));
    assert!(matches!(refused(&nested), SnapshotError::BadFact { key, .. } if key == "/n"));
}

#[test]
fn a_document_that_is_cut_off_anywhere_says_so() {
    let whole =
        written(&snapshot(vec![fact("/a", Value::text("é")), fact("/b", Value::integer(1))]));
    let end = whole.trim_end().len();
    for cut in 1..end {
        let error = Snapshot::parse(&whole.as_bytes()[..cut]).unwrap_err();
        assert!(matches!(error, SnapshotError::Truncated { .. }), "{cut}: {error:?}");
    }
}

#[test]
fn equal_values_of_many_cpus_are_one_part() {
    let values =
        (0..256).map(|cpu| (Instance::Number(cpu), Value::text(if cpu == 7 { "x" } else { "y" })));
    assert_eq!(
        fold(values),
        Value::Each(vec![
            Part { of: vec!["0-6".into(), "8-255".into()], value: Value::text("y") },
            Part { of: vec!["7".into()], value: Value::text("x") },
        ])
    );
    let names = ["sdb", "sda"].map(|name| (Instance::Name(name.into()), Value::integer(128)));
    let folded = fold(names);
    assert_eq!(folded.uniform(), Some(&Value::integer(128)));
    assert_eq!(
        folded,
        Value::Each(vec![Part {
            of: vec!["sda".into(), "sdb".into()],
            value: Value::integer(128)
        }])
    );
    assert_eq!(fold([]), Value::Absent);
}

#[test]
fn what_is_not_known_is_not_absent() {
    assert!(Value::Absent.is_known());
    assert!(!Value::Unreadable("permission denied".into()).is_known());
    assert!(!fold([(Instance::Number(0), Value::TimedOut { after_ms: 1 })]).is_known());
    assert!(Class::ALL.iter().filter(|class| class.is_compared()).count() == 2);
}

fn plain_values() -> impl Strategy<Value = Value> {
    let text = "(?s).{0,12}";
    let units =
        prop::option::of(prop_oneof![Just(Unit::Kib), Just(Unit::MbitPerS), Just(Unit::Us)]);
    let amounts = prop_oneof![any::<i64>().prop_map(i128::from), any::<u64>().prop_map(i128::from)];
    prop_oneof![
        text.prop_map(Value::Text),
        (amounts, units).prop_map(|(amount, unit)| Value::Integer(Integer { amount, unit })),
        any::<bool>().prop_map(Value::Boolean),
        prop::collection::vec(text, 0..4).prop_map(Value::List),
        prop::collection::btree_set(text, 0..4).prop_map(Value::Set),
        prop::collection::btree_map(text, text, 0..4).prop_map(Value::Table),
        Just(Value::Absent),
        text.prop_map(Value::Unreadable),
        any::<u64>().prop_map(|after_ms| Value::TimedOut { after_ms }),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        plain_values(),
        prop::collection::vec((0u32..300, plain_values()), 1..6).prop_map(|values| fold(
            values.into_iter().map(|(cpu, value)| (Instance::Number(cpu), value))
        )),
    ]
}

proptest! {
    #[test]
    fn a_snapshot_survives_the_round_trip(
        facts in prop::collection::btree_map("(?s).{1,12}", (values(), prop::option::of(any::<u64>())), 0..8),
    ) {
        let facts = facts.into_iter().map(|(key, (value, read_ns))| Fact { read_ns, ..fact(&key, value) }).collect();
        let before = snapshot(facts);
        prop_assert_eq!(Snapshot::parse(written(&before).as_bytes()).unwrap(), before);
    }

    #[test]
    fn no_document_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(Snapshot::parse(&bytes).is_err());
    }

    #[test]
    fn damage_never_makes_it_panic(at in 0usize..400, byte in any::<u8>()) {
        let mut document = written(&snapshot(vec![fact("/a", Value::integer(1))])).into_bytes();
        if let Some(place) = document.get_mut(at) {
            *place = byte;
        }
        let _ = Snapshot::parse(&document);
    }

    #[test]
    fn folding_loses_no_instance(values in prop::collection::btree_map(0u32..64, 0i64..4, 1..64)) {
        let folded = fold(values.iter().map(|(cpu, value)| (Instance::Number(*cpu), Value::integer(*value))));
        let Value::Each(parts) = folded else { panic!("{folded:?}") };
        let mut back = BTreeMap::new();
        for part in parts {
            for cpu in crate::procfs::cpu_list::parse(part.of.join(",").as_bytes()).unwrap() {
                prop_assert!(back.insert(cpu, part.value.clone()).is_none());
            }
        }
        let wanted: BTreeMap<u32, Value> = values.into_iter().map(|(cpu, value)| (cpu, Value::integer(value))).collect();
        prop_assert_eq!(back, wanted);
    }
}
