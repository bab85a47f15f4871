// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts that hide settings, and IO that belongs to no file.

use super::{DEBURR, Recording, near, number, with_disk};
use crate::common;
use crate::disk::{self, Disk};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: i64 = 1 << 20;

#[test]
fn settings_that_may_not_be_read_are_not_known() {
    let test = "settings_that_may_not_be_read_are_not_known";
    with_disk(test, 128, "ext4", |disk, point| {
        let mut hidden = Command::new("unshare");
        let hide = r#"mount -t tmpfs none /proc/sys/vm && exec "$0" "$@""#;
        hidden.args(["--mount", "sh", "-c", hide, DEBURR]);
        let script = r#"dd if=/dev/zero of="$POINT/a" bs=1M count=8 conv=fsync 2>&1"#;
        let recording = Recording::by(hidden, script, &[("POINT", point.as_os_str())], Some(1));
        recording.assert_classes_sum(&number(&disk.device));
        let bytes = recording.bytes(&number(&disk.device), "write", &point.join("a"));
        assert!(near(bytes, 8 * MIB), "{bytes} bytes");
        let known =
            "SELECT count(*) FROM setting WHERE path LIKE '/proc/sys/vm/%' AND value IS NOT NULL";
        assert_eq!(recording.number(known, &[]), 0);
        let asked = "SELECT count(*) FROM setting WHERE path LIKE '/proc/sys/vm/%'";
        assert!(recording.number(asked, &[]) > 0, "that they are not known is a fact, too");
        let coverage =
            "SELECT state FROM coverage WHERE source = 'settings' ORDER BY seq DESC LIMIT 1";
        assert_eq!(recording.value::<String>(coverage, &[]).as_deref(), Some("partial"));
        recording.report(&["-v"]);
    });
}

/// A cgroup of the memory controller with a limit, removed on drop.
struct Limited(PathBuf);

impl Limited {
    /// `None` = there is no memory controller that can be used.
    fn to(bytes: u64) -> Option<Self> {
        let name = format!("deburr-test-{}", std::process::id());
        let roots =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        roots.into_iter().find_map(|(root, limit)| {
            let group = Self(Path::new(root).join(&name));
            std::fs::create_dir(&group.0).ok()?;
            std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A swap device, in use until drop.
struct Swap(String);

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = disk::run("swapoff", &[&self.0]);
    }
}

#[test]
fn swapping_is_a_class_of_its_own() {
    let test = "swapping_is_a_class_of_its_own";
    if !common::root_or_skip("kernel", test) {
        return;
    }
    let Some(group) = Limited::to(32 << 20) else {
        return common::skip("kernel", test, "no memory controller");
    };
    let swap_on = || {
        let disk = Disk::new(256)?;
        disk::run("mkswap", &["-q", &disk.device])?;
        disk::run("swapon", &["-p", "32000", &disk.device])?;
        Ok::<_, String>((Swap(disk.device.clone()), disk))
    };
    let (swap, disk) = match swap_on() {
        Ok(on) => on,
        Err(reason) => return common::skip("kernel", test, &reason),
    };
    // Sorting keeps all lines in memory, three times what the limit leaves.
    let script =
        r#"sh -c 'echo $$ >"$GROUP/cgroup.procs"; seq 1 1500000 | sort -R -S 512M | tail -n 1'"#;
    let recording = Recording::of(script, &[("GROUP", group.0.as_os_str())]);
    let device = number(&disk.device);
    drop(swap);
    recording.assert_classes_sum(&device);
    let swapped = recording.class(&device, "write", "swap");
    assert!(swapped > 8 * MIB, "{}", recording.classes(&device, "write"));
    // Swap-in is a class of its own where the kernel marks it, and never counts as a file's.
    assert_eq!(recording.class(&device, "read", "file"), 0);
    assert_eq!(recording.class(&device, "write", "file"), 0);
}

#[test]
fn what_kernel_threads_write_has_a_class() {
    let test = "what_kernel_threads_write_has_a_class";
    if !common::root_or_skip("kernel", test) {
        return;
    }
    for (fs_type, mib) in [("ext4", 256), ("xfs", 400), ("btrfs", 256)] {
        let (disk, point) = match disk::mounted(mib, fs_type) {
            Ok(mounted) => mounted,
            Err(reason) => {
                common::skip("kernel", test, &format!("{fs_type}: {reason}"));
                continue;
            }
        };
        // Mostly metadata, which the threads of the journal and of the metadata write. What is written right at the end
        // of the window may be in the disk's counters and not in the probe's last reading.
        let script = r#"
            cd "$POINT"; for d in 1 2 3 4 5 6 7 8; do mkdir $d; (cd $d; seq 1 1500 | xargs touch); sync -f .; done
            for d in 1 2 3 4; do rm -r $d; done; sync -f .; sleep 0.3"#;
        let recording = Recording::of(script, &[("POINT", point.as_os_str())]);
        let device = number(&disk.device);
        recording.assert_classes_sum(&device);
        let [metadata, journal] =
            ["metadata", "journal"].map(|what| recording.class(&device, "write", what));
        let all = recording.classes(&device, "write");
        assert!(metadata + journal > MIB, "{fs_type}: {all}");
        assert!(fs_type == "btrfs" || journal > 0, "{fs_type}: {all}");
        let kernel = "SELECT count(*) FROM io_tick JOIN processes ON proc = submitter WHERE device = ?1 AND \
                      (comm LIKE 'jbd2/%' OR comm LIKE 'xfs%' OR comm LIKE 'kworker/%' OR comm LIKE 'btrfs%')";
        assert!(recording.number(kernel, &[&device]) > 0, "{fs_type}");
    }
}
