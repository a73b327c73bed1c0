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
        .env("CASSANDRA_TLS", "1")
        // What is made of it here is over before better code pays.
        .env("CASSANDRA_TIERS", "1")
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

/// The Cassandra that all tests of this process share, if they start one.
fn shared() -> Option<&'static Started> {
    static SHARED: OnceLock<Option<Started>> = OnceLock::new();
    SHARED.get_or_init(Started::new).as_ref()
}

/// The address of the Cassandra that all tests of this process share.
pub fn address() -> Option<String> {
    std::env::var("RHEOSTAT_CASSANDRA").ok().or_else(|| shared().map(|started| started.address.clone()))
}

/// The certificate that the shared Cassandra shows, PEM; `None` where there is none, or it is another's.
pub fn certificate() -> Option<Vec<u8>> {
    if std::env::var("RHEOSTAT_CASSANDRA").is_ok() {
        eprintln!("not tested: what RHEOSTAT_CASSANDRA names may have no TLS");
        return None;
    }
    shared().map(|started| std::fs::read(started.folder.join("authority.pem")).expect("there is a certificate"))
}

/// Connected to it.
pub fn cassandra() -> Option<Arc<Cassandra>> {
    static SHARED: OnceLock<Option<Arc<Cassandra>>> = OnceLock::new();
    SHARED.get_or_init(|| address().map(|address| connect(settings(&address)))).clone()
}

/// What the shared Cassandra answers to `texts`.
fn query(texts: &[String]) -> Vec<scylla::response::query_result::QueryResult> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let address = address().expect("a Cassandra");
        let session = scylla::client::session_builder::SessionBuilder::new().known_node(address).build().await.expect("connects");
        let mut answers = Vec::new();
        for text in texts {
            answers.push(session.query_unpaged(text.as_str(), ()).await.expect("answers"));
        }
        answers
    })
}

/// How many rows of `store` there are in `table`.
pub fn rows(table: &str, store: u64) -> i64 {
    let text = format!("SELECT COUNT(*) FROM rheostat_tests.{table} WHERE store = {} ALLOW FILTERING", store.cast_signed());
    let found = query(&[text]).pop().expect("one answer").into_rows_result().expect("has rows");
    found.first_row::<(i64,)>().expect("has a number").0
}

/// Has `keys` of `store`, which was opened once when they were written, as if they had not come.
pub fn lose_rows(store: u64, keys: &[Vec<u8>]) {
    let last_of_first_opening = (1i64 << 41) - 1;
    let delete = |key: &Vec<u8>| {
        let bucket = u32::from(key[0]) << 4 | u32::from(key[1]) >> 4;
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let store = store.cast_signed();
        format!(
            "DELETE FROM rheostat_tests.chains USING TIMESTAMP {last_of_first_opening} WHERE store = {store} AND bucket = {bucket} AND key = 0x{hex}"
        )
    };
    query(&keys.iter().map(delete).collect::<Vec<_>>());
}

/// Has the number of keys of `store` as a release kept it that did not name those that may not be there.
pub fn count_as_before(store: u64, keys: u64) {
    query(&[format!("UPDATE rheostat_tests.records SET keys = {keys} WHERE store = {}", store.cast_signed())]);
}
