// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab's scenarios with a disk of their own: each passes, and nothing of one is left, however it ends.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::lab::{DEBURR, alone, cgroup_roots, janitor, lab_run, made, made_by, until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Current values, by file, of what scenarios with a disk change on this host: settings and loop devices.
fn host_state() -> BTreeMap<PathBuf, String> {
    let mut files = vec![
        PathBuf::from("/proc/sys/vm/dirty_writeback_centisecs"),
        PathBuf::from("/proc/sys/vm/dirty_expire_centisecs"),
    ];
    for (dir, names) in [
        ("/sys/class/bdi", &["max_ratio_fine", "strict_limit"][..]),
        ("/sys/block", &["queue/scheduler", "queue/wbt_lat_usec", "loop/backing_file"]),
    ] {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            // Only backing devices of loop devices (major 7): other filesystems come and go.
            if dir == "/sys/block" || entry.file_name().to_string_lossy().starts_with("7:") {
                files.extend(names.iter().map(|name| entry.path().join(name)));
            }
        }
    }
    let read = |file: PathBuf| std::fs::read_to_string(&file).ok().map(|text| (file, text));
    files.into_iter().filter_map(read).collect()
}

/// [`host_state`] without the loop devices, which other users of this host have too.
pub(crate) fn settings() -> BTreeMap<PathBuf, String> {
    let mut state = host_state();
    state.retain(|file, _| !file.ends_with("backing_file"));
    state
}

pub(crate) fn attached_below(dir: &Path) -> bool {
    host_state().iter().any(|(file, text)| {
        file.ends_with("backing_file") && Path::new(text.trim()).starts_with(dir)
    })
}

/// Number of mounts at or below a directory.
pub(crate) fn mounts_below(dir: &Path) -> usize {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let at = |line: &str| line.split(' ').nth(1).map(PathBuf::from);
    mounts.lines().filter_map(at).filter(|path| path.starts_with(dir)).count()
}

/// Why a scenario cannot run here, from `deburr lab list`; `None` = it can.
pub(crate) fn lacks_disk(scenario: &str) -> Option<String> {
    let list = Command::new(DEBURR).args(["lab", "list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    list.lines().find(|line| line.starts_with(&format!("{scenario} does not run"))).map(Into::into)
}

#[test]
fn a_disk_and_settings_are_undone_whatever_happens() {
    let _one = alone();
    let name = "a_disk_and_settings_are_undone_whatever_happens";
    if !common::root_or_skip("lab", name) {
        return;
    }
    // Each scenario changes another setting; the writeback intervals are set in the control run already.
    for (scenario, changed) in [
        ("writeback-fast", "/proc/sys/vm/dirty_expire_centisecs"),
        ("dirty-throttle", "strict_limit"),
    ] {
        if let Some(reason) = lacks_disk(scenario) {
            return common::skip_or_fail("lab", name, &reason);
        }
        for signal in [Signal::INT, Signal::KILL] {
            let before = settings();
            let mut lab = lab_run(&[scenario, "-d1"]);
            let pid = lab.id();
            until("the setting is changed", || {
                assert!(lab.try_wait().unwrap().is_none(), "{scenario} ended too early");
                settings().iter().any(|(file, text)| {
                    file.to_string_lossy().ends_with(changed) && before.get(file) != Some(text)
                })
            });
            let scratch = made_by(pid, &std::env::temp_dir()).unwrap();
            assert_eq!(mounts_below(&scratch), 2, "the disk, and the filesystem on it");
            assert!(attached_below(&scratch));
            kill_process(Pid::from_child(&lab), signal).unwrap();
            lab.wait().unwrap();
            until("the directory is gone", || !scratch.exists());
            until("the loop device is free", || !attached_below(&scratch));
            until("the settings are back", || settings() == before);
            assert_eq!(mounts_below(&scratch), 0);
            let mut cgroups = cgroup_roots().into_iter().filter_map(|root| made_by(pid, &root));
            assert_eq!(cgroups.next(), None);
        }
    }
}

#[test]
fn the_janitor_undoes_mounts_loop_devices_and_settings() {
    let _one = alone();
    let name = "the_janitor_undoes_mounts_loop_devices_and_settings";
    if !common::root_or_skip("lab", name) {
        return;
    }
    if let Some(reason) = lacks_disk("slow-device") {
        return common::skip_or_fail("lab", name, &reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let (own, setting) = (dir.path().join("own"), dir.path().join("setting"));
    let mount = own.join("mnt");
    let backing = mount.join("disk");
    std::fs::create_dir_all(&mount).unwrap();
    std::fs::write(&setting, "changed").unwrap();
    let done = |program: &str, arguments: &[&Path]| {
        assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program}");
    };
    done(
        "mount",
        &["-t", "tmpfs", "lab-test"]
            .map(Path::new)
            .into_iter()
            .chain([&*mount])
            .collect::<Vec<_>>(),
    );
    std::fs::File::create(&backing).unwrap().set_len(1 << 20).unwrap();
    done("losetup", &[Path::new("-f"), &backing]);
    let attached = || attached_below(&backing);
    assert!(attached() && mounts_below(&mount) == 1);

    let (mut janitor, _) = janitor(
        dir.path(),
        &[
            made("files", &own, &own),
            serde_json::json!({"undo": "mount", "at": mount}),
            serde_json::json!({"undo": "loop", "backing": backing}),
            serde_json::json!({"undo": "setting", "file": setting, "before": "as it was"}),
        ],
    );
    drop(janitor.stdin.take());
    assert!(janitor.wait().unwrap().success());
    assert_eq!((attached(), mounts_below(&mount), own.exists()), (false, 0, false));
    assert_eq!(std::fs::read_to_string(&setting).unwrap(), "as it was");
}
