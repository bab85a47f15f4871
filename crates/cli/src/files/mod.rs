// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which file is meant by a filesystem's number and an inode's number: where the filesystem is mounted, and what
//! the file is called there.
//!
//! - [`mounts`]: filesystem -> mounts, also in other mount namespaces.
//! - [`handles`]: inode number -> the open file, by the filesystem's own kind of handle.
//! - [`watch`]: whether anything was mounted or unmounted.
//! - [`resolver`]: both, and what a probe saw, joined to a name.
//!
//! Needs nothing else of the program, for the tests that run as root take it as it is.

mod handles;
mod mounts;
mod resolver;
mod watch;

#[allow(unused_imports, reason = "for collectors to come")]
pub(crate) use mounts::{Mounts, Place};
#[allow(unused_imports, reason = "for collectors to come")]
pub(crate) use resolver::{Name, Resolver, Sighting};
#[allow(unused_imports, reason = "the tests that run as root take a part")]
pub(crate) use watch::Watch;
