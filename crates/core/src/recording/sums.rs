// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much the amounts of a recording may come to. The view adds amounts of many records up. What a file holds can be
//! anything, and sums of it must not wrap around into numbers that look right.

use super::{
    AcceptQueueTick, BlameTick, BlockRecord, CpuCheckRecord, DatagramTick, DeviceBin, DiskCounters,
    HeldBackTick, IdleTick, LoadBin, LongWait, NamedThreads, ObserverTick, PairRound, ProcessTick,
    ProfileRecord, Record, ResentTick, Run, SchedstatTick, SendingTick, SyscallFile, SyscallRecord,
    SyscallSpan, SyscallTotal, UnreadTick, WaitHist,
};

/// What all amounts of a recording may come to, whatever their unit. A fourth of what 64 bits hold: sums in which an
/// amount counts several times fit too. A day of 15 000 threads stays below it.
const MOST: u64 = 1 << 62;
/// A time in a window, and a cumulative counter: 36 years in nanoseconds.
const MOST_SINGLE: u64 = 1 << 60;

/// The sum of the amounts of records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums(u64);

impl Sums {
    /// Adds a record. The error says what of it no session records.
    pub fn add(&mut self, record: &Record) -> Result<(), String> {
        let end_ns = record.span().map_or(0, |range| range.t0_ns.max(range.t1_ns));
        if end_ns > MOST_SINGLE {
            return Err("a time that no window reaches".into());
        }
        if singles(record).into_iter().any(|counter| counter > MOST_SINGLE) {
            return Err("a number that no counter reaches".into());
        }
        self.0 = self.0.saturating_add(amount(record));
        if self.0 > MOST {
            return Err("amounts whose sum no window reaches".into());
        }
        Ok(())
    }
}

fn sum(amounts: impl IntoIterator<Item = u64>) -> u64 {
    amounts.into_iter().fold(0, u64::saturating_add)
}

/// Numbers that are subtracted from each other, compared or multiplied, but not added up.
fn singles(record: &Record) -> Vec<u64> {
    match record {
        Record::Meta(it) => vec![it.asked_ns.unwrap_or_default(), it.start_mono_ns],
        Record::Process(it) => {
            let ran = it.scheduling.iter().map(|threads| threads.ran_ns);
            std::iter::once(it.start_ns).chain(ran).collect()
        }
        Record::Cgroup(it) => {
            // Microseconds.
            let all = [it.quota_us, it.period_us, it.burst_us, it.weight];
            all.into_iter().flatten().map(|us| us.saturating_mul(1000)).collect()
        }
        Record::CpuTime(it) => vec![it.user_ns, it.system_ns],
        Record::Cpu(it) => {
            vec![it.user_ns, it.system_ns, it.idle_ns, it.iowait_ns, it.irq_ns, it.steal_ns]
        }
        Record::CgroupCpu(it) => {
            let all = [it.usage_ns, it.nr_periods, it.nr_throttled, it.throttled_ns];
            all.into_iter().chain([it.nr_bursts, it.burst_ns]).flatten().collect()
        }
        Record::Memory(it) => {
            let all = [it.refaults_file, it.refaults_anon, it.activated_bytes, it.restored_bytes];
            all.into_iter().chain([it.free_bytes, it.low_bytes]).flatten().collect()
        }
        Record::Held(it) => {
            let all = [Some(it.anon_bytes), it.swapped_bytes, it.grown_bytes];
            all.into_iter().flatten().collect()
        }
        Record::Reclaim(it) => {
            [it.limit_bytes, it.usage_bytes, Some(it.longest_ns)].into_iter().flatten().collect()
        }
        Record::Psi(it) => vec![it.some_ns, it.full_ns.unwrap_or_default()],
        Record::Block(it) => match &**it {
            BlockRecord::Disk(it) => {
                let DiskCounters { reads, read_bytes, read_ns, writes, .. } = it.counters;
                let DiskCounters { write_bytes, write_ns, discard_bytes, flushes, .. } =
                    it.counters;
                let DiskCounters { busy_ns, depth_ns, in_flight, .. } = it.counters;
                vec![
                    reads,
                    read_bytes,
                    read_ns,
                    writes,
                    write_bytes,
                    write_ns,
                    discard_bytes,
                    flushes,
                    busy_ns,
                    depth_ns,
                    in_flight,
                ]
            }
            BlockRecord::Device(it) => {
                // Units of 512 bytes.
                let all = it.start_sector.into_iter().chain(it.sectors);
                all.map(|sectors| sectors.saturating_mul(512)).collect()
            }
            _ => vec![],
        },
        Record::End { window_ns } => vec![*window_ns],
        _ => vec![],
    }
}

fn sending(it: &SendingTick) -> u64 {
    let times = [it.connections, it.busy_ns, it.window_ns, it.buffer_ns];
    let sizes = [it.window_bytes, it.buffer_bytes, it.waiting_bytes];
    sum(times.into_iter().chain(sizes).chain(it.srtt_ns))
}

fn datagrams(it: &DatagramTick) -> u64 {
    let sizes = it.buffer_bytes.into_iter().chain(it.most_buffer_bytes);
    sum(sizes.chain([it.drops, it.waiting_bytes]))
}

fn unread(it: &UnreadTick) -> u64 {
    let UnreadTick { connections, looks, occupied_looks, samples, unread_ns, late_ns, .. } = *it;
    let counts = [connections, looks, occupied_looks, samples, unread_ns, late_ns];
    let rest = [it.on_cpu_ns, it.queued_ns, it.asleep_ns, it.longest_ns, it.waiting_bytes];
    sum(counts.into_iter().chain(rest))
}

fn accept_queue(it: &AcceptQueueTick) -> u64 {
    let AcceptQueueTick { looks, late_looks, waiting_ns, late_ns, most_waiting, .. } = *it;
    sum([looks, late_looks, waiting_ns, late_ns, most_waiting, it.longest_ns])
}

fn held_back(it: &HeldBackTick) -> u64 {
    let HeldBackTick { looks, held_looks, corked_looks, held_ns, longest_ns, .. } = *it;
    sum([looks, held_looks, corked_looks, held_ns, longest_ns, it.most_bytes])
}

fn resent(it: &ResentTick) -> u64 {
    let ResentTick { connections, times, dropped_here, requests, timeouts, probes, .. } = *it;
    let ResentTick { timeout_ns, recoveries, recovery_ns, rto_ns, segments, .. } = *it;
    let times = [connections, times, dropped_here, requests, timeouts, probes, recoveries];
    let rest = [timeout_ns, recovery_ns, rto_ns, segments, it.data_segments, it.total_segments];
    sum(times.into_iter().chain(rest).chain(it.srtt_ns))
}

/// The sum of what is added up of a record.
fn amount(record: &Record) -> u64 {
    match record {
        Record::ProcessTick(tick) => {
            let ProcessTick { wall_ns, states, waits, wait_max_ns, switches, .. } = &**tick;
            let named = [*wall_ns, histogram(waits), *wait_max_ns, *switches];
            sum(states.all_ns().into_iter().chain(named).chain([tick.wakeup_latency_ns]))
        }
        Record::Blame(BlameTick { ns, .. }) => *ns,
        Record::LongWait(LongWait { ns, wait_ns, .. }) => sum([*ns, *wait_ns]),
        Record::Idle(tick) => {
            let IdleTick { min_wait_ns, waits, waits_ns, skipped_ns, idle_allowed_ns, .. } = **tick;
            let named =
                [min_wait_ns, waits, waits_ns, skipped_ns, idle_allowed_ns, tick.idle_forbidden_ns];
            sum(named.into_iter().chain(tick.cpus.iter().map(|cpu| cpu.idle_ns)))
        }
        Record::Schedstat(tick) => {
            let SchedstatTick { wall_ns, on_cpu_ns, delay_ns, slices, .. } = *tick;
            sum([wall_ns, on_cpu_ns, delay_ns, slices])
        }
        Record::HostBin(bin) | Record::TargetBin(bin) => {
            let LoadBin {
                on_cpu_ns, queued_ns, throttled_ns, block_io_ns, waits, switches, ..
            } = *bin;
            sum([on_cpu_ns, queued_ns, throttled_ns, block_io_ns, waits, switches])
        }
        Record::WaitBin(it) => histogram(&it.waits),
        Record::ThreadLedger(it) => sum(it.states.all_ns().into_iter().chain([it.wall_ns])),
        Record::Sleep(it) => sum([it.ns, it.looked_at, it.longest_ns]),
        Record::Reclaim(it) => {
            sum([it.ns, it.known_ns, it.memory_ns, it.off_cpu_ns, it.count, it.pages])
        }
        Record::Interrupts(it) => sum([it.ns, it.count, it.bursts, it.longest_ns]),
        Record::Resent(it) => resent(it),
        Record::Sending(it) => sending(it),
        Record::Unread(it) => unread(it),
        Record::AcceptQueue(it) => accept_queue(it),
        Record::HeldBack(it) => held_back(it),
        Record::Datagrams(it) => datagrams(it),
        Record::Netns(it) => sum([it.opened, it.overflows, it.drops]),
        Record::Listener(it) => {
            sum(it.drops.into_iter().chain(it.limit).chain(it.most_limit).chain([it.waiting]))
        }
        Record::NamedThreads(it) => {
            let NamedThreads { on_cpu_ns, delay_ns, .. } = **it;
            sum([on_cpu_ns, delay_ns])
        }
        Record::Observer(tick) => {
            let ObserverTick { cpu_ns, bpf_runs, bpf_run_ns, rss_bytes, bpf_map_bytes, .. } = tick;
            let named = [*cpu_ns, *bpf_runs, bpf_run_ns.unwrap_or(0), *rss_bytes, *bpf_map_bytes];
            sum(named.into_iter().chain(tick.lost.values().copied()))
        }
        Record::Block(it) => block(it),
        Record::CpuCheck(it) => match &**it {
            CpuCheckRecord::Setup(it) => sum([it.chunk_ns, it.min_gap_ns]),
            CpuCheckRecord::Worker(it) => run(&it.run),
            CpuCheckRecord::Round(it) => {
                let PairRound { slot_ns, a_alone, b_alone, a_together, b_together, .. } = it;
                let runs = [a_alone, b_alone, a_together, b_together].map(run);
                sum(runs.into_iter().chain([*slot_ns]))
            }
            CpuCheckRecord::Distance(it) => it.one_way_ns,
        },
        Record::Syscalls(it) => match &**it {
            SyscallRecord::Span(it) => {
                let SyscallSpan { processes, threads, beyond_calls, beyond_ns, .. } = *it;
                let SyscallSpan { unread_calls, unread_ns, lost, .. } = *it;
                sum([processes, threads, beyond_calls, beyond_ns, unread_calls, unread_ns, lost])
            }
            SyscallRecord::Call(it) => {
                let SyscallTotal { calls, errors, unfinished, under_way, ns, off_ns, .. } = *it;
                sum([calls, errors, unfinished, under_way, ns, off_ns, it.wait_ns, it.max_ns])
            }
            SyscallRecord::File(it) => {
                let SyscallFile { errors, max_ns, off_ns, wait_ns, bytes, .. } = *it;
                let named = [errors, max_ns, off_ns, wait_ns, bytes];
                sum(named.into_iter().chain(it.calls).chain(it.ns))
            }
        },
        Record::Profile(it) => profile(it),
        _ => 0,
    }
}

fn profile(record: &ProfileRecord) -> u64 {
    match record {
        ProfileRecord::Span(it) => sum([it.samples, it.lost]),
        ProfileRecord::Stack(it) => it.samples,
        ProfileRecord::Sleep(it) => sum([it.samples, it.ns]),
    }
}

fn block(record: &BlockRecord) -> u64 {
    match record {
        BlockRecord::Io(it) => sum([it.ios, it.bytes, it.total_ns, it.max_ns]),
        BlockRecord::DeviceTick(it) => {
            let all = [&it.total, &it.queue, &it.device_time].into_iter().chain(&it.before);
            sum(all.map(histogram).chain([it.max_ns]))
        }
        BlockRecord::Requests(it) => histogram(&it.total),
        BlockRecord::Bins(it) => {
            let bin = |&DeviceBin { busy_ns, depth_ns, ios, bytes }: &DeviceBin| {
                sum([busy_ns, depth_ns, ios.into(), bytes])
            };
            sum(it.bins.iter().map(bin))
        }
        BlockRecord::Pass(it) => sum([it.inodes, it.bytes, it.ios]),
        BlockRecord::Commit(it) => it.blocks.unwrap_or(0),
        BlockRecord::Wait(it) => sum([histogram(&it.waits), it.max_ns, it.unmeasured]),
        BlockRecord::Stall(it) => sum([it.within, it.within_ns, it.latest_ns.unwrap_or(0)]),
        BlockRecord::Blame(it) => it.ns,
        BlockRecord::Pace(it) => {
            // Sectors of 512 bytes.
            sum(it.sectors.values().flatten().map(|sectors| sectors.saturating_mul(512)))
        }
        BlockRecord::Held(it) => sum([it.ios, it.bytes, it.service_ns.unwrap_or(0)]),
        BlockRecord::Device(_)
        | BlockRecord::Mount(_)
        | BlockRecord::Setting(_)
        | BlockRecord::File(_)
        | BlockRecord::Disk(_) => 0,
    }
}

fn histogram(waits: &WaitHist) -> u64 {
    sum(waits.count.into_iter().chain(waits.ns))
}

fn run(run: &Run) -> u64 {
    let Run { wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns } = *run;
    sum([wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::ProcId;

    fn blame(ns: u64) -> Record {
        let (t0_ns, t1_ns) = (0, 1_000_000_000);
        let culprit = crate::recording::Culprit::Migrated;
        Record::Blame(BlameTick { t0_ns, t1_ns, victim: ProcId(1), culprit, ns })
    }

    #[test]
    fn what_a_window_holds_passes_and_what_would_wrap_around_does_not() {
        let mut sums = Sums::default();
        // An hour of 10 000 threads.
        assert_eq!(sums.add(&blame(3_600_000_000_000 * 10_000)), Ok(()));
        assert!(sums.add(&blame(u64::MAX)).unwrap_err().contains("amounts"));
        let mut sums = Sums::default();
        let each = MOST / 4;
        for _ in 0..4 {
            assert_eq!(sums.add(&blame(each)), Ok(()));
        }
        assert!(sums.add(&blame(each)).is_err(), "not one of them is too large, but all are");
    }

    #[test]
    fn times_and_counters_are_looked_at_one_by_one() {
        let end = |window_ns| Sums::default().add(&Record::End { window_ns });
        assert_eq!(end(1 << 50), Ok(()));
        assert!(end(u64::MAX).unwrap_err().contains("counter"));
        let late = match blame(1) {
            Record::Blame(tick) => Record::Blame(BlameTick { t1_ns: u64::MAX, ..tick }),
            _ => unreachable!(),
        };
        assert!(Sums::default().add(&late).unwrap_err().contains("time"));
    }
}
