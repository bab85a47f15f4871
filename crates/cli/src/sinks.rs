// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the records of a session go: to the view that the report is made from, to the recording's file, or to both.

use crate::output;
use crate::store::{self, Writer};
use deburr_core::recording::{Event, EventKind, Record};
use deburr_core::view::Fold;

/// The destinations of records.
#[derive(Debug)]
pub(crate) struct Sinks {
    /// The view, for a report at the end.
    pub(crate) fold: Option<Fold>,
    /// The writer of the recording.
    pub(crate) writer: Option<Writer>,
    /// End of the committed part of the recording, in nanoseconds since the start of the window.
    committed_ns: u64,
    /// Whether the recording ended before the session did.
    store_failed: bool,
}

impl Sinks {
    pub(crate) fn new(fold: Option<Fold>, writer: Option<Writer>) -> Self {
        Self { fold, writer, committed_ns: 0, store_failed: false }
    }

    /// Deletes the recording of a session that never began.
    pub(crate) fn discard(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.discard();
        }
    }

    /// Passes a record to every sink.
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

    /// Commits the recording up to `t_ns`, so that this part survives a SIGKILL.
    pub(crate) fn commit(&mut self, t_ns: u64) {
        let Some(writer) = &mut self.writer else { return };
        match writer.commit() {
            Ok(()) => self.committed_ns = t_ns,
            Err(error) => self.end_recording(&error),
        }
    }

    /// Ends the recording with what it holds. The session goes on for the other sink.
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

    /// Whether no sink is left.
    pub(crate) fn all_failed(&self) -> bool {
        self.fold.is_none() && self.writer.is_none()
    }

    /// Closes the recording, if there is one. Returns `false` if the recording ended before the session did.
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
