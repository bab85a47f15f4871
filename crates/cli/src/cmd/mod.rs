// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One subcommand a file.

pub(crate) mod lab;
