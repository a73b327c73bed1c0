//! A disk that fails: what was not written is not said to be.

use rheostat_core::DcId;
use rheostat_core::dial::Dial;
use rheostat_core::ids::{KeyspaceId, Now, PartitionId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, Outbox, ReplicaConfig};
use rheostat_core::store::Durability;
use rheostat_core::version::{Item, Key};
use rheostat_counters::Options;
use rheostat_stack::{Backing, Plan, Stack};
use rheostat_storage::{DiskOptions, IoOperation};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Server {
    stack: Box<dyn Stack>,
    now_us: u64,
    done: Vec<Outcome>,
}

impl Server {
    fn with<R>(&mut self, flush: bool, act: impl FnOnce(&mut Box<dyn Stack>, Now, &mut Outbox) -> R) -> R {
        let now = Now { monotonic_us: self.now_us, physical_ms: 1_700_000_000_000 + self.now_us / 1000 };
        let mut out = Outbox::default();
        let result = act(&mut self.stack, now, &mut out);
        self.stack.server().end_round(now, &mut out);
        while flush && let Some(job) = self.stack.server().poll_flush(now) {
            let flushed = job.run();
            self.stack.server().end_flush(now, flushed, &mut out);
        }
        self.done.extend(out.done.into_iter().map(|done| done.outcome));
        result
    }

    fn pass(&mut self, us: u64) {
        let until_us = self.now_us + us;
        while self.now_us < until_us {
            self.now_us += 10_000;
            self.with(true, |stack, now, out| stack.server().tick(now, out));
        }
    }

    /// What comes of a write of so many bytes within a second.
    fn put(&mut self, bytes: usize, flush: bool) -> Option<Outcome> {
        let item = Item { key: Key::from(&b"k"[..]), value: Some(Key::from(&vec![7; bytes][..])), expires_ms: 0 };
        let mut session = self.stack.look().new_session();
        let operation = Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() };
        self.done.clear();
        match self.with(flush, |stack, now, out| stack.server().execute(now, operation, &mut session, out)) {
            Execution::Done { outcome, after } => {
                if flush {
                    self.pass(10_000);
                }
                // Otherwise it is not told yet.
                Some(outcome).filter(|_| self.stack.server().durable() >= after)
            }
            Execution::Waiting(_) if flush => {
                self.pass(1_000_000);
                self.done.pop()
            }
            Execution::Waiting(_) => self.done.pop(),
        }
    }
}

/// The error comes with the writing itself, and no flush repeats it: the server has to remember it. Durability `interval` answers before a flush.
#[test]
fn a_write_that_the_disk_refused_is_not_acknowledged_and_ends_the_server() {
    for protocol in ["eventual", "causal", "session", "strong"] {
        let folder = tempfile::tempdir().unwrap();
        let fails = Arc::new(AtomicBool::new(false));
        let hook = fails.clone();
        let refuse = move |operation: IoOperation| match operation {
            IoOperation::Write if hook.load(Ordering::SeqCst) => Err(std::io::Error::other("the disk refuses")),
            _ => Ok(()),
        };
        let options = DiskOptions { io_hook: Some(Arc::new(refuse)), ..DiskOptions::default() };
        let server = ServerId::new(DcId(0), PartitionId(0));
        let mut config = ReplicaConfig::new(Place { server, data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 }, KeyspaceId(0));
        config.durability = Durability::Interval;
        let plan = Plan { protocol, options: &toml::Table::new(), counters: &Options::default(), config };
        let (stack, _) = plan.open(Backing::Disk(folder.path().to_owned(), options)).unwrap();
        let mut server = Server { stack, now_us: 1_000_000, done: Vec::new() };
        server.with(true, |stack, now, out| stack.server().start(now, out));
        server.pass(10_000_000);
        let first = server.put(10, true);
        assert!(matches!(first, Some(Outcome::Written(_))), "{protocol}: {first:?}");
        fails.store(true, Ordering::SeqCst);
        // More than the log buffers.
        let second = server.put(4 << 20, false);
        assert!(!matches!(second, Some(Outcome::Written(_))), "{protocol}: {second:?}");
        assert!(server.stack.server().failed(), "{protocol}");
        fails.store(false, Ordering::SeqCst);
        let third = server.put(10, true);
        assert!(!matches!(third, Some(Outcome::Written(_))), "{protocol}: {third:?}");
    }
}
