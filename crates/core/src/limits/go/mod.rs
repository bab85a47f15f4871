// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads GOMAXPROCS of a running Go program from outside, even if its symbols were stripped.
//!
//! Go's linker always keeps the table of function names and addresses (`pclntab`), because the runtime needs it. It
//! contains `runtime.procresize`, whose first load of a 32-bit variable is that of `gomaxprocs`. The address is
//! accepted if another function of the runtime loads from it too. Then the value is read from the process's memory.

mod buildinfo;
mod code;
mod pclntab;

pub use buildinfo::{GoBuild, build, is_go};

use super::elf::{Elf, Machine};
use super::image::{Biased, Image};
use pclntab::Function;

/// The function that sets `gomaxprocs`.
const SETTER: &str = "runtime.procresize";
/// Functions that read it. At least one of them must load from the same address. Not every program has all of them.
const READERS: [&str; 6] = [
    "runtime.GOMAXPROCS",
    "runtime.startTheWorldWithSema",
    "runtime.gcStart",
    "runtime.findRunnable",
    "runtime.findrunnable",
    "runtime.gcBgMarkStartWorkers",
];
/// Maximum length of a function of the runtime that is examined.
const MAX_CODE_BYTES: u64 = 16 << 10;
/// Largest plausible value, several times the number of CPUs of the largest machines. Higher values are misread.
const MAX_PROCS: u32 = 1 << 16;

/// Why GOMAXPROCS of a Go program cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GomaxprocsError {
    /// The program is for another instruction set.
    #[error("only x86-64 and arm64 programs are decoded")]
    Machine,
    /// The table of functions was not found.
    #[error("its function table was not found: linked by a Go older than 1.16, packed, or changed")]
    NoTable,
    /// The table of functions could not be decoded.
    #[error("its function table could not be decoded ({0})")]
    Table(&'static str),
    /// The code of the runtime is not as expected.
    #[error("the code of its runtime is not the one that is known ({0})")]
    Code(&'static str),
}

/// Finds the address of `gomaxprocs` in the file. `memory` is the program's memory by the addresses in the file; with
/// newer versions of Go it contains the start of the code.
///
/// # Errors
/// If the table or the code is not as in the known versions of Go.
pub fn locate(file: &dyn Image, elf: &Elf, memory: &Biased<'_>) -> Result<u64, GomaxprocsError> {
    if elf.machine == Machine::Other {
        return Err(GomaxprocsError::Machine);
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
    let setter = loads(SETTER).ok_or(GomaxprocsError::Code("no procresize"))?;
    let address = *setter.first().ok_or(GomaxprocsError::Code("procresize loads no variable"))?;
    let agreed = READERS.iter().filter_map(|name| loads(name)).any(|all| all.contains(&address));
    agreed.then_some(address).ok_or(GomaxprocsError::Code("no second function agrees"))
}

/// Names of the functions that hold these addresses of the file, in their order; `None` = there is no function. `memory`
/// as for [`locate`].
///
/// # Errors
/// If it is not a program in Go, or its table is not as in the known versions.
pub fn functions_at(
    file: &dyn Image,
    elf: &Elf,
    memory: &Biased<'_>,
    addresses: &[u64],
) -> Result<Vec<Option<String>>, GomaxprocsError> {
    pclntab::at(file, elf, memory, addresses)
}

fn code_of(file: &dyn Image, elf: &Elf, function: &Function) -> Option<Vec<u8>> {
    let (offset, left) = elf.offset_of(function.start)?;
    let bytes = function.end.saturating_sub(function.start).min(left).min(MAX_CODE_BYTES);
    file.bytes(offset, usize::try_from(bytes).ok()?)
}

/// Settings in a `GODEBUG` that affect GOMAXPROCS; `None` if there are none.
#[must_use]
pub fn debug_settings(text: &str) -> Option<String> {
    const KEYS: [&str; 2] = ["containermaxprocs", "updatemaxprocs"];
    let parts: Vec<&str> = text
        .split(',')
        .filter(|part| part.split_once('=').is_some_and(|(key, _)| KEYS.contains(&key)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

/// The value at an address that [`locate`] found. `None` if it cannot be read or is not plausible.
#[must_use]
pub fn value(memory: &dyn Image, address: u64) -> Option<u32> {
    memory.u32_at(address).filter(|value| (1..=MAX_PROCS).contains(value))
}

#[cfg(test)]
mod tests;
