// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes as text that holds each byte as the character of the same number: a path takes about its own length.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&bytes.iter().map(|&byte| char::from(byte)).collect::<String>())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    let byte = |character| u8::try_from(character).map_err(D::Error::custom);
    text.chars().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Path(#[serde(with = "super")] Vec<u8>);

    #[test]
    fn every_byte_comes_back() {
        let path = Path((0..=255).collect());
        let text = serde_json::to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<Path>(&text).unwrap(), path);
        assert!(serde_json::from_str::<Path>("\"\u{100}\"").is_err());
    }
}
