//! Clocks of Rheostat: hybrid logical timestamps, the hybrid logical clock, vectors of timestamps
//! with one entry per data center, and the hybrid vector clock with one per process.
//!
//! Nothing here reads time: the physical clock's reading comes in with each call. Sources: the
//! dissertation "Consistency for Distributed Data Stores", §2.5 and Alg. 2.1 (hybrid logical clock),
//! §5.2 (dependency sets, version vectors, data center stable vectors);
//! document 000, §3.1 (hybrid vector clock).

mod hlc;
mod hybrid_vector;
mod timestamp;
mod vector;
mod watch;

pub use hlc::{Hlc, TooFarAhead};
pub use hybrid_vector::{Epsilon, HybridVector, MOST_PROCESSES, NoHybridVector, Relation, relate};
pub use timestamp::Timestamp;
pub use vector::{DcId, DependencyVector, StableVector, TimestampVector};
pub use watch::{ClockWatch, KNOWN_US, Trust};
