// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads JSON documents from files and pipes. Reading stops at a limit, and does not wait for a pipe into which nobody
//! writes.

use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

/// Longest time without a byte from a pipe or a terminal. What writes into it may have to log in somewhere first.
const IDLE: Duration = Duration::from_secs(30);

/// Reads a document from a file, or from a pipe as in `<(ssh host deburr snapshot)`. Reading stops one byte after
/// `most_bytes`: a result that is longer than `most_bytes` is not a whole document.
///
/// # Errors
/// If the file cannot be read, or if nothing comes for half a minute.
pub(crate) fn read(path: &Path, most_bytes: u64) -> anyhow::Result<Vec<u8>> {
    let failed = |error: &dyn Display| {
        Failure::bad_input(format!("cannot read `{}`: {error}", path.display()))
    };
    read_within(path, most_bytes, IDLE).map_err(|error| failed(&error))
}

/// Opens a file or a pipe, to be read as far as the reader likes. A read fails if nothing comes for half a minute.
///
/// # Errors
/// If the file cannot be opened.
pub(crate) fn open(path: &Path) -> anyhow::Result<Patient> {
    open_within(path, IDLE)
        .map_err(|error| Failure::bad_input(format!("cannot read `{}`: {error}", path.display())))
}

fn open_within(path: &Path, idle: Duration) -> io::Result<Patient> {
    // Otherwise opening would wait for the other end of a pipe.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    Ok(Patient { file, idle })
}

fn read_within(path: &Path, most_bytes: u64, idle: Duration) -> io::Result<Vec<u8>> {
    let mut from = open_within(path, idle)?.take(most_bytes + 1);
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file whose reads wait for data, but not for ever.
pub(crate) struct Patient {
    file: File,
    idle: Duration,
}

impl Patient {
    /// Waits until there is data or the end. A pipe that was never opened for writing has neither.
    fn wait(&self) -> io::Result<()> {
        let limit = Timespec::try_from(self.idle).map_err(io::Error::other)?;
        loop {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&limit)) {
                Ok(0) => {
                    let seconds = self.idle.as_secs_f64();
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        format!("nothing was written into it for {seconds} s"),
                    ));
                }
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl io::Read for Patient {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait()?;
            match self.file.read(to) {
                // Another reader of the same pipe was quicker.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_stops_at_the_limit() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("a.json");
        std::fs::write(&path, "a long one").unwrap();
        assert_eq!(read(&path, 100).unwrap(), b"a long one");
        assert_eq!(read(&path, 3).unwrap(), b"a lo");
        assert!(read(here.path(), 100).unwrap_err().to_string().contains("Is a directory"));
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_not_waited_for_without_one() {
        let here = tempfile::tempdir().unwrap();
        let pipe = here.path().join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, 0o600.into(), 0).unwrap();
        let idle = Duration::from_millis(100);
        let error = read_within(&pipe, 100, idle).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::write(pipe, "{}").unwrap()
        });
        assert_eq!(read_within(&pipe, 100, Duration::from_secs(60)).unwrap(), b"{}");
        writer.join().unwrap();
    }
}
