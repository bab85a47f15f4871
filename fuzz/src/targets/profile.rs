// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A profile of system calls: parsed, shown, and compared with itself and with one that deburr made.

use crate::judged::{STYLE, visible};
use deburr_core::host_diff::Measured;
use deburr_core::render;
use deburr_core::syscalls::{Difference, Profile};
use std::sync::OnceLock;

pub(crate) fn read(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let profile = match Profile::parse(text) {
        Ok(profile) => profile,
        Err(error) => {
            visible(&render::message(&error));
            return false;
        }
    };
    let document = render::json_document(&profile).expect("it is written");
    let again = Profile::parse(&document).expect("it is read again");
    assert_eq!(render::json_document(&again).ok(), Some(document), "it was written and read");
    visible(&render::syscalls_text(&profile, STYLE));
    let _ = Measured::profile(0, &profile);
    static OTHER: OnceLock<Profile> = OnceLock::new();
    let other = OTHER.get_or_init(|| {
        let document = include_str!("../../../fixtures/syscalls/good.json");
        Profile::parse(document).expect("a kept profile")
    });
    for (a, b) in [(&profile, &profile), (&profile, other), (other, &profile)] {
        let difference = Difference::new(a, b, "0.1.0");
        visible(&render::syscalls_diff_text(&difference, STYLE));
        visible(&render::json_document(&difference).expect("numbers are finite"));
    }
    true
}
