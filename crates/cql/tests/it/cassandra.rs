//! A real Cassandra for tests: the one that `RHEOSTAT_CASSANDRA` names (`host:port`), else one that `examples/cassandra/cassandra.sh` starts for this process.

use crate::directory::directory;
use rheostat_cql::{Cassandra, Consistency, Replication, Settings};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

/// A Cassandra that was started, and where its files are.
pub struct Started {
    pub address: String,
    folder: PathBuf,
}

fn script(command: &str, folder: &Path) -> (Option<i32>, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cassandra/cassandra.sh");
    let output = Command::new(script)
        .arg(command)
        .arg(folder)
        .env("CASSANDRA_WITH", std::process::id().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("the script runs");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Started {
    /// Starts one, in a folder that goes with this process; `None`, with a line that says why, where that cannot be.
    pub fn new() -> Option<Started> {
        let folder = directory().keep();
        let (code, address) = script("start", &folder);
        if code == Some(77) {
            eprintln!("not tested, for want of a Cassandra");
            return None;
        }
        assert_eq!(code, Some(0), "Cassandra starts");
        Some(Started { address, folder })
    }

    pub fn kill(&self) {
        assert_eq!(script("kill", &self.folder).0, Some(0), "Cassandra is killed");
    }

    pub fn start_again(&self) {
        assert_eq!(script("start", &self.folder), (Some(0), self.address.clone()), "Cassandra starts again where it was");
    }
}

pub fn settings(address: &str) -> Settings {
    Settings {
        replication: Some(Replication::Simple(1)),
        consistency: Consistency::LocalQuorum,
        ..Settings::new(vec![address.to_owned()], "rheostat_tests")
    }
}

pub fn connect(settings: Settings) -> Arc<Cassandra> {
    Arc::new(Cassandra::connect(settings).expect("connects"))
}

/// The address of the Cassandra that all tests of this process share.
pub fn address() -> Option<String> {
    static SHARED: OnceLock<Option<String>> = OnceLock::new();
    SHARED.get_or_init(|| std::env::var("RHEOSTAT_CASSANDRA").ok().or_else(|| Started::new().map(|started| started.address))).clone()
}

/// Connected to it.
pub fn cassandra() -> Option<Arc<Cassandra>> {
    static SHARED: OnceLock<Option<Arc<Cassandra>>> = OnceLock::new();
    SHARED.get_or_init(|| address().map(|address| connect(settings(&address)))).clone()
}

/// How many rows of `store` there are in `table`.
pub fn rows(table: &str, store: u64) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let address = address().expect("a Cassandra");
        let session = scylla::client::session_builder::SessionBuilder::new().known_node(address).build().await.expect("connects");
        let text = format!("SELECT COUNT(*) FROM rheostat_tests.{table} WHERE store = {} ALLOW FILTERING", store.cast_signed());
        let found = session.query_unpaged(text, ()).await.expect("counts").into_rows_result().expect("has rows");
        found.first_row::<(i64,)>().expect("has a number").0
    })
}
