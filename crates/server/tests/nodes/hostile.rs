//! Clients that send nonsense, send half, send slowly, do not read, or do not know the password.

use crate::client::{Client, PATIENCE, Reply, eventually};
use crate::cluster::{Plan, single, start_single};
use rheostat_server::config::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn nonsense_is_answered_and_the_connection_closed() {
    let (node, mut good) = start_single(single(1)).await;
    let address = node.addresses().resp.unwrap();
    for bytes in [
        b"*x\r\n".as_slice(),
        b"*1\r\n+x\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n$99999999999999999999\r\n",
        b"*99999999\r\n",
        b"*1\r\n$3\r\nabcd\r\n",
        b"\"unbalanced\r\n",
        &[b'a'; 70_000],
    ] {
        let mut client = Client::connect(address).await;
        client.send_raw(bytes).await.unwrap();
        let reply = client.receive().await.expect("an error comes first");
        assert!(reply.is_error("ERR Protocol error"), "{:?}: {reply:?}", bytes.escape_ascii().to_string());
        assert_eq!(client.receive().await, None);
    }
    // A browser that was tricked into talking to us.
    let mut client = Client::connect(address).await;
    client.send_raw(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET a b\r\n").await.unwrap();
    assert_eq!(client.receive().await, None);
    assert_eq!(good.ask("GET a").await, Reply::Null);
    // Requests before the nonsense are answered.
    let mut client = Client::connect(address).await;
    client.send_raw(b"PING\r\n*1\r\n$4\r\nPING\r\n*?\r\n").await.unwrap();
    assert_eq!(client.receive().await, Some(Reply::Simple("PONG".into())));
    assert_eq!(client.receive().await, Some(Reply::Simple("PONG".into())));
    assert!(client.receive().await.is_some_and(|reply| reply.is_error("ERR")));
    assert_eq!(good.ask("PING").await, Reply::Simple("PONG".into()));
    node.shutdown().await;
}

#[tokio::test]
async fn requests_arrive_in_any_pieces() {
    let (node, mut client) = start_single(single(1)).await;
    let value = "v".repeat(40_000);
    let mut bytes = Vec::new();
    rheostat_resp::encode_request(&["SET", "k", &value], &mut bytes);
    rheostat_resp::encode_request(&["STRLEN", "k"], &mut bytes);
    for size in [1, 7, 1000, 30_000] {
        let step = if size == 1 { &bytes[..] } else { &bytes };
        for piece in step.chunks(if size == 1 { 977 } else { size }) {
            client.send_raw(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(client.receive().await, Some(Reply::ok()));
        assert_eq!(client.receive().await, Some(Reply::Integer(40_000)));
    }
    for byte in b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n" {
        client.send_raw(&[*byte]).await.unwrap();
    }
    assert_eq!(client.receive().await, Some(Reply::bulk("hi")));
    node.shutdown().await;
}

#[tokio::test]
async fn half_a_request_does_not_hold_a_connection_for_ever() {
    let mut config = single(1);
    config.limits.stall_timeout_ms = 300;
    let (node, mut good) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    let mut slow = Client::connect(address).await;
    slow.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk").await.unwrap();
    assert_eq!(slow.receive().await, None);
    // One that has asked nothing is not half way in anything.
    assert_eq!(good.ask("PING").await, Reply::Simple("PONG".into()));
    eventually("it is counted", async || node.router().status().await.shards[0].counters.stalled == 1).await;
    node.shutdown().await;
}

/// Connections to the peer port that say nothing keep no node out, however often they come back.
#[tokio::test]
async fn silent_connections_to_the_peer_port_keep_nobody_out() {
    let mut cluster = Plan { data_centers: vec!["a", "b"], ..Plan::three(1) }.start(None).await;
    let address = cluster.configs[0].listen.peer.unwrap();
    cluster.stop(1).await;
    let silence = tokio::spawn(async move {
        loop {
            let mut silent = Vec::new();
            for _ in 0..80 {
                silent.extend(TcpStream::connect(address).await);
            }
            tokio::time::sleep(std::time::Duration::from_millis(1_000)).await;
        }
    });
    // They have all the places that there are.
    let mut probes = Vec::new();
    for _ in 0..70 {
        probes.push(TcpStream::connect(address).await.unwrap());
    }
    eventually("the oldest has to go", async || probes[0].try_read(&mut [0; 8]).is_ok_and(|read| read == 0)).await;
    cluster.start(1).await;
    cluster.connected().await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
    assert_eq!(there.ask("SET k v").await, Reply::ok());
    here.ask_until("GET k", Reply::bulk("v")).await;
    silence.abort();
    cluster.stop_all().await;
}

#[tokio::test]
async fn idle_connections_are_closed_if_so_configured() {
    let mut config = single(1);
    // Long enough for a busy machine to ask once.
    config.limits.idle_timeout_ms = 2_000;
    let (node, mut client) = start_single(config).await;
    assert_eq!(client.ask("PING").await, Reply::Simple("PONG".into()));
    assert_eq!(client.receive().await, None);
    node.shutdown().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_stopped_and_then_closed() {
    let mut config = single(1);
    config.limits.output_buffer_bytes = 1 << 16;
    config.limits.stall_timeout_ms = 500;
    let (node, mut good) = start_single(config).await;
    good.ask_with(&[b"SET".as_slice(), b"large", &vec![b'x'; 1 << 20]]).await;
    let mut stream = TcpStream::connect(node.addresses().resp.unwrap()).await.unwrap();
    let mut requests = Vec::new();
    for _ in 0..1000 {
        rheostat_resp::encode_request(&["GET", "large"], &mut requests);
    }
    stream.write_all(&requests).await.unwrap();
    // A gigabyte was asked for; what is kept for this client stays near one value.
    eventually("it is closed", async || node.router().status().await.shards[0].counters.stalled == 1).await;
    let list = good.ask("CLIENT LIST").await.text();
    assert_eq!(list.lines().count(), 1, "{list}");
    let mut sink = Vec::new();
    let _ = stream.read_to_end(&mut sink).await;
    assert!(sink.len() < 100 << 20, "{}", sink.len());
    node.shutdown().await;
}

#[tokio::test]
async fn a_client_that_reads_late_gets_everything() {
    let mut config = single(1);
    config.limits.output_buffer_bytes = 1 << 16;
    let (node, mut client) = start_single(config).await;
    client.ask_with(&[b"SET".as_slice(), b"large", &vec![b'x'; 1 << 20]]).await;
    for _ in 0..100 {
        client.send(&["GET", "large"]).await;
    }
    client.send(&["PING"]).await;
    for _ in 0..100 {
        assert!(matches!(client.receive().await, Some(Reply::Bulk(bytes)) if bytes.len() == 1 << 20));
    }
    assert_eq!(client.receive().await, Some(Reply::Simple("PONG".into())));
    node.shutdown().await;
}

/// Who says that nothing more will come still gets what was asked for, however large.
#[tokio::test]
async fn a_client_that_sends_nothing_more_gets_everything() {
    let (node, mut client) = start_single(single(1)).await;
    let large = vec![b'x'; 32 << 20];
    assert_eq!(client.ask_with(&[b"SET".as_slice(), b"large", &large]).await, Reply::ok());
    let mut stream = TcpStream::connect(node.addresses().resp.unwrap()).await.unwrap();
    stream.write_all(b"GET large\r\nPING\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends").unwrap();
    let expected = [format!("${}\r\n", large.len()).as_bytes(), &large, b"\r\n+PONG\r\n"].concat();
    assert!(answer == expected, "{} bytes of {}", answer.len(), expected.len());
    node.shutdown().await;
}

#[tokio::test]
async fn nothing_is_done_without_the_password() {
    let mut config = single(1);
    config.security.password = Some(Secret("open sesame".into()));
    let (node, mut client) = start_single(config.clone()).await;
    let address = node.addresses().resp.unwrap();
    for request in ["GET k", "SET k v", "INFO", "CLUSTER NODES", "RHEO STATUS", "FOO", "CLIENT LIST"] {
        assert!(client.ask(request).await.is_error("NOAUTH"), "{request}");
    }
    // No transaction begins that would refuse what follows.
    assert!(client.ask("MULTI x").await.is_error("NOAUTH"));
    assert!(client.ask("AUTH wrong").await.is_error("WRONGPASS"));
    assert!(client.ask("HELLO 3 AUTH default wrong").await.is_error("WRONGPASS"));
    assert!(client.ask("HELLO 3").await.is_error("NOAUTH"));
    assert_eq!(client.ask_with(&["AUTH", "open sesame"]).await, Reply::ok());
    assert_eq!(client.ask("GET k").await, Reply::Null);
    assert_eq!(client.ask("RESET").await, Reply::Simple("RESET".into()));
    assert!(client.ask("GET k").await.is_error("NOAUTH"));

    let mut guesser = Client::connect(address).await;
    let mut closed = false;
    for _ in 0..20 {
        guesser.send(&["AUTH", "guess"]).await;
        if guesser.receive().await.is_none() {
            closed = true;
            break;
        }
    }
    assert!(closed, "guessing goes on for ever");

    // A stranger may not make the server hold much, nor hold a connection for ever.
    let mut stranger = Client::connect(address).await;
    stranger.send_raw(b"*2\r\n$4\r\nAUTH\r\n$1000000\r\n").await.unwrap();
    assert!(stranger.receive().await.is_some_and(|reply| reply.is_error("ERR Protocol error")));
    node.shutdown().await;
    config.limits.stall_timeout_ms = 300;
    let (node, mut silent) = start_single(config).await;
    assert_eq!(silent.receive().await, None);
    node.shutdown().await;
}

/// Else whoever knows no password keeps out those who do.
#[tokio::test]
async fn strangers_of_one_address_hold_a_share_of_the_connections_only() {
    let mut config = single(1);
    config.security.password = Some(Secret("open sesame".into()));
    config.limits.max_connections = 12;
    let (node, mut owner) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    assert_eq!(owner.ask_with(&["AUTH", "open sesame"]).await, Reply::ok());
    let is_refused = async || {
        let reply = Client::connect(address).await.receive().await;
        assert!(reply.is_some_and(|reply| reply.is_error("ERR max number of clients reached: too many connections from this address")));
    };
    let mut strangers = Vec::new();
    for _ in 0..3 {
        let mut stranger = Client::connect(address).await;
        assert!(stranger.ask("GET k").await.is_error("NOAUTH"));
        strangers.push(stranger);
    }
    is_refused().await;
    // Who has shown it is none of them any more, until that is forgotten.
    assert_eq!(strangers[0].ask_with(&["AUTH", "open sesame"]).await, Reply::ok());
    let mut next = Client::connect(address).await;
    assert!(next.ask("GET k").await.is_error("NOAUTH"));
    is_refused().await;
    assert_eq!(next.ask_with(&["AUTH", "open sesame"]).await, Reply::ok());
    assert_eq!(strangers[0].ask("RESET").await, Reply::Simple("RESET".into()));
    is_refused().await;
    drop(strangers);
    eventually("there is room again", async || {
        let mut client = Client::connect(address).await;
        let _ = client.send_raw(b"GET k\r\n").await;
        client.receive().await.is_some_and(|reply| reply.is_error("NOAUTH"))
    })
    .await;
    assert_eq!([owner.ask("GET k").await, next.ask("GET k").await], [Reply::Null, Reply::Null]);
    node.shutdown().await;
}

/// The time that a stranger has begins when the client becomes one, not when it came.
#[tokio::test]
async fn who_becomes_a_stranger_has_as_long_as_one() {
    let mut config = single(1);
    config.security.password = Some(Secret("open sesame".into()));
    config.limits.stall_timeout_ms = 6_000;
    let (node, mut client) = start_single(config.clone()).await;
    let pause = std::time::Duration::from_millis;
    let mut changed = Client::connect(node.addresses().resp.unwrap()).await;
    for each in [&mut client, &mut changed] {
        assert_eq!(each.ask_with(&["AUTH", "open sesame"]).await, Reply::ok());
    }
    tokio::time::sleep(pause(6_100)).await;
    assert_eq!(client.ask("RESET").await, Reply::Simple("RESET".into()));
    config.security.password = Some(Secret("close sesame".into()));
    assert!(node.reload(&config).unwrap().users);
    assert!(changed.ask("GET k").await.is_error("NOAUTH"));
    // Connections are looked at ten times a second.
    tokio::time::sleep(pause(400)).await;
    for each in [&mut client, &mut changed] {
        assert_eq!(each.ask_with(&["AUTH", "close sesame"]).await, Reply::ok());
        assert_eq!(each.ask("RESET").await, Reply::Simple("RESET".into()));
    }
    // RESET again makes nobody's time longer.
    let since = tokio::time::Instant::now();
    changed.send(&["RESET"]).await;
    while changed.receive().await.is_some() {
        assert!(since.elapsed() < crate::client::PATIENCE, "a stranger stays for ever");
        tokio::time::sleep(pause(100)).await;
        let mut reset = Vec::new();
        rheostat_resp::encode_request(&["RESET"], &mut reset);
        if changed.send_raw(&reset).await.is_err() {
            break;
        }
    }
    assert_eq!(client.receive().await, None);
    node.shutdown().await;
}

#[tokio::test]
async fn a_hello_that_is_refused_leaves_nothing_of_itself() {
    let mut config = single(1);
    config.security.password = Some(Secret("open sesame".into()));
    let (node, mut client) = start_single(config).await;
    for name in ["rheo:keyspace=nope", "rheo:session=user:1;keyspace=nope", "rheo:session=user:1;level=strong"] {
        let reply = client.ask_with(&["HELLO", "3", "AUTH", "default", "open sesame", "SETNAME", name]).await;
        assert!(reply.is_error("ERR"), "{name}: {reply:?}");
        assert!(client.ask("GET k").await.is_error("NOAUTH"), "{name}");
    }
    // A stranger is not told which names there are.
    let reply = client.ask_with(&["HELLO", "3", "AUTH", "default", "wrong", "SETNAME", "rheo:keyspace=nope"]).await;
    assert!(reply.is_error("WRONGPASS"), "{reply:?}");
    let reply = client.ask_with(&["HELLO", "3", "AUTH", "default", "open sesame", "SETNAME", "rheo:session=user:2;keyspace=plain"]).await;
    assert!(matches!(reply, Reply::Array(_)), "{reply:?}");
    assert!(client.ask("CLIENT INFO").await.text().contains("db=1 "));
    // What it sends may be large from now on.
    assert_eq!(client.ask_with(&[b"SET".as_slice(), b"k", &[b'x'; 100_000]]).await, Reply::ok());
    assert!(client.ask_with(&["HELLO", "2", "SETNAME", "rheo:session=user:1;keyspace=nope"]).await.is_error("ERR"));
    assert!(client.ask("CLIENT SETNAME rheo:session=user:1;keyspace=nope").await.is_error("ERR"));
    let info = client.ask("CLIENT INFO").await.text();
    assert!(info.contains("resp=3") && info.contains("name=rheo:session=user:2;keyspace=plain "), "{info}");
    assert_eq!(client.ask("RHEO SESSION NAME").await, Reply::bulk("user:2"));
    assert_eq!(client.ask("STRLEN k").await, Reply::Integer(100_000));
    node.shutdown().await;
}

#[tokio::test]
async fn without_passwords_the_default_user_needs_none() {
    let (node, mut client) = start_single(single(1)).await;
    let text = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
    assert_eq!(client.ask("AUTH pw").await, Reply::Error(text.into()));
    assert_eq!(client.ask("AUTH default anything").await, Reply::ok());
    assert!(matches!(client.ask("HELLO 3 AUTH default anything").await, Reply::Array(_)));
    let wrong = Reply::Error("WRONGPASS invalid username-password pair or user is disabled.".into());
    // Where there is nothing to guess nobody is sent away for it.
    for _ in 0..10 {
        assert_eq!(client.ask("AUTH somebody anything").await, wrong);
        assert_eq!(client.ask("HELLO 3 AUTH somebody anything").await, wrong);
    }
    assert_eq!(client.ask("ACL WHOAMI").await, Reply::bulk("default"));
    node.shutdown().await;
}

#[tokio::test]
async fn guessing_costs_time_whatever_the_guess() {
    let mut config = single(1);
    config.security.password = Some(Secret("open sesame".into()));
    let (node, mut owner) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    assert_eq!(owner.ask_with(&["AUTH", "open sesame"]).await, Reply::ok());
    let (mut guesses, mut looked_at) = (0, 0);
    // On a slow machine the first waits pass between two guesses; the later ones are long.
    while guesses < 2000 && guesses < looked_at + 50 {
        let mut guesser = Client::connect(address).await;
        let reply = guesser.ask(&format!("AUTH guess{guesses}")).await;
        assert!(reply.is_error("WRONGPASS"), "{reply:?}");
        guesses += 1;
        looked_at += u64::from(!reply.text().contains("none is looked at"));
    }
    assert!(guesses >= looked_at + 50, "all of {guesses} guesses were looked at");
    assert!(looked_at >= 5, "people mistype");
    assert_eq!(node.router().status().await.passwords_refused, (looked_at, guesses - looked_at));
    // The right one too must wait, so that guessing faster shows nothing.
    eventually("it is looked at", async || Client::connect(address).await.ask_with(&["AUTH", "open sesame"]).await == Reply::ok()).await;
    // Who is in stays in.
    assert_eq!(owner.ask("PING").await, Reply::Simple("PONG".into()));
    node.shutdown().await;
}

#[tokio::test]
async fn strangers_on_the_peer_port_are_dropped() {
    let cluster = Plan::three(1).start(None).await;
    let address = cluster.configs[0].listen.peer.unwrap();
    let huge = u32::MAX.to_le_bytes();
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &huge, &[0; 64], b"\x10\x00\x00\x00RHEO\x01aaaaaaaaaaaaaaaaaa", b"\x05\x00\x00\x00RHEO\x63"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // An answer, if any, says why; then the connection ends.
        let ended = tokio::time::timeout(crate::client::PATIENCE, stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "{:?}", bytes.escape_ascii().to_string());
    }
    let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
    a.ask("SET k v").await;
    b.ask_until("GET k", Reply::bulk("v")).await;
    cluster.stop_all().await;
}
