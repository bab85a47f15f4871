// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets of a fake host.

use super::super::fixture::{Host, beat};
use super::*;
use deburr_core::recording::{DatagramTick, ListenerTick};
use std::os::unix::fs::symlink;

const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

fn udp(inode: u64, waiting: u32, drops: u64) -> String {
    format!(
        " 1: 0100007F:0035 00000000:0000 07 00000000:{waiting:08X} 00:00000000 00000000 0 0 {inode} 2 0 {drops}\n"
    )
}

fn netstat(overflows: u64, drops: u64) -> String {
    format!("TcpExt: ListenOverflows ListenDrops\nTcpExt: {overflows} {drops}\n")
}

fn host(sockets: &[String], refused: u64) -> Host {
    let host = Host::empty();
    std::fs::create_dir_all(host.path("proc/self/ns")).unwrap();
    symlink("net:[7]", host.path("proc/self/ns/net")).unwrap();
    change(&host, sockets, refused);
    host
}

fn change(host: &Host, sockets: &[String], refused: u64) {
    host.write("proc/self/net/udp", format!("{HEAD}{}", sockets.concat()));
    host.write("proc/self/net/netstat", netstat(refused, refused + 1));
    host.write("proc/self/net/snmp", "Tcp: PassiveOpens\nTcp: 5\n");
    let listener =
        " 0: 0100007F:0050 00000000:0000 0A 00000000:00000003 00:0 0 0 0 40 1 0 0 0 0 0\n";
    host.write("proc/self/net/tcp", format!("{HEAD}{listener}"));
}

fn collector(cx: &Context) -> NetCollector {
    let probe = Err("no BPF here".into());
    NetCollector::open(cx, LoadedNet { probe, senders: Ok(()), unread: Ok(()) })
}

fn drops(records: &[Record]) -> Vec<&DatagramTick> {
    fn of_one(record: &Record) -> Option<&DatagramTick> {
        if let Record::Datagrams(it) = record { Some(it) } else { None }
    }
    records.iter().filter_map(of_one).collect()
}

#[test]
fn what_was_dropped_before_the_window_is_not_told() {
    let host = host(&[udp(17, 0, 900), udp(18, 0, 5)], 3);
    let mut cx = host.context();
    let mut collector = collector(&cx);
    let records = beat(&mut collector, &mut cx, Beat::Start);
    assert!(drops(&records).is_empty(), "{records:?}");
    let missing = records.iter().any(|record| {
        matches!(record, Record::Coverage(it)
            if it.source == Source::Tcp && matches!(it.state, State::Missing { .. }))
    });
    assert!(missing, "{records:?}");
    // Nothing new; one that dropped more; one that is new.
    change(&host, &[udp(17, 0, 900), udp(18, 512, 12), udp(19, 0, 4)], 3);
    let records = beat(&mut collector, &mut cx, Beat::Second);
    let told: Vec<_> = drops(&records).iter().map(|it| (it.drops, it.waiting_bytes)).collect();
    assert_eq!(told, [(7, 512), (4, 0)]);
    assert_eq!((drops(&records)[0].netns, drops(&records)[0].proc), (7, None));
    assert!(!records.iter().any(|it| matches!(it, Record::Netns(_) | Record::Listener(_))));
    assert!(drops(&beat(&mut collector, &mut cx, Beat::Second)).is_empty());
}

#[test]
fn counters_wrap_around() {
    let host = host(&[udp(17, 0, u64::from(u32::MAX) - 1)], 0);
    let mut cx = host.context();
    let mut collector = collector(&cx);
    beat(&mut collector, &mut cx, Beat::Start);
    change(&host, &[udp(17, 0, 3)], 0);
    assert_eq!(drops(&beat(&mut collector, &mut cx, Beat::Second))[0].drops, 5);
}

#[test]
fn refused_connections_are_counted_and_the_listeners_looked_at() {
    let host = host(&[], 3);
    let mut cx = host.context();
    let mut collector = collector(&cx);
    beat(&mut collector, &mut cx, Beat::Start);
    change(&host, &[], 13);
    let records = beat(&mut collector, &mut cx, Beat::Second);
    let of_namespace = records.iter().find_map(|record| match record {
        Record::Netns(it) => Some((it.overflows, it.drops, it.opened)),
        _ => None,
    });
    assert_eq!(of_namespace, Some((10, 10, 0)));
    let listener = records.iter().find_map(|record| match record {
        Record::Listener(it) => Some(&**it),
        _ => None,
    });
    // It is not known who has it open: only the length of its queue is.
    let ListenerTick { local, waiting, drops, limit, .. } = listener.unwrap();
    assert_eq!((local.as_str(), *waiting, *drops, *limit), ("127.0.0.1:80", 3, None, None));
}

#[test]
fn torn_and_hostile_files_are_no_error() {
    let host = host(&[], 0);
    let mut cx = host.context();
    let mut collector = collector(&cx);
    beat(&mut collector, &mut cx, Beat::Start);
    for text in ["", "head", "head\n 1: zz", "head\n\u{0}\u{0}\n 1: 0100007F:0035 00000000:0000"] {
        for file in ["udp", "udp6", "tcp", "tcp6", "netstat", "snmp"] {
            host.write(&format!("proc/self/net/{file}"), text);
        }
        beat(&mut collector, &mut cx, Beat::Second);
    }
    std::fs::remove_dir_all(host.path("proc/self")).unwrap();
    beat(&mut collector, &mut cx, Beat::End);
}
