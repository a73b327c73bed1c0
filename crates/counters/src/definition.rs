//! What a counter is: the value of its key.

use crate::sealed::{open, seal};
use rheostat_clock::DcId;
use rheostat_core::counter::{Direction, NewCounter};
use rheostat_core::version::{Value, VersionId};
use rheostat_core::wire::{Wire, WireError};
use rheostat_core::{wire_enum, wire_struct};

/// How the value of a counter's key begins. Users cannot write such a value.
pub const MAGIC: [u8; 16] = *b"\x00\xFFrheo counter\x01\x00";

/// Which counter of all that its key has held: the states of two of them are never merged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Incarnation {
    /// The one that the version which holds this definition made.
    Own,
    /// The one that this version made, or that was begun over this version: data centers that begin one over the same version at once begin the same.
    Of(VersionId),
}

/// What a counter is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Which one.
    pub incarnation: Incarnation,
    /// It is never below this. Paper: K, of `value ≥ K`.
    pub lower: Option<i64>,
    /// It is never above this. Paper: K, of `value ≤ K`.
    pub upper: Option<i64>,
    /// Its value at first.
    pub initial: i64,
    /// The rights to decrement and to increment that each data center, by index, began with; nothing for those beyond.
    pub placed: Vec<(u64, u64)>,
}

impl Definition {
    /// The counter that `new` asks for, among `data_centers` data centers of which `members` keep it. Errors: what is out of order, in words for the user.
    pub fn new(new: &NewCounter, data_centers: u8, members: &[DcId]) -> Result<Definition, String> {
        let NewCounter { lower, upper, initial, placement } = new;
        if let (Some(lower), Some(upper)) = (lower, upper)
            && lower > upper
        {
            return Err(format!("a counter's lower bound must not be above its upper bound: {lower} is above {upper}"));
        }
        if lower.is_some_and(|lower| *initial < lower) || upper.is_some_and(|upper| *initial > upper) {
            let bound = |bound: &Option<i64>| bound.map_or("none".to_owned(), |bound| bound.to_string());
            return Err(format!(
                "a counter's initial value must be within its bounds: {initial} is not (lower {}, upper {})",
                bound(lower),
                bound(upper)
            ));
        }
        if !placement.is_empty() && (placement.len() != usize::from(data_centers) || placement.iter().all(|weight| *weight == 0)) {
            return Err(format!("a placement has one weight for each of the {data_centers} data centers, and not all of them are 0"));
        }
        if let Some(dc) = (0..data_centers).map(DcId).find(|dc| !members.contains(dc) && placement.get(dc.index()).is_some_and(|weight| *weight > 0))
        {
            return Err(format!("data center {dc} does not hold this key, or nobody is there, so its weight in the placement must be 0"));
        }
        let even = (0..data_centers).map(|dc| u32::from(members.contains(&DcId(dc)))).collect();
        let weights = if placement.is_empty() { &even } else { placement };
        let down = lower.map(|lower| split(initial.abs_diff(lower), weights));
        let up = upper.map(|upper| split(upper.abs_diff(*initial), weights));
        let share = |shares: &Option<Vec<u64>>, index: usize| shares.as_ref().map_or(0, |shares| shares[index]);
        let bounded = lower.is_some() || upper.is_some();
        let placed = (0..weights.len()).filter(|_| bounded).map(|index| (share(&down, index), share(&up, index))).collect();
        Ok(Definition { incarnation: Incarnation::Own, lower: *lower, upper: *upper, initial: *initial, placed })
    }

    /// A counter without bounds, begun at `initial` over version `over`.
    pub fn unbounded(over: VersionId, initial: i64) -> Definition {
        Definition { incarnation: Incarnation::Of(over), lower: None, upper: None, initial, placed: Vec::new() }
    }

    /// Whether it began by itself over version `over`.
    pub fn began_over(&self, over: VersionId) -> bool {
        self.lower.is_none() && self.upper.is_none() && self.incarnation == Incarnation::Of(over)
    }

    /// The bound that limits `direction`.
    pub fn bound(&self, direction: Direction) -> Option<i64> {
        match direction {
            Direction::Down => self.lower,
            Direction::Up => self.upper,
        }
    }

    /// The rights that `dc` began with.
    pub fn placed(&self, dc: DcId, direction: Direction) -> u64 {
        let (down, up) = self.placed.get(dc.index()).copied().unwrap_or_default();
        match direction {
            Direction::Down => down,
            Direction::Up => up,
        }
    }

    /// Which counter this is, held by version `id`.
    pub fn incarnation(&self, id: VersionId) -> VersionId {
        match self.incarnation {
            Incarnation::Own => id,
            Incarnation::Of(version) => version,
        }
    }

    /// The same counter, for a new version: what held it until now is `id`.
    pub fn moved(mut self, id: VersionId) -> Definition {
        self.incarnation = Incarnation::Of(self.incarnation(id));
        self
    }

    /// Whether `value` says that it defines a counter.
    pub fn is(value: &[u8]) -> bool {
        value.starts_with(&MAGIC)
    }

    /// As the value of a key.
    pub fn to_value(&self) -> Value {
        let mut out = MAGIC.to_vec();
        self.encode(&mut out);
        out.into()
    }

    /// What `value` defines; `None` if it defines no counter. Errors: it says that it does, and is damaged or of a later form.
    pub fn from_value(value: &[u8]) -> Option<Result<Definition, WireError>> {
        value.strip_prefix(&MAGIC).map(|body| {
            let definition = Definition::from_bytes(body)?;
            let within =
                definition.lower.is_none_or(|lower| lower <= definition.initial) && definition.upper.is_none_or(|upper| definition.initial <= upper);
            let sum = |direction: Direction| -> u128 { (0..=u8::MAX).map(|dc| u128::from(definition.placed(DcId(dc), direction))).sum() };
            let whole = |direction| sum(direction) == u128::from(definition.bound(direction).map_or(0, |bound| bound.abs_diff(definition.initial)));
            match within && whole(Direction::Down) && whole(Direction::Up) {
                true => Ok(definition),
                false => Err(WireError::Invalid("a counter's initial rights")),
            }
        })
    }
}

/// `total` in shares by weight, which together are all of it.
fn split(total: u64, weights: &[u32]) -> Vec<u64> {
    let all: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let (mut weight_so_far, mut given) = (0u128, 0u64);
    let share = |weight: &u32| {
        weight_so_far += u128::from(*weight);
        // At most `total`, so it fits.
        let upto = (u128::from(total) * weight_so_far / all.max(1)) as u64;
        let share = upto - given;
        given = upto;
        share
    };
    weights.iter().map(share).collect()
}

/// Beside a counter's key: what was made there, and over what. A data center where the key was free as well may have begun a counter at the same time, whose definition is written later.
/// Then the one that was made is left, for all who were told of its bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// What a counter that began by itself would have begun over.
    pub over: VersionId,
    /// What was made. The version of this record is that of the definition.
    pub definition: Definition,
}

impl Made {
    /// As the value of a reserved key.
    pub fn to_value(&self) -> Value {
        seal(self.to_bytes())
    }

    /// What `value` says. Errors: it is damaged.
    pub fn from_value(value: &[u8]) -> Result<Made, WireError> {
        Made::from_bytes(open(value, "the bounds of a counter, by their checksum")?)
    }
}

wire_struct!(Made { over, definition });
wire_enum!(Incarnation, "an incarnation", { 0 => Own, 1 => Of(version) });
wire_struct!(Definition { incarnation, lower, upper, initial, placed });

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [DcId; 3] = [DcId(0), DcId(1), DcId(2)];

    #[test]
    fn only_who_holds_a_counter_gets_rights() {
        let new = NewCounter { lower: Some(0), initial: 8, ..NewCounter::default() };
        assert_eq!(Definition::new(&new, 3, &[DcId(0), DcId(2)]).unwrap().placed, [(4, 0), (0, 0), (4, 0)]);
        let elsewhere = NewCounter { placement: vec![1, 1, 1], ..new };
        assert!(Definition::new(&elsewhere, 3, &[DcId(0), DcId(2)]).unwrap_err().contains("data center 1 does not hold"));
    }

    #[test]
    fn initial_rights_are_split_by_weight_and_nothing_is_lost() {
        assert_eq!(split(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(split(u64::MAX, &[u32::MAX, 0, 1]).iter().copied().map(u128::from).sum::<u128>(), u128::from(u64::MAX));
        let new = NewCounter { lower: Some(-5), upper: Some(5), initial: 1, placement: vec![0, 1, 2] };
        let counter = Definition::new(&new, 3, &ALL).unwrap();
        assert_eq!(counter.placed, [(0, 0), (2, 1), (4, 3)]);
        let widest = NewCounter { lower: Some(i64::MIN), upper: Some(i64::MAX), initial: i64::MAX, placement: vec![] };
        assert_eq!(Definition::new(&widest, 1, &ALL).unwrap().placed, [(u64::MAX, 0)]);
    }

    #[test]
    fn what_makes_no_counter_is_refused() {
        let refused = |lower, upper, initial, placement: &[u32]| {
            Definition::new(&NewCounter { lower, upper, initial, placement: placement.to_vec() }, 2, &ALL[..2]).unwrap_err()
        };
        assert!(refused(Some(2), Some(1), 0, &[]).contains("lower bound"));
        assert!(refused(Some(2), None, 1, &[]).contains("within its bounds"));
        assert!(refused(None, Some(0), 1, &[]).contains("within its bounds"));
        assert!(refused(Some(0), None, 1, &[1]).contains("one weight for each of the 2"));
        assert!(refused(Some(0), None, 1, &[0, 0]).contains("not all of them are 0"));
    }

    #[test]
    fn a_definition_survives_its_byte_form_and_damage_is_refused() {
        let counter = Definition::new(&NewCounter { lower: Some(0), upper: None, initial: 100, placement: vec![] }, 3, &ALL).unwrap();
        let value = counter.to_value();
        assert!(Definition::is(&value));
        assert_eq!(Definition::from_value(&value), Some(Ok(counter)));
        assert_eq!(Definition::from_value(b"100"), None);
        for length in MAGIC.len()..value.len() {
            assert!(Definition::from_value(&value[..length]).unwrap().is_err());
        }
        let mut more_rights = value.to_vec();
        let last = more_rights.len() - 2;
        more_rights[last] += 1;
        assert_eq!(Definition::from_value(&more_rights), Some(Err(WireError::Invalid("a counter's initial rights"))));
    }

    #[test]
    fn a_definition_that_is_written_again_is_the_same_counter() {
        let id = VersionId { written: rheostat_clock::Timestamp::new(7, 0), origin: DcId(1) };
        let later = VersionId { written: rheostat_clock::Timestamp::new(9, 0), origin: DcId(0) };
        let counter = Definition::new(&NewCounter { lower: Some(0), ..NewCounter::default() }, 3, &ALL).unwrap();
        assert_eq!(counter.incarnation(id), id);
        let again = counter.moved(id);
        assert_eq!(again.incarnation(later), id);
        assert_eq!(again.moved(later).incarnation(later), id);
    }
}
