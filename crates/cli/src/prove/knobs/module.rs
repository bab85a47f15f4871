// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modules that can be unloaded, and loaded again as they were. What could not come back is refused before it goes.

use super::Step;
use crate::collect::Roots;
use crate::failure::{Exit, Failure};
use crate::host::module::Module;
use crate::host::place::Place;
use anyhow::{Context as _, Result};
use deburr_core::procfs::modules::{self, Taint};
use deburr_core::prove::knob::Knob;
use deburr_core::text::units;
use rustix::thread::{CapabilitySet, capabilities};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a module may have a user that is about to leave, such as who looks at a new device.
const LEAVES: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(50);
/// Most bytes of `modules.dep` that are read: ten times those of a distribution.
const MOST_BYTES: u64 = 16 << 20;

/// What a module's file says of itself: the values of a field (`parm`, `parmtype`, `srcversion`), one a line.
type Says<'a> = &'a dyn Fn(&Path, &str) -> Result<String>;

/// A module that can be unloaded.
#[derive(Debug)]
struct Found {
    module: Module,
    /// Its parameters that are not put back: their values cannot be read, or not be given.
    unknown: BTreeSet<String>,
}

pub(super) fn resolve(roots: &Roots, knob: &Knob) -> Result<Vec<Step>> {
    let found = found(roots, knob)?;
    Ok(vec![Step::Write { place: Place::Module(found.module), value: knob.value().into() }])
}

/// Which parameters the module gets its own defaults of when it is loaded again, in words for a plan; `None` if it has none.
pub(super) fn not_put_back(roots: &Roots, knob: &Knob) -> Result<Option<String>> {
    let unknown: Vec<String> =
        found(roots, knob)?.unknown.iter().map(|name| format!("`{name}`")).collect();
    let words = "with its own default of what cannot be read or given";
    Ok((!unknown.is_empty()).then(|| format!("{words}: {}", unknown.join(", "))))
}

fn found(roots: &Roots, knob: &Knob) -> Result<Found> {
    if !capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_MODULE)) {
        return Err(Failure::error(
            Exit::Missing,
            format!("`{knob}`: CAP_SYS_MODULE is missing: run it on the host itself, with `sudo`"),
        ));
    }
    look(roots, knob, &modinfo)
}

/// What the program `modinfo` prints: it reads files of all compressions.
fn modinfo(image: &Path, field: &str) -> Result<String> {
    let mut command = Command::new("modinfo");
    command.args(["-F", field]).arg(image).stdin(Stdio::null());
    let done = command.output().map_err(|error| {
        let way = "install `kmod`, which has it";
        Failure::error(Exit::Missing, format!("`modinfo`, which reads modules: {error}: {way}"))
    })?;
    anyhow::ensure!(
        done.status.success(),
        "`modinfo` cannot read `{}`: {}",
        image.display(),
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn look(roots: &Roots, knob: &Knob, says: Says<'_>) -> Result<Found> {
    let refused = |why: String| Failure::bad_input(format!("`{knob}`: {why}"));
    // The kernel's name of it.
    let name = knob.subject().replace('-', "_");
    if !roots.proc.join("modules").exists() {
        let why = "this kernel has no modules (CONFIG_MODULES), so that none can be unloaded";
        return Err(Failure::error(Exit::Missing, format!("`{knob}`: {why}")));
    }
    if is_on(&roots.proc.join("sys/kernel/modules_disabled")) {
        return Err(refused(
            "this kernel loads no module until the next boot (`kernel.modules_disabled` is 1), so that it could not come \
             back"
                .into(),
        ));
    }
    let directory = roots.sys.join("module").join(&name);
    let image = image(roots, &name).map_err(|error| refused(format!("{error:#}")))?;
    nobody_uses(roots, &name).map_err(|error| {
        let is_builtin = directory.exists() && !directory.join("initstate").exists();
        refused(match (error, &image) {
            (Hindrance::Absent, _) if is_builtin => {
                "it is a part of the kernel's image, which cannot be unloaded".into()
            }
            (Hindrance::Absent, Some(_)) => "it is not loaded".into(),
            (Hindrance::Absent, None) => "there is no such module".into(),
            (Hindrance::Other(why), _) => why,
        })
    })?;
    let Some(image) = image else {
        return Err(refused(format!(
            "it is in no list of the running kernel's modules (`{}`), so that it could not come back",
            modules_dep(roots)?.display()
        )));
    };
    could_be_loaded(roots, &directory, &image, says).map_err(|why| refused(format!("{why:#}")))?;
    let module = Module { module: name, image, parameters: vec![] };
    if module.needs_insmod(&roots.sys) && !is_program("insmod") {
        return Err(refused(format!(
            "`{}` is compressed, this kernel does not decompress it, and there is no `insmod`: install `kmod`, which has it",
            module.image.display()
        )));
    }
    let (parameters, unknown) = parameters(&directory, &module.image, says)?;
    let module = Module { parameters, ..module };
    // A value that could not be given again.
    module.read_in(&roots.sys).map_err(|error| refused(error.to_string()))?;
    Ok(Found { module, unknown })
}

/// Why a module cannot be unloaded.
enum Hindrance {
    /// It is not among those that are loaded.
    Absent,
    Other(String),
}

/// Waits a moment for the last user to leave.
fn nobody_uses(roots: &Roots, name: &str) -> Result<(), Hindrance> {
    let other = |why: String| Hindrance::Other(why);
    let deadline = Instant::now() + LEAVES;
    loop {
        let text = fs::read(roots.proc.join("modules")).map_err(|it| other(it.to_string()))?;
        let all = modules::parse(&text).map_err(|it| other(it.to_string()))?;
        let it = all.iter().find(|it| it.name == name).ok_or(Hindrance::Absent)?;
        if it.is_permanent {
            return Err(other("it has no code to be unloaded with".into()));
        }
        if !it.holders.is_empty() {
            let holders: Vec<String> = it.holders.iter().map(|name| format!("`{name}`")).collect();
            return Err(other(format!(
                "other modules need it: {}; only a module that nobody uses is unloaded",
                holders.join(", ")
            )));
        }
        match it.users {
            None => {
                let why = "this kernel cannot unload modules (CONFIG_MODULE_UNLOAD)";
                return Err(other(why.into()));
            }
            Some(0) => return Ok(()),
            Some(_) if Instant::now() < deadline => thread::sleep(AGAIN),
            Some(users) => {
                return Err(other(format!(
                    "it is in use ({}; the kernel does not say by whom: devices that are open, mounted or up, connections, \
                     rules): only a module that nobody uses is unloaded",
                    units::counted(users, "user", "users")
                )));
            }
        }
    }
}

/// An error with the reason if the kernel would not load it again.
fn could_be_loaded(roots: &Roots, directory: &Path, image: &Path, says: Says<'_>) -> Result<()> {
    let taint = fs::read_to_string(directory.join("taint")).unwrap_or_default();
    let Taint { forced, unsigned } = Taint::of(&taint);
    anyhow::ensure!(!forced, "it was loaded by force, and would not be loaded again without");
    if unsigned {
        let lockdown = fs::read_to_string(roots.sys.join("kernel/security/lockdown"));
        let enforced = fs::read_to_string(roots.sys.join("module/module/parameters/sig_enforce"));
        let is_strict = lockdown.is_ok_and(|text| modules::is_locked_down(&text))
            || enforced.is_ok_and(|text| text.trim() == "Y");
        anyhow::ensure!(
            !is_strict,
            "it has no signature, and this kernel loads only signed modules by now"
        );
    }
    anyhow::ensure!(image.is_file(), "its file `{}` is not there", image.display());
    if let Ok(loaded) = fs::read_to_string(directory.join("srcversion")) {
        let (loaded, file) = (loaded.trim(), says(image, "srcversion")?);
        anyhow::ensure!(
            loaded == file.trim(),
            "it was loaded from another file than `{}`: that has the version `{}`, and it has `{loaded}`",
            image.display(),
            file.trim()
        );
    }
    Ok(())
}

/// The parameters that can be read and given, and those that cannot. Of the latter the kernel may have no file, or it was
/// declared without a type: not every such parameter can be given.
fn parameters(
    directory: &Path,
    image: &Path,
    says: Says<'_>,
) -> Result<(Vec<String>, BTreeSet<String>)> {
    let names = |field: &str| -> Result<BTreeSet<String>> {
        let text = says(image, field)?;
        Ok(text.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect())
    };
    let typed = names("parmtype")?;
    let mut all = names("parm")?;
    all.extend(typed.iter().cloned());
    let files = fs::read_dir(directory.join("parameters")).into_iter().flatten().flatten();
    all.extend(files.filter_map(|file| file.file_name().into_string().ok()));
    let is_known = |name: &String| {
        let file = directory.join("parameters").join(name);
        // Root may open what has no reader; reading it fails.
        typed.contains(name) && fs::read(file).is_ok()
    };
    let (known, unknown): (BTreeSet<_>, BTreeSet<_>) = all.into_iter().partition(is_known);
    Ok((known.into_iter().collect(), unknown))
}

/// The file of a module of the running kernel, if there is one.
fn image(roots: &Roots, name: &str) -> Result<Option<PathBuf>> {
    let list = modules_dep(roots)?;
    let mut text = Vec::new();
    let file = match File::open(&list) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.with_context(|| format!("`{}`", list.display()))?,
    };
    file.take(MOST_BYTES).read_to_end(&mut text)?;
    let directory = list.parent().unwrap_or(&list);
    Ok(modules::file_of(&text, name).map(|file| directory.join(OsStr::from_bytes(file))))
}

fn modules_dep(roots: &Roots) -> Result<PathBuf> {
    let release = fs::read_to_string(roots.proc.join("sys/kernel/osrelease"))?;
    Ok(roots.root.join("lib/modules").join(release.trim()).join("modules.dep"))
}

fn is_on(file: &Path) -> bool {
    fs::read(file).is_ok_and(|switch| modules::is_on(&switch))
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES: &str = "brd 16384 0 - Live 0x0\nlive 16384 0 - Live 0x0\nused 16384 2 - Live 0x0\n\
        below 16384 1 above, Live 0x0\nabove 16384 0 - Live 0x0\nfixed 16384 0 [permanent], Live 0x0\n\
        forced 16384 0 - Live 0x0 (F)\nown 16384 0 - Live 0x0 (OE)\nlost 16384 0 - Live 0x0\n\
        gone 16384 0 - Live 0x0\nnewer 16384 0 - Live 0x0\nodd 16384 0 - Live 0x0\n";
    const DEP: &str = "kernel/brd.ko:\nkernel/live.ko:\nkernel/used.ko:\nkernel/below.ko:\nkernel/above.ko: kernel/below.ko\n\
        kernel/fixed.ko:\nkernel/forced.ko:\nkernel/own.ko:\nkernel/gone.ko:\nkernel/newer.ko:\nkernel/odd.ko:\n\
        kernel/not-loaded.ko:\n";

    fn host() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: dir.path().join("proc"),
            sys: dir.path().join("sys"),
            root: dir.path().into(),
        };
        for (file, text) in [
            ("proc/modules", MODULES),
            ("proc/sys/kernel/osrelease", "6.0-x\n"),
            ("proc/sys/kernel/modules_disabled", "0\n"),
            ("lib/modules/6.0-x/modules.dep", DEP),
            ("sys/module/builtin/parameters/a", "1\n"),
            ("sys/module/brd/parameters/rd_nr", "16\n"),
            ("sys/module/brd/parameters/untyped", "1\n"),
            ("sys/module/forced/taint", "F\n"),
            ("sys/module/own/taint", "OE\n"),
            ("sys/module/newer/srcversion", "AAAA\n"),
            ("sys/module/odd/parameters/rd_nr", "a\nb\n"),
            ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
        ] {
            write(&dir, file, text);
        }
        for line in MODULES.lines() {
            let name = line.split(' ').next().unwrap();
            write(&dir, &format!("sys/module/{name}/initstate"), "live\n");
            if name != "gone" {
                write(&dir, &format!("lib/modules/6.0-x/kernel/{name}.ko"), "");
            }
        }
        (dir, roots)
    }

    fn write(dir: &tempfile::TempDir, file: &str, text: &str) {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// What the files of the modules say.
    fn says(_: &Path, field: &str) -> Result<String> {
        Ok(match field {
            "parmtype" => "rd_nr:int\nhidden:int\n",
            "parm" => "rd_nr:how many\nuntyped:what: for\n",
            _ => "BBBB\n",
        }
        .into())
    }

    fn of(roots: &Roots, name: &str) -> Result<Found> {
        look(roots, &Knob::parse(&format!("module:{name}=unloaded")).unwrap(), &says)
    }

    #[test]
    fn a_module_comes_back_with_what_can_be_read_and_given() {
        let (dir, roots) = host();
        let found = of(&roots, "brd").unwrap();
        assert_eq!(found.module.image, dir.path().join("lib/modules/6.0-x/kernel/brd.ko"));
        assert_eq!(found.module.parameters, ["rd_nr"]);
        assert_eq!(found.module.read_in(&roots.sys).unwrap(), "loaded rd_nr=16");
        assert_eq!(found.unknown.into_iter().collect::<Vec<_>>(), ["hidden", "untyped"]);
        // It can be loaded as long as nobody demands signatures.
        assert!(of(&roots, "own").is_ok());
    }

    #[test]
    fn what_could_not_come_back_or_is_used_is_refused_with_the_reason() {
        let (dir, roots) = host();
        let refused = |name: &str, reason: &str| {
            let error = of(&roots, name).unwrap_err().to_string();
            let knob = format!("`module:{name}=unloaded`: ");
            assert!(error.starts_with(&knob) && error.contains(reason), "{error}");
        };
        for (name, reason) in [
            ("no_such", "there is no such module"),
            ("not-loaded", "it is not loaded"),
            ("builtin", "a part of the kernel's image"),
            ("used", "in use (2 users;"),
            ("below", "other modules need it: `above`"),
            ("fixed", "no code to be unloaded with"),
            ("forced", "loaded by force"),
            ("lost", "in no list of the running kernel's modules"),
            ("gone", "gone.ko` is not there"),
            ("newer", "loaded from another file"),
            ("odd", "`rd_nr` has a value that no module can be given"),
        ] {
            refused(name, reason);
        }
        write(&dir, "sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        refused("own", "it has no signature");
        write(&dir, "proc/sys/kernel/modules_disabled", "1\n");
        refused("brd", "`kernel.modules_disabled` is 1");
        fs::remove_file(roots.proc.join("modules")).unwrap();
        refused("brd", "CONFIG_MODULES");
    }
}
