// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers as packed bytes, for lists of which there are many: small numbers take few bytes.
//!
//! Each number is in LEB128: seven bits per byte from the lowest on, the eighth bit says that more bytes follow.

/// Packs the numbers.
#[must_use]
pub fn bytes(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for mut rest in numbers {
        while rest >= 0x80 {
            // The lowest seven bits.
            bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

/// Unpacks the numbers; `None` if the last number is cut off, or a number has more than 64 bits.
#[must_use]
pub fn numbers(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let (mut number, mut shift) = (0u64, 0);
    for &byte in bytes {
        let bits = u64::from(byte & 0x7f);
        let shifted = bits.checked_shl(shift)?;
        if shifted >> shift != bits {
            return None;
        }
        number |= shifted;
        shift += 7;
        if byte < 0x80 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    (shift == 0).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_end_is_no_number() {
        assert_eq!(numbers(&[0x80]), None);
        assert_eq!(numbers(&[0xff; 11]), None);
        assert_eq!(numbers(&[0x7f, 0x80, 0x01]), Some(vec![127, 128]));
    }

    proptest! {
        #[test]
        fn all_numbers_come_back(list in prop::collection::vec((any::<u64>(), 0..64u32), 0..40)) {
            // Numbers of all lengths.
            let list: Vec<u64> = list.into_iter().map(|(number, less)| number >> less).collect();
            prop_assert_eq!(numbers(&bytes(list.iter().copied())), Some(list));
        }
    }
}
