//! What clients do meanwhile: reads, transactions, writes, deletions and changes of keys, and updates of a counter with a bound. When something fails, a client goes on at another node of its data center, with its session; now and then it moves to another data center.

use crate::beside::{self, Seen, is_shared};
use crate::record::{key_name, observation, observed, version_id};
use crate::world::{AFTER_FAILURE, Gone, HOT, KEYSPACE, Tally, World, first_hot, lock};
use rheostat_checkers::history::{Action, Condition as Expected, Observation, Outcome, SessionId, WriteItem};
use rheostat_client::{Client, Condition, Error, Put, Read, Session, Version};
use rheostat_core::counter::NewCounter;
use rheostat_core::random::Random;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The counter.
const COUNTER: &str = "stock";

/// What it holds at first.
const STOCK: i64 = 1000;

/// One client of keys.
struct User<'w> {
    world: &'w World,
    dc: usize,
    name: SessionId,
    random: Random,
    /// It asks the one node that it knows, instead of each partition's owner.
    direct: bool,
    /// Which node of its data center it asked last.
    node: usize,
    /// What a change may find.
    seen: Observation,
    /// What it has seen of values that stand side by side.
    beside: Seen,
}

/// One client of keys, whose home is data center `home`: operations one after another, whatever happens meanwhile.
pub(crate) async fn use_keys(world: &World, home: usize, number: usize, seed: u64) {
    let random = Random::new(seed ^ (number as u64) << 32 ^ 0x5EED);
    let direct = number.is_multiple_of(2);
    let mut user =
        User { world, dc: home, name: world.new_session(), random, direct, node: number, seen: Observation::ABSENT, beside: Seen::default() };
    let Some(mut session) = user.go_on(None).await else { return };
    while !world.is_done() {
        let failed = user.operate(&mut session).await;
        if let Some(why) = &failed {
            world.tell(user.dc, why);
        }
        let moves = user.random.chance(1, 300) && user.moves();
        let keeps_session = !matches!(failed, Some(Error::Token(_)));
        if moves || matches!(failed, Some(Error::Unreachable(_) | Error::Timeout(_) | Error::Server(_) | Error::Token(_))) {
            if !keeps_session {
                world.refused_sessions.fetch_add(1, Ordering::Relaxed);
            }
            let Some(next) = user.go_on(Some(session).filter(|_| keeps_session)).await else { return };
            session = next;
        }
        world.pause(&mut user.random, failed.is_some()).await;
    }
}

impl User<'_> {
    /// Goes to another data center, if one may.
    fn moves(&mut self) -> bool {
        let alone = self.world.left_alone.load(Ordering::Relaxed);
        let to = self.random.below(self.world.data_centers.len() as u64) as usize;
        let moves = to != self.dc && ![to, self.dc].contains(&alone);
        if moves {
            self.dc = to;
            self.world.moves.fetch_add(1, Ordering::Relaxed);
        }
        moves
    }

    /// The session, or a new one, at the next node of its data center that answers; `None` when the load is over. Whose data center is gone for ever begins anew in the next one.
    async fn go_on(&mut self, session: Option<Session>) -> Option<Session> {
        let world = self.world;
        if let Some(client) = world.connect(self.dc, &mut self.node, self.direct).await {
            return Some(match session {
                Some(session) => session.at(&client),
                None => self.begin_anew(&client),
            });
        }
        self.dc = (self.dc + 1) % world.data_centers.len();
        let client = world.connect(self.dc, &mut self.node, self.direct).await?;
        Some(self.begin_anew(&client))
    }

    fn begin_anew(&mut self, client: &Client) -> Session {
        self.name = self.world.new_session();
        self.beside = Seen::default();
        client.session(KEYSPACE)
    }

    /// One operation in `session`; why it failed, if it did.
    async fn operate(&mut self, session: &mut Session) -> Option<Error> {
        let (world, names) = (self.world, &self.world.data_centers);
        let first = first_hot(&lock(&world.recorder));
        let chosen = match self.random.below(8) {
            0 => self.random.below((first + HOT) as u64) as usize,
            _ => first + self.random.below(HOT as u64) as usize,
        };
        let level = world.asked.levels[self.random.below(2) as usize];
        session.set_level(Some(level));
        let level = world.asked.held_to.unwrap_or(level);
        let (key, name) = (lock(&world.recorder).key(chosen), key_name(chosen));
        let begin = |action: Action| lock(&world.recorder).begin(self.name, self.dc, action);
        let fresh = || lock(&world.recorder).builder.fresh_value();
        let (siblings, begun_us) = (world.asked.siblings, lock(&world.recorder).now_us());
        let (event, result) = match self.random.below(20) {
            choice @ (0..4 | 11..20) if siblings && is_shared(chosen) => match self.beside.key().filter(|_| choice >= 11) {
                Some(seen) => {
                    let value = fresh();
                    let key = lock(&world.recorder).key(seen);
                    let event = begin(Action::Put { items: vec![WriteItem { key, value: Some(value) }], level });
                    let place = self.beside.begin_write(world, seen, Some(value), true);
                    let result = beside::replace(session, seen, value).await;
                    match &result {
                        Ok(version) => self.beside.wrote(world, place, version, true),
                        Err(_) => self.beside.failed(),
                    }
                    (event, result.map(|version| Outcome::Written(Some(version_id(names, &version)))))
                }
                None => {
                    let event = begin(Action::Get { key, level });
                    let result = session.siblings(name).await;
                    match &result {
                        Ok(reads) => self.beside.looked(world, chosen, begun_us, reads, true),
                        Err(_) => self.beside.failed(),
                    }
                    let newest = |reads: Vec<Read>| reads.first().map_or(Observation::ABSENT, |read| observation(names, read));
                    (event, result.map(|reads| Outcome::Read(vec![newest(reads)])))
                }
            },
            0..8 => {
                let event = begin(Action::Get { key, level });
                let result = session.get(name).await;
                self.seen = result.as_ref().map_or(self.seen, |read| observation(names, read));
                if let Some(read) = result.as_ref().ok().filter(|_| siblings) {
                    self.beside.looked(world, chosen, begun_us, std::slice::from_ref(read), false);
                }
                (event, result.map(|read| Outcome::Read(vec![observation(names, &read)])))
            }
            8..11 => {
                let asked: Vec<usize> = (0..3).map(|next| first + (chosen + 5 * next) % HOT).collect();
                let ids = asked.iter().map(|key| lock(&world.recorder).key(*key)).collect();
                let event = begin(Action::ReadTransaction { keys: ids, level });
                let result = session.read_transaction(asked.into_iter().map(key_name)).await;
                (event, result.map(|many| Outcome::Read(many.reads.iter().map(|read| observation(names, read)).collect())))
            }
            11 => {
                let event = begin(Action::Put { items: vec![WriteItem { key, value: None }], level });
                let place = siblings.then(|| self.beside.begin_write(world, chosen, None, false));
                let result = session.delete(name).await;
                if let (Some(place), Ok(Some(version))) = (place, result.as_ref().map(|deleted| deleted.version.as_ref())) {
                    self.beside.wrote(world, place, version, false);
                }
                // Nothing is written where nothing was.
                let written = |version: &Version| Outcome::Written(Some(version_id(names, version)));
                (event, result.map(|deleted| deleted.version.as_ref().map_or(Outcome::Failed, written)))
            }
            choice @ 12..15 if world.asked.decides => {
                let value = fresh();
                let (condition, expected) = match self.seen.value {
                    Some(seen) if choice == 12 => (Condition::Value(seen.0.to_string().into()), Expected::Value(seen)),
                    _ if choice == 13 => (Condition::Absent, Expected::Absent),
                    _ => (Condition::Present, Expected::Present),
                };
                let event = begin(Action::Change { item: WriteItem { key, value: Some(value) }, condition: expected, level });
                let result = session.put_if(Put::new(name, value.0.to_string()), condition).await;
                let changed = result.map(|put| {
                    let before = observed(names, put.before.value.as_deref(), put.before.version.as_ref());
                    self.seen = before;
                    let version = put.version.as_ref().map(|version| version_id(names, version));
                    Outcome::Changed { applied: version.is_some(), version, before: Some(before) }
                });
                (event, changed)
            }
            _ => {
                let value = fresh();
                let event = begin(Action::Put { items: vec![WriteItem { key, value: Some(value) }], level });
                let place = siblings.then(|| self.beside.begin_write(world, chosen, Some(value), false));
                let result = session.put(name, value.0.to_string()).await;
                if let (Some(place), Ok(version)) = (place, &result) {
                    self.beside.wrote(world, place, version, false);
                }
                (event, result.map(|version| Outcome::Written(Some(version_id(names, &version)))))
            }
        };
        let failed = result.as_ref().err().cloned();
        if let Err(refused) = lock(&world.recorder).end(event, result) {
            world.find(refused);
        }
        failed
    }
}

/// Makes the counter, if it is not there: an earlier try may have made it.
///
/// # Errors
/// In words.
pub(crate) async fn make_counter(client: &Client) -> Result<(), String> {
    let counter = NewCounter { lower: Some(0), upper: None, initial: STOCK, placement: Vec::new() };
    match client.session(KEYSPACE).counter(COUNTER).create(counter).await {
        Ok(_) | Err(Error::Refused(_)) => Ok(()),
        Err(error) => Err(format!("the counter is not made: {error}")),
    }
}

/// One client of the counter in data center `dc`: takes and brings.
pub(crate) async fn use_counter(world: &World, dc: usize, seed: u64) {
    let mut random = Random::new(seed ^ (dc as u64) << 40 ^ 0xC0_07E5);
    let mut next = dc;
    let Some(client) = world.connect(dc, &mut next, true).await else { return };
    let mut session = client.session(KEYSPACE);
    while !world.is_done() {
        let by = if random.chance(1, 5) { random.between(1, 12) as i64 } else { -(random.between(1, 6) as i64) };
        let updated = session.counter(COUNTER).global().add(by).await;
        {
            let now_us = lock(&world.recorder).now_us();
            let mut tally = lock(&world.tally);
            match &updated {
                Ok(value) => {
                    tally.answered.push((dc, now_us, by));
                    if *value < 0 {
                        world.find(format!("the counter was {value} after an update by {by}, below its bound"));
                    }
                }
                Err(Error::NoRights(_)) => tally.refused += 1,
                Err(Error::Busy(_) | Error::Token(_)) => {}
                // The counter has come to this data center before its clients begin.
                Err(Error::Refused(why)) => world.find(format!("an honest update of the counter was refused: {why}")),
                Err(_) => tally.perhaps[usize::from(by < 0)] += by.abs(),
            }
        }
        let failed = updated.err();
        if matches!(failed, Some(Error::Unreachable(_) | Error::Timeout(_) | Error::Server(_) | Error::Token(_))) {
            let Some(client) = world.connect(dc, &mut next, true).await else { return };
            session = if matches!(failed, Some(Error::Token(_))) { client.session(KEYSPACE) } else { session.at(&client) };
        }
        world.pause(&mut random, failed.is_some()).await;
    }
}

/// Waits until the counter is the same in all data centers, and holds it to what its clients were told. Returns its value.
///
/// # Errors
/// In words: what does not add up.
pub(crate) async fn check_counter(clients: &[Client], tally: &Tally, gone: Option<&Gone>, patience: Duration) -> Result<i64, String> {
    let until = Instant::now() + patience;
    let mut values;
    loop {
        values = Vec::new();
        for client in clients {
            values.push(client.session(KEYSPACE).counter(COUNTER).look().await.map(|view| view.value).map_err(|error| error.to_string()));
        }
        match &values[0] {
            Ok(value) if values.iter().all(|other| other.as_ref() == Ok(value)) => return holds(*value, tally, gone).map(|()| *value),
            _ if Instant::now() > until => return Err(format!("the data centers do not agree on the counter: {values:?}")),
            _ => tokio::time::sleep(AFTER_FAILURE).await,
        }
    }
}

/// Whether a counter can hold `value` after these updates, the last of which may have been lost with a data center.
fn holds(value: i64, tally: &Tally, gone: Option<&Gone>) -> Result<(), String> {
    let (mut least, mut most) = (STOCK - tally.perhaps[1], STOCK + tally.perhaps[0]);
    for (dc, at_us, by) in &tally.answered {
        let may_be_lost = gone.is_some_and(|gone| gone.dc == *dc && gone.from_us <= *at_us);
        least += if may_be_lost { *by.min(&0) } else { *by };
        most += if may_be_lost { *by.max(&0) } else { *by };
    }
    match value {
        _ if value < 0 => Err(format!("the counter is {value} in the end, below its bound")),
        _ if (least..=most).contains(&value) => Ok(()),
        _ => Err(format!("the counter is {value} in the end; by what its clients were told it is {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_held_to_what_was_said_and_to_what_may_have_been_done() {
        let tally = Tally { answered: vec![(0, 1, -900), (1, 2, -100), (0, 3, 10)], perhaps: [5, 7], ..Tally::default() };
        for (value, fits) in [(10, true), (15, true), (16, false), (3, true), (2, false), (-1, false)] {
            assert_eq!(holds(value, &tally, None).is_ok(), fits, "{value}");
        }
        let below = Tally { answered: vec![(0, 1, -1010)], ..tally.clone() };
        assert!(holds(-5, &below, None).unwrap_err().contains("below its bound"));
        // Of data center 0, the last update can be lost; of data center 1, the only one.
        for (dc, from_us, range) in [(0, 2, 0..=15), (1, 2, 3..=115), (1, 3, 3..=15)] {
            for value in 0..200 {
                assert_eq!(holds(value, &tally, Some(&Gone { dc, from_us })).is_ok(), range.contains(&value), "{dc} from {from_us}: {value}");
            }
        }
    }
}
