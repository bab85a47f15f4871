// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The encodings of Parquet that are written: for integers the differences of neighbours (`DELTA_BINARY_PACKED`), for
//! texts numbers into a dictionary (`RLE_DICTIONARY`), for the rest values as they are (`PLAIN`).

use super::thrift::{varint, zigzag};

/// Values of a block of differences, and of each of its parts, which have a width of their own.
const BLOCK: usize = 128;
const PART: usize = 32;

/// Appends numbers of `width` bits each, lowest bits first.
fn pack(numbers: &[u64], width: u32, to: &mut Vec<u8>) {
    let (mut held, mut bits) = (0_u128, 0);
    for &number in numbers {
        held |= u128::from(number) << bits;
        bits += width;
        while bits >= 8 {
            to.push(held as u8);
            held >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        to.push(held as u8);
    }
}

/// Bits of a number.
fn width(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// Integers as differences.
pub(super) fn delta(values: &[i64]) -> Vec<u8> {
    let mut to = Vec::new();
    varint(BLOCK as u64, &mut to);
    varint((BLOCK / PART) as u64, &mut to);
    varint(values.len() as u64, &mut to);
    varint(zigzag(values.first().copied().unwrap_or(0)), &mut to);
    let deltas: Vec<i64> = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    for block in deltas.chunks(BLOCK) {
        let least = block.iter().copied().min().unwrap_or(0);
        varint(zigzag(least), &mut to);
        let above: Vec<u64> =
            block.iter().map(|delta| delta.wrapping_sub(least).cast_unsigned()).collect();
        let widths: Vec<u32> =
            above.chunks(PART).map(|part| width(part.iter().copied().max().unwrap_or(0))).collect();
        // Parts without values have no width and no bytes.
        to.extend((0..BLOCK / PART).map(|at| widths.get(at).map_or(0, |width| *width as u8)));
        for (part, width) in above.chunks(PART).zip(widths) {
            let mut whole = [0; PART];
            whole[..part.len()].copy_from_slice(part);
            pack(&whole, width, &mut to);
        }
    }
    to
}

/// Numbers below `2^width` as runs: the same number many times, or eights of packed ones.
pub(super) fn runs(values: &[u32], width: u32) -> Vec<u8> {
    let (mut to, mut single) = (Vec::new(), Vec::new());
    let mut rest = values;
    while let Some(&value) = rest.first() {
        let same = rest.iter().take_while(|other| **other == value).count();
        // Single numbers come in eights, except at the end.
        let filling = (8 - single.len() % 8) % 8;
        let taken = if same < 8 + filling {
            single.extend(rest[..same].iter().map(|value| u64::from(*value)));
            same
        } else {
            single.extend(std::iter::repeat_n(u64::from(value), filling));
            packed_run(&mut single, width, &mut to);
            varint(((same - filling) as u64) << 1, &mut to);
            to.extend(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
            same
        };
        rest = &rest[taken..];
    }
    packed_run(&mut single, width, &mut to);
    to
}

fn packed_run(single: &mut Vec<u64>, width: u32, to: &mut Vec<u8>) {
    if single.is_empty() {
        return;
    }
    let eights = single.len().div_ceil(8);
    single.resize(eights * 8, 0);
    varint((eights as u64) << 1 | 1, to);
    pack(single, width, to);
    single.clear();
}

/// Bits that every number below `count` fits into; at least one, which all readers expect.
pub(super) fn width_below(count: usize) -> u32 {
    width(count.saturating_sub(1) as u64).max(1)
}

/// A text with its length.
pub(super) fn plain_text(text: &str, to: &mut Vec<u8>) {
    to.extend((text.len() as u32).to_le_bytes());
    to.extend(text.as_bytes());
}
