//! The text form of a plan: one thing per line, in words, so that a kept plan can be read and edited.
//!
//! ```text
//! protocol causal
//! option published = true
//! seed 17
//! cluster 2 x 2
//! durability always
//! limits ahead 60000ms history 0ms server 2000ms client 3000ms
//! transport datagram loss 20 duplicate 10
//! local 0.2ms+0.1ms
//! near 0.2ms+0.1ms
//! disk 1ms+0ms
//! delay 0 1 40ms+3ms
//! clock p0@0 offset -1200ms drift 30ppm
//! keys a b c
//! counter n 0 - 100
//! fault 100ms..300ms cut 0 1
//! client 0 start 5ms
//!   +3ms put a !b
//! ```
//!
//! Numbers of data centers and clients count from 0; `p1@0` is partition 1 in data center 0; `!b` deletes b; `40ms+3ms` is at least 40 and
//! up to 43 milliseconds; `kill p0@0 asked` dies when a client has asked it for something; `waiting 4` and `padding 100 5000` stand for operations that may wait
//! at a server and for bytes of values; `sla causal 50ms 5ms; eventual` is the service level of the clients' reads; `get causal:5 a` names checking groups, one bit each; where `watched` stands, servers ask each other for the time; `sleeps 300ms` is after how long without a question servers sleep; `expiring 700ms claim a` writes what expires 700 ms after it is asked for, `expire a 700ms` and `persist a` change that; `held to linearizable` checks for that as well, whatever is promised. Lines that begin with `#` are comments.

use crate::plan::{
    Action, ClientPlan, ClockPlan, CounterPlan, Delay, Ends, Expected, Fate, Fault, Kill, PHASES, Plan, PutItem, Spread, Step, Transport,
};
use rheostat_checkers::Promise;
use rheostat_core::DcId;
use rheostat_core::counter::{Direction, NewCounter};
use rheostat_core::dial::{Groups, Level};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::replica::{GroupConfig, ReplicaConfig};
use rheostat_core::rollback::course::Phase;
use rheostat_core::sla::ServiceLevel;
use rheostat_core::store::{Checkpoints, Durability};
use rheostat_counters::Options;
use std::fmt;
use std::sync::Arc;

/// Why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The line, counted from 1; 0 when the whole makes no sense.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for PlanError {}

const NO_PADDING: Spread = Spread { least_us: 0, jitter_us: 0 };

/// The words for what a guarded write expects.
const EXPECTED: [(Expected, &str); 3] = [(Expected::Present, "present"), (Expected::Value, "value"), (Expected::Version, "version")];

/// Microseconds, printed as milliseconds.
pub(crate) struct Millis(pub(crate) u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        match rest {
            0 => write!(f, "{whole}ms"),
            _ => write!(f, "{whole}.{}ms", format!("{rest:03}").trim_end_matches('0')),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", Millis(self.least_us), Millis(self.jitter_us))
    }
}

fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Always => "always",
        Durability::Interval => "interval",
        Durability::Memory => "memory",
    }
}

fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Down => "down",
        Direction::Up => "up",
    }
}

/// The level of a read, and its checking groups if it names some.
struct Asked(Level, Groups);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked(level, Groups(groups)) = self;
        write!(f, "{level}")?;
        if *groups == 0 { Ok(()) } else { write!(f, ":{groups}") }
    }
}

struct EndsText(Ends);

impl fmt::Display for EndsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |phase: Phase| PHASES.iter().find(|(known, _)| *known == phase).map_or("?", |(_, word)| word);
        if let Some(Fate { doubted, answers, phase }) = self.0.coordinator {
            write!(f, " {} {answers}", if doubted { "doubted" } else { "dies" })?;
            phase.map_or(Ok(()), |phase| write!(f, " in {}", word(phase)))?;
        }
        match self.0.kill {
            Some(Kill { server, phase, down_us }) => write!(f, " kills {server} in {} for {}", word(phase), Millis(down_us)),
            None => Ok(()),
        }
    }
}

/// An action, with the plan's names of keys.
pub(crate) struct ActionText<'p>(pub(crate) &'p Plan, pub(crate) &'p Action);

impl fmt::Display for ActionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ActionText(plan, action) = self;
        let name = |key: &usize| plan.keys.get(*key).map_or("?", String::as_str);
        let counter = |place: &usize| plan.counters.get(*place).map_or("?", |counter| counter.name.as_str());
        match action {
            Action::Get { key, level, groups } => write!(f, "get {} {}", Asked(*level, *groups), name(key)),
            Action::Put { items } => {
                f.write_str("put")?;
                items.iter().try_for_each(|item| write!(f, " {}{}", if item.delete { "!" } else { "" }, name(&item.key)))
            }
            Action::ReadTransaction { keys, level, groups } => {
                write!(f, "rotx {}", Asked(*level, *groups))?;
                keys.iter().try_for_each(|key| write!(f, " {}", name(key)))
            }
            Action::Past { keys, ago_ms, checkpoint } => {
                write!(f, "past {}{ago_ms}ms", if *checkpoint { "checkpoint " } else { "" })?;
                keys.iter().try_for_each(|key| write!(f, " {}", name(key)))
            }
            Action::Feed { again } => f.write_str(if *again { "feed again" } else { "feed" }),
            Action::Rollback { ago_ms, stop_ms, depending, ends } => {
                write!(f, "rollback {ago_ms}ms stop {stop_ms}ms{}{}", if *depending { " depending" } else { "" }, EndsText(*ends))
            }
            Action::TakeOver { stop_ms, ends } => write!(f, "take-over stop {stop_ms}ms{}", EndsText(*ends)),
            Action::Swap { key } => write!(f, "swap {}", name(key)),
            Action::Take { key } => write!(f, "take {}", name(key)),
            Action::Claim { key } => write!(f, "claim {}", name(key)),
            Action::Expiring { lives_ms, action } => write!(f, "expiring {lives_ms}ms {}", ActionText(plan, action)),
            Action::Expire { key, lives_ms: Some(lives_ms) } => write!(f, "expire {} {lives_ms}ms", name(key)),
            Action::Expire { key, lives_ms: None } => write!(f, "persist {}", name(key)),
            Action::Test { test, target, absent, otherwise } => {
                let (absent, otherwise) = (if *absent { " absent" } else { "" }, if *otherwise { " else" } else { "" });
                write!(f, "test{absent}{otherwise} {} {}", name(test), name(target))
            }
            Action::Siblings { key } => write!(f, "siblings {}", name(key)),
            Action::Replace { key } => write!(f, "replace {}", name(key)),
            Action::Guarded { key, expected } => {
                let word = EXPECTED.iter().find(|(known, _)| known == expected).map_or("?", |(_, word)| word);
                write!(f, "guarded {word} {}", name(key))
            }
            Action::Await { key, data_centers } => write!(f, "await {} {data_centers}", name(key)),
            Action::Move { dc } => write!(f, "move {dc}"),
            Action::Adopt { client } => write!(f, "adopt {client}"),
            Action::Fresh => f.write_str("fresh"),
            Action::Add { changes, global, named } => {
                write!(f, "add{}{}", if *global { " global" } else { "" }, if *named { " named" } else { "" })?;
                changes.iter().try_for_each(|(place, amount)| write!(f, " {} {amount}", counter(place)))
            }
            Action::Value { counter: place } => write!(f, "value {}", counter(place)),
            Action::Look { counter: place } => write!(f, "look {}", counter(place)),
            Action::Make { counter: place } => write!(f, "make {}", counter(place)),
            Action::Together { counters, keys } => {
                f.write_str("together")?;
                counters.iter().try_for_each(|place| write!(f, " {}", counter(place)))?;
                f.write_str(" with")?;
                keys.iter().try_for_each(|key| write!(f, " {}", name(key)))
            }
            Action::Give { counter: place, to, direction, amount } => write!(f, "give {} {to} {} {amount}", counter(place), way(*direction)),
            Action::Reclaim { counter: place, gone } => write!(f, "reclaim {} {gone}", counter(place)),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "protocol {}", self.protocol)?;
        for (name, value) in &self.options {
            writeln!(f, "option {name} = {value}")?;
        }
        if let Some(planted) = &self.planted {
            writeln!(f, "planted {planted}")?;
        }
        writeln!(f, "seed {}", self.seed)?;
        write!(f, "cluster {} x {}", self.data_centers, self.partitions)?;
        match self.replicas {
            1 => writeln!(f)?,
            replicas => writeln!(f, " x {replicas}")?,
        }
        if self.split_from > 0 {
            writeln!(f, "split-from {}", self.split_from)?;
        }
        if self.group != GroupConfig::default() {
            let GroupConfig { failover_us, most_drift_ppm, keep_bytes } = self.group;
            writeln!(f, "group failover {} drift {most_drift_ppm}ppm keep {keep_bytes}", Millis(failover_us))?;
        }
        writeln!(f, "durability {}", durability_name(self.durability))?;
        let (server, client) = (Millis(self.server_timeout_us), Millis(self.client_timeout_us));
        writeln!(f, "limits ahead {}ms history {}ms server {server} client {client}", self.max_ahead_ms, self.history_ms)?;
        if self.checkpoints != Checkpoints::NONE {
            writeln!(f, "checkpoints every {}ms count {}", self.checkpoints.every_ms, self.checkpoints.count)?;
        }
        if self.max_waiting != ReplicaConfig::MAX_WAITING {
            writeln!(f, "waiting {}", self.max_waiting)?;
        }
        if self.padding != NO_PADDING {
            writeln!(f, "padding {} {}", self.padding.least_us, self.padding.jitter_us)?;
        }
        if let Some(service_level) = &self.service_level {
            writeln!(f, "sla {service_level}")?;
        }
        match self.transport {
            Transport::Stream => writeln!(f, "transport stream")?,
            Transport::Datagram { loss, duplicate } => writeln!(f, "transport datagram loss {loss} duplicate {duplicate}")?,
        }
        writeln!(f, "local {}", self.local)?;
        writeln!(f, "near {}", self.near)?;
        writeln!(f, "disk {}", self.disk)?;
        if self.cold > 0 {
            writeln!(f, "cold {}", self.cold)?;
        }
        for Delay { from, to, delay } in &self.delays {
            writeln!(f, "delay {from} {to} {delay}")?;
        }
        for ClockPlan { server, offset_ms, drift_ppm } in &self.clocks {
            writeln!(f, "clock {server} offset {offset_ms}ms drift {drift_ppm}ppm")?;
        }
        if self.watched {
            writeln!(f, "watched")?;
        }
        if self.sleeps_us > 0 {
            writeln!(f, "sleeps {}", Millis(self.sleeps_us))?;
        }
        if let Some(promise) = self.held_to {
            writeln!(f, "held to {promise}")?;
        }
        writeln!(f, "keys {}", self.keys.join(" "))?;
        for CounterPlan { name, counter: NewCounter { lower, upper, initial, placement } } in &self.counters {
            let bound = |bound: &Option<i64>| bound.map_or_else(|| "-".to_owned(), |bound| bound.to_string());
            write!(f, "counter {name} {} {} {initial}", bound(lower), bound(upper))?;
            placement.iter().try_for_each(|weight| write!(f, " {weight}"))?;
            writeln!(f)?;
        }
        if self.counting != Options::default() {
            let table = toml::Table::try_from(&self.counting).map_err(|_| fmt::Error)?;
            for (name, value) in &table {
                writeln!(f, "counting {name} = {value}")?;
            }
        }
        for Fault { from_us, until_us, kind } in &self.faults {
            writeln!(f, "fault {}..{} {kind}", Millis(*from_us), Millis(*until_us))?;
        }
        for client in &self.clients {
            writeln!(f, "client {} start {}", client.dc, Millis(client.start_us))?;
            for step in &client.steps {
                writeln!(f, "  +{} {}", Millis(step.think_us), ActionText(self, &step.action))?;
            }
        }
        Ok(())
    }
}

/// The words of one line.
pub(crate) struct Words<'l>(std::iter::Peekable<std::str::SplitWhitespace<'l>>);

pub(crate) type Parsed<T> = Result<T, String>;

impl<'l> Words<'l> {
    pub(crate) fn next(&mut self, what: &str) -> Parsed<&'l str> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn expect(&mut self, word: &str) -> Parsed<()> {
        match self.next(word)? {
            found if found == word => Ok(()),
            found => Err(format!("`{word}` was expected instead of `{found}`")),
        }
    }

    /// Takes `word` if it is next; says whether it was.
    pub(crate) fn optional(&mut self, word: &str) -> bool {
        self.0.next_if_eq(&word).is_some()
    }

    /// All words that are left, as one text for `parse`.
    fn line<T>(&mut self, parse: impl FnOnce(&str) -> Result<T, String>) -> Parsed<T> {
        parse(&self.0.by_ref().collect::<Vec<_>>().join(" "))
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        let word = self.next(what)?;
        parse_number(word, what)
    }

    pub(crate) fn unit<T: std::str::FromStr>(&mut self, unit: &str, what: &str) -> Parsed<T> {
        let word = self.next(what)?;
        parse_number(word.strip_suffix(unit).ok_or_else(|| format!("{what}: `{word}` has no unit {unit}"))?, what)
    }

    pub(crate) fn time(&mut self, what: &str) -> Parsed<u64> {
        parse_time(self.next(what)?)
    }

    fn spread(&mut self, what: &str) -> Parsed<Spread> {
        let word = self.next(what)?;
        let (least, jitter) = word.split_once('+').ok_or_else(|| format!("{what}: `{word}` is not of the form 5ms+1ms"))?;
        Ok(Spread { least_us: parse_time(least)?, jitter_us: parse_time(jitter)? })
    }

    pub(crate) fn dc(&mut self) -> Parsed<DcId> {
        Ok(DcId(self.number("a data center")?))
    }

    /// What happens while a rollback is under way.
    fn ends(&mut self) -> Parsed<Ends> {
        let doubted = self.optional("doubted");
        let coordinator = if doubted || self.optional("dies") {
            let answers = self.number("a number of answers")?;
            let phase = if self.optional("in") { Some(self.phase()?) } else { None };
            Some(Fate { doubted, answers, phase })
        } else {
            None
        };
        let kill = if self.optional("kills") {
            let server = self.server()?;
            self.expect("in")?;
            let phase = self.phase()?;
            self.expect("for")?;
            Some(Kill { server, phase, down_us: self.time("how long it is down")? })
        } else {
            None
        };
        Ok(Ends { coordinator, kill })
    }

    fn phase(&mut self) -> Parsed<Phase> {
        let word = self.next("a phase")?;
        let known = PHASES.iter().find(|(_, name)| *name == word);
        known.map(|(phase, _)| *phase).ok_or_else(|| format!("`{word}` is no phase of a rollback"))
    }

    pub(crate) fn server(&mut self) -> Parsed<ServerId> {
        let word = self.next("a server")?;
        let bad = || format!("`{word}` is not a server such as p0@1");
        let (partition, dc) = word.strip_prefix('p').and_then(|rest| rest.split_once('@')).ok_or_else(bad)?;
        let (partition, replica) = partition.split_once('.').unwrap_or((partition, "0"));
        Ok(ServerId {
            dc: DcId(parse_number(dc, "a data center")?),
            partition: PartitionId(parse_number(partition, "a partition")?),
            replica: parse_number(replica, "a replica")?,
        })
    }

    fn asked(&mut self) -> Parsed<(Level, Groups)> {
        let word = self.next("a level")?;
        let (name, groups) = word.split_once(':').unwrap_or((word, "0"));
        let level = Level::from_name(name).ok_or_else(|| format!("there is no level `{name}`"))?;
        Ok((level, Groups(parse_number(groups, "checking groups")?)))
    }

    /// The next word, if there is one.
    pub(crate) fn rest(&mut self) -> Option<&'l str> {
        self.0.next()
    }

    /// Whether `word` is the last word; no other may stand there.
    pub(crate) fn flag(&mut self, word: &str) -> Parsed<bool> {
        match self.0.next() {
            None => Ok(false),
            Some(found) if found == word => Ok(true),
            Some(found) => Err(format!("`{found}` was not expected")),
        }
    }

    fn end(&mut self) -> Parsed<()> {
        self.0.next().map_or(Ok(()), |word| Err(format!("`{word}` was not expected")))
    }
}

fn parse_number<T: std::str::FromStr>(word: &str, what: &str) -> Parsed<T> {
    word.parse().map_err(|_| format!("{what}: `{word}` is not a number that fits"))
}

pub(crate) fn parse_time(word: &str) -> Parsed<u64> {
    let bad = || format!("`{word}` is not a time such as 12.5ms");
    let number = word.strip_suffix("ms").ok_or_else(bad)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().map_err(|_| bad())?;
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    whole.checked_mul(1000).and_then(|us| us.checked_add(fraction)).ok_or_else(bad)
}

impl Plan {
    /// A plan in which nothing happens, to be filled.
    pub fn empty(protocol: &str) -> Plan {
        Plan {
            protocol: protocol.to_owned(),
            options: toml::Table::new(),
            planted: None,
            seed: 0,
            data_centers: 1,
            partitions: 1,
            split_from: 0,
            replicas: 1,
            group: GroupConfig::default(),
            durability: Durability::Always,
            max_ahead_ms: 60_000,
            history_ms: 0,
            checkpoints: Checkpoints::NONE,
            server_timeout_us: 5_000_000,
            client_timeout_us: 6_000_000,
            max_waiting: ReplicaConfig::MAX_WAITING,
            padding: NO_PADDING,
            service_level: None,
            transport: Transport::Stream,
            delays: Vec::new(),
            local: Spread { least_us: 200, jitter_us: 0 },
            near: Spread { least_us: 200, jitter_us: 0 },
            disk: Spread { least_us: 500, jitter_us: 0 },
            cold: 0,
            clocks: Vec::new(),
            watched: false,
            sleeps_us: 0,
            held_to: None,
            keys: Vec::new(),
            counters: Vec::new(),
            counting: Options::default(),
            faults: Vec::new(),
            clients: Vec::new(),
        }
    }

    /// Reads the text form.
    ///
    /// # Errors
    ///
    /// The first line that is not in the form, or what [`Plan::check`] says of the whole.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        let mut plan = Plan::empty("");
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                plan.line(line).map_err(|what| PlanError { line: number, what })?;
            }
        }
        plan.check().map_err(|what| PlanError { line: 0, what })?;
        Ok(plan)
    }

    fn line(&mut self, line: &str) -> Parsed<()> {
        if let Some(step) = line.strip_prefix('+') {
            let step = self.step(step)?;
            self.clients.last_mut().ok_or("a step stands before its client")?.steps.push(step);
            return Ok(());
        }
        let mut words = Words(line.split_whitespace().peekable());
        match words.next("a word")? {
            "protocol" => self.protocol = words.next("a name")?.to_owned(),
            "option" => {
                let table: toml::Table = toml::from_str(&line["option".len()..]).map_err(|error| error.message().to_owned())?;
                self.options.extend(table);
                return Ok(());
            }
            "counting" => {
                let given: toml::Table = toml::from_str(&line["counting".len()..]).map_err(|error| error.message().to_owned())?;
                let mut table = toml::Table::try_from(&self.counting).map_err(|error| error.to_string())?;
                table.extend(given);
                self.counting = table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
                return Ok(());
            }
            "counter" => {
                let name = words.next("a name")?.to_owned();
                let mut bound = || match words.next("a bound")? {
                    "-" => Ok(None),
                    word => parse_number(word, "a bound").map(Some),
                };
                let (lower, upper) = (bound()?, bound()?);
                let initial = words.number("a value")?;
                let placement = words.0.by_ref().map(|word| parse_number(word, "a weight")).collect::<Parsed<_>>()?;
                self.counters.push(CounterPlan { name, counter: NewCounter { lower, upper, initial, placement } });
            }
            "planted" => self.planted = Some(words.next("a name")?.to_owned()),
            "seed" => self.seed = words.number("a seed")?,
            "cluster" => {
                self.data_centers = words.number("data centers")?;
                words.expect("x")?;
                self.partitions = words.number("partitions")?;
                if words.optional("x") {
                    self.replicas = words.number("replicas")?;
                }
            }
            "split-from" => self.split_from = words.number("partitions")?,
            "group" => {
                words.expect("failover")?;
                let failover_us = words.time("a time")?;
                words.expect("drift")?;
                let most_drift_ppm = words.unit("ppm", "a drift")?;
                words.expect("keep")?;
                self.group = GroupConfig { failover_us, most_drift_ppm, keep_bytes: words.number("bytes")? };
            }
            "durability" => {
                let word = words.next("a durability")?;
                let named = [Durability::Always, Durability::Interval, Durability::Memory].into_iter().find(|named| durability_name(*named) == word);
                self.durability = named.ok_or_else(|| format!("there is no durability `{word}`"))?;
            }
            "limits" => {
                words.expect("ahead")?;
                self.max_ahead_ms = words.unit("ms", "a time")?;
                words.expect("history")?;
                self.history_ms = words.unit("ms", "a time")?;
                words.expect("server")?;
                self.server_timeout_us = words.time("a time")?;
                words.expect("client")?;
                self.client_timeout_us = words.time("a time")?;
            }
            "checkpoints" => {
                words.expect("every")?;
                let every_ms = words.unit("ms", "a time")?;
                words.expect("count")?;
                self.checkpoints = Checkpoints { every_ms, count: words.number("a number of checkpoints")? };
            }
            "waiting" => self.max_waiting = words.number("a number")?,
            "padding" => self.padding = Spread { least_us: words.number("a size")?, jitter_us: words.number("a size")? },
            "sla" => self.service_level = Some(Arc::new(words.line(ServiceLevel::parse)?)),
            "transport" => match words.next("a transport")? {
                "stream" => self.transport = Transport::Stream,
                "datagram" => {
                    words.expect("loss")?;
                    let loss = words.number("a loss")?;
                    words.expect("duplicate")?;
                    self.transport = Transport::Datagram { loss, duplicate: words.number("a share")? };
                }
                other => return Err(format!("there is no transport `{other}`")),
            },
            "local" => self.local = words.spread("a delay")?,
            "near" => self.near = words.spread("a delay")?,
            "disk" => self.disk = words.spread("a delay")?,
            "cold" => self.cold = words.number("how many looks at keys one is of that waits for the disk")?,
            "delay" => self.delays.push(Delay { from: words.dc()?, to: words.dc()?, delay: words.spread("a delay")? }),
            "clock" => {
                let server = words.server()?;
                words.expect("offset")?;
                let offset_ms = words.unit("ms", "an offset")?;
                words.expect("drift")?;
                self.clocks.push(ClockPlan { server, offset_ms, drift_ppm: words.unit("ppm", "a drift")? });
            }
            "watched" => self.watched = true,
            "sleeps" => self.sleeps_us = words.time("after how long servers sleep")?,
            "held" => {
                words.expect("to")?;
                let name = words.next("a promise")?;
                self.held_to = Some(Promise::from_name(name).ok_or_else(|| format!("no promise is called `{name}`"))?);
            }
            "keys" => {
                self.keys = words.0.by_ref().map(str::to_owned).collect();
                if self.keys.iter().any(|key| !key.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
                    return Err("a key's name has letters and digits only".into());
                }
            }
            "fault" => {
                let fault = Fault::parse(&mut words)?;
                self.faults.push(fault);
            }
            "client" => {
                let dc = words.dc()?;
                words.expect("start")?;
                self.clients.push(ClientPlan { dc, start_us: words.time("a time")?, steps: Vec::new() });
            }
            other => return Err(format!("a line cannot begin with `{other}`")),
        }
        words.end()
    }

    fn step(&self, text: &str) -> Parsed<Step> {
        let mut words = Words(text.split_whitespace().peekable());
        let think_us = words.time("a time")?;
        let action = self.action(&mut words)?;
        words.end()?;
        Ok(Step { think_us, action })
    }

    fn action(&self, words: &mut Words<'_>) -> Parsed<Action> {
        let key = |word: &str| self.keys.iter().position(|key| key == word).ok_or_else(|| format!("there is no key `{word}`"));
        let counter = |word: &str| self.counters.iter().position(|plan| plan.name == word).ok_or_else(|| format!("there is no counter `{word}`"));
        Ok(match words.next("an action")? {
            "get" => {
                let (level, groups) = words.asked()?;
                Action::Get { key: key(words.next("a key")?)?, level, groups }
            }
            "put" => {
                let item = |word: &str| {
                    let name = word.strip_prefix('!');
                    Ok(PutItem { key: key(name.unwrap_or(word))?, delete: name.is_some() })
                };
                Action::Put { items: words.0.by_ref().map(item).collect::<Parsed<_>>()? }
            }
            "rotx" => {
                let (level, groups) = words.asked()?;
                Action::ReadTransaction { keys: words.0.by_ref().map(key).collect::<Parsed<_>>()?, level, groups }
            }
            "past" => {
                let checkpoint = words.optional("checkpoint");
                Action::Past { checkpoint, ago_ms: words.unit("ms", "a time")?, keys: words.0.by_ref().map(key).collect::<Parsed<_>>()? }
            }
            "feed" => Action::Feed { again: words.optional("again") },
            "rollback" => {
                let ago_ms = words.unit("ms", "a time")?;
                words.expect("stop")?;
                let stop_ms = words.unit("ms", "a time")?;
                let depending = words.optional("depending");
                Action::Rollback { ago_ms, stop_ms, depending, ends: words.ends()? }
            }
            "take-over" => {
                words.expect("stop")?;
                Action::TakeOver { stop_ms: words.unit("ms", "a time")?, ends: words.ends()? }
            }
            "swap" => Action::Swap { key: key(words.next("a key")?)? },
            "take" => Action::Take { key: key(words.next("a key")?)? },
            "claim" => Action::Claim { key: key(words.next("a key")?)? },
            "expiring" => Action::Expiring { lives_ms: words.unit("ms", "a time")?, action: Box::new(self.action(words)?) },
            "expire" => Action::Expire { key: key(words.next("a key")?)?, lives_ms: Some(words.unit("ms", "a time")?) },
            "persist" => Action::Expire { key: key(words.next("a key")?)?, lives_ms: None },
            "test" => {
                let (absent, otherwise) = (words.optional("absent"), words.optional("else"));
                Action::Test { absent, otherwise, test: key(words.next("a key")?)?, target: key(words.next("a key")?)? }
            }
            "siblings" => Action::Siblings { key: key(words.next("a key")?)? },
            "replace" => Action::Replace { key: key(words.next("a key")?)? },
            "guarded" => {
                let word = words.next("what is expected")?;
                let known =
                    EXPECTED.iter().find(|(_, name)| *name == word).ok_or_else(|| format!("`{word}` is neither present, value nor version"))?;
                Action::Guarded { expected: known.0, key: key(words.next("a key")?)? }
            }
            "await" => Action::Await { key: key(words.next("a key")?)?, data_centers: words.number("a number")? },
            "move" => Action::Move { dc: words.dc()? },
            "adopt" => Action::Adopt { client: words.number("a client")? },
            "fresh" => Action::Fresh,
            "add" => {
                let (global, named) = (words.optional("global"), words.optional("named"));
                let mut changes = Vec::new();
                while let Some(name) = words.0.next() {
                    changes.push((counter(name)?, words.number("an amount")?));
                }
                Action::Add { changes, global, named }
            }
            "value" => Action::Value { counter: counter(words.next("a counter")?)? },
            "look" => Action::Look { counter: counter(words.next("a counter")?)? },
            "make" => Action::Make { counter: counter(words.next("a counter")?)? },
            "together" => {
                let mut counters = Vec::new();
                while !words.optional("with") {
                    counters.push(counter(words.next("a counter, or `with`")?)?);
                }
                Action::Together { counters, keys: words.0.by_ref().map(key).collect::<Parsed<_>>()? }
            }
            "give" => {
                let (counter, to) = (counter(words.next("a counter")?)?, words.dc()?);
                let direction = match words.next("a direction")? {
                    "down" => Direction::Down,
                    "up" => Direction::Up,
                    other => return Err(format!("`{other}` is neither down nor up")),
                };
                Action::Give { counter, to, direction, amount: words.number("an amount")? }
            }
            "reclaim" => Action::Reclaim { counter: counter(words.next("a counter")?)?, gone: words.dc()? },
            other => return Err(format!("there is no action `{other}`")),
        })
    }
}
