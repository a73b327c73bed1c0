//! The text form of a history; described at [`History`].

use crate::history::{Action, Condition, Event, EventId, Expiry, FinalRead, History, KeyId, Observation, Outcome, SessionId, UniqueValue, WriteItem};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::Level;
use rheostat_core::version::VersionId;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Why a text is not a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextError {
    /// The line, counted from 1; 0 when the whole makes no sense.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for TextError {}

/// The level of a put whose line names none.
const UNSAID: Level = Level::Causal;

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte)
}

pub(crate) fn print_version(version: VersionId, out: &mut String) {
    // VersionId's own form prints the timestamp 0 and no data center letter; this one is ours, so that it stays parseable.
    let _ = write!(out, "{}.{}@{}", version.written.millis(), version.written.counter(), version.origin.0);
}

fn print_value(value: Option<UniqueValue>, out: &mut String) {
    match value {
        Some(value) => out.push_str(&value.0.to_string()),
        None => out.push('-'),
    }
}

fn print_observation(observed: Observation, out: &mut String) {
    print_value(observed.value, out);
    if let Some(version) = observed.version {
        out.push('@');
        print_version(version, out);
    }
}

fn print_condition(condition: Condition, out: &mut String) {
    match condition {
        Condition::Always => out.push_str("always"),
        Condition::Absent => out.push_str("absent"),
        Condition::Present => out.push_str("present"),
        Condition::Expiring => out.push_str("expiring"),
        Condition::Value(value) => {
            let _ = write!(out, "value:{}", value.0);
        }
        Condition::Version(None) => out.push_str("version:-"),
        Condition::Version(Some(version)) => {
            out.push_str("version:");
            print_version(version, out);
        }
    }
}

impl History {
    /// Appends the text form of `key`.
    pub(crate) fn print_key(&self, key: KeyId, out: &mut String) {
        let bytes = &self.keys[key.index()];
        if bytes.is_empty() {
            out.push('%');
        }
        for byte in bytes {
            match plain(*byte) {
                true => out.push(char::from(*byte)),
                false => {
                    let _ = write!(out, "%{byte:02x}");
                }
            }
        }
    }

    /// The text form of `key`.
    pub fn key_name(&self, key: KeyId) -> String {
        let mut name = String::new();
        self.print_key(key, &mut name);
        name
    }

    /// Appends the line of `id`, without a line end.
    pub(crate) fn print_event(&self, id: EventId, out: &mut String) {
        let event = self.event(id);
        let _ = write!(out, "{id} {} dc{} {}..", event.session, event.dc.0, event.invoked_us);
        match event.completed_us {
            Some(completed) => out.push_str(&completed.to_string()),
            None => out.push('?'),
        }
        match &event.action {
            Action::Put { items, level } => {
                out.push_str(" put");
                if *level != UNSAID {
                    let _ = write!(out, " {level}");
                }
                items.iter().for_each(|item| self.print_item(*item, out));
            }
            Action::Change { item, condition, level } => {
                let _ = write!(out, " change {level} ");
                print_condition(*condition, out);
                self.print_item(*item, out);
            }
            Action::Get { key, level } => {
                let _ = write!(out, " get {level} ");
                self.print_key(*key, out);
            }
            Action::ReadTransaction { keys, level } => {
                let _ = write!(out, " rotx {level}");
                for key in keys {
                    out.push(' ');
                    self.print_key(*key, out);
                }
            }
            Action::Adopt { from } => {
                out.push_str(" adopt");
                for event in from {
                    let _ = write!(out, " {event}");
                }
            }
        }
        out.push_str(" ->");
        match &event.outcome {
            Outcome::Unknown => out.push_str(" ?"),
            Outcome::Failed => out.push_str(" failed"),
            Outcome::Written(None) | Outcome::Adopted => out.push_str(" ok"),
            Outcome::Written(Some(version)) => {
                out.push(' ');
                print_version(*version, out);
            }
            Outcome::Read(observed) => {
                for observation in observed {
                    out.push(' ');
                    print_observation(*observation, out);
                }
            }
            Outcome::Changed { applied, version, before } => {
                out.push_str(if *applied { " applied" } else { " unmet" });
                if let Some(version) = version {
                    out.push(' ');
                    print_version(*version, out);
                }
                if let Some(before) = before {
                    out.push_str(" was ");
                    print_observation(*before, out);
                }
            }
        }
    }

    fn print_item(&self, item: WriteItem, out: &mut String) {
        out.push(' ');
        self.print_key(item.key, out);
        out.push('=');
        print_value(item.value, out);
    }

    /// Reads the text form.
    ///
    /// # Errors
    ///
    /// The first line that is not in the form, or what [`History::validate`] says of the whole.
    pub fn parse(text: &str) -> Result<History, TextError> {
        let mut parser = Parser::default();
        for (number, line) in (1..).zip(text.lines()) {
            parser.line(line.trim()).map_err(|what| TextError { line: number, what })?;
        }
        parser.finish().map_err(|what| TextError { line: 0, what })
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = format!("datacenters {}\n", self.data_centers);
        if !self.keys.is_empty() {
            out.push_str("keys");
            for key in (0..).map(KeyId).take(self.keys.len()) {
                out.push(' ');
                self.print_key(key, &mut out);
            }
            out.push('\n');
        }
        if !self.lost_allowed.is_empty() {
            out.push_str("lost");
            self.lost_allowed.iter().for_each(|event| {
                let _ = write!(out, " {event}");
            });
            out.push('\n');
        }
        for (id, _) in self.numbered() {
            self.print_event(id, &mut out);
            out.push('\n');
            f.write_str(&out)?;
            out.clear();
        }
        for (id, Expiry { from_us, until_us }) in &self.expiring {
            let _ = match until_us {
                &u64::MAX => writeln!(out, "expires {id} {from_us}..?"),
                until_us => writeln!(out, "expires {id} {from_us}..{until_us}"),
            };
        }
        for read in &self.finals {
            let _ = write!(out, "final dc{} {} ", read.dc.0, read.at_us);
            self.print_key(read.key, &mut out);
            out.push('=');
            print_observation(read.observed, &mut out);
            out.push('\n');
        }
        f.write_str(&out)
    }
}

/// A history that is being read.
#[derive(Default)]
pub(crate) struct Parser {
    pub(crate) history: History,
    key_ids: BTreeMap<Vec<u8>, KeyId>,
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn prefixed(text: &str, prefix: &str) -> Result<u64, String> {
    number(text.strip_prefix(prefix).ok_or_else(|| format!("`{text}` does not begin with `{prefix}`"))?)
}

fn data_center(text: &str) -> Result<DcId, String> {
    u8::try_from(prefixed(text, "dc")?).map(DcId).map_err(|_| format!("`{text}` is not a data center"))
}

fn event_id(text: &str) -> Result<EventId, String> {
    u32::try_from(prefixed(text, "e")?).map(EventId).map_err(|_| format!("`{text}` is not an event"))
}

fn level(text: Option<&str>) -> Result<Level, String> {
    text.and_then(Level::from_name).ok_or_else(|| "an operation names its level, for example causal or eventual".into())
}

pub(crate) fn version(text: &str) -> Result<VersionId, String> {
    let parts = || {
        let (written, origin) = text.split_once('@')?;
        let (millis, counter) = written.split_once('.')?;
        let millis = millis.parse().ok().filter(|millis| *millis < 1 << 48)?;
        Some(VersionId { written: Timestamp::new(millis, counter.parse().ok()?), origin: DcId(origin.parse().ok()?) })
    };
    parts().ok_or_else(|| format!("`{text}` is not a version (milliseconds.counter@data center)"))
}

fn value(text: &str) -> Result<Option<UniqueValue>, String> {
    if text == "-" { Ok(None) } else { number(text).map(|value| Some(UniqueValue(value))) }
}

fn observation(text: &str) -> Result<Observation, String> {
    match text.split_once('@') {
        Some((read, id)) => Ok(Observation { value: value(read)?, version: Some(version(id)?) }),
        None => Ok(Observation { value: value(text)?, version: None }),
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    Ok(match (text, text.split_once(':')) {
        ("always", _) => Condition::Always,
        ("absent", _) => Condition::Absent,
        ("present", _) => Condition::Present,
        ("expiring", _) => Condition::Expiring,
        ("version:-", _) => Condition::Version(None),
        (_, Some(("version", id))) => Condition::Version(Some(version(id)?)),
        (_, Some(("value", value))) => Condition::Value(UniqueValue(number(value)?)),
        _ => return Err(format!("`{text}` is no condition: always, absent, present, expiring, value:…, version:…")),
    })
}

/// What came of a change: `applied 5.0@0 was 1@4.0@0`, its version and what was before left out if not told; `unmet` likewise.
fn changed(words: &[&str]) -> Result<Outcome, String> {
    let (told, before) = match words {
        [told @ .., "was", before] => (told, Some(observation(before)?)),
        told => (told, None),
    };
    match told {
        ["applied"] => Ok(Outcome::Changed { applied: true, version: None, before }),
        ["applied", id] => Ok(Outcome::Changed { applied: true, version: Some(version(id)?), before }),
        ["unmet"] => Ok(Outcome::Changed { applied: false, version: None, before }),
        _ => Err("a change was `applied` or `unmet`".into()),
    }
}

fn key_bytes(text: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("`{text}` is not a key");
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    if rest == b"%" {
        return Ok(bytes);
    }
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or_else(bad)?;
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(bad());
            }
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
            rest = &tail[2..];
        } else if plain(*first) {
            bytes.push(*first);
        } else {
            return Err(bad());
        }
    }
    if bytes.is_empty() { Err(bad()) } else { Ok(bytes) }
}

impl Parser {
    /// The history, if it makes sense.
    pub(crate) fn finish(mut self) -> Result<History, String> {
        self.history.lost_allowed.sort_unstable();
        self.history.expiring.sort_unstable_by_key(|(event, _)| *event);
        self.history.validate().map(|()| self.history)
    }

    pub(crate) fn key(&mut self, text: &str) -> Result<KeyId, String> {
        let bytes = key_bytes(text)?;
        if let Some(id) = self.key_ids.get(&bytes) {
            return Ok(*id);
        }
        let id = KeyId(self.history.keys.len() as u32);
        self.history.keys.push(bytes.clone());
        self.key_ids.insert(bytes, id);
        Ok(id)
    }

    fn item(&mut self, text: &str) -> Result<WriteItem, String> {
        let (key, written) = text.split_once('=').ok_or_else(|| format!("`{text}` is not `key=value`"))?;
        Ok(WriteItem { key: self.key(key)?, value: value(written)? })
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        match words.next().unwrap_or_default() {
            "datacenters" => {
                let count = number(words.next().unwrap_or_default())?;
                self.history.data_centers = u8::try_from(count).map_err(|_| "at most 255 data centers")?;
            }
            "keys" => words.try_for_each(|word| self.key(word).map(|_| ()))?,
            "lost" => {
                for word in words {
                    self.history.lost_allowed.push(event_id(word)?);
                }
            }
            "expires" => {
                let (event, time) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let (from, until) = time.split_once("..").ok_or("a time is `from..to`")?;
                let until_us = if until == "?" { u64::MAX } else { number(until)? };
                self.history.expiring.push((event_id(event)?, Expiry { from_us: number(from)?, until_us }));
                return words.next().map_or(Ok(()), |extra| Err(format!("`{extra}` is too much")));
            }
            "final" => {
                let (dc, at, read) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let (key, observed) = read.split_once('=').ok_or("a final read is `key=value@version`")?;
                let (dc, at_us, key, observed) = (data_center(dc)?, number(at)?, self.key(key)?, observation(observed)?);
                self.history.finals.push(FinalRead { at_us, dc, key, observed });
                return words.next().map_or(Ok(()), |extra| Err(format!("`{extra}` is too much")));
            }
            _ => self.event(line)?,
        }
        Ok(())
    }

    fn event(&mut self, line: &str) -> Result<(), String> {
        let (asked, outcome) = line.split_once("->").ok_or("an event has an outcome: `-> …`")?;
        let mut words = asked.split_whitespace();
        let mut word = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
        let id = event_id(word("the event's number")?)?;
        if id.index() != self.history.events.len() {
            return Err(format!("this is event e{}", self.history.events.len()));
        }
        let session = SessionId(prefixed(word("the session")?, "s")?);
        let dc = data_center(word("the data center")?)?;
        let (invoked, completed) = word("the time")?.split_once("..").ok_or("a time is `from..to`")?;
        let invoked_us = number(invoked)?;
        let completed_us = if completed == "?" { None } else { Some(number(completed)?) };
        let action = match word("the action")? {
            "put" => {
                let mut words = words.peekable();
                let named = words.next_if(|word| !word.contains('='));
                let level = named.map_or(Ok(UNSAID), |name| level(Some(name)))?;
                Action::Put { items: words.map(|item| self.item(item)).collect::<Result<_, _>>()?, level }
            }
            "change" => {
                let (level, condition) = (level(words.next())?, condition(words.next().unwrap_or_default())?);
                let item = self.item(words.next().unwrap_or_default())?;
                if let Some(extra) = words.next() {
                    return Err(format!("`{extra}` is too much: a change writes one key"));
                }
                Action::Change { item, condition, level }
            }
            "get" => {
                let level = level(words.next())?;
                let key = self.key(words.next().unwrap_or_default())?;
                if let Some(extra) = words.next() {
                    return Err(format!("`{extra}` is too much: a get reads one key"));
                }
                Action::Get { key, level }
            }
            "rotx" => Action::ReadTransaction { level: level(words.next())?, keys: words.map(|key| self.key(key)).collect::<Result<_, _>>()? },
            "adopt" => Action::Adopt { from: words.map(event_id).collect::<Result<_, _>>()? },
            other => return Err(format!("`{other}` is no action: put, change, get, rotx, adopt")),
        };
        let words: Vec<&str> = outcome.split_whitespace().collect();
        let outcome = match (&action, words.as_slice()) {
            (_, ["?"]) => Outcome::Unknown,
            (_, ["failed"]) => Outcome::Failed,
            (Action::Adopt { .. }, ["ok"]) => Outcome::Adopted,
            (Action::Put { .. }, ["ok"]) => Outcome::Written(None),
            (Action::Change { .. }, words) => changed(words)?,
            (Action::Put { .. }, [id]) => Outcome::Written(Some(version(id)?)),
            (Action::Get { .. } | Action::ReadTransaction { .. }, read) => {
                Outcome::Read(read.iter().map(|word| observation(word)).collect::<Result<_, _>>()?)
            }
            _ => return Err("the outcome does not fit the action".into()),
        };
        self.history.events.push(Event { session, dc, invoked_us, completed_us, action, outcome });
        Ok(())
    }
}
