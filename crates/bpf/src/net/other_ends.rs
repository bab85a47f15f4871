// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks the program over all files who has the other ends of connections open.

use super::{Ends, plan};
use crate::mapped::{Plain, from_bytes};
use crate::object::LoadedObject;
use crate::skel::net::NetSkel;
use crate::skel::net::types::{net_holder, net_pair};
use libbpf_rs::{MapCore as _, MapFlags};
use std::net::{IpAddr, SocketAddr};

// SAFETY: generated from a C struct of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for net_holder {}

/// Connections that can be asked for at once: the room of the map.
pub const MOST_ASKED: usize = 64;

pub(super) fn find(
    object: &LoadedObject<NetSkel<'static>>,
    of: &[Ends],
) -> Result<Vec<Option<u32>>, String> {
    let asked = &object.skel.maps.asked;
    let failed = |error: libbpf_rs::Error| format!("the map of connections: {error}");
    let asks = |it: &Ends| seen_from_there(it).map(|pair| key(&pair));
    let keys: Vec<Option<Vec<u8>>> = of.iter().take(MOST_ASKED).map(asks).collect();
    let nobody = [0; size_of::<net_holder>()];
    let mut fill = keys.iter().flatten().map(|key| asked.update(key, &nobody, MapFlags::ANY));
    let filled = fill.try_for_each(|result| result.map_err(failed));
    let looked = filled.and_then(|()| object.iterate_process(plan::ON_OTHER_END, 0));
    let mut found = Vec::new();
    for key in &keys {
        let holder = key.as_ref().and_then(|key| asked.lookup(key, MapFlags::ANY).ok()?);
        let holder = holder.as_deref().and_then(from_bytes);
        found.push(holder.and_then(|it: net_holder| holder_of(&it)));
    }
    // Two connections with the same ends have one entry, which is gone after the first.
    for key in keys.iter().flatten() {
        let _ = asked.delete(key);
    }
    found.resize(of.len(), None);
    looked.map(|_| found)
}

fn holder_of(it: &net_holder) -> Option<u32> {
    (it.tgid != 0 && it.several == 0).then_some(it.tgid)
}

/// The addresses of a connection as its other end has them; `None` if they do not identify it.
fn seen_from_there(of: &Ends) -> Option<net_pair> {
    let netns = match of.remote.ip().to_canonical().is_loopback() {
        true => of.netns?,
        false => 0,
    };
    Some(net_pair {
        local: words(of.remote),
        remote: words(of.local),
        netns,
        local_port: of.remote.port(),
        remote_port: of.local.port(),
    })
}

/// The bytes of the C struct, which has no padding.
fn key(it: &net_pair) -> Vec<u8> {
    let words = it.local.iter().chain(&it.remote).chain([&it.netns]);
    let ports = [it.local_port, it.remote_port].into_iter().flat_map(u16::to_ne_bytes);
    words.flat_map(|word| word.to_ne_bytes()).chain(ports).collect()
}

fn words(of: SocketAddr) -> [u32; 4] {
    let address = match of.ip() {
        IpAddr::V4(it) => it.to_ipv6_mapped(),
        IpAddr::V6(it) => it,
    };
    let bytes = address.octets();
    std::array::from_fn(|at| {
        let word = [bytes[at * 4], bytes[at * 4 + 1], bytes[at * 4 + 2], bytes[at * 4 + 3]];
        u32::from_ne_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(local: &str, remote: &str, netns: Option<u32>) -> Ends {
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        Ends { sock: 1, inode: None, netns, local, remote }
    }

    #[test]
    fn the_other_end_has_the_addresses_the_other_way_round() {
        let it = seen_from_there(&ends("10.0.0.1:80", "10.0.0.2:4000", Some(7))).unwrap();
        assert_eq!((it.local_port, it.remote_port, it.netns), (4000, 80, 0));
        assert_eq!(key(&it).len(), size_of::<net_pair>());
        let word = |bytes| u32::from_ne_bytes(bytes);
        assert_eq!(it.local, [0, 0, word([0, 0, 255, 255]), word([10, 0, 0, 2])]);
        let mapped = seen_from_there(&ends("[::ffff:10.0.0.1]:80", "10.0.0.2:4000", None)).unwrap();
        assert_eq!(mapped.remote, it.remote, "a socket of IPv6 may have an address of IPv4");
    }

    #[test]
    fn loopback_addresses_are_of_a_namespace() {
        for (local, remote) in [("127.0.0.1:1", "127.0.0.2:2"), ("[::1]:1", "[::1]:2")] {
            let it = seen_from_there(&ends(local, remote, Some(7))).unwrap();
            assert_eq!(it.netns, 7);
            assert!(seen_from_there(&ends(local, remote, None)).is_none());
        }
    }

    #[test]
    fn what_several_have_open_is_nobodys() {
        let holder = |tgid, several| holder_of(&net_holder { tgid, several });
        assert_eq!((holder(0, 0), holder(7, 0), holder(7, 1)), (None, Some(7), None));
    }
}
