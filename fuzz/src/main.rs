// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libFuzzer, with one of the [`TARGETS`](deburr_fuzz::TARGETS). `DEBURR_FUZZ` names it.
#![no_main]

use deburr_fuzz::{Target, target};
use std::sync::OnceLock;

static TARGET: OnceLock<&Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = std::env::var("DEBURR_FUZZ").unwrap_or_default();
        let Some(found) = target(&name) else { panic!("DEBURR_FUZZ names no target: `{name}`") };
        let _ = TARGET.set(found);
    },
    |data: &[u8]| {
        if let Some(target) = TARGET.get() {
            let _ = target.run(data);
        }
    }
);
