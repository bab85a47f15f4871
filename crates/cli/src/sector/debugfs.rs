// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks into ext2, ext3 and ext4 with `debugfs` of e2fsprogs: block to inode, inode to path, block in use or free.
//! It only reads. Its arguments are numbers and the path of a known device; no shell is involved.

use deburr_core::filesystem::debugfs;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program, and where it is if it is not in the user's search path.
const PROGRAMS: [&str; 3] = ["debugfs", "/usr/sbin/debugfs", "/sbin/debugfs"];
/// Numbers per question: each question reads all inodes, but the length of a command line is limited.
const BATCH: usize = 4000;

/// `debugfs` for one device.
#[derive(Debug)]
pub(super) struct Debugfs<'a> {
    program: &'static str,
    device: &'a Path,
}

impl<'a> Debugfs<'a> {
    /// Finds the program; `None` if it is not installed.
    pub(super) fn find(device: &'a Path) -> Option<Self> {
        let runs = |program: &&str| {
            let mut command = Command::new(program);
            command.arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok()
        };
        Some(Self { program: PROGRAMS.into_iter().find(runs)?, device })
    }

    /// The inode that each block belongs to; `None` for a block that belongs to no inode.
    pub(super) fn inodes(
        &self,
        blocks: &BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, Option<u64>>, String> {
        let mut inodes = BTreeMap::new();
        for numbers in batches(blocks) {
            inodes.extend(debugfs::inodes(&self.ask(&[format!("icheck {numbers}")])?)?);
        }
        Ok(inodes)
    }

    /// All paths of each inode, from the root of the filesystem.
    pub(super) fn paths(
        &self,
        inodes: &BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, Vec<Vec<u8>>>, String> {
        let mut paths = BTreeMap::new();
        for numbers in batches(inodes) {
            paths.extend(debugfs::paths(&self.ask(&[format!("ncheck {numbers}")])?, inodes)?);
        }
        Ok(paths)
    }

    /// Whether each block is in use.
    pub(super) fn in_use(&self, blocks: &BTreeSet<u64>) -> Result<BTreeMap<u64, bool>, String> {
        let questions: Vec<_> = blocks.iter().map(|block| format!("testb {block}")).collect();
        Ok(debugfs::in_use(&self.ask(&questions)?))
    }

    fn ask(&self, questions: &[String]) -> Result<Vec<u8>, String> {
        let failed = |error: std::io::Error| format!("cannot run `debugfs`: {error}");
        let mut command = Command::new(self.program);
        // Commands from a file are echoed in the output, a command in `-R` is not; `-R` takes only one.
        let script = match questions {
            [one] => {
                command.arg("-R").arg(one).stdin(Stdio::null());
                None
            }
            more => {
                command.args(["-f", "-"]).stdin(Stdio::piped());
                Some(more.join("\n") + "\n")
            }
        };
        command.arg(self.device).env("LC_ALL", "C").env("DEBUGFS_PAGER", "__none__");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let stdin = child.stdin.take();
        // Written by another thread, because debugfs answers while it still reads questions.
        let writer = std::thread::spawn(move || {
            if let (Some(mut stdin), Some(script)) = (stdin, script) {
                // If debugfs has ended, its answer will be missing.
                let _ = stdin.write_all(script.as_bytes());
            }
        });
        let output = child.wait_with_output().map_err(failed);
        // The thread does not panic.
        let _ = writer.join();
        let output = output?;
        if output.stdout.is_empty() {
            // The exit status of debugfs is always 0; the first line on stderr is its version.
            let message = String::from_utf8_lossy(&output.stderr);
            let line = message.lines().nth(1).unwrap_or("it said nothing");
            return Err(format!("debugfs: {}", line.trim_start_matches("debugfs: ")));
        }
        Ok(output.stdout)
    }
}

fn batches(numbers: &BTreeSet<u64>) -> Vec<String> {
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    numbers.chunks(BATCH).map(|batch| batch.join(" ")).collect()
}
