//! Real processes in three data centers under load from real clients: one is killed with SIGKILL and restarted, one is stopped and continued, a link is cut and
//! healed. The recorded history must pass every checker of a causal keyspace, and nothing acknowledged under `always` may be lost.

use super::agreement::converged;
use super::recorder::{DATA_CENTERS, Recorder, check_causal, key_name, observation, version_id};
use super::support::{connect, keyspace, start};
use rheostat_checkers::history::{Action, KeyId, Outcome, SessionId, WriteItem};
use rheostat_client::{Client, Dial, Strategy};
use rheostat_cluster::Description;
use rheostat_cluster::description::DataCenter;
use rheostat_cluster::processes::{Processes, Signal};
use rheostat_cluster::ready::{options, statuses};
use rheostat_core::dial::Level;
use rheostat_core::random::Random;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEYS: usize = 12;
const CLIENTS_PER_DATA_CENTER: u64 = 3;
const OPERATIONS_PER_CLIENT: usize = 250;

/// So many nodes in each data center.
fn description(nodes: u16) -> Description {
    let data_center = |name: &str| DataCenter { name: name.to_owned(), nodes: Some(nodes), ..DataCenter::default() };
    Description {
        data_centers: DATA_CENTERS.map(data_center).into(),
        partitions: 2,
        shards: 1,
        keyspaces: vec![keyspace("default", "causal")],
        ..Description::new("chaos", &DATA_CENTERS.map(str::to_string))
    }
}

/// One client's work: operations one after another in one session, whatever the cluster does meanwhile.
async fn work(id: u64, dc: usize, address: String, strategy: Strategy, recorder: Arc<Mutex<Recorder>>, keys: Vec<KeyId>) {
    let client = connect(&address).await;
    let mut session = client.session("default");
    session.set_dial(Dial { strategy, ..Dial::default() });
    let mut random = Random::new(0x5EED + id);
    let begin = |action: Action| recorder.lock().unwrap().begin(SessionId(id), dc, action);
    for _ in 0..OPERATIONS_PER_CLIENT {
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
            6..9 => {
                let value = recorder.lock().unwrap().builder.fresh_value();
                let event = begin(Action::Put { items: vec![WriteItem { key: keys[chosen], value: Some(value) }], level: Level::Causal });
                let result = session.put(key_name(chosen), value.0.to_string()).await;
                (event, result.map(|version| Outcome::Written(Some(version_id(&version)))))
            }
            _ => {
                let event = begin(Action::Put { items: vec![WriteItem { key: keys[chosen], value: None }], level: Level::Causal });
                // Nothing is written where nothing was.
                let result = session.delete(key_name(chosen)).await;
                (event, result.map(|deleted| deleted.version.map_or(Outcome::Failed, |version| Outcome::Written(Some(version_id(&version))))))
            }
        };
        let failed = result.is_err();
        recorder.lock().unwrap().end(event, result).unwrap();
        tokio::time::sleep(Duration::from_millis(if failed { 50 } else { random.below(30) })).await;
    }
}

async fn set_link(client: &Client, paused: bool) {
    let (a, b) = (DATA_CENTERS[0].to_string(), DATA_CENTERS[1].to_string());
    let mut admin = client.admin();
    if paused {
        admin.pause_link(client.request(rheostat_client::v1::LinkRequest { data_center: a, other: b })).await.expect("the node answers");
    } else {
        admin.resume_link(client.request(rheostat_client::v1::LinkRequest { data_center: a, other: b })).await.expect("the node answers");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn killed_stopped_and_cut_off_processes_keep_every_promise() {
    survive(1, Strategy::Auto).await;
}

/// Two nodes in each data center, so that clients take their transactions to both.
#[tokio::test(flavor = "current_thread")]
async fn so_they_do_for_clients_that_predict() {
    let predicted = survive(2, Strategy::Predicted).await;
    assert!(predicted > 0.0, "no transaction was predicted: the run shows nothing");
}

/// Of all partition servers, the sum of a number of theirs.
async fn gauge(description: &Description, nodes: &Processes, name: &str) -> f64 {
    let statuses = statuses(&options(description).unwrap(), &nodes.nodes).await;
    let gauges = statuses.into_iter().flatten().flat_map(|status| status.replicas).flat_map(|replica| replica.gauges);
    gauges.filter(|gauge| gauge.name == name).map(|gauge| gauge.value).sum()
}

/// What the faults do to `per_place` nodes in each data center, whose clients ask for `strategy`. Returns how many transactions those nodes say were predicted.
async fn survive(per_place: u16, strategy: Strategy) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let description = description(per_place);
    let (mut nodes, all) = start(&description, folder.path()).await;
    // The first node of each data center; to a client it says where the others are.
    let first = |dc: usize| dc * usize::from(per_place);
    let addresses: Vec<String> = (0..DATA_CENTERS.len()).map(|dc| all[first(dc)].clone()).collect();
    let mut clients = Vec::new();
    for address in &addresses {
        clients.push(connect(address).await);
    }
    let recorder = Recorder::new(DATA_CENTERS.len() as u8, KEYS);
    let keys: Vec<KeyId> = (0..KEYS).map(|key| recorder.key(key)).collect();
    let recorder = Arc::new(Mutex::new(recorder));

    let workers: Vec<_> = (0..DATA_CENTERS.len())
        .flat_map(|dc| (0..CLIENTS_PER_DATA_CENTER).map(move |number| (dc, dc as u64 * CLIENTS_PER_DATA_CENTER + number)))
        .map(|(dc, id)| tokio::spawn(work(id, dc, addresses[dc].clone(), strategy, recorder.clone(), keys.clone())))
        .collect();

    let pause = |ms| tokio::time::sleep(Duration::from_millis(ms));
    pause(800).await;
    set_link(&clients[0], true).await;
    pause(400).await;
    nodes.kill(first(2));
    pause(600).await;
    nodes.restart(first(2)).unwrap();
    pause(300).await;
    set_link(&clients[0], false).await;
    nodes.signal(first(1), Signal::STOP).unwrap();
    pause(500).await;
    nodes.signal(first(1), Signal::CONT).unwrap();
    pause(300).await;
    // The last node of its data center: another one than the clients were told of.
    let last = first(1) - 1;
    nodes.kill(last);
    nodes.restart(last).unwrap();
    for worker in workers {
        worker.await.expect("a client ended in panic");
    }
    // The restarted processes answer again; the killed one forgot that the link was paused, the other end may not have.
    clients.clear();
    for address in &addresses {
        clients.push(connect(address).await);
    }
    set_link(&clients[0], false).await;
    set_link(&clients[1], false).await;
    let predicted = gauge(&description, &nodes, "transactions_predicted").await;
    let finals = converged(&clients, KEYS).await;

    let mut recorder = Arc::into_inner(recorder).expect("all clients are done").into_inner().unwrap();
    for (dc, reads) in finals.iter().enumerate() {
        for (key, read) in reads.iter().enumerate() {
            recorder.final_read(dc, key, observation(read));
        }
    }
    let history = recorder.builder.finish().expect("a well-formed history");
    let (summary, acknowledged) = check_causal("cluster", &history, 200);
    println!("{} events, {acknowledged} acknowledged writes, {predicted} transactions predicted\n{summary}", history.events.len());
    predicted
}
