//! The engine over CQL against a real Cassandra. One program, so that one Cassandra serves all tests.

mod cassandra;
mod counters;
#[path = "../../../storage/tests/common/directory.rs"]
mod directory;
#[path = "../../../storage/tests/common/disk.rs"]
mod driver;
mod engine;
#[path = "../../../storage/tests/common/operation.rs"]
mod operation;
mod store;
mod tls;
