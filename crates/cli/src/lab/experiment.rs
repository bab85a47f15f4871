// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What scenario files say of experiments: arguments of `deburr prove`, with placeholders for what is known only while the
//! scenario runs, and the result that must come out.

use crate::args;
use anyhow::{Context as _, Result, bail, ensure};
use deburr_core::prove::knob::Knob;
use deburr_core::prove::measure::Measure;
use deburr_core::prove::verdict::Verdict;
use deburr_core::recording::CgroupVersion;
use deburr_core::rules;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Placeholder of the victim's process id.
const VICTIM: &str = "victim";
/// Placeholder of the path of the lab's cgroup.
const LAB: &str = "lab";
/// Placeholder of the list of the CPUs that the lab may use.
const CPUS: &str = "cpus";
/// Placeholder of the file of the victim's program.
const PROGRAM: &str = "program";

/// An experiment on a running scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExperimentSpec {
    /// Arguments of `deburr prove`, apart from the target and the form of the output.
    pub(crate) run: Arguments,
    /// Variables in its environment, which a command that it starts inherits.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// The result that it must have.
    pub(crate) expect: Expected,
}

/// The result of an experiment that decides something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Expected {
    Confirmed,
    Refuted,
}

impl Expected {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
        }
    }

    /// Whether a result is this one.
    pub(crate) fn is(self, verdict: Verdict) -> bool {
        match self {
            Self::Confirmed => verdict == Verdict::Confirmed,
            Self::Refuted => verdict == Verdict::Refuted,
        }
    }
}

/// Arguments of `deburr prove` that can be valid once their placeholders are replaced: `{victim}` is a process id, `{lab}`
/// the path of the lab's cgroup, `{cpus}` the CPUs that the lab may use, `{program}` the victim's program, and any other
/// name, in `--set`, stands for the processes of the fault with that comm.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct Arguments {
    /// The finding's code.
    code: Option<String>,
    /// The options with their values.
    options: Vec<(&'static str, String)>,
    /// The command that it starts; may be empty.
    command: Vec<String>,
}

/// Rejects a value of an option.
type Check = fn(&str) -> Result<()>;

/// The options that a scenario may give, and what their values must be. The lab gives the others.
const OPTIONS: [(&str, Check); 11] = [
    (SET, |value| knob(&filled(value, |name| Ok(example(name)))?)),
    ("--follow", |value| knob(&format!("{value}=1"))),
    ("--lever", |_| Ok(())),
    ("--measure", |value| Ok(value.parse::<Measure>().map(drop)?)),
    ("--probe", |_| Ok(())),
    ("--least", |value| {
        let percent = value.parse().ok().filter(|it: &u8| (1..=100).contains(it));
        percent.map(drop).context("it must be 1 to 100")
    }),
    ("--block", time),
    ("--duration", time),
    ("--warmup", time),
    (CGROUP, |value| filled(value, |name| Ok(example(name))).map(drop)),
    ("--seed", |value| Ok(value.parse::<u32>().map(drop)?)),
];
const SET: &str = "--set";
const CGROUP: &str = "--cgroup";

fn knob(text: &str) -> Result<()> {
    Ok(Knob::parse(text).map(drop)?)
}

fn time(text: &str) -> Result<()> {
    args::window(text).map(drop).map_err(anyhow::Error::msg)
}

/// A value that a placeholder could have.
fn example(name: &str) -> String {
    if name == LAB { "/lab".into() } else { "1".into() }
}

/// The text with each `{NAME}` replaced.
fn filled(text: &str, of: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').context("there is a `{` without its `}`")?;
        filled += &of(name)?;
        filled += rest;
    }
    Ok(filled)
}

/// The name of the processes that a setting is about, if it has such a placeholder.
fn comm_in(setting: &str) -> Option<&str> {
    let names = setting.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0));
    names.into_iter().find(|name| ![VICTIM, LAB, CPUS, PROGRAM].contains(name))
}

impl TryFrom<Vec<String>> for Arguments {
    type Error = String;

    fn try_from(words: Vec<String>) -> Result<Self, String> {
        Self::of(words).map_err(|error| format!("{error:#}"))
    }
}

impl Arguments {
    fn of(words: Vec<String>) -> Result<Self> {
        let mut arguments = Self { code: None, options: Vec::new(), command: Vec::new() };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                arguments.command = words.collect();
                ensure!(!arguments.command.is_empty(), "there is no command after `--`");
                break;
            }
            if !word.starts_with('-') {
                ensure!(arguments.code.is_none(), "`{word}`: there is a code already");
                ensure!(
                    rules::with_experiments().any(|code| code == word),
                    "`{word}` is no code of a finding with experiments"
                );
                arguments.code = Some(word);
                continue;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let Some((name, check)) = OPTIONS.into_iter().find(|(known, _)| *known == name) else {
                let known: Vec<&str> = OPTIONS.iter().map(|(known, _)| *known).collect();
                bail!("`{name}` is none of {}", known.join(", "));
            };
            let value =
                value.or_else(|| words.next()).with_context(|| format!("`{name}` has no value"))?;
            check(&value).with_context(|| format!("`{name}`, `{value}`"))?;
            arguments.options.push((name, value));
        }
        let has = |name: &str| arguments.options.iter().any(|(given, _)| *given == name);
        let what = [arguments.code.is_some(), has(SET), has("--follow")];
        ensure!(
            what.into_iter().filter(|it| *it).count() == 1,
            "it has one of a code, `{SET}` and `--follow`"
        );
        ensure!(
            arguments.code.is_some() != has("--measure"),
            "`--measure` goes with `{SET}` and `--follow`, and not with a code"
        );
        ensure!(arguments.code.is_some() || !has("--lever"), "`--lever` goes with a code");
        let starts = arguments.starts_command();
        if let Some(code) = &arguments.code {
            ensure!(
                rules::experiment_starts_command(code) == starts,
                "a command after `--` goes with codes whose experiment starts one, and with `{SET}`"
            );
        }
        ensure!(starts || !has(CGROUP), "`{CGROUP}` goes with a command after `--`");
        Ok(arguments)
    }

    /// Whether it starts a command.
    pub(super) fn starts_command(&self) -> bool {
        !self.command.is_empty()
    }

    /// As one types them, with the placeholders.
    pub(crate) fn shown(&self) -> String {
        let quoted = |value: &str| match value.contains([' ', '{']) {
            true => format!("'{value}'"),
            false => value.to_owned(),
        };
        let options = self.options.iter().map(|(name, value)| format!("{name} {}", quoted(value)));
        let command = (!self.command.is_empty()).then(|| "--".to_owned()).into_iter();
        let command = command.chain(self.command.iter().map(|word| quoted(word)));
        let words = self.code.clone().into_iter().chain(options).chain(command);
        words.collect::<Vec<_>>().join(" ")
    }

    /// The arguments without placeholders. A setting of several processes becomes one for each.
    pub(super) fn expanded(&self, cast: &Cast<'_>) -> Result<Vec<String>> {
        let known = |text: &str, pid: u32| {
            filled(text, |name| {
                Ok(match name {
                    VICTIM => cast.victim.to_string(),
                    LAB => cast.lab.clone(),
                    CPUS => cast.cpus.clone(),
                    PROGRAM => cast.program.clone(),
                    _ => pid.to_string(),
                })
            })
        };
        let mut words: Vec<String> = self.code.iter().cloned().collect();
        for (name, value) in &self.options {
            if *name == CGROUP {
                words.push(format!("{name}={}", known(value, cast.victim)?));
                continue;
            }
            if *name != SET {
                words.push(format!("{name}={value}"));
                continue;
            }
            let pids = match comm_in(value) {
                Some(comm) => (cast.pids)(comm),
                None => vec![cast.victim],
            };
            ensure!(!pids.is_empty(), "`{value}`: no such process runs");
            for pid in pids {
                let setting = known(value, pid)?;
                words.push(format!("{name}={}", of_version(setting, cast.version)));
            }
        }
        if self.starts_command() {
            words.push("--".into());
        }
        for word in &self.command {
            words.push(known(word, cast.victim)?);
        }
        Ok(words)
    }
}

impl ExperimentSpec {
    /// Rejects placeholders of processes that are not among those of the faults, and of a program if the victim has none.
    pub(super) fn validate(&self, comms: &[&str], has_program: bool) -> Result<()> {
        let placeholder = format!("{{{PROGRAM}}}");
        ensure!(
            has_program || !self.run.command.iter().any(|word| word.contains(&placeholder)),
            "`prove.run`: `{placeholder}` needs a `victim.service` whose `program` is built"
        );
        for (_, value) in self.run.options.iter().filter(|(name, _)| *name == SET) {
            if let Some(comm) = comm_in(value) {
                ensure!(
                    comms.contains(&comm),
                    "`prove.run`: `{value}`: `{{{comm}}}` is none of `{{{VICTIM}}}`, `{{{LAB}}}`, `{{{CPUS}}}` and the `comm` of \
                     a fault"
                );
            }
        }
        Ok(())
    }
}

/// What the placeholders stand for in a run.
pub(super) struct Cast<'a> {
    pub(super) victim: u32,
    pub(super) lab: String,
    /// The CPUs that the lab may use, as a list.
    pub(super) cpus: String,
    /// The file of the victim's program, if it has one of its own.
    pub(super) program: String,
    /// The processes of that comm.
    pub(super) pids: &'a dyn Fn(&str) -> Vec<u32>,
    /// The version of the lab's cgroup tree.
    pub(super) version: CgroupVersion,
}

/// A setting as this version of cgroups has it. Scenario files write quotas as v2 does; on v1 the period stays what it is.
fn of_version(setting: String, version: CgroupVersion) -> String {
    match (version, setting.rsplit_once(":cpu.max=")) {
        (CgroupVersion::V1, Some((cgroup, value))) => {
            let quota = value.split(' ').next().unwrap_or_default();
            let quota = if quota == "max" { "-1" } else { quota };
            format!("{cgroup}:cpu.cfs_quota_us={quota}")
        }
        _ => setting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Result<Arguments> {
        Arguments::of(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn expanded(words: &[&str], version: CgroupVersion) -> Vec<String> {
        let pids = |comm: &str| if comm == "suspect" { vec![8, 9] } else { vec![] };
        let cast = Cast {
            victim: 7,
            lab: "/deburr-lab-1".into(),
            cpus: "0-1".into(),
            program: "/bin/sh".into(),
            pids: &pids,
            version,
        };
        arguments(words).unwrap().expanded(&cast).unwrap()
    }

    #[test]
    fn placeholders_become_what_runs() {
        let v2 = CgroupVersion::V2;
        assert_eq!(
            expanded(&["SCH001", "--lever", "pause"], v2),
            ["SCH001", "--lever=pause"].map(str::to_owned)
        );
        assert_eq!(
            expanded(&["--set", "pause:{suspect}=90%", "--measure=queued"], v2),
            ["--set=pause:8=90%", "--set=pause:9=90%", "--measure=queued"].map(str::to_owned)
        );
        assert_eq!(
            expanded(&["--set=nice:{victim}=-5", "--measure", "wait:p99"], v2),
            ["--set=nice:7=-5", "--measure=wait:p99"].map(str::to_owned)
        );
        assert_eq!(
            expanded(&["--set", "affinity:{victim}={cpus}", "--measure", "queued"], v2),
            ["--set=affinity:7=0-1", "--measure=queued"].map(str::to_owned)
        );
    }

    #[test]
    fn a_command_comes_last_and_is_filled_in() {
        let words = ["SCH004", "--cgroup", "{lab}/a", "--", "{program}", "--busy"];
        assert_eq!(
            expanded(&words, CgroupVersion::V2),
            ["SCH004", "--cgroup=/deburr-lab-1/a", "--", "/bin/sh", "--busy"].map(str::to_owned)
        );
        assert_eq!(
            arguments(&words).unwrap().shown(),
            "SCH004 --cgroup '{lab}/a' -- '{program}' --busy"
        );
    }

    #[test]
    fn a_quota_is_written_as_the_tree_has_it() {
        let with = |value: &str, version| {
            let set = format!("cgroup:{{lab}}/a:cpu.max={value}");
            expanded(&["--set", &set, "--measure", "queued"], version).swap_remove(0)
        };
        let (v1, v2) = (CgroupVersion::V1, CgroupVersion::V2);
        let quota = "400000 100000";
        assert_eq!(with(quota, v2), "--set=cgroup:/deburr-lab-1/a:cpu.max=400000 100000");
        assert_eq!(with(quota, v1), "--set=cgroup:/deburr-lab-1/a:cpu.cfs_quota_us=400000");
        assert_eq!(with("max", v1), "--set=cgroup:/deburr-lab-1/a:cpu.cfs_quota_us=-1");
    }

    #[test]
    fn what_cannot_be_an_experiment_is_refused_by_name() {
        let good = ["--set", "pause:{suspect}=90%", "--measure", "queued"];
        assert!(arguments(&good).is_ok());
        for (words, named) in [
            (&[][..], "--follow"),
            (&["SCH009"], "SCH009"),
            (&["OBS001"], "OBS001"),
            (&["SCH001", "SCH002"], "SCH002"),
            (&["SCH001", "--measure", "queued"], "--measure"),
            (&["SCH001", "--json"], "--json"),
            (&["SCH001", "--", "sh"], "`--`"),
            (&["SCH004"], "`--`"),
            (&["SCH004", "--"], "no command"),
            (&["SCH001", "--cgroup", "/a"], "--cgroup"),
            (&["SCH001", "-p"], "-p"),
            (&["SCH001", "--lever"], "--lever"),
            (&["SCH001", "--block", "5x"], "--block"),
            (&["SCH001", "--least", "0"], "--least"),
            (&["SCH001", "--seed", "one"], "--seed"),
            (&["--set", "vm.swappiness=10"], "--measure"),
            (&["--set", "vm.swappiness=10", "--measure", "speed"], "speed"),
            (&["--set", "vm.no_such=10", "--measure", "queued"], "vm.no_such"),
            (&["--set", "pause:{suspect}=95%", "--measure", "queued"], "pause"),
            (&["--set", "pause:{suspect=90%", "--measure", "queued"], "without its `}`"),
            (&["--set", "nice:{victim}=1", "--lever", "a", "--measure", "queued"], "--lever"),
            (&["--follow", "no.such", "--measure", "stall-period"], "no.such"),
        ] {
            let error = format!("{:#}", arguments(words).unwrap_err());
            assert!(error.contains(named), "{words:?}: `{named}` is not in: {error}");
        }
    }

    #[test]
    fn arguments_are_shown_as_one_types_them() {
        let words = ["--set", "pause:{suspect}=90%", "--measure=queued"];
        let shown = arguments(&words).unwrap().shown();
        assert_eq!(shown, "--set 'pause:{suspect}=90%' --measure queued");
        assert_eq!(arguments(&["SCH002"]).unwrap().shown(), "SCH002");
    }

    #[test]
    fn only_a_decision_is_as_expected() {
        use deburr_core::prove::verdict::Reason;
        let undecided = Verdict::Undecided { blocks_more: None };
        let nothing = Verdict::Inconclusive { reason: Reason::SymptomAbsent };
        for (expected, is) in
            [(Expected::Confirmed, Verdict::Confirmed), (Expected::Refuted, Verdict::Refuted)]
        {
            let all = [Verdict::Confirmed, Verdict::Refuted, undecided, nothing];
            assert!(all.into_iter().all(|it| expected.is(it) == (it == is)));
        }
    }
}
