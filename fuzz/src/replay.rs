// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the kept inputs through the targets, and inputs that are made from them by chance, always the same ones. Unlike
//! libFuzzer it does not learn; it needs neither a compiler of C++ nor other flags.
//!
//!     replay CORPUS INPUTS

use deburr_fuzz::{TARGETS, Target};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// No input of that length takes as long, on any machine.
const TOO_LONG: Duration = Duration::from_secs(10);
/// Bytes with which parsers begin or end something.
const TELLING: &[u8] = b"\0\x01\x7f\x80\xff \n\t-,:/\\\"'{}[]()09";

/// Pseudo-random numbers (xorshift, Marsaglia 2003).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Changes bytes in a few places, cuts parts out, repeats them, or puts in parts of another input.
    fn changed(&mut self, input: &[u8], other: &[u8], longest: usize) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(32)).min(bytes.len());
            match self.below(6) {
                _ if bytes.is_empty() => bytes.extend(&other[..other.len().min(64)]),
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = TELLING[self.below(TELLING.len())],
                2 => drop(bytes.drain(at..end)),
                3 => {
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                4 => {
                    let from = self.below(other.len());
                    let to = (from + 1 + self.below(64)).min(other.len());
                    bytes.splice(at..at, other[from..to].iter().copied());
                }
                _ => bytes[at..end].fill(0xff),
            }
        }
        bytes.truncate(longest);
        bytes
    }
}

/// Runs one input; `false` = it is refused. The error says what it did.
fn run(target: &Target, input: &[u8]) -> Result<bool, String> {
    let begun = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| target.run(input)));
    match ended {
        Err(_) => Err("it panicked".into()),
        Ok(_) if begun.elapsed() > TOO_LONG => Err(format!("it took {:?}", begun.elapsed())),
        Ok(is_read) => Ok(is_read),
    }
}

fn inputs(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?))).collect()
}

/// Runs the kept inputs of a target, of which some must be accepted, and as many made from them. The error says which of
/// them it was.
fn replay(target: &Target, corpus: &Path, count: usize) -> Result<String, String> {
    let kept = inputs(&corpus.join(target.name));
    if kept.is_empty() {
        return Err("it has no kept inputs".into());
    }
    let mut accepted = 0;
    for (path, input) in &kept {
        let is_read = run(target, input).map_err(|what| format!("{}: {what}", path.display()))?;
        accepted += usize::from(is_read);
    }
    // Otherwise what follows the first checks is not tried at all.
    if accepted == 0 {
        return Err(format!("all of its {} kept inputs are refused", kept.len()));
    }
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for made in 0..count {
        let [from, other] = [(); 2].map(|()| &kept[chance.below(kept.len())].1);
        let input = chance.changed(from, other, target.longest);
        let _ = run(target, &input).map_err(|what| {
            let place = std::env::temp_dir().join(format!("deburr-fuzz-{}", target.name));
            let kept = std::fs::write(&place, &input).map(|()| place.display().to_string());
            format!("input {made}, kept as {}: {what}", kept.unwrap_or_default())
        })?;
    }
    Ok(format!("{} kept inputs, of which {accepted} are accepted, and {count} made", kept.len()))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [corpus, count] = &*arguments else {
        eprintln!("replay: error: give the corpus and a number of inputs");
        return ExitCode::from(2);
    };
    let Ok(count) = count.parse() else {
        eprintln!("replay: error: `{count}` is no number");
        return ExitCode::from(2);
    };
    let mut failed = 0;
    for target in TARGETS {
        let begun = Instant::now();
        match replay(target, Path::new(corpus), count) {
            Ok(inputs) => println!("    {inputs}, in {:.1} s", begun.elapsed().as_secs_f64()),
            Err(what) => {
                println!("    {what}");
                println!("test {} ... FAILED", target.name);
                failed += 1;
                continue;
            }
        }
        println!("test {} ... ok", target.name);
    }
    println!("test result: {} passed; {failed} failed; 0 ignored", TARGETS.len() - failed);
    ExitCode::from(u8::from(failed > 0))
}
