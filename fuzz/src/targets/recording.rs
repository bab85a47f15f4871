// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording, with or without its log: from the bytes of the file to the report.
//!
//! The input is the length of the log in four bytes, the file, and the log.

use super::log::sealed;
use crate::{judged, store};

pub(crate) fn read(data: &[u8]) -> bool {
    let Some((length, rest)) = data.split_first_chunk::<4>() else { return false };
    let log_bytes = u32::from_le_bytes(*length) as usize;
    let (file, log) = rest.split_at(rest.len() - log_bytes.min(rest.len()));
    // Of an odd length it is read as it is.
    let log = if log_bytes.is_multiple_of(2) { sealed(file, log) } else { log.to_vec() };
    let log = (!log.is_empty()).then_some(&*log);
    let Ok(records) = store::read(file, log) else { return false };
    // A page is read once, and a row of the smallest table has a byte per cell.
    assert!(records.len() <= rest.len(), "{} records of {} bytes", records.len(), rest.len());
    assert_eq!(store::read(file, log).as_ref(), Ok(&records), "it was read twice");
    judged::records(&records);
    true
}
