// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the program without root, and of the repository.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod arm64;
mod browser;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod cpu_check;
mod diff;
mod docs;
mod doctor;
mod export;
mod install;
mod layers;
mod libraries;
mod limits;
mod outputs;
mod pages;
mod program;
mod programs;
mod read;
mod readme;
mod recordings;
mod replay;
mod repo;
mod reports;
mod schema;
mod sector;
mod sessions;
mod shell;
mod sizes;
mod snapshot;
mod soak;
mod sweep;
mod syscalls;
mod targets;
mod tiers;
mod translation;
