//! Rheostat's gRPC interface: the messages, clients and servers generated from `rheostat/v1/rheostat.proto`.
//!
//! The `.proto` file is the documentation of every message and field. Server and client library share this crate, so that
//! the interface is compiled once.

/// Version 1 of the interface.
pub mod v1 {
    #![allow(missing_docs, clippy::all)]
    tonic::include_proto!("rheostat.v1");
}

pub mod alarm;
pub mod dial;
pub mod export;
pub mod glance;
pub mod notch;
pub mod rights;
pub mod rollback;

/// The metadata of a refusal that says what was refused, where the status alone does not.
pub const REFUSED: &str = "rheostat-refused";

/// In [`REFUSED`]: the session token. Nothing was done; the same request without the token, or with one that a server gave, is another matter.
pub const REFUSED_SESSION: &str = "session";

/// In [`REFUSED`]: what was asked for is not kept any more.
pub const REFUSED_TOO_OLD: &str = "too-old";

/// The metadata of an error that has the session's token as it is now: the write is made, though what was asked of it besides was not to be had. No longer than [`MOST_TOKEN_BYTES`].
pub const SESSION_HEADER: &str = "rheostat-session";

/// Metadata of more bytes some clients refuse, and the whole answer with them.
pub const MOST_TOKEN_BYTES: usize = 4096;

/// The metadata of an answer that names the node of this data center that had better be asked for its key the next time: the one that was asked had to ask it.
pub const HOME_HEADER: &str = "rheostat-home";

/// The encoded `FileDescriptorSet` of the interface, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
