//! Chains of checkpoints in Apache Cassandra or ScyllaDB, by CQL: an engine of stores on disk that is elsewhere ([`rheostat_storage::engine`]).
//!
//! - [`Settings`]: where Cassandra is, and how long to wait for it.
//! - `schema`: tables and statements. `layout`: keys to partitions, values to cells.
//! - [`Keys`]: keys that are written on a condition, for counters that their clients keep.
//! - `calls`: the connections, and trying again. `engine`, `write`, `walk`: one store's engine.
//!
//! What must hold: (1) whoever opened a store last changes it, and nobody else: every write carries the generation of the opening in its timestamp, and records are
//! kept on condition that no later opening came, and that none was kept since they were first sent; (2) a key's value is one cell, so a reader sees all of the old one or all of the new; (3) the number of keys is
//! raised before keys come and lowered after they have gone, and what comes or goes is named beside it before it does.

mod calls;
mod engine;
mod keys;
mod layout;
mod schema;
mod settings;
mod walk;
mod write;

pub use keys::{Keys, PutIf};
pub use settings::{Consistency, Replication, Settings};

use calls::{Calls, Patience};
use engine::CqlEngine;
use rheostat_storage::engine::{Engine, Engines};
use std::io;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Threads for all stores of a node: they wait for the network, mostly.
const THREADS: usize = 2;

/// The driver's threads. Tasks do not hold them, so that none of them ends them.
struct Threads(Option<Runtime>);

impl Threads {
    /// The result of `work`, which runs on the driver's threads; `work` has an end. Unlike the runtime's own way to wait, this may be called on another runtime's thread.
    fn wait<T: Send + 'static>(&self, work: impl Future<Output = io::Result<T>> + Send + 'static) -> io::Result<T> {
        let ended = || io::Error::other("the threads of Cassandra's driver have ended");
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.0.as_ref().ok_or_else(ended)?.spawn(async move {
            // Whoever waits does not leave.
            let _ = sender.send(work.await);
        });
        receiver.recv().map_err(|_| ended())?
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // It may be another runtime's thread, which must not wait.
            runtime.shutdown_background();
        }
    }
}

/// A Cassandra or ScyllaDB cluster, connected: the engines of a node's stores. All calls block, each for a bounded time.
pub struct Cassandra {
    calls: Arc<Calls>,
    threads: Arc<Threads>,
}

impl Cassandra {
    /// Connects, and makes keyspace and tables if they are missing and [`Settings::replication`] says how. Tries for [`Settings::open_timeout`].
    ///
    /// # Errors
    /// Those of the way, in words for the operator; `InvalidInput` for settings that no Cassandra would take.
    pub fn connect(settings: Settings) -> io::Result<Cassandra> {
        settings.check()?;
        let threads = Cassandra::threads()?;
        let calls = Arc::new(threads.wait(Calls::connect(settings))?);
        Ok(Cassandra { calls, threads })
    }

    /// Whether Cassandra could be used with these settings; changes nothing. Tries for [`Settings::open_timeout`].
    ///
    /// # Errors
    /// As [`Cassandra::connect`].
    pub fn probe(settings: Settings) -> io::Result<()> {
        settings.check()?;
        Cassandra::threads()?.wait(Calls::probe(settings))
    }

    fn threads() -> io::Result<Arc<Threads>> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).thread_name("rheostat-cql").enable_all().build()?;
        Ok(Arc::new(Threads(Some(runtime))))
    }

    /// The node ends: from now on nobody waits for a Cassandra that does not answer, for longer than a few seconds. What it does not take stays in the stores' logs.
    pub fn stop(&self) {
        self.calls.stop();
    }

    /// The numbers of the stores that have rows here.
    ///
    /// # Errors
    /// Those of the way.
    pub fn stores(&self) -> io::Result<Vec<u64>> {
        let calls = self.calls.clone();
        self.threads.wait(async move { calls.stores().await })
    }

    fn open_engine(&self, store: u64) -> io::Result<Arc<engine::Store>> {
        let calls = self.calls.clone();
        let patience = Patience::For(calls.settings.open_timeout);
        self.threads.wait(async move { engine::Store::open(calls, store, patience).await.map(Arc::new) })
    }
}

impl Engines for Cassandra {
    fn open(&self, store: u64) -> io::Result<Arc<dyn Engine>> {
        Ok(Arc::new(CqlEngine::new(self.open_engine(store)?, self.threads.clone())))
    }

    /// Whoever still had it open can change it no more; its log is then without the checkpoint that it goes on from.
    fn delete(&self, store: u64) -> io::Result<()> {
        let engine = self.open_engine(store)?;
        self.threads.wait(async move { engine.delete_all().await })
    }
}
