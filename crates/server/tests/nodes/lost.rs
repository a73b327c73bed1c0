//! A data center that is gone for ever, and given up.

use crate::client::{Reply, eventually};
use crate::cluster::{Cluster, Plan, keyspace};
use rheostat_clock::Timestamp;
use rheostat_core::DcId;
use rheostat_server::status::OperationKind;
use rheostat_server::{NodeConfig, StreamEnd};

const A: DcId = DcId(0);
const C: DcId = DcId(2);

/// What a node has of data center `c`, by keyspace and partition: up to where, and up to where on disk.
async fn heard(cluster: &Cluster, node: usize) -> Vec<(StreamEnd, Timestamp)> {
    let status = cluster.node(node).router().status().await;
    let mut heard = Vec::new();
    for replica in status.replicas {
        for link in replica.status.links.iter().filter(|link| link.dc == C) {
            let end = StreamEnd { keyspace: replica.keyspace.0, partition: replica.status.server.partition, at: link.received };
            heard.push((end, link.received_durable));
        }
    }
    heard.sort_unstable_by_key(|(end, _)| (end.keyspace, end.partition));
    heard
}

/// How often node 0 asked a partition how far it is replicated.
async fn asked_for_copies(cluster: &Cluster) -> u64 {
    let status = cluster.node(0).router().status().await;
    status.shards.iter().map(|shard| shard.counters.operations[OperationKind::AwaitReplication as usize]).sum()
}

#[tokio::test]
async fn the_others_go_on_without_a_data_center_that_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let change: fn(&mut NodeConfig) = |config| config.keyspaces = vec![keyspace("posts", "causal"), keyspace("times", "gentlerain")];
    let mut cluster = Plan { change, ..Plan::three(2) }.start(Some(folder.path())).await;
    let (mut a, mut b, mut c) = (cluster.client(0).await, cluster.client(1).await, cluster.client(2).await);
    let refused = cluster.node(0).router().lose_data_center(C, false, Vec::new()).await.unwrap_err();
    assert!(refused.contains("c is not lost: its node c0 is connected"), "{refused}");
    let refused = cluster.node(0).router().lose_data_center(A, false, Vec::new()).await.unwrap_err();
    assert!(refused.contains("this node is of a"), "{refused}");

    // What c writes last reaches b only.
    for keyspace in ["posts", "times"] {
        for client in [&mut a, &mut b, &mut c] {
            assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
        }
        c.ask("SET before 1").await;
        a.ask_until("GET before", Reply::bulk("1")).await;
        b.ask_until("GET before", Reply::bulk("1")).await;
    }
    cluster.node(0).router().pause_link(A, C).unwrap();
    for keyspace in ["posts", "times"] {
        b.ask(&format!("SELECT {keyspace}")).await;
        c.ask(&format!("SELECT {keyspace}")).await;
        c.ask("SET question 1").await;
        // At level eventual: in gentlerain nothing newer is shown while a and c do not hear each other.
        b.ask("RHEO LEVEL eventual").await;
        b.ask_until("GET question", Reply::bulk("1")).await;
    }
    cluster.stop(2).await;
    cluster.node(0).router().resume_link(A, C).unwrap();

    // One node is told; the other hears of it.
    let refused = cluster.node(0).router().lose_data_center(C, false, vec![heard(&cluster, 0).await[0].0]).await.unwrap_err();
    assert!(refused.contains("is said first"), "{refused}");
    cluster.node(1).router().lose_data_center(C, false, Vec::new()).await.unwrap();
    eventually("a knows that c is lost", async || cluster.node(0).router().status().await.lost.iter().any(|lost| lost.dc == C)).await;
    eventually("a and b have the same of c", async || {
        let (one, other) = (heard(&cluster, 0).await, heard(&cluster, 1).await);
        one.len() == 4 && one == other && one.iter().all(|(end, durable)| end.at == *durable)
    })
    .await;
    let ends: Vec<StreamEnd> = heard(&cluster, 0).await.into_iter().map(|(end, _)| end).collect();
    cluster.node(0).router().lose_data_center(C, false, ends.clone()).await.unwrap();
    for node in [0, 1] {
        eventually("c is known to write nothing more", async || heard(&cluster, node).await.iter().zip(&ends).all(|((now, _), end)| now.at > end.at))
            .await;
    }

    // Reads, writes, replication and WAIT of the two, also after a restart; what c had told b is in a.
    for round in ["2", "3"] {
        let (mut a, mut b) = (cluster.client(0).await, cluster.client(1).await);
        for keyspace in ["posts", "times"] {
            for client in [&mut a, &mut b] {
                assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
                client.ask_until("GET question", Reply::bulk("1")).await;
            }
            a.ask_until(&format!("SET answer {round}"), Reply::ok()).await;
            assert_eq!(a.ask("WAIT 1 10000").await, Reply::Integer(1));
            let before = asked_for_copies(&cluster).await;
            assert_eq!(a.ask("WAIT 2 1000").await, Reply::Integer(1), "{keyspace}: nobody waits for c");
            let asked = asked_for_copies(&cluster).await - before;
            assert!((2..200).contains(&asked), "partitions that answer at once were asked {asked} times in a second");
            b.ask_until("GET answer", Reply::bulk(round)).await;
        }
        cluster.stop(0).await;
        cluster.start(0).await;
        eventually("a knows it after its restart", async || cluster.node(0).router().status().await.lost.iter().any(|lost| lost.ends.len() == 4))
            .await;
        eventually("a and b are connected", async || {
            cluster.node(0).router().status().await.peers.iter().any(|peer| peer.name == "b0" && peer.connected && peer.accepted)
        })
        .await;
    }

    // A node of c that comes back serves nothing, and is not heard.
    cluster.start(2).await;
    let mut c = cluster.client(2).await;
    c.ask("SELECT posts").await;
    c.ask_until_text("SET late 1", "given up").await;
    let mut b = cluster.client(1).await;
    assert_eq!(b.ask("GET late").await, Reply::Null);
    cluster.stop_all().await;
}
