// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two tables that are made for the export, for questions about many hosts: what the rules say of a recording, and
//! what is known of the host.
//!
//! A rate needs a denominator. So `finding` has a row for every rule, also for those that found nothing and for those that
//! could not look.

use super::schema::{Field, From, Holds, Kind, Unit};
use super::{Cell, Head};
use deburr_core::finding::{Cost, Entity, Finding, Ledger, Report};
use deburr_core::recording::{Setting, TargetSpec};
use deburr_core::snapshot::{self, Fact, Snapshot, Value};
use deburr_core::view::View;
use jiff::Timestamp;
use serde::Serialize;

/// Name of the table of what the rules say.
pub(crate) const FINDING: &str = "finding";
/// Name of the table of facts about hosts.
pub(crate) const FACT: &str = "fact";

/// A column that is never null.
const fn always(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    holds: Holds,
    meaning: &'static str,
) -> Field {
    Field { name, kind, nullable: false, unit, holds, from: From::Made(meaning) }
}

/// A column that may be null.
const fn or_null(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    holds: Holds,
    meaning: &'static str,
) -> Field {
    Field { name, kind, nullable: true, unit, holds, from: From::Made(meaning) }
}

use Holds::{Identity, Level, Maximum, Moment, Statistic};
use Kind::{Integer, Json, Real, Text, Time};

pub(super) const FINDING_COLUMNS: &[Field] = &[
    always("host", Text, Unit::None, Identity, "`uname -n`"),
    or_null(
        "boot_id",
        Text,
        Unit::None,
        Identity,
        "`/proc/sys/kernel/random/boot_id`: changes with every boot; null = recorded before that was kept",
    ),
    or_null("start_wall", Time, Unit::None, Moment, "start of the window"),
    always("window_ns", Integer, Unit::Ns, Holds::Amount, "length of the window"),
    always("recorded_by", Text, Unit::None, Holds::Fact, "version of `deburr` that recorded"),
    always(
        "judged_by",
        Text,
        Unit::None,
        Holds::Fact,
        "version of `deburr` whose rules these are: that of the export",
    ),
    always("kernel", Text, Unit::None, Holds::Fact, "`uname -r`"),
    always("cpus", Integer, Unit::Count, Holds::Fact, "online CPUs at the start"),
    always(
        "target",
        Text,
        Unit::None,
        Identity,
        "what was observed: `host`, `process`, `comm`, `cgroup`, `container` or `command`",
    ),
    or_null("target_name", Text, Unit::None, Identity, "its name; null for the host"),
    or_null(
        "target_thread_ns",
        Integer,
        Unit::Ns,
        Holds::Amount,
        "thread time of the target in the window: the sum over its threads of the time that each existed; null = not measured",
    ),
    or_null(
        "target_wanted_ns",
        Integer,
        Unit::Ns,
        Holds::Amount,
        "part of it in which the threads wanted to run: on a CPU, queued or throttled",
    ),
    always("code", Text, Unit::None, Identity, "code of the rule, see `deburr explain`"),
    always("area", Text, Unit::None, Identity, "its area"),
    always("rule", Text, Unit::None, Identity, "its name"),
    always(
        "verdict",
        Text,
        Unit::None,
        Holds::Fact,
        "`fired`; `quiet`: looked for and not found; `nodata`: there was nothing to decide by",
    ),
    always(
        "statement",
        Text,
        Unit::None,
        Holds::Fact,
        "what was found; how close it came; or what was missing",
    ),
    or_null(
        "severity",
        Text,
        Unit::None,
        Level,
        "`info`, `low`, `medium` or `high`; this and all that follows is null unless `fired`",
    ),
    or_null("confidence", Real, Unit::Ratio, Statistic, "confidence in the finding"),
    or_null(
        "victim_kind",
        Text,
        Unit::None,
        Identity,
        "`process`, `cgroup`, `device`, `host`, ...",
    ),
    or_null(
        "victim",
        Text,
        Unit::None,
        Identity,
        "its comm, path of cgroup or file, device, CPU or setting; null = the kind says all",
    ),
    or_null("victim_pid", Integer, Unit::Plain, Identity, "its process id, if it is one process"),
    or_null(
        "victim_processes",
        Integer,
        Unit::Count,
        Level,
        "number of processes with that comm and cgroup, if there are several",
    ),
    or_null("victim_cgroup", Text, Unit::None, Identity, "path of its cgroup"),
    or_null(
        "victim_container",
        Text,
        Unit::None,
        Identity,
        "name of its container or unit, else its id",
    ),
    or_null(
        "victim_thread_ns",
        Integer,
        Unit::Ns,
        Holds::Amount,
        "thread time of the victim in the window, where the report has its ledger",
    ),
    or_null(
        "lost_ns",
        Integer,
        Unit::Ns,
        Holds::Amount,
        "thread time that the victim lost in the window",
    ),
    or_null("lost_ns_per_s", Integer, Unit::NsPerS, Statistic, "the same per second of wall time"),
    or_null(
        "lost_share",
        Real,
        Unit::Ratio,
        Statistic,
        "the same as a share of the time in which the victim wanted to run",
    ),
    or_null(
        "p50_ns",
        Integer,
        Unit::Ns,
        Statistic,
        "median of its waits; null = fewer than 2, or no single waits are known",
    ),
    or_null(
        "p99_ns",
        Integer,
        Unit::Ns,
        Statistic,
        "99th percentile of its waits; null = fewer than 100",
    ),
    or_null("max_ns", Integer, Unit::Ns, Maximum, "its longest wait"),
    or_null(
        "culprit_kind",
        Text,
        Unit::None,
        Identity,
        "kind of the culprit with the largest share; null = none is named",
    ),
    or_null("culprit", Text, Unit::None, Identity, "as `victim`"),
    or_null("culprit_pid", Integer, Unit::Plain, Identity, "as `victim_pid`"),
    or_null("culprit_cgroup", Text, Unit::None, Identity, "as `victim_cgroup`"),
    or_null("culprit_share", Real, Unit::Ratio, Statistic, "its share of the loss"),
    or_null("culprits", Json, Unit::None, Identity, "all culprits, as `causes` in the report"),
];

pub(super) const FACT_COLUMNS: &[Field] = &[
    or_null(
        "host",
        Text,
        Unit::None,
        Identity,
        "name of the host; null = the snapshot was taken with `--redact`",
    ),
    or_null(
        "boot_id",
        Text,
        Unit::None,
        Identity,
        "as in `finding`; null for snapshots that are files of their own",
    ),
    or_null(
        "t_wall",
        Time,
        Unit::None,
        Moment,
        "when it was read; of a snapshot when that was taken",
    ),
    always(
        "origin",
        Text,
        Unit::None,
        Holds::Fact,
        "`recording`: a setting of the kernel that its collector read; `snapshot`: of a snapshot, also of that which a recording holds",
    ),
    always(
        "key",
        Text,
        Unit::None,
        Identity,
        "path of the file, and after `#` the part of it; in snapshots `*` stands for the number of a CPU, the name of a disk, ...",
    ),
    or_null(
        "instance",
        Text,
        Unit::None,
        Identity,
        "what the `*` stands for: numbers, ranges and names, separated by commas",
    ),
    always(
        "state",
        Text,
        Unit::None,
        Holds::Fact,
        "`value`; `absent`: there is no such file; `unreadable`; `timed_out`; `not_read`: absent or unreadable, a recording does not tell",
    ),
    or_null(
        "value",
        Text,
        Unit::None,
        Holds::Fact,
        "the value as text; lists, sets and tables as JSON; why it is `unreadable`; null = there is none",
    ),
    or_null(
        "number",
        Integer,
        Unit::Plain,
        Holds::Fact,
        "the value, if it is a number of 64 bits, in `unit`",
    ),
    or_null(
        "unit",
        Text,
        Unit::None,
        Holds::Fact,
        "unit of `number` in that file, as in snapshots; null = none",
    ),
    or_null(
        "class",
        Text,
        Unit::None,
        Holds::Fact,
        "what a difference means, see [snapshot.md](snapshot.md); null for origin `recording`",
    ),
    or_null(
        "area",
        Text,
        Unit::None,
        Holds::Fact,
        "area of a snapshot's fact; null for origin `recording`",
    ),
];

/// A row of cells that outlive what they were made of.
pub(super) type Row = Vec<Cell<'static>>;

fn text(text: impl Into<String>) -> Cell<'static> {
    Cell::Text(text.into().into())
}

fn maybe<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell<'static>) -> Cell<'static> {
    value.map_or(Cell::Null, cell)
}

fn integer(number: impl TryInto<i64>) -> Cell<'static> {
    number.try_into().map_or(Cell::Null, Cell::Integer)
}

/// The word for a value without data, as in JSON.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn json(value: &impl Serialize) -> Cell<'static> {
    maybe(serde_json::to_string(value).ok(), |json| Cell::Json(json.into()))
}

/// A row for each rule and victim.
pub(super) fn findings(head: &Head, view: &View, report: &Report) -> Vec<Row> {
    let (thread_ns, wanted_ns) = thread_time(view);
    let common = || {
        vec![
            text(&head.host),
            maybe(head.boot_id.clone(), text),
            Cell::Time(head.start_unix_ns),
            integer(view.window_ns()),
            text(&head.recorded_by),
            text(&report.tool.version),
            text(&report.host.kernel),
            Cell::Integer(report.host.cpus.into()),
            text(&report.target.kind),
            maybe(report.target.name.clone(), text),
            maybe(thread_ns, integer),
            maybe(wanted_ns, integer),
        ]
    };
    let rule = |code: &str, area, rule: &str, verdict: &str, statement: &str| {
        [text(code), text(word(&area)), text(rule), text(verdict), text(statement)]
    };
    let nothing = || {
        let rest = FINDING_COLUMNS.len() - common().len() - 5;
        std::iter::repeat_n(Cell::Null, rest)
    };
    let mut rows: Vec<Row> = Vec::new();
    for it in &report.findings {
        let said = rule(&it.code, it.area, &it.name, "fired", &it.title);
        rows.push([common(), said.into(), of_finding(view, report, it)].concat());
    }
    for it in &report.ruled_out {
        let said = rule(&it.code, it.area, &it.name, "quiet", &it.closest);
        rows.push(common().into_iter().chain(said).chain(nothing()).collect());
    }
    for it in &report.not_checked {
        let said = rule(&it.code, it.area, &it.name, "nodata", &it.missing.join("; "));
        rows.push(common().into_iter().chain(said).chain(nothing()).collect());
    }
    rows
}

/// Thread time of the target in the window, and the part of it in which its threads wanted to run.
fn thread_time(view: &View) -> (Option<u64>, Option<u64>) {
    let whole_host = view.meta().is_some_and(|meta| matches!(meta.target, TargetSpec::Host));
    let (mut thread_ns, mut wanted_ns) = (None, None);
    for process in view.processes().values() {
        let is_in = match &process.facts {
            Some(facts) => facts.in_target && !facts.observer,
            None => whole_host,
        };
        let (wall, wanted) = match (process.usage(), &process.delay) {
            _ if !is_in => continue,
            (Some(usage), _) => (usage.wall_ns, usage.wanted_ns()),
            (None, Some(delay)) => (delay.wall_ns, delay.on_cpu_ns.saturating_add(delay.delay_ns)),
            (None, None) => continue,
        };
        thread_ns = Some(thread_ns.unwrap_or(0_u64).saturating_add(wall));
        wanted_ns = Some(wanted_ns.unwrap_or(0_u64).saturating_add(wanted));
    }
    (thread_ns, wanted_ns)
}

/// What only a finding has.
fn of_finding(view: &View, report: &Report, finding: &Finding) -> Row {
    let (victim, cost) = (&finding.victim, &finding.cost);
    let Cost { lost_ns_per_s, share, p50_ns, p99_ns, max_ns, .. } = *cost;
    let lost_ns = u128::from(lost_ns_per_s) * u128::from(view.window_ns()) / 1_000_000_000;
    let is_its = |ledger: &&Ledger| ledger.victim == *victim;
    let culprit = finding.causes.iter().max_by(|a, b| a.share.get().total_cmp(&b.share.get()));
    let culprit_is = |of: fn(&Entity) -> Cell<'static>| maybe(culprit, |it| of(&it.entity));
    vec![
        text(word(&finding.severity)),
        Cell::Real(finding.confidence),
        text(word(&victim.kind)),
        name(victim),
        maybe(victim.pid, integer),
        maybe(victim.processes, integer),
        maybe(victim.cgroup.clone(), text),
        maybe(victim.container.clone(), |it| text(it.name.unwrap_or(it.id))),
        maybe(report.ledger.iter().find(is_its), |ledger| integer(ledger.wall_ns)),
        integer(lost_ns),
        integer(lost_ns_per_s),
        Cell::Real(share),
        maybe(p50_ns, integer),
        maybe(p99_ns, integer),
        maybe(max_ns, integer),
        culprit_is(|it| text(word(&it.kind))),
        culprit_is(name),
        culprit_is(|it| maybe(it.pid, integer)),
        culprit_is(|it| maybe(it.cgroup.clone(), text)),
        maybe(culprit, |it| Cell::Real(it.share.get())),
        if finding.causes.is_empty() { Cell::Null } else { json(&finding.causes) },
    ]
}

/// What an entity is called.
fn name(entity: &Entity) -> Cell<'static> {
    let cpu = entity.cpu.map(|cpu| cpu.to_string());
    let names = [&entity.comm, &entity.path, &entity.device, &entity.key, &entity.cgroup, &cpu];
    maybe(names.into_iter().flatten().next().cloned(), text)
}

/// A setting of a recording as a fact.
pub(super) fn of_setting(head: &Head, setting: &Setting) -> Row {
    let t_wall = i64::try_from(setting.t_ns).ok().and_then(|ns| head.start_unix_ns.checked_add(ns));
    let number = setting.value.as_deref().and_then(|value| value.trim().parse::<i64>().ok());
    of_recording(head, t_wall, &setting.path, setting.value.clone(), number)
}

/// The release of the kernel that a recording was made on.
pub(super) fn of_kernel(head: &Head, kernel: &str) -> Row {
    of_recording(
        head,
        Some(head.start_unix_ns),
        "/proc/sys/kernel/osrelease",
        Some(kernel.into()),
        None,
    )
}

fn of_recording(
    head: &Head,
    t_wall: Option<i64>,
    key: &str,
    value: Option<String>,
    number: Option<i64>,
) -> Row {
    vec![
        text(&head.host),
        maybe(head.boot_id.clone(), text),
        maybe(t_wall, Cell::Time),
        text("recording"),
        text(key),
        Cell::Null,
        text(if value.is_some() { "value" } else { "not_read" }),
        maybe(value, text),
        maybe(number, Cell::Integer),
        Cell::Null,
        Cell::Null,
        Cell::Null,
    ]
}

/// A row for each fact of a snapshot; of facts that differ between CPUs, disks, ... one for each value. `head` is that of
/// the recording that holds the snapshot, if one does.
pub(super) fn of_snapshot(head: Option<&Head>, snapshot: &Snapshot) -> Vec<Row> {
    let taken: Option<Timestamp> = snapshot.taken.parse().ok();
    let taken_unix_ns = taken.and_then(|taken| i64::try_from(taken.as_nanosecond()).ok());
    let host = head.map(|head| head.host.clone()).or_else(|| snapshot.host.name.clone());
    let row = |fact: &Fact, instance: Option<String>, value: &Value| {
        let (state, content, number, unit) = content(value);
        vec![
            maybe(host.clone(), text),
            maybe(head.and_then(|head| head.boot_id.clone()), text),
            maybe(taken_unix_ns, Cell::Time),
            text("snapshot"),
            text(&fact.key),
            maybe(instance, text),
            text(state),
            maybe(content, text),
            maybe(number, Cell::Integer),
            maybe(unit, text),
            text(fact.class.name()),
            text(fact.area.name()),
        ]
    };
    let of_fact = |fact: &Fact| match &fact.value {
        Value::Each(parts) => {
            parts.iter().map(|part| row(fact, Some(part.of.join(",")), &part.value)).collect()
        }
        value => vec![row(fact, None, value)],
    };
    snapshot.facts.iter().flat_map(of_fact).collect()
}

/// State, text, number and unit of a value.
fn content(value: &Value) -> (&'static str, Option<String>, Option<i64>, Option<&'static str>) {
    let listed = |json: serde_json::Result<String>| ("value", json.ok(), None, None);
    match value {
        Value::Text(text) => ("value", Some(text.clone()), None, None),
        Value::Integer(it) => {
            let unit = it.unit.map(snapshot::Unit::symbol).filter(|symbol| !symbol.is_empty());
            ("value", Some(it.amount.to_string()), i64::try_from(it.amount).ok(), unit)
        }
        Value::Boolean(on) => ("value", Some(on.to_string()), None, None),
        Value::List(items) => listed(serde_json::to_string(items)),
        Value::Set(items) => listed(serde_json::to_string(items)),
        Value::Table(items) => listed(serde_json::to_string(items)),
        Value::Each(parts) => listed(serde_json::to_string(parts)),
        Value::Absent => ("absent", None, None, None),
        Value::Unreadable(why) => ("unreadable", Some(why.clone()), None, None),
        Value::TimedOut { .. } => ("timed_out", None, None, None),
    }
}
