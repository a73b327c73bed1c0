//! Causal consistency with stable vectors, and explicit dependencies where these do not answer: the hybrid of dissertation §9.1.
//!
//! Promises, per keyspace: what `causal` promises. A remote version becomes visible as soon as what it really depends on is, though some other partition is slow.
//! Checkers: `causal`, `snapshot`, `sessions`, `convergence`, `durability`.
//! Needs: nothing of the physical clocks for safety; the links' order; a session that moves to another data center waits there until what it depends on has
//! arrived, and a read-only transaction of a session that has read ahead of the stable vector waits until that has caught up.
//! Leaves out: dependencies between keyspaces.

mod checks;
mod client;
mod message;
mod server;
mod stabilization;

pub use client::HybridClient;
pub use message::{Dependency, Message, Meta, Reply, Request};
pub use server::{Hybrid, HybridCut, HybridOptions};

/// The bugs that can be planted; each name stands again at the line that it breaks.
pub const PLANTED: &[&str] = &[
    "read-dependency-dropped",
    "own-write-not-remembered",
    "timestamp-ignores-dependencies",
    "dependency-not-checked",
    "presence-taken-for-visibility",
    "greater-version-answers",
    "travelling-session-not-held",
    "transaction-not-held",
    "confirmations-forgotten-at-restart",
    "tombstone-collected-early",
];
