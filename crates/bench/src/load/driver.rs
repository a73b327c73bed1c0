//! One connection of a load.

use super::schedule::Schedule;
use super::{LoadOptions, Pacing};
use crate::error::Error;
use crate::latency::Recorder;
use crate::target::{AnyConnection, Completion, Connection, Outcome, Request, Target, Ticket};
use crate::workload::sequence::InsertSequence;
use crate::workload::{Operation, OperationKind, OperationSource, ValueSource, write_key};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The runtime's timer has a grain of a millisecond. A wait sleeps until this long before its time and then polls, so that requests leave on time.
const TIMER_GRAIN: Duration = Duration::from_millis(2);

/// First pause between two attempts to connect again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// When a phase starts, is measured, and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) start: Instant,
    pub(super) measured_from: Instant,
    pub(super) end: Option<Instant>,
}

/// What all connections of a phase share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Operations that may still be started after the warm-up.
    left: AtomicU64,
    /// Operations that have ended after the warm-up, for the progress bar.
    pub(super) completed: AtomicU64,
    pub(super) inserts: Arc<InsertSequence>,
    times: OnceLock<Times>,
}

impl Shared {
    pub(super) fn new(operations: Option<u64>, inserts: InsertSequence) -> Shared {
        let left = AtomicU64::new(operations.unwrap_or(u64::MAX));
        Shared { left, completed: AtomicU64::new(0), inserts: Arc::new(inserts), times: OnceLock::new() }
    }

    /// Sets the times of the phase, unless another thread has set them already.
    pub(super) fn start(&self, start: Instant, warm_up: Duration, duration: Option<Duration>) {
        let measured_from = start + warm_up;
        self.times.get_or_init(|| Times { start, measured_from, end: duration.map(|duration| measured_from + duration) });
    }

    pub(super) fn times(&self) -> Option<Times> {
        self.times.get().copied()
    }

    /// Takes one operation from those that are left.
    fn claim(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// Where a connection's operations come from.
pub(super) enum Supply {
    /// The workload's mix.
    Transactions(OperationSource),
    /// The records of the load phase, numbered below this, each once over all connections.
    Records { below: u64 },
}

/// What a connection did, beside what it recorded.
#[derive(Debug, Default)]
pub(super) struct End {
    /// Operations of an open loop that were due before the end and were never sent.
    pub(super) unsent: u64,
    /// Whether the connection was lost and could not be made again in time.
    pub(super) lost: bool,
    pub(super) reconnections: u64,
    /// When the last recorded operation ended.
    pub(super) last: Option<Instant>,
}

#[derive(Clone, Copy)]
struct UnderWay {
    operation: Operation,
    /// From when latency counts.
    start: Instant,
    /// When its present request was handed to the connection.
    sent: Instant,
    /// Whether the read of a read-modify-write has yet to be answered.
    write_follows: bool,
}

pub(super) struct Driver {
    target: Target,
    connection: AnyConnection,
    number: usize,
    pacing: Pacing,
    timeout: Duration,
    reconnect: Duration,
    supply: Supply,
    schedule: Option<Schedule>,
    values: ValueSource,
    shared: Arc<Shared>,
    recorder: Arc<Mutex<Recorder>>,
    /// By ticket.
    under_way: Vec<Option<UnderWay>>,
    free: Vec<Ticket>,
    exhausted: bool,
    key: Vec<u8>,
    keys: Vec<Vec<u8>>,
    end: End,
}

impl Driver {
    #[expect(clippy::too_many_arguments, reason = "called in one place")]
    pub(super) fn new(
        target: Target,
        connection: AnyConnection,
        number: usize,
        options: &LoadOptions,
        (supply, values): (Supply, ValueSource),
        shared: Arc<Shared>,
        recorder: Arc<Mutex<Recorder>>,
        schedule_seed: u64,
    ) -> Driver {
        let (places, schedule) = match options.pacing {
            Pacing::Closed { pipeline } => (pipeline, None),
            Pacing::Open { rate, arrivals, in_flight } => {
                (in_flight, Some(Schedule::new(rate, arrivals, number, options.connections, schedule_seed)))
            }
        };
        Driver {
            target,
            connection,
            number,
            pacing: options.pacing,
            timeout: options.timeout,
            reconnect: options.reconnect,
            supply,
            schedule,
            values,
            shared,
            recorder,
            under_way: vec![None; places],
            free: (0..places as u32).rev().map(Ticket).collect(),
            exhausted: false,
            key: Vec::new(),
            keys: Vec::new(),
            end: End::default(),
        }
    }

    fn in_flight(&self) -> usize {
        self.under_way.len() - self.free.len()
    }

    /// Runs until the phase is over and everything sent is answered or has failed.
    pub(super) async fn run(mut self) -> End {
        let Some(times) = self.shared.times() else { return self.end };
        tokio::time::sleep_until(times.start.into()).await;
        let watchdog = tokio::time::sleep(self.timeout);
        tokio::pin!(watchdog);
        loop {
            self.submit_due(times);
            if self.exhausted && self.in_flight() == 0 {
                break;
            }
            let next_due =
                if self.exhausted || self.free.is_empty() { None } else { self.schedule.as_ref().map(|schedule| times.start + schedule.due()) };
            let waiting = self.in_flight() > 0;
            let step = tokio::select! {
                biased;
                completion = self.connection.receive(), if waiting => completion.map(Some),
                () = wait_until(next_due.unwrap_or(times.start)), if next_due.is_some() => Ok(None),
                () = &mut watchdog => {
                    watchdog.as_mut().reset(tokio::time::Instant::now() + self.timeout / 4);
                    self.check_timeout()
                }
            };
            let step = step.and_then(|first| self.complete_all(first, times));
            if let Err(error) = step
                && !self.replace_connection(&error, times).await
            {
                self.end.lost = true;
                break;
            }
        }
        self.count_unsent(times);
        self.end
    }

    /// Submits everything that may leave now.
    fn submit_due(&mut self, times: Times) {
        if self.exhausted {
            return;
        }
        match self.pacing {
            Pacing::Closed { .. } => {
                if self.in_flight() > 0 {
                    return;
                }
                let now = Instant::now();
                while !self.exhausted && !self.free.is_empty() {
                    self.submit_next(now, now, times);
                }
            }
            Pacing::Open { .. } => {
                while !self.exhausted && !self.free.is_empty() {
                    let Some(due) = self.schedule.as_ref().map(|schedule| times.start + schedule.due()) else { return };
                    let now = Instant::now();
                    let over = times.end.is_some_and(|end| due >= end);
                    if due > now && !over {
                        return;
                    }
                    self.submit_next(due, now, times);
                    if let (Some(schedule), false) = (&mut self.schedule, self.exhausted) {
                        schedule.advance();
                    }
                }
            }
        }
    }

    /// Submits the next operation, whose latency counts from `start`, or finds that there is none.
    fn submit_next(&mut self, start: Instant, now: Instant, times: Times) {
        let over = times.end.is_some_and(|end| start >= end || now >= end);
        let measured = start >= times.measured_from;
        if over || (measured && !self.shared.claim()) {
            self.exhausted = true;
            return;
        }
        let operation = match &mut self.supply {
            Supply::Transactions(source) => source.next_operation(),
            Supply::Records { below } => {
                let record = self.shared.inserts.claim();
                if record >= *below {
                    self.exhausted = true;
                    return;
                }
                Operation { kind: OperationKind::Insert, record, length: 1 }
            }
        };
        if measured && self.schedule.is_some() {
            self.recorder.lock().unwrap_or_else(PoisonError::into_inner).late(now.saturating_duration_since(start));
        }
        let Some(ticket) = self.free.pop() else { return };
        let write_follows = operation.kind == OperationKind::ReadModifyWrite;
        self.under_way[ticket.0 as usize] = Some(UnderWay { operation, start, sent: now, write_follows });
        let write = matches!(operation.kind, OperationKind::Update | OperationKind::Insert);
        self.submit(ticket, operation, write);
    }

    fn submit(&mut self, ticket: Ticket, operation: Operation, write: bool) {
        if operation.kind == OperationKind::Scan {
            let length = operation.length as usize;
            self.keys.resize_with(self.keys.len().max(length), Vec::new);
            for (record, key) in (operation.record..).zip(&mut self.keys[..length]) {
                write_key(record, key);
            }
            self.connection.submit(ticket, Request::ReadTransaction { keys: &self.keys[..length] });
            return;
        }
        write_key(operation.record, &mut self.key);
        match write {
            true => self.connection.submit(ticket, Request::Write { key: &self.key, value: self.values.next_value() }),
            false => self.connection.submit(ticket, Request::Read { key: &self.key }),
        }
    }

    /// Handles `first` and every completion that has arrived behind it.
    fn complete_all(&mut self, first: Option<Completion>, times: Times) -> Result<(), Error> {
        let mut next = first;
        let now = Instant::now();
        while let Some(completion) = next {
            self.complete(completion, now, times)?;
            next = self.connection.arrived()?;
        }
        Ok(())
    }

    fn complete(&mut self, completion: Completion, now: Instant, times: Times) -> Result<(), Error> {
        let place = completion.ticket.0 as usize;
        let Some(under_way) = self.under_way.get(place).copied().flatten() else {
            return Err(Error::Protocol { address: self.target.address(), detail: "an answer has no request".to_owned() });
        };
        if let (true, Outcome::Done { .. }) = (under_way.write_follows, &completion.outcome) {
            self.under_way[place] = Some(UnderWay { write_follows: false, sent: now, ..under_way });
            self.submit(completion.ticket, under_way.operation, true);
            return Ok(());
        }
        self.release(completion.ticket, &under_way.operation);
        if under_way.start >= times.measured_from {
            let kind = under_way.operation.kind;
            let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
            match &completion.outcome {
                Outcome::Done { not_found } => recorder.succeeded(kind, now.saturating_duration_since(under_way.start), *not_found),
                Outcome::Failed(failure) => recorder.failed(kind, failure),
            }
            drop(recorder);
            self.end.last = Some(now);
            self.shared.completed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn release(&mut self, ticket: Ticket, operation: &Operation) {
        self.under_way[ticket.0 as usize] = None;
        self.free.push(ticket);
        if operation.kind == OperationKind::Insert {
            self.shared.inserts.answer(operation.record);
        }
    }

    fn check_timeout(&self) -> Result<Option<Completion>, Error> {
        let oldest = self.under_way.iter().flatten().map(|under_way| under_way.sent).min();
        match oldest {
            Some(sent) if sent.elapsed() >= self.timeout => {
                Err(Error::Timeout { address: self.target.address(), waiting_for: "an operation".to_owned() })
            }
            _ => Ok(None),
        }
    }

    /// Counts everything under way as failed, and connects again if anything is left to do. False if that does not succeed in time.
    async fn replace_connection(&mut self, error: &Error, times: Times) -> bool {
        let now = Instant::now();
        for place in 0..self.under_way.len() {
            if let Some(under_way) = self.under_way[place] {
                self.release(Ticket(place as u32), &under_way.operation);
                if under_way.start >= times.measured_from {
                    self.recorder.lock().unwrap_or_else(PoisonError::into_inner).failed(under_way.operation.kind, error.kind());
                    self.end.last = Some(now);
                    self.shared.completed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if self.exhausted {
            return true;
        }
        let give_up = now + self.reconnect;
        let give_up = times.end.map_or(give_up, |end| end.min(give_up));
        let mut pause = FIRST_PAUSE;
        while Instant::now() < give_up {
            let attempt = self.target.connect(self.number);
            if let Ok(Ok(connection)) = tokio::time::timeout_at(give_up.into(), attempt).await {
                self.connection = connection;
                self.end.reconnections += 1;
                return true;
            }
            tokio::time::sleep_until((Instant::now() + pause).min(give_up).into()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        false
    }

    /// Operations that were due before the end, and not sent.
    fn count_unsent(&mut self, times: Times) {
        let (Some(schedule), Some(end)) = (&mut self.schedule, times.end) else { return };
        while times.start + schedule.due() < end {
            if times.start + schedule.due() >= times.measured_from && !self.shared.claim() {
                return;
            }
            self.end.unsent += 1;
            schedule.advance();
        }
    }
}

/// Waits until `due`, to the microsecond rather than to the timer's grain, while other tasks of the thread go on.
async fn wait_until(due: Instant) {
    if let Some(early) = due.checked_sub(TIMER_GRAIN)
        && early > Instant::now()
    {
        tokio::time::sleep_until(early.into()).await;
    }
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}
