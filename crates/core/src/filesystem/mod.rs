// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parsers of what is on a disk: first bytes of filesystems, and the answers of a program that looks into them.

pub mod debugfs;
pub mod superblock;
