// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads which filesystem a device holds.

use deburr_core::filesystem::superblock::{Format, HEAD_BYTES};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The filesystem on a device, from its first bytes.
pub(super) fn read(device: &Path) -> io::Result<Format> {
    let mut head = Vec::new();
    File::open(device)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(Format::parse(&head))
}
