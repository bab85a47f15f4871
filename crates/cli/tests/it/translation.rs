// SPDX-License-Identifier: Apache-2.0 OR MIT
//! README.zh-CN.md says what README.md says: what is the same in both languages is compared, section by section.

use crate::docs::console_lines;
use crate::repo::root;
use std::collections::BTreeMap;

/// What must be the same in every language.
#[derive(Debug, Default, PartialEq, Eq)]
struct Section {
    /// Level of the heading, 0 for what is before the first.
    level: usize,
    /// Text in backticks: commands, codes of findings, options, names of files. How often each.
    code: BTreeMap<String, usize>,
    /// Targets of links.
    links: BTreeMap<String, usize>,
    /// Numbers in digits.
    numbers: BTreeMap<String, usize>,
    /// Rows and items of lists.
    rows: usize,
    items: usize,
    /// Blocks of code, without comments.
    blocks: Vec<String>,
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn sections(document: &str) -> Vec<Section> {
    let mut sections = vec![Section::default()];
    let mut block: Option<String> = None;
    let mut prose = String::new();
    for line in document.lines().chain(["# end"]) {
        let section = sections.last_mut().expect("there is one");
        if line.starts_with("```") {
            match block.take() {
                Some(text) => section.blocks.push(text),
                None => block = Some(format!("{line}\n")),
            }
        } else if let Some(block) = &mut block {
            block.push_str(line.split(" #").next().unwrap_or_default().trim_end());
            block.push('\n');
        } else if line.starts_with('#') {
            section.count(&std::mem::take(&mut prose));
            let level = line.bytes().take_while(|byte| *byte == b'#').count();
            sections.push(Section { level, ..Section::default() });
        } else {
            section.rows += usize::from(line.starts_with('|'));
            section.items += usize::from(line.starts_with("- "));
            prose.push_str(line);
            prose.push('\n');
        }
    }
    sections.pop();
    sections
}

impl Section {
    /// Counts what is in the text of the section.
    fn count(&mut self, prose: &str) {
        for (at, part) in prose.split('`').enumerate() {
            if at % 2 == 1 {
                let words: Vec<&str> = part.split_whitespace().collect();
                *self.code.entry(words.join(" ")).or_default() += 1;
                continue;
            }
            let mut rest = part;
            while let Some((before, after)) = rest.split_once("](") {
                let (target, after) = after.split_once(')').expect("a link ends");
                if !["README.md", "README.zh-CN.md"].contains(&target) {
                    *self.links.entry(target.to_owned()).or_default() += 1;
                }
                self.count_numbers(before);
                rest = after;
            }
            self.count_numbers(rest);
        }
    }

    fn count_numbers(&mut self, prose: &str) {
        let numbers = prose.split(|c: char| !(c.is_ascii_digit() || c == '.'));
        for number in numbers.map(|it| it.trim_matches('.')).filter(|it| !it.is_empty()) {
            *self.numbers.entry(number.to_owned()).or_default() += 1;
        }
    }
}

#[test]
fn both_readmes_have_the_same_sections() {
    let (english, chinese) = (read("README.md"), read("README.zh-CN.md"));
    let (ours, theirs) = (sections(&english), sections(&chinese));
    assert!(ours.len() > 6, "{} sections", ours.len());
    assert_eq!(ours.len(), theirs.len(), "number of sections");
    let headings = english.lines().filter(|line| line.starts_with('#'));
    for ((ours, theirs), heading) in ours.iter().zip(&theirs).skip(1).zip(headings) {
        assert_eq!(
            ours, theirs,
            "README.md (left) and README.zh-CN.md (right), section `{heading}`"
        );
    }
    assert_eq!(console_lines(&english), console_lines(&chinese));
}

#[test]
fn what_a_translation_lacks_is_noticed() {
    let of = |text: &str| sections(text);
    let whole = "# A\nuse `a -b` ([page](docs/a.md)) for 30 s\n- x\n```console\n$ a # says\n```\n";
    assert_eq!(of(whole), of(&whole.replace("says", "sagt").replace("use", "nimm")));
    for (from, to) in [
        ("`a -b`", "`a`"),
        ("docs/a.md", "docs/b.md"),
        ("30", "20"),
        ("- x\n", ""),
        ("$ a", "$ b"),
        ("# A", "## A"),
    ] {
        assert_ne!(of(whole), of(&whole.replace(from, to)), "{from}");
    }
}
