//! Counters held ready in memory (document 002, section IV-C, the first optimisation), and how they come there.

use super::update::{Batch, Stopped};
use super::{Counting, Hidden, keys};
use crate::definition::{Definition, Incarnation, Made};
use crate::state::{Both, Circle, DIRECTIONS, Row, State};
use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;
use rheostat_clock::{DcId, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::counter::Direction;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::Now;
use rheostat_core::operation::{Guard, Operation};
use rheostat_core::outcome::Outcome;
use rheostat_core::session::Session;
use rheostat_core::version::{Item, Key, VersionId};
use std::collections::BTreeMap;

/// An ask that an operation here waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hunted {
    pub(super) amount: u64,
    pub(super) until_us: u64,
    /// That time is past, and the operation has gone on to others.
    pub(super) is_over: bool,
}

impl Hunted {
    /// Whether its time has just run out.
    pub(super) fn runs_out(&self, now: Now) -> bool {
        !self.is_over && self.until_us <= now.monotonic_us
    }
}

/// How fast rights are used up here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// What the row said when it was last looked at.
    pub(super) seen: Both<u64>,
    /// Rights used per 1000 seconds, newer ones weighing more.
    pub(super) rate: Both<u64>,
}

/// One counter.
pub(super) struct Cell {
    /// The reserved key of this data center's state.
    pub(super) own_key: Key,
    pub(super) definition: Definition,
    /// The version that holds the definition, or that it is begun over; `None` if there was none.
    pub(super) seen: Option<VersionId>,
    /// The definition is not written yet; when it expires, in milliseconds since the Unix epoch.
    pub(super) unwritten: Option<u64>,
    /// Another data center has made a counter at its key since it was looked at: that a write of it is done does not make it the newest.
    pub(super) stale: bool,
    pub(super) state: State,
    /// The version of this data center's row that the state is of; written over only where servers of a data center keep it together.
    pub(super) row: Option<VersionId>,
    /// When it was last used, on the monotonic clock.
    pub(super) used_us: u64,
    /// Asks under way for operations that wait here.
    pub(super) hunted: Both<BTreeMap<DcId, Hunted>>,
    /// When each data center was last asked in the background.
    pub(super) balanced_us: Both<u64>,
    pub(super) usage: Usage,
    /// What each other data center has added and removed, as of the last row of its own that was taken in.
    pub(super) heard: BTreeMap<DcId, (u64, u64)>,
    /// Reads what others write of it: a session that has read what was taken in, and seen what those had seen who changed it. It has written nothing: in `adaptive` it would wait for its own writes.
    pub(super) reader: Session,
    /// What its state rests on: what the reader has seen, and what was written. Whatever is written of the counter has all of it in its past.
    pub(super) past: Session,
}

impl Cell {
    pub(super) fn is_bounded(&self) -> bool {
        self.definition.lower.is_some() || self.definition.upper.is_some()
    }

    /// Its value, for a reader in data center `here`.
    pub(super) fn value(&self, here: DcId) -> i64 {
        let own = self.state.row(here);
        self.state.value_heard(&self.definition, here, |dc| if dc == here { Some((own.added, own.removed)) } else { self.heard.get(&dc).copied() })
    }
}

/// All that are ready; those not used for longest make place.
pub(super) struct Cells {
    /// An update looks its counters up half a dozen times. In order, so that the same happens in each run, whatever the hashes are.
    cells: IndexMap<Key, Cell, DefaultHashBuilder>,
    most: usize,
}

impl Cells {
    pub(super) fn new(most: usize) -> Cells {
        Cells { cells: IndexMap::default(), most }
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Cell> {
        self.cells.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Cell> {
        self.cells.get_mut(key)
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.cells.swap_remove(key);
    }

    pub(super) fn clear(&mut self) {
        self.cells.clear();
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Cell)> {
        self.cells.iter_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Cell)> {
        self.cells.iter()
    }

    /// Puts `cell` in; if there are too many, an eighth of them goes, except those that `stays` keeps and those that are
    /// used at this moment.
    pub(super) fn insert(&mut self, key: Key, cell: Cell, stays: impl Fn(&Key) -> bool) {
        if self.cells.len() >= self.most {
            let mut ages: Vec<u64> = self.cells.values().map(|cell| cell.used_us).collect();
            let place = ages.len() / 8;
            let (_, oldest, _) = ages.select_nth_unstable(place);
            let oldest = *oldest;
            self.cells.retain(|key, known| known.used_us > oldest || known.used_us == cell.used_us || stays(key));
        }
        self.cells.insert(key, cell);
    }

    /// Rights held here, of all counters that are ready.
    pub(super) fn held(&self, circle: &Circle) -> [u64; 2] {
        DIRECTIONS.map(|direction: Direction| {
            let held = self.cells.values().filter_map(|cell| cell.state.rights(&cell.definition, circle, circle.here, direction));
            held.fold(0, u64::saturating_add)
        })
    }
}

/// What a key is, as far as counters go.
pub(super) enum Found {
    /// A counter.
    Counter(Definition),
    /// Nothing, or a number: a counter without bounds can begin here.
    Free(i64),
    /// A value that is no number.
    Other,
}

pub(super) fn damaged(what: impl std::fmt::Display) -> Failure {
    Failure::Storage(format!("a counter cannot be read: {what}"))
}

pub(super) fn find(read: &Read) -> Result<Found, Failure> {
    let Some(value) = &read.value else { return Ok(Found::Free(0)) };
    match Definition::from_value(value) {
        Some(definition) => definition.map(Found::Counter).map_err(damaged),
        None => Ok(integer(value).map_or(Found::Other, Found::Free)),
    }
}

/// The integer that `text` spells in the one way in which it is written: no plus, no leading zero, no `-0`. Redis takes no other one for a number.
fn integer(text: &[u8]) -> Option<i64> {
    match text {
        [b'0'] | [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..] => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// What was made where `definition` began by itself, if `record`, the bounds beside its key, says so.
pub(super) fn made_instead(definition: &Definition, record: &Read) -> Result<Option<Definition>, Failure> {
    let (Some(value), Some(version)) = (&record.value, record.version) else { return Ok(None) };
    let Made { over, definition: made } = Made::from_value(value).map_err(damaged)?;
    Ok(definition.began_over(over).then(|| made.moved(version)))
}

impl Counting {
    /// The newest version of `key` that has arrived.
    pub(super) fn newest(&mut self, now: Now, key: &Key) -> Result<(Read, Quality), Failure> {
        match self.run(now, Operation::Get { key: key.clone(), dial: Dial::at(Level::Eventual) })? {
            (Outcome::Read(read, quality), _) => Ok((read, quality)),
            (other, _) => Err(damaged(format!("a read was answered by {other:?}"))),
        }
    }

    /// What a reader finds at `key` who remembers `past`. Where servers keep a partition together, what has been decided and has come here. [`Stopped::Hidden`]: the reader would wait.
    pub(super) fn visible(&mut self, now: Now, key: &Key, past: &mut Session) -> Result<(Read, Quality), Stopped> {
        let dial = if self.is_led() { Dial::at(Level::Eventual) } else { Dial::default() };
        match self.run_for(now, Operation::Get { key: key.clone(), dial }, past)?.0 {
            Outcome::Read(read, quality) => Ok((read, quality)),
            other => Err(damaged(format!("a read was answered by {other:?}")).into()),
        }
    }

    /// Whether something newer than `version` has arrived at `key`.
    pub(super) fn has_newer(&mut self, now: Now, key: &Key, version: Option<VersionId>) -> Result<bool, Failure> {
        match self.inner.peek(now, key) {
            Some((newest, _)) => Ok(Some(newest) != version),
            None => Ok(self.newest(now, key)?.0.version != version),
        }
    }

    /// Lets `past` see at `key` what `session` sees there. At home everybody sees the same once somebody does; what the session waits for beyond that, others need not.
    /// Where servers keep a partition together, everybody sees the same.
    pub(super) fn see_with(&mut self, now: Now, key: &Key, session: &Session, past: &mut Session) {
        if self.is_led() {
            return;
        }
        if !session.is_at_home(self.circle.here) {
            self.inner.merge_sessions(past, session);
        } else {
            // An error here is one of the read that follows, too.
            drop(self.visible(now, key, &mut session.clone()));
        }
    }

    /// What is visible at `key`, unless something newer has arrived.
    pub(super) fn settled(&mut self, now: Now, key: &Key) -> Result<Option<Read>, Failure> {
        let mut nobody = self.inner.new_session();
        let (read, _) = self.visible(now, key, &mut nobody).map_err(super::behind)?;
        Ok(if self.has_newer(now, key, read.version)? { None } else { Some(read) })
    }

    /// The state that `dc` wrote of `key`, if it is of counter `incarnation`, and the version that is there.
    fn state_of(
        &mut self,
        now: Now,
        key: &Key,
        dc: DcId,
        incarnation: VersionId,
        past: &mut Session,
    ) -> Result<(Option<State>, Option<VersionId>), Stopped> {
        let place = keys::state(key, dc);
        let read = match self.setup.planted.is("counter-hears-what-is-hidden") {
            true => self.newest(now, &place)?.0,
            false => self.visible(now, &place, past)?.0,
        };
        if self.has_newer(now, &place, read.version)? {
            self.hidden.insert(Hidden::Row(key.clone(), dc));
        } else {
            self.hidden.remove(&Hidden::Row(key.clone(), dc));
        }
        let state = read.value.map(|value| State::from_value(&value)).transpose().map_err(damaged)?;
        Ok((state.filter(|state| state.incarnation == incarnation), read.version))
    }

    /// Lets go of the counter at `key` if another server of this data center has written its row since.
    fn let_go_of_old(&mut self, now: Now, key: &Key) -> Result<(), Failure> {
        if !self.is_grouped() || self.is_in_use(key) {
            return Ok(());
        }
        let Some(cell) = self.cells.get(key) else { return Ok(()) };
        let (own_key, known) = (cell.own_key.clone(), cell.row);
        if self.newest(now, &own_key)?.0.version != known {
            self.let_go(key);
        }
        Ok(())
    }

    /// The counter at `key` is ready no more. What has changed of it in memory goes with it: there is nothing to be written any more.
    pub(super) fn let_go(&mut self, key: &Key) {
        self.cells.remove(key);
        self.touched.remove(key);
    }

    /// Takes in what `dc` has written of the counter at `key`, which is ready.
    pub(super) fn absorb(&mut self, now: Now, key: &Key, dc: DcId) -> Result<crate::fence::Absorbed, Stopped> {
        use crate::fence::Absorbed;
        let Some((incarnation, mut reader)) = self.cells.get(key).map(|cell| (cell.state.incarnation, cell.reader.clone())) else {
            return Ok(Absorbed::Ignored);
        };
        let (Some(state), _) = self.state_of(now, key, dc, incarnation, &mut reader)? else { return Ok(Absorbed::Ignored) };
        let (circle, planted) = (&self.circle, self.setup.planted);
        let Some(cell) = self.cells.get_mut(key) else { return Ok(Absorbed::Ignored) };
        cell.reader = reader;
        if planted.is("counter-merge-adds") {
            for (dc, row) in &state.rows {
                if *dc != circle.here {
                    cell.state.row_mut(*dc).added += row.added;
                }
            }
        }
        if planted.is("counter-hears-who-is-gone") {
            return Ok(if cell.state.merge(&state) { Absorbed::News } else { Absorbed::Nothing });
        }
        let row = state.row(dc);
        cell.heard.insert(dc, (row.added, row.removed));
        let fences = cell.state.row(circle.here).gone.len();
        let absorbed = cell.state.absorb(circle, dc, &state);
        if cell.state.row(circle.here).gone.len() > fences {
            // A fence that is seen is made here at once.
            self.touched.insert(key.clone());
        }
        Ok(absorbed)
    }

    /// Whether the counter at `key` is ready and its definition still the newest, as far as that can be seen in memory.
    pub(super) fn is_ready(&mut self, now: Now, key: &Key) -> bool {
        let may_be_old = self.is_grouped() && !self.is_in_use(key);
        let Some(cell) = self.cells.get_mut(key) else { return false };
        let Some((newest, there)) = self.inner.peek(now, key) else { return false };
        // Another server of this data center may have written the row since.
        if may_be_old && self.inner.peek(now, &cell.own_key).map(|(row, _)| row) != cell.row {
            return false;
        }
        if cell.seen != Some(newest) || !there {
            return false;
        }
        cell.used_us = now.monotonic_us;
        if cell.is_bounded() {
            self.stay_active(now);
        }
        true
    }

    /// Makes the counter at `key` ready, as the newest definition says that is visible to `session`, or to one that has seen nothing; `begin` one if there is none and there can be one. Says how good that is.
    /// Errors: there is none, or it cannot be read.
    pub(super) fn load(&mut self, now: Now, key: &Key, begin: bool, session: Option<&Session>) -> Result<Quality, Stopped> {
        let mut reader = self.cells.get(key).map_or_else(|| self.inner.new_session(), |cell| cell.reader.clone());
        if let Some(session) = session {
            self.see_with(now, key, session, &mut reader);
        }
        let (read, quality) = self.visible(now, key, &mut reader)?;
        self.let_go_of_old(now, key)?;
        let begun = |cell: &Cell| cell.unwritten.is_some() && *cell.state.row(self.circle.here) == Row::default();
        if read.value.is_none() && !self.is_in_use(key) && self.cells.get(key).is_some_and(begun) {
            // For something that was refused. It has taken in since what others did, perhaps to a counter that is over by now.
            self.let_go(key);
        }
        if let Some(cell) = self.cells.get_mut(key)
            && cell.seen == read.version
            && (cell.unwritten.is_some() || read.value.is_some())
        {
            cell.reader = reader;
            cell.used_us = now.monotonic_us;
            if cell.is_bounded() {
                self.stay_active(now);
            }
            return Ok(quality);
        }
        let seen = read.version;
        let (definition, unwritten) = match find(&read)? {
            Found::Counter(definition) => match self.made_over(now, key, &definition, &mut reader)? {
                // The next update writes it over the one that began by itself.
                Some(made) => (made, Some(read.expires_ms)),
                None => (definition, None),
            },
            // What is there would be replaced by what begins now, and what was done to it forgotten.
            _ if !self.is_grouped() && self.has_newer(now, key, seen)? => {
                self.hidden.insert(Hidden::Definition(key.clone()));
                return Err(Stopped::Hidden);
            }
            // What is made there is not written yet, and what begins now would be written over it.
            Found::Free(_) if begin && self.is_being_written(key) => return Err(Stopped::Hidden),
            Found::Free(initial) if begin => (Definition::unbounded(self.begins_over(now, key, &read)?, initial), Some(read.expires_ms)),
            Found::Free(_) => {
                if read.value.is_some() || self.is_deletion(now, key, &read)? {
                    self.forget(now, key);
                } else if !self.is_in_use(key) {
                    // Another data center may have let it live longer. What is kept here goes later, if it has not (`sweep.rs`).
                    self.let_go(key);
                }
                return Err(Failure::Refused("no such counter".into()).into());
            }
            Found::Other => {
                self.forget(now, key);
                return Err(Failure::Refused("value is not an integer or out of range".into()).into());
            }
        };
        let incarnation = definition.incarnation(seen.unwrap_or_default());
        if let Some(cell) = self.cells.get_mut(key) {
            if cell.state.incarnation == incarnation {
                (cell.definition, cell.seen, cell.used_us) = (definition, seen, now.monotonic_us);
                (cell.unwritten, cell.reader, cell.stale) = (unwritten, reader, false);
                return Ok(quality);
            }
            if self.is_in_use(key) {
                return Err(Failure::Busy("another counter has just begun at this key; try again".into()).into());
            }
            self.let_go(key);
        }
        let here = self.circle.here;
        let (state, row) = self.state_of(now, key, here, incarnation, &mut reader)?;
        if self.hidden.contains(&Hidden::Row(key.clone(), here)) {
            // What this data center has done itself is all of it, or nothing can be done on top of it.
            self.hidden.insert(Hidden::Definition(key.clone()));
            return Err(Stopped::Hidden);
        }
        let state = state.unwrap_or_else(|| State::new(incarnation));
        let usage = Usage { seen: Both { down: state.row(here).removed, up: state.row(here).added }, ..Usage::default() };
        let cell = Cell {
            own_key: keys::state(key, here),
            definition,
            seen,
            unwritten,
            stale: false,
            state,
            row,
            used_us: now.monotonic_us,
            hunted: Both::default(),
            balanced_us: Both::default(),
            usage,
            heard: BTreeMap::new(),
            past: self.inner.new_session(),
            reader,
        };
        let (flight, next, parked, touched) = (&self.flight, &self.next, &self.parked, &self.touched);
        let stays = |key: &Key| {
            flight.as_ref().is_some_and(|(_, batch)| batch.cells.contains(key))
                || next.cells.contains(key)
                || touched.contains(key)
                || parked.values().any(|parked| parked.changes.iter().any(|(waits, _)| waits == key))
        };
        self.cells.insert(key.clone(), cell, stays);
        let others: Vec<DcId> = self.circle.others().collect();
        if let Err(stopped) = self.absorb_together(now, key, others) {
            self.let_go(key);
            return Err(stopped);
        }
        self.answer_asks(now, key);
        Ok(quality)
    }

    /// What a counter begins over that begins at `key`, which was `read`: in all data centers that read the same, the same.
    pub(super) fn begins_over(&mut self, now: Now, key: &Key, read: &Read) -> Result<VersionId, Failure> {
        let after = |VersionId { written, origin }| VersionId { written: written.successor(), origin };
        if read.value.is_some() {
            return Ok(read.version.unwrap_or_default());
        }
        // One that was deleted takes what was done to it along. One that has expired leaves it, and must not begin again as itself; its definition may have been collected here and not there.
        let deleted = self.is_deletion(now, key, read)?;
        // Where causes may be missing, what others have done may be on its way behind what they did to it. What was done here is not, nor is anything that whoever wrote a row can have had then.
        let (causes, here) = ((self.setup.serves)(Level::Causal).is_some(), self.circle.here);
        let come = if causes { TimestampVector::new() } else { self.come(now) };
        let (mut last, mut swept, mut nobody) = (None, None, self.inner.new_session());
        // Of one that was made and never used only this may be left.
        let bounds = keys::bounds(key);
        let made = if deleted { Read::default() } else { self.visible(now, &bounds, &mut nobody).map_err(super::behind)?.0 };
        if let (Some(value), Some(version)) = (made.value, made.version) {
            self.check_whole(now, &bounds)?;
            last = Some(Made::from_value(&value).map_err(damaged)?.definition.incarnation(version));
        }
        for dc in self.circle.members.clone().into_iter().filter(|_| !deleted) {
            let row = self.visible(now, &keys::state(key, dc), &mut nobody).map_err(super::behind)?.0;
            match row.value {
                // A row that went is of none that can come again; another data center's may be of it, and be taken for one of what begins now.
                None => swept = swept.max(row.version),
                Some(value)
                    if causes
                        || dc == here
                        || row.version.is_some_and(|version| self.come_from_all(&come, self.ahead_of(version.written.millis()))) =>
                {
                    last = last.max(Some(State::from_value(&value).map_err(damaged)?.incarnation));
                }
                Some(_) => {}
            }
        }
        Ok(last.or(read.version).or(swept).map(after).unwrap_or_default())
    }

    /// Whether what was `read` at `key` was deleted, and has not only expired by the clock here.
    pub(super) fn is_deletion(&mut self, now: Now, key: &Key, read: &Read) -> Result<bool, Failure> {
        let Some(id) = read.version.filter(|_| read.value.is_none()) else { return Ok(false) };
        let explained = self.run(now, Operation::Explain { key: key.clone() })?.0;
        Ok(matches!(explained, Outcome::Explained(versions) if versions.iter().any(|version| version.id == id && version.length.is_none())))
    }

    /// Errors: something is on its way that was written before what is at `place`, perhaps what belongs to it. A group takes in what is shipped from a snapshot in any order.
    fn check_whole(&mut self, now: Now, place: &Key) -> Result<(), Failure> {
        match self.is_grouped() && self.whole(now, place.clone()).is_none() {
            true => Err(super::behind(Stopped::Hidden)),
            false => Ok(()),
        }
    }

    /// What was made at `key` when `definition` began by itself there; `None` if nothing was. See [`Made`].
    fn made_over(&mut self, now: Now, key: &Key, definition: &Definition, past: &mut Session) -> Result<Option<Definition>, Stopped> {
        if definition.lower.is_some() || definition.upper.is_some() || definition.incarnation == Incarnation::Own {
            return Ok(None);
        }
        let (read, _) = self.visible(now, &keys::bounds(key), past)?;
        Ok(made_instead(definition, &read)?)
    }

    /// Whether something at `key` is not written yet.
    pub(super) fn is_in_use(&self, key: &Key) -> bool {
        self.flight.as_ref().is_some_and(|(_, batch)| batch.cells.contains(key)) || self.next.cells.contains(key)
    }

    /// Whether a write of `key` itself, which makes a counter there, is under way or goes out next.
    pub(super) fn is_being_written(&self, key: &Key) -> bool {
        let writes = |batch: &Batch| batch.extra.iter().any(|item| item.key == *key);
        writes(&self.next) || self.flight.as_ref().is_some_and(|(_, batch)| writes(batch))
    }

    /// Whether a write of this server's own that waits for its clock makes a counter at `key`, or writes its definition: it would take the place of what is written there meanwhile.
    pub(super) fn is_being_made(&self, key: &Key) -> bool {
        let waits = self.flight.is_some() && !self.is_led();
        let defines = || self.is_in_use(key) && self.cells.get(key).is_some_and(|cell| cell.unwritten.is_some());
        waits && (self.is_being_written(key) || defines())
    }

    /// There is no counter at `key` any more: what this data center keeps of it goes, and what says how it was made.
    pub(super) fn forget(&mut self, now: Now, key: &Key) {
        if self.is_in_use(key) || self.is_being_written(key) {
            return;
        }
        self.let_go(key);
        if self.is_full() {
            // It stays for now, and is of no counter.
            return;
        }
        let mut left: Vec<(Key, Option<VersionId>)> = Vec::new();
        for place in [keys::state(key, self.circle.here), keys::bounds(key)] {
            if let Ok((Read { value: Some(_), version, .. }, _)) = self.newest(now, &place) {
                left.push((place, version));
            }
        }
        if left.is_empty() {
            return;
        }
        // Who finds it gone finds that there is no counter, too.
        let mut reader = self.inner.new_session();
        if self.visible(now, key, &mut reader).is_ok() {
            self.inner.merge_sessions(&mut self.session, &reader);
        }
        self.next.own = true;
        for (place, version) in left {
            self.next.guards.push(Guard { key: place.clone(), version });
            self.next.add_extra(Item { key: place, value: None, expires_ms: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_in_the_one_way_is_a_number() {
        for (text, number) in [("0", 0), ("7", 7), ("-7", -7), ("70", 70), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)] {
            assert_eq!(integer(text.as_bytes()), Some(number));
        }
        for text in ["", "-", "+", "+5", "-+5", "--5", "007", "00", "-0", "-07", " 7", "7 ", "7.0", "1e3", "9223372036854775808", "\u{661}"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(integer(b"7\xff"), None);
    }
}
