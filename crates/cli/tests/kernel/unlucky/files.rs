// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are truncated, renamed or deleted while they are observed, and names that are hostile.

use super::{Recording, near, number, shown, with_disk};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

const MIB: i64 = 1 << 20;

#[test]
fn files_that_are_truncated_renamed_deleted_and_replaced() {
    let test = "files_that_are_truncated_renamed_deleted_and_replaced";
    with_disk(test, 256, "ext4", |disk, point| {
        let device = number(&disk.device);
        let script = r#"
            cd "$POINT"; mkdir before
            dd if=/dev/zero of=before/moved bs=1M count=8 conv=fsync 2>&1
            dd if=/dev/zero of=cut bs=1M count=8 conv=fsync 2>&1; truncate -s 0 cut
            dd if=/dev/zero of=cut bs=1M count=2 conv=fsync,notrunc 2>&1
            # Never on the disk as far as it was written.
            dd if=/dev/zero of=unwritten bs=1M count=8 2>&1; rm unwritten
            sleep 1.1; mv before after
            # Another file with the same name, by a rename over it.
            dd if=/dev/zero of=config bs=1M count=4 conv=fsync 2>&1
            dd if=/dev/zero of=config.new bs=1M count=6 conv=fsync 2>&1; mv config.new config
            dd if=/dev/zero of=gone bs=1M count=4 conv=fsync 2>&1; rm gone"#;
        let recording = Recording::of(script, &[("POINT", point.as_os_str())]);
        recording.assert_classes_sum(&device);
        for (file, mib) in [("after/moved", 8), ("before/moved", 8), ("cut", 10), ("gone", 4)] {
            let bytes = recording.bytes(&device, "write", &point.join(file));
            assert!(near(bytes, mib * MIB), "{file}: {bytes} bytes");
        }
        assert_eq!(recording.bytes(&device, "write", &point.join("unwritten")), 0);
        let ends = ["after/moved", "cut", "gone"].map(|file| recording.state(&point.join(file)));
        assert_eq!(ends.map(Option::unwrap), ["linked", "linked", "deleted"]);
        assert_eq!(recording.state(&point.join("before/moved")), None, "its last name holds");
        // The file that was replaced is another one, and deleted.
        let of_state = |state: &str| {
            let sql = "SELECT sum(bytes) FROM io_tick JOIN files USING (file) WHERE path = ?1 AND state = ?2";
            recording.number(sql, &[&shown(&point.join("config")), state])
        };
        assert!(near(of_state("deleted"), 4 * MIB), "{} bytes replaced", of_state("deleted"));
        assert!(near(of_state("linked"), 6 * MIB), "{} bytes in place", of_state("linked"));
    });
}

#[test]
fn names_with_control_characters_and_without_utf_8() {
    let test = "names_with_control_characters_and_without_utf_8";
    with_disk(test, 128, "ext4", |disk, point| {
        let device = number(&disk.device);
        let name: &[u8] = b"inv\xffalid \x1b[31mred\n`$(reboot)` \xe2\x80\xae'\"\\x1b";
        let directory = point.join(OsStr::from_bytes(name));
        let file = directory.join(OsStr::from_bytes(name));
        // Written and synced for so long that the report mentions it.
        let script = r#"
            mkdir "$DIRECTORY"
            for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of="$FILE" bs=1M count=8 conv=fsync 2>&1; done"#;
        let vars = [("DIRECTORY", directory.as_os_str()), ("FILE", file.as_os_str())];
        let recording = Recording::of(script, &vars);
        recording.assert_classes_sum(&device);
        let bytes = recording.bytes(&device, "write", &file);
        assert!(near(bytes, 64 * MIB), "{bytes} bytes");
        for arguments in [&[][..], &["--json"], &["-v"]] {
            let said = recording.report(arguments);
            let harmful =
                |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
            assert!(!said.contains(harmful), "{said:?}");
        }
    });
}

#[test]
fn a_path_that_is_longer_than_the_kernels_names_are_followed() {
    let test = "a_path_that_is_longer_than_the_kernels_names_are_followed";
    with_disk(test, 128, "ext4", |disk, point| {
        let device = number(&disk.device);
        let deep: std::path::PathBuf = (0..40).map(|n| format!("directory {n}")).collect();
        let long = "x".repeat(250);
        let long: std::path::PathBuf = (0..6).map(|_| &long).collect();
        let script = r#"
            for d in "$DEEP" "$LONG"; do
                mkdir -p "$POINT/$d"; dd if=/dev/zero of="$POINT/$d/a" bs=1M count=4 conv=fsync 2>&1
                dd if=/dev/zero of="$POINT/$d/gone" bs=1M count=4 conv=fsync 2>&1; rm "$POINT/$d/gone"
            done"#;
        let vars =
            [("POINT", point.as_os_str()), ("DEEP", deep.as_os_str()), ("LONG", long.as_os_str())];
        let recording = Recording::of(script, &vars);
        recording.assert_classes_sum(&device);
        for dir in [&deep, &long] {
            let path = point.join(dir).join("a");
            let bytes = recording.bytes(&device, "write", &path);
            assert!(near(bytes, 4 * MIB), "{}: {bytes} bytes", shown(&path));
            assert_eq!(recording.state(&path).as_deref(), Some("linked"));
        }
        // A path of which only the end is known must not be reported as if it began at the filesystem's root.
        let wrong = "SELECT count(*) FROM files WHERE path LIKE ?1 AND path NOT LIKE ?2 AND path NOT LIKE ?3";
        let below = |first: &str| format!("{}/{first}%", shown(point));
        let wrong = recording.number(wrong, &[&below(""), &below("directory 0/"), &below("xxxx")]);
        assert_eq!(wrong, 0);
    });
}
