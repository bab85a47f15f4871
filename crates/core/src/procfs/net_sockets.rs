// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines of `/proc/PID/net/udp`, `udp6`, `tcp` and `tcp6`: sockets, their addresses and what waits in them.

use super::{fields, lines, number};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Own address and port.
    pub local: SocketAddr,
    /// Address and port of the other end; `None` = not connected.
    pub remote: Option<SocketAddr>,
    /// TCP: it listens.
    pub listens: bool,
    /// Bytes that wait to be read; of a listening socket, connections that wait to be accepted.
    pub waiting: u64,
    /// Inode number of its file; 0 = it has none.
    pub inode: u64,
    /// Datagrams that it dropped since it was made; `None` = of TCP.
    pub drops: Option<u64>,
}

/// `TCP_LISTEN` in `include/net/tcp_states.h`.
const LISTENS: u8 = 10;

/// The sockets of a file, whose text may end anywhere. What is no socket is skipped.
pub fn sockets(text: &[u8]) -> impl Iterator<Item = Socket> {
    lines(text).skip(1).filter_map(|(_, line)| socket(line))
}

fn socket(line: &[u8]) -> Option<Socket> {
    let all: Vec<&[u8]> = fields(line).take(14).collect();
    let [_, local, remote, state, queues, _, _, _, _, inode, ..] = *all else { return None };
    let (_, waiting) = std::str::from_utf8(queues).ok()?.split_once(':')?;
    let remote = address(remote)?;
    let state = u8::from_str_radix(std::str::from_utf8(state).ok()?, 16).ok()?;
    Some(Socket {
        local: address(local)?,
        remote: (remote.port() != 0).then_some(remote),
        listens: state == LISTENS,
        waiting: u64::from_str_radix(waiting, 16).ok()?,
        inode: number(inode)?,
        // Lines of UDP have 13 fields, those of TCP 12 to 17, of which the 13th is a timeout.
        drops: (all.len() == 13).then(|| number(all[12])).flatten(),
    })
}

/// An address in words of 32 bits, each in the byte order of this host, and a port.
fn address(field: &[u8]) -> Option<SocketAddr> {
    let (words, port) = std::str::from_utf8(field).ok()?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = words.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let address = match words.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, to) in bytes.chunks_exact_mut(4).enumerate() {
                to.copy_from_slice(&word(at)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_of_udp_are_read() {
        let text = b"   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20
  314: 0100007F:B3D2 00000000:0000 07 00000000:00034E00 00:00000000 00000000     0        0 17431 2 0000000000000000 8067\x20\x20\x20\x20\x20\x20\x20
  315: 0100007F:B3D3 0200000A:0035 01 00000000:00000000 00:00000000 00000000   101        0 17432 2 0000000000000000 0
 cut off: 0100";
        let all: Vec<Socket> = sockets(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].local.to_string(), "127.0.0.1:46034");
        assert_eq!((all[0].waiting, all[0].drops, all[0].inode), (0x34e00, Some(8067), 17431));
        assert_eq!(all[0].remote, None);
        assert_eq!(all[1].remote.unwrap().to_string(), "10.0.0.2:53");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_of_tcp_are_read() {
        let text = b"  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000000000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 99 1 0000000000000000 100 0 0 10 0
";
        let all: Vec<Socket> = sockets(text).collect();
        assert_eq!((all[0].listens, all[0].waiting, all[0].inode), (true, 3, 99));
        assert_eq!((all[0].local.to_string().as_str(), all[0].drops), ("127.0.0.1:8080", None));
    }

    #[test]
    fn what_is_no_socket_is_skipped() {
        let text = b"head\n 0: nothing x 0A\n 1: 0100007F:B3D2 00000000:0000 07 zz 0 0 0 0 7\n";
        assert_eq!(sockets(text).count(), 0);
    }
}
