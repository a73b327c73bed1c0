//! What a server does. The one that is asked does what the paper's client does: it asks the others, and decides.

use super::client::QuorumClient;
use super::context::{Context, Coverage, MOST_SIBLINGS, replaces, replaces_by_vector};
use super::message::{Asked, Message, Reply, Request};
use super::options::{QuorumOptions, Resolver};
use super::rounds::{Question, Rounds, Then};
use super::standing::{Answer, Replaces, known, merge, undominated};
use crate::change;
use crate::gather::{Gather, TransactionId, by_partition};
use crate::stability;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial;
use rheostat_core::dial::Level;
use rheostat_core::failure::Failure;
use rheostat_core::gauge::Gauge;
use rheostat_core::ids::{Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::outcome::Outcome;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::{Call, Card, Protocol, Start};
use rheostat_core::replica::QUIET_US;
use rheostat_core::reserved::is_reserved;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::{Cut, History, Store};
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use rheostat_core::wire::Wire;
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const HEARTBEAT: u8 = 0;
/// Looks for rounds in which too few have answered.
const ROUND: u8 = 1;

/// The most questions of other replicas that wait here; who asks more asks again.
const MOST_AWAITED: usize = 10_000;

/// The longest key that a context can name: it is part of the session's token.
const MOST_NAMED_BYTES: usize = 8192;

/// One partition server's state.
pub struct Quorum {
    place: Place,
    options: QuorumOptions,
    planted: Planted,
    /// Per data center, up to where its updates have arrived here.
    received: TimestampVector,
    /// The first write that was made here on this disk.
    since: Option<Timestamp>,
    rounds: Rounds,
    /// Whether the timer of rounds runs.
    watching: bool,
    /// Replicas that wait until what they have written up to a time is here, and their rounds.
    awaited: VecDeque<(DcId, Timestamp, u64)>,
    /// With each, up to where everything was known to all that have answered.
    transactions: Gather<Timestamp>,
}

/// What a version has seen it replaces; a tombstone is done with when every data center has been heard past it.
pub struct QuorumCut {
    complete: Timestamp,
    history: History,
    replaces: Replaces,
    /// A planted bug.
    forgets: bool,
}

impl Cut<Context> for QuorumCut {
    const SIBLINGS: bool = true;

    /// Not before what it had itself replaced needs it no more: that may come later.
    fn replaces(&self, newer: &Version<Context>, older: &Version<Context>) -> bool {
        (self.replaces)(newer, older) && (newer.meta.includes(&older.meta) || self.complete(older.id.written) || self.forgets)
    }

    fn settled(&self, _: &Version<Context>) -> bool {
        true
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.complete
    }

    fn history(&self) -> History {
        self.history
    }
}

impl Quorum {
    fn replaces(&self) -> Replaces {
        if self.options.published { replaces_by_vector } else { replaces }
    }

    fn peer(&self, dc: DcId) -> ServerId {
        ServerId::new(dc, self.place.server.partition)
    }

    /// The numbers of an operation on `keys`. A key that counters keep for themselves is written by one data center only, and read where it is, whatever is there: R is 0.
    fn numbers(&self, asked: dial::Quorum, mut keys: impl Iterator<Item = impl AsRef<[u8]>>) -> Result<dial::Quorum, Failure> {
        if keys.any(|key| is_reserved(key.as_ref())) {
            return Ok(dial::Quorum { reads: 0, ..dial::Quorum::ALONE });
        }
        self.options.numbers(asked, self.place.data_centers).map_err(Failure::Refused)
    }

    fn coverage<S: Store<Context>>(&self, step: &Step<'_, Self, S>) -> Coverage {
        let here = self.place.dc();
        let mut upto = self.received.clone();
        upto.set(here, step.clock.last());
        let whole = !step.filling || self.planted.is("counts-while-it-is-filled");
        let since = if step.refilled() { Timestamp::ZERO } else { self.since.unwrap_or(Timestamp::MAX) };
        Coverage { server: here.0, upto, since, whole }
    }

    /// Whether this replica is enough for a read of `quorum`. It is not while it gets again what it has lost.
    fn is_enough<S: Store<Context>>(&self, step: &Step<'_, Self, S>, quorum: dial::Quorum) -> bool {
        quorum.reads <= u8::from(!step.filling || self.planted.is("counts-while-it-is-filled"))
    }

    /// What is here of `keys`.
    fn answer<S: Store<Context>>(&self, step: &mut Step<'_, Self, S>, keys: &[Key]) -> Answer {
        let versions: Vec<Vec<Version<Context>>> = keys.iter().map(|key| step.store.chain(key)).collect();
        let mut coverage = self.coverage(step);
        if !coverage.whole && self.since.is_none() && !step.refilled() {
            // What it wrote on a disk that was lost comes back in order: up to the last of it that is here it knows all, and not beyond.
            let here = self.place.dc();
            let last = versions.iter().flatten().filter(|version| version.id.origin == here).map(|version| version.id.written).max();
            coverage.upto.set(here, last.unwrap_or(Timestamp::ZERO));
        }
        Answer { versions, coverage }
    }

    /// What a reader gets of the versions that stand, greatest first.
    fn resolve(&self, standing: &[Version<Context>], now_ms: u64) -> Read {
        let Some(newest) = standing.first() else { return Read::default() };
        let live = || standing.iter().filter_map(|version| version.live(now_ms).map(|value| (version, value)));
        let merged = || self.options.resolver.merge(live().map(|(_, value)| &value[..]));
        match (self.options.resolver, live().next()) {
            (Resolver::Union | Resolver::Counters, Some((_, value))) => {
                let several = live().nth(1).and_then(|_| merged());
                let value = several.map_or_else(|| value.clone(), Into::into);
                let expires_ms = live().map(|(version, _)| version.expires_ms).max_by_key(|at| if *at == 0 { u64::MAX } else { *at });
                Read { value: Some(value), version: Some(newest.id), expires_ms: expires_ms.unwrap_or(0) }
            }
            _ => Read::of(newest, now_ms),
        }
    }

    /// The value of `key` for whoever asks this replica alone.
    fn newest<S: Store<Context>>(&self, step: &mut Step<'_, Self, S>, key: &Key) -> Read {
        match self.options.resolver {
            Resolver::LastWriter => stability::newest(step, key),
            Resolver::Union | Resolver::Counters => {
                let standing = undominated(step.store.chain(key), self.replaces());
                self.resolve(&standing, step.now.physical_ms)
            }
        }
    }

    fn quality(&self, now: Now, known: &TimestampVector) -> Quality {
        stability::quality(&self.place, now, Level::Eventual, known)
    }

    /// Whether plain writes replace each other by time.
    fn overwrites(&self) -> bool {
        self.options.resolver == Resolver::LastWriter && !self.options.published
    }

    /// Writes `items` over whatever is there, of which so much is known.
    fn overwrite<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, items: SmallVec<[Item; 1]>, seen: Context) -> VersionId {
        self.write(step, items, seen, self.overwrites())
    }

    /// Writes `items` in the place of what `seen` says; with `over`, of all that is written so and older too.
    fn write<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, items: SmallVec<[Item; 1]>, seen: Context, over: bool) -> VersionId {
        let after = if self.planted.is("timestamp-below-what-was-seen") { Timestamp::ZERO } else { seen.vector().max() };
        let id = VersionId { written: step.tick_after(after), origin: self.place.dc() };
        if self.since.is_none() {
            self.since = Some(id.written);
            step.persist(id.written.to_bytes());
        }
        let meta = if over { seen.overwriting(id) } else { seen };
        step.write(Update { id, items, meta });
        id
    }

    /// Asks the other replicas; the answer of this one counts.
    fn ask<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, question: Question, quorum: dial::Quorum) {
        let round = self.rounds.open(step.now.monotonic_us, question, quorum);
        // The nearest number first, so that data centers do not all ask the same ones.
        let (here, all) = (usize::from(self.place.dc().0), usize::from(self.place.data_centers));
        for next in 1..usize::from(quorum.asked) {
            self.ask_one(step, round, DcId(((here + next) % all) as u8));
        }
        if !self.watching {
            self.watching = true;
            step.effects.timer(ROUND, self.options.round_ms * 1000);
        }
        self.look(step, round);
    }

    fn ask_one<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, round: u64, dc: DcId) {
        let message = match self.rounds.get(round).map(|open| &open.question) {
            // It may have become whole meanwhile.
            Some(Question::Read { keys, .. }) if dc == self.place.dc() => {
                let keys = keys.clone();
                let answer = self.answer(step, &keys);
                return self.on_answer(step, round, dc, answer);
            }
            Some(Question::Read { keys, .. }) => Message::Read { round, keys: keys.clone() },
            Some(Question::Write { upto, .. }) => Message::Await { round, upto: *upto },
            None => return,
        };
        step.effects.send_member(self.peer(dc), message, Departure::AsReply);
    }

    /// Replica `from` has answered a question of `round`.
    fn on_answer<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, round: u64, from: DcId, answer: Answer) {
        if let Some(open) = self.rounds.get(round)
            && let Question::Read { answers, keys, .. } = &mut open.question
            && answer.versions.len() == keys.len()
            && answer.coverage.server == from.0
        {
            answers.insert(from, answer);
            self.look(step, round);
        }
    }

    /// Goes on with `round` if enough have answered.
    fn look<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, round: u64) {
        let fewer = match self.rounds.get(round).map(|open| &open.question) {
            Some(Question::Read { .. }) => self.planted.is("fewer-answers-than-a-read-needs"),
            Some(Question::Write { .. }) => self.planted.is("fewer-answers-than-a-write-needs"),
            None => return,
        };
        if !self.rounds.get(round).is_some_and(|open| open.is_done(u8::from(fewer))) {
            return;
        }
        let Some(open) = self.rounds.close(round) else { return };
        match open.question {
            Question::Read { keys, then, answers } => self.have_read(step, keys, then, answers, open.quorum),
            Question::Write { op, reply, .. } => step.effects.reply(op, reply),
        }
    }

    fn have_read<S: Store<Context>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        keys: Vec<Key>,
        then: Then,
        mut answers: BTreeMap<DcId, Answer>,
        quorum: dial::Quorum,
    ) {
        // What has come here since the round began is known too: a write of now is newer, and must say whether it has seen it.
        if answers.len() > 1 && !self.planted.is("written-by-what-stood-before-the-round") {
            answers.insert(self.place.dc(), self.answer(step, &keys));
        }
        if self.planted.is("what-another-replica-had-is-not-asked") {
            answers.values_mut().for_each(|answer| answer.coverage.upto = TimestampVector::new());
        }
        let (replaces, now_ms) = (self.replaces(), step.now.physical_ms);
        let known = known(answers.values());
        let standing = |place: usize| merge(answers.values(), place, replaces);
        let all = |place: usize| answers.values().filter_map(move |answer| answer.versions.get(place)).flatten();
        match then {
            Then::Get(op) => {
                let read = self.resolve(&standing(0), now_ms);
                step.effects.reply(op, Reply::Get(read, self.quality(step.now, &known)));
            }
            Then::Siblings(op) => {
                let standing = standing(0);
                let reads = standing.iter().filter(|version| version.live(now_ms).is_some()).map(|version| Read::of(version, now_ms)).collect();
                let key = keys.into_iter().next().expect("one key was asked for");
                let quality = self.quality(step.now, &known);
                step.effects.reply(op, Reply::Siblings { key, reads, seen: Context::upto(known).after(all(0)), quality });
            }
            Then::Slice(coordinator, transaction) => {
                let reads = (0..keys.len()).map(|place| self.resolve(&standing(place), now_ms)).collect();
                let oldest = stability::oldest(&self.place, &known);
                self.have_slice(step, coordinator, Message::SliceReply { transaction, reads, oldest });
            }
            Then::Put(op, items) => {
                let seen = (0..keys.len()).fold(Context::upto(known), |seen, place| seen.after(all(place)));
                let version = self.overwrite(step, items, seen);
                self.have_written(step, op, version, Reply::Put(version), quorum);
            }
            Then::Replace(op, item, seen) => {
                let standing = standing(0);
                let meta = seen.told(&known, standing.iter().map(|version| version.id)).after(all(0));
                if meta.holes().len() >= MOST_SIBLINGS {
                    let why = format!(
                        "{MOST_SIBLINGS} values of this key stand side by side already; read them and write in their place (RHEO SIBLINGS, RHEO PUT)"
                    );
                    step.effects.reply(op, Reply::Failed(Failure::Refused(why)));
                    return;
                }
                let meta = if self.planted.is("unseen-siblings-replaced") { Context::upto(known) } else { meta };
                let key = item.key.clone();
                let version = self.write(step, smallvec![item], meta.clone(), false);
                let seen = meta.with(version);
                self.have_written(step, op, version, Reply::Replace { version, key, seen }, quorum);
            }
            Then::Change(op, change) => {
                let found = Reply::Get(self.resolve(&standing(0), now_ms), self.quality(step.now, &known));
                let key = keys[0].clone();
                let (mut changed, item) = change::decide(key, change, now_ms, &mut QuorumClient::default(), found);
                match item {
                    None => step.effects.reply(op, Reply::Change(changed)),
                    Some(item) => {
                        let seen = Context::upto(known).after(all(0));
                        let version = self.overwrite(step, smallvec![item], seen);
                        changed.replies.push(Reply::Put(version));
                        self.have_written(step, op, version, Reply::Change(changed), quorum);
                    }
                }
            }
        }
    }

    fn have_written<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, version: VersionId, reply: Reply, quorum: dial::Quorum) {
        if quorum.writes <= 1 {
            step.effects.reply(op, reply);
            return;
        }
        let has = BTreeSet::from([self.place.dc()]);
        self.ask(step, Question::Write { upto: version.written, op, reply, has }, quorum);
    }

    /// Reads `keys` at as many replicas as `quorum` says, and does `then`.
    fn read<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, keys: Vec<Key>, then: Then, quorum: dial::Quorum) {
        let answers = BTreeMap::from([(self.place.dc(), self.answer(step, &keys))]);
        if self.is_enough(step, quorum) {
            return self.have_read(step, keys, then, answers, quorum);
        }
        self.ask(step, Question::Read { keys, then, answers }, quorum);
    }

    /// A slice is read: it goes to the coordinator of its transaction.
    fn have_slice<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, coordinator: PartitionId, message: Message) {
        if coordinator == self.place.server.partition {
            self.on_message(step, coordinator, message);
        } else {
            step.effects.send(coordinator, message);
        }
    }

    /// Tells those that wait for it what has come from `dc`.
    fn tell_awaited<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, dc: DcId) {
        if self.awaited.is_empty() {
            return;
        }
        let (has, to) = (self.received.get(dc), self.peer(dc));
        self.awaited.retain(|(from, upto, round)| {
            let due = *from == dc && *upto <= has;
            if due {
                step.effects.send_member(to, Message::Has { round: *round }, Departure::FlushedAtOnce);
            }
            !due
        });
    }

    fn serve<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, Request { asked, quorum }: Request) -> Result<(), Failure> {
        match asked {
            Asked::Call(Call::Get { key, .. }) => match self.numbers(quorum, [&key].into_iter())? {
                quorum if self.is_enough(step, quorum) => {
                    let read = self.newest(step, &key);
                    step.effects.reply(op, Reply::Get(read, self.quality(step.now, &self.received)));
                }
                quorum => self.read(step, vec![key], Then::Get(op), quorum),
            },
            Asked::Siblings(key) => {
                in_a_context(&key)?;
                let quorum = self.numbers(quorum, [&key].into_iter())?;
                self.read(step, vec![key], Then::Siblings(op), quorum);
            }
            Asked::Call(Call::Put { items, .. }) => match self.numbers(quorum, items.iter().map(|item| &item.key))? {
                quorum if self.is_enough(step, quorum) && self.overwrites() => {
                    // It has seen all that is here, whatever that is.
                    let seen = RefCell::new(Context::upto(self.coverage(step).upto));
                    for item in &items {
                        // None is accepted, so all are looked at, where they are.
                        let look = |version: &Version<Context>| {
                            seen.borrow_mut().replace(version);
                            false
                        };
                        step.store.latest(&item.key, look);
                    }
                    let version = self.overwrite(step, items, seen.into_inner());
                    self.have_written(step, op, version, Reply::Put(version), quorum);
                }
                quorum => {
                    let keys = items.iter().map(|item| item.key.clone()).collect();
                    self.read(step, keys, Then::Put(op, items), quorum);
                }
            },
            Asked::Replace(item, seen) => {
                in_a_context(&item.key)?;
                let quorum = self.numbers(quorum, [&item.key].into_iter())?;
                self.read(step, vec![item.key.clone()], Then::Replace(op, item, seen), quorum);
            }
            Asked::Call(Call::Change { key, change, .. }) => {
                let quorum = self.numbers(quorum, [&key].into_iter())?;
                self.read(step, vec![key], Then::Change(op, change), quorum);
            }
            Asked::Call(Call::ReadTransaction { keys, .. }) => {
                let quorum = self.numbers(quorum, keys.iter())?;
                let own = self.place.server.partition;
                let places = by_partition(&keys, self.place.partitions);
                let transaction = self.transactions.open(op, keys.len(), places.clone(), Timestamp::MAX);
                for (partition, places) in places {
                    let keys: Vec<Key> = places.into_iter().map(|place| keys[place].clone()).collect();
                    if partition == own {
                        self.on_slice(step, own, transaction, keys, quorum);
                    } else {
                        step.effects.send(partition, Message::Slice { transaction, keys, quorum });
                    }
                }
            }
        }
        Ok(())
    }

    fn on_slice<S: Store<Context>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        coordinator: PartitionId,
        transaction: TransactionId,
        keys: Vec<Key>,
        quorum: dial::Quorum,
    ) {
        if self.is_enough(step, quorum) || self.planted.is("transaction-reads-one-replica") {
            let reads = keys.iter().map(|key| self.newest(step, key)).collect();
            let oldest = stability::oldest(&self.place, &self.received);
            return self.have_slice(step, coordinator, Message::SliceReply { transaction, reads, oldest });
        }
        self.read(step, keys, Then::Slice(coordinator, transaction), quorum);
    }
}

/// Whether a context can name `key`.
fn in_a_context(key: &Key) -> Result<(), Failure> {
    let length = key.len();
    let why = || Failure::Refused(format!("a key of {length} bytes: a context names keys of at most {MOST_NAMED_BYTES}"));
    if length <= MOST_NAMED_BYTES { Ok(()) } else { Err(why()) }
}

impl Protocol for Quorum {
    const NAME: &'static str = "quorum";
    const SUMMARY: &'static str = "as many replicas answer as the request says; values that have not seen each other stand side by side";
    const LEVEL: Level = Level::Eventual;
    const CARD: Card = Card {
        rounds: "GET and PUT one, and one between data centers for what more than one replica must answer: R > 1, W > 1",
        reads_wait: "R replicas, this one among them",
        writes_wait: "R replicas, then W; nothing with one each",
        cut_off: "it reads and writes on where one replica is enough, else operations fail and say who answered; afterwards values stand side by side that had not seen each other",
    };
    const GAUGES: &'static [&'static [Gauge]] = &[&[Gauge::status("quorum_rounds", "Rounds under way; rheostat_waiting counts their operations.")]];
    const PLANTED: &'static [&'static str] = &[
        "fewer-answers-than-a-read-needs",
        "fewer-answers-than-a-write-needs",
        "what-another-replica-had-is-not-asked",
        "timestamp-below-what-was-seen",
        "unseen-siblings-replaced",
        "written-by-what-stood-before-the-round",
        "replaced-before-what-it-replaced",
        "transaction-reads-one-replica",
        "awaited-before-it-came",
        "counts-while-it-is-filled",
        "tombstone-of-siblings-collected-early",
    ];

    type Options = QuorumOptions;
    type Meta = Context;
    type Client = QuorumClient;
    type Request = Request;
    type Reply = Reply;
    type Message = Message;
    type Cut = QuorumCut;

    fn quorum(place: &Place, options: &QuorumOptions) -> dial::Quorum {
        options.numbers(dial::Quorum::KEYSPACE, place.data_centers).unwrap_or(dial::Quorum::ALONE)
    }

    fn new(place: Place, options: &QuorumOptions, planted: Planted) -> Result<Quorum, String> {
        for (name, value) in [("heartbeat_ms", options.heartbeat_ms), ("round_ms", options.round_ms)] {
            if !(1..=60_000).contains(&value) {
                return Err(format!("{name} = {value}: must be 1 to 60000"));
            }
        }
        options.numbers(dial::Quorum::KEYSPACE, place.data_centers)?;
        Ok(Quorum {
            place,
            options: options.clone(),
            planted,
            received: TimestampVector::new(),
            since: None,
            rounds: Rounds::default(),
            watching: false,
            awaited: VecDeque::new(),
            transactions: Gather::default(),
        })
    }

    fn readable(start: &Start) -> Result<(), String> {
        start.saved::<Timestamp>().map(drop)
    }

    fn on_start<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, start: Start) {
        self.transactions.start(step);
        self.rounds.start(step.clock.last().max(Timestamp::new(step.now.physical_ms, 0)).bits());
        self.received = start.arrived();
        self.since = start.saved().ok().flatten();
        step.effects.timer(HEARTBEAT, self.options.heartbeat_ms * 1000);
    }

    fn on_request<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, request: Request) {
        if let Err(refused) = self.serve(step, op, request) {
            step.effects.reply(op, Reply::Failed(refused));
        }
    }

    fn on_message<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Message) {
        match message {
            Message::Slice { transaction, keys, quorum } => self.on_slice(step, from, transaction, keys, quorum),
            Message::SliceReply { transaction, reads, oldest } => {
                if let Some(open) = self.transactions.answer(transaction, from, reads, |known| *known = oldest.min(*known)) {
                    let staleness_ms = Some(step.now.physical_ms.saturating_sub(open.state.millis()));
                    step.effects.reply(open.op, Reply::ReadTransaction(open.reads, Quality { level: Level::Eventual, staleness_ms }));
                }
            }
            // Of other data centers only.
            Message::Read { .. } | Message::Versions { .. } | Message::Await { .. } | Message::Has { .. } => {}
        }
    }

    fn on_member_message<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, from: ServerId, message: Message) {
        match message {
            Message::Read { round, keys } => {
                let Answer { versions, coverage } = self.answer(step, &keys);
                step.effects.send_member(from, Message::Versions { round, versions, coverage }, Departure::AsReply);
            }
            Message::Versions { round, versions, coverage } => {
                self.on_answer(step, round, from.dc, Answer { versions, coverage });
            }
            Message::Await { round, upto } => {
                if self.received.get(from.dc) >= upto || self.planted.is("awaited-before-it-came") {
                    step.effects.send_member(from, Message::Has { round }, Departure::FlushedAtOnce);
                    return;
                }
                if self.awaited.len() >= MOST_AWAITED {
                    self.awaited.pop_front();
                }
                self.awaited.push_back((from.dc, upto, round));
            }
            Message::Has { round } => {
                if let Some(open) = self.rounds.get(round)
                    && let Question::Write { has, .. } = &mut open.question
                {
                    has.insert(from.dc);
                    self.look(step, round);
                }
            }
            // Of this data center only.
            Message::Slice { .. } | Message::SliceReply { .. } => {}
        }
    }

    fn on_update<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, update: Update<Context>) {
        self.received.raise(from, update.id.written);
        step.write(update);
        self.tell_awaited(step, from);
    }

    fn on_heartbeat<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, at: Timestamp) {
        self.received.raise(from, at);
        self.tell_awaited(step, from);
    }

    fn on_timer<S: Store<Context>>(&mut self, step: &mut Step<'_, Self, S>, timer: u8) {
        if timer == HEARTBEAT {
            if self.place.data_centers > 1 {
                let at = step.tick();
                step.effects.heartbeat(at);
            }
            step.effects.timer(HEARTBEAT, self.options.heartbeat_ms * 1000);
            return;
        }
        let round_us = self.options.round_ms * 1000;
        let replicas: Vec<DcId> = (0..self.place.data_centers).map(DcId).collect();
        for (round, dc) in self.rounds.overdue(step.now.monotonic_us, round_us, &replicas) {
            self.ask_one(step, round, dc);
        }
        self.watching = self.rounds.len() > 0;
        if self.watching {
            step.effects.timer(ROUND, round_us);
        }
    }

    fn put_off_us(&self, timer: u8) -> u64 {
        if timer == HEARTBEAT { QUIET_US } else { 0 }
    }

    fn on_deadline(&mut self, op: OpId) -> Option<Outcome> {
        self.rounds.insufficient(op).map(Outcome::Failed)
    }

    fn on_abandon(&mut self, op: OpId) {
        self.rounds.abandon(op);
        self.transactions.abandon(op);
    }

    fn hidden(&self, _: &QuorumClient, _: &Version<Context>) -> Option<String> {
        None
    }

    fn visible(&self, _: &QuorumClient, _: &Version<Context>) -> bool {
        true
    }

    fn dependencies(&self, version: &Version<Context>) -> String {
        format!("replaces what was written {:?}", version.meta)
    }

    fn cut(&self, history: History, received: &[Timestamp]) -> QuorumCut {
        let heard = received.iter().copied().min().unwrap_or(Timestamp::ZERO);
        let complete = if self.planted.is("tombstone-of-siblings-collected-early") { Timestamp::MAX } else { heard };
        let forgets = self.planted.is("replaced-before-what-it-replaced");
        QuorumCut { complete, history, replaces: self.replaces(), forgets }
    }

    fn gauges(&self, _: Now) -> Vec<(&'static str, f64)> {
        vec![("quorum_rounds", self.rounds.len() as f64)]
    }

    fn stable(&self) -> Vec<Timestamp> {
        Vec::new()
    }
}
