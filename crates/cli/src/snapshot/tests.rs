// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots of captured trees in which files are missing, torn or hostile, and of a reader that hangs.

use super::Limits;
use super::files::SharedState;
use super::{Tree, take, watch};
use crate::collect::fixture::Host;
use deburr_core::snapshot::{Class, Integer, Snapshot, Unit, Value};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn snapshot(host: &Host) -> Snapshot {
    snapshot_within(host, Limits::default())
}

fn snapshot_within(host: &Host, limits: Limits) -> Snapshot {
    let taken = take(Tree::open(&host.path("")).unwrap(), limits, false);
    let document = taken.document().unwrap();
    assert_eq!(Snapshot::parse(document.as_bytes()).unwrap(), taken, "it reads back the same");
    taken
}

fn value(snapshot: &Snapshot, key: &str) -> Value {
    snapshot.fact(key).unwrap_or_else(|| panic!("no fact {key}")).value.clone()
}

/// The instances of a fact that has several values, with their value.
fn parts(snapshot: &Snapshot, key: &str) -> Vec<(String, Value)> {
    let Value::Each(parts) = value(snapshot, key) else {
        panic!("{key}: {:?}", value(snapshot, key))
    };
    parts.into_iter().map(|part| (part.of.join(" "), part.value)).collect()
}

fn reason(value: &Value) -> &str {
    let Value::Unreadable(reason) = value else { panic!("{value:?}") };
    reason
}

#[test]
fn what_is_in_a_tree_becomes_facts() {
    let host = Host::empty();
    host.write("proc/sys/kernel/hostname", "web-17\n");
    host.write("proc/sys/kernel/osrelease", "6.1.0-56\n");
    host.write("proc/sys/kernel/arch", "x86_64\n");
    host.write("boot/config-6.1.0-56", "CONFIG_HZ=250\n# CONFIG_PREEMPT is not set\n");
    host.write("proc/cmdline", "quiet processor.max_cstate=0\n");
    for cpu in 0..4 {
        let governor = if cpu == 2 { "powersave\n" } else { "performance\n" };
        host.write(
            &format!("sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor"),
            governor,
        );
        host.write(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/latency"), "10\n");
    }
    host.write("sys/devices/system/cpu/cpu2/cpuidle/state2/latency", "90\n");
    host.write("sys/devices/system/cpu/vulnerabilities/mds", "Not affected\n");
    host.write("sys/module/kvm/parameters/halt_poll_ns", "0\n");
    for (irq, name) in [(9, "acpi"), (24, "nvme0q0"), (25, "nvme0q1")] {
        host.write(&format!("sys/kernel/irq/{irq}/actions"), format!("{name}\n"));
        host.write(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
    }
    let taken = snapshot(&host);
    assert_eq!(taken.host.name.as_deref(), Some("web-17"));
    assert_eq!((taken.host.kernel.as_str(), taken.host.arch.as_str()), ("6.1.0-56", "x86_64"));
    assert_eq!(value(&taken, "/boot/config-$release#CONFIG_HZ"), Value::integer(250));
    assert_eq!(value(&taken, "/boot/config-$release#CONFIG_PREEMPT"), Value::Boolean(false));
    assert_eq!(value(&taken, "/proc/cmdline#processor.max_cstate"), Value::integer(0));
    let governors = parts(&taken, "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor");
    assert_eq!(governors[0], ("0-1 3".to_owned(), Value::text("performance")));
    assert_eq!(governors[1], ("2".to_owned(), Value::text("powersave")));
    let us = |amount| Value::Integer(Integer { amount, unit: Some(Unit::Us) });
    let idle = "/sys/devices/system/cpu/cpu*/cpuidle";
    assert_eq!(parts(&taken, &format!("{idle}/state1/latency")), [("0-3".to_owned(), us(10))]);
    assert_eq!(parts(&taken, &format!("{idle}/state2/latency")), [("2".to_owned(), us(90))]);
    assert_eq!(
        value(&taken, "/sys/devices/system/cpu/vulnerabilities/mds"),
        Value::text("Not affected")
    );
    assert_eq!(value(&taken, "/sys/module/kvm/parameters/halt_poll_ns"), Value::integer(0));
    let affinity = parts(&taken, "/proc/irq/*/smp_affinity_list");
    assert_eq!(affinity, [("acpi nvme0q0 nvme0q1".to_owned(), Value::text("0-3"))]);
    assert!(taken.reading.notes.iter().any(|note| note.contains("captured")));
    let class = |taken: &Snapshot| taken.fact("/proc/irq/*/smp_affinity_list").unwrap().class;
    assert_eq!(class(&taken), Class::Configuration);
    host.write("run/irqbalance/irqbalance.sock", "");
    assert_eq!(class(&snapshot(&host)), Class::Counter, "what irqbalance moves is no setting");
}

#[test]
fn in_an_empty_tree_everything_is_absent() {
    let taken = snapshot(&Host::empty());
    assert!(taken.facts.len() > 800, "{}", taken.facts.len());
    for fact in &taken.facts {
        let nothing = matches!(fact.value, Value::Absent | Value::Boolean(false));
        assert!(nothing, "{}: {:?}", fact.key, fact.value);
    }
    assert_eq!(taken.host.name, None);
}

#[test]
fn no_link_leads_out_of_a_captured_tree() {
    let (host, outside) = (Host::empty(), tempfile::tempdir().unwrap());
    let secret = outside.path().join("secret");
    fs::write(&secret, "42\n").unwrap();
    host.write("proc/sys/vm/here", "60\n");
    let place = |name: &str| host.path(&format!("proc/sys/vm/{name}"));
    symlink(&secret, place("swappiness")).unwrap();
    symlink("../../../../../../../../../../etc/passwd", place("stat_interval")).unwrap();
    symlink("/proc/sys/vm/here", place("max_map_count")).unwrap();
    symlink("laptop_mode", place("laptop_mode")).unwrap();
    let taken = snapshot(&host);
    assert_eq!(value(&taken, "/proc/sys/vm/swappiness"), Value::Absent);
    assert_eq!(value(&taken, "/proc/sys/vm/stat_interval"), Value::Absent);
    assert_eq!(
        value(&taken, "/proc/sys/vm/max_map_count"),
        Value::integer(60),
        "an absolute link inside"
    );
    assert!(reason(&value(&taken, "/proc/sys/vm/laptop_mode")).contains("symbolic links"));
}

#[test]
fn what_is_no_file_of_the_kernels_is_said_and_the_rest_goes_on() {
    let host = Host::empty();
    host.write("proc/sys/vm/swappiness", "60\n");
    let place = |name: &str| host.path(&format!("proc/sys/vm/{name}"));
    fs::create_dir(place("stat_interval")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place("laptop_mode"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    fs::File::create(place("max_map_count")).unwrap().set_len(100 << 20).unwrap();
    host.write("proc/sys/vm/panic_on_oom", b"\xff\xfe\x1b[31m\n");
    host.write("proc/sys/vm/page-cluster", "");
    host.write("proc/cpuinfo", b"processor\t: \xff\nflags\nprocessor : 1\nflags : fpu hyperv\xff");
    host.write("proc/self/mountinfo", "1 2 3\n");
    host.write("sys/module/kvm/parameters/\x1b[2J", "1\n");
    host.write("proc/cmdline", "a\u{202e}b=\x07\n");
    let started = Instant::now();
    let taken = snapshot(&host);
    // Well below the limit of 30 s for the whole.
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(reason(&value(&taken, "/proc/sys/vm/stat_interval")).contains("a directory"));
    assert!(reason(&value(&taken, "/proc/sys/vm/laptop_mode")).contains("a FIFO"));
    assert!(reason(&value(&taken, "/proc/sys/vm/max_map_count")).contains("larger than 64 KiB"));
    assert_eq!(value(&taken, "/proc/sys/vm/panic_on_oom"), Value::text("\\xff\\xfe\u{1b}[31m"));
    assert_eq!(value(&taken, "/proc/sys/vm/page-cluster"), Value::text(""));
    assert_eq!(value(&taken, "/proc/sys/vm/swappiness"), Value::integer(60));
    // Only one CPU of the file can be read.
    let flags = value(&taken, "/proc/cpuinfo#flags");
    assert_eq!(flags, Value::Set(["fpu".into(), "hyperv\\xff".into()].into()));
    assert!(reason(&value(&taken, "/proc/self/mountinfo")).contains("major:minor"));
    let text = taken.document().unwrap();
    assert!(!text.contains(['\x1b', '\u{202e}', '\x07']));
}

#[test]
fn a_read_that_hangs_is_given_up_and_the_rest_goes_on() {
    let host = Host::empty();
    let limits = Limits { file: Duration::from_millis(100), ..Limits::default() };
    let shared = Arc::new(SharedState::new(Tree::open(&host.path("")).unwrap(), limits));
    let results = watch::each(&shared, 5, |index, files| {
        let path = format!("/file{index}");
        let hang = index == 1 || index == 3;
        let look = |_: &Tree| {
            if hang {
                std::thread::sleep(Duration::from_secs(600));
            }
            Ok(index)
        };
        files.timed(&path, &path, look, |_| 0)
    });
    let results: Vec<_> =
        results.into_iter().map(|result| result.expect("it did not panic")).collect();
    let hung = Value::TimedOut { after_ms: 100 };
    assert_eq!(results, [Ok(0), Err(hung.clone()), Ok(2), Err(hung), Ok(4)]);
    assert_eq!(shared.hung().into_iter().collect::<Vec<_>>(), ["/file1", "/file3"]);
}

#[test]
fn after_some_that_hang_others_of_their_kind_are_not_tried() {
    let host = Host::empty();
    let limits = Limits {
        file: Duration::from_millis(50),
        entry: Duration::from_millis(120),
        whole: Duration::from_secs(60),
    };
    let shared = Arc::new(SharedState::new(Tree::open(&host.path("")).unwrap(), limits));
    let results = watch::each(&shared, 2, |index, files| {
        let read = |cpu: usize| {
            let path = format!("/cpu{cpu}/{index}");
            let look = |_: &Tree| {
                if index == 0 {
                    std::thread::sleep(Duration::from_secs(600));
                }
                Ok(cpu)
            };
            files.timed(&path, &path, look, |_| 0)
        };
        (0..100).map(read).collect::<Vec<_>>()
    });
    let [Some(hung), Some(fine)] = results.as_slice() else { panic!("{results:?}") };
    assert!(matches!(hung[0], Err(Value::TimedOut { after_ms: 50 })));
    assert!(reason(hung[99].as_ref().unwrap_err()).contains("not tried"));
    let tried = hung.iter().filter(|result| matches!(result, Err(Value::TimedOut { .. }))).count();
    assert!((1..=4).contains(&tried), "{tried}");
    assert!(fine.iter().all(Result::is_ok), "the next entry is tried");
}

#[test]
fn a_reader_that_fails_loses_one_entry() {
    let host = Host::empty();
    let shared = Arc::new(SharedState::new(Tree::open(&host.path("")).unwrap(), Limits::default()));
    let results = watch::each(&shared, 3, |index, _| {
        assert!(index != 1, "on purpose");
        index
    });
    assert_eq!(results, [Some(0), None, Some(2)]);
}

#[test]
fn settings_of_modprobe_in_etc_hide_those_of_the_same_name() {
    let host = Host::empty();
    host.write("lib/modprobe.d/a.conf", "blacklist one\noptions kvm nested=1\n");
    host.write("etc/modprobe.d/a.conf", "blacklist two\n");
    host.write("etc/modprobe.d/b.conf.rpmsave", "blacklist three\n");
    let taken = snapshot(&host);
    assert_eq!(value(&taken, "/etc/modprobe.d#blacklist"), Value::Set(["two".into()].into()));
    assert!(taken.fact("/etc/modprobe.d#options kvm").is_none());
}

#[test]
fn cards_and_disks_that_come_and_go_are_no_facts() {
    let host = Host::empty();
    host.write("sys/class/net/eth0/device/vendor", "0x8086\n");
    host.write("sys/class/net/vf0/device/physfn/vendor", "0x8086\n");
    for card in ["eth0", "vf0", "veth12", "lo"] {
        host.write(&format!("sys/class/net/{card}/mtu"), "1500\n");
    }
    for disk in ["sda", "loop0", "ram1", "loopy"] {
        host.write(&format!("sys/block/{disk}/queue/scheduler"), "[none] bfq\n");
    }
    let taken = snapshot(&host);
    let names = |key: &str| parts(&taken, key).into_iter().map(|(of, _)| of).collect::<Vec<_>>();
    assert_eq!(names("/sys/class/net/*/mtu"), ["eth0"]);
    assert_eq!(names("/sys/block/*/queue/scheduler"), ["loopy sda"]);
}

#[test]
fn packages_of_rpm_are_read_from_its_database() {
    let host = Host::empty();
    host.write("var/lib/rpm/Packages", "\0\0Berkeley");
    host.write("usr/lib/sysimage/rpm/rpmdb.sqlite", "no database at all");
    let path = host.path("var/lib/rpm/rpmdb.sqlite");
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch(
            "CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL);\
             CREATE TABLE Name (key TEXT NOT NULL, hnum INTEGER NOT NULL, idx INTEGER NOT NULL);\
             INSERT INTO Name VALUES ('kernel-core', 1, 0), ('bash', 2, 0), ('tuned', 3, 0);\
             INSERT INTO Packages VALUES (3, x'ffffffff');",
        )
        .unwrap();
    let strings = ["kernel-core\0", "5.14.0\0", "1.el9\0"];
    let (mut index, mut store) = (Vec::new(), Vec::new());
    for (tag, text) in (1000u32..).zip(strings) {
        let offset = u32::try_from(store.len()).unwrap();
        index.extend([tag, 6, offset, 1].iter().flat_map(|number| number.to_be_bytes()));
        store.extend(text.bytes());
    }
    let counts: Vec<u8> = [3, u32::try_from(store.len()).unwrap()]
        .iter()
        .flat_map(|n: &u32| n.to_be_bytes())
        .collect();
    let header = [counts, index, store].concat();
    database.execute("INSERT INTO Packages VALUES (1, ?)", [header]).unwrap();
    drop(database);
    let taken = snapshot(&host);
    let kernel = value(&taken, "/var/lib/rpm/rpmdb.sqlite#kernel-core");
    assert_eq!(kernel, Value::text("5.14.0-1.el9"));
    assert!(taken.fact("/var/lib/rpm/rpmdb.sqlite#bash").is_none());
    assert!(
        reason(&value(&taken, "/usr/lib/sysimage/rpm/rpmdb.sqlite")).contains("no database of rpm")
    );
    assert!(reason(&value(&taken, "/var/lib/rpm/Packages")).contains("does not read"));
}

#[test]
fn a_host_of_256_cpus_fits_in_a_small_file() {
    let host = Host::empty();
    for cpu in 0..256 {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}");
        host.write(
            &format!("{dir}/topology/thread_siblings_list"),
            format!("{},{}\n", cpu % 128, cpu % 128 + 128),
        );
        host.write(&format!("{dir}/topology/cluster_id"), format!("{cpu}\n"));
        host.write(
            &format!("{dir}/cache/index3/shared_cpu_list"),
            format!("{}-{}\n", cpu / 8 * 8, cpu / 8 * 8 + 7),
        );
        for state in 0..4 {
            for file in ["name", "latency", "disable"] {
                host.write(&format!("{dir}/cpuidle/state{state}/{file}"), "1\n");
            }
        }
        for file in ["scaling_governor", "scaling_driver", "scaling_max_freq"] {
            host.write(&format!("sys/devices/system/cpu/cpufreq/policy{cpu}/{file}"), "same\n");
        }
    }
    for irq in 0..1000 {
        host.write(
            &format!("sys/kernel/irq/{irq}/actions"),
            format!("mlx5_comp{irq}@pci:0000:3b:00.0\n"),
        );
        host.write(&format!("proc/irq/{irq}/smp_affinity_list"), format!("{}\n", irq % 256));
    }
    let taken = snapshot(&host);
    let idle = parts(&taken, "/sys/devices/system/cpu/cpu*/cpuidle/state3/latency");
    assert_eq!(idle.len(), 1);
    assert_eq!(idle[0].0, "0-255");
    let bytes = taken.document().unwrap().len();
    assert!(bytes < 1_000_000, "{bytes} bytes");
}
