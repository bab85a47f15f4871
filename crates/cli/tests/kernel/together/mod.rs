// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests that may run beside each other (`scripts/test` runs several at once): their programs sleep most of the time, and
//! nothing that another process does changes what they assert. Whatever loads CPUs, changes the host or counts what all
//! processes do is not here.

mod accept_queue;
mod bystander;
mod chain_breaks;
mod chain_graph;
mod chains;
mod entries;
mod full_disk;
mod held_back;
mod held_in_kernel;
mod in_request;
mod interpreter;
mod kernel_locks;
mod limits;
mod namespaces;
mod odd_threads;
mod owners;
mod sector;
mod snapshot;
mod stacks;
mod stops;
mod syscalls;
mod unanswered;
mod unread;
mod whose_futex;
