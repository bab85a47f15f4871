// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network cards, `net.*`, interrupts.

use super::{ChangeMethod, Knowledge, SlowerSide, known};
use crate::host_diff::document::Effect::{Network, Queue, System};

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        76,
        "speed of a network card",
        &["/sys/class/net/*/speed", "/sys/class/net/*/duplex"],
        "a link that settled on less sends slower, and queues",
    )
    .slows(&[Network], SlowerSide::Lower)
    .look("ethtool NAME")
    .change(ChangeMethod::Machine),
    known(
        70,
        "driver of a network card",
        &["/sys/class/net/*/device/driver"],
        "another card, other offloads and interrupts",
    )
    .slows(&[Network, System], SlowerSide::Unknown)
    .change(ChangeMethod::Machine),
    known(64, "size of packets", &["/sys/class/net/*/mtu"], "small packets cost more CPU time for each byte; a wrong size loses packets")
        .slows(&[Network], SlowerSide::Lower)
        .risk("the whole path must agree"),
    known(
        66,
        "congestion control and queueing",
        &["/proc/sys/net/ipv4/tcp_congestion_control", "/proc/sys/net/core/default_qdisc"],
        "it decides how fast connections grow and how much waits in queues",
    )
    .slows(&[Network], SlowerSide::Unknown)
    .risk("it holds for new connections"),
    known(
        60,
        "busy polling",
        &["/proc/sys/net/core/busy_*", "/sys/class/net/*/napi_defer_hard_irqs", "/sys/class/net/*/gro_flush_timeout", "/sys/class/net/*/threaded"],
        "it trades CPU time for the time until a packet is seen",
    )
    .slows(&[Network], SlowerSide::Unknown),
    known(
        55,
        "which CPUs serve packets",
        &["/sys/class/net/*/queues/*"],
        "all packets on one CPU are a queue of its own",
    )
    .slows(&[Network, Queue], SlowerSide::Unknown)
    .group("interrupts"),
    known(
        62,
        "who serves interrupts",
        &["/proc/irq/default_smp_affinity", "/run/irqbalance", "/etc/*irqbalance*", "/proc/cmdline#irqaffinity"],
        "interrupts on the CPUs of a busy thread take its time; without irqbalance they stay where drivers put them",
    )
    .slows(&[Queue, Network], SlowerSide::Unknown)
    .look("grep . /proc/irq/*/smp_affinity_list")
    .group("interrupts"),
    known(
        24,
        "CPUs that an interrupt may go to",
        &["/proc/irq/*", "/sys/kernel/irq/*"],
        "numbers of interrupts differ between hosts: compare them by device",
    )
    .slows(&[Queue, Network], SlowerSide::Unknown)
    .look("grep . /proc/irq/*/smp_affinity_list")
    .group("interrupts"),
    known(
        50,
        "behaviour of TCP",
        &["/proc/sys/net/ipv4/tcp_*"],
        "retransmissions, buffers and idle connections",
    )
    .slows(&[Network], SlowerSide::Unknown),
    known(
        52,
        "backlogs",
        &["/proc/sys/net/core/somaxconn", "/proc/sys/net/core/netdev_*", "/proc/sys/net/core/dev_weight*"],
        "what does not fit is dropped, and comes again after a timeout",
    )
    .slows(&[Network], SlowerSide::Lower),
];
