// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles every `src/bpf/*.bpf.c` with clang and generates its skeleton: `$OUT_DIR/NAME.skel.rs`.

use libbpf_cargo::SkeletonBuilder;
use std::ffi::OsStr;
use std::path::PathBuf;

fn main() {
    let sources = PathBuf::from("src/bpf");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed={}", sources.display());
    for entry in std::fs::read_dir(&sources).expect("src/bpf is part of the crate") {
        let path = entry.expect("src/bpf is readable").path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let Some(stem) = name.strip_suffix(".bpf.c") else { continue };
        SkeletonBuilder::new()
            .source(&path)
            .clang_args([
                OsStr::new("-mcpu=v3"),
                OsStr::new("-Wall"),
                OsStr::new("-Werror"),
                OsStr::new("-Wno-compare-distinct-pointer-types"),
            ])
            .build_and_generate(out.join(format!("{stem}.skel.rs")))
            .unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
    }
}
