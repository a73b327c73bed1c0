//! Replicas of a partition server: the servers of a partition in one data center, of a protocol that knows of one.
//!
//! They agree by Raft on the records of the server's log. The leader runs the server over [`Ahead`]; what the server appends in a round becomes one entry. What leaves waits for
//! [`rheostat_core::store::Store::durable`], which is here up to where a majority has the records on disk: a departure condition that the server inside has anyway, so it knows of nothing.
//!
//! **Failover is a restart.** A new leader applies what is decided, waits until a majority has answered it, and makes the server from the records ([`Replicas::take_seat`]). One that leads no longer drops the server and what was not decided
//! ([`Replicas::leave_seat`]).
//!
//! **A deposed leader answers nobody**, but for what any member answers ([`reading`]). The server inside runs only while the leader has a lease ([`lease`]): a majority has promised not to elect another one. A clock bounds that, and clocks of two servers may drift apart so fast only
//! ([`GroupConfig::most_drift_ppm`]).
//!
//! To all others a partition and data center is one server, replica 0; who leads there is learned from what comes from it ([`addresses`]).

mod addresses;
mod agree;
mod lease;
mod operations;
mod pages;
mod reading;
mod server;

use crate::ahead::Ahead;
use crate::configuration::{Configuration, seat_of};
use crate::frame::Frame;
use crate::log::Log;
use crate::member::{Kept, Member};
use crate::message::{LogEntry, library_entry};
use crate::record::Record;
use crate::standing::Standing;
use addresses::Known;
use lease::Lease;
use operations::{Asked, Held, Queued, Running};
use pages::{Pages, Told};
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::notch::Sampled;
use rheostat_core::outcome::Outcome;
use rheostat_core::random::Random;
use rheostat_core::replica::{Applied, Execution, GroupConfig, Outbox, PartitionServer, ReplicaConfig, Wanted};
use rheostat_core::session::Session;
use rheostat_core::store::{Durability, Position, Recovered, Store};
use rheostat_core::version::Value;
use rheostat_core::wire::{Wire, WireError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Ticks of the library's clock within [`GroupConfig::failover_us`].
const ELECTION_TICKS: usize = 8;

/// Ticks between heartbeats of the library's own; questions for the lease are heartbeats too, and come with each tick.
const HEARTBEAT_TICKS: usize = 4;

/// Between two flushes that only a link to another data center waits for, in microseconds.
const LINK_FLUSH_US: u64 = 1_000;

/// Between two flushes that nobody waits for, in microseconds.
const LAZY_FLUSH_US: u64 = 100_000;

/// Entries that are not decided at which records wait to go together in the next one, unless they fill one. Sooner they wait while they are fewer than those under way.
const MOST_IN_FLIGHT: usize = 4;

/// Bytes of records that are not decided at which writes are refused.
const MOST_UNDECIDED: usize = 64 << 20;

/// Ranges of positions that are lost which are remembered.
const MOST_LOST: usize = 64;

/// How a partition server is made over a store, and taken apart.
pub trait Seat: Send + 'static {
    /// What the protocol stores with each version.
    type Meta: Wire + Clone + Send + 'static;
    /// The store behind.
    type Driver: Store<Self::Meta>;
    /// The server.
    type Server: PartitionServer;

    /// A server over `store`, which holds what was `found`. Errors: in words for the operator.
    fn make(&mut self, config: ReplicaConfig, store: Ahead<Self::Meta, Self::Driver>, found: Recovered) -> Result<Self::Server, String>;

    /// The store of `server`.
    fn store<'s>(&self, server: &'s Self::Server) -> &'s Ahead<Self::Meta, Self::Driver>;

    /// The store of `server`.
    fn store_mut<'s>(&self, server: &'s mut Self::Server) -> &'s mut Ahead<Self::Meta, Self::Driver>;

    /// The store of `server`, taken out.
    fn take(&self, server: Self::Server) -> Ahead<Self::Meta, Self::Driver>;

    /// The protocol's name.
    fn protocol(&self) -> &'static str;

    /// The data centers that hold the partition.
    fn holders(&self) -> &[DcId];

    /// Whether a read at level eventual asks nobody else: where values stand side by side, a quorum answers.
    fn reads_alone(&self) -> bool;

    /// Whether `value` is one that a client has put, and not what a layer keeps in its place.
    fn is_plain(&self, value: &[u8]) -> bool;

    /// A session that has seen nothing.
    fn new_session(&self) -> Session;

    /// The session with this byte form. Errors: not one of the protocol.
    fn decode_session(&self, bytes: &[u8]) -> Result<Session, WireError>;
}

/// What a replica does with its store.
enum Sits<F: Seat> {
    /// It keeps what is decided.
    Follows(Box<Ahead<F::Meta, F::Driver>>),
    /// It runs the server.
    Leads(Box<F::Server>),
    /// Between the two, or there is no server to be made of the store.
    Gone,
}

/// Records in an entry that is not decided.
struct Batch<M> {
    index: u64,
    records: Vec<Record<M>>,
    end: Position,
    bytes: usize,
}

/// See the module.
pub struct Replicas<F: Seat> {
    seat: F,
    config: ReplicaConfig,
    /// Who it is in the group.
    standing: Standing,
    sits: Sits<F>,
    member: Member,
    random: Random,
    /// No vote before: a leader was promised that, or what was promised before a restart is not known.
    grace_until_us: u64,
    tick_us: u64,
    tick_at_us: u64,
    maintained_at_us: u64,
    /// Everything up to this index is in the store.
    applied: u64,
    /// The first entry of the term in which this member leads.
    leads_from: Option<u64>,
    /// The term in which it runs the server.
    term: u64,
    /// Frames that leave when the store is durable up to their position.
    held_frames: VecDeque<(Position, ServerId, Vec<u8>)>,
    /// Requests of the library that are on disk when the store is durable up to their position.
    unpersisted: VecDeque<(Position, u64)>,
    /// Up to where the store must be durable for term and vote to be.
    vote_at: Position,
    flushing: bool,
    flushed_at_us: u64,
    batches: VecDeque<Batch<F::Meta>>,
    undecided_bytes: usize,
    /// For the byte form of an entry on its way to the log.
    scratch: Vec<u8>,
    /// More is decided, or on disk, than the server inside knows.
    progressed: bool,
    lease: Lease,
    known: BTreeMap<(DcId, PartitionId), Known>,
    /// When this leader greets the others again.
    greet_at_us: VecDeque<u64>,
    /// Frames for the server inside that have come while it may not run.
    parked: VecDeque<(ServerId, Value)>,
    next_op: u64,
    running: BTreeMap<OpId, Running>,
    queue: VecDeque<Queued>,
    asked: BTreeMap<u64, Asked>,
    next_ask: u64,
    held: VecDeque<Held>,
    /// Positions that nobody will ever reach, first and last.
    lost: VecDeque<(u64, u64)>,
    /// What those that led here before had sampled: numbers that count from the node's start do not fall.
    sampled_before: Option<Sampled>,
    /// The last position that a server here has handed out.
    position: u64,
    box_: Outbox,
    quiet: bool,
    distrusted: Option<String>,
    tapped: Option<Arc<dyn Wanted>>,
    /// What a follower has applied of that.
    applied_here: Vec<Applied>,
    lost_data_centers: BTreeMap<DcId, Option<Timestamp>>,
    /// Those that have the place of a lost one: the how many-th, and whether they may begin.
    admissions: BTreeMap<DcId, (u32, bool)>,
    /// Since when another one is to lead.
    handing_over_us: Option<u64>,
    /// Who was asked for then, if anybody was.
    successor: Option<u64>,
    pages: Option<Pages>,
    /// Some pages of the state are in the store, and it is none before everything up to this index is applied.
    whole_at: u64,
    /// Own updates up to here came in pages before the last restart, which may have cut them short: newer ones can be in the store, and these not.
    unsure_upto: Timestamp,
    /// Members that were told of a snapshot, until they have caught up.
    snapshots: BTreeMap<u64, Told>,
    failed: Option<String>,
    refused: u64,
    /// For status: how often it has begun to lead, messages of leaders that know its log better than its disk, operations that were passed on.
    led: u64,
    lost_log: u64,
    passed_on: u64,
    read_here: u64,
    pages_taken: u64,
}

/// A server's seat in its group.
fn seat_at(replica: u8) -> u64 {
    u64::from(replica) + 1
}

/// A member of this number. Errors: the library's, about the configuration.
fn member(me: u64, log: Log, kept: Kept) -> Result<Member, String> {
    let mut member = Member::new(me, log, kept, (HEARTBEAT_TICKS, ELECTION_TICKS))?;
    // Followers need not know at once what is decided: the next entry tells them, or the next question for the lease.
    member.raft.skip_bcast_commit(true);
    Ok(member)
}

impl<F: Seat> Replicas<F> {
    /// The replica at `config.place`, over `store`, in which was `found`. Errors: a configuration out of range, or a store that is not a replica's.
    pub fn new(seat: F, config: ReplicaConfig, store: F::Driver, found: Recovered) -> Result<Replicas<F>, String> {
        if config.durability == Durability::Memory {
            return Err("replicas need a disk: with durability memory, what a majority has can be lost by a restart".into());
        }
        let GroupConfig { failover_us, most_drift_ppm, .. } = config.group;
        if !(20_000..=600_000_000).contains(&failover_us) || most_drift_ppm > 200_000 {
            return Err(format!(
                "failover after {failover_us} us, clocks that drift by {most_drift_ppm} ppm: must be 20 ms to 10 min, and at most 200000 ppm"
            ));
        }
        let ahead = Ahead::open(store, &found, config.planted)?;
        let seats: Vec<u64> = (0..config.place.replicas).map(seat_at).collect();
        let mut random = Random::new(config.seed ^ 0x5EA7_0F00_0000_0001);
        let is_new = found.state.is_none() && found.entries.is_empty() && found.newest.iter().all(|newest| *newest == Timestamp::ZERO);
        let lost = (config.forget || (config.refill || config.moved) && is_new).then(|| random.next_u64() | 1);
        let standing = Standing::new((seats.clone(), seats.clone()), seat_at(config.place.server.replica), ahead.saved.stood, lost, config.planted);
        let kept = ahead.saved.configuration.clone().filter(|_| !config.planted.is("members-configuration-not-kept"));
        let mut log = Log::new(kept.unwrap_or_else(|| Configuration::first(&seats)), ahead.saved.base, TimestampVector::new());
        for (index, entry) in found.entries {
            if index <= ahead.saved.base.0 {
                continue;
            }
            if index != log.last() + 1 {
                break;
            }
            let entry = LogEntry::from_bytes(&entry).map_err(|error| format!("entry {index} of the group's log cannot be read: {error}"))?;
            log.append(library_entry(index, entry));
        }
        let applied = ahead.saved.applied.max(ahead.saved.base.0);
        if log.last() < applied {
            return Err(format!("the group's log ends at {}, and everything up to {applied} was applied", log.last()));
        }
        // Only pages bring anything without a log.
        let whole_at = u64::from(log.last() == 0 && found.newest.iter().any(|newest| *newest > Timestamp::ZERO));
        let unsure_upto = ahead.saved.chained;
        let kept = Kept { term: ahead.saved.term, vote: ahead.saved.vote, applied };
        let member = member(standing.me(), log, kept)?;
        Ok(Replicas {
            // What a leader was asked in an earlier run may be answered in this one.
            next_ask: Random::new(config.seed ^ 0x5EA7_0F00_0000_0002).next_u64() >> 1,
            random,
            tick_us: failover_us / ELECTION_TICKS as u64,
            seat,
            config,
            standing,
            sits: Sits::Follows(Box::new(ahead)),
            member,
            grace_until_us: 0,
            tick_at_us: 0,
            maintained_at_us: 0,
            applied,
            leads_from: None,
            term: 0,
            held_frames: VecDeque::new(),
            unpersisted: VecDeque::new(),
            vote_at: Position(0),
            flushing: false,
            flushed_at_us: 0,
            batches: VecDeque::new(),
            undecided_bytes: 0,
            scratch: Vec::new(),
            progressed: false,
            lease: Lease::default(),
            known: BTreeMap::new(),
            greet_at_us: VecDeque::new(),
            parked: VecDeque::new(),
            next_op: 0,
            running: BTreeMap::new(),
            queue: VecDeque::new(),
            asked: BTreeMap::new(),
            held: VecDeque::new(),
            lost: VecDeque::new(),
            sampled_before: None,
            position: 0,
            box_: Outbox::default(),
            quiet: false,
            distrusted: None,
            tapped: None,
            applied_here: Vec::new(),
            lost_data_centers: BTreeMap::new(),
            admissions: BTreeMap::new(),
            handing_over_us: None,
            successor: None,
            pages: None,
            whole_at,
            unsure_upto,
            snapshots: BTreeMap::new(),
            failed: None,
            refused: 0,
            led: 0,
            lost_log: 0,
            passed_on: 0,
            read_here: 0,
            pages_taken: 0,
        })
    }

    fn here(&self) -> ServerId {
        self.config.place.server
    }

    fn server_of(&self, member: u64) -> ServerId {
        ServerId { replica: seat_of(member).saturating_sub(1) as u8, ..self.here() }
    }

    /// The store, whoever has it.
    pub fn store(&self) -> Option<&Ahead<F::Meta, F::Driver>> {
        match &self.sits {
            Sits::Follows(ahead) => Some(ahead),
            Sits::Leads(server) => Some(self.seat.store(server)),
            Sits::Gone => None,
        }
    }

    fn store_mut(&mut self) -> Option<&mut Ahead<F::Meta, F::Driver>> {
        match &mut self.sits {
            Sits::Follows(ahead) => Some(ahead),
            Sits::Leads(server) => Some(self.seat.store_mut(server)),
            Sits::Gone => None,
        }
    }

    /// The store, taken out.
    pub fn into_store(self) -> Option<F::Driver> {
        match self.sits {
            Sits::Follows(ahead) => Some(ahead.into_base()),
            Sits::Leads(server) => Some(self.seat.take(*server).into_base()),
            Sits::Gone => None,
        }
    }

    fn server(&self) -> Option<&F::Server> {
        if let Sits::Leads(server) = &self.sits { Some(server) } else { None }
    }

    /// Remembers the first error of the disk.
    fn latch<T>(&mut self, result: std::io::Result<T>) {
        if let Err(error) = result {
            self.fail(error.to_string());
        }
    }

    fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Whether the server inside may run: this member leads, and no other one can.
    fn may_run(&self, now: Now) -> bool {
        let leads = self.failed.is_none() && matches!(self.sits, Sits::Leads(_));
        leads && (self.lease.holds(now) || self.config.planted.is("replicas-lead-before-applied"))
    }

    /// Whether it takes what is asked of it.
    fn serves(&self, now: Now) -> bool {
        (self.handing_over_us.is_none() || self.config.planted.is("replicas-hand-over-while-serving")) && self.may_run(now)
    }

    /// Runs the server inside, and sorts what it wants done.
    fn run<R>(&mut self, now: Now, out: &mut Outbox, act: impl FnOnce(&mut F::Server, &mut Outbox) -> R) -> Option<R> {
        let Sits::Leads(server) = &mut self.sits else { return None };
        let mut inside = std::mem::take(&mut self.box_);
        let result = act(server, &mut inside);
        if server.failed() {
            let why = server.status(now).failed.unwrap_or_default();
            self.fail(why);
        }
        self.sort(now, &mut inside, out);
        self.box_ = inside;
        Some(result)
    }

    fn sort(&mut self, now: Now, inside: &mut Outbox, out: &mut Outbox) {
        inside.arrived.clear();
        out.applied.append(&mut inside.applied);
        for (to, bytes) in inside.frames.drain(..) {
            self.send_inside(now, to, bytes, out);
        }
        for done in std::mem::take(&mut inside.done) {
            // Nobody may wait for it any more.
            if let Some(Running { asker, .. }) = self.running.remove(&done.op) {
                self.finish(asker, done.outcome, done.session, out);
            }
        }
    }

    /// This member leads, everything that was decided before is applied, and a majority has just said so: it makes the server.
    fn take_seat(&mut self, now: Now, out: &mut Outbox) {
        let mut ahead = match std::mem::replace(&mut self.sits, Sits::Gone) {
            Sits::Follows(ahead) => *ahead,
            other => return self.sits = other,
        };
        self.term = self.member.raft.term;
        self.led += 1;
        ahead.lead(Position(self.position));
        let place = Place { server: ServerId { replica: 0, ..self.here() }, replicas: 1, ..self.config.place };
        let config = ReplicaConfig {
            place,
            // Every reply waits for what the store calls durable.
            durability: Durability::Always,
            // Another server may be the next: what moves with this machine's clock is of no use to it.
            boot: None,
            // What a data center wrote that was lost comes from the others; what one of these has lost, from the rest of them.
            refill: self.config.joins,
            forget: false,
            moved: false,
            seed: self.config.seed ^ self.term.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            ..self.config.clone()
        };
        let found = ahead.found();
        match self.seat.make(config, ahead, found) {
            Ok(server) => self.sits = Sits::Leads(Box::new(server)),
            Err(why) => return self.fail(why),
        }
        let (quiet, tapped, distrusted) = (self.quiet, self.tapped.clone(), self.distrusted.clone());
        let lost: Vec<(DcId, Option<Timestamp>)> = self.lost_data_centers.iter().map(|(dc, end)| (*dc, *end)).collect();
        let admissions = self.admissions.clone();
        let others: Vec<DcId> = self.config.place.peers().collect();
        self.greet(now, None, out);
        self.greet_at_us = VecDeque::from([now.monotonic_us + 100_000, now.monotonic_us + 500_000]);
        self.run(now, out, |server, out| {
            server.set_quiet(quiet);
            server.tap(tapped);
            if distrusted.is_some() {
                server.distrust_clock(now, distrusted, out);
            }
            server.start(now, out);
            admissions.into_iter().for_each(|(dc, (generation, open))| server.admit(now, dc, generation, open, out));
            lost.into_iter().for_each(|(dc, end)| server.lose(now, dc, end, out));
            others.into_iter().for_each(|dc| server.connected(now, dc, out));
        });
        self.lease.running = true;
    }

    /// Another member leads, or may: the server is dropped, with what was not decided.
    fn leave_seat(&mut self, out: &mut Outbox) {
        let server = match std::mem::replace(&mut self.sits, Sits::Gone) {
            Sits::Leads(server) => server,
            other => return self.sits = other,
        };
        if let Some(sampled) = server.sampled() {
            self.sampled_before.get_or_insert_default().add(&Sampled { under_way: 0, ..sampled });
        }
        let mut ahead = self.seat.take(*server);
        let (durable, end) = (ahead.durable(), ahead.end());
        if end > durable {
            self.lost.push_back((durable.0 + 1, end.0));
            if self.lost.len() > MOST_LOST {
                self.lost.pop_front();
            }
        }
        self.position = end.0;
        let followed = ahead.follow(std::mem::take(&mut self.batches).into_iter().flat_map(|batch| batch.records));
        self.sits = Sits::Follows(Box::new(ahead));
        self.latch(followed);
        self.undecided_bytes = 0;
        self.parked.clear();
        self.greet_at_us.clear();
        self.progressed = false;
        self.lease.running = false;
        self.let_down(durable, out);
    }

    fn undecided(&self) -> usize {
        self.undecided_bytes + self.store().map_or(0, Ahead::fresh_bytes)
    }

    fn push_frame(&self, to: ServerId, frame: &Frame, out: &mut Outbox) {
        out.frames.push((to, frame.to_bytes()));
    }
}

fn failed(failure: Failure) -> Execution {
    Execution::Done { outcome: Outcome::Failed(failure), after: Position(0) }
}
