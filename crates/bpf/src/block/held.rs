// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers that were throttled by IO limits of cgroups (`io.max`, `blkio.throttle.*`).

use libbpf_rs::{MapCore, MapFlags};

/// Direction of a throttled transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// Neither, such as a discard or flush.
    Other,
}

/// Throttled transfers of one disk, cgroup and direction, since the probe was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldTransfers {
    /// The whole disk, as the kernel's `dev_t`.
    pub disk: u32,
    /// Id of the cgroup that they are charged to, in the hierarchy of the `blkio` or `io` controller. The limit may be
    /// that of an ancestor. 0 = not known.
    pub cgroup: u64,
    /// Direction.
    pub op: Direction,
    /// Number of transfers (bios), before they were merged or split.
    pub ios: u64,
    /// Their size, in bytes.
    pub bytes: u64,
}

/// Decodes a `struct block_held_key` and a `struct block_held` of `block.h`; `None` = too short.
fn decode(key: &[u8], value: &[u8]) -> Option<HeldTransfers> {
    let u64_at =
        |from: &[u8], at: usize| Some(u64::from_ne_bytes(from.get(at..at + 8)?.try_into().ok()?));
    let u32_at =
        |from: &[u8], at: usize| Some(u32::from_ne_bytes(from.get(at..at + 4)?.try_into().ok()?));
    Some(HeldTransfers {
        cgroup: u64_at(key, 0)?,
        disk: u32_at(key, 8)?,
        op: match u32_at(key, 12)? {
            0 => Direction::Read,
            1 => Direction::Write,
            _ => Direction::Other,
        },
        ios: u64_at(value, 0)?,
        bytes: u64_at(value, 8)?,
    })
}

pub(super) fn read(map: &impl MapCore) -> Result<Vec<HeldTransfers>, libbpf_rs::Error> {
    let mut all = Vec::new();
    for key in map.keys() {
        if let Some(value) = map.lookup(&key, MapFlags::ANY)? {
            all.extend(decode(&key, &value));
        }
    }
    all.sort_unstable();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skel::block::types::{block_held, block_held_key};
    use std::mem::offset_of;

    #[test]
    fn fields_are_where_the_program_puts_them() {
        assert_eq!(offset_of!(block_held_key, cgroup), 0);
        assert_eq!(offset_of!(block_held_key, disk), 8);
        assert_eq!((offset_of!(block_held_key, op), size_of::<block_held_key>()), (12, 16));
        assert_eq!((offset_of!(block_held, ios), offset_of!(block_held, bytes)), (0, 8));
        assert_eq!(decode(&[0; 15], &[0; 16]), None);
    }
}
