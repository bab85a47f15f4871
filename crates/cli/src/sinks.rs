// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who takes the records of a session: the view for the report, the recording's file, or both.

use crate::output;
use crate::store::{self, Writer};
use deburr_core::recording::{Event, EventKind, Record};
use deburr_core::view::Fold;

/// The takers of records.
#[derive(Debug)]
pub(crate) struct Sinks {
    /// For a report at the end.
    pub(crate) fold: Option<Fold>,
    /// For a recording.
    pub(crate) writer: Option<Writer>,
    /// Up to where the recording survives whatever happens.
    committed_ns: u64,
    /// Whether the recording ended before the session did.
    store_failed: bool,
}

impl Sinks {
    /// Takes records for these.
    pub(crate) fn new(fold: Option<Fold>, writer: Option<Writer>) -> Self {
        Self { fold, writer, committed_ns: 0, store_failed: false }
    }

    /// Removes a recording that was never begun.
    pub(crate) fn discard(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.discard();
        }
    }

    /// Hands a record to everybody.
    pub(crate) fn push(&mut self, record: &Record) {
        if let Some(fold) = &mut self.fold {
            fold.push(record);
        }
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.push(record)
        {
            self.end_recording(&error);
        }
    }

    /// Makes the recording survive a SIGKILL up to here.
    pub(crate) fn commit(&mut self, t_ns: u64) {
        let Some(writer) = &mut self.writer else { return };
        match writer.commit() {
            Ok(()) => self.committed_ns = t_ns,
            Err(error) => self.end_recording(&error),
        }
    }

    /// Ends the recording with what it has; the session goes on for the others.
    fn end_recording(&mut self, error: &rusqlite::Error) {
        let Some(writer) = self.writer.take() else { return };
        let reason = store::reason(error);
        let kind = EventKind::StoreFailed { reason: reason.clone() };
        let event = Record::Event(Event { t_ns: self.committed_ns, kind });
        let shown = writer.path().display().to_string();
        writer.abandon(&event);
        if let Some(fold) = &mut self.fold {
            fold.push(&event);
        }
        output::say(format!(
            "the recording `{shown}` ends here: {reason}; what was written before is kept and can be read"
        ));
        self.store_failed = true;
    }

    /// Whether nobody takes records any more.
    pub(crate) fn all_failed(&self) -> bool {
        self.fold.is_none() && self.writer.is_none()
    }

    /// Closes the recording. `true` if there is one and all of it was written, or if none was wanted.
    pub(crate) fn close(&mut self) -> bool {
        if let Some(writer) = self.writer.take() {
            let shown = writer.path().display().to_string();
            if let Err(error) = writer.finish() {
                output::say(format!(
                    "`{shown}` is complete, but could not be made one file: {}; keep `{shown}-wal` with it",
                    store::reason(&error)
                ));
            }
        }
        !self.store_failed
    }
}
