//! Get transactions in at most two rounds: COPS-GT (dissertation, §3.3).

use super::message::{Answer, Message, Meta, Seen};
use super::server::{Cops, reply_of};
use crate::gather::{Open, TransactionId, by_partition};
use crate::stability;
use rheostat_clock::{Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::Level;
use rheostat_core::ids::{OpId, PartitionId};
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::{Key, VersionId};
use std::collections::BTreeMap;

/// A get transaction under way.
pub(super) struct Transaction {
    keys: Vec<Key>,
    /// What a version may have as floor to be read in the first round; `None` at level eventual.
    pub(super) snapshot: Option<TimestampVector>,
    /// The oldest of what was stable of other data centers when it began: it has arrived at every partition.
    oldest: Timestamp,
    /// What the session's context says of the keys.
    context: BTreeMap<Key, VersionId>,
    /// The versions read so far.
    seen: Vec<Seen>,
    /// In the second round: the places that are read again, and what the first round read.
    first: Option<(Vec<usize>, Vec<Read>)>,
}

impl Cops {
    /// The first round: the newest version of each key.
    pub(super) fn on_read_transaction<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        op: OpId,
        keys: Vec<Key>,
        level: Level,
        seen: &super::client::CopsClient,
    ) {
        let snapshot = (level != Level::Eventual).then(|| {
            let mut snapshot = self.stable.0.clone();
            snapshot.set(self.place.dc(), step.tick_after(seen.floor.get(self.place.dc())));
            snapshot
        });
        let context = keys.iter().filter_map(|key| Some((key.clone(), seen.newest_of(key)?))).collect();
        let oldest = stability::oldest(&self.place, &self.stable.0);
        let state = Transaction { keys: keys.clone(), snapshot: snapshot.clone(), oldest, context, seen: Vec::new(), first: None };
        let places = by_partition(&keys, self.place.partitions);
        let transaction = self.transactions.open(op, keys.len(), places.clone(), state);
        for (partition, places) in places {
            let keys: Vec<Key> = places.into_iter().map(|place| keys[place].clone()).collect();
            if partition == self.place.server.partition {
                let (reads, seen) = self.slice(step, &keys, snapshot.as_ref());
                self.on_slice_reply(step, partition, transaction, reads, seen);
            } else {
                step.effects.send(partition, Message::Slice { transaction, keys, snapshot: snapshot.clone() });
            }
        }
    }

    /// The newest version of each key that everybody may read, and whose floor is within `snapshot` (D1).
    pub(super) fn slice<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        keys: &[Key],
        snapshot: Option<&TimestampVector>,
    ) -> (Vec<Read>, Vec<Seen>) {
        if let Some(snapshot) = snapshot {
            self.raise_stable_within(step, snapshot);
            if !self.planted.is("slice-without-raising-clock") {
                step.clock.raise(snapshot.get(self.place.dc()));
            }
        }
        let now_ms = step.now.physical_ms;
        let (mut reads, mut seen) = (Vec::new(), Vec::new());
        for key in keys {
            let found =
                step.store.latest(key, |version| snapshot.is_none_or(|snapshot| self.is_shown(version.id) && snapshot.covers(&version.meta.floor)));
            reads.push(found.map_or_else(Read::default, |version| Read::of(version, now_ms)));
            if snapshot.is_some() {
                seen.extend(found.map(|version| Seen { key: key.clone(), id: version.id, meta: version.meta.clone() }));
            }
        }
        if let Some(snapshot) = snapshot.filter(|_| reads.iter().any(|read| read.version.is_none())) {
            seen.extend(self.gone(step.forgotten(), snapshot.min(usize::from(self.place.data_centers))));
        }
        (reads, seen)
    }

    /// Exactly these versions: they are here, since somebody who depends on them is shown, unless they are tombstones that were collected.
    pub(super) fn exact<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, wanted: &[(Key, VersionId)]) -> (Vec<Read>, Vec<Seen>) {
        let now_ms = step.now.physical_ms;
        let (mut reads, mut seen) = (Vec::new(), Vec::new());
        for (key, id) in wanted {
            let found = step.store.latest(key, |version| version.id == *id);
            reads.push(found.map_or_else(Read::default, |version| Read::of(version, now_ms)));
            seen.extend(found.map(|version| Seen { key: key.clone(), id: version.id, meta: version.meta.clone() }));
        }
        (reads, seen)
    }

    pub(super) fn on_slice_reply<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: PartitionId,
        transaction: TransactionId,
        reads: Vec<Read>,
        seen: Vec<Seen>,
    ) {
        let Some(open) = self.transactions.answer(transaction, from, reads, |state| state.seen.extend(seen)) else { return };
        let Open { op, mut reads, state, .. } = open;
        let Transaction { keys, snapshot, oldest, context, mut seen, first } = state;
        let quality = |level| Quality { level, staleness_ms: Some(step.now.physical_ms.saturating_sub(oldest.millis())) };
        let second = first.is_some();
        if let Some((places, first)) = first {
            let again = std::mem::replace(&mut reads, first);
            // Of a tombstone that was collected there is nothing, and the first round has read nothing.
            places.into_iter().filter(|place| again[*place].version.is_some()).for_each(|place| reads[place] = again[place].clone());
        }
        if snapshot.is_none() {
            let answer = Answer::Many(reads, quality(Level::Eventual));
            step.effects.reply(op, reply_of(None, answer));
            return;
        }
        let wanted = if second || self.planted.is("one-round-only") { BTreeMap::new() } else { newer_versions(&keys, &reads, context, &seen) };
        if wanted.is_empty() {
            let answer = Answer::Many(reads, quality(Level::Causal));
            let reply = self.reply(step, answer, seen, Vec::new());
            step.effects.reply(op, reply);
            return;
        }
        self.second_rounds += 1;
        seen.retain(|seen| !wanted.contains_key(&seen.key));
        let again: Vec<usize> = (0..keys.len()).filter(|place| wanted.contains_key(&keys[*place])).collect();
        let mut places = by_partition(&keys, self.place.partitions);
        places.values_mut().for_each(|places| places.retain(|place| again.contains(place)));
        places.retain(|_, places| !places.is_empty());
        let count = keys.len();
        let asked: Vec<(PartitionId, Vec<(Key, VersionId)>)> = places
            .iter()
            .map(|(partition, places)| (*partition, places.iter().map(|place| (keys[*place].clone(), wanted[&keys[*place]])).collect()))
            .collect();
        let state = Transaction { keys, snapshot, oldest, context: BTreeMap::new(), seen, first: Some((again, reads)) };
        let transaction = self.transactions.open(op, count, places, state);
        for (partition, wanted) in asked {
            if partition == self.place.server.partition {
                let (reads, seen) = self.exact(step, &wanted);
                self.on_slice_reply(step, partition, transaction, reads, seen);
            } else {
                step.effects.send(partition, Message::Exact { transaction, wanted });
            }
        }
    }
}

/// The keys of which some other read, or the session, depends on a newer version than was read. Paper: ccv.
fn newer_versions(keys: &[Key], reads: &[Read], mut wanted: BTreeMap<Key, VersionId>, seen: &[Seen]) -> BTreeMap<Key, VersionId> {
    let mut want = |key: &Key, id: VersionId| {
        if keys.contains(key) {
            let known = wanted.entry(key.clone()).or_insert(id);
            *known = id.max(*known);
        }
    };
    for Seen { id, meta, .. } in seen {
        meta.dependencies.iter().for_each(|dependency| want(&dependency.key, dependency.id));
        meta.together.iter().for_each(|key| want(key, *id));
    }
    for (key, read) in keys.iter().zip(reads) {
        if wanted.get(key).is_some_and(|wanted| read.version.is_some_and(|read| read >= *wanted)) {
            wanted.remove(key);
        }
    }
    wanted
}
