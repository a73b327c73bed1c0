//! What has been done to a counter: a row per data center that only it changes, and the join of two states (document 002, section III-B).
//!
//! A data center keeps the whole state as it knows it and passes it on whole, so a row never goes anywhere without the rows that it was written after. That is why a value
//! is within the bounds wherever it is read, and not only where everything has arrived.

use crate::definition::Definition;
use crate::sealed::{open, seal};
use rheostat_clock::DcId;
use rheostat_core::counter::{Direction, OutOfRights};
use rheostat_core::version::{Key, Value, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::wire_struct;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// That rights are wanted of another data center.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ask {
    /// Numbers the asks of one data center to another upwards, for each direction.
    pub number: u64,
    /// How many are wanted.
    pub amount: u64,
    /// What the other had moved here already, as the asker knew. Paper: R\[j\]\[i\].
    pub known: u64,
    /// An operation waits for them.
    pub urgent: bool,
}

/// One of something for each direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Both<T> {
    /// For rights to decrement.
    pub down: T,
    /// For rights to increment.
    pub up: T,
}

impl<T> Both<T> {
    /// The one for `direction`.
    pub fn of(&self, direction: Direction) -> &T {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        }
    }

    /// As [`Both::of`], to change.
    pub fn of_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::Down => &mut self.down,
            Direction::Up => &mut self.up,
        }
    }
}

/// Both directions.
pub const DIRECTIONS: [Direction; 2] = [Direction::Down, Direction::Up];

/// What one data center has done towards another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Toward {
    /// Rights moved to it. Paper: R\[i\]\[j\].
    pub moved: Both<u64>,
    /// The last that it was asked for.
    pub asks: Both<Option<Ask>>,
    /// The number of its last ask that was answered.
    pub answered: Both<u64>,
}

/// How fast a data center uses up its rights, as it says itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Demand {
    /// The greater replaces the smaller.
    pub number: u64,
    /// Rights to decrement used per 1000 seconds.
    pub down: u64,
    /// Rights to increment used per 1000 seconds.
    pub up: u64,
}

/// What one data center has done. Only it changes its row, and nothing in it ever goes down.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// The sum of its increments. Paper: R\[i\]\[i\].
    pub added: u64,
    /// The sum of its decrements. Paper: U\[i\].
    pub removed: u64,
    /// What it has done towards others.
    pub toward: BTreeMap<DcId, Toward>,
    /// The data centers that it takes for gone.
    pub gone: BTreeSet<DcId>,
    /// What it needs.
    pub demand: Demand,
}

static NOTHING: Row = Row { added: 0, removed: 0, toward: BTreeMap::new(), gone: BTreeSet::new(), demand: Demand { number: 0, down: 0, up: 0 } };

impl Row {
    /// What it has done towards `dc`.
    pub fn toward(&self, dc: DcId) -> Toward {
        self.toward.get(&dc).cloned().unwrap_or_default()
    }

    /// Rights moved to `dc`.
    pub fn moved(&self, dc: DcId, direction: Direction) -> u64 {
        self.toward.get(&dc).map_or(0, |toward| *toward.moved.of(direction))
    }

    fn merge(&mut self, other: &Row) -> bool {
        let mut rose = false;
        let mut raise = |own: &mut u64, other: u64| {
            rose |= *own < other;
            *own = (*own).max(other);
        };
        raise(&mut self.added, other.added);
        raise(&mut self.removed, other.removed);
        let mut rest = false;
        for (dc, theirs) in &other.toward {
            let ours = self.toward.entry(*dc).or_default();
            for direction in DIRECTIONS {
                raise(ours.moved.of_mut(direction), *theirs.moved.of(direction));
                raise(ours.answered.of_mut(direction), *theirs.answered.of(direction));
                let (ask, newer) = (ours.asks.of_mut(direction), theirs.asks.of(direction));
                rest |= *ask < *newer;
                *ask = (*ask).max(*newer);
            }
        }
        let known = self.gone.len();
        self.gone.extend(&other.gone);
        rest |= self.demand < other.demand || self.gone.len() > known;
        self.demand = self.demand.max(other.demand);
        rose || rest
    }
}

/// The data centers that keep a counter, and which of them this is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Circle {
    /// This data center.
    pub here: DcId,
    /// All of them, in order.
    pub members: Vec<DcId>,
}

impl Circle {
    /// Data center `here` among the first `data_centers`.
    pub fn of_all(here: DcId, data_centers: u8) -> Circle {
        Circle { here, members: (0..data_centers).map(DcId).collect() }
    }

    /// The others.
    pub fn others(&self) -> impl Iterator<Item = DcId> + '_ {
        self.members.iter().copied().filter(|dc| *dc != self.here)
    }
}

/// Why nothing was done to a counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Rights are missing here.
    OutOfRights {
        /// Its value as known here.
        value: i64,
        /// Which rights.
        direction: Direction,
        /// How many it takes.
        needed: u64,
        /// How many are here.
        here: u64,
        /// How many others hold, as known here.
        elsewhere: u64,
    },
    /// The number would not fit.
    Overflow,
    /// The rights of this data center have been taken over.
    Reclaimed {
        /// By which data center.
        by: DcId,
    },
    /// The other data center takes no part any more, or never did.
    NoPart(DcId),
    /// There is no bound in this direction, so there are no rights.
    Unbounded(Direction),
}

impl Refusal {
    /// The missing rights, for the user of counter `key`.
    pub fn out_of_rights(&self, key: &Key) -> Option<OutOfRights> {
        match *self {
            Refusal::OutOfRights { value, direction, needed, here, elsewhere } => {
                Some(OutOfRights { key: key.clone(), value, direction, needed, here, elsewhere })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::OutOfRights { needed, here, elsewhere, .. } => write!(f, "it takes {needed} rights; here are {here}, elsewhere {elsewhere}"),
            Refusal::Overflow => f.write_str("increment or decrement would overflow"),
            Refusal::Reclaimed { by } => {
                write!(f, "the rights of this data center were reclaimed by data center {by}: it may not change this counter any more")
            }
            Refusal::NoPart(dc) => write!(f, "data center {dc} has no part in this counter"),
            Refusal::Unbounded(Direction::Down) => f.write_str("this counter has no lower bound, so there are no rights to decrement it"),
            Refusal::Unbounded(Direction::Up) => f.write_str("this counter has no upper bound, so there are no rights to increment it"),
        }
    }
}

/// What has been done to one counter, as known somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Which counter.
    pub incarnation: VersionId,
    /// By data center; one that has done nothing has none.
    pub rows: BTreeMap<DcId, Row>,
}

impl State {
    /// Nothing has been done.
    pub fn new(incarnation: VersionId) -> State {
        State { incarnation, rows: BTreeMap::new() }
    }

    /// What `dc` has done.
    pub fn row(&self, dc: DcId) -> &Row {
        self.rows.get(&dc).unwrap_or(&NOTHING)
    }

    /// As [`State::row`], to change; only where `dc` is.
    pub fn row_mut(&mut self, dc: DcId) -> &mut Row {
        self.rows.entry(dc).or_default()
    }

    /// The join: entry-wise maximum. A state of another counter changes nothing. Says whether something rose. Paper: merge, Fig. 2.
    /// Between data centers use [`State::absorb`], which knows who is gone.
    pub fn merge(&mut self, other: &State) -> bool {
        if self.incarnation != other.incarnation {
            return false;
        }
        // No short cut: every row is to be merged.
        other.rows.iter().fold(false, |rose, (dc, row)| self.row_mut(*dc).merge(row) | rose)
    }

    /// The value. Concurrent increments of a counter without bounds can exceed the numbers; then it is the last of them. Paper: value, Fig. 2.
    pub fn value(&self, definition: &Definition) -> i64 {
        let sum: i128 = self.rows.values().map(|row| i128::from(row.added) - i128::from(row.removed)).sum();
        (i128::from(definition.initial) + sum).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The value by what each data center has said itself, where `heard` has its increments and decrements as of the last row of its own that came here. What data centers say together they say
    /// in one write, so updates of several counters are in these values as a whole. Where causes may be missing, the result can be out of the bounds: then it is [`State::value`], of which some data center
    /// knew more. That it is too when somebody is gone, or when `here`, this data center, has lost what it has said.
    pub fn value_heard(&self, definition: &Definition, here: DcId, heard: impl Fn(DcId) -> Option<(u64, u64)>) -> i64 {
        let mut sum = i128::from(definition.initial);
        for (dc, row) in &self.rows {
            match heard(*dc) {
                Some((added, removed)) if row.gone.is_empty() => sum += i128::from(added) - i128::from(removed),
                None if row.gone.is_empty() && (*dc != here || *row == NOTHING) => {}
                _ => return self.value(definition),
            }
        }
        match i64::try_from(sum) {
            Ok(value) if definition.lower.is_none_or(|lower| lower <= value) && definition.upper.is_none_or(|upper| value <= upper) => value,
            _ => self.value(definition),
        }
    }

    /// Rights of `dc` by its own row and what was moved to it, whoever they belong to now; below 0 if it used rights that it took over, or if
    /// what was moved to it is not known here.
    pub(crate) fn own(&self, definition: &Definition, dc: DcId, direction: Direction) -> i128 {
        let row = self.row(dc);
        let (made, used) = match direction {
            Direction::Down => (row.added, row.removed),
            Direction::Up => (row.removed, row.added),
        };
        let came: i128 = self.rows.values().map(|other| i128::from(other.moved(dc, direction))).sum();
        let went: i128 = row.toward.values().map(|toward| i128::from(*toward.moved.of(direction))).sum();
        i128::from(definition.placed(dc, direction)) + i128::from(made) + came - went - i128::from(used)
    }

    /// The rights that `dc` can use, as far as is known here; `None` if no bound limits that direction. Never more than it has. Paper: localRights, Fig. 2.
    pub fn rights(&self, definition: &Definition, circle: &Circle, dc: DcId, direction: Direction) -> Option<u64> {
        definition.bound(direction)?;
        let sealed = self.sealed(circle);
        if sealed.contains(&dc) {
            return Some(0);
        }
        let taken_over: i128 = match self.heir(circle, &sealed) == Some(dc) {
            true => sealed.iter().map(|gone| self.own(definition, *gone, direction)).sum(),
            false => 0,
        };
        Some(u64::try_from((self.own(definition, dc, direction) + taken_over).max(0)).unwrap_or(u64::MAX))
    }

    /// The rights that other data centers can use and give away, as far as is known here.
    pub fn elsewhere(&self, definition: &Definition, circle: &Circle, direction: Direction) -> u64 {
        let held = circle.others().filter(|dc| self.fenced(*dc).is_none()).filter_map(|dc| self.rights(definition, circle, dc, direction));
        held.fold(0, u64::saturating_add)
    }

    /// Whether this data center holds `needed` rights. Errors: it does not, or may not use them.
    pub(crate) fn check_rights(&self, definition: &Definition, circle: &Circle, direction: Direction, needed: u64) -> Result<(), Refusal> {
        if let Some(by) = self.fenced(circle.here) {
            return Err(Refusal::Reclaimed { by });
        }
        match self.rights(definition, circle, circle.here, direction) {
            Some(here) if here < needed => {
                let (value, elsewhere) = (self.value(definition), self.elsewhere(definition, circle, direction));
                Err(Refusal::OutOfRights { value, direction, needed, here, elsewhere })
            }
            _ => Ok(()),
        }
    }

    /// Adds `amount`, below 0 to decrement, if the rights are here; returns the value after it. Errors: nothing was changed.
    /// Paper: increment and decrement, Fig. 2; both bounds at once: section III-B, Extensions.
    pub fn add(&mut self, definition: &Definition, circle: &Circle, amount: i64) -> Result<i64, Refusal> {
        let (direction, needed) = if amount < 0 { (Direction::Down, amount.unsigned_abs()) } else { (Direction::Up, amount.unsigned_abs()) };
        self.check_rights(definition, circle, direction, needed)?;
        let sum: i128 = self.rows.values().map(|row| i128::from(row.added) - i128::from(row.removed)).sum();
        let after = i64::try_from(i128::from(definition.initial) + sum + i128::from(amount)).map_err(|_| Refusal::Overflow)?;
        if amount == 0 {
            return Ok(after);
        }
        let row = self.row_mut(circle.here);
        let count = if direction == Direction::Down { &mut row.removed } else { &mut row.added };
        *count = count.checked_add(needed).ok_or(Refusal::Overflow)?;
        Ok(after)
    }

    /// As the value of a reserved key.
    pub fn to_value(&self) -> Value {
        let mut out = Vec::with_capacity(256);
        out.push(FORM);
        self.encode(&mut out);
        seal(out)
    }

    /// The state with this byte form. Errors: damaged, or of a later form.
    pub fn from_value(value: &[u8]) -> Result<State, WireError> {
        match open(value, "a counter's state, by its checksum")?.split_first() {
            Some((&FORM, body)) => State::from_bytes(body),
            _ => Err(WireError::Invalid("a counter's state of a form that this server does not know")),
        }
    }
}

/// The byte form of states that this software writes and reads.
const FORM: u8 = 1;

impl<T: Wire> Wire for Both<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.down.encode(out);
        self.up.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Both { down: Wire::decode(input)?, up: Wire::decode(input)? })
    }
}

wire_struct!(Ask { number, amount, known, urgent });
wire_struct!(Toward { moved, asks, answered });
wire_struct!(Demand { number, down, up });

pub(crate) fn encode_map<T: Wire>(map: &BTreeMap<DcId, T>, out: &mut Vec<u8>) {
    out.push(map.len() as u8);
    for (dc, entry) in map {
        dc.encode(out);
        entry.encode(out);
    }
}

/// Entries in another order than the encoder's, or twice, are refused.
pub(crate) fn decode_map<T: Wire>(input: &mut Reader<'_>) -> Result<BTreeMap<DcId, T>, WireError> {
    let mut map = BTreeMap::new();
    for _ in 0..input.byte()? {
        let (dc, entry) = <(DcId, T)>::decode(input)?;
        if map.last_key_value().is_some_and(|(last, _)| *last >= dc) {
            return Err(WireError::Invalid("data centers out of order"));
        }
        map.insert(dc, entry);
    }
    Ok(map)
}

impl Wire for Row {
    fn encode(&self, out: &mut Vec<u8>) {
        self.added.encode(out);
        self.removed.encode(out);
        encode_map(&self.toward, out);
        out.push(self.gone.len() as u8);
        self.gone.iter().for_each(|dc| dc.encode(out));
        self.demand.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (added, removed, toward) = (Wire::decode(input)?, Wire::decode(input)?, decode_map(input)?);
        let gone: Vec<DcId> = (0..input.byte()?).map(|_| DcId::decode(input)).collect::<Result<_, _>>()?;
        if !gone.is_sorted_by(|one, next| one < next) {
            return Err(WireError::Invalid("data centers out of order"));
        }
        Ok(Row { added, removed, toward, gone: gone.into_iter().collect(), demand: Wire::decode(input)? })
    }
}

impl Wire for State {
    fn encode(&self, out: &mut Vec<u8>) {
        self.incarnation.encode(out);
        encode_map(&self.rows, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(State { incarnation: Wire::decode(input)?, rows: decode_map(input)? })
    }
}
