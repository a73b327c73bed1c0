//! Receipts: what a node has answered, in a compact statement that it signs, and the search for statements that contradict each other.
//!
//! A node digests each [`Statement`], collects the digests of its answers in a [`Batch`], and signs the root of their Merkle tree once. A [`Receipt`] is a statement, its way to
//! the root, and the signature. Whoever trusts the node's key can check it, alone or together with others' receipts ([`verify`]).

mod batch;
mod digest;
mod path;
mod statement;
pub mod verify;

pub use batch::{Batch, Signer, key_of, parse_key};
pub use digest::{Digest, digest};
pub use statement::{Act, Damaged, MOST_LINE, Receipt, Statement};
