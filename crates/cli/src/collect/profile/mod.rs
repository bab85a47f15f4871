// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BPF profile probes as a collector: in what functions CPU time is spent, and threads of the target go to sleep. Only
//! done where it is asked for.
//!
//! Names are looked up at the end; those of the target's processes every second, because a command may end before.

mod sleeps;
mod stacks;

use super::cost::{Cost, CostCounters};
use super::{
    Beat, BeatTime, Collector, Context, Emit, ObservedProcess, cpus_online, possible_cpus,
};
use crate::clock;
use deburr_bpf::TimedRuns;
use deburr_bpf::facts::facts;
use deburr_bpf::profile::{PERIOD_NS, ProfilePlan, ProfileProbe};
use deburr_bpf::sched::Watched;
use deburr_bpf::stacks::StacksProbe;
use deburr_core::recording::{
    Coverage, ProfileRecord, ProfileSpan, ProfileStack, Record, SleepStack, Source, State,
};
use deburr_core::text::units;
use sleeps::Sleeps;
use stacks::{Owner, Program, SleepSum, Stacks};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Processes whose functions are named, besides those of the target: those that were found most often.
const NAMED: usize = 64;
/// Processes that have rows of their own: those that were found most often. The others are summed by name.
const KEPT: usize = 200;
/// Addresses in a question.
const ASKED_AT_ONCE: usize = 1024;
/// Time that names may take in a second, and at the end.
const IN_A_SECOND: Duration = Duration::from_millis(200);
const AT_THE_END: Duration = Duration::from_secs(5);

/// The probes.
struct Probes {
    profile: ProfileProbe,
    /// `None` = no threads are watched.
    stacks: Option<StacksProbe>,
}

pub(crate) struct ProfileCollector {
    probes: Probes,
    /// Why the stacks of sleep are not looked at, though they could be.
    no_stacks: Option<String>,
    stacks: Stacks,
    sleeps: Sleeps,
    cost: Cost,
    /// Processes whose files could not be read.
    given_up: BTreeSet<Owner>,
}

impl CostCounters for Probes {
    fn runs(&self) -> u64 {
        self.profile.runs() + self.stacks.as_ref().map_or(0, StacksProbe::runs)
    }

    fn timed_runs(&self) -> Option<TimedRuns> {
        let of_stacks = self.stacks.as_ref().and_then(StacksProbe::timed_runs);
        self.profile.timed_runs().into_iter().chain(of_stacks).reduce(std::ops::Add::add)
    }

    fn map_bytes(&self) -> u64 {
        self.profile.map_bytes() + self.stacks.as_ref().map_or(0, StacksProbe::map_bytes)
    }

    fn lost(&self) -> BTreeMap<String, u64> {
        let of_profile = self.profile.lost().into_iter().map(|it| ("profile", it));
        let of_stacks = self.stacks.iter().flat_map(StacksProbe::lost).map(|it| ("stacks", it));
        let all = of_profile.chain(of_stacks);
        all.map(|(of, (name, amount))| (format!("{of}_{name}"), amount)).collect()
    }
}

impl ProfileCollector {
    /// Loads and attaches the probes; `Err` = the coverage of [`Source::Profile`] without them. `watched` = the threads whose
    /// sleeps are looked at, too.
    pub(crate) fn open(cx: &Context, watched: Option<&Watched>) -> Result<Self, State> {
        let missing = |reason| State::Missing { reason, gain: String::new() };
        let plan = ProfilePlan::new(&facts()).map_err(missing)?;
        let cpus = possible_cpus(&cx.roots);
        let online = cpus_online(&cx.roots);
        let profile = ProfileProbe::open(&plan, cpus, &online, clock::monotonic_ns());
        let stacks = watched.filter(|_| cx.has_target).map(|it| StacksProbe::open(it, cpus));
        let (stacks, no_stacks) = match stacks.transpose() {
            Ok(stacks) => (stacks, None),
            Err(reason) => (None, Some(reason)),
        };
        Ok(Self {
            probes: Probes { profile: profile.map_err(missing)?, stacks },
            no_stacks,
            stacks: Stacks::default(),
            sleeps: Sleeps::default(),
            cost: Cost::default(),
            given_up: BTreeSet::new(),
        })
    }

    /// Has functions of the target's processes named. Of a whole host, only those that were found most often are.
    fn name_target(&mut self, cx: &Context) {
        if !cx.has_target {
            return;
        }
        let pids: BTreeSet<u32> = cx.processes.of_target().map(|process| process.pid).collect();
        let owners: Vec<_> = self.stacks.processes().map(|(owner, _)| owner).collect();
        let owners = owners.into_iter().filter(|owner| pids.contains(&owner.pid));
        self.name(cx, owners.take(NAMED).collect(), Instant::now() + IN_A_SECOND);
    }

    /// Has functions of these processes named, as long as there is time. Returns how many processes were not asked about.
    fn name(&mut self, cx: &Context, owners: Vec<Owner>, until: Instant) -> usize {
        let mut left = 0;
        for owner in owners.into_iter().filter(|it| it.pid != 0) {
            let addresses = self.stacks.without_name(owner);
            if addresses.is_empty() || self.given_up.contains(&owner) {
                continue;
            }
            if !cx.processes.still_runs(&cx.roots, owner.pid, owner.start_ns) {
                self.given_up.insert(owner);
                continue;
            }
            for some in addresses.chunks(ASKED_AT_ONCE) {
                if Instant::now() > until {
                    left += 1;
                    break;
                }
                let Ok(names) = cx.processes.reader().functions(&cx.roots, owner.pid, some) else {
                    self.given_up.insert(owner);
                    break;
                };
                self.stacks.learn(Program::Of(owner), some, names);
            }
        }
        left
    }

    fn end(&mut self, cx: &mut Context, t_ns: u64, emit: Emit<'_>) {
        let until = Instant::now() + AT_THE_END;
        for some in self.stacks.without_name_in_kernel().chunks(ASKED_AT_ONCE) {
            if let Ok(names) = cx.processes.reader().kernel_functions(&cx.roots, some) {
                self.stacks.learn(Program::Kernel, some, names);
            }
        }
        let mut owners: Vec<(Owner, u64)> =
            self.stacks.processes().map(|(owner, process)| (owner, process.seen())).collect();
        owners.sort_by_key(|&(owner, samples)| (Reverse(samples), owner));
        self.name_target(cx);
        let first = owners.iter().take(NAMED).map(|(owner, _)| *owner).collect();
        let left = self.name(cx, first, until);
        if left > 0 {
            let reason = format!(
                "the functions of {} are not named: it would have taken too long",
                units::counted(left as u64, "process", "processes")
            );
            let (source, state) = (Source::Profile, State::Partial { reason });
            emit(Record::Coverage(Coverage { t_ns, source, state }));
        }
        let mut push = |record| emit(Record::Profile(Box::new(record)));
        push(ProfileRecord::Span(ProfileSpan {
            t0_ns: 0,
            t1_ns: t_ns,
            period_ns: PERIOD_NS,
            samples: self.stacks.samples,
            lost: self.probes.profile.lost().values().sum(),
        }));
        let mut ids = BTreeMap::new();
        for (rank, (owner, _)) in owners.into_iter().enumerate() {
            let Context { roots, processes, cgroups, target, .. } = &mut *cx;
            let sighting = ObservedProcess {
                pid: owner.pid,
                start_ns: Some(owner.start_ns),
                ..ObservedProcess::default()
            };
            let process = match rank < KEPT {
                true => processes.intern(roots, cgroups, target, sighting, &mut *emit),
                false => processes.fold(roots, cgroups, target, sighting, &mut *emit),
            };
            for (stack, samples) in self.stacks.named(owner) {
                let stack = ProfileStack { t0_ns: 0, t1_ns: t_ns, process, stack, samples };
                emit(Record::Profile(Box::new(ProfileRecord::Stack(stack))));
            }
            ids.insert(owner, process);
        }
        for (owner, &process) in &ids {
            for (kind, stack, sum) in self.stacks.sleeps(*owner) {
                let waker = kind.sleeper.map(|_| process);
                let Some(&process) = ids.get(&kind.sleeper.unwrap_or(*owner)) else { continue };
                let SleepSum { samples, ns } = sum;
                let (call, address) = (kind.call.name().into_owned(), kind.address);
                let (t0_ns, t1_ns) = (0, t_ns);
                let stack =
                    SleepStack { t0_ns, t1_ns, process, call, address, waker, stack, samples, ns };
                emit(Record::Profile(Box::new(ProfileRecord::Sleep(stack))));
            }
        }
    }

    /// Reads what the probes have seen.
    fn read(&mut self) {
        let Self { probes, stacks, sleeps, .. } = self;
        probes.profile.read(|sample| stacks.add(sample));
        let mut events = Vec::new();
        if let Some(probe) = &mut probes.stacks {
            probe.read(|event| events.push(event));
        }
        sleeps.add(events, stacks);
    }
}

impl Collector for ProfileCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            let source = Source::Profile;
            let state = match &self.no_stacks {
                Some(reason) => State::Partial {
                    reason: format!(
                        "it is not known in what functions threads go to sleep: {reason}"
                    ),
                },
                None => State::Active,
            };
            emit(Record::Coverage(Coverage { t_ns: 0, source, state }));
            self.probes.profile.read(|_| {});
            self.sleeps = Sleeps::begin(clock::monotonic_ns());
            self.cost.begin(&self.probes, &[]);
            return Ok(());
        }
        self.read();
        self.cost.bin(&self.probes);
        match now.beat {
            Beat::Second => self.name_target(cx),
            Beat::End => {
                self.sleeps.end(clock::monotonic_ns(), &mut self.stacks);
                self.end(cx, now.t_ns, &mut *emit);
            }
            Beat::Start | Beat::Bin => {}
        }
        if now.beat.is_second() {
            emit(Record::Observer(self.cost.second(
                &self.probes,
                now.t_ns,
                &[("stacks_without_beginning", self.sleeps.lost)],
            )));
        }
        Ok(())
    }
}
