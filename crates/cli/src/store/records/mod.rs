// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The declarations of records: the table and the columns of each, which say how it is written and read.

mod block;
mod by_hand;
mod cpu_check;
mod host;
mod net;
mod profile;
mod syscalls;

pub(super) use host::row;

use super::table::Table;

/// All tables.
pub(super) static TABLES: [&[Table]; 7] = [
    host::TABLES,
    &by_hand::BY_HAND,
    net::TABLES,
    block::TABLES,
    cpu_check::TABLES,
    syscalls::TABLES,
    profile::TABLES,
];
