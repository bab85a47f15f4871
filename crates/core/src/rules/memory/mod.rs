// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MEM: time lost because memory is short.

pub(super) mod memory_stall;
