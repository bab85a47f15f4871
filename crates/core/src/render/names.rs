// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of victims, causes and targets.

use crate::finding::{BlameDistribution, BlamedProcess, Entity, EntityKind, Target};
use crate::recording::Container;
use crate::text::escape::{identifier, sentence};
use crate::text::units::{counted, share};

/// Maximum width of a comm: 15 bytes, which are wider if escaped.
const COMM_COLUMNS: usize = 32;
/// Maximum width of a path or an id.
const PATH_COLUMNS: usize = 56;
/// Number of hex digits of a container id that are usually shown.
const ID_DIGITS: usize = 12;

/// The name of an entity, such as `` `ruby` (pid 15919) ``.
pub(super) fn entity(entity: &Entity) -> String {
    let comm = entity.comm.as_deref().map(|comm| identifier(comm, COMM_COLUMNS));
    let path = |path: &Option<String>| path.as_deref().map(|path| identifier(path, PATH_COLUMNS));
    let named = |what: &str, name: Option<String>| match name {
        Some(name) => format!("{what} {name}"),
        None => format!("a {what}"),
    };
    match entity.kind {
        EntityKind::Process => process(entity, comm),
        EntityKind::Thread => thread(entity, comm),
        EntityKind::Cgroup => {
            place(entity, false).unwrap_or_else(|| named("cgroup", path(&entity.cgroup)))
        }
        EntityKind::Device => named("device", path(&entity.device)),
        EntityKind::File => named("file", path(&entity.path)),
        EntityKind::Kernel => {
            comm.map_or("the kernel".into(), |comm| format!("the kernel's {comm}"))
        }
        EntityKind::Cpu => entity.cpu.map_or("a CPU".into(), |cpu| format!("CPU {cpu}")),
        EntityKind::Host => "the host".into(),
        EntityKind::Setting => {
            let key = named("setting", path(&entity.key));
            entity
                .value
                .as_deref()
                .map_or(key.clone(), |value| format!("{key} = {}", identifier(value, PATH_COLUMNS)))
        }
        EntityKind::Irq => named("interrupt", comm.or_else(|| path(&entity.path))),
        EntityKind::Socket => named("socket", path(&entity.address)),
        EntityKind::Observer => "`deburr` itself".into(),
        EntityKind::Unknown => "not known".into(),
    }
}

fn process(entity: &Entity, comm: Option<String>) -> String {
    let others = entity.processes.unwrap_or(1).max(1) - 1;
    let which = match (entity.pid, others) {
        (Some(pid), 0) => format!(" (pid {pid})"),
        (Some(pid), n) => format!(" (pid {pid} and {n} more)"),
        (None, 0) => String::new(),
        (None, n) => format!(" ({})", counted(u64::from(n) + 1, "process", "processes")),
    };
    comm.unwrap_or_else(|| "a process".into()) + &which
}

/// Part of a cause from which on those who carry it are most of it, not some of many.
const MOST: f64 = 0.5;

/// Which of several processes account for a cause, what they run and under which policy; `None` if nothing is known.
pub(super) fn whom(whom: &BlameDistribution) -> Option<String> {
    let all: Vec<String> = whom.processes.iter().map(|it| carrier(it, true)).collect();
    let carriers = whom.carriers as usize;
    let part = share(whom.carriers_share);
    Some(match (whom.processes.as_slice(), whom.of) {
        ([], _) => return None,
        ([only], 1) => how(only)?,
        ([first, ..], of) if carriers == 1 => {
            format!("one of the {of} carries {part} of it: {}", carrier(first, false))
        }
        (_, of) if whom.few && carriers <= all.len() => {
            format!("{carriers} of the {of} carry {part} of it: {}", all[..carriers].join("; "))
        }
        (told, of) => {
            let told_part: f64 = told.iter().map(|it| it.share).sum();
            let told_share = share(told_part);
            let largest = told.len();
            let these = match whom.few {
                true => format!("{carriers} of the {of} carry {part} of it"),
                false if of as usize == largest => "it is all of them".into(),
                false if told_part >= MOST => {
                    format!("the {largest} largest of the {of} carry {told_share} of it")
                }
                false => format!("the {largest} largest carry {told_share} of it: it is the many"),
            };
            // Many similar processes are described by the first one.
            match (whom.few || of as usize == largest, how(&told[0])) {
                (true, _) => format!("{these}: {}", all.join("; ")),
                (false, Some(how)) => format!("{these}; the largest (pid {}): {how}", told[0].pid),
                (false, None) => these,
            }
        }
    })
}

fn carrier(of: &BlamedProcess, with_share: bool) -> String {
    let mut text = format!("pid {}", of.pid);
    if with_share {
        text = format!("{text} ({})", share(of.share));
    }
    match how(of) {
        Some(how) => format!("{text} {how}"),
        None => text,
    }
}

/// What a process runs, and under which scheduling policy.
fn how(of: &BlamedProcess) -> Option<String> {
    let runs = of.runs.as_deref().map(|what| format!("runs {}", identifier(what, PATH_COLUMNS)));
    let threads: u32 = of.scheduling.iter().map(|kind| kind.threads).sum();
    let kind = of.doer().or_else(|| of.scheduling.iter().find(|it| it.policy.is_real_time()));
    let scheduling = kind.and_then(|kind| {
        let how = kind.shown()?;
        let is_all = kind.threads == threads;
        Some(match (is_all, kind.policy.is_real_time()) {
            (true, false) => how,
            (true, true) => format!("{how} (tid {})", kind.tid),
            (false, _) => {
                format!("{how} (tid {}, {} of its {threads} threads)", kind.tid, kind.threads)
            }
        })
    });
    let parts: Vec<String> = [runs, scheduling].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn thread(entity: &Entity, comm: Option<String>) -> String {
    let name = comm.map_or("a thread".into(), |comm| format!("thread {comm}"));
    match (entity.tid, entity.pid) {
        (Some(tid), Some(pid)) => format!("{name} (tid {tid} of pid {pid})"),
        (Some(tid), None) => format!("{name} (tid {tid})"),
        (None, Some(pid)) => format!("{name} (of pid {pid})"),
        (None, None) => name,
    }
}

/// Where an entity runs: its container or unit, or else its cgroup; with `path`, both. `None` in the root cgroup.
pub(super) fn place(entity: &Entity, path: bool) -> Option<String> {
    let cgroup = entity
        .cgroup
        .as_deref()
        .filter(|path| *path != "/")
        .map(|path| format!("cgroup {}", identifier(path, PATH_COLUMNS)));
    match (&entity.container, cgroup) {
        (Some(container), Some(cgroup)) if path => {
            Some(format!("{}, {cgroup}", self::container(container)))
        }
        (Some(container), _) => Some(self::container(container)),
        (None, cgroup) => cgroup,
    }
}

/// The name of a container, pod or unit.
pub(super) fn container(container: &Container) -> String {
    let id = short_id(&container.id);
    if container.is_unit() {
        return format!("unit {}", identifier(id, PATH_COLUMNS));
    }
    let runtime = sentence(&container.runtime);
    let own = match &container.name {
        Some(name) => format!(
            "container {} ({runtime} {})",
            identifier(name, PATH_COLUMNS),
            identifier(id, PATH_COLUMNS)
        ),
        None => format!("container {} ({runtime})", identifier(id, PATH_COLUMNS)),
    };
    match (&container.namespace, &container.pod) {
        (Some(namespace), Some(pod)) => {
            format!("pod {}, {own}", identifier(&format!("{namespace}/{pod}"), PATH_COLUMNS))
        }
        (None, Some(pod)) => format!("pod {}, {own}", identifier(pod, PATH_COLUMNS)),
        _ => own,
    }
}

/// The first digits of a long hexadecimal id, as container runtimes show it; any other id is unchanged.
fn short_id(id: &str) -> &str {
    let long_hex = id.len() >= 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
    if long_hex { &id[..ID_DIGITS] } else { id }
}

/// The name of the target that was observed.
pub(super) fn target(target: &Target, host: &str) -> String {
    let host = identifier(host, PATH_COLUMNS);
    let name = identifier(target.name.as_deref().unwrap_or("?"), PATH_COLUMNS);
    let processes = counted(u64::from(target.processes), "process", "processes");
    let pid = target.pid.map_or(String::new(), |pid| format!("pid {pid}"));
    match target.kind.as_str() {
        "host" => format!("host {host}"),
        "process" => format!("{name} ({pid}) on {host}"),
        "comm" => format!("{processes} named {name} on {host}"),
        "command" => format!("command {name} ({pid}, {processes}) on {host}"),
        kind => format!("{} {name} ({processes}) on {host}", sentence(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container_of(runtime: &str, id: &str) -> Container {
        Container { runtime: runtime.into(), id: id.into(), ..Container::default() }
    }

    #[test]
    fn who_of_many_it_is_is_said_in_one_line() {
        use crate::recording::{SchedPolicy, Scheduling};
        let of = |of: u32, shares: &[f64], carriers: u32, few: bool| {
            let carrier = |(at, &share): (usize, &f64)| BlamedProcess {
                pid: 10 + at as u32,
                share,
                runs: Some("a`b.py".into()),
                scheduling: vec![],
            };
            let processes: Vec<BlamedProcess> = shares.iter().enumerate().map(carrier).collect();
            let carriers_share = shares.iter().take(carriers as usize).sum();
            BlameDistribution { of, carriers, carriers_share, few, processes }
        };
        let mut one = of(40, &[0.96, 0.02], 1, true);
        let fifo = Scheduling {
            policy: SchedPolicy::Fifo,
            priority: 50,
            nice: 0,
            threads: 1,
            tid: 12,
            ran_ns: 1,
        };
        one.processes[0].scheduling = vec![fifo.clone(), Scheduling { tid: 10, ran_ns: 0, ..fifo }];
        assert_eq!(
            whom(&one).unwrap(),
            "one of the 40 carries 96 % of it: pid 10 runs `a\\x60b.py`, SCHED_FIFO priority 50 (tid 12, 1 of its 2 \
             threads)"
        );
        assert_eq!(
            whom(&of(40, &[0.5, 0.35, 0.01], 2, true)).unwrap(),
            "2 of the 40 carry 85 % of it: pid 10 (50 %) runs `a\\x60b.py`; pid 11 (35 %) runs `a\\x60b.py`"
        );
        let many = whom(&of(40, &[0.06; 5], 32, false)).unwrap();
        assert!(many.starts_with("the 5 largest carry 30 % of it: it is the many"), "{many}");
        let most = whom(&of(6, &[0.2; 5], 6, false)).unwrap();
        assert!(
            most.starts_with("the 5 largest of the 6 carry 100 % of it; the largest"),
            "{most}"
        );
        let both = whom(&of(2, &[0.5, 0.5], 2, false)).unwrap();
        assert!(both.starts_with("it is all of them: pid 10 (50 %)"), "{both}");
        let mut alone = of(1, &[1.0], 1, false);
        assert_eq!(whom(&alone).unwrap(), "runs `a\\x60b.py`");
        alone.processes[0].runs = None;
        assert_eq!(whom(&alone), None);
    }

    #[test]
    fn entities_are_called_by_what_they_have() {
        let mut it = Entity::new(EntityKind::Process);
        assert_eq!(entity(&it), "a process");
        it.comm = Some("stress".into());
        it.processes = Some(16);
        assert_eq!(entity(&it), "`stress` (16 processes)");
        it.pid = Some(137);
        assert_eq!(entity(&it), "`stress` (pid 137 and 15 more)");
        it.processes = Some(1);
        assert_eq!(entity(&it), "`stress` (pid 137)");
        it.kind = EntityKind::Thread;
        it.tid = Some(140);
        assert_eq!(entity(&it), "thread `stress` (tid 140 of pid 137)");
        it.kind = EntityKind::Cgroup;
        it.cgroup = Some("/batch".into());
        assert_eq!(entity(&it), "cgroup `/batch`");
        it.kind = EntityKind::Setting;
        it.key = Some("cpuset.cpus".into());
        it.value = Some("0".into());
        assert_eq!(entity(&it), "setting `cpuset.cpus` = `0`");
        it.kind = EntityKind::Socket;
        it.address = Some("10.0.0.3:9092".into());
        assert_eq!(entity(&it), "socket `10.0.0.3:9092`");
    }

    #[test]
    fn places_are_called_by_their_runtime() {
        let id = "bbda0b6e9d3f0123456789abcdef0123456789abcdef0123456789abcdef0123";
        let mut docker = container_of("docker", id);
        assert_eq!(container(&docker), "container `bbda0b6e9d3f` (docker)");
        docker.name = Some("shop".into());
        assert_eq!(container(&docker), "container `shop` (docker `bbda0b6e9d3f`)");
        docker.pod = Some("shop-1".into());
        docker.namespace = Some("prod".into());
        assert_eq!(
            container(&docker),
            "pod `prod/shop-1`, container `shop` (docker `bbda0b6e9d3f`)"
        );
        assert_eq!(container(&container_of("systemd", "nginx.service")), "unit `nginx.service`");
        let mut it = Entity::new(EntityKind::Process);
        it.cgroup = Some("/".into());
        assert_eq!(place(&it, true), None);
        it.cgroup = Some("/docker/bb".into());
        assert_eq!(place(&it, false).as_deref(), Some("cgroup `/docker/bb`"));
    }
}
