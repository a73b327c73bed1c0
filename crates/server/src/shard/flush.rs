//! The thread that flushes logs to disk, so that no shard waits for a disk.

use super::ReplicaIndex;
use super::mailbox::{Control, ShardHandle};
use rheostat_core::store::FlushJob;
use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

struct Request {
    shard: ShardHandle,
    replica: ReplicaIndex,
    job: FlushJob,
}

/// Takes flush jobs; its clones feed the same thread, which ends when the last of them is gone.
#[derive(Clone)]
pub(crate) struct Flusher(mpsc::Sender<Request>);

impl Flusher {
    /// Starts the thread. Errors: the operating system has no more.
    pub(crate) fn start(name: &str) -> io::Result<(Flusher, JoinHandle<()>)> {
        // Bounded by construction: a replica has at most one flush under way.
        let (sender, receiver) = mpsc::channel::<Request>();
        let work = move || {
            for Request { shard, replica, job } in receiver {
                let begun = Instant::now();
                let flushed = job.run();
                shard.control(Control::Flushed { replica, flushed, took_us: begun.elapsed().as_micros() as u64 });
            }
        };
        let thread = std::thread::Builder::new().name(format!("{name}-flush")).spawn(work)?;
        Ok((Flusher(sender), thread))
    }

    /// Has `job` of `replica` done; `shard` is told when it is.
    pub(super) fn flush(&self, shard: &ShardHandle, replica: ReplicaIndex, job: FlushJob) {
        if self.0.send(Request { shard: shard.clone(), replica, job }).is_err() {
            shard.control(Control::Flushed { replica, flushed: Err(io::Error::other("the flushing thread has ended")), took_us: 0 });
        }
    }
}
