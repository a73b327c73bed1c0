//! Rollback of a keyspace to a time in the past, in all data centers; what it promises stands in `docs/rollback.md`.

use crate::{Client, Error, Version, v1};
use bytes::Bytes;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::failure::Failure;
use rheostat_core::outcome::Outcome;
use rheostat_core::rollback::course::{Aim, Course, Request};
use rheostat_core::rollback::{Cause, Turn};
use rheostat_core::slots::partition_of;
use rheostat_core::version::VersionId;
use rheostat_proto::rollback::{answer_in, call_out};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;
use tokio::task::JoinSet;

pub use rheostat_core::rollback::Difference;
pub use rheostat_core::rollback::course::Report;

/// How long one step may take at its server, and on the way.
const STEP: Duration = Duration::from_secs(12);

/// What is to be rolled back.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// The keyspace, by name or number.
    pub keyspace: String,
    /// The time to go back to.
    pub at: Timestamp,
    /// Which keys: a pattern as in Redis' `KEYS`.
    pub keys: Bytes,
    /// What was wrong, versions with their keys: only keys whose newest version is one of these, or may depend on one by what its protocol knows, go back, to their newest version that is not and does
    /// not. None: all that was written since [`Rollback::at`].
    pub because: Vec<(Bytes, Version)>,
    /// For how long clients' writes are refused at most, if nobody says that they may go on.
    pub stop_for: Duration,
    /// Only say what would be lost.
    pub dry_run: bool,
}

impl Rollback {
    /// Rolls back. `clients` are of nodes in every data center that takes part; the first one's data center writes back. `progress` is told what is being done, in a word.
    ///
    /// If it is dropped, or its process dies, clients go on when the time is over; rolling back again is safe.
    ///
    /// # Errors
    /// Nothing was begun: a data center that takes part and of which there is no client, or a node that does not answer. What fails later is in the report.
    pub async fn run(&self, clients: &[Client], mut progress: impl FnMut(&str)) -> Result<Report, Error> {
        let first = clients.first().ok_or_else(|| Error::Refused("no node to ask".into()))?;
        let topology = first.topology().clone();
        let names = topology.data_centers.clone();
        let of_dc = |name: &String| clients.iter().find(|client| client.topology().data_center == *name).cloned();
        let found: Vec<Option<Client>> = names.iter().map(of_dc).collect();
        let status = first.admin().status(first.request(v1::StatusRequest {})).await?.into_inner();
        let ended = |name: &String| status.lost.iter().any(|lost| lost.data_center == *name && (lost.reserved || !lost.ends.is_empty()));
        if let Some(missing) = (0..names.len()).find(|dc| found[*dc].is_none() && !ended(&names[*dc]) && !self.dry_run) {
            return Err(Error::Unreachable(format!(
                "no node of data center {} answers: all that take part must be there to be rolled back",
                names[missing]
            )));
        }
        let number = |count: usize| u8::try_from(count).map_err(|_| Error::Server("too many data centers".into()));
        let here = names.iter().position(|name| *name == topology.data_center).unwrap_or(0);
        // Of a server's clock, not of this machine's.
        let now_ms = status.physical_ms;
        let stop_ms = u64::try_from(self.stop_for.as_millis()).unwrap_or(u64::MAX);
        let partitions = u16::try_from(topology.partitions).map_err(|_| Error::Server("too many partitions".into()))?;
        let cause =
            |(key, version): &(Bytes, Version)| Ok(Cause { version: named(&names, version)?, partition: Some(partition_of(key, partitions)) });
        let aim = Aim {
            turn: Turn::default(),
            name: RandomState::new().build_hasher().finish(),
            at: self.at,
            keys: self.keys[..].into(),
            because: self.because.iter().map(cause).collect::<Result<_, Error>>()?,
            until: Timestamp::new(now_ms.saturating_add(stop_ms), 0),
            dry_run: self.dry_run,
            here: DcId(number(here)?),
            data_centers: number(names.len())?,
            absent: (0..number(names.len())?).filter(|dc| ended(&names[usize::from(*dc)])).map(DcId).collect(),
            partitions,
        };
        let (mut course, first) = Course::begin(aim);
        let mut under_way = JoinSet::new();
        let start = |under_way: &mut JoinSet<_>, requests: Vec<Request>| {
            for ((dc, partition), call) in requests {
                let (client, names, keyspace) = (found[dc.index()].clone(), names.clone(), self.keyspace.clone());
                under_way.spawn(async move {
                    let step = Some(call_out(&names, &call));
                    let outcome = match client {
                        None => Outcome::Failed(Failure::Refused(format!("no node of data center {} is known", names[dc.index()]))),
                        Some(client) => {
                            let request = client.request_within(v1::RollbackRequest { keyspace, partition: partition.0.into(), step }, STEP);
                            match client.admin().rollback(request).await {
                                Ok(response) => answer_in(&names, response.into_inner()).unwrap_or_else(|why| Outcome::Failed(Failure::Storage(why))),
                                Err(status) => Outcome::Failed(failure(status.into(), partition)),
                            }
                        }
                    };
                    ((dc, partition), outcome)
                });
            }
        };
        progress(course.phase());
        start(&mut under_way, first);
        while let Some(answered) = under_way.join_next().await {
            let Ok((server, outcome)) = answered else { continue };
            let phase = course.phase();
            let next = course.answer(server, outcome);
            if course.phase() != phase && !course.is_done() {
                progress(course.phase());
            }
            start(&mut under_way, next);
        }
        Ok(course.into_report())
    }
}

/// The version that goes by this name.
fn named(names: &[String], version: &Version) -> Result<VersionId, Error> {
    let no_version = || Error::Refused(format!("there is no version {version}"));
    let origin = names.iter().position(|name| *name == version.origin).and_then(|place| u8::try_from(place).ok()).ok_or_else(no_version)?;
    let counter = u16::try_from(version.counter).map_err(|_| no_version())?;
    let millis = Some(version.millis).filter(|millis| millis >> 48 == 0).ok_or_else(no_version)?;
    Ok(VersionId { written: Timestamp::new(millis, counter), origin: DcId(origin) })
}

/// What the coordinator is told of an error.
fn failure(error: Error, partition: rheostat_core::ids::PartitionId) -> Failure {
    match error {
        Error::Busy(why) => Failure::Busy(why),
        Error::Timeout(why) => Failure::Timeout(why),
        Error::Refused(why) | Error::TooOld(why) | Error::Token(why) | Error::Unauthenticated(why) => Failure::Refused(why),
        Error::Unreachable(_) => Failure::Unreachable(partition),
        other => Failure::Storage(other.to_string()),
    }
}
