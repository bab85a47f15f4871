// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses the commands of remedies without a shell. Only the forms and programs that remedies consist of are
//! accepted.

use anyhow::{Context as _, Result, bail, ensure};

/// Programs that remedies run on processes or threads given by number.
const PROGRAMS: [&str; 4] = ["chrt", "ionice", "renice", "taskset"];

/// One step of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Writes a value to a file.
    Write {
        /// Path of the file.
        file: String,
        value: String,
    },
    /// Runs a program with arguments.
    Run {
        /// The program, then its arguments.
        words: Vec<String>,
    },
}

/// The steps of a command, in order. An error if it has none of the forms of remedies.
pub(super) fn steps(command: &str) -> Result<Vec<Step>> {
    steps_with(command, &threads_of)
}

fn steps_with(command: &str, threads_of: &dyn Fn(u32) -> Vec<u32>) -> Result<Vec<Step>> {
    if let Some(rest) = command.strip_prefix("for p in ") {
        let (pids, body) = rest.split_once("; do ").context("a loop without `do`")?;
        let body = body.strip_suffix("; done").context("a loop without `done`")?;
        let once = |pid: &str| {
            let pid: u32 = pid.parse().context("a loop over what is no pid")?;
            steps_with(&body.replace("$p", &pid.to_string()), threads_of)
        };
        let steps: Result<Vec<_>> = pids.split(' ').map(once).collect();
        return Ok(steps?.concat());
    }
    let expanded = expanded(command, threads_of)?;
    let words = words(&expanded)?;
    let of: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(vec![match of.as_slice() {
        ["echo", value, ">", file] => {
            Step::Write { file: (*file).to_owned(), value: (*value).to_owned() }
        }
        ["sysctl", "-w", setting] => {
            let (key, value) = setting.split_once('=').context("`sysctl` without a value")?;
            let file = format!("/proc/sys/{}", key.replace('.', "/"));
            Step::Write { file, value: value.to_owned() }
        }
        [program, ..] if PROGRAMS.contains(program) => Step::Run { words },
        _ => bail!("`{command}` is nothing that the lab applies"),
    }])
}

/// The process and thread ids that such a command changes.
pub(super) fn subjects(words: &[String]) -> Vec<u32> {
    // They come last. `taskset -acp LIST PID` and `chrt -o -p 0 PID` have only one, after the argument of an option.
    let numbers = words.iter().rev().map_while(|word| word.parse().ok());
    match words.first().map(String::as_str) {
        Some("renice" | "ionice") => numbers.collect(),
        _ => numbers.take(1).collect(),
    }
}

/// Replaces `$(ps -Lo tid= -p 7,8)` by the thread ids of these processes.
fn expanded(command: &str, threads_of: &dyn Fn(u32) -> Vec<u32>) -> Result<String> {
    let Some((before, rest)) = command.split_once("$(ps -Lo tid= -p ") else {
        return Ok(command.to_owned());
    };
    let (pids, after) = rest.split_once(')').context("an open `$(`")?;
    let pids: Vec<u32> = pids.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let tids: Vec<String> =
        pids.into_iter().flat_map(threads_of).map(|tid| tid.to_string()).collect();
    ensure!(!tids.is_empty(), "none of the processes is there any more");
    Ok(format!("{before}{}{after}", tids.join(" ")))
}

/// The words of a command. Single quotes keep their content together.
fn words(command: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quoted, mut any) = (vec![], String::new(), false, false);
    for c in command.chars() {
        match c {
            '\'' => (quoted, any) = (!quoted, true),
            ' ' if !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            '$' | '`' | ';' | '&' | '|' | '\\' | '"' if !quoted => {
                bail!("`{c}` in `{}`", command.escape_debug())
            }
            c => {
                word.push(c);
                any = true;
            }
        }
    }
    ensure!(!quoted, "an open quote in `{}`", command.escape_debug());
    if any {
        words.push(word);
    }
    Ok(words)
}

fn threads_of(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str) -> Result<Vec<Step>> {
        steps_with(command, &|pid| vec![pid, pid + 1])
    }

    fn run(words: &str) -> Step {
        Step::Run { words: words.split(' ').map(str::to_owned).collect() }
    }

    #[test]
    fn the_forms_of_remedies_are_understood() {
        let write =
            |file: &str, value: &str| Step::Write { file: file.into(), value: value.into() };
        let cases = [
            (
                "echo 1000 > /sys/fs/cgroup/a/cpu.weight",
                vec![write("/sys/fs/cgroup/a/cpu.weight", "1000")],
            ),
            (
                "echo '50000 100000' > '/sys/fs/cgroup/a b/cpu.max'",
                vec![write("/sys/fs/cgroup/a b/cpu.max", "50000 100000")],
            ),
            (
                "sysctl -w kernel.sched_rt_runtime_us=500000",
                vec![write("/proc/sys/kernel/sched_rt_runtime_us", "500000")],
            ),
            ("renice -n 10 -p $(ps -Lo tid= -p 7,20)", vec![run("renice -n 10 -p 7 8 20 21")]),
            (
                "for p in 7 8; do taskset -acp 0-1 $p; done",
                vec![run("taskset -acp 0-1 7"), run("taskset -acp 0-1 8")],
            ),
            ("chrt -o -p 0 42", vec![run("chrt -o -p 0 42")]),
        ];
        for (command, should) in cases {
            assert_eq!(of(command).unwrap(), should, "{command}");
        }
    }

    #[test]
    fn what_no_remedy_says_is_not_done() {
        for command in [
            "rm -rf /",
            "echo 1 > /a; reboot",
            "echo $(reboot) > /a",
            "renice -n 1 -p $(ps -Lo tid= -p 7;reboot)",
            "for p in $(reboot); do taskset -acp 1 $p; done",
            "echo 1 > 'a",
            "",
        ] {
            assert!(of(command).is_err(), "{command}");
        }
    }

    #[test]
    fn whom_a_command_changes_is_known() {
        let subjects = |command: &str| match &of(command).unwrap()[0] {
            Step::Run { words } => subjects(words),
            Step::Write { .. } => vec![],
        };
        assert_eq!(subjects("renice -n 10 -p 7 8"), [8, 7]);
        assert_eq!(subjects("chrt -a -o -p 0 42"), [42]);
        assert_eq!(subjects("taskset -acp 1 42"), [42]);
    }
}
