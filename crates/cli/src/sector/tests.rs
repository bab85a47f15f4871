// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sector -> partition -> block by arithmetic alone, and how answers look.

use super::device::{Block, Devices, Partition, SECTOR_BYTES};
use super::*;
use deburr_core::recording::DevId;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;

const INCIDENT: &str = include_str!("../../../../fixtures/disk/writeback-sectors.txt");

fn dev(minor: u32) -> DevId {
    DevId { major: 8, minor }
}

fn disk(sectors: u64) -> Block {
    Block { dev: dev(0), name: "sda".into(), sectors, part: None, holders: vec![] }
}

fn partition(number: u32, start_sector: u64, sectors: u64) -> Block {
    let part = Some(Partition { disk: dev(0), start_sector });
    Block { dev: dev(number), name: format!("sda{number}"), sectors, part, holders: vec![] }
}

fn question<'a>(
    device: &'a str,
    sectors: &'a [u64],
    partition_relative: bool,
) -> SectorRequest<'a> {
    SectorRequest { device, sectors, partition_relative, method: None, under: None }
}

/// The captured numbers below a heading.
fn figures(heading: &str) -> Vec<Vec<&'static str>> {
    let lines = INCIDENT.lines().skip_while(|line| !line.contains(heading)).skip(1);
    lines
        .take_while(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect()
}

fn of_the_incident() -> Devices {
    let mut blocks = vec![disk(3_748_659_200)];
    for row in figures("fdisk") {
        let number = row[0].strip_prefix("/dev/sda").unwrap().parse().unwrap();
        let [start, end] = [1, 2].map(|column| row[column].parse::<u64>().unwrap());
        blocks.push(partition(number, start, end - start + 1));
    }
    Devices::of(blocks)
}

#[test]
fn the_sector_of_the_incident_is_the_block_that_debugfs_was_asked_for() {
    let devices = of_the_incident();
    let sda = devices.find("sda").unwrap();
    let sectors = figures("biosnoop");
    let sectors: Vec<u64> = sectors.iter().map(|row| row[0].parse().unwrap()).collect();
    let places = place(&devices, sda, sda, &question("sda", &sectors, false)).unwrap();
    for (place, sector) in places.iter().zip(&sectors) {
        // Not the extended partition, which also holds the sector.
        assert_eq!(place.volume.name, "sda5");
        assert_eq!(place.sector, sector - 125_835_264);
    }
    let at = sectors.iter().position(|sector| *sector == 254_486_424).unwrap();
    let block: u64 = figures("icheck")[0][0].parse().unwrap();
    assert_eq!(places[at].sector * SECTOR_BYTES / 4096, block);
    // The same, counted from the start of the partition.
    let sda5 = devices.find("8:5").unwrap();
    let inside = [places[at].sector];
    let again = place(&devices, sda, sda5, &question("8:5", &inside, true)).unwrap();
    assert_eq!((again[0].disk_sector, again[0].sector), (254_486_424, inside[0]));
}

#[test]
fn sectors_that_are_not_there_are_refused() {
    let devices = of_the_incident();
    let (sda, sda2) = (devices.find("sda").unwrap(), devices.find("/dev/sda2").unwrap());
    let refused = |asked: &Block, sector: u64, relative: bool| {
        let sectors = [sector];
        place(&devices, sda, asked, &question(&asked.name, &sectors, relative)).unwrap_err()
    };
    assert!(refused(sda, 3_748_659_200, false).contains("it has 3748659200"));
    assert!(refused(sda2, 104_857_600, true).contains("no sector 104857600 on `sda2`"));
    assert!(refused(sda2, 100, false).contains("--partition-relative"));
    assert!(refused(sda, 100, true).contains("whole disk"));
    let sectors = [100];
    let gap = place(&devices, sda, sda, &question("sda", &sectors, false)).unwrap();
    assert_eq!(gap[0].volume.name, "sda");
}

#[test]
fn unknown_devices_are_answered_with_near_names() {
    let devices = of_the_incident();
    for wanted in ["/dev/sdb", "sda7", "sad1"] {
        let message = devices.find(wanted).unwrap_err();
        assert!(message.contains(wanted) && message.contains("`sda1`"), "{message}");
    }
    assert!(devices.find("8:99").unwrap_err().contains("`8:99`"));
    assert!(devices.find("/etc/passwd").unwrap_err().contains("not a block device"));
    assert!(devices.find("").is_err());
}

#[test]
fn devices_are_read_from_sysfs() {
    let sys = tempfile::tempdir().unwrap();
    let real = sys.path().join("devices/pci/block/cciss!c0d0");
    let part = real.join("cciss!c0d0p1");
    fs::create_dir_all(part.join("holders/dm-0")).unwrap();
    fs::create_dir_all(sys.path().join("class/block")).unwrap();
    for (dir, files) in [
        (&real, &[("dev", "104:0\n"), ("size", "1000\n")][..]),
        (&part, &[("dev", "104:1\n"), ("size", "900\n"), ("start", "64\n"), ("partition", "1\n")]),
    ] {
        for (file, text) in files {
            fs::write(dir.join(file), text).unwrap();
        }
        let name = dir.file_name().unwrap();
        symlink(dir, sys.path().join("class/block").join(name)).unwrap();
    }
    fs::create_dir(sys.path().join("class/block/torn")).unwrap();
    let devices = Devices::read(sys.path());
    let found = devices.find("/dev/cciss/c0d0p1").unwrap();
    let disk = DevId { major: 104, minor: 0 };
    assert_eq!(found.part, Some(Partition { disk, start_sector: 64 }));
    assert_eq!((found.sectors, found.holders.as_slice()), (900, &["dm-0".to_owned()][..]));
    assert!(devices.is_divided(disk) && !devices.is_divided(found.dev));
    assert_eq!(devices.find("104:0").unwrap().part, None);
    assert!(Devices::read(&sys.path().join("nothing")).find("sda").is_err());
}

#[test]
fn answers_say_where_and_how_and_names_cannot_steer() {
    let partition = |sector| {
        Some(PartitionFact { name: "sda5".into(), dev: "8:5".into(), start_sector: 2048, sector })
    };
    let file = SectorUse {
        what: SectorContent::File,
        filesystem: Some(FilesystemFact {
            kind: "ext4".into(),
            mounted_at: Some("/data".into()),
            block_bytes: Some(4096),
        }),
        block: Some(16_081_395),
        files: vec![FileFact {
            ino: 33_292_549,
            path: Some("/data/a\x1b[31m\nb".into()),
            deleted: false,
            offset_bytes: Some(4096),
        }],
        method: Some(Method::Debugfs),
        why: None,
    };
    let mut document = Document {
        schema: SCHEMA,
        tool: Tool { version: "1".into() },
        disk: DiskFact { name: "sda".into(), dev: "8:0".into(), sectors: 9999 },
        sectors: vec![
            Answer { sector: 10, disk_sector: 2058, partition: partition(10), found: file },
            Answer {
                sector: 3,
                disk_sector: 3,
                partition: None,
                found: SectorUse::unpartitioned(),
            },
        ],
        notes: vec!["asked 5 files".into()],
        looked: true,
    };
    let shown = "`sda` (8:0), 9999 sectors of 512 bytes\n\n\
        sector 10: `/data/a\\x1b[31m\\x0ab`\n  \
        `sda5` (from sector 2048) sector 10, sector 2058 of the disk, ext4 on `/data`, block 16081395, \
        inode 33292549, byte 4096 of the file\n  by debugfs (icheck, ncheck, testb)\n\n\
        sector 3: outside of all partitions\n\n\
        2 sectors: 1 of files, 1 outside of all partitions\n\nnote: asked 5 files\n";
    assert_eq!(text(&document), shown);
    document.sectors.truncate(1);
    document.notes.clear();
    let json = serde_json::to_value(&document).unwrap();
    let expected = serde_json::json!({
        "schema": "deburr.sector/1",
        "tool": { "version": "1" },
        "disk": { "name": "sda", "dev": "8:0", "sectors": 9999 },
        "sectors": [{
            "sector": 10,
            "disk_sector": 2058,
            "partition": { "name": "sda5", "dev": "8:5", "start_sector": 2048, "sector": 10 },
            "what": "file",
            "filesystem": { "kind": "ext4", "mounted_at": "/data", "block_bytes": 4096 },
            "block": 16_081_395,
            "files": [{ "ino": 33_292_549, "path": "/data/a\u{1b}[31m\nb", "offset_bytes": 4096 }],
            "method": "debugfs",
        }],
    });
    assert_eq!(json, expected);
}

proptest! {
    #[test]
    fn a_sector_is_in_at_most_the_partition_that_holds_it(
        parts in prop::collection::vec((any::<u64>(), any::<u64>()), 0..5),
        sectors in any::<u64>(),
        sector in any::<u64>(),
        relative in any::<bool>(),
    ) {
        let mut blocks = vec![disk(sectors)];
        blocks.extend((1..).zip(&parts).map(|(n, &(start, length))| partition(n, start, length)));
        let devices = Devices::of(blocks);
        let sda = devices.find("sda").unwrap();
        for asked in ["sda", "sda1"].into_iter().filter_map(|name| devices.find(name).ok()) {
            let asked_for = [sector];
            if let Ok(places) = place(&devices, sda, asked, &question("x", &asked_for, relative)) {
                prop_assert!(places[0].sector < places[0].volume.sectors);
            }
        }
    }
}
