//! The stores that have rows in a Cassandra, and how the rows of one that nobody has any more are deleted:
//!
//!     cargo run --release -p rheostat-cql --example stores -- 127.0.0.1:9042 rheostat
//!     cargo run --release -p rheostat-cql --example stores -- 127.0.0.1:9042 rheostat delete 0123456789abcdef
//!
//! Numbers are as in the file `cluster` of a node's data directory. User and password, if Cassandra wants them, are in `CASSANDRA_USER` and `CASSANDRA_PASSWORD`; with `CASSANDRA_AUTHORITY`, a PEM file, it is spoken to
//! with TLS.

mod common;

use rheostat_cql::Cassandra;
use rheostat_storage::engine::Engines;
use std::process::ExitCode;

fn run(arguments: &[String]) -> Result<(), String> {
    let usage = || "stores HOST:PORT KEYSPACE [delete NUMBER]".to_owned();
    let (address, keyspace, rest) = match arguments {
        [address, keyspace, rest @ ..] => (address, keyspace, rest),
        _ => return Err(usage()),
    };
    let cassandra = Cassandra::connect(common::settings(address, keyspace)?).map_err(|error| error.to_string())?;
    let stores = cassandra.stores().map_err(|error| error.to_string())?;
    match rest {
        [] => stores.iter().for_each(|store| println!("{store:016x}")),
        [delete, number] if delete == "delete" => {
            let number = u64::from_str_radix(number, 16).map_err(|error| format!("{number}: {error}"))?;
            if !stores.contains(&number) {
                return Err(format!("there is no store {number:016x}"));
            }
            cassandra.delete(number).map_err(|error| error.to_string())?;
        }
        _ => return Err(usage()),
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("stores: {why}");
            ExitCode::FAILURE
        }
    }
}
