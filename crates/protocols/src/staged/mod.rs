//! Operations that answer within a latency bound with the best consistency possible (dConssandra: staged replication, and the choice of its steps by learned costs).
//!
//! Promises: operations without a bound are linearizable (checker `linearizable`); a bounded read returns a prefix of the one order in which all replicas make the ordered writes, never
//! one that is behind what its session has read (checkers `sessions`, `stages`); data centers converge; what was answered as written is not lost while a majority of the partition's
//! servers keep their disks. Needs: a log on disk. Leaves out: several servers of a partition in one data center, and the paper's files and compaction (`PAPER.md`).

mod choice;
mod client;
mod coordination;
mod costs;
mod execution;
mod message;
mod options;
mod reads;
mod recent;
mod reception;
mod record;
mod server;
mod state;
mod steps;

pub use choice::{Choice, Sort, Standing, choose};
pub use client::StagedClient;
pub use costs::{Asked, Costs, Heard, Led, Line, Price, View, Ways, steps};
pub use message::{Ballot, Batch, Command, Held, Message, Past, Reply, Request};
pub use options::{Estimate, StagedOptions};
pub use server::Staged;
pub use steps::{Condition, STEPS, Stage, Step, starts};
