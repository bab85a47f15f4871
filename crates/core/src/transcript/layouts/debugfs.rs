// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `debugfs`: which inode a block belongs to (`icheck`), and the path of an inode (`ncheck`).

use super::{Described, Parsed, Parser, Taken};
use crate::transcript::engine::{Context, cut};
use crate::transcript::line::{Line, whole};

const MAX: usize = 10_000;

/// The answers of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Answers {
    /// Line, block and inode.
    pub(in crate::transcript) blocks: Vec<(u64, u64, u64)>,
    /// Line, inode and path.
    pub(in crate::transcript) paths: Vec<(u64, u64, String)>,
    in_paths: Option<bool>,
}

/// Whether a line is the heading of paths (true) or of blocks (false).
fn heading(line: &Line<'_>) -> Option<bool> {
    match *line.words.as_slice() {
        ["Block", "Inode", "number"] => Some(false),
        ["Inode", "Pathname"] => Some(true),
        _ => None,
    }
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    let banner =
        line.begins(&["debugfs"]) && line.words.get(1).is_some_and(|word| word.starts_with("1."));
    (banner || line.begins(&["debugfs:"]) || heading(line).is_some())
        .then(|| Box::new(Answers::default()) as Box<dyn Parser>)
}

impl Parser for Answers {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if let Some(paths) = heading(line) {
            self.in_paths = Some(paths);
            return Taken::Yes;
        }
        if line.begins(&["debugfs:"]) || line.begins(&["debugfs"]) {
            return Taken::Yes;
        }
        let (Some(first), Some(in_paths)) =
            (line.words.first().and_then(|word| whole(word)), self.in_paths)
        else {
            return Taken::No;
        };
        if self.blocks.len() + self.paths.len() >= MAX {
            return Taken::Unread("more than 10000 answers of debugfs");
        }
        if in_paths {
            let rest =
                line.text.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim();
            if !rest.starts_with('/') {
                return Taken::Unread("not a path of debugfs");
            }
            self.paths.push((line.number, first, cut(rest)));
            return Taken::Yes;
        }
        match line.words.get(1).and_then(|word| whole(word)) {
            Some(inode) => self.blocks.push((line.number, first, inode)),
            // `<block not found>`
            None => return Taken::Unread("a block without an inode"),
        }
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Debugfs(*self)
    }
}

impl Answers {
    pub(super) fn describe(&self) -> Described {
        let n = self.blocks.len() + self.paths.len();
        Described::new("debugfs", "icheck and ncheck", n, ["answer", "answers"])
    }
}
