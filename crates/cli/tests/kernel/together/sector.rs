// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr sector` on test filesystems: its answers agree with those of `filefrag` and `debugfs`.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::disk::{self, Disk};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// First sector and length of the partition under test, in sectors of 512 bytes.
const START: u64 = 4096;
const LENGTH: u64 = 80_000;

fn ask(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let out = command.args(["sector", "--json"]).args(arguments).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_str(&text).unwrap()
}

/// Sectors that hold a file, according to `filefrag`: of the first and the last sector of each extent, the sector on
/// the filesystem's device and the sector in the file.
fn extents(path: &Path) -> Vec<(u64, u64)> {
    let out = disk::run("filefrag", &["-v", "-b512", &path.to_string_lossy()]).unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut found = Vec::new();
    for line in text.lines() {
        let columns: Vec<_> = line.split(':').collect();
        if columns[0].trim().parse::<u32>().is_err() {
            continue;
        }
        let range = |column: usize| -> Vec<u64> {
            columns[column].split("..").map(|number| number.trim().parse().unwrap()).collect()
        };
        let (logical, physical) = (range(1), range(2));
        found.extend([(physical[0], logical[0]), (physical[1], logical[1])]);
    }
    assert!(!found.is_empty(), "{text}");
    found
}

/// Writes and syncs files of several sizes: one with a second hard link, one whose name contains a newline and a
/// terminal escape, one whose path imitates a line of debugfs's output about another file. Returns their paths.
fn write_files(point: &Path) -> Vec<PathBuf> {
    let names = ["plain", "dir with space/below", "dir with space/line\nend\x1b[31m"];
    fs::create_dir_all(point.join("dir with space")).unwrap();
    let files: Vec<_> = names.iter().map(|name| point.join(name)).collect();
    for (index, path) in files.iter().enumerate() {
        let mut file = File::create(path).unwrap();
        file.write_all(&vec![7; 5_000 + 300_000 * index]).unwrap();
        file.sync_all().unwrap();
    }
    let ino = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&files[0]).unwrap());
    let forged = point.join(format!("forged\n{ino}\t"));
    fs::create_dir(&forged).unwrap();
    fs::write(forged.join("second name"), "x").unwrap();
    fs::hard_link(&files[0], point.join("second name")).unwrap();
    disk::run("sync", &["-f", &point.to_string_lossy()]).unwrap();
    [files, vec![forged.join("second name")]].concat()
}

/// Asks for all extents of the files in one call, and compares the answers with `filefrag`.
fn check_files(device: &str, start: u64, files: &[PathBuf], method: &str) {
    let mut expected = Vec::new();
    for path in files {
        expected.extend(extents(path).into_iter().map(|(sector, offset)| (path, sector, offset)));
    }
    let sectors: Vec<_> =
        expected.iter().map(|(_, sector, _)| (start + sector).to_string()).collect();
    let mut arguments = vec![device, "--method", method];
    arguments.extend(sectors.iter().map(String::as_str));
    let document = ask(&arguments);
    assert_eq!(document["sectors"].as_array().unwrap().len(), expected.len());
    for (answer, (path, sector, offset)) in
        document["sectors"].as_array().unwrap().iter().zip(expected)
    {
        assert_eq!(
            (&answer["what"], &answer["method"]),
            (&"file".into(), &method.into()),
            "{answer}"
        );
        assert_eq!(answer["disk_sector"], start + sector, "{answer}");
        if start > 0 {
            assert_eq!(answer["partition"]["sector"], sector, "{answer}");
        }
        let named = answer["files"].as_array().unwrap();
        let file = named.iter().find(|file| file["path"] == path.to_str().unwrap());
        let file = file.unwrap_or_else(|| panic!("{path:?}: {answer}"));
        assert_eq!(file["offset_bytes"], offset * 512, "{answer}");
        let links = std::os::unix::fs::MetadataExt::nlink(&fs::metadata(path).unwrap());
        assert_eq!(named.len() as u64, links, "{answer}");
    }
}

fn divided() -> Result<(Disk, String, PathBuf), String> {
    let mut disk = Disk::new(64)?;
    // A small partition, and the one under test, with the number of a logical partition.
    disk.partition(1, 2048, 1024)?;
    let device = disk.partition(5, START, LENGTH)?;
    let point = disk.mount(&device, "ext4")?;
    Ok((disk, device, point))
}

#[test]
fn sectors_of_a_partition_lead_to_files_by_both_methods() {
    const TEST: &str = "sectors_of_a_partition_lead_to_files_by_both_methods";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let (disk, device, point) = match divided() {
        Ok(divided) => divided,
        Err(why) => return common::skip("kernel", TEST, &why),
    };
    let files = write_files(&point);
    for method in ["fiemap", "debugfs"] {
        check_files(&disk.device, START, &files, method);
    }
    // Relative to the partition's start: below a directory, and by the method that is tried first.
    let (sector, _) = extents(&files[1])[0];
    let under = point.join("dir with space");
    let asked = ["--partition-relative", "--under", under.to_str().unwrap(), "--method", "fiemap"];
    let sector = sector.to_string();
    let document = ask(&[&[device.as_str(), &sector][..], &asked].concat());
    assert_eq!(document["sectors"][0]["files"][0]["path"], files[1].to_str().unwrap());
    let document = ask(&[&device, &sector, "--partition-relative"]);
    assert_eq!(document["sectors"][0]["method"], "debugfs");
    // Below another directory the file is not found.
    let nothing = point.join("lost+found");
    let asked = ["--under", nothing.to_str().unwrap(), "--method", "fiemap"];
    let document = ask(&[&[device.as_str(), &sector, "--partition-relative"][..], &asked].concat());
    assert_eq!(document["sectors"][0]["what"], "unknown");
}

#[test]
fn what_is_no_file_is_told_apart() {
    const TEST: &str = "what_is_no_file_is_told_apart";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let (mut disk, device, point) = match divided() {
        Ok(divided) => divided,
        Err(why) => return common::skip("kernel", TEST, &why),
    };
    let blocks = |request: &str| {
        let out = disk::run("debugfs", &["-R", request, &device]).unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.split_whitespace()
            .last()
            .unwrap()
            .parse::<u64>()
            .unwrap_or_else(|e| panic!("{text}: {e}"))
    };
    let block_sectors = rustix::fs::statvfs(&point).unwrap().f_frsize / 512;
    let journal = START + blocks("bmap <8> 3") * block_sectors;
    let directory = START + blocks("bmap <2> 0") * block_sectors;
    let free = START + blocks("ffb 1") * block_sectors;
    // The superblock is 1024 bytes after the start of the partition.
    let expected = [
        (journal, "journal"),
        (directory, "directory"),
        (START + 2, "metadata"),
        (free, "free"),
        (100, "unpartitioned"),
        (START + LENGTH, "unpartitioned"),
        (2048, "unknown"),
    ];
    let sectors: Vec<_> = expected.iter().map(|(sector, _)| sector.to_string()).collect();
    let mut arguments = vec![disk.device.as_str()];
    arguments.extend(sectors.iter().map(String::as_str));
    let document = ask(&arguments);
    assert_eq!(document["sectors"].as_array().unwrap().len(), expected.len());
    for (answer, (sector, what)) in document["sectors"].as_array().unwrap().iter().zip(expected) {
        assert_eq!(
            (&answer["sector"], &answer["what"]),
            (&sector.into(), &what.into()),
            "{answer}"
        );
    }
    assert_eq!(document["sectors"][1]["files"][0]["path"], point.to_str().unwrap());
    assert_eq!(document["sectors"][6]["partition"]["name"], format!("{}p1", &disk.device[5..]));

    // Deleted but still open: its blocks are in use, and no directory has its name.
    let gone = point.join("gone");
    let mut open = File::create(&gone).unwrap();
    open.write_all(&[1; 50_000]).unwrap();
    open.sync_all().unwrap();
    let (sector, _) = extents(&gone)[1];
    fs::remove_file(&gone).unwrap();
    let sector = (START + sector).to_string();
    let document = ask(&[&disk.device, &sector]);
    let file = &document["sectors"][0]["files"][0];
    assert_eq!((&file["path"], &file["deleted"]), (&gone.to_str().unwrap().into(), &true.into()));
    let document = ask(&[&disk.device, &sector, "--method", "debugfs"]);
    let answer = &document["sectors"][0];
    assert_eq!(answer["what"], "metadata");
    assert!(answer["why"].as_str().unwrap().contains("deleted"), "{answer}");
    drop(open);

    // Not mounted: the path starts at the filesystem's root.
    let files = write_files(&point);
    let (sector, _) = extents(&files[1])[0];
    disk.unmount();
    let document = ask(&[&device, &sector.to_string(), "--partition-relative"]);
    let answer = &document["sectors"][0];
    assert_eq!(answer["files"][0]["path"], "/dir with space/below", "{answer}");
    assert_eq!(answer["filesystem"].get("mounted_at"), None, "{answer}");
}

#[test]
fn other_filesystems_answer_as_far_as_they_can() {
    const TEST: &str = "other_filesystems_answer_as_far_as_they_can";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    match disk::mounted(320, "xfs") {
        Ok((disk, point)) => check_files(&disk.device, 0, &write_files(&point), "fiemap"),
        Err(why) => common::skip("kernel", TEST, &format!("xfs: {why}")),
    }
    // btrfs addresses are not those of the device: no answer is better than a wrong one.
    match disk::mounted(128, "btrfs") {
        Ok((disk, point)) => {
            write_files(&point);
            let mut command = Command::new(env!("CARGO_BIN_EXE_deburr"));
            let out = command.args(["sector", &disk.device, "30000", "--json"]).output().unwrap();
            assert_eq!(out.status.code(), Some(3));
            let document: Value = serde_json::from_slice(&out.stdout).unwrap();
            let answer = &document["sectors"][0];
            assert_eq!(answer["what"], "unknown");
            assert!(answer["why"].as_str().unwrap().contains("btrfs"), "{answer}");
        }
        Err(why) => common::skip("kernel", TEST, &format!("btrfs: {why}")),
    }
}
