// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captured kernel files are parsed correctly, and no parser panics on arbitrary bytes or on damaged versions of real
//! text.

use super::{
    cgroup_cpu, container, cpu_list, diskstats, maps, memory, modules, mountinfo, net_counters,
    net_sockets, net_tcp, pid, pid_cgroup, pressure, schedstat, stat,
};
use proptest::prelude::*;

/// One line of each kind, to be truncated and overwritten.
const REAL: &[u8] = b"42 (a) b) S 1 77 77 0 -1 4194304 101 0 0 0 7 5 0 0 20 -5 3 0 147746 3133440\n\
    cpu0 10 1 2 3 4 5 6 7 0 0\nsome avg10=0.21 avg60=0.53 avg300=0.89 total=20509863\n\
    32 31 0:29 /a\\040b /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu\n\
    2:cpu,cpuacct:/docker/0123456789abcdef (deleted)\nthrottled_usec 18446744073709551615\n\
    Cpus_allowed_list:\t0-3,8\nCapEff:\tffffffffffffffff\nVmRSS:\t18446744073709551615 kB\n50000 100000\n\
    254 0 vda 25 8 76 46 205 31 158 62 0 18 533 24 41 11 31 15 92\n\
    jbd2 212992 1 ext4,[permanent], Live 0x0 (OE)\nkernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz\n";

fn parse_as_everything(bytes: &[u8]) {
    let _ = pid::stat(bytes);
    let _ = pid::status(bytes);
    let _ = schedstat::parse(bytes);
    let _ = stat::parse(bytes, 100);
    let _ = stat::parse(bytes, 0);
    let _ = diskstats::parse(bytes);
    let _ = pressure::parse(bytes);
    let _ = pid_cgroup::parse(bytes);
    let _ = pid_cgroup::procs(bytes);
    let _ = maps::parse(bytes);
    let _ = mountinfo::parse(bytes);
    let _ = memory::counter(bytes, "throttled_usec");
    let _ = memory::low_watermark_pages(bytes);
    let _ = net_tcp::listening(bytes);
    let _ = net_sockets::sockets(bytes).count();
    let _ = net_counters::counter(bytes, "TcpExt:", "ListenDrops");
    let _ = cgroup_cpu::cpu_max(bytes);
    let _ = cgroup_cpu::cfs_quota_us(bytes);
    let _ = cgroup_cpu::cpu_stat(bytes);
    let _ = cgroup_cpu::single("cpu.weight", bytes);
    let _ = cpu_list::parse(bytes);
    let _ = modules::parse(bytes);
    let _ = modules::file_of(bytes, "ext4");
    let _ = modules::parameter(bytes);
    let _ = container::of_path(&String::from_utf8_lossy(bytes));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        parse_as_everything(&bytes);
    }

    #[test]
    fn damaged_text_never_panics(
        from in 0..REAL.len(),
        len in 0..REAL.len(),
        at in 0..REAL.len(),
        byte: u8,
    ) {
        let mut text = REAL.to_vec();
        text[at] = byte;
        parse_as_everything(&text[from..(from + len).min(text.len())]);
    }

    #[test]
    fn damaged_lines_never_panic(at in 0..120usize, byte: u8) {
        for line in REAL.split(|&b| b == b'\n') {
            let mut line = line.to_vec();
            if let Some(place) = line.get_mut(at) {
                *place = byte;
            }
            parse_as_everything(&line);
        }
    }
}

macro_rules! captured {
    ($file:literal) => {
        include_bytes!(concat!("../../../../fixtures/proc/linux-6.18/", $file)).as_slice()
    };
}

#[test]
fn captured_files_are_read() {
    let cpus = stat::parse(captured!("stat"), 100).unwrap();
    assert_eq!((cpus.len(), cpus[1].cpu), (2, 1));
    assert_eq!(cpus[0].user_ns, (134_403 + 58_703) * 10_000_000);
    assert_eq!((cpus[1].iowait_ns, cpus[1].steal_ns), (20_460_000_000, 620_000_000));

    let cpu = pressure::parse(captured!("pressure/cpu")).unwrap();
    assert_eq!((cpu.some_ns, cpu.full_ns), (929_256_028_000, Some(0)));
    for file in [captured!("pressure/io"), captured!("pressure/memory")] {
        assert!(pressure::parse(file).unwrap().full_ns.is_some());
    }

    let sleep = pid::stat(captured!("sleep/stat")).unwrap();
    assert_eq!((sleep.comm.as_str(), sleep.state, sleep.kernel_thread), ("sleep", 'S', false));
    assert_eq!((sleep.pid, sleep.start_ticks), (17_362, 563_309));
    assert_eq!((sleep.nice, sleep.rt_priority, sleep.policy), (0, 0, Some(0)));
    let status = pid::status(captured!("sleep/status"));
    assert_eq!(status.tgid, Some(17_362));
    assert_eq!((status.cpus_allowed, status.rss_bytes), (Some(vec![0, 1]), Some(1796 << 10)));
    let own = schedstat::parse(captured!("sleep/schedstat")).unwrap();
    assert_eq!((own.on_cpu_ns, own.delay_ns, own.slices), (1_054_686, 0, 1));
    let memberships = pid_cgroup::parse(captured!("sleep/cgroup")).unwrap();
    assert_eq!(memberships.len(), 10);

    let kernel = pid::stat(captured!("kthreadd/stat")).unwrap();
    assert!(kernel.kernel_thread && kernel.comm == "kthreadd");
    assert_eq!(pid::status(captured!("kthreadd/status")).rss_bytes, None);
}
