//! What is asked of an operation beside what it does: level, freshness, time, quorum.

use crate::wire::{Reader, Wire, WireError};
use crate::{wire_enum, wire_struct};
use rheostat_clock::Timestamp;
use std::fmt;
use std::num::NonZeroU64;

/// Session guarantees, as a set (dissertation, section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Guarantees(u8);

impl Guarantees {
    /// No guarantee.
    pub const NONE: Guarantees = Guarantees(0);
    /// A read sees at least what the session's earlier reads saw.
    pub const MONOTONIC_READS: Guarantees = Guarantees(1);
    /// A read sees the session's earlier writes.
    pub const READ_YOUR_WRITES: Guarantees = Guarantees(2);
    /// A write is ordered after the session's earlier writes, everywhere.
    pub const MONOTONIC_WRITES: Guarantees = Guarantees(4);
    /// A write is ordered after what the session has read, everywhere.
    pub const WRITES_FOLLOW_READS: Guarantees = Guarantees(8);
    /// All four.
    pub const ALL: Guarantees = Guarantees(15);

    const NAMES: [&'static str; 4] = ["monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads"];

    /// The guarantees of both sets.
    pub const fn with(self, other: Guarantees) -> Guarantees {
        Guarantees(self.0 | other.0)
    }

    /// Whether every guarantee of `other` is in this set.
    pub const fn has(self, other: Guarantees) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How much consistency an operation asks for. A keyspace gives at least what is asked, or an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// The newest version that has arrived here. Not part of the session's history: the session neither waits for
    /// it nor remembers it.
    Eventual,
    /// Some of the session guarantees: the first two bind reads, the last two bind writes.
    Session(Guarantees),
    /// Causal+ consistency.
    Causal,
    /// Linearizable among all operations of this level in one data center; writes of other data centers show when they arrive.
    Local,
    /// Linearizable everywhere.
    Strong,
}

impl Level {
    /// All session guarantees.
    pub const SESSION: Level = Level::Session(Guarantees::ALL);

    /// The levels that have a name of one word, weakest first; sets of session guarantees are written with `+` between their names.
    pub const WORDS: [Level; 5] = [Level::Eventual, Level::SESSION, Level::Causal, Level::Local, Level::Strong];

    /// The word for this level in RESP, gRPC, metrics and documents; every set of session guarantees is a `session` level.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Eventual => "eventual",
            Level::Session(_) => "session",
            Level::Causal => "causal",
            Level::Local => "local",
            Level::Strong => "strong",
        }
    }

    /// The level called `name`, in any case: one of [`Level::WORDS`], or session guarantees with `+` between them.
    pub fn from_name(name: &str) -> Option<Level> {
        if let Some(level) = Level::WORDS.into_iter().find(|level| level.name().eq_ignore_ascii_case(name)) {
            return Some(level);
        }
        let mut set = 0;
        for part in name.split('+') {
            set |= 1 << Guarantees::NAMES.iter().position(|known| known.eq_ignore_ascii_case(part))?;
        }
        Some(Level::Session(Guarantees(set)))
    }

    /// What [`Level::from_name`] takes, for messages to users.
    pub fn names() -> String {
        format!("{}, or some of {} with `+` between them", Level::WORDS.map(Level::name).join(", "), Guarantees::NAMES.join(", "))
    }

    /// Whether an answer of this level is also one of level `asked`.
    pub fn implies(self, asked: Level) -> bool {
        match (self, asked) {
            (_, Level::Eventual) | (Level::Strong, _) | (Level::Causal, Level::Session(_)) => true,
            (Level::Session(given), Level::Session(asked)) => given.has(asked),
            _ => self == asked,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Session(set) if *set != Guarantees::ALL => {
                let names = Guarantees::NAMES.into_iter().enumerate().filter(|(bit, _)| set.0 & 1 << bit != 0);
                f.write_str(&names.map(|(_, name)| name).collect::<Vec<_>>().join("+"))
            }
            _ => f.write_str(self.name()),
        }
    }
}

/// How a read-only transaction finds its snapshot, where the protocol knows several ways.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// The protocol chooses.
    #[default]
    Auto,
    /// A coordinating server chooses it.
    Coordinated,
    /// The client predicts it.
    Predicted,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 3] = [Strategy::Auto, Strategy::Coordinated, Strategy::Predicted];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::Auto => "auto",
            Strategy::Coordinated => "coordinated",
            Strategy::Predicted => "predicted",
        }
    }

    /// The strategy called `name`, in any case.
    pub fn from_name(name: &str) -> Option<Strategy> {
        Strategy::ALL.into_iter().find(|strategy| strategy.name().eq_ignore_ascii_case(name))
    }
}

/// Checking groups, as a set of numbers below 64 (protocol `adaptive`; dissertation, chapter 7). The empty set leaves the choice to the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Groups(pub u64);

/// How many replicas an operation asks, and how many must answer, where the protocol leaves that to the request (protocol `quorum`; Nguyen et al., section 2.2). 0 leaves the
/// number to the keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Quorum {
    /// How many replicas are asked in the first round. Paper: N.
    pub asked: u8,
    /// How many must answer a read. Paper: R.
    pub reads: u8,
    /// How many must have a write. Paper: W.
    pub writes: u8,
}

impl Quorum {
    /// Whatever the keyspace says.
    pub const KEYSPACE: Quorum = Quorum { asked: 0, reads: 0, writes: 0 };
    /// The replica that is asked, alone.
    pub const ALONE: Quorum = Quorum { asked: 1, reads: 1, writes: 1 };
}

/// A time in the past; in as many bytes where there may be none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AsOf(NonZeroU64);

impl AsOf {
    /// `at`; `None` if that is before everything.
    pub fn new(at: Timestamp) -> Option<AsOf> {
        NonZeroU64::new(at.bits()).map(AsOf)
    }

    /// The time.
    pub fn time(self) -> Timestamp {
        Timestamp::from_bits(self.0.get())
    }
}

/// What a request asks for beside its keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dial {
    /// How much consistency; `None` is the keyspace's own level.
    pub level: Option<Level>,
    /// For read-only transactions.
    pub strategy: Strategy,
    /// For reads.
    pub groups: Groups,
    /// For reads: the answer reflects every write of another data center that is older than so many milliseconds. Until it does, the read waits.
    pub fresh_ms: Option<u32>,
    /// How long the operation may wait at its partition server, in microseconds; never longer than the server lets any wait. Then it fails, but where
    /// the protocol keeps bounds ([`crate::capabilities::Capabilities::keeps_bounds`]): there it is answered with what there is.
    pub within_us: Option<u32>,
    /// For protocols with quorums.
    pub quorum: Quorum,
    /// For reads: each key is as it was then, for all that every data center has written; at level eventual, for all that has arrived here. Part of no session.
    pub as_of: Option<AsOf>,
    /// The service level that a read is part of, for whoever counts: see [`crate::notch::label_of`]. 0: none.
    pub label: u16,
}

impl Dial {
    /// Asks for `level`.
    pub fn at(level: Level) -> Dial {
        Dial { level: Some(level), ..Dial::default() }
    }
}

impl Wire for Guarantees {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        match input.byte()? {
            set @ ..=15 => Ok(Guarantees(set)),
            _ => Err(WireError::Invalid("session guarantees")),
        }
    }
}

impl Wire for Groups {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Groups(Wire::decode(input)?))
    }
}

impl Wire for AsOf {
    fn encode(&self, out: &mut Vec<u8>) {
        self.time().encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        AsOf::new(Wire::decode(input)?).ok_or(WireError::Invalid("a time in the past"))
    }
}

wire_enum!(Level, "a level", { 0 => Eventual, 1 => Session(guarantees), 2 => Causal, 3 => Local, 4 => Strong });
wire_enum!(Strategy, "a strategy", { 0 => Auto, 1 => Coordinated, 2 => Predicted });
wire_struct!(Quorum { asked, reads, writes });
wire_struct!(Dial { level, strategy, groups, fresh_ms, within_us, quorum, as_of, label });
