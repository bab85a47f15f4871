// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses the address to drive: `http://127.0.0.1:8080/work`, `tcp://127.0.0.1:7`. Only loopback addresses are
//! accepted, unless remote ones are allowed: an open loop that is pointed at somebody else's service is an attack.

use super::load::Target;
use deburr_core::sweep::Workload;
use hyper::Uri;
use std::net::{SocketAddr, ToSocketAddrs as _};

const EXPECTED: &str = "give http://ADDRESS:PORT/PATH, or tcp://ADDRESS:PORT for a service that sends back what it gets";

/// A resolved address that may be driven.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// All addresses that the name resolves to, at least one.
    pub(crate) all: Vec<SocketAddr>,
    /// The first of them, with its protocol.
    pub(crate) target: Target,
    /// The target as the document records it.
    pub(crate) driven: Workload,
}

/// Parses and resolves an address. An error is a message for the user.
pub(crate) fn parse(text: &str, allow_remote: bool) -> Result<Address, String> {
    let uri: Uri =
        text.parse().map_err(|error| format!("`{text}` is no address: {error}; {EXPECTED}"))?;
    let is_http = match uri.scheme_str() {
        Some("http") => true,
        Some("tcp") => false,
        Some("https") => {
            return Err(format!(
                "`{text}`: TLS is not spoken here; drive the plain port behind it, so that it is the service \
                 that is measured"
            ));
        }
        _ => return Err(format!("`{text}` has no scheme; {EXPECTED}")),
    };
    let authority = uri.authority().ok_or_else(|| format!("`{text}` has no host; {EXPECTED}"))?;
    if authority.as_str().contains('@') {
        return Err(format!("`{text}` has a user name, which is not supported; {EXPECTED}"));
    }
    let port = match uri.port_u16() {
        Some(0) => return Err(format!("`{text}`: there is no port 0; {EXPECTED}")),
        Some(port) => port,
        None if authority.as_str() != authority.host() => {
            return Err(format!("`{text}`: ports are 1 to 65535; {EXPECTED}"));
        }
        None if is_http => 80,
        None => return Err(format!("`{text}` has no port; {EXPECTED}")),
    };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    let all: Vec<SocketAddr> = (bare, port)
        .to_socket_addrs()
        .map_err(|error| format!("cannot resolve `{bare}`: {error}"))?
        .collect();
    let Some(&address) = all.first() else { return Err(format!("`{bare}` has no address")) };
    let is_remote = |it: &&SocketAddr| !it.ip().to_canonical().is_loopback();
    if let Some(remote) = all.iter().find(is_remote)
        && !allow_remote
    {
        return Err(format!(
            "`{text}` is {}, not this machine's loopback: load on other machines needs --allow-remote, and \
             the consent of whom they belong to",
            remote.ip()
        ));
    }
    if is_http {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path.parse().map_err(|error| format!("`{text}`: {error}"))?;
        let target = Target::Http { address, path, host: authority.to_string() };
        return Ok(Address { all, target, driven: Workload::Http { url: text.to_owned() } });
    }
    if uri.path().len() > 1 || uri.query().is_some() {
        return Err(format!("`{text}` has a path, which tcp:// has not; {EXPECTED}"));
    }
    let driven = Workload::Tcp { address: text.to_owned() };
    Ok(Address { all, target: Target::Tcp { address }, driven })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loopback_is_driven_and_nothing_else() {
        let it = parse("http://127.0.0.1:8080/work?a=1", false).unwrap();
        assert_eq!(it.all[0].to_string(), "127.0.0.1:8080");
        let Target::Http { path, host, .. } = it.target else { panic!() };
        assert_eq!((path.to_string().as_str(), host.as_str()), ("/work?a=1", "127.0.0.1:8080"));
        assert!(parse("tcp://[::1]:7", false).unwrap().all[0].ip().is_loopback());
        assert!(parse("http://127.8.9.1:80", false).is_ok());
        for remote in [
            "http://192.0.2.1/",
            "http://0.0.0.0:80/",
            "tcp://[2001:db8::1]:7",
            "tcp://[::ffff:192.0.2.1]:7",
        ] {
            let error = parse(remote, false).expect_err(remote);
            assert!(error.contains("--allow-remote"), "{error}");
            assert!(parse(remote, true).is_ok(), "{remote}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_way_out() {
        for (text, word) in [
            ("", "http://"),
            ("127.0.0.1:80", "scheme"),
            ("https://127.0.0.1/", "TLS"),
            ("ftp://127.0.0.1/", "scheme"),
            ("tcp://127.0.0.1", "port"),
            ("tcp://127.0.0.1:0", "port 0"),
            ("tcp://127.0.0.1:7/x", "path"),
            ("http://u@127.0.0.1/", "user"),
            ("http://127.0.0.1:99999/", "65535"),
            ("http://127.0.0.1:/", "65535"),
            ("http://127.0.0.1:x/", "65535"),
        ] {
            let error = parse(text, false).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "(http|tcp)://[0-9.:\\[\\]]{0,20}[/?@%a-z]{0,8}") {
            if let Ok(it) = parse(&text, false) {
                prop_assert!(it.all.iter().all(|address| address.ip().to_canonical().is_loopback()));
            }
        }
    }
}
