// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loops that keep one kind of execution unit of a core busy and touch no memory: the workload of `deburr cpu-check`.
//! No BPF, but instructions that must be exactly these, in debug builds too: only work that saturates a unit shows
//! whether two CPUs share a core, and a compiler would replace such work by its result.

/// Additions in one round of [`adds`].
#[cfg(test)]
const ADDS: u64 = 16;

/// One addition of 1 to a register.
#[cfg(target_arch = "x86_64")]
macro_rules! add {
    ($register:literal) => {
        concat!("add {", $register, "}, 1")
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! add {
    ($register:literal) => {
        concat!("add {", $register, "}, {", $register, "}, #1")
    };
}

/// Decrements `n` and jumps back to the label `2:` until it is 0.
#[cfg(target_arch = "x86_64")]
macro_rules! again {
    () => {
        "dec {n}\njnz 2b"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! again {
    () => {
        "subs {n}, {n}, #1\nb.ne 2b"
    };
}

/// Adds to eight registers in turn: as many additions per cycle as the core has units for. Returns the number of
/// additions, 16 per round; 0 rounds count as 1.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn adds(rounds: u64) -> u64 {
    let mut r = [0u64; 8];
    // SAFETY: only registers that are declared here are read and written; the loop ends after `rounds` rounds.
    unsafe {
        std::arch::asm!(
            "2:",
            add!("a"), add!("b"), add!("c"), add!("d"), add!("e"), add!("f"), add!("g"), add!("h"),
            add!("a"), add!("b"), add!("c"), add!("d"), add!("e"), add!("f"), add!("g"), add!("h"),
            again!(),
            a = inout(reg) r[0], b = inout(reg) r[1], c = inout(reg) r[2], d = inout(reg) r[3],
            e = inout(reg) r[4], f = inout(reg) r[5], g = inout(reg) r[6], h = inout(reg) r[7],
            n = inout(reg) rounds.max(1) => _,
            options(nomem, nostack),
        );
    }
    r.iter().sum()
}

/// Four divisions per round, independent of each other: as many as the core's divider can do. Returns the last
/// quotient; 0 rounds count as 1. The instruction has its operands in fixed registers.
#[cfg(target_arch = "x86_64")]
pub fn divs(rounds: u64) -> u64 {
    let last: u32;
    // SAFETY: only registers that are declared here are read and written; the divisor is not 0, the quotient fits,
    // and the loop ends after `rounds` rounds.
    unsafe {
        std::arch::asm!(
            "2:",
            "mov eax, 1000003", "xor edx, edx", "div {d:e}",
            "mov eax, 1000003", "xor edx, edx", "div {d:e}",
            "mov eax, 1000003", "xor edx, edx", "div {d:e}",
            "mov eax, 1000003", "xor edx, edx", "div {d:e}",
            again!(),
            d = in(reg) 17u32,
            n = inout(reg) rounds.max(1) => _,
            out("eax") last,
            out("edx") _,
            options(nomem, nostack),
        );
    }
    last.into()
}

/// Four divisions per round, independent of each other: as many as the core's divider can do. Returns the last
/// quotient; 0 rounds count as 1.
#[cfg(target_arch = "aarch64")]
pub fn divs(rounds: u64) -> u64 {
    let last: u32;
    // SAFETY: only registers that are declared here are read and written, and the loop ends after `rounds` rounds.
    unsafe {
        std::arch::asm!(
            "2:",
            "udiv {q:w}, {x:w}, {d:w}", "udiv {q:w}, {x:w}, {d:w}",
            "udiv {q:w}, {x:w}, {d:w}", "udiv {q:w}, {x:w}, {d:w}",
            again!(),
            d = in(reg) 17u32,
            x = in(reg) 1_000_003u32,
            q = out(reg) last,
            n = inout(reg) rounds.max(1) => _,
            options(nomem, nostack),
        );
    }
    last.into()
}

/// The portable version of `adds`: for other architectures there is no assembly yet.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn adds(rounds: u64) -> u64 {
    let mut r = [0u64; 8];
    for _ in 0..2 * rounds.max(1) {
        for place in &mut r {
            *place = std::hint::black_box(*place + 1);
        }
    }
    r.iter().sum()
}

/// The portable version of `divs`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn divs(rounds: u64) -> u64 {
    let mut last = 0;
    for _ in 0..4 * rounds.max(1) {
        last = std::hint::black_box(1_000_003u32) / std::hint::black_box(17);
    }
    last.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_work_is_done() {
        for rounds in [1, 2, 1000] {
            assert_eq!(adds(rounds), ADDS * rounds);
            assert_eq!(divs(rounds), 1_000_003 / 17);
        }
        assert_eq!(adds(0), ADDS, "no work is one round, not for ever");
    }
}
