//! What a protocol can do, one question at a time. Whoever stands around it asks what it can, never which one it is.

/// Which servers of a partition something is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reach {
    /// One of a data center; what replicas it has stand under it.
    Server,
    /// All those of one data center.
    DataCenter,
    /// Those of all data centers.
    Everywhere,
}

/// What a protocol can do ([`crate::protocol::Protocol::CAN`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Which servers agree on what a partition keeps, by messages of the protocol itself, which it sends with [`crate::step::Effects::send_member`]. [`Reach::Server`]: each keeps
    /// what comes to it, and replicas under it are unknown to the protocol.
    pub members: Reach,
    /// Links carry a server's updates to its partition's servers in other data centers. Else its members do, or the protocol ships them.
    pub links: bool,
    /// For all clients of which servers it decides whether a write may be made: conditions on what was there, and guards. `None`: it cannot, since another data center may write
    /// at the same time.
    pub decides: Option<Reach>,
    /// A time names a cut of what a partition keeps: versions have their server's own timestamps, and come in that order. What rests on that is reading the past, backups of a moment,
    /// the change feed, and rollbacks.
    pub timed: bool,
    /// How many servers of a partition a data center can have: members, or replicas under the one that the protocol knows of.
    pub most_replicas: u8,
    /// It answers an operation that may take only so long with what it has then ([`crate::protocol::Client::bounded`]). Elsewhere such an operation fails when its time is up.
    pub keeps_bounds: bool,
    /// It decides by itself reads of one key that decide writes of another ([`crate::protocol::Client::test_write`]).
    pub decides_tests: bool,
    /// Versions carry what they depend on, so that a rollback can leave alone what does not depend on what was wrong ([`crate::protocol::Protocol::may_depend`]).
    pub knows_the_past: bool,
    /// A server's partition can be split into several: what is kept of the others, and carried by clients, holds for servers of parts; and so do the entries of its own log, as
    /// [`crate::protocol::Protocol::entry_within`] says.
    pub splits: bool,
    /// A data center can come while the others serve, where nobody was or in the place of one that is lost: its servers are filled by the links, or become members of the group.
    pub lets_in: bool,
}

impl Capabilities {
    /// One server of a partition in each data center, and links between them.
    pub const LINKED: Capabilities = Capabilities {
        members: Reach::Server,
        links: true,
        decides: None,
        timed: true,
        most_replicas: 9,
        keeps_bounds: false,
        decides_tests: false,
        knows_the_past: false,
        splits: true,
        lets_in: true,
    };

    /// Members that agree on each write, for as many as `reach` says.
    pub const fn agreed(reach: Reach) -> Capabilities {
        Capabilities { members: reach, links: false, decides: Some(reach), timed: false, splits: false, lets_in: false, ..Capabilities::LINKED }
    }

    /// Whether several servers agree on what a partition keeps, by messages of the protocol itself.
    pub const fn agrees(&self) -> bool {
        !matches!(self.members, Reach::Server)
    }

    /// Whether those of all data centers do.
    pub const fn agrees_everywhere(&self) -> bool {
        matches!(self.members, Reach::Everywhere)
    }
}
