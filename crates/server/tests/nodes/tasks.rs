//! Tasks of the Rust client: rolled back by alarms, begun again, and moved to quorums that meet.

use crate::cluster::{Plan, any_port, keyspace};
use rheostat_client::task::{Alarms, Stop, Task, TaskOptions, Tasks};
use rheostat_client::violation::{Of, Said, Violations};
use rheostat_client::{Client, Dial, Options, Put, Quorum};
use rheostat_monitor::predicate::Definition;
use rheostat_server::NodeConfig;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn quorums(config: &mut NodeConfig) {
    config.keyspaces = vec![keyspace("locks", "quorum")];
    config.listen.grpc = any_port();
}

/// Takes a lock of two keys as if there were one copy of the data, and adds one to a sum that it protects. The first `together` tries of all take it whoever has it, and wait for each other with it in hand.
async fn add_one(task: &mut Task<'_>, own: &'static str, other: &'static str, together: &AtomicU32) -> Result<(), Stop> {
    let value = |read: rheostat_client::Read| read.value.map(|value| String::from_utf8_lossy(&value).into_owned()).unwrap_or_default();
    while value(task.get(other).await?) == "1" && together.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    task.lock(own, "1", "0").await?;
    let sum: u32 = value(task.get("{t}sum").await?).parse().unwrap_or(0);
    // Long enough for the other to come in, and for the alarm; who asks for quorums is not concerned by one.
    let until = tokio::time::Instant::now() + crate::client::PATIENCE;
    while together.load(Ordering::SeqCst) > 0 && !task.is_sequential() && tokio::time::Instant::now() < until {
        if let Err(stop) = task.check() {
            let _ = together.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            return Err(stop);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
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
        let counts = tasks.counts();
        assert!(counts.rolled_back > 0 && counts.rolled_back < counts.tries, "{counts:?}");
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

/// Three nodes with keyspace `locks` (quorums) and `plain` (with history), and the predicate that `{t}a` and `{t}b` of keyspace `locks` are not both 1.
async fn watched(folder: Option<&std::path::Path>) -> (crate::cluster::Cluster, Vec<Client>) {
    let change = |config: &mut NodeConfig| {
        quorums(config);
        config.keyspaces.push(rheostat_server::config::KeyspaceConfig { history_ms: 600_000, ..keyspace("plain", "eventual") });
    };
    let cluster = Plan { one_way_ms: 5.0, change, ..Plan::three(1) }.start(folder).await;
    let expression = "!(`{t}a` = 1 && `{t}b` = 1)".into();
    let definition = Definition { name: "one".into(), keyspace: "locks".into(), expression, infer: false, everywhere: false };
    cluster.node(0).router().add_monitor(definition).await.unwrap();
    let mut clients = Vec::new();
    for node in 0..3 {
        crate::client::eventually("all nodes know the predicate", async || cluster.node(node).router().list_monitors().len() == 1).await;
        let address = cluster.node(node).addresses().grpc.unwrap();
        clients.push(Client::connect_with(Options::new([format!("http://{address}")])).await.unwrap());
    }
    (cluster, clients)
}

/// Sets the other key of the predicate elsewhere, and waits until that has been told.
async fn provoke(there: &Client, alarms: &Alarms) {
    there.session("locks").put("{t}b", "1").await.unwrap();
    crate::client::eventually("the alarm is told", async || alarms.heard() > 0).await;
}

#[tokio::test]
async fn an_alarm_ends_a_task_that_waits_for_it_and_none_that_writes_or_asks_for_quorums() {
    let (cluster, clients) = watched(None).await;
    // An hour: the alarm ends the wait, or nothing to wait for does.
    let options = TaskOptions { settle: Duration::from_secs(3600), ..TaskOptions::new("locks") };
    let fresh = async || Alarms::listen(&clients[0]).await.unwrap();
    let calm = async || {
        for key in ["{t}a", "{t}b"] {
            clients[0].session("locks").put(key, "0").await.unwrap();
        }
        for client in &clients {
            crate::client::eventually("it is calm", async || client.session("locks").get("{t}b").await.unwrap().value.as_deref() == Some(&b"0"[..]))
                .await;
        }
    };

    let alarms = fresh().await;
    let mut tasks = Tasks::with(&clients[0], options.clone(), alarms.clone()).unwrap();
    tasks.attempt(async |task: &mut Task<'_>| task.settle().await).await.expect("nothing is locked");
    let waits = async |task: &mut Task<'_>| {
        task.lock("{t}a", "1", "0").await?;
        clients[1].session("locks").put("{t}b", "1").await.unwrap();
        task.put(Put::new("{t}never", "1"));
        task.settle().await
    };
    let ended = tasks.attempt(waits).await;
    assert!(matches!(&ended, Err(stop @ Stop::Alarm(_)) if stop.is_passing()), "{ended:?}");
    assert_eq!((tasks.counts().tries, tasks.counts().rolled_back), (2, 1));
    tasks.pause().await;

    calm().await;
    let alarms = fresh().await;
    let mut tasks = Tasks::with(&clients[0], options.clone(), alarms.clone()).unwrap();
    let writes = async |task: &mut Task<'_>| {
        task.lock("{t}a", "1", "0").await?;
        task.put(Put::new("{t}written", "1"));
        task.write().await?;
        provoke(&clients[1], &alarms).await;
        task.check()
    };
    tasks.attempt(writes).await.expect("who writes goes on");
    assert_eq!((tasks.counts().rolled_back, tasks.counts().puts), (0, 3));

    // Who only reads goes on, and counts for nothing; who then locks, or has something to write, begins again.
    calm().await;
    let alarms = fresh().await;
    let mut tasks = Tasks::with(&clients[0], TaskOptions { remember: Some(Duration::from_secs(3600)), ..options.clone() }, alarms.clone()).unwrap();
    clients[0].session("locks").put("{t}a", "1").await.unwrap();
    let reads = async |task: &mut Task<'_>| {
        task.get("{t}a").await?;
        provoke(&clients[1], &alarms).await;
        task.sleep(Duration::from_millis(200)).await;
        task.get("{t}a").await?;
        task.check()
    };
    tasks.attempt(reads).await.expect("who only reads goes on");
    assert_eq!((tasks.counts().rolled_back, tasks.late().len()), (0, 0));
    for locks in [true, false] {
        calm().await;
        let alarms = fresh().await;
        let mut tasks = Tasks::with(&clients[0], options.clone(), alarms.clone()).unwrap();
        clients[0].session("locks").put("{t}a", "1").await.unwrap();
        let then = async |task: &mut Task<'_>| {
            task.get("{t}a").await?;
            provoke(&clients[1], &alarms).await;
            // What was heard may be of the round before: the alarm of this one ends it, sooner or later.
            if !locks {
                task.put(Put::new("{t}never", "1"));
            }
            for _ in 0..4_000 {
                if locks {
                    task.lock("{t}held", "1", "0").await?
                } else {
                    task.check()?
                }
                task.sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        let ended = tasks.attempt(then).await;
        assert!(matches!(ended, Err(Stop::Alarm(_))), "{locks}: {ended:?}");
    }

    // What is written at the end is everywhere before the end, if that is asked for.
    let everywhere = Some(Dial { quorum: Quorum { asked: 0, reads: 1, writes: 3 }, ..Dial::default() });
    let alone = Dial { quorum: Quorum { asked: 0, reads: 1, writes: 1 }, ..Dial::default() };
    let mut tasks = Tasks::with(&clients[0], TaskOptions { weak: alone, last: everywhere, ..options.clone() }, Alarms::none()).unwrap();
    for round in 0..10 {
        let value = round.to_string();
        tasks
            .attempt(async |task: &mut Task<'_>| {
                task.put(Put::new("{t}all", value.clone()));
                Ok(())
            })
            .await
            .unwrap();
        for client in &clients {
            let mut session = client.session("locks");
            session.set_dial(alone);
            assert_eq!(session.get("{t}all").await.unwrap().value.as_deref(), Some(value.as_bytes()));
        }
    }

    calm().await;
    let alarms = fresh().await;
    let sequential = Some(Dial { quorum: TaskOptions::SEQUENTIAL, ..Dial::default() });
    let options = TaskOptions { sequential, begins_sequential: true, calm: 2, ..options };
    let mut tasks = Tasks::with(&clients[0], options, alarms.clone()).unwrap();
    let close = async |task: &mut Task<'_>| {
        assert!(task.is_sequential());
        task.lock("{t}a", "1", "0").await?;
        provoke(&clients[1], &alarms).await;
        task.settle().await
    };
    tasks.attempt(close).await.expect("where quorums meet nothing is rolled back");
    assert_eq!((tasks.counts().rolled_back, tasks.counts().close), (0, 1));
    for calm in 1..=2 {
        assert!(tasks.is_sequential(), "what came close is not calm: {calm}");
        tasks.attempt(async |task: &mut Task<'_>| task.get("{t}written").await).await.unwrap();
    }
    assert!(!tasks.is_sequential());
    assert_eq!(tasks.moves().map(|turn| turn.sequential).collect::<Vec<_>>(), [false]);
    let mut session = clients[0].session("locks");
    assert_eq!(session.get("{t}never").await.unwrap().value, None);
    assert_eq!(session.get("{t}written").await.unwrap().value.as_deref(), Some(&b"1"[..]));
    drop(tasks);
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_lock_whose_client_has_died_is_free_after_its_time_and_a_task_outlasts_a_rollback() {
    let (cluster, clients) = watched(None).await;
    let options = TaskOptions { lock_for: Some(Duration::from_millis(200)), settle: Duration::from_secs(3600), ..TaskOptions::new("locks") };
    let mut session = clients[0].session("locks");
    // It dies with its lock: while it works, while it settles, and when it has written.
    for phase in ["works", "settles", "has written"] {
        let mut tasks = Tasks::with(&clients[0], options.clone(), Alarms::none()).unwrap();
        let locked = std::cell::Cell::new(false);
        let dies = tasks.attempt(async |task: &mut Task<'_>| {
            task.lock("{t}c", "1", "0").await?;
            task.put(Put::new("{t}work", phase));
            if phase == "has written" {
                task.write().await?;
            }
            locked.set(true);
            match phase {
                "settles" => task.settle().await,
                _ => std::future::pending::<Result<(), Stop>>().await,
            }
        });
        tokio::select! {
            _ = dies => unreachable!("it waits for ever"),
            () = crate::client::eventually("it is locked", async || locked.get()) => {}
        }
        crate::client::eventually("it is free", async || session.clone().get("{t}c").await.unwrap().value.is_none()).await;
        drop(tasks);
        let work = session.get("{t}work").await.unwrap().value;
        assert_eq!(work.as_deref(), Some(phase.as_bytes()).filter(|_| phase == "has written"), "{phase}");
        // Another one takes it at once.
        let mut others = Tasks::with(&clients[0], options.clone(), Alarms::none()).unwrap();
        others.attempt(async |task: &mut Task<'_>| task.lock("{t}c", "2", "0").await).await.unwrap();
    }

    // It dies while it writes: what it has put first is there, and nothing behind what is not.
    let mut tasks = Tasks::with(&clients[0], options.clone(), Alarms::none()).unwrap();
    const PUTS: usize = 2_000;
    let dies = tasks.attempt(async |task: &mut Task<'_>| {
        task.lock("{t}c", "1", "0").await?;
        (0..PUTS).for_each(|number| task.put(Put::new(format!("{{t}}w{number}"), "w")));
        task.write().await?;
        std::future::pending::<Result<(), Stop>>().await
    });
    tokio::select! {
        _ = dies => unreachable!("it waits for ever"),
        () = crate::client::eventually("it writes", async || session.clone().get("{t}w20").await.unwrap().value.is_some()) => {}
    }
    drop(tasks);
    crate::client::eventually("it is free", async || session.clone().get("{t}c").await.unwrap().value.is_none()).await;
    let mut written = 0;
    for number in 0..PUTS {
        let is_there = session.get(format!("{{t}}w{number}")).await.unwrap().value.is_some();
        assert!(!is_there || written == number, "{number} is there, and {written} is not");
        written += usize::from(is_there);
    }
    assert!((21..PUTS).contains(&written), "it has died while it wrote: {written}");

    // A rollback's coordinator that has died: what a task reads and writes is refused for some seconds.
    session = clients[0].session("plain");
    let at = session.put("x", "1").await.unwrap();
    let _ = cluster.node(0).router().pause_link(rheostat_core::DcId(0), rheostat_core::DcId(2));
    let rollback = rheostat_client::rollback::Rollback {
        keyspace: "plain".into(),
        at: rheostat_core::Timestamp::new(at.millis, at.counter as u16),
        keys: "x".into(),
        because: Vec::new(),
        stop_for: Duration::from_secs(4),
        dry_run: false,
    };
    let all = clients.clone();
    let coordinator = tokio::spawn(async move { rollback.run(&all, |_| {}).await });
    let mut tasks = Tasks::with(&clients[0], TaskOptions::new("plain"), Alarms::none()).unwrap();
    crate::client::eventually("writes are refused", async || matches!(session.clone().put("x", "2").await, Err(rheostat_client::Error::Busy(_))))
        .await;
    coordinator.abort();
    let locks = tasks.attempt(async |task: &mut Task<'_>| task.lock("x", "3", "0").await).await;
    assert!(matches!(&locks, Err(stop @ Stop::Again(why)) if stop.is_passing() && why.contains("being rolled back")), "{locks:?}");
    let writes = async |task: &mut Task<'_>| {
        task.put(Put::new("x", "4"));
        Ok(())
    };
    tasks.attempt(writes).await.expect("it is written when the time is over");
    assert_eq!(session.get("x").await.unwrap().value.as_deref(), Some(&b"4"[..]));
    assert!(tasks.counts().puts > 2, "it was refused at first: {:?}", tasks.counts());
    assert_eq!(tasks.counts().begun_again, 1);
    cluster.stop_all().await;
}

/// Who cannot hear the monitors does not go on as if they were silent.
#[tokio::test]
async fn a_task_begins_again_while_nobody_can_tell_it_of_alarms() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, clients) = watched(Some(folder.path())).await;
    let alarms = Alarms::listen(&clients[0]).await.unwrap();
    let mut tasks = Tasks::with(&clients[1], TaskOptions::new("locks"), alarms).unwrap();
    let read = async |task: &mut Task<'_>| {
        task.put(Put::new("{t}own", "1"));
        task.get("{t}x").await
    };
    tasks.attempt(&read).await.unwrap();
    let lasts = tasks.attempt(async |task: &mut Task<'_>| {
        cluster.stop(0).await;
        task.put(Put::new("{t}never", "1"));
        crate::client::eventually("it is noticed", async || task.check().is_err()).await;
        Ok(())
    });
    let lasts = lasts.await;
    assert!(matches!(&lasts, Err(Stop::Again(why)) if why.contains("missed")), "{lasts:?}");
    let begun = tasks.attempt(&read).await;
    assert!(matches!(&begun, Err(Stop::Again(_))), "nobody tells: {begun:?}");
    cluster.start(0).await;
    let until = tokio::time::Instant::now() + crate::client::PATIENCE;
    while let Err(stop) = tasks.attempt(&read).await {
        assert!(stop.is_passing() && tokio::time::Instant::now() < until, "{stop}");
        tasks.pause().await;
    }
    assert_eq!(clients[1].session("locks").get("{t}never").await.unwrap().value, None);
    drop(tasks);
    cluster.stop_all().await;
}

/// An alarm that comes when a task has written is for its application, or, where quorums met, one of those that count against a way back.
#[tokio::test]
async fn while_a_task_settles_others_are_done_beside_it() {
    let (cluster, clients) = watched(None).await;
    let alarms = Alarms::listen(&clients[0]).await.unwrap();
    let options = TaskOptions { settle: Duration::from_secs(3600), ..TaskOptions::new("locks") };
    let mut tasks = Tasks::with(&clients[0], options.clone(), alarms.clone()).unwrap();
    let put = async |task: &mut Task<'_>, key: &'static str| {
        task.put(Put::new(key, "1"));
        Ok(())
    };
    let settles = async |task: &mut Task<'_>| {
        assert_eq!(task.settles_until(), None, "nothing is locked");
        task.lock("{t}a", "1", "0").await?;
        let until = task.settles_until().unwrap();
        assert!(until > task.now() + options.settle / 2);
        task.put(Put::new("{t}never", "1"));
        task.beside(async |other: &mut Task<'_>| put(other, "{t}beside").await).await?;
        let locks = async |other: &mut Task<'_>| {
            put(other, "{t}nor this").await?;
            other.lock("{t}held", "1", "0").await?;
            assert!(other.settles_until().is_some());
            Err(Stop::Again("held by somebody".into()))
        };
        let ended: Result<(), Stop> = task.beside(locks).await;
        assert_eq!(ended, Err(Stop::Again("held by somebody".into())));
        assert_eq!(task.get("{t}held").await?.value.as_deref(), Some(&b"0"[..]), "given back before this one ends");
        assert_eq!(task.get("{t}a").await?.value.as_deref(), Some(&b"1"[..]), "this one's is not");
        // What concerns one does not concern the other.
        provoke(&clients[1], &alarms).await;
        task.beside(async |other: &mut Task<'_>| put(other, "{t}after").await).await?;
        task.settle_until(until).await
    };
    let ended = tasks.attempt(settles).await;
    assert!(matches!(ended, Err(Stop::Alarm(_))), "{ended:?}");
    assert_eq!((tasks.counts().tries, tasks.counts().rolled_back, tasks.counts().begun_again, tasks.late().len()), (4, 1, 1, 0));
    let mut session = clients[0].session("locks");
    for (key, value) in [("{t}beside", Some("1")), ("{t}after", Some("1")), ("{t}never", None), ("{t}nor this", None), ("{t}a", Some("0"))] {
        assert_eq!(session.get(key).await.unwrap().value.as_deref(), value.map(str::as_bytes), "{key}");
    }
    // An alarm about a task that was done beside another one comes as late as about any.
    let alarms = Alarms::listen(&clients[0]).await.unwrap();
    session.put("{t}b", "0").await.unwrap();
    crate::client::eventually("it is free", async || clients[1].session("locks").get("{t}b").await.unwrap().value.as_deref() == Some(&b"0"[..]))
        .await;
    let mut tasks = Tasks::with(&clients[0], TaskOptions { remember: Some(options.settle), ..options }, alarms.clone()).unwrap();
    let marks = async |task: &mut Task<'_>| task.beside(async |other: &mut Task<'_>| other.mark("{t}a", "1").await).await;
    tasks.attempt(marks).await.unwrap();
    provoke(&clients[1], &alarms).await;
    // The first alarm can be told again, as certain, to who listens since; it is about none of these.
    let (mut late, until) = (tasks.late(), tokio::time::Instant::now() + crate::client::PATIENCE);
    while late.is_empty() && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
        late = tasks.late();
    }
    assert_eq!(late.len(), 1);
    drop(tasks);
    cluster.stop_all().await;
}

#[tokio::test]
async fn alarms_about_tasks_that_are_done_are_kept_and_counted() {
    let (cluster, clients) = watched(None).await;
    let set = async |key: &'static str, value: &'static str| {
        clients[1].session("locks").put(key, value).await.unwrap();
        for client in &clients {
            let read = async || client.session("locks").get(key).await.unwrap().value.as_deref() == Some(value.as_bytes());
            crate::client::eventually("it is everywhere", read).await;
        }
    };
    let alarms = Alarms::listen(&clients[0]).await.unwrap();
    let marks = async |task: &mut Task<'_>| task.mark("{t}a", "1").await;
    let reads = async |task: &mut Task<'_>| task.get("{t}x").await.map(drop);
    let options = TaskOptions { remember: Some(Duration::from_secs(3600)), ..TaskOptions::new("locks") };
    let mut tasks = Tasks::with(&clients[0], options.clone(), alarms.clone()).unwrap();
    tasks.attempt(marks).await.unwrap();
    tasks.attempt(reads).await.unwrap();
    assert!(tasks.late().is_empty());
    provoke(&clients[1], &alarms).await;
    let late = tasks.late();
    assert_eq!((late.len(), tasks.counts().late, tasks.counts().close), (1, 1, 0), "one of the two: {late:?}");
    assert_eq!(late[0].monitor, "one");
    assert!(tasks.late().is_empty(), "each once");

    // As many as are allowed do not keep clients from going back, and one more does.
    for (allowed, back) in [(1, true), (0, false)] {
        set("{t}a", "0").await;
        set("{t}b", "0").await;
        let alarms = Alarms::listen(&clients[0]).await.unwrap();
        let sequential = Some(Dial { quorum: TaskOptions::SEQUENTIAL, ..Dial::default() });
        let options = TaskOptions { sequential, begins_sequential: true, calm: 2, close: allowed, ..options.clone() };
        let mut tasks = Tasks::with(&clients[0], options, alarms.clone()).unwrap();
        tasks.attempt(marks).await.unwrap();
        provoke(&clients[1], &alarms).await;
        tasks.attempt(reads).await.unwrap();
        assert_eq!((tasks.counts().close, tasks.counts().late, tasks.is_sequential()), (1, 0, !back), "{allowed}");
        assert!(tasks.late().is_empty());
        if back {
            let moved: Vec<_> = tasks.moves().map(|one| (one.sequential, one.reason.clone())).collect();
            assert_eq!(moved, [(false, "1 of the last 2 tries would have collided".to_owned())]);
        }
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn an_application_undoes_what_monitors_tell_in_its_own_way() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, clients) = watched(Some(folder.path())).await;
    let mut certain = Violations::listen(&clients[1], "one").await.unwrap();
    let mut others = Violations::listen(&clients[1], "another").await.unwrap();
    let mut all = Violations::listen(&clients[2], "").await.unwrap();
    let violate = async || {
        clients[0].session("locks").put("{t}a", "1").await.unwrap();
        clients[1].session("locks").put("{t}b", "1").await.unwrap();
    };
    violate().await;
    // Until the clocks leave no doubt.
    let number = certain.each(Of::Certain, async |violation| Err::<(), u64>(if violation.certain { violation.number } else { 0 })).await.unwrap_err();
    assert!(number > 0);
    let failed = all.each(Of::All, async |violation| Err::<(), u64>(violation.number)).await;
    assert_eq!(failed, Err(number));
    let mut undone = Vec::new();
    let mut session = clients[2].session("locks");
    let told = all.each(Of::All, async |violation| {
        if undone.contains(&violation.number) || undone.len() == 2 {
            return Err("twice");
        }
        undone.push(violation.number);
        let keys: Vec<&[u8]> = violation.evidence.iter().map(|state| &state.key[..]).collect();
        assert_eq!(keys, [b"{t}a", b"{t}b"]);
        assert_eq!(violation.evidence.iter().map(|state| state.value.as_deref()).collect::<Vec<_>>(), [Some(&b"1"[..]); 2]);
        let latest = violation.evidence.iter().max_by_key(|state| state.version.clone()).unwrap();
        assert!(violation.not_before <= latest.from && (&*violation.keyspace, &*violation.monitor) == ("locks", "one"));
        session.put(latest.key.clone(), "0").await.unwrap();
        if undone.len() == 2 {
            return Err("enough");
        }
        for client in &clients {
            let both = async || {
                let mut session = client.session("locks");
                let (a, b) = (session.get("{t}a").await.unwrap().value, session.get("{t}b").await.unwrap().value);
                a != b
            };
            crate::client::eventually("one of them is given back", both).await;
        }
        violate().await;
        Ok(())
    });
    assert_eq!(told.await, Err("enough"));
    assert_eq!(undone[0], number, "the one that failed comes again");
    assert_eq!(all.missed(), 0);
    // Nothing came of a predicate that there is not.
    tokio::select! {
        biased;
        said = others.next() => panic!("{said:?}"),
        () = std::future::ready(()) => {}
    }
    // A node that goes is asked again, and something may have been missed.
    drop((all, certain));
    let mut deaf = Violations::listen(&clients[0], "one").await.unwrap();
    let again = async {
        cluster.stop(0).await;
        cluster.start(0).await;
    };
    let missed = async {
        loop {
            // More may come to be known of what was told before.
            if let said @ Said::Missed(_) = deaf.next().await {
                return said;
            }
        }
    };
    let ((), said) = tokio::join!(again, missed);
    assert!(matches!(&said, Said::Missed(why) if why.contains("could not be reached")), "{said:?}");
    cluster.stop_all().await;
}
