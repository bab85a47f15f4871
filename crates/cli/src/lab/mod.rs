// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab causes real incidents on this machine, safely, and checks what `deburr` reports about them.
//!
//! A scenario is a data file (`lab/scenarios/NAME.toml`). It is run twice, without and with its faults. In both runs,
//! a victim measures its own latency while `deburr`, executed as users execute it, observes the victim. The two
//! measurements must agree, the control run must be silent, and the fault run must yield the findings that the
//! scenario expects. A scenario may also say what `deburr prove` must say of it. Everything happens in a cgroup of the lab's own, which a guard removes.

mod check;
mod computes;
mod crew;
mod disk;
mod drive;
mod event_loop;
mod exchange;
mod expect;
mod experiment;
mod fanout;
mod faults;
mod fitness;
mod forks;
mod fragments;
mod heap;
mod io;
mod keep;
mod measured;
mod meter;
mod needs;
mod network;
mod observed;
mod order;
mod packets;
mod prove;
mod reader;
mod remedy;
mod runner;
mod scenario;
mod score;
mod service;
mod show;
mod stage;
mod stalls;
mod stops;
mod timers;
mod vary;
mod victim;
mod victims;
mod worker;

pub(crate) use fitness::Verdict;
pub(crate) use keep::Keep;
pub(crate) use needs::usable_cpus;
pub(crate) use prove::{Proved, run as prove};
pub(crate) use remedy::{RemedyEffect, run as remedy, text as remedied};
pub(crate) use runner::{Outcome, Settings, run};
pub(crate) use scenario::Scenario;
pub(crate) use score::{Plan, Scorecard, run as score};
pub(crate) use show::{list, outcome, plan, proved};
pub(crate) use stage::{Interrupted, Stop};
pub(crate) use worker::{WorkerArgs, run as work};

use anyhow::{Context as _, Result, bail};

/// The files of `lab/scenarios`: stem and text, in the order of `deburr lab list`; the build lists them.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

pub(crate) fn scenarios() -> Result<Vec<Scenario>> {
    FILES
        .iter()
        .map(|(stem, text)| {
            Scenario::parse(text).with_context(|| format!("in `lab/scenarios/{stem}.toml`"))
        })
        .collect()
}

/// The scenario of that name, or, if there is none, all whose names begin with it and a `-`.
pub(crate) fn select(name: &str) -> Result<Vec<Scenario>> {
    let all = scenarios()?;
    if let Some(exact) = all.iter().find(|scenario| scenario.name == name) {
        return Ok(vec![exact.clone()]);
    }
    let names: Vec<_> = all.iter().map(|scenario| format!("`{}`", scenario.name)).collect();
    let family: Vec<_> = all
        .into_iter()
        .filter(|s| s.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-')))
        .collect();
    if family.is_empty() {
        bail!("there is no scenario `{}`; there are {}", name.escape_debug(), names.join(", "));
    }
    Ok(family)
}

/// File stems and texts of the scenarios that [`select`] returns.
pub(crate) fn select_texts(name: &str) -> Result<Vec<(String, &'static str)>> {
    let names: Vec<_> = select(name)?.into_iter().map(|scenario| scenario.name).collect();
    let texts = FILES.iter().filter(|(stem, _)| names.iter().any(|name| name == stem));
    Ok(texts.map(|(stem, text)| ((*stem).to_owned(), *text)).collect())
}

/// The stems and texts of all scenario files.
pub(crate) fn all_texts() -> Vec<(String, &'static str)> {
    FILES.iter().map(|(stem, text)| ((*stem).to_owned(), *text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_file_is_listed_and_valid_and_named_as_its_scenario() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/scenarios");
        let files: BTreeSet<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let listed: BTreeSet<_> = FILES.iter().map(|(stem, _)| format!("{stem}.toml")).collect();
        assert_eq!(files, listed);
        for ((stem, _), scenario) in FILES.iter().zip(scenarios().unwrap()) {
            assert_eq!(scenario.name, *stem);
            assert!(scenario.explains.lines().all(|line| line.chars().count() <= 96), "{stem}");
            assert!(scenario.summary.chars().count() <= 66, "{stem}");
        }
    }

    #[test]
    fn a_name_selects_one_scenario_or_its_family() {
        let names = |name: &str| -> Vec<_> {
            select(name).unwrap().into_iter().map(|scenario| scenario.name).collect()
        };
        assert_eq!(names("quota"), ["quota"]);
        assert_eq!(
            names("neighbour"),
            ["neighbour-2", "neighbour-4", "neighbour-8", "neighbour-nice"]
        );
        let error = select("neigh").unwrap_err().to_string();
        assert!(error.contains("`neigh`") && error.contains("`pinned`"), "{error}");
        assert!(select("").is_err());
    }
}
