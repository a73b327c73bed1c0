//! What a client remembers (Alg. 4.1).

use super::message::{Reply, Request};
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::Read;
use rheostat_core::dial::{Guarantees, Level};
use rheostat_core::ids::{PartitionId, Place};
use rheostat_core::operation::Guard;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::version::{Item, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A partition as sessions know it. Sessions outlast splits, and data centers are split one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Part {
    /// Of how many partitions; 0: of as many as when the cluster was made, so what sessions carry is the same as ever where there was no split.
    of: u16,
    /// Its number.
    number: u16,
}

impl Part {
    /// `partition`, as the server at `place` counts them.
    pub(super) fn new(place: &Place, partition: PartitionId) -> Part {
        let of = if place.partitions == place.first_partitions { 0 } else { place.partitions };
        Part { of, number: partition.0 }
    }

    /// The partition of the server at `place`.
    pub(super) fn here(place: &Place) -> Part {
        Part::new(place, place.server.partition)
    }

    /// Whether keys can be of both; there were `first` partitions when the cluster was made.
    fn shares_keys(self, other: Part, first: u16) -> bool {
        // Partitions are ranges of slots of one length each, about: where it begins, and where it ends, as a fraction.
        let range = |part: Part| {
            let of = u64::from(if part.of == 0 { first } else { part.of });
            (u64::from(part.number), u64::from(part.number) + 1, of)
        };
        let ((begin, end, of), (other_begin, other_end, other_of)) = (range(self), range(other));
        begin * other_of < other_end * of && other_begin * of < end * other_of
    }
}

/// Timestamps by partition and data center.
type Rows = BTreeMap<Part, TimestampVector>;

/// What `rows` have of the keys of `part`.
fn row(rows: &Rows, part: Part, first: u16) -> TimestampVector {
    let mut found = rows.get(&part).cloned().unwrap_or_default();
    // Of other numbers of partitions: there are none where there was no split.
    let (before, after) = (rows.range(..Part { number: 0, ..part }), rows.range(Part { of: part.of + 1, number: 0 }..));
    for (_, row) in before.chain(after).filter(|(other, _)| other.shares_keys(part, first)) {
        found.join(row);
    }
    found
}

/// The client side. A version's place in its data center's log is its timestamp (D2), so the matrices hold timestamps.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct SessionClient {
    /// Per partition and data center, the greatest version read, and up to where there was nothing to read. Paper: hrm[d, p].
    read: Rows,
    /// Per partition and data center, the greatest version written. Paper: hwm[d, p].
    written: Rows,
    /// The greatest version read. Paper: dt_r.
    newest_read: Timestamp,
    /// The greatest version written. Paper: dt_w.
    newest_written: Timestamp,
}

impl SessionClient {
    /// What must be at `partition`, as the server at `place` counts them, before a read at `level` (Alg. 4.1 lines 3 to 13). Paper: hrv, hwv.
    pub(super) fn need(&self, place: &Place, partition: PartitionId, level: Level) -> TimestampVector {
        let wanted = match level {
            Level::Eventual => Guarantees::NONE,
            Level::Session(set) => set,
            _ => Guarantees::ALL,
        };
        let part = Part::new(place, partition);
        let of = |wants: Guarantees, rows: &Rows| if wanted.has(wants) { row(rows, part, place.first_partitions) } else { TimestampVector::new() };
        let mut need = of(Guarantees::MONOTONIC_READS, &self.read);
        need.join(&of(Guarantees::READ_YOUR_WRITES, &self.written));
        need
    }

    /// What a write at `level` is ordered after (Alg. 4.1 lines 21 to 28, `dr_w` read as dt_w). Paper: dt.
    pub(super) fn after(&self, level: Level) -> Timestamp {
        let wanted = match level {
            Level::Eventual => Guarantees::NONE,
            Level::Session(set) => set,
            _ => Guarantees::ALL,
        };
        let of = |wants: Guarantees, newest: Timestamp| if wanted.has(wants) { newest } else { Timestamp::ZERO };
        of(Guarantees::WRITES_FOLLOW_READS, self.newest_read).max(of(Guarantees::MONOTONIC_WRITES, self.newest_written))
    }

    fn saw(&mut self, part: Part, version: Option<VersionId>) {
        if let Some(version) = version {
            self.read.entry(part).or_default().raise(version.origin, version.written);
            self.newest_read = self.newest_read.max(version.written);
        }
    }

    /// A key of `part` had no version where something written up to `gone` can have been deleted and collected: who has less than that may still have what was deleted.
    fn missed(&mut self, part: Part, gone: Option<TimestampVector>) {
        if let Some(gone) = gone {
            self.read.entry(part).or_default().join(&gone);
        }
    }

    fn wrote(&mut self, part: Part, version: Option<VersionId>) {
        if let Some(version) = version {
            self.written.entry(part).or_default().raise(version.origin, version.written);
            self.newest_written = self.newest_written.max(version.written);
        }
    }
}

impl Client for SessionClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        Request::Call(call, self.clone())
    }

    fn put_if(&self, items: &SmallVec<[Item; 1]>, guards: &[Guard], level: Level) -> Option<Request> {
        Some(Request::PutIf(items.clone(), guards.to_vec(), level, self.clone()))
    }

    fn accept(&mut self, reply: Reply) -> Outcome {
        match reply {
            // Lines 14 to 17.
            Reply::Get(part, read, quality, gone) => {
                self.saw(part, read.version);
                self.missed(part, gone);
                Outcome::Read(read, quality)
            }
            // Lines 29 to 32.
            Reply::Put(part, version) => {
                self.wrote(part, Some(version));
                Outcome::Written(version)
            }
            Reply::Changed(part, before, version) => {
                self.saw(part, before.version);
                self.wrote(part, version);
                Outcome::Changed { before, version }
            }
            Reply::ChangedAbsent(part, version, gone) => {
                self.missed(part, gone);
                self.wrote(part, version);
                Outcome::Changed { before: Read::default(), version }
            }
            Reply::Many(reads, quality, gone) => {
                reads.iter().for_each(|(part, read)| self.saw(*part, read.version));
                gone.into_iter().for_each(|(part, gone)| self.missed(part, Some(gone)));
                Outcome::Many(reads.into_iter().map(|(_, read)| read).collect(), quality)
            }
            // What stood in the way is told, and is not part of the session's history.
            Reply::Unmet(met) => Outcome::Unmet(met),
        }
    }

    fn merge(&mut self, other: &SessionClient) {
        for (mine, others) in [(&mut self.read, &other.read), (&mut self.written, &other.written)] {
            for (part, row) in others {
                mine.entry(*part).or_default().join(row);
            }
        }
        self.newest_read = self.newest_read.max(other.newest_read);
        self.newest_written = self.newest_written.max(other.newest_written);
    }

    fn newest(&self) -> Timestamp {
        self.newest_read.max(self.newest_written)
    }

    fn last_write(&self, dc: DcId) -> Timestamp {
        self.written.values().map(|row| row.get(dc)).max().unwrap_or_default()
    }

    fn data_centers(&self) -> usize {
        self.read.values().chain(self.written.values()).map(TimestampVector::data_centers).max().unwrap_or(0)
    }
}

/// Partitions that a session may speak of: as many as there are hash slots.
const MAX_ROWS: usize = 16_384;

impl Wire for SessionClient {
    /// What is of parts stands behind the rest: without it this is what servers read that know of no splits.
    fn encode(&self, out: &mut Vec<u8>) {
        for rows in [&self.read, &self.written] {
            rows.iter().filter(|(part, _)| part.of == 0).map(|(part, row)| (part.number, row.clone())).collect::<Vec<_>>().encode(out);
        }
        self.newest_read.encode(out);
        self.newest_written.encode(out);
        let split = [&self.read, &self.written].map(|rows| {
            let rows = rows.iter().filter(|(part, _)| part.of > 0);
            rows.map(|(part, row)| ((part.of, part.number), row.clone())).collect::<Vec<_>>()
        });
        if split.iter().any(|rows| !rows.is_empty()) {
            split.iter().for_each(|rows| rows.encode(out));
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut rows = || -> Result<Rows, WireError> {
            let list = Vec::<(u16, TimestampVector)>::decode(input)?;
            if list.len() > MAX_ROWS {
                return Err(WireError::Invalid("a session of more partitions than there can be"));
            }
            Ok(list.into_iter().map(|(number, row)| (Part { of: 0, number }, row)).collect())
        };
        let (read, written) = (rows()?, rows()?);
        let mut session = SessionClient { read, written, newest_read: Wire::decode(input)?, newest_written: Wire::decode(input)? };
        if !input.rest().is_empty() {
            for rows in [&mut session.read, &mut session.written] {
                let list = Vec::<((u16, u16), TimestampVector)>::decode(input)?;
                if list.len() > MAX_ROWS || list.iter().any(|((of, number), _)| usize::from(*of) > MAX_ROWS || number >= of) {
                    return Err(WireError::Invalid("a session of partitions that there cannot be"));
                }
                rows.extend(list.into_iter().map(|((of, number), row)| (Part { of, number }, row)));
            }
        }
        Ok(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::answer::Quality;
    use rheostat_core::ids::ServerId;

    /// The server of `partition` of `partitions`, of which there were two at first.
    fn place(partition: u16, partitions: u16) -> Place {
        let server = ServerId::new(DcId(0), PartitionId(partition));
        Place { server, data_centers: 2, partitions, first_partitions: 2, replicas: 1 }
    }

    fn wrote(session: &mut SessionClient, place: &Place, ms: u64) {
        let version = VersionId { written: Timestamp::new(ms, 0), origin: DcId(0) };
        session.accept(Reply::Put(Part::here(place), version));
    }

    #[test]
    fn what_a_session_knows_of_a_partition_it_knows_of_its_parts_and_of_what_it_is_part_of() {
        let mut session = SessionClient::default();
        let needs = |session: &SessionClient, place: Place| session.need(&place, place.server.partition, Level::SESSION).get(DcId(0)).millis();
        wrote(&mut session, &place(1, 2), 10);
        let before = session.to_bytes();
        assert_eq!([0, 1, 2, 3].map(|part| needs(&session, place(part, 4))), [0, 0, 10, 10]);
        wrote(&mut session, &place(2, 4), 20);
        wrote(&mut session, &place(7, 8), 30);
        assert_eq!([0, 1, 2, 3].map(|part| needs(&session, place(part, 4))), [0, 0, 20, 30]);
        assert_eq!([0, 1].map(|part| needs(&session, place(part, 2))), [0, 30], "a data center that is not split yet");
        assert_eq!([4, 5, 6, 7].map(|part| needs(&session, place(part, 8))), [20, 20, 10, 30]);
        assert_eq!(SessionClient::from_bytes(&session.to_bytes()).as_ref(), Ok(&session));
        let old = SessionClient::from_bytes(&before).unwrap();
        session.merge(&old);
        assert_eq!(SessionClient::from_bytes(&session.to_bytes()).as_ref(), Ok(&session));
        assert!(session.to_bytes().starts_with(&before[..1]) && old.to_bytes() == before);
    }

    #[test]
    fn a_session_needs_what_may_be_gone_where_it_found_nothing() {
        let (mut session, place) = (SessionClient::default(), place(1, 2));
        let gone: TimestampVector = [0, 1].map(|dc| (DcId(dc), Timestamp::new(70, 0))).into_iter().collect();
        let quality = Quality { level: Level::SESSION, staleness_ms: None };
        let need = |session: &SessionClient, level| session.need(&place, place.server.partition, level);
        session.accept(Reply::Get(Part::here(&place), Read::default(), quality, None));
        assert_eq!(session, SessionClient::default(), "nothing was told");
        session.accept(Reply::Many(vec![(Part::here(&place), Read::default())], quality, vec![(Part::here(&place), gone.clone())]));
        assert_eq!(need(&session, Level::Session(Guarantees::MONOTONIC_READS)), gone);
        assert_eq!(need(&session, Level::Session(Guarantees::READ_YOUR_WRITES)), TimestampVector::new());
        assert_eq!(session.need(&place, PartitionId(0), Level::SESSION), TimestampVector::new(), "of another partition");
        assert_eq!(session.after(Level::SESSION), Timestamp::ZERO, "it has read no version");
        let mut other = SessionClient::default();
        other.accept(Reply::ChangedAbsent(Part::here(&place), None, Some(gone.clone())));
        assert_eq!(need(&other, Level::SESSION), gone);
    }

    #[test]
    fn a_session_of_partitions_that_there_cannot_be_is_refused() {
        let mut session = SessionClient::default();
        wrote(&mut session, &place(2, 4), 20);
        let sane = session.to_bytes();
        let at = sane.len() - session.written.values().next().unwrap().to_bytes().len();
        for parts in [(4, 4), (16_385, 2), (0, 0)] {
            let wrong = [&sane[..at - (4u16, 2u16).to_bytes().len()], &(parts.0 as u16, parts.1 as u16).to_bytes(), &sane[at..]].concat();
            assert!(SessionClient::from_bytes(&wrong).is_err(), "{parts:?}");
        }
        assert!(SessionClient::from_bytes(&sane[..at]).is_err());
    }
}
