// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said between this process and the one that reads: frames of JSON with their length before them.

use crate::files::Inquiry;
use crate::snapshot::Limits;
use deburr_core::recording::Container;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// Largest frame: a snapshot. What else is asked and answered has some kB.
pub(super) const MAX_FRAME_BYTES: usize = deburr_core::snapshot::MAX_BYTES;
/// Bytes of the length before a frame.
pub(super) const LENGTH_BYTES: usize = 4;

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Question {
    /// The runtime of a process that has so many threads.
    Runtime { pid: u32, threads: u32 },
    /// The first bytes of a command line.
    CommandLine { pid: u32, bytes: u64 },
    /// Which functions addresses belong to, of a process or of the kernel.
    Functions { pid: Option<u32>, addresses: Vec<u64> },
    /// What the files of container runtimes say about a container.
    Container(Container),
    /// The whole host, or the captured tree that the process was started for.
    Snapshot { limits: Limits, redact: bool },
    /// Where files of a filesystem are.
    Files(Inquiry),
}

/// An answer, and what answering has cost so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reply<T> {
    /// CPU time of the process that reads, since it was started.
    pub(super) cpu_ns: u64,
    pub(super) answer: T,
}

/// Writes one frame.
pub(super) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - LENGTH_BYTES;
    let length = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME_BYTES);
    let length = length.ok_or(io::ErrorKind::FileTooLarge)?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_ne_bytes());
    to.write_all(&frame)?;
    to.flush()
}

/// The message in the bytes received so far; `None` if there are more to come.
pub(super) fn message<T: DeserializeOwned>(received: &[u8]) -> io::Result<Option<T>> {
    let Some((length, frame)) = received.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_ne_bytes(*length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    match frame.get(..length) {
        Some(frame) => Ok(Some(serde_json::from_slice(frame)?)),
        None => Ok(None),
    }
}

/// Reads one frame; `None` at the end of the input.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut received = vec![0; LENGTH_BYTES];
    match from.read_exact(&mut received) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_ne_bytes([received[0], received[1], received[2], received[3]]);
    if length as usize > MAX_FRAME_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // Memory is taken for what arrives, not for what is announced.
    from.take(length.into()).read_to_end(&mut received)?;
    if received.len() < LENGTH_BYTES + length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    message(&received)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received() {
        let question = Question::Runtime { pid: 7, threads: 8 };
        let mut sent = Vec::new();
        send(&mut sent, &question).unwrap();
        assert_eq!(receive::<Question>(&mut sent.as_slice()).unwrap(), Some(question.clone()));
        assert_eq!(receive::<Question>(&mut [].as_slice()).unwrap(), None);
        for end in 0..sent.len() {
            assert_eq!(message::<Question>(&sent[..end]).unwrap(), None, "{end} bytes");
        }
        assert_eq!(message::<Question>(&sent).unwrap(), Some(question));
    }

    #[test]
    fn a_frame_that_is_cut_off_is_an_error_and_takes_no_memory() {
        let announced = [&(MAX_FRAME_BYTES as u32).to_ne_bytes()[..], b"{}"].concat();
        let cut = receive::<Question>(&mut announced.as_slice()).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_at_its_length() {
        let length = (MAX_FRAME_BYTES as u32 + 1).to_ne_bytes();
        assert!(message::<Question>(&length).is_err());
        assert!(receive::<Question>(&mut length.as_slice()).is_err());
        assert!(send(&mut Vec::new(), &"x".repeat(MAX_FRAME_BYTES)).is_err());
    }
}
