//! A store, and in front of it what is written and not decided yet.
//!
//! The store behind holds what the group has agreed on and nothing else, at every replica, at any time. What the leader's server writes stands in memory in front of it, where the server finds it
//! again, until a majority has it; then it goes into the store, as at the others. So a leader that is followed by another drops what is in front, and has what all have: nothing is taken back, no checkpoint
//! holds what may be void, and nothing is collected because of it.

use crate::front::Front;
use crate::record::{Record, Saved};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::planted::Planted;
use rheostat_core::replica::state_with_received;
use rheostat_core::slots::{slot, walk_hash};
use rheostat_core::store::{
    Cut, FlushJob, History, KeepAll, Position, ReadDone, ReadJob, Recovered, ScanPage, Store, StoreStats, Trim, raise_newest,
};
use rheostat_core::version::{Key, Update, Version, VersionId};
use rheostat_core::wire::Wire;
use std::collections::{BTreeSet, VecDeque};
use std::io;

/// Bytes of records in one entry of the group's log, about; one that has more goes alone.
pub(crate) const ENTRY_BYTES: usize = 512 << 10;

/// Collections that are told again at most. Those of others are garbage in the followers' stores until they lead.
const MOST_UNTOLD: usize = 65_536;

/// Keys that were written and are looked at for collection with each later write.
const LOOK_AT: usize = 2;

/// See the module.
pub struct Ahead<M, S> {
    base: S,
    /// What is remembered beside.
    pub saved: Saved,
    /// [`Saved::applied`] as it was last recorded.
    noted: u64,
    /// Deletions stay.
    keeps_deletions: bool,
    /// Per data center (by index), the newest update in the store.
    newest: Vec<Timestamp>,
    planted: Planted,
    /// Versions that are not decided.
    front: Front<M>,
    /// The newest own update, decided or not.
    newest_own: Timestamp,
    end: Position,
    durable: Position,
    /// Records that are not in an entry yet, and about how many bytes they are.
    fresh: VecDeque<(Record<M>, usize)>,
    fresh_bytes: usize,
    /// What was collected when this replica led, and may not have been decided: the others are told when it leads again.
    untold: Vec<(Key, Trim)>,
    /// Where collections stand in the log that may have been made here before something of their key was in the store that the others have by then: they let go of that as well.
    early: VecDeque<Position>,
    /// Keys whose chains have grown since they were looked at for collection.
    grown: VecDeque<Key>,
}

/// Another cut, by which deletions stay.
struct WithDeletions<'a, C>(&'a C);

impl<M, C: Cut<M>> Cut<M> for WithDeletions<'_, C> {
    const SIBLINGS: bool = C::SIBLINGS;

    fn replaces(&self, newer: &Version<M>, older: &Version<M>) -> bool {
        self.0.replaces(newer, older)
    }

    fn settled(&self, version: &Version<M>) -> bool {
        self.0.settled(version)
    }

    fn complete(&self, _: Timestamp) -> bool {
        false
    }

    fn covers(&self, at: Timestamp) -> bool {
        self.0.covers(at)
    }

    fn history(&self) -> History {
        self.0.history()
    }
}

fn record_bytes<M>(record: &Record<M>) -> usize {
    let item = |item: &rheostat_core::version::Item| item.key.len() + item.value.as_ref().map_or(0, |value| value.len()) + 48;
    match record {
        Record::Own(update) | Record::Other(update) => update.items.iter().map(item).sum(),
        Record::State(state) => state.len(),
        Record::Trim(key, _) => key.len() + 24,
        Record::Release(_) => 16,
    }
}

impl<M: Wire + Clone + Send + 'static, S: Store<M>> Ahead<M, S> {
    /// Nothing in front of `base`, in which was `found`. Errors: its state is not a replica's.
    pub fn open(base: S, found: &Recovered, planted: Planted) -> Result<Ahead<M, S>, String> {
        let saved = match &found.state {
            None => Saved::default(),
            Some(state) => Saved::from_bytes(state).map_err(|error| format!("the replica's state cannot be read: {error}"))?,
        };
        let mut newest = found.newest.clone();
        for (dc, written) in (0..).map(DcId).zip(&saved.came) {
            raise_newest(&mut newest, VersionId { written: *written, origin: dc });
        }
        Ok(Ahead {
            newest_own: base.newest_own(),
            base,
            noted: saved.applied,
            keeps_deletions: false,
            saved,
            newest,
            planted,
            front: Front::new(),
            end: Position(0),
            durable: Position(0),
            fresh: VecDeque::new(),
            fresh_bytes: 0,
            untold: Vec::new(),
            early: VecDeque::new(),
            grown: VecDeque::new(),
        })
    }

    /// The store behind.
    pub fn base(&self) -> &S {
        &self.base
    }

    /// The store behind, for what is agreed on.
    pub fn base_mut(&mut self) -> &mut S {
        &mut self.base
    }

    /// The store behind, taken out.
    pub fn into_base(self) -> S {
        self.base
    }

    /// What a server that starts finds.
    pub fn found(&self) -> Recovered {
        Recovered { state: self.saved.state.clone(), newest: self.newest.clone(), ..Recovered::default() }
    }

    /// The server's state for a member that takes the chains in pages: it says as well up to where each data center's updates have come. The chains do not, since the newest of them may have been collected.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn state_for_pages(&self) -> io::Result<Option<Vec<u8>>> {
        let told = self.saved.state.as_ref().map(|state| state_with_received(state, &self.newest)).transpose();
        told.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("the server's state cannot be read: {error}")))
    }

    /// A server begins to write, from position `start` on.
    pub fn lead(&mut self, start: Position) {
        (self.end, self.durable) = (start, start);
        self.newest_own = self.base.newest_own();
        self.base.remember_collected(true);
        for (key, trim) in std::mem::take(&mut self.untold) {
            // Others may have written to the key since.
            let at = self.push(Record::Trim(key, trim));
            self.early.push_back(at);
        }
    }

    /// It writes no more; what is not decided is dropped: what is here, and the records in `proposed`.
    ///
    /// # Errors
    /// As [`Ahead::decide`].
    pub fn follow(&mut self, proposed: impl Iterator<Item = Record<M>>) -> io::Result<()> {
        self.tell_collected();
        let dropped = proposed.chain(self.fresh.drain(..).map(|(record, _)| record));
        let trims = dropped.filter_map(|record| if let Record::Trim(key, trim) = record { Some((key, trim)) } else { None });
        self.untold.extend(trims.take(MOST_UNTOLD));
        self.base.remember_collected(false);
        if self.planted.is("replicas-keep-undecided") {
            for (key, versions) in self.front.take() {
                for version in versions {
                    self.base.append(&alone(&key, version), false, &KeepAll)?;
                }
            }
        }
        self.front.clear();
        self.fresh_bytes = 0;
        self.early.clear();
        self.grown.clear();
        Ok(())
    }

    /// Records for the next entry, if there are any; about how many bytes they are; and where the log ends with them.
    pub fn take_fresh(&mut self) -> Option<(Vec<Record<M>>, usize, Position)> {
        self.tell_collected();
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some((record, size)) = self.fresh.pop_front_if(|(_, size)| bytes == 0 || bytes + *size <= ENTRY_BYTES) {
            bytes += size;
            records.push(record);
        }
        self.fresh_bytes -= bytes;
        let end = Position(self.end.0 - self.fresh.len() as u64);
        (!records.is_empty()).then_some((records, bytes, end))
    }

    /// Number of records that are not in an entry.
    pub fn fresh(&self) -> usize {
        self.fresh.len()
    }

    /// Bytes of records that are not in an entry.
    pub fn fresh_bytes(&self) -> usize {
        self.fresh_bytes
    }

    /// Whether everything that was written is decided.
    pub fn is_decided(&self) -> bool {
        self.durable >= self.end
    }

    /// The group has agreed on records of this server, which end at `end`.
    ///
    /// # Errors
    /// The disk's. Nothing may be appended after an error.
    pub fn decide(&mut self, records: Vec<Record<M>>, end: Position) -> io::Result<()> {
        let first = end.0 + 1 - records.len() as u64;
        for (at, record) in (first..).zip(records) {
            match record {
                // Done when it was told of, but for what has come into the store since.
                Record::Trim(key, trim) => {
                    if self.early.pop_front_if(|early| early.0 == at).is_some() {
                        self.base.trim(&key, &trim)?;
                    }
                }
                // Done when it was told of.
                Record::Release(_) => {}
                Record::Own(ref update) | Record::Other(ref update) => {
                    self.append_decided(update, matches!(record, Record::Own(_)))?;
                    for item in &update.items {
                        self.front.remove(&item.key, update.id);
                        self.grown.push_back(item.key.clone());
                    }
                }
                Record::State(_) => self.apply(record)?,
            }
        }
        self.durable = end;
        Ok(())
    }

    /// The group has agreed on `record`.
    ///
    /// # Errors
    /// As [`Ahead::decide`].
    pub fn apply(&mut self, record: Record<M>) -> io::Result<()> {
        match record {
            Record::Own(update) => self.append_decided(&update, true),
            Record::Other(update) => self.append_decided(&update, false),
            Record::State(state) => {
                self.saved.state = Some(state);
                self.save()
            }
            Record::Trim(key, trim) => self.base.trim(&key, &trim),
            Record::Release(upto) => {
                self.base.release(upto);
                Ok(())
            }
        }
    }

    fn append_decided(&mut self, update: &Update<M>, own: bool) -> io::Result<()> {
        // What was of other keys of the partition before it was split; or of a leader of an earlier version.
        if update.items.is_empty() {
            raise_newest(&mut self.newest, update.id);
            raise_newest(&mut self.saved.came, update.id);
            return Ok(());
        }
        // After a restart, and after pages, what is here is told again.
        let new = own && update.id.written > self.base.newest_own() && !self.planted.is("replicas-forget-own-log");
        self.base.append(update, new, &KeepAll)?;
        raise_newest(&mut self.newest, update.id);
        Ok(())
    }

    /// Puts a version of a page into the store, as own if `own` says so and the store does not have it.
    ///
    /// # Errors
    /// As [`Ahead::decide`].
    pub fn install(&mut self, update: &Update<M>, own: bool) -> io::Result<()> {
        let own = own && update.id.written > self.base.newest_own();
        self.base.append(update, own, &KeepAll)?;
        raise_newest(&mut self.newest, update.id);
        Ok(())
    }

    /// Records [`Ahead::saved`].
    ///
    /// # Errors
    /// As [`Ahead::decide`].
    pub fn save(&mut self) -> io::Result<()> {
        self.base.append_state(&self.saved.to_bytes())?;
        self.noted = self.saved.applied;
        Ok(())
    }

    /// A member is given the state in pages, or no more. It goes on with the entries after its snapshot, one of which may bring an older write of a key: its deletion must be in the pages.
    pub fn keep_deletions(&mut self, keep: bool) {
        self.keeps_deletions = keep;
    }

    /// Records how far the log is applied, before deletions go: a restart that applied some of it again could find an older write of a key after the deletion that went with it. Says whether it has.
    fn notes_applied(&mut self) -> bool {
        self.noted == self.saved.applied || self.save().is_ok()
    }

    fn push(&mut self, record: Record<M>) -> Position {
        let bytes = record_bytes(&record);
        self.fresh.push_back((record, bytes));
        self.fresh_bytes += bytes;
        self.end.0 += 1;
        self.end
    }

    fn tell_collected(&mut self) {
        for (key, trim) in self.base.take_collected() {
            let early = !self.front.get(&key).is_empty();
            let at = self.push(Record::Trim(key, trim));
            if early {
                self.early.push_back(at);
            }
        }
    }

    fn collect_grown(&mut self, most: usize, cut: &impl Cut<M>) -> usize {
        let mut count = 0;
        for _ in 0..most {
            let Some(key) = self.grown.pop_front() else { break };
            count += self.base.collect(&key, cut);
        }
        count
    }

    fn knows(&mut self, key: &[u8], id: VersionId) -> bool {
        let in_front = self.front.get(key).iter().any(|version| version.id == id);
        in_front || self.base.latest(key, |version| version.id == id).is_some()
    }
}

/// One version of one key, as an update.
pub fn alone<M>(key: &Key, version: Version<M>) -> Update<M> {
    let item = rheostat_core::version::Item { key: key.clone(), value: version.value, expires_ms: version.expires_ms };
    Update { id: version.id, items: smallvec::smallvec![item], meta: version.meta }
}

fn cannot<T>(what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("replicas do not agree on {what}")))
}

impl<M: Wire + Clone + Send + 'static, S: Store<M>> Store<M> for Ahead<M, S> {
    fn append(&mut self, update: &Update<M>, own: bool, cut: &impl Cut<M>) -> io::Result<Position> {
        if update.items.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("update {} is of no keys", update.id)));
        }
        self.collect_grown(LOOK_AT * update.items.len(), &WithDeletions(cut));
        if own && update.id.written <= self.newest_own {
            let known = update.items.iter().all(|item| self.knows(&item.key, update.id));
            let older =
                || io::Error::new(io::ErrorKind::InvalidInput, format!("own update {} is older than the last one: the clock went back", update.id));
            return if known { Ok(self.end) } else { Err(older()) };
        }
        if !own && update.items.iter().all(|item| self.knows(&item.key, update.id)) {
            return Ok(self.end);
        }
        for (key, version) in update.versions() {
            self.front.insert(key, version);
        }
        if own {
            self.newest_own = update.id.written;
        }
        Ok(self.push(if own { Record::Own(update.clone()) } else { Record::Other(update.clone()) }))
    }

    fn append_state(&mut self, state: &[u8]) -> io::Result<Position> {
        Ok(self.push(Record::State(state.to_vec())))
    }

    fn append_entry(&mut self, _: u64, _: &[u8]) -> io::Result<Position> {
        cannot("a log that the protocol keeps itself")
    }

    fn compact_entries(&mut self, _: u64) -> io::Result<Position> {
        cannot("a log that the protocol keeps itself")
    }

    fn readable(&self) -> io::Result<()> {
        self.base.readable()
    }

    #[inline]
    fn latest(&mut self, key: &[u8], accept: impl Fn(&Version<M>) -> bool) -> Option<&Version<M>> {
        if self.front.is_empty() {
            return self.base.latest(key, accept);
        }
        let Some(in_front) = self.front.get(key).iter().rev().find(|version| accept(version)) else {
            return self.base.latest(key, accept);
        };
        match self.base.latest(key, accept) {
            Some(version) if version.id > in_front.id => Some(version),
            _ => Some(in_front),
        }
    }

    #[inline]
    fn peek(&self, key: &[u8]) -> Option<&Version<M>> {
        let behind = self.base.peek(key);
        match self.front.get(key).last() {
            Some(in_front) if behind.is_none_or(|behind| behind.id < in_front.id) => Some(in_front),
            _ => behind,
        }
    }

    fn prefetch(&self, keys: &[&[u8]], touch: impl FnMut(&Version<M>)) {
        self.base.prefetch(keys, touch);
    }

    fn is_cold(&self) -> bool {
        self.base.is_cold()
    }

    fn ready(&mut self, keys: &[&[u8]]) -> bool {
        self.base.ready(keys)
    }

    fn begin_read(&mut self) -> Option<ReadJob> {
        self.base.begin_read()
    }

    fn end_read(&mut self, read: ReadDone) {
        self.base.end_read(read);
    }

    fn candidates(&self) -> usize {
        self.base.candidates() + self.grown.len()
    }

    fn chain(&mut self, key: &[u8]) -> Vec<Version<M>> {
        let mut chain = self.base.chain(key);
        for version in self.front.get(key) {
            if let Err(at) = chain.binary_search_by(|held| version.id.cmp(&held.id)) {
                chain.insert(at, version.clone());
            }
        }
        chain
    }

    fn collect(&mut self, key: &[u8], cut: &impl Cut<M>) -> usize {
        let count = match self.notes_applied() {
            true if self.keeps_deletions => self.base.collect(key, &WithDeletions(cut)),
            true => self.base.collect(key, cut),
            false => 0,
        };
        self.tell_collected();
        count
    }

    fn collect_some(&mut self, limit: usize, cut: &impl Cut<M>) -> usize {
        // Keys that are on disk only are not among the candidates.
        let none = self.candidates() == 0 && !self.is_cold();
        let count = if self.keeps_deletions {
            let cut = WithDeletions(cut);
            self.collect_grown(limit, &cut) + self.base.collect_some(limit, &cut)
        } else if none || self.notes_applied() {
            self.collect_grown(limit, cut) + self.base.collect_some(limit, cut)
        } else {
            0
        };
        self.tell_collected();
        count
    }

    fn trim(&mut self, key: &Key, trim: &Trim) -> io::Result<()> {
        self.base.trim(key, trim)
    }

    fn newest_gone(&self) -> Timestamp {
        self.base.newest_gone()
    }

    fn remember_collected(&mut self, _: bool) {}

    fn take_collected(&mut self) -> Vec<(Key, Trim)> {
        Vec::new()
    }

    fn scan(&mut self, of: u16, from: u32, limit: usize) -> ScanPage {
        let mut page = self.base.scan(of, from, limit);
        if self.front.is_empty() {
            return page;
        }
        // Keys that are in front only have their places as well.
        let next = page.next;
        let here = |key: &Key| slot(key) == of && walk_hash(key) >= from && next.is_none_or(|next| walk_hash(key) < next);
        let known: BTreeSet<&Key> = page.keys.iter().collect();
        let more = self.front.keys(|key| here(key) && !known.contains(key));
        page.keys.extend(more);
        page
    }

    fn end(&self) -> Position {
        self.end
    }

    fn durable(&self) -> Position {
        if self.planted.is("replicas-reply-before-majority") { self.end } else { self.durable }
    }

    fn write_through(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn begin_flush(&mut self) -> Option<FlushJob> {
        None
    }

    fn end_flush(&mut self, _: Position) {}

    fn own_updates(&mut self, after: Timestamp, max_bytes: usize) -> io::Result<(Vec<Update<M>>, bool)> {
        let (updates, all) = self.base.own_updates(after, max_bytes)?;
        let last = updates.last().map_or(after, |update| update.id.written);
        Ok((updates, all && last >= self.newest_own))
    }

    fn held_updates(&mut self, origin: DcId, after: Timestamp, max_bytes: usize) -> io::Result<(Vec<Update<M>>, bool)> {
        self.base.held_updates(origin, after, max_bytes)
    }

    fn newest_own(&self) -> Timestamp {
        self.newest_own
    }

    fn released(&self) -> Timestamp {
        self.base.released().max(self.saved.chained)
    }

    fn release(&mut self, upto: Timestamp) {
        let before = self.base.released();
        self.base.release(upto);
        let released = self.base.released();
        if released > before {
            self.push(Record::Release(released));
        }
    }

    fn maintain(&mut self) -> io::Result<bool> {
        self.base.maintain()
    }

    fn rest(&mut self) -> io::Result<()> {
        self.base.rest()
    }

    fn stats(&self) -> StoreStats {
        self.base.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::TimestampVector;
    use rheostat_core::version::{Item, Value};
    use rheostat_storage::MemoryStore;

    type Replica = Ahead<(), MemoryStore<()>>;

    /// Whatever is replaced goes.
    struct Replaced;

    impl Cut<()> for Replaced {
        fn settled(&self, _: &Version<()>) -> bool {
            true
        }

        fn complete(&self, _: Timestamp) -> bool {
            false
        }

        fn history(&self) -> History {
            History { floor_ms: u64::MAX, ..<KeepAll as Cut<()>>::history(&KeepAll) }
        }
    }

    /// Nothing older comes any more, either.
    struct Complete;

    impl Cut<()> for Complete {
        fn settled(&self, _: &Version<()>) -> bool {
            true
        }

        fn complete(&self, _: Timestamp) -> bool {
            true
        }

        fn history(&self) -> History {
            Cut::<()>::history(&Replaced)
        }
    }

    fn update(ms: u64, origin: u8) -> Update<()> {
        let item = Item { key: Key::from(&b"k"[..]), value: Some(Value::from(&b"v"[..])), expires_ms: 0 };
        Update { id: VersionId { written: Timestamp::new(ms, 0), origin: DcId(origin) }, items: smallvec::smallvec![item], meta: () }
    }

    #[test]
    fn the_state_for_pages_tells_of_updates_that_were_collected_and_of_none_that_are_not_decided() {
        // As a server's first version wrote it: nothing handed out, nothing received, no state of the protocol.
        let state = [(Timestamp::ZERO, TimestampVector::new()).to_bytes(), false.to_bytes()].concat();
        let mut ahead = Ahead::<(), _>::open(MemoryStore::new(), &Recovered::default(), Planted::NONE).unwrap();
        assert_eq!(ahead.state_for_pages().unwrap(), None, "a server that never saved anything begins anew");
        ahead.apply(Record::State(state.clone())).unwrap();
        for (ms, origin) in [(5, 1), (9, 2)] {
            ahead.apply(Record::Other(update(ms, origin))).unwrap();
        }
        ahead.apply(Record::Own(update(10, 0))).unwrap();
        ahead.apply(Record::Trim(Key::from(&b"k"[..]), Trim::Upto(update(9, 2).id))).unwrap();
        assert_eq!(ahead.chain(b"k").len(), 1, "nothing is left of the others'");
        ahead.lead(Position(0));
        ahead.append(&update(11, 1), false, &KeepAll).unwrap();
        let told = state_with_received(&state, &[10, 5, 9].map(|ms| Timestamp::new(ms, 0))).unwrap();
        assert_eq!(ahead.state_for_pages().unwrap(), Some(told));
        let mut ahead = Ahead::<(), _>::open(MemoryStore::new(), &Recovered::default(), Planted::NONE).unwrap();
        ahead.apply(Record::State(vec![1])).unwrap();
        assert_eq!(ahead.state_for_pages().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    /// Frames between servers have room for the largest write, and hardly more where `limits.max_frame_bytes` is small: an entry that no other server gets holds up all that follows.
    #[test]
    fn a_large_write_goes_into_an_entry_of_its_own() {
        let mut leader = Replica::open(MemoryStore::new(), &Recovered::default(), Planted::NONE).unwrap();
        leader.lead(Position(0));
        for (ms, bytes) in [(1, 10), (2, 2 * ENTRY_BYTES), (3, 10), (4, ENTRY_BYTES / 2), (5, ENTRY_BYTES / 2)] {
            let mut write = update(ms, 0);
            write.items[0].value = Some(Value::from(vec![b'v'; bytes]));
            leader.append(&write, true, &KeepAll).unwrap();
        }
        let mut entries = Vec::new();
        while let Some((records, ..)) = leader.take_fresh() {
            entries.push(records.len());
        }
        assert_eq!(entries, [1, 1, 2, 1]);
        assert_eq!((leader.fresh(), leader.fresh_bytes()), (0, 0));
    }

    /// What `leader` has written is decided, and `other` applies it.
    fn agree(leader: &mut Replica, other: &mut Replica) {
        while let Some((records, _, end)) = leader.take_fresh() {
            records.iter().for_each(|record| other.apply(record.clone()).unwrap());
            leader.decide(records, end).unwrap();
        }
    }

    /// Two replicas that have two versions of a key, the later one of 9 ms; the first leads.
    fn two_versions() -> (Replica, Replica) {
        let [mut leader, mut other] = [(); 2].map(|()| Replica::open(MemoryStore::new(), &Recovered::default(), Planted::NONE).unwrap());
        leader.lead(Position(0));
        for ms in [5, 9] {
            leader.append(&update(ms, 1), false, &KeepAll).unwrap();
        }
        agree(&mut leader, &mut other);
        (leader, other)
    }

    fn times(replica: &mut Replica) -> Vec<u64> {
        replica.chain(b"k").iter().map(|version| version.id.written.millis()).collect()
    }

    /// A clock that is behind gives a write a time before what has been there. A collection takes the two apart at the leader, which collects before it is decided; the others see the write first.
    #[test]
    fn an_older_write_beside_a_collection_ends_alike_at_the_leader_and_at_the_others() {
        for with_the_write in [true, false] {
            let (mut leader, mut other) = two_versions();
            if with_the_write {
                leader.append(&update(3, 0), true, &Replaced).unwrap();
            } else {
                leader.append(&update(3, 0), true, &KeepAll).unwrap();
                leader.collect_some(9, &Replaced);
            }
            assert_eq!(leader.base_mut().chain(b"k").len(), 1, "the replaced version is collected, and the write not decided");
            agree(&mut leader, &mut other);
            assert_eq!((times(&mut leader), times(&mut other)), (vec![9], vec![9]), "{with_the_write}");
        }
    }

    #[test]
    fn a_collection_that_is_told_when_it_leads_again_ends_alike_at_the_leader_and_at_the_others() {
        let (mut leader, mut other) = two_versions();
        leader.collect(b"k", &Replaced);
        leader.follow(std::iter::empty()).unwrap();
        other.lead(Position(0));
        other.append(&update(3, 0), true, &KeepAll).unwrap();
        agree(&mut other, &mut leader);
        other.follow(std::iter::empty()).unwrap();
        assert_eq!((times(&mut leader), times(&mut other)), (vec![9, 3], vec![9, 5, 3]), "nobody was told");
        leader.lead(Position(2));
        agree(&mut leader, &mut other);
        assert_eq!((times(&mut leader), times(&mut other)), (vec![9], vec![9]));
    }

    /// The state was recorded between a deletion and an older write of its key; then the leader collected both, and was gone before the others heard of that. What it applies again is not the write alone.
    #[test]
    fn a_write_that_went_with_its_deletion_does_not_come_back_alone_after_a_restart() {
        let mut deletion = update(9, 1);
        deletion.items[0].value = None;
        let entries = [Record::Other(deletion), Record::State(Vec::new()), Record::Other(update(5, 2))];
        let mut leader = Replica::open(MemoryStore::with_simulated_disk(), &Recovered::default(), Planted::NONE).unwrap();
        for (index, record) in (1u64..).zip(&entries) {
            leader.apply(record.clone()).unwrap();
            leader.saved.applied = index;
        }
        assert_eq!(times(&mut leader), vec![9, 5]);
        leader.lead(Position(0));
        assert_eq!(leader.collect_some(9, &Complete), 2);
        let (store, found) = leader.base().crash_image_at(leader.base().end());
        let mut again = Replica::open(store, &found, Planted::NONE).unwrap();
        assert!(again.chain(b"k").is_empty());
        let applied = again.saved.applied;
        for (_, record) in (1u64..).zip(&entries).filter(|(index, _)| *index > applied) {
            again.apply(record.clone()).unwrap();
        }
        assert!(again.chain(b"k").is_empty(), "applied up to {applied}");
    }

    /// One of an earlier version's leader is passed over; no server writes one.
    #[test]
    fn updates_of_no_keys_go_no_further() {
        let empty = Update { items: Default::default(), ..update(5, 0) };
        let mut ahead = Ahead::<(), _>::open(MemoryStore::new(), &Recovered::default(), Planted::NONE).unwrap();
        ahead.apply(Record::Own(empty.clone())).unwrap();
        ahead.decide(vec![Record::Other(empty.clone())], Position(1)).unwrap();
        assert_eq!((ahead.base().end(), ahead.base().newest_own()), (Position(0), Timestamp::ZERO));
        assert_eq!(ahead.append(&empty, true, &KeepAll).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
