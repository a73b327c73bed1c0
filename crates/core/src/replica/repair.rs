//! What a data center lacks is given to it by those that have it, at an operator's word.

use super::held::is_buried;
use super::waiting::filling;
use super::{Outbox, Replica};
use crate::failure::Failure;
use crate::ids::Now;
use crate::protocol::Protocol;
use crate::reserved::is_reserved;
use crate::store::Store;
use crate::version::{Item, Key, Update, Version, VersionId};
use crate::wire::Wire;
use smallvec::smallvec;

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// The versions of `key` that are here, greatest first, with their bytes for [`Replica::restore`].
    pub(super) fn versions(&mut self, key: &[u8]) -> Vec<(VersionId, Vec<u8>)> {
        let versions = self.store.chain(key).into_iter();
        versions.map(|version| (version.id, (P::NAME.to_string(), version).to_bytes())).collect()
    }

    /// Takes in those of `versions` of `key` that are missing here though they must have arrived, but for what a deletion has replaced; says how many those were.
    pub(super) fn restore(&mut self, now: Now, key: &Key, versions: &[Vec<u8>], out: &mut Outbox) -> Result<u64, Failure> {
        if P::CAN.agrees() || is_reserved(key) {
            return Err(Failure::Refused("its servers, or its counters, keep this key themselves: nothing is restored".into()));
        }
        if self.peers.lack() {
            return Err(filling());
        }
        let mut decoded = Vec::with_capacity(versions.len());
        for bytes in versions {
            match <(String, Version<P::Meta>)>::from_bytes(bytes) {
                Ok((name, version)) if name == P::NAME => decoded.push(version),
                Ok((name, _)) => return Err(Failure::Refused(format!("a version of protocol {name}: this keyspace has protocol {}", P::NAME))),
                Err(error) => return Err(Failure::Refused(format!("no version: {error}"))),
            }
        }
        decoded.sort_by_key(|version| version.id);
        let cut = self.cut(now);
        let mut restored = 0;
        for version in decoded {
            let (id, here) = (version.id, self.config.place.dc());
            let upto = if id.origin == here { Some(self.clock.last()) } else { self.peers.get(id.origin).map(|(_, receiver)| receiver.received()) };
            match upto {
                Some(upto) if id.written <= upto => {}
                Some(_) => return Err(Failure::Busy(format!("version {id} may still be on its way"))),
                None => return Err(Failure::Refused(format!("version {id} is of no data center that writes this key"))),
            }
            let chain = self.store.chain(key);
            if chain.iter().any(|version| version.id == id) || is_buried(&cut, &chain, &version) {
                continue;
            }
            let Version { value, expires_ms, meta, .. } = version;
            let update = Update { id, items: smallvec![Item { key: key.clone(), value, expires_ms }], meta };
            if id.origin == here {
                self.journal.refill(&mut self.store, &update);
            } else {
                self.step(now, out, |protocol, step| protocol.on_update(step, id.origin, update));
            }
            restored += 1;
        }
        match &self.journal.failed {
            Some(why) => Err(Failure::Storage(why.clone())),
            None => Ok(restored),
        }
    }
}
