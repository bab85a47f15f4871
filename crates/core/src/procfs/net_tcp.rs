// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/PID/net/tcp` and `tcp6`: the ports on which processes of a network namespace listen.

use super::{fields, lines};
use std::collections::BTreeSet;

/// `TCP_LISTEN` in `include/net/tcp_states.h`, as the file has it.
const LISTENS: &[u8] = b"0A";

/// The ports of listening sockets. The kernel lists these first: what follows the first socket in another state is not
/// read, and `text` may end anywhere.
#[must_use]
pub fn listening(text: &[u8]) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    for (_, bytes) in lines(text).skip(1) {
        let mut fields = fields(bytes).skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        if state != Some(LISTENS) {
            break;
        }
        let port = local.and_then(|local| local.rsplit(|&byte| byte == b':').next());
        let port = port.and_then(|port| std::str::from_utf8(port).ok());
        ports.extend(port.and_then(|port| u16::from_str_radix(port, 16).ok()));
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::listening;

    #[test]
    fn listening_sockets_come_first() {
        let text = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1
   1: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 18
   2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 19 1
   3: 0100007F:0001 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1
";
        assert_eq!(listening(text), [22, 8080].into());
        assert_eq!(listening(b""), [].into());
        assert_eq!(listening(b"head\n 0: nothing x 0A\n"), [].into());
    }
}
