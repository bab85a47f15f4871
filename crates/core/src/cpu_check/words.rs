// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sentences of a verdict.

use super::document::{AffinityLimit, Class, Cpus, Group, OwnLimit};
use super::sweep::{self, Regime};
use super::verdict::Facts;
use crate::procfs::cpu_list;
use crate::text::ticked;
use crate::text::units;

/// Maximum number of groups that a sentence lists.
const NAMED: usize = 4;

pub(super) const NOT_REALTIME: &str = "the workers of the pair test had no precedence over other tasks (`SCHED_FIFO` takes CAP_SYS_NICE, and in a v1 \
     cgroup with the cpu controller `cpu.rt_runtime_us`)";

pub(super) fn others(cpus: f64) -> String {
    format!("other tasks used {cpus:.1} CPUs meanwhile: repeat it when the machine is idle")
}

pub(super) fn untested(tested: usize, all: u64) -> String {
    format!(
        "{} of {} pairs were tested, those nearest to each other; the others are taken for independent",
        units::count(tested as f64),
        units::count(all as f64)
    )
}

pub(super) fn unclear(pairs: usize) -> String {
    format!(
        "{} could not be told: too few of their rounds were undisturbed, or those few disagree",
        units::counted(pairs as u64, "pair", "pairs")
    )
}

pub(super) fn refuted(work: f64) -> String {
    format!(
        "CPUs that shared a core in the pair test did not during the sweep, which did the work of {work:.1} CPUs: repeat \
         the check"
    )
}

pub(super) fn not_all(cpus: &Cpus) -> String {
    let by = match cpus.kept_by {
        Some(AffinityLimit::Cpuset) => ", those of its cpuset",
        Some(AffinityLimit::Affinity) => ", those of its affinity mask",
        None => "",
    };
    format!(
        "of {} online CPUs this process may use {} ({}){by}: only these were looked at",
        cpus.online,
        cpus.used.len(),
        cpu_list::format(&cpus.used)
    )
}

pub(super) fn offline(cpus: &[u32]) -> String {
    let are = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    format!("offline, so not looked at: {are} {}", cpu_list::format(cpus))
}

pub(super) fn limit(limit: &OwnLimit) -> String {
    format!(
        "this process itself is limited to {} CPUs' worth of time, by the quota of {}: shares and work of the sweep are \
         what that leaves, speeds are the CPUs'",
        limit.cpus,
        ticked(&limit.cgroup)
    )
}

pub(super) fn frequency(allowed: f64) -> String {
    format!(
        "a setting (`scaling_max_freq`) keeps CPUs at {} of their frequency",
        units::share(allowed)
    )
}

/// `CPUs 0 and 1, CPUs 2 and 3`
pub(crate) fn named<'g>(groups: impl Iterator<Item = &'g Group>) -> String {
    let all: Vec<&Group> = groups.collect();
    let mut names: Vec<String> = all
        .iter()
        .take(NAMED)
        .map(|group| match group.cpus.as_slice() {
            [a, b] => format!("CPUs {a} and {b}"),
            cpus => format!("CPUs {}", cpu_list::format(cpus)),
        })
        .collect();
    if all.len() > NAMED {
        names.push(format!("{} more groups", all.len() - NAMED));
    }
    names.join(", ")
}

fn cpus(n: usize) -> String {
    units::counted(n as u64, "CPU", "CPUs")
}

fn cores(n: u32) -> String {
    units::counted(u64::from(n), "core", "cores")
}

pub(super) fn summary(facts: &Facts, class: Class, usable: Option<u32>) -> String {
    let used = facts.used();
    let as_cores = || match usable {
        Some(n) => format!("{} are {}", cpus(used), cores(n)),
        None => format!("{} are less than as many cores", cpus(used)),
    };
    let groups_known = facts.hidden().next().is_some();
    match class {
        Class::TimeSliced if !groups_known => format!(
            "{} for work: the hypervisor runs them in turns; which with which could not be told",
            as_cores()
        ),
        Class::SharedCore if !groups_known => {
            format!("{}: which of them share one could not be told", as_cores())
        }
        Class::TimeSliced => format!(
            "{} for work: the hypervisor runs {} in turns on one CPU each",
            as_cores(),
            named(facts.hidden())
        ),
        Class::SharedCore => format!(
            "{}, and the kernel does not know: {} share one each",
            as_cores(),
            named(facts.hidden())
        ),
        Class::SharedAsTold => format!("{}, as the kernel knows", as_cores()),
        Class::Even if used == 1 => "one CPU, which runs at an even speed".into(),
        Class::Even if facts.sometimes_share() > 0.0 => format!(
            "{} are as many cores most of the time; in {} of the looks two shared one",
            cpus(used),
            units::share(facts.sometimes_share())
        ),
        Class::Even => {
            format!("{} are as many cores: the same work takes the same time", cpus(used))
        }
        Class::Foreign => foreign(facts),
        Class::Clock => clock(facts),
        Class::Inconclusive => inconclusive(facts),
    }
}

fn foreign(facts: &Facts) -> String {
    let outside = match facts.cpus.hypervisor {
        Some(false) => "somebody else on the same cores",
        _ => "somebody outside of this machine",
    };
    let share = facts.foreign_share();
    if share > 0.0 && facts.used() > 1 {
        return format!(
            "{outside} holds CPUs up: in {} of the looks one was slow by itself",
            units::share(share)
        );
    }
    let work = sweep::capacity(facts.used(), &facts.steps).unwrap_or_default();
    format!("{outside} takes time from the CPUs: {} do the work of {work:.1}", cpus(facts.used()))
}

fn clock(facts: &Facts) -> String {
    match facts.alone {
        Some(alone) if alone < 0.85 => format!(
            "the CPUs are not equally fast: the slowest has {} of the speed of the fastest",
            units::share(alone)
        ),
        _ => format!(
            "the CPUs get slower when all of them compute: {} of the speed of one alone",
            units::share(facts.wholeness().unwrap_or_default())
        ),
    }
}

fn inconclusive(facts: &Facts) -> String {
    let missed: u64 = facts.pairs.iter().map(|pair| pair.missed).sum();
    let disturbed: u64 = facts.pairs.iter().map(|pair| pair.disturbed).sum();
    let competed = facts.steps.iter().any(|step| step.regime == Regime::Competition);
    let why = match () {
        () if facts.pairs.is_empty() => "it ended before the pairs of CPUs were tested",
        () if missed >= disturbed && (missed > 0 || competed) && facts.cpus.limit.is_some() => {
            "a CPU limit of its own kept its workers from the CPUs"
        }
        () if missed >= disturbed && (missed > 0 || competed) => {
            "other tasks kept its workers from the CPUs"
        }
        () if disturbed > 0 => "CPUs were slow by themselves too often",
        () => "too few rounds of the pair test were done",
    };
    format!("inconclusive: {why}")
}

pub(super) fn advice(facts: &Facts, class: Class, usable: Option<u32>) -> Vec<String> {
    let mut advice = of_class(facts, class, usable);
    if let Some(limit) = &facts.cpus.limit {
        let (cpus, cgroup) = (limit.cpus, ticked(&limit.cgroup));
        match class {
            Class::Inconclusive => {
                advice = vec![format!("run it outside of {cgroup}, or lift its limit")];
            }
            _ => advice.push(format!(
                "what runs in {cgroup} has {cpus} CPUs' worth of time in all: size it for that"
            )),
        }
    }
    advice
}

fn of_class(facts: &Facts, class: Class, usable: Option<u32>) -> Vec<String> {
    let used = facts.used();
    match (class, usable) {
        (Class::TimeSliced | Class::SharedCore | Class::SharedAsTold, Some(cores)) if cores > 0 => {
            let per_core = used.div_ceil(cores as usize);
            let one_each: Vec<u32> =
                facts.groups.iter().filter_map(|group| group.cpus.first().copied()).collect();
            let mut advice = vec![format!(
                "size for {}: where more compute at the same time, take {per_core} CPUs for each",
                units::counted(u64::from(cores), "busy process", "busy processes")
            )];
            // Only if it is known for all CPUs which of them share a core.
            if class != Class::SharedAsTold && one_each.len() == cores as usize {
                advice.push(format!(
                    "keep what needs a steady speed on one CPU of each core: `taskset -c {} CMD`",
                    cpu_list::format(&one_each)
                ));
            }
            advice
        }
        (Class::Foreign, _) => vec![
            "ask the provider for CPUs of one's own (dedicated instances, pinned CPUs), or move"
                .into(),
            "look for hours: `deburr cpu-check` now and then says whether it comes and goes".into(),
        ],
        (Class::Clock, _) => vec![
            "look at frequency limits, power limits and temperature before blaming the software"
                .into(),
        ],
        (Class::Inconclusive, _) => {
            vec!["repeat it when the machine is idle, as root, without `--quick`".into()]
        }
        (Class::TimeSliced | Class::SharedCore | Class::SharedAsTold, _) => {
            vec!["repeat it without `--quick`: how many cores there are was not found out".into()]
        }
        _ if used == 1 => vec!["size for 1 process that computes at a time".into()],
        _ => vec![format!("size for {used} processes that compute at the same time")],
    }
}
