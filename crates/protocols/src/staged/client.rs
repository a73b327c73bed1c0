//! What a client remembers.

use super::message::{Asked, Bound, Past, Reply, Request, Seen};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::Level;
use rheostat_core::ids::PartitionId;
use rheostat_core::operation::{Guard, TestWrite};
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::slots;
use rheostat_core::version::{Item, Key, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use smallvec::SmallVec;

/// Partitions whose places in the order are remembered one by one.
const MOST_SEEN: usize = 64;

/// A place that is older than the newest by so much, in milliseconds, is remembered for all partitions together: there the order is further almost always.
const OLD_MS: u64 = 10_000;

/// The client side: its place in the order, which is one time for all partitions, and, for reads that have no time to wait for that, the places that it has read in each.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct StagedClient {
    read: Timestamp,
    written: Timestamp,
    /// Partitions that there are; 0: not known yet.
    partitions: u16,
    /// By partition.
    seen: SmallVec<[(PartitionId, Timestamp); 4]>,
    /// What it has read of the others is made with the order up to here.
    floor: Timestamp,
}

impl StagedClient {
    fn read(&mut self, Seen { partition, of, at }: Seen) {
        if at == Timestamp::ZERO {
            return;
        }
        (self.partitions, self.read) = (of, self.read.max(at));
        match self.seen.binary_search_by_key(&partition, |(partition, _)| *partition) {
            Ok(index) => self.seen[index].1 = self.seen[index].1.max(at),
            Err(index) => self.seen.insert(index, (partition, at)),
        }
        self.forget();
    }

    fn forget(&mut self) {
        let old = Timestamp::new(self.read.millis().saturating_sub(OLD_MS), 0);
        while let Some(index) = (0..self.seen.len()).min_by_key(|index| self.seen[*index].1)
            && (self.seen[index].1 <= old || self.seen.len() > MOST_SEEN)
        {
            self.floor = self.floor.max(self.seen.remove(index).1);
        }
    }

    fn wrote(&mut self, version: VersionId) {
        self.written = self.written.max(version.written);
    }

    /// What the session has behind it, for operations on `keys`.
    fn past<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> Past {
        let of = |key: &Key| match self.partitions {
            0 => Timestamp::ZERO,
            partitions => {
                let partition = slots::partition_of(key, partitions);
                self.seen.iter().find(|(seen, _)| *seen == partition).map_or(Timestamp::ZERO, |(_, at)| *at)
            }
        };
        Past { read: self.read, written: self.written, here: keys.map(of).fold(self.floor, Timestamp::max) }
    }
}

impl Client for StagedClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        let past = match &call {
            Call::Get { key, .. } => self.past([key].into_iter()),
            Call::ReadTransaction { keys, .. } => self.past(keys.iter()),
            // Ordered after all that the session knows, wherever.
            Call::Put { .. } | Call::Change { .. } => self.past([].into_iter()),
        };
        Request { asked: Asked::Call(call), past, bound: None }
    }

    fn put_if(&self, items: &SmallVec<[Item; 1]>, guards: &[Guard], _: Level) -> Option<Request> {
        Some(Request { asked: Asked::PutIf(items.clone(), guards.to_vec()), past: self.past([].into_iter()), bound: None })
    }

    fn test_write(&self, write: &TestWrite, _: Level) -> Option<Request> {
        Some(Request { asked: Asked::Test(write.clone()), past: self.past([].into_iter()), bound: None })
    }

    fn bounded(request: Request, within_us: u32, least: Option<Level>) -> Request {
        Request { bound: Some(Bound { within_us, least }), ..request }
    }

    fn accept(&mut self, reply: Reply) -> Outcome {
        match reply {
            Reply::Get(read, seen, quality) => {
                self.read(seen);
                Outcome::Read(read, quality)
            }
            Reply::Put(version) => {
                self.wrote(version);
                Outcome::Written(version)
            }
            // It has no place yet that the session could be behind.
            Reply::Kept(version) => Outcome::Kept(version),
            Reply::Changed(before, seen, version) => {
                self.read(seen);
                version.into_iter().for_each(|version| self.wrote(version));
                Outcome::Changed { before, version }
            }
            Reply::Tested(equal, before, seen, version) => {
                self.read(seen);
                version.into_iter().for_each(|version| self.wrote(version));
                Outcome::Tested { equal, before, version }
            }
            Reply::Many(reads, seen, quality) => {
                seen.into_iter().for_each(|seen| self.read(seen));
                Outcome::Many(reads, quality)
            }
            // What stood in the way is told, and is not part of the session's history.
            Reply::Unmet(met) => Outcome::Unmet(met),
            Reply::Failed(failure) => Outcome::Failed(failure),
        }
    }

    fn merge(&mut self, other: &StagedClient) {
        for (partition, at) in &other.seen {
            self.read(Seen { partition: *partition, of: other.partitions, at: *at });
        }
        self.partitions = self.partitions.max(other.partitions);
        (self.read, self.written, self.floor) = (self.read.max(other.read), self.written.max(other.written), self.floor.max(other.floor));
        self.forget();
    }

    fn newest(&self) -> Timestamp {
        self.read.max(self.written)
    }

    fn last_write(&self, _: DcId) -> Timestamp {
        self.written
    }

    fn data_centers(&self) -> usize {
        0
    }
}

impl Wire for StagedClient {
    fn encode(&self, out: &mut Vec<u8>) {
        [self.read, self.written, self.floor].iter().for_each(|at| at.encode(out));
        self.partitions.encode(out);
        self.seen.iter().map(|(partition, at)| (partition.0, *at)).collect::<Vec<_>>().encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (read, written, floor) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        let partitions = Wire::decode(input)?;
        let seen: Vec<(u16, Timestamp)> = Wire::decode(input)?;
        if seen.len() > MOST_SEEN || !seen.is_sorted_by(|one, next| one.0 < next.0) || seen.iter().any(|(partition, _)| *partition >= partitions) {
            return Err(WireError::Invalid("a session of protocol staged"));
        }
        let seen = seen.into_iter().map(|(partition, at)| (PartitionId(partition), at)).collect();
        Ok(StagedClient { read, written, partitions, seen, floor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::new(ms, 0)
    }

    fn saw(client: &mut StagedClient, partition: u16, ms: u64) {
        client.read(Seen { partition: PartitionId(partition), of: 256, at: at(ms) });
    }

    fn key_of(partition: u16) -> Key {
        (0u32..).map(|number| Key::from(number.to_string().into_bytes())).find(|key| slots::partition_of(key, 256).0 == partition).unwrap()
    }

    #[test]
    fn a_partition_is_asked_for_what_was_read_there() {
        let mut client = StagedClient::default();
        assert_eq!(client.past([&key_of(3)].into_iter()), Past::default());
        saw(&mut client, 3, 50_000);
        saw(&mut client, 5, 52_000);
        saw(&mut client, 3, 49_000);
        let past = |client: &StagedClient, partition| client.past([&key_of(partition)].into_iter());
        assert_eq!(past(&client, 3), Past { read: at(52_000), written: Timestamp::ZERO, here: at(50_000) });
        assert_eq!(past(&client, 5).here, at(52_000));
        assert_eq!(past(&client, 7).here, Timestamp::ZERO);
        assert_eq!(client.past([&key_of(3), &key_of(5)].into_iter()).here, at(52_000));
        assert_eq!(StagedClient::from_bytes(&client.to_bytes()).unwrap(), client);
    }

    #[test]
    fn what_is_old_or_too_much_is_remembered_for_all_together_and_never_less() {
        let mut client = StagedClient::default();
        (0..200).for_each(|partition| saw(&mut client, partition, 50_000 + u64::from(partition)));
        assert_eq!(client.seen.len(), MOST_SEEN);
        for partition in 0..200 {
            assert!(client.past([&key_of(partition)].into_iter()).here >= at(50_000 + u64::from(partition)), "{partition}");
        }
        saw(&mut client, 7, 70_000);
        assert_eq!((client.seen.len(), client.floor), (1, at(50_199)));
        let mut other = StagedClient::default();
        saw(&mut other, 9, 71_000);
        other.merge(&client);
        assert_eq!((other.floor, other.read), (at(50_199), at(71_000)));
        assert_eq!(other.past([&key_of(7)].into_iter()).here, at(70_000));
    }

    #[test]
    fn a_token_that_makes_no_sense_is_refused() {
        let sane = StagedClient { partitions: 4, seen: [(PartitionId(3), at(5))].into_iter().collect(), ..StagedClient::default() };
        assert!(StagedClient::from_bytes(&sane.to_bytes()).is_ok());
        for seen in [
            vec![(PartitionId(4), at(5))],
            vec![(PartitionId(2), at(5)), (PartitionId(2), at(6))],
            vec![(PartitionId(2), at(5)), (PartitionId(1), at(6))],
        ] {
            let wrong = StagedClient { seen: seen.into_iter().collect(), ..sane.clone() };
            assert!(StagedClient::from_bytes(&wrong.to_bytes()).is_err(), "{wrong:?}");
        }
    }
}
