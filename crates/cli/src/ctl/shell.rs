//! `rheostat ctl shell`.

mod command;
mod input;

use crate::Failure;
use crate::connection::Connection;
use crate::ctl::explain;
use crate::output::say;
use crate::table::printable;
use clap::Args;
use command::{Command, SessionCommand};
use input::Input;
use rheostat_client::{Client, Dial, Level, Read, Session, Strategy};
use std::collections::BTreeMap;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  rheostat ctl shell                                          one of the demo's nodes
  rheostat ctl shell 127.0.0.1:7411                           the node at this gRPC address
  echo 'level eventual; get photo' | tr ';' '\\n' | rheostat ctl shell

Where input is no terminal, the first command that fails ends it with exit code 1. In the shell, `help` says what there is.";

/// Arguments of `ctl shell`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// gRPC address of a node, host:port [default: as `ctl --address`]
    address: Option<String>,
}

pub(super) async fn run(arguments: &Arguments, connection: &Connection) -> Result<ExitCode, Failure> {
    let connection = arguments.address.as_ref().map_or_else(|| connection.clone(), |address| connection.at(address));
    let mut input = Input::open();
    let mut shell = Shell::connect(connection, input.is_terminal()).await?;
    if input.is_terminal() {
        shell.welcome();
    }
    while let Some(line) = input.line(shell.prompt()).await? {
        let done = match Command::parse(&line) {
            Ok(None) => continue,
            Ok(Some(Command::Quit)) => break,
            Ok(Some(command)) => shell.execute(command).await,
            Err(why) => Err(why),
        };
        match done {
            Ok(()) => {}
            Err(why) if input.is_terminal() => say!("error: {why}"),
            Err(why) => return Err(format!("line {}: {why}", input.number())),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A user at a server.
struct Shell {
    connection: Connection,
    client: Client,
    keyspace: String,
    dial: Dial,
    /// The sessions' tokens, by keyspace.
    tokens: BTreeMap<String, String>,
    /// Whether reads also say version, level and staleness.
    details: bool,
}

impl Shell {
    async fn connect(connection: Connection, details: bool) -> Result<Shell, Failure> {
        let client = connection.client().await?;
        let keyspace = client.topology().keyspaces.first().map_or_else(|| "0".to_string(), |keyspace| keyspace.name.clone());
        Ok(Shell { connection, client, keyspace, dial: Dial::default(), tokens: BTreeMap::new(), details })
    }

    fn welcome(&self) {
        let topology = self.client.topology();
        let nodes: Vec<String> = topology.nodes.iter().map(|node| format!("{} ({} at {})", node.name, node.data_center, node.grpc)).collect();
        say!("Cluster {}: {}. `help` says what there is, Ctrl-D ends.", topology.cluster, nodes.join(", "));
    }

    fn prompt(&self) -> String {
        let level = self.dial.level.map_or(String::new(), |level| format!(" {}", level.name()));
        format!("{} {}{level}> ", self.client.topology().node, self.keyspace)
    }

    fn session(&self) -> Session {
        let mut session = self.client.resume(self.keyspace.clone(), self.token());
        session.set_dial(self.dial);
        session
    }

    fn token(&self) -> &str {
        self.tokens.get(&self.keyspace).map_or("", String::as_str)
    }

    fn keep(&mut self, session: &Session) {
        self.tokens.insert(self.keyspace.clone(), session.token().to_string());
    }

    async fn execute(&mut self, command: Command) -> Result<(), Failure> {
        let mut session = self.session();
        let in_words = |error: rheostat_client::Error| error.to_string();
        match command {
            Command::Get(key) => {
                let read = session.get(key).await.map_err(in_words)?;
                say!("{}", self.shown(&read));
            }
            // What has failed may be written, and what was deleted before a key that fails is.
            Command::Put(key, value) => {
                let written = session.put(key, value).await;
                self.keep(&session);
                say!("{}", written.map_err(in_words)?);
            }
            Command::Del(keys) => {
                for key in keys {
                    let deleted = session.delete(key.clone()).await;
                    self.keep(&session);
                    let deleted = deleted.map_err(in_words)?;
                    say!("{key}: {}", if deleted.existed { "deleted" } else { "was not there" });
                }
            }
            Command::Mget(keys) => {
                let many = session.read_transaction(keys.iter().cloned()).await.map_err(in_words)?;
                for (key, read) in keys.iter().zip(&many.reads) {
                    say!("{key}: {}", self.shown(read));
                }
            }
            Command::Explain(key) => {
                let answer = explain::ask(&self.client, &key, &self.keyspace, self.token()).await?;
                explain::print(&self.client.topology().data_center, &answer, false);
            }
            Command::Session(SessionCommand::Show) => match self.token() {
                "" => say!("(new)"),
                token => say!("{token}"),
            },
            Command::Session(SessionCommand::New) => session = self.client.session(self.keyspace.clone()),
            // A token that does not belong here is refused by the merge.
            Command::Session(SessionCommand::Resume(token)) => {
                session = self.client.session(self.keyspace.clone());
                session.merge(token).await.map_err(in_words)?;
            }
            Command::Session(SessionCommand::Merge(token)) => session.merge(token).await.map_err(in_words)?,
            other => return self.turn(other).await,
        }
        self.keep(&session);
        Ok(())
    }

    /// Commands that change how others are executed.
    async fn turn(&mut self, command: Command) -> Result<(), Failure> {
        match command {
            Command::Level(None) => say!("{}", self.dial.level.map_or("default".to_string(), |level| level.name().to_string())),
            Command::Level(Some(name)) => self.dial.level = level(&name)?,
            Command::Strategy(None) => say!("{}", self.dial.strategy.name()),
            Command::Strategy(Some(name)) => {
                let strategy = Strategy::from_name(&name);
                let known = || format!("there is no strategy `{name}`; there are: {}", Strategy::ALL.map(Strategy::name).join(", "));
                self.dial.strategy = strategy.ok_or_else(known)?;
            }
            Command::Keyspace(None) => {
                for keyspace in &self.client.topology().keyspaces {
                    let here = if keyspace.name == self.keyspace { "*" } else { " " };
                    say!("{here} {} {} ({})", keyspace.number, keyspace.name, keyspace.protocol);
                }
            }
            Command::Keyspace(Some(wanted)) => {
                let keyspaces = &self.client.topology().keyspaces;
                let found = keyspaces.iter().find(|keyspace| keyspace.name == wanted || keyspace.number.to_string() == wanted);
                let names: Vec<&str> = keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
                let found = found.ok_or_else(|| format!("there is no keyspace `{wanted}`; there are: {}", names.join(", ")))?;
                self.keyspace = found.name.clone();
            }
            Command::Details(on) => self.details = on,
            Command::Connect(address) => self.move_to(&address).await?,
            Command::Status => {
                let (topology, nodes) = self.connection.nodes().await?;
                super::status::run(&super::status::Arguments::default(), false, &topology, &nodes).await?;
            }
            Command::Help => say!("{}", command::HELP),
            _ => {}
        }
        Ok(())
    }

    /// Connects to another server. In the same cluster the sessions go along; in another, new ones begin.
    async fn move_to(&mut self, address: &str) -> Result<(), Failure> {
        let there = Shell::connect(self.connection.at(address), self.details).await?;
        let (old, new) = (self.client.topology(), there.client.topology());
        let same = old.cluster == new.cluster && old.data_centers == new.data_centers;
        say!("{} in {}, cluster {}{}", new.node, new.data_center, new.cluster, if same { "" } else { ": new sessions" });
        if !same {
            self.tokens.clear();
            self.keyspace = there.keyspace;
        }
        (self.connection, self.client) = (there.connection, there.client);
        Ok(())
    }

    fn shown(&self, read: &Read) -> String {
        let value = read.value.as_deref().map_or("(absent)".to_string(), printable);
        if !self.details {
            return value;
        }
        let version = read.version.as_ref().map_or("no version".to_string(), |version| format!("version {version}"));
        let staleness = read.staleness_ms.map_or("staleness not bounded".to_string(), |ms| format!("at most {ms} ms stale"));
        format!("{value}  [{version}, level {}, {staleness}]", read.level.name())
    }
}

fn level(name: &str) -> Result<Option<Level>, Failure> {
    match name {
        "default" => Ok(None),
        _ => Level::from_name(name).map(Some).ok_or_else(|| format!("there is no level `{name}`; there are: default, {}", Level::names())),
    }
}
