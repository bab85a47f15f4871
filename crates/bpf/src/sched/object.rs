// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On which file or socket a thread sleeps.

use super::sleep::Context;
use crate::skel::sched::types::{sched_sleep, sleep_conversation};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The file that the first argument of a call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// No file, or none that could be read.
    None,
    /// A file, directory, pipe or device: `st_mode`, and what identifies it.
    File {
        /// Type and permissions, as in `st_mode`.
        mode: u16,
        /// `s_dev` of its filesystem; of a character device, its own number.
        device: u32,
        /// Inode number.
        inode: u64,
        /// A process serves its filesystem (FUSE).
        served: bool,
    },
    /// A file without a type: the first eight letters of its name, as `[eventpo`.
    Anonymous([u8; 8]),
    /// A socket of the internet.
    Inet(Inet),
    /// A unix socket.
    Unix {
        /// The process at the other end; 0 = not known.
        peer: u32,
        /// It was bound to an address, or accepted from a listener that was.
        has_address: bool,
        /// It is the one that is ready of several that the call waits for.
        ready: bool,
    },
    /// A socket of another family.
    Socket {
        /// `AF_...`
        family: u16,
    },
    /// Transfers that the thread itself has asked disks for, of which one is complete. The probe does not say so; whoever knows
    /// who asks for transfers may.
    Transfers,
}

/// A socket of the internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inet {
    /// `SOCK_STREAM` (1), `SOCK_DGRAM` (2), ...
    pub kind: u16,
    /// State of a TCP socket, as in `include/net/tcp_states.h`.
    pub state: u8,
    /// Own port.
    pub local_port: u16,
    /// Address of the other end; unspecified if it is not connected.
    pub remote: IpAddr,
    /// Port of the other end.
    pub remote_port: u16,
    /// Its process has sent something since the last sleep on this socket that was told, or it has sent something and
    /// read nothing yet. `None` = neither, and no such sleep was told; of datagrams, neither.
    pub asked: Option<bool>,
    /// Its process has chosen its own port: of datagrams.
    pub bound: bool,
    /// It is the one that is ready of several that the call waits for.
    pub ready: bool,
}

const S_IFMT: u16 = 0o170_000;
const S_IFSOCK: u16 = 0o140_000;

fn is_conversation(it: &sched_sleep, one: sleep_conversation) -> bool {
    u32::from(it.mark) == one.0
}

impl Object {
    /// That of a sleep. Whether its process has asked is not in it.
    pub(super) fn of(it: &sched_sleep) -> Self {
        let ready = it.ready != 0;
        match (it.mode & S_IFMT, i32::from(it.family)) {
            (S_IFSOCK, libc::AF_INET | libc::AF_INET6) => Self::Inet(Inet {
                kind: it.socket_type,
                state: it.socket_state,
                local_port: it.local_port,
                remote: remote_of(it),
                remote_port: it.remote_port,
                asked: None,
                bound: is_conversation(it, sleep_conversation::CONVERSATION_BOUND),
                ready,
            }),
            (S_IFSOCK, libc::AF_UNIX) => {
                Self::Unix { peer: it.peer, has_address: it.mark != 0, ready }
            }
            (S_IFSOCK, _) => Self::Socket { family: it.family },
            _ if it.kind[0] != 0 => Self::Anonymous(it.kind),
            (0, _) => Self::None,
            _ => {
                let served = it.mark != 0;
                Self::File { mode: it.mode, device: it.device, inode: it.inode, served }
            }
        }
    }
}

/// Whether its process has sent something on a socket, and has received nothing yet; or has waited until it was connected, which
/// ended the sleep if no time was up.
pub(super) fn asks_first(it: &sched_sleep, context: Context) -> bool {
    let is = |one| it.family != 0 && is_conversation(it, one);
    let came = matches!(context, Context::Network | Context::Sent);
    is(sleep_conversation::CONVERSATION_ASKED)
        || came && is(sleep_conversation::CONVERSATION_SILENT)
}

fn remote_of(it: &sched_sleep) -> IpAddr {
    let bytes = it.remote.map(u32::to_ne_bytes);
    if i32::from(it.family) == libc::AF_INET {
        return Ipv4Addr::from(bytes[0]).into();
    }
    let mut all = [0; 16];
    for (to, from) in all.chunks_exact_mut(4).zip(bytes) {
        to.copy_from_slice(&from);
    }
    Ipv6Addr::from(all).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_their_addresses() {
        let mut it = sched_sleep { mode: S_IFSOCK | 0o777, family: 2, ..sched_sleep::default() };
        it.remote[0] = u32::from_ne_bytes([10, 0, 0, 7]);
        it.remote_port = 5432;
        let Object::Inet(inet) = Object::of(&it) else { panic!("{:?}", Object::of(&it)) };
        assert_eq!((inet.remote, inet.remote_port), (Ipv4Addr::new(10, 0, 0, 7).into(), 5432));
        // An address of IPv4 in a socket of IPv6.
        it.family = 10;
        it.remote = [0, 0, 0xffff_u32.to_be(), u32::from_ne_bytes([10, 0, 0, 7])];
        let Object::Inet(inet) = Object::of(&it) else { panic!("{:?}", Object::of(&it)) };
        assert_eq!(inet.remote, IpAddr::from(Ipv4Addr::new(10, 0, 0, 7)));
        let anonymous = sched_sleep { kind: *b"[timerfd", ..sched_sleep::default() };
        assert_eq!(Object::of(&anonymous), Object::Anonymous(*b"[timerfd"));
    }
}
