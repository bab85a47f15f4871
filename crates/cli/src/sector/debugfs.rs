// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks into ext2, ext3 and ext4 with `debugfs` of e2fsprogs: block to inode, inode to path, block in use or free.
//! It only reads. Its arguments are numbers and the path of a known device; no shell is involved.

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
            inodes.extend(parse_icheck(&self.ask(&[format!("icheck {numbers}")])?)?);
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
            paths.extend(parse_ncheck(&self.ask(&[format!("ncheck {numbers}")])?, inodes)?);
        }
        Ok(paths)
    }

    /// Whether each block is in use.
    pub(super) fn in_use(&self, blocks: &BTreeSet<u64>) -> Result<BTreeMap<u64, bool>, String> {
        let questions: Vec<_> = blocks.iter().map(|block| format!("testb {block}")).collect();
        Ok(parse_testb(&self.ask(&questions)?))
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

/// Parses `Block<TAB>Inode number`, then a line for each block.
fn parse_icheck(text: &[u8]) -> Result<BTreeMap<u64, Option<u64>>, String> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    if !lines.next().is_some_and(|line| line.starts_with("Block")) {
        return Err("debugfs answered in a way that is not understood".into());
    }
    Ok(lines
        .filter_map(|line| {
            let (block, inode) = line.split_once('\t')?;
            Some((block.parse().ok()?, inode.trim().parse().ok()))
        })
        .collect())
}

/// Parses `Inode<TAB>Pathname`, then a line for each name of each inode. A name may hold newlines: a line that does
/// not begin with a number that was asked for continues the name before.
fn parse_ncheck(text: &[u8], asked: &BTreeSet<u64>) -> Result<BTreeMap<u64, Vec<Vec<u8>>>, String> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut lines = text.split(|&byte| byte == b'\n');
    if !lines.next().is_some_and(|line| line.starts_with(b"Inode")) {
        return Err("debugfs answered in a way that is not understood".into());
    }
    let mut paths: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    let mut last = None;
    for line in lines {
        let tab = line.iter().position(|&byte| byte == b'\t');
        let begin = tab.and_then(|tab| {
            let inode = std::str::from_utf8(&line[..tab]).ok()?.parse().ok()?;
            asked.contains(&inode).then_some((inode, &line[tab + 1..]))
        });
        if let Some((inode, path)) = begin {
            // Paths directly below the root are written with two slashes.
            let path = if path.starts_with(b"//") { &path[1..] } else { path };
            paths.entry(inode).or_default().push(path.to_vec());
            last = Some(inode);
        } else if let Some(path) = last.and_then(|inode| paths.get_mut(&inode)?.last_mut()) {
            path.push(b'\n');
            path.extend(line);
        }
    }
    Ok(paths)
}

/// Parses `Block N marked in use` and `Block N not in use`, between the echoes of the commands.
fn parse_testb(text: &[u8]) -> BTreeMap<u64, bool> {
    String::from_utf8_lossy(text)
        .lines()
        .filter_map(|line| {
            let (block, state) = line.strip_prefix("Block ")?.split_once(' ')?;
            Some((block.parse().ok()?, state.starts_with("marked")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_of_debugfs() {
        let text = b"Block\tInode number\n16081395\t33292549\n1\t<block not found>\n";
        let inodes = parse_icheck(text).unwrap();
        assert_eq!(inodes, BTreeMap::from([(16_081_395, Some(33_292_549)), (1, None)]));
        assert!(parse_icheck(b"").is_err() && parse_icheck(b"icheck: nonsense\n").is_err());
        let text =
            b"debugfs: testb 1\nBlock 1 marked in use\ndebugfs: testb 9\nBlock 9 not in use\n";
        assert_eq!(parse_testb(text), BTreeMap::from([(1, true), (9, false)]));
    }

    #[test]
    fn names_may_be_many_and_may_hold_anything() {
        let text = b"Inode\tPathname\n12\t//d\n14\t//g\n13\t/d/a b\n14\t/d/line\nend\xff\n99\tx\n";
        let paths = parse_ncheck(text, &BTreeSet::from([12, 13, 14])).unwrap();
        assert_eq!(paths[&12], [b"/d"]);
        assert_eq!(paths[&13], [b"/d/a b"]);
        assert_eq!(paths[&14], [b"/g".as_slice(), b"/d/line\nend\xff\n99\tx"]);
    }

    proptest! {
        #[test]
        fn any_answer_is_taken(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_icheck(&text);
            let _ = parse_testb(&text);
            let _ = parse_ncheck(&[b"Inode\n", text.as_slice()].concat(), &BTreeSet::from([1, 2]));
        }
    }
}
