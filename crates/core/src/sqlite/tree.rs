// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree of pages in which a table is stored, read from its first row to its last.

use super::row::{self, Cell, Record, Value, varint};
use super::{Database, Fault, HEADER_BYTES, Result, Source, damaged, u32_at};
use std::cell::RefCell;

/// The longest row that is read.
const MAX_ROW_BYTES: u64 = 2 << 20;
/// Trees are not deeper in SQLite either.
const MAX_DEPTH: usize = 20;

/// One reading of several tables. A page belongs to one table: whoever finds it a second time has found a loop, or a
/// file that holds the same rows a thousand times.
#[derive(Debug)]
pub struct Pass<'a, S> {
    database: &'a Database<S>,
    /// The pages that were read, a bit each.
    read: RefCell<Vec<u64>>,
}

impl<'a, S: Source> Pass<'a, S> {
    /// Starts a reading.
    pub fn new(database: &'a Database<S>) -> Self {
        Self { database, read: RefCell::default() }
    }

    /// The rows of the table whose tree begins at that page.
    pub fn rows<'b>(&'b self, root: u32) -> Result<Rows<'b, 'a, S>> {
        let mut rows =
            Rows { pass: self, path: Vec::new(), key: None, record: Vec::new(), cells: Vec::new() };
        rows.descend(root)?;
        Ok(rows)
    }

    fn page(&self, number: u32) -> Result<Vec<u8>> {
        if number == 0 || number > self.database.pages {
            return damaged(format!("there is no page {number}"));
        }
        let bytes = self.database.page(number)?;
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        let mut read = self.read.borrow_mut();
        if read.len() <= word {
            read.resize(word + 1, 0);
        }
        if read[word] & bit != 0 {
            return damaged(format!("page {number} belongs to two places"));
        }
        read[word] |= bit;
        Ok(bytes)
    }
}

/// A page of the tree, and the next of its cells.
#[derive(Debug)]
struct Node {
    bytes: Vec<u8>,
    /// Where its header begins.
    head: usize,
    is_leaf: bool,
    cells: usize,
    next: usize,
}

impl Node {
    fn new(number: u32, bytes: Vec<u8>) -> Result<Self> {
        let head = if number == 1 { HEADER_BYTES } else { 0 };
        let is_leaf = match bytes[head] {
            0x0d => true,
            0x05 => false,
            _ => return damaged(format!("page {number} is not a part of a table")),
        };
        let cells = usize::from(u16::from_be_bytes([bytes[head + 3], bytes[head + 4]]));
        let node = Self { bytes, head, is_leaf, cells, next: 0 };
        if node.pointers() + 2 * cells > node.bytes.len() {
            return damaged(format!("page {number} has more cells than there can be"));
        }
        Ok(node)
    }

    /// Where its list of cells begins.
    fn pointers(&self) -> usize {
        self.head + if self.is_leaf { 8 } else { 12 }
    }

    /// The bytes from the next cell on.
    fn next_cell(&mut self, usable: usize) -> Result<&[u8]> {
        let at = self.pointers() + 2 * self.next;
        self.next += 1;
        let at = usize::from(u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]));
        self.bytes
            .get(..usable)
            .and_then(|bytes| bytes.get(at..))
            .map_or_else(|| damaged("a cell lies outside of its page"), Ok)
    }

    /// The page below that comes next.
    fn next_child(&mut self, usable: usize) -> Result<Option<u32>> {
        if self.next > self.cells {
            return Ok(None);
        }
        if self.next == self.cells {
            self.next += 1;
            return Ok(Some(u32_at(&self.bytes, self.head + 8)));
        }
        let cell = self.next_cell(usable)?;
        if cell.len() < 4 { damaged("a cell is cut off") } else { Ok(Some(u32_at(cell, 0))) }
    }
}

/// The rows of a table in the order of their keys.
#[derive(Debug)]
pub struct Rows<'b, 'a, S> {
    pass: &'b Pass<'a, S>,
    path: Vec<Node>,
    key: Option<i64>,
    record: Vec<u8>,
    cells: Vec<Cell>,
}

impl<S: Source> Rows<'_, '_, S> {
    fn descend(&mut self, page: u32) -> Result<()> {
        if self.path.len() == MAX_DEPTH {
            return damaged("a table is deeper than there can be");
        }
        self.path.push(Node::new(page, self.pass.page(page)?)?);
        Ok(())
    }

    /// Goes to the next row and returns its key; `None` after the last row.
    pub fn advance(&mut self) -> Result<Option<i64>> {
        let usable = self.pass.database.usable;
        while let Some(node) = self.path.last_mut() {
            if !node.is_leaf {
                match node.next_child(usable)? {
                    Some(child) => self.descend(child)?,
                    None => drop(self.path.pop()),
                }
            } else if node.next < node.cells {
                let key = self.read()?;
                if self.key.is_some_and(|last| last >= key) {
                    return damaged("its rows are not in order");
                }
                self.key = Some(key);
                return Ok(Some(key));
            } else {
                self.path.pop();
            }
        }
        Ok(None)
    }

    /// Reads the next cell of the current leaf, and returns its key.
    fn read(&mut self) -> Result<i64> {
        let usable = self.pass.database.usable;
        let Some(node) = self.path.last_mut() else { return damaged("a row without a page") };
        let cell = node.next_cell(usable)?;
        let cut = || Fault::Damaged("a row is cut off".into());
        let (length, head) = varint(cell).ok_or_else(cut)?;
        let (key, more) = varint(&cell[head..]).ok_or_else(cut)?;
        let cell = &cell[head + more..];
        if length > MAX_ROW_BYTES {
            let (most, has) = (MAX_ROW_BYTES >> 20, length >> 20);
            return Err(Fault::Limit(format!(
                "a row has {has} MB, and no more than {most} MB are read"
            )));
        }
        let length = length as usize;
        let local = local_bytes(length, usable);
        self.record.clear();
        self.record.extend_from_slice(cell.get(..local).ok_or_else(cut)?);
        if local < length {
            let next = cell.get(local..local + 4).ok_or_else(cut)?;
            let next = u32_at(next, 0);
            self.read_rest(length, next)?;
        }
        row::cells(&self.record, &mut self.cells)?;
        Ok(key.cast_signed())
    }

    /// Adds the pages over which a long row runs on.
    fn read_rest(&mut self, length: usize, mut next: u32) -> Result<()> {
        while self.record.len() < length {
            let page = self.pass.page(next)?;
            let part = (length - self.record.len()).min(self.pass.database.usable - 4);
            self.record.extend_from_slice(&page[4..4 + part]);
            next = u32_at(&page, 0);
        }
        Ok(())
    }

    /// A cell of the current row. The key itself is NULL there.
    pub fn get(&self, column: usize) -> Value<'_> {
        self.current().get(column)
    }

    /// Length of the current row.
    pub fn bytes(&self) -> usize {
        self.record.len()
    }

    /// Number of cells of the current row.
    pub fn columns(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn current(&self) -> Record<'_> {
        Record { bytes: &self.record, cells: &self.cells }
    }
}

/// How much of a row of that length is in the page of its cell.
fn local_bytes(length: usize, usable: usize) -> usize {
    let most = usable - 35;
    if length <= most {
        return length;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let local = least + (length - least) % (usable - 4);
    if local <= most { local } else { least }
}
