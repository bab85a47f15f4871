// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the path of a file from the device number of its filesystem and its inode number: where the filesystem is
//! mounted, and the name of the file there.
//!
//! - [`mounts`]: filesystem -> mounts, also in other mount namespaces.
//! - [`handles`]: inode number -> open file, by the filesystem's own kind of file handle.
//! - [`lookup`]: what a filesystem is asked, and what it answers, for a process that can be given up.
//! - [`watch`]: whether anything was mounted or unmounted.
//! - [`resolver`]: makes the name from these and from what a probe saw.
//!
//! Depends on nothing else in this crate, because the tests that run as root include it by itself.

mod handles;
mod lookup;
mod mounts;
mod octets;
mod resolver;
mod watch;

#[allow(unused_imports, reason = "for collectors to come")]
pub(crate) use lookup::{AskFilesystem, AskHere, Inquiry, Lookup, answer};
#[allow(unused_imports, reason = "for collectors to come")]
pub(crate) use mounts::{FilesystemMount, Mounts};
#[allow(unused_imports, reason = "for collectors to come")]
pub(crate) use resolver::{Name, ObservedFile, Resolver};
#[allow(unused_imports, reason = "the tests that run as root take a part")]
pub(crate) use watch::MountWatch;
