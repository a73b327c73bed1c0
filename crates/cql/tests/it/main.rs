//! The engine over CQL against a real Cassandra. One program, so that one Cassandra serves all tests.

mod cassandra;
mod counters;
#[path = "../../../storage/tests/it/directory.rs"]
mod directory;
#[path = "../../../storage/tests/it/driver.rs"]
mod driver;
mod engine;
mod late;
#[path = "../../../storage/tests/it/operation.rs"]
mod operation;
mod store;
mod tls;
