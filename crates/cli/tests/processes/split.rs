//! Real processes: partitions are split, and clients that were there before go on.

use super::support::{PATIENCE, connect, keyspace, split, start};
use rheostat_client::{Dial, Session, Strategy};
use rheostat_cluster::Description;
use rheostat_cluster::description::DataCenter;
use std::time::{Duration, Instant};

const KEYS: usize = 16;

/// Reads all keys from one snapshot, as soon as that can be done.
async fn read(session: &mut Session) {
    let until = Instant::now() + PATIENCE;
    loop {
        // A session that knows the present predicts.
        let known = session.get("k0").await;
        let read = session.read_transaction((0..KEYS).map(|key| format!("k{key}"))).await;
        match (known, read) {
            (Ok(_), Ok(many)) => {
                assert!(many.reads.iter().all(|read| read.value.as_deref() == Some(b"1".as_slice())), "{many:?}");
                return;
            }
            (known, read) => assert!(Instant::now() < until, "{known:?} {read:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_from_before_a_split_reads_snapshots_that_it_predicts_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let us = DataCenter { name: "us".into(), nodes: Some(2), ..DataCenter::default() };
    let keyspaces = vec![keyspace("default", "causal")];
    let before = Description { partitions: 2, shards: 1, data_centers: vec![us], keyspaces, ..Description::new("split", &["us".to_owned()]) };
    let (mut nodes, addresses) = start(&before, folder.path()).await;
    let mut session = connect(&addresses[0]).await.session("default");
    session.set_dial(Dial { strategy: Strategy::Predicted, ..session.dial() });
    for key in 0..KEYS {
        let until = Instant::now() + PATIENCE;
        while let Err(error) = session.put(format!("k{key}"), "1").await {
            assert!(Instant::now() < until, "{error}");
        }
    }
    read(&mut session).await;
    split(&mut nodes, before).await;
    read(&mut session).await;
    nodes.end().await;
}
