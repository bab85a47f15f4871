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
    // All files of a folder of the administrator's are read by its name: others may give files there any name.
    let (file, all) = match file.strip_suffix("/*").filter(|_| file.starts_with("/etc/")) {
        Some(folder) => (folder, "-r "),
        None => (file, ""),
    };
    // A fact that this version does not read may be anything.
    let file = whitelist::find(key).and_then(|_| readable(file));
    let Some(file) = file else { return "deburr snapshot".into() };
    match part {
        "" if !all.is_empty() => format!("grep -r . {file}"),
        "" if file.path().contains('*') => format!("grep . {file}"),
        "" => format!("cat {file}"),
        part => format!("grep {all}-F -e {} {file}", shell_quote(part)),
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
    // A fact that this version does not read may be anything, and so may one whose name leads elsewhere.
    let is_read = || whitelist::find(key).is_some() && !key.contains("..");
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
            is_read().then_some(())?;
            let with =
                |value| Some(command.replace("{}", &shell_quote(setting_value(&plain(value)?)?)));
            Steps::now(with(to)?, with(from)?)
        }
        None => {
            is_read().then_some(())?;
            of_key(key, class, pattern(key, known)?, (from, to))?
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_diff::knowledge;
    use crate::testkit::commands;
    use proptest::prelude::*;

    /// Parts of keys that lead elsewhere, end a word, or look like the place of another setting.
    const PARTS: [&str; 16] = [
        "..",
        "/..",
        "../",
        "/../../kernel/core_pattern",
        "a..b",
        ".",
        "/",
        "*",
        "#",
        "=",
        " ",
        "\n",
        ";reboot",
        "-w",
        "$(reboot)",
        "eth0.1",
    ];

    /// Every pattern of the two tables, with its variable parts as `*`.
    fn patterns() -> Vec<String> {
        let known = knowledge::TABLES
            .iter()
            .copied()
            .flatten()
            .flat_map(|known| known.keys.iter().copied());
        let read =
            whitelist::entries().iter().map(|entry| entry.key(&[], entry.part).replace("{}", "*"));
        known.map(str::to_owned).chain(read).collect()
    }

    /// Keys that fit a pattern, nearly fit it, or fit none.
    fn keys() -> impl Strategy<Value = String> {
        let part = || {
            prop_oneof![
                4 => "[a-z0-9_]{1,6}".prop_map(|text: String| text),
                4 => prop::sample::select(&PARTS[..]).prop_map(str::to_owned),
                1 => "[ -~]{0,8}".prop_map(|text: String| text),
            ]
        };
        let fitting = (prop::sample::select(patterns()), prop::collection::vec(part(), 1..4))
            .prop_map(|(pattern, parts)| {
                let mut parts = parts.into_iter().cycle();
                pattern
                    .split('*')
                    .map(str::to_owned)
                    .reduce(|a, b| a + &parts.next().unwrap_or_default() + &b)
                    .unwrap_or_default()
            });
        let spoilt = (prop::sample::select(patterns()), any::<prop::sample::Index>(), part())
            .prop_map(|(pattern, at, part)| {
                let mut key = pattern.replace('*', "0");
                let at = at.index(key.len() + 1);
                key.insert_str(at, &part);
                key
            });
        let place = prop::sample::select(
            &["/proc/sys/", "/sys/", "/proc/modules#", "/proc/cmdline#", "/etc/", ""][..],
        );
        let unknown = (place, prop::collection::vec(part(), 0..5))
            .prop_map(|(place, parts)| format!("{place}{}", parts.join("/")));
        prop_oneof![3 => fitting, 2 => spoilt, 2 => unknown]
    }

    fn values() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Absent),
            any::<i32>().prop_map(|number| Value::text(number.to_string())),
            any::<bool>().prop_map(Value::Boolean),
            prop::sample::select(&PARTS[..]).prop_map(Value::text),
        ]
    }

    /// The file that a command of [`of_key`] writes.
    fn written(command: &str) -> Option<String> {
        let unquoted = |text: &str| text.trim_matches('\'').to_owned();
        if let Some(setting) = command.strip_prefix("sudo sysctl -w ") {
            let setting = unquoted(setting);
            let (name, _) = setting.split_once('=')?;
            let path = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
            return Some(format!("/proc/sys/{path}"));
        }
        command.split_once("| sudo tee ").map(|(_, file)| unquoted(file))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn only_what_both_tables_have_is_changed_by_a_command(key in keys(), from in values(), to in values()) {
            let known = knowledge::find(&key);
            let class = whitelist::find(&key).map_or(Class::Configuration, |entry| entry.class);
            let made = change(&key, class, known, vec![], (&from, &to));
            for change in made.iter().filter(|change| change.is_command) {
                prop_assert!(known.is_some() && whitelist::find(&key).is_some(), "{key}: {}", change.text);
                prop_assert!(!key.contains(".."), "{key}: {}", change.text);
                for command in [&change.text, &change.undo] {
                    prop_assert_eq!(commands::fault(command), None, "{}", key);
                    // The table's own commands may write another file than that of the fact.
                    let is_own = known.is_some_and(|known| known.change.is_some());
                    if let Some(file) = written(command).filter(|_| !is_own) {
                        prop_assert_eq!(&file, &key, "{}", command);
                    }
                }
            }
            prop_assert_eq!(commands::fault(&look(&key, None)), None, "{}", key);
        }
    }

    /// As they are in the tables, where `*` stands for the variable parts.
    #[test]
    fn every_key_of_the_tables_is_examined_by_a_safe_command() {
        for key in patterns() {
            let command = look(&key, None);
            assert_eq!(commands::fault(&command), None, "{key}: {command}");
        }
    }

    #[test]
    fn a_fact_of_the_tables_is_changed_by_a_command() {
        let number = |text: &str| Value::text(text);
        for (key, command) in [
            ("/proc/sys/vm/dirty_ratio", "sudo sysctl -w 'vm.dirty_ratio=10'"),
            ("/sys/block/*/queue/nr_requests", "echo 10 | sudo tee /sys/block/*/queue/nr_requests"),
        ] {
            let change = change(
                key,
                Class::Configuration,
                knowledge::find(key),
                vec![],
                (&number("5"), &number("10")),
            );
            assert_eq!(change.map(|change| change.text).as_deref(), Some(command));
        }
    }
}
