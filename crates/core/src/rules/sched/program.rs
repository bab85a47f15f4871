// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What distinguishes a process from others of its name: for interpreters the script, module, jar or class that they
//! run, for other programs the arguments that most siblings do not have.

use crate::recording::Process;
use std::collections::BTreeMap;

/// Maximum length of the text that is shown of a command line, in characters.
const MAX_CHARS: usize = 60;
/// Maximum number of distinguishing arguments that are shown.
const MAX_WORDS: usize = 3;

/// Interpreters, with those of their options that take a separate value.
const INTERPRETERS: [(&str, &[&str]); 12] = [
    (
        "java",
        &[
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--add-opens",
            "--add-exports",
            "--add-modules",
        ],
    ),
    ("python", &["-W", "-X", "--check-hash-based-pycs"]),
    ("pypy", &["-W", "-X"]),
    ("perl", &["-I"]),
    ("ruby", &["-I", "-r", "-C"]),
    ("node", &["-r", "--require", "--import"]),
    ("nodejs", &["-r", "--require", "--import"]),
    ("php", &["-d", "-z"]),
    ("lua", &["-l"]),
    ("bash", &["-o", "-O", "--rcfile", "--init-file"]),
    ("dash", &["-o"]),
    ("sh", &["-o"]),
];
/// Options whose value is what is run: a module or an archive.
const RUN: [&str; 3] = ["-m", "-jar", "--module"];
/// Options whose value is the program text itself.
const TEXT: [&str; 2] = ["-c", "-e"];

/// What a process runs, to distinguish it from its siblings (processes of the same name, itself included).
pub(super) fn what_it_runs(process: &Process, siblings: &[&Process]) -> Option<String> {
    let words: Vec<&str> = words(process).collect();
    let found = match options_of(words.first()?) {
        Some(with_word) => interpreted(&words[1..], with_word),
        None => own_words(&words, siblings),
    }?;
    Some(shortened(&found))
}

fn words(process: &Process) -> impl Iterator<Item = &str> {
    process.cmdline.split(' ').filter(|word| !word.is_empty())
}

/// The options that take a value, if the program is an interpreter: `/usr/bin/python3.11` is one.
fn options_of(program: &str) -> Option<&'static [&'static str]> {
    let name = base_name(program).trim_start_matches('-');
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|(known, _)| *known == name).map(|(_, options)| *options)
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn interpreted(words: &[&str], with_word: &[&str]) -> Option<String> {
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        if RUN.contains(&word) {
            let what = words.next()?;
            return Some(match word {
                "-jar" => base_name(what).to_owned(),
                _ => format!("-m {what}"),
            });
        }
        if TEXT.contains(&word) {
            let text: Vec<&str> = words.copied().collect();
            return Some(format!("{word} {}", text.join(" ")));
        }
        if with_word.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(base_name(word).to_owned());
        }
    }
    None
}

/// Its first arguments that at most half of the siblings, itself included, have.
fn own_words(words: &[&str], siblings: &[&Process]) -> Option<String> {
    if siblings.len() < 2 {
        return None;
    }
    let mut have: BTreeMap<&str, usize> = BTreeMap::new();
    for sibling in siblings {
        let mut theirs: Vec<&str> = self::words(sibling).collect();
        theirs.sort_unstable();
        theirs.dedup();
        for word in theirs {
            *have.entry(word).or_default() += 1;
        }
    }
    let rare = |word: &&&str| have.get(**word).copied().unwrap_or(0) * 2 <= siblings.len();
    let own: Vec<&str> = words.iter().filter(rare).take(MAX_WORDS).copied().collect();
    (!own.is_empty()).then(|| own.join(" "))
}

fn shortened(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= MAX_CHARS {
        return text.to_owned();
    }
    text.chars().take(MAX_CHARS - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{S, Scene};

    /// What the first of processes with these command lines runs.
    fn first(lines: &[&str]) -> Option<String> {
        let mut scene = Scene::new(2, S);
        for line in lines {
            let id = scene.process("it", None);
            scene.facts(id, |process| process.cmdline = (*line).into());
        }
        let view = scene.view();
        let all: Vec<&Process> =
            view.processes().values().filter_map(|process| process.facts.as_deref()).collect();
        what_it_runs(all[0], &all)
    }

    #[test]
    fn interpreters_run_what_they_are_told() {
        let cases = [
            ("/usr/bin/python3.11 -O -W ignore /srv/app/spin.py --fast", Some("spin.py")),
            ("python3 -m http.server 80", Some("-m http.server")),
            ("python3 -c while True: pass", Some("-c while True: pass")),
            ("python3", None),
            (
                "/opt/jdk-21/bin/java -Xmx4g -cp /a.jar:/b.jar -Dx=y org.example.Main -v",
                Some("org.example.Main"),
            ),
            ("java -XX:+UseZGC -jar /srv/shop/shop-1.2.jar --port 80", Some("shop-1.2.jar")),
            ("node --require ./trace.js server.js", Some("server.js")),
            ("-bash", None),
            ("/bin/sh /etc/cron.daily/logrotate", Some("logrotate")),
        ];
        for (line, should) in cases {
            assert_eq!(first(&[line]).as_deref(), should, "{line}");
        }
    }

    #[test]
    fn other_programs_are_told_by_what_their_siblings_have_not() {
        let sibling = "postgres: shop worker idle";
        let own = first(&["postgres: shop checkpointer", sibling, sibling, sibling]);
        assert_eq!(own.as_deref(), Some("checkpointer"));
        assert_eq!(first(&["nginx -g x", "nginx -g x"]), None);
        assert_eq!(first(&["spinner --alone"]), None, "there is nobody to tell it from");
    }

    #[test]
    fn no_line_is_too_long() {
        let line = format!("python3 -c {}", "\u{e9}".repeat(500));
        assert_eq!(first(&[&line]).unwrap().chars().count(), MAX_CHARS);
    }
}
