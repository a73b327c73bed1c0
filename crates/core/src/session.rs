//! Sessions, and the token that carries one from connection to connection and from data center to data center.

use crate::ids::{KeyspaceId, PartitionId};
use crate::operation::Strategy;
use crate::protocol::{Client, Verdict};
use crate::wire::{Reader, Wire};
use rheostat_clock::{DcId, Timestamp};
use std::any::Any;
use std::fmt;

/// What one session remembers of one keyspace, whatever its protocol.
pub struct Session(Box<dyn Erased>);

trait Erased: Any + Send {
    fn any(&self) -> &dyn Any;
    fn any_mut(&mut self) -> &mut dyn Any;
    fn encode(&self, out: &mut Vec<u8>);
    fn copy(&self) -> Box<dyn Erased>;
    fn newest(&self) -> Timestamp;
    fn last_write(&self, dc: DcId) -> Timestamp;
    fn predict(&mut self, here: DcId, lead: PartitionId, asked: Strategy, now_ms: u64) -> bool;
    fn settle(&mut self, verdict: Verdict) -> bool;
    fn predicts(&self) -> bool;
    fn told(&self) -> Timestamp;
    fn merge(&mut self, other: &dyn Any) -> bool;
}

impl<C: Client> Erased for C {
    fn any(&self) -> &dyn Any {
        self
    }

    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn encode(&self, out: &mut Vec<u8>) {
        Wire::encode(self, out);
    }

    fn copy(&self) -> Box<dyn Erased> {
        Box::new(self.clone())
    }

    fn newest(&self) -> Timestamp {
        Client::newest(self)
    }

    fn last_write(&self, dc: DcId) -> Timestamp {
        Client::last_write(self, dc)
    }

    fn predict(&mut self, here: DcId, lead: PartitionId, asked: Strategy, now_ms: u64) -> bool {
        Client::predict(self, here, lead, asked, now_ms)
    }

    fn settle(&mut self, verdict: Verdict) -> bool {
        Client::settle(self, verdict)
    }

    fn predicts(&self) -> bool {
        Client::predicts(self)
    }

    fn told(&self) -> Timestamp {
        Client::told(self)
    }

    fn merge(&mut self, other: &dyn Any) -> bool {
        other.downcast_ref().map(|other| Client::merge(self, other)).is_some()
    }
}

impl Session {
    /// The session that `client` remembers.
    pub fn new<C: Client>(client: C) -> Session {
        Session(Box::new(client))
    }

    /// The client state, if it is of type `C`.
    pub fn client<C: Client>(&self) -> Option<&C> {
        self.0.any().downcast_ref()
    }

    /// The client state, if it is of type `C`.
    pub fn client_mut<C: Client>(&mut self) -> Option<&mut C> {
        self.0.any_mut().downcast_mut()
    }

    /// The byte form of the client state.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.encode(&mut out);
        out
    }

    /// The highest timestamp remembered.
    pub fn newest(&self) -> Timestamp {
        self.0.newest()
    }

    /// An upper bound on the timestamps of this session's writes in data center `dc`.
    pub fn last_write(&self, dc: DcId) -> Timestamp {
        self.0.last_write(dc)
    }

    /// See [`Client::predict`].
    pub fn predict(&mut self, here: DcId, lead: PartitionId, asked: Strategy, now_ms: u64) -> bool {
        self.0.predict(here, lead, asked, now_ms)
    }

    /// See [`Client::settle`].
    pub fn settle(&mut self, verdict: Verdict) -> bool {
        self.0.settle(verdict)
    }

    /// See [`Client::predicts`].
    pub fn predicts(&self) -> bool {
        self.0.predicts()
    }

    /// See [`Client::told`].
    pub fn told(&self) -> Timestamp {
        self.0.told()
    }

    /// Adds what `other` remembers; says whether both are of one protocol.
    pub fn merge(&mut self, other: &Session) -> bool {
        self.0.merge(other.0.any())
    }
}

impl Clone for Session {
    fn clone(&self) -> Session {
        Session(self.0.copy())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session(newest {})", self.newest())
    }
}

/// A cluster's identity: two clusters with different names refuse each other's tokens and servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterId(pub u64);

impl ClusterId {
    /// The identity of the cluster called `name` (FNV-1a, 64 bits).
    pub fn from_name(name: &str) -> ClusterId {
        ClusterId(name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)))
    }
}

/// Why a session token was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenError {
    /// It does not look like a token at all.
    NotAToken,
    /// A later format than this server knows.
    Version(u8),
    /// Its checksum does not match: cut short, mistyped or altered.
    Damaged,
    /// Made by another cluster.
    ForeignCluster,
    /// Made in another keyspace.
    ForeignKeyspace(KeyspaceId),
    /// Longer than any token.
    TooLong,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenError::NotAToken => f.write_str("this is not a session token"),
            TokenError::Version(version) => write!(f, "session token of format {version}, this server knows format {TOKEN_VERSION}"),
            TokenError::Damaged => f.write_str("session token is damaged: its checksum does not match"),
            TokenError::ForeignCluster => f.write_str("session token belongs to another cluster"),
            TokenError::ForeignKeyspace(id) => write!(f, "session token belongs to keyspace {}, not to this one", id.0),
            TokenError::TooLong => f.write_str("session token is too long"),
        }
    }
}

impl std::error::Error for TokenError {}

const TOKEN_VERSION: u8 = 1;
const TOKEN_PREFIX: &str = "rheo-";
const TOKEN_MAX: usize = 64 * 1024;

/// A token's text: `rheo-` and hexadecimal digits of format version, cluster, keyspace, client state and a checksum over all of them.
///
/// It guards against mistakes, not against forgery: whoever can send requests can also read and write the data.
pub fn encode_token(cluster: ClusterId, keyspace: KeyspaceId, session: &Session) -> String {
    let mut bytes = vec![TOKEN_VERSION];
    bytes.extend_from_slice(&cluster.0.to_le_bytes());
    keyspace.0.encode(&mut bytes);
    bytes.extend_from_slice(&session.to_bytes());
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    let mut text = String::with_capacity(TOKEN_PREFIX.len() + 2 * bytes.len());
    text.push_str(TOKEN_PREFIX);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

/// The client state inside a token. Errors: not a token of this cluster and keyspace, in words for the user.
pub fn decode_token(cluster: ClusterId, keyspace: KeyspaceId, text: &str) -> Result<Vec<u8>, TokenError> {
    if text.len() > TOKEN_MAX {
        return Err(TokenError::TooLong);
    }
    let digits = text.trim().strip_prefix(TOKEN_PREFIX).ok_or(TokenError::NotAToken)?;
    let digits: Option<Vec<u8>> = digits.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let digits = digits.ok_or(TokenError::NotAToken)?;
    let (pairs, odd) = digits.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(TokenError::Damaged);
    }
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    let (body, checksum) = bytes.split_last_chunk::<4>().ok_or(TokenError::Damaged)?;
    let version = *body.first().ok_or(TokenError::Damaged)?;
    if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
        return Err(TokenError::Damaged);
    }
    if version != TOKEN_VERSION {
        return Err(TokenError::Version(version));
    }
    let mut input = Reader::new(&body[1..]);
    let damaged = |_| TokenError::Damaged;
    let made_by = input.take(8).map_err(damaged)?;
    if made_by != cluster.0.to_le_bytes() {
        return Err(TokenError::ForeignCluster);
    }
    let made_in = KeyspaceId(u16::decode(&mut input).map_err(damaged)?);
    if made_in != keyspace {
        return Err(TokenError::ForeignKeyspace(made_in));
    }
    Ok(input.rest().to_vec())
}
