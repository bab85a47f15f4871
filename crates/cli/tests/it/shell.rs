// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which commands a shell's script runs, as far as its text says so. No parser of the language: a word counts as a
//! command where one can begin, and what is in doubt is left out.

use std::iter::Peekable;
use std::str::Chars;

/// Behind these a command begins.
const LEADS: [&str; 9] = ["if", "then", "else", "elif", "while", "until", "do", "!", "time"];
/// They start the command that follows their options; the first two are no programs.
const STARTERS: [&str; 6] = ["exec", "command", "env", "timeout", "nice", "sudo"];
/// No programs; what stands behind the words for control is none either.
const BUILTINS: [&str; 37] = [
    "break", "case", "cd", "continue", "declare", "done", "echo", "esac", "eval", "exit", "export",
    "fi", "for", "getopts", "hash", "kill", "let", "local", "mapfile", "printf", "pwd", "read",
    "readonly", "return", "select", "set", "shift", "shopt", "source", "trap", "type", "ulimit",
    "umask", "unset", "wait", "exec", "command",
];

/// The programs that it runs by name: neither builtins nor functions of its own.
pub(crate) fn commands(script: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    split(&mut script.chars().peekable(), &mut pieces, false);
    let mut found: Vec<String> = pieces.iter().flat_map(|piece| programs(piece)).collect();
    found.retain(|name| {
        let own = script.contains(&format!("{name}() "));
        !own && !BUILTINS.contains(&name.as_str())
    });
    found
}

/// Cuts a script where commands begin. What is quoted is one `"`, whatever it holds; `inside` a `(` its end is the end.
fn split(rest: &mut Peekable<Chars<'_>>, pieces: &mut Vec<String>, inside: bool) {
    let mut piece = String::new();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                // A line that goes on; of anything else the meaning is gone.
                piece.push(if rest.next() == Some('\n') { ' ' } else { '"' });
            }
            '\'' => {
                rest.by_ref().find(|c| *c == '\'');
                piece.push('"');
            }
            '"' => {
                quoted(rest, pieces);
                piece.push('"');
            }
            '#' if piece.is_empty() || piece.ends_with(char::is_whitespace) => {
                rest.by_ref().find(|c| *c == '\n');
                pieces.push(std::mem::take(&mut piece));
            }
            '$' => expansion(rest, pieces, &mut piece),
            '(' if rest.peek() == Some(&'(') => skip_arithmetic(rest),
            '(' => {
                let array = piece.ends_with('=');
                let mut within = Vec::new();
                split(rest, &mut within, true);
                pieces.extend(within.into_iter().filter(|_| !array));
                piece.push('"');
            }
            ')' if inside => break,
            // The pattern of a `case`.
            ')' => piece.clear(),
            // `{name}` is what Rust puts in there.
            '{' if rest.peek().is_some_and(|c| !c.is_whitespace()) => {
                rest.by_ref().find(|c| *c == '}');
                piece.push('"');
            }
            '\n' | ';' | '|' | '&' | '{' | '}' if c != '&' || !piece.ends_with('>') => {
                pieces.push(std::mem::take(&mut piece));
            }
            other => piece.push(other),
        }
    }
    pieces.push(piece);
}

/// The rest of a string in double quotes, in which commands may stand.
fn quoted(rest: &mut Peekable<Chars<'_>>, pieces: &mut Vec<String>) {
    while let Some(c) = rest.next() {
        match c {
            '"' => return,
            '\\' => drop(rest.next()),
            '$' => expansion(rest, pieces, &mut String::new()),
            _ => {}
        }
    }
}

/// What follows a `$`: commands of `$(...)` become pieces, the rest says nothing.
fn expansion(rest: &mut Peekable<Chars<'_>>, pieces: &mut Vec<String>, piece: &mut String) {
    piece.push('"');
    match rest.peek() {
        Some('(') => {
            rest.next();
            if rest.peek() == Some(&'(') {
                return skip_arithmetic(rest);
            }
            split(rest, pieces, true);
        }
        Some('{') => drop(rest.by_ref().find(|c| *c == '}')),
        // `$#` begins no comment.
        Some('#') => drop(rest.next()),
        _ => {}
    }
}

/// Whatever is between `((` and its end.
fn skip_arithmetic(rest: &mut Peekable<Chars<'_>>) {
    let mut depth = 1;
    for c in rest.by_ref() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return;
        }
    }
}

/// What a piece starts: the program that it begins with, or several where one starts another.
fn programs(piece: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in piece.split_whitespace().skip_while(|word| LEADS.contains(word)) {
        // A program that only the run will tell.
        if word == "\"" && found.last().is_some_and(|last| last == "exec") {
            break;
        }
        // Settings of variables, and options and numbers for who starts another program.
        if word.contains('=') || (!found.is_empty() && !is_name(word)) {
            continue;
        }
        if is_name(word) {
            found.push(word.to_owned());
        }
        if !STARTERS.contains(&word) {
            break;
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-._/".contains(c);
    word.starts_with(|c: char| c.is_ascii_lowercase() || c == '/') && word.chars().all(plain)
}

#[test]
fn a_command_is_seen_wherever_one_can_begin() {
    let script = r#"
        # not this
        first -x 'a; b' "c | d" || second | third && ! fourth; cd /x; A=b fifth "$(sixth "$1" "$(seventh)")"
        if eighth >&2; then ninth; else { tenth & }; fi
        for i in one two; do eleventh $i; done <<<"$(twelfth)"
        case $1 in
            --a | bc) thirteenth ;;
            *) fourteenth \
                not_this ;;
        esac
        list=(nothing here); count=$((a * b)); ((x > y)) || exec timeout 300 fifteenth
        own() { sixteenth; }; exec {program} mode
        own; $program x; "$quoted" y; z=${#list[@]}; command -v seventeenth >/dev/null 2>&1
        (eighteenth); echo $# $'\n'; x > y < z; [[ a == b ]] && /usr/bin/nineteenth
    "#;
    let found = commands(script);
    let expected = [
        "first",
        "second",
        "third",
        "fourth",
        "seventh",
        "sixth",
        "fifth",
        "eighth",
        "ninth",
        "tenth",
        "twelfth",
        "eleventh",
        "thirteenth",
        "fourteenth",
        "timeout",
        "fifteenth",
        "sixteenth",
        "seventeenth",
        "eighteenth",
        "/usr/bin/nineteenth",
    ];
    for name in expected {
        assert!(found.iter().any(|word| word == name), "{name}: {found:?}");
    }
    let rest: Vec<_> = found.iter().filter(|word| !expected.contains(&word.as_str())).collect();
    assert_eq!(rest, ["x"], "but for this one, which runs here");
}
