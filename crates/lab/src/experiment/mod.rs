//! What an experiment is: the form of its file.
//!
//! A file describes one cluster, the load on it, the contenders to compare, and what is swept. A sweep puts its values at a path of
//! the description, so that everything that can be written can be swept. Errors name file and line.

mod application;
mod check;
mod points;
mod shown;
mod within;

pub use application::{Against, Asked, Clients, Colouring, Conjunctive, GraphKind, Weather, WeatherShape};
pub use check::parse;
pub use points::{Point, points};
pub use shown::{Chart, ChartKind, Expect, PaperValue, TIME, TableOf};
pub use within::Within;

use rheostat_core::dial::Strategy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::Spanned;

/// A whole experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name: small letters, digits, `-` and `.`.
    pub name: String,
    /// What it reproduces, for example `001 Fig. 5.2`.
    pub source: String,
    /// Other names for `lab run figure`, for example `5.2`.
    #[serde(default)]
    pub figures: Vec<String>,
    /// One line for lists.
    pub title: String,
    /// What the source says that it shows.
    pub shows: String,
    /// What differs from the source's setting, each with the reason.
    pub differs: Vec<String>,
    /// Where it runs, the first one being the one whose numbers are drawn with the paper's.
    pub grounds: Vec<GroundName>,
    /// Seeds everything that is drawn at random; repetitions add to it.
    #[serde(default = "one")]
    pub seed: u64,
    /// The cluster.
    pub cluster: Cluster,
    /// Who asks what; several groups of clients run at once.
    pub load: Vec<Load>,
    /// What is compared.
    pub contender: Vec<Spanned<Contender>>,
    /// What is varied; all combinations are run.
    #[serde(default)]
    pub sweep: Vec<Spanned<Sweep>>,
    /// The small form.
    pub quick: Size,
    /// The large form.
    pub full: Size,
    /// What is drawn.
    #[serde(default)]
    pub chart: Vec<Spanned<Chart>>,
    /// What is printed.
    #[serde(default)]
    pub table: Vec<Spanned<TableOf>>,
    /// What the paper's text gives.
    #[serde(default)]
    pub paper: Vec<Spanned<PaperValue>>,
    /// What must hold.
    #[serde(default)]
    pub expect: Vec<Spanned<Expect>>,
}

/// Where an experiment runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroundName {
    /// Virtual time: the partition servers themselves over a network and clocks that are computed.
    Virtual,
    /// Processes of this machine over real sockets.
    Processes,
}

impl GroundName {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            GroundName::Virtual => "virtual",
            GroundName::Processes => "processes",
        }
    }
}

/// A cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The name of each data center's region; numbered from 0 in this order.
    pub regions: Vec<String>,
    /// Partitions of each data center.
    #[serde(default = "one")]
    pub partitions: u16,
    /// Servers of each partition in a data center, where the protocol has several.
    #[serde(default = "one")]
    pub replicas: u8,
    /// Whether each partition has a process of its own also where neither clocks nor slowness nor messages between partitions ask for it; processes only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// Whether servers keep their data on disk, in a temporary folder, instead of in memory; processes only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_disk: bool,
    /// Round trips in milliseconds between regions, as `"a:b"`.
    #[serde(default)]
    pub round_trips_ms: BTreeMap<String, f64>,
    /// A round trip for every pair of regions that is not named, in milliseconds.
    #[serde(default)]
    pub round_trip_ms: Option<f64>,
    /// A message to another data center takes up to so many milliseconds longer.
    #[serde(default)]
    pub jitter_ms: f64,
    /// One way between two servers of a data center, in milliseconds.
    #[serde(default = "local_ms")]
    pub local_ms: f64,
    /// One way between a client and a server of its data center, in milliseconds.
    #[serde(default = "local_ms")]
    pub near_ms: f64,
    /// Messages inside a data center take up to so many milliseconds longer.
    #[serde(default)]
    pub local_jitter_ms: f64,
    /// How wrong the servers' physical clocks are.
    #[serde(default)]
    pub clocks: Clocks,
    /// A partition server whose messages leave late.
    #[serde(default)]
    pub slow: Option<Slow>,
    /// Ways from one data center to another that are not half a round trip.
    #[serde(default)]
    pub link: Vec<Link>,
    /// Ways that change while it is measured; virtual time only.
    #[serde(default)]
    pub change: Vec<Change>,
    /// Links that are cut while it is measured; virtual time only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<Cut>,
    /// How much ways vary: each message takes a time of a gamma distribution of this shape, a whole number, whose mean is the way. The greater, the less they vary. Without it they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gamma_shape: Option<u32>,
    /// How much a data center can send to another one, in millions of bits per second; virtual time only. Without it there is no limit.
    #[serde(default)]
    pub megabits: Option<f64>,
    /// What serving costs; virtual time only.
    #[serde(default)]
    pub service: Service,
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

fn local_ms() -> f64 {
    0.1
}

/// How wrong the servers' physical clocks are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    /// Which servers are wrong.
    pub pattern: ClockPattern,
    /// By how much, in milliseconds.
    pub ms: f64,
}

/// Which servers' clocks are wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockPattern {
    /// None.
    #[default]
    Right,
    /// Those of partitions with odd numbers are behind by the whole.
    Alternate,
    /// Each is ahead or behind, drawn from the seed, so that any two differ by at most the whole.
    Spread,
}

/// A partition server whose messages leave late, to servers and to clients.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    /// Its data center.
    pub data_center: u8,
    /// Its partition.
    pub partition: u16,
    /// How late, in milliseconds.
    pub ms: f64,
}

/// One way from a data center to another.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// From here.
    pub from: u8,
    /// To there.
    pub to: u8,
    /// How long it takes, in milliseconds.
    pub ms: f64,
}

/// From some time on, the ways between two data centers take as long as this.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When, in milliseconds from the beginning of the measured time.
    pub at_ms: u64,
    /// Between which data centers.
    pub between: [u8; 2],
    /// How long one way takes, in milliseconds, either way.
    pub ms: f64,
}

/// For some time nothing passes between two data centers. What is sent meanwhile waits where it is, and leaves when the time is over; what was under way arrives.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// When it begins, in milliseconds from the beginning of the measured time.
    pub from_ms: u64,
    /// When it is over.
    pub until_ms: u64,
    /// Between which data centers.
    pub between: [u8; 2],
}

/// What one thread of a partition server spends in virtual time, in microseconds of processor time. The defaults are what this project measures of
/// itself on one core, docs/performance.md: 155 to 158 thousand unpipelined requests per second, 0.4 to 0.8 µs for a message between servers.
/// Differences between the processor time of protocols are not in it; those need real processes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// A request of a client, its answer included.
    pub request_us: f64,
    /// Each further key of a transaction.
    pub key_us: f64,
    /// A message from another server, or to one.
    pub message_us: f64,
    /// A kilobyte of a message.
    pub kilobyte_us: f64,
    /// A write of a key that a monitor's predicate names.
    #[serde(skip_serializing_if = "is_usual_tap")]
    pub tapped_us: f64,
    /// What has come from other servers, and the timer, go before requests that wait; else all are served as they came.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub messages_first: bool,
}

fn is_usual_tap(tapped_us: &f64) -> bool {
    *tapped_us == Service::default().tapped_us
}

impl Default for Service {
    fn default() -> Service {
        Service { request_us: 6.3, key_us: 1.0, message_us: 0.6, kilobyte_us: 0.5, tapped_us: 3.0, messages_first: false }
    }
}

/// A group of clients that do the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// How many in each of the data centers.
    #[serde(default = "one")]
    pub clients: u32,
    /// In which data centers; in all if there is none.
    #[serde(default)]
    pub data_centers: Vec<u8>,
    /// Whether what they meet is measured.
    #[serde(default = "yes")]
    pub measured: bool,
    /// What they do.
    pub does: Act,
}

fn yes() -> bool {
    true
}

/// What a client does, one thing after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Single operations, drawn.
    Mix(Mix),
    /// Requests of many puts each.
    Amplified(Amplified),
    /// Two clients, the first ones of two data centers, answer each other through one key.
    PingPong(PingPong),
    /// Reads one key of each partition in turn.
    Alternating(Alternating),
    /// Writes of one key, and then a read of it.
    Groups(Groups),
    /// An application: a graph is coloured.
    Social(Colouring),
    /// An application: nodes follow their neighbours.
    Weather(Weather),
    /// An application: local predicates are true now and then.
    Conjunctive(Conjunctive),
    /// Nothing is run: the protocols' lines of code are counted.
    LinesOfCode(LinesOfCode),
}

impl Act {
    /// Whether it is an application, whose clients do tasks.
    pub fn is_application(&self) -> bool {
        matches!(self, Act::Social(_) | Act::Weather(_) | Act::Conjunctive(_))
    }
}

/// Single operations, drawn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Share of puts.
    pub put: f64,
    /// Share of read-only transactions in what is not a put; the rest are gets.
    #[serde(default)]
    pub transactions: f64,
    /// Keys of a transaction.
    #[serde(default = "one")]
    pub transaction_keys: u32,
    /// How many keys there are.
    pub keys: u64,
    /// Which of them are chosen.
    #[serde(default)]
    pub distribution: Distribution,
    /// Length of a value in bytes.
    #[serde(default = "value_bytes")]
    pub value_bytes: usize,
    /// Probability that an operation goes to another data center.
    #[serde(default)]
    pub remote: f64,
    /// Between an answer and the next operation, in milliseconds.
    #[serde(default)]
    pub think_ms: f64,
    /// Operations per second and client at times that do not depend on answers (open loop); 0 is a closed loop. Latency counts from the time that was meant.
    #[serde(default)]
    pub rate: f64,
}

fn value_bytes() -> usize {
    64
}

/// Which keys are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All alike.
    #[default]
    Uniform,
    /// YCSB's scrambled zipfian, constant 0.99.
    Zipfian,
}

/// Requests of many puts, one after the other, over the partitions in turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amplified {
    /// Puts of a request.
    pub factor: u32,
    /// Keys of each partition.
    pub keys: u64,
    /// Length of a value in bytes.
    #[serde(default = "value_bytes")]
    pub value_bytes: usize,
}

/// Two clients that answer each other through one key: each adds one when the number is the other's.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingPong {
    /// The key's partition.
    pub partition: u16,
    /// Between two reads that found nothing new, in milliseconds.
    #[serde(default)]
    pub poll_ms: f64,
}

/// Reads one key of each of these partitions in turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alternating {
    /// The partitions; the keys are the first ones of each.
    pub partitions: Vec<u16>,
    /// Puts instead of gets.
    #[serde(default)]
    pub writes: bool,
    /// Between two operations, in milliseconds.
    #[serde(default)]
    pub think_ms: f64,
}

/// Groups of operations: so many writes of one key, one after the other, then a read of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// Writes of a group.
    pub writes: u32,
    /// How many keys there are; each group takes one of them.
    pub keys: u64,
    /// Length of a value in bytes.
    #[serde(default = "value_bytes")]
    pub value_bytes: usize,
    /// After the read, another one without a bound, which is not measured: what the group has left to be done does not meet the next one.
    #[serde(default)]
    pub settle: bool,
    /// Between two groups, in milliseconds.
    #[serde(default)]
    pub think_ms: f64,
}

/// Lines of code without comments, blank lines and tests.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinesOfCode {}

/// One of those that are compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contender {
    /// Its name in rows and pictures.
    pub name: String,
    /// The protocol of the keyspace.
    pub protocol: String,
    /// The keyspace's options.
    #[serde(default)]
    pub options: toml::Table,
    /// The level that reads ask for; the protocol's own if there is none.
    #[serde(default)]
    pub read_level: Option<String>,
    /// The level that writes ask for.
    #[serde(default)]
    pub write_level: Option<String>,
    /// How long a read may take.
    #[serde(default)]
    pub read_within: Within,
    /// How long a write may take.
    #[serde(default)]
    pub write_within: Within,
    /// The service level that reads of one key are under; virtual time only. Neither `read_level` nor `read_within` are looked at then.
    #[serde(default)]
    pub service_level: Option<String>,
    /// How transactions find their snapshot.
    #[serde(default)]
    pub strategy: StrategyName,
    /// Of applications: what their clients ask for, and who watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<Clients>,
}

/// How transactions find their snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StrategyName {
    /// The protocol chooses.
    #[default]
    Auto,
    /// A server chooses it.
    Coordinated,
    /// The client predicts it.
    Predicted,
}

impl From<StrategyName> for Strategy {
    fn from(name: StrategyName) -> Strategy {
        match name {
            StrategyName::Auto => Strategy::Auto,
            StrategyName::Coordinated => Strategy::Coordinated,
            StrategyName::Predicted => Strategy::Predicted,
        }
    }
}

/// A number or a word, at one place of a sweep.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word.
    Word(String),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Word(word) => f.write_str(word),
        }
    }
}

/// What is varied.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Its name in rows, charts and expectations.
    pub name: String,
    /// What it is, with its unit, for axes.
    pub label: String,
    /// Where its value stands in the description, for example `cluster.clocks.ms` or `load.0.does.mix.put`.
    pub paths: Vec<String>,
    /// The values of the small form.
    pub quick: Vec<Value>,
    /// The values of the large form.
    pub full: Vec<Value>,
}

/// How long an experiment runs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Before anything is asked, in milliseconds: leaders are elected, stable vectors come up.
    #[serde(default = "settle_ms")]
    pub settle_ms: u64,
    /// Under load before anything is measured, in milliseconds.
    pub warm_ms: u64,
    /// Measured, in milliseconds.
    pub measure_ms: u64,
    /// Ends earlier when every client that is measured has done so many operations or requests.
    #[serde(default)]
    pub operations: Option<u64>,
    /// The measured time is cut into slices of so many milliseconds, and everything is measured for each of them too.
    #[serde(default)]
    pub slice_ms: Option<u64>,
    /// How often, each time with another seed.
    #[serde(default = "one")]
    pub repetitions: u32,
}

fn settle_ms() -> u64 {
    1_000
}
