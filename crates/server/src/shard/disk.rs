//! The threads that flush logs to disk and read from it, so that no shard waits for a disk.

use super::ReplicaIndex;
use super::mailbox::{Control, ShardHandle};
use rheostat_core::store::{FlushJob, ReadJob};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

/// Threads that read, of a node: of its disk, which serves some reads at the same time as fast as one, and as many of what is over a network.
const READERS: usize = 4;

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

/// Takes jobs; its clones feed the same threads, which end when the last of them is gone.
#[derive(Clone)]
pub(crate) struct Disk {
    flushes: mpsc::Sender<Flush>,
    reads: mpsc::Sender<Read>,
    far: Option<mpsc::Sender<Read>>,
}

impl Disk {
    /// Starts the threads; `far` says whether something will be read over a network. Errors: the operating system has no more.
    pub(crate) fn start(name: &str, far: bool) -> io::Result<(Disk, Vec<JoinHandle<()>>)> {
        // Bounded by construction: a replica has at most one flush and a few reads under way.
        let (flushes, to_flush) = mpsc::channel::<Flush>();
        let flush = move || {
            for Flush { shard, replica, job } in to_flush {
                let begun = Instant::now();
                let flushed = job.run();
                shard.control(Control::Flushed { replica, flushed, took_us: begun.elapsed().as_micros() as u64 });
            }
        };
        let mut threads = vec![std::thread::Builder::new().name(format!("{name}-flush")).spawn(flush)?];
        let reads = readers(name, &mut threads)?;
        let far = if far { Some(readers(name, &mut threads)?) } else { None };
        Ok((Disk { flushes, reads, far }, threads))
    }

    /// Has `job` of `replica` done; `shard` is told when it is.
    pub(super) fn flush(&self, shard: &ShardHandle, replica: ReplicaIndex, job: FlushJob) {
        if self.flushes.send(Flush { shard: shard.clone(), replica, job }).is_err() {
            shard.control(Control::Flushed { replica, flushed: Err(io::Error::other("the flushing thread has ended")), took_us: 0 });
        }
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
        let next = move || to_read.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let read = move || {
            while let Ok(Read { shard, replica, job }) = next() {
                shard.control(Control::Read { replica, read: job.run() });
            }
        };
        threads.push(std::thread::Builder::new().name(format!("{name}-read")).spawn(read)?);
    }
    Ok(reads)
}
