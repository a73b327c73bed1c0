//! What a client remembers (Alg. 4.1).

use super::message::{Reply, Request};
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::ids::PartitionId;
use rheostat_core::operation::{Guarantees, Guard, Level, Outcome};
use rheostat_core::protocol::{Call, Client};
use rheostat_core::version::{Item, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The client side. A version's place in its data center's log is its timestamp (D2), so the matrices hold timestamps.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct SessionClient {
    /// Per partition and data center, the greatest version read. Paper: hrm[d, p].
    read: BTreeMap<u16, TimestampVector>,
    /// Per partition and data center, the greatest version written. Paper: hwm[d, p].
    written: BTreeMap<u16, TimestampVector>,
    /// The greatest version read. Paper: dt_r.
    newest_read: Timestamp,
    /// The greatest version written. Paper: dt_w.
    newest_written: Timestamp,
}

impl SessionClient {
    /// What must be at `partition` before a read at `level` (Alg. 4.1 lines 3 to 13). Paper: hrv, hwv.
    pub(super) fn need(&self, partition: PartitionId, level: Level) -> TimestampVector {
        let wanted = match level {
            Level::Eventual => Guarantees::NONE,
            Level::Session(set) => set,
            _ => Guarantees::ALL,
        };
        let row = |wants: Guarantees, rows: &BTreeMap<u16, TimestampVector>| {
            rows.get(&partition.0).filter(|_| wanted.has(wants)).cloned().unwrap_or_default()
        };
        let mut need = row(Guarantees::MONOTONIC_READS, &self.read);
        need.join(&row(Guarantees::READ_YOUR_WRITES, &self.written));
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

    fn saw(&mut self, partition: PartitionId, version: Option<VersionId>) {
        if let Some(version) = version {
            self.read.entry(partition.0).or_default().raise(version.origin, version.written);
            self.newest_read = self.newest_read.max(version.written);
        }
    }

    fn wrote(&mut self, partition: PartitionId, version: Option<VersionId>) {
        if let Some(version) = version {
            self.written.entry(partition.0).or_default().raise(version.origin, version.written);
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
            Reply::Get(partition, read, quality) => {
                self.saw(partition, read.version);
                Outcome::Read(read, quality)
            }
            // Lines 29 to 32.
            Reply::Put(partition, version) => {
                self.wrote(partition, Some(version));
                Outcome::Written(version)
            }
            Reply::Changed(partition, before, version) => {
                self.saw(partition, before.version);
                self.wrote(partition, version);
                Outcome::Changed { before, version }
            }
            Reply::Many(reads, quality) => {
                reads.iter().for_each(|(partition, read)| self.saw(*partition, read.version));
                Outcome::Many(reads.into_iter().map(|(_, read)| read).collect(), quality)
            }
            // What stood in the way is told, and is not part of the session's history.
            Reply::Unmet(met) => Outcome::Unmet(met),
        }
    }

    fn merge(&mut self, other: &SessionClient) {
        for (mine, others) in [(&mut self.read, &other.read), (&mut self.written, &other.written)] {
            for (partition, row) in others {
                mine.entry(*partition).or_default().join(row);
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
    fn encode(&self, out: &mut Vec<u8>) {
        for rows in [&self.read, &self.written] {
            rows.iter().map(|(partition, row)| (*partition, row.clone())).collect::<Vec<_>>().encode(out);
        }
        self.newest_read.encode(out);
        self.newest_written.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut rows = || -> Result<BTreeMap<u16, TimestampVector>, WireError> {
            let list = Vec::<(u16, TimestampVector)>::decode(input)?;
            if list.len() > MAX_ROWS {
                return Err(WireError::Invalid("a session of more partitions than there can be"));
            }
            Ok(list.into_iter().collect())
        };
        let (read, written) = (rows()?, rows()?);
        Ok(SessionClient { read, written, newest_read: Wire::decode(input)?, newest_written: Wire::decode(input)? })
    }
}
