//! `rheostat ctl monitor`.

use crate::Failure;
use crate::connection::Connection;
use crate::output::say;
use crate::{date, table};
use clap::{Args, Subcommand};
use rheostat_client::{Client, Error, v1};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  rheostat ctl monitor add nolap '!(lock_a = 1 && lock_b = 1)' --keyspace eventual
  rheostat ctl monitor add stock 'stock >= 0'
  rheostat ctl monitor add edges '!(flag{A}_{B}_{A} = true && flag{A}_{B}_{B} = true)' --infer
  rheostat ctl monitor add --file predicates.toml      several; a file that ends in .xml is one predicate in XML, and its name is the predicate's
  rheostat ctl monitor watch --recent 10               what was said last, and what is said from now on
docs/monitors.md says what an expression may be, and what an alarm means.";

/// Arguments of `ctl monitor`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Watch for a predicate: say when it may have been violated, and when it was
    Add(Add),
    /// The predicates that are watched for
    List,
    /// Watch for a predicate no more
    Remove {
        /// Its name
        name: String,
    },
    /// Print what monitors say, until Ctrl-C
    Watch(Watch),
}

#[derive(Args, Debug)]
struct Add {
    /// The predicate's name
    #[arg(required_unless_present = "file")]
    name: Option<String>,
    /// What must always be true
    #[arg(required_unless_present = "file")]
    expression: Option<String>,
    /// The keyspace, by name or number
    #[arg(short, long, default_value = "0")]
    keyspace: String,
    /// Braces in names stand for parts of names: a predicate for each, as it first appears
    #[arg(long)]
    infer: bool,
    /// Every server's copy of a variable counts, however old, and not only versions where they were written
    #[arg(long)]
    everywhere: bool,
    /// Read predicates from a file: TOML with `[monitor.NAME]`, `expression`, `keyspace`, `infer`, `everywhere`; or XML
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "expression"])]
    file: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Watch {
    /// Of this predicate only
    #[arg(long)]
    name: Option<String>,
    /// Begin with so many of the last events
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    recent: u32,
    /// End after so many events
    #[arg(long)]
    count: Option<u64>,
}

/// A predicate in a file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct InFile {
    expression: String,
    keyspace: Option<String>,
    #[serde(default)]
    infer: bool,
    #[serde(default)]
    everywhere: bool,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    monitor: std::collections::BTreeMap<String, InFile>,
}

/// How long to wait for the next of the events that a node remembers.
const REMEMBERED: Duration = Duration::from_millis(500);

/// Between two attempts to hear of a cluster again.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn run(arguments: &Arguments, json: bool, connection: &Connection) -> Result<ExitCode, Failure> {
    match &arguments.command {
        Command::Add(add) => {
            let client = connection.client().await?;
            for monitor in add.monitors()? {
                let name = monitor.name.clone();
                let request = client.request(v1::AddMonitorRequest { monitor: Some(monitor) });
                client.admin().add_monitor(request).await.map_err(|status| format!("{name}: {}", Error::from(status)))?;
                match json {
                    true => crate::output::json(&json!({ "name": name, "watched": true })),
                    false => say!("{name} is watched for."),
                }
            }
        }
        Command::List => list(json, &connection.client().await?).await?,
        Command::Remove { name } => {
            let client = connection.client().await?;
            let request = client.request(v1::RemoveMonitorRequest { name: name.clone() });
            let answer = client.admin().remove_monitor(request).await.map_err(|status| Error::from(status).to_string())?;
            if !answer.into_inner().removed {
                return Err(format!("there is no monitor called `{name}`"));
            }
            match json {
                true => crate::output::json(&json!({ "name": name, "watched": false })),
                false => say!("{name} is not watched for any more."),
            }
        }
        Command::Watch(watch) => return watch.run(json, connection).await,
    }
    Ok(ExitCode::SUCCESS)
}

impl Add {
    fn monitors(&self) -> Result<Vec<v1::Monitor>, Failure> {
        let given = |name: &str, expression: &str, keyspace: Option<&String>, infer: bool, everywhere: bool| v1::Monitor {
            name: name.to_owned(),
            keyspace: keyspace.unwrap_or(&self.keyspace).clone(),
            expression: expression.to_owned(),
            infer: infer || self.infer,
            everywhere: everywhere || self.everywhere,
            ..v1::Monitor::default()
        };
        let Some(file) = &self.file else {
            let (name, expression) = (self.name.as_deref().unwrap_or_default(), self.expression.as_deref().unwrap_or_default());
            return Ok(vec![given(name, expression, None, false, false)]);
        };
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: cannot be read: {error}", file.display()))?;
        if file.extension().is_some_and(|extension| extension == "xml") {
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            return Ok(vec![given(&name, &text, None, false, false)]);
        }
        let read: File = toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let one = |(name, one): (&String, &InFile)| given(name, &one.expression, one.keyspace.as_ref(), one.infer, one.everywhere);
        Ok(read.monitor.iter().map(one).collect())
    }
}

async fn list(json: bool, client: &Client) -> Result<(), Failure> {
    let answer = client.admin().list_monitors(client.request(v1::ListMonitorsRequest {})).await.map_err(|status| Error::from(status).to_string())?;
    let monitors = answer.into_inner().monitors;
    if json {
        let one = |monitor: &v1::Monitor| {
            json!({
                "name": monitor.name, "keyspace": monitor.keyspace, "expression": monitor.expression, "type": monitor.kind, "pattern": monitor.infer,
                "everywhere": monitor.everywhere, "node": monitor.node,
            })
        };
        crate::output::json(&monitors.iter().map(one).collect());
        return Ok(());
    }
    if monitors.is_empty() {
        say!("Nothing is watched for.");
        return Ok(());
    }
    let mut rows = table::Table::new(["name", "keyspace", "type", "watched on", "expression"]);
    for monitor in monitors {
        let mut kind = monitor.kind;
        kind.push_str(if monitor.infer { ", pattern" } else { "" });
        kind.push_str(if monitor.everywhere { ", everywhere" } else { "" });
        let node = if monitor.node.is_empty() { "all nodes".to_owned() } else { monitor.node };
        rows.row([monitor.name, monitor.keyspace, kind, node, one_line(&monitor.expression)]);
    }
    rows.print(0);
    Ok(())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Watch {
    async fn run(&self, json: bool, connection: &Connection) -> Result<ExitCode, Failure> {
        let (mut left, mut recent) = (self.count.unwrap_or(u64::MAX), self.recent);
        let mut client = connection.client().await?;
        while left > 0 {
            let ended = self.follow(json, &client, recent, &mut left).await;
            if left == 0 {
                break;
            }
            let why = match ended {
                Err(error) if is_refusal(&error) => return Err(error.to_string()),
                Err(error) => error.to_string(),
                Ok(()) => "the node has stopped".to_owned(),
            };
            match json {
                true => crate::output::json(&json!({ "disconnected": why })),
                false => say!("-- {why}; what monitors say meanwhile is not shown"),
            }
            recent = 0;
            client = loop {
                tokio::time::sleep(AGAIN).await;
                match Client::connect_with(connection.options()?).await {
                    Ok(client) => break client,
                    Err(error) if is_refusal(&error) => return Err(error.to_string()),
                    Err(_) => {}
                }
            };
            match json {
                true => crate::output::json(&json!({ "connected": client.topology().node })),
                false => say!("-- connected to {} again", client.topology().node),
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn follow(&self, json: bool, client: &Client, recent: u32, left: &mut u64) -> Result<(), Error> {
        let request = v1::WatchMonitorsRequest { name: self.name.clone().unwrap_or_default(), recent };
        let mut events = client.admin().watch_monitors(client.request(request)).await?.into_inner();
        while let Some(event) = events.message().await? {
            match json {
                true => crate::output::json(&as_json(&event)),
                false => crate::output::text(&described(&event)),
            }
            *left -= 1;
            if crate::output::reader_is_gone() {
                *left = 0;
            }
            if *left == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Whether who asks again is refused again, as after a changed password.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Refused(_) | Error::Unauthenticated(_))
}

/// What monitors have said under this name, as far as any node remembers it; at best that it was a violation for certain.
pub(crate) async fn found_in(clients: &[Client], node: &str, number: u64) -> Result<v1::MonitorEvent, Failure> {
    let mut found: Option<v1::MonitorEvent> = None;
    for client in clients {
        let request = client.request(v1::WatchMonitorsRequest { name: String::new(), recent: 100 });
        let mut events = client.admin().watch_monitors(request).await.map_err(|status| Error::from(status).to_string())?.into_inner();
        // What is remembered comes at once, and nothing says where it ends.
        while let Ok(Ok(Some(event))) = tokio::time::timeout(REMEMBERED, events.message()).await {
            if event.node == node && event.number == number {
                found = Some(event);
            }
        }
    }
    found.ok_or_else(|| format!("no node remembers a violation {node} {number}; the last 100 are remembered (ctl monitor watch --recent 100)"))
}

fn at(timestamp: Option<&v1::Timestamp>) -> String {
    timestamp.map_or_else(|| "?".to_owned(), |at| date::time(at.millis))
}

/// An event as text for people.
pub(crate) fn described(event: &v1::MonitorEvent) -> String {
    use v1::monitor_event::What;
    let (when, who) = (date::time(event.at_ms), format!("{} {}", event.node, event.number));
    let of = if event.monitor.is_empty() { "all monitors" } else { &event.monitor };
    match &event.what {
        Some(What::Alarm(alarm)) => {
            let (word, meaning) = match alarm.verdict() {
                v1::MonitorVerdict::Violated => ("VIOLATED", "these stood at the same moment"),
                v1::MonitorVerdict::Possible => ("POSSIBLY VIOLATED", "these may have stood at the same moment"),
            };
            let mut text = format!("{when}  {of}: {word} in keyspace {}, not before {} (alarm {who})\n", event.keyspace, at(alarm.since.as_ref()));
            text.push_str(&format!("  {meaning}:\n"));
            for evidence in &alarm.evidence {
                text.push_str(&format!("    {}\n", stood(evidence)));
            }
            text
        }
        Some(What::Gap(why)) => format!("{when}  {of}: possible gap, since {why} ({who})\n"),
        None => format!("{when}  {of}: something that this release does not know ({who})\n"),
    }
}

/// An event as JSON. Names and values that are not text are escaped as elsewhere.
fn as_json(event: &v1::MonitorEvent) -> Value {
    use v1::monitor_event::What;
    let at = |at: Option<&v1::Timestamp>| at.map(|at| at.millis);
    let evidence = |one: &v1::MonitorEvidence| {
        json!({
            "variable": table::printable(&one.variable), "value": one.value.as_ref().map(|value| table::printable(value)), "data_center": one.data_center,
            "from_ms": at(one.from.as_ref()), "until_ms": at(one.until.as_ref()), "version": one.version.as_ref().map(super::version_json),
        })
    };
    let (what, more) = match &event.what {
        Some(What::Alarm(alarm)) => {
            let word = if alarm.verdict() == v1::MonitorVerdict::Violated { "violated" } else { "possible" };
            (word, json!({ "since_ms": at(alarm.since.as_ref()), "evidence": alarm.evidence.iter().map(evidence).collect::<Vec<_>>() }))
        }
        Some(What::Gap(why)) => ("gap", json!({ "why": why })),
        None => ("unknown", Value::Null),
    };
    json!({ "what": what, "monitor": event.monitor, "keyspace": event.keyspace, "at_ms": event.at_ms, "node": event.node, "number": event.number, "more": more })
}

fn stood(evidence: &v1::MonitorEvidence) -> String {
    let value = match &evidence.value {
        Some(value) => format!("\"{}\"", value.escape_ascii()),
        None => "absent".to_owned(),
    };
    let until = evidence.until.as_ref().map_or_else(|| "and stands".to_owned(), |until| format!("until {}", date::time(until.millis)));
    let written = match &evidence.version {
        Some(version) => format!("written in {} at {}", version.origin, at(version.written.as_ref())),
        None => "never written".to_owned(),
    };
    let (variable, from) = (evidence.variable.escape_ascii(), at(evidence.from.as_ref()));
    format!("{variable} = {value}  in {} from {from} {until}; {written}", evidence.data_center)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_text_that_anyone_understands() {
        let stamp = |millis| Some(v1::Timestamp { millis, counter: 3 });
        let evidence = v1::MonitorEvidence {
            variable: b"lock\n_a".as_slice().into(),
            value: Some(b"1".as_slice().into()),
            version: Some(v1::Version { written: stamp(1_795_219_506_007), origin: "us-east".into() }),
            data_center: "us-east".into(),
            from: stamp(1_795_219_506_007),
            ..v1::MonitorEvidence::default()
        };
        let alarm = v1::MonitorAlarm { verdict: v1::MonitorVerdict::Violated.into(), since: stamp(1_795_219_506_000), evidence: vec![evidence] };
        let event = v1::MonitorEvent {
            node: "eu-1".into(),
            number: 7,
            at_ms: 1_795_219_507_123,
            keyspace: "eventual".into(),
            monitor: "nolap".into(),
            what: Some(v1::monitor_event::What::Alarm(alarm)),
        };
        assert_eq!(
            described(&event),
            "00:05:07.123  nolap: VIOLATED in keyspace eventual, not before 00:05:06.000 (alarm eu-1 7)\n  these stood at the same moment:\n    \
             lock\\n_a = \"1\"  in us-east from 00:05:06.007 and stands; written in us-east at 00:05:06.007\n"
        );
    }
}
