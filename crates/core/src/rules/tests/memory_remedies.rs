// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the rules about memory offer as commands, and when they offer none.

use super::decoys::finding;
use super::report;
use crate::finding::{Cause, EntityKind, Finding};
use crate::recording::{
    BlockRecord, CgroupId, CgroupVersion, Container, MemoryBound, ReclaimKind, ReclaimTick, Record,
};
use crate::testkit::{MS, ProcessActivity, S, Scene, reclaim};

const DEFRAG: &str = "/sys/kernel/mm/transparent_hugepage/defrag";

/// A service whose threads free memory at the limit of its cgroup, 64 MiB, in each of ten seconds.
#[derive(Clone, Debug)]
struct AtLimit {
    path: &'static str,
    version: CgroupVersion,
    container: Option<Container>,
    bound: Option<MemoryBound>,
    limit_bytes: Option<u64>,
    /// Whether the cgroup is known.
    known: bool,
    /// Pages of the cgroup that came back, of 20 000 that were freed; `None` = not counted.
    came_back: Option<u64>,
    /// Of the time in which it frees memory, the part asleep.
    asleep: f64,
    settings: Vec<(&'static str, &'static str)>,
}

const MAX: AtLimit = AtLimit {
    path: "/shop",
    version: CgroupVersion::V2,
    container: None,
    bound: Some(MemoryBound::Max),
    limit_bytes: Some(64 << 20),
    known: true,
    came_back: None,
    asleep: 0.9,
    settings: vec![],
};

impl AtLimit {
    /// What the rule of that code finds.
    fn found(&self, code: &str) -> Finding {
        let mut scene = Scene::new(4, 10 * S);
        scene.sees_reclaim();
        scene.cgroup("/", None, None);
        let shop = scene.cgroup(self.path, None, self.container.clone());
        let api = scene.process("api", Some(shop));
        let did =
            ProcessActivity { on_cpu_ns: 3 * S, mem_stall_ns: 4 * S, ..ProcessActivity::default() };
        scene.did(api, &did);
        for second in 0..10 {
            let tick = reclaim(second, api, Some(shop), 200 * MS, 2_000);
            let asleep_ns = (self.asleep * tick.ns as f64) as u64;
            scene.reclaims(ReclaimTick {
                cgroup: self.known.then_some(shop),
                bound: self.bound,
                limit_bytes: self.limit_bytes,
                memory_ns: asleep_ns,
                off_cpu_ns: asleep_ns,
                ..tick
            });
        }
        scene.refaults(None, 50);
        if let Some(pages) = self.came_back {
            scene.refaults(Some(shop), pages);
        }
        for (path, value) in &self.settings {
            scene.setting(path, value);
        }
        let mut records = scene.records();
        for record in &mut records {
            if let Record::Cgroup(cgroup) = record {
                cgroup.version = self.version;
            }
        }
        let report = report(&crate::testkit::view(&records), "0.1.0", true);
        finding(&report, code).clone()
    }

    fn command(&self) -> Option<String> {
        self.found("MEM001").fix[0].command.clone()
    }
}

fn container(runtime: &str, id: &str) -> Option<Container> {
    Some(Container { runtime: runtime.into(), id: id.into(), ..Container::default() })
}

#[test]
fn the_limit_that_binds_is_raised_by_half_in_the_file_that_the_host_has() {
    let action = MAX.found("MEM001").fix[0].action.clone();
    assert_eq!(action, "raise `memory.max` of `/shop` by half, from 64 MiB to 96 MiB");
    let high = AtLimit { bound: Some(MemoryBound::High), ..MAX };
    let v1 = AtLimit { version: CgroupVersion::V1, ..MAX };
    let unit = AtLimit {
        path: "/system.slice/a.service",
        container: container(Container::SYSTEMD, "a.service"),
        ..MAX
    };
    let docker = AtLimit { path: "/docker/0a", container: container("docker", "0a"), ..MAX };
    for (what, should) in [
        (MAX, "echo 100663296 > /sys/fs/cgroup/shop/memory.max"),
        (high, "echo 100663296 > /sys/fs/cgroup/shop/memory.high"),
        (v1, "echo 100663296 > /sys/fs/cgroup/memory/shop/memory.limit_in_bytes"),
        (unit, "systemctl set-property --runtime a.service MemoryMax=100663296"),
        (docker, "docker update --memory 100663296 0a"),
    ] {
        assert_eq!(what.command().as_deref(), Some(should), "{what:?}");
        assert_eq!(what.found("MEM001").fix[0].expect, None, "nothing is promised");
    }
}

#[test]
fn a_hostile_path_is_quoted_or_has_no_command() {
    let at = |path| AtLimit { path, ..MAX }.command();
    assert_eq!(
        at("/a; reboot").as_deref(),
        Some("echo 100663296 > '/sys/fs/cgroup/a; reboot/memory.max'")
    );
    for path in ["/../../etc", "/a\nb", "/a/*", "/"] {
        assert_eq!(at(path), None, "{path:?}");
    }
}

#[test]
fn where_anything_is_not_known_there_is_no_command() {
    for what in [
        AtLimit { limit_bytes: None, ..MAX },
        AtLimit { limit_bytes: Some(0), ..MAX },
        AtLimit { limit_bytes: Some(u64::MAX - 4095), ..MAX },
        AtLimit { bound: None, ..MAX },
        AtLimit { known: false, ..MAX },
    ] {
        let fixes = what.found("MEM001").fix;
        assert!(fixes[0].action.starts_with("raise `memory.max` (v1"), "{fixes:?}");
        assert_eq!(fixes.iter().find_map(|fix| fix.command.clone()), None, "{what:?}");
    }
}

/// A file that is streamed fills any limit: more memory is of no use to it.
#[test]
fn a_limit_at_which_nothing_comes_back_is_raised_last() {
    let first = |came_back| AtLimit { came_back, ..MAX }.found("MEM001").fix;
    assert!(first(Some(2_000))[0].action.starts_with("raise"));
    let fixes = first(Some(1_999));
    let last = fixes.last().unwrap();
    assert!(last.action.contains("10 % of the pages that were freed there"), "{last:?}");
    assert!(last.command.is_some(), "it can be tried");
    assert_eq!(fixes.iter().filter(|fix| fix.action.starts_with("raise")).count(), 1);
    assert_eq!(fixes.iter().filter(|fix| fix.command.is_some()).count(), 1, "{fixes:?}");
}

const BYTES: &str = "/proc/sys/vm/dirty_background_bytes";
const RATIO: &str = "/proc/sys/vm/dirty_background_ratio";

#[test]
fn who_waits_for_the_disk_below_a_limit_of_version_1_has_it_written_earlier() {
    // 2 GiB of the host are free, and 10 % of that may be dirty.
    let settings = vec![(BYTES, "0"), (RATIO, "10")];
    let v1 = AtLimit { version: CgroupVersion::V1, came_back: Some(0), settings, ..MAX };
    let command = v1.command();
    assert_eq!(command.as_deref(), Some("sysctl -w vm.dirty_background_bytes=16777216"));
    let earlier = |what: AtLimit| {
        let command = what.command();
        command.is_some_and(|command| command.contains("dirty_background"))
    };
    assert!(
        !earlier(AtLimit { version: CgroupVersion::V2, ..v1.clone() }),
        "v2 counts dirty pages"
    );
    assert!(!earlier(AtLimit { asleep: 0.4, ..v1.clone() }), "it is on a CPU");
    assert!(!earlier(AtLimit { came_back: Some(9_000), ..v1.clone() }), "memory is short");
    assert!(!earlier(AtLimit { settings: vec![], ..v1.clone() }), "the setting is not known");
    for (bytes, is_offered) in [("16777216", false), ("8388608", false), ("33554432", true)] {
        let settings = vec![(BYTES, bytes), (RATIO, "0")];
        assert_eq!(earlier(AtLimit { settings, ..v1.clone() }), is_offered, "{bytes}");
    }
    let strange = vec![(BYTES, "0"), (RATIO, "$(reboot)")];
    assert!(!earlier(AtLimit { settings: strange, ..v1 }));
}

fn causes(found: &Finding) -> Vec<(EntityKind, Option<&str>, f64)> {
    let of = |it: &'_ Cause| it.share.get();
    found.causes.iter().map(|it| (it.entity.kind, it.entity.cgroup.as_deref(), of(it))).collect()
}

#[test]
fn pages_that_come_back_are_due_to_the_limit_that_pushed_them_out() {
    let back = AtLimit { came_back: Some(9_000), asleep: 0.1, ..MAX };
    let found = back.found("MEM003");
    assert_eq!(causes(&found), [(EntityKind::Cgroup, Some("/shop"), 1.0)]);
    assert!(found.evidence.iter().any(|line| line.name == "limit"), "{:?}", found.evidence);
    let raise = "echo 100663296 > /sys/fs/cgroup/shop/memory.max";
    assert_eq!(found.fix[0].command.as_deref(), Some(raise));
    // Pages that came back are too few, or are those of the host: no limit is known to be the reason.
    for came_back in [Some(0), None] {
        let found = AtLimit { came_back, ..back.clone() }.found("MEM003");
        assert_eq!(causes(&found), [], "{came_back:?}");
        assert_eq!(found.fix[0].command, None);
    }
    let high = AtLimit { bound: Some(MemoryBound::High), came_back: Some(0), ..back };
    let found = high.found("MEM003");
    assert_eq!(causes(&found).len(), 1, "it was made to pause");
    assert!(found.fix[0].action.starts_with("raise `memory.high`"), "{:?}", found.fix[0]);
}

/// Two limits, and a host that is short of memory besides.
#[test]
fn each_limit_has_its_part_of_the_time_in_which_memory_was_freed() {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    scene.cgroup("/", None, None);
    let [pod, shop] = ["/pod", "/pod/shop"].map(|path| scene.cgroup(path, None, None));
    let api = scene.process("api", Some(shop));
    let did =
        ProcessActivity { on_cpu_ns: 3 * S, mem_stall_ns: 4 * S, ..ProcessActivity::default() };
    scene.did(api, &did);
    for (cgroup, ns) in [(Some(pod), 60 * MS), (Some(shop), 20 * MS), (None, 20 * MS)] {
        scene.reclaims(reclaim(3, api, cgroup, ns, 500));
    }
    let moved = ReclaimTick { kind: ReclaimKind::Compaction, ..reclaim(3, api, None, 90 * MS, 0) };
    scene.reclaims(moved).refaults(Some(pod), 5_000).refaults(Some(shop), 5_000);
    let found = finding(&super::judged(&scene), "MEM003").clone();
    let [first, second] = causes(&found)[..] else { panic!("{:?}", found.causes) };
    assert_eq!((first.1, second.1), (Some("/pod"), Some("/pod/shop")));
    assert!((first.2 - 0.6).abs() < 1e-9 && (second.2 - 0.2).abs() < 1e-9, "{first:?} {second:?}");
}

/// A service that moves memory for most of the time, and frees some.
fn moves(defrag: Option<&str>, moved_ns: u64) -> Finding {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    let api = scene.process("api", None);
    scene.did(api, &ProcessActivity { on_cpu_ns: 2 * S, ..ProcessActivity::default() });
    for second in 0..10 {
        let kind = ReclaimKind::Compaction;
        let moved = ReclaimTick { kind, ..reclaim(second, api, None, moved_ns, 0) };
        scene.reclaims(moved).reclaims(reclaim(second, api, None, 25 * MS, 10));
    }
    if let Some(value) = defrag {
        scene.setting(DEFRAG, value);
    }
    finding(&super::judged(&scene), "MEM002").clone()
}

#[test]
fn large_pages_are_asked_for_in_the_background_unless_they_are_already() {
    let defer = Some("echo defer > /sys/kernel/mm/transparent_hugepage/defrag");
    let command = |found: &Finding| found.fix.iter().find_map(|fix| fix.command.clone());
    let waits = moves(Some("always defer defer+madvise [madvise] never"), 75 * MS);
    assert_eq!(command(&waits).as_deref(), defer);
    let [cause] = &waits.causes[..] else { panic!("{:?}", waits.causes) };
    assert_eq!(cause.entity.kind, EntityKind::Setting);
    assert_eq!(cause.entity.key.as_deref(), Some(DEFRAG));
    assert_eq!(cause.entity.value.as_deref(), Some("madvise"));
    assert!((cause.share.get() - 0.75).abs() < 1e-9, "{cause:?}");
    let not_known = moves(None, 75 * MS);
    assert_eq!(command(&not_known).as_deref(), defer);
    assert!(not_known.causes.is_empty());
    for set in ["always [defer] defer+madvise madvise never", "always defer madvise [never]"] {
        let found = moves(Some(set), 75 * MS);
        assert_eq!((command(&found), found.causes.len()), (None, 0), "{set}");
        assert!(found.title.contains("moving memory"), "{}", found.title);
    }
    let frees = moves(Some("[always] defer defer+madvise madvise never"), 24 * MS);
    let is_setting = |found: &Finding| found.causes.iter().any(|it| it.entity.key.is_some());
    assert_eq!((command(&frees), is_setting(&frees)), (None, false), "{}", frees.title);
}

/// What a setting is, and not what it was at first.
#[test]
fn a_setting_that_changed_counts_as_it_is() {
    let mut scene = Scene::new(4, 10 * S);
    scene.sees_reclaim();
    let api = scene.process("api", None);
    scene.did(api, &ProcessActivity { on_cpu_ns: 2 * S, ..ProcessActivity::default() });
    scene.reclaims(ReclaimTick {
        kind: ReclaimKind::Compaction,
        ..reclaim(0, api, Some(CgroupId(1)), S, 0)
    });
    scene.setting(DEFRAG, "[always] defer defer+madvise madvise never");
    let mut records = scene.records();
    let changed = records.iter().find_map(|record| match record {
        Record::Block(block) => match &**block {
            BlockRecord::Setting(setting) => Some(setting.clone()),
            _ => None,
        },
        _ => None,
    });
    let mut changed = changed.unwrap();
    changed.t_ns = 9 * S;
    changed.value = Some("always [defer] defer+madvise madvise never".into());
    let end = records.len() - 1;
    records.insert(end, Record::Block(Box::new(BlockRecord::Setting(changed))));
    let found = report(&crate::testkit::view(&records), "0.1.0", true);
    assert!(finding(&found, "MEM002").causes.is_empty());
}
