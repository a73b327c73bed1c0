//! `rheostat ctl backup` and `rheostat ctl backup verify`.

use super::archive::verify_archive;
use super::nearest::nearest_first;
use super::place::{self, Objects};
use crate::Failure;
use crate::connection::Connection;
use crate::output::{self, say};
use crate::table::{Table, count};
use clap::{Args, Subcommand};
use rheostat_backup::archive::{in_words, read_settings};
use rheostat_backup::{Cut, FORMAT, KeyspaceEntry, KeyspaceFile, Manifest, Report, Since, Store, Unfinished, follows, read_manifest, verify};
use rheostat_client::backup::{Backup, Taking};
use rheostat_client::{Error, v1};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  rheostat ctl backup /backups/monday                              all keyspaces, as of now, while everybody writes
  rheostat ctl backup /backups/monday --keyspace default --keyspace plain --from eu
  rheostat ctl backup /backups/tuesday --since /backups/monday     only what has been written since; needs history_ms
  rheostat ctl backup s3://backups/monday --s3-endpoint https://store.example:9000    into a bucket; its keys are in the environment
  rheostat ctl backup verify /backups/monday                       whether it is whole; no cluster is asked
  rheostat ctl backup verify /backups/archive                      an archive of `ctl archive` likewise, and which moments it can put back
  rheostat ctl restore /backups/monday                             into a cluster
docs/backup.md says what kind of cut each protocol gives.";

/// Arguments of `ctl backup`.
#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", place::HELP), args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Where to write to, a folder or s3://BUCKET/PREFIX; nothing may be there yet
    #[arg(value_name = "PLACE", required = true)]
    place: Option<String>,
    /// Only this keyspace, by name or number; several times for several
    #[arg(short, long, value_name = "KEYSPACE")]
    keyspace: Vec<String>,
    /// The data center to read from [default: that of the first node that answers]; the others are asked for what it cannot give
    #[arg(long, value_name = "DATA-CENTER")]
    from: Option<String>,
    /// Only what has been written since the backup in this place, with deletions
    #[arg(long, value_name = "OLD-PLACE")]
    since: Option<String>,
    /// How long to wait for a part of the cluster that does not answer, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
    #[command(flatten)]
    objects: Objects,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Read a backup, or an archive, and say whether it is whole; several places: a full backup and the incremental ones that follow it
    Verify {
        /// The places, the full backup first
        #[arg(value_name = "PLACE", required = true)]
        places: Vec<String>,
    },
}

pub(super) async fn run(arguments: &Arguments, json: bool, connection: &Connection) -> Result<ExitCode, Failure> {
    if let Some(Command::Verify { places }) = &arguments.command {
        return verify_all(&arguments.objects, places, json);
    }
    let place = arguments.place.as_ref().ok_or("a place to write to")?;
    let store = arguments.objects.open(place)?;
    let old = arguments.since.as_deref().map(|old| arguments.objects.open(old)).transpose()?;
    let last = old.map(|old| read_manifest(&*old)).transpose().map_err(|error| error.to_string())?;
    let (topology, nodes) = connection.nodes().await?;
    let clients = nearest_first(&topology, &nodes);
    let mut keyspaces = arguments.keyspace.clone();
    if let Some((last, _)) = &last {
        if last.cluster != topology.cluster {
            return Err(format!("--since: a backup of cluster {}; this is {}", last.cluster, topology.cluster));
        }
        if keyspaces.is_empty() {
            keyspaces = last.keyspaces.iter().map(|one| one.name.clone()).collect();
        }
        if let Some(one) = last.keyspaces.iter().find(|one| one.cut == Cut::Applied) {
            return Err(format!(
                "--since: keyspace {} was read key by key, not as of one time, so nothing can follow that backup; take a full one of other keyspaces (--keyspace), and then what follows it",
                one.name
            ));
        }
        if is_of_others(&keyspaces, last, &topology) {
            let names: Vec<&str> = last.keyspaces.iter().map(|one| &*one.name).collect();
            return Err(format!("--since: that backup is of keyspaces {}, and what follows it has to be of the same", names.join(", ")));
        }
    }
    let since = last.as_ref().map(|(last, _)| last.as_of.at());
    let unfinished = Unfinished::begin(store.clone()).map_err(|error| error.to_string())?;
    let backup = Backup { keyspaces, from: arguments.from.clone(), since, patience: Duration::from_secs(arguments.wait) };
    let began = Instant::now();
    let taking = match backup.begin(&clients).await {
        Ok(taking) => taking,
        Err(error) => {
            unfinished.abandon();
            return Err(failed(error, since.is_some()));
        }
    };
    eprintln!("as of {}, from {}", in_words(taking.at()), taking.data_center());
    let manifest = take(&taking, unfinished, &topology, last).await;
    taking.end().await;
    let manifest = manifest?;
    let seconds = began.elapsed().as_secs_f64();
    if json {
        output::json(&json!({ "folder": place, "seconds": seconds, "manifest": manifest }));
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&table(&manifest));
    say!("{} is a backup as of {}, taken in {seconds:.1} s", store.name(), manifest.as_of.text);
    Ok(ExitCode::SUCCESS)
}

/// Whether what is asked for is not what the backup before it has. Of a keyspace that there is not, the cluster speaks.
fn is_of_others(asked: &[String], last: &Manifest, topology: &v1::TopologyResponse) -> bool {
    let place = |wanted: &String| topology.keyspaces.iter().position(|one| one.name == *wanted || one.number.to_string() == *wanted);
    let Some(places) = asked.iter().map(place).collect::<Option<BTreeSet<usize>>>() else { return false };
    places.iter().map(|place| &topology.keyspaces[*place].name).ne(last.keyspaces.iter().map(|one| &one.name))
}

/// Reads all keyspaces into a backup, and ends it; `last` is what it follows, with the sum of its manifest.
pub(super) async fn take(
    taking: &Taking,
    unfinished: Unfinished,
    topology: &v1::TopologyResponse,
    last: Option<(Manifest, String)>,
) -> Result<Manifest, Failure> {
    let read = async {
        let mut entries = Vec::new();
        for number in 0..taking.keyspaces().len() {
            entries.push(keyspace(taking, number, &unfinished, last.is_some()).await?);
        }
        let manifest = Manifest {
            format: FORMAT,
            cluster: topology.cluster.clone(),
            release: env!("CARGO_PKG_VERSION").into(),
            as_of: taking.at().into(),
            since: last.as_ref().map(|(last, manifest_sha256)| Since { as_of: last.as_of.clone(), manifest_sha256: manifest_sha256.clone() }),
            data_center: taking.data_center().into(),
            data_centers: topology.data_centers.clone(),
            partitions: taking.partitions(),
            keyspaces: entries,
        };
        match last.and_then(|(last, sum)| follows(Some((&last, &sum)), &manifest)) {
            Some(why) => Err(format!("--since: {why}")),
            None => Ok(manifest),
        }
    };
    match read.await {
        Ok(manifest) => unfinished.finish(&manifest).map(|()| manifest).map_err(|error| error.to_string()),
        Err(why) => {
            unfinished.abandon();
            Err(why)
        }
    }
}

/// Why the cluster did not give what was asked.
fn failed(error: Error, incremental: bool) -> Failure {
    match error {
        Error::Refused(text) if incremental => {
            format!(
                "{text} (an incremental backup needs a keyspace whose history_ms reaches back to the backup before it; where it does not, take a full one)"
            )
        }
        error => error.to_string(),
    }
}

/// Reads keyspace number `number` into its file.
async fn keyspace(taking: &Taking, number: usize, unfinished: &Unfinished, incremental: bool) -> Result<KeyspaceEntry, Failure> {
    enum Why {
        Cluster(Error),
        Folder(rheostat_backup::Error),
    }
    impl From<Error> for Why {
        fn from(error: Error) -> Why {
            Why::Cluster(error)
        }
    }
    let taken = &taking.keyspaces()[number];
    let mut file: KeyspaceFile = unfinished.keyspace(number).map_err(|error| error.to_string())?;
    let mut progress = Progress::new(&taken.name);
    let read = taking.read(number, |keys| {
        keys.iter().try_for_each(|one| file.push(one)).map_err(Why::Folder)?;
        progress.tell(file.totals().keys + file.totals().deleted, file.totals().bytes);
        Ok(())
    });
    read.await.map_err(|why| match why {
        Why::Cluster(error) => failed(error, incremental),
        Why::Folder(error) => error.to_string(),
    })?;
    let (name, totals) = file.finish().map_err(|error| error.to_string())?;
    progress.end(totals.keys + totals.deleted, totals.bytes);
    Ok(KeyspaceEntry::new(taken.name.clone(), taken.protocol.clone(), taken.kind.into(), name, totals))
}

/// How far a keyspace is, on standard error.
pub(super) struct Progress {
    name: String,
    began: Instant,
    told: Instant,
}

/// Between two lines.
const TELL: Duration = Duration::from_secs(2);

impl Progress {
    pub(super) fn new(name: &str) -> Progress {
        Progress { name: name.into(), began: Instant::now(), told: Instant::now() }
    }

    pub(super) fn tell(&mut self, keys: u64, bytes: u64) {
        if self.told.elapsed() >= TELL {
            self.told = Instant::now();
            self.line(keys, bytes);
        }
    }

    pub(super) fn end(&self, keys: u64, bytes: u64) {
        self.line(keys, bytes);
    }

    fn line(&self, keys: u64, bytes: u64) {
        eprintln!("  {}: {}, {:.1} MB, {:.1} s", self.name, count(keys, "key"), bytes as f64 / 1e6, self.began.elapsed().as_secs_f64());
    }
}

fn table(manifest: &Manifest) -> String {
    let mut table = Table::new(["keyspace", "protocol", "what", "keys", "counters", "deleted", "MB"]);
    for one in &manifest.keyspaces {
        let megabytes = format!("{:.1}", one.bytes as f64 / 1e6);
        let numbers = [one.keys, one.counters, one.deleted].map(|number| number.to_string());
        table.row([one.name.clone(), one.protocol.clone(), one.cut.words().into()].into_iter().chain(numbers).chain([megabytes]));
    }
    table.text(0)
}

/// Verifies each backup, and that each follows the one before it. Errors: a manifest cannot be read.
pub(super) fn check(stores: &[Arc<dyn Store>]) -> Result<Vec<Report>, Failure> {
    let mut reports: Vec<Report> = Vec::new();
    for store in stores {
        let mut report = verify(&**store).map_err(|error| error.to_string())?;
        let last = reports.last().map(|last| (&last.manifest, last.manifest_sha256.as_str()));
        report.faults.extend(follows(last, &report.manifest).map(|why| format!("{}: {why}", store.name())));
        reports.push(report);
    }
    Ok(reports)
}

fn verify_all(objects: &Objects, places: &[String], json: bool) -> Result<ExitCode, Failure> {
    let stores = places.iter().map(|place| objects.open(place)).collect::<Result<Vec<_>, Failure>>()?;
    for store in &stores {
        if read_settings(&**store).map_err(|error| error.to_string())?.is_some() {
            return match &stores[..] {
                [store] => verify_archive(&**store, json),
                _ => Err(format!("{}: is an archive, which is verified by itself", store.name())),
            };
        }
    }
    // One that holds only what was written since another one is whole by itself.
    let reports = match &stores[..] {
        [store] => vec![verify(&**store).map_err(|error| error.to_string())?],
        stores => check(stores)?,
    };
    let is_whole = reports.iter().all(|report| report.faults.is_empty());
    if json {
        let one = |(place, report): (&String, &Report)| json!({ "folder": place, "faults": report.faults, "manifest": report.manifest });
        let backups: Vec<Value> = places.iter().zip(&reports).map(one).collect();
        output::json(&json!({ "whole": is_whole, "backups": backups }));
    } else {
        for (store, report) in stores.iter().zip(&reports) {
            report.faults.iter().for_each(|fault| say!("{fault}"));
            if report.faults.is_empty() {
                let manifest = &report.manifest;
                let since = manifest.since.as_ref().map_or_else(String::new, |since| format!(", only what was written since {}", since.as_of.text));
                output::text(&table(manifest));
                say!("{}: a whole backup of cluster {} as of {}{since}", store.name(), manifest.cluster, manifest.as_of.text);
            }
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_backup::{FileEntry, Time};

    #[test]
    fn what_follows_a_backup_is_of_its_keyspaces_and_that_is_known_before_anything_is_read() {
        let keyspace = |(number, name): (usize, &str)| v1::Keyspace { number: number as u32, name: name.into(), ..v1::Keyspace::default() };
        let keyspaces = ["a", "b", "c"].into_iter().enumerate().map(keyspace).collect();
        let topology = v1::TopologyResponse { keyspaces, ..v1::TopologyResponse::default() };
        let file = FileEntry { name: String::new(), size: 0, blocks: 0, sha256: String::new() };
        let entry = |name: &str| KeyspaceEntry {
            name: name.into(),
            protocol: "causal".into(),
            cut: Cut::Causal,
            keys: 0,
            counters: 0,
            values: 0,
            deleted: 0,
            bytes: 0,
            file: file.clone(),
        };
        let last = Manifest {
            format: FORMAT,
            cluster: "test".into(),
            release: "0".into(),
            as_of: Time { millis: 1, counter: 0, text: String::new() },
            since: None,
            data_center: "here".into(),
            data_centers: vec!["here".into()],
            partitions: 1,
            keyspaces: vec![entry("a"), entry("c")],
        };
        for (asked, is) in [(&["a", "c"][..], false), (&["c", "0"], false), (&["a"], true), (&["a", "b", "c"], true), (&["a", "z"], false)] {
            let asked: Vec<String> = asked.iter().map(|name| name.to_string()).collect();
            assert_eq!(is_of_others(&asked, &last, &topology), is, "{asked:?}");
        }
    }
}
