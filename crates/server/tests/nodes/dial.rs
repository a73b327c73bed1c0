//! What one notch of the dial more or less would have given, at real nodes.

use crate::client::{Reply, eventually};
use crate::cluster::{Cluster, Plan, keyspace};
use rheostat_core::DcId;
use rheostat_core::notch::{Tally, label_of};
use rheostat_server::NodeConfig;
use rheostat_server::config::{KeyspaceConfig, ServiceLevelConfig};
use std::time::Duration;

fn three() -> Plan {
    Plan {
        change: |config: &mut NodeConfig| {
            config.service_levels.insert("checkout".into(), ServiceLevelConfig { entries: "causal 5s; eventual".into() });
            let every = |name: &str, protocol: &str| KeyspaceConfig { sample_reads: 1, ..keyspace(name, protocol) };
            config.keyspaces =
                vec![every("plain", "eventual"), every("posts", "causal"), KeyspaceConfig { sample_reads: 0, ..keyspace("quiet", "eventual") }];
        },
        ..Plan::three(1)
    }
}

/// What node `index` has sampled in keyspace `number`, under the service level of this label.
async fn tally(cluster: &Cluster, index: usize, number: usize, label: u16) -> Tally {
    let status = cluster.node(index).router().status().await;
    let sampled = status.replicas[number].sampled.clone().unwrap_or_default();
    let tallies = sampled.tallies.into_iter();
    tallies.filter(|(_, of, _)| *of == label).map(|(_, _, tally)| tally).next().unwrap_or_default()
}

#[tokio::test]
async fn reads_of_a_data_center_that_is_cut_off_are_said_to_have_missed_what_was_written_meanwhile() {
    let cluster = three().start(None).await;
    let (mut near, mut far) = (cluster.client(0).await, cluster.client(1).await);
    assert_eq!(far.ask("SET k before").await, Reply::ok());
    near.ask_until("GET k", Reply::bulk("before")).await;
    eventually("all reads so far are settled", async || {
        let tally = tally(&cluster, 0, 0, 0).await;
        tally.reads > 0 && tally.strong.of == tally.reads
    })
    .await;
    let missed_before = tally(&cluster, 0, 0, 0).await;
    for (node, (a, b)) in [(0, (0, 1)), (0, (0, 2)), (1, (0, 1)), (2, (0, 2))] {
        cluster.node(node).router().pause_link(DcId(a), DcId(b)).unwrap();
    }
    assert_eq!(far.ask("SET k after").await, Reply::ok());
    // A write counts from the next millisecond on.
    tokio::time::sleep(Duration::from_millis(5)).await;
    for _ in 0..50 {
        assert_eq!(near.ask("GET k").await, Reply::bulk("before"));
        assert_eq!(near.ask("GET nothing").await, Reply::Null);
    }
    assert_eq!(tally(&cluster, 0, 0, 0).await.strong, missed_before.strong, "nothing is said while it is not known");
    for (node, (a, b)) in [(0, (0, 1)), (0, (0, 2)), (1, (0, 1)), (2, (0, 2))] {
        cluster.node(node).router().resume_link(DcId(a), DcId(b)).unwrap();
    }
    eventually("all reads are settled", async || {
        let tally = tally(&cluster, 0, 0, 0).await;
        tally.reads == missed_before.reads + 100 && tally.strong.of == tally.reads
    })
    .await;
    assert_eq!(tally(&cluster, 0, 0, 0).await.strong.differ, missed_before.strong.differ + 50);
    // The other keyspaces have their own counts, and one counts nothing.
    assert_eq!(tally(&cluster, 0, 1, 0).await, Tally::default());
    assert_eq!(near.ask("SELECT quiet").await, Reply::ok());
    assert_eq!(near.ask("GET k").await, Reply::Null);
    assert!(cluster.node(0).router().status().await.replicas[2].sampled.is_none());
    cluster.stop_all().await;
}

#[tokio::test]
async fn reads_under_a_service_level_are_counted_under_its_name() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    assert_eq!(client.ask("SELECT posts").await, Reply::ok());
    assert_eq!(client.ask("RHEO SLA checkout").await, Reply::ok());
    for _ in 0..5 {
        assert_eq!(client.ask("GET k").await, Reply::Null);
    }
    assert_eq!(client.ask("RHEO SLA eventual").await, Reply::ok());
    assert_eq!(client.ask("GET k").await, Reply::Null);
    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
    assert_eq!(client.ask("GET k").await, Reply::Null);
    let reads = async |label: u16| tally(&cluster, 0, 1, label).await.reads;
    assert_eq!((reads(label_of("checkout")).await, reads(label_of("unnamed")).await, reads(0).await), (5, 1, 1));
    let status = cluster.node(0).router().status().await;
    assert_eq!(status.service_levels_named(label_of("checkout")), ["checkout"]);
    assert!(status.service_levels_named(0).is_empty());
    cluster.stop_all().await;
}
