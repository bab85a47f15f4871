// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives each line to the parser that knows it.

use super::document::{Document, FileRead, READ_SCHEMA, SectionRead, Unread};
use super::layouts::{self, Parsed, Parser, Taken};
use super::line::{Command, Line, MAX_LINE_BYTES, after_prompt, is_elision, visible};
use super::meaning::{self, Case};
use super::{Given, Transcript, records};
use crate::finding::Tool;

/// Lists of lines that were not understood are cut to this length.
const MAX_UNREAD: usize = 20;
/// Characters that are kept of such a line, of a command, and of a label.
const MAX_TEXT: usize = 100;
/// Largest number of sections of all files: each may have a statement.
const MAX_SECTIONS: usize = 500;

/// A section that was read: its place and its samples.
#[derive(Debug)]
pub(super) struct Section {
    /// Name of its file.
    pub(super) file: String,
    /// First and last line.
    pub(super) lines: (u64, u64),
    /// The command that printed it, if the text says it.
    pub(super) command: Command,
    /// The last comment before it: `same hardware, old kernel command line`.
    pub(super) label: Option<String>,
    /// Whether lines of it were left out of the text.
    pub(super) elided: bool,
    /// The samples.
    pub(super) parsed: Parsed,
}

impl Section {
    /// `FILE:FROM-TO` of all its lines.
    pub(super) fn source(&self) -> String {
        self.source_of(self.lines)
    }

    /// `FILE:FROM-TO` of some of its lines.
    pub(super) fn source_of(&self, lines: (u64, u64)) -> String {
        // In a document of JSON lines mean nothing.
        let (from, to) = if matches!(self.parsed, Parsed::Json(_)) { self.lines } else { lines };
        match from == to {
            true => format!("{}:{from}", self.file),
            false => format!("{}:{from}-{to}", self.file),
        }
    }
}

/// What the lines before a section say about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    /// The last command at a prompt.
    pub(super) command: Option<Command>,
    /// The last comment.
    pub(super) label: Option<String>,
    /// The tool that a line like `Tracing run queue latency...` belongs to.
    pub(super) tracing: Option<&'static str>,
    /// The last line that holds nothing but a date or a time of day, in seconds.
    pub(super) time_s: Option<f64>,
    /// The file that `cat` prints, or that `head` and `tail` announce.
    pub(super) path: Option<String>,
    /// Number of CPUs in a banner of sysstat, and its place.
    pub(super) cpus: Option<(u32, String)>,
}

/// A section that is being read.
struct Open {
    parser: Box<dyn Parser>,
    from: u64,
    to: u64,
    elided: bool,
    command: Command,
    label: Option<String>,
}

/// Reads transcripts, line after line.
pub struct Reader {
    given: Given,
    files: Vec<FileRead>,
    sections: Vec<Section>,
    open: Option<Open>,
    context: Context,
    cpus: Option<(u32, String)>,
    dropped_sections: u64,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Reader {
    /// A reader that knows what the user says.
    #[must_use]
    pub fn new(given: Given) -> Self {
        Self {
            given,
            files: Vec::new(),
            sections: Vec::new(),
            open: None,
            context: Context::default(),
            cpus: None,
            dropped_sections: 0,
        }
    }

    /// Begins a file.
    pub fn file(&mut self, name: &str) {
        self.close();
        self.remember_cpus();
        self.context = Context::default();
        self.files.push(FileRead { name: name.to_owned(), ..FileRead::default() });
    }

    /// Reads a line, with or without its newline. Of a line longer than [`MAX_LINE_BYTES`] only the number is kept.
    pub fn line(&mut self, bytes: &[u8]) {
        let Some(file) = self.files.last_mut() else { return };
        file.lines += 1;
        if bytes.len() > MAX_LINE_BYTES {
            return unread(file, "(too long)", "longer than 64 KiB");
        }
        let text = visible(bytes);
        let line = Line::new(file.lines, &text);
        if line.text.is_empty() {
            if let Some(open) = &mut self.open {
                open.parser.blank();
            }
        } else if let Some(because) = self.take(&line) {
            let file = self.files.last_mut();
            file.into_iter().for_each(|file| unread(file, line.text, because));
        }
    }

    /// Reads a line that is not empty. The result is why it could not be read.
    fn take(&mut self, line: &Line<'_>) -> Option<&'static str> {
        let mut because = "no tool that is known prints this line";
        if let Some(open) = &mut self.open {
            match open.parser.line(line) {
                Taken::Yes => {
                    open.to = line.number;
                    return None;
                }
                Taken::Unread(reason) => because = reason,
                Taken::No => {}
            }
            if is_elision(line.text) {
                open.elided = true;
                return None;
            }
        } else if is_elision(line.text) {
            return None;
        }
        if let Some(mut parser) = layouts::begins(line, &self.context) {
            self.close();
            let taken = parser.line(line);
            let Context { command, label, .. } = &mut self.context;
            let command = command.take().unwrap_or_default();
            let (label, number) = (label.take(), line.number);
            self.open =
                Some(Open { parser, from: number, to: number, elided: false, command, label });
            return match taken {
                Taken::Unread(reason) => Some(reason),
                Taken::Yes | Taken::No => None,
            };
        }
        if let Some(rest) = after_prompt(line.text) {
            self.prompt(rest);
            return None;
        }
        if layouts::is_about(line, &mut self.context, self.files.last()) {
            return None;
        }
        Some(because)
    }

    /// A prompt, or a comment: what follows is another run.
    fn prompt(&mut self, rest: &str) {
        self.close();
        let command = Command::of(rest, layouts::is_tool);
        self.context.label = (command.is_none() && !rest.is_empty()).then(|| cut(rest));
        self.context.tracing = None;
        self.context.path = command.as_ref().and_then(path_of);
        self.context.command = command;
    }

    fn remember_cpus(&mut self) {
        if self.cpus.is_none() {
            self.cpus = self.context.cpus.take();
        }
    }

    fn close(&mut self) {
        let (Some(open), Some(file)) = (self.open.take(), self.files.last_mut()) else { return };
        let parsed = open.parser.end();
        if self.sections.len() >= MAX_SECTIONS {
            self.dropped_sections += 1;
            return;
        }
        let section = Section {
            file: file.name.clone(),
            lines: (open.from, open.to),
            command: open.command,
            label: open.label,
            elided: open.elided,
            parsed,
        };
        let described = section.parsed.describe(&section);
        file.sections.push(SectionRead {
            tool: described.tool.to_owned(),
            layout: described.layout,
            from_line: open.from,
            to_line: open.to,
            samples: described.samples,
            command: (!section.command.words.is_empty())
                .then(|| cut(&section.command.words.join(" "))),
            notes: described.notes,
        });
        self.sections.push(section);
    }

    /// Ends reading, and says what the samples mean. `version` is that of this program.
    #[must_use]
    pub fn finish(mut self, version: &str) -> Transcript {
        self.close();
        self.remember_cpus();
        if let (true, Some(file)) = (self.dropped_sections > 0, self.files.last_mut()) {
            let text = format!("{} more outputs", self.dropped_sections);
            unread(file, &text, "more than 500 outputs of tools are not read");
        }
        let case = Case::new(&self.sections, self.given, self.cpus.take());
        let (records, recorded_from) = records::of(&case);
        let document = Document {
            schema: READ_SCHEMA.into(),
            tool: Tool { version: version.into() },
            known: case.known(),
            statements: meaning::statements(&case),
            files: self.files,
            rules: None,
        };
        Transcript { document, records, recorded_from }
    }
}

/// The file that a `cat` prints, if it is one.
fn path_of(command: &Command) -> Option<String> {
    let paths = command.words.get(1..)?.iter().filter(|word| !word.starts_with('-'));
    let mut paths = paths.filter(|_| matches!(command.tool(), "cat" | "watch"));
    paths.next().filter(|_| paths.next().is_none()).cloned()
}

/// The first characters of a text.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

fn unread(file: &mut FileRead, text: &str, reason: &str) {
    file.unread_lines += 1;
    let at = file.lines;
    if let Some(last) = file.unread.last_mut()
        && last.to_line + 1 == at
        && last.reason == reason
    {
        last.to_line = at;
    } else if file.unread.len() < MAX_UNREAD {
        let (text, reason) = (cut(text), reason.to_owned());
        file.unread.push(Unread { from_line: at, to_line: at, text, reason });
    }
}
