//! Real processes: a data center is lost for ever and given up, and another one has its place, on machines with nothing on their disks; and a cluster gets one more than it was made with.

use super::control::{ctl, json, told};
use super::support::{PATIENCE, connect, keyspace, start};
use rheostat_client::{Client, Error, NewCounter};
use rheostat_cluster::Description;
use rheostat_cluster::description::DataCenter;
use rheostat_server::config::Limits;
use std::path::Path;
use std::time::{Duration, Instant};

const KEYSPACES: [&str; 6] = ["posts", "times", "carts", "checked", "plain", "accounts"];

fn description() -> Description {
    let protocols = ["causal", "gentlerain", "quorum", "cops", "eventual", "strong"];
    let keyspaces = KEYSPACES.iter().zip(protocols).map(|(name, protocol)| keyspace(name, protocol)).collect();
    // A place is free when all clocks have passed what the lost one may have written.
    let limits = Limits { max_ahead_ms: 10_000, ..Limits::default() };
    Description { partitions: 2, shards: 1, keyspaces, limits, ..Description::new("joined", &["a", "b", "c"].map(String::from)) }
}

#[track_caller]
fn refused(address: &str, arguments: &[&str], why: &str) {
    let output = ctl(address, arguments);
    assert!(!output.status.success() && told(&output).contains(why), "{arguments:?}: {}", told(&output));
}

async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn value(client: &Client, keyspace: &str, key: &str) -> Option<String> {
    let read = client.session(keyspace).get(key.to_owned()).await.ok()?;
    Some(read.value.map_or_else(String::new, |value| String::from_utf8_lossy(&value).into_owned()))
}

async fn has(client: &Client, what: &str, keyspace: &str, key: &str, expected: &str) {
    until(&format!("{what}: {keyspace} {key}"), async || value(client, keyspace, key).await.as_deref() == Some(expected)).await;
}

/// Writes; again while servers choose who leads them, or when a busy machine has not answered in time.
async fn put(client: &Client, keyspace: &str, key: &str, value: &str) {
    let written = async || client.session(keyspace).put(key.to_owned(), value.to_owned()).await.is_ok();
    until(&format!("{keyspace} {key} is written"), written).await;
}

/// Deletes, as [`put`] writes.
async fn delete(client: &Client, keyspace: &str, key: &str) {
    until(&format!("{keyspace} {key} is deleted"), async || client.session(keyspace).delete(key.to_owned()).await.is_ok()).await;
}

/// Says in the configuration in `folder` of which generation the data center is.
fn of_generation(folder: &Path, generation: u32) {
    let file = folder.join("node.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let others: Vec<&str> = text.lines().filter(|line| !line.starts_with("generation")).collect();
    std::fs::write(file, format!("generation = {generation}\n{}\n", others.join("\n"))).unwrap();
}

// The clients go on while a command of the operator is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_data_center_has_the_place_of_a_lost_one() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, addresses) = start(&description(), folder.path()).await;
    nodes.ready(PATIENCE).await.unwrap();
    let (at, [a, b, c]) = (addresses[0].as_str(), [connect(&addresses[0]).await, connect(&addresses[1]).await, connect(&addresses[2]).await]);
    let (home, data, aside) = (folder.path().join("c-1"), folder.path().join("c-1/data"), folder.path().join("aside"));
    refused(at, &["dc", "add", "c"], "was not given up, so its place is taken");
    refused(at, &["dc", "add", "z"], "there is no data center `z`");

    for keyspace in KEYSPACES {
        for (number, client) in [&a, &b, &c].into_iter().enumerate() {
            for key in 0..40 {
                put(client, keyspace, &format!("{number}:{key}"), &format!("first {key}")).await;
                put(client, keyspace, &format!("{number}:{key}"), &format!("of {number}")).await;
            }
            delete(client, keyspace, &format!("{number}:0")).await;
            put(client, keyspace, &format!("{number}:last"), "1").await;
        }
        for client in [&a, &b, &c] {
            for number in 0..3 {
                has(client, "at first", keyspace, &format!("{number}:last"), "1").await;
            }
        }
    }
    let ten = NewCounter { initial: 10, lower: Some(0), ..NewCounter::default() };
    a.session("posts").counter("tickets").create(ten).await.unwrap();
    // Where nobody has heard of it, a counter without bounds would begin, and give way to this one.
    until("c knows of them", async || c.session("posts").counter("tickets").look().await.is_ok_and(|view| view.value == 10)).await;
    until("a ticket is sold in c", async || c.session("posts").counter("tickets").global().add(-1).await.is_ok()).await;
    until("all know of it", async || b.session("posts").counter("tickets").look().await.is_ok_and(|view| view.value == 9)).await;
    until("all know of it", async || a.session("posts").counter("tickets").look().await.is_ok_and(|view| view.value == 9)).await;

    // It burns down.
    nodes.kill(2);
    until("c is given up", async || ctl(at, &["dc", "lost", "c", "--yes"]).status.success()).await;
    for keyspace in KEYSPACES {
        delete(&a, keyspace, "2:1").await;
        put(&b, keyspace, "2:2", "of b").await;
        put(&a, keyspace, "while it was away", "1").await;
    }

    // Another one, with nothing.
    std::fs::rename(&data, &aside).unwrap();
    of_generation(&home, 1);
    let plan = json(at, &["dc", "add", "c"]);
    assert_eq!(
        (plan["generation"].as_u64(), plan["added"].as_bool(), plan["nodes"][0]["ready"].as_bool()),
        (Some(1), Some(false), Some(false)),
        "{plan}"
    );
    refused(at, &["dc", "add", "c", "--yes"], "these do not: c-1");
    nodes.restart(2).unwrap();
    let c = connect(&addresses[2]).await;
    until("c waits to be let in", async || json(at, &["dc", "add", "c"])["nodes"][0]["ready"] == true).await;
    assert_eq!(value(&c, "posts", "0:5").await, None, "nothing is read that may lack its past");
    let written = c.session("posts").put("too early", "1").await;
    assert!(matches!(written, Err(Error::Busy(_) | Error::Timeout(_))), "{written:?}");
    until("c is let in", async || {
        let output = ctl(at, &["dc", "add", "c", "--yes"]);
        let early = told(&output).contains("another one can have its place after");
        assert!(output.status.success() || early, "{}", told(&output));
        output.status.success()
    })
    .await;

    for keyspace in KEYSPACES {
        for number in 0..3 {
            for key in 3..40 {
                has(&c, "what the others had", keyspace, &format!("{number}:{key}"), &format!("of {number}")).await;
            }
            assert_eq!(value(&c, keyspace, &format!("{number}:0")).await.as_deref(), Some(""), "{keyspace}: it is deleted");
        }
        assert_eq!(value(&c, keyspace, "2:1").await.as_deref(), Some(""), "{keyspace}: it was deleted meanwhile");
        has(&c, "what was written meanwhile", keyspace, "2:2", "of b").await;
        has(&c, "what was written meanwhile", keyspace, "while it was away", "1").await;
        for (from, to) in [(&c, [&a, &b]), (&a, [&b, &c]), (&b, [&a, &c])] {
            let key = format!("after {:p}", from);
            put(from, keyspace, &key, "1").await;
            for other in to {
                has(other, "after that", keyspace, &key, "1").await;
            }
        }
    }
    // No ticket is sold twice.
    let mut sold = 0;
    for client in [&c, &a, &b, &c, &a, &b].repeat(4) {
        sold += i64::from(client.session("posts").counter("tickets").global().add(-1).await.is_ok());
    }
    assert!(sold <= 9, "{sold} of 9 tickets");
    for client in [&a, &b, &c] {
        until("all know how many are left", async || {
            client.session("posts").counter("tickets").look().await.is_ok_and(|view| view.value == 9 - sold)
        })
        .await;
    }
    println!("{sold} of 9 tickets");

    // Said again, it finds nothing to do.
    let again = json(at, &["dc", "add", "c", "--yes"]);
    assert_eq!((again["generation"].as_u64(), again["added"].as_bool()), (Some(1), Some(true)), "{again}");
    let listed = json(at, &["dc", "list"]);
    assert_eq!((listed[2]["generation"].as_u64(), listed[2]["state"].as_str()), (Some(1), Some("takes part")), "{listed}");
    until("all is well", async || ctl(at, &["status"]).status.success()).await;

    // The one that was lost is found, and started. Nobody hears it.
    nodes.kill(2);
    let new = folder.path().join("new");
    std::fs::rename(&data, &new).unwrap();
    std::fs::rename(&aside, &data).unwrap();
    nodes.restart(2).unwrap();
    until("it is told that its directory is another's", async || nodes_log(&home).contains("generation")).await;
    of_generation(&home, 0);
    nodes.kill(2);
    nodes.restart(2).unwrap();
    until("it is told that its place is another's", async || nodes_log(&home).contains("another c has its place")).await;
    let old = connect(&addresses[2]).await;
    let written = old.session("posts").put("late", "1").await;
    assert!(matches!(&written, Err(error) if error.to_string().contains("another c has its place")), "{written:?}");
    assert_eq!(value(&a, "posts", "late").await.as_deref(), Some(""));

    // And the other one goes on.
    nodes.kill(2);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&new, &data).unwrap();
    of_generation(&home, 1);
    nodes.restart(2).unwrap();
    let c = connect(&addresses[2]).await;
    has(&c, "after a restart", "posts", "while it was away", "1").await;
    until("it writes", async || c.session("posts").put("again", "1").await.is_ok()).await;
    has(&b, "after a restart", "posts", "again", "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_data_center_is_given_up_though_the_first_one_answers_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let keyspaces = vec![keyspace("posts", "causal")];
    let (mut nodes, addresses) = start(&Description { keyspaces, ..description() }, folder.path()).await;
    let at = addresses[0].as_str();
    let a = connect(at).await;
    put(&a, "posts", "first", "1").await;
    for (index, name) in [(2, "c"), (1, "b")] {
        nodes.kill(index);
        until("it is given up", async || ctl(at, &["dc", "lost", name, "--yes"]).status.success()).await;
    }
    put(&a, "posts", "alone", "1").await;
    // Another one can have the place of either.
    for name in ["b", "c"] {
        let plan = json(at, &["dc", "add", name]);
        assert_eq!((plan["generation"].as_u64(), plan["added"].as_bool()), (Some(1), Some(false)), "{plan}");
    }
    for asked in [&["status"][..], &["slow"], &["hot"], &["clients"], &["bounds"], &["dial"], &["fault", "list"]] {
        until(&format!("nobody misses them: {asked:?}"), async || ctl(at, asked).status.success()).await;
    }
}

/// The cluster of before, with data centers a and b, and c with this many nodes of this generation, or none of it at all.
fn growing(c: Option<u32>) -> Description {
    let place = |name: &str| DataCenter { name: name.into(), ..DataCenter::default() };
    let reserved = c.map(|generation| DataCenter { reserved: true, generation, ..place("c") });
    Description { data_centers: [place("a"), place("b")].into_iter().chain(reserved).collect(), ..description() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_gets_one_more_data_center_than_it_was_made_with() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, addresses) = start(&growing(None), folder.path()).await;
    nodes.ready(PATIENCE).await.unwrap();
    let at = addresses[0].as_str();
    let [a, b] = [connect(&addresses[0]).await, connect(&addresses[1]).await];
    for keyspace in KEYSPACES {
        for (number, client) in [&a, &b].into_iter().enumerate() {
            for key in 0..20 {
                put(client, keyspace, &format!("{number}:{key}"), &format!("of {number}")).await;
            }
            delete(client, keyspace, &format!("{number}:0")).await;
        }
        has(&a, "at first", keyspace, "1:19", "of 1").await;
        has(&b, "at first", keyspace, "0:19", "of 0").await;
    }
    let ten = NewCounter { initial: 10, lower: Some(0), ..NewCounter::default() };
    a.session("posts").counter("tickets").create(ten).await.unwrap();
    until("b knows of them", async || b.session("posts").counter("tickets").look().await.is_ok_and(|view| view.value == 10)).await;
    refused(at, &["dc", "add", "c"], "there is no data center `c`");

    // A place for another one: nobody is in it, and nobody waits for it.
    nodes.kill(0);
    nodes.kill(1);
    nodes.describe(&growing(Some(0))).unwrap();
    nodes.restart(0).unwrap();
    nodes.restart(1).unwrap();
    nodes.ready(PATIENCE).await.unwrap();
    let [a, b] = [connect(&addresses[0]).await, connect(&addresses[1]).await];
    let state = |name: usize| json(at, &["dc", "list"])[name]["state"].as_str().unwrap().to_owned();
    until("c has a place", async || state(2) == "its place is free").await;
    refused(at, &["dc", "lost", "c", "--yes"], "nobody has been in c yet");
    refused(at, &["dc", "add", "c", "--yes"], "knows of no nodes in c");
    for keyspace in KEYSPACES {
        put(&a, keyspace, "with a free place", "1").await;
        has(&b, "with a free place", keyspace, "with a free place", "1").await;
        delete(&a, keyspace, "1:1").await;
        until("it is deleted", async || value(&b, keyspace, "1:1").await.as_deref() == Some("")).await;
    }
    until("rights are used after a restart", async || a.session("posts").counter("tickets").global().add(-1).await.is_ok()).await;
    let twelve = NewCounter { initial: 12, lower: Some(0), ..NewCounter::default() };
    let made = a.session("posts").counter("seats").create(twelve).await.unwrap();
    assert_eq!(made.rights.iter().map(|rights| rights.down).collect::<Vec<_>>(), [Some(6), Some(6), Some(0)], "who is not there gets no rights");
    assert!(ctl(at, &["convergence"]).status.success() && ctl(at, &["status"]).status.success());
    for asked in [["explain", "with a free place", "-k", "posts"], ["counter", "tickets", "-k", "posts"]] {
        until("who is there has answered", async || ctl(at, &asked).status.success()).await;
    }
    assert!(told(&ctl(at, &["status"])).contains("The place of c is free"), "{}", told(&ctl(at, &["status"])));

    // Its node is made known to one after the other, and let in.
    nodes.describe(&growing(Some(1))).unwrap();
    nodes.kill(0);
    nodes.restart(0).unwrap();
    let a = connect(&addresses[0]).await;
    until("a is back", async || a.session("posts").put("meanwhile", "1").await.is_ok()).await;
    until("b is not told yet", async || told(&ctl(at, &["dc", "add", "c"])).contains("node b-1 knows of no nodes in c")).await;
    nodes.kill(1);
    nodes.restart(1).unwrap();
    let b = connect(&addresses[1]).await;
    until("all know of c", async || json_of(at, &["dc", "add", "c"]).is_some_and(|plan| plan["nodes"][0]["ready"] == false)).await;
    nodes.restart(2).unwrap();
    let c = connect(&nodes.nodes[2].address(nodes.nodes[2].ports.grpc)).await;
    until("c waits to be let in", async || json_of(at, &["dc", "add", "c"]).is_some_and(|plan| plan["nodes"][0]["ready"] == true)).await;
    assert_eq!(value(&c, "posts", "0:5").await, None, "nothing is read that may lack its past");
    let output = ctl(at, &["dc", "add", "c", "--yes"]);
    assert!(output.status.success(), "{}", told(&output));
    for keyspace in KEYSPACES {
        for (number, key) in (0..2).flat_map(|number| (2..20).map(move |key| (number, key))) {
            has(&c, "what the others had", keyspace, &format!("{number}:{key}"), &format!("of {number}")).await;
        }
        assert_eq!(value(&c, keyspace, "1:1").await.as_deref(), Some(""), "{keyspace}: it is deleted");
        for (from, others) in [(&c, [&a, &b]), (&a, [&b, &c]), (&b, [&a, &c])] {
            let key = format!("after {from:p}");
            put(from, keyspace, &key, "1").await;
            for other in others {
                has(other, "after that", keyspace, &key, "1").await;
            }
        }
    }
    for (counter, left) in [("tickets", 9), ("seats", 12)] {
        until("c sells", async || c.session("posts").counter(counter).global().add(-1).await.is_ok()).await;
        for client in [&a, &b, &c] {
            until("all know", async || client.session("posts").counter(counter).look().await.is_ok_and(|view| view.value == left - 1)).await;
        }
    }
    until("it takes part", async || state(2) == "takes part").await;
    until("all is well", async || ctl(at, &["status"]).status.success() && ctl(at, &["convergence"]).status.success()).await;

    // It stays so over restarts; and who takes its place back from it is refused.
    for index in [2, 0] {
        nodes.kill(index);
        nodes.restart(index).unwrap();
    }
    let [a, c] = [connect(at).await, connect(&nodes.nodes[2].address(nodes.nodes[2].ports.grpc)).await];
    until("c writes", async || c.session("posts").put("again", "1").await.is_ok()).await;
    has(&a, "after restarts", "posts", "again", "1").await;
    // Some led a group, whose members choose another one.
    for key in 0..8 {
        until("the groups go on", async || c.session("accounts").put(format!("again {key}"), "1").await.is_ok()).await;
    }
    // It can stay while somebody of the others is away.
    nodes.kill(1);
    let output = ctl(at, &["dc", "remove", "c", "--cancel"]);
    assert!(output.status.success() && told(&output).contains("b-1 of b: "), "{}", told(&output));
    nodes.restart(1).unwrap();
    let b = connect(&nodes.nodes[1].address(nodes.nodes[1].ports.grpc)).await;
    until("b is back", async || ctl(at, &["status"]).status.success()).await;
    taken_out(at, &nodes_log_of(folder.path(), "c-1"), (&a, &b, &c)).await;
    nodes.kill(1);
    let file = folder.path().join("b-1/node.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("reserved_data_centers = [\"c\"]\n", "")).unwrap();
    nodes.restart(1).unwrap();
    until("b does not start so", async || nodes_log(&folder.path().join("b-1")).contains("reserved is \"c\"")).await;
}

/// Data center c leaves while a client writes there: what was acknowledged is in the others.
async fn taken_out(at: &str, log: impl Fn() -> String, (a, b, c): (&Client, &Client, &Client)) {
    refused(at, &["dc", "remove", "z"], "there is no data center `z`");
    assert!(told(&ctl(at, &["dc", "remove", "c"])).contains("Nothing was changed"));
    // It can be thought better of.
    let closes = json(at, &["dc", "remove", "c", "--cancel"]);
    assert_eq!(closes["removed"], false);
    until("c writes", async || c.session("posts").put("still", "1").await.is_ok()).await;
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("backup").display().to_string();
    let output = ctl(at, &["backup", &place, "-k", "checked"]);
    assert!(output.status.success(), "{}", told(&output));
    // What it leads, others lead from then on, and nobody waits for an election.
    for partition in ["0", "1"] {
        until("c leads", async || ctl(at, &["leaders", "move", "accounts", partition, "c-1"]).status.success()).await;
    }
    let written = std::sync::Mutex::new(Vec::new());
    let writes = async {
        for number in 0..100_000 {
            let key = format!("to the last {number}");
            match c.session(KEYSPACES[number % KEYSPACES.len()]).put(key.clone(), "1").await {
                Ok(_) => written.lock().unwrap().push((KEYSPACES[number % KEYSPACES.len()], key)),
                Err(error) if error.to_string().contains("takes no writes") => return,
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it was never closed");
    };
    let removes = async {
        until("it has written", async || written.lock().unwrap().len() > 50).await;
        let at = at.to_owned();
        tokio::task::spawn_blocking(move || ctl(&at, &["dc", "remove", "c", "--yes"])).await.unwrap()
    };
    let ((), output) = tokio::join!(writes, removes);
    assert!(output.status.success(), "{}", told(&output));
    let written = written.into_inner().unwrap();
    println!("{} writes were acknowledged before c was closed", written.len());
    for client in [a, b] {
        for (keyspace, key) in &written {
            let read = client.session(*keyspace).get(key.clone()).await;
            let same = read.as_ref().is_ok_and(|read| read.value.as_deref() == Some(b"1".as_slice()));
            assert!(same, "{keyspace}: {key}: {read:?}");
        }
    }
    until("c is told that it is out", async || log().contains("an operator has taken")).await;
    for keyspace in KEYSPACES {
        until("c says so itself", async || {
            c.session(keyspace).put("too late", "1").await.is_err_and(|error| error.to_string().contains("an operator has taken"))
        })
        .await;
    }
    let state = || {
        json(at, &["dc", "list"]).as_array().and_then(|rows| rows.iter().find(|row| row["data_center"] == "c")?["state"].as_str().map(String::from))
    };
    assert!(state().is_some_and(|state| state.starts_with("removed ") && state.ends_with("its place is free")), "{:?}", state());
    // It is not lost afterwards, though somebody says so.
    assert!(ctl(at, &["dc", "lost", "c", "--yes"]).status.success());
    assert!(state().is_some_and(|state| state.starts_with("removed ")), "{:?}", state());
    until("nobody misses it", async || ctl(at, &["status"]).status.success() && ctl(at, &["convergence"]).status.success()).await;
    until("who is left has answered", async || ctl(at, &["explain", "still", "-k", "posts"]).status.success()).await;
    // Its node runs and shows nothing.
    let output = ctl(at, &["restore", &place, "-k", "checked=plain", "--overwrite"]);
    assert!(output.status.success() && told(&output).contains("every data center has it"), "{}", told(&output));
    refused(at, &["restore", &place, "-k", "checked=plain", "--overwrite", "--at", "c"], "data center c takes no part");
    refused(at, &["dc", "remove", "c", "--cancel"], "there is no way back");
    until("the others write", async || a.session("posts").put("without c", "1").await.is_ok()).await;
    has(b, "without c", "posts", "without c", "1").await;
}

fn nodes_log_of(folder: &Path, node: &str) -> impl Fn() -> String {
    let home = folder.join(node);
    move || nodes_log(&home)
}

/// What the command prints as JSON, if it succeeds.
fn json_of(address: &str, arguments: &[&str]) -> Option<serde_json::Value> {
    let output = ctl(address, &[&["--json"], arguments].concat());
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

fn nodes_log(home: &Path) -> String {
    std::fs::read_to_string(home.join("log")).unwrap_or_default()
}
