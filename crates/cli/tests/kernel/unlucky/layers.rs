// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filesystems above and beside each other: overlays, bind mounts, subvolumes.

use super::{Recording, near, number, shown, with_disk};
use crate::disk;
use std::path::Path;

const MIB: i64 = 1 << 20;

/// A mount point, unmounted on drop.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = disk::run("umount", &[&self.0.to_string_lossy()]);
    }
}

fn mount(arguments: &[&str], at: &Path) -> Mounted {
    std::fs::create_dir_all(at).unwrap();
    disk::run("mount", &[arguments, &[&at.to_string_lossy()]].concat()).unwrap();
    Mounted(at.to_owned())
}

#[test]
fn a_file_of_an_overlay_is_the_one_in_the_layer() {
    let test = "a_file_of_an_overlay_is_the_one_in_the_layer";
    with_disk(test, 256, "ext4", |disk, point| {
        // Mount options cannot hold a path with a newline, as the disk's mount point has.
        let plain = tempfile::tempdir().unwrap();
        let _bind = mount(&["--bind", &point.to_string_lossy()], &plain.path().join("fs"));
        let root = plain.path().join("fs");
        for dir in ["lower", "upper", "work"] {
            std::fs::create_dir(root.join(dir)).unwrap();
        }
        std::fs::write(root.join("lower/below"), vec![7; 4 << 20]).unwrap();
        let at = root.to_string_lossy();
        let options = format!("lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work");
        let merged = plain.path().join("merged");
        let overlay = mount(&["-t", "overlay", "overlay", "-o", &options], &merged);
        let script = r#"
            sync -f "$MERGED"; echo 1 >/proc/sys/vm/drop_caches
            dd if=/dev/zero of="$MERGED/new" bs=1M count=8 conv=fsync 2>&1
            cat "$MERGED/below" >/dev/null; sync -f "$MERGED""#;
        let recording = Recording::of(script, &[("MERGED", merged.as_os_str())]);
        drop(overlay);
        let device = number(&disk.device);
        recording.assert_classes_sum(&device);
        // The filesystem is mounted twice; its files may have the path below either mount.
        let of = |op: &str, file: &str| {
            recording.bytes(&device, op, &point.join(file)).max(recording.bytes(
                &device,
                op,
                &root.join(file),
            ))
        };
        assert!(near(of("write", "upper/new"), 8 * MIB), "{}", recording.classes(&device, "write"));
        assert!(near(of("read", "lower/below"), 4 * MIB), "{}", recording.classes(&device, "read"));
    });
}

#[test]
fn a_file_that_is_written_through_a_bind_mount() {
    let test = "a_file_that_is_written_through_a_bind_mount";
    with_disk(test, 128, "ext4", |disk, point| {
        std::fs::create_dir_all(point.join("deep/shown")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let _bind =
            mount(&["--bind", &point.join("deep/shown").to_string_lossy()], elsewhere.path());
        let script = r#"dd if=/dev/zero of="$BIND/a" bs=1M count=8 conv=fsync 2>&1"#;
        let recording = Recording::of(script, &[("BIND", elsewhere.path().as_os_str())]);
        let device = number(&disk.device);
        recording.assert_classes_sum(&device);
        // Where the filesystem's root is mounted too, the path is the one below that mount.
        let bytes = recording.bytes(&device, "write", &point.join("deep/shown/a"));
        assert!(near(bytes, 8 * MIB), "{bytes} bytes");
    });
}

#[test]
fn files_of_two_subvolumes_with_one_number_are_two() {
    let test = "files_of_two_subvolumes_with_one_number_are_two";
    with_disk(test, 256, "btrfs", |disk, point| {
        for name in ["one", "two"] {
            let path = point.join(name);
            disk::run("btrfs", &["-q", "subvolume", "create", &path.to_string_lossy()]).unwrap();
        }
        // In one transaction, so that even the generations are the same.
        let script = r#"
            for v in one two; do : >"$POINT/$v/a"; done
            dd if=/dev/zero of="$POINT/one/a" bs=1M count=6 2>&1
            dd if=/dev/zero of="$POINT/two/a" bs=1M count=10 2>&1
            sync -f "$POINT""#;
        let recording = Recording::of(script, &[("POINT", point.as_os_str())]);
        let device = number(&disk.device);
        let [one, two] = ["one/a", "two/a"].map(|file| point.join(file));
        let numbers = [&one, &two].map(|path| {
            use std::os::unix::fs::MetadataExt as _;
            std::fs::metadata(path).unwrap().ino()
        });
        assert_eq!(numbers[0], numbers[1], "the test is about numbers that are the same");
        for (path, mib) in [(&one, 6), (&two, 10)] {
            let bytes = recording.bytes(&device, "write", path);
            assert!(near(bytes, mib * MIB), "{}: {bytes} bytes", shown(path));
            assert_eq!(recording.state(path).as_deref(), Some("linked"));
        }
        recording.assert_classes_sum(&device);
        assert!(recording.class(&device, "write", "metadata") > 0, "its trees");
    });
}
