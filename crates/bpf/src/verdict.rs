// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why the kernel rejected a program: the decisive line of the verifier's log, out
//! of the hundreds that libbpf would print.

use libbpf_rs::PrintLevel;
use std::cell::Cell;

thread_local! {
    /// Of what this thread loads: libbpf prints in the thread that calls it.
    static LAST: Cell<Option<String>> = const { Cell::new(None) };
}

/// Intercepts libbpf's messages, which would go to stderr, and keeps the verifier's last verdict.
pub(crate) fn listen() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
        if let Some(verdict) = verdict(&message) {
            LAST.set(Some(verdict));
        }
    })));
}

/// The last verdict on what this thread loaded since its previous call, as `: program: verdict`; empty if there was none.
pub(crate) fn suffix() -> String {
    LAST.take().map_or_else(String::new, |verdict| format!(": {verdict}"))
}

/// The program that was rejected, and the last line of the verifier's log, except for its statistics.
fn verdict(message: &str) -> Option<String> {
    let (_, named) = message.split_once("prog '")?;
    let (program, message) = named.split_once('\'')?;
    let Some((_, log)) = message.split_once("-- BEGIN PROG LOAD LOG --\n") else {
        // libbpf's first message about it; the log follows, if there is one.
        return message.contains("BPF program load failed").then(|| program.to_owned());
    };
    let (log, _) = log.split_once("-- END PROG LOAD LOG --").unwrap_or((log, ""));
    let mut lines = log.lines().rev().map(str::trim);
    let last = lines.find(|line| !line.is_empty() && !line.starts_with("processed "))?;
    Some(format!("{program}: {last}"))
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
        assert_eq!(verdict(message).unwrap(), "on_switch_3: back-edge from insn 1650 to 1651");
    }

    #[test]
    fn a_program_that_is_rejected_without_a_log_is_named() {
        let message = "libbpf: prog 'on_task': BPF program load failed: Operation not permitted\n";
        assert_eq!(verdict(message).unwrap(), "on_task");
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
