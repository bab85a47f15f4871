// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept of a recording, once its view has been judged: its report, and the groups of processes that lose or run
//! most. A view may take hundreds of megabytes, so two are never held at once.

use super::configuration;
use super::document::QuotaSide;
use crate::finding::{Entity, EntityKind, LedgerState, Report, SizeClass};
use crate::recording::{CgroupId, DevId, IoCulprit, ProcId, WaitHist};
use crate::snapshot::Snapshot;
use crate::view::waits::by_bucket;
use crate::view::{Group, GroupCulprit, Groups, View};
use std::collections::BTreeMap;

/// Most groups of processes of one recording that are kept.
pub const MOST_GROUPS: usize = 2000;
/// Most devices of which the latency is compared.
const MOST_DEVICES: usize = 64;
/// Most cgroups with a quota that are kept.
const MOST_QUOTAS: usize = 2000;
/// Most culprits of one group that are kept.
const MOST_CULPRITS: usize = 64;

/// A recording, summed up: what is compared.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What the rules say.
    pub(super) report: Report,
    pub(super) window_ns: u64,
    pub(super) groups: Vec<GroupSummary>,
    /// Number of groups that were left out.
    pub(super) left_out: usize,
    /// The group of each process in `groups`.
    pub(super) group_of: BTreeMap<ProcId, u32>,
    /// Names of the devices with requests, at most [`MOST_DEVICES`].
    pub(super) devices: BTreeMap<DevId, String>,
    /// Their requests by latency: of each device by its name, and of each direction.
    pub(super) requests: BTreeMap<(String, &'static str), Vec<SizeClass>>,
    /// The cgroups with a quota, by path.
    pub(super) quotas: BTreeMap<String, QuotaSide>,
    /// The settings that the recording holds: contents of the kernel's files.
    pub(super) settings: BTreeMap<String, Option<String>>,
    /// What the host is and how it is configured, or why that is not known.
    pub(super) facts: Result<Snapshot, String>,
}

/// Processes of one name and cgroup.
#[derive(Clone, Debug)]
pub(super) struct GroupSummary {
    pub(super) entity: Entity,
    pub(super) may_suffer: bool,
    pub(super) threads: u32,
    pub(super) on_cpu_ns: u64,
    pub(super) lost_ns: u64,
    pub(super) waits: Option<(WaitHist, u64)>,
    /// Where the time of their threads went; empty without the scheduler probe.
    pub(super) ledger: Vec<(LedgerState, u64)>,
    /// What they waited behind on run queues.
    pub(super) behind: Rates,
    /// Whose requests were queued or in the device while they waited for theirs.
    pub(super) behind_io: Rates,
}

/// What somebody waited behind, and for how long, in nanoseconds.
pub(super) type Rates = Vec<(Culprit, u64)>;

/// What a group waited behind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Culprit {
    /// Processes of that comm, in a cgroup of that path.
    Named(String, Option<String>),
    /// Writeback of pages, whoever dirtied them.
    Writeback,
    /// A journal, or metadata.
    Filesystem,
    /// No other requests: the device itself.
    Device,
    /// Not known, or too small.
    Unknown,
}

impl Summary {
    /// Sums up a recording of which this is the view and the report.
    #[must_use]
    pub fn of(view: &View, report: Report) -> Self {
        let groups = view.groups();
        let list = groups.list();
        let mut chosen: Vec<usize> =
            (0..list.len()).filter(|&at| !list[at].is_observer()).collect();
        let weight = |at: &usize| {
            let group = &list[*at];
            (lost_ns(group), on_cpu_ns(group))
        };
        // The sort is stable: ties stay in the order in which the groups were seen.
        chosen.sort_by_key(|at| std::cmp::Reverse(weight(at)));
        let left_out = chosen.len().saturating_sub(MOST_GROUPS);
        chosen.truncate(MOST_GROUPS);
        let mut group_of = BTreeMap::new();
        for (number, &at) in (0..).zip(&chosen) {
            group_of.extend(list[at].members.iter().map(|(id, _)| (*id, number)));
        }
        let groups = chosen.into_iter().map(|at| summary(view, &groups, at)).collect();
        let devices = view.block().latency().keys().map(|(dev, _)| *dev);
        let devices: BTreeMap<DevId, String> =
            devices.map(|dev| (dev, view.block().device_name(dev))).take(MOST_DEVICES).collect();
        Self {
            report,
            window_ns: view.window_ns(),
            groups,
            left_out,
            group_of,
            requests: requests(view, &devices),
            devices,
            quotas: quotas(view),
            settings: view.block().settings().clone(),
            facts: configuration::facts(view),
        }
    }
}

/// The requests of these devices by latency.
fn requests(
    view: &View,
    devices: &BTreeMap<DevId, String>,
) -> BTreeMap<(String, &'static str), Vec<SizeClass>> {
    let all = view.block().latency().iter().filter_map(|((device, op), latency)| {
        Some(((devices.get(device)?.clone(), op.name()), by_bucket(&latency.total)))
    });
    all.collect()
}

/// The cgroups with a quota.
fn quotas(view: &View) -> BTreeMap<String, QuotaSide> {
    let with_quota = view.cgroups().values().filter_map(|cgroup| {
        let side =
            QuotaSide { cpus: cgroup.limit_cpus(), throttled_share: cgroup.throttled_share() };
        Some((cgroup.facts.as_ref()?.path.clone(), side))
    });
    with_quota.filter(|(_, side)| side.cpus.is_some()).take(MOST_QUOTAS).collect()
}

/// The longest waits, in order.
fn longest(behind: BTreeMap<Culprit, u64>) -> Rates {
    let mut behind: Vec<_> = behind.into_iter().collect();
    behind.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    behind.truncate(MOST_CULPRITS);
    behind
}

/// Whose requests a group waited for.
fn behind_io(view: &View, groups: &Groups<'_>, at: usize) -> Rates {
    let mut behind: BTreeMap<Culprit, u64> = BTreeMap::new();
    for (id, _) in &groups.list()[at].members {
        for (_, culprit, ns) in view.block().blame_of(*id) {
            let culprit = match culprit {
                IoCulprit::Process(id) => groups
                    .index_of(id)
                    .map_or(Culprit::Unknown, |at| named(view, &groups.list()[at])),
                IoCulprit::Writeback(_) => Culprit::Writeback,
                IoCulprit::Filesystem => Culprit::Filesystem,
                IoCulprit::Device => Culprit::Device,
            };
            let sum = behind.entry(culprit).or_default();
            *sum = sum.saturating_add(ns);
        }
    }
    longest(behind)
}

fn named(view: &View, group: &Group<'_>) -> Culprit {
    let path = group.cgroup.and_then(|id| view.path_of(id));
    Culprit::Named(group.comm.to_owned(), path.map(str::to_owned))
}

fn ledger(group: &Group<'_>) -> Vec<(LedgerState, u64)> {
    let Some(usage) = &group.usage else { return vec![] };
    let parts = usage.by_state();
    let known = parts.iter().fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
    let rest = (LedgerState::Unattributed, usage.wall_ns.saturating_sub(known));
    parts.into_iter().chain([rest]).collect()
}

fn summary(view: &View, groups: &Groups<'_>, at: usize) -> GroupSummary {
    let group = &groups.list()[at];
    let mut behind: BTreeMap<Culprit, u64> = BTreeMap::new();
    for (culprit, ns) in groups.blame(at) {
        let culprit = match culprit {
            GroupCulprit::Group(at) => named(view, &groups.list()[at]),
            GroupCulprit::Others | GroupCulprit::Migrated | GroupCulprit::NotSampled => {
                Culprit::Unknown
            }
        };
        let sum = behind.entry(culprit).or_default();
        *sum = sum.saturating_add(ns);
    }
    let is_host = view.meta().is_none_or(|meta| meta.target == Default::default());
    GroupSummary {
        entity: entity(view, group),
        may_suffer: group.in_target && !(group.is_kernel() && is_host),
        threads: match (&group.usage, &group.delay) {
            (Some(usage), _) => usage.threads_max,
            (None, delay) => delay.map_or(0, |delay| delay.threads_max),
        },
        on_cpu_ns: on_cpu_ns(group),
        lost_ns: lost_ns(group),
        waits: group.usage.as_ref().map(|usage| (usage.waits.clone(), usage.wait_max_ns)),
        ledger: ledger(group),
        behind: longest(behind),
        behind_io: behind_io(view, groups, at),
    }
}

fn entity(view: &View, group: &Group<'_>) -> Entity {
    let mut entity = Entity::new(EntityKind::Process);
    match group.members.as_slice() {
        [(_, process)] if !process.many => entity.pid = Some(process.pid),
        members => entity.processes = Some(members.len() as u32),
    }
    entity.comm = Some(group.comm.to_owned());
    entity.cgroup = group.cgroup.and_then(|id| view.path_of(id)).map(str::to_owned);
    entity.container = group.cgroup.and_then(|id| container(view, id));
    entity
}

fn container(view: &View, id: CgroupId) -> Option<crate::recording::Container> {
    let mut path = view.cgroup_path(id).into_iter();
    path.find_map(|(_, cgroup)| cgroup.facts.as_ref()?.container.clone())
}

fn on_cpu_ns(group: &Group<'_>) -> u64 {
    match (&group.usage, &group.delay) {
        (Some(usage), _) => usage.states.on_cpu_ns,
        (None, delay) => delay.map_or(0, |delay| delay.on_cpu_ns),
    }
}

fn lost_ns(group: &Group<'_>) -> u64 {
    match (&group.usage, &group.delay) {
        (Some(usage), _) => {
            let states = &usage.states;
            states.queued_ns + states.throttled_ns + states.block_io_ns + states.mem_stall_ns
        }
        (None, delay) => delay.map_or(0, |delay| delay.delay_ns),
    }
}
