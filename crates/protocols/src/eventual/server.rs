//! What a server does.

use super::client::EventualClient;
use super::message::{Message, Reply, Request};
use crate::change;
use crate::gather::{Gather, by_partition};
use crate::stability;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::Quality;
use rheostat_core::dial::Level;
use rheostat_core::gauge::Gauge;
use rheostat_core::ids::{Now, OpId, PartitionId, Place};
use rheostat_core::planted::Planted;
use rheostat_core::protocol::{Call, Card, Protocol, Reading, Start};
use rheostat_core::replica::QUIET_US;
use rheostat_core::step::Step;
use rheostat_core::store::{Cut, History, Store};
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use serde::Deserialize;
use smallvec::{SmallVec, smallvec};

/// The options of protocol `eventual`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventualOptions {
    /// A server that has written nothing for so many milliseconds says so to its peers; bounds what is known of staleness.
    pub heartbeat_ms: u64,
}

impl Default for EventualOptions {
    fn default() -> EventualOptions {
        EventualOptions { heartbeat_ms: 100 }
    }
}

const HEARTBEAT: u8 = 0;

/// One partition server's state.
pub struct Eventual {
    place: Place,
    heartbeat_us: u64,
    planted: Planted,
    /// Per data center, up to where its updates have arrived here.
    received: TimestampVector,
    /// With each, up to where everything from every other data center had arrived at those that have answered.
    transactions: Gather<Timestamp>,
}

/// Whatever is newest is settled; a tombstone is done with when every data center has been heard past it.
pub struct EventualCut {
    complete: Timestamp,
    history: History,
}

impl Cut<()> for EventualCut {
    fn settled(&self, _: &Version<()>) -> bool {
        true
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.complete
    }

    fn history(&self) -> History {
        self.history
    }
}

impl Eventual {
    fn quality(&self, now: Now) -> Quality {
        stability::quality(&self.place, now, Level::Eventual, &self.received)
    }

    /// Up to where everything of every other data center is here. Nothing, while this server gets again what it has lost: what has come by now lacks what is replaced by what has not.
    fn oldest<S: Store<()>>(&self, step: &Step<'_, Self, S>) -> Timestamp {
        if step.filling { Timestamp::ZERO } else { stability::oldest(&self.place, &self.received) }
    }

    fn get<S: Store<()>>(&self, step: &mut Step<'_, Self, S>, key: &Key) -> Reply {
        Reply::Get(stability::newest(step, key), self.quality(step.now))
    }

    fn put<S: Store<()>>(&self, step: &mut Step<'_, Self, S>, items: SmallVec<[Item; 1]>) -> Reply {
        let id = VersionId { written: step.tick(), origin: self.place.dc() };
        step.write(Update { id, items, meta: () });
        Reply::Put(id)
    }
}

impl Protocol for Eventual {
    const NAME: &'static str = "eventual";
    const SUMMARY: &'static str = "every data center ends with the last writer's value; nothing else";
    const LEVEL: Level = Level::Eventual;
    const CARD: Card = Card {
        rounds: "GET and PUT one; a read of several keys one, and one between partitions",
        reads_wait: "nothing",
        writes_wait: "nothing",
        cut_off: "it reads and writes on; afterwards the last writer wins",
    };
    const GAUGES: &'static [&'static [Gauge]] = &[];
    const PLANTED: &'static [&'static str] = &["last-arrival-wins-timestamp", "tombstone-collected-early"];

    type Options = EventualOptions;
    type Meta = ();
    type Client = EventualClient;
    type Request = Request;
    type Reply = Reply;
    type Message = Message;
    type Cut = EventualCut;

    fn reading(message: &Message) -> Reading<'_> {
        match message {
            Message::Slice { keys, .. } => Reading::Question(keys),
            Message::SliceReply { .. } => Reading::Question(&[]),
        }
    }

    fn new(place: Place, options: &EventualOptions, planted: Planted) -> Result<Eventual, String> {
        if !(1..=60_000).contains(&options.heartbeat_ms) {
            return Err(format!("heartbeat_ms = {}: must be 1 to 60000", options.heartbeat_ms));
        }
        let heartbeat_us = options.heartbeat_ms * 1000;
        Ok(Eventual { place, heartbeat_us, planted, received: TimestampVector::new(), transactions: Gather::default() })
    }

    fn on_start<S: Store<()>>(&mut self, step: &mut Step<'_, Self, S>, start: Start) {
        self.transactions.start(step);
        self.received = start.arrived();
        step.effects.timer(HEARTBEAT, self.heartbeat_us);
    }

    fn on_request<S: Store<()>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, Request(call): Request) {
        match call {
            Call::Get { key, .. } => {
                let reply = self.get(step, &key);
                step.effects.reply(op, reply);
            }
            Call::Put { items, .. } => {
                let reply = self.put(step, items);
                step.effects.reply(op, reply);
            }
            Call::Change { key, change, .. } => {
                let found = self.get(step, &key);
                let (mut changed, item) = change::decide(key, change, step.now.physical_ms, &mut EventualClient::default(), found);
                changed.replies.extend(item.map(|item| self.put(step, smallvec![item])));
                step.effects.reply(op, Reply::Change(changed));
            }
            Call::ReadTransaction { keys, .. } => {
                let own = self.place.server.partition;
                let places = by_partition(&keys, self.place.partitions);
                let transaction = self.transactions.open(op, keys.len(), places.clone(), Timestamp::MAX);
                for (partition, places) in places {
                    let keys: Vec<Key> = places.into_iter().map(|place| keys[place].clone()).collect();
                    if partition == own {
                        let reads = keys.iter().map(|key| stability::newest(step, key)).collect();
                        let oldest = self.oldest(step);
                        self.on_message(step, own, Message::SliceReply { transaction, reads, oldest });
                    } else {
                        step.effects.send(partition, Message::Slice { transaction, keys });
                    }
                }
            }
        }
    }

    fn on_message<S: Store<()>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Message) {
        match message {
            Message::Slice { transaction, keys } => {
                let reads = keys.iter().map(|key| stability::newest(step, key)).collect();
                let oldest = self.oldest(step);
                step.effects.send(from, Message::SliceReply { transaction, reads, oldest });
            }
            Message::SliceReply { transaction, reads, oldest } => {
                if let Some(open) = self.transactions.answer(transaction, from, reads, |known| *known = oldest.min(*known)) {
                    let known = open.state > Timestamp::ZERO;
                    let staleness_ms = known.then(|| step.now.physical_ms.saturating_sub(open.state.millis()));
                    step.effects.reply(open.op, Reply::ReadTransaction(open.reads, Quality { level: Level::Eventual, staleness_ms }));
                }
            }
        }
    }

    fn on_update<S: Store<()>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, mut update: Update<()>) {
        self.received.raise(from, update.id.written);
        if self.planted.is("last-arrival-wins-timestamp") {
            update.id.written = step.tick();
        }
        step.write(update);
    }

    fn on_heartbeat<S: Store<()>>(&mut self, _: &mut Step<'_, Self, S>, from: DcId, at: Timestamp) {
        self.received.raise(from, at);
    }

    fn on_timer<S: Store<()>>(&mut self, step: &mut Step<'_, Self, S>, _: u8) {
        if self.place.data_centers > 1 {
            let at = step.tick();
            step.effects.heartbeat(at);
        }
        step.effects.timer(HEARTBEAT, self.heartbeat_us);
    }

    fn put_off_us(&self, _: u8) -> u64 {
        QUIET_US
    }

    fn on_abandon(&mut self, op: OpId) {
        self.transactions.abandon(op);
    }

    fn hidden(&self, _: &EventualClient, _: &Version<()>) -> Option<String> {
        None
    }

    fn visible(&self, _: &EventualClient, _: &Version<()>) -> bool {
        true
    }

    fn dependencies(&self, _: &Version<()>) -> String {
        "not tracked".into()
    }

    fn cut(&self, history: History, received: &[Timestamp]) -> EventualCut {
        let heard = received.iter().copied().min().unwrap_or(Timestamp::ZERO);
        let complete = if self.planted.is("tombstone-collected-early") { Timestamp::MAX } else { heard };
        EventualCut { complete, history }
    }

    fn gauges(&self, _: Now) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    fn stable(&self) -> Vec<Timestamp> {
        Vec::new()
    }
}
