// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `debugfs` of e2fsprogs prints. Names in it are whatever is in the filesystem.

use std::collections::{BTreeMap, BTreeSet};

/// The answer to `icheck`: `Block<TAB>Inode number`, then a line for each block. An error says that it is none.
pub fn inodes(text: &[u8]) -> Result<BTreeMap<u64, Option<u64>>, String> {
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

/// The answer to `ncheck`: `Inode<TAB>Pathname`, then a line for each name of each inode. A name may hold newlines: a line
/// that does not begin with a number that was asked for continues the name before.
pub fn paths(text: &[u8], asked: &BTreeSet<u64>) -> Result<BTreeMap<u64, Vec<Vec<u8>>>, String> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut lines = text.split(|&byte| byte == b'\n');
    if !lines.next().is_some_and(|line| line.starts_with(b"Inode")) {
        return Err("debugfs answered in a way that is not understood".into());
    }
    let mut found: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
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
            found.entry(inode).or_default().push(path.to_vec());
            last = Some(inode);
        } else if let Some(path) = last.and_then(|inode| found.get_mut(&inode)?.last_mut()) {
            path.push(b'\n');
            path.extend(line);
        }
    }
    Ok(found)
}

/// The answer to `testb`: `Block N marked in use` or `Block N not in use`, between the echoes of the commands.
#[must_use]
pub fn in_use(text: &[u8]) -> BTreeMap<u64, bool> {
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
        let found = inodes(text).unwrap();
        assert_eq!(found, BTreeMap::from([(16_081_395, Some(33_292_549)), (1, None)]));
        assert!(inodes(b"").is_err() && inodes(b"icheck: nonsense\n").is_err());
        let text =
            b"debugfs: testb 1\nBlock 1 marked in use\ndebugfs: testb 9\nBlock 9 not in use\n";
        assert_eq!(in_use(text), BTreeMap::from([(1, true), (9, false)]));
    }

    #[test]
    fn names_may_be_many_and_may_hold_anything() {
        let text = b"Inode\tPathname\n12\t//d\n14\t//g\n13\t/d/a b\n14\t/d/line\nend\xff\n99\tx\n";
        let found = paths(text, &BTreeSet::from([12, 13, 14])).unwrap();
        assert_eq!(found[&12], [b"/d"]);
        assert_eq!(found[&13], [b"/d/a b"]);
        assert_eq!(found[&14], [b"/g".as_slice(), b"/d/line\nend\xff\n99\tx"]);
    }

    proptest! {
        #[test]
        fn any_answer_is_taken(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = inodes(&text);
            let _ = in_use(&text);
            let _ = paths(&[b"Inode\n", text.as_slice()].concat(), &BTreeSet::from([1, 2]));
        }
    }
}
