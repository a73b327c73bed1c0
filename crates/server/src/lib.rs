//! Rheostat's server: shards, links, RESP, gRPC, metrics, configuration.
//!
//! - [`node`]: a node, started and stopped as one; [`config`]: what it is told.
//! - [`router`]: the way to every key from any thread; [`keyspace`], [`topology`], [`status`]: what is known of the cluster.
//! - `shard`: a thread that owns some partitions; `connection`: RESP clients on it ([`rheostat_resp`] has the protocol).
//! - `peer`: connections between nodes.
//! - [`spreading`]: leaders spread over the nodes by themselves.
//! - `seats`, `moving`: servers that are at other nodes than the configuration says, and how they come there.
//! - `load`: operations that took long, keys that are asked most, who is connected.
//! - [`grpc`], [`admin`], [`metrics`]: the other front ends; `console`: pages for people on the admin port; [`tls`]: certificates; [`probe`]: asking a node whether it serves.
//! - [`monitoring`]: a dashboard and alerts, made from the metrics.

mod access;
pub mod admin;
mod attention;
mod beginning;
mod clocks;
mod cold;
pub mod config;
mod connection;
mod console;
mod counters;
mod descriptors;
mod drained;
mod driver;
mod faults;
mod feed;
mod folder;
pub mod grpc;
mod guard;
pub mod keyspace;
mod leads;
mod leaving;
mod life;
mod load;
mod lost;
mod memory;
pub mod metrics;
pub mod monitoring;
mod monitors;
mod moving;
mod named;
pub mod node;
mod node_proof;
mod opening;
mod peer;
mod placement;
pub mod probe;
mod process;
mod receipts;
pub mod router;
pub mod seats;
mod service_levels;
mod shard;
mod shared;
mod socket;
mod space;
mod splitting;
pub mod spreading;
pub mod status;
mod throttle;
pub mod tls;
mod token_keys;
pub mod topology;
pub mod users;

pub use access::ScanPage;
pub use config::NodeConfig;
pub use console::designer;
pub use folder::FolderError;
pub use lost::{Lost, Standing, StreamEnd};
pub use memory::{available, resident};
pub use monitors::{MonitorInfo, MonitorStatus, Told, What};
pub use moving::ComingInfo;
pub use node::{Listeners, Node, StartError};
pub use peer::{Formats, PEER_FORMATS};
pub use router::Router;
pub use splitting::{parts_of_each, preparing::Progress};
pub use token_keys::KeyFileError;
