//! Receipts at this node: the key that signs them, what they say of an operation, and the batches that are signed.
//!
//! A RESP connection's receipts belong to its shard's batch of the turn, which is signed when the first of them is asked for. On gRPC a reply carries its receipt: what comes while
//! a batch is being signed is the next batch.

use crate::folder;
use crate::shared::{Shared, lock};
use crate::token_keys::{KeyFileError, random};
use rheostat_core::DcId;
use rheostat_core::dial::Level;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::operation::{Change, Expiry, Operation};
use rheostat_core::outcome::Outcome;
use rheostat_core::session::Session;
use rheostat_receipts::{Act, Batch, Digest, Receipt, Signer, Statement};
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// The file in the data directory; keyspaces' folders have no '.' in front.
const FILE: &str = ".receipt-key";

/// The key that the data directory keeps, else a new one, which is kept from now on; without a directory one for this start. Errors: the disk's, or what stands there is damaged.
pub(crate) fn load_or_make(dir: Option<&Path>) -> Result<Signer, KeyFileError> {
    let path = dir.unwrap_or(Path::new("")).join(FILE);
    let io = |error| KeyFileError::Io(path.clone(), error);
    let make = || Signer::new().map_err(|why| io(io::Error::other(why)));
    let Some(dir) = dir else { return make() };
    match std::fs::read(&path) {
        Ok(bytes) => Signer::from_document(&bytes).ok_or_else(|| {
            let why = "this is no key for receipts; without it a new one is made, and who trusts the old one must be told";
            KeyFileError::Damaged(path.clone(), why.to_owned())
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let signer = make()?;
            folder::write_whole(dir, &path, signer.document()).map_err(io)?;
            Ok(signer)
        }
        Err(error) => Err(io(error)),
    }
}

/// What a statement says of an operation before that has run.
pub(crate) struct Begun {
    keyspace: KeyspaceId,
    key: Digest,
    act: Act,
    lasting: bool,
    level: Level,
    /// The partition is served by this node, by whose clock its staleness bound is.
    local: bool,
    began_ms: u64,
    before: Digest,
    previous: Option<Digest>,
}

fn of_session(session: &Session) -> Digest {
    Statement::session_digest(&session.signed_bytes())
}

impl Begun {
    /// Of `operation`, which came at `began_ms` by this node's clock, for a client that holds the statement `previous`. `None`: no receipt is given for it. It is for reads and writes of one key, in the
    /// present.
    pub(crate) fn of(
        shared: &Shared,
        (keyspace, partition): (KeyspaceId, PartitionId),
        operation: &Operation,
        session: &Session,
        (previous, began_ms): (Option<Digest>, u64),
    ) -> Option<Begun> {
        let (key, act, lasting, dial) = match operation {
            Operation::Get { key, dial } if dial.as_of.is_none() => (key, Act::Read, false, dial),
            Operation::Put { items, dial } => match items.as_slice() {
                [item] => (&item.key, Act::Write, item.value.is_some() && item.expires_ms == 0, dial),
                _ => return None,
            },
            Operation::Change { key, change, dial } => {
                let lasting = matches!(change, Change::Set { expiry: Expiry::Never, .. } | Change::Expire { expiry: Expiry::Never, .. });
                (key, Act::Write, lasting, dial)
            }
            _ => return None,
        };
        let level = dial.level.unwrap_or(shared.keyspaces[usize::from(keyspace.0)].level);
        let local = shared.placement.serving(keyspace, partition).is_some();
        Some(Begun { keyspace, key: Statement::key_digest(key), act, lasting, level, local, began_ms, before: of_session(session), previous })
    }

    /// The statement, when the operation came to `outcome` and left `session`. `None`: it failed, or wrote nothing.
    pub(crate) fn ended(self, shared: &Shared, salt: u64, outcome: &Outcome, session: &Session) -> Option<Statement> {
        let (version, lasting, level, staleness_ms) = match outcome {
            Outcome::Read(read, quality) if self.act == Act::Read => {
                let lasting = read.value.is_some() && read.expires_ms == 0;
                (read.version, lasting, quality.level, quality.staleness_ms.filter(|_| self.local))
            }
            Outcome::Written(version) | Outcome::Changed { version: Some(version), .. } => (Some(*version), self.lasting, self.level, None),
            // In no order with others, so nothing is promised of it.
            Outcome::Kept(version) => (Some(*version), self.lasting, Level::Eventual, None),
            _ => return None,
        };
        let topology = &shared.topology;
        Some(Statement {
            cluster: topology.cluster_id.0,
            node: topology.this().name.clone(),
            here: topology.here,
            keyspace: shared.keyspaces[usize::from(self.keyspace.0)].name.clone(),
            salt,
            key: self.key,
            act: self.act,
            version,
            lasting,
            level,
            staleness_ms,
            began_ms: self.began_ms,
            before: self.before,
            after: of_session(session),
            past: (0..topology.data_centers.len() as u8).map(DcId).map(|dc| (dc, session.last_write(dc))).collect(),
            previous: self.previous,
        })
    }
}

/// A shard's batch of this turn.
pub(crate) struct Turn {
    batch: RefCell<Batch>,
    salt: u64,
}

impl Turn {
    /// An empty one. Errors: the system gives no random numbers.
    fn begin() -> io::Result<Rc<Turn>> {
        Ok(Rc::new(Turn { batch: RefCell::default(), salt: u64::from_le_bytes(random()?) }))
    }
}

/// A statement of a batch that may not be signed yet.
pub(crate) struct Issued {
    turn: Rc<Turn>,
    place: u32,
    statement: Statement,
    digest: Digest,
}

impl Issued {
    /// Makes a statement and adds it to `turn`, which is begun anew if there is none, or it is signed already. `None`: there is no statement to be made.
    pub(crate) fn add(turn: &mut Option<Rc<Turn>>, make: impl FnOnce(u64) -> Option<Statement>) -> io::Result<Option<Issued>> {
        if turn.as_ref().is_none_or(|turn| turn.batch.borrow().is_closed()) {
            *turn = Some(Turn::begin()?);
        }
        let Some(turn) = turn else { return Ok(None) };
        let Some(statement) = make(turn.salt) else { return Ok(None) };
        let digest = statement.digest();
        let place = turn.batch.borrow_mut().add(digest);
        Ok(place.map(|place| Issued { turn: turn.clone(), place, statement, digest }))
    }

    /// The digest of its statement, for the next one to name.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// The receipt as text; has the batch signed if it is not.
    pub(crate) fn line(&self, signer: &Signer) -> Option<String> {
        let receipt = self.turn.batch.borrow_mut().receipt(self.statement.clone(), self.place, signer)?;
        Some(receipt.to_line())
    }
}

/// The receipts of gRPC, and the node's key.
pub(crate) struct Receipts {
    pub(crate) signer: Signer,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<(Statement, oneshot::Sender<Receipt>)>,
    /// Somebody signs, and takes what comes meanwhile.
    signing: bool,
}

impl Receipts {
    /// Signs with `signer`.
    pub(crate) fn new(signer: Signer) -> Receipts {
        Receipts { signer, queue: Mutex::default() }
    }

    /// Has `statement` signed, together with those of other requests. `None`: the node stops.
    pub(crate) async fn sign(shared: &Arc<Shared>, statement: Statement) -> Option<Receipt> {
        let (sender, receipt) = oneshot::channel();
        let first = {
            let mut queue = lock(&shared.receipts.queue);
            queue.waiting.push((statement, sender));
            !std::mem::replace(&mut queue.signing, true)
        };
        if first {
            let shared = shared.clone();
            tokio::spawn(async move {
                // What is ready to run comes first, so that it is in this batch.
                tokio::task::yield_now().await;
                while let Some(batch) = shared.receipts.next_batch() {
                    shared.receipts.sign_batch(batch);
                    tokio::task::yield_now().await;
                }
            });
        }
        receipt.await.ok()
    }

    fn next_batch(&self) -> Option<Vec<(Statement, oneshot::Sender<Receipt>)>> {
        let mut queue = lock(&self.queue);
        if queue.waiting.is_empty() {
            queue.signing = false;
            return None;
        }
        Some(std::mem::take(&mut queue.waiting))
    }

    fn sign_batch(&self, waiting: Vec<(Statement, oneshot::Sender<Receipt>)>) {
        let mut batch = Batch::default();
        // A batch has room for more than can be under way.
        let places: Vec<Option<u32>> = waiting.iter().map(|(statement, _)| batch.add(statement.digest())).collect();
        for ((statement, sender), place) in waiting.into_iter().zip(places) {
            if let Some(receipt) = place.and_then(|place| batch.receipt(statement, place, &self.signer)) {
                // Whoever asked may have gone.
                let _ = sender.send(receipt);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_and_kept_for_oneself() {
        let folder = tempfile::tempdir().unwrap();
        let first = load_or_make(Some(folder.path())).unwrap();
        assert_eq!(load_or_make(Some(folder.path())).unwrap().public(), first.public());
        let mode = std::fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(load_or_make(None).unwrap().public(), first.public());
        std::fs::write(folder.path().join(FILE), "garbage").unwrap();
        assert!(load_or_make(Some(folder.path())).unwrap_err().to_string().contains(FILE));
    }
}
