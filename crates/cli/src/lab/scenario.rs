// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents of a scenario file: an incident as data. Parsing rejects unknown keys, by name and line, and values
//! that cannot work, so a scenario that parses can be run.

use super::disk::DiskSpec;
use super::experiment::ExperimentSpec;
use super::faults::FaultSpec;
use super::needs::Need;
use super::victims::VictimSpec;
use anyhow::{Context as _, Result, ensure};
use deburr_core::finding::Area;
use serde::de::{self, IntoDeserializer as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path};

/// An incident: what is done to a host, and what `deburr` must report about it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// Its name on the command line, which is also the stem of its file.
    pub(crate) name: String,
    /// What is done, in one line.
    pub(crate) summary: String,
    /// Which problem of real hosts this is, and what makes it hard to see, in a few lines.
    pub(crate) explains: String,
    /// What the machine must offer.
    pub(crate) needs: Vec<Need>,
    /// Why no test runs it by its name. Absent = one does.
    pub(crate) no_test: Option<String>,
    /// Whether its recording is in `fixtures/lab`. Absent = yes.
    pub(crate) kept: Option<bool>,
    /// Length of the observation with faults, in seconds. The control run is shorter.
    pub(crate) seconds: u32,
    /// Whether the fault run, too, must yield nothing above `info`.
    #[serde(default)]
    pub(crate) silent: bool,
    /// Areas whose findings count: one, or a list. Other problems of the host are not the scenario's concern. Absent = all
    /// areas.
    #[serde(default)]
    pub(crate) area: Areas,
    /// Code of the worst finding of the fault run. Absent only when `silent`.
    pub(crate) expect_first: Option<String>,
    /// Codes that the fault run must yield, in any place.
    #[serde(default)]
    pub(crate) expect: Vec<String>,
    /// Codes that the fault run must not yield above `info`.
    #[serde(default)]
    pub(crate) forbid: Vec<String>,
    /// Codes that the control run must not yield above `info`. Absent = all codes.
    pub(crate) control_forbid: Option<Vec<String>>,
    /// The victim's longest request with the faults takes at least this long.
    pub(crate) stall_ms: Option<u64>,
    /// Interval that the first finding must report, in milliseconds.
    pub(crate) rhythm_ms: Option<u64>,
    /// Code of the finding whose stalls and files must agree with what the victim and the disk measured.
    pub(crate) measured: Option<String>,
    /// Lower bound of the victim's 99th percentile with the faults, in multiples of that without faults.
    pub(crate) p99_factor: Option<f64>,
    /// A word that must occur in one of the fixes of the first finding.
    pub(crate) fix: Option<String>,
    /// Lower bound of memory stalls' share of the time in which the victim waits for pages, by the ledger. The rest
    /// is block IO.
    pub(crate) memory_share: Option<f64>,
    /// Lower bound of what the report says that interrupts took, as a share of the time in which the victim stood still by its
    /// own clock. Absent = that of soft interrupts, which come many at a time.
    pub(crate) handlers: Option<f64>,
    /// Part of a file name that the first finding must name.
    pub(crate) file: Option<String>,
    /// Whether system calls are counted as well.
    #[serde(default)]
    pub(crate) syscalls: bool,
    /// Which threads of the victim serve requests: what `--entry` is given.
    #[serde(default)]
    pub(crate) entries: Vec<String>,
    /// The disk of the run, if the scenario is about one.
    pub(crate) disk: Option<DiskSpec>,
    /// Whether files of the run are on the host's own disk instead.
    #[serde(default)]
    pub(crate) host_disk: bool,
    pub(crate) victim: VictimSpec,
    /// What is done to the victim, in this order. Not part of the control run.
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<FaultSpec>,
    /// Culprits that the findings must name, with the minimum share of each.
    #[serde(default, rename = "cause")]
    pub(crate) causes: Vec<CauseBound>,
    /// What `lab run --prove` puts to the test while the faults last, and what must come out.
    #[serde(default, rename = "prove")]
    pub(crate) experiments: Vec<ExperimentSpec>,
    /// The range of each number that `lab score` varies, by its path.
    #[serde(default)]
    pub(crate) vary: BTreeMap<String, [i64; 2]>,
}

/// Areas of findings; none = all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Areas(Vec<Area>);

impl Areas {
    pub(crate) fn has(&self, area: Area) -> bool {
        self.0.is_empty() || self.0.contains(&area)
    }

    /// The prefixes of their codes in words; `None` = all areas.
    pub(crate) fn prefixes(&self) -> Option<String> {
        let prefixes: Vec<_> = self.0.iter().map(|area| area.prefix()).collect();
        (!prefixes.is_empty()).then(|| prefixes.join(", "))
    }
}

impl<'de> Deserialize<'de> for Areas {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_any(AreasVisitor)
    }
}

struct AreasVisitor;

impl<'de> Visitor<'de> for AreasVisitor {
    type Value = Areas;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an area, or a list of areas")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<Areas, E> {
        Area::deserialize(name.into_deserializer()).map(|area| Areas(vec![area]))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut all: S) -> std::result::Result<Areas, S::Error> {
        let mut areas = Vec::new();
        while let Some(area) = all.next_element()? {
            areas.push(area);
        }
        match areas.is_empty() {
            true => Err(de::Error::invalid_length(0, &self)),
            false => Ok(Areas(areas)),
        }
    }
}

/// A lower bound on the share of a finding's loss that certain processes cause.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CauseBound {
    /// Code of the finding.
    pub(crate) code: String,
    /// Comm of the processes. Absent = any.
    pub(crate) comm: Option<String>,
    /// Their cgroup, below the lab's own. Absent = any.
    pub(crate) cgroup: Option<String>,
    /// Address of the socket or the other end of a connection. Without a port: any port of it. Absent = any.
    pub(crate) address: Option<String>,
    /// Name of a setting. Absent = any cause.
    pub(crate) key: Option<String>,
    /// Their share of the victim's loss, 0..1.
    pub(crate) min_share: f64,
}

impl Scenario {
    /// Reads a scenario file's text.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        scenario.validated()
    }

    /// Builds a scenario from a file that was parsed, and whose numbers may have been changed since.
    pub(super) fn of_table(table: toml::Table) -> Result<Self> {
        let scenario: Self = table.try_into()?;
        scenario.validated()
    }

    fn validated(self) -> Result<Self> {
        self.validate().with_context(|| format!("scenario `{}`", self.name))?;
        Ok(self)
    }

    fn validate(&self) -> Result<()> {
        ensure!(is_label(&self.name), "`name` must be of a-z, 0-9 and `-`");
        ensure!((1..=600).contains(&self.seconds), "`seconds` must be 1 to 600");
        ensure!(
            self.silent != self.expect_first.is_some(),
            "one of `silent = true` and `expect_first = \"CODE\"` is needed"
        );
        // The build and the tests read these two by line.
        ensure!(self.kept != Some(true), "`kept = true` goes without saying");
        ensure!(self.no_test.as_deref() != Some(""), "`no_test` gives the reason");
        for code in self.codes() {
            ensure!(is_code(code), "`{code}` is no finding code, which look like `SCH001`");
        }
        self.victim.validate()?;
        if let Some(disk) = &self.disk {
            disk.validate()?;
        }
        ensure!(!(self.disk.is_some() && self.host_disk), "either `disk` or `host_disk`");
        ensure!(
            self.disk.is_some() || self.host_disk || !self.victim.as_victim().needs_files(),
            "`victim.broker` needs a `disk`, or `host_disk = true`"
        );
        for fault in &self.faults {
            fault.as_fault().validate()?;
        }
        for cause in &self.causes {
            ensure!(
                (0.0..=1.0).contains(&cause.min_share),
                "`cause.min_share` must be 0 to 1, not {}",
                cause.min_share
            );
            ensure!(
                [&cause.comm, &cause.cgroup, &cause.address, &cause.key]
                    .into_iter()
                    .any(Option::is_some),
                "`cause` needs `comm`, `cgroup`, `address` or `key`"
            );
        }
        let comms: Vec<&str> =
            self.faults.iter().filter_map(|fault| fault.as_fault().comm()).collect();
        let has_program = self.victim.has_program();
        self.experiments.iter().try_for_each(|experiment| experiment.validate(&comms, has_program))
    }

    /// The names of its two runs, without and with faults.
    pub(crate) fn run_names(&self) -> (&'static str, &'static str) {
        if self.silent { ("without load", "with load") } else { ("without fault", "with fault") }
    }

    /// All finding codes that the scenario names.
    pub(crate) fn codes(&self) -> impl Iterator<Item = &str> {
        self.expect_first
            .iter()
            .chain(&self.expect)
            .chain(&self.forbid)
            .chain(self.control_forbid.iter().flatten())
            .chain(&self.measured)
            .chain(self.causes.iter().map(|cause| &cause.code))
            .map(String::as_str)
    }
}

/// Rejects a path that is not strictly below the lab's cgroup.
pub(crate) fn check_cgroup(key: &str, path: &str) -> Result<()> {
    let below = Path::new(path).components().all(|part| match part {
        Component::Normal(name) => name.to_str().is_some_and(is_label),
        _ => false,
    });
    ensure!(below && !path.is_empty(), "`{key}` must be a path of a-z, 0-9, `-` and `/`");
    Ok(())
}

/// Rejects a period outside of 1 us to 10 s.
pub(crate) fn check_period_us(key: &str, period_us: u64) -> Result<()> {
    ensure!((1..=10_000_000).contains(&period_us), "`{key}` must be 1 to 10000000");
    Ok(())
}

/// Rejects an empty list of CPUs.
pub(crate) fn check_cpus(key: &str, cpus: Option<&[usize]>) -> Result<()> {
    ensure!(cpus.is_none_or(|cpus| !cpus.is_empty()), "`{key}` must not be empty");
    Ok(())
}

/// A selection of CPUs in words: ` on usable CPU 0, 1`; empty without a selection.
pub(crate) fn on_cpus(cpus: Option<&[usize]>) -> String {
    let Some(cpus) = cpus else { return String::new() };
    let numbers: Vec<_> = cpus.iter().map(ToString::to_string).collect();
    format!(" on usable CPU {}", numbers.join(", "))
}

/// Rejects a name that does not fit into a comm or has other characters than a label.
pub(crate) fn check_comm(key: &str, comm: &str) -> Result<()> {
    ensure!(
        is_label(comm) && comm.len() <= 15,
        "`{key}` must be 1 to 15 characters of a-z, 0-9, `-`"
    );
    Ok(())
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_code(text: &str) -> bool {
    let (area, number) = text.split_at_checked(3).unwrap_or_default();
    area.bytes().all(|b| b.is_ascii_uppercase())
        && number.len() == 3
        && number.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = r#"
name = "example"
summary = "s"
explains = "e"
needs = ["root", "cpus>=2"]
seconds = 5
expect_first = "SCH001"

[victim]
cgroup = "victim"
threads = 1
work_us = 1000
period_us = 10000

[[fault]]
kind = "spinners"
comm = "spinner"
cgroup = "neighbour"
per_cpu = 2

[[cause]]
code = "SCH001"
comm = "spinner"
min_share = 0.8
"#;

    #[test]
    fn a_good_file_parses() {
        let scenario = Scenario::parse(GOOD).unwrap();
        assert_eq!(scenario.expect_first.as_deref(), Some("SCH001"));
        assert_eq!(scenario.faults.len(), 1);
        assert_eq!(scenario.causes[0].min_share, 0.8);
    }

    #[test]
    fn what_cannot_work_is_refused_by_the_name_of_the_key() {
        for (from, to, named) in [
            ("seconds = 5", "seconds = 5\nsurprise = 1", "surprise"),
            ("threads = 1", "threads = 1\nspeed = 1", "speed"),
            ("per_cpu = 2", "per_cpu = 2\nper_core = 2", "per_core"),
            ("min_share = 0.8", "min_share = 0.8\nmax_share = 1", "max_share"),
            ("min_share = 0.8", "min_share = 1.5", "min_share"),
            ("comm = \"spinner\"\nmin_share", "min_share", "cause"),
            ("kind = \"spinners\"", "kind = \"gremlins\"", "gremlins"),
            ("comm = \"spinner\"\ncgroup", "comm = \"spin\\nner\"\ncgroup", "comm"),
            ("per_cpu = 2", "per_cpu = 0", "per_cpu"),
            ("seconds = 5", "seconds = 0", "seconds"),
            ("seconds = 5", "seconds = -1", "seconds"),
            ("\"SCH001\"\n\n", "\"sch1\"\n\n", "sch1"),
            ("expect_first = \"SCH001\"", "", "expect_first"),
            ("expect_first = \"SCH001\"", "expect_first = \"SCH001\"\nsilent = true", "silent"),
            ("cgroup = \"victim\"", "cgroup = \"../victim\"", "victim.cgroup"),
            ("cgroup = \"victim\"", "cgroup = \"/victim\"", "victim.cgroup"),
            ("cgroup = \"victim\"", "cgroup = \"\"", "victim.cgroup"),
            ("cgroup = \"victim\"", "cgroup = \"victim\"\ncpus = []", "victim.cpus"),
            ("work_us = 1000", "work_us = 10000", "victim.work_us"),
            ("work_us = 1000", "work_us = 0", "victim.work_us"),
            ("threads = 1", "threads = 0", "victim.threads"),
            ("\"cpus>=2\"", "\"cpus>=two\"", "cpus>=two"),
            ("seconds = 5", "seconds = 5\narea = \"space\"", "space"),
            ("seconds = 5", "seconds = 5\narea = [\"sched\", \"space\"]", "space"),
            ("seconds = 5", "seconds = 5\narea = []", "area"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "`{from}` is not in the example");
            let error = format!("{:#}", Scenario::parse(&text).unwrap_err());
            assert!(error.contains(named), "`{to}`: `{named}` is not in: {error}");
        }
    }

    #[test]
    fn experiments_are_refused_by_name_and_line() {
        let prove = "\n[[prove]]\nrun = [\"--set\", \"pause:{spinner}=90%\", \"--measure\", \"queued\"]\n\
                     expect = \"refuted\"\n";
        let good = GOOD.to_owned() + prove;
        let scenario = Scenario::parse(&good).unwrap();
        assert_eq!(scenario.experiments.len(), 1);
        assert!(Scenario::parse(GOOD).unwrap().experiments.is_empty());
        let line = |of: &str| {
            let at = good.lines().position(|line| line.starts_with(of)).unwrap();
            format!("line {},", at + 1)
        };
        for (from, to, named) in [
            ("run = [", "seconds = 5\nrun = [", ["`seconds`", &line("run")]),
            ("\"refuted\"", "\"maybe\"", ["`maybe`", &line("expect = \"ref")]),
            ("expect = \"refuted\"\n", "", ["`expect`", &line("[[prove]]")]),
            ("\"queued\"", "\"speed\"", ["`speed`", &line("run")]),
            ("90%", "95%", ["`--set`", &line("run")]),
            ("\"--measure\"", "\"--json\"", ["`--json`", &line("run")]),
            ("{spinner}", "{suspect}", ["`{suspect}`", "prove.run"]),
        ] {
            let error = Scenario::parse(&good.replacen(from, to, 1)).unwrap_err();
            let error = format!("{error:#}");
            assert!(named.iter().all(|it| error.contains(it)), "`{to}`: {named:?}: {error}");
        }
    }

    #[test]
    fn a_service_is_a_victim_of_its_own_kind() {
        let service = "[victim.service]\nprogram = \"tokio\"\nrate_per_s = 600\nthreads = 96\n\
                       control_threads = 1\nheadroom = 1.3\n";
        let own = "threads = 1\nwork_us = 1000\nperiod_us = 10000\n";
        let good = GOOD.replacen(own, service, 1);
        assert_ne!(good, GOOD);
        assert_eq!(Scenario::parse(&good).unwrap().victim.as_victim().threads(true), 96);
        let nested = good.replace("cgroup = \"victim\"", "cgroup = \"pod/victim\"");
        let limited = nested.replace("headroom = 1.3", "headroom = 1.3\nlimit = \"pod\"");
        assert!(Scenario::parse(&limited).is_ok());
        for (from, to, named) in [
            ("\"tokio\"", "\"cobol\"", "cobol"),
            ("headroom = 1.3", "headroom = 0.5", "victim.service.headroom"),
            ("rate_per_s = 600", "rate_per_s = 0", "victim.service.rate_per_s"),
            ("rate_per_s = 600", "rate_per_s = 600\nlimit = \"vic\"", "victim.service.limit"),
            ("rate_per_s = 600", "rate_per_s = 600\nlimit = \"\"", "victim.service.limit"),
            ("[victim.service]", "work_us = 5\n[victim.service]", "victim.service"),
        ] {
            let error = Scenario::parse(&good.replacen(from, to, 1)).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(named), "`{to}`: `{named}` is not in: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer_and_no_panic(text in ".{0,200}", at in 0..GOOD.len()) {
            let _ = Scenario::parse(&text);
            let mut spliced = GOOD.to_owned();
            spliced.insert_str(at, &text);
            let _ = Scenario::parse(&spliced);
        }
    }
}
