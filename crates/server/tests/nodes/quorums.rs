//! Quorums and values side by side, with real nodes, over RESP and gRPC.

use crate::client::{Client, PATIENCE, Reply};
use crate::cluster::{Cluster, Plan, keyspace};
use rheostat_core::DcId;
use rheostat_server::NodeConfig;
use rheostat_server::config::KeyspaceConfig;
use std::time::Duration;

fn three() -> Plan {
    Plan {
        one_way_ms: 2.0,
        change: |config: &mut NodeConfig| {
            let of_majorities: toml::Table = toml::from_str("consistency = 'sequential'").unwrap();
            config.keyspaces = vec![
                keyspace("carts", "quorum"),
                KeyspaceConfig { options: of_majorities, ..keyspace("locks", "quorum") },
                keyspace("posts", "causal"),
            ];
        },
        ..Plan::three(2)
    }
}

/// Cuts data center `dc` off from both others, or undoes that.
fn cut(cluster: &Cluster, dc: u8, cut: bool) {
    for other in (0..3).filter(|other| *other != dc) {
        for node in 0..3 {
            let router = cluster.node(node).router();
            // Each node knows its own links.
            let _ = if cut { router.pause_link(DcId(dc), DcId(other)) } else { router.resume_link(DcId(dc), DcId(other)) };
            let _ = if cut { router.pause_link(DcId(other), DcId(dc)) } else { router.resume_link(DcId(other), DcId(dc)) };
        }
    }
}

/// What RHEO SIBLINGS answers: the context, and the values in order of their bytes.
async fn siblings(client: &mut Client, key: &str) -> (String, Vec<String>) {
    let reply = client.ask(&format!("RHEO SIBLINGS {key}")).await;
    let [context, values] = reply.items() else { panic!("{reply:?}") };
    let mut values: Vec<String> = values.items().iter().map(Reply::text).collect();
    values.sort();
    (context.text(), values)
}

#[tokio::test]
async fn values_stand_side_by_side_until_somebody_has_seen_them() {
    let cluster = three().start(None).await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(2).await);
    let begun = here.ask("RHEO PUT {c}basket bread").await;
    let context = begun.text();
    let until = tokio::time::Instant::now() + PATIENCE;
    while siblings(&mut there, "{c}basket").await.1 != ["bread"] {
        assert!(tokio::time::Instant::now() < until, "it does not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Two people go on from the same basket.
    let mut other = cluster.client(0).await;
    assert!(matches!(here.ask(&format!("RHEO PUT {{c}}basket bread,milk CONTEXT {context}")).await, Reply::Bulk(_)));
    assert!(matches!(other.ask(&format!("RHEO PUT {{c}}basket bread,salt CONTEXT {context}")).await, Reply::Bulk(_)));
    let (seen, values) = siblings(&mut here, "{c}basket").await;
    assert_eq!(values, ["bread,milk", "bread,salt"]);
    assert_eq!(here.ask("GET {c}basket").await, Reply::bulk("bread,salt"), "the last writer's");
    // Elsewhere, with what was seen here.
    assert!(matches!(there.ask(&format!("RHEO PUT {{c}}basket bread,milk,salt CONTEXT {seen}")).await, Reply::Bulk(_)));
    for client in [&mut here, &mut there] {
        let until = tokio::time::Instant::now() + PATIENCE;
        while siblings(client, "{c}basket").await.1 != ["bread,milk,salt"] {
            assert!(tokio::time::Instant::now() < until, "they are not replaced");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // What is refused, and in what words.
    for (request, words) in [
        ("RHEO PUT {c}basket x CONTEXT rheo-nonsense", "SESSION"),
        ("RHEO PUT {c}basket x WITH y", "ERR syntax"),
        ("RHEO QUORUM 1 4 1", "ERR 4 replicas: there are 3"),
        ("RHEO QUORUM 1 2", "ERR wrong number"),
        ("RHEO QUORUM a b c", "ERR 'a' is no number"),
    ] {
        assert!(here.ask(request).await.is_error(words), "{request}");
    }
    assert_eq!(here.ask("SELECT posts").await, Reply::ok());
    assert!(here.ask("RHEO QUORUM 0 2 2").await.is_error("ERR keyspace `posts` runs protocol causal, which has no quorums"));
    assert!(here.ask("RHEO SIBLINGS a").await.is_error("ERR in protocol causal a key has one value"));
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_majority_answers_without_the_third_and_too_few_say_who_did() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    assert_eq!(client.ask("SELECT locks").await, Reply::ok());
    client.ask_until("SET {k}a 1", Reply::ok()).await;
    assert_eq!(client.ask("MULTI").await, Reply::ok());
    assert_eq!(client.ask("SET {k}a 2").await, Reply::Simple("QUEUED".into()));
    assert!(client.ask("EXEC").await.is_error("ERR a transaction is made by one replica alone"));
    let mut far = cluster.client(2).await;
    for request in ["SELECT locks", "RHEO QUORUM 1 1 1"] {
        assert_eq!(far.ask(request).await, Reply::ok());
    }
    far.ask_until("GET {k}a", Reply::bulk("1")).await;
    assert_eq!(far.ask("RHEO QUORUM DEFAULT").await, Reply::ok());
    // Data center 2 is away: the other two are a majority.
    cut(&cluster, 2, true);
    assert_eq!(client.ask("SET {k}a 3").await, Reply::ok());
    assert_eq!(client.ask("GET {k}a").await, Reply::bulk("3"));
    assert_eq!(client.ask("MGET {k}a {k}b").await, Reply::Array(vec![Reply::bulk("3"), Reply::Null]));
    assert_eq!(client.ask("RHEO QUORUM 0 3 1").await, Reply::ok());
    // Long enough for the second one to answer, also on a busy machine.
    assert_eq!(client.ask("RHEO WITHIN 3000").await, Reply::ok());
    let refused = client.ask("GET {k}a").await;
    assert!(
        refused.is_error("NOREPLICAS InsufficientReplies: 2 of the 3 replicas that this read needs have answered in time: data center a, b"),
        "{refused:?}"
    );
    assert_eq!(far.ask("RHEO WITHIN 300").await, Reply::ok());
    let refused = far.ask("SET {k}a 4").await;
    assert!(refused.is_error("NOREPLICAS InsufficientReplies: 1 of the 2 replicas"), "{refused:?}");
    // Too few have been read, and nothing is written. A write that is made, and that too few have, is another matter: nobody is to repeat it by himself.
    assert_eq!(far.ask("RHEO QUORUM 0 1 2").await, Reply::ok());
    let made = far.ask("SET {k}c 5").await;
    assert!(made.is_error("TIMEOUT InsufficientReplies: 1 of the 2 replicas that this write needs"), "{made:?}");
    assert_eq!(far.ask("RHEO QUORUM 1 1 1").await, Reply::ok());
    assert_eq!(far.ask("GET {k}c").await, Reply::bulk("5"));
    assert_eq!(far.ask("GET {k}a").await, Reply::bulk("1"), "one replica alone has what it has");
    cut(&cluster, 2, false);
    assert_eq!(far.ask("RHEO QUORUM DEFAULT").await, Reply::ok());
    far.ask_until("GET {k}a", Reply::bulk("3")).await;
    cluster.stop_all().await;
}
