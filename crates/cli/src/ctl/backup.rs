//! `rheostat ctl backup` and `rheostat ctl backup verify`.

use crate::Failure;
use crate::connection::{Connection, Node};
use crate::date;
use crate::output::{self, say};
use crate::table::Table;
use clap::{Args, Subcommand};
use rheostat_backup::{Cut, FORMAT, KeyspaceEntry, KeyspaceFile, Manifest, Report, Since, Time, Unfinished, follows, read_manifest, verify};
use rheostat_client::backup::{Backup, Taking};
use rheostat_client::{Client, Error, v1};
use rheostat_core::Timestamp;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  rheostat ctl backup /backups/monday                              all keyspaces, as of now, while everybody writes
  rheostat ctl backup /backups/monday --keyspace default --keyspace plain --from eu
  rheostat ctl backup /backups/tuesday --since /backups/monday     only what has been written since; needs history_ms
  rheostat ctl backup verify /backups/monday                       whether it is whole; no cluster is asked
  rheostat ctl restore /backups/monday                             into a cluster
docs/backup.md says what kind of cut each protocol gives.";

/// Arguments of `ctl backup`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The folder to write to; it must be empty, or not there
    #[arg(value_name = "DIR", required = true)]
    folder: Option<PathBuf>,
    /// Only this keyspace, by name or number; several times for several
    #[arg(short, long, value_name = "KEYSPACE")]
    keyspace: Vec<String>,
    /// The data center to read from [default: that of the first node that answers]; the others are asked for what it cannot give
    #[arg(long, value_name = "DATA-CENTER")]
    from: Option<String>,
    /// Only what has been written since the backup in this folder, with deletions
    #[arg(long, value_name = "OLD-DIR")]
    since: Option<PathBuf>,
    /// How long to wait for a part of the cluster that does not answer, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Read a backup and say whether it is whole; several folders: a full backup and the incremental ones that follow it
    Verify {
        /// The folders, the full backup first
        #[arg(value_name = "DIR", required = true)]
        folders: Vec<PathBuf>,
    },
}

pub(super) async fn run(arguments: &Arguments, json: bool, connection: &Connection) -> Result<ExitCode, Failure> {
    if let Some(Command::Verify { folders }) = &arguments.command {
        return verify_all(folders, json);
    }
    let folder = arguments.folder.as_ref().ok_or("a folder to write to")?;
    let last = arguments.since.as_deref().map(read_manifest).transpose().map_err(|error| error.to_string())?;
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
            return Err(format!("--since: keyspace {} was read key by key, not as of one time; --keyspace names others", one.name));
        }
    }
    let since = last.as_ref().map(|(last, _)| last.as_of.at());
    let unfinished = Unfinished::begin(folder).map_err(|error| error.to_string())?;
    let backup = Backup { keyspaces, from: arguments.from.clone(), since, patience: Duration::from_secs(arguments.wait) };
    let began = Instant::now();
    let taking = backup.begin(&clients).await.map_err(|error| failed(error, since.is_some()))?;
    eprintln!("as of {}, from {}", when(taking.at()), taking.data_center());
    let mut entries = Vec::new();
    for number in 0..taking.keyspaces().len() {
        match keyspace(&taking, number, &unfinished, since.is_some()).await {
            Ok(entry) => entries.push(entry),
            Err(why) => {
                taking.end().await;
                return Err(why);
            }
        }
    }
    let follows_last = last.clone();
    let manifest = Manifest {
        format: FORMAT,
        cluster: topology.cluster.clone(),
        release: env!("CARGO_PKG_VERSION").into(),
        as_of: Time::new(taking.at(), when(taking.at())),
        since: last.map(|(last, manifest_sha256)| Since { as_of: last.as_of, manifest_sha256 }),
        data_center: taking.data_center().into(),
        data_centers: topology.data_centers.clone(),
        partitions: topology.partitions,
        keyspaces: entries,
    };
    if let Some(why) = follows_last.and_then(|(last, sum)| follows(Some((&last, &sum)), &manifest)) {
        return Err(format!("--since: {why}"));
    }
    unfinished.finish(&manifest).map_err(|error| error.to_string())?;
    taking.end().await;
    let seconds = began.elapsed().as_secs_f64();
    if json {
        output::json(&json!({ "folder": folder, "seconds": seconds, "manifest": manifest }));
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&table(&manifest));
    say!("{} is a backup as of {}, taken in {seconds:.1} s", folder.display(), manifest.as_of.text);
    Ok(ExitCode::SUCCESS)
}

/// Why the cluster did not give what was asked.
fn failed(error: Error, incremental: bool) -> Failure {
    let text = error.to_string();
    match incremental && text.contains("history") {
        true => format!("{text}; an incremental backup needs a keyspace whose history_ms reaches back to the backup before it: take a full one"),
        false => text,
    }
}

/// The nodes that answer, those of the nearest data center first.
pub(super) fn nearest_first(topology: &v1::TopologyResponse, nodes: &[Node]) -> Vec<Client> {
    let mut clients: Vec<Client> = nodes.iter().filter_map(|node| node.client.clone().ok()).collect();
    clients.sort_by_key(|client| client.topology().data_center != topology.data_center);
    clients
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
        eprintln!("  {}: {keys} keys, {:.1} MB, {:.1} s", self.name, bytes as f64 / 1e6, self.began.elapsed().as_secs_f64());
    }
}

fn when(at: Timestamp) -> String {
    let text = date::text(at.millis() / 1000);
    format!("{}.{:03} UTC", text.trim_end_matches(" UTC"), at.millis() % 1000)
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
pub(super) fn check(folders: &[PathBuf]) -> Result<Vec<Report>, Failure> {
    let mut reports: Vec<Report> = Vec::new();
    for folder in folders {
        let mut report = verify(folder).map_err(|error| error.to_string())?;
        let last = reports.last().map(|last| (&last.manifest, last.manifest_sha256.as_str()));
        report.faults.extend(follows(last, &report.manifest).map(|why| format!("{}: {why}", folder.display())));
        reports.push(report);
    }
    Ok(reports)
}

fn verify_all(folders: &[PathBuf], json: bool) -> Result<ExitCode, Failure> {
    // One that holds only what was written since another one is whole by itself.
    let reports = match folders {
        [folder] => vec![verify(folder).map_err(|error| error.to_string())?],
        folders => check(folders)?,
    };
    let is_whole = reports.iter().all(|report| report.faults.is_empty());
    if json {
        let one = |(folder, report): (&PathBuf, &Report)| json!({ "folder": folder, "faults": report.faults, "manifest": report.manifest });
        let backups: Vec<Value> = folders.iter().zip(&reports).map(one).collect();
        output::json(&json!({ "whole": is_whole, "backups": backups }));
    } else {
        for (folder, report) in folders.iter().zip(&reports) {
            report.faults.iter().for_each(|fault| say!("{fault}"));
            if report.faults.is_empty() {
                let manifest = &report.manifest;
                let since = manifest.since.as_ref().map_or_else(String::new, |since| format!(", only what was written since {}", since.as_of.text));
                output::text(&table(manifest));
                say!("{}: a whole backup of cluster {} as of {}{since}", folder.display(), manifest.cluster, manifest.as_of.text);
            }
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
