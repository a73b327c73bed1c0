//! HMAC-SHA-256 where ring cannot be compiled, behind the part of ring's interface that [`crate::token`] uses. Only the simulator in a browser has it: what it signs, it shows to itself.

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The algorithm.
pub(crate) struct Algorithm;

/// HMAC with SHA-256.
pub(crate) const HMAC_SHA256: Algorithm = Algorithm;

/// A key, ready to sign.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl Key {
    pub(crate) fn new(_: Algorithm, secret: &[u8]) -> Key {
        Key(Hmac::new_from_slice(secret).expect("HMAC takes keys of any length"))
    }
}

/// A MAC.
pub(crate) struct Tag([u8; 32]);

impl AsRef<[u8]> for Tag {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A message that is signed piece by piece.
pub(crate) struct Context(Hmac<Sha256>);

impl Context {
    pub(crate) fn with_key(key: &Key) -> Context {
        Context(key.0.clone())
    }

    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(crate) fn sign(self) -> Tag {
        Tag(self.0.finalize().into_bytes().into())
    }
}

/// The MAC of `message`.
pub(crate) fn sign(key: &Key, message: &[u8]) -> Tag {
    let mut signing = Context::with_key(key);
    signing.update(message);
    signing.sign()
}

/// Whether `mac` is that of `message`.
pub(crate) fn verify(key: &Key, message: &[u8], mac: &[u8]) -> Result<(), hmac::digest::MacError> {
    key.0.clone().chain_update(message).verify_slice(mac)
}
