// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of the host, of its processes and of their CPU time.

use super::by_hand::{HOST, TARGET, bin_row};
use super::{block, cpu_check, net, profile, syscalls};
use crate::store::encodings::{Compressed, DefaultIfAbsent, Json, JsonOrNull, OptionalJson};
use crate::store::table::{Presence, Row, tables};
use deburr_core::recording::{
    BlameTick, Cgroup, CgroupReading, Coverage, CpuReading, CpuTimeReading, Event, HostFacts,
    IdleTick, InterruptTick, LongWait, MemoryHeld, MemoryReading, Meta, NamedThreads, ObserverTick,
    Process, ProcessTick, PsiReading, ReclaimTick, Record, RuntimeReading, SchedstatTick,
    SleepTick, ThreadLedger, WaitBin,
};
use std::convert::identity;

tables! {
    Record in identity, since 1, Presence::Always;

    /// The circumstances of the recording. One row, the first of the recording.
    "meta" => Meta(Meta) {
        /// version of `deburr` that recorded
        tool_version,
        /// `uname -n`
        host_name,
        /// `uname -r`
        kernel,
        /// online CPUs at the start, a JSON list of numbers
        cpus_online: Json,
        /// `v1`, `v2`, `mixed` or `none`: how the cgroup trees are mounted
        cgroup_layout,
        /// `v1` or `v2`: which tree holds the cpu controller; NULL = none
        cpu_controller,
        /// start of the window, since the Unix epoch
        start_unix_ns,
        /// start of the window on `CLOCK_MONOTONIC`
        start_mono_ns,
        /// length that was asked for; NULL = until the command ends or a signal arrives
        asked_ns,
        /// what was observed: a JSON object whose `kind` is `host`, `process`, `comm`, `cgroup`, `container` or
        /// `command`
        target: Json,
        /// which threads serve requests: a JSON list of objects whose `kind` is `thread`, `name` or `port`; NULL = not said
        entries: JsonOrNull,
        /// 1 = the observer ran with effective uid 0
        root,
        /// `/proc/sys/kernel/random/boot_id`; NULL = not read; older recordings lack the column, as they lack `entries`
        boot_id,
    }
    /// What the host was and how it was configured before the window began. One row, or none if nothing could be read. A
    /// recording of version 2 may lack the table, which was added later.
    "host_facts", since 2, Presence::Added => HostFacts(HostFacts) {
        /// what `deburr snapshot` prints, compressed as RFC 1950 says (zlib); `deburr export` has it as rows of `fact`
        document: Compressed,
    }
    /// What a source of data could see. One row for every source at the start, and another when that changes.
    "coverage" => Coverage(Coverage) {
        /// since when
        t_ns,
        /// `sched`, `timeline`, `schedstat`, `cgroup_cpu`, `proc_stat`, `psi`, `block`, `writeback`, `diskstats`,
        /// `settings`, `runtime`, `cpu_check`, `syscalls`, `reclaim`, `tcp`, `sockets`, `interrupts`,
        /// `profile` or `observer`
        source,
        /// `state`: `active`, `partial` or `missing`
        /// `reason`: what is missing and why; NULL if `active`
        /// `gain`: what having it would add; only if `missing`
        state,
    }
    /// A process, when it is first seen and again when its facts change. The last row of a `proc` is valid.
    "process" => Process(Process) {
        /// identity within the recording, from 1; a reused pid gets another one
        id = "proc",
        /// thread-group id
        pid,
        /// start time on the boot clock; 0 = not known
        start_ns,
        /// comm of the main thread
        comm,
        /// command line, at most 256 bytes, or 4096 for a process that was examined closely (`scheduling`); empty for
        /// kernel threads
        cmdline,
        /// 1 or 0; NULL = the process ended before that could be read
        kernel_thread,
        /// its cgroup
        cgroup,
        /// CPUs that the affinity masks of its threads allow, as a list (`0-3,8`)
        cpus_allowed,
        /// effective CPUs of its cpuset, as a list
        cpuset_cpus,
        /// nice value of the main thread
        nice,
        /// 1 = belongs to the target
        in_target,
        /// 1 = `deburr` itself
        observer,
        /// path of its cgroup in the memory controller's tree, if that is a different tree than that of `cgroup`
        memory_cgroup,
        /// for a process that was examined closely, because it was blamed or lost much: how its threads are scheduled,
        /// a JSON list of `policy` (`other`, `fifo`, `rr`, `batch`, `idle`, `deadline`, `ext`), `priority` (of
        /// real-time threads; absent = 0), `nice`, `threads`, the `tid` of the one that ran most, and `ran_ns`: their
        /// CPU time since the first such examination; NULL = not examined
        scheduling: JsonOrNull,
        /// 1 = it stands for all the short-lived processes of this comm and cgroup that did too little for an identity
        /// of their own; `pid` and `start_ns` are those of one of them
        many: DefaultIfAbsent,
    }
    /// A cgroup, when it is first seen and again when its limits change. The last row of a `cgroup` is valid.
    "cgroup" => Cgroup(Cgroup) {
        /// inode number of its directory; plus 2^62 if it is only in the tree of the memory controller
        id = "cgroup",
        /// the cgroup above; NULL at the root
        parent,
        /// path below the root of the tree
        path,
        /// `v1` or `v2`
        version,
        /// CPU time allowed in a period; NULL = no limit at this level
        quota_us,
        /// length of a period
        period_us,
        /// unused quota that may be carried over
        burst_us,
        /// `cpu.weight` (v2) or `cpu.shares` (v1)
        weight,
        /// container or unit that it belongs to: a JSON object with `runtime`, `id` and, where known, `name`, `pod`,
        /// `namespace`
        container: OptionalJson,
    }
    /// What the threads of a process did in one tick (BPF scheduler probe). `wall_ns` minus the sum of the states is
    /// unattributed.
    "process_tick" over tick => ProcessTick(ProcessTick) {
        /// the process; 4294967295 = many small processes together
        proc,
        /// threads that existed at some time within the tick
        threads,
        /// sum over the threads of the time each existed
        wall_ns,
        /// `on_cpu_ns`: running
        /// `queued_ns`: runnable and waiting for a CPU, throttling excluded
        /// `throttled_ns`: runnable, but a quota was used up
        /// `block_io_ns`: uninterruptible sleep for block IO
        /// `mem_stall_ns`: uninterruptible sleep for memory
        /// `uninterruptible_ns`: other uninterruptible sleep
        /// `sleep_ns`: interruptible sleep
        /// `stopped_ns`: stopped, traced or frozen
        states,
        /// sizes of the waits that ended, and in the last tick also of those in progress, counting only the part within
        /// the window: a JSON list of `[bucket, waits, ns]`; bucket 0 is below 1 us, bucket *i* is from 2^(*i*-1) us to
        /// below 2^*i* us, bucket 23 is open; NULL = none
        waits,
        /// longest of these waits
        wait_max_ns,
        /// context switches to its threads
        switches,
        /// part of `queued_ns` in which the CPU was idle or waking up
        wakeup_latency_ns,
    }
    /// Behind which processes a process waited (BPF scheduler probe).
    "blame" over tick => Blame(BlameTick) {
        /// `proc` of the process that waited
        victim,
        /// `proc` of the process that ran meanwhile; -1 = on another run queue before it was moved, -2 = not looked up
        culprit,
        /// waiting time
        ns,
    }
    /// The longest wait of a process for a CPU, in run queues and throttled, among those of 1 ms and more that ended within
    /// about a second, part by part (BPF timeline), of the target's processes and of 50 others. The rows of a wait follow
    /// each other, with the same `t_ns`, `victim` and `tid`. Only waits that began in the window are here. A recording of
    /// version 2 may lack the table, which was added later, or the parts of -3, which then are not in `wait_ns` either.
    "long_wait", since 2, Presence::Added => LongWait(LongWait) {
        /// when the wait ended, or the window during it
        t_ns,
        /// `proc` of the process that waited
        victim,
        /// its thread that waited
        tid,
        /// length of the whole wait; during what the parts lack, the CPU was idle or waking up
        wait_ns,
        /// `proc` of the process that ran meanwhile; -1 = on another run queue before it was moved, -2 = not known,
        /// -3 = throttled by a quota
        culprit,
        /// length of this part
        ns,
    }
    /// How long the threads of a process of the target waited in one bin of about 100 ms (BPF scheduler probe). No rows if
    /// the target is the host. The waits are in `process_tick` too, which also has those of threads that were not known yet:
    /// a thread is met at the end of the second in which it began. A recording of version 2 may lack the table, which was
    /// added later.
    "wait_bin", since 2, Presence::Added => WaitBin(WaitBin) {
        /// start
        t0_ns,
        /// end
        t1_ns,
        /// the process, one of the 16 of the target that waited longest in the bin; 4294967295 = its other processes
        /// together
        proc,
        /// sizes of the waits that ended, as `process_tick.waits`; in the last bin also of those in progress
        waits,
    }
    /// Where the time of the threads of a process of the target went, from when the process was met to its end or that of the
    /// window (BPF scheduler probe): of the 64 processes with several threads that lost most (queued, throttled, stalled,
    /// uninterruptible), at the end. No rows if the target is the host. The rows of a process sum to its rows in
    /// `process_tick`; `wall_ns` minus the sum of the states is unattributed. A recording of version 2 may lack the table,
    /// which was added later.
    "thread_ledger", since 2, Presence::Added => ThreadLedger(ThreadLedger) {
        /// the process was met
        t0_ns,
        /// end of its last tick
        t1_ns,
        /// the process
        proc,
        /// thread id of one of the 16 threads that lost most; NULL = its other threads together
        tid,
        /// comm of the thread; empty for the other threads
        comm,
        /// number of threads
        threads,
        /// time that the thread existed
        wall_ns,
        /// `on_cpu_ns`: running
        /// `queued_ns`: runnable and waiting for a CPU, throttling excluded
        /// `throttled_ns`: runnable, but a quota was used up
        /// `block_io_ns`: uninterruptible sleep for block IO
        /// `mem_stall_ns`: uninterruptible sleep for memory
        /// `uninterruptible_ns`: other uninterruptible sleep
        /// `sleep_ns`: interruptible sleep
        /// `stopped_ns`: stopped, traced or frozen
        states,
    }
    /// On what the threads of a process of the target slept, alike sleeps summed (BPF scheduler probe). If the target is the
    /// host, there are rows of up to 24 processes at a time, those that lose most or get a CPU most often. For a millisecond of a thread's sleep, or for a longer one, one sleep is looked at, and stands for those
    /// before it; where there are many, for up to 16 s. A recording of version 2 may lack the table, or `entry`, `asked` and
    /// `in_request`.
    "sleep" over tick, since 2, Presence::Added => Sleep(SleepTick) {
        /// the process
        proc,
        /// which state of the ledger it is part of: `asleep`, `block_io`, `memory` or `uninterruptible`; or `stopped`, which is no sleep: by a signal, a tracer or a freezer
        state,
        /// system call; in parentheses what is none: `(page fault)`, `(kernel work)`, `(32-bit call)`, `(others)`, ...
        call,
        /// on what: a JSON object whose `kind` is `not_known`, `futex`, `file`, `pipe`, `character` (`terminal`, if it is one), `anonymous`, `inet`,
        /// `unix`, `socket`, `kernel_lock` or `others`
        on = "slept_on": Json,
        /// what ended it, or the wait of which it is a piece: a JSON object whose `by` is `not_known`, `not_yet`, `thread`, `sender`, `timer`, `kernel_timer`,
        /// `network`, `disk`, `other_cpu`, `device`, or `soft_interrupt` or `hard_interrupt` where it was another one, or it was not seen which
        woken: Json,
        /// name of the threads; NULL if it is not known, or differs
        thread,
        /// place in the list `entries` of `meta`, from 0, of the one that these threads belong to; NULL = none
        entry,
        /// 1 = an entry's thread was the last that gave something to do to the thread that ended it; NULL = not known
        asked,
        /// 1 = the thread had something to read from a client, and has sent it nothing since; NULL = not known
        in_request,
        /// what this part of the sleep waited for, as a JSON array of at most 8: the thread that ended it, or that held its
        /// lock, the one that this waited for, and so on. Each has `proc`, `thread`, and `did`: `not_seen`, `on_cpu`,
        /// `queued`, `throttled`, or `slept` with `state`, `call`, `on` and `woken` as here; NULL = not known
        behind: JsonOrNull,
        /// sleep that these stand for
        ns,
        /// number of sleeps that were looked at, or parts of them
        looked_at,
        /// the longest of them
        longest_ns,
    }
    /// Time in which the threads of a process freed memory before they got some (BPF reclaim probe): at the limit of a memory
    /// cgroup, for the host, or to get a large page. Counted when it ends; in the last tick also what is under way. A recording
    /// of version 2 may lack the table, which was added later.
    "reclaim" over tick, since 2, Presence::Added => Reclaim(ReclaimTick) {
        /// the process; 4294967295 = many small processes together
        proc,
        /// 1 = it is a thread of the kernel, which nobody waits for
        kernel,
        /// `limit` (of a memory cgroup), `direct` (reclaim for the host) or `compaction`
        kind,
        /// cgroup whose limit binds; NULL = there is none, or it is not known
        cgroup,
        /// which limit of it: `max` (`memory.max`, `memory.limit_in_bytes`) or `high` (`memory.high`)
        bound,
        /// that limit, when the last of these began
        limit_bytes,
        /// usage of that cgroup at the same time
        usage_bytes,
        /// time from begin to end, on a CPU or not
        ns,
        /// the part of `ns` of which the next two are known
        known_ns,
        /// the part of it that is `mem_stall_ns` in `process_tick`
        memory_ns,
        /// the part of it that is not time on a CPU, with `memory_ns`
        off_cpu_ns,
        /// how often
        count,
        /// the longest
        longest_ns,
        /// pages that were freed; compaction frees none
        pages,
    }
    /// The kernel's counters of memory, cumulative: of the host, and of cgroups whose limit made threads reclaim. NULL = the
    /// kernel does not report it. A recording of version 2 may lack the table, which was added later.
    "memory_reading", since 2, Presence::Added => Memory(MemoryReading) {
        /// when
        t_ns,
        /// the cgroup, those below it included; NULL = the host
        cgroup,
        /// file pages that were dropped a short while ago and came back
        refaults_file,
        /// the same for pages that were swapped out
        refaults_anon,
        /// free memory of the host at that time
        free_bytes,
        /// free memory below which the kernel begins to reclaim in the background: the sum of its zones' low watermarks
        low_bytes,
        /// file pages that came back so soon that the kernel takes them for needed, in bytes; NULL also in recordings from before
        /// that was read
        activated_bytes,
        /// those of them that were in use for longer before: waiting for them is `mem_stall_ns` in `process_tick`; NULL as above
        restored_bytes,
    }
    /// What processes hold of the host's memory while the kernel looks for memory to free: those that hold most, and those that
    /// hold most more than at the start. A recording of version 2 may lack the table, which was added later.
    "memory_held", since 2, Presence::Added => Held(MemoryHeld) {
        /// when
        t_ns,
        /// the process
        proc,
        /// its anonymous memory that is resident; pages that a fork left to several processes count for each
        anon_bytes,
        /// what of its memory is swapped out; NULL = not known
        swapped_bytes,
        /// increase of `anon_bytes` since the start of the window; NULL = it has started since, and it is not known which of its
        /// pages are new
        grown_bytes,
    }
    /// Which CPUs idled while a process waited (BPF timeline).
    "idle" over tick => Idle(IdleTick) {
        /// `proc` of the process that waited
        victim,
        /// shorter waits were not examined
        min_wait_ns,
        /// number of waits that were examined
        waits,
        /// their total time
        waits_ns,
        /// part of it in which an allowed CPU was idle
        idle_allowed_ns,
        /// part of it in which only CPUs outside the affinity were idle
        idle_forbidden_ns,
        /// each CPU's part: a JSON list of `[cpu, allowed, idle_ns]`; NULL = none
        cpus,
        /// time of other waits of that length, which were not looked at: there were too many at once, or the thread was
        /// gone; NULL = recorded before that was counted
        skipped_ns: DefaultIfAbsent,
    }
    /// The fallback without BPF: `/proc/PID/task/*/schedstat`.
    "schedstat" over tick => Schedstat(SchedstatTick) {
        /// the process
        proc,
        /// threads seen at both ends
        threads,
        /// sum over the threads of the time between the readings
        wall_ns,
        /// running
        on_cpu_ns,
        /// runnable but not running, queued or throttled
        delay_ns,
        /// number of times it got a CPU
        slices,
    }
    /// CPU time of a process of the target, cumulative (`/proc/PID/stat`). No rows if the target is the host. A recording of version
    /// 2 may lack the table, which was added later.
    "cpu_time", since 2, Presence::Added => CpuTime(CpuTimeReading) {
        /// when
        t_ns,
        /// the process
        proc,
        /// in the program itself
        user_ns,
        /// in the kernel on its behalf, interrupts that came meanwhile included where the kernel does not tell them apart
        system_ns,
    }
    /// Interrupts of one kind on one CPU, while threads of one process held it (BPF probe of interrupts). Where there are
    /// too many soft ones and calls by other CPUs, they are watched in some of the tenths of a second, which stand for the others. A recording of version 2 may lack the table, which
    /// was added later.
    "interrupts" over tick, since 2, Presence::Added => Interrupts(InterruptTick) {
        /// the process; 4294967295 = the CPU was idle, or they took little from each of several processes
        proc,
        /// number of the CPU
        cpu,
        /// `soft`, `device`, `timer` (of the CPU) or `processor` (another CPU)
        kind,
        /// number of a device's interrupt, as in `/proc/interrupts`
        irq,
        /// the vector of a soft interrupt as in `/proc/softirqs`, the names of a device's handlers, the row of a
        /// processor's in `/proc/interrupts` (`CAL`); empty = not known
        name,
        /// `interrupts`: it interrupted the thread; `own_call`: the thread asked for it, and it was served at the end of its
        /// call, or by a thread of the kernel that serves them; `not_known`: which of both
        context,
        /// time that they took; hard ones that came during soft ones are not in that of the soft ones
        ns,
        /// how many
        count,
        /// the longest
        longest_ns,
        /// times at which the one before had ended a millisecond or more ago
        bursts,
    }
    /// A CPU's line of `/proc/stat`, cumulative.
    "cpu_reading" => Cpu(CpuReading) {
        /// when
        t_ns,
        /// number of the CPU
        cpu,
        /// user and nice
        user_ns,
        /// system
        system_ns,
        /// idle
        idle_ns,
        /// idle with block IO outstanding
        iowait_ns,
        /// irq and softirq
        irq_ns,
        /// the hypervisor ran something else
        steal_ns,
    }
    /// A cgroup's `cpu.stat`, cumulative. NULL = the kernel does not report it.
    "cgroup_reading" => CgroupCpu(CgroupReading) {
        /// when
        t_ns,
        /// the cgroup
        cgroup,
        /// CPU time used
        usage_ns,
        /// periods in which it had work
        nr_periods,
        /// periods in which it ran out of quota
        nr_throttled,
        /// throttled time, summed over its queues of each CPU: not wall time
        throttled_ns,
        /// periods in which carried-over quota was used
        nr_bursts,
        /// time run on carried-over quota
        burst_ns,
    }
    /// A pressure-stall file, cumulative.
    "psi_reading" => Psi(PsiReading) {
        /// when
        t_ns,
        /// the cgroup; NULL = the host
        cgroup,
        /// `cpu`, `io` or `memory`
        resource,
        /// wall time in which some task was stalled
        some_ns,
        /// wall time in which all tasks were stalled; NULL = the kernel does not report it
        full_ns,
    }
    /// What the observer cost and lost. Several rows may cover the same time. Their amounts add up; `rss_bytes` and
    /// `bpf_map_bytes` are levels.
    "observer_tick" over tick => Observer(ObserverTick) {
        /// CPU time of its process
        cpu_ns,
        /// number of runs of its BPF programs
        bpf_runs,
        /// time of these runs; NULL = could not be measured
        bpf_run_ns,
        /// resident memory
        rss_bytes,
        /// kernel memory of its BPF maps
        bpf_map_bytes,
        /// what was lost, a JSON object of amounts by name; names in `_ns` are times, the others counts; NULL = nothing
        lost: JsonOrNull,
    }
    /// An event of the session.
    "event" => Event(Event) {
        /// when
        t_ns,
        /// `event`: `clock_jump`, `suspend`, `late_tick`, `target_gone`, `interrupted` or `store_failed`
        /// `ns`: its size, for the first three
        /// `detail`: the signal, or why the recording could not be written
        kind,
    }
    /// How many threads the runtime of a process lets run at a time, when that was determined and again when it
    /// changed. The last row of a `proc` is valid. A recording of version 2 may lack the table, which was added later.
    "runtime", since 2, Presence::Added => Runtime(RuntimeReading) {
        /// when
        t_ns,
        /// the process
        proc,
        /// `go`, `jvm`, `node`, `openmp`, `tokio`, `rayon`, `nginx` or `dotnet`
        kind = "runtime",
        /// its version, where known: `go1.24.3`
        version,
        /// threads of the process
        threads,
        /// numbers of threads, the decisive one first: a JSON list of objects with `name`, `value`, `confidence`
        /// (`exact`, `start`: as it was started, `bound`: counted threads) and `source`; NULL = none could be read
        parallelism: JsonOrNull,
        /// why none could be read
        unread,
        /// what affects them: a JSON object of environment variables, flags and build settings
        settings: JsonOrNull,
        /// what the process sees in its cgroup files: a JSON object whose `files` is `leaf` (with `quota_us` and
        /// `period_us`, absent = no limit, and `part`: only a part of the tree is mounted there), `no_mount` or
        /// `unknown`
        seen: Json,
    }
    /// What the threads of one name did (`/proc/PID/task/*/{comm,schedstat}`), for processes with a CPU limit of their
    /// own and a known runtime. It shows whether the threads that are throttled are those that the runtime's number
    /// sizes. Read once a second, or less often where that would take more than a thousandth of a CPU, and at the end.
    /// If a thread ends between two readings, its last part is missing. A recording of version 2 may lack the table,
    /// which was added later.
    "named_threads" over tick, since 2, Presence::Added => NamedThreads(NamedThreads) {
        /// the process
        proc,
        /// their comm; without the number at its end where it is not that of the main thread; empty = all other names
        comm,
        /// number of these threads at the end
        threads,
        /// running
        on_cpu_ns,
        /// runnable but not running, queued or throttled; grows when a thread gets a CPU
        delay_ns,
    }
    and {
        Record::HostBin(bin) => bin_row(HOST, bin),
        Record::TargetBin(bin) => bin_row(TARGET, bin),
        Record::End { window_ns } => Row::new("ending", None, window_ns),
        of_network @ (Record::Resent(_)
        | Record::Sending(_)
        | Record::Unread(_)
        | Record::AcceptQueue(_)
        | Record::HeldBack(_)
        | Record::Datagrams(_)
        | Record::Netns(_)
        | Record::Listener(_)) => net::row(of_network),
        Record::Block(record) => block::row(record),
        Record::CpuCheck(record) => cpu_check::row(record),
        Record::Syscalls(record) => syscalls::row(record),
        Record::Profile(record) => profile::row(record),
    }
}
