// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests that need root and BPF. They run one at a time (`scripts/test`), because they load the CPUs that they measure, but
//! for those of [`together`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod asleep;
mod before;
mod block;
mod brief_threads;
mod cgroups;
#[path = "../common/mod.rs"]
mod common;
mod cpu_check;
mod cpu_time;
mod disk;
mod disks;
mod files;
mod golang;
mod held;
mod in_detail;
mod interrupts;
mod io;
mod knee;
mod lab;
mod lab_disk;
mod lab_prove;
mod left_behind;
mod longest;
mod many_threads;
mod memory;
mod met_late;
mod missed;
mod net;
mod oversubscribed;
mod own_requests;
mod probe;
mod profile;
mod prove;
mod prove_kills;
mod prove_restart;
mod reclaim;
mod recording;
mod remedies;
mod request_server;
mod runtime_stops;
mod sampling;
mod scratch;
mod starved;
mod stopped;
mod sweep;
mod syncs;
mod together;
mod unlucky;
mod unprivileged;
mod wakers;
mod wakeups;
mod whole_host;
mod writeback;
