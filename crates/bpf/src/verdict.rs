// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why the kernel rejected a program: the decisive line of the verifier's log, out
//! of the hundreds that libbpf would print.

use libbpf_rs::PrintLevel;
use std::sync::{Mutex, PoisonError};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Intercepts libbpf's messages, which would go to stderr, and keeps the verifier's last verdict.
pub(crate) fn listen() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
        if let Some(verdict) = verdict(&message) {
            *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict.to_owned());
        }
    })));
}

/// The last verdict since the previous call, as `: verdict`; empty if there was none.
pub(crate) fn suffix() -> String {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    last.map_or_else(String::new, |verdict| format!(": {verdict}"))
}

/// The last line of a verifier's log, except for its statistics.
fn verdict(message: &str) -> Option<&str> {
    let (_, log) = message.split_once("-- BEGIN PROG LOAD LOG --\n")?;
    let (log, _) = log.split_once("-- END PROG LOAD LOG --").unwrap_or((log, ""));
    log.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("processed "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_the_line_before_the_statistics() {
        let message = "libbpf: prog 'on_switch_3': -- BEGIN PROG LOAD LOG --\n\
                       1651: (79) r1 = *(u64 *)(r8 +0)\n\
                       back-edge from insn 1650 to 1651\n\
                       processed 0 insns (limit 1000000) max_states_per_insn 0\n\
                       -- END PROG LOAD LOG --\n";
        assert_eq!(verdict(message), Some("back-edge from insn 1650 to 1651"));
    }

    #[test]
    fn other_messages_hold_no_verdict() {
        for message in [
            "",
            "libbpf: failed to load object 'sched_bpf'\n",
            "libbpf: prog 'on_task': -- BEGIN PROG LOAD LOG --\n-- END PROG LOAD LOG --\n",
            "libbpf: prog 'on_task': -- BEGIN PROG LOAD LOG --\n",
        ] {
            assert_eq!(verdict(message), None, "{message}");
        }
    }
}
