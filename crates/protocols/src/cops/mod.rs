//! Causal consistency with explicit dependencies: COPS-GT (dissertation, sections 3.2.1 and 3.3), the baseline of explicit tracking.
//!
//! Promises, per keyspace: what `causal` promises. Checkers: `causal`, `snapshot`, `sessions`, `convergence`, `durability`.
//! Needs: nothing of the physical clocks; the links' order. A remote version is shown when the partitions that hold what it depends on
//! have said that they show it: no wait for what it does not depend on.
//! Leaves out: dependencies between keyspaces.
//!
//! `PAPER.md` maps the paper's lines to functions and tests, and says how old dependencies are collected (D1).

mod checks;
mod client;
mod message;
mod server;
mod stabilization;
mod transaction;

pub use client::CopsClient;
pub use message::{Answer, Dependency, Message, Meta, Reply, Request, Seen};
pub use server::{Cops, CopsCut, CopsOptions};

/// The bugs that can be planted; each name stands again at the line that it breaks.
pub const PLANTED: &[&str] = &[
    "remote-version-visible-at-once",
    "first-dependency-only",
    "check-answered-at-once",
    "checks-forgotten-at-restart",
    "read-not-remembered",
    "context-cleared-at-put",
    "nearest-list-only",
    "collected-without-trace",
    "one-round-only",
    "slice-without-raising-clock",
    "travelling-session-not-held",
    "tombstone-collected-early",
];
