// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU limit of a process, and the CPU limit that its runtime assumes.
//!
//! The modules parse program files ([`elf`]) and the memory of processes ([`go`], [`jvm`]), and evaluate limits that
//! were read elsewhere ([`effective`]). They get bytes through [`Image`] and do no IO, so they are tested with
//! arbitrary bytes: no input makes them panic or loop forever.

pub mod belief;
pub mod effective;
pub mod elf;
pub mod go;
mod image;
pub mod jvm;
pub mod visible_properties;

pub use image::{Biased, Image, Metered};
