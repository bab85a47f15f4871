// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process may use of the CPUs, and what its runtime believes it may use.
//!
//! Bytes in, values out: of program files ([`elf`]), of a process's memory ([`go`], [`jvm`]), and of limits that
//! were read elsewhere ([`effective`]). Where the bytes come from is not known here ([`Image`]), so all of it can be
//! tested with any bytes: none makes it panic, and none makes it work without end.

pub mod belief;
pub mod effective;
pub mod elf;
pub mod go;
mod image;
pub mod jvm;
pub mod outside;

pub use image::{Biased, Image};
