// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A deadline for what is made of files. They may be anybody's, and what takes long is not known before: reading is
//! bounded by rows and memory, but rules and statistics compare what was read.

use crate::failure::{Exit, Failure};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// Most time for a file of up to [`BYTES`]. Half an hour of a host that starts a hundred processes in a second takes a
/// fifth of it.
pub(crate) const MOST: Duration = Duration::from_secs(60);
const BYTES: u64 = 100_000_000;
/// The stack that the first thread of a process has as a rule.
const STACK_BYTES: usize = 8 << 20;

/// Most time for a file: in proportion to its size if it is large.
pub(crate) fn of_file(path: &Path) -> Duration {
    let bytes = path.metadata().map_or(0, |meta| meta.len());
    MOST.mul_f64((bytes as f64 / BYTES as f64).max(1.0))
}

/// The result of `work`. What is still at work when the time is over ends with the program. `what` is the subject of the
/// refusal.
///
/// # Errors
/// If `work` takes longer than `most`.
pub(crate) fn within<T: Send + 'static>(
    most: Duration,
    what: impl std::fmt::Display,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let (done, answer) = sync_channel(1);
    let worker = Builder::new().name("analysis".into()).stack_size(STACK_BYTES);
    let worker = worker.spawn(move || {
        // If nobody waits any more, the answer is late.
        let _ = done.send(work());
    });
    let worker = worker.map_err(|error| {
        let missing = "there is not enough memory for a thread, or no room for one more (see `ulimit -v` and `-u`)";
        Failure::error(Exit::Missing, format!("{missing}: {error}"))
    })?;
    match answer.recv_timeout(most) {
        Ok(answer) => Ok(answer),
        Err(RecvTimeoutError::Timeout) => Err(Failure::bad_input(format!(
            "{what} cannot be analysed within {} s: too much is in there, or this machine is too busy",
            most.as_secs_f64()
        ))),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it ends with an answer"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_refused() {
        let (_open, never) = sync_channel::<()>(0);
        let work = move || never.recv().is_ok();
        let error = within(Duration::from_millis(1), "`x.deburr`", work).unwrap_err();
        assert!(
            error.to_string().starts_with("`x.deburr` cannot be analysed within 0.001 s"),
            "{error}"
        );
        assert_eq!(error.downcast_ref::<Failure>().unwrap().exit, Exit::BadInput);
    }

    #[test]
    fn what_ends_in_time_is_answered() {
        assert_eq!(within(Duration::from_secs(600), "it", || 7).unwrap(), 7);
    }

    #[test]
    fn large_files_may_take_longer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let of = |bytes| {
            std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
            of_file(&path)
        };
        assert_eq!([of(1), of(BYTES), of(3 * BYTES)], [MOST, MOST, 3 * MOST]);
    }
}
