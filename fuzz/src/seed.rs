// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the rows of a recording as an input of the target `rows`.
//!
//!     seed RECORDING OUTPUT

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [recording, output] = &*arguments else {
        eprintln!("seed: error: give a recording and an output");
        return ExitCode::from(2);
    };
    let seed = deburr_fuzz::rows_of_recording(Path::new(recording));
    match seed.and_then(|seed| std::fs::write(output, seed).map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seed: error: {recording}: {error}");
            ExitCode::FAILURE
        }
    }
}
