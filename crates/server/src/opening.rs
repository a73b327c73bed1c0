//! What a node answers while its shards open their data, which can take long: over HTTP how far it is, and to Redis clients that they are to come back.

use crate::admin::{Door, Site, owned, text};
use crate::console::Caller;
use crate::shared::Shared;
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use rheostat_resp::{Limits, Parser, ReplyWriter, RespVersion};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Connections to the port of RESP at once, while nothing is served there.
const CONNECTIONS: usize = 1024;

/// What a node's admin port is answered from while its shards open their data: who looks after processes must not take it for one that hangs.
pub(crate) struct Opening(pub(crate) Arc<Shared>);

/// How far a node is that opens its data.
fn opening(shared: &Shared) -> String {
    let opened = shared.opened.load(Ordering::Relaxed);
    format!("opening its data: {opened} of {} partition servers are open", owned(shared))
}

impl Site for Opening {
    async fn answer(self: Arc<Self>, _: Caller, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let status = if request.uri().path() == "/health" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        text(status, format!("{}\n", opening(&self.0)))
    }
}

/// What Redis clients are told meanwhile: to come back, in the words by which they know a Redis that loads.
pub(crate) struct Loading(pub(crate) Arc<Shared>);

impl Door for Loading {
    const NAME: &str = "port of RESP";
    const MOST: usize = CONNECTIONS;

    async fn converse(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin + Send, _: Caller) -> io::Result<()> {
        refuse_each(stream, || format!("LOADING this node is {}", opening(&self.0))).await
    }
}

/// Answers each request with the error that `says`; the connection ends after one that is too long to be skipped.
async fn refuse_each(mut stream: impl AsyncRead + AsyncWrite + Unpin, says: impl Fn() -> String) -> io::Result<()> {
    let (mut parser, mut buffer, mut replies) = (Parser::new(Limits::unauthenticated()), BytesMut::with_capacity(16 << 10), Vec::new());
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let goes_on = loop {
            match parser.next(&buffer) {
                Ok(None) => break true,
                Ok(Some(_)) => ReplyWriter::new(&mut replies, RespVersion::Two).error(&says()),
                Err(_) => {
                    ReplyWriter::new(&mut replies, RespVersion::Two).error(&says());
                    break false;
                }
            }
        };
        buffer.advance(parser.consume());
        stream.write_all(&replies).await?;
        replies.clear();
        if !goes_on {
            return stream.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn while_data_is_opened_each_request_is_told_to_come_back() {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let answering = tokio::spawn(refuse_each(server, || "LOADING soon".into()));
        let told = |count: usize| vec![0; count * b"-LOADING soon\r\n".len()];
        client.write_all(b"PING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPI").await.unwrap();
        let mut read = told(2);
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(read, b"-LOADING soon\r\n-LOADING soon\r\n");
        client.write_all(b"NG\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n").await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"-LOADING soon\r\n-LOADING soon\r\n", "what is too long to be skipped ends the connection");
        answering.await.unwrap().unwrap();
    }
}
