// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wake-ups cost nothing while nobody's sleep is looked at: nothing is attached to them then, as the kernel says.

use crate::common;
use crate::probe::{cpus, make_plan};
use crate::scratch::in_scratch;
use deburr_bpf::sched::SchedProbe;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const WAKE_UP: &str = "sched_waking";
const SWITCH: &str = "sched_switch";

/// The tracepoints that programs of a process are attached to.
fn attached(pid: u32) -> BTreeSet<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    // A file may be closed, and the process end, at any time.
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let names = texts.filter_map(|text| {
        let mut lines = text.lines();
        Some(lines.find_map(|line| line.strip_prefix("tp_name:"))?.trim().to_owned())
    });
    names.collect()
}

#[test]
fn the_probe_attaches_to_wake_ups_when_it_begins_to_watch() {
    const TEST: &str = "the_probe_attaches_to_wake_ups_when_it_begins_to_watch";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let mut probe = SchedProbe::open(&make_plan(), cpus(), None).unwrap();
    let before = attached(std::process::id());
    if !before.contains(SWITCH) {
        return common::skip("kernel", TEST, "this kernel does not say what a link is attached to");
    }
    assert!(!before.contains(WAKE_UP), "{before:?}");
    if !probe.can_watch() {
        return common::skip("kernel", TEST, "on what threads sleep is not told on this kernel");
    }
    probe.begin_watch(1000).unwrap();
    let watching = attached(std::process::id());
    assert!(watching.contains(WAKE_UP), "{watching:?}");
    drop(probe);
    assert_eq!(attached(std::process::id()), BTreeSet::new());
}

/// All tracepoints that a recording was attached to, some time or other.
fn of_record(scratch: &Path, arguments: &[&str]) -> BTreeSet<String> {
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(scratch.join("x.deburr")).args(arguments);
    let mut child = record.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut all = BTreeSet::new();
    loop {
        all.extend(attached(child.id()));
        if let Some(ended) = child.try_wait().unwrap() {
            assert!(ended.success(), "{arguments:?}: {ended}");
            return all;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whose sleep is looked at on a whole host is chosen at the end of a second that is not the last one.
#[test]
fn wake_ups_are_left_alone_until_somebody_is_watched() {
    in_scratch("wake_ups_are_left_alone_until_somebody_is_watched", |scratch| {
        let own = std::process::id().to_string();
        let with_target = of_record(scratch, &["-d", "1", "-p", &own]);
        if !with_target.contains(SWITCH) {
            return Some("this kernel does not say what a link is attached to");
        }
        if !SchedProbe::open(&make_plan(), cpus(), None).unwrap().can_watch() {
            return Some("on what threads sleep is not told on this kernel");
        }
        assert!(with_target.contains(WAKE_UP), "{with_target:?}");
        let of_host = of_record(scratch, &["-d", "1"]);
        assert!(of_host.contains(SWITCH) && !of_host.contains(WAKE_UP), "{of_host:?}");
        let of_longer = of_record(scratch, &["-d", "3"]);
        assert!(of_longer.contains(WAKE_UP), "{of_longer:?}");
        None
    });
}
