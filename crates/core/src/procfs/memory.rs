// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of memory: `/proc/vmstat`, a cgroup's `memory.stat`, `/proc/zoneinfo`.

/// The value of a line `NAME VALUE`; `None` = there is no such line.
#[must_use]
pub fn counter(text: &[u8], name: &str) -> Option<u64> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b" ")?;
        std::str::from_utf8(value).ok()?.trim().parse().ok()
    })
}

/// The sum of the `low` watermarks of all zones, in pages; `None` = the text has none.
#[must_use]
pub fn low_watermark_pages(zoneinfo: &[u8]) -> Option<u64> {
    let lines = zoneinfo.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_start);
    let low = lines.filter_map(|line| counter(line, "low"));
    low.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_taken_for_the_beginning_of_another() {
        let text =
            b"workingset_refault_file_x 1\nworkingset_refault_file 18446744073709551615\nlow x\n";
        assert_eq!(counter(text, "workingset_refault_file"), Some(u64::MAX));
        assert_eq!(counter(text, "workingset_refault"), None);
        assert_eq!(counter(text, "low"), None);
    }

    #[test]
    fn watermarks_of_all_zones_are_added() {
        let text = b"Node 0, zone   DMA32\n  pages free     100\n        boost    0\n        min      10\n        low      \
                     12\n        high     15\n    pagesets\n              high:  64\nNode 0, zone   Normal\n        low      30\n";
        assert_eq!(low_watermark_pages(text), Some(42));
        assert_eq!(low_watermark_pages(b"Node 0, zone DMA\n"), None);
    }
}
