// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/modules`: the modules that are loaded; `modules.dep`: the file of each module of a kernel.

use super::{ParseError, Position, fields, lines, number};
use crate::text::name::decode;

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Its name.
    pub name: String,
    /// How many users it has now, other modules included; `None` if this kernel cannot unload modules.
    pub users: Option<u64>,
    /// The modules that need it.
    pub holders: Vec<String>,
    /// It can never be unloaded: it has no code for that.
    pub is_permanent: bool,
}

/// What stands among the holders of a module that can never be unloaded.
const PERMANENT: &[u8] = b"[permanent]";

/// Parses the file: one line per module.
///
/// # Errors
/// If a line lacks its name, size, users or holders.
pub fn parse(text: &[u8]) -> Result<Vec<Loaded>, ParseError> {
    let mut modules = Vec::new();
    for (line, bytes) in lines(text).filter(|(_, bytes)| !bytes.is_empty()) {
        let at = Position { file: "/proc/modules", line };
        let mut fields = fields(bytes);
        let name = decode(fields.next().ok_or_else(|| at.error("name", "a name"))?);
        at.number::<u64>("size", fields.next())?;
        let users = fields.next().ok_or_else(|| at.error("users", "a number, or `-`"))?;
        let users = match users {
            b"-" => None,
            users => Some(at.number("users", Some(users))?),
        };
        let holders = fields.next().ok_or_else(|| at.error("holders", "names, or `-`"))?;
        let holders = || holders.split(|&b| b == b',').filter(|it| !it.is_empty() && *it != b"-");
        modules.push(Loaded {
            name,
            users,
            is_permanent: holders().any(|it| it == PERMANENT),
            holders: holders().filter(|it| *it != PERMANENT).map(decode).collect(),
        });
    }
    Ok(modules)
}

/// The file of a module by `modules.dep`, where each line is `FILE: FILES THAT IT NEEDS`: a path below the directory of the
/// kernel's modules, or one from the root. Names of files may have `-` where that of the module has `_`.
#[must_use]
pub fn file_of<'t>(modules_dep: &'t [u8], module: &str) -> Option<&'t [u8]> {
    let files = lines(modules_dep).filter_map(|(_, line)| {
        let colon = line.iter().position(|&b| b == b':')?;
        Some(&line[..colon])
    });
    files.into_iter().find(|file| name_of(file).is_some_and(|name| name == module.as_bytes()))
}

/// The name of the module in a file: `kernel/drivers/cpufreq/acpi-cpufreq.ko.xz` has `acpi_cpufreq`.
fn name_of(file: &[u8]) -> Option<Vec<u8>> {
    let name = file.rsplit(|&b| b == b'/').next()?;
    let end = name.windows(SUFFIX.len()).position(|part| part == SUFFIX)?;
    let is_whole = matches!(name.get(end + SUFFIX.len()), None | Some(b'.'));
    let underscores = |b: &u8| if *b == b'-' { b'_' } else { *b };
    (is_whole && end > 0).then(|| name[..end].iter().map(underscores).collect())
}

const SUFFIX: &[u8] = b".ko";

/// The present value of a parameter of a module, as its file has it; `None` if that is no value which could be given to the
/// module when it is loaded, since it has several lines, quotes or bytes that are no text.
#[must_use]
pub fn parameter(content: &[u8]) -> Option<&str> {
    let value = std::str::from_utf8(content).ok()?.trim_end_matches('\n');
    let is_plain = value.chars().all(|c| !c.is_control() && c != '"');
    is_plain.then_some(value)
}

/// The bits of the kernel's own taint that are of a module: the letters of `/sys/module/NAME/taint`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taint {
    /// It was loaded by force.
    pub forced: bool,
    /// It has no signature that the kernel knows.
    pub unsigned: bool,
}

impl Taint {
    /// By the letters.
    #[must_use]
    pub fn of(letters: &str) -> Self {
        Self { forced: letters.contains('F'), unsigned: letters.contains('E') }
    }
}

/// Whether the kernel is locked down, by `/sys/kernel/security/lockdown`: `none [integrity] confidentiality`.
#[must_use]
pub fn is_locked_down(lockdown: &str) -> bool {
    lockdown.contains('[') && !lockdown.contains("[none]")
}

/// The number of a switch such as `/proc/sys/kernel/modules_disabled`.
#[must_use]
pub fn is_on(switch: &[u8]) -> bool {
    number::<u64>(switch.trim_ascii()).is_some_and(|number| number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: &[u8] = b"dummy 16384 0 - Live 0xffffffffc0a3d000\n\
        jbd2 212992 1 ext4, Live 0xffffffffc0123000\n\
        crc16 12288 2 ext4,bluetooth, Live 0xffffffffc0100000\n\
        tls 155648 0 [permanent], Live 0xffffffffc0900000\n\
        fixed 1 3 a,[permanent], Loading 0x0 (OE)\n\
        old 4096 - - Live 0x0 (F)\n";

    #[test]
    fn a_line_says_who_uses_a_module() {
        let all = parse(NOW).unwrap();
        let of = |name: &str| all.iter().find(|it| it.name == name).unwrap();
        assert_eq!((of("dummy").users, of("dummy").holders.len()), (Some(0), 0));
        assert_eq!(of("crc16").holders, ["ext4", "bluetooth"]);
        assert!(of("tls").is_permanent && of("tls").holders.is_empty());
        assert!(of("fixed").is_permanent && of("fixed").holders == ["a"]);
        assert_eq!((of("old").users, of("old").is_permanent), (None, false));
        assert_eq!(parse(b"").unwrap(), []);
        assert_eq!(parse(b"dummy 16384\n").unwrap_err().item, "users");
        assert_eq!(parse(b"dummy 16384 x - Live 0x0\n").unwrap_err().item, "users");
    }

    #[test]
    fn a_file_is_found_by_the_name_of_its_module() {
        let dep = b"kernel/drivers/cpufreq/acpi-cpufreq.ko.xz: kernel/a/processor.ko.xz\n\
            kernel/net/dummy.ko:\nextra/dummy.kooky:\n/opt/my-driver.ko.zst: kernel/net/dummy.ko\nno colon\n";
        let of = |name| file_of(dep, name).map(|file| std::str::from_utf8(file).unwrap());
        assert_eq!(of("acpi_cpufreq"), Some("kernel/drivers/cpufreq/acpi-cpufreq.ko.xz"));
        assert_eq!(of("dummy"), Some("kernel/net/dummy.ko"));
        assert_eq!(of("my_driver"), Some("/opt/my-driver.ko.zst"));
        // What a module needs is not its file.
        assert_eq!((of("processor"), of("acpi-cpufreq"), of("")), (None, None, None));
    }

    #[test]
    fn only_a_value_that_can_be_given_again_is_one() {
        assert_eq!(parameter(b"16\n"), Some("16"));
        assert_eq!(parameter(b"a b\n"), Some("a b"));
        assert_eq!(parameter(b""), Some(""));
        for bad in [&b"a\nb\n"[..], b"\"a\"", b"\xff", b"a\x07"] {
            assert_eq!(parameter(bad), None);
        }
    }

    #[test]
    fn the_kernel_says_what_it_would_not_load_again() {
        assert_eq!(Taint::of("OE\n"), Taint { forced: false, unsigned: true });
        assert_eq!(Taint::of("F"), Taint { forced: true, unsigned: false });
        assert!(is_locked_down("none [integrity] confidentiality\n") && is_on(b"1\n"));
        assert!(!is_locked_down("[none] integrity confidentiality\n") && !is_on(b"0\n"));
        assert!(!is_locked_down("") && !is_on(b""));
    }

    proptest! {
        #[test]
        fn what_the_kernel_prints_is_read(
            name in "[a-z0-9_]{1,55}",
            users in any::<Option<u32>>(),
            holders in prop::collection::vec("[a-z0-9_]{1,9}", 0..4),
            is_permanent: bool,
        ) {
            let mut text: String = holders.iter().map(|it| format!("{it},")).collect();
            if is_permanent {
                text += "[permanent],";
            }
            if text.is_empty() {
                text += "-";
            }
            let shown = users.map_or("-".into(), |users| users.to_string());
            let line = format!("{name} 16384 {shown} {text} Live 0x0000000000000000\n");
            let read = parse(line.as_bytes()).unwrap().remove(0);
            prop_assert_eq!(read, Loaded { name, users: users.map(Into::into), holders, is_permanent });
        }

        #[test]
        fn a_module_has_one_file(name in "[a-z0-9_]{1,20}", dashes: bool, packed in "(\\.(xz|gz|zst))?") {
            let file = if dashes { name.replace('_', "-") } else { name.clone() };
            let path = format!("kernel/x/{file}.ko{packed}");
            let line = format!("{path}: kernel/y/z{file}.ko\n");
            let found = file_of(line.as_bytes(), &name).unwrap();
            prop_assert_eq!(found, path.as_bytes());
            prop_assert_eq!(file_of(line.as_bytes(), &format!("z{name}")), None);
        }
    }
}
