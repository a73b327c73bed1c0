//! The change feed of a keyspace: what was written to it in all data centers, told at one of them, in the order of the versions' names
//! (`docs/feed.md`, `docs/decisions/0041-change-feed.md`).
//!
//! A feed goes from cut to cut of [`Dial::as_of`](crate::dial::Dial): what was written up to a time, once everything up to there is here and this data center can write nothing up to there any more.
//! What lies between two cuts is told in the order of [`VersionId`]; where a write's timestamp is above those of all that it follows, that is an order in which no effect comes before its cause.
//! That order is the same in every data center, so a [`Position`] is good in any of them.

use crate::export::Kind;
use crate::failure::Failure;
use crate::ids::PartitionId;
use crate::version::{Key, Value, VersionId};
use crate::{wire_enum, wire_struct};
use rheostat_clock::{DcId, Timestamp};
use std::fmt;

/// Most changes in one answer.
pub const MOST_CHANGES: usize = 10_000;

/// Changes in a batch, if nobody says how many.
pub const DEFAULT_COUNT: u32 = 100;

/// A place in a feed: every version up to this one has been told. As text it is opaque to users.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Position(pub VersionId);

impl Position {
    /// After everything that was written at `at`.
    pub fn after(at: Timestamp) -> Position {
        Position(VersionId { written: at, origin: DcId(u8::MAX) })
    }

    /// Reads what [`fmt::Display`] wrote. Errors: in words for the user.
    pub fn parse(text: &[u8]) -> Result<Position, String> {
        let wrong = || format!("`{}` is no position of a feed", String::from_utf8_lossy(&text[..text.len().min(64)]));
        let text_of = std::str::from_utf8(text).ok().and_then(|text| text.strip_prefix('f')).ok_or_else(wrong)?;
        // One way to write each: no sign, no upper case, no other length.
        if text_of.len() != 18 || text_of.bytes().any(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong());
        }
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| wrong());
        Ok(Position(VersionId { written: Timestamp::from_bits(number(&text_of[..16])?), origin: DcId(number(&text_of[16..])? as u8) }))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VersionId { written, origin } = self.0;
        write!(f, "f{:016x}{:02x}", written.bits(), origin.0)
    }
}

/// Where a feed begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// With the oldest change that every partition still has.
    Oldest,
    /// With what is written from now on.
    Now,
    /// After this position.
    After(Position),
}

/// What is asked of a partition server.
#[derive(Clone, PartialEq, Debug)]
pub enum FeedCall {
    /// What has changed, as far as it is certain that nothing else comes between.
    Changes {
        /// After where; `None`: how far it is, and nothing else.
        after: Option<VersionId>,
        /// Of keys that match this pattern ([`crate::glob`]).
        keys: Key,
        /// About how many changes at most.
        limit: u32,
        /// Likewise, in bytes of keys and values.
        bytes: u32,
    },
    /// The versions of a key that another one replaced whose writer had not seen them.
    Conflicts {
        /// The key.
        key: Key,
    },
}

/// One version that was written.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The key.
    pub key: Key,
    /// The version.
    pub version: VersionId,
    /// Its value; `None` if it deletes.
    pub value: Option<Value>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
    /// The version of another data center that it replaced, when its writer had certainly not seen that one.
    pub over: Option<VersionId>,
}

/// A version, and whose place it took without its writer having seen it.
#[derive(Clone, PartialEq, Debug)]
pub struct Conflict {
    /// Which stands.
    pub winner: Change,
    /// Which it replaced, in the last-writer-wins order directly below it.
    pub loser: Change,
}

/// What a partition server answers.
#[derive(Clone, PartialEq, Debug)]
pub enum FeedAnswer {
    /// Of [`FeedCall::Changes`].
    Changes {
        /// In order.
        changes: Vec<Change>,
        /// All up to here that match were told.
        through: VersionId,
        /// Where a feed can begin that is to tell all that is kept here, with some time to spare; positions below it may be too old.
        from: VersionId,
        /// What kind of order that is.
        kind: Kind,
        /// Whether there is more to be had, or to be looked for, at once. Positions of before can grow too old without any change while something is looked for.
        more: bool,
    },
    /// The position is too old: positions from here on can be asked for.
    TooOld {
        /// From where on.
        from: VersionId,
    },
    /// Of [`FeedCall::Conflicts`], the greatest winner first.
    Conflicts(Vec<Conflict>),
}

wire_struct!(Change { key, version, value, expires_ms, over });
wire_struct!(Conflict { winner, loser });
wire_enum!(FeedCall, "a call of a feed", { 0 => Changes { after, keys, limit, bytes }, 1 => Conflicts { key } });
wire_enum!(FeedAnswer, "an answer of a feed", { 0 => Changes { changes, through, from, kind, more }, 1 => TooOld { from }, 2 => Conflicts(conflicts) });

/// What a feed's reader gets.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// What has changed, in order.
    pub changes: Vec<(PartitionId, Change)>,
    /// From where to go on.
    pub position: Position,
    /// What kind of order that is.
    pub kind: Kind,
    /// Whether there is more to be had, or to be looked for, at once.
    pub more: bool,
}

/// Why a feed does not go on.
#[derive(Clone, PartialEq, Debug)]
pub enum Stopped {
    /// The position is too old; a feed can begin from this one on.
    TooOld(Position),
    /// A partition's failure.
    Failed(Failure),
}

/// One round: every partition is asked the same, and the answers become a batch.
#[derive(Clone, Debug)]
pub struct Round {
    from: From,
    limit: usize,
    call: FeedCall,
}

/// Bytes of keys and values of one round, over all partitions, and the least of one.
const ROUND_BYTES: usize = 2 << 20;
const LEAST_BYTES: usize = 32 << 10;

impl Round {
    /// Asks for about `limit` changes of keys that match `keys`, of a keyspace of so many partitions.
    pub fn new(from: From, keys: Key, limit: usize, partitions: u16) -> Round {
        let after = if let From::After(position) = from { Some(position.0) } else { None };
        let limit = limit.clamp(1, MOST_CHANGES);
        let bytes = (ROUND_BYTES / usize::from(partitions.max(1))).max(LEAST_BYTES) as u32;
        Round { from, limit, call: FeedCall::Changes { after, keys, limit: limit as u32, bytes } }
    }

    /// What each partition is asked.
    pub fn call(&self) -> FeedCall {
        self.call.clone()
    }

    /// What comes of the partitions' answers: what was written up to where all of them are. Changes of one write, and of writes with the same name, are never parted.
    pub fn merge(&self, answers: impl IntoIterator<Item = (PartitionId, FeedAnswer)>) -> Result<Batch, Stopped> {
        let (mut all, mut upto, mut oldest, mut order) =
            (Vec::new(), Position(VersionId { written: Timestamp::MAX, origin: DcId(u8::MAX) }), None, Kind::Causal);
        let (mut too_old, mut more) = (None, false);
        for (partition, answer) in answers {
            match answer {
                FeedAnswer::Changes { changes, through, from, kind, more: there_is_more } => {
                    more |= there_is_more;
                    all.extend(changes.into_iter().map(|change| (partition, change)));
                    upto = upto.min(Position(through));
                    oldest = oldest.max(Some(Position(from)));
                    if kind != Kind::Causal {
                        order = kind;
                    }
                }
                FeedAnswer::TooOld { from } => too_old = too_old.max(Some(Position(from))),
                FeedAnswer::Conflicts(_) => return Err(Stopped::Failed(Failure::Refused("a partition answered something else".into()))),
            }
        }
        if let Some(from) = too_old {
            return Err(Stopped::TooOld(from.max(oldest.unwrap_or_default())));
        }
        let oldest = oldest.unwrap_or_default();
        let nothing = |position| Ok(Batch { changes: Vec::new(), position, kind: order, more });
        let before = match self.from {
            From::Oldest => return nothing(oldest),
            From::Now => return nothing(upto.max(oldest)),
            From::After(position) => position,
        };
        if upto <= before {
            return nothing(before);
        }
        all.retain(|(_, change)| change.version <= upto.0);
        all.sort_by(|(left, one), (right, other)| (one.version, left, &one.key).cmp(&(other.version, right, &other.key)));
        if all.len() > self.limit {
            let last = all[self.limit - 1].1.version;
            let end = all.partition_point(|(_, change)| change.version <= last);
            if end < all.len() {
                all.truncate(end);
                upto = Position(last);
                more = true;
            }
        }
        Ok(Batch { changes: all, position: upto, kind: order, more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(millis: u64, origin: u8) -> VersionId {
        VersionId { written: Timestamp::new(millis, 3), origin: DcId(origin) }
    }

    fn change(key: &str, version: VersionId) -> Change {
        Change { key: key.as_bytes().into(), version, value: None, expires_ms: 0, over: None }
    }

    fn answer(changes: Vec<Change>, through: VersionId) -> FeedAnswer {
        FeedAnswer::Changes { changes, through, from: VersionId::default(), kind: Kind::Causal, more: false }
    }

    #[test]
    fn positions_are_read_as_they_were_written_and_nothing_else_is() {
        for position in [Position::default(), Position(id(1_795_000_000_000, 2)), Position::after(Timestamp::MAX)] {
            assert_eq!(Position::parse(position.to_string().as_bytes()), Ok(position));
        }
        let text = Position(id(1_795_000_000_000, 2)).to_string();
        let wrong = [
            "",
            "f",
            "x",
            &text[1..],
            &text[..18],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace('f', "+"),
            "f+0000000000000000a",
            "f\u{e9}00000000000000000",
        ];
        for text in wrong {
            assert!(Position::parse(text.as_bytes()).is_err_and(|why| why.contains("is no position of a feed")), "{text}");
        }
        assert!(Position::parse(&[0xff; 4000]).is_err_and(|why| why.len() < 400));
    }

    #[test]
    fn a_round_ends_where_the_slowest_partition_is() {
        let round = Round::new(From::After(Position(id(1, 0))), b"*"[..].into(), 100, 2);
        let answers = [
            (PartitionId(0), answer(vec![change("a", id(5, 0)), change("b", id(9, 0))], id(20, 9))),
            (PartitionId(1), answer(vec![change("c", id(3, 1)), change("d", id(7, 1))], id(8, 9))),
        ];
        let batch = round.merge(answers).unwrap();
        let keys: Vec<&[u8]> = batch.changes.iter().map(|(_, change)| &*change.key).collect();
        assert_eq!(keys, [b"c", b"a", b"d"]);
        assert_eq!(batch.position, Position(id(8, 9)));
    }

    #[test]
    fn what_has_one_name_is_not_parted() {
        let round = Round::new(From::After(Position::default()), b"*"[..].into(), 2, 2);
        let same = [
            (PartitionId(0), answer(vec![change("a", id(5, 0)), change("b", id(5, 0))], id(20, 9))),
            (PartitionId(1), answer(vec![change("c", id(5, 0)), change("d", id(6, 0))], id(20, 9))),
        ];
        let batch = round.merge(same).unwrap();
        assert_eq!((batch.changes.len(), batch.position), (3, Position(id(5, 0))));
    }

    #[test]
    fn nothing_new_leaves_the_position_where_it_was() {
        let round = Round::new(From::After(Position(id(9, 0))), b"*"[..].into(), 2, 1);
        assert_eq!(round.merge([(PartitionId(0), answer(Vec::new(), id(4, 0)))]).unwrap().position, Position(id(9, 0)));
    }

    #[test]
    fn one_partition_without_the_past_is_enough_to_be_too_old() {
        let round = Round::new(From::After(Position(id(9, 0))), b"*"[..].into(), 2, 2);
        let answers = [(PartitionId(0), FeedAnswer::TooOld { from: id(12, 0) }), (PartitionId(1), answer(vec![change("c", id(10, 0))], id(14, 0)))];
        assert_eq!(round.merge(answers), Err(Stopped::TooOld(Position(id(12, 0)))));
    }

    #[test]
    fn a_feed_begins_where_every_partition_has_everything() {
        let some = |through, from| FeedAnswer::Changes { changes: Vec::new(), through, from, kind: Kind::Clocks, more: false };
        let answers = || [(PartitionId(0), some(id(20, 0), id(3, 0))), (PartitionId(1), some(id(18, 0), id(5, 0)))];
        let of = |from| Round::new(from, b"*"[..].into(), 2, 2).merge(answers()).unwrap();
        assert_eq!((of(From::Oldest).position, of(From::Now).position), (Position(id(5, 0)), Position(id(18, 0))));
        assert_eq!(of(From::Now).kind, Kind::Clocks);
    }
}
