// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What processes may use of the CPUs, and what their runtimes believe they may.

mod document;
mod image;
mod program;
mod runtime;
mod seen;
mod survey;
mod text;

pub(crate) use runtime::{Hidden, Prober};
pub(crate) use survey::{Question, look};
pub(crate) use text::text;
