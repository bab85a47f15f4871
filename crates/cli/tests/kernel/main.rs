// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests that need root and BPF. They run one at a time (`scripts/test`), because they load the CPUs that they measure.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod asleep;
mod before;
mod block;
mod brief_threads;
mod bystander;
mod cgroups;
mod chains;
#[path = "../common/mod.rs"]
mod common;
mod cpu_check;
mod cpu_time;
mod disk;
mod disks;
mod entries;
mod files;
mod full_disk;
mod golang;
mod held;
mod in_detail;
mod in_request;
mod interrupts;
mod io;
mod kernel_locks;
mod knee;
mod lab;
mod lab_disk;
mod lab_prove;
mod left_behind;
mod limits;
mod longest;
mod many_threads;
mod memory;
mod met_late;
mod missed;
mod namespaces;
mod net;
mod odd_threads;
mod oversubscribed;
mod owners;
mod probe;
mod profile;
mod prove;
mod prove_kills;
mod prove_restart;
mod reclaim;
mod recording;
mod remedies;
mod request_server;
mod sampling;
mod sector;
mod snapshot;
mod stacks;
mod starved;
mod stopped;
mod sweep;
mod syncs;
mod syscalls;
mod unlucky;
mod unprivileged;
mod unread;
mod wakeups;
mod whole_host;
mod writeback;
