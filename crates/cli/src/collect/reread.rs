// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads files of `/proc` that are kept open: the kernel generates their text at each read from offset 0, and
//! opening costs several times as much as reading.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The current text of the file, from offset 0.
pub(super) fn text(file: &File) -> io::Result<Vec<u8>> {
    let mut text = vec![0; 4096];
    let mut len = 0;
    loop {
        match file.read_at(&mut text[len..], len as u64)? {
            0 => {
                text.truncate(len);
                return Ok(text);
            }
            more => len += more,
        }
        if len == text.len() {
            text.resize(2 * len, 0);
        }
    }
}
