// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings that are files of /proc/sys, /proc/irq or /sys.

use super::Step;
use crate::collect::Roots;
use crate::failure::{Exit, Failure};
use crate::host::place::{Place, other_of_pair};
use anyhow::{Context as _, Result};
use deburr_core::prove::knob::{Kind, Knob, Values};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) fn resolve(roots: &Roots, knob: &Knob) -> Result<Vec<Step>> {
    let (name, subject) = (knob.lever().name, knob.subject());
    let (root, files) = match knob.lever().kind {
        Kind::Sysctl => (&roots.proc, vec![roots.proc.join("sys").join(name.replace('.', "/"))]),
        Kind::Irq => (&roots.proc, vec![roots.proc.join("irq").join(subject).join(name)]),
        Kind::Thp => {
            (&roots.sys, vec![roots.sys.join("kernel/mm/transparent_hugepage").join(name)])
        }
        Kind::Cpu => (&roots.sys, frequency_files(&roots.sys, name)),
        Kind::Block => {
            (&roots.sys, vec![roots.sys.join("block").join(subject).join("queue").join(name)])
        }
        _ => (&roots.sys, vec![roots.sys.join("class/bdi").join(subject).join(name)]),
    };
    if files.is_empty() {
        return Err(absent(knob, &roots.sys.join("devices/system/cpu/cpufreq")));
    }
    files.iter().map(|file| step(knob, root, file)).collect()
}

/// The files of that name of all frequency policies.
fn frequency_files(sys: &Path, name: &str) -> Vec<PathBuf> {
    let policies = std::fs::read_dir(sys.join("devices/system/cpu/cpufreq"));
    let policies = policies.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        policies.map(|policy| policy.join(name)).filter(|file| file.exists()).collect();
    files.sort();
    files
}

/// That a file of the kernel gets the value of a knob. Links must not lead out of `root`.
pub(super) fn step(knob: &Knob, root: &Path, file: &Path) -> Result<Step> {
    let file = match (file.canonicalize(), root.canonicalize()) {
        (Ok(real), Ok(root)) if real.starts_with(&root) => real,
        _ => return Err(absent(knob, file)),
    };
    let shown = file.display();
    let refused = |why: &str| Failure::error(Exit::Missing, format!("`{knob}`: `{shown}` {why}"));
    // Files of /proc can be opened by root all the same.
    if file.metadata().is_ok_and(|meta| meta.permissions().readonly()) {
        return Err(refused("can be read only"));
    }
    // Opening it for writing changes nothing.
    match OpenOptions::new().write(true).open(&file) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let root = rustix::process::geteuid().is_root();
            return Err(refused(if root {
                "can be read only"
            } else {
                "can be changed by root only: run it with `sudo`"
            }));
        }
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => {
            return Err(refused(
                "is on a filesystem that is mounted read-only, as in a container: run it on the host",
            ));
        }
        Err(error) => return Err(error).with_context(|| format!("`{knob}`: `{shown}`")),
    }
    let text = std::fs::read_to_string(&file).with_context(|| format!("`{knob}`: `{shown}`"))?;
    if let Some(other) = other_of_pair(&file).filter(|_| text.trim() == "0") {
        return Err(Failure::bad_input(format!(
            "`{knob}`: `{}` is in effect instead, and would be cleared: change that one",
            other.display()
        )));
    }
    if knob.lever().values == Values::Offered {
        let list = file.with_file_name("scaling_available_governors");
        let list = std::fs::read_to_string(list).ok().filter(|_| knob.lever().kind == Kind::Cpu);
        let words = list.unwrap_or(text).replace(['[', ']'], " ");
        let words: Vec<&str> = words.split_whitespace().collect();
        if !words.contains(&knob.value()) {
            let words = words.join(", ");
            return Err(Failure::bad_input(format!("`{knob}`: `{shown}` offers only {words}")));
        }
    }
    Ok(Step::Write { place: Place::file(&file), value: knob.value().into() })
}

/// That this host does not have a setting.
fn absent(knob: &Knob, file: &Path) -> anyhow::Error {
    Failure::bad_input(format!(
        "`{knob}`: this host has no such setting (there is no `{}`)",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn host() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (file, text) in [
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/sys/vm/dirty_background_bytes", "0\n"),
            ("proc/sys/vm/dirty_background_ratio", "10\n"),
            ("sys/devices/vda/queue/scheduler", "[none] mq-deadline\n"),
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"),
            (
                "sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors",
                "powersave performance\n",
            ),
            ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n"),
            ("elsewhere/queue/scheduler", "[none] mq-deadline\n"),
        ] {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), text).unwrap();
        }
        fs::create_dir(at("sys/block")).unwrap();
        symlink(at("sys/devices/vda"), at("sys/block/vda")).unwrap();
        symlink(at("elsewhere"), at("sys/block/vdb")).unwrap();
        let roots = Roots { proc: at("proc"), sys: at("sys"), root: at("") };
        (dir, roots)
    }

    fn steps(roots: &Roots, text: &str) -> Result<Vec<Step>> {
        resolve(roots, &Knob::parse(text).unwrap())
    }

    #[test]
    fn a_knob_is_the_file_of_its_name() {
        let (_dir, roots) = host();
        for (text, end) in [
            ("vm.swappiness=1", "proc/sys/vm/swappiness"),
            ("block:vda:scheduler=mq-deadline", "sys/devices/vda/queue/scheduler"),
        ] {
            let steps = steps(&roots, text).unwrap();
            let [Step::Write { place: Place::File { file }, .. }] = steps.as_slice() else {
                panic!("{steps:?}")
            };
            assert!(file.ends_with(end), "{}", file.display());
        }
        assert_eq!(steps(&roots, "cpu:scaling_governor=powersave").unwrap().len(), 2);
        let now = super::super::present(&roots, &Knob::parse("vm.swappiness=1").unwrap());
        assert_eq!(now.unwrap(), "60");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let (_dir, roots) = host();
        for (text, reason) in [
            ("vm.stat_interval=1", "no such setting"),
            ("block:vdc:scheduler=none", "no such setting"),
            // The link leads out of sysfs.
            ("block:vdb:scheduler=none", "no such setting"),
            ("block:vda:scheduler=bfq", "offers only none, mq-deadline"),
            ("cpu:scaling_governor=schedutil", "offers only powersave"),
            ("cpu:scaling_max_freq=1000", "no such setting"),
            ("vm.dirty_background_bytes=2000000", "dirty_background_ratio` is in effect"),
        ] {
            let error = steps(&roots, text).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(text), "{error}");
        }
    }
}
