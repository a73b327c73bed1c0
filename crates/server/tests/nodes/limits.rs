//! Bounds: what exceeds them is answered or closed.

use crate::client::{Client, Reply, eventually};
use crate::cluster::{Plan, keyspace, single, start_single};
use rheostat_core::DcId;
use rheostat_server::NodeConfig;
use std::net::SocketAddr;
use std::time::Duration;

#[tokio::test]
async fn too_many_connections_are_told_so() {
    let mut config = single(1);
    config.limits.max_connections = 2;
    let (node, mut first) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    let mut second = Client::connect(address).await;
    assert_eq!(first.ask("PING").await, second.ask("PING").await);
    let mut third = Client::connect(address).await;
    assert!(third.receive().await.is_some_and(|reply| reply.is_error("ERR max number of clients")));
    assert_eq!(third.receive().await, None);
    drop(second);
    eventually("there is room again", async || node.router().status().await.connections == 1).await;
    let mut fourth = Client::connect(address).await;
    assert_eq!(fourth.ask("PING").await, Reply::Simple("PONG".into()));
    node.shutdown().await;
}

#[tokio::test]
async fn requests_beyond_the_limits_are_refused() {
    let mut config = single(1);
    config.limits.max_request_bytes = 4096;
    config.limits.max_arguments = 64;
    let (node, mut client) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    assert_eq!(client.ask_with(&[b"SET".as_slice(), b"k", &[b'x'; 3000]]).await, Reply::ok());
    let reply = client.ask_with(&[b"SET".as_slice(), b"k", &[b'x'; 5000]]).await;
    assert!(reply.is_error("ERR Protocol error"), "{reply:?}");
    assert_eq!(client.receive().await, None);
    let mut client = Client::connect(address).await;
    client.send_raw(b"*65\r\n").await.unwrap();
    assert!(client.receive().await.is_some_and(|reply| reply.is_error("ERR Protocol error")));
    node.shutdown().await;
}

#[tokio::test]
async fn keys_that_no_store_takes_are_refused_and_harm_nothing() {
    let (node, mut client) = start_single(single(1)).await;
    let long = vec![b'k'; rheostat_storage::MAX_KEY_BYTES + 1];
    assert!(client.ask_with(&[b"SET".as_slice(), &long, b"v"]).await.is_error("ERR"));
    assert!(client.ask_with(&[b"MSET".as_slice(), &long, b"v"]).await.is_error("ERR"));
    assert!(client.ask_with(&[b"SET".as_slice(), &long, b"v", b"GET"]).await.is_error("ERR"));
    assert_eq!(client.ask_with(&[b"GET".as_slice(), &long]).await, Reply::Null);
    assert_eq!(client.ask_with(&[b"DEL".as_slice(), &long]).await, Reply::Integer(0));
    assert_eq!(client.ask_with(&[b"SET".as_slice(), &long[1..], b"v"]).await, Reply::ok());
    assert_eq!(client.ask("SET k v").await, Reply::ok());
    node.shutdown().await;
}

#[tokio::test]
async fn writes_are_refused_when_memory_is_full_and_deletes_are_not() {
    let mut config = single(1);
    config.limits.memory_bytes = 100_000;
    let (node, mut client) = start_single(config).await;
    let value = "x".repeat(1000);
    let mut refused = false;
    for index in 0..100_000 {
        let reply = client.ask(&format!("SET k{index} {value}")).await;
        if reply != Reply::ok() {
            assert!(reply.is_error("BUSY"), "{reply:?}");
            refused = true;
            break;
        }
    }
    assert!(refused);
    assert_eq!(client.ask("GET k0").await.text().len(), 1000);
    for index in 0..100_000 {
        if client.ask(&format!("DEL k{index}")).await != Reply::Integer(1) {
            break;
        }
    }
    client.ask_until("SET k v", Reply::ok()).await;
    node.shutdown().await;
}

/// One key asked for many times is in memory once; its reply would not be.
#[tokio::test]
async fn a_reply_that_is_too_large_is_refused_and_costs_nothing() {
    for partitions in [1, 3] {
        let mut config = single(partitions);
        config.limits.max_reply_bytes = 4 << 20;
        let (node, mut client) = start_single(config).await;
        client.ask_with(&[b"SET".as_slice(), b"large", &vec![b'x'; 1 << 20]]).await;
        client.ask("SET small 1").await;
        let keys = |count: usize| [&["MGET", "small"], vec!["large"; count].as_slice()].concat();
        let reply = client.ask_with(&keys(5)).await;
        assert!(reply.is_error("ERR") && format!("{reply:?}").contains("max_reply_bytes"), "{reply:?}");
        assert_eq!(client.ask_with(&keys(3)).await.items().len(), 4);
        // So is one that the connection itself puts together.
        assert_eq!(client.ask("RHEO STRATEGY predicted").await, Reply::ok());
        for key in 0..12 {
            client.ask_with(&[b"SET".as_slice(), format!("k{key}").as_bytes(), &vec![b'x'; 400 << 10]]).await;
        }
        let all: Vec<String> = (0..12).map(|key| format!("k{key}")).collect();
        let reply = client.ask_with(&[&["MGET".to_owned()], all.as_slice()].concat()).await;
        assert!(reply.is_error("ERR") && format!("{reply:?}").contains("max_reply_bytes"), "{reply:?}");
        assert_eq!(client.ask_with(&[&["MGET".to_owned()], &all[..10]].concat()).await.items().len(), 10);
        let many: Vec<&str> = ["EXISTS"].into_iter().chain((0..10).flat_map(|_| all.iter().map(String::as_str))).collect();
        assert_eq!(client.ask_with(&many).await, Reply::Integer(120));
        node.shutdown().await;
    }
}

/// Large requests have 9 MB together, and one may have 8.
fn with_little_room(stall_timeout_ms: u64) -> NodeConfig {
    let mut config = single(1);
    config.limits.max_request_bytes = 8 << 20;
    config.limits.memory_bytes = 64 << 20;
    config.limits.stall_timeout_ms = stall_timeout_ms;
    config
}

/// Requests that are announced large share a part of memory: what does not fit is not read, and goes on when there is room.
#[tokio::test]
async fn half_sent_requests_leave_room_for_others() {
    let config = with_little_room(300);
    let (node, mut good) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    let mut halves = Vec::new();
    for _ in 0..12 {
        let mut half = Client::connect(address).await;
        let value = 6 << 20;
        half.send_raw(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${value}\r\n").as_bytes()).await.unwrap();
        halves.push(half);
    }
    // As much as the server takes of each: those beyond the share are not read, so the sending side fills up.
    for half in &mut halves {
        let part = vec![b'x'; 5 << 20];
        let _ = tokio::time::timeout(std::time::Duration::from_millis(20), half.send_raw(&part)).await;
    }
    let list = good.ask("CLIENT LIST").await.text();
    let buffered: usize = list.split("qbuf=").skip(1).map(|rest| rest.split(' ').next().unwrap().parse::<usize>().unwrap()).sum();
    assert!(buffered < 24 << 20, "{buffered} bytes of half-sent requests are kept");
    assert_eq!(good.ask("PING").await, Reply::Simple("PONG".into()), "small requests are served");
    // Those that send nothing more are closed, and a large request has room then.
    large_set(address).await;
    node.shutdown().await;
}

/// Sets 7 MB, again while there is no room.
async fn large_set(address: SocketAddr) {
    let value = vec![b'y'; 7 << 20];
    eventually("a large request has room", async || {
        let mut client = Client::connect(address).await;
        let mut request = Vec::new();
        rheostat_resp::encode_request(&[b"SET".as_slice(), b"k", &value], &mut request);
        client.send_raw(&request).await.is_ok() && client.receive().await == Some(Reply::ok())
    })
    .await;
}

/// Sends a large request a byte at a time, until it is closed.
async fn crawl(address: SocketAddr) {
    let mut half = Client::connect(address).await;
    let mut part = b"*2\r\n$4\r\nECHO\r\n$8000000\r\n".to_vec();
    part.extend([b'x'; 20_000]);
    while half.send_raw(&part).await.is_ok() {
        part = b"x".to_vec();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// So are those of which a byte comes now and then.
#[tokio::test]
async fn requests_that_crawl_leave_room_for_others() {
    let config = with_little_room(300);
    let (node, mut good) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    let crawling: Vec<_> = (0..4).map(|_| tokio::spawn(crawl(address))).collect();
    // One of them has the room, and what it sends is read.
    let read = |list: String| list.split("qbuf=").skip(1).any(|rest| rest.split(' ').next().unwrap().parse::<usize>().unwrap() > 20_050);
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while !read(good.ask("CLIENT LIST").await.text()) {
        assert!(tokio::time::Instant::now() < until, "nobody crawls");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    large_set(address).await;
    crawling.iter().for_each(tokio::task::JoinHandle::abort);
    node.shutdown().await;
}

/// What follows a large request in the same packet does not keep that one's room.
#[tokio::test]
async fn what_crawls_behind_a_large_request_leaves_room_for_others() {
    // Only the pace can close it.
    let (node, mut good) = start_single(with_little_room(10_000)).await;
    let address = node.addresses().resp.unwrap();
    let mut slow = Client::connect(address).await;
    let mut request = Vec::new();
    rheostat_resp::encode_request(&[b"ECHO".as_slice(), &vec![b'x'; 6 << 20]], &mut request);
    let (most, end) = request.split_at(request.len() - 10);
    slow.send_raw(most).await.unwrap();
    let read = |list: String| list.split("qbuf=").skip(1).any(|rest| rest.split(' ').next().unwrap().parse::<usize>().unwrap() == most.len());
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while !read(good.ask("CLIENT LIST").await.text()) {
        assert!(tokio::time::Instant::now() < until, "it does not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    slow.send_raw(&[end, b"*2\r\n$4\r\nECHO\r\n$100000\r\n"].concat()).await.unwrap();
    assert!(matches!(slow.receive().await, Some(Reply::Bulk(bytes)) if bytes.len() == 6 << 20));
    let crawling = tokio::spawn(async move {
        while slow.send_raw(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    large_set(address).await;
    crawling.abort();
    node.shutdown().await;
}

/// What a transaction keeps until EXEC has its share of memory, and not for ever.
#[tokio::test]
async fn large_transactions_have_room_one_after_the_other() {
    let config = with_little_room(3_000);
    let (node, mut client) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    let large = vec![b'x'; 6 << 20];
    let mut first = Client::connect(address).await;
    assert_eq!(first.ask("MULTI").await, Reply::ok());
    assert_eq!(first.ask_with(&[b"ECHO".as_slice(), &large]).await, Reply::Simple("QUEUED".into()));
    // Nothing more comes of it, and it is closed.
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        assert_eq!(client.ask("MULTI").await, Reply::ok());
        let kept = client.ask_with(&[b"ECHO".as_slice(), &large]).await;
        let made = client.ask("EXEC").await;
        assert_eq!(kept.is_error("BUSY"), made.is_error("EXECABORT"), "{kept:?}");
        if !kept.is_error("BUSY") {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "there is no room for another one");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(first.receive().await, None);
    for name in ["SETNAME", "SETINFO LIB-NAME", "SETINFO LIB-VER"] {
        let words: Vec<&str> = ["CLIENT"].into_iter().chain(name.split(' ')).collect();
        let with = |bytes: usize| words.iter().map(|word| word.as_bytes().to_vec()).chain([vec![b'n'; bytes]]).collect::<Vec<_>>();
        assert_eq!(client.ask_with(&with(1024)).await, Reply::ok());
        assert!(client.ask_with(&with(1025)).await.is_error("ERR"), "{name}");
    }
    node.shutdown().await;
}

/// So has what WATCH keeps for it.
#[tokio::test]
async fn many_watched_keys_have_room_one_client_after_the_other() {
    let mut config = with_little_room(20_000);
    // So little that it is not compared with what this process has, all its tests together.
    config.limits.memory_bytes = 16 << 20;
    config.shards = 1;
    config.keyspaces.push(keyspace("strong", "strong"));
    let (node, mut client) = start_single(config).await;
    let mut second = Client::connect(node.addresses().resp.unwrap()).await;
    for each in [&mut client, &mut second] {
        assert_eq!(each.ask("SELECT strong").await, Reply::ok());
        // Until the group has a leader.
        each.ask_until("WATCH small", Reply::ok()).await;
    }
    let keys = |first: u8| [b"WATCH".to_vec()].into_iter().chain((first..first + 50).map(|key| vec![key; 60_000])).collect::<Vec<_>>();
    assert_eq!(client.ask_with(&keys(0)).await, Reply::ok());
    assert_eq!(client.ask_with(&keys(25)).await, Reply::ok(), "half of them are watched already");
    for _ in 0..2 {
        let refused = second.ask_with(&[keys(0), keys(50)[1..].to_vec()].concat()).await;
        assert!(refused.is_error("BUSY"), "{refused:?}");
    }
    assert_eq!(second.ask_with(&keys(0)).await, Reply::ok());
    // What was watched before others were refused is watched on.
    assert_eq!(client.ask("SET small 1").await, Reply::ok());
    assert_eq!(second.ask("MULTI").await, Reply::ok());
    assert_eq!(second.ask("SET small 2").await, Reply::Simple("QUEUED".into()));
    assert_eq!(second.ask("EXEC").await, Reply::Null);
    assert_eq!(client.ask("UNWATCH").await, Reply::ok());
    assert_eq!(second.ask_with(&[keys(0), keys(50)[1..].to_vec()].concat()).await, Reply::ok());
    node.shutdown().await;
}

/// A client that has gone takes its place with it, though what it waits for has no end.
#[tokio::test]
async fn who_waits_for_ever_and_goes_is_forgotten() {
    let change = |config: &mut NodeConfig| config.limits.operation_timeout_ms = 300;
    let cluster = Plan { change, ..Plan::three(1) }.start(None).await;
    let router = cluster.node(0).router();
    for dc in [1, 2] {
        router.pause_link(DcId(0), DcId(dc)).unwrap();
    }
    let before = router.status().await.connections;
    let mut stays = cluster.client(0).await;
    let mut waiting = Vec::new();
    for more in ["", "PING"] {
        let mut client = cluster.client(0).await;
        assert_eq!(client.ask("SET k v").await, Reply::ok());
        client.send(&["WAIT", "1", "0"]).await;
        if !more.is_empty() {
            client.send(&[more]).await;
        }
        waiting.push(client);
    }
    assert_eq!(stays.ask("SET k v").await, Reply::ok());
    stays.send(&["WAIT", "1", "0"]).await;
    stays.send(&["PING"]).await;
    eventually("all of them wait", async || router.status().await.connections == before + 3).await;
    drop(waiting);
    eventually("those that have gone are forgotten", async || router.status().await.connections == before + 1).await;
    for dc in [1, 2] {
        router.resume_link(DcId(0), DcId(dc)).unwrap();
    }
    assert!(matches!(stays.receive().await, Some(Reply::Integer(1..))));
    assert_eq!(stays.receive().await, Some(Reply::Simple("PONG".into())), "what it has sent meanwhile is answered");
    cluster.stop_all().await;
}

#[tokio::test]
async fn more_waiting_operations_than_allowed_are_busy() {
    let change = |config: &mut NodeConfig| {
        config.limits.max_waiting = 1;
        config.limits.operation_timeout_ms = 60_000;
    };
    let cluster = Plan { change, ..Plan::three(1) }.start(None).await;
    let router = cluster.node(0).router();
    for dc in [1, 2] {
        router.pause_link(DcId(0), DcId(dc)).unwrap();
    }
    // Sessions that have seen what cannot arrive here: their reads wait.
    let mut there = cluster.client(1).await;
    there.ask("SET k there").await;
    let token = there.ask("RHEO SESSION GET").await.text();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut client = cluster.client(0).await;
        assert_eq!(client.ask(&format!("RHEO SESSION RESUME {token}")).await, Reply::ok());
        client.send(&["GET", "k"]).await;
        waiting.push(client);
    }
    let busy = async || router.status().await.replicas.iter().map(|replica| replica.status.counters.busy).sum::<u64>();
    eventually("two of three are refused", async || busy().await == 2).await;
    for dc in [1, 2] {
        router.resume_link(DcId(0), DcId(dc)).unwrap();
    }
    let mut served = 0;
    for client in &mut waiting {
        match client.receive().await.unwrap() {
            Reply::Bulk(value) if value == b"there" => served += 1,
            reply => assert!(reply.is_error("BUSY"), "{reply:?}"),
        }
    }
    assert_eq!(served, 1);
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_tiny_mailbox_answers_busy_and_loses_nothing_that_was_acknowledged() {
    let mut config = single(2);
    config.shards = 2;
    config.limits.mailbox_messages = 1;
    let (node, _client) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    let mut tasks = Vec::new();
    for task in 0..16 {
        tasks.push(tokio::spawn(async move {
            let mut client = Client::connect(address).await;
            let mut written = Vec::new();
            for index in 0..100 {
                let key = format!("{task}:{index}");
                match client.ask(&format!("SET {key} 1")).await {
                    Reply::Simple(_) => written.push(key),
                    reply => assert!(reply.is_error("BUSY"), "{reply:?}"),
                }
            }
            written
        }));
    }
    let mut written = Vec::new();
    for task in tasks {
        written.extend(task.await.unwrap());
    }
    let mut client = Client::connect(address).await;
    for key in written {
        client.ask_until(&format!("GET {key}"), Reply::bulk("1")).await;
    }
    node.shutdown().await;
}

/// A transaction writes again what it gives another expiry, though its request is small. What is more than a log and a frame take is refused, and harms nobody.
#[tokio::test]
async fn what_a_transaction_writes_at_once_is_bounded() {
    let mut config = single(1);
    config.limits.max_request_bytes = 1 << 20;
    config.limits.max_frame_bytes = 2 << 20;
    config.keyspaces.push(keyspace("strong", "strong"));
    let (node, mut client) = start_single(config).await;
    let value = vec![b'x'; 900_000];
    for keyspace in ["default", "strong"] {
        client.ask_until(&format!("SELECT {keyspace}"), Reply::ok()).await;
        client.ask_until("SET small 1", Reply::ok()).await;
        for key in ["a", "b", "c"] {
            assert_eq!(client.ask_with(&[b"SET".as_slice(), key.as_bytes(), &value]).await, Reply::ok());
        }
        let expire = async |client: &mut Client, keys: &[&str]| {
            client.ask("MULTI").await;
            for key in keys {
                client.ask(&format!("EXPIRE {key} 1000")).await;
            }
            client.ask("EXEC").await
        };
        let refused = expire(&mut client, &["a", "b", "c"]).await;
        assert!(refused.is_error("ERR") && format!("{refused:?}").contains("are the most"), "{keyspace}: {refused:?}");
        assert_eq!(client.ask("TTL a").await, Reply::Integer(-1), "{keyspace}");
        assert_eq!(expire(&mut client, &["a", "b"]).await.items().len(), 2, "{keyspace}");
        assert_eq!(client.ask("SET small 2").await, Reply::ok(), "{keyspace}");
    }
    node.shutdown().await;
}
