//! The core of Rheostat: what every room shares and no protocol owns.
//!
//! - [`ids`]: data centers, partitions, servers, operations; [`slots`]: Redis Cluster's hash slots.
//! - [`version`]: versions, updates, their last-writer-wins order.
//! - [`wire`]: the byte form of everything that is sent or stored.
//! - [`store`]: what a version store must do.
//! - [`protocol`]: the step: what a protocol is, and the effects that it emits.
//! - [`link`]: the stream of a partition server's own updates to its peer in another data center.
//! - [`replica`]: one partition server, whole: protocol, clock, store and links behind one set of inputs and outputs.
//!   The simulator and the server both run it.
//! - [`scatter`]: a read-only transaction that its client takes to the partitions itself.
//! - [`sla`]: service levels: what a read is to give within which time, from best to least.
//! - [`operation`]: what a user asks for and what comes back, [`counter`] of counters; [`session`] and the signed [`token`] that carries one.
//! - [`reserved`]: keys that no user can name.
//! - [`gauge`]: the numbers that a server tells of itself, as they are declared for status and metrics.
//! - [`moment`]: times in the past, as users write them.
//! - [`rollback`]: back to a time in the past, in all data centers; [`glob`]: patterns of keys.
//! - [`agenda`]: what happens next in virtual time.

pub mod agenda;
pub mod answer;
pub mod capabilities;
pub mod counter;
pub mod dial;
pub mod export;
pub mod failure;
pub mod feed;
pub mod gauge;
pub mod glob;
#[cfg(target_arch = "wasm32")]
mod hmac;
pub mod ids;
pub mod link;
pub mod moment;
pub mod notch;
pub mod operation;
pub mod outcome;
pub mod planted;
pub mod protocol;
pub mod random;
pub mod replica;
pub mod reserved;
pub mod rollback;
pub mod scatter;
pub mod session;
pub mod sla;
pub mod slots;
pub mod step;
pub mod store;
pub mod token;
pub mod version;
pub mod wire;

pub use rheostat_clock::{ClockWatch, DcId, DependencyVector, Hlc, StableVector, Timestamp, TimestampVector, Trust};
