//! Rights from elsewhere: updates that wait for them, asks, answers, and what arrives (document 002, section IV-D).

use super::cell::Hunted;
use super::update::Stopped;
use super::{Counting, Hidden, keys};
use crate::fence::Absorbed;
use crate::hello::Greetings;
use crate::rights::Asked;
use crate::state::{DIRECTIONS, State};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::counter::{Direction, Scope, UpdateName};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Done, Execution, Outbox};
use rheostat_core::reserved::Reserved;
use rheostat_core::session::Session;
use rheostat_core::version::{Item, Key};
use rheostat_core::wire::Wire;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeSet;
use std::ops::Bound;

/// Of what has arrived and is not visible yet, so much is looked at again at a time.
const MOST_LOOKS: usize = 32;

/// What counters that are changed together show of one another can bring more to light so often.
const MOST_ROUNDS: usize = 16;

/// An update that waits for rights, or to be greeted.
pub(super) struct Parked {
    pub(super) scope: Scope,
    pub(super) changes: SmallVec<[(Key, i64); 1]>,
    pub(super) name: Option<(Key, UpdateName)>,
    pub(super) dial: Dial,
    pub(super) session: Session,
    pub(super) since_us: u64,
    pub(super) deadline_us: u64,
    /// An earlier attempt has made it; it waits until its session can see that.
    pub(super) is_made: bool,
}

impl Parked {
    /// How many rights to `key` it wants fetched.
    fn needs(&self, key: &Key, direction: Direction) -> u64 {
        if self.scope == Scope::Local || self.is_made {
            return 0;
        }
        let way = |amount: i64| if amount < 0 { Direction::Down } else { Direction::Up };
        self.changes.iter().filter(|(changed, amount)| changed == key && way(*amount) == direction).map(|(_, amount)| amount.unsigned_abs()).sum()
    }
}

impl Counting {
    /// Reads what an earlier run has left, or others while this server was filled: if counters with bounds were used, it says hello, and greets others.
    pub(super) fn recall(&mut self, now: Now) {
        if self.is_grouped() {
            return;
        }
        let record = |read: Option<Greetings>| read.unwrap_or_default();
        self.greetings = record(self.greetings_of(now, self.circle.here));
        if self.greetings == Greetings::default() && self.setup.planted.is("counter-hello-forgotten-while-filled") {
            return;
        }
        let others: Vec<DcId> = self.circle.others().collect();
        for dc in others {
            let theirs = record(self.greetings_of(now, dc));
            self.greetings.greet(dc, &theirs);
            self.greeted_by.insert(dc, theirs.greeted.get(&self.circle.here).copied().unwrap_or(0));
        }
        if self.greetings.hello > 0 {
            self.say_hello(now);
        } else {
            self.greetings_changed = self.greetings.greeted.values().any(|hello| *hello > 0);
        }
    }

    pub(super) fn greetings_of(&mut self, now: Now, dc: DcId) -> Option<Greetings> {
        let place = keys::hello(dc);
        let read = if self.is_grouped() {
            self.whole(now, place)?
        } else if dc == self.circle.here {
            self.newest(now, &place).ok()?.0
        } else {
            // Every fence that was made before it has arrived.
            let mut reader = self.inner.new_session();
            self.hidden.insert(Hidden::Greetings(dc));
            let (read, _) = self.visible(now, &place, &mut reader).ok()?;
            if !self.has_newer(now, &place, read.version).ok()? {
                self.hidden.remove(&Hidden::Greetings(dc));
            }
            self.greeted_at.extend(read.version.map(|version| (dc, version.written)));
            self.inner.merge_sessions(&mut self.session, &reader);
            for key in self.hidden.iter().filter_map(|hidden| hidden.row_of(dc)) {
                if let Some(cell) = self.cells.get_mut(key) {
                    self.inner.merge_sessions(&mut cell.reader, &reader);
                }
            }
            read
        };
        Greetings::from_bytes(&read.value?).ok()
    }

    /// Says hello, once in a run, and not before what it said in earlier runs is known: a hello of an earlier one would be greeted already.
    pub(super) fn say_hello(&mut self, now: Now) {
        if self.said.is_some() || !self.recalled {
            return;
        }
        if self.circle.members.len() == 1 {
            self.said = Some((0, Timestamp::ZERO));
            return;
        }
        if self.is_grouped() {
            self.say_hello_in_group();
            return;
        }
        let mut greetings = self.greetings.clone();
        greetings.hello += 1;
        let item = Item { key: keys::hello(self.circle.here), value: Some(greetings.to_bytes().into()), expires_ms: 0 };
        if let Ok((Outcome::Written(version), _)) = self.run(now, Operation::Put { items: smallvec![item], dial: Dial::at(Level::Eventual) }) {
            self.said = Some((greetings.hello, version.written));
            self.greetings = greetings;
        }
    }

    /// Updates of other data centers have written these reserved keys.
    pub(super) fn on_arrived(&mut self, now: Now, arrived: BTreeSet<Key>, out: &mut Outbox) {
        let mut news = BTreeSet::new();
        for reserved in &arrived {
            let Some(Reserved { kind, number, of }) = Reserved::parse(reserved) else { continue };
            let Ok(dc) = u8::try_from(number).map(DcId) else { continue };
            if kind != keys::BOUNDS && (dc == self.circle.here || !self.circle.members.contains(&dc)) {
                continue;
            }
            match kind {
                keys::HELLO => self.on_greetings(now, dc, &mut news),
                keys::STATE => self.on_row(now, Key::from(of), dc, &mut news),
                keys::BOUNDS => self.on_bounds(now, &Key::from(of)),
                _ => {}
            }
        }
        self.on_news(now, &news, out);
    }

    /// Another data center has made a counter at `key`. If one has begun by itself here, it is looked at anew before it is used.
    pub(super) fn on_bounds(&mut self, now: Now, key: &Key) {
        let Some(cell) = self.cells.get_mut(key).filter(|cell| !cell.is_bounded()) else { return };
        (cell.seen, cell.stale) = (None, true);
        let (place, mut nobody) = (keys::bounds(key), self.inner.new_session());
        let read = self.visible(now, &place, &mut nobody);
        if read.is_err() || read.is_ok_and(|(read, _)| self.has_newer(now, &place, read.version).unwrap_or(true)) {
            self.hidden.insert(Hidden::Bounds(key.clone()));
        }
    }

    fn on_row(&mut self, now: Now, key: Key, dc: DcId, news: &mut BTreeSet<Key>) {
        if self.on_state(now, &key, dc) {
            news.insert(key);
        }
    }

    fn on_greetings(&mut self, now: Now, dc: DcId, news: &mut BTreeSet<Key>) {
        let Some(theirs) = self.greetings_of(now, dc) else {
            self.led.others_known = false;
            return;
        };
        // Much of what its data center did before is visible by now.
        let rows: Vec<Hidden> = self.hidden.iter().filter(|hidden| matches!(hidden, Hidden::Row(_, of) if *of == dc)).cloned().collect();
        rows.into_iter().for_each(|hidden| self.see_hidden(now, hidden, news));
        self.greetings_changed |= self.greetings.greet(dc, &theirs);
        // Counters with bounds are used in this partition: this server will need to be greeted too.
        self.say_hello(now);
        let greeted = theirs.greeted.get(&self.circle.here).copied().unwrap_or(0);
        if self.greeted_by.insert(dc, greeted) != Some(greeted) {
            news.extend(self.parked.values().flat_map(|parked| parked.changes.iter().map(|(key, _)| key.clone())));
            news.extend(self.cells.iter().map(|(key, _)| key.clone()));
        }
    }

    fn on_news(&mut self, now: Now, news: &BTreeSet<Key>, out: &mut Outbox) {
        for key in news {
            self.answer_asks(now, key);
        }
        if !news.is_empty() {
            self.retry_parked(now, news, out);
        }
    }

    /// Looks whether `hidden` is visible by now.
    fn see_hidden(&mut self, now: Now, hidden: Hidden, news: &mut BTreeSet<Key>) {
        self.hidden.remove(&hidden);
        match hidden {
            Hidden::Row(key, dc) => self.on_row(now, key, dc, news),
            Hidden::Greetings(dc) => self.on_greetings(now, dc, news),
            Hidden::Definition(key) => drop(news.insert(key)),
            Hidden::Bounds(key) => self.on_bounds(now, &key),
        }
    }

    /// Looks again at some of what is hidden, going round.
    pub(super) fn look_again(&mut self, now: Now, out: &mut Outbox) {
        if self.hidden.is_empty() {
            return;
        }
        let after = self.looked_at.take().map_or(Bound::Unbounded, Bound::Excluded);
        let some: Vec<Hidden> = self.hidden.range((after, Bound::Unbounded)).take(MOST_LOOKS).cloned().collect();
        self.looked_at = some.last().filter(|_| some.len() == MOST_LOOKS).cloned();
        let mut news = BTreeSet::new();
        some.into_iter().for_each(|hidden| self.see_hidden(now, hidden, &mut news));
        self.on_news(now, &news, out);
    }

    /// Takes in of the counter at `key`, which is ready, what is visible to `session` by now. Whoever is told of it from now on sees what `session` has seen: its update is in the counter before
    /// it is written.
    pub(super) fn catch_up(&mut self, now: Now, key: &Key, session: &Session) -> Result<(), Stopped> {
        if self.setup.planted.is("counter-answers-with-less-than-read") {
            return Ok(());
        }
        let rows: Vec<DcId> = match self.hidden.is_empty() {
            true => Vec::new(),
            false => self.circle.others().filter(|dc| self.hidden.contains(&Hidden::Row(key.clone(), *dc))).collect(),
        };
        // At home the write of an update shows what its session has seen, unless it waits for the one that is under way.
        let shows = !rows.is_empty() || self.flight.is_some() || !session.is_at_home(self.circle.here);
        if shows && let Some(cell) = self.cells.get_mut(key) {
            let mut reader = std::mem::replace(&mut cell.reader, self.inner.new_session());
            self.see_with(now, key, session, &mut reader);
            if let Some(cell) = self.cells.get_mut(key) {
                cell.reader = reader;
            }
        }
        self.absorb_together(now, key, rows)
    }

    /// Takes in what `dcs` have written of the counter at `key`, which is ready, as far as it is visible at one moment: a read can make visible what a read before it did not find (in `adaptive`, where a
    /// session's footprint is its last reads), and the state of one data center is not to be there without that of another on which it rests.
    pub(super) fn absorb_together(&mut self, now: Now, key: &Key, mut dcs: Vec<DcId>) -> Result<(), Stopped> {
        for _ in 0..MOST_ROUNDS {
            let before = self.cells.get(key).map(|cell| cell.heard.clone());
            dcs.iter().try_for_each(|dc| self.absorb(now, key, *dc).map(drop))?;
            // Of the others nothing newer has arrived.
            dcs.retain(|dc| self.hidden.contains(&Hidden::Row(key.clone(), *dc)));
            if dcs.is_empty() || self.cells.get(key).map(|cell| cell.heard.clone()) == before {
                return Ok(());
            }
        }
        self.hidden.insert(Hidden::Definition(key.clone()));
        Err(Stopped::Hidden)
    }

    /// Takes in of all of `keys`, of those that are ready, what is visible to `session` and to whoever has seen what is taken in of the others: one moment. `session` has seen it then.
    pub(super) fn catch_up_together(&mut self, now: Now, keys: &[&Key], session: &mut Session) -> Result<(), Stopped> {
        let heard = |counting: &Self| keys.iter().filter_map(|key| counting.cells.get(key)).map(|cell| cell.heard.clone()).collect::<Vec<_>>();
        for _ in 0..MOST_ROUNDS {
            let before = heard(self);
            for key in keys {
                if let Some(cell) = self.cells.get(key) {
                    self.inner.merge_sessions(session, &cell.reader);
                }
            }
            let caught_up = keys.iter().try_for_each(|key| self.catch_up(now, key, session));
            match caught_up {
                Ok(()) if before == heard(self) => return Ok(()),
                Ok(()) => {}
                Err(Stopped::Hidden) => break,
                failed => return failed,
            }
        }
        self.hidden.extend(keys.iter().map(|key| Hidden::Definition(Key::clone(key))));
        Err(Stopped::Hidden)
    }

    /// The state of `dc` of the counter at `key` has arrived; says whether something here depends on it.
    fn on_state(&mut self, now: Now, key: &Key, dc: DcId) -> bool {
        if self.cells.get(key).is_some() {
            match self.absorb(now, key, dc) {
                Ok(Absorbed::Ignored) => {}
                Ok(absorbed) => {
                    if let Some(cell) = self.cells.get_mut(key)
                        && absorbed == Absorbed::News
                    {
                        // Who was late is heard again.
                        DIRECTIONS
                            .into_iter()
                            .for_each(|way| cell.hunted.of_mut(way).retain(|to, hunted| *to != dc || hunted.until_us > now.monotonic_us));
                    }
                    return absorbed == Absorbed::News;
                }
                Err(_) => {
                    self.hidden.insert(Hidden::Row(key.clone(), dc));
                    return false;
                }
            }
        }
        // Of a counter that is not ready only what wants an answer is looked at. It may have come in the place of the one that is.
        let read = match self.newest(now, &keys::state(key, dc)) {
            Ok((read, _)) => read,
            Err(failure) => {
                self.look_later(key, dc, &Stopped::Failed(failure));
                return false;
            }
        };
        let Some(Ok(state)) = read.value.map(|value| State::from_value(&value)) else {
            self.tidy(now, key);
            return false;
        };
        let wants = state.rows.values().any(|row| !row.gone.is_empty())
            || DIRECTIONS.into_iter().any(|way| state.open_ask(dc, self.circle.here, way).is_some());
        let ready = self.cells.get(key).map(|cell| cell.state.incarnation);
        if !wants || ready == Some(state.incarnation) {
            if ready.is_some() {
                self.tidy(now, key);
            }
            return false;
        }
        match self.load(now, key, false, None) {
            Ok(_) => true,
            Err(stopped) => {
                self.look_later(key, dc, &stopped);
                false
            }
        }
    }

    /// What has arrived of `dc` could not be looked at since it is `stopped`: it is looked at again if that passes. A session is refused until the clock has come nearer to what it has seen.
    fn look_later(&mut self, key: &Key, dc: DcId, stopped: &Stopped) {
        if let Stopped::Hidden | Stopped::Failed(Failure::Busy(_) | Failure::Session(_)) = stopped {
            self.hidden.insert(Hidden::Row(key.clone(), dc));
        }
    }

    /// What this data center keeps of a counter that is gone goes.
    fn tidy(&mut self, now: Now, key: &Key) {
        if let Ok(Some(read)) = self.settled(now, key)
            && matches!(super::cell::find(&read), Ok(super::cell::Found::Free(_) | super::cell::Found::Other))
            && self.cells.get(key).is_none_or(|cell| cell.unwritten.is_none())
        {
            self.forget(now, key);
        }
    }

    /// Answers what this data center is asked for.
    pub(super) fn answer_asks(&mut self, now: Now, key: &Key) {
        let planted = self.setup.planted;
        let circle = self.circle.clone();
        let Some(cell) = self.cells.get(key) else { return };
        let asked = cell.state.asked(&circle);
        if asked.is_empty() || self.check_greeted(now, key).is_err() {
            return;
        }
        for Asked { from, direction, mut ask } in asked {
            // Of two data centers that both lack rights the first gets them; else they would give them to each other for ever. So they would if an update waits here and nothing there.
            let is_behind = from > circle.here || !ask.urgent;
            if is_behind && self.parked.values().any(|parked| parked.needs(key, direction) > 0) {
                ask.amount = 0;
            }
            let Some(cell) = self.cells.get_mut(key) else { return };
            let moved = cell.state.answer(&cell.definition, &circle, Asked { from, direction, ask }, planted);
            self.numbers.asks_answered += 1;
            self.numbers.asks_refused += u64::from(moved == 0);
            let number = if ask.urgent { &mut self.numbers.moved_on_demand } else { &mut self.numbers.moved_in_background };
            *number += moved;
            self.touched.insert(key.clone());
        }
    }

    /// Looks at the updates that wait for rights of `keys`, in the order in which they came.
    pub(super) fn retry_parked(&mut self, now: Now, keys: &BTreeSet<Key>, out: &mut Outbox) {
        let waiting: Vec<OpId> =
            self.parked.iter().filter(|(_, parked)| parked.changes.iter().any(|(key, _)| keys.contains(key))).map(|(op, _)| *op).collect();
        for op in waiting {
            if let Some((scope, stopped)) = self.retry(now, op, out)
                && !self.may_wait(scope, &stopped)
            {
                self.give_up(now, op, stopped, out);
            }
        }
        self.hunt(now, keys.iter());
    }

    /// Tries again an update that waits. Says why it still waits.
    fn retry(&mut self, now: Now, op: OpId, out: &mut Outbox) -> Option<(Scope, Stopped)> {
        let Parked { scope, changes, name, session, is_made, .. } = self.parked.get(&op)?;
        let (scope, changes, mut session, is_made) = (*scope, changes.clone(), session.clone(), *is_made);
        // Another attempt can have been made while this one waited. Where a group writes it, an earlier one whose fate was not known: the row that this one goes on from has that in it by now, so no guard finds it. And
        // one that was sent to another data center, whose record comes before the rights that this one waits for.
        if let Some((key, name)) = name.clone() {
            match self.made_before(now, &key, name, &mut session) {
                Ok(Some((outcome, after))) => {
                    self.parked.remove(&op);
                    let mut answers = Vec::new();
                    self.say(Some(op), Some((key, name)), outcome, &session, &mut answers);
                    answers.into_iter().for_each(|answer| self.hold(after, answer, out));
                    return None;
                }
                // Its record has expired meanwhile: nobody knows any more what it came to.
                Ok(None) if is_made => return Some((scope, Stopped::Hidden)),
                Ok(None) => {}
                Err(stopped) => return Some((scope, stopped)),
            }
        }
        if self.is_full() {
            // Its turn comes when what is there has gone out.
            self.hidden.extend(changes.first().map(|(key, _)| Hidden::Definition(key.clone())));
            return Some((scope, Stopped::Hidden));
        }
        match self.apply(now, &changes, &session) {
            Ok(values) => {
                self.go_ahead(now, op, values, out);
                None
            }
            Err(stopped) => Some((scope, stopped)),
        }
    }

    fn give_up(&mut self, now: Now, op: OpId, stopped: Stopped, out: &mut Outbox) {
        let Some(Parked { changes, name, session, since_us, scope, .. }) = self.parked.remove(&op) else { return };
        let number = if scope == Scope::Local { &mut self.numbers.local_refused } else { &mut self.numbers.global_refused };
        *number += 1;
        self.numbers.parked_us += now.monotonic_us - since_us;
        let failure = self.words(&changes, stopped);
        self.fail_named(op, name, failure, &session, out);
    }

    /// Asks for the rights that updates here wait for: the data center that has most, and more of them if one does not suffice; who does not answer in time is asked again when
    /// there is nobody else.
    pub(super) fn hunt<'k>(&mut self, now: Now, keys: impl Iterator<Item = &'k Key>) {
        let circle = self.circle.clone();
        for key in keys {
            for direction in DIRECTIONS {
                let needed = self.parked.values().map(|parked| parked.needs(key, direction)).fold(0, u64::saturating_add);
                let Some(cell) = self.cells.get_mut(key) else { continue };
                let state = &cell.state;
                let Some(here) = state.rights(&cell.definition, &circle, circle.here, direction) else { continue };
                let hunted = cell.hunted.of_mut(direction);
                hunted.retain(|to, _| state.open_ask(circle.here, *to, direction).is_some());
                if needed <= here {
                    continue;
                }
                let under_way: u64 =
                    hunted.values().filter(|hunted| hunted.until_us > now.monotonic_us).map(|hunted| hunted.amount).fold(0, u64::saturating_add);
                let mut missing = (needed - here).saturating_sub(under_way);
                let mut able: Vec<(bool, u64, DcId)> = circle
                    .others()
                    .filter(|dc| state.fenced(*dc).is_none() && hunted.get(dc).is_none_or(|hunted| hunted.until_us <= now.monotonic_us))
                    .filter_map(|dc| Some((hunted.contains_key(&dc), state.rights(&cell.definition, &circle, dc, direction)?, dc)))
                    .filter(|(_, theirs, _)| *theirs > 0)
                    .collect();
                // Those who have let it time out come last; then the richest first.
                able.sort_by_key(|(late, theirs, dc)| (*late, std::cmp::Reverse(*theirs), *dc));
                for (_, theirs, dc) in able {
                    if missing == 0 {
                        break;
                    }
                    let amount = missing.max(theirs.saturating_sub(here) / 2).min(theirs);
                    cell.state.ask(circle.here, dc, direction, amount, true);
                    let until_us = now.monotonic_us + self.setup.options.ask_timeout_ms * 1000;
                    cell.hunted.of_mut(direction).insert(dc, Hunted { amount, until_us, is_over: false });
                    missing = missing.saturating_sub(amount);
                    self.numbers.asks_sent += 1;
                    self.touched.insert(key.clone());
                }
            }
        }
    }

    /// Goes on with updates whose asks nobody has answered in time.
    pub(super) fn ask_again(&mut self, now: Now, out: &mut Outbox) {
        let late: BTreeSet<Key> = self
            .parked
            .values()
            .flat_map(|parked| parked.changes.iter().map(|(key, _)| key))
            .filter(|key| {
                self.cells
                    .get(key)
                    .is_none_or(|cell| DIRECTIONS.into_iter().any(|way| cell.hunted.of(way).values().any(|hunted| hunted.runs_out(now))))
            })
            .cloned()
            .collect();
        for key in &late {
            let Some(cell) = self.cells.get_mut(key) else { continue };
            // Whoever stays in the list beyond this is waited for without a time.
            for way in DIRECTIONS {
                cell.hunted.of_mut(way).values_mut().for_each(|hunted| hunted.is_over |= hunted.runs_out(now));
            }
        }
        if !late.is_empty() {
            self.retry_parked(now, &late, out);
        }
    }

    /// Refuses the updates whose deadline has passed.
    pub(super) fn expire(&mut self, now: Now, out: &mut Outbox) {
        let due: Vec<OpId> = self.parked.iter().filter(|(_, parked)| parked.deadline_us <= now.monotonic_us).map(|(op, _)| *op).collect();
        for op in due {
            if let Some((_, stopped)) = self.retry(now, op, out) {
                self.give_up(now, op, stopped, out);
            }
        }
    }

    /// The update has its rights, and is made in memory.
    fn go_ahead(&mut self, now: Now, op: OpId, values: SmallVec<[i64; 1]>, out: &mut Outbox) {
        let Some(Parked { changes, name, dial, mut session, since_us, scope, .. }) = self.parked.remove(&op) else { return };
        let number = if scope == Scope::Local { &mut self.numbers.local_done } else { &mut self.numbers.global_done };
        *number += 1;
        self.numbers.parked_us += now.monotonic_us - since_us;
        let cells = changes.iter().map(|(key, _)| key.clone()).collect();
        match self.counted(now, &changes, cells, values, name.clone(), dial, &mut session, Some(op)) {
            Ok(Execution::Waiting(_)) => {}
            Ok(Execution::Done { outcome, after }) => self.hold(after, Done { op, outcome, session }, out),
            Err(failure) => self.fail_named(op, name, failure, &session, out),
        }
    }

    /// When something here is due without any call.
    pub(super) fn next_own_us(&self) -> u64 {
        let deadlines = self.parked.values().map(|parked| parked.deadline_us);
        let hunted = self.parked.values().flat_map(|parked| parked.changes.iter()).filter_map(|(key, _)| self.cells.get(key));
        let asks = hunted.flat_map(|cell| {
            DIRECTIONS.into_iter().flat_map(|way| cell.hunted.of(way).values().filter(|hunted| !hunted.is_over).map(|hunted| hunted.until_us))
        });
        let bounded = self.bounded.values().map(|(until_us, _)| *until_us);
        let expires = deadlines.chain(bounded).chain([self.next_led_us(), self.deciding.next_us()]).min().unwrap_or(u64::MAX);
        // Nothing is asked for and nothing balanced before this server has all that it said earlier.
        let works = if self.recalled { asks.chain([self.next_balance_us(), self.next_sweep_us()]).min().unwrap_or(u64::MAX) } else { u64::MAX };
        expires.min(works)
    }
}
