//! `rheostat ctl rollback`.

use super::monitor::{described, found_in};
use super::{key_json, one_of_each};
use crate::connection::Node;
use crate::date;
use crate::output::{self, say};
use crate::table::count;
use bytes::Bytes;
use clap::{ArgGroup, Args};
use rheostat_client::rollback::{Difference, Report, Rollback};
use rheostat_client::{Client, Error, Version, v1};
use rheostat_core::Timestamp;
use rheostat_core::failure::Failure;
use rheostat_core::moment::Moment;
use rheostat_core::version::VersionId;
use rheostat_protocols::registry;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  rheostat ctl rollback --keyspace eventual --to -30s --dry-run     what would be lost
  rheostat ctl rollback --keyspace eventual --to 2026-11-22T12:34:58.590Z --keys 'cart:*'
  rheostat ctl rollback --before eu-1:1795350898000001              to before a violation, as `ctl monitor watch` names it: (alarm eu-1 1795350898000001)
  rheostat ctl rollback --before eu-1:1795350898000001 --depending  only what depends on its versions, where the protocol knows that
docs/rollback.md says what is promised. Rolling back again is safe.";

/// Arguments of `ctl rollback`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("when").required(true).args(["to", "before"]))]
pub struct Arguments {
    /// The time to go back to: milliseconds since 1970, a version, a date such as 2026-11-22T12:34:58.590Z, or a time ago such as -30s (ms, s or m)
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    to: Option<Moment>,
    /// To before this violation, which a monitor has told: its node and number
    #[arg(long, value_name = "NODE:NUMBER", value_parser = violation)]
    before: Option<(String, u64)>,
    /// The keyspace, by name or number [default: 0, or that of the violation]
    #[arg(short, long)]
    keyspace: Option<String>,
    /// Only keys that match this pattern
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    keys: String,
    /// With --before: only keys whose newest version is one that the violation names, or may depend on one; they go back to their newest version that is not and does not
    #[arg(long, requires = "before")]
    depending: bool,
    /// Change nothing, and stop nobody: only say what would be lost
    #[arg(long)]
    dry_run: bool,
    /// For how long clients' writes are refused at most, in seconds, should this command not come to its end
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=600))]
    stop_for: u64,
    /// So many keys are listed
    #[arg(long, value_name = "N", default_value = "1000")]
    list: usize,
}

fn violation(text: &str) -> Result<(String, u64), String> {
    let parts = text.rsplit_once([':', ' ']).and_then(|(node, number)| Some((node.to_owned(), number.parse().ok()?)));
    parts.ok_or_else(|| "a violation is node:number, as in eu-1:1795350898000001".to_owned())
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, crate::Failure> {
    let clients: Vec<Client> = one_of_each(topology, nodes).into_iter().filter_map(|(_, node)| node.ok()?.client.clone().ok()).collect();
    let mut keyspace = arguments.keyspace.clone();
    let mut because = Vec::new();
    let at = match (&arguments.to, &arguments.before) {
        (Some(to), _) => {
            // Ago on a server's clock: this machine's may be another.
            let first = clients.first().ok_or("no node to ask")?;
            let status = first.admin().status(first.request(v1::StatusRequest {})).await.map_err(|status| Error::from(status).to_string())?;
            to.resolve(status.into_inner().physical_ms)
        }
        (None, Some((node, number))) => {
            let event = found_in(&clients, node, *number).await?;
            if !json {
                output::text(&described(&event));
            }
            keyspace.get_or_insert_with(|| event.keyspace.clone());
            if arguments.depending {
                because = named(&event);
                if because.is_empty() {
                    return Err("this violation names no version: nothing can depend on it".into());
                }
            }
            before(&event)?
        }
        (None, None) => return Err("a time, or a violation".into()),
    };
    let keyspace = keyspace.unwrap_or_else(|| "0".into());
    if arguments.depending {
        knows_what_depends(topology, &keyspace)?;
    }
    let rollback = Rollback {
        keyspace: keyspace.clone(),
        at,
        keys: arguments.keys.clone().into(),
        because,
        stop_for: Duration::from_secs(arguments.stop_for),
        dry_run: arguments.dry_run,
    };
    if json {
        let report = rollback.run(&clients, |_| {}).await.map_err(|error| error.to_string())?;
        output::json(&as_json(&rollback, &report, arguments.list, &topology.data_centers));
        return Ok(exit(&report));
    }
    let only = if arguments.depending { ", only what depends on the versions that the violation names" } else { "" };
    say!("keyspace {keyspace}, keys `{}`: back to {}{only}", arguments.keys, when(at));
    let report = rollback.run(&clients, |phase| say!("  {phase} ...")).await.map_err(|error| error.to_string())?;
    if let Some(why) = refused_at_once(&report, arguments.dry_run) {
        return Err(why);
    }
    tell(&report, arguments, &topology.data_centers);
    Ok(exit(&report))
}

/// Errors: the keyspace's protocol does not know what depends on what. Its servers would say so when clients have been stopped.
fn knows_what_depends(topology: &v1::TopologyResponse, keyspace: &str) -> Result<(), crate::Failure> {
    let named = |one: &&v1::Keyspace| one.name == keyspace || one.number.to_string() == keyspace;
    let protocol = topology.keyspaces.iter().find(named).and_then(|one| registry::info(&one.protocol));
    match protocol.filter(|protocol| !protocol.can.knows_the_past) {
        Some(protocol) => {
            Err(format!("protocol {} does not know what depends on what; say which keys are to be rolled back. Nothing was begun", protocol.name))
        }
        None => Ok(()),
    }
}

/// Why nothing was looked at, in words, if it was refused.
fn refused_at_once(report: &Report, dry_run: bool) -> Option<crate::Failure> {
    let Some((_, _, Failure::Refused(why))) = &report.failed else { return None };
    let clients = if dry_run || report.resumed { "" } else { "; clients write again when the time of this rollback is over" };
    (report.differences.is_empty() && report.restored == 0).then(|| format!("{why}. Nothing was changed{clients}"))
}

fn exit(report: &Report) -> ExitCode {
    if report.failed.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a rollback has done, for programs: of the first `list` keys, and of all of them how many there are.
fn as_json(rollback: &Rollback, report: &Report, list: usize, names: &[String]) -> Value {
    let name = |dc: usize| names.get(dc).map_or("?", String::as_str);
    let version = |version: &VersionId| json!({ "millis": version.written.millis(), "counter": version.written.counter(), "origin": name(version.origin.index()) });
    let lost = |(id, bytes): &(VersionId, Option<u64>)| json!({ "version": version(id), "bytes": bytes });
    let key = |one: &Difference| {
        json!({
            "key": key_json(&one.key, one.key.len() as u64), "then": one.then.as_ref().map(version), "is_counter": one.counter, "is_same": one.same,
            "lost": one.lost.iter().map(lost).collect::<Vec<_>>(), "lost_unlisted": one.more,
        })
    };
    json!({
        "keyspace": rollback.keyspace, "to": { "millis": rollback.at.millis(), "counter": rollback.at.counter() }, "dry_run": rollback.dry_run,
        "keys": report.differences.iter().take(list).map(key).collect::<Vec<_>>(), "all_keys": report.differences.len(),
        "to_restore": report.differences.iter().filter(|one| one.is_restored()).count(), "restored": report.restored,
        "shown": report.shown, "resumed": report.resumed, "failed": report.failed.as_ref().map(|(dc, partition, why)| json!({ "data_center": name(dc.index()), "partition": partition.0, "why": why.to_string() })),
    })
}

/// The versions that `event` names, with their keys.
fn named(event: &v1::MonitorEvent) -> Vec<(Bytes, Version)> {
    let Some(v1::monitor_event::What::Alarm(alarm)) = &event.what else { return Vec::new() };
    alarm.evidence.iter().filter_map(|state| Some((state.variable.clone(), state.version.clone()?.into()))).collect()
}

/// The time before the violation that `event` tells.
pub(crate) fn before(event: &v1::MonitorEvent) -> Result<Timestamp, crate::Failure> {
    use v1::monitor_event::What;
    let Some(What::Alarm(alarm)) = &event.what else { return Err("this is not a violation".into()) };
    let since = alarm.since.unwrap_or_default();
    match u16::try_from(since.counter) {
        Ok(counter) if since.millis > 0 => Ok(Timestamp::new(since.millis, counter)),
        _ => Err("no time is known at which it was not violated yet".into()),
    }
}

fn when(at: Timestamp) -> String {
    let text = date::text(at.millis() / 1000);
    format!("{}.{:03} UTC ({at})", text.trim_end_matches(" UTC"), at.millis() % 1000)
}

/// Prints what has been done, and what is lost by it.
pub(crate) fn tell(report: &Report, arguments: &Arguments, names: &[String]) {
    say!("{}", described_report(report, arguments.dry_run, arguments.list, names).trim_end());
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "deleted it".to_owned(), |bytes| format!("{bytes} bytes"))
}

/// What a rollback has done, as text for people.
pub(crate) fn described_report(report: &Report, dry_run: bool, list: usize, names: &[String]) -> String {
    let name = |dc: usize| names.get(dc).map_or("?", String::as_str);
    let mut text = String::new();
    let is = |one: &Difference| match (one.counter, one.same, one.then) {
        (true, ..) => "holds a counter, and is left as it is".to_owned(),
        (_, true, _) => "is what it was".to_owned(),
        (_, _, Some(then)) => format!("as {} wrote it at {}", name(then.origin.index()), when(then.written)),
        (_, _, None) => "absent".to_owned(),
    };
    for one in report.differences.iter().take(list) {
        text.push_str(&format!("{}: {}\n", one.key.escape_ascii(), is(one)));
        if one.counter {
            continue;
        }
        for (version, length) in &one.lost {
            text.push_str(&format!("  lost: {} by {} ({})\n", when(version.written), name(version.origin.index()), bytes(*length)));
        }
        if one.more > 0 {
            text.push_str(&format!("  and {} more\n", one.more));
        }
    }
    let (all, lost) = (report.differences.len(), report.differences.iter().map(|one| one.lost.len() as u64 + u64::from(one.more)).sum::<u64>());
    if all > list {
        text.push_str(&format!("... and {} more keys\n", all - list));
    }
    let to_write = report.differences.iter().filter(|one| one.is_restored()).count();
    if dry_run {
        let (keys, versions) = (count(to_write as u64, "key"), count(lost, "version"));
        text.push_str(&format!("{keys} would be written back; {versions} would be lost. Nothing was changed.\n"));
    } else {
        text.push_str(&format!("{} of {to_write} keys were written back; {lost} versions written since are lost.\n", report.restored));
    }
    if let Some((dc, partition, failure)) = &report.failed {
        text.push_str(&format!("It did not come to its end: partition {partition} in {}: {failure}\n", name(dc.index())));
        if report.restored > 0 || !matches!(failure, Failure::Refused(_)) {
            text.push_str("Rolling back again, to the same time, is safe.\n");
        }
    } else if report.shown {
        text.push_str("Every data center shows what was.\n");
    }
    if !dry_run {
        text.push_str(if report.resumed { "Clients write again.\n" } else { "Clients write again when the time of this rollback is over.\n" });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::DcId;
    use rheostat_core::ids::PartitionId;

    #[test]
    fn what_is_refused_is_told_alone() {
        let failed = |failure| Some((DcId(0), PartitionId(1), failure));
        let refused = Report { failed: failed(Failure::Refused("no history".into())), ..Report::default() };
        assert_eq!(refused_at_once(&refused, true), Some("no history. Nothing was changed".into()));
        let stopped = refused_at_once(&refused, false).unwrap();
        assert!(stopped.ends_with("; clients write again when the time of this rollback is over"), "{stopped}");
        let begun = Report { restored: 1, ..refused };
        assert_eq!(refused_at_once(&begun, false), None);
        let late = Report { failed: failed(Failure::Timeout("eu".into())), ..Report::default() };
        assert_eq!((refused_at_once(&late, true), refused_at_once(&Report::default(), true)), (None, None));
    }

    #[test]
    fn who_does_not_know_what_depends_on_what_is_not_stopped() {
        let keyspace =
            |number, protocol: &str| v1::Keyspace { number, name: format!("of {protocol}"), protocol: protocol.into(), ..v1::Keyspace::default() };
        let keyspaces = vec![keyspace(0, "causal"), keyspace(1, "eventual"), keyspace(2, "of another release")];
        let topology = v1::TopologyResponse { keyspaces, ..v1::TopologyResponse::default() };
        for (keyspace, knows) in [("0", true), ("of causal", true), ("1", false), ("of eventual", false), ("2", true), ("3", true)] {
            assert_eq!(knows_what_depends(&topology, keyspace).is_ok(), knows, "{keyspace}");
        }
    }
}
