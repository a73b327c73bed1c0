//! One partition server, whole: protocol, clock, store and links behind one set of inputs and outputs.
//!
//! The simulator and the server run the same [`Replica`]. It does no I/O: what it wants sent and answered comes out in an [`Outbox`], and
//! its caller has these duties:
//!
//! 1. Every call carries the reading of the server's clocks; the monotonic one never goes back.
//! 2. [`PartitionServer::tick`] is called when [`PartitionServer::next_tick_us`] comes.
//! 3. After a round of calls, [`PartitionServer::end_round`] is called, and then [`PartitionServer::write_through`], before any reply or frame of that round leaves.
//! 4. [`PartitionServer::poll_flush`] is called after each round; a job it returns is run, on any thread, and its result handed to
//!    [`PartitionServer::end_flush`].
//!    [`PartitionServer::begin_read`] and [`PartitionServer::end_read`] likewise, until there is no job.
//! 5. A reply whose [`Execution::Done`] names a position leaves when [`PartitionServer::durable`] has reached it; if [`PartitionServer::is_lost`] says so first, whether it was done is not known, and the session goes back to what it was before.
//! 6. Frames in the outbox are sent to the same keyspace's server there, in order; they may be lost, not altered.
//! 7. [`PartitionServer::connected`] is called when a connection to another data center has been made anew.

mod execute;
mod export;
mod feed;
mod held;
mod journal;
mod lost;
mod passing;
mod past;
mod peers;
mod refill;
mod repair;
mod reservation;
mod sampling;
mod serve;
mod stop;
mod waiting;

use crate::failure::Failure;
use crate::ids::{KeyspaceId, Membership, Now, OpId, Place, ServerId};
use crate::notch::{Notches, Sampled};
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::planted::Planted;
use crate::protocol::{Bounded, Protocol, Start};
use crate::random::Random;
use crate::session::Session;
use crate::step::{EffectOf, Effects};
use crate::store::{Checkpoints, Cut, Durability, FlushJob, History, Position, ReadDone, ReadJob, Recovered, ScanPage, Store, StoreStats};
use crate::version::{Key, Value, Version, VersionId};
use crate::wire::{Wire, WireError};
pub use execute::CANNOT_DECIDE;
use execute::Pending;
use export::Hold;
pub use held::Portions;
pub(crate) use journal::Journal;
pub use journal::state_with_received;
use journal::{Refilled, Saved};
use peers::Peers;
use rheostat_clock::{DcId, Hlc, Timestamp, TimestampVector};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The bugs that can be planted in the replica itself.
pub const PLANTED: &[&str] = &[
    "clock-restarts-at-physical-time",
    "reservation-of-an-earlier-boot",
    "report-before-flush",
    "reply-before-flush",
    "stale-read-taken-as-fresh",
    "entry-said-that-was-asked-for",
    "copies-told-that-were-asked-for",
    "copies-timed-from-their-wait",
    "lost-writes-said-to-be-elsewhere",
    "entry-timed-from-its-attempt",
    "past-read-before-it-is-here",
    "history-half-as-long",
    "checkpoint-goes-with-the-window",
    "any-time-taken-for-a-checkpoint",
    "checkpoints-outlive-a-fill",
    "refilled-by-the-first-answer",
    "read-before-refilled",
    "read-of-parts-goes-on",
    "filled-when-it-is-visible-here",
    "rollback-beside-writes",
    "rollback-looks-too-early",
    "rollback-ends-before-it-is-seen",
    "rollback-stop-forgotten-at-restart",
    "rollback-goes-on-with-old-clocks",
    "rollback-leaves-what-depends",
    "rollback-takes-what-does-not-depend",
    "rollback-forgets-what-is-beneath",
    "rollback-begun-again",
    "rollback-by-two",
    "stream-ended-before-it-is-here",
    "own-deletions-forgotten-early",
    "joined-by-the-first-answer",
    "joined-reads-before-it-is-filled",
    "nothing-written-after-it-has-begun",
    "feed-ahead-of-what-has-arrived",
    "feed-too-old-not-said",
    "feed-page-taken-for-whole",
    "moved-without-its-clock",
];

/// Between two heartbeats, and two rounds of what is stable, while nobody asks anything, in microseconds.
pub const QUIET_US: u64 = 2_000_000;

/// Then those of one round that need what others say in it go off within so much after it began, in microseconds ([`Protocol::later_us`]).
const QUIET_ROUND_US: u64 = 40_000;

/// How the servers of a partition in a data center agree, where there are several and their protocol knows of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// A leader that is not heard for so long, or up to twice as long, is replaced; in microseconds.
    pub failover_us: u64,
    /// How much faster one server's monotonic clock may run than another's, in millionths.
    pub most_drift_ppm: u64,
    /// Bytes of the log that are kept for members that are behind; one that lacks more gets the state in pages.
    pub keep_bytes: usize,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig { failover_us: 400_000, most_drift_ppm: 10_000, keep_bytes: 16 << 20 }
    }
}

/// What a replica is told when it is made.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// Where it stands.
    pub place: Place,
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// How durable writes are before they are spoken of.
    pub durability: Durability,
    /// With [`Durability::Interval`] and no other data center: the longest time between two flushes, in microseconds.
    pub flush_interval_us: u64,
    /// With [`Durability::Interval`] and other data centers: updates leave when they are on disk, so flushes come this often, in
    /// microseconds.
    pub link_flush_interval_us: u64,
    /// How far ahead of the physical clock a received timestamp may lie, in milliseconds.
    pub max_ahead_ms: u64,
    /// How long an operation may wait, in microseconds.
    pub operation_timeout_us: u64,
    /// How many operations may wait at once.
    pub max_waiting: usize,
    /// The most bytes of keys and values that one write may have: logs, and frames to other servers, take no more.
    pub max_write_bytes: usize,
    /// The most bytes that the answer of a transaction of commands may have ([`Acted::bytes`](crate::outcome::Acted::bytes)): replies, and frames to whoever has asked, take no more. What it would be is known before anything is written.
    pub max_answer_bytes: usize,
    /// What was the newest version at some time of the last so many milliseconds is kept, so that each key can be read as of any of them; 0 keeps nothing for that.
    pub history_ms: u64,
    /// Beyond that, what was the newest version at these moments is kept. Of no effect without history.
    pub checkpoints: Checkpoints,
    /// Names the run of the machine since which its monotonic clock counts, the same for every process of that run; `None` if the caller cannot tell. Without it, a killed process costs
    /// its clock up to a second instead of milliseconds.
    pub boot: Option<u64>,
    /// How far ahead of the physical clock the timestamps are that a server may hand out before it notes more of them on its disk, in milliseconds; four times as far while nobody asks anything. A server that loses power begins
    /// there, and one that loses its disk, and no longer knows where, writes nothing for so long.
    pub reserve_ms: u64,
    /// The store is new and stands in the place of one that was lost: the other data centers are asked for what this server wrote, and in a group the server comes back as a new member. Of no effect once that is done.
    pub refill: bool,
    /// The data center has the place of one that was lost ([`PartitionServer::admit`]): with `refill`, it writes nothing before every other one says that it takes it.
    pub joins: bool,
    /// Data centers that nobody was in when the cluster was made: a group over all data centers begins without them. They stay here when somebody has come.
    pub reserved: Vec<DcId>,
    /// Whatever the store says, this server does not rely on what it knows of its own promises: an older copy of a disk may be in the place of one that was lost. In a group it comes back as a new member.
    pub forget: bool,
    /// In a group: the server's seat was another node's before. A store in which nothing is yet is then not the first member's, and the server comes as a new member. Of no effect once it is one.
    pub moved: bool,
    /// Where [`Place::replicas`] is more than one and the protocol's servers stand alone: how they agree.
    pub group: GroupConfig,
    /// Timers of what only keeps others informed ([`Protocol::put_off_us`]) go off at multiples of their period on the monotonic clock, and by [`Protocol::later_us`] later: so all servers of a process do
    /// it together, in one wake-up, and what they say to another node leaves in one message.
    pub together: bool,
    /// Seeds the random source.
    pub seed: u64,
    /// One of so many reads and writes is sampled, to say what other levels would have returned ([`crate::notch`]); 0: none.
    pub sample_every: u32,
    /// A planted bug; the simulator's only.
    pub planted: Planted,
}

impl ReplicaConfig {
    /// How many operations may wait at once, if nobody says otherwise.
    pub const MAX_WAITING: usize = 10_000;

    /// The most bytes of one write, if nobody says otherwise: less than what the log of a store on disk takes (128 MiB), with what it adds.
    pub const MAX_WRITE_BYTES: usize = 112 << 20;

    /// The most bytes of one answer, if nobody says otherwise.
    pub const MAX_ANSWER_BYTES: usize = 128 << 20;

    /// The defaults for a server at `place` in keyspace `keyspace`.
    pub fn new(place: Place, keyspace: KeyspaceId) -> ReplicaConfig {
        ReplicaConfig {
            place,
            keyspace,
            durability: Durability::Interval,
            flush_interval_us: 100_000,
            link_flush_interval_us: 2_000,
            max_ahead_ms: Hlc::DEFAULT_MAX_AHEAD_MS,
            operation_timeout_us: 5_000_000,
            max_waiting: ReplicaConfig::MAX_WAITING,
            max_write_bytes: ReplicaConfig::MAX_WRITE_BYTES,
            max_answer_bytes: ReplicaConfig::MAX_ANSWER_BYTES,
            history_ms: 0,
            checkpoints: Checkpoints::NONE,
            boot: None,
            reserve_ms: reservation::FIXED_MS,
            refill: false,
            joins: false,
            reserved: Vec::new(),
            forget: false,
            moved: false,
            group: GroupConfig::default(),
            together: false,
            seed: 0,
            sample_every: 0,
            planted: Planted::NONE,
        }
    }
}

/// What came of [`PartitionServer::execute`].
#[derive(Debug)]
pub enum Execution {
    /// The outcome is here; the session is up to date. It may be told when the store is durable up to `after`.
    Done {
        /// The outcome.
        outcome: Outcome,
        /// From which durable position on it may be told; [`Position`] 0 is at once.
        after: Position,
    },
    /// The outcome comes in an [`Outbox`] under this name, with the session; use no other copy of the session until then.
    Waiting(OpId),
}

/// An operation that had to wait and is done now.
#[derive(Debug)]
pub struct Done {
    /// The operation.
    pub op: OpId,
    /// Its outcome, which may be told at once.
    pub outcome: Outcome,
    /// The session, up to date.
    pub session: Session,
}

/// What a replica wants done outside.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Frames to send to the same keyspace's servers, in order.
    pub frames: Vec<(ServerId, Vec<u8>)>,
    /// Operations that are done.
    pub done: Vec<Done>,
    /// Reserved keys ([`crate::reserved`]) that updates of other data centers have just written.
    pub arrived: Vec<Key>,
    /// What was written while the server is tapped ([`PartitionServer::tap`]), own and others', in order.
    pub applied: Vec<Applied>,
}

impl Outbox {
    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let Outbox { frames, done, arrived, applied } = self;
        frames.is_empty() && done.is_empty() && arrived.is_empty() && applied.is_empty()
    }
}

/// Which keys a tap is for.
pub trait Wanted: Send + Sync {
    /// Whether versions of `key` are to be told. Asked at each write: quick where the answer is no.
    fn wants(&self, key: &[u8]) -> bool;
}

/// The newest version of a key, when it was applied, or when one that stands beside it was.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The key.
    pub key: Key,
    /// The version.
    pub version: VersionId,
    /// Its value; `None` if it deletes.
    pub value: Option<Value>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
    /// Where versions stand side by side: the others, newest first.
    pub beside: Vec<Beside>,
}

/// A version that stands beside the newest one.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The version.
    pub version: VersionId,
    /// Its value; `None` if it deletes.
    pub value: Option<Value>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
}

/// The replica's own counters, all since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Updates applied that were written in other data centers.
    pub updates_received: u64,
    /// Own updates written.
    pub updates_written: u64,
    /// Batches refused because their timestamps were too far ahead of this server's clock.
    pub batches_too_far_ahead: u64,
    /// Sessions refused for the same reason.
    pub sessions_too_far_ahead: u64,
    /// Frames dropped because they could not be decoded or did not belong here.
    pub frames_refused: u64,
    /// Versions collected.
    pub versions_collected: u64,
    /// Operations that reached their deadline.
    pub timeouts: u64,
    /// Operations refused because too many were waiting.
    pub busy: u64,
    /// Reads refused because what this server has lost is still coming.
    pub filling: u64,
    /// Requests to resume that were sent.
    pub resumes: u64,
    /// Updates of data centers out of reach that were passed on to others.
    pub passed_on: u64,
    /// Versions that another data center's replaced here without its writer having seen them, for certain.
    pub conflicts: u64,
}

/// One link, for status and metrics.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// The other data center.
    pub dc: DcId,
    /// Up to where its updates have been applied here.
    pub received: Timestamp,
    /// Up to where they are on disk here.
    pub received_durable: Timestamp,
    /// Up to where it has our updates on disk.
    pub acknowledged: Timestamp,
    /// Bytes sent to it that it does not have on disk.
    pub bytes_under_way: usize,
}

/// A replica at a glance.
#[derive(Clone, Default, Debug)]
pub struct Status {
    /// Its protocol's name.
    pub protocol: &'static str,
    /// Where it stands.
    pub server: ServerId,
    /// The highest timestamp of its clock.
    pub clock: Timestamp,
    /// The data centers that hold its data; its own is among them unless it serves nothing.
    pub holders: Vec<DcId>,
    /// Its links.
    pub links: Vec<LinkStatus>,
    /// Per data center (by index), up to where its updates are visible here; empty if the protocol does not track it.
    pub stable: Vec<Timestamp>,
    /// Operations that wait.
    pub waiting: usize,
    /// The store's sizes.
    pub store: StoreStats,
    /// The log's end.
    pub end: Position,
    /// The log is on disk below this.
    pub durable: Position,
    /// Counters.
    pub counters: Counters,
    /// The numbers that the protocol and the layers around it declare ([`crate::gauge`]), by name.
    pub gauges: Vec<(&'static str, f64)>,
    /// The latest operations with a bound, the oldest first.
    pub bounded: Vec<Bounded>,
    /// Whether what it has lost is still coming, or it is not counted in its group yet.
    pub filling: bool,
    /// Why it serves nothing any more, if its store has failed.
    pub failed: Option<String>,
}

/// A partition server, whatever its protocol and store. See the module for its caller's duties.
pub trait PartitionServer: Any + Send {
    /// Starts it; called once, first.
    fn start(&mut self, now: Now, out: &mut Outbox);

    /// Runs `operation` for `session`.
    fn execute(&mut self, now: Now, operation: Operation, session: &mut Session, out: &mut Outbox) -> Execution;

    /// The newest version of `key` that has arrived, if its chain is in memory, and whether a reader would find a value. Nothing is read from the disk.
    fn peek(&self, now: Now, key: &[u8]) -> Option<(VersionId, bool)>;

    /// Operations on `keys` follow: brings what is in memory of them into the processor's cache, waiting for all of it at once where the operations
    /// would wait for one after the other. Changes nothing.
    fn prefetch(&self, _keys: &[&[u8]]) {}

    /// Whether something of its store is on disk only. Then what asks for it ([`PartitionServer::execute`], [`PartitionServer::receive`]) can wait for the disk.
    fn is_cold(&self) -> bool {
        false
    }

    /// Whether what asks its store for `keys` and no others need not wait for the disk. If not, a read of what it would wait for is due ([`PartitionServer::begin_read`]).
    fn ready(&mut self, _keys: &[&[u8]]) -> bool {
        true
    }

    /// A read of the disk that is due, to be run on any thread, and given back to [`PartitionServer::end_read`]. To be asked after every call, until there is none.
    fn begin_read(&mut self) -> Option<ReadJob> {
        None
    }

    /// A read has ended. What waited for it goes on.
    fn end_read(&mut self, _now: Now, _read: ReadDone, _out: &mut Outbox) {}

    /// From now on, each version that becomes the newest of its key here, or comes to stand beside it, is told in [`Outbox::applied`], hidden from readers or not, if the key is wanted; with `None` no more. Reserved keys are not.
    fn tap(&mut self, _wanted: Option<Arc<dyn Wanted>>) {}

    /// The newest version of `key` that has arrived, if there is one; may read the disk.
    fn newest(&mut self, _key: &Key) -> Option<Applied> {
        None
    }

    /// Some keys of hash slot `slot` that have arrived, hidden from readers or not, from `from` on, and where to go on within the slot; as [`Store::scan`]. Reserved ones are among them, but where counters leave them out.
    fn keys(&mut self, _slot: u16, _from: u32) -> ScanPage {
        ScanPage::default()
    }

    /// The greatest timestamp of this server's clock, and of each other data center's server of this partition, what its updates and heartbeats have reached here.
    fn reached(&self) -> TimestampVector {
        TimestampVector::new()
    }

    /// Takes in a frame from the same keyspace's server at `from`.
    fn receive(&mut self, now: Now, from: ServerId, frame: &[u8], out: &mut Outbox);

    /// Does what is due.
    fn tick(&mut self, now: Now, out: &mut Outbox);

    /// When [`PartitionServer::tick`] is to be called, on the monotonic clock.
    fn next_tick_us(&self) -> u64;

    /// A connection to data center `dc` has been made anew.
    fn connected(&mut self, now: Now, dc: DcId, out: &mut Outbox);

    /// Data center `dc` is lost for ever, an operator says: nothing is heard of it any more, nothing waits for it, and nothing is kept for it. With `end`, everything that any of the others has of it was
    /// written up to there; when that is here too, it counts as having written nothing else. There is no way back, but for another one in its place. It is to be said again after each start.
    fn lose(&mut self, now: Now, dc: DcId, end: Option<Timestamp>, out: &mut Outbox);

    /// Another data center has the place of `dc`, which was lost, an operator says; it is the `generation`th that does. What it lacks is kept, and it is waited for. Until `open`, nothing is sent to it, it writes nothing, and this
    /// server goes on saying so to its readers; from then on, whenever it asks to begin, what it writes is taken. `open` may be said when every server of this partition that is or will be has been told of the
    /// generation, and so does not say any more what is not so. To be said again after each start; a server that is told first when it has started says nothing of what is not written.
    fn admit(&mut self, now: Now, dc: DcId, generation: u32, open: bool, out: &mut Outbox);

    /// Nobody waits for `op` any more.
    fn abandon(&mut self, op: OpId);

    /// What the waiting `op` waits for, in words for an operator, as far as that is known. Asked of few operations, those that take long.
    fn waits_for(&self, _op: OpId) -> Option<String> {
        None
    }

    /// Nobody asks anything of the cluster (or somebody does again): what only keeps others informed is done at multiples of [`QUIET_US`] on the monotonic clock,
    /// so that all servers of a process wake together. What is promised holds either way.
    fn set_quiet(&mut self, _quiet: bool) {}

    /// The server has just started and knows no leader: if its group has never decided anything, the one in its first seat asks to be elected now, without waiting for an election's time. To be said now
    /// and again until there is a leader, since the others may not be there yet; an election that comes early is an election, and does no harm.
    fn convene(&mut self, _now: Now, _out: &mut Outbox) {}

    /// The server is going to stop: whoever can take over from it is asked to. Says whether somebody is; [`PartitionServer::leader`] says when it is done.
    fn hand_over(&mut self, _now: Now, _out: &mut Outbox) -> bool {
        false
    }

    /// Whether the server is to lead nothing. While it is not to and leads, it hands over as in [`PartitionServer::hand_over`] as soon as another one can take over; it votes, and keeps what others decide, but is no candidate.
    fn drain(&mut self, _now: Now, _drained: bool, _out: &mut Outbox) {}

    /// This server leads, and the one at `to` is to. Errors: why that cannot be, in words for the operator; then nothing is done.
    fn hand_over_to(&mut self, _now: Now, _to: ServerId, _out: &mut Outbox) -> Result<(), String> {
        Err("no server of this partition leads others".into())
    }

    /// The physical clock is not believed, and why; or it is again. While it is not, the caller's reading of it is one that can be relied on.
    fn distrust_clock(&mut self, _now: Now, _why: Option<String>, _out: &mut Outbox) {}

    /// It serves nothing any more, as when its store has failed, and says why.
    fn stop_serving(&mut self, _why: String) {}

    /// Why this server must not give timestamps to clients' writes now, if it must not: what it would write is refused elsewhere, or would be put in the wrong order. Nothing where servers agree
    /// on one that gives them.
    fn cannot_stamp(&self, _now: Now) -> Option<Failure> {
        None
    }

    /// Whether it has begun with nothing, in the place of a server that was lost, and does not have all yet that the others have.
    fn is_refilling(&self) -> bool {
        false
    }

    /// A round of calls has ended: what they did together is put to the other servers of the partition.
    fn end_round(&mut self, _now: Now, _out: &mut Outbox) {}

    /// Hands what was logged to the operating system, if the keyspace's durability asks for it before replies leave.
    fn write_through(&mut self);

    /// The flush that is due.
    fn poll_flush(&mut self, now: Now) -> Option<FlushJob>;

    /// The process is going to end, and everything is on disk: see [`Store::rest`]. Nothing is asked of it afterwards. Errors: the disk's, of which nothing follows but a longer start.
    fn rest(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    /// The server moves to another machine, whose clocks are others: what its clock has handed out is put into the store, as it is and not as a bound ahead of it. Nothing but a flush is asked of it afterwards.
    fn move_away(&mut self) {}

    /// When, on the monotonic clock, [`PartitionServer::poll_flush`] has a flush without any further call; the greatest number if nothing waits
    /// for the disk, or a flush is under way.
    fn next_flush_us(&self) -> u64;

    /// A flush has ended.
    fn end_flush(&mut self, now: Now, flushed: std::io::Result<Position>, out: &mut Outbox);

    /// The store is durable below this.
    fn durable(&self) -> Position;

    /// Whether what waits for this position has waited in vain: another server leads the partition, which may not have it. Asked before [`PartitionServer::durable`].
    fn is_lost(&self, _after: Position) -> bool {
        false
    }

    /// Whether the store has failed: replies that have not left since must not, since what they say may be lost.
    fn failed(&self) -> bool;

    /// See [`Protocol::leader`].
    fn leader(&self) -> Option<(ServerId, u64)>;

    /// See [`Protocol::membership`].
    fn membership(&self) -> Option<Membership> {
        None
    }

    /// A session that has seen nothing.
    fn new_session(&self) -> Session;

    /// The session with this byte form. Errors: not one of this keyspace's protocol.
    fn decode_session(&self, bytes: &[u8]) -> Result<Session, WireError>;

    /// Adds what `other` remembers to `session`; says whether both are of this keyspace's protocol.
    fn merge_sessions(&self, session: &mut Session, other: &Session) -> bool;

    /// Counters, sizes, lags.
    fn status(&self, now: Now) -> Status;

    /// What other levels would have returned, as far as that is sampled here.
    fn sampled(&self) -> Option<Sampled> {
        None
    }
}

/// A partition server of protocol `P` over store `S`.
pub struct Replica<P: Protocol, S: Store<P::Meta>> {
    config: ReplicaConfig,
    protocol: P,
    store: S,
    clock: Hlc,
    journal: Journal<P::Cut>,
    random: Random,
    effects: Effects<P>,
    spare: Vec<EffectOf<P>>,
    peers: Peers,
    /// The data centers that hold this partition. Paper: H.
    holders: Vec<DcId>,
    /// Whether versions tell what their writers had not seen ([`Protocol::unseen`]).
    tells_unseen: bool,
    heartbeat: Timestamp,
    timers: Vec<(u64, u8)>,
    /// See [`PartitionServer::set_quiet`].
    quiet: bool,
    /// The store makes a checkpoint.
    store_works: bool,
    /// See [`PartitionServer::distrust_clock`].
    distrusted: Option<String>,
    pending: BTreeMap<OpId, Pending>,
    parked_reason: Option<String>,
    /// The operation that runs may write.
    writing: bool,
    /// Reads that wait to be fresh enough, and when they were last looked at.
    stale: VecDeque<OpId>,
    looked_again_us: u64,
    next_op: u64,
    /// Frames that leave when the store is durable up to their position.
    held_frames: VecDeque<(Position, ServerId, Vec<u8>)>,
    /// Answers likewise.
    held_done: VecDeque<(Position, Done)>,
    /// What is kept for backups.
    holds: Vec<Hold>,
    /// Messages of the protocol to itself.
    loopback: VecDeque<P::Message>,
    /// Of what is sent from the chains to who has lost it.
    portions: Portions<P::Meta>,
    /// Sampled writes that are not visible yet, without their values.
    unseen: Vec<Version<P::Meta>>,
    flush_wanted: bool,
    /// A client waits for it.
    flush_at_once: bool,
    flushing: bool,
    flushed_at_us: u64,
    collected_at_us: u64,
    ticked_at_us: u64,
    /// Keys that this round of collection has yet to look at.
    to_collect: usize,
    start: Option<Start>,
    /// Its store has never been written to, and stands in for none that was.
    begins: bool,
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// A replica over `store`, which holds what `recovered` says. Errors: options out of range, or a state that this version
    /// of the software does not understand.
    pub fn new(config: ReplicaConfig, options: &P::Options, store: S, recovered: Recovered) -> Result<Self, String> {
        let protocol = P::new(config.place, options, config.planted)?;
        let nothing = Version { id: VersionId::default(), value: None, expires_ms: 0, meta: P::Meta::default() };
        let tells_unseen = protocol.unseen(&nothing, VersionId::default()).is_some();
        let linked = P::CAN.links && config.place.data_centers > 1;
        let mut saved = match &recovered.state {
            None => Saved { refilled: (config.refill && linked).then(Refilled::default), ..Saved::default() },
            Some(bytes) => Saved::from_bytes(bytes).map_err(|error| format!("the saved state cannot be read: {error}"))?,
        };
        // What is saved from now on tells of it, too: whoever gets the state in pages has not seen every update.
        saved.raise_received(&recovered.newest);
        let received: Vec<Timestamp> = (0..config.place.data_centers).map(|index| saved.received.get(DcId(index))).collect();
        let own = received[config.place.dc().index()];
        // An older copy, or what an earlier start has left before an operator said that the disk is lost, has a state of its own.
        if config.refill && config.forget && linked && saved.refilled.is_none_or(|refilled| refilled.done) {
            saved.refilled = Some(Refilled { upto: own, ..Refilled::default() });
        }
        let floor = if config.planted.is("clock-restarts-at-physical-time") { Timestamp::ZERO } else { own };
        let holders = P::holders(&config.place, options);
        let peers = Peers::new(&config.place, &received, if P::CAN.links { &holders } else { &[] }, &saved);
        let is_new = recovered.state.is_none() && recovered.entries.is_empty() && received.iter().all(|at| *at == Timestamp::ZERO);
        // One in memory may have had much, before a restart.
        let begins = is_new && config.durability != Durability::Memory && !(config.refill || config.joins || config.forget || config.moved);
        let lost = config.forget || (config.refill || config.moved) && saved.protocol.is_none() && recovered.entries.is_empty();
        let start = Start { received, state: saved.protocol.clone(), entries: recovered.entries, lost, reserved: config.reserved.clone() };
        P::readable(&start)?;
        Ok(Replica {
            clock: Hlc::new(floor, config.max_ahead_ms),
            tells_unseen,
            journal: Journal::new(
                config.place.dc(),
                protocol.cut(History::new(0, config.history_ms, config.checkpoints), &start.received),
                saved,
                config.boot,
                config.reserve_ms,
                // Where versions stand side by side, one answer is not newer than another.
                Notches::new(if P::Cut::SIBLINGS { 0 } else { config.sample_every }, config.planted),
                tells_unseen && config.place.data_centers > 1,
            ),
            random: Random::new(config.seed),
            effects: Effects::new(config.place.server),
            spare: Vec::new(),
            peers,
            holders,
            heartbeat: Timestamp::ZERO,
            timers: Vec::new(),
            quiet: false,
            store_works: false,
            distrusted: None,
            pending: BTreeMap::new(),
            parked_reason: None,
            writing: false,
            stale: VecDeque::new(),
            looked_again_us: 0,
            next_op: 0,
            held_frames: VecDeque::new(),
            held_done: VecDeque::new(),
            holds: Vec::new(),
            loopback: VecDeque::new(),
            portions: Portions::default(),
            unseen: Vec::new(),
            flush_wanted: false,
            flush_at_once: false,
            flushing: false,
            flushed_at_us: 0,
            collected_at_us: 0,
            ticked_at_us: 0,
            to_collect: 0,
            start: Some(start),
            begins,
            protocol,
            store,
            config,
        })
    }

    /// The store, for tests and for the simulator's crash images.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, for the layer that keeps it with others.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Its store, taken out.
    pub fn into_store(self) -> S {
        self.store
    }

    /// The protocol's state, for tests.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    fn fail(&mut self, error: &std::io::Error) -> Failure {
        let why = error.to_string();
        self.journal.failed.get_or_insert_with(|| why.clone());
        Failure::Storage(why)
    }
}
