// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A write-ahead log whose checksums are right: otherwise every change of a byte ends it there.

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// The log with the checksums that its content has, and one salt.
pub(super) fn sealed(file: &[u8], log: &[u8]) -> Vec<u8> {
    let mut log = log.to_vec();
    let page = match file.get(16..18) {
        Some(&[0, 1]) => 65_536,
        Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
        _ => 0,
    };
    if log.len() < HEADER || page < 512 {
        return log;
    }
    let magic = 0x377f_0682 | u32::from(log[3] & 1);
    log[..4].copy_from_slice(&magic.to_be_bytes());
    log[4..8].copy_from_slice(&3_007_000_u32.to_be_bytes());
    log[8..12].copy_from_slice(&(page as u32).to_be_bytes());
    let big_endian = log[3] & 1 == 1;
    let mut sums = (0, 0);
    let (head, frames) = log.split_at_mut(HEADER);
    add(&mut sums, &head[..24], big_endian);
    state(sums, &mut head[24..]);
    for frame in frames.chunks_exact_mut(FRAME_HEADER + page) {
        let (of_frame, content) = frame.split_at_mut(FRAME_HEADER);
        of_frame[8..16].copy_from_slice(&head[16..24]);
        add(&mut sums, &of_frame[..8], big_endian);
        add(&mut sums, content, big_endian);
        state(sums, &mut of_frame[16..]);
    }
    log
}

fn add(sums: &mut (u32, u32), bytes: &[u8], big_endian: bool) {
    for words in bytes.chunks_exact(8) {
        let word = |at: usize| {
            let four = [words[at], words[at + 1], words[at + 2], words[at + 3]];
            if big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
        };
        sums.0 = sums.0.wrapping_add(word(0)).wrapping_add(sums.1);
        sums.1 = sums.1.wrapping_add(word(4)).wrapping_add(sums.0);
    }
}

fn state(sums: (u32, u32), to: &mut [u8]) {
    to[..4].copy_from_slice(&sums.0.to_be_bytes());
    to[4..8].copy_from_slice(&sums.1.to_be_bytes());
}
