//! `ctl archive`, and what `ctl restore --to` puts back of it, in folders and in object stores, between real processes.

use super::control::{command as ctl, says, text};
use super::store::{ACCESS_KEY, Fault, REGION, SECRET_KEY, Seen, Server};
use super::support::{PATIENCE, connect, keyspace, split, start};
use rheostat_client::{Client, NewCounter, Version};
use rheostat_cluster::Description;
use rheostat_cluster::description::DataCenter;
use rheostat_server::config::KeyspaceConfig;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DATA_CENTERS: [&str; 2] = ["us", "eu"];

fn description(keyspaces: &[(&str, &str, u64)]) -> Description {
    let data_center = |name: &&str| DataCenter { name: (*name).to_owned(), nodes: Some(1), ..DataCenter::default() };
    let of = |(name, protocol, history_ms): &(&str, &str, u64)| KeyspaceConfig { history_ms: *history_ms, ..keyspace(name, protocol) };
    Description {
        data_centers: DATA_CENTERS.iter().map(data_center).collect(),
        partitions: 2,
        shards: 1,
        keyspaces: keyspaces.iter().map(of).collect(),
        ..Description::new("archived", &DATA_CENTERS.map(String::from))
    }
}

/// An archiver; killed when this is dropped.
struct Archiver {
    child: Child,
    log: PathBuf,
}

impl Drop for Archiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Archiver {
    fn start(mut command: Command, log: &Path) -> Archiver {
        let child = command.stderr(File::create(log).unwrap()).stdout(Stdio::null()).spawn().unwrap();
        Archiver { child, log: log.into() }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    async fn says(&mut self, part: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.log().contains(part) {
            assert!(Instant::now() < until && self.child.try_wait().unwrap().is_none(), "it does not say {part:?}: {}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// As SIGKILL, or as SIGTERM, after which it ends well.
    fn end(mut self, signal: &str) {
        Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.success(), signal == "-TERM", "{}", self.log());
    }
}

/// Waits until an archive knows everything up to a time, in milliseconds since 1970.
async fn reaches(list: impl Fn() -> Command, millis: u64) -> serde_json::Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let out = list().output().unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        let last = listed["spans"].as_array().and_then(|spans| spans.last()).map_or(0, |span| span["to_ms"].as_u64().unwrap());
        if last >= millis {
            return listed;
        }
        assert!(Instant::now() < until, "{listed} {}", text(&out.stderr));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until an archive has the counters of its first keyspace as of a time, or a later one.
async fn counters_reach(list: impl Fn() -> Command, millis: u64) {
    let until = Instant::now() + PATIENCE;
    while reaches(&list, 0).await["keyspaces"][0]["counters_ms"].as_u64().unwrap() <= millis {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Writes a key of keyspace `default`; again when a busy machine has not answered in time.
async fn put(client: &Client, key: &str) -> Version {
    let until = Instant::now() + PATIENCE;
    loop {
        match client.session("default").put(key.to_owned(), "1").await {
            Ok(version) => return version,
            Err(error) => assert!(Instant::now() < until, "{key}: {error}"),
        }
    }
}

/// What was written under one version: its place in the order, its key, and its value.
type Write = ((u64, u32, usize), String, Option<String>);

fn place(version: &Version) -> (u64, u32, usize) {
    (version.millis, version.counter, DATA_CENTERS.iter().position(|name| *name == version.origin).unwrap())
}

/// Writes, overwrites and deletes keys until it is told to stop; returns what was acknowledged.
fn writer(client: Client, keyspace: &'static str, number: u64, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<Vec<Write>> {
    tokio::spawn(async move {
        let (mut writes, mut session) = (Vec::new(), client.session(keyspace));
        for round in 0_u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            // Some that both write, some of its own.
            let key = if round % 3 == 0 { format!("both{}", round % 7) } else { format!("own{number}-{}", round % 11) };
            if round % 5 == 4 {
                let deleted = session.delete(key.clone()).await.unwrap();
                writes.extend(deleted.version.map(|version| (place(&version), key, None)));
            } else {
                let value = format!("{number}.{round}");
                let version = session.put(key.clone(), value.clone()).await.unwrap();
                writes.push((place(&version), key, Some(value)));
            }
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        writes
    })
}

/// Every key's value as of a time.
fn as_of(writes: &[Write], (millis, counter): (u64, u32)) -> BTreeMap<String, String> {
    let mut sorted: Vec<&Write> = writes.iter().filter(|((at, count, _), ..)| (*at, *count) <= (millis, counter)).collect();
    sorted.sort();
    let mut state = BTreeMap::new();
    for (_, key, value) in sorted {
        match value {
            Some(value) => drop(state.insert(key.clone(), value.clone())),
            None => drop(state.remove(key)),
        }
    }
    state
}

async fn shows(client: &Client, keyspace: &str, keys: impl Iterator<Item = String>, expected: &BTreeMap<String, String>) {
    let mut session = client.session(keyspace);
    for key in keys {
        let read = session.get(key.clone()).await.unwrap();
        let value = read.value.map(|value| text(&value));
        assert_eq!(value.as_ref(), expected.get(&key), "{keyspace} {key}");
    }
}

async fn count(client: &Client, by: i64) {
    let until = Instant::now() + PATIENCE;
    let mut session = client.session("default");
    while let Err(error) = session.counter("stock").add(by).await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until all see that the counter is there, and what it is: who adds to one that is not there yet begins one without bounds, which is given up for the one with bounds.
async fn counter_becomes(clients: &[Client], value: i64) {
    let until = Instant::now() + PATIENCE;
    for client in clients {
        loop {
            match client.session("default").counter("stock").look().await {
                Ok(view) if view.value == value => break,
                seen => assert!(Instant::now() < until, "the counter does not become {value}: {seen:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_moment_is_put_back_while_writers_go_on_and_an_archiver_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive").to_str().unwrap().to_owned();
    let keyspaces = [
        ("default", "causal", 60_000),
        ("plain", "eventual", 60_000),
        ("agreed", "strong", 0),
        ("one", "causal", 0),
        ("two", "causal", 0),
        ("three", "eventual", 0),
        ("four", "causal", 0),
        ("five", "causal", 0),
    ];
    let (nodes, addresses) = start(&description(&keyspaces), &folder.path().join("nodes")).await;
    let clients = [connect(&addresses[0]).await, connect(&addresses[1]).await];
    let until = Instant::now() + PATIENCE;
    let new = || NewCounter { lower: Some(0), initial: 100, ..NewCounter::default() };
    while let Err(error) = clients[0].session("default").counter("stock").create(new()).await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    counter_becomes(&clients, 100).await;
    clients[0].session("default").put("before", "everything").await.unwrap();
    while let Err(error) = clients[0].session("agreed").put("lock", "mine").await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let start_writer = |client: &Client, keyspace, number| writer(client.clone(), keyspace, number, stop.clone());
    let mut writers = vec![start_writer(&clients[0], "default", 0), start_writer(&clients[1], "default", 1), start_writer(&clients[1], "plain", 2)];
    let options = ["-k", "default", "-k", "plain", "-k", "agreed", "--every", "1s", "--counters-every", "1s", "--full-every", "8s"];
    let archiver = || {
        let mut command = ctl(&addresses[0], &["archive", &archive]);
        command.args(options);
        command
    };
    let list = || ctl("", &["archive", "list", &archive, "--json"]);
    let mut first = Archiver::start(archiver(), &folder.path().join("first.log"));
    first.says("full backup as of").await;
    // Another one does not write to the same place, and nobody takes it for a backup.
    says(&archiver().output().unwrap(), 1, &["another archiver writes to it"]);
    says(&ctl(&addresses[0], &["backup", &archive]).output().unwrap(), 1, &["a backup wants a place of its own"]);
    says(&ctl(&addresses[0], &["restore", &archive]).output().unwrap(), 1, &["is an archive; --to says which moment is put back (from 20"]);
    count(&clients[1], -10).await;
    // An archiver looks at counters where it is.
    counter_becomes(&clients, 90).await;
    counters_reach(list, now_ms()).await;
    let counted = now_ms();
    count(&clients[0], -20).await;
    counters_reach(list, now_ms()).await;
    reaches(list, now_ms() - 1_000).await;
    // Killed while everybody writes on.
    first.end("-KILL");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let while_away = now_ms();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut second = Archiver::start(archiver(), &folder.path().join("second.log"));
    second.says("keyspace default goes on after").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let last = now_ms();
    let listed = reaches(list, last + 1).await;
    assert_eq!((listed["gaps"].as_array().unwrap().len(), &listed["foreign"]), (0, &0.into()), "{listed}");
    stop.store(true, Ordering::Relaxed);
    let mut writes = Vec::new();
    for writer in writers.drain(..) {
        writes.push(writer.await.unwrap());
    }
    let plain = writes.pop().unwrap();
    let writes: Vec<Write> = writes.into_iter().flatten().collect();
    let keys = |writes: &[Write]| writes.iter().map(|(_, key, _)| key.clone()).collect::<std::collections::BTreeSet<String>>();
    assert!(writes.len() > 300 && writes.iter().any(|(_, _, value)| value.is_none()), "{}", writes.len());
    second.end("-TERM");
    let out = ctl("", &["backup", "verify", &archive]).output().unwrap();
    says(&out, 0, &["a whole archive of cluster archived", "can be put back: from 20"]);
    assert!(!text(&out.stdout).contains("gap"), "{}", text(&out.stdout));
    says(
        &ctl("", &["archive", "list", &archive, "--within", "600s"]).output().unwrap(),
        0,
        &["agreed: in the full backups only", "default: every change"],
    );
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    says(&ctl("", &["archive", "list", &archive, "--within", "1s"]).output().unwrap(), 1, &[]);
    // A moment before the second look at the counter; one when nobody archived; and exactly that of one write.
    let exact = writes.iter().map(|(at, ..)| *at).filter(|(millis, ..)| *millis < last).max().unwrap();
    let moments = [("one", (counted, 0), "90"), ("two", (while_away, 0), "70")];
    for (to, at, stock) in moments {
        let moment = format!("{}.{}", at.0, at.1);
        let out = ctl(&addresses[1], &["restore", &archive, "--to", &moment, "-k", &format!("default={to}")]).output().unwrap();
        says(&out, 0, &["every data center has it", "counters as of 20", "default: as of 20"]);
        let mut expected = as_of(&writes, at);
        expected.insert("before".into(), "everything".into());
        for client in &clients {
            shows(client, to, keys(&writes).into_iter().chain(["before".into()]), &expected).await;
            let view = client.session(to).counter("stock").look().await.unwrap();
            assert_eq!((view.value.to_string().as_str(), view.lower), (stock, Some(0)));
        }
    }
    // To exactly one version, and to what was directly before it.
    let (moment, one_less) = (format!("{}.{}", exact.0, exact.1), format!("{}.{}", exact.0 - 1, u16::MAX));
    for (to, moment, at) in [("four", &moment, (exact.0, exact.1)), ("five", &one_less, (exact.0 - 1, u32::from(u16::MAX)))] {
        let out = ctl(&addresses[0], &["restore", &archive, "--to", moment, "-k", &format!("default={to}"), "--json"]).output().unwrap();
        says(&out, 0, &[]);
        shows(&clients[0], to, keys(&writes).into_iter(), &as_of(&writes, at)).await;
    }
    let out = ctl(&addresses[0], &["restore", &archive, "--to", &format!("{while_away}"), "-k", "plain=three"]).output().unwrap();
    says(&out, 0, &["every data center has it"]);
    shows(&clients[0], "three", keys(&plain).into_iter(), &as_of(&plain, (while_away, 0))).await;
    // One that is not followed is as of the full backup, and it is said.
    let out = ctl(&addresses[0], &["restore", &archive, "--to", &moment, "-k", "agreed", "--overwrite"]).output().unwrap();
    says(&out, 0, &["the changes of this keyspace are not archived"]);
    for (to, says_so) in
        [("2020-01-01T00:00:00Z", "is before the first full backup of the archive"), ("2100-01-01T00:00:00Z", "the archive is known up to 20")]
    {
        let out = ctl(&addresses[0], &["restore", &archive, "--to", to, "-k", "default=two", "--overwrite"]).output().unwrap();
        says(&out, 1, &[says_so, "what can be put back: from 20"]);
    }
    says(
        &ctl(&addresses[0], &["restore", &archive, "--to", "-1s", "--dry-run", "-k", "default=two", "--overwrite"]).output().unwrap(),
        1,
        &["the archive is known up to"],
    );
    // Damage is found, and nothing is restored from it.
    let mut segments: Vec<PathBuf> =
        fs::read_dir(&archive).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.to_str().unwrap().contains("/changes-0000-")).collect();
    segments.sort();
    // Each of them: a full backup may have come after the last of one data center.
    for segment in &segments {
        let mut bytes = fs::read(segment).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(segment, bytes).unwrap();
    }
    let victim = segments.last().unwrap();
    says(
        &ctl("", &["backup", "verify", &archive]).output().unwrap(),
        1,
        &["is damaged in the block at byte 0: its checksum is another", "not whole"],
    );
    // The last moment that it has: what was written since may not have come to it.
    let too_late = ctl(&addresses[0], &["restore", &archive, "--to", "2100-01-01T00:00:00Z", "-k", "default=two", "--overwrite"]).output().unwrap();
    let said = String::from_utf8_lossy(&too_late.stderr).into_owned();
    let last = said.trim().rsplit_once(" to ").unwrap().1.trim_end_matches(" UTC").replacen(' ', "T", 1) + "Z";
    let out = ctl(&addresses[0], &["restore", &archive, "--to", &last, "-k", "default=two", "--overwrite"]).output().unwrap();
    says(&out, 1, &["its checksum is another; nothing was restored"]);
    fs::remove_file(victim).unwrap();
    says(&ctl("", &["backup", "verify", &archive]).output().unwrap(), 1, &["missing"]);
    nodes.end().await;
}

/// A disk of its own; `None` where this process may not mount.
fn small_disk(path: &Path) -> Option<String> {
    fs::create_dir(path).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(path).output();
    mounted.is_ok_and(|done| done.status.success()).then(|| path.to_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_named_and_refused_and_a_full_disk_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive").to_str().unwrap().to_owned();
    let (nodes, addresses) = start(&description(&[("default", "causal", 3_000), ("spare", "causal", 0)]), &folder.path().join("nodes")).await;
    let client = connect(&addresses[0]).await;
    let mut session = client.session("default");
    let until = Instant::now() + PATIENCE;
    while session.put("k", "1").await.is_err() {
        assert!(Instant::now() < until);
    }
    let archiver = |place: &str| ctl(&addresses[0], &["archive", place, "-k", "default", "--every", "1s", "--keep", "1h"]);
    let list = |place: &str| ctl("", &["archive", "list", place, "--json"]);
    let mut first = Archiver::start(archiver(&archive), &folder.path().join("first.log"));
    first.says("full backup as of").await;
    let before = session.put("k", "2").await.unwrap();
    reaches(|| list(&archive), before.millis + 1).await;
    first.end("-TERM");
    // Away for longer than the history reaches, while something is written all the time.
    let mut inside = None;
    for number in 0..90 {
        let version = session.put("k", format!("gap{number}")).await.unwrap();
        if number == 45 {
            inside = Some(version);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut second = Archiver::start(archiver(&archive), &folder.path().join("second.log"));
    second.says("keyspace default: GAP after 20").await;
    second.says("full backup as of").await;
    let after = session.put("k", "3").await.unwrap();
    let listed = reaches(|| list(&archive), after.millis + 1).await;
    assert_eq!((listed["gaps"].as_array().unwrap().len(), &listed["full_backups"]), (1, &2.into()), "{listed}");
    says(&ctl("", &["backup", "verify", &archive]).output().unwrap(), 0, &["gap: what was written between 20", "a whole archive"]);
    let to = |version: &Version| format!("{}.{}", version.millis, version.counter);
    let restore = |version: &Version| ctl(&addresses[1], &["restore", &archive, "--to", &to(version), "-k", "default=spare", "--overwrite"]);
    says(
        &restore(&inside.unwrap()).output().unwrap(),
        1,
        &["what was written between 20", "is not known; what can be put back: from 20", ", and from 20"],
    );
    for (version, value) in [(&before, "2"), (&after, "3")] {
        says(&restore(version).output().unwrap(), 0, &["every data center has it"]);
        assert_eq!(client.session("spare").get("k").await.unwrap().value.as_deref(), Some(value.as_bytes()));
    }
    second.end("-TERM");
    match small_disk(&folder.path().join("small")) {
        Some(small) => {
            let place = format!("{small}/archive");
            let mut third = Archiver::start(archiver(&place), &folder.path().join("third.log"));
            third.says("full backup as of").await;
            let ballast = format!("{small}/ballast");
            let _ = fs::write(&ballast, vec![0; 1 << 20]);
            let full = session.put("full", vec![7; 9_000]).await.unwrap();
            third.says("cannot write: ").await;
            assert!(third.log().contains("No space left on device"), "{}", third.log());
            fs::remove_file(&ballast).unwrap();
            third.says("takes what is written again").await;
            reaches(|| list(&place), full.millis + 1).await;
            third.end("-TERM");
            says(&ctl("", &["backup", "verify", &place]).output().unwrap(), 0, &["a whole archive"]);
            let out = ctl(&addresses[1], &["restore", &place, "--to", &to(&full), "-k", "default=spare", "--overwrite"]).output().unwrap();
            says(&out, 0, &["every data center has it"]);
            assert_eq!(client.session("spare").get("full").await.unwrap().value.map(|value| value.len()), Some(9_000));
            let _ = Command::new("umount").arg("-l").arg(&small).output();
        }
        None => eprintln!("a full disk was not tried: this process may not mount"),
    }
    for (arguments, part) in [
        (&["archive", &archive, "-k", "spare"][..], "is of keyspaces default"),
        (&["archive", "s3x://b"], "there are no places of kind s3x://"),
        (&["archive", "/proc/1/no", "-k", "default"], "/proc/1/no"),
        (&["archive", &archive, "--every", "0s"], "is no time at all"),
        (&["archive", folder.path().to_str().unwrap(), "-k", "default"], "an archive wants a place of its own"),
        (&["archive", &format!("{archive}2"), "-k", "spare"], "no keyspace can be followed. spare: this keyspace keeps no history"),
    ] {
        let out = ctl(&addresses[0], arguments).output().unwrap();
        says(&out, if part.contains("at all") { 2 } else { 1 }, &[part]);
    }
    nodes.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_is_a_place_for_both() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("backups");
    let endpoint = server.endpoint();
    let (nodes, addresses) =
        start(&description(&[("default", "causal", 60_000), ("one", "causal", 0), ("two", "causal", 0)]), &folder.path().join("nodes")).await;
    let client = connect(&addresses[0]).await;
    let mut session = client.session("default");
    let until = Instant::now() + PATIENCE;
    while session.put("k", "1").await.is_err() {
        assert!(Instant::now() < until);
    }
    let s3 = |address: &str, arguments: &[&str]| {
        let mut command = ctl(address, arguments);
        command
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_REGION", REGION)
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        command
    };
    let here = |arguments: &[&str]| s3(&addresses[0], arguments);
    says(&here(&["backup", "s3://backups/monday", "-k", "default"]).output().unwrap(), 0, &["s3://backups/monday is a backup as of"]);
    session.put("k", "2").await.unwrap();
    session.put("large", vec![7; 3 << 20]).await.unwrap();
    let out = here(&["backup", "s3://backups/tuesday", "--since", "s3://backups/monday", "--s3-part", "5"]).output().unwrap();
    says(&out, 0, &["s3://backups/tuesday is a backup"]);
    says(&s3("", &["backup", "verify", "s3://backups/monday", "s3://backups/tuesday"]).output().unwrap(), 0, &["only what was written since"]);
    let out = here(&["restore", "s3://backups/monday", "s3://backups/tuesday", "-k", "default=one"]).output().unwrap();
    says(&out, 0, &["every data center has it"]);
    assert_eq!(client.session("one").get("k").await.unwrap().value.as_deref(), Some(&b"2"[..]));
    // Refused in words, and without secrets.
    let mut wrong = here(&["backup", "s3://backups/w", "-k", "default"]);
    says(&wrong.env("AWS_SECRET_ACCESS_KEY", "hush").output().unwrap(), 1, &["the secret key is not that of the access key"]);
    let mut none = here(&["backup", "s3://backups/w", "-k", "default"]);
    says(&none.env_remove("AWS_SECRET_ACCESS_KEY").output().unwrap(), 1, &["AWS_SECRET_ACCESS_KEY is not set"]);
    says(&here(&["backup", "s3://other/w", "-k", "default"]).output().unwrap(), 1, &["the store has no bucket `other`"]);
    says(&here(&["backup", "s3://backups/w", "--s3-endpoint", "http://10.0.0.1:9"]).output().unwrap(), 1, &["--s3-plaintext"]);
    says(&here(&["backup", "s3://backups/w", "--s3-endpoint", "http://127.0.0.1:9"]).output().unwrap(), 1, &["http://127.0.0.1:9 does not answer"]);
    // The store is full of errors, and what was begun goes.
    server.fail(
        |seen: &Seen| if seen.method == "PUT" && seen.path.ends_with("manifest.json") { Fault::Status(403, "AccessDenied") } else { Fault::None },
    );
    says(&here(&["backup", "s3://backups/w", "-k", "default"]).output().unwrap(), 1, &["these keys may not write here"]);
    server.fail(|seen: &Seen| if seen.number.is_multiple_of(3) { Fault::Status(503, "SlowDown") } else { Fault::None });
    says(&here(&["backup", "s3://backups/w", "-k", "default"]).output().unwrap(), 0, &["s3://backups/w is a backup"]);
    server.fail(|_: &Seen| Fault::None);
    says(&s3("", &["backup", "verify", "s3://backups/w"]).output().unwrap(), 0, &["a whole backup"]);

    let archiver = || here(&["archive", "s3://backups/archive", "-k", "default", "--every", "1s"]);
    let list = || s3("", &["archive", "list", "s3://backups/archive", "--json"]);
    let mut first = Archiver::start(archiver(), &folder.path().join("first.log"));
    first.says("full backup as of").await;
    let shown = fs::read(format!("/proc/{}/cmdline", first.child.id())).unwrap();
    assert!(!text(&shown).contains(SECRET_KEY));
    let written = session.put("k", "3").await.unwrap();
    reaches(list, written.millis + 1).await;
    // Where there is no lock, a second one waits, and sees the first one write.
    says(&archiver().output().unwrap(), 1, &["will tell whether it writes", "another archiver writes to it, on"]);
    // The store is away for a while.
    server.fail(|_: &Seen| Fault::Status(503, "SlowDown"));
    let away = session.put("k", "4").await.unwrap();
    first.says("cannot write: ").await;
    server.fail(|_: &Seen| Fault::None);
    first.says("takes what is written again").await;
    reaches(list, away.millis + 1).await;
    // Killed: the next one sees that nobody writes, and goes on.
    first.end("-KILL");
    let gone = session.put("k", "5").await.unwrap();
    let mut second = Archiver::start(archiver(), &folder.path().join("second.log"));
    second.says("keyspace default goes on after").await;
    let listed = reaches(list, gone.millis + 1).await;
    assert_eq!(listed["gaps"].as_array().unwrap().len(), 0, "{listed}");
    // Another one that did not see it has taken over.
    let head = text(&server.get("backups", "archive/head.json").unwrap());
    let owner = head.split("\"owner\": \"").nth(1).unwrap().split('"').next().unwrap().to_string();
    server.put("backups", "archive/head.json", head.replace(&owner, "0000000000000000").as_bytes());
    session.put("k", "6").await.unwrap();
    let until = Instant::now() + PATIENCE;
    while second.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "{}", second.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(second.log().contains("another archiver has taken over"), "{}", second.log());
    for (version, value) in [(&written, "3"), (&away, "4"), (&gone, "5")] {
        let to = format!("{}.{}", version.millis, version.counter);
        says(
            &here(&["restore", "s3://backups/archive", "--to", &to, "-k", "default=two", "--overwrite"]).output().unwrap(),
            0,
            &["every data center has it"],
        );
        assert_eq!(client.session("two").get("k").await.unwrap().value.as_deref(), Some(value.as_bytes()));
    }
    says(&s3("", &["backup", "verify", "s3://backups/archive"]).output().unwrap(), 0, &["a whole archive"]);
    let segment = server.names("backups").into_iter().rfind(|name| name.contains("/changes-")).unwrap();
    let mut bytes = server.get("backups", &segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    server.put("backups", &segment, &bytes);
    says(&s3("", &["backup", "verify", "s3://backups/archive"]).output().unwrap(), 1, &["its checksum is another", &segment]);
    nodes.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_goes_on_elsewhere_when_the_data_center_that_it_follows_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive").to_str().unwrap().to_owned();
    let (mut nodes, addresses) = start(&description(&[("default", "causal", 600_000)]), &folder.path().join("nodes")).await;
    let us = connect(&addresses[0]).await;
    let mut archiver = Archiver::start(ctl(&addresses[1], &["archive", &archive, "--every", "1s"]), &folder.path().join("log"));
    archiver.says("full backup as of").await;
    nodes.kill(1);
    let until = Instant::now() + PATIENCE;
    loop {
        let told = ctl(&addresses[0], &["dc", "lost", "eu", "--yes"]).output().unwrap();
        if told.status.success() {
            break;
        }
        assert!(Instant::now() < until, "{}", text(&told.stderr));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let written = put(&us, "after it").await;
    let listed = reaches(|| ctl("", &["archive", "list", &archive, "--json"]), written.millis + 1).await;
    assert_eq!(listed["gaps"].as_array().unwrap().len(), 0, "{listed}");
    archiver.end("-TERM");
    nodes.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_backup_after_a_split_has_what_all_the_parts_have() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive").to_str().unwrap().to_owned();
    let before = description(&[("default", "causal", 600_000)]);
    let (mut nodes, addresses) = start(&before, &folder.path().join("nodes")).await;
    let us = connect(&addresses[0]).await;
    for key in 0..40 {
        put(&us, &format!("k{key}")).await;
    }
    let archived = ctl(&addresses[0], &["archive", &archive, "--every", "1s", "--full-every", "2s"]);
    let mut archiver = Archiver::start(archived, &folder.path().join("log"));
    archiver.says(": 40 keys").await;
    split(&mut nodes, before).await;
    put(&connect(&addresses[0]).await, "after it").await;
    archiver.says(": 41 keys").await;
    archiver.end("-TERM");
    nodes.end().await;
}
