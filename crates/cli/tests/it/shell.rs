// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the commands that a shell script runs, as far as its text shows them. This is not a parser of the language: a
//! word counts as a command where one can begin, and doubtful words are left out.

use std::iter::Peekable;
use std::str::Chars;

/// Words after which a command begins.
const LEADS: [&str; 9] = ["if", "then", "else", "elif", "while", "until", "do", "!", "time"];
/// Commands that start the one after their options; the first two are builtins, not programs.
const STARTERS: [&str; 6] = ["exec", "command", "env", "timeout", "nice", "sudo"];
/// Builtins and keywords, which are not programs. The word after one of these keywords is not a program either.
const BUILTINS: [&str; 37] = [
    "break", "case", "cd", "continue", "declare", "done", "echo", "esac", "eval", "exit", "export",
    "fi", "for", "getopts", "hash", "kill", "let", "local", "mapfile", "printf", "pwd", "read",
    "readonly", "return", "select", "set", "shift", "shopt", "source", "trap", "type", "ulimit",
    "umask", "unset", "wait", "exec", "command",
];

/// The programs that a script runs by name, without builtins and the script's own functions.
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

/// Cuts a script into pieces where commands begin. A quoted part becomes a single `"`, whatever it holds. If `inside`
/// parentheses, the script ends with the closing one.
fn split(rest: &mut Peekable<Chars<'_>>, pieces: &mut Vec<String>, inside: bool) {
    let mut piece = String::new();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                // The line is continued; any other character loses its special meaning.
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
            // The end of a pattern of a `case`.
            ')' => piece.clear(),
            // `{name}` is a placeholder that Rust fills in.
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

/// Reads the rest of a string in double quotes, which may hold commands.
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

/// Reads what follows a `$`. The commands of `$(...)` become pieces; other expansions are ignored.
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
        // `$#` does not begin a comment.
        Some('#') => drop(rest.next()),
        _ => {}
    }
}

/// Skips everything between `((` and its end.
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

/// The programs that a piece starts: the one that it begins with, or several if one starts another.
fn programs(piece: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in piece.split_whitespace().skip_while(|word| LEADS.contains(word)) {
        // A program whose name is known only at run time.
        if word == "\"" && found.last().is_some_and(|last| last == "exec") {
            break;
        }
        // Assignments to variables, and options and numbers of a program that starts another.
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
