// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use crate::snapshot::whitelist;
use crate::snapshot::{FILTERED, Instance, Integer, Unit, fold};
use proptest::prelude::*;

/// Entries of a file.
fn entries(path: &str) -> Vec<&'static Entry> {
    let all = whitelist::entries().iter().filter(|entry| entry.path == path);
    let all: Vec<_> = all.collect();
    let source = all.first().unwrap_or_else(|| panic!("{path}")).source;
    all.into_iter().filter(|entry| entry.source == source).collect()
}

fn values(path: &str, content: &str) -> BTreeMap<String, Value> {
    let found = found(&entries(path), content.as_bytes());
    found.into_iter().map(|found| (found.part.unwrap_or_default(), found.value)).collect()
}

fn set(words: &[&str]) -> Value {
    Value::Set(words.iter().map(|&word| word.to_owned()).collect())
}

fn list(words: &[&str]) -> Value {
    Value::List(words.iter().map(|&word| word.to_owned()).collect())
}

#[test]
fn parameters_are_facts_of_their_own() {
    let line = "root=UUID=1-2 mitigations=off quiet panic=1 dash=01 console=tty0 console=ttyS0 ip=10.0.0.1\n";
    let values = values("/proc/cmdline", line);
    assert_eq!(values["mitigations"], Value::text("off"));
    assert_eq!(values["quiet"], Value::Boolean(true));
    assert_eq!((&values["panic"], &values["dash"]), (&Value::integer(1), &Value::text("01")));
    assert_eq!(values["console"], list(&["tty0", "ttyS0"]));
    assert_eq!(values["ip"], Value::text(FILTERED));
    let found = found(&entries("/proc/cmdline"), line.as_bytes());
    let root = found.iter().find(|found| found.part.as_deref() == Some("root")).unwrap();
    assert_eq!(root.class, Class::Identity);
}

#[test]
fn what_all_cpus_have_is_one_value() {
    let cpu = |number: u32, microcode: &str| {
        format!(
            "processor\t: {number}\nmodel name\t: A CPU\nflags\t\t: fpu hypervisor\nmicrocode\t: {microcode}\n\n"
        )
    };
    let read = values("/proc/cpuinfo", &(cpu(0, "0x1") + &cpu(1, "0x1") + &cpu(2, "0x2")));
    assert_eq!(read["model name"], Value::text("A CPU"));
    assert_eq!(read["flags"], set(&["fpu", "hypervisor"]));
    assert_eq!(read["hypervisor"], Value::Boolean(true));
    assert_eq!(read["vendor_id"], Value::Absent);
    let microcode = [(0, "0x1"), (1, "0x1"), (2, "0x2")];
    assert_eq!(
        read["microcode"],
        fold(microcode.map(|(cpu, text)| (Instance::Number(cpu), Value::text(text))))
    );
    let bare = values("/proc/cpuinfo", "processor: 0\nflags: fpu\n");
    assert_eq!(bare["hypervisor"], Value::Boolean(false));
}

#[test]
fn lines_are_found_by_name() {
    let memory =
        values("/proc/meminfo", "MemTotal:       24684104 kB\nHugePages_Total:       0\ntorn");
    assert_eq!(memory["MemTotal"], form::value(Kind::Number(Some(Unit::Kib)), b"24684104"));
    assert_eq!(memory["HugePages_Total"], Value::integer(0));
    assert_eq!(memory["SwapTotal"], Value::Absent);
    let node = values("/sys/devices/system/node/node*/meminfo", "Node 0 MemTotal:       1024 kB\n");
    assert!(matches!(&node["MemTotal"], Value::Integer(integer) if integer.amount == 1024));
    let grub = values(
        "/etc/default/grub",
        "# GRUB_CMDLINE_LINUX=\"x\"\nGRUB_CMDLINE_LINUX=\"a=1 password=p\"\n",
    );
    assert_eq!(grub["GRUB_CMDLINE_LINUX"], list(&["a=1", "password=(filtered)"]));
    let os = values("/etc/os-release", "ID=debian\nPRETTY_NAME='Debian 13'\n");
    assert_eq!(
        (&os["ID"], &os["PRETTY_NAME"]),
        (&Value::text("debian"), &Value::text("Debian 13"))
    );
}

#[test]
fn the_chosen_word_and_the_others_are_two_facts() {
    let values = values("/sys/block/*/queue/scheduler", "none [mq-deadline] kyber\n");
    assert_eq!(values[""], Value::text("mq-deadline"));
    assert_eq!(values["available"], set(&["kyber", "mq-deadline", "none"]));
}

#[test]
fn tables_of_modules_swaps_and_controllers() {
    let modules = values(
        "/proc/modules",
        "kvm 12 2 - Live 0xffffffffc0a00000\nacpi_cpufreq 3 0 - Live 0x0\ntorn",
    );
    let bytes = |amount| Value::Integer(Integer { amount, unit: Some(Unit::Bytes) });
    assert_eq!(modules["acpi_cpufreq"], bytes(3));
    assert_eq!((&modules["kvm"], modules.len()), (&bytes(12), 2));
    let head = "Filename\tType\tSize\tUsed\tPriority\n";
    let swaps = values(
        "/proc/swaps",
        &format!("{head}/dev/dm-1 partition 8388604 12 -2\n/dev/zram0 partition 9 1 100\n"),
    );
    assert_eq!(
        swaps[""],
        list(&["partition, 8388604 KiB, priority -2", "partition of zram, 9 KiB, priority 100"])
    );
    assert_eq!(values("/proc/swaps", head)[""], list(&[]));
    let cgroups = values(
        "/proc/cgroups",
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t3\t77\t1\nrdma\t0\t1\t0\n",
    );
    assert_eq!(
        (&cgroups["cpu"], &cgroups["rdma"]),
        (&Value::Boolean(true), &Value::Boolean(false))
    );
}

#[test]
fn mounts_that_come_and_go_and_secrets_are_left_out() {
    let mounts = values(
        "/proc/self/mountinfo",
        "1 0 8:2 / / rw,relatime - ext4 /dev/sda2 rw,commit=30\n\
         2 1 8:2 /srv /mnt/bind rw - ext4 /dev/sda2 rw\n\
         3 1 0:9 / /data rw - nfs4 filer.example:/vol rw,vers=4.2,addr=10.0.0.9,clientaddr=10.0.0.1\n\
         4 1 7:0 / /snap/core/1 ro - squashfs /dev/loop3 ro\n\
         5 1 8:3 / /tmp/lab/mnt rw - ext4 /dev/sdb1 rw\n\
         6 1 0:5 / /proc rw - proc proc rw\n\
         7 1 0:6 / /srv\\040x rw - cifs //h/s rw,username=u,password=p,vers=3.0\n\
         8 1 0:7 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
    );
    let places: Vec<&str> = mounts.keys().map(String::as_str).collect();
    assert_eq!(places, ["/", "/ source", "/data", "/data source", "/srv x", "/srv x source"]);
    assert_eq!(mounts["/"], set(&["commit=30", "relatime", "rw", "type=ext4"]));
    assert_eq!(mounts["/ source"], Value::text("/dev/sda2"));
    assert_eq!(mounts["/data"], set(&["rw", "type=nfs4", "vers=4.2"]));
    assert_eq!(mounts["/data source"], Value::text(FILTERED));
    assert_eq!(mounts["/srv x"], set(&["rw", "type=cifs", "vers=3.0"]));
}

#[test]
fn torn_files_are_unreadable_not_empty() {
    let mounts = found(&entries("/proc/self/mountinfo"), b"1 0 8:2 / / rw");
    assert!(mounts.iter().all(|found| !found.value.is_known()) && !mounts.is_empty(), "{mounts:?}");
}

#[test]
fn settings_of_modprobe_are_put_together() {
    let files = [
        b"# no\nblacklist pcc-cpufreq\noptions kvm nested=1 \\\n ignore_msrs=1\n".to_vec(),
        b"install floppy /bin/true\nalias net-pf-31 off\nalias a b\nblacklist floppy\noptions kvm halt_poll_ns=0".to_vec(),
    ];
    let settings: BTreeMap<_, _> =
        modprobe::settings(&files).into_iter().map(|it| (it.part.unwrap(), it.value)).collect();
    assert_eq!(settings["blacklist"], set(&["floppy", "pcc_cpufreq"]));
    assert_eq!(settings["options kvm"], list(&["nested=1", "ignore_msrs=1", "halt_poll_ns=0"]));
    assert_eq!(settings["install floppy"], list(&["/bin/true"]));
    assert_eq!(settings.len(), 4);
}

#[test]
fn entries_of_the_boot_loader_go_by_the_kernels_version() {
    let file =
        b"title A\nversion 6.1.0-1\noptions root=UUID=x ro quiet\noptions processor.max_cstate=0\n"
            .to_vec();
    let entries = loader::entries(&[file, b"garbage".to_vec()]);
    let wanted = list(&["ro", "quiet", "processor.max_cstate=0"]);
    assert_eq!(entries, [EntryValue::of("6.1.0-1", Class::Configuration, wanted)]);
}

#[test]
fn packages_are_those_that_are_installed_and_matter() {
    let status = "Package: linux-image-6.1.0-56-amd64\nStatus: install ok installed\nVersion: 6.1.170-1\n\n\
                  Package: linux-image-6.1.0-1-amd64\nStatus: deinstall ok config-files\nVersion: 6.1.4-1\n\n\
                  Package: vim\nStatus: install ok installed\nVersion: 9\n\n\
                  Package: tuned\nStatus: install ok installed\nVersion: 2.1";
    let packages = values("/var/lib/dpkg/status", status);
    assert_eq!(packages.len(), 2, "{packages:?}");
    assert_eq!(packages["linux-image-6.1.0-56-amd64"], Value::text("6.1.170-1"));
    assert_eq!(packages["tuned"], Value::text("2.1"));
    let two = packages::values(vec![
        ("kernel-core".into(), "2".into()),
        ("kernel-core".into(), "1".into()),
    ]);
    let wanted = EntryValue::of("kernel-core", Class::Configuration, Value::text("1, 2"));
    assert_eq!(two, [wanted]);
    assert!(
        !packages::is_kept("kernel-headers")
            && packages::is_kept("kernel-core")
            && !packages::is_kept("bash")
    );
}

/// An rpm header with these entries: tag, type, bytes.
fn header(entries: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let (mut index, mut store) = (Vec::new(), Vec::new());
    for (tag, kind, bytes) in entries {
        let offset = u32::try_from(store.len()).unwrap();
        for number in [*tag, *kind, offset, 1] {
            index.extend_from_slice(&number.to_be_bytes());
        }
        store.extend_from_slice(bytes);
    }
    let counts = [entries.len(), store.len()].map(|n| u32::try_from(n).unwrap().to_be_bytes());
    [counts.concat(), index, store].concat()
}

#[test]
fn headers_of_rpm_tell_name_and_version() {
    let entries: [(u32, u32, &[u8]); 4] = [
        (1000, 6, b"kernel-core\0"),
        (1001, 6, b"5.14.0\0"),
        (1002, 6, b"1.el9\0"),
        (1003, 4, &[0, 0, 0, 2]),
    ];
    let package = rpm::package(&header(&entries)).unwrap();
    assert_eq!(package, ("kernel-core".to_owned(), "2:5.14.0-1.el9".to_owned()));
    assert_eq!(rpm::package(&header(&entries[..2])), None);
    assert_eq!(rpm::package(&u32::MAX.to_be_bytes().repeat(8)), None);
}

#[test]
fn a_file_that_is_not_there_is_absent_in_all_its_facts() {
    let missing = missing(&entries("/proc/meminfo"), &Value::Absent);
    assert!(
        missing.len() > 3
            && missing.iter().all(|found| found.value == Value::Absent && found.part.is_some())
    );
    let missing = super::missing(&entries("/dev/kvm"), &Value::Absent);
    assert_eq!(missing[0].value, Value::Boolean(false));
    let missing = super::missing(&entries("/proc/cmdline"), &Value::Unreadable("x".into()));
    assert_eq!((missing.len(), &missing[0].part), (1, &None));
}

proptest! {
    #[test]
    fn no_file_makes_any_of_them_panic(content in prop::collection::vec(any::<u8>(), 0..120), text in r"(?s)([a-z0-9 :=#\n\t/]|.){0,120}") {
        for content in [content.as_slice(), text.as_bytes()] {
            for path in ["/proc/cmdline", "/proc/cpuinfo", "/proc/meminfo", "/proc/modules", "/proc/swaps", "/proc/cgroups",
                "/proc/self/mountinfo", "/etc/default/grub", "/var/lib/dpkg/status", "/sys/devices/system/node/node*/meminfo"] {
                let _ = found(&entries(path), content);
            }
            let _ = (rpm::package(content), modprobe::settings(&[content.to_vec()]), loader::entries(&[content.to_vec()]));
        }
    }
}
