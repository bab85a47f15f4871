// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes of one experiment: made and put back as often as it has blocks.
//!
//! What each setting holds is in the journal before anything is changed. Each value that a setting gets is written down
//! once: the first time, that the setting is about to get some value; after that, which. So the journal grows with the
//! number of settings and of their values, not with that of the blocks. Only new threads of a changed process are new
//! settings; there is a limit for all.
//!
//! A setting is changed only if it holds what it held at the start, and put back only if it holds what the experiment gave
//! it. Between that look and the writing there are microseconds in which somebody else could change it unseen: the kernel
//! has no exchange of a value for another.
//!
//! What the kernel changes along with a setting ([`Place::along`]) is noted before and put back after that setting.

use super::knobs::latency::Latency;
use super::knobs::pause::Pause;
use super::knobs::{self, Step};
use crate::collect::Roots;
use crate::failure::{Exit, Failure};
use crate::host::guard::Guard;
use crate::host::place::{Place, shown};
use crate::host::task::{Process, Property, heirs};
use crate::host::undo::{Undo, put_back, stays};
use anyhow::{Context as _, Result, bail, ensure};
use deburr_core::prove::knob::Knob;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Most settings of one experiment: each thread is one.
const MAX_SETTINGS: usize = 5_000;
/// How often the threads of a process are listed again, until none is new.
const LISTINGS: usize = 8;

/// A setting that the experiment may change.
#[derive(Debug)]
struct Setting {
    /// What it held at the start.
    before: String,
    /// What it can hold by the experiment's doing: the values that it was given, and what it then held.
    given: BTreeMap<String, String>,
}

impl Setting {
    fn may_hold(&self, now: &str) -> bool {
        self.given.values().any(|held| held == now)
    }
}

/// A setting that is changed now.
#[derive(Debug)]
struct Changed {
    place: Place,
    /// What it has held since it was set; `None` if it was not set itself, but changed along with another one.
    holds: Option<String>,
}

impl Changed {
    /// That somebody else has set it since, if they have. A thread may have ended.
    fn undone(&self) -> Result<Option<String>> {
        let place = &self.place;
        let Some(held) = &self.holds else { return Ok(None) };
        Ok(match (place.read()?, place) {
            (Some(now), _) if now == *held => None,
            (Some(now), Place::Module(_)) => Some(format!(
                "{place} was unloaded, and somebody has loaded it since ({now}): what asks for it must be stopped first"
            )),
            (Some(now), _) => Some(format!(
                "{place} was set to {held}, and in the block somebody has set it to {}: what does that must be stopped first",
                shown(&now)
            )),
            (None, Place::Thread { .. }) => None,
            (None, _) => Some(format!("{place} is gone")),
        })
    }
}

/// What is in effect while the host is changed, and ends with this process.
#[derive(Debug)]
enum Held {
    Pause { _pause: Pause },
    Latency { _latency: Latency },
}

/// The changes of an experiment. Dropping it puts everything back.
#[derive(Debug)]
pub(crate) struct Changes {
    // Dropped in this order: what is held, and then what the janitor undoes.
    held: Vec<Held>,
    /// What is changed now, in the order of the changes.
    changed: Vec<Changed>,
    /// Whose new threads may have inherited a value now.
    inherited: Vec<(Process, Property, String, String)>,
    settings: BTreeMap<Place, Setting>,
    guard: Guard,
    roots: Roots,
}

impl Changes {
    /// Checks all settings that an experiment will change, and writes down what they hold. Nothing is changed yet.
    ///
    /// # Errors
    /// If a setting cannot be changed, the journal cannot be kept, or another experiment is under way.
    pub(crate) fn begin(program: &Path, knobs: &[Knob]) -> Result<Self> {
        let roots = Roots::default();
        // Who may not change the setting may not keep a journal either, but the setting is what they asked for.
        if !rustix::process::geteuid().is_root() {
            for knob in knobs {
                knobs::resolve(&roots, knob)?;
            }
        }
        let guard = Guard::careful(program, "prove").map_err(|error| {
            Failure::error(Exit::Missing, format!("nothing was changed: {error:#}"))
        })?;
        let (held, changed, inherited) = (vec![], vec![], vec![]);
        let settings = BTreeMap::new();
        let mut changes = Self { held, changed, inherited, settings, guard, roots };
        for knob in knobs {
            for step in knobs::resolve(&changes.roots, knob)? {
                for place in step.places()? {
                    changes.along(&place)?;
                    changes.note(&place)?;
                }
            }
        }
        Ok(changes)
    }

    /// What a setting holds now, in words: for the plan.
    ///
    /// # Errors
    /// If it cannot be changed.
    pub(crate) fn present(knob: &Knob) -> Result<String> {
        knobs::present(&Roots::default(), knob)
    }

    /// Changes the host. If nothing is put back within `at_most`, the janitor ends this process and does it. If a change
    /// fails, those before it are put back.
    ///
    /// # Errors
    /// If a setting is gone or not what it was at the start, or the kernel refuses the value.
    pub(crate) fn apply(&mut self, knobs: &[Knob], at_most: Duration) -> Result<()> {
        ensure!(
            self.changed.is_empty() && self.held.is_empty(),
            "the host is changed: it must be put back first"
        );
        self.guard.check()?;
        self.guard.deadline(Some(at_most))?;
        let mut steps = Vec::new();
        for knob in knobs {
            steps.extend(knobs::resolve(&self.roots, knob)?);
        }
        // What the kernel changes along with another one is set after it.
        let changes_others =
            |step: &Step| matches!(step, Step::Write { place, .. } if !place.along().is_empty());
        steps.sort_by_cached_key(|step| !changes_others(step));
        let made = steps.iter().try_for_each(|step| self.step(step));
        if made.is_err() {
            for left in self.restore()? {
                crate::output::say(left);
            }
        }
        made
    }

    /// An error if this process could be killed and nobody would put back its changes.
    ///
    /// # Errors
    /// If the janitor has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.guard.check()
    }

    /// Why a change did not hold until now, if one did not: the block was then none with the change. What cannot be read is
    /// not known: a pause, and a wish for the wake-up time of CPUs.
    ///
    /// # Errors
    /// If a setting cannot be read.
    pub(crate) fn undone_by_others(&self) -> Result<Option<String>> {
        self.changed.iter().find_map(|it| it.undone().transpose()).transpose()
    }

    /// Puts everything back. Returns what was left as it is, since somebody else has changed it.
    ///
    /// # Errors
    /// If something cannot be put back. The janitor tries again at the end.
    pub(crate) fn restore(&mut self) -> Result<Vec<String>> {
        self.held.clear();
        let (mut left, mut failed) = (Vec::new(), Vec::new());
        for (process, property, value, before) in std::mem::take(&mut self.inherited) {
            let known = |thread: &_| {
                self.settings.contains_key(&Place::Thread { thread: *thread, property })
            };
            for thread in heirs(&process, property, &value, known) {
                failed.extend(put_back(&Place::Thread { thread, property }, &before).err());
            }
        }
        let changed = std::mem::take(&mut self.changed);
        // Before anything is put back: the kernel changes others along.
        let now: Vec<_> = changed.iter().map(|it| it.place.read()).collect();
        for (Changed { place, .. }, now) in changed.iter().zip(now).rev() {
            let setting = self.settings.get(place).context("a setting that was not noted")?;
            match now {
                Ok(Some(now)) if !setting.may_hold(&now) => {
                    left.push(stays(place, &setting.before, &now));
                }
                // It may have come back with another one.
                Ok(None) if matches!(place.read(), Ok(None)) => {
                    if !matches!(place, Place::Thread { .. }) {
                        left.push(format!("{place} is gone"));
                    }
                }
                _ => failed.extend(put_back(place, &setting.before).err()),
            }
        }
        // What was set itself and also changed along is there twice.
        left.sort();
        left.dedup();
        let failed: Vec<String> = failed.iter().map(|error| format!("{error:#}")).collect();
        ensure!(failed.is_empty(), "not everything could be put back: {}", failed.join("; "));
        self.guard.deadline(None)?;
        Ok(left)
    }

    /// Puts everything back and ends the janitor.
    ///
    /// # Errors
    /// If something could not be put back.
    pub(crate) fn finish(mut self) -> Result<Vec<String>> {
        let left = self.restore();
        self.guard.finish()?;
        left
    }

    /// Number of entries of the journal.
    pub(super) fn journal_entries(&self) -> Result<usize> {
        Ok(self.guard.entries()?.len())
    }

    /// Writes down what a setting holds, unless that is known. Returns whether there is such a setting.
    fn note(&mut self, place: &Place) -> Result<bool> {
        if self.settings.contains_key(place) {
            return Ok(true);
        }
        let Some(before) = place.read()? else { return Ok(false) };
        ensure!(
            self.settings.len() < MAX_SETTINGS,
            "more than {MAX_SETTINGS} threads would be changed: choose a cgroup's setting instead"
        );
        // Both, since nothing is about to be written: if somebody changes it from now on, that is known.
        self.guard.will_undo(&Undo::Setting { place: place.clone(), before: before.clone() })?;
        self.guard.will_undo(&Undo::Set { place: place.clone(), value: before.clone() })?;
        let given = BTreeMap::from([(before.clone(), before.clone())]);
        self.settings.insert(place.clone(), Setting { before, given });
        Ok(true)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Write { place, value } => {
                ensure!(self.set(place, value)?, "{place} is gone: nothing can be changed there");
            }
            Step::Threads { process, property, value } => {
                self.set_threads(process, *property, value)?;
            }
            Step::Pause { process, percent } => {
                self.once(Undo::Paused { process: *process })?;
                self.held.push(Held::Pause { _pause: Pause::begin(*process, *percent)? });
            }
            Step::Latency { us } => {
                self.held.push(Held::Latency { _latency: Latency::begin(*us)? });
            }
        }
        Ok(())
    }

    /// Adds an entry to the journal, unless it is there.
    fn once(&mut self, undo: Undo) -> Result<()> {
        if !self.guard.entries()?.contains(&undo) {
            self.guard.will_undo(&undo)?;
        }
        Ok(())
    }

    /// Gives all threads of a process a value. Threads that start meanwhile may have been started by one that has the old
    /// value still, so they are listed until none is new. One that has the new value then has inherited it.
    fn set_threads(&mut self, process: &Process, property: Property, value: &str) -> Result<()> {
        let main = Place::Thread { thread: process.main_thread(), property };
        ensure!(self.note(&main)?, "{process} has ended");
        let before = self.settings[&main].before.clone();
        self.will_disinherit((*process, property, value.into(), before.clone()))?;
        let mut seen = BTreeSet::new();
        for listing in 0..LISTINGS {
            let threads = process.threads();
            let threads = threads.with_context(|| format!("{process} has ended"))?;
            let new: Vec<_> = threads.into_iter().filter(|thread| seen.insert(*thread)).collect();
            if new.is_empty() {
                break;
            }
            for thread in new {
                let place = Place::Thread { thread, property };
                let is_heir = listing > 0 && place.read()?.as_deref() == Some(value);
                if !is_heir && self.note(&place)? {
                    self.set(&place, value)?;
                }
            }
        }
        // Of the CPUs that were asked for, a cpuset may leave some.
        let held = self.settings[&main].given.get(value).filter(|held| *held != value).cloned();
        held.map_or(Ok(()), |held| self.will_disinherit((*process, property, held, before)))
    }

    /// Writes down that new threads of a process with that value are to get another.
    fn will_disinherit(&mut self, heirs: (Process, Property, String, String)) -> Result<()> {
        let (process, property, value, before) = heirs.clone();
        if value != before {
            self.once(Undo::Heirs { process, property, value, before })?;
            self.inherited.push(heirs);
        }
        Ok(())
    }

    /// Gives a setting a value. Returns whether there is such a setting.
    fn set(&mut self, place: &Place, value: &str) -> Result<bool> {
        let setting = self.settings.get(place).context("a setting that was not noted")?;
        let before = setting.before.clone();
        match place.read()? {
            None => return Ok(false),
            Some(now) if now != before && !self.is_changed(place, &now) => {
                let [before, now] = [&before, &now].map(|it| shown(it));
                bail!("{place} was {before} at the start, and somebody has set it to {now} since")
            }
            Some(now) if value == before && now == before => return Ok(true),
            Some(_) => {}
        }
        let known = self.settings[place].given.get(value).cloned();
        self.guard.check()?;
        let along = self.along(place)?;
        if known.is_none() {
            // What they will hold is not known exactly: the kernel may round.
            for place in along.iter().chain([place]) {
                let before = self.settings[place].before.clone();
                self.guard.will_undo(&Undo::Setting { place: place.clone(), before })?;
            }
        }
        let places = along.iter().chain([place]);
        self.changed.extend(places.map(|place| Changed { place: place.clone(), holds: None }));
        if let Err(error) = place.write(value) {
            return if place.read()?.is_none() { Ok(false) } else { Err(error) };
        }
        for place in &along {
            if let Some(held) = place.read()?
                && !self.settings[place].may_hold(&held)
            {
                self.learn(place, &held, &held)?;
            }
        }
        let is_in_effect = |now: &str| (now == before) == (value == before);
        let Some(held) = place.read_once(is_in_effect)? else { return Ok(false) };
        if known.as_ref() != Some(&held) {
            self.learn(place, value, &held)?;
        }
        ensure!(
            held != before || value == before,
            "{place} is still {} after it was set to {value}",
            shown(&before)
        );
        if let Some(changed) = self.changed.last_mut() {
            changed.holds = Some(held);
        }
        Ok(true)
    }

    /// Whether the kernel has given a setting this value when the experiment changed another one.
    fn is_changed(&self, place: &Place, now: &str) -> bool {
        let is_changed = self.changed.iter().any(|it| it.place == *place);
        is_changed && self.settings.get(place).is_some_and(|setting| setting.may_hold(now))
    }

    /// The settings that the kernel changes along with this one, noted.
    fn along(&mut self, place: &Place) -> Result<Vec<Place>> {
        let mut noted = Vec::new();
        for place in place.along() {
            if self.note(&place)? {
                noted.push(place);
            }
        }
        Ok(noted)
    }

    /// Keeps what a setting holds after it got a value. Even if it cannot be written down, it is known here whose it is.
    fn learn(&mut self, place: &Place, value: &str, held: &str) -> Result<()> {
        if let Some(setting) = self.settings.get_mut(place) {
            setting.given.insert(value.into(), held.into());
        }
        self.guard.will_undo(&Undo::Set { place: place.clone(), value: held.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{remove_file, write};

    #[test]
    fn a_value_that_did_not_hold_to_the_end_of_a_block_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("io.max");
        let none = "rbps=max wbps=max riops=max wiops=max";
        let held = "rbps=max wbps=5 riops=max wiops=max";
        write(&file, format!("8:0 {held}\n")).unwrap();
        let of = |device: &str, holds: Option<&str>| {
            let place = Place::Line { file: file.clone(), device: device.into() };
            Changed { place, holds: holds.map(str::to_owned) }.undone().unwrap()
        };
        assert_eq!(of("8:0", Some(held)), None);
        // It has its old value again, or another one.
        let why = of("8:1", Some(held)).unwrap();
        assert!(why.contains(&format!("set to {held}")) && why.contains(none), "{why}");
        assert!(of("8:0", Some(none)).unwrap().contains("in the block somebody has set it"));
        // What was only changed along with another one may change with that.
        assert_eq!(of("8:1", None), None);
        remove_file(&file).unwrap();
        assert!(of("8:0", Some(held)).unwrap().ends_with("is gone"));
    }
}
