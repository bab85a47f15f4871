// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How to examine a fact, and how to change it to the value of another host: commands, and how to undo them.

use super::document::{Change, TakesEffect};
use super::knowledge::{ChangeMethod, Knowledge};
use super::value_text::plain;
use crate::snapshot::{Class, Value};
use crate::text::shell_quote;

/// The command to examine a fact.
pub(super) fn look(key: &str, known: Option<&Knowledge>) -> String {
    if let Some(command) = known.and_then(|known| known.look) {
        return command.to_owned();
    }
    let (file, part) = key.split_once('#').unwrap_or((key, ""));
    let file = glob(file);
    match part {
        "" if file.contains('*') => format!("grep . {file}"),
        "" => format!("cat {file}"),
        part => format!("grep -F -e {} {file}", shell_quote(part)),
    }
}

/// How to change a fact of `hosts` from one value to another; `None` if that is not possible.
pub(super) fn change(
    key: &str,
    class: Class,
    known: Option<&Knowledge>,
    hosts: Vec<String>,
    (from, to): (&Value, &Value),
) -> Option<Change> {
    let how = known.and_then(|known| known.change);
    let (text, undo, reach, is_command) = match how {
        Some(ChangeMethod::Machine) => return None,
        Some(ChangeMethod::Firmware(text)) => {
            (text.to_owned(), "the setting that it had".into(), TakesEffect::Firmware, false)
        }
        Some(ChangeMethod::Boot(text)) => {
            (text.to_owned(), "what was there before, and boot".into(), TakesEffect::Boot, false)
        }
        // A file that does not exist on one side cannot be written there.
        Some(ChangeMethod::Command(command)) => {
            let with = |value| Some(command.replace("{}", &shell_quote(&plain(value)?)));
            (with(to)?, with(from)?, TakesEffect::Now, true)
        }
        None => of_key(key, class, from, to)?,
    };
    let risk = known.and_then(|known| known.risk).map(str::to_owned);
    Some(Change { hosts, text, is_command, undo, reach, risk })
}

fn of_key(
    key: &str,
    class: Class,
    from: &Value,
    to: &Value,
) -> Option<(String, String, TakesEffect, bool)> {
    if let Some(parameter) = key.strip_prefix("/proc/cmdline#") {
        let argument = |value: &Value| match value {
            Value::Absent => None,
            Value::Boolean(true) => Some(parameter.to_owned()),
            value => plain(value).map(|value| format!("{parameter}={value}")),
        };
        let step = |from: Option<String>, to: Option<String>| match (from, to) {
            (_, Some(to)) => format!("set `{to}` on the kernel's command line, and boot"),
            (Some(from), None) => format!("take `{from}` off the kernel's command line, and boot"),
            (None, None) => "boot".into(),
        };
        let (from, to) = (argument(from), argument(to));
        return Some((step(from.clone(), to.clone()), step(to, from), TakesEffect::Boot, false));
    }
    if let Some(module) = key.strip_prefix("/proc/modules#") {
        let module = shell_quote(module);
        let step = |value: &Value| match value {
            Value::Absent => format!("sudo modprobe -r -- {module}"),
            _ => format!("sudo modprobe -- {module}"),
        };
        return Some((step(to), step(from), TakesEffect::Now, true));
    }
    if class != Class::Configuration || key.contains('#') {
        return None;
    }
    let (from, to) = (plain(from)?, plain(to)?);
    if let Some(name) = key.strip_prefix("/proc/sys/") {
        let step = |value: &str| {
            format!(
                "sudo sysctl -w {}",
                shell_quote(&format!("{}={value}", name.replace('/', ".")))
            )
        };
        return Some((step(&to), step(&from), TakesEffect::Now, true));
    }
    if !key.starts_with("/sys/") {
        return None;
    }
    let file = glob(key);
    let step = |value: &str| format!("echo {} | sudo tee {file}", shell_quote(value));
    Some((step(&to), step(&from), TakesEffect::Now, true))
}

/// A key as a quoted word of the shell in which `*` remains a pattern.
fn glob(key: &str) -> String {
    let words: Vec<_> = key
        .split('*')
        .map(|part| if part.is_empty() { String::new() } else { shell_quote(part).into_owned() })
        .collect();
    words.join("*")
}
