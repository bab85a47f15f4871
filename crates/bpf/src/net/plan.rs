// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from the facts which program of the network probe is loaded, or why none can be. Pure.

use crate::facts::{Facts, Fields, Hook};

const HOOK: &str = "tcp_retransmit_skb";
const HOOKS: [Hook; 1] = [(HOOK, &[2, 3])];

/// The fields that the probe reads. Those of addresses are in anonymous unions, which are not looked through: every
/// kernel with the others has them.
pub(crate) const NEEDED: &[Fields] = &[
    ("sock", &["__sk_common", "sk_socket"]),
    ("inet_connection_sock", &["icsk_rto", "icsk_retransmits", "icsk_pending"]),
    ("tcp_sock", &["data_segs_out", "snd_nxt", "srtt_us", "total_retrans"]),
    ("sk_buff", &["cb"]),
    ("tcp_skb_cb", &["seq"]),
    ("socket_alloc", &["vfs_inode"]),
    ("inode", &["i_ino"]),
];

/// What to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetPlan {
    /// Number of arguments of `tcp_retransmit_skb`. With 3, the kernel also tells of segments that were dropped on this
    /// host.
    pub arguments: u32,
}

impl NetPlan {
    /// Decides what to load.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new(facts: &Facts) -> Result<Self, String> {
        match (facts.obstacle(NEEDED, &HOOKS), facts.arguments(HOOK)) {
            (Some(obstacle), _) => Err(obstacle),
            (None, arguments) => Ok(Self { arguments: arguments.unwrap_or(2) }),
        }
    }

    /// The program that is loaded and attached.
    pub(super) fn program(&self) -> &'static str {
        if self.arguments == 3 { "on_resent_3" } else { "on_resent_2" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::kernel_with;

    #[test]
    fn the_program_is_that_of_the_hook() {
        let program = |count| {
            let plan = NetPlan::new(&kernel_with(&[(HOOK, count)]));
            plan.map(|plan| plan.program())
        };
        assert_eq!(program(2), Ok("on_resent_2"));
        assert_eq!(program(3), Ok("on_resent_3"));
        assert!(program(4).unwrap_err().contains("4 arguments"));
        assert!(NetPlan::new(&kernel_with(&[])).unwrap_err().contains(HOOK));
    }
}
