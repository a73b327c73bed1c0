//! Whole nodes in one process, on loopback, with real sockets and disks.

mod client;
mod clocks;
mod cluster;
mod commands;
mod counters;
mod dial;
mod encrypted;
mod full_disk;
mod hostile;
mod lifecycle;
mod limits;
mod lost;
mod monitors;
mod multi;
mod past;
mod pipelines;
mod pools;
mod quorums;
mod receipts;
mod replicas;
mod replication;
mod rollback;
mod routing;
mod service_levels;
mod tasks;
mod tokens;
