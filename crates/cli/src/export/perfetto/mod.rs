// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace for Perfetto's viewer and trace processor: what each process waited for and behind whom, what its threads did,
//! what disks did and when they were written back to.
//!
//! A recording has sums of seconds, not single switches. So a second of waiting is a slice as long as the second, whose
//! name is the largest culprit and whose details have all of them; thread states are counters: how many threads were in
//! that state on average.

mod counters;
mod names;
mod proto;
mod tracks;
mod waits;

use super::{Head, Sink};
use counters::Counters;
use deburr_core::finding::Report;
use deburr_core::recording::{
    BlockRecord, CpuReading, DeviceBins, DiskReading, EventKind, JournalCommit, LoadBin,
    NamedThreads, ProcessTick, PsiReading, Record, SchedstatTick, Stall, StallKind, WritebackPass,
};
use names::Names;
use proto::Detail;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use tracks::{Trace, Track};
use waits::Waits;

/// Writes to a file.
#[derive(Debug)]
pub(crate) struct Perfetto<W: Write> {
    trace: Trace<BufWriter<W>>,
    names: Names,
    counters: Counters,
    waits: Waits,
    cpus: HashMap<u32, CpuReading>,
    pressure: HashMap<String, PsiReading>,
    disks: HashMap<String, DiskReading>,
    /// Whether disks are seen in bins, which are finer than the kernel's counters.
    has_bins: bool,
}

impl<W: Write> Perfetto<W> {
    pub(crate) fn new(to: W) -> Self {
        Self {
            trace: Trace::new(BufWriter::with_capacity(1 << 16, to)),
            names: Names::default(),
            counters: Counters::default(),
            waits: Waits::default(),
            cpus: HashMap::new(),
            pressure: HashMap::new(),
            disks: HashMap::new(),
            has_bins: false,
        }
    }

    fn process_tick(&mut self, tick: &ProcessTick) -> io::Result<()> {
        let span = (tick.t0_ns, tick.t1_ns);
        let track = self.names.process(tick.proc, &mut self.trace)?;
        let states = &tick.states;
        for (name, ns) in [
            ("on CPU", states.on_cpu_ns),
            ("waiting for a CPU", states.queued_ns),
            ("throttled", states.throttled_ns),
            ("block IO", states.block_io_ns),
            ("waiting for memory", states.mem_stall_ns),
            ("other uninterruptible sleep", states.uninterruptible_ns),
        ] {
            self.counters.average(&mut self.trace, track, name, "threads", span, ns)?;
        }
        self.counters.level(
            &mut self.trace,
            track,
            "threads",
            "threads",
            span,
            tick.threads.into(),
        )?;
        self.waits.of_cpu(tick);
        Ok(())
    }

    fn schedstat(&mut self, tick: &SchedstatTick) -> io::Result<()> {
        let span = (tick.t0_ns, tick.t1_ns);
        let track = self.names.process(tick.proc, &mut self.trace)?;
        self.counters.average(&mut self.trace, track, "on CPU", "threads", span, tick.on_cpu_ns)?;
        let name = "waiting for a CPU, or throttled";
        self.counters.average(&mut self.trace, track, name, "threads", span, tick.delay_ns)
    }

    fn named_threads(&mut self, tick: &NamedThreads) -> io::Result<()> {
        let span = (tick.t0_ns, tick.t1_ns);
        let process = self.names.process(tick.proc, &mut self.trace)?;
        let name =
            if tick.comm.is_empty() { "other threads".into() } else { names::shown(&tick.comm) };
        let track = self.trace.track(Some(process), &format!("threads `{name}`"))?;
        self.counters.average(&mut self.trace, track, "on CPU", "threads", span, tick.on_cpu_ns)?;
        let name = "waiting for a CPU, or throttled";
        self.counters.average(&mut self.trace, track, name, "threads", span, tick.delay_ns)
    }

    fn load(&mut self, scope: &str, bin: &LoadBin) -> io::Result<()> {
        let span = (bin.t0_ns, bin.t1_ns);
        let track = self.trace.track(None, scope)?;
        for (name, unit, ns) in [
            ("on CPU", "CPUs", bin.on_cpu_ns),
            ("waiting for a CPU", "threads", bin.queued_ns),
            ("throttled", "threads", bin.throttled_ns),
            ("block IO", "threads", bin.block_io_ns),
        ] {
            self.counters.average(&mut self.trace, track, name, unit, span, ns)?;
        }
        Ok(())
    }

    fn cpu(&mut self, reading: &CpuReading) -> io::Result<()> {
        let Some(before) = self.cpus.insert(reading.cpu, *reading) else { return Ok(()) };
        let span = (before.t_ns, reading.t_ns);
        let all = self.trace.track(None, "CPUs")?;
        let track = self.trace.track(Some(all), &format!("CPU {}", reading.cpu))?;
        let busy =
            |it: &CpuReading| it.user_ns.saturating_add(it.system_ns).saturating_add(it.irq_ns);
        let grown = |of: &dyn Fn(&CpuReading) -> u64| of(reading).saturating_sub(of(&before));
        self.counters.percent(&mut self.trace, track, "busy", span, grown(&busy))?;
        self.counters.percent(&mut self.trace, track, "stolen", span, grown(&|it| it.steal_ns))?;
        self.counters.percent(
            &mut self.trace,
            track,
            "idle with IO",
            span,
            grown(&|it| it.iowait_ns),
        )
    }

    fn psi(&mut self, reading: &PsiReading) -> io::Result<()> {
        if reading.cgroup.is_some() {
            return Ok(());
        }
        let resource = format!("{:?}", reading.resource).to_lowercase();
        let Some(before) = self.pressure.insert(resource.clone(), *reading) else { return Ok(()) };
        let track = self.trace.track(None, "pressure")?;
        let stalled = reading.some_ns.saturating_sub(before.some_ns);
        self.counters.percent(
            &mut self.trace,
            track,
            &resource,
            (before.t_ns, reading.t_ns),
            stalled,
        )
    }

    fn block(&mut self, record: &BlockRecord) -> io::Result<()> {
        match record {
            BlockRecord::Device(device) => self.names.device(device),
            BlockRecord::File(file) => self.names.file(file),
            BlockRecord::Bins(bins) => return self.bins(bins),
            BlockRecord::Disk(reading) => return self.disk(reading),
            BlockRecord::Pass(pass) => return self.pass(pass),
            BlockRecord::Commit(commit) => return self.commit(commit),
            BlockRecord::Stall(stall) => return self.stall(stall),
            BlockRecord::Blame(tick) => {
                self.waits.settle((tick.t0_ns, tick.t1_ns), &mut self.names, &mut self.trace)?;
                self.waits.blame_io(tick);
            }
            _ => {}
        }
        Ok(())
    }

    fn bins(&mut self, bins: &DeviceBins) -> io::Result<()> {
        self.has_bins = true;
        let count = bins.bins.len() as u64;
        let length = bins.t1_ns.saturating_sub(bins.t0_ns).checked_div(count).unwrap_or(0);
        if length == 0 {
            return Ok(());
        }
        let track = self.names.disk(bins.device, &mut self.trace)?;
        for (at, bin) in (0..).zip(&bins.bins) {
            let t0_ns = bins.t0_ns + at * length;
            let span = (t0_ns, t0_ns + length);
            self.counters.percent(&mut self.trace, track, "busy", span, bin.busy_ns)?;
            self.counters.average(
                &mut self.trace,
                track,
                "requests",
                "requests",
                span,
                bin.depth_ns,
            )?;
            let per_s = bin.bytes as f64 / length as f64 * 1e3;
            self.counters.level(&mut self.trace, track, "completed", "MB/s", span, per_s)?;
        }
        Ok(())
    }

    fn disk(&mut self, reading: &DiskReading) -> io::Result<()> {
        let name = self.names.device_name(reading.device);
        let Some(before) = self.disks.insert(name, *reading) else { return Ok(()) };
        let span = (before.t_ns, reading.t_ns);
        let busy_ns = reading.counters.busy_ns.saturating_sub(before.counters.busy_ns);
        if self.has_bins || span.1 <= span.0 {
            return Ok(());
        }
        let track = self.names.disk(reading.device, &mut self.trace)?;
        self.counters.percent(&mut self.trace, track, "busy (/proc/diskstats)", span, busy_ns)
    }

    fn pass(&mut self, pass: &WritebackPass) -> io::Result<()> {
        let (span, disk) =
            ((pass.t0_ns, pass.t1_ns), self.names.disk(pass.device, &mut self.trace)?);
        let lane = self.trace.lane(disk, "writeback passes", span)?;
        let by = |list: &[(_, u32)]| {
            let of = |&(proc, count): &(_, u32)| (self.names.of(proc), Detail::Uint(count.into()));
            Detail::Dict(list.iter().map(of).collect())
        };
        let details = [
            ("inodes", Detail::Uint(pass.inodes)),
            ("bytes", Detail::Uint(pass.bytes)),
            ("transfers", Detail::Uint(pass.ios)),
            ("inodes first dirtied by", by(&pass.dirtied_by)),
            ("asked for by", by(&pass.asked_by)),
        ];
        self.trace.slice(lane, span, &names::shown(&pass.reason), &details)
    }

    fn commit(&mut self, commit: &JournalCommit) -> io::Result<()> {
        let (span, disk) =
            ((commit.t0_ns, commit.t1_ns), self.names.disk(commit.device, &mut self.trace)?);
        let lane = self.trace.lane(disk, "journal commits", span)?;
        let blocks = commit.blocks.map(|blocks| ("blocks", Detail::Uint(blocks)));
        self.trace.slice(lane, span, &names::shown(&commit.kind), blocks.as_slice())
    }

    fn stall(&mut self, stall: &Stall) -> io::Result<()> {
        let (span, process) =
            ((stall.t0_ns, stall.t1_ns), self.names.process(stall.proc, &mut self.trace)?);
        let lane = self.trace.lane(process, "held up by block IO", span)?;
        let file = stall.file.map(|file| ("file", Detail::Text(self.names.path(file))));
        let device = stall.device.map(|it| ("device", Detail::Text(self.names.device_name(it))));
        let more = (stall.within > 0).then_some(("stands for others", Detail::Uint(stall.within)));
        let details: Vec<_> = device.into_iter().chain(file).chain(more).collect();
        let name = match stall.kind {
            StallKind::Sync => "sync",
            StallKind::DirtyThrottle => "dirty throttle",
            StallKind::Request => "request",
        };
        self.trace.slice(lane, span, name, &details)
    }

    fn event(&mut self, t_ns: u64, kind: &EventKind) -> io::Result<()> {
        let track = self.trace.track(None, "session")?;
        let name = match kind {
            EventKind::ClockJump { .. } => "the wall clock was set".into(),
            EventKind::Suspend { .. } => "the machine had slept".into(),
            EventKind::LateTick { .. } => "the observer was late".into(),
            EventKind::TargetGone => "the target was gone".into(),
            EventKind::Interrupted { signal } => format!("ended by {}", names::shown(signal)),
            EventKind::StoreFailed { .. } => "nothing could be recorded any more".into(),
        };
        self.trace.instant(track, t_ns, &name)
    }
}

impl<W: Write + Send> Sink for Perfetto<W> {
    fn begin(&mut self, head: &Head) -> io::Result<()> {
        self.trace.begin(u64::try_from(head.start_unix_ns).unwrap_or(0), head.start_mono_ns)
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Process(process) => self.names.is_called(process),
            Record::ProcessTick(tick) => {
                self.waits.settle((tick.t0_ns, tick.t1_ns), &mut self.names, &mut self.trace)?;
                return self.process_tick(tick);
            }
            Record::Blame(tick) => {
                self.waits.settle((tick.t0_ns, tick.t1_ns), &mut self.names, &mut self.trace)?;
                self.waits.blame(tick);
            }
            Record::LongWait(part) => {
                return self.waits.part(part, &mut self.names, &mut self.trace);
            }
            Record::Schedstat(tick) => return self.schedstat(tick),
            Record::NamedThreads(tick) => return self.named_threads(tick),
            Record::HostBin(bin) => return self.load("host", bin),
            Record::TargetBin(bin) => return self.load("target", bin),
            Record::Cpu(reading) => return self.cpu(reading),
            Record::Psi(reading) => return self.psi(reading),
            Record::Block(record) => return self.block(record),
            Record::Event(event) => return self.event(event.t_ns, &event.kind),
            _ => {}
        }
        Ok(())
    }

    fn report(&mut self, report: &Report) -> io::Result<()> {
        let span = (0, (report.window.seconds * 1e9) as u64);
        if report.findings.is_empty() {
            return Ok(());
        }
        let all: Track = self.trace.track(None, "findings")?;
        for finding in &report.findings {
            let lane = self.trace.lane(all, "in the whole window", span)?;
            let severity = format!("{:?}", finding.severity).to_lowercase();
            let mut details = vec![
                ("code", Detail::Text(finding.code.clone())),
                ("severity", Detail::Text(severity)),
                ("confidence", Detail::Real(finding.confidence)),
                ("lost ns per second", Detail::Uint(finding.cost.lost_ns_per_s)),
            ];
            let fixes =
                finding.fix.iter().map(|fix| ("fix", Detail::Text(names::shown(&fix.action))));
            details.extend(fixes.take(1));
            let name = format!("{} {}", finding.code, names::shown(&finding.title));
            self.trace.slice(lane, span, &name, &details)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.waits.settle((u64::MAX, u64::MAX), &mut self.names, &mut self.trace)?;
        self.waits.settle_long(&mut self.names, &mut self.trace)?;
        self.counters.end(&mut self.trace)?;
        self.trace.flush()
    }
}
