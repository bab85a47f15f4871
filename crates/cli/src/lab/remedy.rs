// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a remedy does what its text promises. In one run of the same processes, the fault is observed first as it
//! is, and then with the first command that the report offers.
//!
//! Both observations are of the same victim under the same load, so what the rest of the host does is in both. What a
//! command changes either belongs to the lab and ends with it, or is registered with the janitor before.

use super::fitness::Verdict;
use super::observed::Observed;
use super::order::{self, Step};
use super::runner::{self, Settings, observe_after, report_on};
use super::scenario::Scenario;
use super::stage::{Stage, Stop};
use super::victims::WhichRun;
use crate::host::undo::{Undo, write_setting};
use anyhow::{Context as _, Result, bail, ensure};
use deburr_core::finding::{
    Area, EntityKind, Finding, Fix, IoRowsBy, Ledger, LedgerState, LossBasis, Report,
};
use deburr_core::rules::RULES;
use serde::Serialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Part of the loss that a remedy without a promise may leave. If more is left, the remedy does not help.
const HELPS: f64 = 0.8;
/// Directories with the settings that the janitor restores.
const SETTINGS: [&str; 4] = ["/proc/sys", "/sys/block", "/sys/devices/virtual", "/sys/kernel/mm"];
/// Time between the command and the second observation.
const SETTLE: Duration = Duration::from_millis(500);
/// Tolerance of the loss in the second observation, per thread: residual noise of the host, in nanoseconds per
/// second.
const NOISE_NS_PER_S: f64 = 5e6;
/// Tolerance of the loss per transfer, in nanoseconds.
const NOISE_NS_PER_TRANSFER: f64 = 1e5;

/// The effect of a remedy on the loss of a scenario.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RemedyEffect {
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// Whether the promise was kept, or whether the machine may be the reason if not.
    pub(crate) verdict: Verdict,
    /// Why the machine was not fit for the experiment. Empty = it was fit.
    pub(crate) unfit: Vec<String>,
    /// Code of the finding with the remedy.
    pub(crate) code: String,
    /// Text of the remedy.
    pub(crate) action: String,
    pub(crate) command: String,
    /// The part of the loss that may be left; `None` = nothing was promised.
    pub(crate) left_at_most: Option<f64>,
    /// Whether the losses are per second or per transfer.
    pub(crate) of: LossBasis,
    /// The victim's loss per second or per transfer without the remedy, by the report.
    pub(crate) before_ns: f64,
    /// The victim's loss with the remedy, by the report.
    pub(crate) after_ns: f64,
    /// The victim's loss with the remedy, by its own clock, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) victim_after_ns: Option<f64>,
}

/// Like [`run_once`], repeated while the result is inconclusive.
pub(crate) fn run(
    scenario: &Scenario,
    settings: &Settings<'_>,
    stop: &Stop,
    progress: &mut dyn FnMut(&str),
) -> Result<RemedyEffect> {
    runner::tried(|_| {
        let remedied = run_once(scenario, settings, stop, progress)?;
        let verdict = remedied.verdict;
        Ok((remedied, verdict))
    })
}

/// Injects the fault and observes it, applies the first remedy that has a command, and observes again.
fn run_once(
    scenario: &Scenario,
    settings: &Settings<'_>,
    stop: &Stop,
    progress: &mut dyn FnMut(&str),
) -> Result<RemedyEffect> {
    let (seconds, name) = (settings.seconds, &scenario.name);
    progress(&format!("`{name}`: {seconds} s with its fault, then {seconds} s with a remedy"));
    let (mut applied, mut foreign) = (None, None);
    let which = WhichRun { with_faults: true, quota_us: &mut None };
    let after = observe_after(scenario, settings, stop, which, &mut |stage, pid| {
        let report = report_on(stage, pid, seconds, vec![])?;
        let Some((finding, fix, command)) = first_command(scenario, &report) else {
            return Ok(());
        };
        if is_foreign(finding, &stage.cgroup_path()) {
            foreign = Some(finding.title.clone());
            return Ok(());
        }
        progress(&format!("`{name}`: {command}"));
        apply(stage, command).with_context(|| format!("cannot apply `{command}`"))?;
        stage.settle(SETTLE)?;
        applied = Some((finding.clone(), fix.clone(), report.clone()));
        Ok(())
    })?;
    let Some((finding, fix, report)) = applied else {
        let unfit = foreign.into_iter().chain(after.machine.unfit()).collect();
        return Ok(RemedyEffect::without(scenario, unfit));
    };
    let of = fix.expect.map_or(usual_loss(&finding), |promise| promise.of);
    let before_ns = loss_ns(&report, &finding, after.victim_pid, of)
        .context("the report before it has no loss of the victim")?;
    let after_ns = loss_ns(&after.report, &finding, after.victim_pid, of)
        .context("the report after it has no loss of the victim")?;
    let own_ns = own_loss(&after, &finding).filter(|_| of == LossBasis::Second);
    let noise_ns = match of {
        LossBasis::Second => NOISE_NS_PER_S * f64::from(scenario.victim.threads.max(1)),
        LossBasis::Transfer => NOISE_NS_PER_TRANSFER,
    };
    let left_at_most = fix.expect.map_or(HELPS, |promise| promise.left_at_most);
    let bound_ns = left_at_most * before_ns + noise_ns;
    let kept = after_ns <= bound_ns
        && after_ns < before_ns
        && own_ns.is_none_or(|own_ns| own_ns <= bound_ns);
    let unfit = after.machine.unfit();
    Ok(RemedyEffect {
        scenario: name.clone(),
        verdict: Verdict::of(kept, &unfit),
        unfit,
        code: finding.code,
        command: fix.command.unwrap_or_default(),
        action: fix.action,
        left_at_most: fix.expect.map(|promise| promise.left_at_most),
        of,
        before_ns,
        after_ns,
        victim_after_ns: own_ns,
    })
}

impl RemedyEffect {
    /// The result if no remedy was applied, because of the machine or because the report offered none.
    fn without(scenario: &Scenario, unfit: Vec<String>) -> Self {
        Self {
            scenario: scenario.name.clone(),
            verdict: if unfit.is_empty() { Verdict::Failed } else { Verdict::Inconclusive },
            unfit,
            code: String::new(),
            action: "no remedy with a command was offered".into(),
            command: String::new(),
            left_at_most: None,
            of: LossBasis::Second,
            before_ns: 0.0,
            after_ns: 0.0,
            victim_after_ns: None,
        }
    }
}

/// Whether a process outside of the lab is the main culprit. The remedy is then not for what the lab did.
fn is_foreign(finding: &Finding, lab: &str) -> bool {
    let worst = finding.causes.iter().find(|cause| cause.entity.kind == EntityKind::Process);
    let path = worst.map(|cause| cause.entity.cgroup.as_deref().unwrap_or("/"));
    path.is_some_and(|path| !Path::new(path).starts_with(lab))
}

/// The result as text.
pub(crate) fn text(it: &RemedyEffect) -> String {
    let each = match it.of {
        LossBasis::Second => "/s",
        LossBasis::Transfer => " a transfer",
    };
    let ms = |ns: f64| format!("{:.1} ms{each}", ns / 1e6);
    let verdict = match it.verdict {
        Verdict::Passed => "ok",
        Verdict::Failed => "FAILED",
        Verdict::Inconclusive => "inconclusive",
    };
    let mut lines = vec![format!("{verdict} {}: {}", it.scenario, it.action)];
    if !it.command.is_empty() {
        let own = it
            .victim_after_ns
            .map_or(String::new(), |ns| format!(" (by the victim's own clock {})", ms(ns)));
        let promised = it.left_at_most.map_or(
            format!("nothing is promised, {:.0} % counts as in vain", HELPS * 100.0),
            |left| format!("promised is at most {:.0} % of it", left * 100.0),
        );
        lines.push(it.command.clone());
        lines.push(format!(
            "the victim loses {} before and {} after{own}; {promised}",
            ms(it.before_ns),
            ms(it.after_ns),
        ));
    }
    lines.extend(it.unfit.iter().map(|reason| format!("the machine was not fit: {reason}")));
    lines.join("\n  ") + "\n"
}

/// The first remedy with a command, of the finding that the scenario expects first.
fn first_command<'r>(
    scenario: &Scenario,
    report: &'r Report,
) -> Option<(&'r Finding, &'r Fix, &'r str)> {
    let about = |finding: &&Finding| scenario.expect_first.as_ref() == Some(&finding.code);
    let finding = report.findings.iter().find(about)?;
    finding.fix.iter().find_map(|fix| Some((finding, fix, fix.command.as_deref()?)))
}

/// Whether a loss is per second or per transfer if no remedy promises anything. A writer that is paused (BLK006)
/// leaves the transfers to the flusher, so its loss is per second.
fn usual_loss(finding: &Finding) -> LossBasis {
    match finding.area {
        Area::Block if finding.code != "BLK006" => LossBasis::Transfer,
        _ => LossBasis::Second,
    }
}

/// The victim's time that such a finding is about, in nanoseconds per second or per transfer.
fn loss_ns(report: &Report, finding: &Finding, pid: u32, of: LossBasis) -> Option<f64> {
    let ns_per_s = loss_ns_per_s(report, finding, pid)?;
    match of {
        LossBasis::Second => Some(ns_per_s),
        LossBasis::Transfer => Some(ns_per_s / transfers_per_s(report, pid)?),
    }
}

/// Transfers per second that a process submitted; `None` if there are none.
fn transfers_per_s(report: &Report, pid: u32) -> Option<f64> {
    let tables = report.block_io.iter().flat_map(|io| &io.devices).flat_map(|it| &it.tables);
    let rows = tables.filter(|table| table.by == IoRowsBy::Process).flat_map(|table| &table.rows);
    let own = rows.filter(|row| row.entity.as_ref().is_some_and(|it| it.pid == Some(pid)));
    let ios: u64 = own.map(|row| row.ios).sum();
    (ios > 0).then(|| ios as f64 / report.window.seconds)
}

/// The victim's time that such a finding is about, in nanoseconds per second.
fn loss_ns_per_s(report: &Report, finding: &Finding, pid: u32) -> Option<f64> {
    let ledger = report.ledger.iter().find(|ledger| ledger.victim.pid == Some(pid))?;
    let sum =
        |is_lost: fn(LedgerState) -> bool| sum_ns(ledger, is_lost) as f64 / report.window.seconds;
    match (finding.area, finding.code.as_str()) {
        (Area::Sched, "SCH002" | "SCH004") => Some(sum(|it| it == LedgerState::Throttled)),
        (Area::Block, _) => {
            Some(sum(|it| matches!(it, LedgerState::BlockIo | LedgerState::Uninterruptible)))
        }
        // All waiting for memory, with that of a thread that frees some itself: a remedy that only moves it from one finding
        // to another does not help.
        (Area::Memory, "MEM003") => Some(sum(|it| it == LedgerState::MemStall)),
        // A thread that frees or moves memory may be on a CPU meanwhile, or asleep: the ledger has no part for it.
        (Area::Memory, code) => freed_ns_per_s(report, ledger, code),
        // A share of the time on CPUs. If it was not observed, there is none, and not 0.
        (Area::Interrupts, _) => {
            ledger.interrupted.map(|share| share.get() * sum(|it| it == LedgerState::OnCpu))
        }
        _ => Some(sum(|it| matches!(it, LedgerState::Queued | LedgerState::QueuedOrThrottled))),
    }
}

/// The time in which a process freed or moved memory, in nanoseconds per second, by the finding of that code. A rule that was
/// judged and found nothing says that this time is below its limits, but not what it is. 0 would be too good: it is taken for
/// the most that it can be. `None` if the rule could not be judged.
fn freed_ns_per_s(report: &Report, ledger: &Ledger, code: &str) -> Option<f64> {
    let own = |it: &&Finding| it.code == code && it.victim.pid == ledger.victim.pid;
    if let Some(found) = report.findings.iter().find(own) {
        return Some(found.cost.lost_ns_per_s as f64);
    }
    report.ruled_out.iter().find(|it| it.code == code)?;
    let rule = RULES.iter().find(|rule| rule.code == code)?;
    let limit =
        |name| Some(rule.limits.iter().copied().flatten().find(|it| it.name == name)?.value);
    // It is below one of both limits: a time, and a share of the time in which the threads wanted to run or waited for
    // memory.
    let is_wanted = |state| {
        use LedgerState::{MemStall, OnCpu, Queued, QueuedOrThrottled, Throttled};
        matches!(state, OnCpu | Queued | Throttled | QueuedOrThrottled | MemStall)
    };
    let wanted_ns_per_s = sum_ns(ledger, is_wanted) as f64 / report.window.seconds;
    Some((limit("low_lost")? * 1e6).max(limit("low_share")? * wanted_ns_per_s))
}

/// The time of a ledger in these states.
fn sum_ns(ledger: &Ledger, is_wanted: impl Fn(LedgerState) -> bool) -> u64 {
    ledger.parts.iter().filter(|part| is_wanted(part.state)).map(|part| part.ns).sum()
}

/// The loss by the victim's own clock, in nanoseconds per second, without stolen time. The clock cannot tell
/// throttling from waiting, and knows nothing about disks and memory. A victim that notices interrupts measures all time
/// in which it stood still, with the way into each interrupt and out of it, which no report has.
fn own_loss(after: &Observed, finding: &Finding) -> Option<f64> {
    let own_ns = after.victim.waited_ns_per_s()? - after.stolen_ns_per_s();
    if matches!(finding.area, Area::Block | Area::Memory | Area::Interrupts) {
        return None;
    }
    // Waiting in the ledger that is not part of this finding.
    let besides_ns =
        after.reported_ns_per_s()? - loss_ns_per_s(&after.report, finding, after.victim_pid)?;
    Some((own_ns - besides_ns).max(0.0))
}

/// Executes a command. It may only change what belongs to the lab or what the janitor restores.
fn apply(stage: &mut Stage, command: &str) -> Result<()> {
    for step in order::steps(command)? {
        match step {
            Step::Write { file, value } => write(stage, Path::new(&file), &value)?,
            Step::Run { words } => execute(stage, &words)?,
        }
    }
    Ok(())
}

fn write(stage: &mut Stage, file: &Path, value: &str) -> Result<()> {
    let path = file.canonicalize().with_context(|| format!("no `{}`", file.display()))?;
    let lab = stage.cgroup_path();
    let lab = lab.trim_start_matches('/');
    // The lab's cgroup in the tree of another controller has its name plus a suffix.
    let own = path.components().any(|part| {
        let rest = part.as_os_str().to_str().and_then(|part| part.strip_prefix(lab));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    if !own {
        ensure!(
            SETTINGS.iter().any(|settings| path.starts_with(settings)),
            "`{}` is neither the lab's nor a setting",
            path.display()
        );
        let undo = Undo::setting(&path)?.context("there is no such setting")?;
        return stage.change(&undo, &path, value);
    }
    write_setting(&path, value)
}

/// Runs a program on processes of the lab.
fn execute(stage: &Stage, words: &[String]) -> Result<()> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    for pid in order::subjects(words) {
        let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .with_context(|| format!("there is no process {pid}"))?;
        if !cgroups.contains(&stage.cgroup_path()) {
            bail!("process {pid} is not the lab's");
        }
    }
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{program}`"))?;
    ensure!(
        output.status.success(),
        "`{program}` failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_core::rules::report;
    use deburr_core::testkit::{MS, ProcessActivity, S, Scene, interrupts, reclaim};

    const PID: u32 = 1001;

    /// The report on a service that frees memory at a limit for so long in each of ten seconds; `None` = not observed.
    fn freed(ns: Option<u64>, on_cpu_ns: u64) -> Report {
        let mut scene = Scene::new(4, 10 * S);
        scene.cgroup("/", None, None);
        let shop = scene.cgroup("/shop", None, None);
        let api = scene.process("api", Some(shop));
        scene.target(api).did(api, &ProcessActivity { on_cpu_ns, ..ProcessActivity::default() });
        if let Some(ns) = ns {
            scene.sees_reclaim();
            for second in 0..10 {
                scene.reclaims(reclaim(second, api, Some(shop), ns, 100));
            }
        }
        report(&scene.view(), "0.1.0", true)
    }

    #[test]
    fn what_a_rule_does_not_find_is_taken_for_the_most_that_it_can_be() {
        let before = freed(Some(200 * MS), 4 * S);
        let finding = before.findings.iter().find(|it| it.code == "MEM001").unwrap();
        let lost = |report: &Report| loss_ns_per_s(report, finding, PID).map(|ns| ns / 1e6);
        assert_eq!(lost(&before), Some(200.0));
        // A tenth of 0.1 s is less than 20 ms, a tenth of 0.4 s is more.
        assert_eq!(lost(&freed(Some(5 * MS), S)), Some(20.0));
        assert_eq!(lost(&freed(Some(5 * MS), 4 * S)), Some(40.0));
        assert_eq!(lost(&freed(None, S)), None, "it could not be judged");
    }

    #[test]
    fn what_interrupts_take_is_known_below_all_limits_and_only_if_it_was_observed() {
        let took = |ns: Option<u64>| {
            let mut scene = Scene::new(4, 10 * S);
            let api = scene.process("api", None);
            scene
                .target(api)
                .did(api, &ProcessActivity { on_cpu_ns: 5 * S, ..ProcessActivity::default() });
            if let Some(ns) = ns {
                scene.sees_interrupts().interrupts(interrupts(api, ns, 10_000));
            }
            report(&scene.view(), "0.1.0", true)
        };
        let before = took(Some(S));
        let finding = before.findings.iter().find(|it| it.code == "IRQ001").unwrap();
        let lost = |report: &Report| loss_ns_per_s(report, finding, PID).map(f64::round);
        assert_eq!(lost(&before), Some(1e8));
        assert_eq!(lost(&took(Some(10 * MS))), Some(1e6));
        assert_eq!(lost(&took(None)), None);
    }

    #[test]
    fn the_interrupts_of_devices_are_not_the_labs_to_move() {
        let is_setting = |file: &str| SETTINGS.iter().any(|of| Path::new(file).starts_with(of));
        assert!(is_setting("/sys/kernel/mm/transparent_hugepage/defrag"));
        assert!(!is_setting("/proc/irq/36/smp_affinity_list"));
    }
}
