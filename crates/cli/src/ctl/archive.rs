//! `rheostat ctl archive`: every change of a cluster's keyspaces, and now and then a full backup, so that any moment can be put back.

mod events;
mod follow;
mod jobs;
mod writer;

use super::nearest::nearest_first;
use super::place::{self, Objects};
use crate::Failure;
use crate::connection::Connection;
use crate::date::{now_ms, span};
use crate::output::{self, say};
use crate::signal::Stop;
use crate::table::count;
use clap::{Args, Subcommand};
use rheostat_backup::Store;
use rheostat_backup::archive::{Archive, Span, in_words};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  rheostat ctl archive /backups/archive                            until Ctrl-C: all keyspaces, every change, and a full backup each day
  rheostat ctl archive s3://backups/archive --keep 7d              into a bucket; what is older than a week goes
  rheostat ctl archive list /backups/archive                       which moments can be put back; --within 60s: exit code 1 if it is behind by more
  rheostat ctl backup verify /backups/archive                      reads all of it, and names what is damaged or missing
  rheostat ctl -a other:7401 restore /backups/archive --to 2026-11-22T12:34:58.590Z
It goes on where it left off after it, a node or the place was away; what is too old to be told any more (`history_ms`) is a gap, which is named, and a full backup begins anew after it.
Keyspaces need history_ms; session, strong and staged are in the full backups only. docs/backup.md says what each protocol gives.";

/// For how long a request to a store is tried before it is told that it fails; it is tried again after that.
const STORE_PATIENCE: Duration = Duration::from_secs(15);

/// Arguments of `ctl archive`.
#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", place::HELP), args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Where the archive is, a folder or s3://BUCKET/PREFIX; it begins there if there is none
    #[arg(value_name = "PLACE", required = true)]
    place: Option<String>,
    /// Only this keyspace, by name or number; several times for several
    #[arg(short, long, value_name = "KEYSPACE")]
    keyspace: Vec<String>,
    /// How often changes are written: with the machine that runs this, those of so long may be lost if the cluster is lost too
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    every: Duration,
    /// How often there is a full backup: a restore reads one, and the changes since
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
    full_every: Duration,
    /// How often counters are read: they are put back as of the last time before. 0s: only in full backups
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time_or_never)]
    counters_every: Duration,
    /// Remove what is not needed to put back the moments of so long [default: nothing is removed]
    #[arg(long, value_name = "TIME", value_parser = time)]
    keep: Option<Duration>,
    /// How long to wait for a part of the cluster that does not answer, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
    #[command(flatten)]
    objects: Objects,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Which moments of an archive can be put back, as its names tell; `backup verify` reads it
    List {
        /// Where the archive is
        #[arg(value_name = "PLACE")]
        place: String,
        /// Fail if the last moment is longer ago than this, by this machine's clock
        #[arg(long, value_name = "TIME", value_parser = time)]
        within: Option<Duration>,
    },
}

/// Reads `5s`, `10m`, `24h`, `7d`.
fn time_or_never(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no length of time; those are 5s, 10m, 24h, 7d");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())).and_then(|number| number.parse::<u32>().ok());
    number.map(|number| Duration::from_secs(u64::from(number) * seconds)).ok_or_else(wrong)
}

fn time(text: &str) -> Result<Duration, String> {
    match time_or_never(text)? {
        Duration::ZERO => Err(format!("`{text}` is no time at all")),
        time => Ok(time),
    }
}

pub(super) async fn run(arguments: &Arguments, json: bool, connection: &Connection) -> Result<ExitCode, Failure> {
    if let Some(Command::List { place, within }) = &arguments.command {
        return list(&*arguments.objects.open(place)?, *within, json);
    }
    let mut stop = Stop::listen().map_err(|error| format!("signals cannot be heard: {error}"))?;
    let place = arguments.place.as_ref().ok_or("a place to write to")?;
    let store = arguments.objects.open_within(place, Some(STORE_PATIENCE))?;
    let (topology, nodes) = connection.nodes().await?;
    let (clients, patience) = (nearest_first(&topology, &nodes), Duration::from_secs(arguments.wait));
    let cluster = jobs::Cluster::new(connection.clone(), clients, topology, patience);
    let settings = tokio::select! {
        settings = writer::settings(&*store, &arguments.keyspace, &cluster) => settings?,
        _ = stop.heard() => return Ok(ExitCode::SUCCESS),
    };
    let events = events::Events::new(json);
    let times = writer::Times {
        every: arguments.every,
        full_every: arguments.full_every,
        counters_every: Some(arguments.counters_every).filter(|every| !every.is_zero()),
        keep: arguments.keep,
    };
    let begun = tokio::select! {
        begun = writer::Writer::begin(store, settings, cluster, times, events) => begun?,
        _ = stop.heard() => return Ok(ExitCode::SUCCESS),
    };
    begun.run(&mut stop).await?;
    Ok(ExitCode::SUCCESS)
}

fn words(spans: &[Span]) -> Vec<String> {
    spans.iter().map(|one| format!("from {} to {}", in_words(one.from), in_words(one.to))).collect()
}

fn spans_json(spans: &[Span]) -> Vec<Value> {
    spans.iter().map(|one| json!({ "from_ms": one.from.millis(), "to_ms": one.to.millis() })).collect()
}

/// What no moment can be put back of, between the first and the last that can.
fn gaps(spans: &[Span]) -> Vec<Span> {
    spans.windows(2).map(|pair| Span { from: pair[0].to, to: pair[1].from }).collect()
}

fn look(store: &dyn Store) -> Result<Archive, Failure> {
    Archive::look(store).map_err(|error| error.to_string())?.ok_or_else(|| format!("{}: there is no archive in it", store.name()))
}

fn list(store: &dyn Store, within: Option<Duration>, json: bool) -> Result<ExitCode, Failure> {
    let archive = look(store)?;
    let spans = archive.spans();
    let last = spans.last().map(|last| last.to);
    let behind_ms = last.map(|last| now_ms().saturating_sub(last.millis()));
    let is_late = within.is_some_and(|within| behind_ms.is_none_or(|behind| u128::from(behind) > within.as_millis()));
    let segments: usize = archive.chains.iter().map(|chain| chain.changes.len() + chain.counters.len()).sum();
    if json {
        let followed: Vec<Value> = archive
            .settings
            .keyspaces
            .iter()
            .enumerate()
            .map(|(place, one)| {
                let counters_ms = archive.counters_through(place).map(|at| at.millis());
                json!({ "keyspace": one.name, "protocol": one.protocol, "order": one.order, "why": one.why, "counters_ms": counters_ms })
            })
            .collect();
        output::json(&json!({
            "place": store.name(), "cluster": archive.settings.cluster, "spans": spans_json(&spans), "gaps": spans_json(&gaps(&spans)), "behind_ms": behind_ms,
            "full_backups": archive.bases.len(), "segments": segments, "segment_bytes": archive.bytes, "foreign": archive.foreign, "keyspaces": followed,
        }));
    } else {
        say!("{}: an archive of cluster {}", store.name(), archive.settings.cluster);
        for one in &archive.settings.keyspaces {
            match (&one.order, &one.why) {
                (Some(_), _) => say!("  {}: every change", one.name),
                (None, why) => say!("  {}: in the full backups only ({})", one.name, why.as_deref().unwrap_or("it has no feed")),
            }
        }
        let (bases, segments) = (count(archive.bases.len() as u64, "full backup"), count(segments as u64, "segment"));
        say!("{bases}, and {segments} of {:.1} MB", archive.bytes as f64 / 1e6);
        if archive.foreign > 0 {
            say!("{} other things are there, which are not looked at", archive.foreign);
        }
        words(&spans).iter().for_each(|one| say!("can be put back: {one}"));
        gaps(&spans).iter().for_each(|one| say!("gap: what was written between {} and {} is not known", in_words(one.from), in_words(one.to)));
        match behind_ms {
            Some(behind) => say!("the last moment is {} ago", span(behind)),
            None => say!("nothing can be put back yet"),
        }
    }
    Ok(if is_late { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// `ctl backup verify` of an archive.
pub(super) fn verify_archive(store: &dyn Store, json: bool) -> Result<ExitCode, Failure> {
    let archive = look(store)?;
    let mut told = Instant::now();
    let tell = |objects: u64| {
        if told.elapsed() >= Duration::from_secs(2) {
            told = Instant::now();
            eprintln!("  {objects} objects");
        }
    };
    let checked = archive.verify(store, tell).map_err(|error| error.to_string())?;
    let is_whole = checked.faults.is_empty();
    let gaps = gaps(&checked.spans);
    if json {
        output::json(&json!({
            "whole": is_whole, "faults": checked.faults, "spans": spans_json(&checked.spans), "gaps": spans_json(&gaps), "objects": checked.objects, "changes": checked.changes,
        }));
    } else {
        checked.faults.iter().for_each(|fault| say!("{fault}"));
        words(&checked.spans).iter().for_each(|one| say!("can be put back: {one}"));
        gaps.iter().for_each(|one| say!("gap: what was written between {} and {} is not known", in_words(one.from), in_words(one.to)));
        let what = format!("{} objects, {} changes", checked.objects, checked.changes);
        match is_whole {
            true => say!("{}: a whole archive of cluster {} ({what})", store.name(), archive.settings.cluster),
            false => say!("{}: not whole ({what})", store.name()),
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read() {
        for (text, seconds) in [("5s", 5), ("10m", 600), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "5", "s", "-5s", "+5s", "5 s", "0s", "5w", "1.5h", "99999999999d", "5ß"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert_eq!(time_or_never("0s"), Ok(Duration::ZERO));
    }
}
