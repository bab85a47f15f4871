// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page that output is written to: lines of bounded width, with or without colour.

use super::TextStyle;
use super::lengths::Lengths;
use super::prove_plot::ProvePlot;
use super::table::Table;
use super::wrap::wrap_hanging;
use crate::finding::Severity;
use crate::text::escape::width;

/// Minimum width: narrower terminals wrap the lines themselves.
const MIN_COLUMNS: usize = 60;
/// Maximum width: longer lines are hard to read.
const MAX_COLUMNS: usize = 100;

/// The kind of a piece of text, which determines its colour. Colour only repeats what the words say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Plain,
    Heading,
    Severity(Severity),
    Advice,
    Aside,
}

impl Colour {
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

/// A page: the text so far, and its style.
pub(super) struct Page {
    text: String,
    columns: usize,
    color: bool,
    /// What was written, instead of text, where another layout is to be made of it.
    blocks: Option<Blocks>,
}

/// What was written to a page, for another layout.
#[derive(Default)]
pub(super) struct Blocks {
    /// All of it, in order.
    pub(super) all: Vec<Block>,
    /// Number of plots that there is room for.
    plots_left: usize,
    /// Whether there were more.
    pub(super) lacks_plots: bool,
}

/// A part of a page without its layout.
pub(super) enum Block {
    /// A paragraph, with a label that it may begin with.
    Paragraph { label: (Colour, String), ink: Colour, text: String },
    /// A line that must not be wrapped.
    Line { indent: usize, ink: Colour, text: String },
    /// A table.
    Table(Table),
    /// A plot with its table.
    Plot(Box<Plot>),
    /// An empty line.
    Gap,
}

/// A plot, with the numbers for its table.
pub(super) enum Plot {
    /// How long waits or requests are.
    Lengths(Lengths),
    /// The blocks of an experiment.
    Prove(ProvePlot),
}

impl From<Lengths> for Plot {
    fn from(of: Lengths) -> Self {
        Self::Lengths(of)
    }
}

impl From<ProvePlot> for Plot {
    fn from(of: ProvePlot) -> Self {
        Self::Prove(of)
    }
}

impl Page {
    pub(super) fn new(style: TextStyle) -> Self {
        let columns = style.columns.clamp(MIN_COLUMNS, MAX_COLUMNS);
        Self { text: String::new(), columns, color: style.color, blocks: None }
    }

    /// A page that keeps what is written to it in blocks, with so many plots, for another layout.
    pub(super) fn of_blocks(plots: usize) -> Self {
        let blocks = Blocks { plots_left: plots, ..Blocks::default() };
        Self { text: String::new(), columns: MAX_COLUMNS, color: false, blocks: Some(blocks) }
    }

    /// What was written to it, if it keeps blocks.
    pub(super) fn into_blocks(self) -> Blocks {
        self.blocks.unwrap_or_default()
    }

    /// Keeps a block as it is; whether this page does.
    fn keeps_block(&mut self, block: impl FnOnce() -> Block) -> bool {
        let Some(blocks) = &mut self.blocks else { return false };
        blocks.all.push(block());
        true
    }

    /// Keeps a table as it is; whether this page does.
    pub(super) fn keeps(&mut self, table: &Table) -> bool {
        self.keeps_block(|| Block::Table(table.clone()))
    }

    /// Keeps a plot; whether this page does, or has no more room for one. Text has none.
    pub(super) fn plot<P: Into<Plot>>(&mut self, of: impl FnOnce() -> Option<P>) -> bool {
        let Some(blocks) = &mut self.blocks else { return false };
        let Some(of) = of() else { return true };
        match blocks.plots_left.checked_sub(1) {
            Some(left) => {
                blocks.plots_left = left;
                blocks.all.push(Block::Plot(Box::new(of.into())));
            }
            None => blocks.lacks_plots = true,
        }
        true
    }

    /// Width of its lines, in columns.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// The whole text.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Writes an empty line.
    pub(super) fn gap(&mut self) {
        if self.keeps_block(|| Block::Gap) {
            return;
        }
        self.text.push('\n');
    }

    /// Writes a line without wrapping, whatever its length.
    pub(super) fn line(&mut self, indent: usize, ink: Colour, text: &str) {
        if self.keeps_block(|| Block::Line { indent, ink, text: text.to_owned() }) {
            return;
        }
        if !text.is_empty() {
            self.text.push_str(&" ".repeat(indent));
            self.text.push_str(&self.painted(ink, text));
        }
        self.text.push('\n');
    }

    /// Writes a paragraph; lines after the first are indented by `hang` more columns.
    pub(super) fn paragraph(&mut self, indent: usize, hang: usize, ink: Colour, text: &str) {
        self.labelled(indent, (Colour::Plain, ""), hang, ink, text);
    }

    /// Writes a paragraph that begins with a label; lines after the first are indented by `hang` more columns.
    pub(super) fn labelled(
        &mut self,
        indent: usize,
        (label_ink, label): (Colour, &str),
        hang: usize,
        ink: Colour,
        text: &str,
    ) {
        let block = || {
            let label = (label_ink, label.to_owned());
            Block::Paragraph { label, ink, text: text.to_owned() }
        };
        if self.keeps_block(block) {
            return;
        }
        let first = self.columns.saturating_sub(indent + width(label));
        let rest = self.columns.saturating_sub(indent + hang);
        for (i, line) in wrap_hanging(text, first, rest).iter().enumerate() {
            if i == 0 {
                let label = if line.is_empty() { label.trim_end() } else { label };
                let line = self.painted(label_ink, label) + &self.painted(ink, line);
                self.line(indent, Colour::Plain, &line);
            } else {
                self.line(indent + hang, ink, line);
            }
        }
    }

    /// The text with escape sequences for its colour, if colours are used.
    pub(super) fn painted(&self, ink: Colour, text: &str) -> String {
        if self.color && ink != Colour::Plain && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", ink.code())
        } else {
            text.into()
        }
    }
}
