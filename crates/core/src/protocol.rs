//! What a protocol is: what comes in, and its handlers.
//!
//! A protocol is three things, the same three that the papers give: what is sent ([`Protocol::Request`], [`Protocol::Reply`],
//! [`Protocol::Message`]), what a server does (the `on_…` handlers of [`Protocol`]), and what a client remembers ([`Client`]).
//! Each is a pure state machine. A handler looks at its input, its state and the store, changes its state, writes to the store, and pushes what is to leave as
//! effects; it does not read time, do I/O, spawn or lock. [`crate::replica::Replica`] executes the effects.
//!
//! What a protocol may rely on:
//! - a server's own updates reach every other data center's server of the same partition exactly once, in timestamp order, over any
//!   number of reconnects and restarts of either end; heartbeats keep their place in that order;
//! - a step sees its own writes ([`Step::write`]), as in the papers' pseudocode;
//! - what a step and those before it have appended is as durable as the keyspace asks when a message or a reply of that step leaves; a message pushed with
//!   [`crate::step::Effects::send_flushed`] always waits for the disk;
//! - messages within a data center arrive in order or not at all (a broken connection loses some);
//! - the clock never hands out a timestamp twice, not even after a restart.

use crate::capabilities::Capabilities;
use crate::dial::{Groups, Level, Quorum, Strategy};
use crate::gauge::Gauge;
use crate::ids::Membership;
use crate::ids::{Now, OpId, PartitionId, Place, ServerId};
use crate::operation::{Change, Guard, TestWrite};
use crate::outcome::Outcome;
use crate::planted::Planted;
use crate::rollback::Cause;
use crate::step::Step;
use crate::store::{Cut, History, Store};
use crate::version::{Item, Key, Update, Version, VersionId};
use crate::wire::{Reader, Wire, WireError};
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use smallvec::SmallVec;
use std::fmt::Debug;
use std::ops::RangeInclusive;

/// What a client asks of the protocol: the operations that the papers know. Levels are those of [`Protocol::serves`].
#[derive(Clone, PartialEq, Debug)]
pub enum Call {
    /// GET (key k).
    Get {
        /// The key.
        key: Key,
        /// The level to serve it at.
        level: Level,
        /// The checking groups asked for.
        groups: Groups,
    },
    /// PUT (key k, value v); several items of one partition are written as one version each, all with the same timestamp. A
    /// missing value deletes.
    Put {
        /// What to write.
        items: SmallVec<[Item; 1]>,
        /// The level to serve it at.
        level: Level,
    },
    /// A GET of a key and a PUT of what the change makes of it, with nothing between (not in the papers).
    Change {
        /// The key.
        key: Key,
        /// The change; conditional only where the protocol decides conditions.
        change: Change,
        /// The level to serve it at.
        level: Level,
        /// The checking groups asked for.
        groups: Groups,
    },
    /// ROTX (keys kset).
    ReadTransaction {
        /// The keys, of any partitions.
        keys: Vec<Key>,
        /// The level to serve it at.
        level: Level,
        /// How to find the snapshot.
        strategy: Strategy,
        /// The checking groups asked for.
        groups: Groups,
    },
}

impl Call {
    /// The level to serve it at.
    pub fn level(&self) -> Level {
        match self {
            Call::Get { level, .. } | Call::Put { level, .. } | Call::Change { level, .. } | Call::ReadTransaction { level, .. } => *level,
        }
    }

    /// Whether it reads at level eventual: then it neither waits for the session's past nor adds to it. What writes always belongs to the session.
    pub fn is_untracked(&self) -> bool {
        matches!(self, Call::Get { level: Level::Eventual, .. } | Call::ReadTransaction { level: Level::Eventual, .. })
    }
}

/// What became of a snapshot that a client predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every partition read from it.
    Held,
    /// Some partition refused it.
    Refused,
    /// It is not needed any more.
    Abandoned,
}

/// What a client remembers between its operations: the client side of a protocol.
pub trait Client: Clone + Default + Wire + Send + 'static {
    /// What it sends.
    type Request;
    /// What it receives.
    type Reply;

    /// The request for `call`, with what the client remembers.
    fn request(&self, call: Call) -> Self::Request;

    /// The request for a write of `items` if all `guards` hold, if the protocol decides that in one place for all who see `level`; it is answered with
    /// [`Outcome::Written`] or [`Outcome::Unmet`]. `None`: such writes are refused.
    fn put_if(&self, _items: &SmallVec<[Item; 1]>, _guards: &[Guard], _level: Level) -> Option<Self::Request> {
        None
    }

    /// The request for a read of one key that decides a write of another, if a server decides that by itself at the write's place among all that see `level`; it is answered with
    /// [`Outcome::Tested`], [`Outcome::Written`] or [`Outcome::Kept`]. `None`: such writes are made of guarded ones ([`Client::put_if`]), or refused.
    fn test_write(&self, _write: &TestWrite, _level: Level) -> Option<Self::Request> {
        None
    }

    /// The request for all values of `key` that stand side by side, if the protocol lets them; it is answered with [`Outcome::Siblings`]. `None`: a key has one value.
    fn siblings(&self, _key: Key) -> Option<Self::Request> {
        None
    }

    /// The request for a write of `item` in the place of what this client has seen of its key by [`Client::siblings`] or [`Client::replace`], if that was the last key so seen, and of nothing
    /// else; it is answered with [`Outcome::Written`]. `None` where [`Client::siblings`] is.
    fn replace(&self, _item: Item) -> Option<Self::Request> {
        None
    }

    /// `request`, for the quorum that is asked for, if the protocol has quorums. `None`: it has not.
    fn for_quorum(_request: Self::Request, _quorum: Quorum) -> Option<Self::Request> {
        None
    }

    /// `request`, whose operation says how long it may take, in microseconds, and the least level that it takes (`None` if it names none: then the best that comes in time, as long as
    /// nothing goes back behind what the session has seen). Only where [`Capabilities::keeps_bounds`].
    fn bounded(request: Self::Request, _within_us: u32, _least: Option<Level>) -> Self::Request {
        request
    }

    /// What servers sign of it in a token: what it has seen and written. Read back as the client itself is.
    fn encode_signed(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    /// What a token carries unsigned, since the client changes it by itself: what it predicts by, and the snapshot that it predicted. Nothing that a server makes visible or
    /// stores may follow from it unchecked.
    fn encode_hints(&self, _out: &mut Vec<u8>) {}

    /// Takes in what [`Client::encode_hints`] wrote. Errors: it is not of this protocol.
    fn take_hints(&mut self, _input: &mut Reader<'_>) -> Result<(), WireError> {
        Ok(())
    }

    /// Takes in the reply; returns what the application gets. Of [`Call::Change`] that is [`Outcome::Changed`].
    fn accept(&mut self, reply: Self::Reply) -> Outcome;

    /// Makes the snapshot of a read-only transaction without asking anybody, if the protocol can, `asked` wants it, and this client has learned enough in
    /// data center `here`; says whether. It is carried until [`Client::settle`], and requests for parts of the transaction read from it
    /// ([`crate::scatter`]). `now_ms` is the client's physical clock; `lead` is the partition that counts the transaction.
    fn predict(&mut self, _here: DcId, _lead: PartitionId, _asked: Strategy, _now_ms: u64) -> bool {
        false
    }

    /// Gives up the snapshot that [`Client::predict`] made, after what the partitions answered has been merged. If one refused it for the first
    /// time, the client makes one that none refuses instead, and returns true.
    fn settle(&mut self, _verdict: Verdict) -> bool {
        false
    }

    /// Whether it carries a snapshot that [`Client::predict`] made.
    fn predicts(&self) -> bool {
        false
    }

    /// The latest time on a server's clock that it was told with what predictions are made of; zero if it was told none. A client that counts on from when it was told
    /// is never ahead of that server.
    fn told(&self) -> Timestamp {
        Timestamp::ZERO
    }

    /// Takes in everything that `other` remembers, as if this client had done what the other did.
    fn merge(&mut self, other: &Self);

    /// Whether a server of data center `here` shows to everybody what this client has seen, once this client has asked it for anything; also after a restart. `false`: perhaps not.
    fn is_at_home(&self, _here: DcId) -> bool {
        false
    }

    /// The highest timestamp remembered; a server refuses a session that is too far ahead of its clock.
    fn newest(&self) -> Timestamp;

    /// An upper bound on the timestamps of this session's writes in data center `dc`.
    fn last_write(&self, dc: DcId) -> Timestamp;

    /// One more than the greatest number of a data center that it names; 0 if it names none. What names one that there is not was not made here.
    fn data_centers(&self) -> usize;
}

/// What a server finds when it starts.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Per data center (by index), the timestamp up to which its updates are here; for this data center, its own last update.
    pub received: Vec<Timestamp>,
    /// What the protocol last persisted ([`Step::persist`]); `None` on a first start.
    pub state: Option<Vec<u8>>,
    /// The protocol's own log ([`Step::entry`]), in order of the index.
    pub entries: Vec<(u64, Vec<u8>)>,
    /// What this server has promised to others is not known: the disk was lost ([`crate::replica::ReplicaConfig::refill`]), or is an older copy ([`crate::replica::ReplicaConfig::forget`]).
    pub lost: bool,
    /// Data centers that nobody was in when the cluster was made, whether or not somebody is there now.
    pub reserved: Vec<DcId>,
}

impl Start {
    /// [`Start::received`], as a vector.
    pub fn arrived(&self) -> TimestampVector {
        self.received.iter().enumerate().map(|(index, at)| (DcId(index as u8), *at)).collect()
    }

    /// [`Start::state`], read; `None` on a first start. Errors: it is no `T`, in words for the operator.
    pub fn saved<T: Wire>(&self) -> Result<Option<T>, String> {
        let read = self.state.as_deref().map(T::from_bytes).transpose();
        read.map_err(|error| format!("what the protocol keeps over a restart cannot be read by this version of the software: {error}"))
    }

    /// [`Start::entries`], read. Errors: one is no `T`, in words for the operator.
    pub fn log<T: Wire>(&self) -> Result<Vec<(u64, T)>, String> {
        let read = |(index, bytes): &(u64, Vec<u8>)| match T::from_bytes(bytes) {
            Ok(entry) => Ok((*index, entry)),
            Err(error) => Err(format!("entry {index} of the protocol's log cannot be read by this version of the software: {error}")),
        };
        self.entries.iter().map(read).collect()
    }
}

/// What a protocol says of itself where nothing can compute it: one cell each of the comparison in `docs/protocols.md`. Short, and
/// without the protocol's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Card {
    /// How many rounds a GET, a PUT and a read-only transaction take, and between whom.
    pub rounds: &'static str,
    /// What a read waits for at [`Protocol::LEVEL`]; `nothing` if it never waits.
    pub reads_wait: &'static str,
    /// What a write waits for, durability aside; `nothing` if it never waits.
    pub writes_wait: &'static str,
    /// What still works when a data center is cut off from the others, what stands still, and what happens afterwards.
    pub cut_off: &'static str,
}

/// What was planned for an operation with a bound, and what it came to. Times are in microseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounded {
    /// When it was answered, on this server's monotonic clock.
    pub at_us: u64,
    /// `read` or `write`.
    pub kind: &'static str,
    /// How long it might take.
    pub within_us: u64,
    /// What was planned.
    pub planned: &'static str,
    /// How long that takes, for all that was known.
    pub planned_us: u64,
    /// How long it took.
    pub took_us: u64,
    /// What it was answered with.
    pub came_to: String,
}

/// A protocol, seen from the server: the state of one partition server, and its handlers.
pub trait Protocol: Sized + Send + 'static {
    /// The one spelling of its name: folder, registry, configuration, command line, metric, scenario.
    const NAME: &'static str;
    /// One line for lists: what it promises.
    const SUMMARY: &'static str;
    /// Its own level: what operations get that ask for none.
    const LEVEL: Level;
    /// What it can do; each is a question of its own.
    const CAN: Capabilities = Capabilities::LINKED;
    /// What else it says of itself.
    const CARD: Card;
    /// The numbers that it tells of itself.
    const GAUGES: &'static [&'static [Gauge]];
    /// The bugs that can be planted in it.
    const PLANTED: &'static [&'static str];

    /// Its options, as in the configuration's `[keyspace.options]`.
    type Options: serde::de::DeserializeOwned + Default + Clone + Debug + Send;
    /// What it stores with each version.
    type Meta: Wire + Clone + Default + Debug + PartialEq + Send + 'static;
    /// What a client remembers.
    type Client: Client<Request = Self::Request, Reply = Self::Reply>;
    /// From client to server.
    type Request: Send;
    /// From server to client.
    type Reply: Clone + PartialEq + Debug + Send;
    /// From server to server within a data center. Updates and heartbeats to other data centers go by the links.
    type Message: Wire + Clone + PartialEq + Debug + Send;
    /// Says which versions can be collected.
    type Cut: Cut<Self::Meta> + Send;

    /// The level at which an operation that asks for `asked` is served, at least `asked`; `None` if this protocol cannot give it.
    fn serves(asked: Level) -> Option<Level> {
        match asked {
            Level::Eventual => Some(Level::Eventual),
            _ => Self::LEVEL.implies(asked).then_some(Self::LEVEL),
        }
    }

    /// The data centers that hold the data of the server at `place`, in order (Paper: H). Elsewhere its operations are refused, and no link leads there.
    /// The same at every server of a partition.
    fn holders(place: &Place, _options: &Self::Options) -> Vec<DcId> {
        (0..place.data_centers).map(DcId).collect()
    }

    /// How many replicas answer an operation that names no number, where requests choose that.
    fn quorum(_place: &Place, _options: &Self::Options) -> Quorum {
        Quorum::KEYSPACE
    }

    /// The state of a server that has never run. Errors: options out of range, in words for the user.
    fn new(place: Place, options: &Self::Options, planted: Planted) -> Result<Self, String>;

    /// Whether [`Protocol::on_start`] can read what was found; asked before the server is made, since one that took what it cannot read for nothing would deny what it has promised.
    /// Errors: in words for the operator.
    fn readable(_start: &Start) -> Result<(), String> {
        Ok(())
    }

    /// What an entry of the server's own log ([`Step::entry`]) says of keys of `slots`, of which a server is made when the partition is split. It stays an entry, whatever is left of it. The same for every server
    /// that has the entry. Errors: it cannot be read; or the protocol does not say.
    fn entry_within(_entry: &[u8], _slots: &RangeInclusive<u16>) -> Result<Vec<u8>, WireError> {
        Err(WireError::Invalid("an entry of a log of which the protocol does not say what is of which keys"))
    }

    /// The server starts, for the first time or again; sets its timers.
    fn on_start<S: Store<Self::Meta>>(&mut self, step: &mut Step<'_, Self, S>, start: Start);

    /// A client's request. It is answered with [`crate::step::Effects::reply`] in this step or a later one.
    fn on_request<S: Store<Self::Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, request: Self::Request);

    /// A message from a server of this data center.
    fn on_message<S: Store<Self::Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Self::Message);

    /// A message from another server: one of this partition in another data center or, where its members agree ([`Capabilities::agrees`]), any of this data center too. Beside links such
    /// messages keep their order among themselves and with what the link has sent, or are lost.
    fn on_member_message<S: Store<Self::Meta>>(&mut self, _step: &mut Step<'_, Self, S>, _from: ServerId, _message: Self::Message) {}

    /// An update of data center `from` (Paper: REPLICATE d). The handler stores it with [`Step::write`].
    fn on_update<S: Store<Self::Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, update: Update<Self::Meta>);

    /// Data center `from` has sent everything up to `at` (Paper: HEARTBEAT).
    fn on_heartbeat<S: Store<Self::Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, at: Timestamp);

    /// A timer set with [`crate::step::Effects::timer`] has run out.
    fn on_timer<S: Store<Self::Meta>>(&mut self, step: &mut Step<'_, Self, S>, timer: u8);

    /// Whether `message`, from one partition to another, asks for what is stored or tells it. Neither is done by a server that gets again what it has lost.
    fn reading(_message: &Self::Message) -> Reading<'_> {
        Reading::Question(&[])
    }

    /// The server is going to stop: whoever can take over from it is asked to. Says whether somebody is.
    fn hand_over<S: Store<Self::Meta>>(&mut self, _step: &mut Step<'_, Self, S>) -> bool {
        false
    }

    /// See [`crate::replica::PartitionServer::drain`].
    fn on_drain<S: Store<Self::Meta>>(&mut self, _step: &mut Step<'_, Self, S>, _drained: bool) {}

    /// See [`crate::replica::PartitionServer::hand_over_to`].
    ///
    /// # Errors
    /// Why that cannot be, in words for the operator.
    fn hand_over_to<S: Store<Self::Meta>>(&mut self, _step: &mut Step<'_, Self, S>, _to: ServerId) -> Result<(), String> {
        Err("no server of this partition leads others".into())
    }

    /// This server's physical clock is not believed any more, or is again. Until it is, the step's reading is a good one of the node's own making, and whoever gives timestamps for
    /// others lets another do so.
    fn on_clock<S: Store<Self::Meta>>(&mut self, _step: &mut Step<'_, Self, S>, _believed: bool) {}

    /// Nobody asks anything of the keyspace, or somebody does again: then timers that were put off go off at once. A server starts with somebody asking.
    fn on_quiet(&mut self, _quiet: bool) {}

    /// For how long, in microseconds, `timer` may be put off while nobody asks anything of the keyspace: work that only keeps others informed, or that only
    /// matters once something is written. It goes off at a multiple of [`QUIET_US`](crate::replica::QUIET_US), or of this if it is less. 0: not at all.
    fn put_off_us(&self, _timer: u8) -> u64 {
        0
    }

    /// Where such timers of all servers go off together, by how much of `period_us` this one goes off later than others: it needs what they say then.
    fn later_us(&self, _timer: u8, _period_us: u64) -> u64 {
        0
    }

    /// Its group, if it has one, has never decided anything, and knows no leader: whoever is to be its first says so now, without waiting for an election's time. Said again while that is so.
    fn convene<S: Store<Self::Meta>>(&mut self, _step: &mut Step<'_, Self, S>)
    where
        Self: Sized,
    {
    }

    /// The deadline of `op` has come: what its client gets, if it is more than that its time is up. [`Protocol::on_abandon`] follows.
    fn on_deadline(&mut self, _op: OpId) -> Option<Outcome> {
        None
    }

    /// Nobody waits for `op` any more: its deadline has passed or its client is gone.
    fn on_abandon(&mut self, op: OpId);

    /// Why `version` is hidden from `client`'s reads here at the protocol's level; `None` when it is visible.
    fn hidden(&self, client: &Self::Client, version: &Version<Self::Meta>) -> Option<String>;

    /// As `hidden(…).is_none()`, without the words.
    fn visible(&self, client: &Self::Client, version: &Version<Self::Meta>) -> bool;

    /// Whether `on` may be in the causal past of `version`: never false when it is. Asked only where it is known ([`Capabilities::knows_the_past`]).
    fn may_depend(&self, _version: &Version<Self::Meta>, _on: &Cause) -> bool {
        true
    }

    /// Whether the writer of `newer` had certainly not seen `older`, a version of the same key of another data center, nor anything that follows it: what that one said was replaced unread. False where
    /// it may have; `None` if versions do not tell.
    fn unseen(&self, _newer: &Version<Self::Meta>, _older: VersionId) -> Option<bool> {
        None
    }

    /// What `version` depends on, in words for [`crate::answer::Explained`].
    fn dependencies(&self, version: &Version<Self::Meta>) -> String;

    /// What can be collected from now on, when updates of each data center (by index) have been received durably up to `received`. A cut stays
    /// true for ever: an older one only lets less go.
    fn cut(&self, history: History, received: &[Timestamp]) -> Self::Cut;

    /// Per data center (by index), up to which timestamp it has this data center's updates of this partition durably, where the protocol carries them
    /// itself; `None` where links do. `own` is what stands for this data center.
    fn replicated(&self, _own: Timestamp) -> Option<Vec<Timestamp>> {
        None
    }

    /// The server that gives this partition's writes their places, and the number of its period, if servers agree on one and it is known. This server itself only once it
    /// has done everything that the ones before it have decided.
    fn leader(&self) -> Option<(ServerId, u64)> {
        None
    }

    /// Who this server is, if servers agree by majority.
    fn membership(&self) -> Option<Membership> {
        None
    }

    /// The numbers that [`Protocol::GAUGES`] declares, by name and in that order.
    fn gauges(&self, now: Now) -> Vec<(&'static str, f64)>;

    /// The latest operations with a bound on how long they may take, where the protocol keeps bounds ([`Capabilities::keeps_bounds`]); the oldest first, not more than some dozens.
    fn bounded(&self) -> Vec<Bounded> {
        Vec::new()
    }

    /// Per data center (by index), up to which timestamp its updates are visible here for certain; empty if the protocol does not track it.
    fn stable(&self) -> Vec<Timestamp>;
}

/// What a message between partitions has to do with reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading<'a> {
    /// Nothing.
    Nothing,
    /// It asks for what its receiver has stored, of these keys as far as that is known.
    Question(&'a [Key]),
    /// It tells what its sender has.
    Answer,
}
