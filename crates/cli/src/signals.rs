// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SIGINT and SIGTERM: the first one ends the observation in good order, the second one ends the program.

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
    /// Installs the handlers. From now on the signals end nothing by themselves, unless they come twice.
    pub(crate) fn install() -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let signals = Self { interrupt: Arc::default(), terminate: Arc::default() };
        for (signal, arrived) in [(SIGINT, &signals.interrupt), (SIGTERM, &signals.terminate)] {
            // Handlers run in the order of registration: the exit looks at the flag before it is set.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(arrived))?;
        }
        // A limit on file sizes becomes a failed write instead of a death.
        flag::register(SIGXFSZ, Arc::default())?;
        Ok(signals)
    }

    /// Name of a signal that asks for the end.
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
