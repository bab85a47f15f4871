// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GOMAXPROCS of a running Go program, from outside, whether its symbols were stripped or not.
//!
//! Go's linker always leaves the table of function names and addresses (`pclntab`), which the runtime itself
//! needs. In it stands `runtime.procresize`, whose first load of a 32-bit variable is that of `gomaxprocs`; another
//! function of the runtime that loads it too must agree. So the variable's address is known, and its value is read
//! from the process's memory.

mod buildinfo;
mod code;
mod pclntab;

pub use buildinfo::{GoBuild, build, is_go};

use super::elf::{Elf, Machine};
use super::image::{Biased, Image};
use pclntab::Function;

/// The function that sets `gomaxprocs`.
const SETTER: &str = "runtime.procresize";
/// Functions that read it: one of them must load it from the same address. Not all are in every program.
const READERS: [&str; 6] = [
    "runtime.GOMAXPROCS",
    "runtime.startTheWorldWithSema",
    "runtime.gcStart",
    "runtime.findRunnable",
    "runtime.findrunnable",
    "runtime.gcBgMarkStartWorkers",
];
/// No function of the runtime that is looked at is longer.
const MAX_CODE_BYTES: u64 = 16 << 10;
/// More Ps than this are taken for a misread value: it is several times the largest machine's CPUs.
const MAX_PROCS: u32 = 1 << 16;

/// Why GOMAXPROCS of a Go program cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlocated {
    /// Another processor's program.
    #[error("only x86-64 and arm64 programs are decoded")]
    Machine,
    /// No table of functions was found.
    #[error("its function table was not found: linked by a Go older than 1.16, packed, or changed")]
    NoTable,
    /// The table does not say what it should.
    #[error("its function table could not be decoded ({0})")]
    Table(&'static str),
    /// The code is not the one that is known.
    #[error("the code of its runtime is not the one that is known ({0})")]
    Code(&'static str),
}

/// Finds the address of `gomaxprocs`, as the file was linked. `memory` is the program's at those addresses: tables
/// of newer versions say there where the code begins.
///
/// # Errors
/// If the table or the code is not what it is in the known versions of Go.
pub fn locate(file: &dyn Image, elf: &Elf, memory: &Biased<'_>) -> Result<u64, Unlocated> {
    if elf.machine == Machine::Other {
        return Err(Unlocated::Machine);
    }
    let mut names = vec![SETTER];
    names.extend(READERS);
    let functions = pclntab::functions(file, elf, memory, &names)?;
    let loads = |name: &str| -> Option<Vec<u64>> {
        let function = functions.get(name)?;
        let code = code_of(file, elf, function)?;
        let all = match elf.machine {
            Machine::X86_64 => code::x86_64(&code, function.start),
            _ => code::aarch64(&code, function.start),
        };
        Some(all.into_iter().filter(|&address| elf.is_variable(address)).collect())
    };
    let setter = loads(SETTER).ok_or(Unlocated::Code("no procresize"))?;
    let address = *setter.first().ok_or(Unlocated::Code("procresize loads no variable"))?;
    let agreed = READERS.iter().filter_map(|name| loads(name)).any(|all| all.contains(&address));
    agreed.then_some(address).ok_or(Unlocated::Code("no second function agrees"))
}

fn code_of(file: &dyn Image, elf: &Elf, function: &Function) -> Option<Vec<u8>> {
    let (offset, left) = elf.offset_of(function.start)?;
    let bytes = function.end.saturating_sub(function.start).min(left).min(MAX_CODE_BYTES);
    file.bytes(offset, usize::try_from(bytes).ok()?)
}

/// The settings of a `GODEBUG` that have a bearing on GOMAXPROCS; `None` if there are none.
#[must_use]
pub fn debug_settings(text: &str) -> Option<String> {
    const KEYS: [&str; 2] = ["containermaxprocs", "updatemaxprocs"];
    let parts: Vec<&str> = text
        .split(',')
        .filter(|part| part.split_once('=').is_some_and(|(key, _)| KEYS.contains(&key)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

/// The value at an address that [`locate`] found. `None` if it cannot be read or cannot be.
#[must_use]
pub fn value(memory: &dyn Image, address: u64) -> Option<u32> {
    memory.u32_at(address).filter(|value| (1..=MAX_PROCS).contains(value))
}

#[cfg(test)]
mod tests;
