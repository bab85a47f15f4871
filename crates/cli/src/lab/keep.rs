// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prepares a recording to be shared or used as test data: the lab's own processes keep their names, everything else
//! loses them. Amounts stay as they are. Transfers for files on disks other than the lab's are summed up as those of
//! one file.

use crate::failure::{Exit, Failure};
use crate::store::{Claim, Reader, reason};
use anyhow::Result;
use deburr_core::recording::{
    BlockRecord, CgroupId, DevId, FileId, IoPurpose, IoTick, Record, SyscallRecord,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The file that a recording is kept in.
#[derive(Debug)]
pub(crate) struct Keep {
    path: PathBuf,
    /// Whether what is there may be replaced: because that was asked for, or because an earlier try wrote it.
    force: Cell<bool>,
}

impl Keep {
    /// Checks before the run that the file can be made.
    pub(crate) fn new(path: &Path, force: bool) -> Result<Self> {
        Claim::new(path, force)?;
        Ok(Self { path: path.to_owned(), force: Cell::new(force) })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies a recording into the file. Everything that is not in the cgroup `lab` loses its name.
    pub(super) fn copy(&self, from: &Path, lab: &str) -> Result<()> {
        let reader = Reader::open(from)?;
        let mut records = Vec::new();
        reader.for_each(|record| records.push(record.clone()))?;
        let mut writer = Claim::new(&self.path, self.force.get())?.begin()?;
        self.force.set(true);
        let written = || -> rusqlite::Result<Option<&str>> {
            for record in without_foreign_names(records, lab) {
                writer.push(&record)?;
            }
            writer.finish()
        };
        let why = match written() {
            Ok(None) => return Ok(()),
            Ok(Some(harm)) => harm.to_owned(),
            Err(error) => reason(&error),
        };
        let shown = self.path.display();
        Err(Failure::error(Exit::Output, format!("cannot keep the recording as `{shown}`: {why}")))
    }
}

fn without_foreign_names(mut records: Vec<Record>, lab: &str) -> Vec<Record> {
    let own: BTreeSet<CgroupId> = records
        .iter()
        .filter_map(|record| match record {
            Record::Cgroup(cgroup) if Path::new(&cgroup.path).starts_with(lab) => Some(cgroup.id),
            _ => None,
        })
        .collect();
    let disks = own_disks(&records, lab);
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for record in &records {
        if let Record::Cgroup(cgroup) = record
            && !own.contains(&cgroup.id)
        {
            let name = || format!("/other-{}", cgroup.id.0);
            names.entry(cgroup.path.clone()).or_insert_with(name);
        }
    }
    let renamed = |path: &str| match path {
        "/" => path.to_owned(),
        _ if Path::new(path).starts_with(lab) => path.to_owned(),
        _ => names.get(path).map_or("/other", String::as_str).to_owned(),
    };
    for record in &mut records {
        match record {
            Record::Block(block) => hide_files(block, &disks),
            Record::Syscalls(calls) => {
                if let SyscallRecord::File(file) = &mut **calls
                    && !file.path.contains(lab.trim_start_matches('/'))
                {
                    file.path = "/other".into();
                }
            }
            Record::Meta(meta) => {
                meta.host_name = "lab".into();
                meta.boot_id = None;
            }
            Record::Cgroup(cgroup) if !own.contains(&cgroup.id) => {
                cgroup.path = renamed(&cgroup.path);
                cgroup.container = None;
            }
            Record::Process(process) => {
                // How the lab starts its processes is of no interest, and reveals where it is installed.
                process.cmdline.clear();
                process.memory_cgroup = process.memory_cgroup.as_deref().map(renamed);
                let is_own = process.cgroup.is_some_and(|cgroup| own.contains(&cgroup));
                if !is_own && process.kernel_thread != Some(true) {
                    process.comm = "other".into();
                }
            }
            _ => {}
        }
    }
    without_foreign_files(records, &disks)
}

/// Replaces files that are not on the disks `own` by [`FileId::OTHERS`], and sums their transfers. The host's other
/// work has thousands of such files, and their names are removed anyway.
fn without_foreign_files(records: Vec<Record>, own: &BTreeSet<DevId>) -> Vec<Record> {
    let mut foreign = BTreeSet::new();
    let mut kept: Vec<Record> = Vec::with_capacity(records.len());
    // Index in `kept` of the transfers with the same key.
    let mut sums = BTreeMap::new();
    for mut record in records {
        if let Record::Block(block) = &mut record {
            match &mut **block {
                BlockRecord::File(file) if !own.contains(&file.fs) => {
                    foreign.insert(file.id);
                    continue;
                }
                BlockRecord::Stall(stall) => {
                    stall.file = stall.file.map(|file| one_of_many(file, &foreign));
                }
                BlockRecord::Io(tick) => {
                    if let IoPurpose::File(file) = tick.what {
                        tick.what = IoPurpose::File(one_of_many(file, &foreign));
                    }
                    let IoTick { t0_ns, device, what, op, submitter, owner, .. } = *tick;
                    let key = (t0_ns, device, what, op, submitter, owner, tick.reason.clone());
                    if let Some(&at) = sums.get(&key) {
                        add(&mut kept[at], tick);
                        continue;
                    }
                    sums.insert(key, kept.len());
                }
                _ => {}
            }
        }
        kept.push(record);
    }
    kept
}

fn one_of_many(file: FileId, foreign: &BTreeSet<FileId>) -> FileId {
    if foreign.contains(&file) { FileId::OTHERS } else { file }
}

fn add(to: &mut Record, tick: &IoTick) {
    let Record::Block(block) = to else { return };
    let BlockRecord::Io(sum) = &mut **block else { return };
    sum.ios += tick.ios;
    sum.bytes += tick.bytes;
    sum.total_ns += tick.total_ns;
    sum.max_ns = sum.max_ns.max(tick.max_ns);
}

/// The disks that the lab created. Their backing files are in its directory, which is named like its cgroup.
fn own_disks(records: &[Record], lab: &str) -> BTreeSet<DevId> {
    let name = Path::new(lab).file_name();
    let is_own = |path: &str| Path::new(path).iter().any(|part| Some(part) == name);
    records
        .iter()
        .filter_map(|record| match record {
            Record::Block(block) => match &**block {
                BlockRecord::Device(disk) if disk.backing.as_deref().is_some_and(is_own) => {
                    Some(disk.dev)
                }
                _ => None,
            },
            _ => None,
        })
        .collect()
}

fn hide_files(block: &mut BlockRecord, own: &BTreeSet<DevId>) {
    match block {
        BlockRecord::Device(device) if !own.contains(&device.dev) => {
            device.backing = device.backing.take().map(|_| "other".into());
        }
        BlockRecord::Mount(mount) if !own.contains(&mount.fs) => {
            // Each gets a name of its own: two mounts at one path would mean that one is mounted over the other.
            mount.point = format!("/other-{}", mount.fs);
            mount.source = "other".into();
            mount.options.clear();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_core::recording::{Cgroup, CgroupVersion, Meta, ProcId, Process};

    fn cgroup(id: u64, parent: Option<u64>, path: &str) -> Record {
        Record::Cgroup(Box::new(Cgroup {
            id: CgroupId(id),
            parent: parent.map(CgroupId),
            path: path.into(),
            version: CgroupVersion::V2,
            quota_us: None,
            period_us: None,
            burst_us: None,
            weight: None,
            container: None,
        }))
    }

    fn process(comm: &str, cgroup: Option<u64>, kernel_thread: Option<bool>) -> Record {
        Record::Process(Box::new(Process {
            id: ProcId(1),
            pid: 1,
            start_ns: 0,
            comm: comm.into(),
            cmdline: "secret".into(),
            kernel_thread,
            cgroup: cgroup.map(CgroupId),
            cpus_allowed: None,
            cpuset_cpus: None,
            memory_cgroup: None,
            nice: None,
            in_target: false,
            observer: false,
            scheduling: vec![],
            many: false,
        }))
    }

    fn accounted_to(path: &str) -> Record {
        let Record::Process(mut process) = process("victim", Some(3), Some(false)) else {
            unreachable!();
        };
        process.memory_cgroup = Some(path.into());
        Record::Process(process)
    }

    #[test]
    fn files_and_mounts_of_others_lose_their_names() {
        use deburr_core::recording::{Device, File, FileId, FileState, Mount};
        let dev = |minor| DevId { major: 7, minor };
        let records = [("/tmp/lab-9/fuse/disk", "shown"), ("/secret/lab-99/x", "secret")]
            .into_iter()
            .zip(0..)
            .flat_map(|((backing, name), minor)| {
                [
                    BlockRecord::Device(Device {
                        dev: dev(minor),
                        name: format!("loop{minor}"),
                        disk: None,
                        start_sector: None,
                        sectors: None,
                        backing: Some(backing.into()),
                        gone: false,
                    }),
                    BlockRecord::Mount(Mount {
                        fs: dev(minor),
                        fstype: "ext4".into(),
                        source: name.into(),
                        point: format!("/mount/{name}"),
                        options: name.into(),
                    }),
                    BlockRecord::File(File {
                        id: FileId(minor + 1),
                        fs: dev(minor),
                        ino: 1,
                        generation: 0,
                        path: format!("/file/{name}"),
                        state: FileState::Linked,
                        dirtied_by: None,
                    }),
                ]
            })
            .map(|block| Record::Block(Box::new(block)))
            .collect();
        let text = format!("{:?}", without_foreign_names(records, "/lab-9"));
        assert!(!text.contains("secret"), "{text}");
        for name in ["/tmp/lab-9/fuse/disk", "/mount/shown", "/file/shown", "loop1"] {
            assert!(text.contains(name), "{name} is not in {text}");
        }
    }

    #[test]
    fn transfers_of_files_of_others_are_summed() {
        use deburr_core::recording::{File, FileState, IoOp};
        let (own, other) = (DevId { major: 7, minor: 0 }, DevId { major: 8, minor: 0 });
        let file = |id, fs| {
            BlockRecord::File(File {
                id: FileId(id),
                fs,
                ino: id.into(),
                generation: 0,
                path: format!("/{id}"),
                state: FileState::Linked,
                dirtied_by: None,
            })
        };
        let io = |id, device| {
            BlockRecord::Io(IoTick {
                t0_ns: 0,
                t1_ns: 1,
                device,
                what: IoPurpose::File(FileId(id)),
                op: IoOp::Write,
                submitter: None,
                owner: None,
                reason: None,
                ios: 1,
                bytes: 10 * u64::from(id),
                total_ns: 1,
                max_ns: id.into(),
            })
        };
        let records =
            [file(1, own), file(2, other), file(3, other), io(1, own), io(2, other), io(3, other)];
        let records = records.into_iter().map(|block| Record::Block(Box::new(block))).collect();
        let kept = without_foreign_files(records, &BTreeSet::from([own]));
        assert_eq!(kept.len(), 3, "{kept:?}");
        let Record::Block(sum) = &kept[2] else { panic!("{kept:?}") };
        let BlockRecord::Io(sum) = &**sum else { panic!("{kept:?}") };
        assert_eq!(sum.what, IoPurpose::File(FileId::OTHERS));
        assert_eq!((sum.ios, sum.bytes, sum.max_ns), (2, 50, 3));
    }

    #[test]
    fn only_the_lab_and_the_kernel_keep_their_names() {
        let records = vec![
            Record::Meta(Box::new(Meta { host_name: "secret".into(), ..Meta::default() })),
            process("victim", Some(3), Some(false)),
            process("kswapd0", Some(1), Some(true)),
            process("secret", Some(1), Some(false)),
            process("secret", Some(4), None),
            process("secret", None, None),
            cgroup(1, None, "/"),
            cgroup(2, Some(1), "/lab"),
            cgroup(3, Some(2), "/lab/victim"),
            cgroup(4, Some(1), "/labs-secret"),
            // A cgroup of the memory controller's tree, where that is a separate one.
            cgroup(5, None, "/secret"),
            accounted_to("/secret"),
            accounted_to("/secret/unseen"),
            accounted_to("/lab/victim"),
        ];
        let kept = without_foreign_names(records, "/lab");
        let text = format!("{kept:?}");
        assert!(!text.contains("secret"), "{text}");
        for name in ["\"victim\"", "kswapd0", "/lab/victim", "\"/\"", "/other-4"] {
            assert!(text.contains(name), "{name} is not in {text}");
        }
        let accounted: Vec<&str> = kept
            .iter()
            .filter_map(|record| match record {
                Record::Process(process) => process.memory_cgroup.as_deref(),
                _ => None,
            })
            .collect();
        assert_eq!(accounted, ["/other-5", "/other", "/lab/victim"]);
    }
}
