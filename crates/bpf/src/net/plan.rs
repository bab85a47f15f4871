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

/// The fields that the state of connections needs, besides.
pub(crate) const OF_SENDING: &[Fields] = &[
    (
        "tcp_sock",
        &[
            "chrono_type",
            "chrono_start",
            "chrono_stat",
            "snd_wnd",
            "write_seq",
            "snd_nxt",
            "srtt_us",
        ],
    ),
    ("sock", &["sk_protocol", "sk_sndbuf"]),
    ("file", &["private_data", "f_inode"]),
    ("inode", &["i_mode"]),
    ("socket", &["sk"]),
    // An iteration can be that over one process.
    ("bpf_iter_aux_info", &["task"]),
];

/// The fields that it takes to see what waits to be read, besides those.
pub(crate) const OF_UNREAD: &[Fields] = &[
    ("tcp_sock", &["rcv_nxt", "copied_seq", "rcv_wnd", "rcv_wup", "bytes_received"]),
    (
        "tcp_sock",
        &[
            "nonagle",
            "snd_una",
            "snd_sml",
            "packets_out",
            "lost_out",
            "retrans_out",
            "snd_cwnd",
            "mss_cache",
            "lsndtime",
        ],
    ),
    ("inet_connection_sock", &["icsk_ack", "icsk_accept_queue"]),
    ("request_sock_queue", &["rskq_accept_head"]),
    ("request_sock", &["dl_next", "sk"]),
    ("sock", &["sk_ack_backlog"]),
    ("socket", &["wq"]),
    ("socket_wq", &["wait"]),
    ("wait_queue_head", &["head"]),
    ("wait_queue_entry", &["private", "entry"]),
    ("eppoll_entry", &["base", "wait", "whead"]),
    ("epitem", &["rdllink", "ffd", "ep", "event"]),
    ("eventpoll", &["wq"]),
    ("task_struct", &["on_cpu", "group_leader"]),
];

/// The function that exists where `iter/task_file` programs can be attached.
pub(crate) const FILE_ITERATOR: &str = "bpf_iter_task_file";

/// The program that runs over the files of a process.
pub(super) const ON_FILE: &str = "on_file";
/// The one that runs over them for what waits to be read.
pub(super) const ON_UNREAD: &str = "on_unread";
/// The one that runs over those of all processes for the other ends of connections.
pub(super) const ON_OTHER_END: &str = "on_other_end";

/// What to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetPlan {
    /// Number of arguments of `tcp_retransmit_skb`. With 3, the kernel also tells of segments that were dropped on this
    /// host.
    pub arguments: u32,
    /// Why it cannot be told by what connections are held up that have something to send, as a clause.
    pub no_sending: Option<String>,
    /// Why it cannot be told what waits to be read, as a clause.
    pub no_unread: Option<String>,
}

impl NetPlan {
    /// Decides what to load.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new(facts: &Facts) -> Result<Self, String> {
        match (facts.obstacle(NEEDED, &HOOKS), facts.arguments(HOOK)) {
            (Some(obstacle), _) => Err(obstacle),
            (None, arguments) => {
                let no_iterator = || "this kernel has no iterator over files".to_owned();
                let no_sending = facts
                    .obstacle(OF_SENDING, &[])
                    .or_else(|| (!facts.has_function(FILE_ITERATOR)).then(no_iterator));
                let no_unread = no_sending.clone().or_else(|| facts.obstacle(OF_UNREAD, &[]));
                Ok(Self { arguments: arguments.unwrap_or(2), no_sending, no_unread })
            }
        }
    }

    /// The program that is loaded and attached.
    pub(super) fn program(&self) -> &'static str {
        if self.arguments == 3 { "on_resent_3" } else { "on_resent_2" }
    }

    /// All programs that are loaded. Those over files are for the processes of a target only.
    pub(super) fn programs(&self, has_target: bool) -> Vec<&'static str> {
        let on_file = (has_target && self.no_sending.is_none()).then_some([ON_FILE, ON_OTHER_END]);
        let on_unread = (has_target && self.no_unread.is_none()).then_some(ON_UNREAD);
        [self.program()].into_iter().chain(on_file.into_iter().flatten()).chain(on_unread).collect()
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

    #[test]
    fn the_state_of_connections_needs_an_iteration_over_one_process() {
        let mut facts = kernel_with(&[(HOOK, 3)]);
        let why = |facts: &Facts| NetPlan::new(facts).unwrap().no_sending;
        assert!(why(&facts).unwrap().contains("iterator"));
        facts.functions.insert(FILE_ITERATOR);
        assert_eq!(why(&facts), None);
        let programs = |facts: &Facts, has| NetPlan::new(facts).unwrap().programs(has);
        assert_eq!(programs(&facts, true), ["on_resent_3", ON_FILE, ON_OTHER_END, ON_UNREAD]);
        assert_eq!(programs(&facts, false), ["on_resent_3"]);
        facts.fields.remove(&("eppoll_entry", "whead"));
        assert_eq!(programs(&facts, true), ["on_resent_3", ON_FILE, ON_OTHER_END]);
        facts.fields.remove(&("bpf_iter_aux_info", "task"));
        assert_eq!(why(&facts).unwrap(), "this kernel lacks bpf_iter_aux_info.task");
        assert_eq!(programs(&facts, true), ["on_resent_3"]);
    }
}
