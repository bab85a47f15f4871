// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The judge of the soak's beats is right about recordings made by hand. The soak itself takes hours.

use crate::common::skip;
use crate::repo::root;
use std::process::Command;

/// What the judge says wrong of the recordings made by hand, after `change`.
fn wrong(change: &str) -> Option<String> {
    let program =
        format!("import made_up\n{change}\nfor sentence in made_up.wrong(): print(sentence)");
    let mut python = Command::new("python3");
    python.args(["-B", "-c", &program]).current_dir(root().join("tests/soak"));
    let done = python.output().ok()?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(String::from_utf8(done.stdout).unwrap())
}

#[test]
fn the_judge_of_the_soak_is_right() {
    let Some(said) = wrong("") else {
        return skip("program", "the_judge_of_the_soak_is_right", "python3 is not here");
    };
    assert_eq!(said, "");
    // Of the second one, a stop of 27 beats, no beat is counted now.
    let uncounted = wrong("case = list(made_up.CASES[1]); case[3] = 0; made_up.CASES[1] = case");
    assert!(uncounted.unwrap().starts_with("a stop between two beats:"));
}
