//! What the chains hold of a data center's updates, for who has lost them: all keys are gone through for a portion of them, from which frames are cut.

use super::Replica;
use crate::ids::Now;
use crate::link::BATCH_BYTES;
use crate::protocol::Protocol;
use crate::store::{Cut, Store};
use crate::version::{Item, Update, Version};
use rheostat_clock::{DcId, Timestamp};

/// Bytes of updates for which all keys are gone through once, about.
const PORTION_BYTES: usize = 4 << 20;

/// So many portions are kept: who asks at other places has its own.
const PORTIONS: usize = 4;

/// A portion goes when nobody has wanted of it for so long, in microseconds.
const KEPT_US: u64 = 2_000_000;

/// The updates of `origin` after `after` and up to `through` that the chains held when they were gone through.
struct Portion<M> {
    origin: DcId,
    after: Timestamp,
    through: Timestamp,
    updates: Vec<Update<M>>,
    used_us: u64,
}

impl<M> Portion<M> {
    fn begins(&self, origin: DcId, after: Timestamp) -> bool {
        self.origin == origin && self.after <= after && after < self.through
    }
}

/// The portions that are kept, of one store.
pub struct Portions<M> {
    kept: Vec<Portion<M>>,
    /// When, on the monotonic clock, keys were last gone through.
    walked_us: Option<u64>,
}

impl<M> Default for Portions<M> {
    fn default() -> Portions<M> {
        Portions { kept: Vec::new(), walked_us: None }
    }
}

impl<M> Portions<M> {
    /// Whether what follows `after` of the updates of `origin` costs no walk over the keys, or this turn has made none.
    pub fn is_at_hand(&self, now: Now, origin: DcId, after: Timestamp) -> bool {
        self.walked_us != Some(now.monotonic_us) || self.kept.iter().any(|portion| portion.begins(origin, after))
    }

    /// Lets go of what nobody wants any more.
    pub fn forget(&mut self, now: Now) {
        self.kept.retain(|portion| now.monotonic_us < portion.used_us + KEPT_US);
    }
}

impl<M: Clone> Portion<M> {
    /// What follows `after`: at least one update if there is one, then as many as fit in a batch; and up to where these are all.
    fn batch(&self, after: Timestamp, upto: Timestamp) -> (Vec<Update<M>>, Timestamp) {
        let from = self.updates.partition_point(|update| update.id.written <= after);
        let mut bytes = 0;
        let fits = |update: &&Update<M>| {
            let first = bytes == 0;
            bytes += update.items.iter().map(Item::about_bytes).sum::<usize>().max(1);
            update.id.written <= upto && (first || bytes <= BATCH_BYTES)
        };
        let updates: Vec<Update<M>> = self.updates[from..].iter().take_while(fits).cloned().collect();
        let through = match self.updates.get(from + updates.len()) {
            Some(next) if next.id.written <= upto => updates.last().map_or(after, |last| last.id.written),
            _ => self.through.min(upto),
        };
        (updates, through)
    }
}

impl<M: Clone> Portions<M> {
    /// What the chains of `store` hold of the updates of `origin` after `after` and up to `upto`, as many as fit in a batch, and up to where these are all. `cut` is as of now.
    ///
    /// # Errors
    /// The disk's.
    pub fn part<S: Store<M>, C: Cut<M>>(
        &mut self,
        now: Now,
        store: &mut S,
        cut: &C,
        (origin, after, upto): (DcId, Timestamp, Timestamp),
    ) -> std::io::Result<(Vec<Update<M>>, Timestamp)> {
        let at = match self.kept.iter().position(|portion| portion.begins(origin, after)) {
            Some(at) => at,
            None => self.walk(now, store, (origin, after, upto))?,
        };
        let portion = &mut self.kept[at];
        portion.used_us = now.monotonic_us;
        let (mut updates, through) = portion.batch(after, upto);
        for update in &mut updates {
            let versions: Vec<_> = update.versions().map(|(_, version)| version).collect();
            let mut versions = versions.iter();
            update.items.retain(|item| versions.next().is_some_and(|version| still_stands(store, cut, &item.key, version)));
        }
        updates.retain(|update| !update.items.is_empty());
        Ok((updates, through))
    }

    /// Goes through all keys for the portion after `after`; says where it is kept.
    fn walk<S: Store<M>>(&mut self, now: Now, store: &mut S, (origin, after, upto): (DcId, Timestamp, Timestamp)) -> std::io::Result<usize> {
        self.walked_us = Some(now.monotonic_us);
        let (mut updates, all) = store.held_updates(origin, after, PORTION_BYTES)?;
        let more = updates.iter().any(|update| update.id.written > upto);
        updates.retain(|update| update.id.written <= upto);
        let through = if all || more { upto } else { updates.last().map_or(upto, |update| update.id.written) };
        if self.kept.len() >= PORTIONS {
            let oldest = self.kept.iter().enumerate().min_by_key(|(_, portion)| portion.used_us).map_or(0, |(at, _)| at);
            self.kept.swap_remove(oldest);
        }
        self.kept.push(Portion { origin, after, through, updates, used_us: now.monotonic_us });
        Ok(self.kept.len() - 1)
    }
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// See [`Portions::part`].
    pub(super) fn held_part(
        &mut self,
        now: Now,
        origin: DcId,
        after: Timestamp,
        upto: Timestamp,
    ) -> std::io::Result<(Vec<Update<P::Meta>>, Timestamp)> {
        // As of now: a deletion that is collected anywhere has everything before it here, which a cut of earlier does not know.
        let cut = self.cut(now);
        self.portions.part(now, &mut self.store, &cut, (origin, after, upto))
    }
}

/// Whether `version` of `key` is in `store` still, and no deletion hides it: where that is collected already, who gets the version would show it for ever.
fn still_stands<M, S: Store<M>, C: Cut<M>>(store: &mut S, cut: &C, key: &[u8], version: &Version<M>) -> bool {
    let chain = store.chain(key);
    chain.iter().any(|here| here.id == version.id) && !is_buried(cut, &chain, version)
}

/// Whether a deletion stands in `chain`, the greatest first, before `version` and, where versions stand side by side, in its place.
pub(super) fn is_buried<M, C: Cut<M>>(cut: &C, chain: &[Version<M>], version: &Version<M>) -> bool {
    let mut newer = chain.iter().take_while(|newer| newer.id > version.id);
    newer.any(|newer| (newer.value.is_none() || newer.expires_ms != 0) && (!C::SIBLINGS || cut.replaces(newer, version)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{Key, VersionId};

    fn at(ms: u64) -> Timestamp {
        Timestamp::new(ms, 0)
    }

    /// Updates at these times, of a third of a batch each.
    fn portion(after: u64, times: &[u64], through: u64) -> Portion<()> {
        let item = |ms: u64| Item { key: Key::from(ms.to_string().into_bytes()), value: Some(vec![b'x'; BATCH_BYTES / 3].into()), expires_ms: 0 };
        let update = |ms: &u64| Update { id: VersionId { written: at(*ms), origin: DcId(1) }, items: [item(*ms)].into_iter().collect(), meta: () };
        Portion { origin: DcId(1), after: at(after), through: at(through), updates: times.iter().map(update).collect(), used_us: 0 }
    }

    fn batch(portion: &Portion<()>, after: u64, upto: u64) -> (Vec<u64>, u64) {
        let (updates, through) = portion.batch(at(after), at(upto));
        (updates.iter().map(|update| update.id.written.millis()).collect(), through.millis())
    }

    #[test]
    fn batches_are_cut_from_a_portion_without_a_gap() {
        let portion = portion(10, &[11, 12, 13, 20, 21], 30);
        assert_eq!(batch(&portion, 10, 40), (vec![11, 12], 12));
        assert_eq!(batch(&portion, 12, 40), (vec![13, 20], 20));
        assert_eq!(batch(&portion, 20, 40), (vec![21], 30), "the last one goes up to where the portion does");
        assert_eq!(batch(&portion, 15, 25), (vec![20, 21], 25));
        assert_eq!(batch(&portion, 12, 19), (vec![13], 19), "no further than it is asked for");
        assert_eq!(batch(&portion, 25, 40), (vec![], 30));
        let begins = |after| portion.begins(DcId(1), at(after));
        assert_eq!([9, 10, 29, 30].map(begins), [false, true, true, false]);
        assert!(!portion.begins(DcId(0), at(15)));
    }

    #[test]
    fn an_update_that_does_not_fit_goes_alone() {
        let mut portion = portion(0, &[1, 2], 5);
        portion.updates[0].items[0].value = Some(vec![b'x'; 2 * BATCH_BYTES].into());
        assert_eq!(batch(&portion, 0, 9), (vec![1], 1));
        assert_eq!(batch(&portion, 1, 9), (vec![2], 5));
    }
}
