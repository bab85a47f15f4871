// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text: names from the host as they come and as they may be shown, words of shell commands, numbers with units.
//!
//! The lowest layer: every other module may use it, and it uses none of them.

pub mod escape;
pub mod name;
mod share;
mod shell;
pub mod units;

pub use share::Share;
pub use shell::{shell_quote, ticked};
pub use units::Unit;
