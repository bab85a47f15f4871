// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The captures of the incidents, and a decoy for each claim.

mod cases;
mod decoys;
mod forms;
mod layouts;

use super::{Document, Given, Reader, Statement, Transcript};

/// Reads texts under names.
fn transcript(files: &[(&str, &str)], given: Given) -> Transcript {
    let mut reader = Reader::new(given);
    for (name, text) in files {
        reader.file(name);
        text.split_inclusive('\n').for_each(|line| reader.line(line.as_bytes()));
    }
    reader.finish("0")
}

fn read(files: &[(&str, &str)], given: Given) -> Document {
    transcript(files, given).document
}

/// Reads one text.
fn one(text: &str) -> Document {
    read(&[("f", text)], Given::default())
}

fn cpus(cpus: u32) -> Given {
    Given { cpus: Some(cpus), interval_s: None }
}

/// The only statement of that name.
fn said<'d>(document: &'d Document, name: &str) -> &'d Statement {
    let mut all = document.statements.iter().filter(|said| said.name == name);
    let first = all.next().unwrap_or_else(|| panic!("no `{name}` in {:#?}", document.statements));
    assert!(all.next().is_none(), "several `{name}` in {:#?}", document.statements);
    first
}

fn number(said: &Statement, name: &str) -> f64 {
    let number = said.numbers.iter().find(|number| number.name == name);
    number.unwrap_or_else(|| panic!("no `{name}` in {said:#?}")).value
}

/// Every line is understood.
fn assert_whole(document: &Document) {
    for file in &document.files {
        assert_eq!(file.unread_lines, 0, "{file:#?}");
    }
}
