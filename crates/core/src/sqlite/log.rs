// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The write-ahead log: newer pages of the file.

use super::{Fault, Result, Source, damaged, u32_at};
use std::collections::HashMap;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// First word of a log whose checksums are over little-endian words; the next number stands for big-endian ones.
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;
/// More of a log is not read. A session writes it back into the file every 4 MB, if no reader is in the way.
const MAX_LOG_BYTES: u64 = 1 << 30;

/// A log with at least one completed transaction.
#[derive(Debug)]
pub(super) struct Log<S> {
    source: S,
    /// Page -> where its newest frame begins.
    frames: HashMap<u32, u64>,
    /// Number of pages of the file after the last transaction.
    pages: u32,
    /// Differs between the frames of this log and what is left of older ones.
    salt: [u8; 8],
}

impl<S: Source> Log<S> {
    /// `None` if it holds no completed transaction.
    pub(super) fn open(source: S, page_bytes: usize) -> Result<Option<Self>> {
        let mut head = [0; HEADER_BYTES];
        if source.size() < HEADER_BYTES as u64 {
            return Ok(None);
        }
        source.read_exact_at(&mut head, 0).map_err(Fault::Unreadable)?;
        let mut sum = Checksum { big_endian: u32_at(&head, 0) == MAGIC + 1, sums: (0, 0) };
        if u32_at(&head, 0) & !1 != MAGIC || !sum.agrees(&head[..24], &head[24..]) {
            return Ok(None);
        }
        if u32_at(&head, 4) != VERSION {
            return damaged("its log has an unknown version");
        }
        if u32_at(&head, 8) as usize != page_bytes {
            return damaged("its log has pages of another size");
        }
        let mut salt = [0; 8];
        salt.copy_from_slice(&head[16..24]);
        let mut log = Self { source, frames: HashMap::new(), pages: 0, salt };
        log.index(page_bytes, &mut sum)?;
        Ok((log.pages > 0).then_some(log))
    }

    /// Finds the newest frame of each page, up to the end of the last transaction.
    fn index(&mut self, page_bytes: usize, sum: &mut Checksum) -> Result<()> {
        let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
        let mut at = HEADER_BYTES as u64;
        let mut open = Vec::new();
        while at + frame.len() as u64 <= self.source.size() {
            self.source.read_exact_at(&mut frame, at).map_err(Fault::Unreadable)?;
            let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
            let number = u32_at(head, 0);
            let mut next = *sum;
            next.add(&head[..8]);
            if number == 0 || head[8..16] != self.salt || !next.agrees(page, &head[16..]) {
                // What follows is left of an older log, or was not written completely.
                break;
            }
            if at > MAX_LOG_BYTES {
                let most = MAX_LOG_BYTES >> 30;
                return Err(Fault::Limit(format!("its log is longer than {most} GB")));
            }
            *sum = next;
            open.push((number, at));
            let pages = u32_at(head, 4);
            if pages > 0 {
                self.pages = pages;
                self.frames.extend(open.drain(..));
            }
            at += frame.len() as u64;
        }
        Ok(())
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Reads a page, if the log has it.
    pub(super) fn read(&self, number: u32, to: &mut [u8]) -> Result<bool> {
        let Some(&at) = self.frames.get(&number) else { return Ok(false) };
        let mut head = [0; FRAME_HEADER_BYTES];
        self.source.read_exact_at(&mut head, at).map_err(Fault::Unreadable)?;
        self.source.read_exact_at(to, at + FRAME_HEADER_BYTES as u64).map_err(Fault::Unreadable)?;
        if u32_at(&head, 0) != number || head[8..16] != self.salt {
            return Err(Fault::Unreadable("its log was replaced while it was read".into()));
        }
        Ok(true)
    }
}

/// SQLite's checksum of a log, which runs on from frame to frame.
#[derive(Clone, Copy)]
struct Checksum {
    big_endian: bool,
    sums: (u32, u32),
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let word = |four: [u8; 4]| {
            if self.big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
        };
        let (mut a, mut b) = self.sums;
        for &[c0, c1, c2, c3, d0, d1, d2, d3] in bytes.as_chunks::<8>().0 {
            a = a.wrapping_add(word([c0, c1, c2, c3])).wrapping_add(b);
            b = b.wrapping_add(word([d0, d1, d2, d3])).wrapping_add(a);
        }
        self.sums = (a, b);
    }

    /// Adds bytes, and compares with the sums that are stated.
    fn agrees(&mut self, bytes: &[u8], stated: &[u8]) -> bool {
        self.add(bytes);
        self.sums == (u32_at(stated, 0), u32_at(stated, 4))
    }
}
