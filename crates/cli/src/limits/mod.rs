// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU limits of processes, and what their runtimes believe about them.

mod document;
mod image;
mod program;
mod runtime;
mod survey;
mod text;
mod visible_quota;

pub(crate) use image::{FileImage, code_mappings, code_mappings_of, places};
pub(crate) use program::{FILE_BYTES, MEMORY_BYTES, Programs};
pub(crate) use runtime::{HiddenReason, Prober};
pub(crate) use survey::{SurveyRequest, look};
pub(crate) use text::text;
