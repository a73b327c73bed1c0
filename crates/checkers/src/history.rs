//! Recorded histories: what clients asked, and what they were told.

use rheostat_clock::DcId;
use rheostat_core::dial::{Guarantees, Level};
use rheostat_core::version::VersionId;
use std::fmt;

/// A session: operations one after another. Printed as `s3`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// A key of a history: its place in [`History::keys`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyId(pub u32);

impl KeyId {
    /// The place in a vector.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An event of a history: its place in [`History::events`]. Printed as `e7`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventId(pub u32);

impl EventId {
    /// The place in a vector.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A value that occurs in no other write of the history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UniqueValue(pub u64);

/// One key's part of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteItem {
    /// The key.
    pub key: KeyId,
    /// The value; `None` deletes.
    pub value: Option<UniqueValue>,
}

/// What a read returned for one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Observation {
    /// The version. `None` when there was none, or when the interface does not say; of a value, the version is then the
    /// one that its write is known by.
    pub version: Option<VersionId>,
    /// The value. `None` with a version is a tombstone; `None` without one is an absent key: never written here, or
    /// deleted and the tombstone collected.
    pub value: Option<UniqueValue>,
}

impl Observation {
    /// No version at all.
    pub const ABSENT: Observation = Observation { version: None, value: None };

    /// Whether neither a version nor a value came back.
    pub const fn is_absent(&self) -> bool {
        self.version.is_none() && self.value.is_none()
    }
}

/// When a change writes, by what the key was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Always: it only says what was there before.
    Always,
    /// If the key has no value.
    Absent,
    /// If the key has a value.
    Present,
    /// If the key has this value.
    Value(UniqueValue),
    /// If this version of a value is what a reader gets; `None`: if the key has no value.
    Version(Option<VersionId>),
    /// If the key has a value that expires.
    Expiring,
}

impl Condition {
    /// Whether it holds for a key that was `before`; `None` when that does not say.
    pub fn holds(self, before: Observation) -> Option<bool> {
        match self {
            Condition::Always => Some(true),
            Condition::Absent => Some(before.value.is_none()),
            Condition::Present => Some(before.value.is_some()),
            // Whether it expires, what was there before does not say.
            Condition::Expiring => before.value.is_none().then_some(false),
            Condition::Value(value) => Some(before.value == Some(value)),
            // A value without its version: the interface does not say which it was.
            Condition::Version(_) if before.version.is_none() && before.value.is_some() => None,
            Condition::Version(version) => Some(before.version.filter(|_| before.value.is_some()) == version),
        }
    }
}

/// What a session did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Wrote one version of each of these keys, together.
    Put {
        /// No key twice, at least one.
        items: Vec<WriteItem>,
        /// The level asked for.
        level: Level,
    },
    /// Looked at one key and wrote it if a condition held, with nothing between.
    Change {
        /// What to write.
        item: WriteItem,
        /// When.
        condition: Condition,
        /// The level asked for.
        level: Level,
    },
    /// Read one key.
    Get {
        /// The key.
        key: KeyId,
        /// The level asked for.
        level: Level,
    },
    /// Read several keys from one snapshot.
    ReadTransaction {
        /// No key twice, at least one.
        keys: Vec<KeyId>,
        /// The level asked for.
        level: Level,
    },
    /// Took over session tokens: from here on the session's causal past contains that of each of these events and the
    /// events themselves. A session that resumes another's token adopts the event after which the token was taken;
    /// moving to another data center keeps the session and needs no event.
    Adopt {
        /// The last event of each token's session before the token was taken.
        from: Vec<EventId>,
    },
}

/// What came of an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// No reply, or one that leaves it open: a write may have happened.
    Unknown,
    /// Refused: nothing was written, nothing was read.
    Failed,
    /// The put was acknowledged, under this version if the interface says so.
    Written(Option<VersionId>),
    /// What was read, in the order of the keys.
    Read(Vec<Observation>),
    /// The change was decided.
    Changed {
        /// Whether the condition held, and it was written.
        applied: bool,
        /// Of what was written, the version if the interface says so.
        version: Option<VersionId>,
        /// What was there before, if the interface says so.
        before: Option<Observation>,
    },
    /// The tokens were taken over.
    Adopted,
}

/// One event of one session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The session. Its events follow each other in the history in the order in which it did them.
    pub session: SessionId,
    /// The data center where it ran; a version that it writes has this origin.
    pub dc: DcId,
    /// When it was asked, in microseconds on the recorder's clock, which never goes back.
    pub invoked_us: u64,
    /// When it was answered, same clock; `None` exactly when the outcome is [`Outcome::Unknown`].
    pub completed_us: Option<u64>,
    /// What was asked.
    pub action: Action,
    /// What came of it.
    pub outcome: Outcome,
}

/// When what a write wrote may have expired: whoever is asked judges by its own clock, and clocks differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// Before this it has expired by no clock that could judge it, in microseconds on the recorder's clock.
    pub from_us: u64,
    /// After this it has by every one.
    pub until_us: u64,
}

/// What one data center holds of one key in the end, after healing, when everything has had time to arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FinalRead {
    /// When it was read, in microseconds on the recorder's clock.
    pub at_us: u64,
    /// The data center.
    pub dc: DcId,
    /// The key.
    pub key: KeyId,
    /// What it returned.
    pub observed: Observation,
}

/// A recorded history. Built by [`crate::HistoryBuilder`], or parsed from its text form with [`History::parse`].
///
/// # The text form
///
/// One event per line, with its number; printed by `Display`, read by [`History::parse`]. Lines that begin with `#` are
/// comments and are not kept.
///
/// ```text
/// datacenters 2
/// keys x y
/// lost e0
/// e0 s1 dc0 100..200 put x=1 y=- -> 5.0@0
/// e1 s1 dc0 210..? put x=2 -> ?
/// e2 s2 dc1 300..400 get causal x -> 1@5.0@0
/// e3 s2 dc1 410..500 rotx causal x y -> 1@5.0@0 -@5.0@0
/// e4 s3 dc1 510..510 adopt e3 -> ok
/// e5 s3 dc1 520..600 get eventual y -> -
/// e6 s3 dc1 610..700 get causal y -> failed
/// e7 s3 dc1 710..800 put strong x=3 -> 8.0@1
/// e8 s3 dc1 810..900 change strong absent x=4 -> unmet was 3@8.0@1
/// e9 s3 dc1 910..990 change strong value:3 x=4 -> applied 9.0@1 was 3
/// final dc0 900 x=1@5.0@0
/// ```
///
/// A line such as `expires e0 5000..5100` says when what `e0` wrote expires, by the first clock and by the last; `5000..?` where some clock did not come to it.
///
/// A put's level is left out when it is `causal`. A change is `always`, `absent`, `present`, `value:` and a value, `version:` and a version or `-`, or `expiring`; it
/// was `applied`, perhaps with the version it wrote, or `unmet`; then, behind `was`, what was there before, if that was told.
///
/// A put's outcome is its version, or `ok` when the reply did not say. A read's is, per key, `value@version`; `-` stands
/// for the value of a tombstone, `-` alone for an absent key, a value alone for one without a version. A version is
/// `milliseconds.counter@data center`. Bytes of a key other than letters, digits and `_ . : / -` are written `%` and
/// two hexadecimal digits; the empty key is `%`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// Number of data centers.
    pub data_centers: u8,
    /// The keys, each once.
    pub keys: Vec<Vec<u8>>,
    /// The events, in the order in which they were asked.
    pub events: Vec<Event>,
    /// What each data center holds in the end; empty when that was not asked. May hold several rounds.
    pub finals: Vec<FinalRead>,
    /// Writes that the promise of durability does not cover, in ascending order: acknowledged under a weaker durability
    /// before their server lost power, so that they may be gone.
    pub lost_allowed: Vec<EventId>,
    /// Writes whose values expire, in ascending order. A write whose expiry had passed already is one of them, though a deletion may have been made of it.
    pub expiring: Vec<(EventId, Expiry)>,
}

impl Event {
    /// The keys that this event read, with what came back; empty for what read nothing or did not succeed.
    pub fn observations(&self) -> impl Iterator<Item = (KeyId, Observation)> + '_ {
        let (keys, observed): (&[KeyId], &[Observation]) = match (&self.action, &self.outcome) {
            (Action::Get { key, .. }, Outcome::Read(observed)) => (std::slice::from_ref(key), observed),
            (Action::ReadTransaction { keys, .. }, Outcome::Read(observed)) => (keys, observed),
            (Action::Change { item, .. }, Outcome::Changed { before, .. }) => (std::slice::from_ref(&item.key), before.as_slice()),
            _ => (&[], &[]),
        };
        keys.iter().copied().zip(observed.iter().copied())
    }

    /// What this event wrote or may have written.
    pub fn items(&self) -> &[WriteItem] {
        match (&self.action, &self.outcome) {
            (_, Outcome::Failed | Outcome::Changed { applied: false, .. }) => &[],
            _ => self.attempted(),
        }
    }

    /// What it was to write, done or not.
    pub(crate) fn attempted(&self) -> &[WriteItem] {
        match &self.action {
            Action::Put { items, .. } => items,
            Action::Change { item, .. } => std::slice::from_ref(item),
            _ => &[],
        }
    }

    /// Whether it is known to have written, and under which version if that was told.
    pub fn acknowledged(&self) -> Option<Option<VersionId>> {
        match self.outcome {
            Outcome::Written(version) | Outcome::Changed { applied: true, version, .. } => Some(version),
            _ => None,
        }
    }

    /// The level asked for; `None` for an adoption.
    pub fn level(&self) -> Option<Level> {
        match self.action {
            Action::Put { level, .. } | Action::Change { level, .. } | Action::Get { level, .. } | Action::ReadTransaction { level, .. } => {
                Some(level)
            }
            Action::Adopt { .. } => None,
        }
    }

    /// Whether it was asked at a level that is at least `level`.
    pub(crate) fn is_at(&self, level: Level) -> bool {
        self.level().is_some_and(|asked| asked.implies(level))
    }

    /// Whether it said what some key was: a successful read, or a change that told what was there before.
    pub(crate) fn has_read(&self) -> bool {
        matches!(self.outcome, Outcome::Read(_) | Outcome::Changed { before: Some(_), .. })
    }

    /// Whether this is a successful read of level causal or stronger.
    pub fn is_causal_read(&self) -> bool {
        self.has_read() && self.is_at(Level::Causal)
    }
}

impl History {
    /// The event `id`, which must be one of this history's.
    pub fn event(&self, id: EventId) -> &Event {
        &self.events[id.index()]
    }

    /// When what the write `id` wrote expires; `None` if it does not.
    pub fn expiry(&self, id: EventId) -> Option<Expiry> {
        self.expiring.binary_search_by_key(&id, |(event, _)| *event).ok().map(|place| self.expiring[place].1)
    }

    /// The events with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (EventId, &Event)> {
        (0..).map(EventId).zip(&self.events)
    }

    /// Says what is wrong with the history itself, if anything: a checker could make no sense of it.
    pub fn validate(&self) -> Result<(), String> {
        if self.events.len() > u32::MAX as usize || self.keys.len() > u32::MAX as usize {
            return Err("more than 2^32 events or keys".into());
        }
        for (id, event) in self.numbered() {
            self.validate_event(id, event).map_err(|why| format!("e{}: {why}", id.0))?;
        }
        let mut sessions = std::collections::BTreeMap::new();
        for (id, event) in self.numbered() {
            let free = sessions.insert(event.session, event.completed_us.unwrap_or(event.invoked_us)).unwrap_or(0);
            if event.invoked_us < free {
                return Err(format!("e{}: s{} had another operation under way until {free}", id.0, event.session.0));
            }
        }
        for read in &self.finals {
            let name = |what: &str| format!("final dc{} {}: {what}", read.dc.0, read.at_us);
            if read.dc.0 >= self.data_centers || read.key.index() >= self.keys.len() {
                return Err(name("no such data center or key"));
            }
            self.validate_version(read.observed.version).map_err(|why| name(&why))?;
        }
        if let Some(id) = self.lost_allowed.iter().find(|id| id.index() >= self.events.len() || self.event(**id).items().is_empty()) {
            return Err(format!("lost e{}: no write", id.0));
        }
        if !self.lost_allowed.is_sorted_by(|a, b| a < b) {
            return Err("lost: not in ascending order".into());
        }
        let is_write = |id: EventId| id.index() < self.events.len() && !self.event(id).attempted().is_empty();
        if let Some((id, _)) = self.expiring.iter().find(|(id, expiry)| !is_write(*id) || expiry.until_us < expiry.from_us) {
            return Err(format!("expires e{}: no write, or it ends before it begins", id.0));
        }
        if !self.expiring.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err("expires: not in ascending order".into());
        }
        Ok(())
    }

    fn validate_event(&self, id: EventId, event: &Event) -> Result<(), String> {
        if event.dc.0 >= self.data_centers {
            return Err(format!("no data center {}", event.dc.0));
        }
        if event.completed_us.is_some_and(|completed| completed < event.invoked_us) {
            return Err("completed before it was invoked".into());
        }
        if event.completed_us.is_none() != (event.outcome == Outcome::Unknown) {
            return Err("only an unknown outcome has no time of completion".into());
        }
        if event.level() == Some(Level::Session(Guarantees::NONE)) {
            return Err("a set of no session guarantees is level eventual".into());
        }
        let keys: Vec<KeyId> = match &event.action {
            Action::Change { item, .. } => vec![item.key],
            Action::Put { items, .. } => items.iter().map(|item| item.key).collect(),
            Action::Get { key, .. } => vec![*key],
            Action::ReadTransaction { keys, .. } => keys.clone(),
            Action::Adopt { from } => {
                if let Some(later) = from.iter().find(|from| **from >= id) {
                    return Err(format!("adopts e{}, which is not before it", later.0));
                }
                return match event.outcome {
                    Outcome::Adopted | Outcome::Failed | Outcome::Unknown => Ok(()),
                    _ => Err("an adoption's outcome is `ok`".into()),
                };
            }
        };
        if keys.is_empty() || keys.iter().any(|key| key.index() >= self.keys.len()) {
            return Err("no key, or one that is not in the table of keys".into());
        }
        if keys.len() > 1 {
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err("a key occurs twice".into());
            }
        }
        let written = |version: Option<VersionId>| {
            self.validate_version(version)?;
            match version {
                Some(version) if version.origin != event.dc => Err(format!("a write at dc{} got a version of {}", event.dc.0, version.origin)),
                _ => Ok(()),
            }
        };
        match (&event.action, &event.outcome) {
            (_, Outcome::Unknown | Outcome::Failed) => Ok(()),
            (Action::Put { .. }, Outcome::Written(version)) => written(*version),
            (Action::Change { condition, .. }, Outcome::Changed { applied, version, before }) => {
                if !applied && (version.is_some() || *condition == Condition::Always) {
                    return Err("it was not applied and has a version, or no condition".into());
                }
                if let Condition::Version(expected) = condition {
                    self.validate_version(*expected)?;
                }
                before.iter().try_for_each(|before| self.validate_version(before.version))?;
                written(*version)
            }
            (Action::Get { .. } | Action::ReadTransaction { .. }, Outcome::Read(observed)) => {
                if observed.len() != keys.len() {
                    return Err(format!("{} keys were read and {} results came back", keys.len(), observed.len()));
                }
                observed.iter().try_for_each(|observation| self.validate_version(observation.version))
            }
            _ => Err("the outcome does not fit the action".into()),
        }
    }

    fn validate_version(&self, version: Option<VersionId>) -> Result<(), String> {
        match version {
            Some(version) if version.written == rheostat_clock::Timestamp::ZERO => Err("a version with the timestamp 0".into()),
            Some(version) if version.origin.0 >= self.data_centers => Err(format!("a version from data center {}", version.origin.0)),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}
