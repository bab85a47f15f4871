// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was read of transcripts as text for a terminal: what each file was taken for, then the statements.

use super::TextStyle;
use super::finding::{self, Detail};
use super::lengths;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use crate::finding::Severity;
use crate::text::escape::{command, identifier, label, sentence};
use crate::text::units::{counted, value};
use crate::transcript::{Document, FileRead, Number, SectionRead, Statement, Unread, Weight};

/// Maximum width of the code of a rule.
const CODE: usize = 12;
/// Maximum width of the name of a number or of a rule.
const NAME: usize = 34;
/// Maximum width of the name of a file.
const FILE: usize = 60;
/// Sections and unread lines of a file that are shown without -v.
const FEW: usize = 8;
/// Numbers of a statement that are shown without -v.
const NUMBERS: usize = 8;

/// The document as text for a terminal.
#[must_use]
pub fn read_text(document: &Document, style: TextStyle) -> String {
    let mut page = Page::new(style);
    write(&mut page, document, style);
    page.into_text()
}

/// Writes the document.
pub(super) fn write(page: &mut Page, document: &Document, style: TextStyle) {
    page.paragraph(0, 2, Colour::Heading, &sentence(&headline(document)));
    for fact in &document.known {
        let text = format!("{}: {}, from {}", fact.name, fact.value, fact.source);
        page.paragraph(2, 2, Colour::Aside, &sentence(&text));
    }
    if style.verbosity > 0 {
        for read in &document.files {
            file(page, read, style.verbosity > 1);
        }
    } else {
        unread_only(page, &document.files);
    }
    let hidden = |said: &&Statement| style.verbosity > 0 || said.weight <= Weight::Open;
    for said in document.statements.iter().filter(hidden) {
        page.gap();
        statement(page, said, style.verbosity);
    }
    rules(page, document, style);
}

fn headline(document: &Document) -> String {
    let number =
        |weight| document.statements.iter().filter(|it| it.weight == weight).count() as u64;
    let files = counted(document.files.len() as u64, "file", "files");
    let read: u64 = document.files.iter().map(|file| file.sections.len() as u64).sum();
    let unread = document.files.iter().map(|file| file.unread_lines).fold(0, u64::saturating_add);
    let mut parts = vec![format!("read {} in {files}", counted(read, "output", "outputs"))];
    parts.push(match number(Weight::Found) {
        0 => "nothing that explains latency was found".to_owned(),
        found => format!("{found} found"),
    });
    let open = number(Weight::Open);
    parts.extend((open > 0).then(|| format!("{open} open")));
    parts.extend(
        (unread > 0).then(|| format!("{} not understood", counted(unread, "line", "lines"))),
    );
    parts.join(", ")
}

fn file(page: &mut Page, read: &FileRead, all: bool) {
    page.gap();
    let title =
        format!("{}, {}", identifier(&read.name, FILE), counted(read.lines, "line", "lines"));
    page.paragraph(0, 2, Colour::Heading, &title);
    let shown = if all { usize::MAX } else { FEW };
    let mut table = Table::new(&[Column::Right, Column::Left(24), Column::Left(usize::MAX)]);
    for section in read.sections.iter().take(shown) {
        table.row([
            place(section.from_line, section.to_line),
            label(&section.tool, 24),
            words(section),
        ]);
    }
    for unread in read.unread.iter().take(shown) {
        let text = format!("{}: {}", identifier(&unread.text, 60), sentence(&unread.reason));
        table.row([place(unread.from_line, unread.to_line), "not understood".into(), text]);
    }
    table.write(page, 2);
    let more = read.sections.len().saturating_sub(shown) + read.unread.len().saturating_sub(shown);
    if more > 0 {
        page.paragraph(2, 2, Colour::Aside, &format!("and {more} more (-v shows them)"));
    }
    let length = |it: &Unread| it.to_line.saturating_sub(it.from_line).saturating_add(1);
    let named = read.unread.iter().map(length).fold(0, u64::saturating_add);
    if read.unread_lines > named {
        let text = format!(
            "{} more were not understood",
            counted(read.unread_lines - named, "line", "lines")
        );
        page.paragraph(2, 2, Colour::Aside, &text);
    }
}

fn unread_only(page: &mut Page, files: &[FileRead]) {
    for file in files.iter().filter(|file| file.unread_lines > 0) {
        let text = format!(
            "{}: {} not understood",
            identifier(&file.name, FILE),
            counted(file.unread_lines, "line", "lines")
        );
        page.paragraph(2, 2, Colour::Aside, &text);
    }
}

fn place(from: u64, to: u64) -> String {
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}

fn words(section: &SectionRead) -> String {
    let mut text = format!("{}: {}", sentence(&section.layout), sentence(&section.samples));
    if let Some(by) = &section.command {
        text += &format!(", of {}", identifier(by, 60));
    }
    for note in &section.notes {
        text += &format!("; {}", sentence(note));
    }
    text
}

fn statement(page: &mut Page, said: &Statement, verbosity: u8) {
    let (tag, ink) = match said.weight {
        Weight::Found => ("found: ", Colour::Severity(Severity::Medium)),
        Weight::Open => ("open: ", Colour::Severity(Severity::Low)),
        Weight::Fact => ("read: ", Colour::Aside),
        Weight::RuledOut => ("ruled out: ", Colour::Aside),
    };
    page.labelled(0, (ink, tag), 2, Colour::Heading, &sentence(&said.title));
    page.plot(|| lengths::of_histogram(&said.sizes));
    if verbosity > 0 {
        let shown = if verbosity > 1 { usize::MAX } else { NUMBERS };
        let mut table = Table::new(&[Column::Left(NAME), Column::Right, Column::Left(usize::MAX)]);
        for number in said.numbers.iter().take(shown) {
            table.row([
                label(&number.name, NAME),
                value(number.value, number.unit),
                remark(number),
            ]);
        }
        table.write(page, 2);
        let more = said.numbers.len().saturating_sub(shown);
        if more > 0 {
            page.paragraph(2, 2, Colour::Aside, &format!("and {more} more (-v shows them)"));
        }
        for what in &said.cannot_say {
            page.labelled(2, (Colour::Aside, "cannot say: "), 12, Colour::Plain, &sentence(what));
        }
    }
    if let Some(settle) = &said.settle {
        page.labelled(2, (Colour::Advice, "next: "), 6, Colour::Plain, &command(settle));
    }
}

fn remark(number: &Number) -> String {
    let source = sentence(&number.source);
    match &number.note {
        Some(note) if !note.is_empty() => format!("{} ({source})", sentence(note)),
        _ => format!("({source})"),
    }
}

fn rules(page: &mut Page, document: &Document, style: TextStyle) {
    let Some(judged) = &document.rules else { return };
    page.gap();
    let from: Vec<String> = judged.from.iter().map(|from| sentence(from)).collect();
    let text = format!("by the rules of `deburr report`, from {}", from.join(", "));
    page.paragraph(0, 2, Colour::Heading, &text);
    let detail = match style.verbosity {
        0 => Detail::Claim,
        1 => Detail::Evidence,
        _ => Detail::All,
    };
    let mut shown = finding::Shown::default();
    for found in &judged.findings {
        page.gap();
        finding::write(page, found, detail, &mut shown);
    }
    for quiet in judged.ruled_out.iter().filter(|_| style.verbosity > 0) {
        let tag = format!("{} {}: ", label(&quiet.code, CODE), label(&quiet.name, NAME));
        page.labelled(2, (Colour::Aside, &tag), 2, Colour::Plain, &sentence(&quiet.closest));
    }
    if !judged.not_checked.is_empty() && style.verbosity > 0 {
        let codes = judged.not_checked.iter().map(|it| label(&it.code, CODE));
        let codes: Vec<String> = codes.collect();
        let text = format!("the text has no data for {}", codes.join(", "));
        page.paragraph(2, 2, Colour::Aside, &text);
    }
}
