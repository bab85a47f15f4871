// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of an SQLite file, read without SQLite.
//!
//! A recording may be anybody's file. SQLite would run what its schema says, sort in temporary files, and write an
//! index beside its log. This reader knows one thing: the rows of ordinary tables, in the order of their keys. It runs
//! no SQL and has nothing to write with. Each page is read at most once in a [`Pass`], so that its time is bounded by
//! the size of the file, and it keeps a path of pages per table, so that its memory is bounded as well.
//!
//! The format is SQLite's own, <https://www.sqlite.org/fileformat2.html>: the file, and the write-ahead log of a file
//! that is still written to or whose writer was killed.

mod log;
mod row;
mod schema;
#[cfg(test)]
mod tests;
mod tree;

pub use row::Value;
pub use schema::{Column, Schema, Table};
pub use tree::{Pass, Rows};

use log::Log;

/// The first bytes of every SQLite file.
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Length of the header, at the start of the first page.
const HEADER_BYTES: usize = 100;

/// A longer file is not opened: the pages that were read are counted in memory.
const MAX_FILE_BYTES: u64 = 64 << 30;

/// Bytes that can be read at any place: a file, or a part of memory.
pub trait Source: std::fmt::Debug {
    /// Number of bytes.
    fn size(&self) -> u64;

    /// Fills `to` with the bytes from `at` on. The text of the error says why it could not.
    fn read_exact_at(&self, to: &mut [u8], at: u64) -> Result<(), String>;
}

impl Source for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, to: &mut [u8], at: u64) -> Result<(), String> {
        let from = usize::try_from(at).ok().and_then(|at| self.get(at..)?.get(..to.len()));
        to.copy_from_slice(from.ok_or("unexpected end")?);
        Ok(())
    }
}

impl Source for Box<dyn Source> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_exact_at(&self, to: &mut [u8], at: u64) -> Result<(), String> {
        (**self).read_exact_at(to, at)
    }
}

/// Why something was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file is not what SQLite writes, or it is cut off.
    Damaged(String),
    /// The file holds more than is read.
    Limit(String),
    /// The bytes could not be read.
    Unreadable(String),
}

/// Result of a reading.
pub type Result<T, E = Fault> = std::result::Result<T, E>;

fn damaged<T>(what: impl Into<String>) -> Result<T> {
    Err(Fault::Damaged(what.into()))
}

/// An open file.
#[derive(Debug)]
pub struct Database<S> {
    file: S,
    log: Option<Log<S>>,
    page_bytes: usize,
    /// Bytes of a page that hold data.
    usable: usize,
    /// Number of pages.
    pages: u32,
    application_id: i32,
    user_version: i32,
}

impl<S: Source> Database<S> {
    /// Opens a file. `log` is its write-ahead log, if there is one: transactions of it that were not completed do not
    /// count, and a log that belongs to no transaction is ignored, as SQLite does.
    pub fn open(file: S, log: Option<S>) -> Result<Self> {
        let too_long = || Fault::Limit(format!("it is longer than {} GB", MAX_FILE_BYTES >> 30));
        if file.size() > MAX_FILE_BYTES {
            return Err(too_long());
        }
        let mut head = [0; HEADER_BYTES];
        if file.size() < HEADER_BYTES as u64 {
            return damaged("it ends within its header");
        }
        file.read_exact_at(&mut head, 0).map_err(Fault::Unreadable)?;
        let page_bytes = page_bytes(&head)?;
        let log = log.map(|log| Log::open(log, page_bytes)).transpose()?.flatten();
        let mut database = Self {
            file,
            log,
            page_bytes,
            usable: page_bytes,
            pages: 1,
            application_id: 0,
            user_version: 0,
        };
        if database.log.is_some() {
            // The log may hold a newer first page.
            head.copy_from_slice(&database.page(1)?[..HEADER_BYTES]);
            if self::page_bytes(&head)? != page_bytes {
                return damaged("its log has pages of another size");
            }
        }
        database.read_head(&head)?;
        if u64::from(database.pages) * page_bytes as u64 > MAX_FILE_BYTES {
            return Err(too_long());
        }
        Ok(database)
    }

    fn read_head(&mut self, head: &[u8; HEADER_BYTES]) -> Result<()> {
        if head[18] > 2 || head[19] > 2 || head[21..24] != [64, 32, 32] {
            return damaged("its header is not that of a format that is known");
        }
        self.usable = self.page_bytes - usize::from(head[20]);
        if self.usable < 480 {
            return damaged("its pages hold too little");
        }
        if u32_at(head, 56) > 1 {
            return damaged("its text is not UTF-8");
        }
        let held = u32::try_from(self.file.size() / self.page_bytes as u64).unwrap_or(u32::MAX);
        let stated = u32_at(head, 28);
        self.pages = match &self.log {
            Some(log) => log.pages(),
            None if stated > held => return damaged("it has fewer pages than it should have"),
            // Old versions of SQLite did not keep this number.
            None if stated == 0 || head[24..28] != head[92..96] => held,
            None => stated,
        };
        self.user_version = u32_at(head, 60).cast_signed();
        self.application_id = u32_at(head, 68).cast_signed();
        Ok(())
    }

    /// `PRAGMA application_id`.
    pub fn application_id(&self) -> i32 {
        self.application_id
    }

    /// `PRAGMA user_version`.
    pub fn user_version(&self) -> i32 {
        self.user_version
    }

    /// The bytes of a page, from the log if it is there.
    fn page(&self, number: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.page_bytes];
        if let Some(log) = &self.log
            && log.read(number, &mut bytes)?
        {
            return Ok(bytes);
        }
        let at = u64::from(number - 1) * self.page_bytes as u64;
        if at + self.page_bytes as u64 > self.file.size() {
            return damaged(format!("page {number} is missing"));
        }
        self.file.read_exact_at(&mut bytes, at).map_err(Fault::Unreadable)?;
        Ok(bytes)
    }
}

fn page_bytes(head: &[u8; HEADER_BYTES]) -> Result<usize> {
    if &head[..MAGIC.len()] != MAGIC {
        return damaged("it is not an SQLite file");
    }
    match u16::from_be_bytes([head[16], head[17]]) {
        1 => Ok(65_536),
        size if size.is_power_of_two() && size >= 512 => Ok(size.into()),
        _ => damaged("the size of its pages is none that SQLite has"),
    }
}

/// The big-endian number at that place. The caller has checked the length.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
