//! Real processes whose partitions have three servers each in every data center: three nodes in one data center, one in each of two others. Under load from
//! real clients the node of a group's leader is killed with SIGKILL and restarted, and another is stopped and continued. The recorded histories must pass the
//! checkers of their levels, nothing acknowledged may be lost, and while a node is down every partition is served on.

use super::recorder::{DATA_CENTERS, Recorder, key_name, observation, observed, version_id};
use super::support::{PATIENCE, connect, keyspace, start, until};
use rheostat_checkers::history::{Action, Condition as Expected, Event, KeyId, Observation, Outcome, SessionId, WriteItem};
use rheostat_checkers::{Promises, check_all};
use rheostat_client::{Client, Condition, Put, Session, v1};
use rheostat_cluster::Description;
use rheostat_cluster::description::{DataCenter, ListedNode};
use rheostat_cluster::processes::Signal;
use rheostat_core::DcId;
use rheostat_core::dial::Level;
use rheostat_core::random::Random;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Each node: its data center, and the partitions that it owns.
const NODES: [(usize, &[u16]); 5] = [(0, &[0]), (0, &[1]), (0, &[]), (1, &[0, 1]), (2, &[0, 1])];
const KEYS: usize = 8;
const KEYSPACES: [&str; 2] = ["session", "strong"];

fn description() -> Description {
    let listed = |dc: usize| {
        let there = NODES.iter().filter(move |(of, _)| *of == dc);
        there.map(|(_, owned)| ListedNode { partitions: Some(owned.to_vec()), ..ListedNode::default() }).collect()
    };
    let mut strong = keyspace("strong", "strong");
    strong.options = "heartbeat_ms = 60\nelection_ms = 600".parse().unwrap();
    let mut keyspaces = vec![keyspace("session", "session"), strong];
    keyspaces.iter_mut().for_each(|keyspace| keyspace.replicas = 3);
    let data_center = |(dc, name): (usize, &&str)| DataCenter { name: name.to_string(), listed: listed(dc), ..DataCenter::default() };
    Description {
        partitions: 2,
        shards: 1,
        keyspaces,
        data_centers: DATA_CENTERS.iter().enumerate().map(data_center).collect(),
        ..Description::new("groups", &[])
    }
}

/// The node whose server leads partition 0 of `keyspace` among the nodes that `of` names.
async fn leader(addresses: &[String], keyspace: &str, of: &[usize]) -> usize {
    let until = Instant::now() + PATIENCE;
    loop {
        for index in of {
            let client = connect(&addresses[*index]).await;
            let Ok(status) = client.admin().status(client.request(v1::StatusRequest {})).await else { continue };
            let replicas = status.into_inner().replicas;
            let mut servers = replicas.iter().filter(|replica| replica.keyspace == keyspace && replica.partition == 0);
            if servers.any(|server| server.gauges.iter().any(|gauge| gauge.name == "leader" && gauge.value == 1.0)) {
                return *index;
            }
        }
        assert!(Instant::now() < until, "nobody leads {keyspace}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One client of one keyspace.
struct Worker {
    id: u64,
    dc: usize,
    keyspace: &'static str,
    address: String,
    recorder: Arc<Mutex<Recorder>>,
    keys: Vec<KeyId>,
    done: Arc<AtomicBool>,
}

impl Worker {
    fn begin(&self, action: Action) -> rheostat_checkers::EventId {
        self.recorder.lock().unwrap().begin(SessionId(self.id), self.dc, action)
    }

    /// Operations one after another in one session, whatever the cluster does meanwhile.
    async fn work(self) {
        let client = connect(&self.address).await;
        let mut session = client.session(self.keyspace);
        let mut random = Random::new(0x5EED + self.id);
        let mut seen = Observation::ABSENT;
        while !self.done.load(Ordering::Relaxed) {
            let chosen = random.below(KEYS as u64) as usize;
            let (key, name) = (self.keys[chosen], key_name(chosen));
            let linearizable = self.keyspace == "strong" || random.below(2) == 0;
            let level = match (self.keyspace, linearizable) {
                ("strong", _) => Level::Strong,
                (_, true) => Level::Local,
                _ => Level::SESSION,
            };
            session.set_level(Some(level));
            let (event, result) = match random.below(10) {
                0..4 => {
                    let event = self.begin(Action::Get { key, level });
                    let result = session.get(name).await;
                    seen = result.as_ref().map_or(seen, observation);
                    (event, result.map(|read| Outcome::Read(vec![observation(&read)])))
                }
                4 => {
                    let asked = [chosen, (chosen + 3) % KEYS];
                    let event = self.begin(Action::ReadTransaction { keys: asked.map(|key| self.keys[key]).to_vec(), level });
                    let result = session.read_transaction(asked.map(key_name)).await;
                    (event, result.map(|many| Outcome::Read(many.reads.iter().map(observation).collect())))
                }
                5..8 => {
                    let value = self.recorder.lock().unwrap().builder.fresh_value();
                    let event = self.begin(Action::Put { items: vec![WriteItem { key, value: Some(value) }], level });
                    let result = session.put(name, value.0.to_string()).await;
                    (event, result.map(|version| Outcome::Written(Some(version_id(&version)))))
                }
                choice => {
                    let value = self.recorder.lock().unwrap().builder.fresh_value();
                    let (condition, expected) = match seen.value {
                        Some(seen) if choice == 8 => (Condition::Value(seen.0.to_string().into()), Expected::Value(seen)),
                        _ if random.below(3) == 0 => (Condition::Absent, Expected::Absent),
                        _ => (Condition::Present, Expected::Present),
                    };
                    let event = self.begin(Action::Change { item: WriteItem { key, value: Some(value) }, condition: expected, level });
                    let result = session.put_if(Put::new(name, value.0.to_string()), condition).await;
                    let changed = result.map(|put| {
                        let before = observed(put.before.value.as_deref(), put.before.version.as_ref());
                        seen = before;
                        Outcome::Changed { applied: put.version.is_some(), version: put.version.as_ref().map(version_id), before: Some(before) }
                    });
                    (event, changed)
                }
            };
            let failed = result.is_err();
            self.recorder.lock().unwrap().end(event, result).unwrap();
            tokio::time::sleep(Duration::from_millis(if failed { 50 } else { random.below(40) })).await;
        }
    }
}

/// Reads every key in every data center until all agree.
async fn converged(clients: &[Client], keyspace: &str, level: Level) -> Vec<Vec<Observation>> {
    async fn read_all(session: &mut Session) -> Option<Vec<Observation>> {
        let mut seen = Vec::new();
        for key in 0..KEYS {
            seen.push(observation(&session.get(key_name(key)).await.ok()?));
        }
        Some(seen)
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let mut all = Vec::new();
        for client in clients {
            let mut session = client.session(keyspace);
            session.set_level(Some(level));
            all.extend(read_all(&mut session).await);
        }
        if all.len() == clients.len() && all.iter().all(|seen| *seen == all[0]) {
            return all;
        }
        assert!(Instant::now() < until, "{keyspace}: the data centers do not agree: {all:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// How many operations of data center 0 were answered between two moments.
fn answered(recorder: &Mutex<Recorder>, from_us: u64, until_us: u64) -> usize {
    let recorder = recorder.lock().unwrap();
    let during = |event: &&Event| event.dc == DcId(0) && event.invoked_us >= from_us && event.completed_us.is_some_and(|at| at < until_us);
    recorder.builder.events().iter().filter(during).filter(|event| event.outcome != Outcome::Failed).count()
}

/// How many of the events are writes that were acknowledged.
fn acknowledged(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event.outcome, Outcome::Written(_) | Outcome::Changed { applied: true, .. })).count()
}

#[tokio::test(flavor = "current_thread")]
async fn leaders_killed_under_load_take_nothing_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, addresses) = start(&description(), folder.path()).await;
    for address in &addresses {
        let client = connect(address).await;
        for keyspace in KEYSPACES {
            // Groups choose their first leader.
            let until = Instant::now() + PATIENCE;
            while client.session(keyspace).put("first", "0").await.is_err() {
                assert!(Instant::now() < until, "{keyspace} does not begin at {address}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    let done = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let mut recorders = Vec::new();
    let mut workers = Vec::new();
    for keyspace in KEYSPACES {
        let mut recorder = Recorder::new(DATA_CENTERS.len() as u8, KEYS);
        recorder.began = began;
        let keys: Vec<KeyId> = (0..KEYS).map(|key| recorder.key(key)).collect();
        let recorder = Arc::new(Mutex::new(recorder));
        for (id, ((dc, _), address)) in NODES.iter().zip(&addresses).enumerate() {
            let (recorder, keys, done) = (recorder.clone(), keys.clone(), done.clone());
            workers.push(tokio::spawn(Worker { id: id as u64, dc: *dc, keyspace, address: address.clone(), recorder, keys, done }.work()));
        }
        recorders.push((keyspace, recorder));
    }
    let pause = |ms| tokio::time::sleep(Duration::from_millis(ms));
    let now_us = || began.elapsed().as_micros() as u64;

    pause(1000).await;
    let everywhere: Vec<usize> = (0..NODES.len()).collect();
    for (keyspace, of) in [("session", &everywhere[..3]), ("strong", &everywhere[..])] {
        let killed = leader(&addresses, keyspace, of).await;
        nodes.kill(killed);
        // The others notice, and choose another leader.
        pause(1800).await;
        let from_us = now_us();
        pause(1200).await;
        if killed < 3 {
            for (keyspace, recorder) in &recorders {
                let what = format!("{keyspace}: with node {killed} down, hardly an operation is answered where it was");
                until(&what, || answered(recorder, from_us, now_us()) > 10).await;
            }
        }
        nodes.restart(killed).unwrap();
        pause(500).await;
    }
    let stopped = leader(&addresses, "session", &everywhere[..3]).await;
    nodes.signal(stopped, Signal::STOP).unwrap();
    pause(1000).await;
    nodes.signal(stopped, Signal::CONT).unwrap();
    pause(1000).await;
    for (keyspace, recorder) in &recorders {
        until(&format!("{keyspace}: hardly a write is acknowledged"), || acknowledged(recorder.lock().unwrap().builder.events()) > 150).await;
    }
    done.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("a client ended in panic");
    }

    let mut clients = Vec::new();
    for address in [&addresses[2], &addresses[3], &addresses[4]] {
        clients.push(connect(address).await);
    }
    for (keyspace, recorder) in recorders {
        let (level, promises) = match keyspace {
            "strong" => (Level::Strong, Promises { snapshot: false, ..Promises::strong() }),
            _ => (Level::Local, Promises::local()),
        };
        let finals = converged(&clients, keyspace, level).await;
        let mut recorder = Arc::into_inner(recorder).expect("all clients are done").into_inner().unwrap();
        for (dc, seen) in finals.iter().enumerate() {
            for (key, seen) in seen.iter().enumerate() {
                recorder.final_read(dc, key, *seen);
            }
        }
        let history = recorder.builder.finish().expect("a well-formed history");
        let acknowledged = acknowledged(&history.events);
        let summary = match check_all(&history, &promises) {
            Ok(summary) => summary,
            Err(violation) => {
                let kept = std::env::temp_dir().join(format!("rheostat-{keyspace}-history.txt"));
                std::fs::write(&kept, history.to_string()).unwrap();
                panic!("{keyspace}: {violation}\nthe history is in {}", kept.display());
            }
        };
        let idle: Vec<_> = summary.idle().collect();
        assert!(idle.is_empty(), "{keyspace}: checkers without work: {idle:?}");
        println!("{keyspace}: {} events, {acknowledged} acknowledged writes\n{summary}", history.events.len());
    }
}
