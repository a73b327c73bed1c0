//! The writer's and the readers' connections.

use crate::error::Error;
use crate::target::resp::{RespStream, RespTarget};
use rheostat_resp::received::Reply;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Pause before a reader that lost its connection tries again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// A connection on which one request at a time is made.
#[derive(Debug)]
pub(super) struct Probe {
    stream: RespStream,
    timeout: Duration,
}

impl Probe {
    pub(super) async fn connect(target: &RespTarget, timeout: Duration) -> Result<Probe, Error> {
        Ok(Probe { stream: target.connect(0).await?, timeout })
    }

    async fn bounded<T>(address: String, timeout: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let late = Error::Timeout { address, waiting_for: "a probe".to_owned() };
        tokio::time::timeout(timeout, work).await.unwrap_or(Err(late))
    }

    /// Writes `value` to `key`.
    ///
    /// # Errors
    /// Those of [`RespStream::expect_ok`], and [`Error::Timeout`].
    pub(super) async fn set(&mut self, key: &[u8], value: u64) -> Result<(), Error> {
        let (address, timeout) = (self.stream.address().to_owned(), self.timeout);
        let value = value.to_string();
        Probe::bounded(address, timeout, self.stream.expect_ok(&[b"SET", key, value.as_bytes()])).await
    }

    /// Reads the number at `key`; 0 if there is none.
    async fn get(&mut self, key: &[u8]) -> Result<u64, Error> {
        let (address, timeout) = (self.stream.address().to_owned(), self.timeout);
        self.stream.queue([b"GET", key].into_iter());
        let read = |reply: Reply<'_>| match reply {
            Reply::Null => Ok(0),
            Reply::Bulk(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or("a value that no probe wrote".to_owned()),
            Reply::Error(line) => Err(String::from_utf8_lossy(line).into_owned()),
            other => Err(other.describe()),
        };
        let answer = Probe::bounded(address.clone(), timeout, self.stream.next_reply(read)).await?;
        answer.map_err(|detail| Error::Refused { address, detail: format!("GET: {detail}") })
    }
}

/// What a reader is to wait for.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The value that is being written.
    pub(super) value: u64,
    /// The key whose value the reader waits for.
    pub(super) watched: Vec<u8>,
    /// The key that was written before it, if any.
    pub(super) cause: Option<Vec<u8>>,
}

/// What a reader saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Sighting {
    /// When the value was first seen; `None` if it was not seen in time.
    pub(super) seen: Option<Instant>,
    /// Round trip of the read that saw it: the value was there at most this long before `seen`.
    pub(super) poll: Duration,
    /// Whether the cause was there too; `None` if there was none, or it could not be read.
    pub(super) cause_there: Option<bool>,
    /// Reads that failed.
    pub(super) failed_reads: u64,
}

/// Waits for values in one data center.
pub(super) struct Reader {
    pub(super) probe: Probe,
    pub(super) target: RespTarget,
    pub(super) timeout: Duration,
}

impl Reader {
    /// Does one job after another, until there are none.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>, sightings: mpsc::Sender<Sighting>) {
        while let Some(job) = jobs.recv().await {
            let sighting = self.look(&job).await;
            if sightings.send(sighting).await.is_err() {
                return;
            }
        }
    }

    async fn look(&mut self, job: &Job) -> Sighting {
        let mut sighting = Sighting::default();
        let give_up = Instant::now() + self.timeout;
        loop {
            let asked = Instant::now();
            if asked >= give_up {
                return sighting;
            }
            match self.probe.get(&job.watched).await {
                Ok(value) if value >= job.value => {
                    let seen = Instant::now();
                    sighting.seen = Some(seen);
                    sighting.poll = seen - asked;
                    break;
                }
                Ok(_) => {}
                Err(error) => self.recover(&error, &mut sighting).await,
            }
        }
        if let Some(cause) = &job.cause {
            match self.probe.get(cause).await {
                Ok(value) => sighting.cause_there = Some(value >= job.value),
                Err(error) => self.recover(&error, &mut sighting).await,
            }
        }
        sighting
    }

    /// Counts a failed read; after anything but a server's refusal the connection is replaced, since its next answer would belong to this read.
    async fn recover(&mut self, error: &Error, sighting: &mut Sighting) {
        sighting.failed_reads += 1;
        tokio::time::sleep(RECONNECT_PAUSE).await;
        if !matches!(error, Error::Refused { .. })
            && let Ok(probe) = Probe::connect(&self.target, self.timeout).await
        {
            self.probe = probe;
        }
    }
}
