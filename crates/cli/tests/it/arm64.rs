// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the arm64 instructions of `deburr cpu-check`, and runs them where there is such a processor or an emulator.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common::skip;
use crate::program::scratch;
use crate::repo::root;
use std::path::Path;
use std::process::Command;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Exit status of the program if all results are right.
const GOOD: i32 = 42;
/// A program that only does the work of `deburr cpu-check`, so that no C library for arm64 is needed to link it.
const PROGRAM: &str = "#![no_std]
#![no_main]
extern crate core as std;
#[path = \"SPIN\"]
mod spin;

fn exit(status: u64) -> ! {
    unsafe { core::arch::asm!(\"svc #0\", in(\"x8\") 93u64, in(\"x0\") status, options(noreturn)) }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    exit(101)
}

#[unsafe(no_mangle)]
extern \"C\" fn _start() -> ! {
    for rounds in [0u64, 1, 2, 1000] {
        if spin::adds(rounds) != 16 * rounds.max(1) {
            exit(1)
        }
        if spin::divs(rounds) != 1_000_003 / 17 {
            exit(2)
        }
    }
    exit(42)
}
";

fn rustc(arguments: &[&str]) -> Option<String> {
    let output = Command::new("rustc").args(arguments).current_dir(root()).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// Path of the linker that comes with Rust.
fn linker() -> Option<String> {
    let libraries = rustc(&["--print", "target-libdir"])?;
    let linker = Path::new(&libraries).parent()?.join("bin/rust-lld");
    linker.exists().then(|| linker.display().to_string())
}

#[test]
fn the_work_of_cpu_check_is_done_by_arm64_too() {
    const TEST: &str = "the_work_of_cpu_check_is_done_by_arm64_too";
    let core = rustc(&["--print", "target-libdir", "--target", TARGET]);
    if !core.is_some_and(|dir| Path::new(&dir).exists()) {
        let reason = format!("Rust's core for arm64 is not here (`rustup target add {TARGET}`)");
        return skip("program", TEST, &reason);
    }
    let Some(linker) = linker() else {
        return skip("program", TEST, "the linker `rust-lld` did not come with Rust");
    };
    let dir = scratch();
    let (source, program) = (dir.path().join("arm64.rs"), dir.path().join("arm64"));
    let spin = root().canonicalize().unwrap().join("crates/sys/src/spin.rs");
    std::fs::write(&source, PROGRAM.replace("SPIN", spin.to_str().unwrap())).unwrap();
    let mut compile = Command::new("rustc");
    compile.args(["--edition", "2024", "--target", TARGET, "-C", "opt-level=2"]);
    compile.args(["-C", "panic=abort", "-C", "linker-flavor=ld.lld", "-C", "link-arg=-static"]);
    compile.args(["-C", "link-self-contained=no", "-C", "default-linker-libraries=no"]);
    compile.arg("-C").arg(format!("linker={linker}")).current_dir(root());
    let output = compile.arg("-o").args([&program, &source]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = match cfg!(target_arch = "aarch64") {
        true => Command::new(&program).status(),
        false => Command::new("qemu-aarch64").arg(&program).status(),
    };
    match run {
        Ok(status) => assert_eq!(status.code(), Some(GOOD), "{status}"),
        Err(_) => skip("program", TEST, "compiled, not run: `qemu-aarch64` is not here"),
    }
}
