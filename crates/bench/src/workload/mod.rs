//! YCSB's core workloads A to F (B. Cooper et al., SoCC 2010), with YCSB's own defaults.
//!
//! Where a key-value store over RESP differs from YCSB's table of fields:
//!
//! - A record is one string: its fields, concatenated. An update therefore writes the whole record, where YCSB writes one field.
//! - There is no ordered scan. Workload E's scan is one read-only transaction (`MGET`) over consecutive record numbers, whose keys are
//!   hashed and lie on many partitions. It reads as many records as a scan would, but does other work: [`SCAN_NOTE`] says so in every result.
//! - A read-modify-write writes a fresh value after its read was answered, as YCSB does; its latency spans both.

pub mod distribution;
pub mod sequence;

use crate::error::{Error, check_range};
use distribution::{Latest, ScrambledZipfian, fnv_hash, unit};
use rheostat_core::random::Random;
use sequence::InsertSequence;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What every result with scans says about them.
pub const SCAN_NOTE: &str = "SCAN is one MGET (a read-only transaction) over consecutive record numbers, not an ordered range scan.";

/// Length in bytes of the random text that values are cut from.
const TEXT_LENGTH: usize = 1 << 16;

/// One of YCSB's core workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoreWorkload {
    /// Update heavy: 50 % reads, 50 % updates, zipfian.
    A,
    /// Read mostly: 95 % reads, 5 % updates, zipfian.
    B,
    /// Read only, zipfian.
    C,
    /// Read latest: 95 % reads of recent records, 5 % inserts.
    D,
    /// Short ranges: 95 % scans of 1 to 100 records, 5 % inserts, zipfian.
    E,
    /// 50 % reads, 50 % read-modify-writes, zipfian.
    F,
}

impl FromStr for CoreWorkload {
    type Err = Error;

    /// The letter, in either case.
    fn from_str(text: &str) -> Result<CoreWorkload, Error> {
        match text {
            "a" | "A" => Ok(CoreWorkload::A),
            "b" | "B" => Ok(CoreWorkload::B),
            "c" | "C" => Ok(CoreWorkload::C),
            "d" | "D" => Ok(CoreWorkload::D),
            "e" | "E" => Ok(CoreWorkload::E),
            "f" | "F" => Ok(CoreWorkload::F),
            _ => Err(Error::Options(format!("there is no workload {text:?}; YCSB's core workloads are a, b, c, d, e, f"))),
        }
    }
}

/// Which records operations choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestDistribution {
    /// Scrambled zipfian with constant 0.99.
    Zipfian,
    /// Every record of the load phase alike.
    Uniform,
    /// Zipfian by age, newest first.
    Latest,
}

impl FromStr for RequestDistribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<RequestDistribution, Error> {
        match text {
            "zipfian" => Ok(RequestDistribution::Zipfian),
            "uniform" => Ok(RequestDistribution::Uniform),
            "latest" => Ok(RequestDistribution::Latest),
            _ => Err(Error::Options(format!("there is no request distribution {text:?}; there are zipfian, uniform, latest"))),
        }
    }
}

/// A workload: how many records of what size, which operations, on which records.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Workload {
    /// Name in results, `ycsb-a` for workload A.
    pub name: String,
    /// Number of records that the load phase inserts. YCSB: `recordcount`.
    pub record_count: u64,
    /// YCSB: `fieldcount`.
    pub field_count: u32,
    /// Length in bytes of each field. YCSB: `fieldlength`.
    pub field_length_bytes: u32,
    /// Share of reads. The five shares need not add up to 1; their sum is the whole.
    pub read: f64,
    /// Share of updates.
    pub update: f64,
    /// Share of inserts.
    pub insert: f64,
    /// Share of scans.
    pub scan: f64,
    /// Share of read-modify-writes.
    pub read_modify_write: f64,
    /// YCSB: `requestdistribution`.
    pub request_distribution: RequestDistribution,
    /// A scan reads at least so many records. YCSB: `minscanlength`.
    pub min_scan_length: u32,
    /// And at most so many, every length alike. YCSB: `maxscanlength`.
    pub max_scan_length: u32,
}

impl Workload {
    /// A core workload with YCSB's defaults: 1000 records of 10 fields of 100 bytes.
    pub fn core(workload: CoreWorkload) -> Workload {
        use CoreWorkload as W;
        let (letter, read, update, insert, scan, read_modify_write) = match workload {
            W::A => ('a', 0.5, 0.5, 0.0, 0.0, 0.0),
            W::B => ('b', 0.95, 0.05, 0.0, 0.0, 0.0),
            W::C => ('c', 1.0, 0.0, 0.0, 0.0, 0.0),
            W::D => ('d', 0.95, 0.0, 0.05, 0.0, 0.0),
            W::E => ('e', 0.0, 0.0, 0.05, 0.95, 0.0),
            W::F => ('f', 0.5, 0.0, 0.0, 0.0, 0.5),
        };
        let request_distribution = if workload == W::D { RequestDistribution::Latest } else { RequestDistribution::Zipfian };
        Workload {
            name: format!("ycsb-{letter}"),
            record_count: 1000,
            field_count: 10,
            field_length_bytes: 100,
            read,
            update,
            insert,
            scan,
            read_modify_write,
            request_distribution,
            min_scan_length: 1,
            max_scan_length: 100,
        }
    }

    /// Length in bytes of a value: all fields.
    pub fn value_length(&self) -> usize {
        self.field_count as usize * self.field_length_bytes as usize
    }

    /// Whether the workload has scans, so that [`SCAN_NOTE`] applies.
    pub fn has_scans(&self) -> bool {
        self.scan > 0.0
    }

    fn shares(&self) -> [(OperationKind, f64); 5] {
        [
            (OperationKind::Read, self.read),
            (OperationKind::Update, self.update),
            (OperationKind::Insert, self.insert),
            (OperationKind::Scan, self.scan),
            (OperationKind::ReadModifyWrite, self.read_modify_write),
        ]
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`Error::Options`] for sizes outside their bounds, shares that are negative, not finite or all 0.
    pub fn check(&self) -> Result<(), Error> {
        check_range("record count", self.record_count, 1, 1_000_000_000)?;
        check_range("field count", self.field_count, 1, 10_000)?;
        check_range("field length", self.field_length_bytes, 0, 1 << 24)?;
        check_range("value length (field count times field length)", self.value_length(), 0, 1 << 24)?;
        check_range("maximum scan length", self.max_scan_length, 1, 10_000)?;
        check_range("minimum scan length", self.min_scan_length, 1, self.max_scan_length)?;
        for (kind, share) in self.shares() {
            if !share.is_finite() || share < 0.0 {
                return Err(Error::Options(format!("the share of {kind} is {share}; it must be a number from 0")));
            }
        }
        if self.shares().iter().map(|(_, share)| share).sum::<f64>() <= 0.0 {
            return Err(Error::options("the workload has no operation: all shares are 0"));
        }
        Ok(())
    }
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Reads one record.
    Read,
    /// Overwrites one record.
    Update,
    /// Writes a new record.
    Insert,
    /// Reads consecutive records as one read-only transaction.
    Scan,
    /// Reads one record, then overwrites it.
    ReadModifyWrite,
}

impl OperationKind {
    /// All kinds, in the order of results.
    pub const ALL: [OperationKind; 5] =
        [OperationKind::Read, OperationKind::Update, OperationKind::Insert, OperationKind::Scan, OperationKind::ReadModifyWrite];

    /// The kind's place in [`OperationKind::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for OperationKind {
    /// YCSB's name of the kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OperationKind::Read => "READ",
            OperationKind::Update => "UPDATE",
            OperationKind::Insert => "INSERT",
            OperationKind::Scan => "SCAN",
            OperationKind::ReadModifyWrite => "READ-MODIFY-WRITE",
        })
    }
}

/// One operation on one record, or from one record on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// What it does.
    pub kind: OperationKind,
    /// The (first) record's number.
    pub record: u64,
    /// How many records it reads, from `record` on; 1 unless it is a scan.
    pub length: u32,
}

/// Writes the key of `record` over what `key` held: `user` and the hash of the number, as YCSB with `insertorder=hashed`.
pub fn write_key(record: u64, key: &mut Vec<u8>) {
    use std::io::Write;
    key.clear();
    key.extend_from_slice(b"user");
    // Writing to a vector cannot fail.
    let _ = write!(key, "{}", fnv_hash(record));
}

#[derive(Debug)]
enum Chooser {
    Zipfian(ScrambledZipfian),
    Uniform,
    Latest(Latest),
}

/// The operations of one connection: a seeded sequence, the same for the same seed as long as no insert of another connection comes between.
#[derive(Debug)]
pub struct OperationSource {
    random: Random,
    chooser: Chooser,
    workload: Arc<Workload>,
    inserts: Arc<InsertSequence>,
    share_sum: f64,
}

impl OperationSource {
    /// The source of `seed`. `expected_operations` is the length of the whole load over all connections, 0 if it is unbounded: as in YCSB, the
    /// zipfian distribution covers twice the inserts that are to be expected.
    pub fn new(workload: Arc<Workload>, inserts: Arc<InsertSequence>, expected_operations: u64, seed: u64) -> OperationSource {
        let share_sum = workload.shares().iter().map(|(_, share)| share).sum();
        let chooser = match workload.request_distribution {
            RequestDistribution::Zipfian => {
                let new = (expected_operations as f64 * workload.insert / share_sum * 2.0) as u64;
                Chooser::Zipfian(ScrambledZipfian::new(workload.record_count + new))
            }
            RequestDistribution::Uniform => Chooser::Uniform,
            RequestDistribution::Latest => Chooser::Latest(Latest::new(inserts.answered_below())),
        };
        OperationSource { random: Random::new(seed), chooser, workload, inserts, share_sum }
    }

    fn choose_kind(&mut self) -> OperationKind {
        let mut left = unit(&mut self.random) * self.share_sum;
        let mut last = OperationKind::Read;
        for (kind, share) in self.workload.shares() {
            if share > 0.0 {
                if left < share {
                    return kind;
                }
                left -= share;
                last = kind;
            }
        }
        last
    }

    fn choose_record(&mut self) -> u64 {
        let existing = self.inserts.answered_below();
        match &mut self.chooser {
            Chooser::Uniform => self.random.below(self.workload.record_count),
            Chooser::Latest(latest) => latest.next(existing, &mut self.random),
            Chooser::Zipfian(zipfian) => {
                // Numbers that are not inserted yet are drawn again, as in YCSB. With few records and very many inserts to come that could take
                // long, hence the bound.
                for _ in 0..1000 {
                    let record = zipfian.next(&mut self.random);
                    if record < existing {
                        return record;
                    }
                }
                self.random.below(existing)
            }
        }
    }

    /// The next operation. The number of an insert is claimed: answer it in the [`InsertSequence`] when it is done.
    pub fn next_operation(&mut self) -> Operation {
        let kind = self.choose_kind();
        match kind {
            OperationKind::Insert => Operation { kind, record: self.inserts.claim(), length: 1 },
            OperationKind::Scan => {
                let record = self.choose_record();
                let longest = self.inserts.answered_below().saturating_sub(record).max(1);
                let length = self.random.between(u64::from(self.workload.min_scan_length), u64::from(self.workload.max_scan_length)).min(longest);
                Operation { kind, record, length: length as u32 }
            }
            _ => Operation { kind, record: self.choose_record(), length: 1 },
        }
    }
}

/// Random text for a [`ValueSource`] of values of `length` bytes: printable ASCII, no line breaks.
pub fn random_text(length: usize, seed: u64) -> Arc<[u8]> {
    let mut random = Random::new(seed);
    (0..length + TEXT_LENGTH).map(|_| random.between(b' '.into(), b'~'.into()) as u8).collect()
}

/// Cuts values out of one long random text, so that making a value costs nothing beside sending it.
#[derive(Debug)]
pub struct ValueSource {
    text: Arc<[u8]>,
    random: Random,
    length: usize,
}

impl ValueSource {
    /// Values of `length` bytes out of `text`, which is [`random_text`] for at least this length. `seed` says which values.
    pub fn new(text: Arc<[u8]>, length: usize, seed: u64) -> ValueSource {
        ValueSource { text, random: Random::new(seed), length }
    }

    /// The next value.
    pub fn next_value(&mut self) -> &[u8] {
        let start = self.random.below(TEXT_LENGTH as u64) as usize;
        &self.text[start..start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(workload: CoreWorkload, operations: u64) -> (OperationSource, Arc<InsertSequence>) {
        let inserts = Arc::new(InsertSequence::new(1000));
        (OperationSource::new(Arc::new(Workload::core(workload)), inserts.clone(), operations, 7), inserts)
    }

    #[test]
    fn keys_are_those_of_ycsb() {
        let mut key = b"left over".to_vec();
        write_key(0, &mut key);
        assert_eq!(key, b"user6284781860667377211");
    }

    #[test]
    fn every_core_workload_is_valid_and_has_its_mix() {
        let mixes = [("a", [0.5, 0.5, 0.0, 0.0, 0.0]), ("B", [0.95, 0.05, 0.0, 0.0, 0.0]), ("c", [1.0, 0.0, 0.0, 0.0, 0.0])];
        let more = [("d", [0.95, 0.0, 0.05, 0.0, 0.0]), ("e", [0.0, 0.0, 0.05, 0.95, 0.0]), ("f", [0.5, 0.0, 0.0, 0.0, 0.5])];
        for (letter, mix) in mixes.into_iter().chain(more) {
            let core: CoreWorkload = letter.parse().unwrap();
            Workload::core(core).check().unwrap();
            let (mut source, inserts) = source(core, 20_000);
            let mut seen = [0_u64; 5];
            for _ in 0..20_000 {
                let operation = source.next_operation();
                seen[operation.kind.index()] += 1;
                if operation.kind == OperationKind::Insert {
                    inserts.answer(operation.record);
                } else {
                    assert!(operation.record + u64::from(operation.length) <= inserts.answered_below());
                    assert!((1..=100).contains(&operation.length));
                }
            }
            for (count, share) in seen.iter().zip(mix) {
                let deviation = (20_000.0_f64 * share * (1.0 - share)).sqrt();
                assert!((*count as f64 - 20_000.0 * share).abs() <= 5.0 * deviation, "{letter}: {seen:?}");
            }
        }
    }

    #[test]
    fn one_seed_gives_one_sequence() {
        let (mut left, _) = source(CoreWorkload::F, 0);
        let (mut right, _) = source(CoreWorkload::F, 0);
        assert!((0..1000).all(|_| left.next_operation() == right.next_operation()));
    }

    #[test]
    fn an_unanswered_insert_is_never_read() {
        let (mut source, inserts) = source(CoreWorkload::D, 0);
        for _ in 0..10_000 {
            let operation = source.next_operation();
            assert!(operation.kind == OperationKind::Insert || operation.record < 1000);
        }
        assert_eq!(inserts.answered_below(), 1000);
    }

    #[test]
    fn bad_workloads_are_refused_by_name() {
        let refused = |change: fn(&mut Workload)| {
            let mut workload = Workload::core(CoreWorkload::A);
            change(&mut workload);
            workload.check().unwrap_err().to_string()
        };
        assert!(refused(|workload| workload.record_count = 0).contains("record count is 0"));
        assert!(refused(|workload| workload.read = -1.0).contains("READ"));
        assert!(refused(|workload| workload.update = f64::NAN).contains("UPDATE"));
        assert!(refused(|workload| (workload.read, workload.update) = (0.0, 0.0)).contains("no operation"));
        assert!(refused(|workload| workload.field_length_bytes = 1 << 24).contains("value length"));
        assert!("g".parse::<CoreWorkload>().unwrap_err().to_string().contains("a, b, c, d, e, f"));
    }

    #[test]
    fn values_have_their_length_and_differ() {
        let mut values = ValueSource::new(random_text(1000, 1), 1000, 1);
        let first = values.next_value().to_vec();
        assert_eq!(first.len(), 1000);
        assert!(first.iter().all(|byte| (b' '..=b'~').contains(byte)));
        assert_ne!(values.next_value(), first);
        assert!(ValueSource::new(random_text(0, 1), 0, 1).next_value().is_empty());
    }
}
