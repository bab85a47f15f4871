// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads suggested commands as a POSIX shell does, as far as they use its language, and checks what they would run.

use crate::text::fits;
use crate::text::name::is_hidden;
use std::iter::Peekable;
use std::str::Chars;

/// Programs that a suggested command may run.
const KNOWN: [&str; 28] = [
    "cat",
    "chrt",
    "cpupower",
    "crictl",
    "deburr",
    "dmesg",
    "docker",
    "echo",
    "ethtool",
    "grep",
    "ionice",
    "journalctl",
    "jstat",
    "kubectl",
    "losetup",
    "lsattr",
    "lsmod",
    "nerdctl",
    "perf",
    "podman",
    "ps",
    "renice",
    "smartctl",
    "systemctl",
    "tail",
    "taskset",
    "tuned-adm",
    "uname",
];
/// Files that one may write.
const WRITTEN: [&str; 3] = ["/sys/*", "/proc/sys/*", "/proc/irq/*"];
/// Words that begin a command or end a loop, and are none themselves.
const KEYWORDS: [&str; 2] = ["do", "done"];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A word without its quotes, and whether any part of it was quoted.
    Word(String, bool),
    /// `|`, `;`, `>` and the like.
    Operator(String),
}

/// What is wrong with a command that is to be pasted, if anything.
pub(crate) fn fault(command: &str) -> Option<String> {
    check(command).err().map(|why| format!("{why} in `{}`", command.escape_debug()))
}

fn check(command: &str) -> Result<(), String> {
    if command.chars().any(is_hidden) {
        return Err("a hidden character".into());
    }
    check_tokens(&tokens(&mut command.chars().peekable(), false)?)
}

fn check_tokens(tokens: &[Token]) -> Result<(), String> {
    let is_separator = |token: &Token| matches!(token, Token::Operator(text) if text != ">");
    for simple in tokens.split(is_separator) {
        check_simple(simple)?;
    }
    Ok(())
}

/// A command without operators, but for where its output goes.
fn check_simple(tokens: &[Token]) -> Result<(), String> {
    let redirection = tokens.iter().position(|token| matches!(token, Token::Operator(_)));
    let (own, to) = tokens.split_at(redirection.unwrap_or(tokens.len()));
    let mut words = own.iter().filter_map(|token| match token {
        Token::Word(word, _) => Some(word.as_str()),
        Token::Operator(_) => None,
    });
    match to {
        [] => {}
        [_, Token::Word(file, _)] => must_be_writable(file)?,
        _ => return Err("more than one redirection".into()),
    }
    let mut program = words.next();
    while program.is_some_and(|word| KEYWORDS.contains(&word) || word == "sudo") {
        program = words.next();
    }
    match program {
        None => Ok(()),
        Some("for") => match (words.next(), words.next()) {
            (Some("p"), Some("in")) if words.all(|pid| pid.parse::<u32>().is_ok()) => Ok(()),
            _ => Err("a loop over something other than pids".into()),
        },
        Some("tee") => words.filter(|word| *word != "-a").try_for_each(must_be_writable),
        Some("sysctl") => must_be_known(words.collect()),
        // Without `--`, a name may be an option.
        Some("modprobe") if words.clone().any(|word| word == "--") => Ok(()),
        Some(program) if KNOWN.contains(&program) => Ok(()),
        Some(program) => Err(format!("the program `{program}`")),
    }
}

fn must_be_writable(file: &str) -> Result<(), String> {
    let is_below = !file.split('/').any(|name| name == "..");
    let is_one = is_below && WRITTEN.iter().any(|pattern| fits(pattern, file));
    if is_one { Ok(()) } else { Err(format!("a write to `{file}`")) }
}

fn must_be_known(words: Vec<&str>) -> Result<(), String> {
    match words[..] {
        ["-w", setting] => {
            let (name, _) = setting.split_once('=').ok_or("a setting without a value")?;
            let has_area = ["vm.", "kernel.", "net.", "fs.", "dev.raid."]
                .iter()
                .any(|area| name.starts_with(area));
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
            if has_area && is_plain && !name.contains("..") && !name.contains("core_pattern") {
                return Ok(());
            }
            Err(format!("the setting `{name}`"))
        }
        _ => Ok(()),
    }
}

fn tokens(rest: &mut Peekable<Chars<'_>>, is_inside: bool) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut word: Option<(String, bool)> = None;
    let end = |word: &mut Option<(String, bool)>, tokens: &mut Vec<Token>| {
        tokens.extend(word.take().map(|(text, quoted)| Token::Word(text, quoted)));
    };
    while let Some(c) = rest.next() {
        match c {
            ' ' => end(&mut word, &mut tokens),
            '|' | ';' | '>' => {
                end(&mut word, &mut tokens);
                tokens.push(Token::Operator(c.to_string()));
            }
            '&' if rest.next_if_eq(&'&').is_some() => {
                end(&mut word, &mut tokens);
                tokens.push(Token::Operator("&&".into()));
            }
            ')' if is_inside => {
                end(&mut word, &mut tokens);
                return Ok(tokens);
            }
            '\'' | '"' => {
                let (text, quoted) = word.get_or_insert_default();
                *quoted = true;
                text.push_str(&quote(rest, c)?);
            }
            '\\' => {
                let (text, quoted) = word.get_or_insert_default();
                *quoted = true;
                text.push(rest.next().ok_or("a backslash at the end")?);
            }
            '$' => {
                let (text, _) = word.get_or_insert_default();
                text.push_str(&expansion(rest)?);
            }
            '*' => {
                let (text, _) = word.get_or_insert_default();
                if !["/sys/", "/proc/"].iter().any(|place| text.starts_with(place)) {
                    return Err("a pattern of files elsewhere".into());
                }
                text.push(c);
            }
            c if c.is_ascii_alphanumeric() || "_@:,./+-=%".contains(c) => {
                word.get_or_insert_default().0.push(c);
            }
            c => return Err(format!("`{c}` without quotes")),
        }
    }
    if is_inside {
        return Err("a substitution that does not end".into());
    }
    end(&mut word, &mut tokens);
    Ok(tokens)
}

fn quote(rest: &mut Peekable<Chars<'_>>, mark: char) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match rest.next().ok_or("a quote that does not end")? {
            c if c == mark => return Ok(text),
            '$' if mark == '"' => text.push_str(&expansion(rest)?),
            '`' | '\\' if mark == '"' => return Err("an escape in double quotes".into()),
            c => text.push(c),
        }
    }
}

/// What may follow a `$`: a text with escapes, the loop's variable, or the threads of processes.
fn expansion(rest: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    match rest.next() {
        Some('\'') => {
            let mut text = String::new();
            loop {
                match rest.next().ok_or("a quote that does not end")? {
                    '\'' => return Ok(text),
                    '\\' => text.extend(rest.next()),
                    c => text.push(c),
                }
            }
        }
        Some('p') => Ok("$p".into()),
        Some('(') => {
            let inside = tokens(rest, true)?;
            match inside.first() {
                Some(Token::Word(program, false)) if program == "ps" => {
                    check_tokens(&inside).map(|()| "1".into())
                }
                _ => Err(format!("the substitution {inside:?}")),
            }
        }
        other => Err(format!("the expansion `${}`", other.unwrap_or(' '))),
    }
}

#[test]
fn what_is_wrong_with_a_command_is_found() {
    for command in [
        "cat /proc/softirqs",
        "echo 100 > /sys/class/bdi/8:0/max_ratio",
        "echo '8:0 rbps=1' | sudo tee '/sys/fs/cgroup/a b;c/io.max'",
        "for p in 1 2; do taskset -acp 0-1 $p; done",
        "ionice -c 3 -p $(ps -Lo tid= -p 1,2)",
        r"sudo deburr --cgroup='/it'\''s; reboot' -d 30",
        r"deburr --comm=$'a\012b' -d 3",
        "sudo sysctl -w 'vm.dirty_ratio=10'",
        "grep . /sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq",
    ] {
        assert_eq!(fault(command), None);
    }
    for command in [
        "deburr --comm=a; reboot",
        "deburr --comm=a\nreboot",
        "deburr --comm=$(reboot)",
        "deburr --comm=`reboot`",
        "deburr --comm=\"$(reboot)\"",
        "deburr --comm='a",
        "echo 1 > /etc/cron.d/x",
        "echo 1 | sudo tee /sys/devices/../../etc/cron.d/x",
        "sudo sysctl -w 'kernel.core_pattern=|/tmp/x'",
        "echo 1 & reboot",
        "cat ~root/x",
        "cat /etc/*",
    ] {
        assert!(fault(command).is_some(), "{command}");
    }
}
