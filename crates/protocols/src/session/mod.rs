//! Session guarantees per operation over Raft groups (dissertation, chapter 4: NuKV), and the same with one group over all data centers.
//!
//! Promises: each operation has the session guarantees that it asks for (checker `sessions`); at level `local` and `strong` operations are linearizable
//! (checker `linearizable`); data centers converge; nothing acknowledged is lost while a majority of each group keeps its disk. Needs: a log on disk.
//! Leaves out: dependencies between partitions, changes of the group's members while it runs.

mod apply;
mod client;
mod group;
mod guarded;
mod message;
mod reads;
mod server;
mod ship;
mod snapshot;

pub use client::SessionClient;
pub use message::{Command, Entry, Message, Reply, Request};
pub use rheostat_group::{LogEntry, RaftMessage};
pub use server::{Everywhere, InDataCenter, Replicated, Scope, SessionOptions};

/// Protocol `session`: a Raft group per partition in each data center.
pub type Session = Replicated<InDataCenter>;

/// Protocol `strong`: a Raft group per partition over all data centers.
pub type Strong = Replicated<Everywhere>;
