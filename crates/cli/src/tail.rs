// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the output of a command that deburr starts: what an error about it shows. The rest is discarded, so that its
//! volume fills neither disk nor memory.

use anyhow::{Context as _, Result};
use std::io::{PipeReader, Read as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Number of bytes from the end of the output that are kept.
const TAIL_BYTES: usize = 600;
/// Longest wait for the rest of the output.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Interval between two looks whether it is there.
const LOOK: Duration = Duration::from_millis(10);

/// The end of what is written to a pipe.
#[derive(Debug)]
pub(crate) struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Tail {
    /// Starts a thread that reads until all writers have closed the pipe.
    pub(crate) fn read(mut from: PipeReader) -> Result<Self> {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&tail);
        let read = move || {
            let mut bytes = [0; 1 << 16];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&bytes[..read]);
                let surplus = kept.len().saturating_sub(TAIL_BYTES);
                kept.drain(..surplus);
            }
        };
        let reader = thread::Builder::new().name("output".into()).spawn(read);
        Ok(Self { kept: tail, reader: reader.context("cannot read the command's output")? })
    }

    /// What was written last, as a clause to append to a sentence.
    pub(crate) fn words(&self) -> String {
        let bytes = self.end();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines.as_slice() {
            [] => "; it wrote nothing".into(),
            lines => format!("; it wrote: {}", lines.join(" / ")),
        }
    }

    /// The end of the output so far. Waits up to [`TIMEOUT`] for the writers to close the pipe.
    fn end(&self) -> Vec<u8> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
