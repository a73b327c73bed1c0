//! Servers of a data center that keep a partition together.
//!
//! - [`Log`], [`RaftMessage`], [`Member`]: the library's Raft, stepped, with a byte form of our own. Protocols that agree on what they do (`session`, `strong`) drive it themselves.
//! - [`Standing`], [`Configuration`]: who belongs to a group. A member that lost its disk comes back as somebody else, and is counted when it has caught up.
//! - [`Replicas`]: where the protocol knows of one server only, the replicas under it agree on the records of its log: updates, states, collections ([`record`]). The leader runs the server over a
//!   store that holds back what is not agreed on yet ([`ahead`]); the others keep the same records. Failover is a restart: the next leader starts from the records, as the server would after a crash.

pub mod ahead;
mod configuration;
mod first;
mod frame;
mod front;
pub mod gauges;
mod log;
mod member;
mod message;
pub mod record;
mod replicas;
mod standing;

pub use ahead::Ahead;
pub use configuration::{Configuration, generation_of, seat_of};
pub use first::convene;
pub use frame::{Frame, describe as frame_inside};
pub use log::Log;
pub use member::{Kept, Member, Role, Wanted, is_change};
pub use message::{LogEntry, Mark, RaftMessage, entry_within, library_entry, mark_of, snapshot};
pub use replicas::{Replicas, Seat};
pub use standing::{Next, Standing, Stood, Verdict, Word};

/// The bugs that can be planted in replicas of a server.
pub const PLANTED: &[&str] = &[
    "replicas-reply-before-majority",
    "replicas-lead-before-applied",
    "replicas-keep-undecided",
    "replicas-promise-before-disk",
    "replicas-forget-own-log",
    "replicas-pages-without-collections",
    "replicas-lease-without-end",
    "replicas-followers-answer-anything",
];

/// The bugs that can be planted in how a leader hands over.
pub const PLANTED_IN_HAND_OVER: &[&str] = &["replicas-hand-over-while-serving"];

/// The bugs that can be planted in how members of a group are replaced, whoever drives it.
pub const PLANTED_IN_MEMBERS: &[&str] = &["members-lost-as-old-self", "members-configuration-not-kept", "members-snapshot-without-configuration"];
