//! `rheostat kv`: reading and writing keys over gRPC.

mod counter;
mod feed;

use crate::Failure;
use crate::connection::Connection;
use crate::output::say;
use crate::table::printable;
use clap::{Args, Subcommand};
use rheostat_client::{AsOf, Condition, Dial, Error, Level, Put, PutIf, Quorum, Read, Session, Version};
use rheostat_core::moment::Moment;
use rheostat_core::sla::{parse_bound, parse_within};
use rheostat_receipts::{MOST_LINE, Receipt};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const EXAMPLES: &str = "\
Examples:
  rheostat kv put greeting hello
  rheostat kv get greeting
  rheostat kv -a 127.0.0.1:7411 get greeting            the same key in the demo's second data center
  rheostat kv --level eventual mget greeting farewell   whatever has arrived
  rheostat kv -v --sla 'causal 100ms 20ms; eventual' get greeting   what can be had in 20 ms
  rheostat kv --at -5s mget greeting farewell           as they were five seconds ago, in a keyspace with history_ms
  rheostat kv -k strong put lock me --if-absent         only if it has no value; in a keyspace that decides such writes
  rheostat kv counter add stock -1                      take one, if the counter's bounds allow it; kv counter --help
  rheostat kv feed --match 'order:*'                    what is written from now on, in all data centers, as JSON, until Ctrl-C
  rheostat kv feed --from f0001a1e... | consumer        from a position that was printed before; nothing is missed
  rheostat kv conflicts greeting                        which of its versions were replaced unread
  rheostat kv -k cart --quorum 0,2,2 get basket         of which two replicas answer; in a keyspace of protocol quorum
  rheostat kv --receipt mine.txt put greeting hi        also keep what the node says of it, signed; rheostat verify checks such files
  rheostat kv --show-session put a 1                    prints the session's token to standard error;
  rheostat kv -a 127.0.0.1:7411 --session TOKEN get a   with it, a read elsewhere never misses that write

The exit code is 0, or 1 when a key that was asked for is absent, a condition does not hold or the operation failed.";

/// Arguments of `kv`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The keyspace, by name or number
    #[arg(short, long, default_value = "0")]
    keyspace: String,
    /// The level to ask for: eventual, session, causal, local, strong, or session guarantees [default: the keyspace's own]
    #[arg(short, long, value_parser = level)]
    level: Option<Level>,
    /// The service level of reads: its name at the servers, or entries from best to least, as in "strong 200ms; causal 1s 20ms; eventual"
    #[arg(long, value_name = "LEVEL", conflicts_with = "level", default_value = "", hide_default_value = true)]
    sla: String,
    /// Reads reflect every write of other data centers that is older than this, as in 300ms; until they do, they wait
    #[arg(long, value_name = "TIME", value_parser = parse_bound, conflicts_with = "sla")]
    fresh: Option<u32>,
    /// How long operations may wait at their partition server, as in 20ms, or 0 [default: as long as the server lets them]
    #[arg(long, value_name = "TIME", value_parser = parse_within)]
    within: Option<u32>,
    /// Reads are of the past: milliseconds since 1970, a version, a date such as 2026-11-22T12:34:58.590Z, or a time ago by this machine's clock such as -5s (ms, s or m)
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true, conflicts_with_all = ["sla", "fresh"])]
    at: Option<Moment>,
    /// How many replicas are asked, must answer a read, and must have a write, in a keyspace of protocol quorum, as in 3,2,2; 0 is what the keyspace says
    #[arg(long, value_name = "N,R,W", value_parser = quorum)]
    quorum: Option<Quorum>,
    /// The token of the session to go on with
    #[arg(short, long, default_value = "", value_name = "TOKEN")]
    session: String,
    /// Print the session's token to standard error afterwards
    #[arg(long)]
    show_session: bool,
    /// Append a receipt of each get, put and del to this file, for `rheostat verify`; the last one there says what the session's next one follows
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Print version, level, staleness bound and, with --sla, the entry that was achieved to standard error
    #[arg(short, long)]
    verbose: bool,
    #[command(subcommand)]
    operation: Operation,
}

#[derive(Subcommand, Debug)]
enum Operation {
    /// Print a key's value
    Get {
        /// The key
        key: String,
    },
    /// Write a key
    Put {
        /// The key
        key: String,
        /// The value
        value: String,
        /// The value expires after so many milliseconds
        #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
        expires_after_ms: Option<u64>,
        #[command(flatten)]
        condition: Conditions,
    },
    /// Print all values of a key that stand side by side, in a keyspace of protocol quorum
    Siblings {
        /// The key
        key: String,
    },
    /// Write a key in the place of the values that the session has seen by `siblings` or `replace`, and of no others
    Replace {
        /// The key
        key: String,
        /// The value
        value: String,
    },
    /// Delete keys
    Del {
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Print what is written to the keyspace, own and other data centers', as JSON, a line each, a cause before its effects; docs/feed.md
    Feed(feed::Arguments),
    /// Print the versions of a key that another data center's replaced without its writer having seen them; the exit code is 1 if there are some
    Conflicts {
        /// The key
        key: String,
    },
    /// Make, update and look at counters
    Counter(counter::Arguments),
    /// Print the values of several keys from one snapshot
    Mget {
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
    },
}

/// When a write happens; at most one.
#[derive(Args, Debug)]
#[group(multiple = false)]
struct Conditions {
    /// Only if the key has no value
    #[arg(long)]
    if_absent: bool,
    /// Only if the key has a value
    #[arg(long)]
    if_present: bool,
    /// Only if the key has this value
    #[arg(long, value_name = "VALUE")]
    if_value: Option<String>,
    /// Only if the key is at this version, as put and --verbose print it; `none`: if it has no value
    #[arg(long, value_name = "VERSION", value_parser = version)]
    if_version: Option<Expected>,
}

/// A version that may be none.
#[derive(Clone, Debug)]
struct Expected(Option<Version>);

impl Conditions {
    fn condition(&self) -> Option<Condition> {
        match self {
            Conditions { if_absent: true, .. } => Some(Condition::Absent),
            Conditions { if_present: true, .. } => Some(Condition::Present),
            Conditions { if_value: Some(value), .. } => Some(Condition::Value(value.clone().into())),
            Conditions { if_version: Some(Expected(version)), .. } => Some(Condition::Version(version.clone())),
            _ => None,
        }
    }
}

/// `millis.counter@origin`, or `none`.
fn version(text: &str) -> Result<Expected, String> {
    if text == "none" {
        return Ok(Expected(None));
    }
    let parts = text.split_once('@').and_then(|(written, origin)| Some((written.split_once('.')?, origin)));
    let version = parts.and_then(|((millis, counter), origin)| {
        Some(Version { millis: millis.parse().ok()?, counter: counter.parse().ok()?, origin: origin.to_string() })
    });
    version.map(|version| Expected(Some(version))).ok_or_else(|| "a version is millis.counter@data-center, or `none`".to_string())
}

/// Three numbers.
fn quorum(text: &str) -> Result<Quorum, String> {
    let numbers: Result<Vec<u8>, _> = text.split(',').map(str::parse).collect();
    match numbers.as_deref() {
        Ok([asked, reads, writes]) => Ok(Quorum { asked: *asked, reads: *reads, writes: *writes }),
        _ => Err("a quorum is three numbers, as in 3,2,2: how many replicas are asked, must answer a read, must have a write".into()),
    }
}

fn level(name: &str) -> Result<Level, String> {
    Level::from_name(name).ok_or_else(|| format!("the levels are: {}", Level::names()))
}

/// Runs `kv`.
pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let client = arguments.connection.client().await?;
    let followed = match &arguments.operation {
        Operation::Feed(feed) => Some(feed::follow(&client, &arguments.keyspace, feed).await),
        Operation::Conflicts { key } => Some(feed::conflicts(&client, &arguments.keyspace, key).await),
        _ => None,
    };
    if let Some(followed) = followed {
        return Ok(if followed.map_err(|error| error.to_string())? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let mut session = client.resume(arguments.keyspace.clone(), arguments.session.clone());
    session.set_level(arguments.level);
    session.set_service_level(arguments.sla.clone());
    let within_us = arguments.within.map(|ms| ms.saturating_mul(1000));
    let quorum = arguments.quorum.unwrap_or_default();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let as_of = arguments.at.and_then(|at| AsOf::new(at.resolve(now_ms)));
    session.set_dial(Dial { fresh_ms: arguments.fresh, within_us, quorum, as_of, ..session.dial() });
    let mut receipts = arguments.receipt.as_deref().map(|path| Receipts::open(path, &mut session)).transpose()?;
    let done = operate(&arguments, &mut session, &mut receipts).await;
    // Of several keys, some may have been written before one failed.
    let kept = receipts.map_or(Ok(()), |receipts| receipts.end(done.is_ok()));
    if arguments.show_session && (done.is_ok() || !session.token().is_empty()) {
        eprintln!("{}", session.token());
    }
    let all_there = done.map_err(|error| error.to_string())?;
    kept?;
    Ok(if all_there { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The file that receipts are appended to.
struct Receipts {
    path: PathBuf,
    file: File,
    lines: String,
    kept: usize,
}

impl Receipts {
    /// Opens the file at `path` for the receipts of `session`. Errors: it cannot be read or written.
    fn open(path: &Path, session: &mut Session) -> Result<Receipts, Failure> {
        let at = |error| format!("{}: {error}", path.display());
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(at)?;
        let length = file.metadata().map_err(at)?.len();
        (&file).seek(SeekFrom::Start(length.saturating_sub(2 * MOST_LINE as u64))).map_err(at)?;
        let mut tail = Vec::new();
        (&file).take(2 * MOST_LINE as u64).read_to_end(&mut tail).map_err(at)?;
        // Whether it is of this session, the receipts themselves show.
        if let Some(last) = tail.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().and_then(|line| Receipt::from_line(line).ok()) {
            session.set_previous_receipt(last.statement.digest().to_vec());
        }
        session.set_receipts(true);
        let lines = if tail.is_empty() || tail.ends_with(b"\n") { String::new() } else { "\n".into() };
        Ok(Receipts { path: path.to_owned(), file, lines, kept: 0 })
    }

    fn take(&mut self, session: &mut Session) {
        if let Some(line) = session.take_receipt() {
            self.lines += &format!("{line}\n");
            self.kept += 1;
        }
    }

    /// Writes them; `done` says whether nothing failed. Errors: the disk's.
    fn end(mut self, done: bool) -> Result<(), Failure> {
        if self.kept == 0 {
            if done {
                eprintln!("no receipt: there is one of each get, put and del that was done, in the present");
            }
            return Ok(());
        }
        self.file.write_all(self.lines.as_bytes()).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// Runs the operation; says whether every key was there.
async fn operate(arguments: &Arguments, session: &mut Session, receipts: &mut Option<Receipts>) -> Result<bool, Error> {
    let done = operate_one(arguments, session, receipts).await?;
    if let Some(receipts) = receipts {
        receipts.take(session);
    }
    Ok(done)
}

async fn operate_one(arguments: &Arguments, session: &mut Session, receipts: &mut Option<Receipts>) -> Result<bool, Error> {
    match &arguments.operation {
        Operation::Get { key } => {
            let read = session.get(key.clone()).await?;
            describe(arguments, key, &read, session.answered_in());
            if let Some(value) = &read.value {
                // The value as it is, so that it can be piped.
                let mut out = std::io::stdout().lock();
                // A reader that has gone away has what it wanted.
                let _ = out.write_all(value).and_then(|()| out.write_all(b"\n"));
            }
            Ok(read.value.is_some())
        }
        Operation::Put { key, value, expires_after_ms, condition } => {
            let put = Put { expires_after: expires_after_ms.map(Duration::from_millis), ..Put::new(key.clone(), value.clone()) };
            let Some(condition) = condition.condition() else {
                say!("{}", session.put_item(put).await?);
                describe_copies(arguments, key, session);
                return Ok(true);
            };
            let PutIf { version, before } = session.put_if(put, condition).await?;
            describe_copies(arguments, key, session);
            match &version {
                Some(version) => say!("{version}"),
                None => say!(
                    "not written: {key} is {} at {}",
                    before.value.as_deref().map_or("(absent)".to_string(), printable),
                    before.version.map_or("no version".to_string(), |version| version.to_string())
                ),
            }
            Ok(version.is_some())
        }
        Operation::Siblings { key } => {
            let reads = session.siblings(key.clone()).await?;
            for read in &reads {
                describe(arguments, key, read, "");
                say!("{}", read.value.as_deref().map_or("(absent)".to_string(), printable));
            }
            Ok(!reads.is_empty())
        }
        Operation::Replace { key, value } => {
            say!("{}", session.replace(Put::new(key.clone(), value.clone())).await?);
            Ok(true)
        }
        Operation::Del { keys } => {
            let mut all = true;
            for key in keys {
                let deleted = session.delete(key.clone()).await?;
                if let Some(receipts) = receipts {
                    receipts.take(session);
                }
                say!("{key}: {}", if deleted.existed { "deleted" } else { "was not there" });
                all &= deleted.existed;
            }
            Ok(all)
        }
        // They have no session, and are done.
        Operation::Feed(_) | Operation::Conflicts { .. } => Ok(true),
        Operation::Counter(arguments) => counter::run(arguments, session).await.map(|()| true),
        Operation::Mget { keys } => {
            let many = session.read_transaction(keys.iter().cloned()).await?;
            for (key, read) in keys.iter().zip(&many.reads) {
                describe(arguments, key, read, "");
                say!("{key}: {}", read.value.as_deref().map_or("(absent)".to_string(), printable));
            }
            Ok(many.reads.iter().all(|read| read.value.is_some()))
        }
    }
}

fn describe_copies(arguments: &Arguments, key: &str, session: &Session) {
    if let (true, Some(copies)) = (arguments.verbose, session.copies()) {
        let (data_centers, entry, ms) = (copies.data_centers, copies.entry, copies.used.as_secs_f64() * 1e3);
        eprintln!("{key}: in {data_centers} data center{}, entry {entry} after {ms:.1} ms", if data_centers == 1 { "" } else { "s" });
    }
}

fn describe(arguments: &Arguments, key: &str, read: &Read, answered_in: &str) {
    if arguments.verbose {
        let version = read.version.as_ref().map_or("no version".to_string(), |version| format!("version {version}"));
        let staleness = read.staleness_ms.map_or("staleness not bounded".to_string(), |ms| format!("at most {ms} ms stale"));
        let place = if answered_in.is_empty() { String::new() } else { format!(" in {answered_in}") };
        let achieved =
            read.achieved.map_or(String::new(), |one| format!(", entry {}{place} after {:.1} ms", one.entry, one.used.as_secs_f64() * 1e3));
        eprintln!("{key}: {version}, level {}, {staleness}{achieved}", read.level.name());
    }
}
