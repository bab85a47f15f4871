// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parsers of the kernel's text files, of the list of its modules' files, and of those in which container runtimes name what
//! runs in cgroups: bytes in, typed values out, one module per family of files.
//!
//! Input is bytes because names in it may be any bytes. Unknown lines and fields are skipped (newer kernels add them).
//! An item that older kernels may lack is an `Option`. If an item is missing without which the rest is meaningless, the
//! result is a [`ParseError`] that names it. No input makes a parser panic.

pub mod cgroup_cpu;
pub mod container;
pub mod cpu_list;
pub mod diskstats;
pub mod fdinfo;
pub mod maps;
pub mod memory;
pub mod modules;
pub mod mountinfo;
pub mod net_counters;
pub mod net_sockets;
pub mod net_tcp;
pub mod perf_map;
pub mod pid;
pub mod pid_cgroup;
pub mod pressure;
pub mod runtime_config;
pub mod schedstat;
pub mod stat;

/// An item that is missing in a kernel file, or that is not in the expected format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: `{item}` should be {expected}")]
pub struct ParseError {
    /// The kind of file: `/proc/PID/stat`.
    pub file: &'static str,
    /// Line number, from 1.
    pub line: usize,
    /// Name of the field in the kernel's documentation.
    pub item: &'static str,
    /// Expected content.
    pub expected: &'static str,
}

/// Position in a file, for errors.
#[derive(Clone, Copy)]
struct Position {
    file: &'static str,
    line: usize,
}

impl Position {
    fn error(self, item: &'static str, expected: &'static str) -> ParseError {
        ParseError { file: self.file, line: self.line, item, expected }
    }

    fn number<N: std::str::FromStr>(
        self,
        item: &'static str,
        field: Option<&[u8]>,
    ) -> Result<N, ParseError> {
        field.and_then(number).ok_or_else(|| self.error(item, "a decimal number"))
    }
}

/// A decimal number that fills the whole field.
fn number<N: std::str::FromStr>(field: &[u8]) -> Option<N> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Fields separated by spaces and tabs.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| matches!(b, b' ' | b'\t')).filter(|field| !field.is_empty())
}

/// Lines with their number, from 1; no empty line after the last newline.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.split(|&b| b == b'\n').enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests;
