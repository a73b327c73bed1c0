//! The service `Store`.

use super::asked::{Asked, Wanted, strange};
use super::{convert, feed, opened};
use crate::router::Router;
use crate::users::Caller;
use rheostat_core::feed::{FeedAnswer, FeedCall};
use rheostat_core::ids::PartitionId;
use rheostat_core::operation::{Change, Expiry, Operation, TestWrite};
use rheostat_core::outcome::Outcome;
use rheostat_core::version::Item;
use rheostat_proto::v1;
use rheostat_proto::v1::store_server::Store;
use smallvec::SmallVec;
use tonic::{Request, Response, Status};

/// See the module.
pub(crate) struct Service {
    pub(crate) router: Router,
}

impl Service {
    /// The time by which values of this node expire.
    fn physical_ms(&self) -> u64 {
        self.router.shared().clocks.physical_ms()
    }

    fn asked(&self, caller: Caller, context: Option<v1::Context>) -> Result<Asked<'_>, Status> {
        Asked::new(&self.router, caller, context)
    }

    async fn write(&self, asked: Asked<'_>, items: SmallVec<[Item; 1]>, dial: Option<v1::Dial>) -> Result<Response<v1::PutResponse>, Status> {
        let served = convert::service_level(&self.router, asked.keyspace, dial.as_ref())?;
        let wanted = Wanted::of(dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, dial)?;
        let first = items.first().ok_or_else(|| Status::invalid_argument("nothing to write"))?;
        let partition = self.router.partition_of(&first.key);
        if items.len() > 1 {
            check_together(&self.router, partition, &items)?;
        }
        match asked.run_for_receipt(partition, Operation::Put { items, dial }, served, wanted).await? {
            (Outcome::Written(id), achieved, session, receipt) => {
                let version = Some(convert::version(self.router.topology(), id));
                Ok(Response::new(v1::PutResponse {
                    version,
                    session,
                    applied: true,
                    before: None,
                    kept: false,
                    receipt,
                    copies: achieved.map(convert::copies),
                }))
            }
            (Outcome::Kept(id), _, session, receipt) => {
                let version = Some(convert::version(self.router.topology(), id));
                Ok(Response::new(v1::PutResponse { version, session, applied: true, before: None, kept: true, receipt, copies: None }))
            }
            (other, ..) => Err(strange(&other)),
        }
    }
}

impl Service {
    /// A write that happens if `condition` holds.
    async fn write_if(
        &self,
        asked: Asked<'_>,
        item: Item,
        dial: Option<v1::Dial>,
        condition: v1::Condition,
    ) -> Result<Response<v1::PutResponse>, Status> {
        let served = convert::service_level(&self.router, asked.keyspace, dial.as_ref())?;
        let wanted = Wanted::of(dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, dial)?;
        let topology = self.router.topology();
        let condition = convert::condition(topology, condition)?;
        let value = item.value.ok_or_else(|| Status::invalid_argument("a conditional write writes a value; this one deletes"))?;
        let expiry = if item.expires_ms == 0 { Expiry::Never } else { Expiry::At(item.expires_ms) };
        let partition = self.router.partition_of(&item.key);
        let change = Change::Set { value, expiry, condition };
        match asked.run_for_receipt(partition, Operation::Change { key: item.key, change, dial }, served, wanted).await? {
            (Outcome::Changed { before, version }, achieved, session, receipt) => Ok(Response::new(v1::PutResponse {
                version: version.map(|id| convert::version(topology, id)),
                session,
                applied: version.is_some(),
                before: Some(convert::read(topology, before)),
                kept: false,
                receipt,
                copies: achieved.map(convert::copies),
            })),
            (other, ..) => Err(strange(&other)),
        }
    }
}

/// Whether `items` can be written as one update: no key twice, all of `partition`.
fn check_together(router: &Router, partition: PartitionId, items: &[Item]) -> Result<(), Status> {
    if items.len() > router.limits().max_arguments {
        return Err(Status::invalid_argument(format!("{} items are more than the limit of {}", items.len(), router.limits().max_arguments)));
    }
    if items.iter().any(|item| router.partition_of(&item.key) != partition) {
        return Err(Status::invalid_argument("the keys are of different partitions; keys with the same {hash tag} are of one"));
    }
    let mut keys: Vec<&[u8]> = items.iter().map(|item| &*item.key).collect();
    keys.sort_unstable();
    match keys.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(Status::invalid_argument("the same key twice")),
        false => Ok(()),
    }
}

#[tonic::async_trait]
impl Store for Service {
    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = self.asked(caller, request.context)?;
        let served = convert::service_level(&self.router, asked.keyspace, request.dial.as_ref())?;
        let wanted = Wanted::of(request.dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, request.dial)?;
        let key = convert::shared(&request.key);
        match asked.run_for_receipt(self.router.partition_of(&key), Operation::Get { key, dial }, served, wanted).await? {
            (Outcome::Read(read, quality), achieved, session, receipt) => Ok(Response::new(v1::GetResponse {
                read: Some(convert::read(self.router.topology(), read)),
                quality: Some(convert::achieved(self.router.topology(), quality, achieved)),
                session,
                receipt,
            })),
            (other, ..) => Err(strange(&other)),
        }
    }

    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = self.asked(caller, request.context)?;
        let item = request.item.ok_or_else(|| Status::invalid_argument("nothing to write: `item` is missing"))?;
        let item = convert::item(item, self.physical_ms())?;
        match request.condition {
            None => self.write(asked, SmallVec::from_elem(item, 1), request.dial).await,
            Some(condition) => self.write_if(asked, item, request.dial, condition).await,
        }
    }

    async fn put_many(&self, request: Request<v1::PutManyRequest>) -> Result<Response<v1::PutResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = self.asked(caller, request.context)?;
        let now_ms = self.physical_ms();
        let items: Result<SmallVec<[Item; 1]>, Status> = request.items.into_iter().map(|item| convert::item(item, now_ms)).collect();
        self.write(asked, items?, request.dial).await
    }

    async fn delete(&self, request: Request<v1::DeleteRequest>) -> Result<Response<v1::DeleteResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = self.asked(caller, request.context)?;
        let served = convert::service_level(&self.router, asked.keyspace, request.dial.as_ref())?;
        let wanted = Wanted::of(request.dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, request.dial)?;
        let key = convert::shared(&request.key);
        let partition = self.router.partition_of(&key);
        match asked.run_for_receipt(partition, Operation::Change { key, change: Change::Delete, dial }, served, wanted).await? {
            (Outcome::Changed { before, version }, achieved, session, receipt) => Ok(Response::new(v1::DeleteResponse {
                existed: before.value.is_some(),
                version: version.map(|id| convert::version(self.router.topology(), id)),
                session,
                receipt,
                copies: achieved.map(convert::copies),
            })),
            (other, ..) => Err(strange(&other)),
        }
    }

    async fn test_write(&self, request: Request<v1::TestWriteRequest>) -> Result<Response<v1::TestWriteResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = self.asked(caller, request.context)?;
        let served = convert::service_level(&self.router, asked.keyspace, request.dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, request.dial)?;
        let write = Box::new(TestWrite {
            test: convert::shared(&request.test),
            expected: request.expected.as_ref().map(convert::shared),
            target: convert::shared(&request.target),
            then: convert::shared(&request.then),
            otherwise: request.otherwise.as_ref().map(convert::shared),
        });
        let (topology, partition) = (self.router.topology(), self.router.partition_of(&write.target));
        if self.router.partition_of(&write.test) != partition {
            return Err(Status::invalid_argument("the keys are of different partitions; keys with the same {hash tag} are of one"));
        }
        let (outcome, achieved, session) = asked.run_under(partition, Operation::TestWrite { write, dial }, served).await?;
        let copies = achieved.map(convert::copies);
        let told = |id| Some(convert::version(topology, id));
        let answer = match outcome {
            Outcome::Tested { equal, before, version } => v1::TestWriteResponse {
                equal: Some(equal),
                before: Some(convert::read(topology, before)),
                version: version.and_then(told),
                kept: false,
                session,
                copies,
            },
            Outcome::Written(id) => v1::TestWriteResponse { equal: None, before: None, version: told(id), kept: false, session, copies },
            Outcome::Kept(id) => v1::TestWriteResponse { equal: None, before: None, version: told(id), kept: true, session, copies },
            other => return Err(strange(&other)),
        };
        Ok(Response::new(answer))
    }

    async fn read_transaction(&self, request: Request<v1::ReadTransactionRequest>) -> Result<Response<v1::ReadTransactionResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = self.asked(caller, request.context)?;
        let served = convert::service_level(&self.router, asked.keyspace, request.dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, request.dial)?;
        let limit = self.router.limits().max_arguments;
        if request.keys.len() > limit {
            return Err(Status::invalid_argument(format!("{} keys are more than the limit of {limit}", request.keys.len())));
        }
        let keys: Vec<_> = request.keys.iter().map(convert::shared).collect();
        let topology = self.router.topology();
        let first = keys.first().ok_or_else(|| Status::invalid_argument("a transaction of no keys"))?;
        // Any partition can coordinate it; one that is led at this node saves a hop.
        let leads_elsewhere = |partition: PartitionId| self.router.shared().other_node(asked.keyspace.id, partition).is_some();
        let here = |partition: &PartitionId| self.router.serves(asked.keyspace.id, *partition) && !leads_elsewhere(*partition);
        let partition = keys.iter().map(|key| topology.partition_of(key)).find(here).unwrap_or_else(|| topology.partition_of(first));
        match asked.run_under(partition, Operation::ReadTransaction { keys, dial }, served).await? {
            (Outcome::Many(reads, quality), achieved, session) => Ok(Response::new(v1::ReadTransactionResponse {
                reads: reads.into_iter().map(|read| convert::read(topology, read)).collect(),
                quality: Some(convert::achieved(self.router.topology(), quality, achieved)),
                session,
            })),
            (other, ..) => Err(strange(&other)),
        }
    }

    async fn siblings(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::SiblingsResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = self.asked(caller, request.context)?;
        let served = convert::service_level(&self.router, asked.keyspace, request.dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, request.dial)?;
        let key = convert::shared(&request.key);
        match asked.run_under(self.router.partition_of(&key), Operation::Siblings { key, dial }, served).await? {
            (Outcome::Siblings(reads, quality), achieved, session) => Ok(Response::new(v1::SiblingsResponse {
                reads: reads.into_iter().map(|read| convert::read(self.router.topology(), read)).collect(),
                quality: Some(convert::achieved(self.router.topology(), quality, achieved)),
                session,
            })),
            (other, ..) => Err(strange(&other)),
        }
    }

    async fn replace(&self, request: Request<v1::ReplaceRequest>) -> Result<Response<v1::PutResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = self.asked(caller, request.context)?;
        let served = convert::service_level(&self.router, asked.keyspace, request.dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, request.dial)?;
        let item = request.item.ok_or_else(|| Status::invalid_argument("nothing to write: `item` is missing"))?;
        let item = convert::item(item, self.physical_ms())?;
        match asked.run_under(self.router.partition_of(&item.key), Operation::Replace { item, dial }, served).await? {
            (Outcome::Written(version), achieved, session) => Ok(Response::new(v1::PutResponse {
                version: Some(convert::version(self.router.topology(), version)),
                session,
                applied: true,
                before: None,
                kept: false,
                receipt: None,
                copies: achieved.map(convert::copies),
            })),
            (other, ..) => Err(strange(&other)),
        }
    }

    type FeedStream = feed::Batches;

    async fn feed(&self, request: Request<v1::FeedRequest>) -> Result<Response<feed::Batches>, Status> {
        let (caller, request) = opened(request)?;
        feed::follow(&self.router, caller, request).map(Response::new)
    }

    async fn conflicts(&self, request: Request<v1::ConflictsRequest>) -> Result<Response<v1::ConflictsResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = self.asked(caller, request.context)?;
        let key = convert::shared(&request.key);
        match asked.run(self.router.partition_of(&key), Operation::Feed { call: FeedCall::Conflicts { key } }).await? {
            (Outcome::Feed(FeedAnswer::Conflicts(conflicts)), _) => Ok(Response::new(feed::conflicts(self.router.topology(), conflicts))),
            (other, _) => Err(strange(&other)),
        }
    }

    async fn merge_sessions(&self, request: Request<v1::MergeSessionsRequest>) -> Result<Response<v1::MergeSessionsResponse>, Status> {
        let request = request.into_inner();
        let keyspace = convert::keyspace(&self.router, &request.keyspace)?;
        let mut merged = keyspace.new_session();
        if request.sessions.is_empty() {
            return Err(Status::invalid_argument("no session to merge"));
        }
        for (index, token) in request.sessions.iter().enumerate() {
            let session = convert::session(&self.router, keyspace, token)
                .map_err(|status| Status::new(status.code(), format!("session {} of {}: {}", index + 1, request.sessions.len(), status.message())))?;
            if !keyspace.merge_sessions(&mut merged, &session) {
                return Err(Status::failed_precondition(format!("session {} is not one of protocol {}", index + 1, keyspace.protocol)));
            }
        }
        Ok(Response::new(v1::MergeSessionsResponse { session: self.router.session_token(keyspace.id, &merged) }))
    }

    async fn topology(&self, _: Request<v1::TopologyRequest>) -> Result<Response<v1::TopologyResponse>, Status> {
        Ok(Response::new(convert::topology(&self.router)))
    }
}
