//! Causal consistency with stable vectors: CausalSpartanX (dissertation, chapter 5).
//!
//! Promises, per keyspace: causal+ consistency with last-writer-wins for GET and read-only transactions, snapshots that are causally
//! consistent in themselves, the four session guarantees (they follow), convergence, local writes visible to local GETs at once.
//! Checkers: `causal`, `snapshot`, `sessions`, `convergence`, `durability`.
//! Needs: nothing of the physical clocks for safety; the links' order; a session that moves to another data center waits there until
//! what it depends on has arrived.
//! Leaves out: dependencies between keyspaces.
//!
//! `PAPER.md` maps the paper's lines to functions and tests, and explains the corrected rule (deviation D1).

mod client;
mod message;
mod meta;
mod orion;
mod server;
mod stabilization;

pub use client::CausalClient;
pub use message::{Message, Reply, Request};
pub use meta::Meta;
pub use orion::{Forecast, Prediction, Report};
pub use server::{Causal, CausalCut, CausalOptions};

/// The bugs that can be planted; each name stands again at the line that it breaks.
pub const PLANTED: &[&str] = &[
    "first-read-dependency-dropped",
    "own-write-not-remembered",
    "travelling-session-not-held",
    "remote-version-visible-at-once",
    "timestamp-ignores-dependencies",
    "snapshot-below-session",
    "slice-without-raising-clock",
    "snapshot-ignores-dependencies",
    "local-version-in-every-snapshot",
    "stable-vector-as-maximum",
    "tombstone-collected-early",
    "expired-uncovers-an-older-one",
    "cut-ignores-transactions",
    "stable-vector-forgotten-at-restart",
    "predicted-ignores-own-writes",
    "predicted-snapshot-goes-back",
    "predicted-retry-with-empty-vector",
    "predicted-validity-not-checked",
    "predicted-snapshot-not-kept",
];
