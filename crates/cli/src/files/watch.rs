// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the mount table changed, without reading it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::path::Path;

/// Watches this process's mount table.
#[derive(Debug)]
pub(crate) struct MountWatch(Option<File>);

impl MountWatch {
    /// Watches the mount table below `proc`, which is `/proc` except in tests.
    pub(crate) fn new(proc: &Path) -> Self {
        Self(File::open(proc.join("self/mountinfo")).ok())
    }

    /// Whether anything was mounted, unmounted or remounted with other options since the last call: the kernel reports
    /// that as an exceptional condition (POLLPRI) of the open file. `true` if it cannot be known.
    pub(crate) fn changed(&self) -> bool {
        let Some(file) = &self.0 else { return true };
        let mut asked = [PollFd::new(file, PollFlags::PRI)];
        match poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) => asked[0].revents().intersects(PollFlags::PRI | PollFlags::ERR),
            Err(_) => true,
        }
    }
}
