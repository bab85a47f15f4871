// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/PID/mountinfo`: the mounts of a mount namespace.

use super::{ParseError, Position, fields, lines};
use crate::recording::DevId;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Mount id.
    pub id: u64,
    /// Mount id of the parent mount.
    pub parent: u64,
    /// Device number of the filesystem (`s_dev`); the `st_dev` of a file may differ (btrfs, overlay).
    pub fs: DevId,
    /// The directory of the filesystem that is the root of this mount.
    pub root: Vec<u8>,
    /// Mount point.
    pub mount_point: Vec<u8>,
    /// Options of this mount: `rw`, `relatime`, ...
    pub options: Vec<String>,
    /// Source of the mount (the device); may be empty.
    pub source: Vec<u8>,
    /// Filesystem type: `cgroup`, `cgroup2`, `proc`, ...
    pub fs_type: String,
    /// Options of the filesystem: the controllers of a v1 cgroup mount, `hidepid` of `/proc`.
    pub super_options: Vec<String>,
}

impl Mount {
    /// Whether `super_options` contains exactly that option.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        self.super_options.iter().any(|set| set == option)
    }
}

/// Parses the file.
///
/// # Errors
/// If a line lacks one of the fixed fields, the separator ` - `, or the filesystem type after it.
pub fn parse(text: &[u8]) -> Result<Vec<Mount>, ParseError> {
    let mut mounts = Vec::new();
    for (line, bytes) in lines(text).filter(|(_, bytes)| !bytes.is_empty()) {
        let at = Position { file: "/proc/PID/mountinfo", line };
        let mut fields = fields(bytes);
        let id = at.number("mount ID", fields.next())?;
        let parent = at.number("parent ID", fields.next())?;
        let fs = fields.next().and_then(|field| std::str::from_utf8(field).ok()?.parse().ok());
        let fs = fs.ok_or_else(|| at.error("major:minor", "two decimal numbers"))?;
        let root = fields.next().ok_or_else(|| at.error("root", "a path"))?;
        let mount_point = fields.next().ok_or_else(|| at.error("mount point", "a path"))?;
        let options = fields.next().ok_or_else(|| at.error("mount options", "words"))?;
        // Any number of optional fields, then a lone hyphen.
        let separator = fields.by_ref().any(|field| field == b"-");
        let fs_type = fields.next().filter(|_| separator);
        let fs_type = fs_type.ok_or_else(|| at.error("filesystem type", "a name after ` - `"))?;
        // The source may be an empty string, which shows as nothing between two spaces.
        let (source, super_options) = match (fields.next(), fields.next()) {
            (Some(source), Some(options)) => (source, options),
            (Some(options), None) => (&b""[..], options),
            _ => Default::default(),
        };
        mounts.push(Mount {
            id,
            parent,
            fs,
            root: unescape(root),
            mount_point: unescape(mount_point),
            options: words(options),
            source: unescape(source),
            fs_type: String::from_utf8_lossy(fs_type).into_owned(),
            super_options: words(super_options),
        });
    }
    Ok(mounts)
}

fn words(options: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(options).split(',').map(str::to_owned).collect()
}

/// Decodes the kernel's octal escapes: `\040` for space, `\011` for tab, `\012` for newline, `\134` for backslash.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        plain.push(match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                rest = after;
                ((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0')
            }
            _ => *first,
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{DevId, parse, unescape};
    use proptest::prelude::*;

    #[test]
    fn optional_fields_may_be_none_or_many() {
        let text = b"32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
            7044 7036 0:28 /a\\040b /mnt ro shared:1 master:10 - cgroup cgroup rw,cpu,cpuacct\n\
            5 1 0:5 / /x rw - proc  rw,hidepid=invisible\n";
        let mounts = parse(text).unwrap();
        assert_eq!(mounts[0].mount_point, b"/sys/fs/cgroup/cpu");
        assert!(mounts[0].has_option("cpu") && !mounts[0].has_option("cpuacct"));
        assert_eq!(mounts[1].root, b"/a b");
        assert!(mounts[1].has_option("cpuacct") && !mounts[1].has_option("cpuset"));
        assert!(mounts[2].has_option("hidepid=invisible"));
        assert_eq!(
            (mounts[2].source.as_slice(), mounts[0].source.as_slice()),
            (&b""[..], &b"cgroup"[..])
        );
        assert_eq!((mounts[1].id, mounts[1].parent), (7044, 7036));
        assert_eq!(mounts[1].fs, DevId { major: 0, minor: 28 });
        assert_eq!(mounts[0].options, ["rw", "relatime"]);
    }

    #[test]
    fn a_damaged_line_is_named() {
        assert_eq!(parse(b"1 2 0:3\n").unwrap_err().item, "root");
        assert_eq!(parse(b"1 2 03 / /x rw - a b c\n").unwrap_err().item, "major:minor");
        assert_eq!(parse(b"1 x 0:3 / /x rw - a b c\n").unwrap_err().item, "parent ID");
        assert_eq!(parse(b"1 2 0:3 / /x rw cgroup\n").unwrap_err().item, "filesystem type");
    }

    #[test]
    fn only_octal_escapes_are_undone() {
        assert_eq!(unescape(b"a\\040b\\134\\011\\x\\08\\"), b"a b\\\t\\x\\08\\");
    }

    proptest! {
        #[test]
        fn what_the_kernel_escapes_comes_back(path in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut escaped = Vec::new();
            for &byte in &path {
                match byte {
                    b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
                    _ => escaped.push(byte),
                }
            }
            prop_assert_eq!(unescape(&escaped), path);
        }
    }
}
