// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr sector`: what it refuses, and what it reports without privileges.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::program::{deburr, refuse, stderr, stdout};
use std::io::Write as _;
use std::process::Stdio;

/// Name of a whole block device that is not empty, and its number of sectors.
fn device() -> Option<(String, u64)> {
    let mut found: Vec<_> = std::fs::read_dir("/sys/class/block")
        .ok()?
        .flatten()
        .filter(|entry| !entry.path().join("partition").exists())
        .filter_map(|entry| {
            let size = std::fs::read_to_string(entry.path().join("size")).ok()?;
            Some((entry.file_name().into_string().ok()?, size.trim().parse().ok()?))
        })
        .filter(|(_, sectors)| *sectors > 0)
        .collect();
    found.sort();
    found.pop()
}

#[test]
fn devices_that_are_none_are_refused() {
    for (name, expected) in [
        ("no-such\x1b[31m", "no block device `no-such\\x1b[31m`"),
        ("/dev/no-such-device", "no block device `/dev/no-such-device`"),
        ("4095:1048575", "no block device `4095:1048575`"),
        ("/dev/null", "not a block device"),
        ("/", "not a block device"),
        ("", "no block device ``"),
    ] {
        let message = refuse(&["sector", name, "1"]);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn sectors_that_are_none_are_refused() {
    for word in ["x", "1.5", "0x10", "+1", "99999999999999999999", "", "1,2"] {
        let message = refuse(&["sector", "sda", word]);
        assert!(message.contains("is not a sector") && message.contains("512"), "{message}");
    }
    assert!(refuse(&["sector", "sda"]).contains("SECTOR"));
    assert!(refuse(&["sector", "sda", "-"]).contains("0 sectors"));
    assert!(refuse(&["sector", "sda", "1", "--method", "guess"]).contains("fiemap"));
}

#[test]
fn sectors_beyond_the_end_are_refused_and_stdin_is_read() {
    let Some((name, sectors)) = device() else {
        return common::skip("program", "sectors_beyond_the_end", "no block device");
    };
    let message = refuse(&["sector", &name, &sectors.to_string()]);
    assert!(message.contains(&format!("it has {sectors}")), "{message}");
    let message = refuse(&["sector", &name, "0", "--partition-relative"]);
    assert!(message.contains("whole disk"), "{message}");
    let message = refuse(&["sector", &name, "0", "--under", "/no/such/directory"]);
    assert!(message.contains("/no/such/directory"), "{message}");
    let message = refuse(&["sector", &name, "0", "--under", "/proc"]);
    assert!(message.contains("not on a filesystem"), "{message}");
    // A user who may not read the device gets that as the reason, and the rest of the document.
    let mut child = deburr(&["sector", &name, "-", "--json", "--method", "debugfs"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    write!(child.stdin.take().unwrap(), "0 \n\t1\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(document["schema"], "deburr.sector/1");
    assert_eq!(document["disk"]["sectors"], sectors);
    for (index, answer) in document["sectors"].as_array().unwrap().iter().enumerate() {
        assert_eq!(answer["sector"], index);
        assert!(answer["what"].is_string());
        assert!(answer["what"] != "unknown" || answer["why"].is_string(), "{answer}");
    }
    assert_eq!(document["sectors"].as_array().unwrap().len(), 2);
}
