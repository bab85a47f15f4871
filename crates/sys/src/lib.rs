// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls and instructions for which no crate has a safe wrapper.
//!
//! - [`handle`]: open a file of a filesystem by its handle, to ask for its name (`open_by_handle_at`).
//! - [`fiemap`]: where the bytes of a file are on its device (`FS_IOC_FIEMAP`).
//! - [`child`]: wait for a child and get what it used (`wait4`).
//! - [`heap`]: memory that grows piece by piece, in large pages or in small ones (`madvise`).
//! - [`hold`]: start a program and hold it before its first instruction (`ptrace`).
//! - [`lock`]: a part of a file, locked together with other readers (`F_OFD_SETLK`).
//! - [`memory`]: an allocator that ends the process with a message if there is no memory.
//! - [`mutex`]: a mutex of the C library (`pthread_mutex_lock`).
//! - [`namespace`]: a network namespace of a process's own (`unshare`).
//! - [`populate`]: memory that is mapped, populated and given back (`mmap`).
//! - [`realtime`]: precedence over ordinary tasks (`sched_setscheduler`).
//! - [`scheduling`]: the policy of any thread (`sched_getscheduler`).
//! - [`signal`]: whether a signal is ignored (`sigaction`).
//! - [`socket`]: what the kernel tells of a socket of any process (`getsockopt`).
//! - [`spin`]: work that keeps one unit of a core busy, instruction by instruction.

pub mod child;
pub mod fiemap;
pub mod handle;
pub mod heap;
pub mod hold;
pub mod lock;
pub mod memory;
pub mod mutex;
pub mod namespace;
pub mod populate;
pub mod realtime;
pub mod scheduling;
pub mod signal;
pub mod socket;
pub mod spin;
