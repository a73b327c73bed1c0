//! What is sent.

use super::client::{Part, SessionClient};
use crate::gather::TransactionId;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::Level;
use rheostat_core::link::LinkFrame;
use rheostat_core::operation::{Change, Guard};
use rheostat_core::protocol::Call;
use rheostat_core::slots::belongs;
use rheostat_core::version::{Item, Key, Update, VersionId};
use rheostat_core::wire::{Reader, Wire};
use rheostat_core::wire_enum;
use rheostat_group::{RaftMessage, Word};
use smallvec::SmallVec;
use std::ops::RangeInclusive;

/// From client to server: the call, and what the client remembers.
#[derive(Clone, Debug)]
pub enum Request {
    /// What the papers know, and changes.
    Call(Call, SessionClient),
    /// A write that is made only if keys are as expected.
    PutIf(SmallVec<[Item; 1]>, Vec<Guard>, Level, SessionClient),
}

/// From server to client.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// ⟨GETREPLY v, dc_id, log_idx, t⟩. Log index and timestamp are one (D2). If there was no version: per data center, up to where one can have been deleted and collected.
    Get(Part, Read, Quality, Option<TimestampVector>),
    /// ⟨PUTREPLY dc_id, log_idx, t⟩.
    Put(Part, VersionId),
    /// Of a change: what was there before, and what was written.
    Changed(Part, Read, Option<VersionId>),
    /// Of a change of a key without a version: what was written, and as with [`Reply::Get`].
    ChangedAbsent(Part, Option<VersionId>, Option<TimestampVector>),
    /// Of a read of several keys; and as with [`Reply::Get`], of the partitions where one had no version.
    Many(Vec<(Part, Read)>, Quality, Vec<(Part, TimestampVector)>),
    /// Of a guarded write that was not made: how the guards' keys were.
    Unmet(Vec<Read>),
}

/// What a write does, in the group's log.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Writes items.
    Put(SmallVec<[Item; 1]>),
    /// Reads a key and changes it, as it is at this place of the log.
    Change(Key, Change),
}

/// An entry of the group's log.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A write of a client of this group.
    Write {
        /// The replica that has the client, by data center and number.
        from: (DcId, u8),
        /// The request's number there.
        request: u64,
        /// Its timestamp, given by the leader. Paper: v.t.
        at: Timestamp,
        /// The leader's physical time in milliseconds, for expiry; not much less than that of any entry before it.
        now_ms: u64,
        /// What it does.
        command: Command,
    },
    /// Updates of another data center. Paper: REPLICATE k, v, log_idx.
    Remote {
        /// The data center.
        origin: DcId,
        /// Of which data centers everything is in the log with this entry, and up to where. Empty if these updates cannot be relied on without others that come later.
        reached: TimestampVector,
        /// The updates, in its order.
        updates: Vec<Update<u64>>,
    },
    /// No write of this group that comes later in the log gets a timestamp up to this. Earlier versions of this software said so; a write of no items does, and has a time.
    Quiet(Timestamp),
}

impl Command {
    /// What it does to keys of `slots`: to write nothing, if nothing.
    fn within(self, slots: &RangeInclusive<u16>) -> Command {
        match self {
            Command::Put(items) => Command::Put(items.into_iter().filter(|item| belongs(&item.key, slots)).collect()),
            Command::Change(key, change) if belongs(&key, slots) => Command::Change(key, change),
            Command::Change(..) => Command::Put(SmallVec::new()),
        }
    }
}

impl Entry {
    /// What it says of keys of `slots`. Its timestamps stay, and so does how far other data centers' updates have come with it.
    pub(super) fn within(self, slots: &RangeInclusive<u16>) -> Entry {
        match self {
            Entry::Write { from, request, at, now_ms, command } => Entry::Write { from, request, at, now_ms, command: command.within(slots) },
            Entry::Remote { origin, reached, updates } => {
                Entry::Remote { origin, reached, updates: updates.iter().filter_map(|update| update.within(slots)).collect() }
            }
            Entry::Quiet(at) => Entry::Quiet(at),
        }
    }

    /// The greatest timestamp that the leader has given to the entry with these bytes, or has taken over with it; nothing if they cannot be read.
    pub(super) fn stamp(bytes: &[u8]) -> Option<Timestamp> {
        let mut input = Reader::new(bytes);
        match input.byte().ok()? {
            0 => {
                let (_, _): ((DcId, u8), u64) = (Wire::decode(&mut input).ok()?, Wire::decode(&mut input).ok()?);
                Wire::decode(&mut input).ok()
            }
            1 => {
                let _: DcId = Wire::decode(&mut input).ok()?;
                Some(TimestampVector::decode(&mut input).ok()?.max())
            }
            2 => Wire::decode(&mut input).ok(),
            _ => None,
        }
    }
}

/// From server to server.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Within the group: Raft.
    Raft(RaftMessage),
    /// To itself: everything that Raft asked to be logged up to its request of this number is on disk.
    Persisted(u64),
    /// To the leader: propose this write.
    Forward {
        /// The request's number at the sender.
        request: u64,
        /// The write is to be ordered after this. Paper: dt.
        after: Timestamp,
        /// What it does.
        command: Command,
    },
    /// From the leader to its group: the number of the replica that ships to other data centers. Paper: XC.
    Role(u8),
    /// From the shipping replica to its group: how far each data center has this one's updates on disk.
    Shipped(TimestampVector),
    /// To the replicas of another data center: the sender ships from now on.
    ShipperHere,
    /// Between a shipping replica and the leaders of other data centers: as between servers of other protocols.
    Link(LinkFrame<u64>),
    /// To the leader: send what the group's state has from this place on.
    Fetch {
        /// The index of the snapshot.
        snapshot: u64,
        /// The slot.
        slot: u16,
        /// Where to go on in it.
        from: u32,
    },
    /// The answer: newest versions.
    Page {
        /// As in the request.
        snapshot: u64,
        /// As in the request.
        slot: u16,
        /// As in the request.
        from: u32,
        /// Where to go on; `None` after the last slot.
        next: Option<(u16, u32)>,
        /// Newest versions, one item each, with the index of the entry that wrote them.
        updates: Vec<Update<u64>>,
    },
    /// To a replica of another partition of this data center: read these keys for a transaction.
    Slice {
        /// The transaction, at its coordinator.
        transaction: TransactionId,
        /// Keys of the receiver.
        keys: Vec<Key>,
        /// What must be there first.
        need: TimestampVector,
        /// The level.
        level: Level,
    },
    /// What they are.
    SliceReply {
        /// The transaction.
        transaction: TransactionId,
        /// In the order of the keys, with what `note_gone` notes in them.
        reads: Vec<Read>,
        /// Up to where everything from every other data center was here.
        oldest: Timestamp,
    },
    /// To the leader: propose this write, if keys are as expected.
    ForwardIf {
        /// The request's number at the sender.
        request: u64,
        /// The write is to be ordered after this. Paper: dt.
        after: Timestamp,
        /// What it writes.
        items: SmallVec<[Item; 1]>,
        /// What must hold.
        guards: Vec<Guard>,
    },
    /// From the leader: the request of this number was not proposed, and will not be.
    Unmet {
        /// The request's number at the receiver.
        request: u64,
        /// How the guards' keys were.
        met: Vec<Read>,
    },
    /// Within the group: who is who.
    Word(Word),
}

/// Notes in the reads of a slice that found no version up to where one can have been deleted and collected: where others say when they expire, which nothing does here. So the message is as it was
/// before this was said, and servers of both kinds take it.
pub(super) fn note_gone(reads: &mut [Read], gone: Timestamp) {
    reads.iter_mut().filter(|read| read.version.is_none()).for_each(|read| read.expires_ms = gone.bits());
}

/// Takes out what [`note_gone`] has noted; zero if nothing.
pub(super) fn take_gone(reads: &mut [Read]) -> Timestamp {
    let noted = reads.iter_mut().filter(|read| read.version.is_none()).map(|read| std::mem::take(&mut read.expires_ms));
    Timestamp::from_bits(noted.max().unwrap_or_default())
}

wire_enum!(Command, "a command", { 0 => Put(items), 1 => Change(key, change) });
wire_enum!(Entry, "an entry of the log", { 0 => Write { from, request, at, now_ms, command }, 1 => Remote { origin, reached, updates }, 2 => Quiet(at) });
wire_enum!(Message, "a message of protocol session", {
    0 => Raft(message),
    1 => Persisted(number),
    2 => Forward { request, after, command },
    3 => Role(shipper),
    4 => Shipped(acknowledged),
    5 => ShipperHere,
    6 => Link(frame),
    7 => Fetch { snapshot, slot, from },
    8 => Page { snapshot, slot, from, next, updates },
    9 => Slice { transaction, keys, need, level },
    10 => SliceReply { transaction, reads, oldest },
    11 => ForwardIf { request, after, items, guards },
    12 => Unmet { request, met },
    13 => Word(word),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entrys_stamp_is_found_without_reading_the_rest() {
        let at = Timestamp::new(7, 3);
        let reached: TimestampVector = [(DcId(0), Timestamp::new(2, 0)), (DcId(2), at)].into_iter().collect();
        let entries = [
            Entry::Write { from: (DcId(2), 1), request: 300, at, now_ms: 9, command: Command::Put(SmallVec::new()) },
            Entry::Remote { origin: DcId(2), reached, updates: Vec::new() },
            Entry::Quiet(at),
        ];
        for entry in entries {
            assert_eq!(Entry::stamp(&entry.to_bytes()), Some(at), "{entry:?}");
        }
        assert_eq!(Entry::stamp(&[]), None);
        assert_eq!(Entry::stamp(&[9]), None);
    }

    #[test]
    fn what_is_noted_in_reads_of_nothing_is_taken_out_of_them() {
        let found = Read { value: None, version: Some(VersionId { written: Timestamp::new(7, 3), origin: DcId(2) }), expires_ms: 0 };
        let plain = [Read::default(), found, Read::default()];
        for (reads, noted) in [(&plain[..], Timestamp::new(9, 1)), (&plain[1..2], Timestamp::ZERO), (&plain[..0], Timestamp::ZERO)] {
            let mut sent = reads.to_vec();
            note_gone(&mut sent, Timestamp::new(9, 1));
            let mut came = Vec::<Read>::from_bytes(&sent.to_bytes()).unwrap();
            assert_eq!((take_gone(&mut came), &came[..]), (noted, reads));
        }
        assert_eq!(take_gone(&mut plain.to_vec()), Timestamp::ZERO, "of a server that notes nothing");
    }

    #[test]
    fn an_entry_keeps_what_is_of_some_slots_and_all_that_is_of_no_key() {
        let at = Timestamp::new(7, 3);
        let item = |key: &str| Item { key: Key::from(key.as_bytes()), value: None, expires_ms: 0 };
        let mine = rheostat_core::slots::slot(b"mine");
        let slots = mine..=mine;
        let write = |command| Entry::Write { from: (DcId(2), 1), request: 300, at, now_ms: 9, command };
        let update = |ms, keys: &[&str]| Update {
            id: VersionId { written: Timestamp::new(ms, 0), origin: DcId(1) },
            items: keys.iter().map(|key| item(key)).collect(),
            meta: 4u64,
        };
        let reached: TimestampVector = [(DcId(1), at)].into_iter().collect();
        let remote = |updates| Entry::Remote { origin: DcId(1), reached: reached.clone(), updates };
        let change = |key: &str| Command::Change(Key::from(key.as_bytes()), Change::Delete);
        for (entry, within) in [
            (write(Command::Put([item("mine"), item("other")].into_iter().collect())), write(Command::Put([item("mine")].into_iter().collect()))),
            (write(Command::Put([item("other")].into_iter().collect())), write(Command::Put(SmallVec::new()))),
            (write(change("mine")), write(change("mine"))),
            (write(change("other")), write(Command::Put(SmallVec::new()))),
            (remote(vec![update(3, &["other"]), update(4, &["mine", "other"])]), remote(vec![update(4, &["mine"])])),
            (Entry::Quiet(at), Entry::Quiet(at)),
        ] {
            assert_eq!(entry.within(&slots), within);
        }
    }
}
