//! A node whose disk was lost comes back into its groups as a new member, and then another one can go.

use crate::client::{Reply, eventually};
use crate::cluster::{Cluster, Plan, keyspace};
use crate::replicas::replicated;
use rheostat_server::NodeConfig;
use rheostat_server::config::KeyspaceConfig;

const KEYSPACES: [&str; 3] = ["default", "group", "votes"];

/// Three nodes in one data center, each with a server of every partition.
fn plan() -> Plan {
    let change = |config: &mut NodeConfig| {
        let first = KeyspaceConfig { failover_ms: 400, ..replicated("default", "causal") };
        config.keyspaces = vec![first, replicated("group", "session"), replicated("votes", "strong"), keyspace("alone", "causal")];
    };
    Plan { data_centers: vec!["a"], partitions: 2, owners: vec![vec![0], vec![1], vec![]], one_way_ms: 0.0, change }
}

/// The values of gauge `name` at the servers of groups at `node`; none while one of them does not tell it.
async fn gauge(cluster: &Cluster, node: usize, name: &str) -> Vec<f64> {
    let status = cluster.node(node).router().status().await;
    let of_groups = status.replicas.iter().filter(|replica| usize::from(replica.keyspace.0) < KEYSPACES.len());
    let value = |gauges: &[(&'static str, f64)]| gauges.iter().find(|(gauge, _)| *gauge == name).map(|(_, value)| *value);
    of_groups.filter_map(|replica| value(&replica.status.gauges)).collect()
}

async fn write(cluster: &Cluster, node: usize, round: usize) {
    let mut client = cluster.client(node).await;
    for keyspace in KEYSPACES {
        assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
        for key in 0..20 {
            client.ask_until(&format!("SET {round}:{key} {keyspace}"), Reply::ok()).await;
        }
    }
}

async fn read(cluster: &Cluster, node: usize, rounds: usize) {
    let mut client = cluster.client(node).await;
    for keyspace in KEYSPACES {
        assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
        if keyspace == "group" {
            assert_eq!(client.ask("RHEO LEVEL local").await, Reply::ok());
        }
        for (round, key) in (0..rounds).flat_map(|round| (0..20).map(move |key| (round, key))) {
            client.ask_until(&format!("GET {round}:{key}"), Reply::bulk(keyspace)).await;
        }
    }
}

/// Its servers are members of this generation, and counted.
async fn comes_back(cluster: &Cluster, node: usize, generation: f64) {
    eventually("its servers are members again", async || {
        let generations = gauge(cluster, node, "member_generation").await;
        let outside = [gauge(cluster, node, "member_is_nobody").await, gauge(cluster, node, "member_is_learner").await].concat();
        generations == [generation; 6] && outside == [0.0; 12]
    })
    .await;
}

#[tokio::test]
async fn a_node_that_lost_its_disk_is_replaced_and_then_another_may_die() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = plan().start(Some(folder.path())).await;
    write(&cluster, 0, 0).await;
    comes_back(&cluster, 1, 0.0).await;
    // One after the other, each with nothing but what the others give it.
    for (turn, lost) in [1, 2].into_iter().enumerate() {
        cluster.stop(lost).await;
        std::fs::remove_dir_all(cluster.configs[lost].data_dir.as_ref().unwrap()).unwrap();
        cluster.configs[lost].accept_lost_writes = true;
        cluster.start(lost).await;
        comes_back(&cluster, lost, 1.0).await;
        // Who it is outlives a restart without that word.
        cluster.configs[lost].accept_lost_writes = false;
        cluster.stop(lost).await;
        cluster.start(lost).await;
        comes_back(&cluster, lost, 1.0).await;
        write(&cluster, lost, 1 + turn).await;
    }
    // The one that has had its disk all the time goes: the two others are a majority, and have everything.
    cluster.stop(0).await;
    write(&cluster, 1, 3).await;
    read(&cluster, 2, 4).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn two_lost_disks_of_three_are_not_taken_for_a_majority() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = plan().start(Some(folder.path())).await;
    write(&cluster, 0, 0).await;
    for lost in [1, 2] {
        cluster.stop(lost).await;
    }
    for lost in [1, 2] {
        std::fs::remove_dir_all(cluster.configs[lost].data_dir.as_ref().unwrap()).unwrap();
        cluster.configs[lost].accept_lost_writes = true;
        cluster.start(lost).await;
    }
    eventually("they have told each other who they are", async || {
        gauge(&cluster, 1, "member_is_nobody").await == [1.0; 6] && gauge(&cluster, 2, "member_is_nobody").await == [1.0; 6]
    })
    .await;
    let mut client = cluster.client(1).await;
    assert!(matches!(client.ask("SET 0:0 again").await, Reply::Error(_)));
    assert_eq!(gauge(&cluster, 1, "leader_known").await, [0.0; 6]);
    assert_eq!(gauge(&cluster, 2, "term").await, [0.0; 6], "it has voted for nobody");
    cluster.stop_all().await;
}

/// All nodes are new, and all were started with the word for one that is not.
#[tokio::test]
async fn a_new_cluster_forms_its_groups_though_every_node_gives_up_what_it_may_have_had() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| {
        config.keyspaces = vec![replicated("default", "causal"), replicated("group", "session"), replicated("votes", "strong")];
        config.accept_lost_writes = true;
    };
    let mut cluster = Plan { change, ..plan() }.start(Some(folder.path())).await;
    write(&cluster, 0, 0).await;
    comes_back(&cluster, 2, 0.0).await;
    // Left in at a restart of one, it is another replacement; nothing is lost.
    cluster.stop(2).await;
    cluster.start(2).await;
    comes_back(&cluster, 2, 1.0).await;
    write(&cluster, 2, 1).await;
    read(&cluster, 1, 2).await;
    cluster.stop_all().await;
}
