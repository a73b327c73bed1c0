//! Rheostat's server: shards, links, RESP, gRPC, metrics, configuration.

pub mod resp;
