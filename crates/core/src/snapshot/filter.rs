// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps secrets and network addresses out of a snapshot, and on request the host's name.

use super::{Class, FILTERED, Snapshot, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The value of a parameter of the kernel's command line is filtered if its name contains one of these words.
pub const SECRET_WORDS: [&str; 6] = ["pass", "secret", "token", "cred", "auth", "key"];
/// Exceptions, which are never filtered by name: keyboards, and features of CPUs.
pub const NOT_SECRET: [&str; 4] = ["keyboard", "keymap", "nopku", "pauth"];
/// The value is also filtered if the name starts with one of these (addresses, host names, network locations,
/// environment variables). Prefixes of up to three letters must match the whole name.
pub const SECRET_PREFIXES: [&str; 22] = [
    "ip",
    "ifname",
    "nameserver",
    "netroot",
    "nfsroot",
    "nfsaddrs",
    "iscsi",
    "rd.iscsi",
    "rd.znet",
    "rd.peerdns",
    "fcoe",
    "netconsole",
    "kgdboe",
    "bootdev",
    "systemd.setenv",
    "systemd.hostname",
    "systemd.set_credential",
    "ds",
    "ks",
    "inst.",
    "url",
    "hostname",
];
/// Parameters that identify the machine rather than configure it.
pub const IDENTITY_PREFIXES: [&str; 13] = [
    "root",
    "resume",
    "resume_offset",
    "boot",
    "BOOT_IMAGE",
    "initrd",
    "rd.luks",
    "rd.lvm",
    "rd.md",
    "cryptdevice",
    "luks",
    "systemd.machine_id",
    "ostree",
];
/// Mount options that start with one of these are left out.
pub const SECRET_OPTIONS: [&str; 22] = [
    "addr=",
    "clientaddr=",
    "mountaddr=",
    "srcaddr=",
    "ip=",
    "user",
    "pass",
    "cred",
    "domain=",
    "secret",
    "name=",
    "key",
    "fsid=",
    "mon_addr=",
    "crush_location=",
    "lowerdir",
    "upperdir=",
    "workdir=",
    "sec_key",
    "keyring",
    "servern",
    "unc=",
];

/// A parameter of the kernel's command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name.
    pub name: String,
    /// Value; `None` if the parameter has none, [`FILTERED`] if it is kept out.
    pub value: Option<String>,
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The parameters of a command line up to `--`. Words after it are for init, not for the kernel.
pub fn parameters(line: &str) -> impl Iterator<Item = Parameter> + use<> {
    words(line).into_iter().take_while(|word| word != "--").map(|word| {
        let word = word.replace('"', "");
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        // A word that is itself an address has no name, so it is filtered as a whole.
        let hidden = is_secret(name) || value.is_some_and(is_address);
        let value = value.map(|value| if hidden { FILTERED } else { value }.to_owned());
        let name = if is_address(name) { FILTERED } else { name };
        Parameter { name: name.to_owned(), value }
    })
}

/// Class of a parameter, by its name.
#[must_use]
pub fn parameter_class(name: &str) -> Class {
    let begins = |prefix: &&str| {
        name.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if IDENTITY_PREFIXES.iter().any(begins) { Class::Identity } else { Class::Configuration }
}

/// Whether a mount option may hold a secret or an address.
#[must_use]
pub fn is_secret_option(option: &str) -> bool {
    SECRET_OPTIONS.iter().any(|prefix| option.starts_with(prefix)) || is_address(option)
}

/// Splits a command line into words as the kernel does: at blanks outside of quotation marks.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        quoted ^= c == '"';
        match words.last_mut() {
            Some(word) if quoted || !c.is_whitespace() => word.push(c),
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let last = name.rsplit('.').next().unwrap_or_default();
    if NOT_SECRET.iter().any(|word| name.contains(word)) {
        return false;
    }
    SECRET_WORDS.iter().any(|word| name.contains(word))
        || SECRET_PREFIXES.iter().any(|prefix| match prefix.len() {
            // Short ones are names, not prefixes: `ip` must not match `ipmi`.
            ..=3 => name == *prefix,
            _ => name.starts_with(prefix) || last.starts_with(prefix),
        })
}

/// Whether a text contains a network address (IPv4, IPv6, MAC) or a URL.
fn is_address(text: &str) -> bool {
    let is_mac = |word: &str| {
        let pairs: Vec<&str> = word.split([':', '-']).collect();
        let hex = |pair: &&str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
        pairs.len() == 6 && pairs.iter().all(hex)
    };
    let mut tokens =
        text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-')));
    text.contains("://")
        || tokens.any(|token| {
            is_mac(token)
                || token.split([':', '-']).any(|part| part.parse::<Ipv4Addr>().is_ok())
                // `::` alone is more often a separator than an address.
                || (token.len() > 2 && token.parse::<Ipv6Addr>().is_ok())
        })
}

/// Replaces the host's name, with and without its domain, by `(host)` everywhere in a snapshot, and removes
/// [`Host::name`](super::Host::name).
pub fn redact(snapshot: &mut Snapshot) {
    let Some(name) = snapshot.host.name.take() else { return };
    let short = name.split('.').next().unwrap_or_default().to_owned();
    let names: Vec<String> = [name, short]
        .into_iter()
        // Skips names that do not identify a host, and names so short that they occur in other words.
        .filter(|name| {
            name.len() > 2
                && !matches!(name.as_str(), "localhost" | "(none)" | "localhost.localdomain")
        })
        .collect();
    let hide = |text: &str| names.iter().fold(text.to_owned(), |text, name| without(&text, name));
    for fact in &mut snapshot.facts {
        fact.key = hide(&fact.key);
        redact_value(&mut fact.value, &hide);
    }
    Snapshot::put_in_order(&mut snapshot.facts);
    for slow in &mut snapshot.reading.slow {
        (slow.path, slow.key) = (hide(&slow.path), hide(&slow.key));
    }
    for note in &mut snapshot.reading.notes {
        *note = hide(note);
    }
}

fn redact_value(value: &mut Value, hide: &dyn Fn(&str) -> String) {
    match value {
        Value::Text(text) | Value::Unreadable(text) => *text = hide(text),
        Value::List(items) => items.iter_mut().for_each(|item| *item = hide(item)),
        Value::Set(items) => *items = items.iter().map(|item| hide(item)).collect(),
        Value::Table(rows) => {
            let hidden: BTreeMap<String, String> =
                rows.iter().map(|(name, text)| (hide(name), hide(text))).collect();
            *rows = hidden;
        }
        Value::Each(parts) => {
            for part in parts {
                part.of.iter_mut().for_each(|name| *name = hide(name));
                redact_value(&mut part.value, hide);
            }
        }
        Value::Integer(_) | Value::Boolean(_) | Value::Absent | Value::TimedOut { .. } => {}
    }
}

/// Replaces a name by `(host)` where it is a word of its own, ignoring ASCII case.
fn without(text: &str, name: &str) -> String {
    let (lower, name) = (text.to_ascii_lowercase(), name.to_ascii_lowercase());
    let is_part = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let (mut shown, mut done) = (String::new(), 0);
    for (at, _) in lower.match_indices(&name) {
        let end = at + name.len();
        let bytes = lower.as_bytes();
        let inside =
            is_part(at.checked_sub(1).and_then(|at| bytes.get(at))) || is_part(bytes.get(end));
        if !inside && at >= done {
            shown.push_str(&text[done..at]);
            shown.push_str("(host)");
            done = end;
        }
    }
    shown.push_str(&text[done..]);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::{fact, snapshot};
    use proptest::prelude::*;

    fn shown(line: &str) -> Vec<String> {
        parameters(line).map(|parameter| parameter.to_string()).collect()
    }

    #[test]
    fn parameters_are_words_and_stop_before_those_of_init() {
        assert_eq!(
            shown(
                "quiet  mitigations=auto,nosmt dyndbg=\"file a.c +p; x\" \"b c=d e\" console=tty0 -- --token=x"
            ),
            ["quiet", "mitigations=auto,nosmt", "dyndbg=file a.c +p; x", "b c=d e", "console=tty0"]
        );
        assert_eq!(shown(" \n"), [""; 0]);
    }

    #[test]
    fn secrets_and_addresses_are_left_out() {
        for secret in [
            "ip=10.0.0.7::10.0.0.1:255.255.255.0:web-17:eth0:none",
            "rd.iscsi.password=hunter2",
            "systemd.setenv=A=b",
            "my-token=abc",
            "ds=nocloud;s=http://169.254.169.254/",
            "x=2001:db8::1",
            "y=52:54:00:12:34:56",
            "APIKEY=1",
            "netconsole=@/,@10.1.1.1/",
            "foo=10.0.0.1:80",
            "nfsroot=10.0.0.1:/srv",
            "rd.luks.key=/k",
            "inst.ks=hd:x",
            "module.password=x",
            "z=https://user:pw@h/",
        ] {
            let shown = shown(secret);
            assert!(shown.len() == 1 && shown[0].ends_with("=(filtered)"), "{shown:?}");
        }
        assert_eq!(shown("10.1.2.3 quiet"), [FILTERED, "quiet"]);
        for plain in [
            "ipmi_si.tryacpi=0",
            "intel_idle.max_cstate=1",
            "processor.max_cstate=0",
            "vfio-pci.ids=10de:1eb8,10de:10f0",
            "pci=resource_alignment=20@0000:00:1f.2",
            "isolcpus=managed_irq,domain,2-31",
            "console=ttyS0,115200n8",
            "i8042.nokeyboard=1",
            "crashkernel=512M-2G:64M,2G-:256M",
            "memmap=4G!4G",
            "keymap=de",
            "dsfield=1",
        ] {
            assert_eq!(shown(plain), [plain]);
        }
    }

    #[test]
    fn which_machine_it_is_is_identity() {
        for name in ["root", "BOOT_IMAGE", "rd.lvm.lv", "resume"] {
            assert_eq!(parameter_class(name), Class::Identity, "{name}");
        }
        for name in ["rootflags", "rootdelay", "mitigations", "rd.driver.blacklist", "resumedelay"]
        {
            assert_eq!(parameter_class(name), Class::Configuration, "{name}");
        }
    }

    #[test]
    fn names_of_the_host_are_found_as_words_only() {
        let mut snapshot = snapshot(vec![
            fact("/proc/self/mountinfo#/srv/web-17", Value::text("/dev/mapper/WEB-17--vg-root")),
            fact(
                "/a",
                Value::Set(
                    ["web-17.example.org".into(), "web-170".into(), "cobweb-17".into()].into(),
                ),
            ),
        ]);
        snapshot.host.name = Some("web-17.example.org".into());
        redact(&mut snapshot);
        assert_eq!(snapshot.host.name, None);
        assert_eq!(
            snapshot.facts[0].value,
            Value::Set(["(host)".into(), "web-170".into(), "cobweb-17".into()].into())
        );
        assert_eq!(snapshot.facts[1].key, "/proc/self/mountinfo#/srv/(host)");
        assert_eq!(snapshot.facts[1].value, Value::text("/dev/mapper/(host)--vg-root"));
    }

    proptest! {
        #[test]
        fn any_line_can_be_filtered_and_redacted(line in r#"(?s)([a-z0-9.:=" -]|é|.){0,40}"#, name in "[a-zé.-]{0,6}") {
            let _ = shown(&line);
            let mut snapshot = snapshot(vec![fact("/a", Value::text(line))]);
            snapshot.host.name = Some(name);
            redact(&mut snapshot);
        }
    }
}
