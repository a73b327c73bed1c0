//! What Redis clients are told while a node's shards open their data, which can take long: to come back. When the node serves, their connections go to the shards.

use crate::admin::{self, Door, owned};
use crate::connection::{self, stream::Stream};
use crate::console::Caller;
use crate::descriptors::Place;
use crate::shard::mailbox::Control;
use crate::shared::Shared;
use bytes::{Buf, BytesMut};
use rheostat_resp::{Limits, Parser, ReplyWriter, RespVersion};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::ServerConfig;

/// Connections to the port of RESP at once, while nothing is served there.
const CONNECTIONS: usize = 1024;

/// How far a node is that opens its data.
pub(crate) fn opening(shared: &Shared) -> String {
    let opened = shared.opened.load(Ordering::Relaxed);
    format!("opening its data: {opened} of {} partition servers are open", owned(shared))
}

/// What clients of such a node are told, in the words by which Redis' know one that loads.
pub(crate) fn loading(shared: &Shared) -> String {
    format!("LOADING this node is {}", opening(shared))
}

/// Answers Redis clients at `listener` until the node serves, and hands their connections over to its shards then; until it stops, if that comes first.
pub(crate) async fn answer(listener: TcpListener, shared: Arc<Shared>, tls: Option<Arc<ServerConfig>>) {
    let (mut serving, mut stopping) = (shared.serving.subscribe(), shared.stopping.subscribe());
    let over = async {
        // An error is the node's end too.
        tokio::select! {
            _ = serving.wait_for(|serving| *serving) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    };
    let conversations = admin::accept(listener, Arc::new(Loading(shared.clone())), tls, over).await;
    if *shared.serving.borrow() {
        // Each ends when it has handed its connection over.
        conversations.join_all().await;
    }
}

struct Loading(Arc<Shared>);

impl Door for Loading {
    const NAME: &str = "port of RESP";
    const MOST: usize = CONNECTIONS;

    async fn converse(self: Arc<Self>, mut stream: Stream, _: Caller, place: Place) -> io::Result<()> {
        let mut serving = self.0.serving.subscribe();
        let serves = async {
            // An error is the node's end.
            let _ = serving.wait_for(|serving| *serving).await;
        };
        match refuse_each(&mut stream, || loading(&self.0), serves).await? {
            Some(arrived) => hand_over(&self.0, stream, arrived, place),
            None => Ok(()),
        }
    }
}

/// Has a shard serve a client, from which something has `arrived` that was not answered.
fn hand_over(shared: &Shared, stream: Stream, arrived: Vec<u8>, place: Place) -> io::Result<()> {
    let (address, stream) = match stream {
        // A stream belongs to the runtime that it was made in.
        Stream::Plain(stream) => (stream.peer_addr()?, Ok(stream.into_std()?)),
        // What TLS has agreed on cannot be taken out of it. It stays with that runtime, which lives as long as whoever has started the node.
        Stream::Tls(stream) => (stream.get_ref().0.peer_addr()?, Err(stream)),
    };
    let shard = &shared.shards[usize::from(address.port()) % shared.shards.len()];
    shard.control(Control::Run(Box::new(move |shard| {
        let stream = match stream {
            Ok(plain) => TcpStream::from_std(plain).map(Stream::Plain),
            Err(tls) => Ok(Stream::Tls(tls)),
        };
        match stream {
            Ok(stream) => {
                let shard = shard.clone();
                tokio::task::spawn_local(async move {
                    connection::take_over(shard, stream, address, arrived).await;
                    drop(place);
                });
            }
            Err(error) => tracing::warn!(%error, "a connection could not be taken over"),
        }
    })));
    Ok(())
}

/// Answers each request with the error that `says`, until it `serves`: returns what has arrived then and is no whole request. `None`: the client has gone, or had to after a request that is too long to be
/// skipped.
async fn refuse_each(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    says: impl Fn() -> String,
    serves: impl Future<Output = ()>,
) -> io::Result<Option<Vec<u8>>> {
    let (mut parser, mut buffer, mut replies) = (Parser::new(Limits::unauthenticated()), BytesMut::with_capacity(16 << 10), Vec::new());
    tokio::pin!(serves);
    loop {
        let read = tokio::select! {
            biased;
            () = &mut serves => return Ok(Some(buffer.into())),
            read = stream.read_buf(&mut buffer) => read?,
        };
        if read == 0 {
            return Ok(None);
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
        stream.flush().await?;
        replies.clear();
        if !goes_on {
            stream.shutdown().await?;
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test]
    async fn while_data_is_opened_each_request_is_told_to_come_back() {
        let (mut client, mut server) = tokio::io::duplex(64 << 10);
        let answering = tokio::spawn(async move { refuse_each(&mut server, || "LOADING soon".into(), pending()).await });
        let told = |count: usize| vec![0; count * b"-LOADING soon\r\n".len()];
        client.write_all(b"PING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPI").await.unwrap();
        let mut read = told(2);
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(read, b"-LOADING soon\r\n-LOADING soon\r\n");
        client.write_all(b"NG\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n").await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"-LOADING soon\r\n-LOADING soon\r\n", "what is too long to be skipped ends the connection");
        assert_eq!(answering.await.unwrap().unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_no_whole_request_is_kept_for_who_serves() {
        for (sent, answered, kept) in [
            ("", "", ""),
            ("PING\r\n", "-LOADING\r\n", ""),
            ("PING\r\n*2\r\n$3\r\nGET\r\n$5\r\nke", "-LOADING\r\n", "*2\r\n$3\r\nGET\r\n$5\r\nke"),
            ("*1\r", "", "*1\r"),
        ] {
            let (mut client, mut server) = tokio::io::duplex(64 << 10);
            let (serve, serves) = tokio::sync::oneshot::channel::<()>();
            let refused = refuse_each(&mut server, || "LOADING".into(), async { drop(serves.await) });
            let talk = async {
                client.write_all(sent.as_bytes()).await.unwrap();
                let mut read = vec![0; answered.len()];
                client.read_exact(&mut read).await.unwrap();
                assert_eq!(read, answered.as_bytes());
                serve.send(()).unwrap();
            };
            let (refused, ()) = tokio::join!(refused, talk);
            drop(client);
            // What was not read yet is where it was.
            let mut left = refused.unwrap().unwrap();
            server.read_to_end(&mut left).await.unwrap();
            assert_eq!(left, kept.as_bytes(), "{sent:?}");
        }
    }
}
