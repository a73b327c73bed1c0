//! Linearizability (Herlihy and Wing): each operation takes effect at one moment between its call and its reply, and finds what the one before it left.
//!
//! Checked per key, which is enough (linearizability is local), and among the operations of a [`Scope`]: those of level `local` or stronger in one
//! data center, or those of level `strong` in all. An operation without a reply may have happened at any time after it was asked, or never.
//!
//! Writes of the same keys that are outside the scope (weaker levels; for a data center, also those of the others) take part as writes
//! that may take effect at any time after they begin, or never. That never accuses a correct store: such a write shows in the scope once, when its version
//! arrives and wins, which is after its beginning and may never be; afterwards a greater version shows. What it leaves unseen: that such a write shows late, or
//! only to some. What those operations read is not asked.
//!
//! Changes look and write at one moment: a condition is met or not by what is there, and what is told of the value before is that value. That what a
//! change told contradicts its own outcome is a violation at once.
//!
//! A value that expires ([`History::expiring`]) is there until it has expired by all clocks, and absent once it has by one; between the two it is what each one's clock says, so a value that
//! was found expired can be found again by somebody whose clock is behind. Only when the key was found absent without a version is it gone for good. So a change that is made where a key
//! has no value is made before the value there may have expired by no clock. That nothing reads it too early or too late is asked by [`mod@crate::expiry`].
//!
//! What is unseen, because each key is looked at for itself: that a put of several keys appears at one moment, and that a read-only transaction reads
//! at one. ([`crate::snapshot`] asks that at the causal levels.) Keys of which a write may have been lost with its server's power
//! ([`History::lost_allowed`]) are skipped: there the register goes back.

mod search;

use crate::history::{Action, Condition, Event, EventId, History, KeyId, Observation, Outcome};
use crate::verdict::{Promise, Report, UNDECIDED, Violation};
use crate::written::Index;
use rheostat_clock::DcId;
use rheostat_core::dial::Level;
use search::{Effect, Found, Need, Op, search};
use std::fmt;

/// Configurations that the search tries for one key before it gives up.
pub const LIMIT: usize = 300_000;

/// Searches that are spent on making a violation small.
const SHRINKING: usize = 300;

/// Of deletes that need not have happened and that nothing finds in particular, how many a violation shows.
const SHOWN: usize = 2;

const DEFINITION: &str = "Herlihy and Wing, linearizability of one object";

/// Which operations are to be linearizable together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// Those of level local or stronger in this data center.
    DataCenter(DcId),
    /// Those of level strong in all data centers.
    Everywhere,
}

impl Scope {
    fn contains(self, event: &Event) -> bool {
        match self {
            Scope::DataCenter(dc) => event.dc == dc && event.is_at(Level::Local),
            Scope::Everywhere => event.is_at(Level::Strong),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::DataCenter(dc) => write!(f, "the operations of level local in data center {}", dc.0),
            Scope::Everywhere => f.write_str("the operations of level strong"),
        }
    }
}

/// Checks every scope that has operations, each with [`LIMIT`].
///
/// # Errors
///
/// The first violation; or that there is no verdict ([`Violation::is_undecided`]).
pub fn check(history: &History) -> Result<Report, Violation> {
    check_index(&Index::of(history)?)
}

/// Checks one scope, trying at most `limit` configurations per key.
///
/// # Errors
///
/// As [`check`].
pub fn check_scope(history: &History, scope: Scope, limit: usize) -> Result<Report, Violation> {
    let mut report = Report::new(Promise::Linearizable);
    check_keys(&Index::of(history)?, scope, limit, &mut report)?;
    Ok(report)
}

pub(crate) fn check_index(index: &Index<'_>) -> Result<Report, Violation> {
    let mut report = Report::new(Promise::Linearizable);
    check_keys(index, Scope::Everywhere, LIMIT, &mut report)?;
    for dc in 0..index.history.data_centers {
        check_keys(index, Scope::DataCenter(DcId(dc)), LIMIT, &mut report)?;
    }
    Ok(report)
}

fn check_keys(index: &Index<'_>, scope: Scope, limit: usize, report: &mut Report) -> Result<(), Violation> {
    let mut registers: Vec<Register> = (0..index.history.keys.len()).map(|key| Register::new(KeyId(key as u32))).collect();
    for (id, event) in index.history.numbered() {
        let is_inside = scope.contains(event);
        let looked = event.observations().map(|(key, _)| key).filter(|_| is_inside);
        let decided = event.attempted().iter().map(|item| item.key).filter(|_| is_inside && matches!(event.outcome, Outcome::Changed { .. }));
        let mut keys: Vec<KeyId> = event.items().iter().map(|item| item.key).chain(looked).chain(decided).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().for_each(|key| registers[key.index()].events.push((id, is_inside)));
    }
    for register in registers.iter().filter(|register| register.events.iter().any(|(_, is_inside)| *is_inside)) {
        register.check(index, scope, limit, report)?;
    }
    Ok(())
}

/// The operations on one key.
struct Register {
    key: KeyId,
    /// In the order of the history; and whether they are in the scope.
    events: Vec<(EventId, bool)>,
}

impl Register {
    fn new(key: KeyId) -> Register {
        Register { key, events: Vec::new() }
    }

    fn check(&self, index: &Index<'_>, scope: Scope, limit: usize, report: &mut Report) -> Result<(), Violation> {
        let history = index.history;
        if self.events.iter().any(|(id, _)| history.lost_allowed.binary_search(id).is_ok()) {
            report.skipped += self.events.iter().filter(|(_, is_inside)| *is_inside).count() as u64;
            return Ok(());
        }
        let mut ops = Vec::new();
        for (place, (id, is_inside)) in self.events.iter().enumerate() {
            let op = self.op(index, place, *id, *is_inside)?;
            if *is_inside {
                report.count(op.need != Need::Nothing);
            }
            ops.push(op);
        }
        ops.extend(self.expiries(history));
        match search(&ops, limit) {
            Found::Order => Ok(()),
            Found::None => Err(self.describe(index, scope, &smallest(&ops, limit))),
            Found::Undecided => {
                let name = history.key_name(self.key);
                let what = format!("of {scope}, {} on {name}: {limit} orders were begun and none was finished", self.events.len());
                Err(Violation::new(history, Promise::Linearizable, UNDECIDED, what, Vec::new()))
            }
        }
    }

    fn op(&self, index: &Index<'_>, place: usize, id: EventId, is_inside: bool) -> Result<Op, Violation> {
        let event = index.history.event(id);
        let written = event.items().iter().find(|item| item.key == self.key);
        let effect = written.map_or(Effect::None, |item| if item.value.is_some() { Effect::Value } else { Effect::Delete });
        let (from_us, session) = (event.invoked_us, event.session.0);
        if !is_inside {
            return Ok(Op { from_us, until_us: None, session, need: Need::Nothing, effect });
        }
        let observed = event.observations().find(|(key, _)| *key == self.key).map(|(_, observed)| observed);
        let need = match (&event.action, &event.outcome) {
            (Action::Change { condition, .. }, Outcome::Changed { applied, before, .. }) => {
                if before.is_some_and(|before| condition.holds(before) == Some(!applied)) {
                    let what = format!("{id} {} though it found the key so", if *applied { "wrote" } else { "did not write" });
                    return Err(Violation::new(index.history, Promise::Linearizable, DEFINITION, what, vec![(id, String::new())]));
                }
                match before {
                    Some(before) => self.found(index, *before),
                    None if *applied => self.met(index, *condition, place),
                    None => self.unmet(index, *condition),
                }
            }
            (Action::Change { condition, .. }, Outcome::Unknown) => self.met(index, *condition, place),
            _ => observed.map_or(Need::Nothing, |observed| self.found(index, observed)),
        };
        Ok(Op { from_us, until_us: event.completed_us, session, need, effect })
    }

    /// The writes here whose values expire, by their places.
    fn expiring(&self, history: &History) -> Vec<usize> {
        let writes = |id: EventId| history.event(id).items().iter().any(|item| item.key == self.key && item.value.is_some());
        let expires = |(place, (id, _)): (usize, &(EventId, bool))| (history.expiry(*id).is_some() && writes(*id)).then_some(place);
        self.events.iter().enumerate().filter_map(expires).collect()
    }

    /// Operations that take away what has expired; they stand behind the others.
    fn expiries(&self, history: &History) -> Vec<Op> {
        let op = |(number, place): (u64, usize)| {
            let from_us = history.expiry(self.events[place].0).map_or(0, |expiry| expiry.from_us);
            Op { from_us, until_us: None, session: u64::MAX - number, need: Need::Write(place), effect: Effect::Delete }
        };
        (0..).zip(self.expiring(history)).map(op).collect()
    }

    /// The event that an operation is of.
    fn event_of(&self, history: &History, place: usize) -> EventId {
        let expired = || self.events[self.expiring(history)[place - self.events.len()]].0;
        self.events.get(place).map_or_else(expired, |(id, _)| *id)
    }

    fn place_of(&self, writer: EventId) -> Option<usize> {
        self.events.binary_search_by_key(&writer, |(id, _)| *id).ok()
    }

    /// What an operation needs that was told `observed`.
    fn found(&self, index: &Index<'_>, observed: Observation) -> Need {
        let writer = index.resolve(self.key, observed).writer;
        let found = writer.and_then(|writer| self.place_of(writer));
        // Of what has expired, that was found expired.
        let has_expired = |writer: EventId| observed.value.is_none() && index.history.expiry(writer).is_some();
        // A tombstone that one of several deletes may have written: any of them will do.
        match found {
            None => Need::Absent,
            Some(write) if writer.is_some_and(has_expired) => Need::AbsentOr(write),
            Some(write) => Need::Write(write),
        }
    }

    fn writer_of_version(&self, index: &Index<'_>, condition: Condition) -> Option<usize> {
        let writer = match condition {
            Condition::Value(value) => index.writer_of(value),
            Condition::Version(Some(id)) => index.rank(self.key, id).and_then(|rank| index.ranked(self.key, rank)?.writer),
            _ => None,
        };
        self.place_of(writer?)
    }

    /// What the change at `place` needs to be written.
    fn met(&self, index: &Index<'_>, condition: Condition, place: usize) -> Need {
        match (condition, self.writer_of_version(index, condition)) {
            (_, Some(writer)) => Need::Write(writer),
            (Condition::Absent | Condition::Version(None), _) => Need::Absent,
            (Condition::Present | Condition::Expiring, _) => Need::Present,
            // Nobody wrote this value, so it is never there: not before this write itself.
            (Condition::Value(_), None) => Need::Write(place),
            // A version that nothing else in the history tells of.
            (Condition::Always | Condition::Version(Some(_)), _) => Need::Nothing,
        }
    }

    /// What a change needs not to be written.
    fn unmet(&self, index: &Index<'_>, condition: Condition) -> Need {
        let deletes = |writer: usize| {
            let mut items = index.history.event(self.events[writer].0).items().iter();
            items.any(|item| item.key == self.key && item.value.is_none())
        };
        match (condition, self.writer_of_version(index, condition)) {
            // A tombstone may have been collected, and then is not met any more; what has expired is not, either.
            (_, Some(writer)) if deletes(writer) || index.history.expiry(self.events[writer].0).is_some() => Need::Nothing,
            (_, Some(writer)) => Need::Not(writer),
            (Condition::Absent, _) => Need::Present,
            // Somebody whose clock is ahead took what is there for expired.
            (Condition::Present, _) if !self.expiring(index.history).is_empty() => Need::Nothing,
            (Condition::Present, _) => Need::Absent,
            _ => Need::Nothing,
        }
    }

    fn describe(&self, index: &Index<'_>, scope: Scope, smallest: &[(usize, Op)]) -> Violation {
        let name = index.history.key_name(self.key);
        let event_of = |place: usize| self.event_of(index.history, place);
        let why = |place: usize, op: &Op| {
            if place >= self.events.len() {
                return format!("expires, at any time from {} on", op.from_us);
            }
            let found = match op.need {
                Need::Write(write) => format!("finds what {} wrote", event_of(write)),
                Need::Not(write) => format!("does not find what {} wrote", event_of(write)),
                Need::AbsentOr(write) => format!("finds what {} wrote expired", event_of(write)),
                Need::Absent => "finds no value".into(),
                Need::Present => "finds a value".into(),
                Need::Nothing => String::new(),
            };
            match (op.until_us, found.is_empty()) {
                (Some(_), _) => found,
                (None, true) => "happened at any time after its beginning, or never".into(),
                (None, false) => format!("{found}, at any time after its beginning, or never happened"),
            }
        };
        // Deletes that might explain why there is no value, and do not: a few stand for all.
        let is_found = |place: usize| {
            smallest.iter().any(|(_, op)| matches!(op.need, Need::Write(write) | Need::Not(write) | Need::AbsentOr(write) if write == place))
        };
        let is_any = |(place, op): &&(usize, Op)| op.until_us.is_none() && op.effect == Effect::Delete && !is_found(*place);
        let left_out = smallest.iter().filter(is_any).count().saturating_sub(SHOWN);
        let hidden: Vec<usize> = smallest.iter().filter(is_any).take(left_out).map(|(place, _)| *place).collect();
        let shown = smallest.iter().filter(|(place, _)| !hidden.contains(place));
        let mut trace: Vec<(EventId, String)> = shown.map(|(place, op)| (event_of(*place), why(*place, op))).collect();
        trace.sort_by_key(|(id, _)| (index.history.event(*id).invoked_us, *id));
        let last = smallest.iter().max_by_key(|(place, op)| (op.until_us, *place)).map(|(place, _)| event_of(*place));
        let last = last.map_or_else(String::new, |last| format!(" that {last} ends"));
        let more = if left_out == 0 { String::new() } else { format!("; neither with any of {left_out} earlier deletes that may have happened") };
        let what = format!("{scope} on {name} have no order that agrees with what they found and with their times{last}{more}");
        Violation::new(index.history, Promise::Linearizable, DEFINITION, what, trace)
    }
}

/// The operations of a register that has no order, by their places.
type Subset = Vec<(usize, Op)>;

fn has_no_order(subset: &[(usize, Op)], limit: usize) -> bool {
    let position = |place: usize| subset.binary_search_by_key(&place, |(place, _)| *place).ok();
    let mut ops: Vec<Op> = Vec::new();
    for (place, op) in subset {
        let moved = |write: usize| position(write).or_else(|| position(*place)).unwrap_or(0);
        let need = match op.need {
            Need::Write(write) => Need::Write(moved(write)),
            Need::Not(write) => Need::Not(moved(write)),
            Need::AbsentOr(write) => Need::AbsentOr(moved(write)),
            other => other,
        };
        ops.push(Op { need, ..op.clone() });
    }
    search(&ops, limit) == Found::None
}

/// Few of `ops`, which have no order, that have none either: no more than had happened at the earliest moment at which it was so, and of those none that
/// can be left out.
fn smallest(ops: &[Op], limit: usize) -> Subset {
    let mut moments: Vec<u64> = ops.iter().filter_map(|op| op.until_us).collect();
    moments.sort_unstable();
    let first = moments.partition_point(|moment| !has_no_order(&until(ops, *moment), limit));
    let mut subset = match moments.get(first) {
        Some(moment) => until(ops, *moment),
        // The search gave up on a part of what it had decided as a whole.
        None => ops.iter().cloned().enumerate().collect(),
    };
    let mut searches = SHRINKING;
    let mut size = subset.len();
    while size > 0 {
        let (mut from, before) = (0, subset.len());
        while from < subset.len() && searches > 0 {
            let smaller = without(&subset, from, size);
            searches -= usize::from(smaller.is_some());
            match smaller.filter(|smaller| has_no_order(smaller, limit)) {
                Some(smaller) => subset = smaller,
                None => from += size,
            }
        }
        // One by one, until none can be left out any more.
        if size > 1 || subset.len() == before || searches == 0 {
            size /= 2;
        }
    }
    subset
}

/// What had begun by `moment`; what had not ended need not have happened.
fn until(ops: &[Op], moment: u64) -> Subset {
    let mut subset = Vec::new();
    for (place, op) in ops.iter().enumerate().filter(|(_, op)| op.from_us <= moment) {
        let until_us = op.until_us.filter(|until| *until <= moment);
        if until_us.is_some() || op.effect != Effect::None {
            subset.push((place, Op { until_us, ..op.clone() }));
        }
    }
    subset
}

/// `subset` without `size` operations from `from` on, nor those that find what they wrote. `None` if what is left could have lost its order by that:
/// if something is left that finds no particular write, and could have found one of these.
fn without(subset: &[(usize, Op)], from: usize, size: usize) -> Option<Subset> {
    let mut out: Vec<usize> = subset[from..(from + size).min(subset.len())].iter().map(|(place, _)| *place).collect();
    loop {
        let is_out = |place: &usize| out.contains(place);
        let finds = |op: &Op| matches!(op.need, Need::Write(write) | Need::Not(write) | Need::AbsentOr(write) if is_out(&write));
        let more: Vec<usize> = subset.iter().filter(|(place, op)| !is_out(place) && finds(op)).map(|(place, _)| *place).collect();
        if more.is_empty() {
            break;
        }
        out.extend(more);
    }
    let (gone, left): (Vec<_>, Vec<_>) = subset.iter().cloned().partition(|(place, _)| out.contains(place));
    let gone = |effect: Effect| gone.iter().any(|(_, op)| op.effect == effect);
    let left_over = |vague: fn(&Need) -> bool| left.iter().any(|(_, op)| vague(&op.need));
    let is_safe = !((gone(Effect::Value) || gone(Effect::Delete)) && left_over(|need| matches!(need, Need::Present | Need::Not(_)))
        || gone(Effect::Delete) && left_over(|need| matches!(need, Need::Absent | Need::AbsentOr(_))));
    is_safe.then_some(left)
}
