//! One statement, and its form in a file.

use crate::digest::{Bytes, Digest, digest, from_hex, hex};
use crate::path::{Path, check};
use rheostat_core::dial::Level;
use rheostat_core::version::VersionId;
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::{DcId, TimestampVector, wire_enum};
use std::fmt;

/// The longest line of a receipt, in bytes.
pub const MOST_LINE: usize = 16 << 10;

/// How a receipt begins.
const PREFIX: &str = "rheo-receipt-1:";

/// The longest name of a node or a keyspace.
const MOST_NAME: usize = 1024;

/// What was done to the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// It was read.
    Read,
    /// It was written; a deletion is a write.
    Write,
}

/// What a node says of one operation on one key that it has answered.
#[derive(Clone, PartialEq, Debug)]
pub struct Statement {
    /// The cluster's identity.
    pub cluster: u64,
    /// The node's name.
    pub node: String,
    /// Its data center.
    pub here: DcId,
    /// The keyspace's name.
    pub keyspace: String,
    /// A number that nobody could know before: an answer that names this statement came after it.
    pub salt: u64,
    /// SHA-256 of the key ([`Statement::key_digest`]).
    pub key: Digest,
    /// What was done.
    pub act: Act,
    /// The version that was read or written; `None`: the key had none that the reader could see.
    pub version: Option<VersionId>,
    /// The version has a value that never expires.
    pub lasting: bool,
    /// The level that was achieved.
    pub level: Level,
    /// Of a read: every write of another data center that was older than so many milliseconds at `began_ms` is reflected; `None`: no bound is known.
    pub staleness_ms: Option<u64>,
    /// The node's clock when the operation reached it, in milliseconds since the Unix epoch.
    pub began_ms: u64,
    /// The digest of what the session remembered before.
    pub before: Digest,
    /// And after.
    pub after: Digest,
    /// Per data center, a bound on the timestamps of what the session has written there.
    pub past: TimestampVector,
    /// The digest of the statement that the client held of the operation before, in this keyspace.
    pub previous: Option<Digest>,
}

wire_enum!(Act, "what was done", { 0 => Read, 1 => Write });

impl Wire for Statement {
    fn encode(&self, out: &mut Vec<u8>) {
        self.cluster.encode(out);
        self.node.encode(out);
        self.here.encode(out);
        self.keyspace.encode(out);
        Bytes(self.salt.to_le_bytes()).encode(out);
        Bytes(self.key).encode(out);
        self.act.encode(out);
        self.version.encode(out);
        self.lasting.encode(out);
        self.level.encode(out);
        self.staleness_ms.encode(out);
        self.began_ms.encode(out);
        Bytes(self.before).encode(out);
        Bytes(self.after).encode(out);
        self.past.encode(out);
        self.previous.map(Bytes).encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let name = |input: &mut Reader<'_>| match String::decode(input)? {
            name if name.len() <= MOST_NAME => Ok(name),
            _ => Err(WireError::Invalid("a name")),
        };
        Ok(Statement {
            cluster: Wire::decode(input)?,
            node: name(input)?,
            here: Wire::decode(input)?,
            keyspace: name(input)?,
            salt: u64::from_le_bytes(Bytes::<8>::decode(input)?.0),
            key: Bytes::decode(input)?.0,
            act: Wire::decode(input)?,
            version: Wire::decode(input)?,
            lasting: Wire::decode(input)?,
            level: Wire::decode(input)?,
            staleness_ms: Wire::decode(input)?,
            began_ms: Wire::decode(input)?,
            before: Bytes::decode(input)?.0,
            after: Bytes::decode(input)?.0,
            past: Wire::decode(input)?,
            previous: Option::<Bytes<32>>::decode(input)?.map(|bytes| bytes.0),
        })
    }
}

impl Statement {
    /// The digest of a key.
    pub fn key_digest(key: &[u8]) -> Digest {
        digest(b'k', &[key])
    }

    /// The digest of what a session remembers, by the bytes that servers sign of it.
    pub fn session_digest(signed: &[u8]) -> Digest {
        digest(b's', &[signed])
    }

    /// Its digest, which is what a batch is made of.
    pub fn digest(&self) -> Digest {
        digest(0, &[&self.to_bytes()])
    }
}

impl fmt::Display for Statement {
    /// Such as `read of 3fa1… in default at level causal, by us-east-1: version 1764000000123.0@0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statement { keyspace, level, node, .. } = self;
        let act = if self.act == Act::Read { "read" } else { "write" };
        write!(f, "{act} of {} in {keyspace} at level {level}, by {node}: ", &hex(&self.key)[..12])?;
        match self.version {
            Some(version) => write!(f, "version {version}"),
            None => f.write_str("no version"),
        }
    }
}

/// A statement that was signed.
#[derive(Clone, PartialEq, Debug)]
pub struct Receipt {
    /// What is said.
    pub statement: Statement,
    pub(crate) path: Path,
}

/// Why a line is no receipt that can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damaged {
    /// It does not look like one.
    NotAReceipt,
    /// It is longer than any.
    TooLong,
    /// It cannot be read: cut short, mistyped or altered.
    Unreadable,
    /// The statement does not belong to the root that was signed, or nobody with this key has signed that.
    Forged,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damaged::NotAReceipt => "this is not a receipt",
            Damaged::TooLong => "this is longer than any receipt",
            Damaged::Unreadable => "this receipt cannot be read: it was cut short or altered",
            Damaged::Forged => "this receipt is forged: its statement is not what the key has signed",
        })
    }
}

impl std::error::Error for Damaged {}

impl Receipt {
    /// The key that has signed it.
    pub fn key(&self) -> [u8; 32] {
        self.path.key
    }

    /// One line of text.
    pub fn to_line(&self) -> String {
        let mut bytes = self.statement.to_bytes();
        self.path.encode(&mut bytes);
        format!("{PREFIX}{}", hex(&bytes))
    }

    /// Reads a line, and checks that its key has signed what it says.
    ///
    /// # Errors
    /// Why it cannot be relied on.
    pub fn from_line(line: &[u8]) -> Result<Receipt, Damaged> {
        if line.len() > MOST_LINE {
            return Err(Damaged::TooLong);
        }
        let digits = line.trim_ascii().strip_prefix(PREFIX.as_bytes()).ok_or(Damaged::NotAReceipt)?;
        let bytes = from_hex(digits).ok_or(Damaged::Unreadable)?;
        let mut input = Reader::new(&bytes);
        let read = |input: &mut Reader<'_>| -> Result<Receipt, WireError> {
            let receipt = Receipt { statement: Wire::decode(input)?, path: Wire::decode(input)? };
            Ok(receipt)
        };
        let receipt = read(&mut input).map_err(|_| Damaged::Unreadable)?;
        input.finish().map_err(|_| Damaged::Unreadable)?;
        // What is written back otherwise has two forms, and two digests.
        if receipt.to_line().as_bytes() != line.trim_ascii().to_ascii_lowercase() {
            return Err(Damaged::Unreadable);
        }
        if !check(&receipt.statement.digest(), &receipt.path) {
            return Err(Damaged::Forged);
        }
        Ok(receipt)
    }
}
