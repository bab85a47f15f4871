// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes what inputs are made from, and only deburr can make.
//!
//!     seed rows RECORDING OUTPUT        the rows of a recording, an input of the target `rows`
//!     seed compare A B OUTPUT           what two recordings differ in, as JSON
//!     seed diff A B OUTPUT           what two snapshots differ in, as JSON
//!     seed read TEXT OUTPUT             what was read of the output of another tool, as JSON

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (seed, output) = match *arguments {
        ["rows", recording, output] => {
            (deburr_fuzz::rows_of_recording(Path::new(recording)), output)
        }
        ["compare", a, b, output] => {
            let json = deburr_fuzz::comparison([a, b].map(Path::new));
            (json.map(String::into_bytes), output)
        }
        ["diff", a, b, output] => {
            let json = deburr_fuzz::host_diff([a, b].map(Path::new));
            (json.map(String::into_bytes), output)
        }
        ["read", text, output] => {
            (deburr_fuzz::transcript(Path::new(text)).map(String::into_bytes), output)
        }
        _ => {
            eprintln!(
                "seed: error: give `rows`, `compare`, `diff` or `read`, what it is made from, and an output"
            );
            return ExitCode::from(2);
        }
    };
    match seed.and_then(|seed| std::fs::write(output, seed).map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seed: error: {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}
