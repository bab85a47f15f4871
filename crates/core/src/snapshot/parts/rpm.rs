// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers of rpm packages, as stored in rpm's database: number of index entries and length of the store, the index
//! entries, the store.

use crate::text::name::decode;

const NAME: u32 = 1000;
const VERSION: u32 = 1001;
const RELEASE: u32 = 1002;
const EPOCH: u32 = 1003;
const INT32: u32 = 4;
const STRING: u32 = 6;
const INDEX_ENTRY_BYTES: usize = 16;

/// Name and version (`epoch:version-release`) of a package from its header; `None` if one is missing or the
/// header is damaged.
#[must_use]
pub fn package(header: &[u8]) -> Option<(String, String)> {
    let number = |at: usize| {
        let bytes = header.get(at..at.checked_add(4)?)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let entries = usize::try_from(number(0)?).ok()?;
    let store = entries.checked_mul(INDEX_ENTRY_BYTES)?.checked_add(8)?;
    if store > header.len() {
        return None;
    }
    let (mut name, mut version, mut release, mut epoch) = (None, None, None, None);
    for entry in 0..entries {
        let at = 8 + entry * INDEX_ENTRY_BYTES;
        let (tag, kind, offset) = (number(at)?, number(at + 4)?, number(at + 8)?);
        let place = store.checked_add(usize::try_from(offset).ok()?)?;
        let text = || (kind == STRING).then(|| header.get(place..).map(decode)).flatten();
        match tag {
            NAME => name = text(),
            VERSION => version = text(),
            RELEASE => release = text(),
            EPOCH if kind == INT32 => epoch = number(place),
            _ => {}
        }
    }
    let epoch = epoch.map(|epoch| format!("{epoch}:")).unwrap_or_default();
    Some((name?, format!("{epoch}{}-{}", version?, release?)))
}
