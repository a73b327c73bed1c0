//! Clocks of Rheostat: hybrid logical timestamps, the hybrid logical clock, and vectors of timestamps
//! with one entry per data center.
//!
//! Nothing here reads time: the physical clock's reading comes in with each call. Sources: the
//! dissertation "Consistency for Distributed Data Stores", §2.5 and Alg. 2.1 (hybrid logical clock),
//! §5.2 (dependency sets, version vectors, data center stable vectors).

mod hlc;
mod timestamp;
mod vector;
mod watch;

pub use hlc::{Hlc, TooFarAhead};
pub use timestamp::Timestamp;
pub use vector::{DcId, DependencyVector, StableVector, TimestampVector};
pub use watch::{ClockWatch, KNOWN_US, Trust};
