//! What a client remembers (Alg. 5.1, Alg. 5.4 lines 1 to 7).

use super::message::{Reply, Request};
use super::orion::{Forecast, Prediction, Report};
use crate::change;
use rheostat_clock::{DcId, DependencyVector, StableVector, Timestamp};
use rheostat_core::dial::Strategy;
use rheostat_core::ids::PartitionId;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client, Verdict};
use rheostat_core::wire::{Reader, Wire, WireError};

/// The client side.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct CausalClient {
    /// The data center whose stable vector `stable` is; `None` before the first operation and after a merge of sessions from
    /// different ones. Elsewhere a server lets the session wait until what it depends on has arrived (D4).
    pub home: Option<DcId>,
    /// Per data center, the highest timestamp read or written. Paper: DS_c.
    pub dependencies: DependencyVector,
    /// The highest stable vector seen at home. Paper: DSV_c.
    pub stable: StableVector,
    /// A time at home, above those of all snapshots that were read there before this session read, at the same partition, something that
    /// was not yet stable (D1).
    pub arrived: Timestamp,
    /// How the stable vector moves, to predict it (003).
    pub forecast: Forecast,
    /// The predicted snapshot of the transaction that is under way.
    pub prediction: Option<Box<Prediction>>,
}

impl CausalClient {
    fn see(&mut self, here: DcId, stable: StableVector, report: &Report) {
        if self.home == Some(here) {
            self.forecast.learn(here, &self.stable, &stable, report);
            self.stable.join(&stable);
        } else {
            self.forecast = Forecast::default();
            self.forecast.learn(here, &self.stable, &stable, report);
            self.home = Some(here);
            self.stable = stable;
            // It waited until everything that it had read was stable.
            self.arrived = Timestamp::ZERO;
        }
    }
}

impl Client for CausalClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        // Servers need not know how the stable vector moves.
        let CausalClient { home, dependencies, stable, arrived, prediction, .. } = self;
        let seen = CausalClient {
            home: *home,
            dependencies: dependencies.clone(),
            stable: stable.clone(),
            arrived: *arrived,
            forecast: Forecast::default(),
            prediction: prediction.clone(),
        };
        Request { call, seen }
    }

    fn encode_signed(&self, out: &mut Vec<u8>) {
        self.home.encode(out);
        self.dependencies.encode(out);
        self.stable.encode(out);
        self.arrived.encode(out);
    }

    fn encode_hints(&self, out: &mut Vec<u8>) {
        self.forecast.encode(out);
        self.prediction.encode(out);
    }

    fn take_hints(&mut self, input: &mut Reader<'_>) -> Result<(), WireError> {
        (self.forecast, self.prediction) = (Wire::decode(input)?, Wire::decode(input)?);
        Ok(())
    }

    fn accept(&mut self, reply: Reply) -> Outcome {
        match reply {
            // Alg. 5.1 lines 4 to 6.
            Reply::Get { here, read, dependencies, stable, arrived, quality, report } => {
                let dropped = report.planted.is("first-read-dependency-dropped") && self.dependencies == DependencyVector::new();
                self.see(here, stable, &report);
                self.arrived = self.arrived.max(arrived);
                if !dropped {
                    self.dependencies.join(&dependencies);
                }
                Outcome::Read(read, quality)
            }
            // Alg. 5.1 line 10.
            Reply::Put { version, stable, report } => {
                self.see(version.origin, stable, &report);
                if !report.planted.is("own-write-not-remembered") {
                    self.dependencies.raise(version.origin, version.written);
                }
                Outcome::Written(version)
            }
            // Alg. 5.4 lines 5 to 7; 003, Alg. 1 lines 14 and 15.
            Reply::ReadTransaction { here, reads, dependencies, stable, arrived, quality, report } => {
                self.see(here, stable, &report);
                if self.prediction.is_none() {
                    self.forecast.settled();
                }
                self.arrived = self.arrived.max(arrived);
                self.dependencies.join(&dependencies);
                Outcome::Many(reads, quality)
            }
            Reply::Change(changed) => change::accept(self, changed),
            Reply::Untracked { read, quality } => Outcome::Read(read, quality),
            Reply::UntrackedTransaction { reads, quality } => Outcome::Many(reads, quality),
        }
    }

    fn predict(&mut self, here: DcId, lead: PartitionId, asked: Strategy, now_ms: u64) -> bool {
        self.predict_snapshot(here, lead, asked, now_ms)
    }

    fn settle(&mut self, verdict: Verdict) -> bool {
        match (verdict, self.prediction.take()) {
            (Verdict::Refused, Some(first)) => return self.predict_again(*first),
            (Verdict::Held, Some(held)) if !held.again => self.forecast.settled(),
            _ => {}
        }
        false
    }

    fn predicts(&self) -> bool {
        self.prediction.is_some()
    }

    fn told(&self) -> Timestamp {
        self.forecast.at
    }

    fn merge(&mut self, other: &CausalClient) {
        let nothing = DependencyVector::new();
        if self.home == other.home {
            self.stable.join(&other.stable);
            self.arrived = self.arrived.max(other.arrived);
            if other.forecast.at > self.forecast.at {
                self.forecast = other.forecast.clone();
            }
        } else if other.dependencies != nothing && self.dependencies == nothing {
            (self.home, self.stable, self.arrived) = (other.home, other.stable.clone(), other.arrived);
            self.forecast = other.forecast.clone();
        } else if other.dependencies != nothing {
            (self.home, self.stable, self.arrived) = (None, StableVector::new(), Timestamp::ZERO);
            self.forecast = Forecast::default();
        }
        self.dependencies.join(&other.dependencies);
    }

    fn is_at_home(&self, here: DcId) -> bool {
        self.home == Some(here)
    }

    fn newest(&self) -> Timestamp {
        self.dependencies.0.max().max(self.stable.0.max()).max(self.arrived)
    }

    fn last_write(&self, dc: DcId) -> Timestamp {
        self.dependencies.get(dc)
    }

    fn data_centers(&self) -> usize {
        let home = self.home.map_or(0, |home| home.index() + 1);
        home.max(self.dependencies.0.data_centers()).max(self.stable.0.data_centers())
    }
}

impl Wire for CausalClient {
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_signed(out);
        self.encode_hints(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (home, dependencies) = (Wire::decode(input)?, Wire::decode(input)?);
        let (stable, arrived) = (Wire::decode(input)?, Wire::decode(input)?);
        if input.rest().is_empty() {
            // What was signed, without the hints.
            return Ok(CausalClient { home, dependencies, stable, arrived, ..CausalClient::default() });
        }
        Ok(CausalClient { home, dependencies, stable, arrived, forecast: Wire::decode(input)?, prediction: Wire::decode(input)? })
    }
}
