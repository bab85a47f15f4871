// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what the target's threads sleep, and who wakes them.

use super::super::{Emit, Roots};
use deburr_bpf::sched::{Call, Context as Woke, Inet, Object, SchedProbe, Sleep, State, Waker};
use deburr_core::procfs::net_tcp::listening;
use deburr_core::recording::{ProcId, Record, SleepState, SleepTick, SleptOn, WokenBy};
use deburr_core::text::name::decode;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;

/// Kinds of sleep of a process that have a record of their own in each second: those that took longest. The others are
/// summed.
const KINDS: usize = 48;
/// Processes whose threads are watched.
const PROCESSES: usize = 1000;
/// Threads of a process that exist when it is met.
const THREADS: usize = 20_000;
/// Seconds after which it is looked again whether somebody listens where nobody did.
const LISTENING_FOR_S: u32 = 10;
/// Length of a list of sockets that is read: the listening ones come first.
const LISTED_BYTES: u64 = 256 << 10;

/// Sleeps in a second on sockets of which it is not known yet who listens there; of further ones it stays unknown.
const PENDING: usize = 10_000;

/// Values of a futex that mark something; all others are as good as [`OTHER_VALUE`].
const OTHER_VALUE: u32 = 3;
/// `SOCK_STREAM` and `SOCK_DGRAM`.
const STREAM: u16 = 1;
const DATAGRAMS: u16 = 2;
/// The operation of a futex without its flags (`FUTEX_PRIVATE_FLAG`, `FUTEX_CLOCK_REALTIME`).
const FUTEX_OPERATION: u64 = 0x7f;

/// What makes sleeps alike. Processes are pids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    state: SleepState,
    call: Option<Call>,
    on: SleptOn,
    peer: Option<u32>,
    woken: Woken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Woken {
    NotKnown,
    NotYet,
    Thread(u32, Call),
    Sender(u32),
    SoftInterrupt,
    HardInterrupt,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    ns: u64,
    looked_at: u64,
    longest_ns: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.ns += other.ns;
        self.looked_at += other.looked_at;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// The sleeps of the target since the last second.
#[derive(Debug, Default)]
pub(super) struct Asleep {
    t0_ns: u64,
    watched: BTreeSet<u32>,
    listening: Listening,
    /// Sleeps on sockets of which it is not known yet who listens there.
    pending: Vec<Sleep>,
    sums: BTreeMap<u32, BTreeMap<Kind, Sum>>,
}

impl Asleep {
    /// Begins with the first look, at that time in the window.
    pub(super) fn begin(first_look_ns: u64) -> Self {
        Self { t0_ns: first_look_ns, ..Self::default() }
    }

    /// Watches these processes, and no others.
    pub(super) fn watch(&mut self, probe: &mut SchedProbe, roots: &Roots, target: &BTreeSet<u32>) {
        if !probe.can_watch() {
            return;
        }
        for &gone in self.watched.difference(target) {
            probe.watch_no_more(gone);
        }
        self.watched.retain(|pid| target.contains(pid));
        let new: Vec<u32> = target.difference(&self.watched).copied().collect();
        for pid in new.into_iter().take(PROCESSES - self.watched.len().min(PROCESSES)) {
            let tasks = fs::read_dir(roots.proc.join(pid.to_string()).join("task"));
            let names = tasks.into_iter().flatten().flatten().take(THREADS);
            probe.watch(pid, names.filter_map(|it| it.file_name().to_str()?.parse().ok()));
            self.watched.insert(pid);
        }
        self.listening.second(&self.watched);
    }

    /// Adds the sleeps that ended since the last call.
    pub(super) fn follow(&mut self, probe: &mut SchedProbe) {
        for sleep in probe.sleeps() {
            self.take(sleep);
        }
    }

    /// Adds what is known of the sleeps in progress, and looks who listens.
    pub(super) fn look(&mut self, probe: &mut SchedProbe, roots: &Roots) -> Result<(), String> {
        self.follow(probe);
        for sleep in probe.asleep()? {
            self.take(sleep);
        }
        let asked = self.pending.iter().filter_map(port_of).collect();
        self.listening.look(roots, &asked);
        for sleep in std::mem::take(&mut self.pending) {
            self.add(&sleep);
        }
        Ok(())
    }

    fn take(&mut self, sleep: Sleep) {
        let unknown =
            port_of(&sleep).is_some_and(|(pid, port)| self.listening.has(pid, port).is_none());
        if unknown && self.pending.len() < PENDING {
            self.pending.push(sleep);
        } else {
            self.add(&sleep);
        }
    }

    fn add(&mut self, sleep: &Sleep) {
        let Some(kind) = kind_of(sleep, &self.listening) else { return };
        let Sleep { stands_for_ns: ns, slept_ns: longest_ns, .. } = *sleep;
        let of_process = self.sums.entry(sleep.tgid).or_default();
        of_process.entry(kind).or_default().add(Sum { ns, looked_at: 1, longest_ns });
    }

    /// Ends the second. `identity` = the identity of a process, and whether it is of the target; `None` if nothing is known of
    /// it.
    pub(super) fn end(
        &mut self,
        t1_ns: u64,
        mut identity: impl FnMut(u32, Emit<'_>) -> Option<(ProcId, bool)>,
        emit: Emit<'_>,
    ) {
        let t1_ns = t1_ns.max(self.t0_ns);
        let t0_ns = std::mem::replace(&mut self.t0_ns, t1_ns);
        for (pid, kinds) in std::mem::take(&mut self.sums) {
            let Some((proc, true)) = identity(pid, &mut *emit) else { continue };
            for (kind, sum) in largest(kinds) {
                let mut known = |pid: u32| Some(identity(pid, &mut *emit)?.0);
                let mut on = kind.on;
                if let SleptOn::Unix { peer, .. } = &mut on {
                    *peer = kind.peer.and_then(&mut known);
                }
                let woken = match kind.woken {
                    Woken::NotKnown => WokenBy::NotKnown,
                    Woken::NotYet => WokenBy::NotYet,
                    Woken::SoftInterrupt => WokenBy::SoftInterrupt,
                    Woken::HardInterrupt => WokenBy::HardInterrupt,
                    Woken::Thread(pid, call) => known(pid).map_or(WokenBy::NotKnown, |proc| {
                        WokenBy::Thread { proc, call: call.name() }
                    }),
                    Woken::Sender(pid) => {
                        known(pid).map_or(WokenBy::SoftInterrupt, |proc| WokenBy::Sender { proc })
                    }
                };
                emit(Record::Sleep(Box::new(SleepTick {
                    t0_ns,
                    t1_ns,
                    proc,
                    state: kind.state,
                    call: kind.call.map_or_else(|| "(others)".into(), Call::name),
                    on,
                    woken,
                    ns: sum.ns,
                    looked_at: sum.looked_at,
                    longest_ns: sum.longest_ns,
                })));
            }
        }
    }
}

/// Those that took longest, and the sums of the others by state.
fn largest(kinds: BTreeMap<Kind, Sum>) -> Vec<(Kind, Sum)> {
    let mut all: Vec<(Kind, Sum)> = kinds.into_iter().collect();
    all.sort_by_key(|(_, sum)| Reverse(sum.ns));
    let mut others: BTreeMap<SleepState, Sum> = BTreeMap::new();
    for (kind, sum) in all.drain(all.len().min(KINDS)..) {
        others.entry(kind.state).or_default().add(sum);
    }
    let of_state = |(state, sum)| {
        let (on, woken) = (SleptOn::Others, Woken::NotKnown);
        (Kind { state, call: None, on, peer: None, woken }, sum)
    };
    all.extend(others.into_iter().map(of_state));
    all
}

/// Process and own port of a sleep on a socket that somebody may listen on.
fn port_of(sleep: &Sleep) -> Option<(u32, u16)> {
    match sleep.object {
        Object::Inet(Inet { kind: STREAM, local_port, .. }) => Some((sleep.tgid, local_port)),
        _ => None,
    }
}

fn kind_of(sleep: &Sleep, listening: &Listening) -> Option<Kind> {
    let state = match sleep.state {
        it if it == State::Sleep as u8 => SleepState::Asleep,
        it if it == State::BlockIo as u8 => SleepState::BlockIo,
        it if it == State::MemStall as u8 => SleepState::Memory,
        it if it == State::Uninterruptible as u8 => SleepState::Uninterruptible,
        _ => return None,
    };
    let (on, peer) = on_of(sleep, listening);
    Some(Kind { state, call: Some(sleep.call), woken: woken_of(sleep.waker, &on), on, peer })
}

fn is(call: Call, names: &[&str]) -> bool {
    matches!(call, Call::System(_)) && names.contains(&&*call.name())
}

fn on_of(sleep: &Sleep, listening: &Listening) -> (SleptOn, Option<u32>) {
    const S_IFMT: u16 = 0o170_000;
    let on = match sleep.object {
        Object::None if is(sleep.call, &["futex"]) => {
            let [address, op, value] = sleep.arguments;
            SleptOn::Futex {
                address,
                value: (value as u32).min(OTHER_VALUE),
                op: (op & FUTEX_OPERATION) as u32,
            }
        }
        Object::None => SleptOn::NotKnown,
        Object::File { mode, device, inode } => match mode & S_IFMT {
            0o010_000 => SleptOn::Pipe,
            0o020_000 => SleptOn::Character,
            // As the kernel has it in memory: 12 and 20 bits.
            _ => SleptOn::File { device: format!("{}:{}", device >> 20, device & 0xf_ffff), inode },
        },
        Object::Anonymous(name) => {
            let end = name.iter().position(|&byte| byte == 0 || byte == b']').unwrap_or(name.len());
            SleptOn::Anonymous {
                name: decode(name[..end].strip_prefix(b"[").unwrap_or(&name[..end])),
            }
        }
        Object::Inet(inet) => inet_of(sleep.tgid, inet, listening),
        Object::Unix { peer, has_address, ready } => {
            let on = SleptOn::Unix { peer: None, accepted: has_address, ready };
            return (on, Some(peer).filter(|&peer| peer != 0));
        }
        Object::Socket { family } => SleptOn::Socket { family },
    };
    (on, None)
}

fn inet_of(tgid: u32, inet: Inet, listening: &Listening) -> SleptOn {
    let protocol = match inet.kind {
        STREAM => "tcp".into(),
        DATAGRAMS => "udp".into(),
        other => format!("type {other}"),
    };
    let listens = match inet.kind {
        STREAM => listening.has(tgid, inet.local_port),
        _ => None,
    };
    let connected = inet.remote_port != 0 && listens != Some(true);
    SleptOn::Inet {
        protocol,
        listens,
        port: (listens == Some(true)).then_some(inet.local_port),
        remote: connected
            .then(|| std::net::SocketAddr::new(inet.remote, inet.remote_port).to_string()),
        ready: inet.ready,
    }
}

/// Calls in which a process sends: on this host, the other end is woken by it, in a soft interrupt.
const SENDS: &[&str] = &["write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile", "splice"];

fn woken_of(waker: Waker, on: &SleptOn) -> Woken {
    match waker.context {
        Woke::Unknown => Woken::NotKnown,
        Woke::NotYet => Woken::NotYet,
        Woke::Thread if waker.tid == 0 => Woken::NotKnown,
        Woke::Thread => Woken::Thread(waker.tgid, waker.call),
        Woke::SoftIrq if matches!(on, SleptOn::Inet { .. }) && is(waker.call, SENDS) => {
            Woken::Sender(waker.tgid)
        }
        Woke::SoftIrq => Woken::SoftInterrupt,
        Woke::HardIrq => Woken::HardInterrupt,
    }
}

/// The ports on which somebody listens, in the network namespace of each process.
#[derive(Debug, Default)]
struct Listening {
    seconds: u32,
    of: BTreeMap<u32, PathBuf>,
    namespaces: BTreeMap<PathBuf, Ports>,
}

#[derive(Debug, Default)]
struct Ports {
    /// Somebody listened there: connections that were accepted may outlive the listener.
    listening: BTreeSet<u16>,
    /// Nobody did, when it was last looked.
    others: BTreeSet<u16>,
}

impl Listening {
    /// A second is over: it looks again now and then whether somebody listens where nobody did.
    fn second(&mut self, watched: &BTreeSet<u32>) {
        self.of.retain(|pid, _| watched.contains(pid));
        self.seconds += 1;
        if self.seconds.is_multiple_of(LISTENING_FOR_S) {
            self.namespaces.retain(|namespace, _| self.of.values().any(|it| it == namespace));
            self.namespaces.values_mut().for_each(|ports| ports.others.clear());
        }
    }

    /// Looks who listens, for these processes and ports.
    fn look(&mut self, roots: &Roots, asked: &BTreeSet<(u32, u16)>) {
        let mut read = BTreeSet::new();
        for &(pid, port) in asked {
            let process = roots.proc.join(pid.to_string());
            let Ok(namespace) = fs::read_link(process.join("ns/net")) else { continue };
            let ports = self.namespaces.entry(namespace.clone()).or_default();
            if read.insert(namespace.clone()) {
                for name in ["net/tcp", "net/tcp6"] {
                    ports.listening.extend(listening_in(process.join(name)));
                }
            }
            if !ports.listening.contains(&port) {
                ports.others.insert(port);
            }
            self.of.insert(pid, namespace);
        }
    }

    /// Whether somebody listens on that port; `None` = it is not known.
    fn has(&self, pid: u32, port: u16) -> Option<bool> {
        let ports = self.namespaces.get(self.of.get(&pid)?)?;
        let known = ports.others.contains(&port).then_some(false);
        if ports.listening.contains(&port) { Some(true) } else { known }
    }
}

/// The ports of listening sockets, from the beginning of a file, which has them first.
fn listening_in(path: PathBuf) -> BTreeSet<u16> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LISTED_BYTES).read_to_end(&mut text));
    read.map(|_| listening(&text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn sleep(object: Object, waker: Woke) -> Sleep {
        Sleep {
            tid: 7,
            tgid: 7,
            since_ns: 0,
            slept_ns: 10,
            stands_for_ns: 10,
            state: State::Sleep as u8,
            call: Call::System(202),
            arguments: [0x1000, 128, 2],
            object,
            waker: Waker { context: waker, tid: 9, tgid: 8, call: Call::System(1) },
        }
    }

    fn listening_on(port: u16) -> Listening {
        let of = BTreeMap::from([(7, PathBuf::from("net:[1]"))]);
        let ports = Ports { listening: [port].into(), others: [40_000].into() };
        Listening { seconds: 0, namespaces: [("net:[1]".into(), ports)].into(), of }
    }

    fn inet(local_port: u16) -> Object {
        let remote = Ipv4Addr::new(10, 0, 0, 7).into();
        Object::Inet(Inet { kind: 1, state: 1, local_port, remote, remote_port: 5432, ready: true })
    }

    #[test]
    fn clients_are_alike_and_servers_are_not() {
        let kind = |port| kind_of(&sleep(inet(port), Woke::SoftIrq), &listening_on(80)).unwrap();
        let SleptOn::Inet { listens, port, remote, .. } = kind(80).on else { panic!() };
        assert_eq!((listens, port, remote), (Some(true), Some(80), None));
        let SleptOn::Inet { listens, port, remote, .. } = kind(40_000).on else { panic!() };
        assert_eq!((listens, port), (Some(false), None));
        assert_eq!(remote.as_deref(), Some("10.0.0.7:5432"));
        assert_eq!(kind(40_000).woken, Woken::Sender(8));
        let SleptOn::Inet { listens, remote, .. } = kind(50_000).on else { panic!() };
        assert_eq!((listens, remote.is_some()), (None, true), "it was not looked");
    }

    #[test]
    fn whoever_a_cpu_ran_when_an_interrupt_came_is_not_the_waker() {
        let woken =
            |context| kind_of(&sleep(Object::None, context), &Listening::default()).unwrap().woken;
        assert_eq!(woken(Woke::SoftIrq), Woken::SoftInterrupt);
        assert_eq!(woken(Woke::HardIrq), Woken::HardInterrupt);
        assert_eq!(woken(Woke::Thread), Woken::Thread(8, Call::System(1)));
    }

    #[test]
    fn of_many_kinds_nothing_is_lost() {
        let mut asleep = Asleep::begin(0);
        for address in 0..100 {
            let one = Sleep { arguments: [address, 0, 0], ..sleep(Object::None, Woke::Thread) };
            asleep.add(&one);
        }
        let mut told = Vec::new();
        asleep.end(1000, |pid, _| Some((ProcId(pid), pid == 7)), &mut |record| match record {
            Record::Sleep(it) => told.push(*it),
            other => panic!("{other:?}"),
        });
        assert_eq!(told.len(), KINDS + 1);
        assert_eq!(told.iter().map(|it| it.ns).sum::<u64>(), 1000);
        assert_eq!(told.last().unwrap().on, SleptOn::Others);
        assert_eq!(told[0].woken, WokenBy::Thread { proc: ProcId(8), call: "write".into() });
    }
}
