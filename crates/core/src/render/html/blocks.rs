// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is written for a terminal as a page: headings, paragraphs and tables become elements, lines that must not be
//! wrapped stay as they are.

use super::super::page::{Block, Colour, Plot};
use super::super::table::{Column, Table};
use super::markup::{Markup, class, none};
use super::{Cell, plots, prove, table};

/// The blocks, the first of which is the headline.
pub(super) fn write(to: &mut Markup, blocks: &[Block]) {
    let mut is_first = true;
    let mut at = 0;
    while let Some(block) = blocks.get(at) {
        at += 1;
        match block {
            Block::Gap => {}
            Block::Table(of) => shown(to, of),
            Block::Plot(of) => match &**of {
                Plot::Lengths(of) => plots::write(to, of),
                Plot::Prove(of) => prove::write(to, of),
            },
            Block::Line { ink: Colour::Heading, text, .. } => to.prose("h2", &none(), text),
            Block::Line { indent, ink, text } if *indent < 4 && *ink != Colour::Plain => {
                to.prose("p", &paragraph(*ink), text);
            }
            Block::Line { .. } => {
                at = lines(to, blocks, at - 1);
            }
            Block::Paragraph { label, ink, text } => {
                let name = match (std::mem::take(&mut is_first), ink, label.1.is_empty()) {
                    (true, ..) => "h1",
                    (false, Colour::Heading, true) => "h2",
                    (false, Colour::Heading, false) => "h3",
                    _ => "p",
                };
                to.newline();
                to.element(name, &paragraph(*ink), |to| {
                    if !label.1.is_empty() {
                        to.tag("span", &class(ink_class(label.0)), &label.1);
                    }
                    to.words(text);
                });
            }
        }
    }
}

/// Lines that belong together, from the block `from` on. Returns the first block after them.
fn lines(to: &mut Markup, blocks: &[Block], from: usize) -> usize {
    let line = |block: &Block| match block {
        Block::Line { ink: Colour::Heading, .. } => None,
        Block::Line { text, .. } => Some(text.clone()),
        _ => None,
    };
    let all: Vec<String> = blocks[from..].iter().map_while(line).collect();
    to.tag("pre", &none(), &all.join("\n"));
    from + all.len().max(1)
}

fn ink_class(ink: Colour) -> String {
    match ink {
        Colour::Severity(severity) => {
            format!("tag {}", super::super::words::finding::severity(severity))
        }
        Colour::Aside => "aside".into(),
        Colour::Plain | Colour::Heading | Colour::Advice => "name".into(),
    }
}

fn paragraph(ink: Colour) -> super::markup::Attributes {
    if ink == Colour::Aside { class("aside") } else { none() }
}

/// A table of the text, on a page.
pub(super) fn shown(to: &mut Markup, of: &Table) {
    let headings: Vec<&str> = of.headings().iter().map(String::as_str).collect();
    let cell = |(text, column): (&String, &Column)| match column {
        Column::Right => Cell::Number(text.clone()),
        Column::Left(_) | Column::Label(_) => Cell::Words(text.clone()),
    };
    let row = |cells: &[String]| cells.iter().zip(of.columns()).map(cell).collect();
    for (caption, rows) in of.groups() {
        if let Some(caption) = caption {
            to.tag("p", &class("aside"), caption);
        }
        table(to, &headings, rows.into_iter().map(row).collect());
    }
}
