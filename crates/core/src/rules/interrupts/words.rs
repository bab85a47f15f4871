// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What interrupts are called, what they are for, and what moves them elsewhere.

use crate::finding::Fix;
use crate::recording::InterruptKind;
use crate::rules::remedy::{cpu_list, named};
use crate::rules::words::ticked;
use crate::text::Target;
use crate::view::InterruptSource;

/// Its name in words; see [`InterruptKind::in_words`].
pub(super) fn name(source: &InterruptSource) -> String {
    let InterruptSource { kind, irq, name } = source;
    kind.in_words(*irq, (!name.is_empty()).then(|| ticked(name)))
}

/// What it is for, in some words.
pub(super) fn purpose(source: &InterruptSource) -> &'static str {
    match (source.kind, source.name.as_str()) {
        (InterruptKind::Soft, "NET_RX") => "packets that are received",
        (InterruptKind::Soft, "NET_TX") => "packets that are sent",
        (InterruptKind::Soft, "BLOCK" | "IRQ_POLL") => "block IO that is completed",
        (InterruptKind::Soft, "TIMER") => "timers of the kernel that expire",
        (InterruptKind::Soft, "HRTIMER") => "precise timers that expire",
        (InterruptKind::Soft, "SCHED") => "balance between run queues",
        (InterruptKind::Soft, "RCU") => "memory and callbacks that the kernel puts off",
        (InterruptKind::Soft, "HI" | "TASKLET") => "work that drivers put off",
        (InterruptKind::Soft, _) => "not known",
        (InterruptKind::Device, _) => "a device",
        (InterruptKind::Timer, _) => "the clock tick, and precise timers that expire",
        (InterruptKind::Processor, _) => {
            "threads that are woken there, and memory that threads of the process unmap"
        }
    }
}

/// Files of interrupts that a command may write.
const AFFINITY: [&str; 1] = ["/proc/irq/*/smp_affinity_list"];

/// The command that has other CPUs serve a device's interrupt.
fn moved(source: &InterruptSource, to: &[u32]) -> Option<String> {
    let file = format!("/proc/irq/{}/smp_affinity_list", source.irq?);
    let file = Target::of_kernel(&file, &AFFINITY)?;
    (source.kind == InterruptKind::Device).then(|| format!("echo {} > {file}", cpu_list(to)))
}

/// What moves it away from the CPU, or makes it less. `elsewhere`: CPUs that could serve it, if there are others.
pub(super) fn fix(source: &InterruptSource, cpu: u32, elsewhere: Option<&[u32]>) -> Fix {
    let (action, risk): (String, &str) = match (source.kind, source.name.as_str()) {
        (InterruptKind::Soft, "NET_RX" | "NET_TX") => (
            format!(
                "have other CPUs than CPU {cpu} serve the network: the affinity of the card's interrupts \
                 (`/proc/irq/*/smp_affinity_list`), its number of queues (RSS, `ethtool -L`), and \
                 `/sys/class/net/*/queues/rx-*/rps_cpus` (RPS)"
            ),
            "packets are then served far from the caches of whoever reads them; `irqbalance` may undo it",
        ),
        (InterruptKind::Soft, "BLOCK" | "IRQ_POLL") => (
            "have the CPU that asked for block IO complete it (`rq_affinity` = 2 in `/sys/block/*/queue`), or find who \
             asks for so much of it"
                .into(),
            "each completion then takes an interrupt to another CPU",
        ),
        (InterruptKind::Device, _) => (
            format!(
                "give {} to {} (`/proc/irq/{}/smp_affinity_list`)",
                name(source),
                elsewhere.map_or_else(|| "another CPU".into(), named),
                source.irq.map_or_else(|| "*".into(), |irq| irq.to_string())
            ),
            "the other CPU's threads pay for it; `irqbalance` may undo it, and some devices' interrupts cannot be moved",
        ),
        (InterruptKind::Timer, _) => (
            format!(
                "find who has so many timers expire on CPU {cpu}: profilers that sample at a high rate, threads that sleep \
                 for microseconds, and programs that set timers one by one (`perf record -a -C {cpu} -e \
                 timer:hrtimer_start -- sleep 5`, then `perf report --sort comm`, says who sets them)"
            ),
            "what waits for these timers may need their precision",
        ),
        (InterruptKind::Processor, _) => (
            format!(
                "find who has CPU {cpu} called (`perf record -a -g -e ipi:ipi_send_cpu,ipi:ipi_send_cpumask -- sleep 5` from \
                 Linux 6.4 on): threads of the process itself that unmap, protect or give back memory (`munmap`, `mprotect`, \
                 `madvise`: allocators, garbage collectors), `membarrier`, or whoever wakes threads there"
            ),
            "memory that is kept instead of given back is missing elsewhere",
        ),
        (InterruptKind::Soft, _) => (
            format!("find what asks for {} on CPU {cpu}, and move it to another CPU", name(source)),
            "the other CPU's threads pay for it",
        ),
    };
    let command = elsewhere.and_then(|cpus| moved(source, cpus));
    Fix { action, command, risk: Some(risk.into()), expect: None }
}
