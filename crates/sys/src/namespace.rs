// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network namespace of a process's own: `unshare`, whose safe wrappers exclude it.

use std::io;

/// Moves the calling thread into a new network namespace, in which nothing is configured. It ends with the last process in
/// it. Threads that are started later are in it as well.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn own_network() -> io::Result<()> {
    // SAFETY: only the network namespace is left, which no memory or descriptor of this process depends on.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
