// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/PID/stat` and `/proc/PID/status`: one process or thread.

use super::{ParseError, Position, cpu_list, fields, lines, number};
use crate::text::name;

/// `PF_KTHREAD` of the kernel's `task->flags`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// `PF_EXITING` of the kernel's `task->flags`: set before anybody is told that the thread ends.
const EXITING: u64 = 0x4;

/// The fields of `/proc/PID/stat` that deburr uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidStat {
    /// Thread-group id (thread id under `task/`).
    pub pid: u32,
    /// The comm, decoded. May be longer than 15 bytes for kernel threads on newer kernels.
    pub comm: String,
    /// State of the thread: `R`, `S`, `D`, `Z`, ...
    pub state: char,
    /// Process id of the parent.
    pub ppid: u32,
    /// Process group.
    pub pgrp: u32,
    /// Whether it is a kernel thread.
    pub kernel_thread: bool,
    /// Whether it ends at this moment, or has ended.
    pub exiting: bool,
    /// User and system time in ticks of 1/`USER_HZ` s.
    pub cpu_ticks: u64,
    /// System time in ticks of 1/`USER_HZ` s.
    pub system_ticks: u64,
    /// User and system time of the children that it has waited for, in ticks of 1/`USER_HZ` s.
    pub reaped_ticks: u64,
    /// Nice value.
    pub nice: i32,
    /// Number of threads of the process.
    pub threads: u32,
    /// Start time in ticks of 1/`USER_HZ` s of the boot clock.
    pub start_ticks: u64,
    /// Priority of a real-time thread, else 0.
    pub rt_priority: u32,
    /// Number of the scheduling policy; `None` where the line ends before it.
    pub policy: Option<u32>,
}

/// Parses `/proc/PID/stat`.
///
/// # Errors
/// If one of the fields up to `starttime` is missing.
pub fn stat(text: &[u8]) -> Result<PidStat, ParseError> {
    let at = Position { file: "/proc/PID/stat", line: 1 };
    // The comm is not escaped: it may contain `)`, spaces and newlines. No later field can contain a `)`.
    let open = text.iter().position(|&b| b == b'(');
    let close = text.iter().rposition(|&b| b == b')');
    let (Some(open), Some(close)) = (open, close) else {
        return Err(at.error("comm", "in parentheses"));
    };
    let comm = text.get(open + 1..close).ok_or_else(|| at.error("comm", "in parentheses"))?;
    let rest: Vec<&[u8]> = fields(text[close + 1..].trim_ascii()).collect();
    // proc_pid_stat(5) numbers fields from 1; this part starts with field 3.
    let field = |number: usize| rest.get(number - 3).copied();
    let user: u64 = at.number("utime", field(14))?;
    let system: u64 = at.number("stime", field(15))?;
    let reaped_user: u64 = at.number("cutime", field(16))?;
    let reaped_system: u64 = at.number("cstime", field(17))?;
    let flags: u64 = at.number("flags", field(9))?;
    Ok(PidStat {
        pid: at.number("pid", Some(text[..open].trim_ascii()))?,
        comm: name::decode(comm),
        state: field(3)
            .and_then(|state| state.first().copied())
            .map(char::from)
            .ok_or_else(|| at.error("state", "a letter"))?,
        ppid: at.number("ppid", field(4))?,
        // -1 (no group) appears only for tasks that are exiting.
        pgrp: at.number::<i32>("pgrp", field(5))?.try_into().unwrap_or(0),
        kernel_thread: flags & KERNEL_THREAD != 0,
        exiting: flags & EXITING != 0,
        cpu_ticks: user.saturating_add(system),
        system_ticks: system,
        reaped_ticks: reaped_user.saturating_add(reaped_system),
        nice: at.number("nice", field(19))?,
        threads: at.number("num_threads", field(20))?,
        start_ticks: at.number("starttime", field(22))?,
        rt_priority: at.number("rt_priority", field(40)).unwrap_or(0),
        policy: at.number("policy", field(41)).ok(),
    })
}

/// The fields of `/proc/PID/status` that deburr uses. They are optional because the kernel omits some of them for some
/// tasks (kernel threads have no memory).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PidStatus {
    /// Thread-group id: the process that the thread belongs to.
    pub tgid: Option<u32>,
    /// Effective user id.
    pub euid: Option<u32>,
    /// Its pid in the innermost pid namespace that it is in.
    pub own_pid: Option<u32>,
    /// CPUs that the affinity mask allows, ascending.
    pub cpus_allowed: Option<Vec<u32>>,
    /// Resident set size.
    pub rss_bytes: Option<u64>,
    /// What of its memory is swapped out.
    pub swapped_bytes: Option<u64>,
    /// Number of threads of its process.
    pub threads: Option<u64>,
    /// Number of voluntary context switches of this thread.
    pub voluntary_switches: Option<u64>,
    /// Number of involuntary context switches of this thread.
    pub involuntary_switches: Option<u64>,
}

/// `2048 kB` in bytes.
fn kib_in_bytes(value: &[u8]) -> Option<u64> {
    fields(value).next().and_then(number::<u64>).map(|kib| kib.saturating_mul(1024))
}

/// The fields of `/proc/PID/statm` that deburr uses, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidStatm {
    /// Resident pages.
    pub resident: u64,
    /// Those of them that are mapped from files or shared.
    pub shared: u64,
}

impl PidStatm {
    /// Resident pages with no file behind them. The two are counted one after the other.
    #[must_use]
    pub fn anonymous(&self) -> u64 {
        self.resident.saturating_sub(self.shared)
    }
}

/// Parses `/proc/PID/statm`; `None` where it is damaged.
#[must_use]
pub fn statm(text: &[u8]) -> Option<PidStatm> {
    let mut pages = fields(text.trim_ascii()).map(number::<u64>).skip(1);
    Some(PidStatm { resident: pages.next()??, shared: pages.next()?? })
}

/// Parses `/proc/PID/status`. Items that are missing or damaged are `None`.
#[must_use]
pub fn status(text: &[u8]) -> PidStatus {
    let mut status = PidStatus::default();
    for (_, line) in lines(text) {
        let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
        let value = line[colon + 1..].trim_ascii();
        match &line[..colon] {
            b"Tgid" => status.tgid = number(value),
            b"NSpid" => status.own_pid = fields(value).last().and_then(number),
            b"Uid" => status.euid = fields(value).nth(1).and_then(number),
            b"Cpus_allowed_list" => status.cpus_allowed = cpu_list::parse(value).ok(),
            b"Threads" => status.threads = number(value),
            b"voluntary_ctxt_switches" => status.voluntary_switches = number(value),
            b"nonvoluntary_ctxt_switches" => status.involuntary_switches = number(value),
            b"VmRSS" => status.rss_bytes = kib_in_bytes(value),
            b"VmSwap" => status.swapped_bytes = kib_in_bytes(value),
            _ => {}
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::{stat, statm, status};

    const REST: &str =
        "S 1 77 77 0 -1 4194304 101 0 0 0 7 5 2 1 20 -5 3 0 147746 3133440 414 1844 1";

    #[test]
    fn a_comm_may_hold_anything() {
        for comm in ["java", "a) R 1 (b", "new\nline", ") ) )", "", "(", "\u{1b}[31m"] {
            let parsed = stat(format!("42 ({comm}) {REST}\n").as_bytes()).unwrap();
            assert_eq!(parsed.comm, comm);
            assert_eq!((parsed.pid, parsed.ppid, parsed.pgrp), (42, 1, 77));
            assert_eq!((parsed.state, parsed.nice, parsed.threads), ('S', -5, 3));
            assert_eq!((parsed.cpu_ticks, parsed.start_ticks), (12, 147_746));
            assert_eq!(parsed.reaped_ticks, 3);
            assert!(!parsed.kernel_thread);
        }
    }

    #[test]
    fn a_kernel_thread_and_one_that_ends_are_told_by_their_flags() {
        let of = |flags| {
            let line = format!("2 (it) {}", REST.replace("4194304", flags));
            let parsed = stat(line.as_bytes()).unwrap();
            (parsed.kernel_thread, parsed.exiting)
        };
        assert_eq!((of("4194304"), of("2129984")), ((false, false), (true, false)));
        // Of a zombie.
        assert_eq!(of("4227084"), (false, true));
    }

    #[test]
    fn what_is_missing_is_named() {
        let item = |text: &str| stat(text.as_bytes()).unwrap_err().item;
        assert_eq!(item(""), "comm");
        assert_eq!(item("1 )("), "comm");
        assert_eq!(item("x (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5"), "pid");
        assert_eq!(item("1 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0"), "starttime");
        let error = stat(b"1 (a) S").unwrap_err();
        assert_eq!(error.to_string(), "/proc/PID/stat, line 1: `utime` should be a decimal number");
    }

    #[test]
    fn anonymous_memory_is_what_no_file_stands_behind() {
        let anonymous = |text: &[u8]| statm(text).map(|it| it.anonymous());
        assert_eq!(anonymous(b"746 414 370 40 0 112 0\n"), Some(44));
        assert_eq!(anonymous(b"0 0 0 0 0 0 0\n"), Some(0), "a thread of the kernel");
        assert_eq!(anonymous(b"9 5 7 0 0 0 0"), Some(0));
        for torn in [&b""[..], b"746", b"746 414", b"746 414 x", b"1 -1 0"] {
            assert_eq!(statm(torn), None, "{torn:?}");
        }
    }

    #[test]
    fn status_takes_what_is_there() {
        let text = b"Name:\tx\nTgid:\t7\nVmRSS:\t    2048 kB\nVmSwap:\t       8 kB\n\
            Cpus_allowed_list:\t0-1\nNewItem:\t1\n";
        let parsed = status(text);
        assert_eq!(parsed.tgid, Some(7));
        assert_eq!(parsed.cpus_allowed, Some(vec![0, 1]));
        assert_eq!(parsed.rss_bytes, Some(2 << 20));
        assert_eq!(parsed.swapped_bytes, Some(8 << 10));
        assert_eq!(status(b"Tgid:\tx\n"), super::PidStatus::default());
    }
}
