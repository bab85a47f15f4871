// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Behind which groups a group waited, as causes with shares.

use super::blamed_processes;
use crate::finding::{BlameDistribution, Cause, Entity, EntityKind, Share};
use crate::rules::remedy;
use crate::rules::words::{self, group_entity};
use crate::text::units;
use crate::view::{Group, GroupCulprit, Groups, View};

/// Causes below this share are summed up in one line.
const MIN_SHARE: f64 = 0.01;
const MAX_CAUSES: usize = 5;
/// Groups that are named in a sentence, and the least share of one.
const MAX_MAIN: usize = 3;
const MAIN_SHARE: f64 = 0.05;

/// The blame for one victim's waiting.
#[derive(Clone, Debug)]
pub(super) struct Blame<'g> {
    /// Waiting behind the victim itself, its own threads and its sibling processes; nanoseconds.
    pub(super) own_ns: u64,
    /// Waiting behind other groups, by their index, most first; nanoseconds.
    others: Vec<(usize, u64)>,
    own: usize,
    groups: &'g Groups<'g>,
    folded_ns: u64,
    migrated_ns: u64,
    not_sampled_ns: u64,
}

/// The other group that is to blame most.
#[derive(Clone, Debug)]
pub(super) struct MainCulprit<'g> {
    /// The group: processes of one name and cgroup.
    pub(super) group: &'g Group<'g>,
    /// Waiting behind the processes that [`Self::name`] names, in nanoseconds: the few that carry the blame, or the
    /// whole group.
    pub(super) ns: u64,
    /// Which of its processes are to blame.
    pub(super) whom: Option<BlameDistribution>,
}

impl<'g> MainCulprit<'g> {
    /// Name of the culprit.
    pub(super) fn name(&self) -> String {
        blamed_processes::name(self.group, self.whom.as_ref())
    }

    /// The processes to act on: those that carry the blame if they are few, else the whole group.
    pub(super) fn culprit(&self, view: &View, loss_ns: u64) -> remedy::Culprit<'g> {
        let carriers = self.whom.as_ref().filter(|whom| whom.few).and_then(|whom| {
            let carriers = whom.processes.get(..whom.carriers as usize)?;
            Some(carriers.iter().map(|carrier| carrier.pid).collect::<Vec<_>>())
        });
        let members = self.group.members.iter().map(|&(_, process)| process);
        let processes = members
            .filter(|process| carriers.as_ref().is_none_or(|pids| pids.contains(&process.pid)));
        let container = self.group.cgroup.and_then(|id| words::container(view, id));
        let unit = container.filter(|container| container.is_unit());
        remedy::Culprit {
            group: self.group,
            processes: processes.collect(),
            share: self.ns as f64 / loss_ns.max(1) as f64,
            unit: unit.map(|unit| unit.id.clone()),
        }
    }
}

impl<'g> Blame<'g> {
    /// The blame for the waiting of the group at that index.
    pub(super) fn of(groups: &'g Groups<'g>, victim: usize) -> Self {
        let mut blame = Self {
            own_ns: 0,
            others: vec![],
            own: victim,
            groups,
            folded_ns: 0,
            migrated_ns: 0,
            not_sampled_ns: 0,
        };
        for (behind, ns) in groups.blame(victim) {
            match behind {
                GroupCulprit::Group(at) if at == victim => blame.own_ns += ns,
                GroupCulprit::Group(at) => blame.others.push((at, ns)),
                GroupCulprit::Others => blame.folded_ns += ns,
                GroupCulprit::Migrated => blame.migrated_ns += ns,
                GroupCulprit::NotSampled => blame.not_sampled_ns += ns,
            }
        }
        // Stable sort: of equals, the group seen first stays first.
        blame.others.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        blame
    }

    fn named_ns(&self) -> u64 {
        self.own_ns + self.folded_ns + self.others.iter().map(|&(_, ns)| ns).sum::<u64>()
    }

    /// The victim's own share of the blame that could be attributed, 0..1.
    pub(super) fn own_share(&self) -> f64 {
        self.own_ns as f64 / self.named_ns().max(1) as f64
    }

    /// Share of a loss that could not be attributed, 0..1.
    pub(super) fn unexplained_share(&self, loss_ns: u64) -> f64 {
        1.0 - (self.named_ns() as f64 / loss_ns.max(1) as f64).min(1.0)
    }

    /// The other group that is to blame most; `None` if only the victim itself, or nobody, is.
    pub(super) fn worst_other(&self) -> Option<MainCulprit<'g>> {
        let &(at, ns) = self.others.first()?;
        let whom = self.whom(at);
        let few = whom.as_ref().filter(|whom| whom.few);
        let ns = few.map_or(ns, |whom| (whom.carriers_share * ns as f64).round() as u64);
        Some(MainCulprit { group: self.group(at), ns, whom })
    }

    /// The groups that carry most of it, with their shares of all that is named; `None` if nothing is.
    pub(super) fn in_words(&self) -> Option<String> {
        let named_ns = self.named_ns();
        let share = |ns: u64| ns as f64 / named_ns.max(1) as f64;
        let mut all: Vec<(String, u64)> =
            self.others.iter().map(|&(at, ns)| (words::group_name(self.group(at)), ns)).collect();
        let own = words::verb(self.group(self.own), "its own other threads", "each other");
        all.push((own.into(), self.own_ns));
        all.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        let most = all.iter().filter(|(_, ns)| share(*ns) >= MAIN_SHARE).take(MAX_MAIN);
        let told: Vec<String> =
            most.map(|(name, ns)| format!("{name}: {}", units::share(share(*ns)))).collect();
        (named_ns > 0 && !told.is_empty()).then(|| told.join(", "))
    }

    fn group(&self, at: usize) -> &'g Group<'g> {
        &self.groups.list()[at]
    }

    fn whom(&self, at: usize) -> Option<BlameDistribution> {
        blamed_processes::distribution(self.group(at), &self.groups.blamed_in(self.own, at))
    }

    /// The causes, biggest first, as shares of a loss. Where more was blamed than lost (amounts are sampled, and the
    /// ticks of two records need not end together), the shares are scaled to sum to 1.
    pub(super) fn causes(&self, view: &View, loss_ns: u64) -> Vec<Cause> {
        let blamed_ns = self.named_ns() + self.migrated_ns + self.not_sampled_ns;
        let whole_ns = loss_ns.max(blamed_ns);
        let share = |ns: u64| Share::of(ns, whole_ns);
        let mut named: Vec<(usize, u64, bool)> =
            self.others.iter().map(|&(at, ns)| (at, ns, false)).collect();
        if self.own_ns > 0 {
            named.push((self.own, self.own_ns, true));
        }
        named.sort_by_key(|&(_, ns, _)| std::cmp::Reverse(ns));
        let shown = named
            .iter()
            .take_while(|&&(_, ns, _)| share(ns).get() >= MIN_SHARE)
            .count()
            .min(MAX_CAUSES);
        let rest_ns = named[shown..].iter().map(|&(_, ns, _)| ns).sum::<u64>() + self.folded_ns;
        let mut causes: Vec<Cause> = named[..shown]
            .iter()
            .map(|&(at, ns, own)| {
                let group = self.group(at);
                let mut entity = group_entity(view, group);
                entity.whom = self.whom(at);
                if own {
                    let note = words::verb(group, "its own other threads", "each other");
                    entity.note = Some(note.into());
                }
                Cause { entity, share: share(ns) }
            })
            .collect();
        for (ns, note) in [
            (rest_ns, "many others, each with little"),
            (
                self.migrated_ns,
                "not known: it was moved to another run queue, and behind whom it waited before was not seen",
            ),
            (self.not_sampled_ns, "not looked up, to bound the cost of the probe"),
        ] {
            if share(ns).get() >= MIN_SHARE {
                let entity = Entity { note: Some(note.into()), ..Entity::new(EntityKind::Unknown) };
                causes.push(Cause { entity, share: share(ns) });
            }
        }
        causes
    }
}
