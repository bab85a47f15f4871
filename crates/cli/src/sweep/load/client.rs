// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection to the service: HTTP/1.1, or a TCP echo service.

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The line that is sent to a TCP service, which must send it back.
const LINE: &[u8] = b"deburr sweep, one line to be sent back as it is\n";

/// The service to drive, and its protocol.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// HTTP `GET`.
    Http {
        /// Address of the service.
        address: SocketAddr,
        /// Path and query of the request.
        path: Uri,
        /// Value of the `Host` header.
        host: String,
    },
    /// A TCP service that sends back what it receives.
    Tcp {
        /// Address of the service.
        address: SocketAddr,
    },
}

pub(super) enum Connection {
    Http(SendRequest<Empty<Bytes>>),
    Tcp(TcpStream),
}

/// An error after which the connection cannot be reused.
pub(super) struct BrokenConnection {
    /// Why, in words.
    pub(super) why: String,
    /// Whether it failed before the head of a response was received; always `false` for TCP.
    pub(super) before_answer: bool,
}

impl Target {
    /// Address of the service.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Http { address, .. } | Self::Tcp { address } => *address,
        }
    }

    /// The same target at another address.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        match self.clone() {
            Self::Http { path, host, .. } => Self::Http { address, path, host },
            Self::Tcp { .. } => Self::Tcp { address },
        }
    }

    pub(super) async fn connect(&self) -> Result<Connection, String> {
        let stream = TcpStream::connect(self.address()).await.map_err(|error| in_words(&error))?;
        stream.set_nodelay(true).map_err(|error| in_words(&error))?;
        match self {
            Self::Tcp { .. } => Ok(Connection::Tcp(stream)),
            Self::Http { .. } => {
                let (sender, connection) =
                    handshake(TokioIo::new(stream)).await.map_err(|error| of_hyper(&error))?;
                // This task does the I/O of the connection. Its errors also reach the request in flight.
                tokio::task::spawn_local(connection);
                Ok(Connection::Http(sender))
            }
        }
    }
}

impl Connection {
    /// Whether the peer has closed the connection. Not detected for TCP.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Http(sender) => sender.is_closed(),
            Self::Tcp(_) => false,
        }
    }

    /// Makes a request. The inner error is a complete response whose status is not a success.
    pub(super) async fn request(
        &mut self,
        target: &Target,
    ) -> Result<Result<(), String>, BrokenConnection> {
        match (self, target) {
            (Self::Http(sender), Target::Http { path, host, .. }) => http(sender, path, host).await,
            (Self::Tcp(stream), _) => tcp(stream)
                .await
                .map(Ok)
                .map_err(|error| BrokenConnection { why: in_words(&error), before_answer: false }),
            (Self::Http(_), Target::Tcp { .. }) => unreachable!("connections are of their target"),
        }
    }
}

async fn http(
    sender: &mut SendRequest<Empty<Bytes>>,
    path: &Uri,
    host: &str,
) -> Result<Result<(), String>, BrokenConnection> {
    let broken = |error: &hyper::Error, before_answer| BrokenConnection {
        why: of_hyper(error),
        before_answer,
    };
    sender.ready().await.map_err(|error| broken(&error, true))?;
    let request = Request::get(path.clone()).header(HOST, host).body(Empty::new());
    let request = request
        .map_err(|error| BrokenConnection { why: error.to_string(), before_answer: false })?;
    let response = sender.send_request(request).await.map_err(|error| broken(&error, true))?;
    let status = response.status();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame.map_err(|error| broken(&error, false))?;
    }
    Ok(if status.is_success() { Ok(()) } else { Err(format!("HTTP status {}", status.as_u16())) })
}

async fn tcp(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(LINE).await?;
    let mut echo = [0; LINE.len()];
    stream.read_exact(&mut echo).await?;
    if echo != LINE {
        return Err(io::Error::new(ErrorKind::InvalidData, "not what was sent"));
    }
    Ok(())
}

/// Reduces an error to its kind, so that failures can be counted by kind.
fn in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".into(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "connection reset".into(),
        ErrorKind::UnexpectedEof => "closed before the answer was complete".into(),
        ErrorKind::InvalidData => "the answer is not what was sent".into(),
        _ => error.to_string(),
    }
}

fn of_hyper(error: &hyper::Error) -> String {
    if let Some(cause) = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
        return in_words(cause);
    }
    if error.is_incomplete_message() || error.is_canceled() {
        return "closed before the answer was complete".into();
    }
    if error.is_parse() {
        return "the answer is no HTTP".into();
    }
    error.to_string()
}
