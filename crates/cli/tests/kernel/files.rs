// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths of files by inode number, resolved on real filesystems.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::{common, disk};
use deburr_core::recording::{DevId, FileState};
use deburr_core::text::name;
use files::{AskHere, Name, ObservedFile, Resolver};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

// The program has no library crate, so its module is included by path.
#[allow(dead_code, clippy::module_inception, reason = "a part of it is tested here")]
#[path = "../../src/files/mod.rs"]
mod files;

struct Scene {
    point: std::path::PathBuf,
    fs: DevId,
    resolver: Resolver,
}

impl Scene {
    fn name(&mut self, (ino, generation): (u64, u32), in_fs: Option<&[u8]>, deleted: bool) -> Name {
        self.resolver.name(&ObservedFile {
            in_fs,
            deleted,
            ..ObservedFile::new(self.fs, ino, generation)
        })
    }

    fn shown(&self, name: &[u8]) -> String {
        name::decode(self.point.join(OsStr::from_bytes(name)).as_os_str().as_bytes())
    }
}

fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Inode number and generation.
fn identity(path: &Path) -> (u64, u32) {
    let out = disk::run("lsattr", &["-v", "-d", "--", path.to_str().unwrap_or_default()]);
    let out = String::from_utf8_lossy(&out.unwrap().stdout).into_owned();
    (ino(path), out.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn names_follow_what_happens_to_a_file() {
    const TEST: &str = "names_follow_what_happens_to_a_file";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    for (fs_type, mib) in [("ext4", 32), ("btrfs", 128), ("xfs", 320)] {
        match disk::mounted(mib, fs_type) {
            Ok((_disk, point)) => {
                let fs = disk::fs_of(&point);
                let resolver = Resolver::new(Path::new("/proc"), AskHere);
                let mut scene = Scene { point, fs, resolver };
                follow(&mut scene);
            }
            Err(why) => common::skip("kernel", TEST, &format!("{fs_type}: {why}")),
        }
    }
}

fn follow(scene: &mut Scene) {
    let strange: &[u8] = b"inv\xffalid \x1b[31m\n\\012 (deleted)";
    for bytes in [b"plain".as_slice(), strange, b"directory/below"] {
        let path = scene.point.join(OsStr::from_bytes(bytes));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let open = fs::File::create(&path).unwrap();
        // The name for `lsattr` must be UTF-8, so the file is renamed for a moment; it keeps its identity.
        let plain = scene.point.join("for lsattr");
        fs::rename(&path, &plain).unwrap();
        let number = identity(&plain);
        fs::rename(&plain, &path).unwrap();
        let linked = |path| Name { path, state: FileState::Linked, confirmed: true };
        // With the name that was seen, and without one.
        assert_eq!(scene.name(number, Some(bytes), false), linked(scene.shown(bytes)));
        assert_eq!(scene.name(number, None, false), linked(scene.shown(bytes)));
        // With a second hard link, the name that was seen is kept as long as it exists.
        let other = scene.point.join("other");
        fs::hard_link(&path, &other).unwrap();
        assert_eq!(scene.name(number, Some(bytes), false), linked(scene.shown(bytes)));
        assert_eq!(scene.name(number, Some(b"/other"), false), linked(scene.shown(b"other")));
        fs::remove_file(&other).unwrap();
        // Renamed after it was seen, with another file in its place.
        let renamed = scene.point.join("renamed (deleted)");
        fs::rename(&path, &renamed).unwrap();
        fs::write(&path, "another").unwrap();
        assert_eq!(
            scene.name(number, Some(bytes), false),
            linked(scene.shown(b"renamed (deleted)"))
        );
        // Deleted while open.
        fs::remove_file(&renamed).unwrap();
        let deleted = scene.name(number, None, false);
        assert_eq!(deleted.state, FileState::Deleted, "{deleted:?}");
        assert_eq!(deleted.path, scene.shown(b"renamed (deleted)"));
        drop(open);
        let gone = scene.name(number, Some(bytes), true);
        assert_eq!((gone.path, gone.state), (scene.shown(bytes), FileState::Deleted));
    }
    let root = identity(&scene.point);
    let shown = name::decode(scene.point.as_os_str().as_bytes());
    assert_eq!(scene.name(root, None, false).path, shown);
}

#[test]
fn a_name_that_the_kernel_forgot_is_found_where_it_was_seen() {
    const TEST: &str = "a_name_that_the_kernel_forgot_is_found_where_it_was_seen";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let (disk, point) = match disk::mounted(32, "ext4") {
        Ok(mounted) => mounted,
        Err(why) => return common::skip("kernel", TEST, &why),
    };
    fs::write(point.join("file"), "x").unwrap();
    let number = identity(&point.join("file"));
    // A filesystem that was just mounted has no names in the dentry cache.
    disk::run("umount", &[&point.to_string_lossy()]).unwrap();
    disk::run("mount", &[&disk.device, &point.to_string_lossy()]).unwrap();
    let fs = disk::fs_of(&point);
    let mut scene = Scene { point, fs, resolver: Resolver::new(Path::new("/proc"), AskHere) };
    let forgotten = scene.name(number, None, false);
    assert_eq!((forgotten.state, forgotten.path.as_str()), (FileState::Nameless, ""));
    let seen = scene.name(number, Some(b"file"), false);
    assert_eq!(seen.path, scene.shown(b"file"));
    assert!(seen.confirmed && seen.state == FileState::Linked, "{seen:?}");
}

#[test]
fn a_directory_that_is_mounted_elsewhere_shows_the_path_there() {
    const TEST: &str = "a_directory_that_is_mounted_elsewhere_shows_the_path_there";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let (_disk, point) = match disk::mounted(32, "ext4") {
        Ok(mounted) => mounted,
        Err(why) => return common::skip("kernel", TEST, &why),
    };
    let fs = disk::fs_of(&point);
    fs::create_dir_all(point.join("shown")).unwrap();
    for path in ["shown/in", "out"] {
        fs::write(point.join(path), "x").unwrap();
    }
    let (inside, outside) = (ino(&point.join("shown/in")), ino(&point.join("out")));
    // From here on only the directory is mounted in this mount namespace, not the filesystem's root.
    let place = tempfile::tempdir().unwrap();
    let bind = place.path().to_string_lossy().into_owned();
    disk::run("mount", &["--bind", &point.join("shown").to_string_lossy(), &bind]).unwrap();
    disk::run("umount", &["--lazy", &point.to_string_lossy()]).unwrap();
    let mut resolver = Resolver::new(Path::new("/proc"), AskHere);
    let mut name = |ino, in_fs: Option<&[u8]>| {
        resolver.name(&ObservedFile { in_fs, ..ObservedFile::new(fs, ino, 0) })
    };
    let names = [
        name(inside, Some(b"/shown/in")),
        name(inside, None),
        name(outside, Some(b"/out")),
        name(outside, None),
    ];
    disk::run("umount", &[&bind]).unwrap();
    for seen in &names[..2] {
        assert_eq!(
            (seen.path.as_str(), seen.state),
            (format!("{bind}/in").as_str(), FileState::Linked)
        );
    }
    assert_eq!((names[2].path.as_str(), names[2].state), ("/out", FileState::InFilesystem));
    assert!(
        matches!(names[3].state, FileState::InFilesystem | FileState::Nameless),
        "{:?}",
        names[3]
    );
    assert!(!names[3].path.starts_with(&bind));
    let unmounted = resolver
        .name(&ObservedFile { in_fs: Some(b"/shown/in"), ..ObservedFile::new(fs, inside, 0) });
    assert!(!unmounted.confirmed, "{unmounted:?}");
}

/// A child process, killed on drop.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_filesystem_of_another_mount_namespace_is_reached_through_its_process() {
    const TEST: &str = "a_filesystem_of_another_mount_namespace_is_reached_through_its_process";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let (mut disk, point) = match disk::mounted(32, "ext4") {
        Ok(mounted) => mounted,
        Err(why) => return common::skip("kernel", TEST, &why),
    };
    let fs = disk::fs_of(&point);
    fs::write(point.join("file"), "x").unwrap();
    let number = identity(&point.join("file"));
    // From here on the filesystem is mounted only in the mount namespace of a child process.
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", "echo there; exec sleep 600"]);
    let Ok(child) = command.stdout(std::process::Stdio::piped()).spawn() else {
        return common::skip("kernel", TEST, "`unshare` is not installed");
    };
    let mut child = Child(child);
    let mut word = [0; 6];
    std::io::Read::read_exact(child.0.stdout.as_mut().unwrap(), &mut word).unwrap();
    disk.unmount();
    let mut resolver = Resolver::new(Path::new("/proc"), AskHere);
    let mut name = |in_fs: Option<&[u8]>| {
        let (ino, generation) = number;
        resolver.name(&ObservedFile { in_fs, ..ObservedFile::new(fs, ino, generation) })
    };
    let shown = name::decode(point.join("file").as_os_str().as_bytes());
    let expected = Name {
        path: format!("/proc/{}/root{shown}", child.0.id()),
        state: FileState::Linked,
        confirmed: true,
    };
    assert_eq!(name(Some(b"/file")), expected);
    assert_eq!(name(None), expected);
    drop(child);
    assert!(!name(None).confirmed, "it went with its process");
}
