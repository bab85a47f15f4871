// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was seen, arithmetically: totals, histograms, joins. Built by folding records one by one, so that its
//! size depends on the number of processes and not on the length of the recording.

use crate::recording::Record;

/// Read-only answers for the rules.
#[derive(Clone, Debug, Default)]
pub struct View {}

/// Folds records into a [`View`].
#[derive(Clone, Debug, Default)]
pub struct Fold {
    view: View,
}

impl Fold {
    /// Takes one record in. Records come in the order in which they were made.
    pub fn push(&mut self, record: &Record) {
        let _ = record;
    }

    /// The view of all that was pushed so far; the fold can go on.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }
}
