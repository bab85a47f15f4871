// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the records of a session go: to the view that the report is made from, to the recording's file, or to both.

use crate::output;
use crate::store::{self, Claim, Writer};
use deburr_core::recording::{Event, EventKind, Record};
use deburr_core::view::Fold;

/// The destinations of records.
#[derive(Debug)]
pub(crate) struct Sinks {
    /// The view, for a report at the end.
    pub(crate) fold: Option<Fold>,
    /// The file of a recording that has not begun.
    claim: Option<Claim>,
    /// The writer of the recording.
    writer: Option<Writer>,
    /// End of the committed part of the recording, in nanoseconds since the start of the window.
    committed_ns: u64,
    /// Whether the recording ended before the session did.
    store_failed: bool,
}

impl Sinks {
    /// Until [`Self::begin`], or the first record, an existing file stays as it is.
    pub(crate) fn new(fold: Option<Fold>, claim: Option<Claim>) -> Self {
        Self { fold, claim, writer: None, committed_ns: 0, store_failed: false }
    }

    /// Begins the recording, if it has not begun: that takes time, which is not to be part of the window.
    pub(crate) fn begin(&mut self) {
        match self.claim.take().map(Claim::begin) {
            Some(Ok(writer)) => self.writer = Some(writer),
            Some(Err(error)) => {
                output::say(format!("{error:#}"));
                self.store_failed = true;
            }
            None => {}
        }
    }

    /// Passes a record to every sink.
    pub(crate) fn push(&mut self, record: &Record) {
        if let Some(fold) = &mut self.fold {
            fold.push(record);
        }
        self.begin();
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.push(record)
        {
            self.end_recording(&Fault::Write(error));
        }
    }

    /// Commits the recording up to `t_ns`, so that this part survives a SIGKILL.
    pub(crate) fn commit(&mut self, t_ns: u64) {
        let Some(writer) = &mut self.writer else { return };
        let committed = writer.commit();
        match (writer.harm(), committed) {
            (Some(harm), _) => self.end_recording(&Fault::Harm(harm)),
            (None, Ok(())) => self.committed_ns = t_ns,
            (None, Err(error)) => self.end_recording(&Fault::Write(error)),
        }
    }

    /// Ends the recording with what it holds. The session goes on for the other sink.
    fn end_recording(&mut self, fault: &Fault) {
        let Some(writer) = self.writer.take() else { return };
        let (reason, left) = match fault {
            Fault::Write(error) => {
                (store::reason(error), "what was written before is kept and can be read")
            }
            Fault::Harm(harm) => ((*harm).to_owned(), "what is left of it may not be readable"),
        };
        let kind = EventKind::StoreFailed { reason: reason.clone() };
        let event = Record::Event(Event { t_ns: self.committed_ns, kind });
        let shown = writer.path().display().to_string();
        match fault {
            Fault::Write(_) => writer.abandon(&event),
            Fault::Harm(_) => drop(writer),
        }
        if let Some(fold) = &mut self.fold {
            fold.push(&event);
        }
        output::say(format!("the recording `{shown}` ends here: {reason}; {left}"));
        self.store_failed = true;
    }

    /// Whether a file is to be written, or is being written.
    pub(crate) fn has_file(&self) -> bool {
        self.claim.is_some() || self.writer.is_some()
    }

    /// Whether no sink is left.
    pub(crate) fn all_failed(&self) -> bool {
        self.fold.is_none() && self.writer.is_none() && self.claim.is_none()
    }

    /// Closes the recording, if there is one. Returns `false` if the recording ended before the session did.
    pub(crate) fn close(&mut self) -> bool {
        if let Some(writer) = self.writer.take() {
            let shown = writer.path().display().to_string();
            match writer.finish() {
                Ok(None) => {}
                Ok(Some(harm)) => {
                    output::say(format!("the recording `{shown}` was lost at its end: {harm}"));
                    self.store_failed = true;
                }
                Err(error) => output::say(format!(
                    "`{shown}` is complete, but could not be made one file: {}; keep `{shown}-wal` with it",
                    store::reason(&error)
                )),
            }
        }
        !self.store_failed
    }
}

/// Why a recording ends early.
enum Fault {
    /// It cannot be written.
    Write(rusqlite::Error),
    /// Somebody changed its file.
    Harm(&'static str),
}
