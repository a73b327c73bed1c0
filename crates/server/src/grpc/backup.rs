//! Backups: the state of a partition goes out page by page, and keys of a backup come in as ordinary writes.

use super::asked::strange;
use super::convert;
use crate::keyspace::KeyspaceInfo;
use crate::router::Router;
use rheostat_core::counter::{CounterCall, NewCounter};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::export::{Exported, ExportedCounter};
use rheostat_core::failure::Failure;
use rheostat_core::ids::PartitionId;
use rheostat_core::operation::{Change, Expiry, ExpiryCondition, Operation};
use rheostat_core::outcome::Outcome;
use rheostat_core::session::Session;
use rheostat_core::version::{Item, Key, Value};
use rheostat_proto::export::{answer_out, call_in, key_state_in};
use rheostat_proto::v1;
use rheostat_proto::v1::export_request::Step;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// What is written together at most.
const TOGETHER_KEYS: usize = 64;
const TOGETHER_BYTES: usize = 256 << 10;

/// A step of a backup.
pub(super) async fn export(router: &Router, request: v1::ExportRequest) -> Result<v1::ExportResponse, Status> {
    let v1::ExportRequest { keyspace, partition, name, step } = request;
    let (keyspace, topology) = (convert::keyspace(router, &keyspace)?, router.topology());
    let partition = u16::try_from(partition).ok().filter(|partition| *partition < topology.partitions).map(PartitionId);
    let partition = partition.ok_or_else(|| Status::invalid_argument("there is no such partition"))?;
    let step = step.ok_or_else(|| Status::invalid_argument("a backup without a step"))?;
    if matches!(&step, Step::Page(page) if page.current) && keyspace.can.agrees() {
        catch_up(router, keyspace, partition).await?;
    }
    let call = call_in(name, step).map_err(Status::invalid_argument)?;
    match router.execute(keyspace.id, partition, keyspace.new_session(), Operation::Export { call }).await.0 {
        Outcome::Export(answer) => Ok(answer_out(&topology.data_centers, answer)),
        Outcome::Failed(failure) => Err(convert::status(failure)),
        other => Err(strange(&other)),
    }
}

/// Waits until the server that is asked has applied what was acknowledged before: a linearizable read of any key does.
async fn catch_up(router: &Router, keyspace: &KeyspaceInfo, partition: PartitionId) -> Result<(), Status> {
    let key: Key =
        (0_u32..).map(|number| Key::from(number.to_string().as_bytes())).find(|key| router.partition_of(key) == partition).unwrap_or_default();
    let mut last = None;
    for level in [Level::Strong, Level::Local] {
        let operation = Operation::Get { key: key.clone(), dial: Dial::at(level) };
        match router.execute(keyspace.id, partition, keyspace.new_session(), operation).await.0 {
            Outcome::Read(..) => return Ok(()),
            Outcome::Failed(refused @ Failure::Refused(_)) => last = Some(refused),
            Outcome::Failed(failure) => return Err(convert::status(failure)),
            other => return Err(strange(&other)),
        }
    }
    last.map_or(Ok(()), |failure| Err(convert::status(failure)))
}

/// Writes keys of a backup.
pub(super) async fn import(router: &Router, request: v1::ImportRequest) -> Result<v1::ImportResponse, Status> {
    let keyspace = convert::keyspace(router, &request.keyspace)?;
    let now_ms = router.shared().clocks.physical_ms();
    let mut seen = BTreeSet::new();
    let mut importing = Importing { router, keyspace, puts: BTreeMap::new(), deleted: 0 };
    let mut written = 0;
    for mut key in request.keys {
        // Where it was written is a data center of the cluster that it comes from.
        key.reads.iter_mut().for_each(|read| read.version = None);
        let mut one = key_state_in(&router.topology().data_centers, key).map_err(Status::invalid_argument)?;
        if !seen.insert(one.key.clone()) {
            return Err(Status::invalid_argument("the same key twice"));
        }
        one.reads.retain(|read| read.expires_ms == 0 || read.expires_ms > now_ms);
        written += u64::from(!one.reads.is_empty());
        importing.take(one).await?;
    }
    importing.put_all().await?;
    Ok(v1::ImportResponse { written, deleted: importing.deleted })
}

struct Importing<'a> {
    router: &'a Router,
    keyspace: &'a KeyspaceInfo,
    puts: BTreeMap<PartitionId, Vec<Item>>,
    deleted: u64,
}

impl Importing<'_> {
    /// Writes `one`, or puts it aside to be written with others.
    async fn take(&mut self, one: Exported) -> Result<(), Status> {
        let Exported { key, mut reads, counter } = one;
        let partition = self.router.partition_of(&key);
        match (counter, reads.len()) {
            (Some(counter), 1..) => return self.count(key, counter, reads[0].expires_ms).await,
            (None, 2..) if self.keyspace.siblings => {
                let values: Option<Vec<(Value, u64)>> = reads.into_iter().map(|read| Some((read.value?, read.expires_ms))).collect();
                return self
                    .stand_side_by_side(key, values.ok_or_else(|| Status::invalid_argument("values side by side, one of which is none"))?)
                    .await;
            }
            (None, 2..) => return Err(Status::failed_precondition("values side by side, in a keyspace where a key has one value")),
            _ => {}
        }
        // One that was deleted, or has expired by now.
        let item = match reads.pop() {
            None => Item { key, value: None, expires_ms: 0 },
            Some(read) if read.value.is_none() => return Err(Status::invalid_argument("a key without a value, and not deleted")),
            Some(read) => Item { key, value: read.value, expires_ms: read.expires_ms },
        };
        self.deleted += u64::from(item.value.is_none());
        self.puts.entry(partition).or_default().push(item);
        Ok(())
    }

    /// Writes what was put aside.
    async fn put_all(&mut self) -> Result<(), Status> {
        let mut operations = Vec::new();
        for (partition, items) in std::mem::take(&mut self.puts) {
            let (mut together, mut bytes) = (SmallVec::new(), 0);
            for item in items {
                let more = item.key.len() + item.value.as_ref().map_or(0, |value| value.len());
                if !together.is_empty() && (together.len() == TOGETHER_KEYS || bytes + more > TOGETHER_BYTES) {
                    operations.push((partition, Operation::Put { items: std::mem::take(&mut together), dial: Dial::default() }));
                    bytes = 0;
                }
                bytes += more;
                together.push(item);
            }
            operations.push((partition, Operation::Put { items: together, dial: Dial::default() }));
        }
        let mut session = self.keyspace.new_session();
        for outcome in self.router.execute_all(self.keyspace.id, &mut session, operations).await {
            match outcome {
                Outcome::Written(_) | Outcome::Kept(_) => {}
                Outcome::Failed(failure) => return Err(convert::status(failure)),
                other => return Err(strange(&other)),
            }
        }
        Ok(())
    }

    /// What comes of `operation` in `session`; the failure, if it fails.
    async fn run(&self, session: &mut Session, partition: PartitionId, operation: Operation) -> Result<Outcome, Failure> {
        let (outcome, seen) = self.router.execute(self.keyspace.id, partition, session.clone(), operation).await;
        *session = seen;
        match outcome {
            Outcome::Failed(failure) => Err(failure),
            outcome => Ok(outcome),
        }
    }

    /// Makes a counter with this value and these bounds, unless it is there.
    async fn count(&self, key: Key, counter: ExportedCounter, expires_ms: u64) -> Result<(), Status> {
        let ExportedCounter { value, lower, upper } = counter;
        let partition = self.router.partition_of(&key);
        let mut session = self.keyspace.new_session();
        let told = |failure: Failure| {
            let status = convert::status(failure);
            Status::new(status.code(), format!("counter {}: {}", String::from_utf8_lossy(&key), status.message()))
        };
        let dial = Dial::default();
        let create = || {
            let counter = NewCounter { lower, upper, initial: value, placement: Vec::new() };
            Operation::Counter { call: CounterCall::Create { key: key.clone(), counter }, dial }
        };
        match self.run(&mut session, partition, create()).await {
            Ok(_) => {}
            Err(Failure::Refused(_)) => {
                let look = Operation::Counter { call: CounterCall::Look { key: key.clone() }, dial };
                let is_there = match self.run(&mut session, partition, look).await {
                    Ok(Outcome::Counter(view)) => (view.value, view.lower, view.upper) == (value, lower, upper),
                    Ok(_) | Err(Failure::Refused(_)) => false,
                    Err(failure) => return Err(told(failure)),
                };
                if !is_there {
                    let delete = Operation::Change { key: key.clone(), change: Change::Delete, dial };
                    self.run(&mut session, partition, delete).await.map_err(told)?;
                    self.run(&mut session, partition, create()).await.map_err(told)?;
                }
            }
            Err(failure) => return Err(told(failure)),
        }
        let expiry = if expires_ms == 0 { Expiry::Never } else { Expiry::At(expires_ms) };
        let change = Change::Expire { expiry, condition: ExpiryCondition::Always };
        self.run(&mut session, partition, Operation::Change { key: key.clone(), change, dial }).await.map_err(told)?;
        Ok(())
    }

    /// Writes values of one key that stand side by side, in the place of whatever is there.
    async fn stand_side_by_side(&self, key: Key, values: Vec<(Value, u64)>) -> Result<(), Status> {
        let partition = self.router.partition_of(&key);
        let dial = Dial::default();
        let mut session = self.keyspace.new_session();
        self.run(&mut session, partition, Operation::Siblings { key: key.clone(), dial }).await.map_err(convert::status)?;
        // The oldest first, so that their order stays.
        for (value, expires_ms) in values.into_iter().rev() {
            let item = Item { key: key.clone(), value: Some(value), expires_ms };
            self.run(&mut session, partition, Operation::Replace { item, dial }).await.map_err(convert::status)?;
            // The next one has seen nothing.
            session = self.keyspace.new_session();
        }
        Ok(())
    }
}
