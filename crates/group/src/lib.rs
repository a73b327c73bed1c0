//! Servers of a data center that keep a partition together.
//!
//! - [`Log`], [`RaftMessage`], [`Member`]: the library's Raft, stepped, with a byte form of our own. Protocols that agree on what they do (`session`, `strong`) drive it themselves.
//! - [`Replicas`]: where the protocol knows of one server only, the replicas under it agree on the records of its log: updates, states, collections ([`record`]). The leader runs the server over a
//!   store that holds back what is not agreed on yet ([`ahead`]); the others keep the same records. Failover is a restart: the next leader starts from the records, as the server would after a crash.

pub mod ahead;
mod frame;
mod log;
mod member;
mod message;
pub mod record;
mod replicas;

pub use ahead::Ahead;
pub use frame::{Frame, describe as frame_inside};
pub use log::Log;
pub use member::{Kept, Member, Role, Wanted};
pub use message::{LogEntry, RaftMessage, library_entry, snapshot, stable_at};
pub use replicas::{Replicas, Seat};

/// The bugs that can be planted in replicas of a server.
pub const PLANTED: &[&str] = &[
    "replicas-reply-before-majority",
    "replicas-lead-before-applied",
    "replicas-keep-undecided",
    "replicas-promise-before-disk",
    "replicas-forget-own-log",
    "replicas-pages-without-collections",
    "replicas-lease-without-end",
];
