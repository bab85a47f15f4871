// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Controlled experiments: one thing is changed in some blocks of time and not in others, and what is measured in them
//! says whether it was the cause.

pub mod design;
pub mod experiment;
pub mod judge;
pub mod measure;
pub mod period;
