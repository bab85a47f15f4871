// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the variables that a function loads as 32-bit numbers, in the order of its instructions. This is not a
//! disassembler: it only matches the form in which Go's compiler reads a global `int32`. To be safe, the caller
//! compares two functions.

/// Addresses from which `mov r32, [rip+d]` and `movsxd r64, [rip+d]` load. The boundaries of instructions are not
/// known: bytes within an instruction may look like another one, so an address may be wrong.
pub(super) fn x86_64(code: &[u8], start: u64) -> Vec<u64> {
    let mut loads = Vec::new();
    for (at, bytes) in code.windows(7).enumerate() {
        // ModRM with mod 0 and r/m 5 is an address relative to the next instruction.
        let relative = |modrm: u8| modrm & 0xc7 == 0x05;
        let (length, distance) = match *bytes {
            // REX.W with opcode 63: the load is of 32 bits, the register has 64.
            [0x48 | 0x4c, 0x63, modrm, a, b, c, d] if relative(modrm) => (7, [a, b, c, d]),
            [first, modrm, a, b, c, d, _] if first == 0x8b && relative(modrm) => {
                // With a REX.W prefix it loads 64 bits.
                let wide =
                    at.checked_sub(1).is_some_and(|before| matches!(code[before], 0x48 | 0x4c));
                if wide {
                    continue;
                }
                (6, [a, b, c, d])
            }
            _ => continue,
        };
        let next = start.wrapping_add(at as u64 + length);
        loads.push(next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance))));
    }
    loads
}

/// Addresses from which `ldr w` and `ldrsw` load, if an earlier `adrp` put the page into the base register, with or
/// without an `add` in between.
pub(super) fn aarch64(code: &[u8], start: u64) -> Vec<u64> {
    let mut loads = Vec::new();
    let mut pages: [Option<u64>; 32] = [None; 32];
    for (index, bytes) in code.chunks_exact(4).enumerate() {
        let word = u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        let at = start.wrapping_add(4 * index as u64);
        let (target, base) = ((word & 31) as usize, (word >> 5 & 31) as usize);
        if word & 0x9f00_0000 == 0x9000_0000 {
            // adrp: signed 21-bit number of pages, relative to the page of this instruction.
            let immediate = (word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3;
            let pages_away = i64::from(immediate.cast_signed() << 11 >> 11);
            pages[target] = Some((at & !0xfff).wrapping_add_signed(pages_away << 12));
        } else if word & 0xffc0_0000 == 0x9100_0000 {
            // add, 64-bit, with an unshifted 12-bit immediate.
            let sum = pages[base].map(|page| page.wrapping_add(u64::from(word >> 10 & 0xfff)));
            pages[target] = sum;
        } else if matches!(word & 0xffc0_0000, 0xb940_0000 | 0xb980_0000) {
            // ldr w or ldrsw, with an unsigned offset in units of 4 bytes.
            if let Some(page) = pages[base] {
                loads.push(page.wrapping_add(u64::from(word >> 10 & 0xfff) * 4));
            }
            pages[target] = None;
        }
    }
    loads
}
