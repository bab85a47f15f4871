// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr prove`: what experiments change on this host, and how it is put back.

mod changes;
mod exercise;
mod knobs;

pub(crate) use changes::Changes;
pub(crate) use exercise::{ChangesArgs, change_again_and_again};
