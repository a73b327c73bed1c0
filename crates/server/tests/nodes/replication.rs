//! Three data centers: replication, causality, sessions, links that break.

use crate::client::{Reply, eventually};
use crate::cluster::Plan;
use rheostat_core::DcId;
use rheostat_server::config::Delay;

#[tokio::test]
async fn what_is_written_in_one_data_center_is_read_in_the_others() {
    let cluster = Plan::three(2).start(None).await;
    let mut here = cluster.client(0).await;
    for index in 0..100 {
        assert_eq!(here.ask(&format!("SET k{index} {index}")).await, Reply::ok());
    }
    here.ask("SELECT plain").await;
    here.ask("SET p 1").await;
    for node in 1..3 {
        let mut there = cluster.client(node).await;
        for index in 0..100 {
            there.ask_until(&format!("GET k{index}"), Reply::bulk(&index.to_string())).await;
        }
        there.ask("SELECT plain").await;
        there.ask_until("GET p", Reply::bulk("1")).await;
    }
    // Only now: a deletion here must not overtake the other's reads.
    for node in 1..3 {
        let mut there = cluster.client(node).await;
        let (first, second) = (10 * node, 10 * node + 1);
        assert_eq!(there.ask(&format!("DEL k{first} k{second}")).await, Reply::Integer(2));
    }
    here.ask("SELECT default").await;
    here.ask_until("EXISTS k10 k11 k12 k20 k21", Reply::Integer(1)).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn an_effect_is_never_seen_without_its_cause() {
    // The keys lie in different partitions, so their updates travel apart.
    let cluster = Plan { one_way_ms: 3.0, ..Plan::three(2) }.start(None).await;
    let (mut writer, mut middle, mut reader) = (cluster.client(0).await, cluster.client(1).await, cluster.client(2).await);
    for round in 0..20 {
        let value = Reply::bulk(&round.to_string());
        assert_eq!(writer.ask(&format!("SET question {round}")).await, Reply::ok());
        middle.ask_until("GET question", value.clone()).await;
        assert_eq!(middle.ask(&format!("SET reply {round}")).await, Reply::ok());
        reader.ask_until("GET reply", value.clone()).await;
        assert_eq!(reader.ask("GET question").await, value);
        assert_eq!(reader.ask("MGET reply question").await, Reply::Array(vec![value.clone(), value]));
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_session_goes_on_in_another_data_center() {
    let cluster = Plan { one_way_ms: 20.0, ..Plan::three(2) }.start(None).await;
    let mut here = cluster.client(0).await;
    for round in 0..5 {
        here.ask(&format!("SET mine {round}")).await;
        let token = here.ask("RHEO SESSION GET").await.text();
        let mut there = cluster.client(1).await;
        assert_eq!(there.ask(&format!("RHEO SESSION RESUME {token}")).await, Reply::ok());
        there.ask_until("GET mine", Reply::bulk(&round.to_string())).await;
        // What the session reads there, it does not unread.
        assert_eq!(there.ask(&format!("SET answer {round}")).await, Reply::ok());
        let back = there.ask("RHEO SESSION GET").await.text();
        assert_eq!(here.ask(&format!("RHEO SESSION MERGE {back}")).await, Reply::ok());
        here.ask_until("GET answer", Reply::bulk(&round.to_string())).await;
    }
    let token = here.ask("RHEO SESSION GET").await.text();
    for wrong in ["nonsense", "rheo-00", &token[..token.len() - 2], &token.replace('a', "b")] {
        let reply = here.ask(&format!("RHEO SESSION RESUME {wrong}")).await;
        assert!(wrong == token || reply.is_error("SESSION"), "{wrong}: {reply:?}");
    }
    here.ask("SELECT plain").await;
    assert!(here.ask(&format!("RHEO SESSION RESUME {token}")).await.is_error("SESSION"), "a token of another keyspace");
    cluster.stop_all().await;
}

#[tokio::test]
async fn wait_counts_the_data_centers_that_have_everything() {
    let cluster = Plan { one_way_ms: 5.0, ..Plan::three(2) }.start(None).await;
    let mut here = cluster.client(0).await;
    assert_eq!(here.ask("WAIT 0 1000").await, Reply::Integer(2), "nothing was written");
    here.ask("SET a 1").await;
    here.ask("SET b 1").await;
    assert_eq!(here.ask("WAIT 2 10000").await, Reply::Integer(2));
    cluster.node(0).router().pause_link(DcId(0), DcId(1)).unwrap();
    here.ask("SET a 2").await;
    assert_eq!(here.ask("WAIT 1 10000").await, Reply::Integer(1));
    assert_eq!(here.ask("WAIT 2 100").await, Reply::Integer(1));
    assert_eq!(here.ask("WAIT 5 100").await, Reply::Integer(1));
    cluster.node(0).router().resume_link(DcId(0), DcId(1)).unwrap();
    assert_eq!(here.ask("WAIT 2 0").await, Reply::Integer(2));
    assert!(here.ask("WAIT 3 0").await.is_error("ERR"), "this could never end");
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_paused_link_carries_nothing_and_catches_up() {
    let cluster = Plan::three(2).start(None).await;
    let (mut a, mut b, mut c) = (cluster.client(0).await, cluster.client(1).await, cluster.client(2).await);
    a.ask("SET k before").await;
    b.ask_until("GET k", Reply::bulk("before")).await;
    let router = cluster.node(0).router();
    assert_eq!(router.pause_link(DcId(1), DcId(0)), Ok(true));
    assert_eq!(router.pause_link(DcId(0), DcId(1)), Ok(false));
    assert!(router.pause_link(DcId(1), DcId(2)).is_err(), "not at either end");
    assert!(router.pause_link(DcId(0), DcId(0)).is_err());
    eventually("the connections are cut", async || router.status().await.peers.iter().all(|peer| (peer.dc == DcId(1)) != peer.connected)).await;
    for index in 0..300 {
        a.ask(&format!("SET k{index} during")).await;
        b.ask(&format!("SET l{index} during")).await;
    }
    c.ask_until("GET k299", Reply::bulk("during")).await;
    assert_eq!(b.ask("GET k299").await, Reply::Null);
    assert_eq!(a.ask("GET l299").await, Reply::Null);
    assert_eq!(router.resume_link(DcId(0), DcId(1)), Ok(true));
    for index in 0..300 {
        b.ask_until(&format!("GET k{index}"), Reply::bulk("during")).await;
        a.ask_until(&format!("GET l{index}"), Reply::bulk("during")).await;
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn large_values_and_many_updates_cross_a_slow_link() {
    let cluster = Plan { one_way_ms: 10.0, ..Plan::three(1) }.start(None).await;
    let mut a = cluster.client(0).await;
    let large = vec![b'x'; 20 << 20];
    assert_eq!(a.ask_with(&[b"SET".as_slice(), b"large", &large]).await, Reply::ok());
    for index in 0..5000 {
        a.send(&["SET", &format!("k{index}"), "v"]).await;
    }
    for _ in 0..5000 {
        assert_eq!(a.receive().await, Some(Reply::ok()));
    }
    assert_eq!(a.ask("WAIT 2 15000").await, Reply::Integer(2));
    let mut b = cluster.client(1).await;
    b.ask_until("STRLEN large", Reply::Integer(20 << 20)).await;
    b.ask_until("DBSIZE", Reply::Integer(5001)).await;
    cluster.stop_all().await;
}

/// A key of `partition` among two.
fn key_of(partition: u16) -> String {
    (0..).map(|number| format!("k{number}")).find(|key| rheostat_core::slots::partition_of(key.as_bytes(), 2).0 == partition).unwrap()
}

/// Over a slow way a small write passes a large one of another partition, and each goes over once.
#[tokio::test]
async fn a_small_write_passes_a_large_one_of_another_partition() {
    let change = |config: &mut rheostat_server::NodeConfig| {
        let (from, to) = ("a".to_owned(), "b".to_owned());
        config.emulation.delays.push(Delay { from, to, one_way_ms: 1.0, jitter_ms: 0.0, jitter_shape: 2.0, mbit_per_s: Some(8.0) });
    };
    let cluster = Plan { data_centers: vec!["a", "b"], change, ..Plan::three(2) }.start(None).await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
    for client in [&mut here, &mut there] {
        client.ask("SELECT plain").await;
    }
    let (large, small) = (key_of(0), key_of(1));
    // What is under way while a link begins may be asked for twice. Both links have begun when something has come.
    for key in [&large, &small] {
        assert_eq!(here.ask(&format!("SET {key} begun")).await, Reply::ok());
        there.ask_until(&format!("GET {key}"), Reply::bulk("begun")).await;
    }
    let bytes = 6 << 20;
    here.ask_with(&[b"SET".as_slice(), large.as_bytes(), &vec![b'x'; bytes]]).await;
    let sent = async || cluster.node(0).router().status().await.peers[0].bytes_sent;
    eventually("it is under way", async || sent().await > 256 << 10).await;
    assert_eq!(here.ask(&format!("SET {small} passes")).await, Reply::ok());
    there.ask_until(&format!("GET {small}"), Reply::bulk("passes")).await;
    assert_eq!(there.ask(&format!("STRLEN {large}")).await, Reply::Integer(5), "the large value is still under way");
    there.ask_until(&format!("STRLEN {large}"), Reply::Integer(bytes as i64)).await;
    let sent = sent().await;
    assert!(sent < bytes as u64 / 10 * 12, "{sent} bytes were sent");
    cluster.stop_all().await;
}

/// While nobody asks anything, all nodes are quiet; one operation wakes those that it concerns.
#[tokio::test]
async fn an_operation_wakes_the_nodes_of_other_data_centers() {
    let cluster = Plan { owners: vec![vec![0], vec![1]], ..Plan::three(2) }.start(None).await;
    let quiet = async || {
        let mut quiet = 0;
        for index in 0..6 {
            quiet += usize::from(cluster.node(index).router().status().await.quiet);
        }
        quiet
    };
    let mut client = cluster.client(0).await;
    eventually("all are quiet", async || quiet().await == 6).await;
    client.ask("SET k v").await;
    // Those of the other partition in other data centers have no connection to the node that was asked: their neighbours tell them.
    eventually("all are awake", async || quiet().await == 0).await;
    eventually("all are quiet again", async || quiet().await == 6).await;
    let router = cluster.node(0).router();
    let keyspace = router.keyspaces()[0].id;
    router.explain(keyspace, &router.new_session(keyspace).unwrap(), rheostat_core::version::Key::from(&b"k"[..])).await.unwrap();
    assert_eq!(quiet().await, 6, "whoever only looks wakes nobody");
    cluster.stop_all().await;
}
