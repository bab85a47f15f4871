// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether `deburr` reported what a scenario expects. Pure: two observations in, checks out.

use super::check::{Check, Precondition, Topic};
use super::measured;
use super::observed::Observed;
use super::scenario::{Areas, CauseBound, Scenario};
use super::service::Periods;
use super::stage::OBSERVER;
use super::stalls::Slept;
use deburr_core::finding::{
    Area, Cause, Entity, EntityKind, Finding, Ledger, LedgerState, SleepKind,
};
use deburr_core::text::units::tenths_of_ms;

/// The victim's waiting by the report and by its own clock may differ by this part of the larger value, plus
/// [`TOLERANCE_NS_PER_S`].
const TOLERANCE: f64 = 0.1;
/// Second part of that tolerance, for every thread, in nanoseconds per second. The victim also measures interrupts
/// and late timers, neither of which is waiting behind another process. Stolen time is subtracted.
const TOLERANCE_NS_PER_S: f64 = 20e6;

/// All checks of a scenario.
pub(crate) fn check(scenario: &Scenario, control: &Observed, fault: &Observed) -> Vec<Check> {
    let (without, with) = scenario.run_names();
    let area = &scenario.area;
    let quiet = silence(area, scenario.control_forbid.as_deref(), without, control);
    let mut checks = vec![quiet.resting_on(Precondition::Control)];
    checks.extend(control.periods.map(|periods| room(without, periods)));
    if scenario.silent {
        checks.push(silence(area, None, with, fault).resting_on(Precondition::Nothing));
    }
    if let Some(code) = &scenario.expect_first {
        // The host's other load may contribute to the finding that must come first.
        let first = fault
            .report
            .findings
            .iter()
            .filter(|found| area.has(found.area))
            .find(|found| found.code == *code || !fault.is_of_the_rest_of_the_host(found));
        let first = first.map_or("nothing", |found| &found.code);
        let first_is_it = Check::new(first == code, format!("`{code}` comes first: {first}"));
        checks.push(first_is_it.about(Topic::First));
    }
    for code in &scenario.expect {
        let found = fault.report.findings.iter().any(|finding| finding.code == *code);
        checks.push(Check::new(found, format!("`{code}` is found")));
    }
    for code in &scenario.forbid {
        let found = fault.complaints().find(|finding| finding.code == *code);
        let seen = found.map_or("quiet".to_owned(), |finding| format!("\"{}\"", finding.title));
        let quiet = Check::new(found.is_none(), format!("`{code}` is quiet: {seen}"));
        checks.push(quiet.resting_on(Precondition::Nothing));
    }
    checks.extend(scenario.causes.iter().map(|bound| blame(bound, fault)));
    let victim = scenario.victim.as_victim();
    for (run, with_faults) in [(control, false), (fault, true)] {
        checks.push(observers_part(run, victim.threads(with_faults)));
    }
    if let Some(bound_ms) = scenario.stall_ms {
        checks.extend(stalls((without, control), (with, fault), bound_ms));
    }
    if let Some(period_ms) = scenario.rhythm_ms {
        let code = scenario.expect_first.as_deref().unwrap_or_default();
        checks.push(rhythm(code, period_ms, fault));
    }
    if let Some(code) = &scenario.measured {
        checks.extend(measured::checks(code, fault));
    }
    if let Some(factor) = scenario.p99_factor {
        checks.push(slower(factor, control, fault));
    }
    if let Some(word) = &scenario.fix {
        checks.push(remedy(scenario.expect_first.as_deref().unwrap_or_default(), word, fault));
    }
    if let Some(part) = &scenario.file {
        checks.push(file(scenario.expect_first.as_deref().unwrap_or_default(), part, fault));
    }
    if let Some(share) = scenario.memory_share {
        checks.push(memory(share, fault));
    }
    // A victim that waits for a disk, or is measured from outside, cannot measure how long it waits for a CPU.
    if victim.measures_waiting() {
        for (name, run, with_faults) in [(without, control, false), (with, fault, true)] {
            checks.push(agreement(name, run, victim.threads(with_faults)));
        }
    }
    for (name, run) in [(without, control), (with, fault)] {
        checks.extend(run.victim.slept.map(|slept| asleep(name, run, slept)));
        let handlers = scenario.handlers.unwrap_or(HANDLERS);
        checks.extend(run.victim.stood_still_ns.map(|ns| interrupted(name, run, ns, handlers)));
    }
    checks.push(conservation(fault));
    checks
}

fn silence(area: &Areas, codes: Option<&[String]>, name: &str, run: &Observed) -> Check {
    let counts = |found: &&Finding| {
        area.has(found.area) && codes.is_none_or(|codes| codes.contains(&found.code))
    };
    let complaints = run.complaints().filter(counts);
    let said: Vec<_> = complaints.map(|found| format!("\"{}\"", found.title)).collect();
    let of = match (codes, area.prefixes()) {
        (Some(codes), _) => format!(" of {}", codes.join(", ")),
        (None, Some(prefixes)) => format!(" of {prefixes}"),
        (None, None) => String::new(),
    };
    let seen = if said.is_empty() { "nothing".into() } else { said.join(", ") };
    Check::new(said.is_empty(), format!("nothing{of} above `info` is found {name}: {seen}"))
        .about(Topic::Silence)
}

/// Whether an entity has that address, with any port unless one is given.
fn is_at(entity: &Entity, address: &str) -> bool {
    let own = entity.address.as_deref().unwrap_or_default();
    own == address || own.rsplit_once(':').is_some_and(|(host, _)| host == address)
}

fn blame(bound: &CauseBound, run: &Observed) -> Check {
    // In the trees of other controllers, the lab's cgroups are beside each other.
    let cgroups = bound
        .cgroup
        .as_ref()
        .map(|path| ['/', '-'].map(|joint| Some(format!("{}{joint}{path}", run.lab_cgroup))));
    let matches = |cause: &&Cause| {
        (bound.comm.is_none() || cause.entity.comm == bound.comm)
            && cgroups.as_ref().is_none_or(|any| any.contains(&cause.entity.cgroup))
            && (bound.key.is_none() || cause.entity.key == bound.key)
            && bound.address.as_ref().is_none_or(|address| is_at(&cause.entity, address))
    };
    let finding = run.report.findings.iter().find(|finding| finding.code == bound.code);
    let share: f64 =
        finding.iter().flat_map(|f| &f.causes).filter(matches).map(|cause| cause.share.get()).sum();
    // The sum of nothing is -0.
    let share = share + 0.0;
    // The share is taken of the loss that remains without the rest of the host, the observer and the victim's own
    // threads, unless they are named one by one.
    let observer = Some(format!("{}/{}", run.lab_cgroup, OBSERVER));
    let is_aside = |cause: &&Cause| {
        let own =
            cause.entity.pid == Some(run.victim_pid) && cause.entity.kind != EntityKind::Thread;
        own || cause.entity.cgroup == observer
    };
    let causes = finding.iter().flat_map(|finding| &finding.causes);
    let own: f64 = causes.filter(is_aside).map(|cause| cause.share.get()).sum();
    let left = 1.0 - own - finding.map_or(0.0, |finding| run.outside_share(finding));
    let share = if left > 0.0 { share / left } else { 0.0 };
    let who = [&bound.comm, &bound.cgroup, &bound.address, &bound.key];
    let who = who.map(Option::as_ref);
    let who: Vec<_> = who.into_iter().flatten().map(|name| format!("`{name}`")).collect();
    let seen = match finding {
        Some(_) => format!("{:.1} %", share * 100.0),
        None => format!("no {}", bound.code),
    };
    Check::new(
        share >= bound.min_share,
        format!(
            "{} is to blame for at least {:.0} % of `{}`: {seen}",
            who.join(" in "),
            bound.min_share * 100.0,
            bound.code
        ),
    )
    .about(Topic::Culprit)
}

/// The waiting blamed on the observer may exceed its CPU time by this factor, plus [`OBSERVER_TOLERANCE_NS`]: CPU time
/// is counted in ticks.
const OBSERVER_TOLERANCE: f64 = 1.25;
const OBSERVER_TOLERANCE_NS: f64 = 20e6;

/// Checks that the waiting blamed on the observer does not exceed its CPU time (with tolerance) times the victim's
/// threads, all of which may wait at once. Time stolen from the victim's CPUs counts as the observer's.
fn observers_part(run: &Observed, threads: u32) -> Check {
    let observer = format!("{}/{}", run.lab_cgroup, OBSERVER);
    let seconds = run.report.window.seconds;
    let of_it = |finding: &&Finding| {
        let causes = finding.causes.iter();
        let its = causes.filter(|cause| cause.entity.cgroup.as_deref() == Some(&observer));
        its.map(|cause| cause.share.get()).sum::<f64>()
            * finding.cost.lost_ns_per_s as f64
            * seconds
    };
    let of_cpus = |finding: &&Finding| finding.area == Area::Sched;
    let blamed_ns =
        run.report.findings.iter().filter(of_cpus).map(|it| of_it(&it)).fold(0.0, f64::max);
    let ran_ns = run.report.observer.cpu_seconds * 1e9 + run.stolen_ns_per_s() * seconds;
    let bound_ns =
        f64::from(threads.max(1)) * (ran_ns * OBSERVER_TOLERANCE + OBSERVER_TOLERANCE_NS);
    Check::new(
        blamed_ns <= bound_ns,
        format!(
            "nobody waits longer for the observer than it ran: {} ms, which may be {} ms",
            tenths_of_ms(blamed_ns),
            tenths_of_ms(bound_ns)
        ),
    )
    .about(Topic::Culprit)
    .resting_on(Precondition::Nothing)
}

/// Tolerance of a reported interval, as a share of the true one: timers are late, and the probe uses bins of 100 ms.
const RHYTHM_TOLERANCE: f64 = 0.05;

/// Checks that a finding names the interval at which the fault occurs.
fn rhythm(code: &str, period_ms: u64, run: &Observed) -> Check {
    let mut findings = run.report.findings.iter().filter(|finding| finding.code == code);
    let found_ns = findings.find_map(|finding| finding.rhythm_ns).map(|ns| ns as f64);
    let period_ns = period_ms as f64 * 1e6;
    let seen = found_ns.map_or("none".into(), |ns| format!("{} ms", tenths_of_ms(ns)));
    let near = found_ns.is_some_and(|ns| (ns - period_ns).abs() <= period_ns * RHYTHM_TOLERANCE);
    Check::new(near, format!("`{code}` has a rhythm of {period_ms} ms: {seen}"))
}

/// Maximum time in long stalls without the fault, as a share of that with it. No host is so quiet that none ever
/// occurs.
const STALLED_ANYWAY: f64 = 1.0 / 3.0;

/// Share of a limit's periods that may be throttled although the limit has room for all but the largest bursts.
const RAN_OUT_ANYWAY: f64 = 0.3;

/// Checks that the incident happened, by the victim's own measurement, and was due to the fault. A victim that writes has
/// a list of its stalls; of any other the longest time is compared.
fn stalls(control: (&str, &Observed), fault: (&str, &Observed), bound_ms: u64) -> [Check; 2] {
    let longest_ns = fault.1.victim.max_ns;
    let bound_ns = bound_ms * 1_000_000;
    let writes = fault.1.victim.io.is_some();
    let lost_ns = |run: &Observed| {
        let Some(io) = &run.victim.io else { return run.victim.max_ns as f64 };
        let long = io.stalls.iter().map(|stall| stall.length_ns).filter(|&ns| ns >= bound_ns);
        long.sum::<u64>() as f64 / run.report.window.seconds
    };
    let (without_ns, with_ns) = (lost_ns(control.1), lost_ns(fault.1));
    let (what, unit) =
        if writes { ("commit", "ms of every second") } else { ("reply", "ms at most") };
    [
        Check::new(
            longest_ns >= bound_ns,
            format!(
                "a {what} takes {bound_ms} ms {}: the longest takes {} ms",
                fault.0,
                tenths_of_ms(longest_ns as f64)
            ),
        )
        .about(Topic::Fault),
        Check::new(
            without_ns <= with_ns * STALLED_ANYWAY,
            format!(
                "such times are due to that: {} {unit}, {} ms {}",
                tenths_of_ms(with_ns),
                tenths_of_ms(without_ns),
                control.0
            ),
        )
        .about(Topic::Control),
    ]
}

/// Checks that the calibrated limit has room for the service, by the kernel's counters. On a host that got slower
/// since the calibration, each request costs more.
fn room(name: &str, periods: Periods) -> Check {
    let Periods { with_work, ran_out } = periods;
    Check::new(
        ran_out as f64 <= with_work as f64 * RAN_OUT_ANYWAY,
        format!("the limit has room {name}: {ran_out} of {with_work} periods ran out"),
    )
    .about(Topic::Control)
}

/// Checks that the incident happened, by the latency that was measured from outside.
fn slower(factor: f64, control: &Observed, fault: &Observed) -> Check {
    let (without_ns, with_ns) = (control.victim.p99_ns as f64, fault.victim.p99_ns as f64);
    let enough = control.victim.requests >= 100 && fault.victim.requests >= 100;
    Check::new(
        enough && with_ns >= factor * without_ns,
        format!(
            "the 99th percentile is at least {factor} times as long: {} ms, without {} ms",
            tenths_of_ms(with_ns),
            tenths_of_ms(without_ns)
        ),
    )
    .about(Topic::Fault)
}

/// Checks that a fix of the finding names what must be changed.
fn remedy(code: &str, word: &str, run: &Observed) -> Check {
    let finding = run.report.findings.iter().find(|finding| finding.code == code);
    let fixes = finding.iter().flat_map(|finding| &finding.fix);
    let named = fixes
        .filter(|fix| {
            fix.action.contains(word) || fix.command.as_ref().is_some_and(|it| it.contains(word))
        })
        .count();
    Check::new(named > 0, format!("`{code}` advises a change of `{word}`: {named} times"))
}

/// Checks that the finding names a file.
fn file(code: &str, part: &str, run: &Observed) -> Check {
    let finding = run.report.findings.iter().find(|finding| finding.code == code);
    let rows =
        finding.and_then(|finding| finding.files.as_ref()).map_or(&[][..], |files| &files.rows);
    let named = rows.iter().filter(|row| row.name.contains(part)).count();
    let first = rows.first().map_or("no table of files", |row| row.name.as_str());
    Check::new(
        named > 0,
        format!("`{code}` names a file with `{part}`: {named} rows; the first is {first}"),
    )
    .about(Topic::Culprit)
}

/// Checks that the ledger counts waits for pages that were reclaimed when memory was short as memory stalls, rather
/// than as block IO.
fn memory(min_share: f64, run: &Observed) -> Check {
    let ledger = run.report.ledger.iter().find(|ledger| ledger.victim.pid == Some(run.victim_pid));
    let in_state = |state| -> u64 {
        let parts = ledger.iter().flat_map(|ledger| &ledger.parts);
        parts.filter(|part| part.state == state).map(|part| part.ns).sum()
    };
    let (memory, block) = (in_state(LedgerState::MemStall), in_state(LedgerState::BlockIo));
    let share = memory as f64 / (memory + block).max(1) as f64;
    Check::new(
        share >= min_share,
        format!(
            "of waiting for pages, {:.0} % is memory's in the ledger at least: {:.1} % of {} ms",
            min_share * 100.0,
            share * 100.0,
            tenths_of_ms((memory + block) as f64)
        ),
    )
    .about(Topic::Loss)
}

fn agreement(name: &str, run: &Observed, threads: u32) -> Check {
    let both = run.victim.waited_ns_per_s().zip(run.reported_ns_per_s());
    let Some((own, reported)) = both else {
        let what = format!("victim and report {name} have a ledger of the victim");
        return Check::new(false, what).about(Topic::Loss).resting_on(Precondition::Nothing);
    };
    let tolerance = own.max(reported) * TOLERANCE + TOLERANCE_NS_PER_S * f64::from(threads);
    // The victim's clock includes time that the hypervisor took while the victim should have run or been woken. The
    // report does not include it, since that is not waiting behind another process. How much of the stolen time hit
    // the victim is unknown: between none and all. If so much is stolen that no check could fail, the machine is
    // unfit (`fitness`).
    let stolen = run.stolen_ns_per_s().min(own);
    Check::new(
        (own - stolen - tolerance..=own + tolerance).contains(&reported),
        format!(
            "report and victim agree on its waiting {name}: {} and {} ms/s (+- {}; up to {} of the victim's stolen)",
            tenths_of_ms(reported),
            tenths_of_ms(own),
            tenths_of_ms(tolerance),
            tenths_of_ms(stolen)
        ),
    )
    .about(Topic::Loss)
    .resting_on(Precondition::Nothing)
}

/// The victim's sleep by the report and by its own clocks may differ by this part of the wall time of its threads.
const SLEEP_POINTS: f64 = 0.02;

/// Checks that the report splits the victim's sleep as its threads do, which know for what each of their calls is.
fn asleep(name: &str, run: &Observed, own: Slept) -> Check {
    let ledger = run.report.ledger.iter().find(|it| it.victim.pid == Some(run.victim_pid));
    let told = |kind: SleepKind| -> u64 {
        let parts = ledger.iter().flat_map(|it| &it.asleep).filter(|it| it.kind == kind);
        parts.map(|part| part.ns).sum()
    };
    let wall_ns = ledger.map_or(0, |it| it.wall_ns).max(1) as f64;
    // Where the user says which threads serve requests, what the others sleep is told apart.
    let beside_ns = if told(SleepKind::NoEntry) > 0 { 0 } else { own.beside_ns };
    let (others_ns, timer_ns) = (told(SleepKind::WaitsForOthers), told(SleepKind::OwnTimer));
    let own_timer_ns = own.timer_ns + beside_ns;
    // A thread that hands out work and sleeps on its own timer is that timer to those that wait for it, or has no work.
    let compared = [
        ("for others", others_ns, [own.others_ns, own.others_ns + own.disk_ns]),
        ("own timer", timer_ns, [own_timer_ns, own_timer_ns + own.idle_ns]),
        (
            "that or for work",
            timer_ns + told(SleepKind::WaitsForWork),
            [own_timer_ns + own.idle_ns; 2],
        ),
    ]
    .map(|(what, told, own)| (what, told as f64 / wall_ns, own.map(|ns| ns as f64 / wall_ns)));
    let said = compared.map(|(what, told, [least, most])| {
        let own = match most - least {
            0.0 => format!("{:.1}", least * 100.0),
            _ => format!("{:.1} to {:.1}", least * 100.0, most * 100.0),
        };
        format!("{what} {:.1} and {own} %", told * 100.0)
    });
    let within = |(_, told, [least, most]): &(&str, f64, [f64; 2])| {
        (least - SLEEP_POINTS..=most + SLEEP_POINTS).contains(told)
    };
    Check::new(
        compared.iter().all(within),
        format!(
            "report and victim agree on its sleep {name}, within {:.0} points: {}",
            SLEEP_POINTS * 100.0,
            said.join(", ")
        ),
    )
    .about(Topic::Loss)
    .resting_on(Precondition::Nothing)
}

/// Of the time in which a victim stood still, interrupts take this part at least, unless the scenario gives another. The
/// rest is the way into each of them and out of it, and interrupts that are not told.
const HANDLERS: f64 = 0.6;

/// Checks that the report's time of interrupts is what the victim's own clock says, without its waiting for a CPU.
fn interrupted(name: &str, run: &Observed, stood_still_ns: u64, handlers: f64) -> Check {
    let ledger = run.report.ledger.iter().find(|it| it.victim.pid == Some(run.victim_pid));
    let told = ledger.and_then(|ledger| {
        let on_cpu = ledger.parts.iter().filter(|part| part.state == LedgerState::OnCpu);
        let on_cpu_ns: u64 = on_cpu.map(|part| part.ns).sum();
        Some(on_cpu_ns as f64 * ledger.interrupted?.get() / run.report.window.seconds)
    });
    let Some((told, waited)) = told.zip(run.reported_ns_per_s()) else {
        let what = format!("the report {name} says what interrupts took from the victim");
        return Check::new(false, what).about(Topic::Loss).resting_on(Precondition::Nothing);
    };
    let own = stood_still_ns as f64 / run.victim.wall_ns.max(1) as f64 * 1e9;
    let least = (own - waited - run.stolen_ns_per_s()) * handlers - TOLERANCE_NS_PER_S;
    let most = own * (1.0 + TOLERANCE) + TOLERANCE_NS_PER_S;
    Check::new(
        (least..=most).contains(&told),
        format!(
            "interrupts take from the victim what its clock says {name}: {} ms/s of {} ms/s in which it stood still; it waited \
             for {} ms/s",
            tenths_of_ms(told),
            tenths_of_ms(own),
            tenths_of_ms(waited)
        ),
    )
    .about(Topic::Loss)
    .resting_on(Precondition::Nothing)
}

/// Maximum share of the victim's time that may be unattributed.
const MAX_UNATTRIBUTED: f64 = 0.01;

/// Unattributed share of a ledger; 0 if its source does not see all states.
fn unattributed(ledger: &Ledger) -> f64 {
    let of = |state| ledger.parts.iter().find(|part| part.state == state).map(|part| part.ns);
    let unknown_ns = of(LedgerState::Sleep).and(of(LedgerState::Unattributed));
    unknown_ns.unwrap_or(0) as f64 / ledger.wall_ns.max(1) as f64
}

fn conservation(run: &Observed) -> Check {
    let ledgers = &run.report.ledger;
    let off = |ledger: &Ledger| {
        let sum: u64 = ledger.parts.iter().map(|part| part.ns).sum();
        (sum as f64 / ledger.wall_ns.max(1) as f64 - 1.0).abs()
    };
    let worst = ledgers.iter().map(off).fold(0.0, f64::max);
    let excess_ns = ledgers.iter().map(|ledger| ledger.excess_ns).max().unwrap_or(0);
    let of_victim = ledgers.iter().find(|ledger| ledger.victim.pid == Some(run.victim_pid));
    let unknown = of_victim.map_or(0.0, unattributed);
    Check::new(
        worst <= 0.001 && excess_ns == 0 && unknown <= MAX_UNATTRIBUTED,
        format!(
            "the ledgers sum to 100 +- 0.1 % of the wall time, and the victim's leaves nothing out: off by {:.3} %, {} ms \
             counted twice, {:.2} % unattributed",
            worst * 100.0,
            tenths_of_ms(excess_ns as f64),
            unknown * 100.0
        ),
    )
    .resting_on(Precondition::Nothing)
}

#[cfg(test)]
mod tests;
