// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that come from the host, as text that loses nothing.
//!
//! The kernel's names are bytes: a comm may be any 15 bytes, a path anything but NUL. [`decode`] keeps valid
//! UTF-8 as it is and writes every other byte as `\xNN`. Control characters stay: they are escaped by
//! whoever shows the name.

use std::fmt::Write as _;

/// Decodes bytes of a kernel name up to the first NUL. Invalid UTF-8 becomes `\xNN`, a byte each.
#[must_use]
pub fn decode(bytes: &[u8]) -> String {
    let bytes = bytes.split(|&b| b == 0).next().unwrap_or_default();
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn stops_at_nul_and_keeps_every_byte() {
        assert_eq!(decode(b"java\0garbage"), "java");
        assert_eq!(decode("毛刺".as_bytes()), "毛刺");
        assert_eq!(decode(b"a\xff\xc3(b"), "a\\xff\\xc3(b");
        assert_eq!(decode(b"\x1b[31m"), "\x1b[31m");
        assert_eq!(decode(b""), "");
    }
}
