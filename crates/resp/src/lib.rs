//! RESP, the protocol of Redis' clients, as pure functions: bytes to commands, replies to bytes.
//!
//! Nothing here does I/O, reads a clock, or knows the server. A connection's way through the room:
//!
//! 1. It reads what has arrived into one buffer and calls [`Parser::next`] until no whole request is left, then drops
//!    [`Parser::consume`] bytes from the front.
//! 2. [`Command::parse`] turns each request's [`Arguments`] into a typed command, or into an error to be answered. Where a
//!    connection must first authenticate, [`resolve`] and the entry's flags come before.
//! 3. It executes the command. Most are one operation on a key, [`Command::One`], which says itself how its outcome becomes a reply ([`Render`]); the
//!    replies of others it writes with [`ReplyWriter`]. What the table of commands can answer by itself,
//!    [`Command::Catalogue`] and [`Command::Help`], needs nothing else.
//!
//! [`received`] is the client's half: replies that are read; [`encode_request`] writes requests.
//!
//! [`table`] is the one list of commands: arity, flags, keys, documentation, and why what is missing is missing.

pub mod ahead;
pub mod arguments;
pub mod command;
mod inline;
pub mod number;
pub mod parser;
pub mod received;
pub mod render;
pub mod reply;
pub mod table;

pub use arguments::{Arguments, Kept, encode_request};
pub use command::{Command, CommandError, Request, resolve};
pub use parser::{Limits, Parser, ProtocolError};
pub use render::Render;
pub use reply::{ReplyWriter, RespVersion};
