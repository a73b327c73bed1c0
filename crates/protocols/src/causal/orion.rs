//! Read-only transactions in one round, by prediction: Orion (D. Kakwani, R. Nasre, PaPoC 2020). Alg. 1 is the client's, Alg. 2 the server's.
//!
//! `PAPER.md`, section "Orion", maps the lines and explains what is different.

use super::client::CausalClient;
use super::message::{Reply, Request};
use super::meta::Meta;
use super::server::{Causal, Slice};
use crate::stability;
use rheostat_clock::{DcId, StableVector, Timestamp, TimestampVector};
use rheostat_core::dial::{Level, Strategy};
use rheostat_core::gauge::{Gauge, Metric};
use rheostat_core::ids::{OpId, PartitionId};
use rheostat_core::planted::Planted;
use rheostat_core::protocol::Call;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::Key;
use rheostat_core::wire::{Reader, Wire, WireError, put_varint};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

const TRANSACTIONS: Metric = Metric::counters(
    "transactions_total",
    "strategy",
    "Read-only transactions, by how their snapshot was chosen: by a coordinator, or predicted by the client. Each counts once, at the coordinator or at the first key's partition.",
);
const SLICES: Metric = Metric::counters(
    "predicted_slices_early_total",
    "result",
    "Parts of predicted transactions that came too early for this server: those that then waited, and those that it refused.",
);

pub(super) const GAUGES: &[Gauge] = &[
    Gauge::of(TRANSACTIONS, "coordinated", "transactions_coordinated", "Read-only transactions whose snapshot this server chose."),
    Gauge::of(
        TRANSACTIONS,
        "predicted",
        "transactions_predicted",
        "Read-only transactions whose snapshot the client predicted, counted at the first key's partition.",
    ),
    Gauge::of(stability::SECOND_ROUNDS, "", "predictions_refused", "Predicted transactions that took a second round."),
    Gauge::counter("transaction_rounds", "transaction_rounds_total", "Rounds of read-only transactions, coordinated and predicted."),
    Gauge::counter(
        "transaction_messages",
        "transaction_messages_total",
        "Requests, slices and replies of read-only transactions, counted where they are received.",
    ),
    Gauge::counter("predicted_slices", "predicted_slices_total", "Parts of predicted transactions that came to this server."),
    Gauge::of(SLICES, "refused", "predicted_slices_refused", "Those of them that it refused."),
    Gauge::of(SLICES, "waited", "predicted_slices_waited", "Those of them that waited."),
    Gauge::status(
        "prediction_error_ms",
        "Mean absolute difference between the predicted and the actual stable vector when a slice arrived, since the start.",
    ),
];

/// Timer of a server that lets predicted slices wait.
pub(super) const PATIENCE: u8 = 3;

/// The longest that a predicted slice waits, in microseconds: the paper's timeout.
const MAX_PATIENCE_US: u64 = 200_000;

/// Where clients predict, a snapshot may be so many milliseconds behind what the servers themselves would choose: what a client has seen is older,
/// and its clock may be behind theirs.
const SLACK_MS: u64 = 100;

/// A partition that refused a snapshot keeps what the second round reads for so long, in microseconds.
const HOLD_US: u64 = 1_000_000;

/// What one misprediction costs in [`Forecast::doubt`]; each transaction gives 1 back.
const DOUBT: u8 = 16;

/// `auto` predicts while what the client knows of the stable vector is not older than so many of its intervals.
const FRESH: u64 = 4;

/// More is not remembered.
const MOST_DOUBT: u8 = 4 * DOUBT;

/// What a server tells a client of itself, with the stable vector that stands beside it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Report {
    /// The server's clock when it read the stable vector. No snapshot that it serves later has versions below this that are not there yet.
    pub at: Timestamp,
    /// Heartbeat interval and stabilization interval together, in milliseconds. Paper: τ_h + τ_dsv.
    pub every_ms: u16,
    /// What the keyspace does with transactions that ask for [`Strategy::Auto`].
    pub strategy: Strategy,
    /// The server's planted bug: the client's lines break by it too.
    pub planted: Planted,
}

/// What a client has learned of how its data center's stable vector moves.
#[derive(Default, Debug, PartialEq)]
pub struct Forecast {
    /// When `CausalClient::stable` was last read, on the server's clock; zero before anything was learned. Paper: t.
    pub(super) at: Timestamp,
    /// As reported.
    every_ms: u16,
    strategy: Strategy,
    /// Per data center, by how many milliseconds the stable vector fell behind the time that passed, of late at most. Paper: LAT, but learned.
    margins_ms: SmallVec<[u16; 4]>,
    /// How much recent predictions were off: [`DOUBT`] for each that was refused, less 1 for each transaction since.
    doubt: u8,
    planted: Planted,
}

impl Clone for Forecast {
    fn clone(&self) -> Forecast {
        let Forecast { at, every_ms, strategy, ref margins_ms, doubt, planted } = *self;
        // As a whole: a session is copied with each operation that goes to another thread.
        Forecast { at, every_ms, strategy, margins_ms: SmallVec::from_slice(margins_ms), doubt, planted }
    }
}

/// The snapshot of a transaction under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Paper: SV.
    pub snapshot: TimestampVector,
    /// The partition that counts the transaction.
    lead: PartitionId,
    /// Time since the stable vector was read, in milliseconds. Paper: ct - t.
    elapsed_ms: u16,
    /// Whether this is the second round.
    pub(super) again: bool,
}

impl Forecast {
    /// Takes in that the stable vector was `before` when last read, and is `now` as `report` says.
    pub(super) fn learn(&mut self, here: DcId, before: &StableVector, now: &StableVector, report: &Report) {
        (self.every_ms, self.strategy, self.planted) = (report.every_ms, report.strategy, report.planted);
        // Many operations in one millisecond teach nothing new.
        if report.at.millis() <= self.at.millis() {
            return;
        }
        if self.at > Timestamp::ZERO {
            let passed_ms = report.at.millis() - self.at.millis();
            for (dc, at) in now.0.entries().filter(|(dc, _)| *dc != here) {
                let late_ms = passed_ms.saturating_sub(at.millis().saturating_sub(before.get(dc).millis()));
                let margin_ms = self.margin_ms(dc);
                self.set_margin(dc, late_ms.max(margin_ms - margin_ms.saturating_sub(late_ms).div_ceil(8)));
            }
        }
        self.at = report.at;
    }

    fn margin_ms(&self, dc: DcId) -> u64 {
        self.margins_ms.get(dc.index()).copied().unwrap_or(0).into()
    }

    fn set_margin(&mut self, dc: DcId, margin_ms: u64) {
        if self.margins_ms.len() <= dc.index() {
            self.margins_ms.resize(dc.index() + 1, 0);
        }
        self.margins_ms[dc.index()] = u16::try_from(margin_ms).unwrap_or(u16::MAX);
    }

    /// A transaction has come to its end without a refusal.
    pub(super) fn settled(&mut self) {
        self.doubt = self.doubt.saturating_sub(1);
    }
}

impl CausalClient {
    /// Alg. 1 lines 2 to 6.
    pub(super) fn predict_snapshot(&mut self, here: DcId, lead: PartitionId, asked: Strategy, now_ms: u64) -> bool {
        self.prediction = None;
        let Forecast { at, every_ms, strategy, doubt, .. } = self.forecast;
        let elapsed_ms = now_ms.saturating_sub(at.millis());
        let strategy = if asked == Strategy::Auto { strategy } else { asked };
        let safe = doubt < DOUBT && elapsed_ms <= FRESH * u64::from(every_ms);
        let wanted = strategy == Strategy::Predicted || strategy == Strategy::Auto && safe;
        // A client that knows nothing of this data center would predict zeros (O2).
        if !wanted || self.home != Some(here) || at == Timestamp::ZERO {
            return false;
        }
        let mut snapshot = TimestampVector::new();
        for (dc, stable) in self.stable.0.entries().filter(|(dc, _)| *dc != here) {
            // Line 4, with what was learned in the place of LAT.
            let ahead_ms = elapsed_ms.saturating_sub(u64::from(every_ms) + self.forecast.margin_ms(dc));
            let backwards = self.forecast.planted.is("predicted-snapshot-goes-back");
            snapshot.set(dc, if backwards { Timestamp::new(stable.millis().saturating_sub(30), 0) } else { stable.plus_millis(ahead_ms) });
        }
        self.cover_session(here, &mut snapshot);
        if !self.forecast.planted.is("predicted-ignores-own-writes") {
            snapshot.raise(here, Timestamp::new(now_ms, 0));
        }
        let elapsed_ms = u16::try_from(elapsed_ms).unwrap_or(u16::MAX);
        self.prediction = Some(Box::new(Prediction { snapshot, lead, elapsed_ms, again: false }));
        true
    }

    /// O1: the own entry covers what this session has written and read here, and everything that was there when it last looked.
    fn cover_session(&self, here: DcId, snapshot: &mut TimestampVector) {
        if self.forecast.planted.is("predicted-ignores-own-writes") {
            snapshot.raise(here, self.stable.get(here));
            return;
        }
        snapshot.raise(here, self.dependencies.get(here).max(self.arrived).max(self.forecast.at));
    }

    /// Alg. 1 lines 10 to 13: a second snapshot, which nobody refuses.
    pub(super) fn predict_again(&mut self, first: Prediction) -> bool {
        self.forecast.doubt = (self.forecast.doubt + DOUBT).min(MOST_DOUBT);
        let Some(here) = self.home.filter(|_| !first.again) else { return false };
        // After the same time, nothing is predicted beyond what was seen.
        let late_ms = u64::from(first.elapsed_ms).saturating_sub(self.forecast.every_ms.into());
        for (dc, _) in first.snapshot.entries().filter(|(dc, _)| *dc != here) {
            self.forecast.set_margin(dc, self.forecast.margin_ms(dc).max(late_ms));
        }
        // Line 12, with the client's vector: the empty reply's may be behind it (O3).
        let mut snapshot = if self.forecast.planted.is("predicted-retry-with-empty-vector") { TimestampVector::new() } else { self.stable.0.clone() };
        self.cover_session(here, &mut snapshot);
        self.prediction = Some(Box::new(Prediction { snapshot, again: true, ..first }));
        true
    }
}

/// What a server keeps for predicted slices.
#[derive(Default)]
pub(super) struct Orion {
    /// No snapshot below this has been used here before the last restart (O4).
    pub(super) floor: TimestampVector,
    /// Predicted slices that wait for the stable vector, and until when, in microseconds of the monotonic clock.
    pub(super) patience: BTreeMap<OpId, u64>,
    /// What refused transactions will read in their second round (O4), oldest first.
    holds: VecDeque<Hold>,
    /// The time between two rises of the stable vector, of late at most, in microseconds; and when it last rose.
    pace_us: u64,
    rose_at_us: u64,
    pub(super) counters: Counters,
}

/// Snapshots of second rounds that are kept.
struct Hold {
    /// When the first of them was refused, and until when they are kept, in microseconds.
    since_us: u64,
    until_us: u64,
    /// They are all above this.
    oldest: TimestampVector,
}

/// Counters of transactions, all since the start.
#[derive(Default)]
pub(super) struct Counters {
    /// Transactions that this server coordinated.
    pub(super) coordinated: u64,
    /// Rounds of all transactions that this server counts.
    pub(super) rounds: u64,
    /// Predicted transactions that this server counts.
    predicted: u64,
    /// Of those, the ones that took a second round.
    mispredicted: u64,
    /// Predicted slices that this server refused.
    refused: u64,
    /// Predicted slices that waited.
    pub(super) waited: u64,
    /// Requests, slices and their replies, of both strategies, that this server took part in: each counted where it is received.
    pub(super) messages: u64,
    /// First-round slices, and the sum of their mean absolute errors in milliseconds.
    slices: u64,
    error_ms: f64,
}

impl Orion {
    /// The stable vector has risen.
    pub(super) fn rose(&mut self, now_us: u64) {
        if self.rose_at_us > 0 {
            let passed_us = now_us - self.rose_at_us;
            self.pace_us = passed_us.max(self.pace_us - self.pace_us / 8);
        }
        self.rose_at_us = now_us;
    }

    /// How long a predicted slice may wait: twice as long as the stable vector has taken to rise.
    fn patience_us(&self) -> u64 {
        (2 * self.pace_us).min(MAX_PATIENCE_US)
    }

    /// Keeps what a refused transaction will read next.
    fn hold(&mut self, now_us: u64, oldest: TimestampVector) {
        let until_us = now_us + HOLD_US;
        match self.holds.back_mut() {
            // What is held ascends, so one hold serves for those that follow it closely.
            Some(last) if now_us < last.since_us + HOLD_US / 8 => last.until_us = until_us,
            _ => self.holds.push_back(Hold { since_us: now_us, until_us, oldest }),
        }
    }

    /// Lowers `oldest`, which is below every snapshot that this server itself will use, to what clients predict and second rounds read (O4).
    pub(super) fn keep(&mut self, now_us: u64, oldest: TimestampVector) -> TimestampVector {
        if self.counters.slices == 0 {
            return oldest;
        }
        let lower = |at: Timestamp| Timestamp::new(at.millis().saturating_sub(SLACK_MS), 0);
        let mut kept: TimestampVector = oldest.entries().map(|(dc, at)| (dc, lower(at))).collect();
        while self.holds.pop_front_if(|hold| hold.until_us <= now_us).is_some() {}
        if let Some(hold) = self.holds.front() {
            kept.meet(&hold.oldest);
        }
        kept
    }

    pub(super) fn gauges(&self) -> Vec<(&'static str, f64)> {
        let Counters { coordinated, rounds, predicted, mispredicted, refused, waited, messages, slices, error_ms } = &self.counters;
        vec![
            ("transactions_coordinated", *coordinated as f64),
            ("transactions_predicted", *predicted as f64),
            ("predictions_refused", *mispredicted as f64),
            ("transaction_rounds", *rounds as f64),
            ("transaction_messages", *messages as f64),
            ("predicted_slices", *slices as f64),
            ("predicted_slices_refused", *refused as f64),
            ("predicted_slices_waited", *waited as f64),
            ("prediction_error_ms", if *slices > 0 { error_ms / *slices as f64 } else { 0.0 }),
        ]
    }
}

/// Alg. 2 lines 14 to 18.
enum Validity {
    Valid,
    /// The stable vector is behind by so many milliseconds.
    Early(u64),
    /// What it needs may have been collected.
    Late,
}

/// The snapshot from which `request` reads, if its client predicted one.
pub(super) fn predicted(request: &Request) -> Option<&Prediction> {
    match request.call {
        Call::ReadTransaction { strategy: Strategy::Predicted, level, .. } if level != Level::Eventual => request.seen.prediction.as_deref(),
        _ => None,
    }
}

impl Causal {
    /// What this server says of itself.
    pub(super) fn report(&self, at: Timestamp) -> Report {
        let every_ms = u16::try_from(self.options.heartbeat_ms + self.options.stabilization_ms).unwrap_or(u16::MAX);
        Report { at, every_ms, strategy: self.options.transactions, planted: self.planted }
    }

    /// Alg. 2 lines 14 to 18. The own entry is not asked for: the slice raises the clock to it.
    fn validity(&self, snapshot: &TimestampVector, known: &StableVector) -> Validity {
        let kept = snapshot.covers(&self.tree.oldest_snapshot) && snapshot.covers(&self.orion.floor);
        if !kept && !self.planted.is("predicted-snapshot-not-kept") {
            return Validity::Late;
        }
        let behind = |dc: DcId| {
            let (wanted, had) = (snapshot.get(dc), self.stable.get(dc).max(known.get(dc)));
            (wanted > had).then(|| wanted.millis() - had.millis())
        };
        let unchecked = self.planted.is("predicted-validity-not-checked");
        self.place.peers().filter_map(behind).max().filter(|_| !unchecked).map_or(Validity::Valid, Validity::Early)
    }

    /// Whether a predicted slice need not wait: it can be read, or waiting would not help (Alg. 2 lines 2 and 3).
    pub(super) fn may_slice(&self, seen: &CausalClient, Prediction { snapshot, .. }: &Prediction) -> bool {
        match self.validity(snapshot, &seen.stable) {
            Validity::Valid | Validity::Late => true,
            Validity::Early(behind_ms) => behind_ms * 1000 > self.orion.patience_us(),
        }
    }

    /// The slice of `op` is to wait, for a while.
    pub(super) fn wait_for_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId) {
        let patience_us = self.orion.patience_us();
        self.orion.counters.waited += 1;
        self.orion.patience.insert(op, step.now.monotonic_us + patience_us);
        step.effects.timer(PATIENCE, patience_us);
        step.effects.parked(op, "the stable vector to reach a predicted snapshot".into());
    }

    /// Upon receive ⟨ROT K, SV⟩ (Alg. 2), when it has waited if it had to.
    pub(super) fn on_predicted<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, keys: &[Key], seen: &CausalClient) {
        let Some(Prediction { snapshot, lead, again, .. }) = seen.prediction.as_deref() else { return };
        self.count(*lead, *again, snapshot);
        let here = self.here();
        let sound = step.clock.check(step.now.physical_ms, snapshot.get(here)).is_ok();
        let valid = sound && matches!(self.validity(snapshot, &StableVector::new()), Validity::Valid);
        let quality = self.quality_of(snapshot, step.now, Level::Causal);
        if !valid {
            // Lines 4 to 6. The second round's snapshot is not below what is here now.
            self.orion.counters.refused += 1;
            let mut oldest = self.stable.0.clone();
            oldest.set(here, self.received.get(here));
            self.orion.hold(step.now.monotonic_us, oldest);
            let (reads, dependencies, arrived) = (Vec::new(), Default::default(), Timestamp::ZERO);
            let (stable, report) = (self.stable.clone(), self.report(step.clock.last()));
            step.effects.reply(op, Reply::ReadTransaction { here, reads, dependencies, stable, arrived, quality, report });
            return;
        }
        // Lines 7 to 13.
        let Slice { reads, dependencies, arrived } = self.slice(step, keys, Some(snapshot));
        let (stable, report) = (self.stable.clone(), self.report(step.clock.last()));
        step.effects.reply(op, Reply::ReadTransaction { here, reads, dependencies, stable, arrived, quality, report });
    }

    /// After a restart: what this server's snapshots, and those of others that it knew of, were not below.
    pub(super) fn set_floor(&mut self, clock: Timestamp) {
        self.orion.floor = self.tree.persisted.clone();
        self.orion.floor.set(self.here(), clock);
    }

    fn count(&mut self, lead: PartitionId, again: bool, snapshot: &TimestampVector) {
        let counters = &mut self.orion.counters;
        let lead = u64::from(lead == self.place.server.partition);
        counters.messages += 2;
        counters.rounds += lead;
        if again {
            counters.mispredicted += lead;
            return;
        }
        counters.predicted += lead;
        counters.slices += 1;
        let error_ms: u64 = self.place.peers().map(|dc| snapshot.get(dc).millis().abs_diff(self.stable.get(dc).millis())).sum();
        counters.error_ms += error_ms as f64 / self.place.peers().count().max(1) as f64;
    }

    /// Predicted slices that have waited long enough are answered, one way or the other.
    pub(super) fn on_patience_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let now_us = step.now.monotonic_us;
        let due: Vec<OpId> = self.orion.patience.iter().filter(|(_, until_us)| **until_us <= now_us).map(|(op, _)| *op).collect();
        self.serve_overdue(step, due);
    }
}

impl Wire for Forecast {
    fn encode(&self, out: &mut Vec<u8>) {
        self.at.encode(out);
        self.every_ms.encode(out);
        self.strategy.encode(out);
        self.doubt.encode(out);
        put_varint(self.margins_ms.len() as u64, out);
        self.margins_ms.iter().for_each(|margin_ms| margin_ms.encode(out));
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (at, every_ms, strategy) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        let doubt = u8::decode(input)?.min(MOST_DOUBT);
        let length = input.length()?;
        if length > 256 {
            return Err(WireError::Invalid("a forecast of more than 256 data centers"));
        }
        let margins_ms = (0..length).map(|_| Wire::decode(input)).collect::<Result<_, _>>()?;
        Ok(Forecast { at, every_ms, strategy, margins_ms, doubt, planted: Planted::NONE })
    }
}

impl Wire for Prediction {
    fn encode(&self, out: &mut Vec<u8>) {
        self.snapshot.encode(out);
        self.lead.encode(out);
        self.elapsed_ms.encode(out);
        self.again.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (snapshot, lead) = (Wire::decode(input)?, Wire::decode(input)?);
        Ok(Prediction { snapshot, lead, elapsed_ms: Wire::decode(input)?, again: Wire::decode(input)? })
    }
}
