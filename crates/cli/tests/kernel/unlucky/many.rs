// SPDX-License-Identifier: Apache-2.0 OR MIT
//! More files than are told apart.

use super::{Recording, near, number, with_disk};

/// Files that are written, of one block each.
const FILES: i64 = 100_000;

#[test]
fn a_hundred_thousand_files_take_bounded_memory_and_no_byte_is_lost() {
    let test = "a_hundred_thousand_files_take_bounded_memory_and_no_byte_is_lost";
    with_disk(test, 2048, "ext4", |disk, point| {
        let device = number(&disk.device);
        // A name each, in directories of a thousand; written back by many passes.
        let script = r#"
            cd "$POINT"; i=0
            while [ $i -lt 100 ]; do
                mkdir $i; cd $i; head -c 4096000 /dev/zero | split -b 4096 -a 3 -d -; cd ..
                i=$((i + 1)); [ $((i % 20)) -ne 0 ] || sync -f .
            done
            sync -f ."#;
        let recording = Recording::of(script, &[("POINT", point.as_os_str())]);
        recording.assert_classes_sum(&device);
        let sql =
            "SELECT sum(bytes) FROM io_tick WHERE device = ?1 AND op = 'write' AND what = 'file'";
        let data = recording.number(sql, &[&device]);
        assert!(near(data, FILES * 4096), "{data} bytes of data");
        let named = recording.number("SELECT count(DISTINCT file) FROM file", &[]);
        assert!((10_000..=20_000).contains(&named), "{named} files are told apart");
        let tail = recording.number(&format!("{sql} AND file = 4294967295"), &[&device]);
        assert!(tail > 0 && tail < data, "{tail} bytes are of the others");
        // By hour of the longest session it must not be more.
        let rss = |which: &str| {
            recording.number(
                &format!("SELECT {which}(rss_bytes) FROM observer_tick WHERE rss_bytes > 0"),
                &[],
            )
        };
        let (least, most) = (rss("min"), rss("max"));
        assert!(most < 2 * least, "RSS from {least} to {most} bytes");
        let text = recording.report(&["-v"]);
        assert!(text.contains("OBS001"), "{text}");
    });
}
