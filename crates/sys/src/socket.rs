// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel tells of a socket: options that have no safe wrapper elsewhere.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Indices into the answer of `SO_MEMINFO`, `include/uapi/linux/sock_diag.h`.
const RMEM_ALLOC: usize = 0;
const RCVBUF: usize = 1;
const DROPS: usize = 8;
const MEMINFO_VARS: usize = 9;

/// Memory of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that wait to be read, with their overhead.
    pub received_bytes: u32,
    /// Size of the receive buffer, for them and their overhead.
    pub receive_buffer_bytes: u32,
    /// What the socket has dropped since it was made: of UDP datagrams, of a listening socket requests for connections.
    pub drops: u32,
}

/// Memory of a socket. It takes no lock that a user of the socket could hold.
///
/// # Errors
/// What the kernel answers, as for something that is no socket.
pub fn memory(socket: BorrowedFd<'_>) -> io::Result<Memory> {
    let mut vars = [0u32; MEMINFO_VARS];
    get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut vars)?;
    Ok(Memory {
        received_bytes: vars[RMEM_ALLOC],
        receive_buffer_bytes: vars[RCVBUF],
        drops: vars[DROPS],
    })
}

/// Of a listening TCP socket, how many connections wait to be accepted, and how many may; `None` = it does not listen.
///
/// # Errors
/// What the kernel answers.
pub fn accept_queue(socket: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    let mut listens = [0u32; 1];
    get(socket, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, &mut listens)?;
    // Of others, the kernel's answer would wait for their lock.
    if listens[0] == 0 {
        return Ok(None);
    }
    let info = tcp_info(socket)?;
    Ok(Some((info.unacked, info.sacked)))
}

/// Counters of a TCP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Segments that are not confirmed; of a listening socket, connections that wait to be accepted.
    pub unacked: u32,
    /// Segments that were confirmed out of order; of a listening socket, how many connections may wait.
    pub sacked: u32,
    /// Segments that were sent again since the connection began.
    pub total_retrans: u32,
}

/// Counters of a TCP socket.
///
/// # Errors
/// What the kernel answers.
pub fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    /// Of `struct tcp_info`: 8 bytes, then 32-bit numbers, of which these are the fifth, the sixth and the 24th.
    const WORDS: usize = 26;
    let mut words = [0u32; WORDS];
    get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut words)?;
    Ok(TcpInfo { unacked: words[6], sacked: words[7], total_retrans: words[25] })
}

/// Reads an option that consists of 32-bit numbers. What the kernel does not know stays 0.
fn get(socket: BorrowedFd<'_>, level: i32, option: i32, words: &mut [u32]) -> io::Result<()> {
    let mut bytes = libc::socklen_t::try_from(size_of_val(words)).map_err(io::Error::other)?;
    // SAFETY: the kernel writes at most `bytes` bytes, which is the size of what is pointed to.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            words.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd as _;

    #[test]
    fn a_full_receive_buffer_drops_and_counts() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let empty = memory(receiver.as_fd()).unwrap();
        assert_eq!((empty.received_bytes, empty.drops), (0, 0));
        let mut sent = 0;
        while memory(receiver.as_fd()).unwrap().drops < 10 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
            sent += 1;
        }
        let full = memory(receiver.as_fd()).unwrap();
        assert!(full.received_bytes > full.receive_buffer_bytes / 2, "{full:?}");
        receiver.set_nonblocking(true).unwrap();
        let received = (0..sent).take_while(|_| receiver.recv(&mut [0; 2000]).is_ok()).count();
        assert_eq!(received + 10, sent);
    }

    #[test]
    fn the_queue_of_a_listener_and_its_limit_are_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (_, limit) = accept_queue(listener.as_fd()).unwrap().unwrap();
        assert!(limit > 0);
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(accept_queue(listener.as_fd()).unwrap(), Some((1, limit)));
        assert_eq!(accept_queue(client.as_fd()).unwrap(), None);
        assert_eq!(tcp_info(client.as_fd()).unwrap().total_retrans, 0);
    }
}
