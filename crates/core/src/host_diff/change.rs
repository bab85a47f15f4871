// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ChangeMethod to examine a fact, and how to change it to the value of another host: commands, and how to undo them.

use super::document::{Change, TakesEffect};
use super::knowledge::{ChangeMethod, Knowledge};
use super::value_text::plain;
use crate::snapshot::{Class, Value, whitelist};
use crate::text::{Target, fits, setting_value, shell_quote};

/// The command to examine a fact.
pub(super) fn look(key: &str, known: Option<&Knowledge>) -> String {
    if let Some(command) = known.and_then(|known| known.look) {
        return command.to_owned();
    }
    let (file, part) = key.split_once('#').unwrap_or((key, ""));
    // A fact that this version does not read may be anything.
    let file = whitelist::find(key).and_then(|_| readable(file));
    let Some(file) = file else { return "deburr snapshot".into() };
    match part {
        "" if file.path().contains('*') => format!("grep . {file}"),
        "" => format!("cat {file}"),
        part => format!("grep -F -e {} {file}", shell_quote(part)),
    }
}

/// ChangeMethod to change a fact of `hosts` from one value to another; `None` if that is not possible.
pub(super) fn change(
    key: &str,
    class: Class,
    known: Option<&Knowledge>,
    hosts: Vec<String>,
    (from, to): (&Value, &Value),
) -> Option<Change> {
    let how = known.and_then(|known| known.change);
    let Steps { text, undo, reach, is_command } = match how {
        Some(ChangeMethod::Machine) => return None,
        Some(ChangeMethod::Firmware(text)) => Steps {
            text: text.to_owned(),
            undo: "the setting that it had".into(),
            reach: TakesEffect::Firmware,
            is_command: false,
        },
        Some(ChangeMethod::Boot(text)) => {
            Steps::at_boot(text.to_owned(), "what was there before, and boot".into())
        }
        // A file that does not exist on one side cannot be written there.
        Some(ChangeMethod::Command(command)) => {
            let with =
                |value| Some(command.replace("{}", &shell_quote(setting_value(&plain(value)?)?)));
            Steps::now(with(to)?, with(from)?)
        }
        None => of_key(key, class, pattern(key, known)?, (from, to))?,
    };
    let risk = known.and_then(|known| known.risk).map(str::to_owned);
    Some(Change { hosts, text, is_command, undo, reach, risk })
}

/// How to change a fact, and how to undo that.
struct Steps {
    text: String,
    undo: String,
    reach: TakesEffect,
    is_command: bool,
}

impl Steps {
    /// Commands, which take effect at once.
    fn now(text: String, undo: String) -> Self {
        Self { text, undo, reach: TakesEffect::Now, is_command: true }
    }

    /// Instructions, which take effect after a boot.
    fn at_boot(text: String, undo: String) -> Self {
        Self { text, undo, reach: TakesEffect::Boot, is_command: false }
    }
}

/// The pattern of the table of what is known that a key fits; `None` for what is not in the table, or there only as one
/// of all modules, parameters or settings of a kind: such a difference is shown, and no command changes it.
fn pattern(key: &str, known: Option<&Knowledge>) -> Option<&'static str> {
    let pattern = known?.keys.iter().find(|pattern| fits(pattern, key))?;
    (!["#*", "/parameters/*"].iter().any(|any| pattern.ends_with(any))).then_some(*pattern)
}

fn of_key(key: &str, class: Class, pattern: &str, (from, to): (&Value, &Value)) -> Option<Steps> {
    if let Some(parameter) = key.strip_prefix("/proc/cmdline#") {
        return of_parameter(parameter, from, to);
    }
    if let Some(module) = key.strip_prefix("/proc/modules#") {
        // A module that the table has by its full name, so that no other one is loaded.
        if pattern.contains('*') {
            return None;
        }
        let step = |value: &Value| match value {
            Value::Absent => format!("sudo modprobe -r -- {module}"),
            _ => format!("sudo modprobe -- {module}"),
        };
        return Some(Steps::now(step(to), step(from)));
    }
    if class != Class::Configuration || key.contains('#') {
        return None;
    }
    let file = Target::of_kernel(key, &[pattern])?;
    let (from, to) = (plain(from)?, plain(to)?);
    let (from, to) = (setting_value(&from)?, setting_value(&to)?);
    if let Some(name) = file.path().strip_prefix("/proc/sys/") {
        // The name of an interface may have dots.
        let name = if name.contains('.') { name.to_owned() } else { name.replace('/', ".") };
        let step =
            |value: &str| format!("sudo sysctl -w {}", shell_quote(&format!("{name}={value}")));
        return Some(Steps::now(step(to), step(from)));
    }
    if !file.path().starts_with("/sys/") {
        return None;
    }
    let step = |value: &str| format!("echo {} | sudo tee {file}", shell_quote(value));
    Some(Steps::now(step(to), step(from)))
}

/// Instructions for a parameter of the kernel's command line.
fn of_parameter(parameter: &str, from: &Value, to: &Value) -> Option<Steps> {
    setting_value(parameter)?;
    // `None` if it has a value that cannot be one.
    let argument = |value: &Value| match value {
        Value::Absent => Some(None),
        Value::Boolean(true) => Some(Some(parameter.to_owned())),
        value => match plain(value) {
            None => Some(None),
            Some(value) => Some(Some(format!("{parameter}={}", setting_value(&value)?))),
        },
    };
    let step = |from: &Option<String>, to: &Option<String>| match (from, to) {
        (_, Some(to)) => format!("set `{to}` on the kernel's command line, and boot"),
        (Some(from), None) => format!("take `{from}` off the kernel's command line, and boot"),
        (None, None) => "boot".into(),
    };
    let (from, to) = (argument(from)?, argument(to)?);
    Some(Steps::at_boot(step(&from, &to), step(&to, &from)))
}

/// A file of a host that a command may show.
fn readable(file: &str) -> Option<Target> {
    const PLACES: [&str; 6] =
        ["/etc/", "/boot/", "/usr/lib/", "/var/lib/", "/run/", "/lib/modprobe.d/"];
    let below = |place: &'static str| Target::plain(place, file.strip_prefix(place)?);
    let of_kernel = Target::of_kernel(file, &["/proc/*", "/sys/*"]);
    of_kernel.or_else(|| PLACES.into_iter().find_map(below))
}
