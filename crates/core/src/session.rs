//! Sessions: what one client remembers, whatever its protocol. [`crate::token`] carries one elsewhere.

use crate::dial::Strategy;
use crate::ids::PartitionId;
use crate::protocol::{Client, Verdict};
use crate::wire::{Reader, Wire, WireError};
use rheostat_clock::{DcId, Timestamp};
use std::any::Any;
use std::fmt;

/// What one session remembers of one keyspace, whatever its protocol.
pub struct Session(Box<dyn Erased>);

trait Erased: Any + Send {
    fn any(&self) -> &dyn Any;
    fn any_mut(&mut self) -> &mut dyn Any;
    fn encode(&self, out: &mut Vec<u8>);
    fn encode_signed(&self, out: &mut Vec<u8>);
    fn encode_hints(&self, out: &mut Vec<u8>);
    fn take_hints(&mut self, input: &mut Reader<'_>) -> Result<(), WireError>;
    fn copy(&self) -> Box<dyn Erased>;
    fn is_at_home(&self, here: DcId) -> bool;
    fn newest(&self) -> Timestamp;
    fn last_write(&self, dc: DcId) -> Timestamp;
    fn data_centers(&self) -> usize;
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

    fn encode_signed(&self, out: &mut Vec<u8>) {
        Client::encode_signed(self, out);
    }

    fn encode_hints(&self, out: &mut Vec<u8>) {
        Client::encode_hints(self, out);
    }

    fn take_hints(&mut self, input: &mut Reader<'_>) -> Result<(), WireError> {
        Client::take_hints(self, input)
    }

    fn copy(&self) -> Box<dyn Erased> {
        Box::new(self.clone())
    }

    fn is_at_home(&self, here: DcId) -> bool {
        Client::is_at_home(self, here)
    }

    fn newest(&self) -> Timestamp {
        Client::newest(self)
    }

    fn last_write(&self, dc: DcId) -> Timestamp {
        Client::last_write(self, dc)
    }

    fn data_centers(&self) -> usize {
        Client::data_centers(self)
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

    /// The byte form of what servers sign of the client state. See [`Client::encode_signed`].
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.encode_signed(&mut out);
        out
    }

    /// The byte form of what the client may change by itself. See [`Client::encode_hints`].
    pub fn hints(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.encode_hints(&mut out);
        out
    }

    /// Takes in what [`Session::hints`] gave. Errors: it is not of this protocol.
    pub fn take_hints(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let mut input = Reader::new(bytes);
        self.0.take_hints(&mut input)?;
        input.finish()
    }

    /// See [`Client::is_at_home`].
    pub fn is_at_home(&self, here: DcId) -> bool {
        self.0.is_at_home(here)
    }

    /// The highest timestamp remembered.
    pub fn newest(&self) -> Timestamp {
        self.0.newest()
    }

    /// An upper bound on the timestamps of this session's writes in data center `dc`.
    pub fn last_write(&self, dc: DcId) -> Timestamp {
        self.0.last_write(dc)
    }

    /// See [`Client::data_centers`].
    pub fn data_centers(&self) -> usize {
        self.0.data_centers()
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
