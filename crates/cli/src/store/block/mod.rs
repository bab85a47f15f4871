// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of block IO as rows, and back.

mod decode;
mod encode;
mod pace;
mod schema;

pub(super) use decode::record;
pub(super) use encode::row;
pub(super) use schema::{TABLES, VIEWS};
