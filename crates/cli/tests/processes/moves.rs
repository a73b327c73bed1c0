//! Real processes: servers that stand alone move with their files, while the node that has them, or the one that they go to, is killed at any moment of it. What was acknowledged is there in the end, and nobody has begun with nothing.

use super::control::{ctl, json, told};
use super::support::{PATIENCE, connect, keyspace, start};
use rheostat_cluster::Description;
use rheostat_cluster::description::{DataCenter, ListedNode};
use rheostat_core::random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PARTITIONS: u16 = 2;

/// Values that make copying take a while.
const LARGE: (usize, usize) = (400, 32 << 10);

/// a-1 and a-2 have a partition each, a-3 was added; b-1 has both.
fn description() -> Description {
    let owned = |partitions: &[u16]| ListedNode { partitions: Some(partitions.to_vec()), ..ListedNode::default() };
    let added = ListedNode { added: true, ..ListedNode::default() };
    let data_center = |name: &str, listed| DataCenter { name: name.into(), listed, ..DataCenter::default() };
    Description {
        partitions: PARTITIONS,
        shards: 1,
        keyspaces: vec![keyspace("default", "causal"), keyspace("staged", "staged")],
        data_centers: vec![data_center("a", vec![owned(&[0]), owned(&[1]), added]), data_center("b", vec![owned(&[0, 1])])],
        ..Description::new("moves", &[])
    }
}

/// By keyspace and partition: the node of data center a that has it, and whether it is there.
fn seats(address: &str) -> BTreeMap<(String, u64), (String, bool)> {
    let seats = json(address, &["seats"]);
    let in_a = seats.as_array().unwrap().iter().filter(|seat| seat["data_center"] == "a");
    in_a.map(|seat| {
        let of = (seat["keyspace"].as_str().unwrap().to_owned(), seat["partition"].as_u64().unwrap());
        (of, (seat["node"].as_str().unwrap().to_owned(), seat["settled"].as_bool().unwrap()))
    })
    .collect()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn has_store(folder: &Path, node: &str, (keyspace, partition): &(String, u64)) -> bool {
    folder.join(node).join("data").join(keyspace).join(format!("p{partition}")).exists()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_killed_while_servers_move_between_them_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, addresses) = start(&description(), folder.path()).await;
    let client = connect(&addresses[0]).await;
    for keyspace in ["default", "staged"] {
        for number in 0..LARGE.0 {
            client.session(keyspace).put(format!("large{number}"), vec![number as u8; LARGE.1]).await.unwrap();
        }
    }
    let done = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for number in 0..4 {
        let (done, addresses, keyspace) = (done.clone(), addresses.clone(), ["default", "staged"][number % 2]);
        workers.push(tokio::spawn(async move {
            // By key: what was acknowledged last, and what was tried last.
            let mut written: BTreeMap<String, (u64, u64)> = BTreeMap::new();
            let mut at = number;
            let mut client = connect(&addresses[at % 3]).await;
            for round in 1.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("w{number}-{}", round % 10);
                let entry = written.entry(key.clone()).or_default();
                entry.1 = round;
                match client.session(keyspace).put(key, round.to_string()).await {
                    Ok(_) => entry.0 = round,
                    Err(_) => {
                        at += 1;
                        client = connect(&addresses[at % 3]).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(4)).await;
            }
            (keyspace, written)
        }));
    }
    // b-1 stays, and is who is asked.
    let operator = addresses[3].clone();
    let names = ["a-1", "a-2", "a-3"];
    let mut random = Random::new(7);
    let (mut interrupted, mut moved) = (0, 0);
    for round in 0..8 {
        let all = seats(&operator);
        let keys: Vec<(String, u64)> = all.keys().cloned().collect();
        let seat = keys[random.below(keys.len() as u64) as usize].clone();
        let from = all[&seat].0.clone();
        let to = *names.iter().filter(|name| **name != from).nth(random.below(2) as usize).unwrap();
        let arguments = ["ctl", "-a", &operator, "seats", "move", &seat.0, &seat.1.to_string(), &from, to, "--wait", "60"].map(str::to_owned);
        let mut operator_runs =
            Command::new(env!("CARGO_BIN_EXE_rheostat")).args(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(50 + random.below(600))).await;
        let killed = if round % 2 == 0 { from.as_str() } else { to };
        let index = names.iter().position(|name| *name == killed).unwrap();
        nodes.kill(index);
        let knows = seats(&operator)[&seat].clone();
        interrupted += usize::from(knows != (to.to_owned(), true));
        tokio::time::sleep(Duration::from_millis(random.below(400))).await;
        nodes.restart(index).unwrap();
        tokio::task::block_in_place(|| {
            drop(operator_runs.wait());
            let began = Instant::now();
            while told(&ctl(&addresses[index], &["status"])).contains("cannot connect") {
                nodes.check().unwrap_or_else(|ended| panic!("{ended}"));
                assert!(began.elapsed() < PATIENCE, "{killed} is not back");
                std::thread::sleep(Duration::from_millis(50));
            }
            // Said again, whatever has become of the first time.
            let began = Instant::now();
            loop {
                let again = ctl(&operator, &["seats", "move", &seat.0, &seat.1.to_string(), &from, to, "--wait", "60"]);
                if again.status.success() {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "{seat:?} {from} -> {to}, {killed} was killed: {}", told(&again));
                std::thread::sleep(Duration::from_millis(100));
            }
            until("all know", || names.iter().enumerate().all(|(index, _)| seats(&addresses[index])[&seat] == (to.to_owned(), true)));
        });
        moved += 1;
        let has: Vec<&str> = names.into_iter().filter(|name| has_store(folder.path(), name, &seat)).collect();
        assert_eq!(has, [to], "{seat:?}");
    }
    done.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for worker in workers {
        all.push(worker.await.unwrap());
    }
    println!("{moved} moves, {interrupted} of them interrupted");
    assert!(interrupted > 2, "{interrupted} of {moved}: the kills come too late");
    for address in &addresses {
        let client = connect(address).await;
        for (keyspace, written) in &all {
            assert!(written.len() == 10, "{written:?}");
            for (key, (acknowledged, tried)) in written {
                let began = Instant::now();
                loop {
                    let value = client.session(*keyspace).get(key.clone()).await.ok().and_then(|read| read.value);
                    let value: u64 = value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()).unwrap_or_default();
                    if value >= *acknowledged {
                        assert!(value <= *tried, "{keyspace} {key}: {value} of {tried}");
                        break;
                    }
                    assert!(began.elapsed() < PATIENCE, "{keyspace} {key} at {address}: {value}, and {acknowledged} was acknowledged");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        for number in 0..LARGE.0 {
            let read = client.session("default").get(format!("large{number}")).await.unwrap();
            assert_eq!(read.value.map(|value| (value.len(), value[0])), Some((LARGE.1, number as u8)), "large{number}");
        }
    }
    nodes.end().await;
}
