//! All protocols side by side: `docs/protocols.md`, and what `rheostat protocols` prints.
//!
//! What can be computed is: bytes are measured on replicas that run a small load, lines are counted when the protocols are built,
//! checkers and planted bugs are the simulator's, options are those that the protocol takes. The rest is the protocol's own
//! [`Card`].

mod measure;

pub use measure::{BYTES, DATA_CENTERS, Measured, PARTITIONS, REPLICAS, Sizes};

use measure::{DELAY_MS, IDLE_MS, KEYS, PAUSE_MS, ROUNDS};
use rheostat_checkers::Promise;
use rheostat_core::dial::Level;
use rheostat_core::protocol::{Card, Protocol};
use rheostat_protocols::registry::{self, ProtocolInfo, SHARED, Visitor};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is known of one protocol.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it says of itself.
    pub info: ProtocolInfo,
    /// The checkers that the simulator sends its histories through.
    pub checkers: Vec<Promise>,
    /// Its options with their defaults, as in a configuration; `-` for one that is not set by default.
    pub options: Vec<(String, String)>,
    /// What it sends and stores.
    pub measured: Measured,
}

/// Every protocol, in the order of the registry. Errors: the load of one failed; says how.
pub fn rows() -> Result<Vec<Row>, String> {
    let row = |info: ProtocolInfo| {
        let options = registry::visit(info.name, DefaultOptions).unwrap_or_default();
        let measured = measure::measure(&info)?;
        Ok(Row { checkers: rheostat_checkers::Promises::of(info.level).list(), options, measured, info })
    };
    registry::list().into_iter().map(row).collect()
}

struct DefaultOptions;

impl Visitor for DefaultOptions {
    type Output = Vec<(String, String)>;

    /// A configuration's spelling of what `Debug` says of the defaults: one field per line with this indentation, and no deeper ones.
    fn visit<P: Protocol>(self) -> Self::Output {
        let text = format!("{:#?}", P::Options::default());
        let fields = text.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| !line.starts_with([' ', ')', '}', ']']));
        let pairs = fields.filter_map(|line| line.trim_end_matches(',').split_once(": "));
        pairs.map(|(name, value)| (name.to_owned(), in_toml(value))).collect()
    }
}

/// A default value as a configuration spells it: names of choices in quotes and small letters, with `-` between their words.
fn in_toml(debug: &str) -> String {
    match debug {
        "None" => "-".into(),
        name if name.starts_with(|first: char| first.is_ascii_uppercase()) && name.chars().all(char::is_alphanumeric) => {
            let word = |letter: char| if letter.is_ascii_uppercase() { format!("-{}", letter.to_ascii_lowercase()) } else { letter.to_string() };
            format!("\"{}\"", name.chars().map(word).collect::<String>().trim_start_matches('-'))
        }
        other => other.into(),
    }
}

impl Row {
    /// Messages between the servers of one data center that a round of one GET, one PUT and one read-only transaction needs: (how many in a
    /// hundred rounds, their bytes in one). Kinds that are sent all the time are left out.
    fn per_round(&self) -> (u64, u64) {
        let asked = self.measured.messages.iter().filter(|(kind, _)| !self.measured.idle_messages.contains_key(*kind));
        let (count, bytes) = asked.fold((0, 0), |(count, bytes), (_, sizes)| (count + sizes.count, bytes + sizes.bytes));
        let rounds = ROUNDS * u64::from(DATA_CENTERS);
        ((count * 100 + rounds / 2) / rounds, (bytes + rounds / 2) / rounds)
    }

    /// Messages that one server sends to others of its data center in a second when nothing is asked.
    fn idle_per_second(&self) -> u64 {
        let count: u64 = self.measured.idle_messages.values().map(|sizes| sizes.count).sum();
        let servers = u64::from(DATA_CENTERS) * u64::from(PARTITIONS) * u64::from(self.measured.replicas) * IDLE_MS / 1000;
        (count + servers / 2) / servers
    }

    fn message_sizes(&self) -> String {
        let mut all: BTreeMap<&str, Sizes> = BTreeMap::new();
        let kinds = self.measured.messages.iter().chain(&self.measured.idle_messages);
        for (kind, sizes) in kinds {
            let entry = all.entry(kind).or_default();
            let largest = entry.largest.max(sizes.largest);
            *entry = Sizes { count: entry.count + sizes.count, bytes: entry.bytes + sizes.bytes, largest };
        }
        listed(all.iter().map(|(kind, sizes)| format!("`{kind}` {}", sizes.mean())))
    }

    /// Bytes of what goes to another data center, by kind.
    fn link_sizes(&self) -> String {
        listed(self.measured.links.iter().map(|(kind, sizes)| format!("`{kind}` {}", sizes.mean())))
    }

    /// Bytes of an update, or of a heartbeat, on a link; `-` where there are no links.
    fn link_size(&self, kind: &str) -> String {
        self.measured.links.get(kind).map_or_else(|| "-".into(), |sizes| sizes.mean().to_string())
    }

    fn options(&self) -> String {
        listed(self.options.iter().map(|(name, value)| format!("`{name} = {value}`")))
    }

    fn planted(&self) -> String {
        listed(self.info.planted.iter().map(|bug| format!("`{bug}`")))
    }

    fn serves(&self) -> String {
        listed(Level::WORDS.into_iter().filter(|level| (self.info.serves)(*level).is_some()).map(|level| level.to_string()))
    }

    fn checkers(&self) -> String {
        listed(self.checkers.iter().map(|promise| promise.name().to_owned()))
    }

    /// Everything but the planted bugs, as (what, how much).
    fn facts(&self) -> Vec<(&'static str, String)> {
        let (info, Card { rounds, reads_wait, writes_wait, cut_off }) = (&self.info, self.info.card);
        let (messages, bytes) = self.per_round();
        let lines = info.lines;
        vec![
            ("promise", info.summary.to_owned()),
            ("level", info.level.to_string()),
            ("serves", self.serves()),
            ("checkers", self.checkers()),
            ("rounds", rounds.to_owned()),
            ("a read waits for", reads_wait.to_owned()),
            ("a write waits for", writes_wait.to_owned()),
            ("a data center cut off", cut_off.to_owned()),
            ("metadata of a version", format!("{} bytes, at most {}", self.measured.metadata.mean(), self.measured.metadata.largest)),
            ("what a session remembers", format!("{} bytes, at most {}", self.measured.session.mean(), self.measured.session.largest)),
            ("an update on a link", format!("{} bytes", self.link_size("update"))),
            ("messages of a round", format!("{}.{:02}, {bytes} bytes together", messages / 100, messages % 100)),
            ("messages when idle", format!("{} per server and second", self.idle_per_second())),
            ("lines of code", format!("server {}, client {}, message {}", lines.server, lines.client, lines.message)),
            ("options", self.options().replace('`', "")),
        ]
    }
}

fn listed(words: impl Iterator<Item = String>) -> String {
    let text = words.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".into() } else { text }
}

/// The rows as text for a terminal, each protocol after the other.
pub fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let facts = row.facts();
        let width = facts.iter().map(|(what, _)| what.len()).max().unwrap_or(0);
        let _ = writeln!(out, "{}", row.info.name);
        for (what, how) in facts {
            let _ = writeln!(out, "  {what:width$}  {how}");
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "Bytes and messages were measured just now: {DATA_CENTERS} data centers, {PARTITIONS} partitions, keys and values of {BYTES} bytes; a round is one GET, \
         one PUT and\none MGET of a key of each partition. The bugs that can be planted: --markdown."
    );
    out
}

fn table(out: &mut String, titles: &[&str], rows: &[Row], cells: impl Fn(&Row) -> Vec<String>) {
    let _ = writeln!(out, "| {} |", titles.join(" | "));
    let _ = writeln!(out, "|{}", "---|".repeat(titles.len()));
    for row in rows {
        let _ = writeln!(out, "| `{}` | {} |", row.info.name, cells(row).join(" | "));
    }
    out.push('\n');
}

/// The rows as the page `docs/protocols.md`.
pub fn markdown(rows: &[Row]) -> String {
    let mut out = String::from(
        "# Protocols\n\nThis page is made from the protocols themselves: `RHEOSTAT_BLESS=1 cargo test -p rheostat-sim --test comparison` writes it anew, and the same \
         test fails when it is not true any more. `rheostat protocols` prints the same.\n\nA keyspace runs one protocol (`[[keyspace]]`, `protocol = \"…\"`). What \
         each is, line by line beside its paper: `crates/protocols/src/<protocol>/PAPER.md`.\n\n## What each promises\n\n",
    );
    let cells = |row: &Row| vec![row.info.summary.into(), row.info.level.to_string(), row.serves(), row.checkers()];
    table(&mut out, &["protocol", "promise", "its own level", "levels that it serves", "checkers that hold it to that"], rows, cells);
    out.push_str("## Who waits for what\n\n");
    let card = |row: &Row| row.info.card;
    let cells = |row: &Row| vec![card(row).rounds.into(), card(row).reads_wait.into(), card(row).writes_wait.into(), card(row).cut_off.into()];
    table(&mut out, &["protocol", "rounds", "a read waits for", "a write waits for", "a data center is cut off"], rows, cells);
    let _ = write!(
        out,
        "## What it costs beside keys and values\n\nMeasured by encoding what is really stored and sent: {DATA_CENTERS} data centers with {PARTITIONS} partitions each, \
         {DELAY_MS} ms between data centers, keys and values of {BYTES} bytes, {KEYS} keys in each partition, default options; {REPLICAS} servers of each partition in a data center \
         where the protocol has several. In each data center a client runs \
         {ROUNDS} rounds of one GET, one PUT and one read-only transaction (a key of each partition), {PAUSE_MS} ms between them. Bytes are without framing and encryption; \
         metadata and sessions as average and, behind the slash, maximum.\n\n"
    );
    let cells = |row: &Row| {
        let (messages, bytes) = row.per_round();
        vec![
            format!("{} / {}", row.measured.metadata.mean(), row.measured.metadata.largest),
            format!("{} / {}", row.measured.session.mean(), row.measured.session.largest),
            row.link_size("update"),
            row.link_size("heartbeat"),
            format!("{}.{:02}", messages / 100, messages % 100),
            bytes.to_string(),
            row.idle_per_second().to_string(),
        ]
    };
    let titles = [
        "protocol",
        "metadata of a version",
        "what a session remembers",
        "an update on a link, key and value included",
        "a heartbeat",
        "messages between partitions per round",
        "their bytes, keys and values included",
        "messages per server and second when nothing is asked",
    ];
    table(&mut out, &titles, rows, cells);
    out.push_str("What is sent, by kind; bytes on average, keys and values included:\n\n");
    let cells = |row: &Row| vec![row.message_sizes(), row.link_sizes()];
    table(&mut out, &["protocol", "between the servers of a data center", "to another data center"], rows, cells);
    out.push_str("## How long it is\n\nLines of code without comments, blank lines and tests, counted from the sources when they are built.");
    let shared = listed(SHARED.iter().map(|(name, lines)| format!("`{name}` {lines}")));
    let _ = write!(out, " Beside these, shared by several protocols: {shared}.\n\n");
    let cells = |row: &Row| {
        let lines = row.info.lines;
        vec![lines.server.to_string(), lines.client.to_string(), lines.message.to_string()]
    };
    table(&mut out, &["protocol", "server", "client", "messages"], rows, cells);
    out.push_str("## Options, and the bugs that the simulator plants\n\n");
    let cells = |row: &Row| vec![row.options(), row.planted()];
    table(&mut out, &["protocol", "options with their defaults (`-`: not set)", "planted bugs, besides those of links and replicas"], rows, cells);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
