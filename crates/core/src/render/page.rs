// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page that a report is written on: lines of bounded width, with or without colour.

use super::TextStyle;
use super::wrap::wrap_hanging;
use crate::finding::Severity;
use crate::text::escape::width;

/// Narrower terminals get lines of this width and wrap them themselves.
const MIN_COLUMNS: usize = 60;
/// Longer lines are hard to read.
const MAX_COLUMNS: usize = 100;

/// What a piece of text is, and so how it is coloured. Colour repeats what the words say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Heading,
    Severity(Severity),
    Advice,
    Aside,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Heading => "1",
            Self::Severity(Severity::High) => "1;31",
            Self::Severity(Severity::Medium) => "1;33",
            Self::Severity(Severity::Low | Severity::Info) | Self::Advice => "1;36",
            Self::Aside => "2",
        }
    }
}

/// Lines so far.
pub(super) struct Page {
    text: String,
    columns: usize,
    color: bool,
}

impl Page {
    pub(super) fn new(style: TextStyle) -> Self {
        let columns = style.columns.clamp(MIN_COLUMNS, MAX_COLUMNS);
        Self { text: String::new(), columns, color: style.color }
    }

    /// Width of its lines.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Everything that was written.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// An empty line.
    pub(super) fn gap(&mut self) {
        self.text.push('\n');
    }

    /// A line as it is, however long.
    pub(super) fn line(&mut self, indent: usize, ink: Ink, text: &str) {
        if !text.is_empty() {
            self.text.push_str(&" ".repeat(indent));
            self.text.push_str(&self.painted(ink, text));
        }
        self.text.push('\n');
    }

    /// A paragraph; lines after the first are indented by `hang` more.
    pub(super) fn paragraph(&mut self, indent: usize, hang: usize, ink: Ink, text: &str) {
        self.labelled(indent, (Ink::Plain, ""), hang, ink, text);
    }

    /// A paragraph that begins with a label; lines after the first are indented by `hang` more.
    pub(super) fn labelled(
        &mut self,
        indent: usize,
        (label_ink, label): (Ink, &str),
        hang: usize,
        ink: Ink,
        text: &str,
    ) {
        let first = self.columns.saturating_sub(indent + width(label));
        let rest = self.columns.saturating_sub(indent + hang);
        for (i, line) in wrap_hanging(text, first, rest).iter().enumerate() {
            if i == 0 {
                let label = if line.is_empty() { label.trim_end() } else { label };
                let line = self.painted(label_ink, label) + &self.painted(ink, line);
                self.line(indent, Ink::Plain, &line);
            } else {
                self.line(indent + hang, ink, line);
            }
        }
    }

    /// A text in colour, if there is colour.
    pub(super) fn painted(&self, ink: Ink, text: &str) -> String {
        if self.color && ink != Ink::Plain && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", ink.code())
        } else {
            text.into()
        }
    }
}
