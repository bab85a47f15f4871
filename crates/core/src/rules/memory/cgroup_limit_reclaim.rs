// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MEM001: threads free memory at the limit of a memory cgroup before they get some.

use super::allocators::Allocators;
use super::limits::{self, Level, at_limit, levels};
use super::losses::{self, MemoryLoss, Victim, reclaimed};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Unit};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Limit, Rule, Status, Verdict, remedy, severity};
use crate::text::units;
use crate::view::{Group, Groups, Reclaimed, View};

const COMES_BACK: Limit = Limit {
    name: "comes_back",
    value: 0.1,
    unit: "of the pages that were freed at the limit are needed again",
    why: "if fewer are, more memory is filled with what nobody needs again: nine tenths of the pages are freed all the same",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "MEM001",
    area: Area::Memory,
    question: Question::Memory,
    name: "cgroup-limit-reclaim",
    summary: "threads free memory at the limit of a cgroup before they get some",
    any_of: &[Source::Reclaim],
    helps: &[Source::Sched, Source::Psi, Source::Settings],
    limits: &[&[COMES_BACK], &severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("cgroup_limit_reclaim.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    if !view.covers(Source::Sched) {
        let missing = "the time in which threads want to run: no scheduler probe".to_owned();
        return Verdict::NoData { missing: vec![missing] };
    }
    let groups = view.groups();
    let lost = |group: &Group<'_>, usage: &_| {
        MemoryLoss::of(view, usage, reclaimed(view, group, at_limit).ns)
    };
    let said = ("freed memory at a limit", "no thread freed memory at the limit of a cgroup");
    match losses::victims(view, groups.list(), lost, said) {
        Ok(victims) => {
            Verdict::Fired(victims.iter().map(|victim| finding(view, &groups, victim)).collect())
        }
        Err(quiet) => quiet,
    }
}

fn finding(view: &View, groups: &Groups<'_>, victim: &Victim<'_, '_>) -> Finding {
    let Victim { severity, loss, group, usage } = victim;
    let levels = levels(view, group);
    // A limit that has no cgroup is not known: it is not the host.
    let places = levels.iter().map(|level| level.cgroup).filter(Option::is_some);
    let who = Allocators::of(view, groups, (group, loss.ns), places);
    let confidence = Confidence::of(view);
    let mut lines = lines(view, group, loss, &levels);
    let of_memory = reclaimed(view, group, at_limit).memory_ns;
    let note = format!(
        "of {} in which its threads slept for want of memory, that much is part of this time",
        units::duration(usage.states.mem_stall_ns as f64)
    );
    let label = Source::Reclaim.label();
    lines.push(evidence(view, "waiting for memory in it", of_memory as f64, Unit::Ns, label, note));
    lines.push(confidence.evidence(view));
    let spends = words::verb(group, "spends", "spend");
    let behind = who.behind(group);
    Finding {
        title: format!(
            "{} {spends} {} freeing memory at the limit of {}{behind}",
            group_name(group),
            words::of_every_second(loss.ns_per_s),
            limits::in_words(view, levels.first().and_then(|level| level.cgroup))
        ),
        victim: words::group_entity(view, group),
        cost: loss.cost(),
        causes: who.causes(view),
        evidence: lines,
        fix: fixes(view, levels.first(), &reclaimed(view, group, at_limit)),
        confirm: Some(words::look_again(
            group,
            "with a higher limit, or less allocated below it, the time at the limit falls".into(),
        )),
        ..RULE.finding(*severity, confidence.value())
    }
}

fn lines(view: &View, group: &Group<'_>, loss: &MemoryLoss, levels: &[Level]) -> Vec<Evidence> {
    let label = Source::Reclaim.label();
    let of = reclaimed(view, group, at_limit);
    let note = losses::what_it_was(&of, loss.ns);
    let mut lines =
        vec![evidence(view, "reclaim at the limit", loss.ns as f64, Unit::Ns, label, note)];
    lines.extend(levels.iter().take(3).map(|it| limits::line(view, it, loss.ns, "of the time")));
    let came_back = levels.first().and_then(|level| limits::came_back(view, level));
    if let Some(part) = came_back {
        let note = "of the pages that anybody freed at the first of these limits (`workingset_refault_*`): more memory \
                    would have kept them, or a part of them"
            .to_owned();
        lines.push(evidence(view, "needed again", part, Unit::Ratio, "memory.stat", note));
    }
    let note = "that its threads freed, and used for what they wanted to allocate".to_owned();
    lines.push(evidence(view, "pages freed", of.pages as f64, Unit::Count, label, note));
    lines.extend(losses::pressure(view));
    lines
}

/// The remedies. A higher limit comes first unless what is freed is hardly ever needed again; what comes first then is what
/// makes it less, or sooner done.
fn fixes(view: &View, level: Option<&Level>, of: &Reclaimed) -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let others = [
        fix(
            "have what allocates below that limit keep less: smaller caches, or files read and written past the page \
             cache (`O_DIRECT`) where they are used once",
            "what is no longer kept must be computed or read again",
        ),
        fix(
            "move what allocates most into a cgroup with a limit of its own",
            "there it frees its own memory, and may need more of the host's",
        ),
    ];
    let mut raise = limits::raise(view, level);
    let came_back = level.and_then(|level| limits::came_back(view, level));
    let Some(part) = came_back.filter(|part| *part < COMES_BACK.value) else {
        return std::iter::once(raise).chain(others).collect();
    };
    raise.action.push_str(&format!(
        "; that may help little, for {} of the pages that were freed there were needed again",
        units::share(part)
    ));
    // On a CPU, threads look for pages; asleep, they wait until some can be freed.
    let asleep = 2 * of.memory_ns >= of.known_ns;
    let earlier =
        level.filter(|_| asleep).and_then(|it| remedy::write_earlier(view, it.cgroup?, it.bound?));
    earlier.into_iter().chain(others).chain([raise]).collect()
}
