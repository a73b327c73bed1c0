//! Batches of statements under one signature: a Merkle tree as in RFC 6962, its root signed with Ed25519.

use crate::digest::{Digest, from_hex, hex};
use crate::path::{MOST_LEAVES, Path, above, message};
use crate::statement::{Receipt, Statement};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::fmt;

/// A node's key.
pub struct Signer {
    pair: Ed25519KeyPair,
    document: Vec<u8>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.public())
    }
}

impl Signer {
    /// A new key. Errors: the system gives no random numbers.
    pub fn new() -> Result<Signer, &'static str> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| "the operating system gives no random numbers")?;
        Signer::from_document(document.as_ref()).ok_or("a key that was just made cannot be read")
    }

    /// The key that [`Signer::document`] gave (PKCS 8); `None` if it is none.
    pub fn from_document(document: &[u8]) -> Option<Signer> {
        let pair = Ed25519KeyPair::from_pkcs8(document).ok()?;
        Some(Signer { pair, document: document.to_vec() })
    }

    /// The secret, to be kept.
    pub fn document(&self) -> &[u8] {
        &self.document
    }

    /// The public key, as 64 hexadecimal digits.
    pub fn public(&self) -> String {
        hex(&self.key())
    }

    fn key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(self.pair.public_key().as_ref());
        key
    }
}

/// A public key as text.
pub fn key_of(key: &[u8; 32]) -> String {
    hex(key)
}

/// The public key of 64 hexadecimal digits; `None` if the text is none.
pub fn parse_key(text: &str) -> Option<[u8; 32]> {
    from_hex(text.as_bytes())?.try_into().ok()
}

/// Statements that are signed together, once, when the first of them is asked for.
#[derive(Debug, Default)]
pub struct Batch {
    /// The tree's levels, leaves first; only these before it is signed.
    levels: Vec<Vec<Digest>>,
    signed: Option<([u8; 64], [u8; 32])>,
}

impl Batch {
    /// Adds a statement by its digest; returns its place. `None`: the batch is signed already, or full.
    pub fn add(&mut self, leaf: Digest) -> Option<u32> {
        if self.signed.is_some() {
            return None;
        }
        if self.levels.is_empty() {
            self.levels.push(Vec::new());
        }
        let place = self.levels[0].len() as u32;
        if place >= MOST_LEAVES {
            return None;
        }
        self.levels[0].push(leaf);
        Some(place)
    }

    /// Whether it takes no more statements.
    pub fn is_closed(&self) -> bool {
        self.signed.is_some() || self.len() >= MOST_LEAVES as usize
    }

    /// How many statements it has.
    pub fn len(&self) -> usize {
        self.levels.first().map_or(0, Vec::len)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The receipt of `statement`, which was added at `place`. The first one has the batch signed with `signer`, the others find it signed. `None`: there is no such place.
    pub fn receipt(&mut self, statement: Statement, place: u32, signer: &Signer) -> Option<Receipt> {
        let count = self.len() as u32;
        if place >= count {
            return None;
        }
        let (signature, key) = match self.signed {
            Some(signed) => signed,
            None => {
                while let Some(level) = self.levels.last().filter(|level| level.len() > 1) {
                    let next = level.chunks(2).map(|pair| if let [left, right] = pair { above(left, right) } else { pair[0] }).collect();
                    self.levels.push(next);
                }
                let root = self.levels.last()?[0];
                let mut signature = [0; 64];
                signature.copy_from_slice(signer.pair.sign(&message(&root, count)).as_ref());
                *self.signed.insert((signature, signer.key()))
            }
        };
        let beside = |(height, level): (usize, &Vec<Digest>)| level.get((place as usize >> height) ^ 1).copied();
        let beside = self.levels[..self.levels.len() - 1].iter().enumerate().filter_map(beside).collect();
        Some(Receipt { statement, path: Path { index: place, count, beside, signature, key } })
    }
}
