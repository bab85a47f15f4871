// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU limits of processes, and what their runtimes believe about them.

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
