// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/PID/net/netstat` and `snmp`: counters of a network namespace. A line with names is followed by one with values.

use super::{fields, lines, number};

/// The value of a counter; `None` = there is none of that name. `group` is the word with which both lines begin, as
/// `TcpExt:`.
#[must_use]
pub fn counter(text: &[u8], group: &str, name: &str) -> Option<u64> {
    let mut of_group = lines(text)
        .map(|(_, line)| line)
        .filter(|line| fields(line).next() == Some(group.as_bytes()));
    let (names, values) = (of_group.next()?, of_group.next()?);
    let at = fields(names).position(|field| field == name.as_bytes())?;
    number(fields(values).nth(at)?)
}

#[cfg(test)]
mod tests {
    use super::counter;

    #[test]
    fn values_are_found_by_their_names() {
        let text = b"TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 22 23\nIpExt: A\nIpExt: 9\n";
        assert_eq!(counter(text, "TcpExt:", "ListenOverflows"), Some(22));
        assert_eq!(counter(text, "IpExt:", "A"), Some(9));
        assert_eq!(counter(text, "TcpExt:", "A"), None);
        assert_eq!(counter(b"TcpExt: ListenDrops\n", "TcpExt:", "ListenDrops"), None);
        // Some counters of other groups are negative.
        assert_eq!(counter(b"Tcp: MaxConn\nTcp: -1\n", "Tcp:", "MaxConn"), None);
    }
}
