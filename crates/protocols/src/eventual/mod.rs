//! Eventual consistency, last writer wins: the baseline (dissertation, chapter 8: "Eventual").
//!
//! Promises: data centers that receive the same updates hold the same versions (checker `convergence`), and nothing acknowledged
//! durably is lost (checker `durability`). Needs: the links' order only for collecting tombstones. Leaves out: everything else.

mod client;
mod message;
mod server;

pub use client::EventualClient;
pub use message::{Message, Reply, Request};
pub use server::{Eventual, EventualOptions};
