// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/PID/fdinfo/FD`: what is known about an open file.

/// Id of the mount that the file is on; kernels before 3.15 do not have it.
#[must_use]
pub fn mount_id(text: &[u8]) -> Option<u64> {
    let id = super::lines(text).find_map(|(_, line)| line.strip_prefix(b"mnt_id:"))?;
    super::number(id.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::mount_id;

    #[test]
    fn the_mount_is_told_among_other_lines() {
        assert_eq!(mount_id(b"pos:\t0\nflags:\t012100000\nmnt_id:\t1304\nino:\t7\n"), Some(1304));
        assert_eq!(mount_id(b"pos:\t0\n"), None);
        assert_eq!(mount_id(b"mnt_id:\t99999999999999999999\n"), None);
    }
}
