// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SIGINT, SIGTERM and SIGHUP: the first one ends the observation in an orderly way, the second one terminates the
//! program.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signals that have arrived.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
    called_off: Arc<AtomicBool>,
}

/// Makes a write beyond the limit on the size of files fail, instead of killing the program. A command that is started
/// later has the default again.
pub(crate) fn let_long_files_fail() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

impl Signals {
    /// Installs the handlers. From then on the first of these signals only sets a flag; the second one terminates
    /// the program with exit status 128 + its number.
    pub(crate) fn install() -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let signals = Self {
            interrupt: Arc::default(),
            terminate: Arc::default(),
            hang_up: Arc::default(),
            called_off: Arc::default(),
        };
        for (signal, arrived) in [
            (SIGINT, &signals.interrupt),
            (SIGTERM, &signals.terminate),
            (SIGHUP, &signals.hang_up),
        ] {
            // `nohup` and shells ignore signals for programs that are to go on.
            if deburr_sys::signal::is_ignored(signal)? {
                continue;
            }
            // Handlers run in the order of registration: the shutdown handler checks the flag before it is set.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(arrived))?;
        }
        Ok(signals)
    }

    /// A switch with which another thread of this program requests the end, as a signal does.
    pub(crate) fn off_switch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.called_off)
    }

    /// What has requested the end, if anything: SIGINT takes precedence, then SIGTERM.
    pub(crate) fn pending(&self) -> Option<&'static str> {
        if self.interrupt.load(Ordering::Relaxed) {
            Some("SIGINT")
        } else if self.terminate.load(Ordering::Relaxed) {
            Some("SIGTERM")
        } else if self.hang_up.load(Ordering::Relaxed) {
            Some("SIGHUP")
        } else if self.called_off.load(Ordering::Relaxed) {
            Some("a guard")
        } else {
            None
        }
    }
}
