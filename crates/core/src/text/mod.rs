// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text: names from the host, decoded and escaped; words of shell commands; numbers with units.
//!
//! The lowest layer: every other module may use it, and it uses no other module.

pub mod escape;
pub mod name;
mod share;
mod shell;
mod target;
pub mod units;

pub use share::Share;
pub use shell::{shell_quote, ticked};
pub use target::{Target, chosen, fits, value as setting_value};
pub use units::Unit;
