//! Three replicas of a partition server, step by step: who answers when the one that led is gone.

use raft::eraftpb::{Message, MessageType};
use rheostat_core::answer::Read;
use rheostat_core::counter::{CounterCall, NewCounter};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::Membership;
use rheostat_core::ids::{KeyspaceId, Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::link::LinkFrame;
use rheostat_core::operation::{Action, Operation};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, Outbox, ReplicaConfig};
use rheostat_core::store::Durability;
use rheostat_core::version::{Item, Key, Value};
use rheostat_core::wire::Wire;
use rheostat_core::{DcId, TimestampVector};
use rheostat_counters::Options;
use rheostat_group::{Frame, RaftMessage};
use rheostat_stack::{Backing, Halt, Plan, Stack};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const FAILOVER_US: u64 = 1_000_000;
const TIMEOUT_US: u64 = 60_000_000;
/// What goes to a slow member arrives at multiples of this.
const LATE_US: u64 = 20_000;

struct Group {
    servers: Vec<Box<dyn Stack>>,
    under_way: VecDeque<(usize, usize, Vec<u8>)>,
    /// Who has stopped: nothing comes from there or arrives there.
    gone: BTreeSet<usize>,
    /// Who is slow, and what is on its way there.
    slow: Option<usize>,
    late: Vec<(usize, usize, Vec<u8>)>,
    now_us: u64,
    done: BTreeMap<(usize, OpId), Outcome>,
}

fn id(replica: usize) -> ServerId {
    ServerId { replica: replica as u8, ..ServerId::new(DcId(0), PartitionId(0)) }
}

fn config(replica: usize, moved: bool) -> ReplicaConfig {
    let place = Place { server: id(replica), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 3 };
    let mut config = ReplicaConfig::new(place, KeyspaceId(0));
    config.durability = Durability::Interval;
    config.seed = replica as u64;
    config.group.failover_us = FAILOVER_US;
    config.operation_timeout_us = TIMEOUT_US;
    config.moved = moved;
    config
}

fn open(protocol: &str, replica: usize, moved: bool) -> Box<dyn Stack> {
    open_with(protocol, config(replica, moved))
}

fn open_with(protocol: &str, config: ReplicaConfig) -> Box<dyn Stack> {
    let counters = Options::default();
    let plan = Plan { protocol, options: &toml::Table::new(), counters: &counters, config };
    plan.open(Backing::SimulatedDisk { cold: 0 }).unwrap().0
}

impl Group {
    fn new() -> Group {
        Group::of("eventual")
    }

    fn of(protocol: &str) -> Group {
        Group::around((0..3).map(|replica| open(protocol, replica, false)).collect())
    }

    /// So many bytes of the log are kept for members that are behind.
    fn keeping(bytes: usize) -> Group {
        let servers = (0..3).map(|replica| {
            let mut config = config(replica, false);
            config.group.keep_bytes = bytes;
            open_with("eventual", config)
        });
        Group::around(servers.collect())
    }

    fn around(servers: Vec<Box<dyn Stack>>) -> Group {
        let (under_way, gone, done) = (VecDeque::new(), BTreeSet::new(), BTreeMap::new());
        let mut group = Group { servers, under_way, gone, slow: None, late: Vec::new(), now_us: 1_000_000, done };
        (0..3).for_each(|replica| group.with(replica, |server, now, out| server.server().start(now, out)));
        group
    }

    fn with<R>(&mut self, replica: usize, act: impl FnOnce(&mut Box<dyn Stack>, Now, &mut Outbox) -> R) -> R {
        let now = Now { monotonic_us: self.now_us, physical_ms: 1_700_000_000_000 + self.now_us / 1000 };
        let mut out = Outbox::default();
        let server = &mut self.servers[replica];
        let result = act(server, now, &mut out);
        server.server().end_round(now, &mut out);
        while let Some(job) = server.server().poll_flush(now) {
            let flushed = job.run();
            server.server().end_flush(now, flushed, &mut out);
        }
        let frames = out.frames.into_iter().filter(|(to, _)| to.dc == DcId(0));
        self.under_way.extend(frames.map(|(to, frame)| (replica, usize::from(to.replica), frame)));
        self.done.extend(out.done.into_iter().map(|done| ((replica, done.op), done.outcome)));
        result
    }

    /// Lets time pass until `until`, at most `limit_us`; returns how much has passed.
    fn pass(&mut self, limit_us: u64, until: impl Fn(&Group) -> bool) -> u64 {
        let from_us = self.now_us;
        while self.now_us < from_us + limit_us && !until(self) {
            self.now_us += 1_000;
            for replica in (0..3).filter(|replica| !self.gone.contains(replica)).collect::<Vec<_>>() {
                self.with(replica, |server, now, out| {
                    if server.look().next_tick_us() <= now.monotonic_us {
                        server.server().tick(now, out);
                    }
                });
            }
            if self.now_us.is_multiple_of(LATE_US) {
                std::mem::take(&mut self.late).into_iter().for_each(|(from, to, frame)| self.deliver(from, to, &frame));
            }
            while let Some((from, to, frame)) = self.under_way.pop_front() {
                match self.slow == Some(to) {
                    true => self.late.push((from, to, frame)),
                    false => self.deliver(from, to, &frame),
                }
            }
        }
        assert!(until(self), "not within {limit_us} us");
        self.now_us - from_us
    }

    fn deliver(&mut self, from: usize, to: usize, frame: &[u8]) {
        if !self.gone.contains(&from) && !self.gone.contains(&to) {
            self.with(to, |server, now, out| server.server().receive(now, id(from), frame, out));
        }
    }

    /// Who leads, if all that are left agree.
    fn leader(&self) -> Option<usize> {
        let mut told = (0..3).filter(|replica| !self.gone.contains(replica)).map(|replica| self.servers[replica].look().leader());
        let first = told.next()??;
        told.all(|other| other == Some(first)).then_some(usize::from(first.0.replica)).filter(|leader| !self.gone.contains(leader))
    }

    fn execute(&mut self, replica: usize, operation: Operation) -> OpId {
        let mut session = self.servers[replica].look().new_session();
        match self.with(replica, |server, now, out| server.server().execute(now, operation, &mut session, out)) {
            Execution::Waiting(op) => op,
            done => panic!("{done:?}"),
        }
    }
}

fn put(value: &str) -> Operation {
    let item = Item { key: Key::from(&b"k"[..]), value: Some(Key::from(value.as_bytes())), expires_ms: 0 };
    Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() }
}

/// What a member has asked the leader for is settled when the leader is another one, also if that is the member itself: a write is not known to be done, a read is asked again. Nobody waits for the
/// operation's deadline.
#[test]
fn what_the_lost_leader_was_asked_for_is_settled_by_the_next_one() {
    let mut led_itself = 0;
    for asker_offset in [1, 2] {
        let mut group = Group::new();
        group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
        let old = group.leader().unwrap();
        let asker = (old + asker_offset) % 3;
        let first = group.execute(asker, put("first"));
        group.pass(FAILOVER_US, |group| group.done.contains_key(&(asker, first)));
        assert!(matches!(group.done[&(asker, first)], Outcome::Written(_)), "{:?}", group.done);
        // The questions never arrive.
        group.gone.insert(old);
        let write = group.execute(asker, put("second"));
        let read = group.execute(asker, Operation::Get { key: Key::from(&b"k"[..]), dial: Dial::default() });
        let settled = |group: &Group| [write, read].iter().all(|op| group.done.contains_key(&(asker, *op)));
        group.pass(10 * FAILOVER_US, settled);
        led_itself += usize::from(group.leader() == Some(asker));
        assert!(matches!(&group.done[&(asker, write)], Outcome::Failed(Failure::Timeout(why)) if why.contains("not known")), "{:?}", group.done);
        let Outcome::Read(found, _) = &group.done[&(asker, read)] else { panic!("{:?}", group.done) };
        assert_eq!(found.value.as_deref(), Some(&b"first"[..]));
    }
    assert!(led_itself > 0, "in one of the two the asker is the next leader");
}

impl Group {
    fn drain(&mut self, replica: usize, drained: bool) {
        self.with(replica, |server, now, out| server.server().drain(now, drained, out));
    }

    fn hand_over(&mut self, from: usize, to: usize) -> Result<(), String> {
        self.with(from, |server, now, out| server.server().hand_over_to(now, id(to), out))
    }

    /// Lets so much time pass.
    fn wait(&mut self, us: u64) {
        let until_us = self.now_us + us;
        self.pass(us + 1_000, |group| group.now_us >= until_us);
    }

    /// `server` comes into the seat of `replica`.
    fn seat(&mut self, replica: usize, server: Box<dyn Stack>) {
        self.servers[replica] = server;
        self.under_way.retain(|(from, to, _)| *from != replica && *to != replica);
        self.with(replica, |server, now, out| server.server().start(now, out));
    }

    fn membership(&self, replica: usize) -> Membership {
        self.servers[replica].look().membership().unwrap()
    }

    /// Writes at `replica` are made.
    fn writes(&mut self, replica: usize, value: &str) {
        let write = self.execute(replica, put(value));
        self.pass(5 * FAILOVER_US, |group| group.done.contains_key(&(replica, write)));
        assert!(matches!(self.done[&(replica, write)], Outcome::Written(_)), "{:?}", self.done[&(replica, write)]);
    }
}

/// What a drained member leads goes to another one within milliseconds, and nothing comes back to it, not even when the next leader dies, until it is resumed.
#[test]
fn a_drained_member_hands_over_and_is_not_elected() {
    let mut group = Group::new();
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let first = group.leader().unwrap();
    group.writes((first + 1) % 3, "before");
    group.drain(first, true);
    let took_us = group.pass(FAILOVER_US, |group| group.leader().is_some_and(|leader| leader != first));
    assert!(took_us < 50_000, "{took_us} us: that was an election");
    let second = group.leader().unwrap();
    let third = 3 - first - second;
    group.writes(first, "by way of another");
    // It has said that it is drained.
    group.wait(FAILOVER_US / 2);
    assert!(group.hand_over(second, first).unwrap_err().contains("drained"));
    assert!(group.hand_over(second, second).unwrap_err().contains("leads already"));
    assert!(group.hand_over(third, first).unwrap_err().contains("does not lead"));
    group.hand_over(second, third).unwrap();
    group.pass(50_000, |group| group.leader() == Some(third));
    group.writes(first, "moved");
    group.gone.insert(third);
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    assert_eq!(group.leader(), Some(second), "the drained one votes, and is no candidate");
    group.writes(first, "elected");
    group.drain(first, false);
    group.wait(2 * FAILOVER_US);
    group.hand_over(second, first).unwrap();
    group.pass(50_000, |group| group.leader() == Some(first));
    group.writes(second, "resumed");
}

/// Whoever leads goes on while nobody else may, and hands over as soon as somebody can.
#[test]
fn a_drained_leader_goes_on_while_all_others_are_drained_too() {
    let mut group = Group::new();
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    others.iter().for_each(|other| group.drain(*other, true));
    group.wait(FAILOVER_US / 2);
    group.drain(leader, true);
    for _ in 0..10 {
        group.wait(FAILOVER_US);
        assert_eq!(group.leader(), Some(leader));
        group.writes(others[0], "nobody else may");
    }
    group.drain(others[1], false);
    group.pass(2 * FAILOVER_US, |group| group.leader() == Some(others[1]));
    group.writes(leader, "handed over");
}

/// Replicas that have never decided anything have a leader, with its lease, as soon as they hear each other.
#[test]
fn new_replicas_have_a_leader_at_once() {
    let mut group = Group::new();
    // One of them is not there.
    group.gone.insert(2);
    (0..2).for_each(|replica| group.with(replica, |server, now, out| server.server().convene(now, out)));
    let took_us = group.pass(FAILOVER_US, |group| group.leader().is_some());
    assert!(took_us <= 20_000 && group.leader() == Some(0), "{took_us} us");
    let write = group.execute(1, put("first"));
    let took_us = group.pass(FAILOVER_US, |group| group.done.contains_key(&(1, write)));
    assert!(took_us <= 20_000 && matches!(group.done[&(1, write)], Outcome::Written(_)), "{took_us} us: {:?}", group.done);
}

/// A seat that has moved: who comes there with nothing is nobody, however often it starts before the group has taken it in, and then somebody else than the member before; who comes back with what it had is who it was.
#[test]
fn who_comes_to_a_seat_with_nothing_is_nobody_and_who_comes_back_with_everything_is_who_it_was() {
    for protocol in ["eventual", "session", "strong"] {
        let mut group = Group::of(protocol);
        group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
        let leader = group.leader().unwrap();
        let (stays, moves) = ((leader + 1) % 3, (leader + 2) % 3);
        group.writes(stays, "before");
        group.wait(FAILOVER_US);
        // It goes and comes back with its disk: nobody has to agree to anything.
        let old = std::mem::replace(&mut group.servers[moves], open(protocol, moves, true)).halt(Halt::Kill);
        group.seat(moves, old.restart.start(config(moves, true)).unwrap());
        assert_eq!(group.membership(moves), Membership::Counts(0), "{protocol}");
        // Now it goes for good. Alone, who comes is nobody, and again after a restart.
        group.gone.insert(moves);
        for _ in 0..2 {
            group.seat(moves, open(protocol, moves, true));
            group.wait(FAILOVER_US / 2);
            assert_eq!(group.membership(moves), Membership::Nobody, "{protocol}");
        }
        group.gone.remove(&moves);
        group.pass(10 * FAILOVER_US, |group| group.membership(moves) == Membership::Counts(1));
        // It has what the group has: with it, one more may die.
        group.gone.insert(stays);
        group.pass(20 * FAILOVER_US, |group| group.leader().is_some());
        group.writes(if group.leader() == Some(moves) { leader } else { moves }, "after");
        // It is that member from now on, wherever its seat was before.
        let taken = std::mem::replace(&mut group.servers[moves], open(protocol, moves, true)).halt(Halt::Kill);
        group.seat(moves, taken.restart.start(config(moves, true)).unwrap());
        assert_eq!(group.membership(moves), Membership::Counts(1), "{protocol}");
    }
}

impl Group {
    /// `candidate` asks `voter` for its vote in `term`, with a log that is longer than any; says what is answered before the disk has it and after.
    fn votes(&mut self, voter: usize, candidate: usize, term: u64) -> (Vec<bool>, Vec<bool>) {
        let mut message =
            Message { from: candidate as u64 + 1, to: voter as u64 + 1, term, index: 1 << 40, log_term: term - 1, ..Message::default() };
        message.set_msg_type(MessageType::MsgRequestVote);
        let frame = Frame::Raft(RaftMessage::of(message).unwrap()).to_bytes();
        let now = Now { monotonic_us: self.now_us, physical_ms: 1_700_000_000_000 + self.now_us / 1000 };
        let server = &mut self.servers[voter];
        let given = |out: &mut Outbox| {
            let messages = std::mem::take(&mut out.frames).into_iter().filter_map(|(_, frame)| match Frame::from_bytes(&frame) {
                Ok(Frame::Raft(message)) => Some(message.into_library()),
                _ => None,
            });
            messages.filter(|message| message.get_msg_type() == MessageType::MsgRequestVoteResponse).map(|message| !message.reject).collect()
        };
        let mut out = Outbox::default();
        server.server().receive(now, id(candidate), &frame, &mut out);
        server.server().end_round(now, &mut out);
        let before = given(&mut out);
        while let Some(job) = server.server().poll_flush(now) {
            let flushed = job.run();
            server.server().end_flush(now, flushed, &mut out);
        }
        (before, given(&mut out))
    }
}

/// A vote is on disk before it is given; a member that starts again gives none for a while, since it does not know whom it has told that it votes for nobody else, and in no term a second one.
#[test]
fn a_vote_is_given_once_and_when_it_is_on_disk_and_not_just_after_a_start() {
    let mut group = Group::new();
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let (voter, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.writes(voter, "before");
    group.gone.extend([leader, other]);
    group.wait(3 * FAILOVER_US);
    assert_eq!(group.votes(voter, other, 1_000), (vec![], vec![true]), "it is given when it is on disk");
    assert_eq!(group.votes(voter, leader, 1_000).1, [false; 0], "one vote in a term");
    let old = std::mem::replace(&mut group.servers[voter], open("eventual", voter, false)).halt(Halt::PowerLoss);
    group.seat(voter, old.restart.start(config(voter, false)).unwrap());
    assert_eq!(group.votes(voter, other, 1_001), (vec![], vec![]), "it may have promised a lease");
    group.wait(2 * FAILOVER_US);
    let (before, after) = group.votes(voter, leader, 1_000);
    assert!(!before.contains(&true) && !after.contains(&true), "it has voted for another one in this term");
    assert_eq!(group.votes(voter, leader, 1_001), (vec![], vec![true]));
}

/// A member whose disk was emptied, and who does not know it, lets pass what speaks of entries that it does not have; the group goes on.
#[test]
fn a_member_whose_disk_was_emptied_unnoticed_goes_on_and_so_does_its_group() {
    let mut group = Group::new();
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let (emptied, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.writes(other, "before");
    group.wait(FAILOVER_US);
    group.seat(emptied, open("eventual", emptied, false));
    group.wait(3 * FAILOVER_US);
    group.writes(other, "with the leader");
    assert!(!group.servers[emptied].look().failed());
}

fn get(key: &str, dial: Dial) -> Operation {
    Operation::Get { key: Key::from(key.as_bytes()), dial }
}

impl Group {
    /// What `replica` answers by itself, at once; `None` if it asks another one.
    fn reads(&mut self, replica: usize, operation: Operation) -> Option<Read> {
        let mut session = self.servers[replica].look().new_session();
        match self.with(replica, |server, now, out| server.server().execute(now, operation, &mut session, out)) {
            Execution::Done { outcome: Outcome::Read(read, quality), .. } => {
                assert_eq!((quality.level, quality.staleness_ms), (Level::Eventual, None));
                Some(read)
            }
            Execution::Done { outcome, .. } => panic!("{outcome:?}"),
            Execution::Waiting(_) => None,
        }
    }

    fn gauge(&self, replica: usize, name: &str) -> f64 {
        let now = Now { monotonic_us: self.now_us, physical_ms: 1_700_000_000_000 + self.now_us / 1000 };
        let status = self.servers[replica].look().status(now);
        status.gauges.iter().find(|(gauge, _)| *gauge == name).unwrap().1
    }
}

/// At level eventual a follower answers by itself, from what was decided, also while nobody leads. Whatever asks for more, or is a counter, waits for who leads.
#[test]
fn a_follower_answers_at_level_eventual() {
    let mut group = Group::of("causal");
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let (follower, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let at_eventual = Dial::at(Level::Eventual);
    assert_eq!(group.reads(follower, get("k", at_eventual)), Some(Read::default()), "nothing is there yet");
    group.writes(follower, "one");
    let expires_ms = 1_700_000_000_000 + group.now_us / 1000 + 1500;
    let item = Item { key: Key::from(&b"brief"[..]), value: Some(Key::from(&b"soon"[..])), expires_ms };
    let write = group.execute(follower, Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() });
    let counter = NewCounter { lower: Some(0), initial: 7, ..NewCounter::default() };
    let create = CounterCall::Create { key: Key::from(&b"n"[..]), counter };
    let create = group.execute(follower, Operation::Counter { call: create, dial: Dial::default() });
    group.pass(FAILOVER_US, |group| [write, create].iter().all(|op| group.done.contains_key(&(follower, *op))));
    // A session whose write is not applied here yet is answered by the leader; who has written nothing, from what is here.
    let (early, mut session) = (get("k", at_eventual), group.servers[leader].look().new_session());
    let written = group.with(leader, |server, now, out| server.server().execute(now, put("two"), &mut session, out));
    assert!(matches!(written, Execution::Done { outcome: Outcome::Written(_), .. }), "{written:?}");
    let own = group.with(follower, |server, now, out| server.server().execute(now, early.clone(), &mut session, out));
    assert!(matches!(own, Execution::Waiting(_)), "{own:?}");
    assert_eq!(group.reads(follower, early).and_then(|read| read.value).as_deref(), Some(&b"one"[..]));
    // What is decided is told with the next question for the lease.
    group.wait(FAILOVER_US / 4);
    let own = group.with(follower, |server, now, out| server.server().execute(now, get("k", at_eventual), &mut session, out));
    assert!(matches!(own, Execution::Done { outcome: Outcome::Read(..), .. }), "{own:?}");

    let read = group.reads(follower, get("k", at_eventual)).expect("it is here");
    assert_eq!(read.value.as_deref(), Some(&b"two"[..]));
    let brief = group.reads(follower, get("brief", at_eventual)).expect("it is here");
    assert_eq!((brief.value.as_deref(), brief.expires_ms), (Some(&b"soon"[..]), expires_ms));
    assert_eq!(group.gauge(follower, "reads_at_follower"), 5.0);
    let counted = group.execute(follower, get("n", at_eventual));
    group.pass(FAILOVER_US, |group| group.done.contains_key(&(follower, counted)));
    let Outcome::Read(found, _) = &group.done[&(follower, counted)] else { panic!("{:?}", group.done[&(follower, counted)]) };
    assert_eq!(found.value.as_deref(), Some(&b"7"[..]), "the number, and not what stands for it");

    // Nobody leads: the two others are gone.
    group.gone.extend([leader, third]);
    group.wait(5 * FAILOVER_US);
    assert_eq!(group.leader(), None);
    assert_eq!(group.reads(follower, get("k", at_eventual)).and_then(|read| read.value).as_deref(), Some(&b"two"[..]));
    let brief = group.reads(follower, get("brief", at_eventual)).expect("it was here");
    assert_eq!((brief.value, brief.expires_ms), (None, 0), "it has expired");
    for more in [Dial::default(), Dial::at(Level::Causal), Dial { fresh_ms: Some(1_000_000), ..at_eventual }] {
        assert_eq!(group.reads(follower, get("k", more)), None, "{more:?}");
    }
    assert_eq!(group.reads(follower, get("n", at_eventual)), None, "a counter is its owner's to tell");
    assert_eq!(group.reads(follower, Operation::ReadTransaction { keys: vec![Key::from(&b"k"[..])], dial: at_eventual }), None);
}

/// Nobody leads, and a read of any kind that has a bound is told so then.
#[test]
fn a_read_waits_for_who_leads_no_longer_than_its_bound() {
    let mut group = Group::of("quorum");
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let (follower, third) = ((leader + 1) % 3, (leader + 2) % 3);
    group.gone.extend([leader, third]);
    group.wait(5 * FAILOVER_US);
    let (key, dial) = (|| Key::from(&b"k"[..]), Dial { within_us: Some(50_000), ..Dial::default() });
    let reads = [
        get("k", dial),
        Operation::ReadTransaction { keys: vec![key()], dial },
        Operation::Siblings { key: key(), dial },
        Operation::Counter { call: CounterCall::Look { key: key() }, dial },
        Operation::Transact { actions: vec![Action::Get(key())], guards: Vec::new(), dial },
    ];
    let asked = reads.map(|read| group.execute(follower, read));
    group.pass(FAILOVER_US, |group| asked.iter().all(|op| group.done.contains_key(&(follower, *op))));
    let is_late = |op: &OpId| matches!(&group.done[&(follower, *op)], Outcome::Failed(Failure::Timeout(_)));
    assert!(asked.iter().all(is_late), "{:?}", group.done);
}

/// Where a quorum answers, none of its members answers for it.
#[test]
fn a_follower_in_quorum_answers_nothing_by_itself() {
    let mut group = Group::of("quorum");
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let follower = (group.leader().unwrap() + 1) % 3;
    assert_eq!(group.reads(follower, get("k", Dial::at(Level::Eventual))), None);
}

/// Whoever is nobody, since its disk is lost, lacks what it once had, and answers nothing by itself.
#[test]
fn a_member_that_has_lost_its_disk_answers_nothing_by_itself() {
    let mut group = Group::of("causal");
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let lost = (leader + 1) % 3;
    group.writes(lost, "one");
    group.gone.extend((0..3).filter(|replica| *replica != lost));
    group.seat(lost, open("causal", lost, true));
    group.wait(FAILOVER_US);
    assert_eq!(group.reads(lost, get("k", Dial::at(Level::Eventual))), None);
}

/// Who is being filled lacks keys that have been there for long: it answers nothing by itself before it counts, not after a restart in the middle either.
#[test]
fn a_member_that_is_being_filled_answers_nothing_by_itself_until_it_counts() {
    let mut group = Group::keeping(2_000);
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let comes = (leader + 1) % 3;
    for n in 0..40 {
        group.puts(leader, &format!("large {n}"), 64 << 10);
        group.wait(1_000);
    }
    group.wait(FAILOVER_US);
    let read = || get("large 39", Dial::at(Level::Eventual));
    group.seat(comes, open("eventual", comes, true));
    group.slow = Some(comes);
    group.pass(20 * FAILOVER_US, |group| group.membership(comes) == Membership::Learns(1));
    assert_eq!(group.reads(comes, read()), None, "it learns, and has not heard of the snapshot");
    group.pass(20 * FAILOVER_US, |group| group.gauge(comes, "pages_taken") >= 2.0);
    assert_eq!((group.gauge(comes, "installing_snapshot"), group.reads(comes, read())), (1.0, None));
    let half = std::mem::replace(&mut group.servers[comes], open("eventual", comes, true)).halt(Halt::Kill);
    group.seat(comes, half.restart.start(config(comes, true)).unwrap());
    assert_eq!((group.membership(comes), group.gauge(comes, "installing_snapshot")), (Membership::Learns(1), 0.0));
    assert_eq!(group.reads(comes, read()), None, "some pages are there");
    group.pass(60 * FAILOVER_US, |group| group.membership(comes) == Membership::Counts(1));
    assert_eq!(group.reads(comes, read()).and_then(|read| read.value).map(|value| value.len()), Some(64 << 10));
}

/// Who was given some pages by a leader that is gone has no state, until the next one has given it the rest.
#[test]
fn a_member_that_was_given_some_pages_answers_nothing_by_itself_until_it_has_caught_up() {
    let mut group = Group::keeping(2_000);
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let (away, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.gone.insert(away);
    for n in 0..40 {
        group.puts(leader, &format!("large {n}"), 64 << 10);
        group.wait(1_000);
    }
    group.wait(FAILOVER_US);
    group.gone.remove(&away);
    group.slow = Some(away);
    group.pass(20 * FAILOVER_US, |group| group.gauge(away, "pages_taken") >= 2.0);
    // Nobody is left who could give it more.
    group.gone.extend([leader, other]);
    group.pass(20 * FAILOVER_US, |group| group.gauge(away, "installing_snapshot") == 0.0);
    let read = || get("large 39", Dial::at(Level::Eventual));
    assert_eq!(group.reads(away, read()), None);
    group.gone.remove(&other);
    group.pass(60 * FAILOVER_US, |group| group.leader() == Some(other) && group.gauge(away, "applied_index") >= group.gauge(other, "applied_index"));
    assert_eq!(group.reads(away, read()).and_then(|read| read.value).map(|value| value.len()), Some(64 << 10));
}

/// Pages that a restart has cut short bring the newest that was written here before what went before it: a session that wrote some of that is answered by the leader, until all pages are here.
#[test]
fn a_member_whose_pages_were_cut_short_by_a_restart_leaves_to_the_leader_who_has_written() {
    let configured = |replica: usize| {
        let mut config = config(replica, false);
        config.place.data_centers = 2;
        config.group.keep_bytes = 2_000;
        config
    };
    let mut group = Group::around((0..3).map(|replica| open_with("eventual", configured(replica))).collect());
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let away = (leader + 1) % 3;
    group.writes(away, "before");
    group.gone.insert(away);
    let mut session = group.servers[leader].look().new_session();
    let written = group.with(leader, |server, now, out| server.server().execute(now, put("mine"), &mut session, out));
    assert!(matches!(written, Execution::Done { outcome: Outcome::Written(_), .. }), "{written:?}");
    for n in 0..40 {
        group.puts(leader, &format!("large {n}"), 64 << 10);
        group.wait(1_000);
    }
    group.wait(FAILOVER_US);
    // The other data center has all of it, so that the log of own updates lets it go, and nothing of what follows.
    let durable = group.servers[leader].look().reached().get(DcId(0));
    let acknowledge = LinkFrame::<()>::Acknowledge { durable, holds: TimestampVector::new() }.to_bytes();
    let acknowledge = Frame::Inside(1, Value::from(acknowledge)).to_bytes();
    let there = ServerId { dc: DcId(1), ..id(0) };
    group.with(leader, |server, now, out| server.server().receive(now, there, &acknowledge, out));
    group.wait(FAILOVER_US);
    group.puts(leader, "after", 1);
    group.wait(FAILOVER_US / 4);
    group.gone.remove(&away);
    group.slow = Some(away);
    group.pass(20 * FAILOVER_US, |group| group.gauge(away, "pages_taken") >= 1.0);
    // What it has taken comes to its disk, and nothing more comes.
    group.gone.extend([leader, (leader + 2) % 3]);
    group.wait(FAILOVER_US / 5);
    group.gone.clear();
    let half = std::mem::replace(&mut group.servers[away], open_with("eventual", configured(away))).halt(Halt::Kill);
    group.seat(away, half.restart.start(configured(away)).unwrap());
    group.pass(FAILOVER_US, |group| group.leader() == Some(leader));
    assert_eq!((group.gauge(away, "pages_taken"), group.gauge(away, "installing_snapshot")), (0.0, 0.0));
    let read = || get("k", Dial::at(Level::Eventual));
    // Its numbers of operations have begun anew.
    group.done.clear();
    let own = group.with(away, |server, now, out| server.server().execute(now, read(), &mut session, out));
    let Execution::Waiting(op) = own else { panic!("{own:?}") };
    group.pass(FAILOVER_US, |group| group.done.contains_key(&(away, op)));
    let Outcome::Read(found, _) = &group.done[&(away, op)] else { panic!("{:?}", group.done[&(away, op)]) };
    assert_eq!(found.value.as_deref(), Some(&b"mine"[..]));
    group.slow = None;
    group.pass(20 * FAILOVER_US, |group| group.gauge(away, "pages_taken") >= 2.0 && group.gauge(away, "installing_snapshot") == 0.0);
    let own = group.with(away, |server, now, out| server.server().execute(now, read(), &mut session, out));
    let Execution::Done { outcome: Outcome::Read(found, _), .. } = own else { panic!("{own:?}") };
    assert_eq!(found.value.as_deref(), Some(&b"mine"[..]));
}

/// Another data center has the place of one that is lost: its leaders count their terms anew.
#[test]
fn who_leads_in_the_place_of_a_lost_data_center_is_heard_from_the_first_term_on() {
    let servers = (0..3).map(|replica| {
        let mut config = config(replica, false);
        config.place.data_centers = 2;
        open_with("eventual", config)
    });
    let mut group = Group::around(servers.collect());
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let there = ServerId { dc: DcId(1), ..id(0) };
    let is_answered = |group: &mut Group, term: u64| {
        group.with(leader, |server, now, out| {
            server.server().receive(now, there, &Frame::Greeting(term, true).to_bytes(), out);
            out.frames.iter().any(|(to, frame)| *to == there && matches!(Frame::from_bytes(frame), Ok(Frame::Greeting(_, false))))
        })
    };
    let admit = |group: &mut Group, open: bool| group.with(leader, |server, now, out| server.server().admit(now, there.dc, 1, open, out));
    assert!(is_answered(&mut group, 7) && !is_answered(&mut group, 1));
    group.with(leader, |server, now, out| server.server().lose(now, there.dc, None, out));
    assert!(!is_answered(&mut group, 1));
    admit(&mut group, false);
    assert!(is_answered(&mut group, 2));
    admit(&mut group, true);
    assert!(!is_answered(&mut group, 1), "that term is over there");
}

/// Who is given pages goes on with the entries after the snapshot, of which one may bring an older write of a key that has been deleted; whether all others have let go of the deletion, it may never hear.
#[test]
fn a_deletion_stays_while_a_member_is_given_pages() {
    let mut group = Group::keeping(2_000);
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let away = (leader + 1) % 3;
    let delete = |group: &mut Group, key: &str| {
        group.puts(leader, key, 1);
        let item = Item { key: Key::from(key.as_bytes()), value: None, expires_ms: 0 };
        let operation = Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() };
        let mut session = group.servers[leader].look().new_session();
        let done = group.with(leader, |server, now, out| server.server().execute(now, operation, &mut session, out));
        assert!(matches!(done, Execution::Done { outcome: Outcome::Written(_), .. }), "{done:?}");
    };
    let held = |group: &mut Group, key: &str| group.with(leader, |server, now, _| server.look().peek(now, key.as_bytes()).map(|(_, live)| live));
    group.gone.insert(away);
    for n in 0..40 {
        group.puts(leader, &format!("large {n}"), 64 << 10);
        group.wait(1_000);
    }
    delete(&mut group, "before");
    // Longer than one that is silent holds anything up.
    group.wait(6 * FAILOVER_US);
    assert_eq!(held(&mut group, "before"), None);
    group.gone.remove(&away);
    group.slow = Some(away);
    group.pass(20 * FAILOVER_US, |group| group.gauge(away, "pages_taken") >= 2.0);
    delete(&mut group, "meanwhile");
    group.wait(FAILOVER_US / 4);
    assert_eq!(group.gauge(away, "installing_snapshot"), 1.0);
    assert_eq!(held(&mut group, "meanwhile"), Some(false));
    group.pass(60 * FAILOVER_US, |group| group.gauge(away, "applied_index") >= group.gauge(leader, "applied_index"));
    group.wait(FAILOVER_US);
    assert_eq!(held(&mut group, "meanwhile"), None);
}

/// Who answers a leader's heartbeat has its term on disk: else it could vote for somebody else in that term after a loss of power.
#[test]
fn a_heartbeat_of_a_new_term_is_answered_when_the_term_is_on_disk() {
    let mut group = Group::new();
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let member = (leader + 1) % 3;
    group.writes(member, "before");
    group.gone.extend([leader, (leader + 2) % 3]);
    for (term, new) in [(1_000, true), (1_000, false), (1_001, true)] {
        let mut message = Message { from: leader as u64 + 1, to: member as u64 + 1, term, ..Message::default() };
        message.set_msg_type(MessageType::MsgHeartbeat);
        let frame = Frame::Raft(RaftMessage::of(message).unwrap()).to_bytes();
        let now = Now { monotonic_us: group.now_us, physical_ms: 1_700_000_000_000 + group.now_us / 1000 };
        let server = &mut group.servers[member];
        let answers = |out: &mut Outbox| {
            let frames = std::mem::take(&mut out.frames).into_iter();
            let messages = frames.filter_map(|(_, frame)| match Frame::from_bytes(&frame) {
                Ok(Frame::Raft(message)) => Some(message.into_library()),
                _ => None,
            });
            messages.filter(|message| message.get_msg_type() == MessageType::MsgHeartbeatResponse && message.term == term).count()
        };
        let mut out = Outbox::default();
        server.server().receive(now, id(leader), &frame, &mut out);
        server.server().end_round(now, &mut out);
        let before = answers(&mut out);
        while let Some(job) = server.server().poll_flush(now) {
            let flushed = job.run();
            server.server().end_flush(now, flushed, &mut out);
        }
        assert_eq!((before, before + answers(&mut out)), (usize::from(!new), 1), "term {term}, new: {new}");
    }
}

/// A member that is well does not say that it has failed, whether it leads or follows.
#[test]
fn members_that_are_well_have_not_failed() {
    let mut group = Group::new();
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    group.writes((leader + 1) % 3, "well");
    assert_eq!([0, 1, 2].map(|replica| group.servers[replica].look().failed()), [false; 3]);
}

/// An entry costs messages and flushes at every member. So while entries are under way, writes gather until they are as many as those in all of them; when something is decided, what has gathered goes at once.
#[test]
fn writes_gather_while_as_many_are_under_way() {
    let mut group = Group::new();
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let entries = |group: &Group| group.gauge(leader, "log_entries") as u64;
    let write = |group: &mut Group| {
        let mut session = group.servers[leader].look().new_session();
        match group.with(leader, |server, now, out| server.server().execute(now, put("value"), &mut session, out)) {
            Execution::Done { outcome: Outcome::Written(_), after } => after,
            other => panic!("{other:?}"),
        }
    };
    let decided = |group: &Group, after| group.servers[leader].look().durable() >= after;
    let first = write(&mut group);
    group.pass(FAILOVER_US, |group| decided(group, first));
    let before = entries(&group);
    // Nothing arrives at the others from here on.
    let mut last = first;
    let mut proposed = Vec::new();
    for _ in 0..28 {
        last = write(&mut group);
        proposed.push(entries(&group) - before);
    }
    assert_eq!(proposed[..8], [1, 2, 2, 3, 3, 3, 3, 4], "one, one more, two together, four together");
    assert!(proposed[8..].iter().all(|count| *count == 4), "no more than four are under way: {proposed:?}");
    assert!(!decided(&group, first.max(last)));
    group.pass(FAILOVER_US, |group| decided(group, last));
    assert_eq!(entries(&group) - before, 5, "the rest went together");
}

impl Group {
    /// The receiver of `message`, of this kind, hears it.
    fn tell(&mut self, mut message: Message, kind: MessageType) {
        message.set_msg_type(kind);
        let (from, to) = (message.from as usize - 1, message.to as usize - 1);
        let frame = Frame::Raft(RaftMessage::of(message).unwrap()).to_bytes();
        self.deliver(from, to, &frame);
    }

    /// The leader takes a write of so many bytes; it need not be decided.
    fn puts(&mut self, leader: usize, key: &str, bytes: usize) {
        let item = Item { key: Key::from(key.as_bytes()), value: Some(Key::from(vec![b'v'; bytes])), expires_ms: 0 };
        let operation = Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() };
        let mut session = self.servers[leader].look().new_session();
        let done = self.with(leader, |server, now, out| server.server().execute(now, operation, &mut session, out));
        assert!(matches!(done, Execution::Done { outcome: Outcome::Written(_), .. }), "{done:?}");
    }
}

/// Who has answered a leader, which may have its lease from that, votes for nobody else for as long: also if a candidate that is gone again refuses a vote, so that the term is a later one, in which nobody is known to lead.
#[test]
fn what_a_leader_was_promised_is_kept_in_a_later_term_too() {
    let mut group = Group::new();
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let (voter, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.writes(voter, "before");
    // From here on the voter hears only what is told.
    group.gone.extend([leader, other]);
    group.wait(3 * FAILOVER_US);
    group.gone.clear();
    let message = |from: usize, term| Message { from: from as u64 + 1, to: voter as u64 + 1, term, ..Message::default() };
    group.tell(message(leader, 1_000), MessageType::MsgHeartbeat);
    group.tell(Message { reject: true, ..message(other, 1_001) }, MessageType::MsgRequestPreVoteResponse);
    group.gone.extend([leader, other]);
    assert_eq!((group.gauge(voter, "term"), group.gauge(voter, "leader_known")), (1_001.0, 0.0), "the library has forgotten");
    assert_eq!(group.votes(voter, other, 1_002), (vec![], vec![]));
    // The leader's lease is a tick shorter than an election's time, and so is the promise.
    group.wait(FAILOVER_US / 8 * 7 - 1_000);
    assert_eq!(group.votes(voter, other, 1_002), (vec![], vec![]));
    group.wait(1_000);
    assert_eq!(group.votes(voter, other, 1_002), (vec![], vec![true]), "and no longer");
}

/// The entries after a snapshot stay while a member is given its pages, and until it has caught up. Else it would be given the next one after it, and so on for as long as anything is written. Who does not come back holds nothing up for long.
#[test]
fn a_member_that_was_away_catches_up_while_writing_goes_on() {
    const KEEP: usize = 2_000;
    let mut group = Group::keeping(KEEP);
    group.pass(10 * FAILOVER_US, |group| group.leader().is_some());
    let leader = group.leader().unwrap();
    let away = (leader + 1) % 3;
    group.gone.insert(away);
    for n in 0..40 {
        group.puts(leader, &format!("large {n}"), 64 << 10);
        group.wait(1_000);
    }
    group.wait(FAILOVER_US);
    group.gone.remove(&away);
    // A page every 20 ms, while more is logged each millisecond than is kept for long.
    group.slow = Some(away);
    let (mut is_given, mut times) = (false, 0);
    for _ in 0..4_000 {
        group.puts(leader, "k", 300);
        group.wait(1_000);
        let was_given = std::mem::replace(&mut is_given, group.gauge(away, "installing_snapshot") > 0.0);
        times += u32::from(is_given && !was_given);
    }
    assert_eq!((times, is_given), (1, false), "pages of one snapshot are enough");
    let lacks = group.gauge(leader, "applied_index") - group.gauge(away, "applied_index");
    assert!(lacks < 200.0, "{lacks}");
    assert!(group.gauge(away, "pages_taken") >= 20.0, "it took a while");
    group.gone.insert(away);
    for _ in 0..300 {
        group.puts(leader, "k", 300);
        group.wait(1_000);
    }
    group.wait(5 * FAILOVER_US);
    assert!(group.gauge(leader, "log_bytes") <= KEEP as f64, "{}", group.gauge(leader, "log_bytes"));
}
