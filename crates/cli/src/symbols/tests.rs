// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

#[inline(never)]
fn a_function_that_is_looked_for() -> u64 {
    std::hint::black_box(7)
}

#[test]
fn functions_of_this_process_are_found() {
    let names = Names::default();
    let here = a_function_that_is_looked_for as fn() -> u64 as usize as u64;
    let somewhere = names.of_process(&Roots::default(), std::process::id(), &[16, here + 1, here]);
    let somewhere = somewhere.unwrap();
    assert_eq!(somewhere[0], NOT_CODE);
    for name in &somewhere[1..] {
        assert!(name.contains("a_function_that_is_looked_for"), "{name}");
    }
}

#[test]
fn a_process_that_is_gone_is_an_error() {
    assert!(Names::default().of_process(&Roots::default(), u32::MAX, &[16]).is_err());
}

#[test]
fn names_are_bounded_and_separate_nothing() {
    assert_eq!(fit("a;b"), "a:b");
    let long = fit(&"ü".repeat(MOST_NAME_BYTES));
    assert!(long.len() <= MOST_NAME_BYTES + "…".len() && long.ends_with('…'), "{long}");
    assert_eq!(of_file(b"/usr/lib/lib;x.so (deleted)"), "[lib:x.so]");
    assert_eq!(
        [of_file(b"[vdso]"), of_file(b""), of_file(b"/")],
        ["[vdso]", "[anonymous]", "[anonymous]"]
    );
}
