//! Three data centers: replication, causality, sessions, links that break.

use crate::client::{Reply, eventually};
use crate::cluster::Plan;
use rheostat_core::DcId;

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
