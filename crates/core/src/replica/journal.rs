//! What a step appends to the store, and what is remembered of it: the first error, the saved state, the reserved keys that have arrived.

use super::feed::{Index, meets};
use super::reservation::{Reservation, Reserved};
use super::stop::{PlainStop, Stop};
use super::{Applied, Beside, Counters, Wanted};
use crate::ids::Now;
use crate::notch::{Held, Notches};
use crate::reserved::is_reserved;
use crate::store::{Checkpoints, Cut, History, Store};
use crate::version::{Key, Update, Version, VersionId};
use crate::wire::{Reader, Wire, WireError};
use crate::wire_struct;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use std::sync::Arc;

/// What the replica keeps over a restart, beside the updates.
#[derive(Default)]
pub(super) struct Saved {
    /// Which timestamps may have been handed out.
    pub(super) reservation: Reservation,
    /// Per data center, up to where its updates and heartbeats had been applied.
    pub(super) received: TimestampVector,
    /// For how long replaced versions were kept, in milliseconds.
    pub(super) history_ms: u64,
    /// Nothing that was the newest version then or later has been let go of.
    pub(super) whole_from: Timestamp,
    /// At which moments before that it was kept, too.
    pub(super) checkpoints: Checkpoints,
    /// Nothing that was the newest version at one of these, from here on, has been let go of.
    pub(super) checkpoints_from: Timestamp,
    /// What was taken in parts can be relied on when everything of each data center up to here has come.
    pub(super) needs: TimestampVector,
    /// What has come back of own updates that a disk has lost, if one has.
    pub(super) refilled: Option<Refilled>,
    /// Which clients' writes are refused.
    pub(super) stops: Vec<Stop>,
    /// Everything that was written here up to this stands before the state in the log.
    pub(super) logged: Timestamp,
    /// What was written here after the first and up to the second can be lost, since the machine lost its power or a disk; oldest first.
    pub(super) doubtful: Vec<(Timestamp, Timestamp)>,
    /// Per data center, up to where it has lost what it had of this server's updates, or never had it, in the place of one that was lost; gone when it has them.
    pub(super) lost: TimestampVector,
    /// Data centers that have the place of a lost one, and which generation of them counts here since it was open.
    pub(super) admitted: Vec<Admitted>,
    /// The protocol's own.
    pub(super) protocol: Option<Vec<u8>>,
}

impl Saved {
    /// Which generation of `dc` counts here; 0 if none of those that have come later.
    pub(super) fn admitted(&self, dc: DcId) -> u32 {
        self.admitted.iter().find(|admitted| admitted.dc == dc).map_or(0, |admitted| admitted.generation)
    }

    /// Generation `generation` of `dc` counts here.
    pub(super) fn admit(&mut self, dc: DcId, generation: u32) {
        self.admitted.retain(|admitted| admitted.dc != dc);
        self.admitted.push(Admitted { dc, generation });
    }

    /// Every data center's updates up to `newest` have been applied.
    pub(super) fn raise_received(&mut self, newest: &[Timestamp]) {
        for (index, at) in newest.iter().enumerate() {
            self.received.raise(DcId(index as u8), *at);
        }
    }
}

/// Own updates that came back from other data centers. Only the chains hold them, not the log of own updates.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Refilled {
    /// Up to where.
    pub(super) upto: Timestamp,
    /// The server writes again since its clock stood here, with all that follows in its log of own updates.
    pub(super) resumed: Option<Timestamp>,
    /// Every other data center has sent what it had.
    pub(super) done: bool,
}

impl Refilled {
    /// Up to where own updates are in the chains only.
    pub(super) fn in_chains(self) -> Timestamp {
        self.resumed.unwrap_or(self.upto)
    }
}

wire_struct!(Refilled { upto, resumed, done });

/// See [`Saved::admitted`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Admitted {
    pub(super) dc: DcId,
    pub(super) generation: u32,
}

wire_struct!(Admitted { dc, generation });

/// Of so many stretches of time it is remembered that what was written then can be lost.
const MOST_DOUBTFUL: usize = 16;

/// How a state begins whose form has a number; the first form began with the greatest timestamp handed out, which is never this one.
const NUMBERED: Timestamp = Timestamp::MAX;

impl Wire for Saved {
    fn encode(&self, out: &mut Vec<u8>) {
        NUMBERED.encode(out);
        let has_checkpoints = self.checkpoints != Checkpoints::NONE;
        let plain = self.stops.iter().all(Stop::is_plain);
        // Without them, a server of the release before can read it.
        let form = match (plain, has_checkpoints) {
            _ if self.lost != TimestampVector::new() || !self.admitted.is_empty() => 8,
            _ if self.logged > Timestamp::ZERO || !self.doubtful.is_empty() => 7,
            (true, false) => 4,
            (true, true) => 5,
            (false, _) => 6,
        };
        out.push(form);
        self.reservation.encode(out);
        self.received.encode(out);
        self.history_ms.encode(out);
        self.whole_from.encode(out);
        self.needs.encode(out);
        self.refilled.encode(out);
        if form < 6 {
            let plain: Vec<PlainStop> = self.stops.iter().map(Stop::plain).collect();
            plain.encode(out);
        } else {
            self.stops.encode(out);
        }
        if form >= 5 {
            self.checkpoints.encode(out);
            self.checkpoints_from.encode(out);
        }
        if form >= 7 {
            self.logged.encode(out);
            self.doubtful.encode(out);
        }
        if form >= 8 {
            self.lost.encode(out);
            self.admitted.encode(out);
        }
        self.protocol.is_some().encode(out);
        out.extend_from_slice(self.protocol.as_deref().unwrap_or_default());
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut form = 0;
        let reservation = match Wire::decode(input)? {
            NUMBERED => {
                form = input.byte()?;
                match form {
                    1..=8 => Wire::decode(input)?,
                    _ => return Err(WireError::Invalid("a state of a newer version of the software")),
                }
            }
            until => Reservation::fixed(until),
        };
        let received = Wire::decode(input)?;
        let (history_ms, whole_from) = if form < 2 { (0, Timestamp::ZERO) } else { (Wire::decode(input)?, Wire::decode(input)?) };
        let (needs, refilled) = if form < 3 { Default::default() } else { (Wire::decode(input)?, Wire::decode(input)?) };
        let stops = match form {
            0..4 => Vec::new(),
            4..6 => Vec::<PlainStop>::decode(input)?.into_iter().map(Stop::from).collect(),
            _ => Wire::decode(input)?,
        };
        let (checkpoints, checkpoints_from) = if form < 5 { Default::default() } else { (Wire::decode(input)?, Wire::decode(input)?) };
        let (logged, doubtful) = if form < 7 { Default::default() } else { (Wire::decode(input)?, Wire::decode(input)?) };
        let (lost, admitted) = if form < 8 { Default::default() } else { (Wire::decode(input)?, Wire::decode(input)?) };
        let protocol = if bool::decode(input)? { Some(input.take(input.rest().len())?.to_vec()) } else { None };
        Ok(Saved {
            reservation,
            received,
            history_ms,
            whole_from,
            checkpoints,
            checkpoints_from,
            needs,
            refilled,
            stops,
            logged,
            doubtful,
            lost,
            admitted,
            protocol,
        })
    }
}

/// The protocol's cut, but tombstones stay until every data center has them: one that is lost can leave its own to some of the others only, who must be able to pass them on.
pub(super) struct Everywhere<'a, C> {
    pub(super) cut: &'a C,
    pub(super) upto: Timestamp,
}

impl<M, C: Cut<M>> Cut<M> for Everywhere<'_, C> {
    const SIBLINGS: bool = C::SIBLINGS;

    fn replaces(&self, newer: &Version<M>, older: &Version<M>) -> bool {
        self.cut.replaces(newer, older)
    }

    #[inline]
    fn settled(&self, version: &Version<M>) -> bool {
        self.cut.settled(version)
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.upto && self.cut.complete(at)
    }

    fn covers(&self, at: Timestamp) -> bool {
        self.cut.covers(at)
    }

    #[inline]
    fn history(&self) -> History {
        self.cut.history()
    }
}

/// The saved state `state`, of a server that has applied every data center's updates up to `newest`, too: for a store that gets the chains and the state of another one, since what has been collected tells
/// nobody how far its data center's updates had come.
///
/// # Errors
/// It is no state of a replica.
pub fn state_with_received(state: &[u8], newest: &[Timestamp]) -> Result<Vec<u8>, WireError> {
    let mut saved = Saved::from_bytes(state)?;
    saved.raise_received(newest);
    Ok(saved.to_bytes())
}

/// The writing side of a replica.
pub(crate) struct Journal<C> {
    here: DcId,
    /// What may go from the chains that are written, by the protocol's word.
    pub(super) cut: C,
    /// All data centers are known to have everything of each other up to here.
    pub(super) everywhere: Timestamp,
    pub(super) saved: Saved,
    /// Whoever has everything up to here has what was left out of parts that came since the start, or had not all come before.
    pub(super) left_out: Timestamp,
    pub(super) reserved: Reserved,
    /// A loss of power can cost what was acknowledged.
    pub(super) may_lose: bool,
    /// The first error of the disk. Nothing is appended after it, and nothing leaves.
    pub(super) failed: Option<String>,
    /// Reserved keys that updates of other data centers have written since the last step.
    pub(super) arrived: Vec<Key>,
    /// Of which keys what becomes the newest version is told, and what has since the last step.
    pub(super) tapped: Option<Arc<dyn Wanted>>,
    pub(super) applied: Vec<Applied>,
    /// The order of what was written, while change feeds ask for it.
    pub(super) index: Option<Box<Index>>,
    /// Versions that have just come to stand above or beneath one of another data center, and which one if it is the newest so far: it can be gone with that.
    pub(super) beside: Vec<(Key, VersionId, Option<VersionId>)>,
    /// Whether versions tell what their writers had not seen, and there is another data center.
    pub(super) tells_unseen: bool,
    pub(super) counters: Counters,
    /// Of reads and writes that are sampled.
    pub(super) notches: Notches,
}

impl<C> Journal<C> {
    pub(super) fn new(here: DcId, cut: C, saved: Saved, boot: Option<u64>, reserve_ms: u64, notches: Notches, tells_unseen: bool) -> Journal<C> {
        Journal {
            here,
            cut,
            everywhere: Timestamp::MAX,
            reserved: Reserved::new(boot, reserve_ms, saved.reservation),
            left_out: saved.needs.max(),
            saved,
            may_lose: false,
            failed: None,
            arrived: Vec::new(),
            tapped: None,
            applied: Vec::new(),
            index: None,
            beside: Vec::new(),
            tells_unseen,
            counters: Counters::default(),
            notches,
        }
    }

    /// Remembers the first error.
    pub(super) fn latch<T>(&mut self, result: std::io::Result<T>) {
        if let Err(error) = result {
            self.failed.get_or_insert_with(|| error.to_string());
        }
    }

    /// See [`crate::step::Step::entry`].
    pub(crate) fn entry<M, S: Store<M>>(&mut self, store: &mut S, index: u64, entry: &[u8]) {
        if self.failed.is_none() {
            self.latch(store.append_entry(index, entry));
        }
    }

    /// See [`crate::step::Step::compact`].
    pub(crate) fn compact<M, S: Store<M>>(&mut self, store: &mut S, through: u64) {
        if self.failed.is_none() {
            self.latch(store.compact_entries(through));
        }
    }

    pub(crate) fn write<M, S: Store<M>>(&mut self, store: &mut S, update: &Update<M>)
    where
        C: Cut<M>,
    {
        let own = update.id.origin == self.here;
        self.counters.updates_written += u64::from(own);
        if !own {
            self.arrived.extend(update.items.iter().map(|item| &item.key).filter(|key| is_reserved(key)).cloned());
        }
        if self.tells_unseen {
            for item in update.items.iter().filter(|item| !is_reserved(&item.key)) {
                if let Some(newest) = store.peek(&item.key).map(|newest| newest.id).filter(|newest| meets(*newest, update.id, self.here)) {
                    self.beside.push((item.key.clone(), update.id, (newest < update.id).then_some(newest)));
                }
            }
        }
        self.append(store, update, own);
        if let Some(item) = update.items.first()
            && self.notches.are_on()
            && !is_reserved(&item.key)
        {
            self.notches.wrote(&item.key, update.id);
        }
    }

    /// Whoever has everything up to here has what was left out of parts that have come ([`super::peers`]).
    pub(crate) fn needed(&self) -> Timestamp {
        self.left_out
    }

    /// See [`crate::step::Step::refilled`].
    pub(crate) fn refilled(&self) -> bool {
        self.saved.refilled.is_some_and(|refilled| refilled.done)
    }

    /// An own update has come back.
    pub(super) fn refill<M, S: Store<M>>(&mut self, store: &mut S, update: &Update<M>)
    where
        C: Cut<M>,
    {
        self.append(store, update, false);
    }

    pub(crate) fn install<M, S: Store<M>>(&mut self, store: &mut S, update: &Update<M>)
    where
        C: Cut<M>,
    {
        self.append(store, update, false);
    }

    fn append<M, S: Store<M>>(&mut self, store: &mut S, update: &Update<M>, own: bool)
    where
        C: Cut<M>,
    {
        if self.failed.is_none() {
            self.latch(store.append(update, own, &Everywhere { cut: &self.cut, upto: self.everywhere }));
            if let Some(index) = &mut self.index {
                index.wrote(update);
            }
            if let Some(wanted) = &self.tapped {
                note(&**wanted, store, &self.cut, update, &mut self.applied);
            }
            if self.notches.watch(update.id.written) {
                for item in &update.items {
                    let live = item.value.is_some() && (item.expires_ms == 0 || item.expires_ms > update.id.written.millis());
                    self.notches.stored(&item.key, Held { id: update.id, live });
                }
            }
        }
    }

    pub(crate) fn persist<M, S: Store<M>>(&mut self, store: &mut S, state: Vec<u8>) {
        self.saved.protocol = Some(state);
        self.save(store);
    }

    /// Appends what is kept over a restart.
    pub(super) fn save<M, S: Store<M>>(&mut self, store: &mut S) {
        self.saved.reservation = self.reserved.newest();
        if self.failed.is_none() {
            self.latch(store.append_state(&self.saved.to_bytes()));
        }
    }

    /// A server starts that keeps replaced versions for `history_ms`, and at `checkpoints` before that: what was kept for less before is not whole. Where the store `begins`, nothing was
    /// ever in it, so nothing of it was let go. By no clock beyond `floor` has the last run let go of anything.
    pub(super) fn keep_history<M, S: Store<M>>(
        &mut self,
        store: &mut S,
        now: Now,
        floor: Timestamp,
        (history_ms, checkpoints): (u64, Checkpoints),
        begins: bool,
    ) {
        let was = (self.saved.history_ms, self.saved.checkpoints);
        if !begins {
            // What the last run has let go. Its clock can have been ahead of this one: it was another machine's, or this one has gone back.
            let ended = Now { physical_ms: now.physical_ms.max(floor.millis()), ..now };
            self.forget_old(ended, was.0, was.1);
            if was.0 < history_ms {
                self.saved.whole_from = self.saved.whole_from.max(Timestamp::new(ended.physical_ms, 0));
            }
        }
        self.forget_old(now, history_ms, checkpoints);
        // Whoever kept more of them kept these.
        let kept = was.1.every_ms > 0 && checkpoints.every_ms.is_multiple_of(was.1.every_ms);
        if !kept {
            self.saved.checkpoints_from = self.saved.whole_from;
        }
        if was != (history_ms, checkpoints) {
            (self.saved.history_ms, self.saved.checkpoints) = (history_ms, checkpoints);
            self.save(store);
        }
    }

    /// Versions that were replaced before the window of `history_ms` may be missing, and with them what no checkpoint shows.
    pub(super) fn forget_old(&mut self, now: Now, history_ms: u64, checkpoints: Checkpoints) {
        self.saved.whole_from = self.saved.whole_from.max(Timestamp::new(now.physical_ms.saturating_sub(history_ms), 0));
        self.saved.checkpoints_from = self.saved.checkpoints_from.max(Timestamp::new(checkpoints.oldest_ms(now.physical_ms, history_ms), 0));
    }

    /// Versions that were replaced before `at` may be missing; with `checkpoints` such as were the newest at one, too.
    pub(crate) fn forget_before(&mut self, at: Timestamp, checkpoints: bool) {
        self.saved.whole_from = self.saved.whole_from.max(at);
        // It knows only of what it has let go itself.
        self.index = None;
        if checkpoints {
            self.saved.checkpoints_from = self.saved.checkpoints_from.max(at);
        }
    }

    /// What was written here after what the store has, up to `upto`, can be lost: nobody can say of it that others have it. `newest` is the newest own update in the store.
    pub(super) fn doubt(&mut self, newest: Timestamp, upto: Timestamp) {
        let after = newest.max(self.saved.logged);
        if upto <= after {
            return;
        }
        let doubtful = &mut self.saved.doubtful;
        match doubtful.last_mut().filter(|(_, last)| after <= *last) {
            Some((first, last)) => (*first, *last) = (after.min(*first), upto.max(*last)),
            None => doubtful.push((after, upto)),
        }
        if doubtful.len() > MOST_DOUBTFUL {
            doubtful.remove(0);
        }
    }

    /// Whether what was written here at `at` can be lost.
    pub(super) fn is_doubtful(&self, at: Timestamp) -> bool {
        // What a disk has lost is coming back.
        if self.saved.refilled.is_some_and(|refilled| refilled.resumed.is_none() && at > refilled.upto) {
            return true;
        }
        self.saved.doubtful.iter().any(|(after, upto)| *after < at && at <= *upto)
    }

    /// The clock has handed out `last`, and hands out no more here.
    pub(super) fn end_clock<M, S: Store<M>>(&mut self, store: &mut S, last: Timestamp) {
        self.reserved.end(last);
        if self.may_lose {
            self.saved.logged = self.saved.logged.max(last);
        }
        self.save(store);
    }

    /// Keeps the reservation on disk ahead of what the clock hands out, which has come to `last`. Says whether it was renewed.
    pub(super) fn reserve_clock<M, S: Store<M>>(&mut self, store: &mut S, now: Now, last: Timestamp) -> bool {
        self.reserve(store, now, last, last)
    }

    /// Likewise, and at least up to the physical time, which what is let go of for its age goes by.
    pub(super) fn reserve_age<M, S: Store<M>>(&mut self, store: &mut S, now: Now, last: Timestamp) -> bool {
        let here = Timestamp::new(now.physical_ms, 0);
        self.reserved.surely(now) < here && self.reserve(store, now, last, last.max(here))
    }

    fn reserve<M, S: Store<M>>(&mut self, store: &mut S, now: Now, last: Timestamp, upto: Timestamp) -> bool {
        let renewed = self.reserved.renew(now, upto);
        if renewed {
            if self.may_lose {
                self.saved.logged = self.saved.logged.max(last);
            }
            self.save(store);
            self.reserved.appended(store.end());
            self.reserved.on_durable(store.durable());
        }
        renewed
    }
}

/// Adds to `applied` what `update`, which was just stored, made the newest version of its key, or what stands beside it.
fn note<M, S: Store<M>, C: Cut<M>>(wanted: &dyn Wanted, store: &mut S, cut: &C, update: &Update<M>, applied: &mut Vec<Applied>) {
    for item in update.items.iter().filter(|item| wanted.wants(&item.key) && !is_reserved(&item.key)) {
        if C::SIBLINGS {
            applied.extend(standing(store, cut, &item.key));
        } else if store.peek(&item.key).is_none_or(|version| version.id == update.id) {
            let (key, value) = (item.key.clone(), item.value.clone());
            applied.push(Applied { key, version: update.id, value, expires_ms: item.expires_ms, beside: Vec::new() });
        }
    }
}

/// The newest version of `key` and, where they can be, those beside it.
pub(super) fn standing<M, S: Store<M>, C: Cut<M>>(store: &mut S, cut: &C, key: &Key) -> Option<Applied> {
    if !C::SIBLINGS {
        let newest = store.latest(key, |_| true)?;
        return Some(Applied {
            key: key.clone(),
            version: newest.id,
            value: newest.value.clone(),
            expires_ms: newest.expires_ms,
            beside: Vec::new(),
        });
    }
    let chain = store.chain(key);
    let stands = |place: &usize| !chain[..*place].iter().any(|newer| cut.replaces(newer, &chain[*place]));
    let beside = |place: usize| Beside { version: chain[place].id, value: chain[place].value.clone(), expires_ms: chain[place].expires_ms };
    let mut all = (0..chain.len()).filter(stands).map(beside);
    let Beside { version, value, expires_ms } = all.next()?;
    Some(Applied { key: key.clone(), version, value, expires_ms, beside: all.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_told_how_far_updates_had_come_and_says_all_else_as_before() {
        let at = |ms| Timestamp::new(ms, 0);
        let received: TimestampVector = [(DcId(0), at(5)), (DcId(2), at(9))].into_iter().collect();
        let saved = Saved {
            received,
            history_ms: 7,
            whole_from: at(3),
            needs: [(DcId(1), at(4))].into_iter().collect(),
            refilled: Some(Refilled { upto: at(2), resumed: Some(at(6)), done: false }),
            lost: [(DcId(2), at(8))].into_iter().collect(),
            admitted: vec![Admitted { dc: DcId(2), generation: 3 }],
            protocol: Some(vec![1, 2]),
            ..Saved::default()
        };
        let told = Saved::from_bytes(&state_with_received(&saved.to_bytes(), &[at(4), at(8), at(10)]).unwrap()).unwrap();
        let all = |saved: &Saved| [0, 1, 2].map(|dc| saved.received.get(DcId(dc)));
        assert_eq!(all(&told), [at(5), at(8), at(10)], "nothing is taken back");
        let before = Saved { received: saved.received.clone(), ..told };
        assert_eq!(before.to_bytes(), saved.to_bytes());
        assert!(state_with_received(&[1, 2, 3], &[]).is_err());
    }

    #[test]
    fn what_can_be_lost_is_remembered_within_bounds() {
        let at = |ms| Timestamp::new(ms, 0);
        let journal = || {
            Journal::new(
                DcId(0),
                crate::store::KeepAll,
                Saved::default(),
                None,
                crate::replica::reservation::FIXED_MS,
                Notches::new(0, crate::planted::Planted::NONE),
                false,
            )
        };
        let mut once = journal();
        once.doubt(at(10), at(20));
        let said =
            |journal: &Journal<crate::store::KeepAll>| [at(10), at(10).successor(), at(20), at(20).successor()].map(|at| journal.is_doubtful(at));
        assert_eq!(said(&once), [false, true, true, false]);
        once.doubt(at(30), at(30));
        assert_eq!(once.saved.doubtful.len(), 1, "nothing was handed out after what is there");
        once.doubt(at(15), at(40));
        assert_eq!(once.saved.doubtful, [(at(10), at(40))], "a start before anything was written or said");
        once.saved.logged = at(50);
        once.doubt(at(5), at(60));
        assert_eq!(once.saved.doubtful, [(at(10), at(40)), (at(50), at(60))], "the log said how far it had come");
        let again = Saved::from_bytes(&once.saved.to_bytes()).unwrap();
        assert_eq!((again.doubtful, again.logged), (once.saved.doubtful, at(50)));

        let mut often = journal();
        (0..100).for_each(|number| often.doubt(at(number * 10), at(number * 10 + 5)));
        assert_eq!(often.saved.doubtful.len(), MOST_DOUBTFUL);
        assert!(often.is_doubtful(at(995)) && !often.is_doubtful(at(5)), "the oldest goes");

        let mut refilling = journal();
        refilling.saved.refilled = Some(Refilled { upto: at(7), resumed: None, done: false });
        assert_eq!([at(7), at(8)].map(|at| refilling.is_doubtful(at)), [false, true], "what a disk has lost is still coming");
        refilling.saved.refilled = Some(Refilled { upto: at(7), resumed: Some(at(9)), done: false });
        assert!(!refilling.is_doubtful(at(8)), "it is told by what was doubted then");
    }
}
