//! Real processes: keyspaces of protocol `causal` whose servers have three replicas each, three nodes in one data center and one in each of two others. Under load the node that leads a
//! partition is killed with SIGKILL, and another is stopped for longer than any lease; the clients of the other nodes go on. Nothing acknowledged is lost, what is read everywhere is causal, and who was
//! down catches up. Readers of the change feed, in the data center where nodes die and in another one, miss nothing and see no effect before its cause.

use super::agreement::converged;
use super::recorder::{DATA_CENTERS, Recorder, check_causal, key_name, observation, version_id};
use super::support::{PATIENCE, connect, keyspace, start};
use rheostat_checkers::feed;
use rheostat_checkers::history::{Action, Event, KeyId, Outcome, SessionId, WriteItem};
use rheostat_client::feed::{Feed, From};
use rheostat_client::v1;
use rheostat_cluster::Description;
use rheostat_cluster::description::{DataCenter, ListedNode};
use rheostat_cluster::processes::Signal;
use rheostat_core::DcId;
use rheostat_core::dial::Level;
use rheostat_core::feed::Position;
use rheostat_core::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Each node: its data center, and the partitions that it owns.
const NODES: [(usize, &[u16]); 5] = [(0, &[0]), (0, &[1]), (0, &[]), (1, &[0, 1]), (2, &[0, 1])];
const KEYS: usize = 12;

fn description() -> Description {
    let listed = |dc: usize| {
        let there = NODES.iter().filter(move |(of, _)| *of == dc);
        there.map(|(_, owned)| ListedNode { partitions: Some(owned.to_vec()), ..ListedNode::default() }).collect()
    };
    let mut causal = keyspace("default", "causal");
    causal.replicas = 3;
    causal.history_ms = 600_000;
    let data_center = |(dc, name): (usize, &&str)| DataCenter { name: name.to_string(), listed: listed(dc), ..DataCenter::default() };
    Description {
        partitions: 2,
        shards: 1,
        keyspaces: vec![causal],
        data_centers: DATA_CENTERS.iter().enumerate().map(data_center).collect(),
        ..Description::new("failover", &[])
    }
}

/// A number of every server of data center 0 on the nodes that `of` names: by partition and replica, the node and the number.
async fn gauges(addresses: &[String], of: &[usize], name: &str) -> Option<BTreeMap<(u32, u32), (usize, f64)>> {
    let mut found = BTreeMap::new();
    for index in of {
        let client = connect(&addresses[*index]).await;
        let status = client.admin().status(client.request(v1::StatusRequest {})).await.ok()?.into_inner();
        for replica in status.replicas {
            let gauge = replica.gauges.iter().find(|gauge| gauge.name == name)?;
            found.insert((replica.partition, replica.replica), (*index, gauge.value));
        }
    }
    Some(found)
}

/// The node among `of` that leads `partition` in data center 0.
async fn leader(addresses: &[String], of: &[usize], partition: u32) -> usize {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(servers) = gauges(addresses, of, "leader").await
            && let Some((_, (node, _))) = servers.into_iter().find(|((at, _), (_, leads))| *at == partition && *leads == 1.0)
        {
            return node;
        }
        assert!(Instant::now() < until, "nobody leads partition {partition}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One client: operations one after another in one session, whatever the cluster does meanwhile.
async fn work(id: u64, dc: usize, address: String, recorder: Arc<Mutex<Recorder>>, keys: Vec<KeyId>, done: Arc<AtomicBool>) {
    let client = connect(&address).await;
    let mut session = client.session("default");
    let mut random = Random::new(0xFA11 + id);
    let begin = |action: Action| recorder.lock().unwrap().begin(SessionId(id), dc, action);
    while !done.load(Ordering::Relaxed) {
        let chosen = random.below(KEYS as u64) as usize;
        let (event, result) = match random.below(10) {
            0..4 => {
                let event = begin(Action::Get { key: keys[chosen], level: Level::Causal });
                (event, session.get(key_name(chosen)).await.map(|read| Outcome::Read(vec![observation(&read)])))
            }
            4..6 => {
                let asked: Vec<usize> = (0..3).map(|next| (chosen + 5 * next) % KEYS).collect();
                let event = begin(Action::ReadTransaction { keys: asked.iter().map(|key| keys[*key]).collect(), level: Level::Causal });
                let result = session.read_transaction(asked.into_iter().map(key_name)).await;
                (event, result.map(|many| Outcome::Read(many.reads.iter().map(observation).collect())))
            }
            choice => {
                let value = (choice < 9).then(|| recorder.lock().unwrap().builder.fresh_value());
                let event = begin(Action::Put { items: vec![WriteItem { key: keys[chosen], value }], level: Level::Causal });
                let result = match value {
                    Some(value) => session.put(key_name(chosen), value.0.to_string()).await.map(|version| Some(version_id(&version))),
                    // Nothing is written where nothing was.
                    None => session.delete(key_name(chosen)).await.map(|deleted| deleted.version.as_ref().map(version_id)),
                };
                (event, result.map(|version| version.map_or(Outcome::Failed, |version| Outcome::Written(Some(version)))))
            }
        };
        let failed = result.is_err();
        recorder.lock().unwrap().end(event, result).unwrap();
        tokio::time::sleep(Duration::from_millis(if failed { 50 } else { random.below(30) })).await;
    }
}

/// A reader of the change feed, a few changes at a time, until it has come to `end`. Now and then it forgets what it was told last, and begins again where it was before.
async fn follow(address: String, keys: Vec<KeyId>, end: Arc<Mutex<Option<Position>>>) -> (feed::Told, usize) {
    let client = connect(&address).await;
    let position = |text: &str| Position::parse(text.as_bytes()).unwrap();
    let mut random = Random::new(0xFEED);
    let mut feed = Feed::new(&client, "default", From::Now).at_once(8);
    assert_eq!(feed.next().await.unwrap(), []);
    let from = position(feed.position().unwrap());
    let mut told = feed::Told { from, upto: from, changes: Vec::new(), causal: feed.is_causal() };
    let mut resumed = 0;
    let until = Instant::now() + 4 * PATIENCE;
    while end.lock().unwrap().is_none_or(|end| told.upto < end) {
        assert!(Instant::now() < until, "the reader at {address} is at {:?}", told.upto);
        let before = feed.position().unwrap().to_owned();
        let Ok(changes) = tokio::time::timeout(Duration::from_secs(2), feed.next()).await else { continue };
        let changes = changes.unwrap();
        if random.chance(1, 20) {
            resumed += 1;
            feed = Feed::new(&client, "default", From::Position(before)).at_once(1 + random.below(8) as u32);
            continue;
        }
        let name = |key: &[u8]| keys.iter().copied().enumerate().find(|(index, _)| key_name(*index).as_bytes() == key).unwrap().1;
        told.changes.extend(changes.iter().map(|change| (name(&change.key), version_id(&change.version))));
        told.upto = position(feed.position().unwrap());
    }
    (told, resumed)
}

/// Waits until so many writes of data center 0 have been answered that were begun from now on.
async fn serves(recorder: &Mutex<Recorder>, what: &str) {
    let (from_us, until) = (recorder.lock().unwrap().now_us(), Instant::now() + PATIENCE);
    loop {
        let answered = |event: &&Event| event.dc == DcId(0) && event.invoked_us >= from_us && matches!(event.outcome, Outcome::Written(_));
        if recorder.lock().unwrap().builder.events().iter().filter(answered).count() >= 30 {
            return;
        }
        assert!(Instant::now() < until, "{what}, and the others do not go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until every server of data center 0 has applied what its leader has.
async fn caught_up(addresses: &[String]) {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(servers) = gauges(addresses, &[0, 1, 2], "applied_index").await {
            let most = |partition: u32| servers.iter().filter(|((at, _), _)| *at == partition).map(|(_, (_, index))| *index).fold(0.0, f64::max);
            // Leaders go on renewing what they have reserved of their clocks.
            if servers.len() == 6 && servers.iter().all(|((partition, _), (_, index))| *index + 50.0 >= most(*partition)) {
                return;
            }
            assert!(Instant::now() < until, "a server does not catch up: {servers:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_causal_keyspace_goes_on_without_the_node_that_led_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, addresses) = start(&description(), folder.path()).await;
    for address in &addresses {
        let client = connect(address).await;
        // The servers of each partition choose their first leader.
        for key in 0..KEYS {
            let until = Instant::now() + PATIENCE;
            while client.session("default").get(key_name(key)).await.is_err() {
                assert!(Instant::now() < until, "{address} does not begin");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    let recorder = Recorder::new(DATA_CENTERS.len() as u8, KEYS);
    let keys: Vec<KeyId> = (0..KEYS).map(|key| recorder.key(key)).collect();
    let recorder = Arc::new(Mutex::new(recorder));
    let done = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..2 * NODES.len())
        .map(|id| {
            let (dc, address) = (NODES[id % NODES.len()].0, addresses[id % NODES.len()].clone());
            tokio::spawn(work(id as u64, dc, address, recorder.clone(), keys.clone(), done.clone()))
        })
        .collect();
    let end = Arc::new(Mutex::new(None));
    // At a node without partitions of its own, which is killed too if it leads one, and in another data center.
    let readers: Vec<_> = [2, 4].map(|node: usize| tokio::spawn(follow(addresses[node].clone(), keys.clone(), end.clone()))).into();
    serves(&recorder, "nothing has happened").await;

    for partition in [0, 1] {
        let killed = leader(&addresses, &[0, 1, 2], partition).await;
        nodes.kill(killed);
        serves(&recorder, "the leader was killed").await;
        nodes.restart(killed).unwrap();
        caught_up(&addresses).await;
    }
    // One that stands still for longer than its lease, and then goes on where it was.
    let stopped = leader(&addresses, &[0, 1, 2], 0).await;
    let others: Vec<usize> = (0..3).filter(|node| *node != stopped).collect();
    nodes.signal(stopped, Signal::STOP).unwrap();
    let next = leader(&addresses, &others, 0).await;
    assert_ne!(next, stopped);
    serves(&recorder, "the leader was stopped").await;
    nodes.signal(stopped, Signal::CONT).unwrap();
    serves(&recorder, "the leader was stopped and goes on").await;
    done.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("a client ended in panic");
    }
    caught_up(&addresses).await;
    let mut clients = Vec::new();
    for address in &addresses {
        clients.push(connect(address).await);
    }
    let finals = converged(&clients, KEYS).await;

    let mut recorder = Arc::into_inner(recorder).expect("all clients are done").into_inner().unwrap();
    for ((dc, _), reads) in NODES.iter().zip(&finals) {
        for (key, read) in reads.iter().enumerate() {
            recorder.final_read(*dc, key, observation(read));
        }
    }
    let history = recorder.builder.finish().expect("a well-formed history");
    let newest = history.events.iter().filter_map(|event| event.acknowledged()?).max().expect("something was written");
    *end.lock().unwrap() = Some(Position(newest));
    let mut told = Vec::new();
    for reader in readers {
        let (all, resumed) = reader.await.expect("a reader ended in panic");
        assert!(all.causal && all.changes.len() > 150 && resumed > 0, "{} changes, resumed {resumed} times", all.changes.len());
        told.push(all);
    }
    feed::check(&history, &told).unwrap_or_else(|why| panic!("{why}"));
    let (summary, acknowledged) = check_causal("failover", &history, 150);
    println!("{} events, {acknowledged} acknowledged writes\n{summary}", history.events.len());
}
