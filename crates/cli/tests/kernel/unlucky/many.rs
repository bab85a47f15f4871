// SPDX-License-Identifier: Apache-2.0 OR MIT
//! More files than are tracked one by one, and more requests than are followed.

use super::{Recording, number, with_disk};

/// Number of files that are written, of one block each.
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
        let recording = Recording::sampled(script, &[("POINT", point.as_os_str())], None);
        recording.assert_classes_sum(&device);
        let sql =
            "SELECT sum(bytes) FROM io_tick WHERE device = ?1 AND op = 'write' AND what = 'file'";
        let data = recording.number(sql, &[&device]);
        // With a sample, the sum of all classes is exact; each class is an estimate.
        assert!((data - FILES * 4096).abs() * 20 <= FILES * 4096, "{data} bytes of data");
        let named = recording.number("SELECT count(DISTINCT file) FROM file", &[]);
        assert!((10_000..=20_000).contains(&named), "{named} files are told apart");
        let tail = recording.number(&format!("{sql} AND file = 4294967295"), &[&device]);
        assert!(tail > 0 && tail < data, "{tail} bytes are of the others");
        // Memory use must not grow with the length of the session.
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

#[test]
fn what_a_sample_says_of_unlike_requests_sums_to_what_the_disk_counted() {
    let test = "what_a_sample_says_of_unlike_requests_sums_to_what_the_disk_counted";
    with_disk(test, 512, "ext4", |disk, point| {
        let device = number(&disk.device);
        // From 4 KiB to 1 MiB: eight times the bytes of one request in eight are off by many percent.
        let script = r#"
            cd "$POINT"
            for size in 4:2000 1024:60 16:1000 512:60 64:200 4:1000; do
                name=f${size%:*}-${size#*:}
                dd if=/dev/zero of=$name bs=${size%:*}k count=${size#*:} oflag=direct status=none
                dd if=$name of=/dev/null bs=${size%:*}k iflag=direct status=none
            done"#;
        let recording = Recording::sampled(script, &[("POINT", point.as_os_str())], Some(8));
        let sql = "SELECT max(sampled_one_in) FROM device_tick WHERE device = ?1";
        assert_eq!(recording.number(sql, &[&device]), 8);
        recording.assert_classes_sum(&device);
    });
}
