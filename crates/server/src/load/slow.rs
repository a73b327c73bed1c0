//! Operations that took long: the last of them, as the front end that answered them saw it.

use super::beginning;
use crate::shared::lock;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::ids::KeyspaceId;
use rheostat_core::operation::Operation;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// How many are kept; older ones go.
pub(crate) const KEPT: usize = 128;

/// The most bytes of an outcome's words.
const OUTCOME_BYTES: usize = 300;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct SlowOperation {
    /// Counts them, from 0, since the node's start.
    pub(crate) id: u64,
    /// When it ended, in milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    pub(crate) took_us: u64,
    pub(crate) described: Described,
    /// `None`: nobody saw what.
    pub(crate) waited_for: Option<String>,
    /// The error that it ended with.
    pub(crate) failed: Option<String>,
    /// Where it came from.
    pub(crate) client: String,
    pub(crate) client_name: Vec<u8>,
    pub(crate) user: String,
}

/// What an operation is.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    /// The command, or the kind of operation.
    pub(crate) what: &'static str,
    /// The beginning of its first key, if it has keys.
    pub(crate) key: Option<Vec<u8>>,
    /// That key's length.
    pub(crate) key_bytes: usize,
    /// How many keys it has.
    pub(crate) keys: usize,
    /// How many requests of one connection it stands for, which went together.
    pub(crate) requests: u64,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) level: Level,
}

impl Described {
    /// An operation that comes over gRPC; `None`: it is one that waits because it is asked to.
    pub(crate) fn of(operation: &Operation, keyspace: KeyspaceId, level: Level) -> Option<Described> {
        let what = match operation {
            Operation::AwaitReplication { .. } | Operation::Feed { .. } => return None,
            Operation::Get { .. } => "Get",
            Operation::Siblings { .. } => "Siblings",
            Operation::Put { .. } | Operation::PutIf { .. } => "Put",
            Operation::Replace { .. } => "Replace",
            Operation::Restore { .. } => "Restore",
            Operation::Change { .. } => "Change",
            Operation::TestWrite { .. } => "TestWrite",
            Operation::ReadTransaction { .. } => "ReadTransaction",
            Operation::Scan { .. } => "Scan",
            Operation::Count { .. } => "Count",
            Operation::Explain { .. } => "Explain",
            Operation::Versions { .. } => "Versions",
            Operation::Counter { .. } => "Counter",
            Operation::Transact { .. } => "Transact",
            Operation::Rollback { .. } => "Rollback",
            Operation::Export { .. } => "Export",
        };
        let (mut first, mut keys) = (None, 0);
        super::hot::each_key(operation, |key, _| {
            first.get_or_insert_with(|| (beginning(key).to_vec(), key.len()));
            keys += 1;
        });
        let (key, key_bytes) = first.map_or((None, 0), |(key, bytes)| (Some(key), bytes));
        let level = dial_of(operation).and_then(|dial| dial.level).unwrap_or(level);
        Some(Described { what, key, key_bytes, keys, requests: 1, keyspace, level })
    }
}

fn dial_of(operation: &Operation) -> Option<&Dial> {
    match operation {
        Operation::Get { dial, .. }
        | Operation::Siblings { dial, .. }
        | Operation::Put { dial, .. }
        | Operation::PutIf { dial, .. }
        | Operation::Replace { dial, .. }
        | Operation::Change { dial, .. }
        | Operation::TestWrite { dial, .. }
        | Operation::ReadTransaction { dial, .. }
        | Operation::Counter { dial, .. }
        | Operation::Transact { dial, .. } => Some(dial),
        _ => None,
    }
}

/// See the module.
pub(crate) struct SlowLog {
    threshold_us: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    operations: VecDeque<Arc<SlowOperation>>,
    next: u64,
}

impl SlowLog {
    /// Of operations that take at least `slow_ms`; 0: of none.
    pub(super) fn new(slow_ms: u64) -> SlowLog {
        let threshold_us = if slow_ms == 0 { u64::MAX } else { slow_ms.saturating_mul(1000) };
        SlowLog { threshold_us, kept: Mutex::default() }
    }

    /// What takes so long is kept, in microseconds; the greatest number: nothing is.
    #[inline]
    pub(crate) fn threshold_us(&self) -> u64 {
        self.threshold_us
    }

    /// Keeps `operation`, and gives it its number.
    pub(crate) fn add(&self, mut operation: SlowOperation) {
        if let Some(failed) = &mut operation.failed {
            let end = (0..=OUTCOME_BYTES.min(failed.len())).rev().find(|end| failed.is_char_boundary(*end)).unwrap_or(0);
            failed.truncate(end);
        }
        let mut kept = lock(&self.kept);
        operation.id = kept.next;
        kept.next += 1;
        if kept.operations.len() == KEPT {
            kept.operations.pop_back();
        }
        kept.operations.push_front(Arc::new(operation));
    }

    /// The last of them, the newest first, at most so many; and how many there were since the node's start.
    pub(crate) fn last(&self, most: usize) -> (Vec<Arc<SlowOperation>>, u64) {
        let kept = lock(&self.kept);
        (kept.operations.iter().take(most).cloned().collect(), kept.next)
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        lock(&self.kept).operations.len()
    }

    /// Forgets them. Their numbers go on.
    pub(crate) fn clear(&self) {
        lock(&self.kept).operations.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(failed: &str) -> SlowOperation {
        let described = Described { what: "GET", key: None, key_bytes: 0, keys: 0, requests: 1, keyspace: KeyspaceId(0), level: Level::Causal };
        let failed = Some(failed.to_owned());
        SlowOperation {
            id: 0,
            at_ms: 0,
            took_us: 0,
            described,
            waited_for: None,
            failed,
            client: String::new(),
            client_name: Vec::new(),
            user: String::new(),
        }
    }

    #[test]
    fn the_last_are_kept_and_all_are_counted() {
        let log = SlowLog::new(100);
        assert_eq!(log.threshold_us(), 100_000);
        (0..1000).for_each(|_| log.add(operation("")));
        let (last, all) = log.last(usize::MAX);
        assert_eq!((last.len(), log.len(), all, last[0].id, last[KEPT - 1].id), (KEPT, KEPT, 1000, 999, 1000 - KEPT as u64));
        assert_eq!(log.last(3).0.len(), 3);
        log.clear();
        log.add(operation(&"\u{20ac}".repeat(1000)));
        assert_eq!((log.len(), log.last(9).0[0].id), (1, 1000));
        assert_eq!(log.last(9).0[0].failed.as_ref().unwrap().len(), OUTCOME_BYTES / 3 * 3);
        assert_eq!(SlowLog::new(0).threshold_us(), u64::MAX);
    }

    #[test]
    fn an_operation_is_described_by_the_beginning_of_its_first_key() {
        let key = |length: usize| rheostat_core::version::Key::from(vec![b'k'; length]);
        let get = Operation::Get { key: key(1000), dial: Dial::default() };
        let described = Described::of(&get, KeyspaceId(1), Level::Causal).unwrap();
        assert_eq!((described.what, described.key.unwrap().len(), described.key_bytes, described.keys), ("Get", 128, 1000, 1));
        let several = Operation::ReadTransaction { keys: vec![key(1), key(2)], dial: Dial { level: Some(Level::Eventual), ..Dial::default() } };
        let described = Described::of(&several, KeyspaceId(1), Level::Causal).unwrap();
        assert_eq!((described.key_bytes, described.keys, described.level), (1, 2, Level::Eventual));
    }
}
