//! Causal consistency with physical clocks and one stable time: GentleRain (dissertation, sections 3.2.2, 5.1 and 5.5.5), the baseline of CausalSpartanX.
//!
//! Promises, per keyspace: what `causal` promises, whatever the clocks do. Checkers: `causal`, `snapshot`, `sessions`, `convergence`, `durability`.
//! Needs: clocks that agree, to be fast: a write waits until its server's clock has passed what it depends on, a remote version until the
//! slowest partition of the slowest data center has passed it, a transaction until everything that its session has seen is stable.
//! Leaves out: the fallback for transactions whose session is far ahead of the stable time; dependencies between keyspaces.
//!
//! `PAPER.md` maps the paper's lines to functions and tests, and explains the two corrected rules (deviations D1 and D2).

mod client;
mod message;
mod server;
mod stabilization;

pub use client::GentleRainClient;
pub use message::{Message, Meta, Reply, Request};
pub use server::{GentleRain, GentleRainCut, GentleRainOptions};

/// The bugs that can be planted; each name stands again at the line that it breaks.
pub const PLANTED: &[&str] = &[
    "put-does-not-wait",
    "put-without-stable-time",
    "stable-time-not-saved-before-write",
    "read-not-remembered",
    "remote-version-visible-at-once",
    "travelling-session-not-held",
    "transaction-does-not-wait",
    "slice-at-its-own-stable-time",
    "own-clock-left-out",
    "stable-time-as-maximum",
    "stable-time-forgotten-at-restart",
    "tombstone-collected-early",
];
