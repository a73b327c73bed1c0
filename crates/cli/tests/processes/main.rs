//! What `rheostat` does as processes: clusters that are killed, cut off, moved, filled and taken apart, and commands that an operator gives them. One program, since each would link the whole of the server.

#[path = "support/agreement.rs"]
mod agreement;
#[path = "support/ctl.rs"]
mod control;
#[path = "support/plain.rs"]
mod plain;
#[path = "support/recorder.rs"]
mod recorder;
#[allow(dead_code)]
#[path = "../../../objects/tests/support/mod.rs"]
mod store;
mod support;

mod archive;
mod backup;
mod cluster;
mod cold;
mod descriptors;
mod drain;
mod failover;
mod fleet;
mod joined;
mod lab_processes;
mod memory;
mod moves;
mod nemesis;
mod replicas;
mod seats;
mod split;
