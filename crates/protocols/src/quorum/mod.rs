//! Quorums of replicas, and versions that stand side by side: Voldemort's and Dynamo's design (Nguyen, Charapko, Kulkarni and Demirbas, section 2).
//!
//! Promises: a read that R replicas answer knows every write that W replicas had when the read began, if R + W is more than the replicas (checker `quorums`); no write replaces what
//! its client has not seen, unless it asks for that (checker `siblings`); data centers that receive the same updates hold the same versions (`convergence`), and nothing acknowledged
//! durably is lost (`durability`). Not linearizable: `PAPER.md` has the history. Needs: the links' order, which stands for hinted handoff. Leaves out: the monitors of that paper.

mod client;
mod context;
mod message;
mod options;
mod rounds;
mod server;
mod standing;

pub use client::QuorumClient;
pub use context::Context;
pub use message::{Message, Reply, Request};
pub use options::{QuorumOptions, Resolver};
pub use server::Quorum;
