//! Rheostat's workloads, latency recording and experiments.
pub mod error;
pub mod latency;
pub mod load;
pub mod target;
pub mod workload;
