//! Batches of statements under one signature: a Merkle tree as in RFC 6962, its root signed with Ed25519.

use crate::statement::{Bytes, Digest, Receipt, Statement, digest, from_hex, hex};
use rheostat_core::wire::{Reader, Wire, WireError};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;

/// The most statements of one batch.
const MOST_LEAVES: u32 = 1 << 20;

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

/// The way from a statement to the root that was signed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Path {
    /// Which of the statements it is.
    index: u32,
    /// How many there are.
    count: u32,
    /// What is beside it on the way up.
    beside: Vec<Digest>,
    signature: [u8; 64],
    pub(crate) key: [u8; 32],
}

impl Wire for Path {
    fn encode(&self, out: &mut Vec<u8>) {
        self.index.encode(out);
        self.count.encode(out);
        self.beside.iter().map(|digest| Bytes(*digest)).collect::<Vec<_>>().encode(out);
        Bytes(self.signature).encode(out);
        Bytes(self.key).encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (index, count) = (Wire::decode(input)?, Wire::decode(input)?);
        let beside: Vec<Bytes<32>> = Wire::decode(input)?;
        let beside = beside.into_iter().map(|digest| digest.0).collect();
        Ok(Path { index, count, beside, signature: Bytes::decode(input)?.0, key: Bytes::decode(input)?.0 })
    }
}

fn above(left: &Digest, right: &Digest) -> Digest {
    digest(1, &[left, right])
}

/// What is signed of a root.
fn message(root: &Digest, count: u32) -> Vec<u8> {
    [&b"rheostat receipts 1"[..], &count.to_le_bytes(), root].concat()
}

/// Whether `path` leads from `leaf` to a root that its key has signed.
pub(crate) fn check(leaf: &Digest, path: &Path) -> bool {
    if path.index >= path.count || path.count > MOST_LEAVES {
        return false;
    }
    let (mut node, mut index, mut count) = (*leaf, path.index, path.count);
    let mut beside = path.beside.iter();
    while count > 1 {
        // The last of an odd number goes up as it is.
        if index ^ 1 < count {
            let Some(other) = beside.next() else { return false };
            node = if index.is_multiple_of(2) { above(&node, other) } else { above(other, &node) };
        }
        (index, count) = (index / 2, count.div_ceil(2));
    }
    beside.next().is_none() && UnparsedPublicKey::new(&ED25519, path.key).verify(&message(&node, path.count), &path.signature).is_ok()
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
