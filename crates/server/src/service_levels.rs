//! Service levels at this node: those that have names, what operations under them came to, and what is expected of the next ones.
//!
//! Only operations under a service level come here. What they share is behind locks that are held for some hundred nanoseconds.

use crate::access::{self, Access};
use crate::config::{KeyspaceConfig, NodeConfig, ServiceLevelConfig};
use crate::shared::{Shared, lock};
use crate::status::{Histogram, ServiceLevelStatus, ServiceLevelTally};
use futures::future::join_all;
use rheostat_core::answer::Read;
use rheostat_core::counter::{CounterCall, Rights, Standing};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::notch::{NOBODY, label_of};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::{Acted, Outcome};
use rheostat_core::session::Session;
use rheostat_core::sla::{self, Achieved, Ask, Course, Forecast, Keeping, MOST_ENTRIES, Progress, Request, ServiceLevel, Wait};
use rheostat_core::{DcId, Timestamp};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// What service levels without a name are counted as.
pub const UNNAMED: &str = "unnamed";

/// A service level that operations are served under.
#[derive(Debug)]
pub(crate) struct Served {
    /// Its name, if it has one.
    pub(crate) name: Option<String>,
    pub(crate) aims: Arc<ServiceLevel>,
    /// Of reads under it, where they are sampled.
    label: u16,
    counts: Arc<Mutex<Counts>>,
}

/// What operations under a service level came to.
#[derive(Debug, Default)]
struct Counts {
    reads: Tally,
    writes: Tally,
    probes: u64,
    /// By data center: answers that came from there, and not from here.
    elsewhere: Vec<u64>,
    staleness_ms: Histogram,
}

/// Reads or writes: by the entry that they satisfy, counted from 0 as in the service level.
#[derive(Debug, Default)]
struct Tally {
    held: [u64; MOST_ENTRIES],
    missed: u64,
    latency_us: Histogram,
}

impl Tally {
    fn held(&mut self, achieved: &Achieved) {
        self.held[achieved.entry] += 1;
        self.latency_us.record(achieved.used_us, 1);
    }

    /// Of the entries `of`, which have `texts`.
    fn status(&self, of: Range<usize>, texts: &[String]) -> ServiceLevelTally {
        let entries = of.map(|entry| (entry + 1, texts[entry].clone(), self.held[entry])).collect();
        ServiceLevelTally { entries, missed: self.missed, latency_us: self.latency_us.clone() }
    }
}

/// See the module.
pub(crate) struct ServiceLevels {
    named: BTreeMap<String, Arc<Served>>,
    unnamed: Arc<Mutex<Counts>>,
    /// By keyspace: the one that its reads are served under if they name none.
    defaults: Vec<Option<Arc<Served>>>,
    /// By keyspace, what is expected at each partition.
    forecasts: Vec<Mutex<BTreeMap<PartitionId, Forecast>>>,
}

impl ServiceLevels {
    /// As configured, which has been checked.
    pub(crate) fn new(config: &NodeConfig) -> ServiceLevels {
        let served = |(name, text): (&String, &ServiceLevelConfig)| {
            let aims = ServiceLevel::parse(&text.entries).ok()?;
            let label = label_of(name);
            Some((name.clone(), Arc::new(Served { name: Some(name.clone()), aims: Arc::new(aims), label, counts: Arc::default() })))
        };
        let named: BTreeMap<String, Arc<Served>> = config.service_levels.iter().filter_map(served).collect();
        let default = |keyspace: &KeyspaceConfig| named.get(keyspace.service_level.as_ref()?).cloned();
        ServiceLevels {
            defaults: config.keyspaces.iter().map(default).collect(),
            forecasts: config.keyspaces.iter().map(|_| Mutex::default()).collect(),
            unnamed: Arc::default(),
            named,
        }
    }

    /// The one that reads in `keyspace` are served under if they name none.
    pub(crate) fn default_of(&self, keyspace: KeyspaceId) -> Option<&Arc<Served>> {
        self.defaults.get(usize::from(keyspace.0))?.as_ref()
    }

    /// The one of this name, else the one that this text describes.
    ///
    /// # Errors
    /// In words for the user: no such name, and no service level.
    pub(crate) fn find(&self, text: &str) -> Result<Arc<Served>, String> {
        if let Some(served) = self.named.get(text) {
            return Ok(served.clone());
        }
        let aims = ServiceLevel::parse(text).map_err(|why| match self.named.len() {
            0 => why,
            _ => format!("{why}; service levels with a name are {}", self.named.keys().cloned().collect::<Vec<_>>().join(", ")),
        })?;
        Ok(Arc::new(Served { name: None, aims: Arc::new(aims), label: label_of(UNNAMED), counts: self.unnamed.clone() }))
    }

    fn with_forecast<R>(&self, (keyspace, partition): (KeyspaceId, PartitionId), look: impl FnOnce(&mut Forecast) -> R) -> R {
        look(lock(&self.forecasts[usize::from(keyspace.0)]).entry(partition).or_default())
    }

    /// What reads under each of them came to; last those that have no name.
    pub(crate) fn status(&self) -> Vec<ServiceLevelStatus> {
        let told = |name: &str, texts: Vec<String>, (reads, writes): (Range<usize>, Range<usize>), counts: &Mutex<Counts>| {
            let counts = lock(counts);
            ServiceLevelStatus {
                name: name.to_owned(),
                reads: counts.reads.status(reads, &texts),
                writes: counts.writes.status(writes, &texts),
                probes: counts.probes,
                elsewhere: counts.elsewhere.clone(),
                staleness_ms: counts.staleness_ms.clone(),
            }
        };
        let named = |(name, served): (&String, &Arc<Served>)| {
            let (texts, reads): (Vec<String>, _) = (served.aims.entries().collect(), served.aims.aims().len());
            let of = (0..reads, reads..texts.len());
            told(name, texts, of, &served.counts)
        };
        let mut all: Vec<ServiceLevelStatus> = self.named.iter().map(named).collect();
        let unnamed = told(UNNAMED, vec![String::new(); MOST_ENTRIES], (0..MOST_ENTRIES, 0..MOST_ENTRIES), &self.unnamed);
        if unnamed.reads.is_used() || unnamed.writes.is_used() {
            all.push(unnamed);
        }
        all
    }
}

impl Served {
    /// Its name, or its entries.
    pub(crate) fn text(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.aims.to_string())
    }

    /// Counts what a read came to, or what a transaction got.
    fn count_read(&self, outcome: &Outcome, achieved: Option<Achieved>) {
        let mut counts = lock(&self.counts);
        let Some(achieved) = achieved else {
            counts.reads.missed += 1;
            return;
        };
        counts.reads.held(&achieved);
        if let Some(at) = achieved.at.map(DcId::index) {
            let most = counts.elsewhere.len().max(at + 1);
            counts.elsewhere.resize(most, 0);
            counts.elsewhere[at] += 1;
        }
        if let Some(staleness_ms) = outcome.quality().and_then(|quality| quality.staleness_ms) {
            counts.staleness_ms.record(staleness_ms, 1);
        }
    }

    /// Counts what a write came to.
    fn count_write(&self, achieved: Option<Achieved>) {
        let mut counts = lock(&self.counts);
        match achieved {
            Some(achieved) => counts.writes.held(&achieved),
            None => counts.writes.missed += 1,
        }
    }
}

/// From where an operation under a service level may be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// This data center alone: it signs what it says.
    Here,
    /// Others too.
    Anywhere,
}

/// Runs `operation` at its partition, under `served` if there is one that has entries for it.
pub(crate) async fn run(
    access: &impl Access,
    place: (KeyspaceId, PartitionId),
    session: Session,
    operation: Operation,
    (served, reach): (Option<&Served>, Reach),
) -> (Outcome, Option<Achieved>, Session) {
    let request = match served {
        Some(served) => Request::of(operation, &served.aims).map(|request| (request, served)),
        None => Err(operation),
    };
    match request {
        Ok((request, served)) => serve(access, place, session, request, (served, reach)).await,
        Err(operation) => {
            let (outcome, session) = access.start(place.0, place.1, session, operation).finish().await;
            (outcome, None, session)
        }
    }
}

/// Runs `operations` at once, each under `served` and with its own copy of `session`, which then remembers what all of them saw. The outcomes come in order, with the [`least`] that was achieved.
pub(crate) async fn run_all(
    access: &impl Access,
    keyspace: KeyspaceId,
    session: &mut Session,
    operations: impl IntoIterator<Item = (PartitionId, Operation)>,
    served: &Served,
) -> (Vec<Outcome>, Option<Achieved>) {
    let running = operations
        .into_iter()
        .map(|(partition, operation)| run(access, (keyspace, partition), session.clone(), operation, (Some(served), Reach::Here)));
    let came = join_all(running).await;
    let (mut outcomes, mut achieved) = (Vec::with_capacity(came.len()), None);
    for (outcome, of_one, seen) in came {
        if let Some(info) = access.keyspace(keyspace) {
            info.merge_sessions(session, &seen);
        }
        outcomes.push(outcome);
        achieved = least(achieved, of_one);
    }
    (outcomes, achieved)
}

/// What two writes came to together; what writes nothing achieves nothing, and does not count.
pub(crate) fn least(one: Option<Achieved>, other: Option<Achieved>) -> Option<Achieved> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    Some(Achieved {
        entry: one.entry.max(other.entry),
        used_us: one.used_us.max(other.used_us),
        data_centers: one.data_centers.min(other.data_centers),
        at: None,
    })
}

/// Makes `request` at `partition`, with the best entry of `served` that can be expected to hold, and others while there is time. The answer comes with the entry that it satisfies.
pub(crate) async fn serve(
    access: &impl Access,
    place: (KeyspaceId, PartitionId),
    session: Session,
    request: Request,
    (served, reach): (&Served, Reach),
) -> (Outcome, Option<Achieved>, Session) {
    match request {
        Request::Read { operation, dial, several } => read(access, place, session, (&operation, dial, several), (served, reach)).await,
        Request::Write(operation) => write(access, place, session, *operation, served).await,
    }
}

/// Whether another data center can be asked for `operation`: reads of the present. Of a transaction of commands not if it watches keys: that was seen here, and is compared with what is here.
pub(crate) fn travels(operation: &Operation) -> bool {
    match operation {
        Operation::Get { .. } | Operation::Siblings { .. } | Operation::ReadTransaction { .. } => true,
        Operation::Counter { call, .. } => matches!(call, CounterCall::Look { .. }),
        Operation::Transact { guards, .. } => guards.is_empty() && !operation.writes(),
        _ => false,
    }
}

async fn read(
    access: &impl Access,
    place: (KeyspaceId, PartitionId),
    mut session: Session,
    (operation, dial, several): (&Operation, Dial, bool),
    (served, reach): (&Served, Reach),
) -> (Outcome, Option<Achieved>, Session) {
    let shared = access.shared().clone();
    let levels = &shared.service_levels;
    let now_us = || shared.clocks.monotonic_us();
    let serves = |level| shared.keyspaces[usize::from(place.0.0)].serves(level);
    let most_us = shared.config.limits.operation_timeout_ms * 1000;
    let dial = Dial { label: served.label, ..dial };
    let mut course = Course::begin(&served.aims, dial, several, now_us(), most_us, serves);
    if reach == Reach::Anywhere && travels(operation) && served.aims.may_leave() {
        course = course.with_away(shared.away(place));
    }
    let mut next = levels.with_forecast(place, |forecast| course.next(forecast, now_us()));
    let (outcome, achieved) = loop {
        let Some(ask) = next else { break (Outcome::Failed(course.missed()), None) };
        if let Some(probe) = levels.with_forecast(place, |forecast| course.probe(&ask, forecast, now_us())) {
            probe_beside(access, place, &session, operation.with_dial(Dial { label: NOBODY, ..probe.dial }), probe, served);
        }
        let asked = operation.with_dial(ask.dial);
        let before = session.clone();
        let (outcome, seen) = match ask.at {
            None => access.start(place.0, place.1, session, asked).finish().await,
            Some(dc) => ask_away(&shared, (dc, place), session, asked, ask.until_us).await,
        };
        let was_answered = outcome.quality().is_some();
        let progress = levels.with_forecast(place, |forecast| course.answer(&ask, outcome, forecast, now_us()));
        // What satisfies no entry is not shown, and has not been seen: a write in the place of values side by side would replace some that nobody knew of.
        let is_shown = matches!(progress, Progress::Done(_, Some(_))) || !was_answered;
        session = if is_shown { seen } else { before };
        match progress {
            Progress::Ask(another) => next = Some(another),
            Progress::Done(outcome, achieved) => break (outcome, achieved),
        }
    };
    served.count_read(&outcome, achieved);
    (outcome, achieved, session)
}

/// Makes a read in another data center, until its time is over. What comes back is taken as far as it can be true; the session is what it was if it is not, or if there is no answer.
async fn ask_away(
    shared: &Shared,
    (dc, place): (DcId, (KeyspaceId, PartitionId)),
    session: Session,
    operation: Operation,
    until_us: u64,
) -> (Outcome, Session) {
    let started = shared.start_away(dc, place, session.clone(), &operation);
    let by = shared.clocks.instant(until_us).into();
    let Ok((outcome, seen)) = tokio::time::timeout_at(by, started.finish()).await else {
        return (Outcome::Failed(Failure::Timeout("its answer".into())), session);
    };
    if matches!(outcome, Outcome::Failed(_)) {
        return (outcome, session);
    }
    let limits = &shared.config.limits;
    let can_be = CanBe {
        serves: &|level| shared.keyspaces[usize::from(place.0.0)].serves(level),
        data_centers: shared.topology.data_centers.len(),
        latest_ms: shared.clocks.physical_ms().saturating_add(limits.max_ahead_ms),
        most_bytes: limits.max_reply_bytes.max(limits.max_request_bytes),
    };
    match can_be.check(&operation, &outcome, &seen) {
        Ok(()) => (outcome, seen),
        Err(why) => {
            let dc = shared.topology.dc_name(dc);
            if let Some(left_out) = shared.throttle.line(shared.clocks.monotonic_us(), &format!("answer of {dc}: {why}")) {
                tracing::warn!(data_center = dc, why, left_out, "the answer of another data center to a read is refused");
            }
            (Outcome::Failed(Failure::Refused(format!("its answer is refused: {why}"))), session)
        }
    }
}

/// What an answer from another data center can be.
struct CanBe<'a> {
    serves: &'a dyn Fn(Level) -> bool,
    data_centers: usize,
    /// The latest time that a timestamp can have.
    latest_ms: u64,
    most_bytes: usize,
}

impl CanBe<'_> {
    /// Whether `outcome` can be what came of `operation`, and `after` what its session has become. Errors: why not.
    fn check(&self, operation: &Operation, outcome: &Outcome, after: &Session) -> Result<(), &'static str> {
        let mut reads: SmallVec<[&Read; 4]> = SmallVec::new();
        let quality = match (operation, outcome) {
            (Operation::Get { .. }, Outcome::Read(read, quality)) => {
                reads.push(read);
                *quality
            }
            (Operation::ReadTransaction { keys, .. }, Outcome::Many(found, quality)) if found.len() == keys.len() => {
                reads.extend(found);
                *quality
            }
            (Operation::Siblings { .. }, Outcome::Siblings(found, quality)) => {
                reads.extend(found);
                *quality
            }
            (Operation::Counter { .. }, Outcome::Counter(view)) => {
                let is_one = |dc: DcId| dc.index() < self.data_centers;
                let can_be = |rights: &Rights| is_one(rights.dc) && !matches!(rights.standing, Standing::Reclaimed(by) if !is_one(by));
                if view.rights.len() > self.data_centers || !view.rights.iter().all(can_be) {
                    return Err("it tells of rights that cannot be");
                }
                view.quality
            }
            (Operation::Transact { actions, .. }, Outcome::Transacted(acted, None, quality)) if acted.len() == actions.len() => {
                for acted in acted {
                    let Acted::Read(read) = acted else { return Err("it answers something else") };
                    reads.push(read);
                }
                *quality
            }
            _ => return Err("it answers something else"),
        };
        if !(self.serves)(quality.level) {
            return Err("it says a level that the keyspace does not serve");
        }
        if reads.iter().map(|read| read.value.as_ref().map_or(0, |value| value.len())).sum::<usize>() > self.most_bytes {
            return Err("it is larger than a reply may be (limits.max_reply_bytes)");
        }
        let impossible = |read: &Read| {
            read.version.is_some_and(|version| version.origin.index() >= self.data_centers || version.written.millis() > self.latest_ms)
        };
        if reads.iter().any(|read| impossible(read)) {
            return Err("it names a version that cannot be");
        }
        if after.data_centers() > self.data_centers || after.newest().millis() > self.latest_ms {
            return Err("its session has seen what cannot be");
        }
        Ok(())
    }
}

/// Makes a write, and waits for its copies in other data centers. What a transaction gets beside satisfies an entry for reads.
async fn write(
    access: &impl Access,
    place: (KeyspaceId, PartitionId),
    session: Session,
    mut operation: Operation,
    served: &Served,
) -> (Outcome, Option<Achieved>, Session) {
    let shared = access.shared().clone();
    let now_us = || shared.clocks.monotonic_us();
    let begun_us = now_us();
    let gets = !served.aims.aims().is_empty() && operation.gets();
    if gets && let Some(dial) = operation.dial_mut() {
        *dial = served.aims.least(*dial, shared.keyspaces[usize::from(place.0.0)].level);
    }
    let (outcome, session) = access.start(place.0, place.1, session, operation).finish().await;
    let read = if gets { outcome.quality() } else { None };
    let version = sla::written(&outcome, &session, shared.topology.here);
    let mut achieved = None;
    if let Some(quality) = read {
        let used_us = now_us().saturating_sub(begun_us);
        achieved = served.aims.held(quality, used_us, false).map(|entry| Achieved { entry, used_us, data_centers: None, at: None });
        if achieved.is_none() {
            served.count_read(&outcome, None);
            let missed = format!(
                "an entry of the service level `{}` to be held: the transaction is made, and what it got is of level {} after {} ms",
                served.text(),
                quality.level,
                used_us / 1000
            );
            return (Outcome::Failed(Failure::Timeout(missed)), None, session);
        }
    }
    let Some(upto) = version.filter(|_| !served.aims.copies().is_empty()) else {
        if achieved.is_some() {
            served.count_read(&outcome, achieved);
        }
        return (outcome, achieved, session);
    };
    let most_us = shared.config.limits.operation_timeout_ms * 1000;
    let mut keeping = Keeping::begin(&served.aims, begun_us, most_us, shared.topology.data_centers.len());
    let mut reached = 1;
    let mut probed = false;
    loop {
        let next = shared.service_levels.with_forecast(place, |forecast| {
            let wait = keeping.next(forecast, now_us())?;
            Some((wait, keeping.probe(&wait, forecast, now_us()).filter(|_| !probed)))
        });
        let Some((wait, probe)) = next else { break };
        if let Some(probe) = probe {
            probed = true;
            await_beside(access, place, &session, upto, probe, served);
        }
        match access::copies(access, place, session.clone(), upto, wait.data_centers, shared.clocks.instant(wait.until_us).into()).await {
            Ok(copies) => reached = copies,
            // Whatever the failure says of itself, that nothing was changed would be wrong.
            Err(failure) => {
                served.count_write(None);
                let unknown = format!(
                    "an entry of the service level `{}` to be held: the write is made, and of its copies nothing is known: {failure}",
                    served.text()
                );
                return (Outcome::Failed(Failure::Timeout(unknown)), None, session);
            }
        }
        let came_us = now_us();
        shared.service_levels.with_forecast(place, |forecast| forecast.record_wait(&wait, came_us, reached >= wait.data_centers));
        if let Some(entry) = keeping.held(reached, came_us) {
            let achieved = Achieved { entry, used_us: came_us.saturating_sub(begun_us), data_centers: Some(reached), at: None };
            served.count_write(Some(achieved));
            return (outcome, Some(achieved), session);
        }
    }
    served.count_write(None);
    let used_ms = now_us().saturating_sub(begun_us) / 1000;
    let missed = format!(
        "an entry of the service level `{}` to be held: the write is made, and after {used_ms} ms {reached} of the data centers had it",
        served.text()
    );
    (Outcome::Failed(Failure::Timeout(missed)), None, session)
}

/// Waits for copies of a write that nobody waits for, to learn whether what `probe` is for can be held.
fn await_beside(access: &impl Access, place: (KeyspaceId, PartitionId), session: &Session, upto: Timestamp, probe: Wait, served: &Served) {
    lock(&served.counts).probes += 1;
    let operation = Operation::AwaitReplication { upto, data_centers: probe.data_centers.saturating_sub(1) };
    let started = access.beside().start(place.0, place.1, session.clone(), operation);
    let (shared, here) = (access.shared().clone(), access.topology().here);
    tokio::spawn(async move {
        let by = shared.clocks.instant(probe.until_us).into();
        let came = match tokio::time::timeout_at(by, started.finish()).await {
            Ok((outcome, _)) => access::counted(outcome, upto, here).is_ok_and(|copies| copies >= probe.data_centers),
            Err(_) => false,
        };
        let now_us = shared.clocks.monotonic_us();
        shared.service_levels.with_forecast(place, |forecast| forecast.record_wait(&probe, now_us, came));
    });
}

/// Makes a read whose answer nobody gets, to learn whether what it asks for can be held.
fn probe_beside(access: &impl Access, place: (KeyspaceId, PartitionId), session: &Session, operation: Operation, probe: Ask, served: &Served) {
    lock(&served.counts).probes += 1;
    let session = session.clone();
    let made = match probe.at {
        None => Ok(access.beside().start(place.0, place.1, session, operation)),
        Some(dc) => Err((dc, session, operation)),
    };
    let (shared, aims) = (access.shared().clone(), served.aims.clone());
    tokio::spawn(async move {
        let (outcome, _) = match made {
            Ok(started) => started.finish().await,
            Err((dc, session, operation)) => ask_away(&shared, (dc, place), session, operation, probe.until_us).await,
        };
        let now_us = shared.clocks.monotonic_us();
        let came = outcome.quality().is_some_and(|quality| aims.aims()[probe.entry].is_held(quality, 0));
        shared.service_levels.with_forecast(place, |forecast| forecast.record(&probe, now_us, came));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::answer::Quality;
    use rheostat_core::counter::{CounterView, NewCounter};
    use rheostat_core::operation::{Action, Guard};
    use rheostat_core::version::{Item, Key, VersionId};
    use rheostat_protocols::causal::CausalClient;

    /// A session that has seen what data center `origin` wrote at `at_ms`.
    fn session(at_ms: u64, origin: u8) -> Session {
        let mut client = CausalClient { home: Some(DcId(0)), ..CausalClient::default() };
        client.dependencies.raise(DcId(origin), Timestamp::new(at_ms, 0));
        Session::new(client)
    }

    #[test]
    fn reads_travel_and_what_was_watched_does_not() {
        let (key, dial) = (|| Key::from(b"k".as_slice()), Dial::default());
        let transact = |action, guards| Operation::Transact { actions: vec![action], guards, dial };
        let put = || Item { key: key(), value: None, expires_ms: 0 };
        for (operation, expected) in [
            (Operation::Get { key: key(), dial }, true),
            (Operation::ReadTransaction { keys: vec![key()], dial }, true),
            (Operation::Siblings { key: key(), dial }, true),
            (Operation::Counter { call: CounterCall::Look { key: key() }, dial }, true),
            (Operation::Counter { call: CounterCall::Create { key: key(), counter: NewCounter::default() }, dial }, false),
            (transact(Action::Get(key()), Vec::new()), true),
            (transact(Action::Get(key()), vec![Guard { key: key(), version: None }]), false),
            (transact(Action::Put(put()), Vec::new()), false),
            (Operation::Put { items: [put()].into_iter().collect(), dial }, false),
            (Operation::Scan { slot: 0, from: 0, limit: 1 }, false),
        ] {
            assert_eq!(travels(&operation), expected, "{operation:?}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_is_refused() {
        let key = || Key::from(b"k".as_slice());
        let quality = Quality { level: Level::Causal, staleness_ms: Some(3) };
        let can_be = CanBe { serves: &|level| level != Level::Strong, data_centers: 3, latest_ms: 1_000, most_bytes: 10 };
        let get = Operation::Get { key: key(), dial: Dial::default() };
        let both = Operation::ReadTransaction { keys: vec![key(), key()], dial: Dial::default() };
        let read = |at_ms, origin, bytes: usize| Read {
            value: Some(vec![0; bytes].into()),
            version: Some(VersionId { written: Timestamp::new(at_ms, 0), origin: DcId(origin) }),
            expires_ms: 0,
        };
        let fine = || read(1_000, 2, 10);
        let check = |operation, outcome, session| can_be.check(operation, &outcome, session);
        let (went, late, strange) = (&session(1_000, 2), &session(1_001, 2), &session(900, 3));
        assert_eq!(check(&get, Outcome::Read(fine(), quality), went), Ok(()));
        let new = Session::new(CausalClient::default());
        assert_eq!(check(&get, Outcome::Read(Read::default(), quality), &new), Ok(()));
        assert_eq!(check(&both, Outcome::Many(vec![read(1, 0, 5), read(2, 1, 5)], quality), went), Ok(()));
        let siblings = Operation::Siblings { key: key(), dial: Dial::default() };
        assert_eq!(check(&siblings, Outcome::Siblings(vec![read(1, 0, 5), read(2, 1, 5)], quality), went), Ok(()));
        assert_eq!(check(&siblings, Outcome::Siblings(Vec::new(), quality), went), Ok(()));
        let look = Operation::Counter { call: CounterCall::Look { key: key() }, dial: Dial::default() };
        let rights = |dc, standing| Rights { dc: DcId(dc), down: None, up: None, standing };
        let view = |rights| Outcome::Counter(Box::new(CounterView { value: 7, lower: None, upper: None, rights, quality }));
        assert_eq!(check(&look, view(vec![rights(2, Standing::Member), rights(0, Standing::Reclaimed(DcId(1)))]), went), Ok(()));
        let gets = Operation::Transact { actions: vec![Action::Get(key()), Action::Get(key())], guards: Vec::new(), dial: Dial::default() };
        let acted = || vec![Acted::Read(fine()), Acted::Read(Read::default())];
        assert_eq!(check(&gets, Outcome::Transacted(acted(), None, quality), went), Ok(()));
        let written = fine().version;
        let strong = Quality { level: Level::Strong, ..quality };
        for (operation, outcome, session, says) in [
            (&get, Outcome::Count(1), went, "something else"),
            (&get, Outcome::Many(vec![fine()], quality), went, "something else"),
            (&both, Outcome::Read(fine(), quality), went, "something else"),
            (&both, Outcome::Many(vec![fine()], quality), went, "something else"),
            (&get, Outcome::Read(fine(), strong), went, "does not serve"),
            (&get, Outcome::Read(read(1, 0, 11), quality), went, "larger"),
            (&both, Outcome::Many(vec![read(1, 0, 6), read(1, 0, 5)], quality), went, "larger"),
            (&siblings, Outcome::Siblings(vec![read(1, 0, 6), read(1, 0, 5)], quality), went, "larger"),
            (&siblings, Outcome::Siblings(vec![read(1, 0, 5), read(1, 3, 5)], quality), went, "a version that cannot be"),
            (&siblings, Outcome::Read(fine(), quality), went, "something else"),
            (&look, Outcome::Count(7), went, "something else"),
            (&look, view(vec![rights(3, Standing::Member)]), went, "rights that cannot be"),
            (&look, view(vec![rights(0, Standing::Reclaimed(DcId(3)))]), went, "rights that cannot be"),
            (&look, view(vec![rights(0, Standing::Member); 4]), went, "rights that cannot be"),
            (&gets, Outcome::Transacted(acted(), written, quality), went, "something else"),
            (&gets, Outcome::Transacted(vec![Acted::Read(fine())], None, quality), went, "something else"),
            (&gets, Outcome::Transacted(vec![Acted::Written, Acted::Written], None, quality), went, "something else"),
            (&gets, Outcome::Transacted(vec![Acted::Read(read(1_001, 0, 1)), Acted::Written], None, quality), went, "something else"),
            (&get, Outcome::Read(read(1_001, 0, 1), quality), went, "a version that cannot be"),
            (&get, Outcome::Read(read(1, 3, 1), quality), went, "a version that cannot be"),
            (&get, Outcome::Read(fine(), quality), late, "has seen what cannot be"),
            (&get, Outcome::Read(fine(), quality), strange, "has seen what cannot be"),
        ] {
            let refused = check(operation, outcome, session).unwrap_err();
            assert!(refused.contains(says), "{refused}, and not {says}");
        }
    }
}
