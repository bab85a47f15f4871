// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is encoded is decoded by what the format says. DuckDB reads whole files in `crates/cli/tests/it/export.rs`.

use super::encode::{delta, runs, width_below};
use super::thrift::{Struct, Value, varint, zigzag};
use proptest::prelude::*;

/// Reads bytes from left to right.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let byte = self.0[0];
        self.0 = &self.0[1..];
        byte
    }

    fn varint(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return number;
            }
        }
    }

    fn zigzag(&mut self) -> i64 {
        let number = self.varint();
        (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
    }

    /// Numbers of `width` bits each, which fill whole bytes.
    fn packed(&mut self, count: usize, width: usize) -> Vec<u64> {
        let bytes: Vec<u8> = (0..(count * width).div_ceil(8)).map(|_| self.byte()).collect();
        let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
        (0..count).map(|n| (0..width).fold(0, |sum, at| sum | bit(n * width + at) << at)).collect()
    }
}

fn of_delta(bytes: &[u8]) -> Vec<i64> {
    let mut bytes = Bytes(bytes);
    let (block, parts, total) =
        (bytes.varint() as usize, bytes.varint() as usize, bytes.varint() as usize);
    let mut values = vec![bytes.zigzag()];
    while values.len() < total {
        let least = bytes.zigzag();
        let widths: Vec<usize> = (0..parts).map(|_| bytes.byte().into()).collect();
        for width in widths {
            if values.len() < total {
                for delta in bytes.packed(block / parts, width) {
                    let last = values[values.len() - 1];
                    values.push(last.wrapping_add(least).wrapping_add(delta.cast_signed()));
                }
            }
        }
    }
    assert!(bytes.0.is_empty(), "nothing is left");
    values.truncate(total);
    values
}

fn of_runs(bytes: &[u8], width: u32, count: usize) -> Vec<u32> {
    let mut bytes = Bytes(bytes);
    let mut values: Vec<u32> = Vec::new();
    while values.len() < count {
        let head = bytes.varint();
        let length = (head >> 1) as usize;
        if head & 1 == 1 {
            values.extend(bytes.packed(8 * length, width as usize).iter().map(|it| *it as u32));
        } else {
            let value =
                (0..width.div_ceil(8)).fold(0, |sum, at| sum | u32::from(bytes.byte()) << (8 * at));
            values.extend(std::iter::repeat_n(value, length));
        }
    }
    assert!(bytes.0.is_empty(), "nothing is left");
    values.truncate(count);
    values
}

/// Numbers of all sizes.
fn integers() -> impl Strategy<Value = Vec<i64>> {
    let number = (any::<i64>(), 0..64_u32).prop_map(|(number, less)| number >> less);
    prop::collection::vec(number, 0..400)
}

proptest! {
    #[test]
    fn integers_come_back(values in integers()) {
        prop_assert_eq!(&of_delta(&delta(&values))[..values.len()], &values[..]);
    }

    #[test]
    fn numbers_into_a_dictionary_come_back(
        parts in prop::collection::vec((0..300_u32, 1..40_usize), 0..30),
        most in 1..300_u32,
    ) {
        let values: Vec<u32> =
            parts.iter().flat_map(|(value, count)| std::iter::repeat_n(value % most, *count)).collect();
        let width = width_below(most as usize);
        prop_assert_eq!(of_runs(&runs(&values, width), width, values.len()), values);
    }

    #[test]
    fn variable_lengths_come_back(number in any::<i64>(), less in 0..64_u32) {
        let number = number >> less;
        let mut bytes = Vec::new();
        varint(zigzag(number), &mut bytes);
        prop_assert_eq!(Bytes(&bytes).zigzag(), number);
        prop_assert!(bytes.len() <= 10);
    }
}

#[test]
fn widths_are_those_of_the_largest_number() {
    assert_eq!([0, 1, 2, 3, 4, 5, 256, 257].map(width_below), [1, 1, 1, 2, 2, 3, 8, 9]);
}

#[test]
fn structures_are_those_of_the_compact_protocol() {
    let inner = Struct::default().with(1, Value::Bool(true)).with(17, Value::I32(-1));
    let list = Value::List(vec![Value::I32(1), Value::I32(-2)]);
    let whole =
        Struct::default().with(1, Value::Struct(inner)).with(3, list).with(4, Value::Text("ab"));
    // Struct: boolean in its head, then a field 16 further with its number; list of two i32; text.
    let expected = [0x1c, 0x11, 0x05, 34, 1, 0, 0x29, 0x25, 2, 3, 0x18, 2, b'a', b'b', 0];
    assert_eq!(whole.end(), expected);
}
