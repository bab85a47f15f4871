// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the program without root, and of the repository.

#[path = "../common/mod.rs"]
mod common;
mod doctor;
mod repo;
mod schema;
mod targets;
