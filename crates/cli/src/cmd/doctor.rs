// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr doctor`: shows facts about this host, what each source of records can see here, and which findings are
//! possible with that. The sources are opened and closed as in a session: what works here works there.

use super::show;
use crate::args::{Asked, Color};
use crate::clock::{self, WindowClock};
use crate::collect::{Beat, BeatTime, Context, Roots};
use crate::facts::{self, BpfFacts, CgroupFacts, Facts, Throttling};
use crate::failure::Exit;
use crate::{output, sources};
use deburr_bpf::facts::facts;
use deburr_bpf::profile::ProfilePlan;
use deburr_bpf::syscalls::SyscallPlan;
use deburr_core::finding::Tool;
use deburr_core::recording::{CgroupVersion, Record, Source, State, TargetSpec};
use deburr_core::render::{self, Section, TextStyle};
use deburr_core::rules::{Check, RULES, Rule};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

const SCHEMA: &str = "deburr.doctor/1";

/// The document of `deburr doctor --json`.
#[derive(Debug, Serialize)]
struct DoctorDocument {
    schema: &'static str,
    tool: Tool,
    facts: Facts,
    sources: Vec<SourceLine>,
    findings: Vec<FindingLine>,
}

/// A source, and whether it works here.
#[derive(Debug, Serialize)]
struct SourceLine {
    source: Source,
    label: &'static str,
    #[serde(flatten)]
    state: SourceState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum SourceState {
    Opened(State),
    /// Not opened: a source that shows more works here, or this one is active only on request.
    Spared {
        state: &'static str,
        reason: String,
    },
}

/// Whether a finding is possible here.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct FindingLine {
    code: &'static str,
    name: &'static str,
    possible: Availability,
    /// Missing or partial sources that the finding needs, or that would make it more certain.
    without: Vec<Source>,
    /// The command that makes the finding, if it is not one of an observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Availability {
    Yes,
    Partly,
    No,
}

/// Arguments of `deburr doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON document (schema deburr.doctor/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Use colour [default: auto]
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub(crate) color: Color,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let mut cx = Context::new(Roots::default(), TargetSpec::Host, Asked::default());
    let facts = facts::look(&mut cx);
    let states = states(&mut cx);
    let checkup = DoctorDocument {
        schema: SCHEMA,
        tool: Tool { version: env!("CARGO_PKG_VERSION").into() },
        facts,
        sources: source_lines(&states),
        findings: RULES.iter().map(|rule| finding_line(rule, &states)).collect(),
    };
    let text = if args.json {
        render::json_document(&checkup)?
    } else {
        text(&checkup, show::page(args.color))
    };
    output::print(text.as_bytes())?;
    Ok(Exit::Done)
}

/// Opens every source as a session does, takes the state that it reports, and closes it.
fn states(cx: &mut Context) -> BTreeMap<Source, State> {
    let (running, missing) = sources::open(cx);
    cx.window = WindowClock::starting_at(clock::monotonic_ns());
    let mut states: BTreeMap<Source, State> = missing.into_iter().collect();
    states.insert(Source::Observer, State::Active);
    // Only planned, not attached: that would slow down every system call of this host.
    if let Err(reason) = SyscallPlan::new(&facts()) {
        states.insert(Source::Syscalls, State::Missing { reason, gain: String::new() });
    }
    if let Err(reason) = ProfilePlan::new(&facts()) {
        states.insert(Source::Profile, State::Missing { reason, gain: String::new() });
    }
    for mut source in running {
        let mut emit = |record| {
            if let Record::Coverage(coverage) = record {
                states.insert(coverage.source, coverage.state);
            }
        };
        let now = BeatTime { t_ns: 0, beat: Beat::Start };
        if let Err(error) = source.collector.beat(cx, now, &mut emit) {
            for of in source.sources {
                let reason = format!("{error:#}");
                states.insert(*of, State::Missing { reason, gain: String::new() });
            }
        }
    }
    states
}

fn source_lines(states: &BTreeMap<Source, State>) -> Vec<SourceLine> {
    let line = |source: Source| SourceLine {
        source,
        label: source.label(),
        state: match states.get(&source) {
            Some(state) => SourceState::Opened(state.clone()),
            None if source == Source::CpuCheck => SourceState::Spared {
                state: "asked for",
                reason: "it loads the CPUs: `deburr cpu-check` measures it".into(),
            },
            None if source == Source::Syscalls => SourceState::Spared {
                state: "asked for",
                reason: "it makes every system call a little slower: `--syscalls` counts them"
                    .into(),
            },
            None if source == Source::Profile => SourceState::Spared {
                state: "asked for",
                reason:
                    "it names the functions in which CPU time is spent: `--profile` samples them"
                        .into(),
            },
            None => SourceState::Spared {
                state: "spared",
                reason: format!("stands in where there is no {}", Source::Sched.label()),
            },
        },
    };
    Source::ALL.into_iter().map(line).collect()
}

fn finding_line(rule: &Rule, states: &BTreeMap<Source, State>) -> FindingLine {
    let sees = |source: &Source| {
        // A source that is active only on request counts as available unless it is known to be missing.
        source.is_asked_for() && !states.contains_key(source)
            || matches!(states.get(source), Some(State::Active | State::Partial { .. }))
    };
    let lacks = |source: &&Source| !matches!(states.get(*source), Some(State::Active) | None);
    // The rule uses the first source that is available; those before it would be better.
    let best = rule.any_of.iter().position(sees);
    let needed = &rule.any_of[..best.map_or(rule.any_of.len(), |best| best + 1)];
    let possible = match best {
        None if !rule.any_of.is_empty() => Availability::No,
        _ if needed.iter().any(|source| lacks(&source)) => Availability::Partly,
        _ => Availability::Yes,
    };
    let without: BTreeSet<Source> =
        needed.iter().chain(rule.helps).filter(lacks).copied().collect();
    FindingLine {
        code: rule.code,
        name: rule.name,
        possible,
        without: without.into_iter().collect(),
        command: matches!(rule.check, Check::Hosts(_)).then_some("deburr diff"),
    }
}

fn text(checkup: &DoctorDocument, style: TextStyle) -> String {
    let DoctorDocument { facts, sources, findings, .. } = checkup;
    let headline = format!(
        "deburr {} on `{}`, kernel {}, CPUs {}",
        checkup.tool.version, facts.host, facts.kernel, facts.cpus_online
    );
    let section = |heading: &str, rows| Section { heading: heading.into(), rows };
    let sources = sources.iter().map(|line| {
        let (state, reason) = match &line.state {
            SourceState::Spared { state, reason } => (*state, reason.clone()),
            SourceState::Opened(State::Active) => ("works", String::new()),
            SourceState::Opened(State::Partial { reason }) => ("in part", reason.clone()),
            SourceState::Opened(State::Missing { reason, gain }) if gain.is_empty() => {
                ("missing", reason.clone())
            }
            SourceState::Opened(State::Missing { reason, gain }) => {
                ("missing", format!("{reason}; {gain}"))
            }
        };
        vec![line.label.into(), state.into(), reason]
    });
    let findings = findings.iter().map(|line| {
        let possible = match line.possible {
            Availability::Yes => "yes",
            Availability::Partly => "in part",
            Availability::No => "no",
        };
        let without: Vec<&str> = line.without.iter().map(|source| source.label()).collect();
        let reason = match (line.command, &without[..]) {
            (Some(command), _) => format!("`{command}` compares snapshots of hosts"),
            (None, []) => String::new(),
            (None, _) => format!("without {}", without.join(", ")),
        };
        vec![format!("{} {}", line.code, line.name), possible.into(), reason]
    });
    let sections = [
        section("facts", fact_rows(facts)),
        section("sources", sources.collect()),
        section("findings that can be made", findings.collect()),
    ];
    render::sheet(&headline, &sections, style)
}

fn fact_rows(facts: &Facts) -> Vec<Vec<String>> {
    let Facts { bpf, cgroups, .. } = facts;
    let user = match bpf.privileged {
        true => format!("effective uid {}; may load BPF programs", facts.effective_uid),
        false => format!(
            "effective uid {}; may not load BPF programs: that takes root, or CAP_BPF and CAP_PERFMON",
            facts.effective_uid
        ),
    };
    let processes = match (facts.others_hidden, bpf.initial_pid_namespace) {
        (true, _) => "`/proc` hides those of other users (`hidepid`): run as root to see them",
        (false, true) => "`/proc` shows all",
        (false, false) => "`/proc` shows those of this pid namespace only",
    };
    let mut rows = vec![("user", user), ("processes", processes.into())];
    rows.extend(bpf_rows(bpf));
    rows.push(("cgroups", cgroup_row(cgroups)));
    rows.into_iter().map(|(name, value)| vec![name.into(), value]).collect()
}

fn bpf_rows(bpf: &BpfFacts) -> Vec<(&'static str, String)> {
    if let Some(error) = &bpf.btf_error {
        return vec![("kernel types (BTF)", error.clone())];
    }
    let hooks: Vec<String> = bpf.hooks.iter().map(|hook| format!("`{hook}`")).collect();
    let probe = match &bpf.refusal {
        Some(refusal) => format!("cannot be used: {refusal}"),
        None => format!("attaches to {}", hooks.join(" and ")),
    };
    let arguments = match bpf.sched_switch_arguments {
        Some(n) => format!("`sched_switch` has {n} arguments"),
        None => "there is no `sched_switch`".into(),
    };
    let fields = match bpf.missing_fields.join("`, `") {
        none if none.is_empty() => "every field that is needed is there".into(),
        some => format!("there is no `{some}`"),
    };
    let throttling = match bpf.throttling {
        Throttling::Unknown => "no CFS bandwidth control: it cannot be told from queueing",
        Throttling::ByGroup => {
            "the kernel tells it from queueing; a group leaves the queue as a whole"
        }
        Throttling::ByThread => {
            "the kernel tells it from queueing; threads leave the queue one by one"
        }
    };
    let iterator = match bpf.task_iterator {
        true => "threads that do not run are listed at the start",
        false => "threads are known once they run: no BPF task iterator",
    };
    vec![
        ("kernel types (BTF)", format!("{arguments}; {fields}")),
        ("scheduler probe", probe),
        ("throttling", throttling.into()),
        ("threads", iterator.into()),
    ]
}

fn cgroup_row(cgroups: &CgroupFacts) -> String {
    let Some(mount_point) = &cgroups.mount_point else {
        return "no tree is mounted".into();
    };
    let controller = match cgroups.cpu_controller {
        Some(CgroupVersion::V1) => format!("the cpu controller is v1, at `{mount_point}`"),
        Some(CgroupVersion::V2) => format!("the cpu controller is v2, at `{mount_point}`"),
        None => "no mounted tree has the cpu controller".into(),
    };
    let sight = match cgroups.whole {
        true => "in sight from the root",
        false => "only a part is in sight: limits above it are unknown",
    };
    let quota = if cgroups.quota_in_use { "some quota" } else { "no quota" };
    let containers = match cgroups.containers {
        1 => "1 container".into(),
        n => format!("{n} containers"),
    };
    format!("{}; {controller}; {sight}; {quota}, {containers}", cgroups.layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_core::rules;

    fn missing() -> State {
        State::Missing { reason: "no".into(), gain: "more".into() }
    }

    fn line(code: &str, states: &[(Source, State)]) -> (Availability, Vec<Source>) {
        let all = Source::ALL.into_iter().map(|source| (source, State::Active));
        let mut states: BTreeMap<Source, State> = all.chain(states.iter().cloned()).collect();
        if states[&Source::Sched] == State::Active {
            states.remove(&Source::Schedstat);
        }
        let line = finding_line(rules::find(code).unwrap(), &states);
        (line.possible, line.without)
    }

    #[test]
    fn what_can_be_found_follows_from_what_can_be_seen() {
        assert_eq!(line("SCH001", &[]), (Availability::Yes, vec![]));
        let blind = [(Source::Sched, missing()), (Source::Timeline, missing())];
        assert_eq!(
            line("SCH001", &blind),
            (Availability::Partly, vec![Source::Sched, Source::Timeline])
        );
        let blinder = [blind[0].clone(), (Source::Schedstat, missing())];
        let (possible, without) = line("SCH001", &blinder);
        assert_eq!(
            (possible, &without[..2]),
            (Availability::No, &[Source::Sched, Source::Schedstat][..])
        );
        assert_eq!(line("SCH003", &blind).0, Availability::No);
        let partial = State::Partial { reason: "some".into() };
        assert_eq!(line("SCH001", &[(Source::Sched, partial)]).0, Availability::Partly);
        // More certain with it, possible without.
        assert_eq!(
            line("SCH001", &[(Source::Psi, missing())]),
            (Availability::Yes, vec![Source::Psi])
        );
    }

    #[test]
    fn every_fact_is_a_row_whatever_it_is() {
        let mut facts = Facts {
            host: "vm".into(),
            kernel: "6.1".into(),
            cpus_online: "0-1".into(),
            effective_uid: 1000,
            others_hidden: true,
            bpf: BpfFacts {
                privileged: false,
                btf_error: None,
                initial_pid_namespace: false,
                sched_switch_arguments: None,
                missing_fields: vec!["rq.clock".into(), "rq.cpu".into()],
                throttling: Throttling::Unknown,
                throttle_clock: None,
                task_iterator: false,
                hooks: vec![],
                refusal: Some("BPF programs need root".into()),
            },
            cgroups: CgroupFacts {
                layout: "none",
                cpu_controller: None,
                mount_point: None,
                whole: false,
                quota_in_use: false,
                containers: 0,
            },
        };
        let rows = |facts: &Facts| {
            let rows = fact_rows(facts);
            assert!(rows.iter().all(|row| row.len() == 2 && !row[1].is_empty()), "{rows:?}");
            rows.concat().join("\n")
        };
        let text = rows(&facts);
        assert!(text.contains("`rq.clock`, `rq.cpu`") && text.contains("`hidepid`"), "{text}");
        assert!(text.contains("cannot be used: BPF programs need root"), "{text}");
        facts.bpf.btf_error = Some("/sys/kernel/btf/vmlinux: not there".into());
        assert!(rows(&facts).contains("vmlinux: not there"));
    }
}
