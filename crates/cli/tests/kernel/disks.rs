// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is recorded of disks without BPF agrees with the kernel: counters, partitions, mounts, settings, limits
//! and a partition that vanishes.

use crate::common;
use crate::disk::{Disk, fs_of, run};
use rusqlite::Connection;
use std::path::PathBuf;
use std::process::Command;

const START: u64 = 8192;
const LENGTH: u64 = 100_000;
const BYTES: i64 = 8 << 20;

fn divided() -> Result<(Disk, PathBuf), String> {
    let mut disk = Disk::new(64)?;
    // A partition that is only read, and vanishes.
    disk.partition(1, 2048, 1024)?;
    let device = disk.partition(2, START, LENGTH)?;
    let point = disk.mount(&device, "ext4")?;
    Ok((disk, point))
}

#[test]
fn a_disk_that_is_written_to_is_recorded_as_the_kernel_counts_it() {
    const TEST: &str = "a_disk_that_is_written_to_is_recorded_as_the_kernel_counts_it";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let (disk, point) = match divided() {
        Ok(made) => made,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    let fs = fs_of(&point);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.deburr");
    // The counters are first read a moment after the start of the command.
    let script = format!(
        "exec 2>&1; sleep 0.3; dd if={0}p1 of=/dev/null bs=4k count=8 iflag=direct; sleep 0.5; delpart {0} 1
         dd if=/dev/zero of=x bs=1M count=8 conv=fsync; sleep 1",
        disk.device
    );
    let recorded = Command::new(env!("CARGO_BIN_EXE_deburr"))
        .args(["record", "-o", path.to_str().unwrap(), "--", "sh", "-c", &script])
        .current_dir(&point)
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    run(env!("CARGO_BIN_EXE_deburr"), &["check", path.to_str().unwrap()]).unwrap();

    let connection = Connection::open(&path).unwrap();
    let text = |sql: &str| -> String {
        connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|e| panic!("{sql}: {e}"))
    };
    let name = disk.device.strip_prefix("/dev/").unwrap();
    let partition = text(&format!("SELECT device FROM device WHERE name = '{name}p2'"));
    assert_eq!(partition, fs.to_string());
    let facts = format!(
        "SELECT disk_name || ' ' || start_sector || ' ' || sectors FROM devices WHERE name = '{name}p2'"
    );
    assert_eq!(text(&facts), format!("{name} {START} {LENGTH}"));
    let vanished = format!("SELECT group_concat(gone) FROM device WHERE name = '{name}p1'");
    assert_eq!(text(&vanished), "0,1");
    let backing = text(&format!("SELECT backing FROM devices WHERE name = '{name}'"));
    assert!(backing.ends_with("/image"), "{backing}");
    assert_eq!(text(&format!("SELECT fstype FROM mount WHERE fs = '{fs}'")), "ext4");
    // The mount point's name contains a newline, which the kernel escapes.
    let shown = text(&format!("SELECT point FROM mount WHERE fs = '{fs}'"));
    assert_eq!(shown, point.to_str().unwrap());
    let scheduler = std::fs::read_to_string(format!("/sys/block/{name}/queue/scheduler")).unwrap();
    let sql =
        format!("SELECT value FROM settings WHERE path = '/sys/block/{name}/queue/scheduler'");
    assert_eq!(text(&sql), scheduler.trim_end_matches('\n'));

    // Disk and partition count the same writes, which include the file's.
    for device in [format!("{name}p2"), name.to_owned()] {
        let moved = format!(
            "SELECT max(write_bytes) - min(write_bytes) FROM disk_reading JOIN devices USING (device) \
             WHERE name = '{device}'"
        );
        let moved: i64 = connection.query_row(&moved, [], |row| row.get(0)).unwrap();
        assert!((BYTES..2 * BYTES).contains(&moved), "{device}: {moved} B");
    }
}
