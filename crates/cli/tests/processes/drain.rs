//! Real processes with replicas: one node after the other is drained, stopped, started and resumed, under clients of every node who try once more when something fails, and nothing else. Nobody of them notices.

use super::control::{ctl, json, told};
use super::support::{PATIENCE, connect, keyspace, start, until};
use rheostat_client::{Error, Session};
use rheostat_cluster::Description;
use rheostat_cluster::description::{DataCenter, ListedNode};
use rheostat_cluster::processes::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 3;
const KEYSPACES: [&str; 2] = ["default", "session"];

fn description() -> Description {
    let owned = |node: u16| ListedNode { partitions: Some(vec![node, node + 3]), ..ListedNode::default() };
    let mut keyspaces = vec![keyspace("default", "causal"), keyspace("session", "session")];
    keyspaces.iter_mut().for_each(|keyspace| keyspace.replicas = 3);
    Description {
        partitions: 6,
        shards: 1,
        keyspaces,
        data_centers: vec![DataCenter { name: "a".into(), listed: (0..NODES as u16).map(owned).collect(), ..DataCenter::default() }],
        ..Description::new("drain", &[])
    }
}

/// How many groups each node leads; nothing while one has no leader.
fn leads(address: &str) -> Option<Vec<u64>> {
    let leaders = json(address, &["leaders"]);
    let leaders = leaders.as_array().unwrap();
    assert_eq!(leaders.len(), 12, "{leaders:?}");
    let mut leads = vec![0; NODES];
    for leader in leaders {
        let node = leader["leader"].as_str()?;
        leads[node.strip_prefix("a-").unwrap().parse::<usize>().unwrap() - 1] += 1;
    }
    Some(leads)
}

async fn asked(session: &mut Session, key: &str, value: &str) -> Result<(), Error> {
    match value {
        "" => session.get(key.to_owned()).await.map(drop),
        value => session.put(key.to_owned(), value.to_owned()).await.map(drop),
    }
}

// The clients go on while a command of the operator is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_drained_and_started_again_one_after_the_other_and_nobody_notices() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, addresses) = start(&description(), folder.path()).await;
    until("every group has a leader", || leads(&addresses[0]).is_some()).await;
    let (done, count, retried) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut workers = Vec::new();
    for number in 0..2 * NODES {
        let (done, count, retried) = (done.clone(), count.clone(), retried.clone());
        // As an application behind a list of addresses: when its node goes, it takes another.
        let own: Vec<String> = (0..NODES).map(|next| addresses[(number + next) % NODES].clone()).collect();
        workers.push(tokio::spawn(async move {
            let mut at = 0;
            let mut client = connect(&own[at]).await;
            let mut failed = Vec::new();
            for round in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let mut session = client.session(KEYSPACES[number % 2]);
                let (key, value) = (format!("k{}", (number * 7 + round) % 60), if round % 3 == 0 { String::new() } else { round.to_string() });
                if let Err(first) = asked(&mut session, &key, &value).await {
                    // Once more, at another node: its own may have been stopped.
                    retried.fetch_add(1, Ordering::Relaxed);
                    at = (at + 1) % NODES;
                    client = connect(&own[at]).await;
                    if let Err(second) = asked(&mut client.session(KEYSPACES[number % 2]), &key, &value).await {
                        failed.push(format!("{key}: {first}; then {second}"));
                    }
                }
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            failed
        }));
    }
    for node in 0..NODES {
        let (name, address, other) = (format!("a-{}", node + 1), &addresses[node], &addresses[(node + 1) % NODES]);
        // It leads something, so that there is something to hand over.
        let spread = || ctl(address, &["leaders", "spread"]).status.success() && leads(address).is_some_and(|led| led[node] >= 3);
        until("leaders are spread", spread).await;
        // On a busy machine a group may choose another leader meanwhile, and then not again and again.
        let plan = || {
            let led = leads(address)?;
            let plan = json(address, &["node", "drain", &name, "--dry-run"]);
            (leads(address)? == led).then_some((plan, led[node]))
        };
        let began = Instant::now();
        let (plan, led) = loop {
            match plan() {
                Some(plan) => break plan,
                None => assert!(began.elapsed() < PATIENCE, "a plan changes something"),
            }
        };
        assert_eq!(plan["moves"].as_array().unwrap().len() as u64, led, "{plan}");
        let drained = json(address, &["node", "drain", &name]);
        assert_eq!((drained["drained"].as_bool(), drained["left"].as_array().unwrap().len()), (Some(true), 0), "{drained}");
        let led = || leads(address).inspect(|led| assert_eq!(led[node], 0, "{name} leads again"));
        until("every group has a leader", || led().is_some()).await;
        // Said again, it does no harm.
        assert_eq!(json(address, &["node", "drain", &name])["changed"].as_bool(), Some(false));
        let status = ctl(address, &["status"]);
        assert!(
            String::from_utf8_lossy(&status.stdout)
                .contains(&format!("node {name} of a is drained: it leads nothing; rheostat ctl node resume {name}"))
        );
        nodes.signal(node, Signal::TERM).unwrap();
        while nodes.check().is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        nodes.kill(node);
        nodes.restart(node).unwrap();
        until("it is back", || ctl(address, &["status"]).status.success()).await;
        // Over a restart too.
        let listed = json(other, &["node", "list"]);
        assert_eq!((listed[node]["drained"].as_bool(), listed[node]["leads"].as_u64()), (Some(true), Some(0)), "{listed}");
        assert_eq!(json(other, &["node", "resume", &name])["changed"].as_bool(), Some(true));
        assert_eq!(json(other, &["node", "resume", &name])["changed"].as_bool(), Some(false));
    }
    // However slow the machine is, most requests need no second try.
    let (asked_for, again) = (|| count.load(Ordering::Relaxed), || retried.load(Ordering::Relaxed));
    until("many requests are answered at once", || asked_for() > 300 && again() * 10 < asked_for()).await;
    done.store(true, Ordering::Relaxed);
    for worker in workers {
        assert_eq!(worker.await.unwrap(), Vec::<String>::new());
    }
    println!("{} requests, {} of them tried once more", asked_for(), again());
}

// The clients go on while a command of the operator is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_would_leave_nobody_to_lead_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, addresses) = start(&description(), folder.path()).await;
    until("every group has a leader", || leads(&addresses[0]).is_some()).await;
    let refused = |arguments: &[&str], why: &str| {
        let output = ctl(&addresses[0], arguments);
        let told = told(&output);
        assert!(!output.status.success() && told.contains(why), "{arguments:?}: {told}");
    };
    refused(&["node", "drain", "nobody"], "there is no node `nobody`; there are: a-1, a-2, a-3");
    refused(&["leaders", "move", "default", "9", "a-1"], "no servers of keyspace default, partition 9");
    json(&addresses[0], &["leaders", "move", "default", "0", "a-2"]);
    assert_eq!(json(&addresses[0], &["leaders", "move", "default", "0", "a-2"])["moves"].as_array().unwrap().len(), 0);
    json(&addresses[0], &["node", "drain", "a-3"]);
    refused(&["leaders", "move", "default", "0", "a-3"], "drained");
    nodes.kill(1);
    until("the others lead", || leads(&addresses[0]).is_some_and(|leads| leads[1] == 0)).await;
    refused(&["node", "drain", "a-1"], "a-1 is not drained, since nobody else could lead");
}
