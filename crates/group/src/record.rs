//! What replicas agree on, and what each of them remembers.

use crate::configuration::Configuration;
use crate::standing::Stood;
use rheostat_clock::Timestamp;
use rheostat_core::slots::belongs;
use rheostat_core::store::Trim;
use rheostat_core::version::{Key, Update};
use rheostat_core::wire::{Reader, Wire, WireError};
use std::ops::RangeInclusive;

/// One record of a partition server's log.
#[derive(Clone, PartialEq, Debug)]
pub enum Record<M> {
    /// An update that was written here.
    Own(Update<M>),
    /// An update that was written elsewhere.
    Other(Update<M>),
    /// What the server keeps over a restart.
    State(Vec<u8>),
    /// A key's chain has lost versions that nobody asks for any more.
    Trim(Key, Trim),
    /// Every other data center has the own updates up to here.
    Release(Timestamp),
}

impl<M: Wire> Wire for Record<M> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Own(update) => {
                out.push(0);
                update.encode(out);
            }
            Record::Other(update) => {
                out.push(1);
                update.encode(out);
            }
            Record::State(state) => {
                out.push(2);
                state.encode(out);
            }
            Record::Trim(key, trim) => {
                out.push(3);
                key.encode(out);
                trim.encode(out);
            }
            Record::Release(upto) => {
                out.push(4);
                upto.encode(out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match input.byte()? {
            0 => Record::Own(Update::decode_kept(input)?),
            1 => Record::Other(Update::decode_kept(input)?),
            2 => Record::State(Wire::decode(input)?),
            3 => Record::Trim(Wire::decode(input)?, Wire::decode(input)?),
            4 => Record::Release(Wire::decode(input)?),
            _ => return Err(WireError::Invalid("a record of a partition server's log")),
        })
    }
}

/// An entry of the group's log: records one after the other; about so many bytes of them.
pub fn encode<M: Wire>(records: &[Record<M>], bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes);
    records.iter().for_each(|record| record.encode(&mut out));
    out
}

/// The records of an entry, one after the other. Errors: what follows is no record; nothing comes after it.
pub fn records<M: Wire>(entry: &[u8]) -> impl Iterator<Item = Result<Record<M>, WireError>> {
    let mut input = Reader::new(entry);
    std::iter::from_fn(move || {
        let next = (!input.rest().is_empty()).then(|| Wire::decode(&mut input))?;
        if next.is_err() {
            input = Reader::new(&[]);
        }
        Some(next)
    })
}

impl<M: Clone> Record<M> {
    /// What it says of keys of `slots`; `None` if nothing. That an update has come is said of all.
    fn within(self, slots: &RangeInclusive<u16>) -> Option<Record<M>> {
        match self {
            Record::Own(update) => Some(Record::Own(update.left_within(slots))),
            Record::Other(update) => Some(Record::Other(update.left_within(slots))),
            Record::Trim(key, trim) => belongs(&key, slots).then_some(Record::Trim(key, trim)),
            Record::State(_) | Record::Release(_) => Some(self),
        }
    }
}

/// What the records of an entry say of keys of `slots`. Errors: one of them cannot be read.
pub fn within<M: Wire + Clone>(entry: &[u8], slots: &RangeInclusive<u16>) -> Result<Vec<u8>, WireError> {
    let kept = records::<M>(entry).filter_map(|record| record.map(|record| record.within(slots)).transpose());
    Ok(encode(&kept.collect::<Result<Vec<_>, _>>()?, entry.len()))
}

/// What a replica remembers over a restart, beside its chains, its own updates and the entries of the group's log.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Saved {
    /// The term, and whom it has voted for in it.
    pub term: u64,
    /// See [`Saved::term`].
    pub vote: u64,
    /// Index and term of the last entry that is gone.
    pub base: (u64, u64),
    /// The records of all entries up to here are in the store. More may be; to apply them again changes nothing: no deletion that has gone is newer.
    pub applied: u64,
    /// Own updates up to here may have come in pages: only the chains hold them.
    pub chained: Timestamp,
    /// Who it is in its group.
    pub stood: Stood,
    /// Who belongs to the group; none if that has never changed.
    pub configuration: Option<Configuration>,
    /// Per data center (by index), the newest update that was applied and is of no keys here, since the partition was split: the store does not tell it.
    pub came: Vec<Timestamp>,
    /// The last [`Record::State`].
    pub state: Option<Vec<u8>>,
}

/// The number of the byte form.
const FORM: u8 = 3;

/// That of before partitions with replicas could be split. It is written where nothing has come that is of no keys.
const FORM_OF_NO_PARTS: u8 = 2;

/// That of before members could be replaced.
const FORM_OF_FIXED_MEMBERS: u8 = 1;

impl Wire for Saved {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(if self.came.is_empty() { FORM_OF_NO_PARTS } else { FORM });
        (self.term, self.vote).encode(out);
        self.base.encode(out);
        self.applied.encode(out);
        self.chained.encode(out);
        self.stood.encode(out);
        self.configuration.encode(out);
        if !self.came.is_empty() {
            self.came.encode(out);
        }
        self.state.is_some().encode(out);
        out.extend_from_slice(self.state.as_deref().unwrap_or_default());
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let form = input.byte()?;
        if ![FORM, FORM_OF_NO_PARTS, FORM_OF_FIXED_MEMBERS].contains(&form) {
            return Err(WireError::Invalid("a replica's state of another version of the software, or of a server without replicas"));
        }
        let ((term, vote), base) = (Wire::decode(input)?, Wire::decode(input)?);
        let (applied, chained) = (Wire::decode(input)?, Wire::decode(input)?);
        let (stood, configuration) = if form == FORM_OF_FIXED_MEMBERS { Default::default() } else { (Wire::decode(input)?, Wire::decode(input)?) };
        let came = if form == FORM { Wire::decode(input)? } else { Vec::new() };
        let state = if bool::decode(input)? { Some(input.take(input.rest().len())?.to_vec()) } else { None };
        Ok(Saved { term, vote, base, applied, chained, stood, configuration, came, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::DcId;
    use rheostat_core::version::VersionId;

    #[test]
    fn an_entry_is_read_record_by_record_up_to_the_first_that_is_none() {
        let all = [Record::<()>::State(vec![1, 2]), Record::Release(Timestamp::new(7, 1)), Record::State(Vec::new())];
        let mut entry = encode(&all, 0);
        assert_eq!(records(&entry).collect::<Result<Vec<Record<()>>, _>>(), Ok(all.to_vec()));
        assert_eq!(records::<()>(&[]).count(), 0);
        let whole = entry.len();
        entry.extend([9, 4]);
        let read: Vec<_> = records::<()>(&entry).collect();
        assert!(read[..3].iter().all(Result::is_ok) && read[3].is_err() && read.len() == 4, "nothing is made of what follows");
        assert!(records::<()>(&entry[..whole - 1]).any(|record| record.is_err()), "an entry that is cut short");
    }

    /// A leader of before the repair could propose one; whoever cannot read it could apply nothing after it either.
    #[test]
    fn an_update_of_no_keys_is_read_and_what_follows_it() {
        let id = VersionId { written: Timestamp::new(5, 0), origin: DcId(1) };
        let empty = Update { id, items: Default::default(), meta: () };
        let all = [Record::Own(empty.clone()), Record::Other(empty), Record::Release(Timestamp::new(7, 1))];
        assert_eq!(records(&encode(&all, 0)).collect::<Result<Vec<Record<()>>, _>>(), Ok(all.to_vec()));
    }

    #[test]
    fn an_entry_keeps_what_is_of_some_slots_and_all_that_is_of_no_key() {
        let key = |name: &str| Key::from(name.as_bytes());
        let mine = rheostat_core::slots::slot(b"mine");
        let id = VersionId { written: Timestamp::new(5, 0), origin: DcId(1) };
        let update = |keys: &[&str]| Update {
            id,
            items: keys.iter().map(|name| rheostat_core::version::Item { key: key(name), value: None, expires_ms: 0 }).collect(),
            meta: (),
        };
        let of_no_key = [Record::State(vec![1]), Record::Release(Timestamp::new(7, 0))];
        let before = [Record::Own(update(&["other"])), Record::Other(update(&["other", "mine"])), Record::Trim(key("other"), Trim::Upto(id))];
        let kept = [Record::Own(update(&[])), Record::Other(update(&["mine"])), Record::Trim(key("mine"), Trim::Upto(id))];
        let entry = encode(&[&before[..], &kept[2..], &of_no_key].concat(), 0);
        let found = within::<()>(&entry, &(mine..=mine)).unwrap();
        assert_eq!(records::<()>(&found).collect::<Result<Vec<_>, _>>(), Ok([&kept[..], &of_no_key].concat()));
        assert!(within::<()>(&[9], &(mine..=mine)).is_err());
    }

    #[test]
    fn a_state_of_before_members_were_replaced_is_read() {
        let configuration = Some(Configuration::first(&[1, 2, 3]));
        let saved = Saved {
            term: 3,
            vote: 2,
            base: (5, 2),
            applied: 7,
            chained: Timestamp::new(9, 0),
            stood: (65_538, 4),
            configuration,
            came: Vec::new(),
            state: Some(vec![1]),
        };
        let split = Saved { came: vec![Timestamp::ZERO, Timestamp::new(8, 0)], ..saved.clone() };
        for saved in [&saved, &split] {
            assert_eq!(Saved::from_bytes(&saved.to_bytes()).as_ref(), Ok(saved));
        }
        assert_eq!((saved.to_bytes()[0], split.to_bytes()[0]), (FORM_OF_NO_PARTS, FORM));
        let mut old = vec![FORM_OF_FIXED_MEMBERS];
        (saved.term, saved.vote).encode(&mut old);
        saved.base.encode(&mut old);
        saved.applied.encode(&mut old);
        saved.chained.encode(&mut old);
        true.encode(&mut old);
        old.push(1);
        assert_eq!(Saved::from_bytes(&old), Ok(Saved { stood: (0, 0), configuration: None, ..saved }));
        assert!(Saved::from_bytes(&[FORM + 1, 0]).is_err());
    }
}
