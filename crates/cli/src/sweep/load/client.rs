// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection to the service: HTTP/1.1, or lines that are echoed.

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

/// What a TCP service gets, and must send back: as long as a small request.
const LINE: &[u8] = b"deburr sweep, one line to be sent back as it is\n";

/// Who is driven, and in which protocol.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// `GET` of that path and query, with that `Host`.
    Http {
        /// Where.
        address: SocketAddr,
        /// Path and query.
        path: Uri,
        /// What the header says.
        host: String,
    },
    /// A service that sends back what it gets.
    Tcp {
        /// Where.
        address: SocketAddr,
    },
}

pub(super) enum Connection {
    Http(SendRequest<Empty<Bytes>>),
    Tcp(TcpStream),
}

/// The connection is of no use any more.
pub(super) struct Broken {
    /// Why, in words.
    pub(super) why: String,
    /// Nothing of an answer had come.
    pub(super) before_answer: bool,
}

impl Target {
    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Http { address, .. } | Self::Tcp { address } => *address,
        }
    }

    /// The same at another address.
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
                // It moves the bytes; what goes wrong with it, the request is told.
                tokio::task::spawn_local(connection);
                Ok(Connection::Http(sender))
            }
        }
    }
}

impl Connection {
    /// Whether the other side has closed it.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Http(sender) => sender.is_closed(),
            Self::Tcp(_) => false,
        }
    }

    /// Makes a request. The inner error is that of a service that answers well, but says no.
    pub(super) async fn request(&mut self, target: &Target) -> Result<Result<(), String>, Broken> {
        match (self, target) {
            (Self::Http(sender), Target::Http { path, host, .. }) => http(sender, path, host).await,
            (Self::Tcp(stream), _) => tcp(stream)
                .await
                .map(Ok)
                .map_err(|error| Broken { why: in_words(&error), before_answer: false }),
            (Self::Http(_), Target::Tcp { .. }) => unreachable!("connections are of their target"),
        }
    }
}

async fn http(
    sender: &mut SendRequest<Empty<Bytes>>,
    path: &Uri,
    host: &str,
) -> Result<Result<(), String>, Broken> {
    let broken =
        |error: &hyper::Error, before_answer| Broken { why: of_hyper(error), before_answer };
    sender.ready().await.map_err(|error| broken(&error, true))?;
    let request = Request::get(path.clone()).header(HOST, host).body(Empty::new());
    let request =
        request.map_err(|error| Broken { why: error.to_string(), before_answer: false })?;
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

/// Errors by kind, so that they can be counted.
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
