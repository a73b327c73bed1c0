//! Rheostat's workloads, latency recording and experiments.
pub mod error;
pub mod latency;
pub mod limit;
pub mod load;
pub mod progress;
pub mod report;
pub mod rounds;
pub mod table;
pub mod target;
mod thread;
pub mod visibility;
pub mod workload;
