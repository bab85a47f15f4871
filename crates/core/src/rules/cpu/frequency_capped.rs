// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU003: CPUs are kept below the frequency that they could run at.

use crate::finding::{Area, Confirm, Cost, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::host_diff::{Drivers, knowledge};
use crate::rules::hosts::{Hosts, least, most, read, victim};
use crate::rules::severity::{self, LOSS_LIMITS};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::snapshot::{Fact, Snapshot};
use crate::text::Target;

const CAPPED: Limit = Limit {
    name: "capped_below",
    value: 0.95,
    unit: "of the hardware's highest frequency is the limit below which CPUs are capped",
    why: "drivers round frequencies, and some keep a step in reserve",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "CPU003",
    area: Area::Cpu,
    question: Question::CpuSpeed,
    name: "frequency-capped",
    summary: "processors are kept below the frequency that the hardware offers",
    any_of: &[],
    helps: &[],
    limits: &[&[CAPPED], &LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("frequency_capped.md"),
    file: file!(),
    check: Check::Hosts(check),
};

/// Drivers for which the governor `powersave` means the lowest frequency all the time. With the others the hardware
/// chooses.
const FIXED: [&str; 6] =
    ["acpi-cpufreq", "pcc-cpufreq", "intel_cpufreq", "cppc_cpufreq", "powernow-k8", "cpufreq-dt"];
/// Drivers that use the files below `/sys/devices/system/cpu/intel_pstate`.
const PSTATE: [&str; 2] = ["intel_pstate", "intel_cpufreq"];

/// A setting that caps the frequency.
struct Cap {
    key: String,
    /// What it is set to, in words.
    set: String,
    /// Share of the highest frequency that is lost, 0..1; `None` if it is not known.
    lost: Option<f64>,
    fix: Fix,
    /// The change with which an experiment lifts it, if it can.
    lifts: Option<String>,
}

/// What a snapshot says about a host's frequencies.
struct Speeds<'a> {
    snapshot: &'a Snapshot,
    driver: String,
    highest_khz: i128,
}

fn check(hosts: &Hosts<'_>) -> Verdict {
    let (mut fired, mut quiet, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (snapshot, host) in hosts.snapshots.iter().zip(&hosts.diff.hosts) {
        let name = hosts.diff.called(host);
        match speeds(snapshot) {
            Err(why) => missing.push(format!("`{name}`: {why}")),
            Ok(speeds) => match finding(&speeds, &name) {
                Some(finding) => fired.push(finding),
                None => quiet.push(format!(
                    "`{name}` lets its CPUs run at {} (driver `{}`)",
                    mhz(speeds.highest_khz),
                    speeds.driver.replace('`', "'")
                )),
            },
        }
    }
    match (fired.is_empty(), quiet.is_empty()) {
        (false, _) => Verdict::Fired(fired),
        (true, false) => Verdict::Quiet { closest: quiet.join("; ") },
        (true, true) => Verdict::NoData { missing },
    }
}

/// The facts whose key matches the pattern.
fn facts<'a>(snapshot: &'a Snapshot, pattern: &'a str) -> impl Iterator<Item = &'a Fact> {
    snapshot.facts.iter().filter(move |fact| knowledge::fits(pattern, &fact.key))
}

fn speeds(snapshot: &Snapshot) -> Result<Speeds<'_>, String> {
    let driver = match Drivers::of(snapshot).frequency {
        None => return Err("it is not known which driver sets frequencies".into()),
        Some(driver) if driver == "none" => {
            return Err("no driver sets frequencies: firmware or hypervisor decide, unseen".into());
        }
        Some(driver) => driver,
    };
    let highest = facts(snapshot, "/sys/devices/system/cpu/*cpuinfo_max_freq").find_map(least);
    match highest.filter(|khz| *khz > 0) {
        Some(highest_khz) => Ok(Speeds { snapshot, driver, highest_khz }),
        None => Err("the hardware's highest frequency is not known".into()),
    }
}

impl Speeds<'_> {
    fn number(&self, pattern: &str) -> Option<(String, i128)> {
        facts(self.snapshot, pattern).find_map(|fact| Some((fact.key.clone(), least(fact)?)))
    }

    /// Share of the highest frequency that is lost at `khz`, 0..1.
    fn lost(&self, khz: i128) -> f64 {
        (1.0 - khz as f64 / self.highest_khz as f64).clamp(0.0, 1.0)
    }

    fn caps(&self) -> Vec<Cap> {
        let mut caps = Vec::new();
        caps.extend(
            self.limit(
                "/sys/devices/system/cpu/*scaling_max_freq",
                Some("cpupower frequency-set -u"),
            ),
        );
        caps.extend(self.limit("/sys/devices/system/cpu/*bios_limit", None));
        caps.extend(self.governor());
        caps.extend(self.turbo());
        if PSTATE.contains(&self.driver.as_str())
            && let Some((key, percent)) =
                self.number("/sys/devices/system/cpu/intel_pstate/max_perf_pct")
            && (percent as f64) < 100.0 * CAPPED.value
        {
            caps.push(Cap {
                set: format!("{percent} %"),
                lost: Some((1.0 - percent as f64 / 100.0).clamp(0.0, 1.0)),
                fix: written(&key, "100"),
                lifts: None,
                key,
            });
        }
        caps.sort_by(|a, b| b.lost.unwrap_or(0.0).total_cmp(&a.lost.unwrap_or(0.0)));
        caps
    }

    fn limit(&self, pattern: &str, command: Option<&str>) -> Option<Cap> {
        let (key, khz) = self.number(pattern)?;
        if khz <= 0 || khz as f64 >= CAPPED.value * self.highest_khz as f64 {
            return None;
        }
        let fix = Fix {
            action: match command {
                Some(_) => "raise the limit".into(),
                None => {
                    "raise the limit in the firmware's set-up (power profile, power capping)".into()
                }
            },
            command: command.map(|command| format!("{command} {}kHz", self.highest_khz)),
            risk: Some("power and heat; whoever set the limit may have had a reason".into()),
            expect: None,
        };
        let lifts = command.map(|_| format!("cpu:scaling_max_freq={}", self.highest_khz));
        Some(Cap { key, set: mhz(khz), lost: Some(self.lost(khz)), fix, lifts })
    }

    fn governor(&self) -> Option<Cap> {
        let fact = facts(self.snapshot, "/sys/devices/system/cpu/*scaling_governor").next()?;
        let powersave = match &fact.value {
            crate::snapshot::Value::Each(parts) => {
                parts.iter().any(|part| part.value == crate::snapshot::Value::text("powersave"))
            }
            value => *value == crate::snapshot::Value::text("powersave"),
        };
        if !powersave || !FIXED.contains(&self.driver.as_str()) {
            return None;
        }
        let lowest = self.number("/sys/devices/system/cpu/*scaling_min_freq");
        let lowest = lowest.or_else(|| self.number("/sys/devices/system/cpu/*cpuinfo_min_freq"));
        Some(Cap {
            key: fact.key.clone(),
            set: "powersave: the lowest frequency, always".into(),
            lost: lowest.map(|(_, khz)| self.lost(khz)),
            fix: Fix {
                action: "choose a governor that raises the frequency".into(),
                command: Some("cpupower frequency-set -g performance".into()),
                risk: Some("costs power".into()),
                expect: None,
            },
            lifts: Some("cpu:scaling_governor=performance".into()),
        })
    }

    /// Turbo that is disabled. What it would add is known only where the nominal frequency is.
    fn turbo(&self) -> Option<Cap> {
        let nominal = self.number("/sys/devices/system/cpu/*base_frequency");
        let lost = nominal.map(|(_, khz)| self.lost(khz)).filter(|lost| *lost > 0.0);
        if PSTATE.contains(&self.driver.as_str()) {
            let off = facts(self.snapshot, "/sys/devices/system/cpu/intel_pstate/no_turbo")
                .find(|fact| most(fact) == Some(1))?;
            let fix = written(&off.key, "0");
            return Some(Cap {
                key: off.key.clone(),
                set: "turbo is off".into(),
                lost,
                fix,
                lifts: None,
            });
        }
        let (key, _) = ["/sys/devices/system/cpu/*/boost", "/sys/devices/system/cpu/*/cpb"]
            .into_iter()
            .find_map(|pattern| self.number(pattern).filter(|(_, on)| *on == 0))?;
        Some(Cap { fix: written(&key, "1"), lifts: None, key, set: "boost is off".into(), lost })
    }
}

/// Files that a command may switch turbo on with.
const SWITCHES: [&str; 3] = [
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/*/boost",
    "/sys/devices/system/cpu/*/cpb",
];

fn written(key: &str, value: &str) -> Fix {
    Fix {
        action: format!("set it to {value}"),
        command: Target::of_kernel(key, &SWITCHES)
            .map(|file| format!("echo {value} | sudo tee {file}")),
        risk: Some("power and heat; run times depend more on what other CPUs do".into()),
        expect: None,
    }
}

fn finding(speeds: &Speeds<'_>, name: &str) -> Option<Finding> {
    let caps = speeds.caps();
    let worst = caps.first()?;
    // All that can be lifted: a change of one cap alone shows nothing below another one.
    let lifts: Vec<&str> = caps.iter().filter_map(|cap| cap.lifts.as_deref()).collect();
    let prove = (lifts.len() == caps.len()).then(|| {
        let set: String = lifts.iter().map(|it| format!(" --set {it}")).collect();
        format!("sudo deburr prove{set} --measure probe:p50 --probe CMD")
    });
    let share = worst.lost.unwrap_or(0.0);
    let lost_ns_per_s = (share * 1e9) as u64;
    let confidence = if worst.lost.is_some() { 0.9 } else { 0.6 };
    // A cap of unknown size counts as well.
    let severity = match worst.lost {
        None => Severity::Low,
        Some(_) => severity::of_loss(lost_ns_per_s, share).unwrap_or(Severity::Info),
    };
    let driver = speeds.driver.replace('`', "'");
    let title = format!(
        "`{name}` keeps its CPUs below the {} that they can run at: `{}` (driver `{driver}`)",
        mhz(speeds.highest_khz),
        worst.key.rsplit('/').next().unwrap_or_default().replace('`', "'")
    );
    let evidence: Vec<Evidence> = caps
        .iter()
        .map(|cap| {
            let note = match cap.lost {
                Some(lost) => format!("{}: {:.0} % slower than possible", cap.set, lost * 100.0),
                None => format!("{}: how much slower cannot be told", cap.set),
            };
            read("cap", cap.lost.unwrap_or(0.0), Unit::Text, &cap.key, note)
        })
        .collect();
    Some(Finding {
        title,
        victim: victim(name),
        cost: Cost { lost_ns_per_s, share, ..Cost::default() },
        evidence,
        prove,
        fix: caps.into_iter().map(|cap| cap.fix).collect(),
        confirm: Some(Confirm {
            command: "grep . /sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq".into(),
            expect: Some("while CPUs are busy, none is above the cap".into()),
        }),
        ..RULE.finding(severity, confidence)
    })
}

fn mhz(khz: i128) -> String {
    match khz {
        khz if khz >= 1_000_000 => format!("{:.1} GHz", khz as f64 / 1e6),
        khz => format!("{} MHz", khz / 1000),
    }
}
