// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that the kernel writes back are attributed to the cgroup that dirtied them, whichever tree (v1 or v2) has the
//! memory controller.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::disk;
use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BYTES: i64 = 64 << 17;

/// A cgroup of the memory controller, removed on drop.
struct Group(PathBuf);

impl Group {
    /// Creates the cgroup; `Err` = why that is not possible on this host.
    fn make() -> Result<Self, String> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let v2 = Path::new("/sys/fs/cgroup");
        let control = fs::read_to_string(v2.join("cgroup.subtree_control")).unwrap_or_default();
        let root = match v1.join("memory.usage_in_bytes").exists() {
            true => v1,
            false if control.split_whitespace().any(|name| name == "memory") => v2,
            false => return Err("no cgroup tree has the memory controller".into()),
        };
        let dir = root.join(format!("deburr-test-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self(dir))
    }

    fn name(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn written_pages_have_the_cgroup_that_dirtied_them() {
    const TEST: &str = "written_pages_have_the_cgroup_that_dirtied_them";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let (_disk, point) = match disk::mounted(128, "ext4") {
        Ok(mounted) => mounted,
        Err(reason) => return common::skip_or_fail("kernel", TEST, &reason),
    };
    let group = match Group::make() {
        Ok(group) => group,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("x.deburr");
    // The flusher, which is not in the cgroup, writes the file.
    let script = "set -e; sleep 0.5; sh -c 'echo $$ > \"$GROUP/cgroup.procs\"; \
                  dd if=/dev/zero of=\"$POINT/file\" bs=64k count=128'; sync -f \"$POINT\"; sleep 1.2";
    let output = Command::new(env!("CARGO_BIN_EXE_deburr"))
        .args(["record", "-q", "-o"])
        .arg(&recording)
        .args(["--", "sh", "-c", script])
        .envs([("POINT", &point), ("GROUP", &group.0)])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    disk::run(env!("CARGO_BIN_EXE_deburr"), &["check", recording.to_str().unwrap()]).unwrap();
    let connection = Connection::open(&recording).unwrap();
    let sql = "SELECT sum(bytes) FROM io_tick JOIN cgroups ON cgroup = owner JOIN files USING (file) \
               WHERE op = 'write' AND reason = 'sync' AND cgroups.path = ?1 AND files.path LIKE '%/file'";
    let bytes: Option<i64> = connection.query_row(sql, [group.name()], |row| row.get(0)).unwrap();
    let bytes = bytes.unwrap_or(0);
    assert!(
        (bytes - BYTES).abs() * 100 <= BYTES,
        "{bytes} of {BYTES} bytes are of {}",
        group.name()
    );
}
