//! Causal consistency whose view follows its clients: the adaptive framework ACCF (dissertation, chapter 7 and §9.6).
//!
//! Promises, per keyspace: causal+ consistency with last-writer-wins for GET and read-only transactions, snapshots that are causally consistent in
//! themselves, the four session guarantees, convergence. A session that reads within its checking group does not wait; outside it may wait, and never
//! sees an effect without its cause. A partition need not be held by every data center.
//! Checkers: `causal`, `snapshot`, `sessions`, `convergence`, `durability`.
//! Needs: nothing of the physical clocks for safety; the links' order.
//! Leaves out: changing the tracking groups of a keyspace that has data; dependencies between keyspaces.
//!
//! `PAPER.md` maps the paper's lines to functions and tests, and proves the rule.

mod client;
mod groups;
mod message;
mod options;
mod server;
mod stabilization;
mod vector;

pub use client::AdaptiveClient;
pub use groups::Table;
pub use message::{Message, Meta, Reply, Request};
pub use options::{AdaptiveOptions, Choose, Tracking};
pub use server::{Adaptive, AdaptiveCut};
pub use vector::{Track, TrackVector};

/// The bugs that can be planted; each name stands again at the line that it breaks.
pub const PLANTED: &[&str] = &[
    "read-dependency-dropped",
    "own-write-not-remembered",
    "read-without-waiting",
    "bound-without-session",
    "timestamp-ignores-dependencies",
    "version-vector-as-maximum",
    "snapshot-below-session",
    "snapshot-ignores-dependencies",
    "slice-without-waiting",
    "tombstone-collected-early",
    "cut-ignores-transactions",
];
