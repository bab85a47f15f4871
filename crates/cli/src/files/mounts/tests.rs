// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts of hosts, in the kernel's format.

use super::{MountTable, Mounts, glue, strip_directory};
use deburr_core::procfs::mountinfo::{self, Mount};
use deburr_core::recording::DevId;
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::time::Duration;

/// A host: root on ext4, a bind mount of one of its directories, a disk of which only directories are mounted, btrfs
/// with subvolumes, an overlay on the root filesystem, names with a space and a newline, a mount over another one.
const HOST: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,data=ordered
22 21 0:21 / /proc rw,nosuid - proc proc rw
30 21 8:1 /var/lib/data /data rw,relatime shared:1 - ext4 /dev/sda1 rw,data=ordered
31 21 8:17 /a/deep /mnt/deep rw - xfs /dev/sdb1 rw,noquota
32 21 8:17 /a /mnt/a ro shared:7 master:1 - xfs /dev/sdb1 rw,noquota
33 21 0:39 /@ /srv rw,noatime - btrfs /dev/sdc rw,space_cache=v2,subvolid=256,subvol=/@
34 21 0:39 /@home /home rw,noatime - btrfs /dev/sdc rw,space_cache=v2,subvolid=257,subvol=/@home
35 21 0:52 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw,lowerdir=/l,upperdir=/u
36 21 7:0 / /mnt/with\\040space\\012line rw - ext4 /dev/loop0 rw,commit=5
37 21 8:33 / /covered rw - ext4 /dev/sdc1 rw
38 37 8:34 / /covered rw - ext4 /dev/sdc2 rw
39 21 8:33 / /mnt/again/longer rw - ext4 /dev/sdc1 rw
40 21 8:49 / /hidden/below rw - ext4 /dev/sdd1 rw
41 21 0:60 / /hidden rw - tmpfs none rw
";

fn dev(text: &str) -> DevId {
    text.parse().unwrap()
}

fn host() -> (tempfile::TempDir, Mounts) {
    let proc = tempfile::tempdir().unwrap();
    fs::create_dir_all(proc.path().join("self/ns")).unwrap();
    symlink("mnt:[1]", proc.path().join("self/ns/mnt")).unwrap();
    fs::write(proc.path().join("self/mountinfo"), HOST).unwrap();
    let mounts = Mounts::read(proc.path());
    (proc, mounts)
}

fn joined(mounts: &mut Mounts, fs: &str, in_fs: &str) -> Option<String> {
    let path = mounts.of(dev(fs)).iter().find_map(|place| place.join(in_fs.as_bytes()))?;
    Some(String::from_utf8(path).unwrap())
}

#[test]
fn a_path_of_the_filesystem_becomes_one_of_the_host() {
    let (_proc, mut mounts) = host();
    for (fs, in_fs, path) in [
        ("8:1", "/var/lib/data/x", Some("/var/lib/data/x")),
        ("8:1", "etc/passwd", Some("/etc/passwd")),
        ("8:1", "/", Some("/")),
        // The upper file of an overlay is a file of the filesystem below.
        ("8:1", "/var/lib/docker/overlay2/x/diff/f", Some("/var/lib/docker/overlay2/x/diff/f")),
        ("8:17", "/a/deep/f", Some("/mnt/a/deep/f")),
        ("8:17", "/a/f", Some("/mnt/a/f")),
        ("8:17", "/a", Some("/mnt/a")),
        ("8:17", "/ab/f", None),
        ("8:17", "/other/f", None),
        ("0:39", "/@/var/log", Some("/srv/var/log")),
        ("0:39", "/@home/u/f", Some("/home/u/f")),
        ("0:39", "/@snapshots/f", None),
        ("7:0", "/f", Some("/mnt/with space\nline/f")),
        ("9:9", "/f", None),
    ] {
        assert_eq!(joined(&mut mounts, fs, in_fs).as_deref(), path, "{fs} {in_fs}");
    }
}

#[test]
fn the_mount_of_the_root_or_nearest_to_it_is_the_fact() {
    let (_proc, mut mounts) = host();
    let fact = mounts.fact(dev("8:1")).unwrap();
    assert_eq!((fact.point.as_str(), fact.fstype.as_str()), ("/", "ext4"));
    assert_eq!(
        (fact.source.as_str(), fact.options.as_str()),
        ("/dev/sda1", "rw,relatime,data=ordered")
    );
    assert_eq!(mounts.fact(dev("8:17")).unwrap().point, "/mnt/a");
    assert_eq!(mounts.fact(dev("7:0")).unwrap().point, "/mnt/with space\nline");
    assert_eq!(mounts.fact(dev("9:9")), None);
    assert_eq!(mounts.of(dev("0:39"))[1].subvolume(), Some(257));
}

#[test]
fn what_another_mount_covers_is_the_last_choice() {
    let (_proc, mut mounts) = host();
    assert_eq!(mounts.fact(dev("8:33")).unwrap().point, "/mnt/again/longer");
    assert!(mounts.of(dev("8:33"))[1].covered);
    assert!(!mounts.of(dev("8:34"))[0].covered, "it covers");
    assert!(mounts.of(dev("8:49"))[0].covered, "a mount lies over the directory above");
    assert!(!mounts.of(dev("0:60"))[0].covered);
}

#[test]
fn a_filesystem_that_only_a_container_has_is_found_through_its_process() {
    let (proc, mut mounts) = host();
    for (pid, namespace) in [("10", "mnt:[1]"), ("77", "mnt:[2]"), ("78", "mnt:[2]")] {
        let process = proc.path().join(pid);
        fs::create_dir_all(process.join("ns")).unwrap();
        symlink(namespace, process.join("ns/mnt")).unwrap();
    }
    let text =
        "90 89 0:52 / / rw - overlay overlay rw\n91 90 253:3 / /data rw - xfs /dev/dm-3 rw\n";
    fs::write(proc.path().join("77/mountinfo"), text).unwrap();
    fs::write(proc.path().join("78/mountinfo"), text).unwrap();
    let path = joined(&mut mounts, "253:3", "/db/wal").unwrap();
    let process = path.strip_suffix(concat!("/root", "/data/db/wal")).unwrap();
    assert!(process.ends_with("/77") || process.ends_with("/78"), "{path}");
    // A filesystem that is mounted in this namespace is not looked for in others.
    assert_eq!(joined(&mut mounts, "0:52", "/f").unwrap(), "/var/lib/docker/overlay2/x/merged/f");
}

#[test]
fn a_filesystem_that_was_mounted_since_is_found_after_a_while() {
    let (proc, mut mounts) = host();
    assert!(mounts.of(dev("8:65")).is_empty());
    let later = format!("{HOST}50 21 8:65 / /later rw - ext4 /dev/sde1 rw\n");
    fs::write(proc.path().join("self/mountinfo"), later).unwrap();
    assert!(mounts.of(dev("8:65")).is_empty(), "not at once: a search costs");
    for _ in 0..super::SEARCH_EVERY {
        mounts.second();
    }
    assert_eq!(mounts.of(dev("8:65"))[0].point, b"/later");
}

#[test]
fn a_host_without_mounts_has_none() {
    let nothing = tempfile::tempdir().unwrap();
    assert!(Mounts::read(nothing.path()).of(dev("8:1")).is_empty());
    fs::create_dir(nothing.path().join("self")).unwrap();
    fs::write(nothing.path().join("self/mountinfo"), "nonsense\n\0\n").unwrap();
    assert!(Mounts::read(nothing.path()).of(dev("8:1")).is_empty());
}

proptest! {
    #[test]
    fn mounts_that_refer_to_each_other_in_circles_end(
        lines in prop::collection::vec((0u32..6, 0u32..6, "(/[ab]){0,3}"), 0..12)
    ) {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("self")).unwrap();
        let mut text = String::new();
        for (id, parent, point) in lines {
            text += &format!("{id} {parent} 8:1 / /{point} rw - ext4 x rw\n");
        }
        fs::write(proc.path().join("self/mountinfo"), text).unwrap();
        let _ = Mounts::read(proc.path()).of(dev("8:1"));
    }

    #[test]
    fn what_is_glued_to_a_directory_is_below_it(directory in "(/[a-c]{1,2}){0,3}", below in "([a-c]{1,2}/){0,3}[a-c]") {
        let path = glue(directory.as_bytes(), below.as_bytes());
        prop_assert_eq!(strip_directory(&path, directory.as_bytes()), Some(below.as_bytes()));
    }
}

/// Whether a mount is hidden, by comparing it with every other one.
fn is_hidden(mount: &Mount, all: &[Mount], except: Option<u64>, depth: u32) -> bool {
    let over = |other: &&Mount| {
        let on_it = other.parent == mount.id && other.mount_point == mount.mount_point;
        let above = other.parent == mount.parent
            && other.mount_point.len() < mount.mount_point.len()
            && strip_directory(&mount.mount_point, &other.mount_point).is_some();
        other.id != mount.id && Some(other.id) != except && (on_it || above)
    };
    let parent = all.iter().find(|other| other.id == mount.parent);
    let goes_on = depth <= 64 && mount.parent != mount.id;
    all.iter().any(|other| over(&other))
        || goes_on && parent.is_some_and(|parent| is_hidden(parent, all, Some(mount.id), depth + 1))
}

proptest! {
    #[test]
    fn the_table_finds_what_a_comparison_of_all_with_all_finds(
        mounts in proptest::collection::vec((1_u64..9, "(/[ab]{1,2}){0,3}"), 1..9)
    ) {
        let line = |(at, (parent, point)): (usize, &(u64, String))| {
            let point = if point.is_empty() { "/" } else { point };
            format!("{} {parent} 0:{at} / {point} rw - tmpfs none rw\n", at + 1)
        };
        let text: String = mounts.iter().enumerate().map(line).collect();
        let all = mountinfo::parse(text.as_bytes()).unwrap();
        let mut table = MountTable::new(&all);
        for (index, mount) in all.iter().enumerate() {
            prop_assert_eq!(table.is_covered(index), is_hidden(mount, &all, None, 0));
        }
    }
}

/// A namespace with so many mounts: half of them one on the other, half of them beside each other, at long paths.
fn many(count: u64) -> String {
    let deep = "/d".repeat(20);
    let line = |id: u64| match id {
        1 => "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n".into(),
        _ if id.is_multiple_of(2) => {
            format!(
                "{id} {} 0:{id} / {deep} rw - tmpfs none rw\n",
                if id == 2 { 1 } else { id - 2 }
            )
        }
        _ => format!("{id} 1 0:{id} / {deep}{deep}/{id} rw - tmpfs none rw\n"),
    };
    (1..=count).map(line).collect()
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.try_into().unwrap())
}

/// The least CPU time, of some tries, that it takes to read so many mounts, and how many of them are covered.
fn reading(count: u64) -> (Duration, usize) {
    let proc = tempfile::tempdir().unwrap();
    fs::create_dir_all(proc.path().join("self")).unwrap();
    fs::write(proc.path().join("self/mountinfo"), many(count)).unwrap();
    let read = |_| {
        let begin = cpu_time();
        let mounts = Mounts::read(proc.path());
        (cpu_time() - begin, mounts.places.values().flatten().filter(|place| place.covered).count())
    };
    (0..3).map(read).min().unwrap()
}

#[test]
fn ten_times_as_many_mounts_take_about_ten_times_as_long() {
    let (few, many) = (3_000, 30_000);
    let ((short, covered_of_few), (long, covered_of_many)) = (reading(few), reading(many));
    // Those under the last one of the stack, and those below the directory that it hides.
    assert_eq!((covered_of_few, covered_of_many), (few as usize - 2, many as usize - 2));
    // If every mount were compared with every other one it would be a hundred times.
    assert!(long < short * 40, "{few}: {short:?}, {many}: {long:?}");
    println!("{few} mounts: {short:?}, {many} mounts: {long:?}");
}

#[test]
fn a_table_that_is_too_long_is_read_as_far_as_it_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mountinfo");
    fs::write(&file, "1 1 8:1 / / rw - ext4 a rw\n2 1 8:2 / /b rw - ext4 b rw\n").unwrap();
    let (text, whole) = super::lines_of(&file, 40);
    assert_eq!((text.as_slice(), whole), (&b"1 1 8:1 / / rw - ext4 a rw\n"[..], false));
    assert!(super::lines_of(&file, 100).1);
}

#[test]
fn namespaces_of_one_user_do_not_keep_those_of_others_from_being_read() {
    let (proc, mut mounts) = host();
    // All directories here belong to one user: root, or another one, of whom fewer namespaces are read.
    let root = fs::metadata(proc.path()).unwrap().uid() == 0;
    for pid in 100..100 + 2 * super::MAX_NAMESPACES {
        let process = proc.path().join(pid.to_string());
        fs::create_dir_all(process.join("ns")).unwrap();
        symlink(format!("mnt:[{pid}]"), process.join("ns/mnt")).unwrap();
        let text = format!("1 1 8:{pid} / / rw - ext4 a rw\n2 1 0:{pid} / /t rw - tmpfs t rw\n");
        fs::write(process.join("mountinfo"), text).unwrap();
    }
    let own = mounts.places.len();
    assert!(mounts.of(dev("9:9")).is_empty() && mounts.is_cut());
    let most = if root { super::MAX_NAMESPACES } else { super::MAX_NAMESPACES_OF_USER };
    // What lies on no device is left out.
    assert!(mounts.places.len() - own <= most && mounts.places.len() > own);
}

#[test]
fn former_mounts_are_known_but_not_of_all_filesystems_that_ever_were() {
    let (proc, mut mounts) = host();
    for round in 0..10 {
        let minors = 1000 + 500 * round..1500 + 500 * round;
        let line = |minor| format!("{minor} 21 0:{minor} / /t/{minor} rw - tmpfs none rw\n");
        let table = format!("{HOST}{}", minors.clone().map(line).collect::<String>());
        fs::write(proc.path().join("self/mountinfo"), table).unwrap();
        mounts.read_own();
        let one = dev(&format!("0:{}", minors.start));
        assert_eq!((mounts.of(one).len(), mounts.former(one).len()), (1, 0));
        fs::write(proc.path().join("self/mountinfo"), HOST).unwrap();
        mounts.read_own();
        assert_eq!(mounts.former(one)[0].point, format!("/t/{}", minors.start).as_bytes());
        assert!(mounts.former.len() <= super::MAX_FORMER, "{}", mounts.former.len());
    }
}
