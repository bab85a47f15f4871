// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use proptest::prelude::*;

fn refused(text: &str) -> String {
    Knob::parse(text).unwrap_err().to_string()
}

#[test]
fn a_setting_is_what_its_text_says() {
    let parts = |text: &str| {
        let knob = Knob::parse(text).unwrap();
        assert_eq!(knob.to_string(), text);
        (knob.lever().kind, knob.lever().name, knob.subject().to_owned(), knob.value().to_owned())
    };
    let own = |kind, name, subject: &str, value: &str| (kind, name, subject.into(), value.into());
    assert_eq!(
        parts("vm.dirty_writeback_centisecs=1000"),
        own(Kind::Sysctl, "vm.dirty_writeback_centisecs", "", "1000")
    );
    assert_eq!(
        parts("block:vda:scheduler=mq-deadline"),
        own(Kind::Block, "scheduler", "vda", "mq-deadline")
    );
    assert_eq!(parts("bdi:253:0:max_ratio=50"), own(Kind::Bdi, "max_ratio", "253:0", "50"));
    assert_eq!(parts("nice:12=-5"), own(Kind::Nice, "", "12", "-5"));
    assert_eq!(parts("policy:12=fifo:1"), own(Kind::Policy, "", "12", "fifo:1"));
    assert_eq!(
        parts("module:acpi-cpufreq=unloaded"),
        own(Kind::Module, "", "acpi-cpufreq", "unloaded")
    );
    // What a program is given is kept as it is.
    assert_eq!(parts("env:JAVA_OPTS= -a=b "), own(Kind::Env, "", "JAVA_OPTS", " -a=b "));
    assert_eq!(parts("arg:2=--n=4"), own(Kind::Arg, "", "2", "--n=4"));
    // A path may contain what separates the parts.
    assert_eq!(
        parts("cgroup:/a b:cpu.max=1/c=d:io.max=8:0 rbps=1000 wiops=max"),
        own(Kind::Cgroup, "io.max", "/a b:cpu.max=1/c=d", "8:0 rbps=1000 wiops=max")
    );
}

#[test]
fn what_is_no_setting_is_refused_with_the_way_out() {
    assert!(refused("kernel.panic=1").contains("`NAME=VALUE`"));
    assert!(refused("block:vda:add_random=1").contains("scheduler"));
    assert!(refused("nice:1").contains("`nice:PID=VALUE`"));
    for text in [
        "block:../vda:scheduler=none",
        "block:a/b:scheduler=none",
        "block:..:scheduler=none",
        "block::scheduler=none",
        "bdi:8:scheduler:max_ratio=5",
        "bdi:../8:0:max_ratio=5",
        "irq:1/../2:smp_affinity_list=0",
        "module:../a=unloaded",
        "module:=unloaded",
        "module:-r=unloaded",
        "module:a b=unloaded",
        "cgroup:/a/../b:cpu.weight=100",
        "cgroup:a:cpu.weight=100",
        "cgroup:/:cpu.weight=100",
        "cgroup:/a//b:cpu.weight=100",
        "nice:0=1",
        "nice:-1=1",
        "nice:99999999999=1",
        "pause:self=50%",
        "env:=1",
        "env:1A=1",
        "env:A B=1",
        "arg:0=x",
        "arg:1001=x",
        "arg:a=x",
    ] {
        assert!(refused(text).contains(" is no "), "{text}: {}", refused(text));
    }
    for text in ["vm.swappiness=1\n2", "vm.swappiness=\u{0}1", "cgroup:/a\u{7}:cpu.weight=1"] {
        assert!(refused(text).contains("control characters"), "{text}");
    }
}

#[test]
fn values_end_at_their_limits() {
    for (setting, allowed, others) in [
        ("vm.swappiness", ["0", "200"].as_slice(), ["-1", "201", "", "+1", "1 2", "x"].as_slice()),
        ("nice:5", &["-20", "19"], &["-21", "20", "0.5"]),
        ("pause:5", &["10%", "90%"], &["9%", "91%", "50", "100%", "%", "-50%"]),
        ("policy:5", &["other", "batch", "idle", "fifo:1", "rr:99"], &["fifo", "fifo:0", "rr:100"]),
        ("module:a", &["unloaded"], &["loaded", "", "unloaded rd_nr=1"]),
        ("affinity:5", &["0", "0-3,5"], &["", "3-0", "a", "-1"]),
        (
            "cgroup:/a:cpu.max",
            &["max", "max 100000", "1000", "50000 1000000"],
            &["999", "50000 999", "50000 1000001", "50000 100000 1", "50000  1000", "-1"],
        ),
        (
            "cgroup:/a:io.max",
            &["8:0 rbps=1", "8:0 rbps=max wiops=2"],
            &["8:0", "rbps=1", "8:0 rbps=0", "8:0 xbps=1"],
        ),
        (
            "cgroup:/a:blkio.throttle.read_bps_device",
            &["8:0 0", "8:0 1048576"],
            &["8:0", "8 1", "8:0 -1", "8:0 max"],
        ),
        ("block:vda:scheduler", &["none", "mq-deadline"], &["", "a b", "../x", "[none]"]),
    ] {
        for value in allowed {
            Knob::parse(&format!("{setting}={value}")).unwrap();
        }
        for value in others {
            assert!(
                refused(&format!("{setting}={value}")).contains("must be"),
                "{setting}={value}"
            );
        }
    }
}

#[test]
fn each_row_of_the_table_is_complete_and_there_once() {
    for (at, lever) in LEVERS.iter().enumerate() {
        assert!(lever.risk.len() > 10, "{}", lever.pattern());
        assert!(!LEVERS[at + 1..].iter().any(|other| other.pattern() == lever.pattern()));
        // A number without a unit says nothing.
        let is_number = matches!(lever.values, Values::Number(..) | Values::DiskLimit);
        assert_eq!(is_number, lever.unit.is_some(), "{}", lever.pattern());
    }
}

#[test]
fn as_data_it_is_its_text() {
    let knob = Knob::parse("nice:12=-5").unwrap();
    let json = serde_json::to_string(&knob).unwrap();
    assert_eq!(json, "\"nice:12=-5\"");
    assert_eq!(serde_json::from_str::<Knob>(&json).unwrap(), knob);
    assert!(serde_json::from_str::<Knob>("\"nice:12=-50\"").is_err());
    assert_eq!(knob.with("3").unwrap().to_string(), "nice:12=3");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic_and_no_subject_leaves_its_folder(
        text in "(nice|env|arg|block|bdi|cgroup|irq|module|pause|thp|vm)?[:./a-z0-9=-]{0,40}(:scheduler|:cpu.max|:max_ratio)?(=.{0,9})?"
    ) {
        if let Ok(knob) = Knob::parse(&text) {
            prop_assert!(!knob.subject().split('/').any(|part| part == ".."));
            prop_assert_eq!(Knob::parse(&knob.to_string()).unwrap(), knob);
        }
    }
}
