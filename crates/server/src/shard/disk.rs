//! The threads that flush logs to disk and read from it, so that no shard waits for a disk.

use super::ReplicaIndex;
use super::mailbox::{Control, ShardHandle};
use crate::shared::lock;
use rheostat_core::store::{FlushJob, ReadJob};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that read, of a node: of its disk, which serves some reads at the same time as fast as one, and as many of what is over a network.
const READERS: usize = 4;

/// A flush that takes longer is told to operators: the disk stands still.
const SILENT_AFTER: Duration = Duration::from_secs(5);

struct Flush {
    shard: ShardHandle,
    replica: ReplicaIndex,
    job: FlushJob,
}

struct Read {
    shard: ShardHandle,
    replica: ReplicaIndex,
    job: ReadJob,
}

/// Since when flushes that are under way have not ended, the first begun first.
#[derive(Clone, Default)]
pub(crate) struct Silence(Arc<Mutex<Vec<Arc<Instant>>>>);

impl Silence {
    /// A flush begins; it has ended when what is returned is dropped.
    pub(super) fn begins(&self) -> Flushing {
        let since = Arc::new(Instant::now());
        lock(&self.0).push(since.clone());
        Flushing { of: self.clone(), since }
    }

    /// For how many seconds the disk has not answered, if that is long.
    pub(crate) fn seconds(&self) -> Option<u64> {
        let waited = lock(&self.0).first()?.elapsed();
        (waited >= SILENT_AFTER).then_some(waited.as_secs())
    }
}

/// A flush that is under way.
pub(super) struct Flushing {
    of: Silence,
    since: Arc<Instant>,
}

impl Drop for Flushing {
    fn drop(&mut self) {
        lock(&self.of.0).retain(|other| !Arc::ptr_eq(other, &self.since));
    }
}

/// Takes jobs; its clones feed the same threads, which end when the last of them is gone.
#[derive(Clone)]
pub(crate) struct Disk {
    flushes: mpsc::Sender<Flush>,
    /// Other flushes wait behind the one that is under way.
    silence: Silence,
    reads: mpsc::Sender<Read>,
    far: Option<mpsc::Sender<Read>>,
}

impl Disk {
    /// Starts the threads; `far` says whether something will be read over a network. Errors: the operating system has no more.
    pub(crate) fn start(name: &str, far: bool) -> io::Result<(Disk, Vec<JoinHandle<()>>)> {
        // Bounded by construction: a replica has at most one flush and a few reads under way.
        let (flushes, to_flush) = mpsc::channel::<Flush>();
        let silence = Silence::default();
        let told = silence.clone();
        let flush = move || {
            for Flush { shard, replica, job } in to_flush {
                let flushing = told.begins();
                let begun = *flushing.since;
                // What the disk has of it is not known, as after an error; others' flushes go on.
                let flushed = catch_unwind(AssertUnwindSafe(|| job.run())).unwrap_or_else(|_| Err(io::Error::other("the flush has panicked")));
                drop(flushing);
                shard.control(Control::Flushed { replica, flushed, took_us: begun.elapsed().as_micros() as u64 });
            }
        };
        let mut threads = vec![std::thread::Builder::new().name(format!("{name}-flush")).spawn(flush)?];
        let reads = readers(name, &mut threads)?;
        let far = if far { Some(readers(name, &mut threads)?) } else { None };
        Ok((Disk { flushes, silence, reads, far }, threads))
    }

    /// Has `job` of `replica` done; `shard` is told when it is.
    pub(super) fn flush(&self, shard: &ShardHandle, replica: ReplicaIndex, job: FlushJob) {
        if self.flushes.send(Flush { shard: shard.clone(), replica, job }).is_err() {
            shard.control(Control::Flushed { replica, flushed: Err(io::Error::other("the flushing thread has ended")), took_us: 0 });
        }
    }

    /// How long it has not answered.
    pub(crate) fn silence(&self) -> &Silence {
        &self.silence
    }

    /// As [`Disk::flush`]. The threads end after all shards.
    pub(super) fn read(&self, shard: &ShardHandle, replica: ReplicaIndex, job: ReadJob) {
        // Whoever waits for it has a deadline.
        let to = self.far.as_ref().filter(|_| job.is_far).unwrap_or(&self.reads);
        drop(to.send(Read { shard: shard.clone(), replica, job }));
    }
}

/// Starts threads that read what is sent.
fn readers(name: &str, threads: &mut Vec<JoinHandle<()>>) -> io::Result<mpsc::Sender<Read>> {
    let (reads, to_read) = mpsc::channel::<Read>();
    let to_read = Arc::new(Mutex::new(to_read));
    for _ in 0..READERS {
        let to_read = to_read.clone();
        // One thread waits for the next read, the others for their turn to wait.
        let next = move || lock(&to_read).recv();
        let read = move || {
            while let Ok(Read { shard, replica, job }) = next() {
                // Others' reads go on.
                let read = catch_unwind(AssertUnwindSafe(|| job.run())).map_err(|_| io::Error::other("the read has panicked"));
                shard.control(Control::Read { replica, read });
            }
        };
        threads.push(std::thread::Builder::new().name(format!("{name}-read")).spawn(read)?);
    }
    Ok(reads)
}

#[cfg(test)]
mod tests {
    use super::super::Shard;
    use super::super::mailbox::{Answer, Sequence, mailbox};
    use super::*;
    use crate::config::{Listen, NodeConfig};
    use crate::node::{Node, StartError};
    use crate::probe;
    use crate::topology::NodeId;
    use rheostat_core::dial::Dial;
    use rheostat_core::ids::{KeyspaceId, Now, PartitionId};
    use rheostat_core::operation::Operation;
    use rheostat_core::store::{Position, ReadDone};
    use rheostat_core::version::Item;
    use std::cell::RefCell;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::Path;
    use std::rc::Rc;
    use tokio::sync::oneshot;

    /// Comes to what `done` looks for.
    async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !done().await {
            assert!(Instant::now() < until, "{what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn is_told(config: &NodeConfig, status: u16, words: &str) {
        let told = async || probe::ask(config, "/ready").await.is_ok_and(|(told, why)| told == status && why.contains(words));
        eventually(words, told).await;
    }

    /// What `ask` says on the thread of the only shard.
    async fn on_shard<T: Send + 'static>(node: &Node, ask: impl FnOnce(&mut Shard) -> T + Send + 'static) -> T {
        let (sender, answer) = oneshot::channel();
        let task = move |shard: &Rc<RefCell<Shard>>| drop(sender.send(ask(&mut shard.borrow_mut())));
        node.router().shared().shards[0].control(Control::Run(Box::new(task)));
        answer.await.unwrap()
    }

    fn put() -> Operation {
        let item = Item { key: b"x".as_slice().into(), value: Some(b"y".as_slice().into()), expires_ms: 0 };
        Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() }
    }

    /// A node whose disk answers nothing from now on, until what is returned last is dropped; and a write that waits for it.
    async fn standing_still(data: &Path) -> (Node, NodeConfig, tokio::task::JoinHandle<()>, mpsc::Sender<()>) {
        let mut config = NodeConfig::new("disk", "a1", "a");
        config.listen = Listen { admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), ..Listen::default() };
        config.data_dir = Some(data.to_owned());
        config.keyspaces = vec![toml::from_str("name = \"k\"\nprotocol = \"causal\"\ndurability = \"always\"").unwrap()];
        let node = Node::start(config.clone()).await.unwrap();
        config.listen = node.addresses().clone();
        is_told(&config, 200, "ready").await;
        let (answers, stands) = mpsc::channel::<()>();
        let job = FlushJob(Box::new(move || {
            // It ends when the other end is dropped.
            let _ = stands.recv();
            Ok(Position(0))
        }));
        on_shard(&node, move |shard| shard.disk.flush(&shard.shared.shards[0], ReplicaIndex(0), job)).await;
        let router = node.router().clone();
        let writing = tokio::spawn(async move {
            let session = router.keyspace(KeyspaceId(0)).unwrap().new_session();
            drop(router.execute(KeyspaceId(0), PartitionId(0), session, put()).await);
        });
        eventually("the write is made", async || on_shard(&node, |shard| shard.held.len()).await == 1).await;
        (node, config, writing, answers)
    }

    #[tokio::test]
    async fn a_disk_that_stands_still_is_told_until_it_answers() {
        let data = tempfile::tempdir().unwrap();
        let (node, config, writing, answers) = standing_still(data.path()).await;
        is_told(&config, 503, "keyspace k, partition server ").await;
        is_told(&config, 503, ": its disk has not answered for ").await;
        assert!(node.router().status().await.replicas[0].silent_disk().is_some());
        drop(answers);
        is_told(&config, 200, "ready").await;
        writing.await.unwrap();
        node.shutdown().await;
    }

    #[tokio::test]
    async fn a_stop_does_not_wait_for_a_disk_that_stands_still_and_nobody_else_has_the_directory() {
        let data = tempfile::tempdir().unwrap();
        let (node, mut config, writing, answers) = standing_still(data.path()).await;
        tokio::time::timeout(Duration::from_secs(60), node.shutdown()).await.expect("it ends");
        config.listen = Listen::default();
        let again = Node::start(config).await;
        assert!(matches!(again, Err(StartError::Folder(_))));
        // What still waits for the disk ends.
        drop(answers);
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_not_kept_until_the_disk_answers() {
        let data = tempfile::tempdir().unwrap();
        let (node, _, writing, answers) = standing_still(data.path()).await;
        writing.abort();
        eventually("it is let go", async || on_shard(&node, |shard| shard.held.is_empty()).await).await;
        drop(answers);
        node.shutdown().await;
    }

    #[tokio::test]
    async fn what_another_node_has_given_up_is_not_kept_until_the_disk_answers() {
        let data = tempfile::tempdir().unwrap();
        let (node, _, writing, answers) = standing_still(data.path()).await;
        let session = node.router().keyspace(KeyspaceId(0)).unwrap().new_session();
        let kept = move |shard: &mut Shard| {
            shard.place(Sequence::one(KeyspaceId(0), PartitionId(0), put(), Answer::Peer { node: NodeId(0), request: 1 }), session);
            let now = shard.now();
            [0, 3_600_000_000].map(|later_us| {
                shard.sweep(Now { monotonic_us: now.monotonic_us + later_us, ..now });
                shard.held.len()
            })
        };
        assert_eq!(on_shard(&node, kept).await, [2, 1], "the one of this node is waited for");
        drop(answers);
        writing.await.unwrap();
        node.shutdown().await;
    }

    #[test]
    fn a_flush_that_panics_has_failed_and_the_next_is_made() {
        let (shard, mut mailbox) = mailbox(16, 1 << 20);
        let (disk, threads) = Disk::start("disk", false).unwrap();
        let fails = || -> io::Result<Position> { panic!("this flush is to fail") };
        disk.flush(&shard, ReplicaIndex(0), FlushJob(Box::new(fails)));
        disk.flush(&shard, ReplicaIndex(1), FlushJob(Box::new(|| Ok(Position(7)))));
        // Nothing is waited for that cannot come.
        drop((shard, disk));
        let mut next = || match mailbox.control.blocking_recv() {
            Some(Control::Flushed { replica, flushed, .. }) => Some((replica.0, flushed.ok().map(|position| position.0))),
            _ => None,
        };
        assert_eq!([next(), next()], [Some((0, None)), Some((1, Some(7)))]);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn reads_that_panic_have_failed_and_the_next_is_made() {
        let (shard, mut mailbox) = mailbox(16, 1 << 20);
        let (disk, threads) = Disk::start("disk", false).unwrap();
        for number in 0..2 * READERS as u64 {
            let read = Box::new(move || -> ReadDone { panic!("read {number} is to fail") });
            disk.read(&shard, ReplicaIndex(0), ReadJob { read, is_far: false });
        }
        disk.read(&shard, ReplicaIndex(1), ReadJob { read: Box::new(|| ReadDone { job: 7, found: Ok(Vec::new()) }), is_far: false });
        // Nothing is waited for that cannot come.
        drop((shard, disk));
        let mut told = Vec::new();
        while let Some(control) = mailbox.control.blocking_recv() {
            match control {
                Control::Read { replica, read } => told.push((replica.0, read.ok().map(|read| read.job))),
                _ => panic!("nothing else was asked"),
            }
        }
        told.sort_unstable();
        assert_eq!(told, [vec![(0, None); 2 * READERS], vec![(1, Some(7))]].concat());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[tokio::test]
    async fn a_server_whose_read_has_panicked_is_opened_again() {
        let data = tempfile::tempdir().unwrap();
        let (node, config, writing, answers) = standing_still(data.path()).await;
        drop(answers);
        writing.await.unwrap();
        let panics = ReadJob { read: Box::new(|| -> ReadDone { panic!("this read is to fail") }), is_far: false };
        on_shard(&node, move |shard| shard.disk.read(&shard.shared.shards[0], ReplicaIndex(0), panics)).await;
        eventually("the store is opened again", async || on_shard(&node, |shard| shard.counters.stores_recovered).await == 1).await;
        is_told(&config, 200, "ready").await;
        node.shutdown().await;
    }
}
