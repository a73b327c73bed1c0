//! How nodes tell each other the keys that sign session tokens: each tells all it has when a connection is made, and again when it learns of another.

use super::Peer;
use super::greeting::LinkKey;
use crate::shared::Shared;
use crate::token_keys;
use rheostat_core::token::TokenKeys;
use rheostat_core::wire::Wire;
use std::sync::Arc;

impl Shared {
    /// This node's keys, for the other end of a connection. Nothing, where they are the operator's.
    pub(super) fn sealed_token_keys(&self, link_key: &LinkKey) -> Vec<u8> {
        if self.config.security.token_key_file.is_some() { Vec::new() } else { link_key.seal(&self.token_keys().to_bytes()) }
    }

    /// Takes in what another node has sealed.
    pub(super) fn take_token_keys(self: &Arc<Self>, link_key: &LinkKey, sealed: &[u8]) {
        if self.config.security.token_key_file.is_some() || sealed.is_empty() {
            return;
        }
        match link_key.open(sealed).and_then(|bytes| TokenKeys::from_bytes(&bytes).ok()) {
            Some(keys) => self.learn_token_keys(&keys),
            None => tracing::warn!("another node's token keys could not be read"),
        }
    }

    /// Takes in `keys`, and if there are new ones, keeps them and tells the other nodes.
    pub(crate) fn learn_token_keys(self: &Arc<Self>, keys: &TokenKeys) {
        if !self.merge_token_keys(keys) {
            return;
        }
        self.peers.iter().flatten().for_each(|peer| self.send_token_keys(peer));
        if self.config.data_dir.is_some() {
            let shared = self.clone();
            // The disk may be slow, and this may be a shard's thread.
            tokio::task::spawn_blocking(move || shared.save_token_keys());
        }
    }

    fn save_token_keys(&self) {
        let Some(dir) = &self.config.data_dir else { return };
        // One at a time, each what holds then.
        let _held = crate::shared::lock(&self.saving_token_keys);
        if let Err(error) = token_keys::save(dir, &self.token_keys()) {
            tracing::error!(%error, "the token keys could not be kept; after a restart this node may refuse tokens until it has met another one");
        }
    }

    /// Tells `peer` this node's keys.
    pub(super) fn send_token_keys(&self, peer: &Peer) {
        if self.config.security.token_key_file.is_none() {
            peer.send_token_keys(self.clocks.monotonic_us(), &self.token_keys().to_bytes());
        }
    }
}
