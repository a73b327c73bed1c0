//! Tasks of the Rust client: rolled back by alarms, begun again, and moved to quorums that meet.

use crate::cluster::{Plan, any_port, keyspace};
use rheostat_client::task::{Stop, Task, TaskOptions, Tasks};
use rheostat_client::{Client, Dial, Options, Put};
use rheostat_monitor::predicate::Definition;
use rheostat_server::NodeConfig;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn quorums(config: &mut NodeConfig) {
    config.keyspaces = vec![keyspace("locks", "quorum")];
    config.listen.grpc = any_port();
}

/// Takes a lock of two keys as if there were one copy of the data, and adds one to a sum that it protects. The first `together` tries of all wait for each other with the lock in hand.
async fn add_one(task: &mut Task<'_>, own: &'static str, other: &'static str, together: &AtomicU32) -> Result<(), Stop> {
    let value = |read: rheostat_client::Read| read.value.map(|value| String::from_utf8_lossy(&value).into_owned()).unwrap_or_default();
    while value(task.get(other).await?) == "1" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    task.lock(own, "1", "0").await?;
    let sum: u32 = value(task.get("{t}sum").await?).parse().unwrap_or(0);
    if together.load(Ordering::SeqCst) > 0 {
        // Long enough for the other to come in, and for the alarm.
        let until = tokio::time::Instant::now() + crate::client::PATIENCE;
        while tokio::time::Instant::now() < until {
            if let Err(stop) = task.check() {
                together.fetch_sub(1, Ordering::SeqCst);
                return Err(stop);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    task.put(Put::new("{t}sum", (sum + 1).to_string()));
    Ok(())
}

#[tokio::test]
async fn tasks_that_an_alarm_concerns_begin_again_and_move_to_quorums_that_meet() {
    let cluster = Plan { one_way_ms: 5.0, change: quorums, ..Plan::three(1) }.start(None).await;
    let expression = "!({t}a = 1 && {t}b = 1)";
    // Braces are of the hash tag: the names stand in backticks.
    let expression = expression.replace("{t}a", "`{t}a`").replace("{t}b", "`{t}b`");
    let definition = Definition { name: "one".into(), keyspace: "locks".into(), expression, infer: false, everywhere: false };
    cluster.node(0).router().add_monitor(definition).await.unwrap();
    for node in 0..3 {
        crate::client::eventually("all nodes know the predicate", async || cluster.node(node).router().list_monitors().len() == 1).await;
    }
    let client = async |node: usize| {
        let address = cluster.node(node).addresses().grpc.unwrap();
        Client::connect_with(Options::new([format!("http://{address}")])).await.unwrap()
    };
    let options = || TaskOptions {
        tries: 200,
        sequential: Some(Dial { quorum: TaskOptions::SEQUENTIAL, ..Dial::default() }),
        too_many: 2,
        window: 4,
        calm: 5,
        ..TaskOptions::new("locks")
    };
    let (one, other) = (client(0).await, client(1).await);
    let (mut one, mut other) = (Tasks::begin(&one, options()).await.unwrap(), Tasks::begin(&other, options()).await.unwrap());
    let together = AtomicU32::new(4);
    let (first, second) = tokio::join!(
        one.run(async |task: &mut Task<'_>| add_one(task, "{t}a", "{t}b", &together).await),
        other.run(async |task: &mut Task<'_>| add_one(task, "{t}b", "{t}a", &together).await)
    );
    first.unwrap();
    second.unwrap();
    for tasks in [&one, &other] {
        let (tries, rolled_back) = tasks.counts();
        assert!(rolled_back > 0 && rolled_back < tries, "{rolled_back} of {tries} tries were rolled back");
    }
    let moves: Vec<_> = one.moves().chain(other.moves()).filter(|turn| turn.sequential).collect();
    assert!(!moves.is_empty() && moves.iter().all(|turn| turn.reason.contains("were rolled back")), "{moves:?}");
    // Calm returns, and what is asked for is weak again.
    for _ in 0..12 {
        let mine = one.run(async |task: &mut Task<'_>| {
            let read = task.get("{t}sum").await?;
            task.put(Put::new("{t}mine", "1"));
            Ok(read.value)
        });
        assert!(mine.await.unwrap().is_some());
    }
    assert!(!one.is_sequential(), "{:?}", one.moves().collect::<Vec<_>>());
    // What fails is said, and locks are given back.
    let failed: Result<(), Stop> = one
        .run(async |task: &mut Task<'_>| {
            task.lock("{t}a", "1", "0").await?;
            task.put(Put::new("{t}never", "1"));
            Err(Stop::TooOften(0))
        })
        .await;
    assert_eq!(failed, Err(Stop::TooOften(0)));
    let mut session = client(0).await.session("locks");
    assert_eq!(session.get("{t}a").await.unwrap().value.as_deref(), Some(&b"0"[..]));
    assert_eq!(session.get("{t}never").await.unwrap().value, None);
    drop((one, other));
    cluster.stop_all().await;
}
