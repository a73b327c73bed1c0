//! Real processes with replicas: a node that was added gets its share of the servers, one that is dead for ever is emptied, and it comes back with its old disk, while clients of all nodes read and write, try once more at another node when
//! something fails, and lose nothing.

use super::control::{ctl, json, told};
use super::support::{PATIENCE, connect, keyspace, start, until};
use rheostat_client::{Error, Session};
use rheostat_cluster::Description;
use rheostat_cluster::description::{DataCenter, ListedNode};
use rheostat_server::config::DurabilityConfig;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYSPACES: [&str; 3] = ["default", "session", "strong"];
const PARTITIONS: u16 = 2;

/// a-1 to a-4, the last of which was added; and b-1, which has all servers of data center b.
fn description() -> Description {
    let owned = |partitions: &[u16]| ListedNode { partitions: Some(partitions.to_vec()), ..ListedNode::default() };
    let added = ListedNode { added: true, ..ListedNode::default() };
    let mut keyspaces =
        vec![keyspace("default", "causal"), keyspace("session", "session"), keyspace("strong", "strong"), keyspace("alone", "causal")];
    keyspaces[..3].iter_mut().for_each(|keyspace| keyspace.replicas = 3);
    keyspaces[3].durability = DurabilityConfig::Memory;
    let data_center = |name: &str, listed| DataCenter { name: name.into(), listed, ..DataCenter::default() };
    Description {
        partitions: PARTITIONS,
        shards: 1,
        keyspaces,
        data_centers: vec![data_center("a", vec![owned(&[0]), owned(&[1]), owned(&[]), added]), data_center("b", vec![owned(&[0, 1])])],
        ..Description::new("seats", &[])
    }
}

fn refused(address: &str, arguments: &[&str]) -> String {
    let output = ctl(address, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    told(&output)
}

/// How many servers of data center a each node has; nothing while one is on its way.
fn counts(address: &str) -> Option<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for seat in json(address, &["seats"]).as_array().unwrap().iter().filter(|seat| seat["data_center"] == "a") {
        seat["settled"].as_bool().filter(|settled| *settled)?;
        *counts.entry(seat["node"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    Some(counts)
}

fn every_group_is_led(address: &str) -> bool {
    json(address, &["leaders"]).as_array().unwrap().iter().all(|group| group["leader"].is_string())
}

/// The stores that a node of the cluster in `folder` has on disk, of keyspaces with replicas.
fn stores(folder: &Path, node: &str) -> usize {
    let stores = |keyspace: &&str| {
        std::fs::read_dir(folder.join(node).join("data").join(keyspace)).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()).count()
    };
    KEYSPACES.iter().map(stores).sum()
}

async fn asked(session: &mut Session, key: &str, value: Option<u64>) -> Result<(), Error> {
    match value {
        None => session.get(key.to_owned()).await.map(drop),
        Some(value) => session.put(key.to_owned(), value.to_string()).await.map(drop),
    }
}

/// Waits until the node at `address` reaches servers of both partitions of all keyspaces.
async fn reaches_all(address: &str) {
    let (client, began) = (connect(address).await, Instant::now());
    for (keyspace, key) in KEYSPACES.iter().flat_map(|keyspace| (0..8).map(move |key| (*keyspace, format!("none-{key}")))) {
        while let Err(error) = asked(&mut client.session(keyspace), &key, None).await {
            assert!(began.elapsed() < PATIENCE, "{keyspace} {key}: {error}");
        }
    }
}

/// What one client has written last and was told of, by keyspace and key; and what failed twice.
type Done = (BTreeMap<(&'static str, String), u64>, Vec<String>);

// The clients go on while a command of the operator is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_move_while_clients_go_on_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, addresses) = start(&description(), folder.path()).await;
    until("every group has a leader", || every_group_is_led(&addresses[1])).await;
    for address in &addresses[1..4] {
        reaches_all(address).await;
    }
    assert_eq!(counts(&addresses[1]).unwrap(), BTreeMap::from([("a-1", 6), ("a-2", 6), ("a-3", 6)].map(|(node, count)| (node.to_owned(), count))));
    let (done, count, retried) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    // Odd while a node that was killed is missed: its group waits for an election then. 0: none was killed yet.
    let missed = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    for number in 0..6 {
        let (done, count, retried, missed) = (done.clone(), count.clone(), retried.clone(), missed.clone());
        // As an application behind a list of addresses: when its node goes, it takes another. Nobody asks the node that will die.
        let own: Vec<String> = (0..3).map(|next| addresses[1 + (number + next) % 3].clone()).collect();
        workers.push(tokio::spawn(async move {
            let mut at = 0;
            let mut client = connect(&own[at]).await;
            let (mut written, mut failed): Done = Default::default();
            for round in 1.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let (keyspace, key) = (KEYSPACES[(number + round as usize) % 3], format!("w{number}-{}", round % 20));
                let value = (round % 4 != 0).then_some(round);
                let before = missed.load(Ordering::Relaxed);
                let mut result = asked(&mut client.session(keyspace), &key, value).await;
                if let Err(first) = result {
                    retried.fetch_add(1, Ordering::Relaxed);
                    at = (at + 1) % own.len();
                    client = connect(&own[at]).await;
                    result = asked(&mut client.session(keyspace), &key, value).await;
                    let same = before == missed.load(Ordering::Relaxed);
                    match &result {
                        Err(second) if same && before.is_multiple_of(2) => failed.push(format!("{keyspace} {key}: {first}; then {second}")),
                        // Nobody has died: who asks for what has just moved is passed on.
                        _ if same && before == 0 && matches!(first, Error::Unreachable(_)) => failed.push(format!("{keyspace} {key}: {first}")),
                        _ => {}
                    }
                }
                match (result, value) {
                    (Ok(()), Some(value)) => drop(written.insert((keyspace, key), value)),
                    // Whether it was done is not known.
                    (Err(_), Some(_)) => drop(written.remove(&(keyspace, key))),
                    _ => {}
                }
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            (written, failed)
        }));
    }

    // What cannot be is refused, and nothing moves.
    let at = &addresses[1];
    for (arguments, why) in [
        (&["seats", "move", "default", "0", "a-1", "a-9"][..], "there is no node `a-9`"),
        (&["seats", "move", "default", "7", "a-1", "a-4"], "no server of keyspace default, partition 7"),
        (&["seats", "move", "alone", "0", "a-1", "a-4"], "no server of keyspace alone"),
        (&["seats", "move", "default", "0", "a-1", "a-2"], "one node has one"),
        (&["seats", "move", "default", "0", "a-4", "a-4"], "a-4 has no server"),
        (&["seats", "move", "default", "0", "a-1", "b-1"], "a-1"),
        (&["seats", "empty", "b-1"], "cannot be emptied"),
    ] {
        let said = refused(at, arguments);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    let plan = json(at, &["seats", "spread", "--dry-run"]);
    let planned = plan["moves"].as_array().unwrap();
    assert!((4..=5).contains(&planned.len()) && planned.iter().all(|one| one["to"] == "a-4"), "{plan}");
    assert_eq!(stores(folder.path(), "a-4"), 0, "a plan changes nothing");

    // The node that was added gets its share.
    let moved = json(at, &["seats", "spread"]);
    assert_eq!(moved["moved"].as_array().unwrap().len(), planned.len(), "{moved}");
    let after = counts(at).unwrap();
    assert!(after.values().all(|count| (4..=5).contains(count)) && after.len() == 4, "{after:?}");
    for (node, has) in &after {
        until("what has moved is deleted where it was", || stores(folder.path(), node) == *has).await;
    }
    assert_eq!(json(at, &["seats", "spread"])["moves"].as_array().unwrap().len(), 0);

    // It knows what it has, over kill -9 too.
    missed.fetch_add(1, Ordering::Relaxed);
    nodes.kill(3);
    nodes.restart(3).unwrap();
    until("a-4 is back", || ctl(&addresses[3], &["status"]).status.success()).await;
    until("and counts", || every_group_is_led(at) && counts(&addresses[3]) == Some(after.clone())).await;
    missed.fetch_add(1, Ordering::Relaxed);

    // One dies for ever, and its servers move to where there is room.
    missed.fetch_add(1, Ordering::Relaxed);
    nodes.kill(0);
    until("others lead", || every_group_is_led(at)).await;
    missed.fetch_add(1, Ordering::Relaxed);
    let emptied = json(at, &["seats", "empty", "a-1"]);
    assert_eq!(emptied["moved"].as_array().unwrap().len(), after["a-1"], "{emptied}");
    until("the others have all", || {
        counts(at) == Some(BTreeMap::from([("a-2", 6), ("a-3", 6), ("a-4", 6)].map(|(node, count)| (node.to_owned(), count))))
    })
    .await;

    // Its old disk comes back: it learns that nothing is its own any more.
    assert_eq!(stores(folder.path(), "a-1"), after["a-1"]);
    nodes.restart(0).unwrap();
    until("a-1 has let go", || stores(folder.path(), "a-1") == 0).await;
    until("nothing is wrong", || ctl(at, &["status"]).status.success()).await;
    // However slow the machine is, most requests need no second try.
    let (asked_for, again) = (|| count.load(Ordering::Relaxed), || retried.load(Ordering::Relaxed));
    until("many requests are answered at once", || asked_for() > 300 && again() * 10 < asked_for()).await;
    done.store(true, Ordering::Relaxed);
    let mut written = BTreeMap::new();
    for worker in workers {
        let (last, failed) = worker.await.unwrap();
        assert_eq!(failed, Vec::<String>::new());
        written.extend(last);
    }
    println!("{} requests, {} of them tried once more", asked_for(), again());

    // Those that have come count: without another one of the first nodes, a majority has everything.
    until("every group has a leader", || every_group_is_led(at)).await;
    nodes.kill(2);
    until("others lead", || every_group_is_led(at)).await;
    assert!(written.len() > 100, "{}", written.len());
    let client = connect(at).await;
    for ((keyspace, key), value) in &written {
        let began = Instant::now();
        let read = loop {
            match client.session(*keyspace).get(key.clone()).await {
                Ok(read) => break read,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{keyspace} {key}: {error}"),
            }
        };
        assert_eq!(read.value.as_deref(), Some(value.to_string().as_bytes()), "{keyspace} {key}");
    }
    // Where another one of the group is down, nothing moves.
    let said = refused(at, &["seats", "move", "default", "0", "a-2", "a-1", "--wait", "1"]);
    assert!(said.contains("does not answer"), "{said}");
    nodes.restart(2).unwrap();
    until("a-3 is back", || ctl(&addresses[2], &["status"]).status.success()).await;
    nodes.end().await;
}

/// A node had a server when it was taken out of the configuration, and nobody has emptied it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_had_that_is_in_no_configuration_moves_by_that_nodes_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = description();
    one.keyspaces.retain(|keyspace| keyspace.name == "session");
    one.data_centers.truncate(1);
    let (mut nodes, addresses) = start(&one, folder.path()).await;
    let at = &addresses[0];
    until("every group has a leader", || every_group_is_led(at)).await;
    let hosts = || -> Vec<String> {
        let seats = json(at, &["seats"]);
        let of_first = seats.as_array().unwrap().iter().filter(|seat| seat["partition"] == 0);
        of_first.map(|seat| seat["node"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let before = hosts();
    let to = ["a-1", "a-2", "a-3", "a-4"].into_iter().find(|name| !before.iter().any(|host| host == name)).unwrap();
    let said = "[[seat]]\nkeyspace = \"session\"\ndata_center = \"a\"\npartition = 0\nreplica = 1\nversion = 1\nnode = \"a-9\"\nsettled = false\n";
    for index in 0..4 {
        nodes.stop(index).await.unwrap();
        std::fs::write(folder.path().join(format!("a-{}/data/.seats", index + 1)), said).unwrap();
    }
    for index in 0..4 {
        nodes.restart(index).unwrap();
    }
    for address in &addresses {
        until("it is back", || ctl(address, &["seats"]).status.success()).await;
    }
    until("every group has a leader", || every_group_is_led(at)).await;
    assert_eq!(hosts()[1], "");
    until("a-8 is known to nobody", || refused(at, &["seats", "move", "session", "0", "a-8", to]).contains("there is no node `a-8`")).await;
    let plan = json(at, &["seats", "empty", "a-9", "--dry-run"]);
    assert!(plan["moves"].as_array().unwrap().len() == 1 && plan["moves"][0]["to"] == to, "{plan}");
    until("it moves", || ctl(at, &["seats", "move", "session", "0", "a-9", to]).status.success()).await;
    assert_eq!(hosts()[1], to);
    // Said again: it has moved.
    assert!(ctl(at, &["seats", "move", "session", "0", "a-9", to]).status.success());
    assert!(refused(at, &["seats", "empty", "a-9"]).contains("there is no node `a-9`"));
    nodes.end().await;
}
