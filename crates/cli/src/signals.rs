// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SIGINT and SIGTERM: the first one ends the observation in an orderly way, the second one terminates the program.

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signals that have arrived.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
}

impl Signals {
    /// Installs the handlers. From then on the first of these signals only sets a flag; the second one terminates
    /// the program with exit status 128 + its number.
    pub(crate) fn install() -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let signals = Self { interrupt: Arc::default(), terminate: Arc::default() };
        for (signal, arrived) in [(SIGINT, &signals.interrupt), (SIGTERM, &signals.terminate)] {
            // Handlers run in the order of registration: the shutdown handler checks the flag before it is set.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(arrived))?;
        }
        // With SIGXFSZ caught, exceeding the file size limit makes a write fail instead of killing the program.
        flag::register(SIGXFSZ, Arc::default())?;
        Ok(signals)
    }

    /// Name of the signal that has requested the end, if any; SIGINT takes precedence.
    pub(crate) fn pending(&self) -> Option<&'static str> {
        if self.interrupt.load(Ordering::Relaxed) {
            Some("SIGINT")
        } else if self.terminate.load(Ordering::Relaxed) {
            Some("SIGTERM")
        } else {
            None
        }
    }
}
