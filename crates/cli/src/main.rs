// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `deburr` binary: everything that touches the host.

mod collect;

fn main() {}
