//! `ctl backup`, `ctl backup verify` and `ctl restore` as a user runs them, between clusters of real processes.

use super::control::{command as ctl, says, text};
use super::support::{PATIENCE, connect, keyspace, start};
use rheostat_client::{Client, Error, NewCounter, Put};
use rheostat_cluster::Description;
use rheostat_cluster::description::DataCenter;
use rheostat_core::slots;
use rheostat_server::config::{KeyspaceConfig, Limits};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn description(data_centers: &[&str], nodes: u16, partitions: u16) -> Description {
    let data_center = |name: &&str| DataCenter { name: (*name).to_owned(), nodes: Some(nodes), ..DataCenter::default() };
    let history = |name: &str, protocol: &str| KeyspaceConfig { history_ms: 600_000, ..keyspace(name, protocol) };
    Description {
        data_centers: data_centers.iter().map(data_center).collect(),
        partitions,
        shards: 1,
        keyspaces: vec![history("default", "causal"), keyspace("agreed", "strong"), history("spare", "causal")],
        ..Description::new("backed", &data_centers.iter().map(|name| name.to_string()).collect::<Vec<_>>())
    }
}

async fn shows(client: &Client, keyspace: &str, key: &str, value: Option<&str>) {
    let until = Instant::now() + PATIENCE;
    loop {
        let read = client.session(keyspace).get(key.to_owned()).await;
        if matches!(&read, Ok(read) if read.value.as_deref() == value.map(str::as_bytes)) {
            return;
        }
        assert!(Instant::now() < until, "{keyspace} {key}: {read:?} instead of {value:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A disk of 64 KiB; `None` where this process may not mount.
fn small_disk(path: &Path) -> Option<String> {
    std::fs::create_dir(path).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(path).output();
    mounted.is_ok_and(|done| done.status.success()).then(|| path.to_str().unwrap().to_owned())
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_backed_up_while_it_is_written_to_and_restored_into_another() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (monday, tuesday) = (path("monday"), path("tuesday"));
    let (source, from) = start(&description(&["us", "eu"], 1, 2), &old).await;
    let client = connect(&from[0]).await;
    let mut session = client.session("default");
    for some in (0..3_000).collect::<Vec<u32>>().chunks(500) {
        for number in some {
            session.put(format!("key{number}"), format!("value{number}")).await.unwrap();
        }
    }
    session.put_item(Put { expires_after: Some(Duration::from_secs(9_000)), ..Put::new("short", "1") }).await.unwrap();
    let until = Instant::now() + PATIENCE;
    let new_counter = || NewCounter { lower: Some(0), upper: Some(9), initial: 4, ..NewCounter::default() };
    while let Err(error) = session.counter("stock").create(new_counter()).await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A new group has its first leader once a majority hear each other.
    while let Err(error) = client.session("agreed").put("lock", "mine").await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Somebody writes all the time.
    let writing = tokio::spawn({
        let client = client.clone();
        async move {
            for number in 0_u64.. {
                let _ = client.session("spare").put(format!("busy{}", number % 100), number.to_string()).await;
            }
        }
    });
    // One that is killed leaves no backup; the next one begins anew.
    let mut killed = ctl(&from[0], &["backup", &monday]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + PATIENCE;
    while !Path::new(&monday).join(".partial").exists() && !Path::new(&monday).join("manifest.json").exists() {
        assert!(Instant::now() < until);
    }
    let _ = killed.kill();
    killed.wait().unwrap();
    if Path::new(&monday).join("manifest.json").exists() {
        // It was finished before it was killed.
        std::fs::remove_dir_all(&monday).unwrap();
    } else {
        says(&ctl("", &["backup", "verify", &monday]).output().unwrap(), 1, &["a backup that has not been finished"]);
    }
    let out = ctl(&from[0], &["backup", &monday]).output().unwrap();
    says(&out, 0, &["is a backup as of", "causal cut", "as applied, key by key", "default: 3002 keys"]);
    says(&ctl(&from[0], &["backup", &monday]).output().unwrap(), 1, &["there is a backup in it already"]);
    // No cluster is asked for this.
    let out = ctl("127.0.0.1:1", &["backup", "verify", &monday, "--json"]).output().unwrap();
    says(&out, 0, &[]);
    assert_eq!(json(&out)["whole"], true);
    assert_eq!(json(&out)["backups"][0]["manifest"]["keyspaces"][0]["keys"], 3_002);
    // What changes until Tuesday.
    session.delete("key1").await.unwrap();
    session.put("key2", "later").await.unwrap();
    session.put("key3000", "new").await.unwrap();
    session.counter("stock").add(-1).await.unwrap();
    let out = ctl(&from[0], &["backup", &tuesday, "--since", &monday]).output().unwrap();
    says(&out, 1, &["keyspace agreed was read key by key", "take a full one of other keyspaces (--keyspace)"]);
    let (full, next) = (path("full"), path("next"));
    says(
        &ctl(&from[0], &["backup", &full, "--keyspace", "0", "-k", "spare", "--from", "eu"]).output().unwrap(),
        0,
        &["from eu", "default: 3002 keys"],
    );
    session.delete("key4").await.unwrap();
    session.put("key5", "later").await.unwrap();
    let out = ctl(&from[0], &["backup", &next, "--since", &full, "--json"]).output().unwrap();
    says(&out, 0, &[]);
    let manifest = &json(&out)["manifest"];
    assert_eq!(
        (&manifest["keyspaces"][0]["keys"], &manifest["keyspaces"][0]["deleted"]),
        (&2.into(), &1.into()),
        "a counter is always there: {manifest}"
    );
    // A disk that is full is told, and what was begun is no backup.
    match small_disk(&folder.path().join("small")) {
        Some(small) => {
            let out = ctl(&from[0], &["backup", &small]).output().unwrap();
            says(&out, 1, &[".records: No space left on device"]);
            says(&ctl("", &["backup", "verify", &small]).output().unwrap(), 1, &["a backup that has not been finished"]);
            let _ = Command::new("umount").arg("-l").arg(&small).output();
        }
        None => eprintln!("a full disk was not tried: this process may not mount"),
    }
    writing.abort();
    says(&ctl("", &["backup", "verify", &full, &next]).output().unwrap(), 0, &["only what was written since"]);
    says(&ctl("", &["backup", "verify", &next, &full]).output().unwrap(), 1, &["name the backups before it first"]);

    let (target, to) = start(&description(&["x", "y", "z"], 2, 3), &new).await;
    let there = connect(&to[5]).await;
    let out = ctl(&to[0], &["restore", &monday, "--keyspace", "default", "-k", "agreed", "--dry-run"]).output().unwrap();
    says(&out, 0, &["keyspace default into default: 3002 keys", "Nothing was changed."]);
    shows(&there, "default", "key1", None).await;
    let out = ctl(&to[0], &["restore", &monday, "-k", "default", "-k", "agreed"]).output().unwrap();
    says(&out, 0, &["3002 keys; there are now: x 3002, y 3002, z 3002", "every data center has it"]);
    for (key, value) in [("key1", "value1"), ("key2999", "value2999"), ("stock", "4"), ("short", "1")] {
        shows(&there, "default", key, Some(value)).await;
    }
    shows(&there, "agreed", "lock", Some("mine")).await;
    assert!(there.session("default").get("short").await.unwrap().expires_ms > 0);
    let view = there.session("default").counter("stock").look().await.unwrap();
    assert_eq!((view.value, view.lower, view.upper, view.rights.len()), (4, Some(0), Some(9), 3));
    // A keyspace that is not empty.
    let out = ctl(&to[0], &["restore", &monday, "-k", "default"]).output().unwrap();
    says(&out, 1, &["has 3002 keys in data center x; --overwrite writes over what is there"]);
    there.session("default").put("key7", "other").await.unwrap();
    says(
        &ctl(&to[2], &["restore", &monday, "-k", "default", "--overwrite", "--at", "y"]).output().unwrap(),
        0,
        &["there are now: x 3002, y 3002, z 3002"],
    );
    shows(&there, "default", "key7", Some("value7")).await;
    // Interrupted, and again; a full one and what follows it, into another keyspace.
    let mut interrupted = ctl(&to[0], &["restore", &full, &next, "-k", "default=spare"]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + PATIENCE;
    while there.session("spare").get("key100").await.unwrap().value.is_none() && interrupted.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until);
    }
    let _ = interrupted.kill();
    interrupted.wait().unwrap();
    let out = ctl(&to[0], &["restore", &full, &next, "-k", "default=spare", "--overwrite", "--json"]).output().unwrap();
    says(&out, 0, &[]);
    let told = json(&out);
    // 3002 keys, but key1 and key4 are gone, and key3000 has come.
    assert_eq!((&told["arrived"], &told["keyspaces"][0]["keys"]["z"]), (&true.into(), &3_001.into()), "{told}");
    for (key, value) in
        [("key1", None), ("key2", Some("later")), ("key3000", Some("new")), ("key4", None), ("key5", Some("later")), ("stock", Some("3"))]
    {
        shows(&there, "spare", key, value).await;
    }
    // One that was kept since the first version that could write it, and what follows it.
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backup/tests/form1");
    let kept = ["full", "next"].map(|name| kept.join(name).to_str().unwrap().to_owned());
    let out = ctl(&to[0], &["restore", &kept[0], &kept[1], "-k", "shop=spare", "--overwrite"]).output().unwrap();
    says(&out, 0, &["every data center has it"]);
    for (key, value) in
        [("greeting", Some("hello")), ("empty", Some("")), ("key3", None), ("key4", Some("later")), ("key20", Some("value20")), ("stock", Some("99"))]
    {
        shows(&there, "spare", key, value).await;
    }
    // Damage is told before anything is done.
    let records = Path::new(&monday).join("keyspace-0.records");
    let mut bytes = std::fs::read(&records).unwrap();
    bytes[30_000] ^= 4;
    std::fs::write(&records, bytes).unwrap();
    says(&ctl("", &["backup", "verify", &monday]).output().unwrap(), 1, &["keyspace-0.records: is damaged in the block at byte 8"]);
    says(&ctl(&to[0], &["restore", &monday, "--overwrite"]).output().unwrap(), 1, &["is damaged", "the backup is not whole; nothing was restored"]);
    for (arguments, part) in [
        (&["restore", "/no/such"][..], "is no backup"),
        (&["restore", &full, "-k", "default=mars"], "the cluster has no keyspace `mars`"),
        (&["restore", &full, "-k", "mars"], "the backup has no keyspace `mars`"),
        (&["restore", &full, "-k", "default=spare", "-k", "spare"], "two keyspaces into spare"),
        (&["restore", &full, "--at", "mars"], "no node of data center mars"),
        (&["restore", &next], "name the backups before it first"),
        (&["backup", "/proc/1/no"], "/proc/1/no"),
        (&["backup", &path("q"), "--from", "mars"], "there is no data center `mars`"),
    ] {
        says(&ctl(&to[0], arguments).output().unwrap(), 1, &[part]);
    }
    source.end().await;
    target.end().await;
}

/// A keyspace of `adaptive` whose partitions these data centers hold.
fn placed(name: &str, placement: [Vec<i64>; 2]) -> KeyspaceConfig {
    let options = toml::Table::from_iter([("placement".to_owned(), toml::Value::from(placement.to_vec()))]);
    KeyspaceConfig { options, ..keyspace(name, "adaptive") }
}

/// Values of a key, in their order.
async fn side_by_side(client: &Client, keyspace: &str, key: &str) -> Result<Vec<String>, Error> {
    let values = client.session(keyspace).siblings(key.to_owned()).await?.into_iter().filter_map(|read| read.value);
    let mut values: Vec<String> = values.map(|value| text(&value)).collect();
    values.sort();
    Ok(values)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_single_data_center_holds_and_what_no_single_request_takes_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("backup").to_str().unwrap().to_owned();
    let limits = Limits { max_request_bytes: 64 << 10, ..Limits::default() };
    let keyspaces = vec![
        placed("held", [vec![0, 1], vec![1, 2]]),
        placed("again", [vec![0], vec![2]]),
        keyspace("carts", "quorum"),
        keyspace("others", "quorum"),
    ];
    let description = Description { keyspaces, limits, ..description(&["x", "y", "z"], 1, 2) };
    let (cluster, at) = start(&description, &folder.path().join("nodes")).await;
    let [x, y, z] = [connect(&at[0]).await, connect(&at[1]).await, connect(&at[2]).await];
    let until = Instant::now() + PATIENCE;
    // Together more than a request may have.
    let value = |number: u32| format!("{number:01000}");
    for number in 0..200 {
        while let Err(error) = y.session("held").put(format!("key{number}"), value(number)).await {
            assert!(Instant::now() < until, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let values = ["a", "b"].map(|letter| letter.repeat(50 << 10));
    let stand = async || {
        x.session("carts").put("cart", values[0].clone()).await?;
        x.session("carts").replace(Put::new("cart", values[1].clone())).await?;
        side_by_side(&x, "carts", "cart").await
    };
    loop {
        let there = stand().await;
        if there.as_ref().is_ok_and(|there| *there == values) {
            break;
        }
        assert!(Instant::now() < until, "{:?}", there.map(|there| there.len()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    says(&ctl(&at[0], &["convergence", "--wait", "60"]).output().unwrap(), 0, &["converged"]);
    says(&ctl(&at[0], &["backup", &place, "-k", "held", "-k", "carts"]).output().unwrap(), 0, &["held: 200 keys", "carts: 1 key"]);
    let restore = ["restore", place.as_str(), "-k", "held=again", "-k", "carts=others"];
    for more in [&[] as &[&str], &["--overwrite"]] {
        let out = ctl(&at[0], &[&restore[..], more].concat()).output().unwrap();
        says(&out, 0, &["keyspace held into again: 200 keys", "keyspace carts into others: 1 keys", "every data center has it"]);
        for number in 0..200 {
            let key = format!("key{number}");
            let holder = if slots::partition_of(key.as_bytes(), 2).0 == 0 { &x } else { &z };
            shows(holder, "again", &key, Some(&value(number))).await;
        }
        assert!(side_by_side(&z, "others", "cart").await.is_ok_and(|there| there == values), "both, and no third");
    }
    cluster.end().await;
}
