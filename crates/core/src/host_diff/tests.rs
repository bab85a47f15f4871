// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::document::{Difference, TakesEffect};
use super::*;
use crate::finding::Severity;
use crate::snapshot::{Class, FILTERED, Instance, SlowRead, Value, fold};
use crate::testkit::snapshot::{host, khz, on_cpus};
use proptest::prelude::*;

const DRIVER: &str = "/sys/devices/system/cpu/cpufreq/policy*/scaling_driver";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor";
const LIMIT: &str = "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq";
const IDLE: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const MAX_CSTATE: &str = "/proc/cmdline#intel_idle.max_cstate";

fn of(snapshots: &[Snapshot]) -> HostDiff {
    let given: Vec<HostInput<'_>> = snapshots
        .iter()
        .map(|snapshot| HostInput { snapshot, label: "file", slow: None, golden: false })
        .collect();
    crate::rules::diff(&given, &[], "0.1.0")
}

fn pair(a: Snapshot, b: Snapshot) -> HostDiff {
    of(&[a, b])
}

fn only(diff: &HostDiff) -> &Difference {
    assert_eq!(diff.differences.len(), 1, "{:#?}", diff.differences);
    &diff.differences[0]
}

#[test]
fn the_incident_has_module_driver_and_limit_on_top() {
    let diff = of(&drift());
    let top: Vec<&str> = diff.differences.iter().filter_map(|it| it.what.as_deref()).collect();
    assert_eq!(
        top[..4],
        [
            "module that sets CPU frequencies",
            "module for temperatures and cooling",
            "driver that sets CPU frequencies",
            "upper limit of CPU frequency"
        ]
    );
    // Without the driver, the files that it creates do not exist.
    let governor = diff.differences.iter().find(|it| it.key == GOVERNOR).unwrap();
    assert_eq!((governor.follows.as_deref(), governor.severity), (Some(DRIVER), Severity::Info));
    assert!(
        diff.differences.iter().all(|it| !it.key.contains("MHz") && !it.key.contains("boot_id"))
    );
    assert_eq!(diff.facts.aside, 3);
}

/// `UPDATE=1 cargo test` rewrites the golden files.
#[test]
fn the_incident_looks_as_it_is_kept() {
    let diff = of(&drift());
    let style = crate::render::TextStyle { columns: 100, color: false, verbosity: 1 };
    let text = |verbosity| {
        crate::render::host_diff(&diff, crate::render::TextStyle { verbosity, ..style })
    };
    let texts = [
        ("drift.txt".to_owned(), text(1)),
        ("drift-quiet.txt".to_owned(), text(0)),
        ("drift-verbose.txt".to_owned(), text(2)),
        ("drift.json".to_owned(), crate::render::json_document(&diff).unwrap()),
    ];
    for (_, text) in &texts[..3] {
        let commands = ["       sudo ", "  look: ", "       undo: "];
        let wide = |line: &&str| {
            line.chars().count() > 100 && !commands.iter().any(|it| line.starts_with(it))
        };
        assert_eq!(text.lines().find(wide), None);
    }
    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/snapshots/golden");
    crate::render::golden::assert_kept(FOLDER, &texts);
}

#[test]
fn a_parameter_says_nothing_where_its_driver_is_not_in_charge() {
    let with = |driver: &str, value: Value| {
        host("h").with(IDLE, Value::text(driver)).with(MAX_CSTATE, value)
    };
    let nowhere = pair(with("acpi_idle", Value::integer(0)), with("acpi_idle", Value::integer(1)));
    let it = only(&nowhere);
    assert_eq!(it.severity, Severity::Info);
    assert!(it.cautions[0].contains("`acpi_idle`"), "{:?}", it.cautions);
    assert!(it.slows.is_empty());
    let both = pair(with("intel_idle", Value::integer(1)), with("intel_idle", Value::integer(9)));
    let it = only(&both);
    assert_eq!((it.severity, it.slows.as_slice()), (Severity::High, &["B".to_owned()][..]));
    assert!(it.cautions.is_empty());
    let unknown = pair(
        host("a").with(MAX_CSTATE, Value::integer(1)),
        host("b").with(MAX_CSTATE, Value::integer(9)),
    );
    assert!(only(&unknown).cautions[0].contains("not known"), "{:?}", only(&unknown).cautions);
}

#[test]
fn what_is_not_known_is_neither_alike_nor_different() {
    let key = "/proc/sys/vm/swappiness";
    for value in [
        Value::Unreadable("permission denied".into()),
        Value::TimedOut { after_ms: 500 },
        Value::text(FILTERED),
    ] {
        let diff = pair(host("a").with(key, Value::integer(60)), host("b").with(key, value));
        assert_eq!((diff.facts.compared, diff.differences.len()), (0, 0));
        assert_eq!(
            (diff.not_compared[0].key.as_str(), &diff.not_compared[0].hosts),
            (key, &vec!["B".to_owned()])
        );
    }
    // An absent fact is known.
    let diff = pair(host("a").with(key, Value::integer(60)), host("b").with(key, Value::Absent));
    assert_eq!(only(&diff).values[1].shown, "not there");
}

#[test]
fn a_key_that_another_version_lacks_was_perhaps_not_looked_at() {
    let a = || host("a").with("/proc/sys/vm/swappiness", Value::integer(60));
    let mut old = host("b");
    assert_eq!(only(&pair(a(), old.clone())).values[1].shown, "not there");
    old.tool.version = "0.0.9".into();
    let diff = pair(a(), old.clone());
    assert!(diff.differences.is_empty() && diff.not_compared[0].why.contains("0.0.9"));
    // But a file that is always read as a whole was read.
    let a = a().with("/proc/cmdline#mitigations", Value::text("off"));
    let old = old.with("/proc/cmdline#quiet", Value::Boolean(true));
    let keys: Vec<String> = pair(a, old).differences.into_iter().map(|it| it.key).collect();
    assert!(keys.contains(&"/proc/cmdline#mitigations".to_owned()), "{keys:?}");
}

#[test]
fn values_of_cpus_are_compared_by_content() {
    let governor = |value| host("h").with(GOVERNOR, value);
    let same = Value::text("performance");
    assert_eq!(pair(governor(on_cpus(8, &same)), governor(on_cpus(64, &same))).facts.same, 1);
    let one_saves = |cpus: u32, which: u32| {
        let of = |cpu| Value::text(if cpu == which { "powersave" } else { "performance" });
        governor(fold((0..cpus).map(|cpu| (Instance::Number(cpu), of(cpu)))))
    };
    // It does not matter which CPU has the other value, only that one does.
    assert_eq!(pair(one_saves(8, 3), one_saves(8, 5)).facts.same, 1);
    assert_eq!(pair(one_saves(8, 3), one_saves(64, 5)).facts.same, 1);
    assert_eq!(pair(one_saves(8, 3), governor(on_cpus(8, &same))).facts.different, 1);
    let names = |names: [&str; 2]| {
        let values = names.map(|name| {
            (Instance::Name(name.into()), Value::text(if name == "sda" { "none" } else { "bfq" }))
        });
        host("h").with("/sys/block/*/queue/scheduler", fold(values))
    };
    assert_eq!(pair(names(["sda", "sdb"]), names(["sda", "vda"])).facts.same, 1);
}

#[test]
fn amounts_that_follow_from_memory_need_not_be_equal() {
    let key = "/proc/meminfo#MemTotal";
    let with = |kib: i64| host("h").with_fact(key, Class::Capability, Value::integer(kib));
    assert_eq!(pair(with(65_800_000), with(65_812_000)).facts.same, 1);
    assert_eq!(pair(with(65_800_000), with(32_900_000)).facts.different, 1);
}

#[test]
fn lists_and_nodes_that_follow_from_memory_need_not_be_equal_either() {
    let list = |words: [&str; 3]| {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        host("h").with("/proc/sys/net/ipv4/tcp_mem", Value::List(words))
    };
    let usual = || list(["287814", "383752", "575628"]);
    assert_eq!(pair(usual(), list(["287900", "383860", "575800"])).facts.same, 1);
    assert_eq!(pair(usual(), list(["287814", "383752", "1151256"])).facts.different, 1);
    let nodes = |kib: [i64; 2]| {
        let each = (0..).zip(kib).map(|(node, kib)| (Instance::Number(node), Value::integer(kib)));
        let key = "/sys/devices/system/node/node*/meminfo#MemTotal";
        host("h").with_fact(key, Class::Capability, fold(each))
    };
    assert_eq!(
        pair(nodes([65_800_000, 65_900_000]), nodes([65_810_000, 65_810_000])).facts.same,
        1
    );
    assert_eq!(
        pair(nodes([65_800_000, 65_900_000]), nodes([65_800_000, 32_900_000])).facts.different,
        1
    );
}

#[test]
fn modules_count_by_presence() {
    let with = |value| host("h").with("/proc/modules#ext4", value);
    assert_eq!(pair(with(Value::integer(700)), with(Value::integer(704))).facts.same, 1);
    assert_eq!(pair(with(Value::integer(700)), with(Value::Absent)).facts.different, 1);
}

#[test]
fn a_change_makes_the_slower_side_like_the_other_and_can_be_undone() {
    let with = |governor: &str| {
        let value = on_cpus(4, &Value::text(governor));
        host("h").with(DRIVER, on_cpus(4, &Value::text("acpi-cpufreq"))).with(GOVERNOR, value)
    };
    for (diff, slower) in [
        (pair(with("performance"), with("powersave")), "B"),
        (pair(with("powersave"), with("performance")), "A"),
    ] {
        let it = only(&diff);
        let change = it.change.as_ref().unwrap();
        assert_eq!(
            (&it.slows, &change.hosts),
            (&vec![slower.to_owned()], &vec![slower.to_owned()])
        );
        assert_eq!(change.text, "cpupower frequency-set -g performance");
        assert_eq!(change.undo, "cpupower frequency-set -g powersave");
        assert_eq!(change.reach, TakesEffect::Now);
    }
    let sysctl = |value: &str| host("h").with("/proc/sys/vm/dirty_ratio", Value::text(value));
    let change = only(&pair(sysctl("10"), sysctl("20"))).change.clone().unwrap();
    assert_eq!(change.text, "sudo sysctl -w 'vm.dirty_ratio=10'");
    assert_eq!(change.undo, "sudo sysctl -w 'vm.dirty_ratio=20'");
}

/// What a snapshot says is shown as a difference. A command comes of what the table of settings has.
#[test]
fn no_snapshot_writes_a_command() {
    for (key, from, to) in [
        ("/proc/sys/kernel/core_pattern", "core", "|/tmp/evil"),
        ("/proc/sys/vm/dirty_ratio", "10", "$(reboot)"),
        ("/proc/sys/vm/dirty_../../kernel/core_pattern", "10", "20"),
        ("/sys/devices/../../etc/cron.d/x", "a", "b"),
        ("/sys/devices/../../etc/cron.d/scaling_governor", "a", "b"),
        ("/sys/devices/system/cpu/../../../../etc/cron.d/cpufreq/x", "a", "b"),
        ("/sys/block/sda;reboot/queue/rq_affinity", "1", "2"),
        ("/sys/module/evil/parameters/run", "a", "b"),
        ("/proc/cmdline#init", "/sbin/init", "/tmp/evil"),
        ("/proc/cmdline#mitigations", "auto", "off init=/tmp/evil;"),
        ("/proc/modules#evil", "live", "absent"),
        ("/proc/modules#evil_wdt", "live", "absent"),
        ("/proc/modules#-C/tmp", "live", "absent"),
    ] {
        let value = |text: &str| match text {
            "absent" => Value::Absent,
            text => Value::text(text),
        };
        let diff = pair(host("a").with(key, value(from)), host("b").with(key, value(to)));
        for it in &diff.differences {
            assert_eq!(it.change, None, "{key}");
            assert!(!it.look.contains("..") && !it.look.contains(';'), "{}", it.look);
        }
        assert_eq!(diff.differences.len(), 1, "{key} is not shown");
    }
}

#[test]
fn what_differs_from_a_golden_host_becomes_like_it() {
    let with = |source: &str| {
        host("h").with(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            Value::text(source),
        )
    };
    let (golden, other) = (with("hpet"), with("tsc"));
    let given = [(&golden, true), (&other, false)].map(|(snapshot, golden)| HostInput {
        snapshot,
        label: "",
        slow: None,
        golden,
    });
    let diff = crate::rules::diff(&given, &[], "0.1.0");
    // Here the golden host is the slower one; the other is to become like it nevertheless.
    let it = only(&diff);
    assert_eq!(
        (&*it.slows, &*it.change.as_ref().unwrap().hosts),
        (&["A".to_owned()][..], &["B".to_owned()][..])
    );
}

#[test]
fn a_file_that_is_slow_on_one_host_speaks_for_what_it_belongs_to() {
    let [mut healthy, mut slow] = drift();
    let file = |ms: u64| SlowRead {
        path: "/sys/class/thermal/thermal_zone0/temp".into(),
        key: "/sys/class/thermal/thermal_zone*/temp".into(),
        wall_ns: ms * 1_000_000,
        cpu_ns: Some(ms * 1_000_000),
        again_ns: None,
    };
    slow.reading.slow = vec![file(207)];
    let diff = of(&[healthy.clone(), slow.clone()]);
    assert_eq!(diff.differences[0].what.as_deref(), Some("module for temperatures and cooling"));
    assert!(diff.differences[0].supported_by[0].contains("207 ms"));
    assert!(
        diff.findings
            .iter()
            .flat_map(|it| &it.evidence)
            .any(|it| it.source.ends_with("zone0/temp"))
    );
    // The file is slow on both hosts: no difference.
    healthy.reading.slow = vec![file(207)];
    assert!(of(&[healthy, slow]).differences.iter().all(|it| it.supported_by.is_empty()));
}

#[test]
fn hosts_of_one_name_are_told_apart() {
    let with = |value: i64| host("(none)").with("/proc/sys/vm/swappiness", Value::integer(value));
    let diff = pair(with(1), with(2));
    assert!(
        diff.findings[0].title.starts_with("`(none) (B)` differs from `(none) (A)`"),
        "{}",
        diff.findings[0].title
    );
}

#[test]
fn what_comes_and_goes_is_no_drift() {
    let options = Value::text("rw");
    for key in [
        "/proc/self/mountinfo#/mnt/usb",
        "/proc/modules#btrfs",
        "/sys/fs/cgroup/user.slice/cpu.max",
    ] {
        let there = host("b").with(key, options.clone());
        assert_eq!(
            only(&pair(host("a").with(key, Value::Absent), there)).severity,
            Severity::Info,
            "{key}"
        );
    }
    let root = |options: &str| host("h").with("/proc/self/mountinfo#/", Value::text(options));
    assert_eq!(only(&pair(root("rw"), root("rw,sync"))).severity, Severity::Medium);
}

#[test]
fn a_lower_limit_is_slower_and_the_worst_cpu_decides() {
    let with = |value| host("h").with(LIMIT, value);
    let one = fold(
        (0..4).map(|cpu| (Instance::Number(cpu), khz(if cpu == 2 { 800_000 } else { 3_000_000 }))),
    );
    let diff = pair(with(on_cpus(4, &khz(2_000_000))), with(one));
    assert_eq!(only(&diff).slows, ["B"]);
}

#[test]
fn of_many_hosts_the_majority_comes_first_and_outliers_are_counted() {
    let with = |value: i64| host("h").with("/proc/sys/vm/swappiness", Value::integer(value));
    let diff = of(&[with(60), with(10), with(60), with(60), with(1)]);
    let it = only(&diff);
    assert_eq!(it.values[0].hosts, ["A", "C", "D"]);
    assert_eq!(it.values.len(), 3);
    let outliers: Vec<u64> = diff.hosts.iter().map(|host| host.outlier_in).collect();
    assert_eq!(outliers, [0, 1, 0, 0, 1]);
}

#[test]
fn letters() {
    for (at, name) in [(0, "A"), (25, "Z"), (26, "AA"), (52, "BA"), (701, "ZZ")] {
        assert_eq!(id(at), name);
    }
}

/// 3 slow and 5 fast hosts with one fact that agrees with slowness and 40 random ones.
fn fleet(planted: &str, noise: &[[u8; 8]]) -> HostDiff {
    let hosts: Vec<Snapshot> = (0..8)
        .map(|at| {
            let slow = Value::text(if at < 3 { "x" } else { "y" });
            noise.iter().enumerate().fold(host("h").with(planted, slow), |it, (n, values)| {
                it.with(&format!("/proc/sys/vm/noise{n}"), Value::integer(values[at]))
            })
        })
        .collect();
    let given: Vec<HostInput<'_>> = hosts
        .iter()
        .enumerate()
        .map(|(at, snapshot)| HostInput { snapshot, label: "", slow: Some(at < 3), golden: false })
        .collect();
    crate::rules::diff(&given, &[], "0.1.0")
}

#[test]
fn few_hosts_are_told_what_is_needed() {
    let noise: Vec<[u8; 8]> = (0..40u8)
        .map(|n| [0, 1, 2, 3, 4, 5, 6, 7].map(|at| (n >> (at % 6)) & 1 ^ u8::from(at == 7)))
        .collect();
    let diff = fleet(GOVERNOR, &noise);
    let separation = diff.separation.as_ref().unwrap();
    assert_eq!((separation.slow, separation.fast, separation.significant), (3, 5, false));
    assert_eq!(separation.best, [GOVERNOR]);
    let needed = separation.needed_of_each.unwrap();
    assert!((5..12).contains(&needed), "{needed}");
    assert!(separation.summary.contains("may be chance"), "{}", separation.summary);
    let test = diff.differences[0].test.as_ref().unwrap();
    assert!(test.is_perfect() && (test.chance - 1.0 / 56.0).abs() < 1e-12);
    assert!(test.corrected > 0.1);
    // Nothing is reported if all hosts are alike in this respect.
    assert!(of(&drift()).separation.is_none());
}

#[test]
fn with_enough_hosts_it_is_no_chance() {
    let hosts: Vec<Snapshot> = (0..16u8)
        .map(|at| {
            let it = host("h").with("/proc/sys/vm/odd", Value::integer(at % 2));
            it.with("/proc/sys/vm/unknown", Value::integer(u8::from(at < 8)))
        })
        .collect();
    let given: Vec<HostInput<'_>> = hosts
        .iter()
        .enumerate()
        .map(|(at, snapshot)| HostInput { snapshot, label: "", slow: Some(at < 8), golden: false })
        .collect();
    let separation = crate::rules::diff(&given, &[], "0.1.0").separation.unwrap();
    assert!(separation.significant && separation.needed_of_each.is_none(), "{separation:?}");
    assert_eq!(separation.best, ["/proc/sys/vm/unknown"]);
    assert_eq!(separation.divisions, 2);
}

fn plain() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::integer),
        Just(Value::integer(i128::MAX)),
        Just(Value::integer(i128::MIN)),
        "(?s).{0,6}".prop_map(Value::Text),
        any::<bool>().prop_map(Value::Boolean),
        prop::collection::btree_set("[ab]", 0..3).prop_map(Value::Set),
        prop::collection::btree_map("[ab]", "[ab]", 0..3).prop_map(Value::Table),
        prop::collection::vec("[ab]", 0..3).prop_map(Value::List),
        Just(Value::Absent),
        Just(Value::Unreadable("denied".into())),
        Just(Value::TimedOut { after_ms: 1 }),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let each = prop::collection::vec((0u32..9, plain()), 1..5).prop_map(|values| {
        fold(values.into_iter().map(|(cpu, value)| (Instance::Number(cpu), value)))
    });
    prop_oneof![3 => plain(), 1 => each]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(DRIVER.to_owned()),
        Just(GOVERNOR.to_owned()),
        Just(LIMIT.to_owned()),
        Just(IDLE.to_owned()),
        Just(MAX_CSTATE.to_owned()),
        Just("/proc/meminfo#MemTotal".to_owned()),
        Just("/proc/modules#thermal".to_owned()),
        Just("/sys/module/thermal/parameters/off".to_owned()),
        "(/proc/cmdline#|/proc/sys/vm/|/sys/block/\\*/queue/)[a-c]",
        "(?s).{1,8}",
    ]
}

prop_compose! {
    pub(super) fn any_snapshot()(
        facts in prop::collection::vec((key(), 0usize..5, value()), 0..12),
        version in prop_oneof![4 => Just("0.1.0"), 1 => Just("0.2.0")],
    ) -> Snapshot {
        let mut snapshot = host("h");
        snapshot.tool.version = version.into();
        facts.into_iter().fold(snapshot, |it, (key, class, value)| it.with_fact(&key, Class::ALL[class], value))
    }
}

/// The parts of a result that must not depend on the order of hosts.
fn essence(diff: &HostDiff) -> Vec<(String, u8, Option<String>, usize)> {
    let of = |it: &Difference| (it.key.clone(), it.weight, it.follows.clone(), it.values.len());
    diff.differences.iter().map(of).collect()
}

proptest! {
    #[test]
    fn a_host_does_not_differ_from_itself(snapshot in any_snapshot()) {
        let diff = pair(snapshot.clone(), snapshot);
        prop_assert_eq!(&diff.differences, &vec![]);
        prop_assert_eq!(diff.facts.same, diff.facts.compared);
    }

    #[test]
    fn the_order_of_hosts_does_not_matter(snapshots in prop::collection::vec(any_snapshot(), 2..5)) {
        let forth = of(&snapshots);
        let back = of(&snapshots.iter().rev().cloned().collect::<Vec<_>>());
        prop_assert_eq!(essence(&forth), essence(&back));
        prop_assert_eq!(forth.facts, back.facts);
        let last = snapshots.len() - 1;
        for (a, b) in forth.differences.iter().zip(&back.differences) {
            let mirrored = |hosts: &[String]| {
                let mut hosts: Vec<String> = hosts.iter().map(|it| id(last - (0..9).position(|at| id(at) == *it).unwrap())).collect();
                hosts.sort();
                hosts
            };
            prop_assert_eq!(mirrored(&a.slows), b.slows.clone());
            let camps = |it: &Difference, mirror: bool| {
                let of = |hosts: &[String]| if mirror { mirrored(hosts) } else { hosts.to_vec() };
                let mut camps: Vec<Vec<String>> = it.values.iter().map(|held| of(&held.hosts)).collect();
                camps.sort();
                camps
            };
            prop_assert_eq!(camps(a, true), camps(b, false));
        }
    }

    #[test]
    fn every_text_is_safe_and_narrow(snapshots in prop::collection::vec(any_snapshot(), 2..4), verbosity in 0u8..3) {
        use crate::text::name::is_hidden;
        let style = crate::render::TextStyle { columns: 100, color: false, verbosity };
        let text = crate::render::host_diff(&of(&snapshots), style);
        prop_assert!(!text.contains(|c| c != '\n' && is_hidden(c)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A known fact is named first, whatever the others are: one of them may separate the hosts by chance, too.
    #[test]
    fn the_planted_difference_comes_first(
        noise in prop::collection::vec(prop::array::uniform8(0u8..3), 40),
        planted in prop_oneof![Just(GOVERNOR), Just(LIMIT), Just("/sys/kernel/mm/transparent_hugepage/enabled")],
    ) {
        let diff = fleet(planted, &noise);
        prop_assert_eq!(&diff.differences[0].key, planted);
        prop_assert_eq!(&diff.separation.unwrap().best[0], planted);
    }

    /// No other fact separates the hosts better than an unknown one that agrees with slowness.
    #[test]
    fn a_planted_unknown_is_among_the_best(noise in prop::collection::vec(prop::array::uniform8(0u8..2), 40)) {
        let diff = fleet("/sys/zzz", &noise);
        let best = diff.separation.unwrap().best;
        prop_assert!(best.contains(&"/sys/zzz".to_owned()), "{best:?}");
        // By chance alone, one in 128 facts with two values divides 8 hosts like that.
        prop_assert!(best.len() <= 9, "{best:?}");
    }
}

/// What others do for whom the target waits is no time of the target.
#[test]
fn of_a_recording_the_time_of_its_target_counts() {
    let document = include_str!("../../../../fixtures/render/interrupted.json");
    let mut report: crate::finding::Report = serde_json::from_str(document).unwrap();
    assert!(report.ledger.iter().all(|ledger| ledger.awaited));
    assert!(Measured::recording(0, &report).is_none());
    report.ledger[0].awaited = false;
    assert!(Measured::recording(0, &report).is_some());
}
