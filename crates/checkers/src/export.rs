//! Histories as files: JSON lines of our own, which can be read again, and what other checkers read. `docs/checking.md` describes them.
//!
//! Other checkers know transactions of reads and writes of unique values, in sessions. So what they are given says less:
//!
//! - an adoption of another session's token is left out, so less is ordered than was;
//! - an operation of level eventual, which promises nothing, is left out, unless all are;
//! - a delete writes a value of its own, beyond all others; a read that found nothing after a delete that nobody told apart is left out;
//! - an operation that failed is left out; a write whose outcome is unknown is one that happened if anybody read it, and else left out.

use crate::history::{Action, Condition, Event, EventId, Expiry, FinalRead, History, KeyId, Observation, Outcome, SessionId, UniqueValue, WriteItem};
use crate::text::{Parser, TextError, print_version, version};
use rheostat_clock::DcId;
use rheostat_core::dial::Level;
use rheostat_core::version::VersionId;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A form of a history's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// JSON lines of our own: [`lines`] and [`parse_lines`].
    Lines,
    /// JSON of dbcop: an array of sessions.
    Dbcop,
    /// Text of PolySI and Plume: `r(key,value,session,transaction)` and `w(...)`.
    Text,
    /// EDN of Jepsen and Elle, for rw-register.
    Edn,
}

impl Format {
    /// Every form, with the ending of its files and its name.
    pub const ALL: [(Format, &'static str, &'static str); 4] =
        [(Format::Lines, "jsonl", "lines"), (Format::Dbcop, "json", "dbcop"), (Format::Text, "txt", "text"), (Format::Edn, "edn", "edn")];

    /// The form that a file's ending asks for.
    pub fn of_ending(ending: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|(_, known, _)| *known == ending).map(|(format, _, _)| format)
    }
}

/// `history` in `format`; `level` is what its keyspace promises.
pub fn export(history: &History, level: Level, format: Format) -> String {
    match format {
        Format::Lines => lines(history, level),
        Format::Dbcop => dbcop(&Transaction::of(history)),
        Format::Text => text(&Transaction::of(history)),
        Format::Edn => edn(history, &Transaction::of(history)),
    }
}

/// The version of our own form.
const FORM: u64 = 1;

fn id_text(id: VersionId) -> String {
    let mut text = String::new();
    print_version(id, &mut text);
    text
}

fn observation(observed: Observation) -> Value {
    json!({ "value": observed.value.map(|value| value.0), "version": observed.version.map(id_text) })
}

/// `history` as JSON lines: a head, the events in their order, the final reads. [`parse_lines`] reads it.
pub fn lines(history: &History, level: Level) -> String {
    let name = |key: &KeyId| history.key_name(*key);
    let keys: Vec<String> = (0..).map(KeyId).take(history.keys.len()).map(|key| name(&key)).collect();
    let lost: Vec<u32> = history.lost_allowed.iter().map(|event| event.0).collect();
    let mut out =
        json!({ "rheostat_history": FORM, "level": level.to_string(), "data_centers": history.data_centers, "keys": keys, "lost": lost }).to_string();
    out.push('\n');
    for (id, event) in history.numbered() {
        let mut line = Map::new();
        let mut put = |field: &str, value: Value| drop(line.insert(field.to_owned(), value));
        put("event", id.0.into());
        put("session", event.session.0.into());
        put("dc", event.dc.0.into());
        put("from", event.invoked_us.into());
        put("to", event.completed_us.into());
        if let Some(level) = event.level() {
            put("level", level.to_string().into());
        }
        let item = |item: &WriteItem| json!({ "key": name(&item.key), "value": item.value.map(|value| value.0) });
        match &event.action {
            Action::Put { items, .. } => put("put", items.iter().map(item).collect()),
            Action::Change { item: changed, condition, .. } => {
                put("change", item(changed));
                put("if", condition_value(*condition));
            }
            Action::Get { key, .. } => put("get", name(key).into()),
            Action::ReadTransaction { keys, .. } => put("rotx", keys.iter().map(name).collect()),
            Action::Adopt { from } => put("adopt", from.iter().map(|event| event.0).collect()),
        }
        let word = match &event.outcome {
            Outcome::Unknown => "unknown",
            Outcome::Failed => "failed",
            Outcome::Written(_) => "written",
            Outcome::Read(_) => "read",
            Outcome::Changed { applied: true, .. } => "applied",
            Outcome::Changed { applied: false, .. } => "unmet",
            Outcome::Adopted => "adopted",
        };
        put("outcome", word.into());
        if let Some(Expiry { from_us, until_us }) = history.expiry(id) {
            put("expires", json!([from_us, Some(until_us).filter(|until_us| *until_us < u64::MAX)]));
        }
        if let Outcome::Written(id) | Outcome::Changed { version: id, .. } = &event.outcome {
            put("version", id.map(id_text).into());
        }
        match &event.outcome {
            Outcome::Read(observed) => put("read", observed.iter().copied().map(observation).collect()),
            Outcome::Changed { before: Some(before), .. } => put("before", observation(*before)),
            _ => {}
        }
        out.push_str(&Value::Object(line).to_string());
        out.push('\n');
    }
    for read in &history.finals {
        let mut line = observation(read.observed);
        line["final"] = name(&read.key).into();
        line["dc"] = read.dc.0.into();
        line["at"] = read.at_us.into();
        out.push_str(&line.to_string());
        out.push('\n');
    }
    out
}

fn condition_value(condition: Condition) -> Value {
    match condition {
        Condition::Always => "always".into(),
        Condition::Absent => "absent".into(),
        Condition::Present => "present".into(),
        Condition::Expiring => "expiring".into(),
        Condition::Value(value) => json!({ "value": value.0 }),
        Condition::Version(id) => json!({ "version": id.map(id_text) }),
    }
}

type Parsed<T> = Result<T, String>;

/// Fields of one line; what is not of the expected kind is an error that names the field.
struct Fields<'l>(&'l Value);

impl Fields<'_> {
    fn get(&self, field: &str) -> Parsed<&Value> {
        self.0.get(field).ok_or_else(|| format!("`{field}` is missing"))
    }

    fn number(&self, field: &str) -> Parsed<u64> {
        self.get(field)?.as_u64().ok_or_else(|| format!("`{field}` is not a number"))
    }

    fn small<T: TryFrom<u64>>(&self, field: &str) -> Parsed<T> {
        T::try_from(self.number(field)?).map_err(|_| format!("`{field}` is too great"))
    }

    fn word(&self, field: &str) -> Parsed<&str> {
        self.get(field)?.as_str().ok_or_else(|| format!("`{field}` is not a string"))
    }

    fn list(&self, field: &str) -> Parsed<&[Value]> {
        self.get(field)?.as_array().map(Vec::as_slice).ok_or_else(|| format!("`{field}` is not a list"))
    }

    fn level(&self) -> Parsed<Level> {
        let word = self.word("level")?;
        Level::from_name(word).ok_or_else(|| format!("there is no level `{word}`"))
    }

    /// A version, or none if it is null or not there.
    fn version(&self) -> Parsed<Option<VersionId>> {
        match self.0.get("version") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => version(text).map(Some),
            Some(_) => Err("`version` is not a string".into()),
        }
    }

    fn value(&self) -> Parsed<Option<UniqueValue>> {
        match self.get("value")? {
            Value::Null => Ok(None),
            _ => self.number("value").map(|value| Some(UniqueValue(value))),
        }
    }

    fn observation(&self) -> Parsed<Observation> {
        Ok(Observation { value: self.value()?, version: self.version()? })
    }
}

/// Reads what [`lines`] writes: the history, and the level that its keyspace promises.
///
/// # Errors
///
/// The first line that is not in the form, or what [`History::validate`] says of the whole.
pub fn parse_lines(text: &str) -> Result<(History, Level), TextError> {
    let (mut parser, mut level) = (Parser::default(), None);
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let at = |what: String| TextError { line: number, what };
        let value: Value = serde_json::from_str(line).map_err(|error| at(error.to_string()))?;
        let fields = Fields(&value);
        let parsed = match level {
            None => head(&mut parser, &fields).map(|read| level = Some(read)),
            Some(_) if value.get("final").is_some() => final_read(&mut parser, &fields),
            Some(_) => event(&mut parser, &fields),
        };
        parsed.map_err(at)?;
    }
    let whole = |what: String| TextError { line: 0, what };
    let level = level.ok_or_else(|| whole("the file is empty".into()))?;
    parser.finish().map(|history| (history, level)).map_err(whole)
}

fn head(parser: &mut Parser, fields: &Fields<'_>) -> Parsed<Level> {
    match fields.number("rheostat_history") {
        Ok(FORM) => {}
        Ok(other) => return Err(format!("this is form {other}, and form {FORM} is understood")),
        Err(_) => return Err("this is no history: its first line has no `rheostat_history`".into()),
    }
    parser.history.data_centers = fields.small("data_centers")?;
    for key in fields.list("keys")? {
        parser.key(key.as_str().ok_or("a key is not a string")?)?;
    }
    for event in fields.list("lost")? {
        let event = event.as_u64().and_then(|event| u32::try_from(event).ok()).ok_or("`lost` is not a list of events")?;
        parser.history.lost_allowed.push(EventId(event));
    }
    fields.level()
}

fn final_read(parser: &mut Parser, fields: &Fields<'_>) -> Parsed<()> {
    let key = parser.key(fields.word("final")?)?;
    let read = FinalRead { at_us: fields.number("at")?, dc: DcId(fields.small("dc")?), key, observed: fields.observation()? };
    parser.history.finals.push(read);
    Ok(())
}

fn event(parser: &mut Parser, fields: &Fields<'_>) -> Parsed<()> {
    if fields.number("event")? != parser.history.events.len() as u64 {
        return Err(format!("this is event {}", parser.history.events.len()));
    }
    if fields.get("expires").is_ok() {
        let (from_us, until_us) = match fields.list("expires")? {
            [from_us, Value::Null] => (from_us.as_u64(), Some(u64::MAX)),
            [from_us, until_us] => (from_us.as_u64(), until_us.as_u64()),
            _ => (None, None),
        };
        let expiry = from_us.zip(until_us).map(|(from_us, until_us)| Expiry { from_us, until_us });
        let id = EventId(parser.history.events.len() as u32);
        parser.history.expiring.push((id, expiry.ok_or("`expires` is not two times")?));
    }
    let item = |parser: &mut Parser, value: &Value| {
        let fields = Fields(value);
        Ok::<_, String>(WriteItem { key: parser.key(fields.word("key")?)?, value: fields.value()? })
    };
    let action = if fields.get("put").is_ok() {
        let items = fields.list("put")?.iter().map(|value| item(parser, value)).collect::<Parsed<_>>()?;
        Action::Put { items, level: fields.level()? }
    } else if let Ok(changed) = fields.get("change") {
        Action::Change { item: item(parser, changed)?, condition: condition(fields.get("if")?)?, level: fields.level()? }
    } else if fields.get("get").is_ok() {
        Action::Get { key: parser.key(fields.word("get")?)?, level: fields.level()? }
    } else if fields.get("rotx").is_ok() {
        let key = |value: &Value| parser.key(value.as_str().ok_or("a key is not a string")?);
        Action::ReadTransaction { keys: fields.list("rotx")?.iter().map(key).collect::<Parsed<_>>()?, level: fields.level()? }
    } else if fields.get("adopt").is_ok() {
        let event = |value: &Value| value.as_u64().and_then(|event| u32::try_from(event).ok()).map(EventId).ok_or("`adopt` is not a list of events");
        Action::Adopt { from: fields.list("adopt")?.iter().map(event).collect::<Result<_, _>>()? }
    } else {
        return Err("an event is one of put, change, get, rotx, adopt".into());
    };
    let changed = |applied| {
        let before = fields.0.get("before").map(|before| Fields(before).observation()).transpose()?;
        Ok::<_, String>(Outcome::Changed { applied, version: fields.version()?, before })
    };
    let outcome = match fields.word("outcome")? {
        "unknown" => Outcome::Unknown,
        "failed" => Outcome::Failed,
        "written" => Outcome::Written(fields.version()?),
        "read" => Outcome::Read(fields.list("read")?.iter().map(|read| Fields(read).observation()).collect::<Parsed<_>>()?),
        "applied" => changed(true)?,
        "unmet" => changed(false)?,
        "adopted" => Outcome::Adopted,
        other => return Err(format!("there is no outcome `{other}`")),
    };
    let completed_us = match fields.0.get("to") {
        None | Some(Value::Null) => None,
        Some(_) => Some(fields.number("to")?),
    };
    let (session, dc, invoked_us) = (SessionId(fields.number("session")?), DcId(fields.small("dc")?), fields.number("from")?);
    parser.history.events.push(Event { session, dc, invoked_us, completed_us, action, outcome });
    Ok(())
}

fn condition(value: &Value) -> Parsed<Condition> {
    let fields = Fields(value);
    Ok(match value.as_str() {
        Some("always") => Condition::Always,
        Some("absent") => Condition::Absent,
        Some("present") => Condition::Present,
        Some("expiring") => Condition::Expiring,
        Some(other) => return Err(format!("there is no condition `{other}`")),
        None if fields.get("value").is_ok() => Condition::Value(fields.value()?.ok_or("`value` is null")?),
        None if fields.get("version").is_ok() => Condition::Version(fields.version()?),
        None => return Err("a condition is always, absent, present, expiring, a value or a version".into()),
    })
}

/// An operation as other checkers see it.
struct Transaction {
    event: EventId,
    session: SessionId,
    /// Key and value of each read, 0 for nothing; then of each write.
    reads: Vec<(u32, u64)>,
    writes: Vec<(u32, u64)>,
}

impl Transaction {
    /// What other checkers are told of `history`, in its order.
    fn of(history: &History) -> Vec<Transaction> {
        let all_are_eventual = history.events.iter().all(|event| event.level().is_none_or(|level| level == Level::Eventual));
        let counts = |event: &Event| event.level().is_some_and(|level| all_are_eventual || level != Level::Eventual);
        let attempted = history.events.iter().flat_map(|event| event.attempted()).filter_map(|item| item.value);
        let mut next = attempted.map(|value| value.0).max().unwrap_or(0);
        let mut read: Vec<UniqueValue> =
            history.events.iter().flat_map(|event| event.observations()).filter_map(|(_, observed)| observed.value).collect();
        read.extend(history.finals.iter().filter_map(|last| last.observed.value));
        read.sort_unstable();
        // Of each delete the value that stands for it, by key and version and by event and key.
        let (mut by_version, mut by_event) = (BTreeMap::new(), BTreeMap::new());
        let mut deleted = vec![false; history.keys.len()];
        for (id, event) in history.numbered() {
            for item in event.items().iter().filter(|item| item.value.is_none()) {
                next += 1;
                deleted[item.key.index()] = true;
                by_event.insert((id, item.key), next);
                if let Some(Some(version)) = event.acknowledged() {
                    by_version.insert((item.key, version), next);
                }
            }
        }
        let found = |key: KeyId, observed: Observation| match (observed.value, observed.version) {
            (Some(value), _) => Some(value.0),
            (None, Some(version)) => by_version.get(&(key, version)).copied(),
            (None, None) => (!deleted[key.index()]).then_some(0),
        };
        let mut all = Vec::new();
        for (event, record) in history.numbered().filter(|(_, record)| counts(record) && record.outcome != Outcome::Failed) {
            let was_read = |item: &WriteItem| item.value.is_some_and(|value| read.binary_search(&value).is_ok());
            if record.outcome == Outcome::Unknown && !record.items().iter().any(was_read) {
                continue;
            }
            let reads: Vec<_> = record.observations().filter_map(|(key, observed)| Some((key.0, found(key, observed)?))).collect();
            let value = |item: &WriteItem| item.value.map_or_else(|| by_event.get(&(event, item.key)).copied(), |value| Some(value.0));
            let writes: Vec<_> = record.items().iter().filter_map(|item| Some((item.key.0, value(item)?))).collect();
            if !reads.is_empty() || !writes.is_empty() {
                all.push(Transaction { event, session: record.session, reads, writes });
            }
        }
        // What nobody wrote here, other checkers would refuse: the write was left out.
        let written: Vec<u64> = {
            let mut written: Vec<u64> = all.iter().flat_map(|one| &one.writes).map(|(_, value)| *value).collect();
            written.sort_unstable();
            written
        };
        all.iter_mut().for_each(|one| one.reads.retain(|(_, value)| *value == 0 || written.binary_search(value).is_ok()));
        all.retain(|one| !one.reads.is_empty() || !one.writes.is_empty());
        all
    }
}

/// The transactions by session, in the order of the sessions' first ones.
fn by_session(transactions: &[Transaction]) -> Vec<Vec<&Transaction>> {
    let (mut places, mut sessions): (BTreeMap<SessionId, usize>, Vec<Vec<&Transaction>>) = (BTreeMap::new(), Vec::new());
    for one in transactions {
        let place = *places.entry(one.session).or_insert_with(|| {
            sessions.push(Vec::new());
            sessions.len() - 1
        });
        sessions[place].push(one);
    }
    sessions
}

fn dbcop(transactions: &[Transaction]) -> String {
    let events = |one: &&Transaction| {
        let version = |value: u64| if value == 0 { Value::Null } else { value.into() };
        let reads = one.reads.iter().map(|(key, value)| json!({ "Read": { "variable": key, "version": version(*value) } }));
        let writes = one.writes.iter().map(|(key, value)| json!({ "Write": { "variable": key, "version": value } }));
        json!({ "events": reads.chain(writes).collect::<Vec<_>>(), "committed": true })
    };
    let sessions: Vec<Vec<Value>> = by_session(transactions).iter().map(|session| session.iter().map(events).collect()).collect();
    format!("{}\n", json!(sessions))
}

fn text(transactions: &[Transaction]) -> String {
    let mut out = String::new();
    let mut number = 0;
    for (session, of_session) in by_session(transactions).iter().enumerate() {
        for one in of_session {
            let rows = one.reads.iter().map(|row| ('r', row)).chain(one.writes.iter().map(|row| ('w', row)));
            for (word, (key, value)) in rows {
                let _ = writeln!(out, "{word}({key},{value},{session},{number})");
            }
            number += 1;
        }
    }
    out
}

fn edn(history: &History, transactions: &[Transaction]) -> String {
    // A process that does not learn what came of an operation does nothing more: the session goes on as another one.
    let (mut process, mut processes): (BTreeMap<SessionId, u64>, u64) = (BTreeMap::new(), 0);
    let mut rows: Vec<(u64, String)> = Vec::new();
    for one in transactions {
        let event = history.event(one.event);
        let at = *process.entry(one.session).or_insert_with(|| {
            processes += 1;
            processes
        });
        let operations = |told: bool| {
            let value = |value: u64| if told && value > 0 { value.to_string() } else { "nil".to_owned() };
            let reads = one.reads.iter().map(|(key, read)| format!("[:r {key} {}]", value(*read)));
            reads.chain(one.writes.iter().map(|(key, value)| format!("[:w {key} {value}]"))).collect::<Vec<_>>().join(" ")
        };
        let row = |kind: &str, at_us: u64, told: bool| {
            format!(":time {}, :type {kind}, :process {at}, :f :txn, :value [{}]}}", at_us * 1000, operations(told))
        };
        rows.push((event.invoked_us, row(":invoke", event.invoked_us, false)));
        match event.completed_us {
            Some(at_us) => rows.push((at_us, row(":ok", at_us, true))),
            None => {
                rows.push((event.invoked_us, row(":info", event.invoked_us, false)));
                process.remove(&one.session);
            }
        }
    }
    // At equal times the order of the history stays: a process ends an operation before it begins another.
    rows.sort_by_key(|(at_us, _)| *at_us);
    rows.iter().enumerate().map(|(index, (_, row))| format!("{{:index {index}, {row}\n")).collect()
}
