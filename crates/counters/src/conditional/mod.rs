//! Counters over any store that can write a key if it is as it was read (document 002, section IV-B): whoever uses the counter reads its value, changes it and writes it back, and begins again if another came first.
//!
//! A counter is one key per data center, which only writes in that data center change: they are serialised there by the condition. The store replicates the keys, each to all others. Where the store decides for all data centers
//! at once, one key is enough, and the counter has one data center. No I/O: [`Call`] says what to read and to write, and where; its caller does it.
//!
//! What the owner in a server does beside is not here: no rights move in the background, and those of a data center that is gone are not taken over.

mod names;
mod retry;
mod sheet;

pub use retry::{Patience, Written};

use crate::definition::Definition;
use crate::state::{Circle, Refusal, State};
use names::Names;
use retry::{Edit, Next, Retry};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer::Quality;
use rheostat_core::counter::{CounterView, Direction, NewCounter, Rights, Scope, Standing, UpdateName};
use rheostat_core::random::Random;
use rheostat_core::version::{Key, Value, VersionId};
use rheostat_core::wire::WireError;
use sheet::{Add, Give, Make, Sheet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// Why a call did not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// There is a counter, or something else, already.
    Exists,
    /// There is none, as far as is known here.
    Absent,
    /// What would make it is out of order, in words for the user.
    Invalid(String),
    /// It may not be done.
    Refused(Refusal),
    /// What a key holds is no counter, or damaged.
    Damaged(WireError),
    /// A later update of this client was made.
    Outdated,
    /// It may have been made or not.
    Uncertain,
    /// Others came first every time; nothing was changed. How many writes were tried.
    Contended(u32),
    /// The store of this data center did not answer a read; nothing was changed.
    Unreachable(DcId),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Exists => f.write_str("the key is there already"),
            Failure::Absent => f.write_str("no such counter"),
            Failure::Invalid(why) => f.write_str(why),
            Failure::Refused(why) => why.fmt(f),
            Failure::Damaged(why) => write!(f, "the counter cannot be read: {why}"),
            Failure::Outdated => f.write_str("a later update of this client was made already; numbers must rise"),
            Failure::Uncertain => f.write_str("the update may have been made or not: no answer to a write came, and what is known now does not tell"),
            Failure::Contended(tried) => write!(f, "others came first {tried} times; nothing was changed"),
            Failure::Unreachable(dc) => write!(f, "the store of data center {dc} did not answer; nothing was changed"),
        }
    }
}

impl std::error::Error for Failure {}

/// Why an edit of the own key stopped.
#[derive(Debug)]
enum Stopped {
    /// The key was never written and what the counter is is not known.
    Absent,
    /// With what is in the key.
    Refused(Refusal, Box<Sheet>),
    Failed(Failure),
}

/// The keys of one counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The user's name for it.
    pub key: Key,
    /// The data centers that keep it, and where the caller is.
    pub circle: Circle,
}

impl Place {
    /// The key of `dc`'s part: the user's, a colon, and the number. Where there is one data center, the user's key itself.
    pub fn part(&self, dc: DcId) -> Key {
        match self.circle.members.len() {
            1 => self.key.clone(),
            _ => [&self.key[..], format!(":{}", dc.0).as_bytes()].concat().into(),
        }
    }

    /// Where it is decided what the counter is: the first data center.
    fn home(&self) -> DcId {
        self.circle.members.first().copied().unwrap_or(self.circle.here)
    }
}

/// What the caller does next.
#[derive(Clone, PartialEq, Debug)]
pub enum Want<V, A> {
    /// Read `key` in the store of data center `at`; then [`Call::read`].
    Read {
        /// Where.
        at: DcId,
        /// What.
        key: Key,
    },
    /// Write it there if it is still at `expected` (`None`: never written); then [`Call::written`].
    Write {
        /// Where.
        at: DcId,
        /// What.
        key: Key,
        /// Its new value.
        value: Value,
        /// The version that was read.
        expected: Option<V>,
    },
    /// Wait for so many microseconds; then [`Call::rested`].
    Pause(u64),
    /// The call is over.
    Over(Result<A, Failure>),
}

/// What a read found: the value and its version, or that the store did not answer.
pub type Found<V> = Result<(Option<Value>, Option<V>), ()>;

/// Something that is done to a counter step by step.
pub trait Call<V> {
    /// What comes of it.
    type Answer;

    /// The first step.
    fn begin(&mut self) -> Want<V, Self::Answer>;
    /// After [`Want::Read`].
    fn read(&mut self, found: Found<V>) -> Want<V, Self::Answer>;
    /// After [`Want::Write`].
    fn written(&mut self, written: Written) -> Want<V, Self::Answer>;
    /// After [`Want::Pause`].
    fn rested(&mut self) -> Want<V, Self::Answer>;
}

/// One key's edit under way, and where.
#[derive(Debug)]
struct At<E: Edit, V> {
    at: DcId,
    key: Key,
    retry: Retry<E, V>,
}

/// How it goes on with an edit.
enum Going<V, A> {
    Want(Want<V, A>),
    GaveUp { tried: u32, uncertain: bool },
}

impl<E: Edit, V: Clone + PartialEq> At<E, V> {
    /// Either what to do, or what came of it.
    fn go<A>(&self, next: Next<V, E::Answer>) -> Result<Going<V, A>, E::Answer> {
        let (at, key) = (self.at, self.key.clone());
        Ok(match next {
            Next::Done(answer) => return Err(answer),
            Next::Read => Going::Want(Want::Read { at, key }),
            Next::Write { value, expected } => Going::Want(Want::Write { at, key, value, expected }),
            Next::Pause(micros) => Going::Want(Want::Pause(micros)),
            Next::GaveUp { tried, uncertain } => Going::GaveUp { tried, uncertain },
        })
    }
}

fn gave_up(tried: u32, uncertain: bool) -> Failure {
    if uncertain { Failure::Uncertain } else { Failure::Contended(tried) }
}

/// Makes a counter: at the first data center, whose key decides.
#[derive(Debug)]
pub struct Creation<V> {
    edit: At<Make, V>,
}

impl<V: Clone + PartialEq> Creation<V> {
    /// Of the counter `new`, at `place`. Errors: what is out of order, in words for the user.
    pub fn new(place: &Place, new: &NewCounter, patience: Patience, mut random: Random) -> Result<Creation<V>, Failure> {
        let many = place.circle.members.iter().map(|dc| dc.0 + 1).max().unwrap_or(1);
        let definition = Definition::new(new, many, &place.circle.members).map_err(Failure::Invalid)?;
        let made = VersionId { written: Timestamp::from_bits(random.next_u64()), origin: place.circle.here };
        let (at, sheet) = (place.home(), Sheet::new(definition, made));
        Ok(Creation { edit: At { at, key: place.part(at), retry: Retry::new(Make { sheet }, patience, random) } })
    }

    fn go(&mut self, next: Next<V, Result<(), Failure>>) -> Want<V, ()> {
        match self.edit.go(next) {
            Err(answer) => Want::Over(answer),
            Ok(Going::Want(want)) => want,
            Ok(Going::GaveUp { tried, uncertain }) => Want::Over(Err(gave_up(tried, uncertain))),
        }
    }
}

impl<V: Clone + PartialEq> Call<V> for Creation<V> {
    type Answer = ();

    fn begin(&mut self) -> Want<V, ()> {
        self.go(Next::Read)
    }

    fn read(&mut self, found: Found<V>) -> Want<V, ()> {
        match found {
            Ok((value, version)) => {
                let next = self.edit.retry.read(value.as_ref(), version);
                self.go(next)
            }
            Err(()) => Want::Over(Err(if self.edit.retry.is_uncertain() { Failure::Uncertain } else { Failure::Unreachable(self.edit.at) })),
        }
    }

    fn written(&mut self, written: Written) -> Want<V, ()> {
        let next = self.edit.retry.written(written);
        self.go(next)
    }

    fn rested(&mut self) -> Want<V, ()> {
        self.go(Next::Read)
    }
}

/// Reads every data center's part, as the store here has them.
#[derive(Debug)]
struct Gathering {
    left: VecDeque<(DcId, DcId)>,
    /// Whether to read in the first data center's store if there is none here.
    at_home: bool,
    sheets: Vec<(DcId, Sheet)>,
}

impl Gathering {
    fn new(place: &Place, own_too: bool, at_home: bool) -> Gathering {
        let here = place.circle.here;
        let left = place.circle.members.iter().filter(|dc| own_too || **dc != here).map(|dc| (here, *dc)).collect();
        Gathering { left, at_home: at_home && place.home() != here, sheets: Vec::new() }
    }

    fn want<V, A>(&self, place: &Place) -> Option<Want<V, A>> {
        self.left.front().map(|(at, dc)| Want::Read { at: *at, key: place.part(*dc) })
    }

    /// Takes in what was read.
    fn read<V>(&mut self, place: &Place, found: Found<V>) -> Result<(), Failure> {
        let Some((at, dc)) = self.left.pop_front() else { return Ok(()) };
        let (value, _) = found.map_err(|()| Failure::Unreachable(at))?;
        if let Some(value) = value {
            self.sheets.push((dc, Sheet::from_value(&value).map_err(Failure::Damaged)?));
        }
        if self.left.is_empty() && self.sheets.is_empty() && std::mem::take(&mut self.at_home) {
            self.left.push_back((place.home(), place.home()));
        }
        Ok(())
    }

    /// A sheet on which nothing is done, of the counter that was found.
    fn blank(&self) -> Option<Sheet> {
        self.sheets.first().map(|(_, sheet)| Sheet {
            definition: sheet.definition.clone(),
            state: State::new(sheet.state.incarnation),
            names: Names::default(),
        })
    }
}

/// The counter, as the store here knows it.
#[derive(Debug)]
pub struct Look {
    place: Place,
    gathering: Gathering,
    quality: Quality,
}

impl Look {
    /// At `place`; `quality` says how good the store's reads are.
    pub fn new(place: &Place, quality: Quality) -> Look {
        Look { gathering: Gathering::new(place, true, true), place: place.clone(), quality }
    }

    fn view(&self) -> Result<CounterView, Failure> {
        let Sheet { definition, mut state, .. } = self.gathering.blank().ok_or(Failure::Absent)?;
        let circle = &self.place.circle;
        let states: Vec<(DcId, State)> = self.gathering.sheets.iter().map(|(dc, sheet)| (*dc, sheet.state.clone())).collect();
        state.merge(&State::gather(circle, state.incarnation, &states));
        let rights = |dc: DcId| {
            let of = |direction| state.rights(&definition, circle, dc, direction);
            Rights { dc, down: of(Direction::Down), up: of(Direction::Up), standing: Standing::Member }
        };
        Ok(CounterView {
            value: state.value(&definition),
            lower: definition.lower,
            upper: definition.upper,
            rights: [circle.here].into_iter().chain(circle.others()).map(rights).collect(),
            quality: self.quality,
        })
    }
}

impl<V> Call<V> for Look {
    type Answer = CounterView;

    fn begin(&mut self) -> Want<V, CounterView> {
        self.gathering.want(&self.place).unwrap_or_else(|| Want::Over(self.view()))
    }

    fn read(&mut self, found: Found<V>) -> Want<V, CounterView> {
        match self.gathering.read(&self.place, found) {
            Ok(()) => self.begin(),
            Err(why) => Want::Over(Err(why)),
        }
    }

    fn written(&mut self, _: Written) -> Want<V, CounterView> {
        self.begin()
    }

    fn rested(&mut self) -> Want<V, CounterView> {
        self.begin()
    }
}

/// What an update is doing.
#[derive(Debug)]
enum Stage<V> {
    /// Its own data center's key.
    Own(At<Add, V>),
    /// Looking at what others have done.
    Others(Gathering),
    /// Another's key, which gives rights.
    Give(At<Give, V>),
}

/// Adds to a counter.
#[derive(Debug)]
pub struct Update<V> {
    place: Place,
    amount: i64,
    scope: Scope,
    name: Option<UpdateName>,
    patience: Patience,
    random: Random,
    stage: Stage<V>,
    since: Option<u64>,
    blank: Option<Sheet>,
    others: BTreeMap<DcId, State>,
    /// Whether others have been looked at.
    looked: bool,
    /// Who was asked for rights.
    asked: BTreeSet<DcId>,
    writes: u32,
}

impl<V: Clone + PartialEq> Update<V> {
    /// Adds `amount` at `place`. With a name it is made once, however often it is called and whatever answers are lost, as long as fewer than [`KEPT`] other clients make named updates here meanwhile.
    pub fn new(place: &Place, amount: i64, scope: Scope, name: Option<UpdateName>, patience: Patience, mut random: Random) -> Update<V> {
        let add = Add { circle: place.circle.clone(), amount, name, since: None, blank: None, others: Vec::new() };
        let here = place.circle.here;
        let stage = Stage::Own(At { at: here, key: place.part(here), retry: Retry::new(add, patience, random.fork()) });
        let (since, blank, others) = (None, None, BTreeMap::new());
        Update {
            place: place.clone(),
            amount,
            scope,
            name,
            patience,
            random,
            stage,
            since,
            blank,
            others,
            looked: false,
            asked: BTreeSet::new(),
            writes: 0,
        }
    }

    /// How many conditional writes were tried.
    pub fn writes(&self) -> u32 {
        self.writes
    }

    fn own(&mut self) -> Want<V, i64> {
        let (circle, here) = (self.place.circle.clone(), self.place.circle.here);
        let others = self.others.iter().map(|(dc, state)| (*dc, state.clone())).collect();
        let add = Add { circle, amount: self.amount, name: self.name, since: self.since, blank: self.blank.clone(), others };
        let key = self.place.part(here);
        self.stage = Stage::Own(At { at: here, key: key.clone(), retry: Retry::new(add, self.patience, self.random.fork()) });
        Want::Read { at: here, key }
    }

    fn look_at_others(&mut self, otherwise: Failure) -> Want<V, i64> {
        if std::mem::replace(&mut self.looked, true) {
            return Want::Over(Err(otherwise));
        }
        let gathering = Gathering::new(&self.place, false, otherwise == Failure::Absent);
        let want = gathering.want(&self.place);
        self.stage = Stage::Others(gathering);
        want.unwrap_or(Want::Over(Err(otherwise)))
    }

    /// The own key refused: with what others have done it may go, or with rights of theirs.
    fn refused(&mut self, refusal: Refusal, sheet: Sheet) -> Want<V, i64> {
        let failure = Failure::Refused(refusal.clone());
        let Refusal::OutOfRights { direction, needed, here, elsewhere, .. } = refusal else { return Want::Over(Err(failure)) };
        if !self.looked && self.place.circle.members.len() > 1 {
            return self.look_at_others(failure);
        }
        if self.scope == Scope::Local || here.saturating_add(elsewhere) < needed {
            return Want::Over(Err(failure));
        }
        let rights = |dc: &DcId| sheet.state.rights(&sheet.definition, &self.place.circle, *dc, direction).unwrap_or(0);
        let Some(giver) = self.place.circle.others().filter(|dc| !self.asked.contains(dc)).max_by_key(|dc| (rights(dc), std::cmp::Reverse(*dc)))
        else {
            return Want::Over(Err(failure));
        };
        self.asked.insert(giver);
        let circle = Circle { here: giver, members: self.place.circle.members.clone() };
        let blank = Sheet { definition: sheet.definition.clone(), state: State::new(sheet.state.incarnation), names: Names::default() };
        let give = Give { circle, to: self.place.circle.here, direction, amount: needed - here, known: None, news: sheet.state, blank };
        let edit = At { at: giver, key: self.place.part(giver), retry: Retry::new(give, self.patience, self.random.fork()) };
        let want = Want::Read { at: giver, key: edit.key.clone() };
        self.stage = Stage::Give(edit);
        want
    }

    fn after_own(&mut self, next: Next<V, Result<i64, Stopped>>) -> Want<V, i64> {
        let Stage::Own(edit) = &self.stage else { return Want::Over(Err(Failure::Absent)) };
        self.since = edit.retry.edit().since;
        match edit.go(next) {
            Ok(Going::Want(want)) => {
                self.writes += u32::from(matches!(want, Want::Write { .. }));
                want
            }
            Ok(Going::GaveUp { tried, uncertain }) => Want::Over(Err(gave_up(tried, uncertain))),
            Err(Ok(value)) => Want::Over(Ok(value)),
            Err(Err(Stopped::Failed(why))) => Want::Over(Err(why)),
            Err(Err(Stopped::Absent)) => self.look_at_others(Failure::Absent),
            Err(Err(Stopped::Refused(refusal, sheet))) => self.refused(refusal, *sheet),
        }
    }

    /// Rights were given, or were not: then the own key knows that this one has none.
    fn after_give(&mut self, next: Next<V, Result<State, Failure>>) -> Want<V, i64> {
        let Stage::Give(edit) = &self.stage else { return Want::Over(Err(Failure::Absent)) };
        let giver = edit.at;
        match edit.go(next) {
            Ok(Going::Want(want)) => {
                self.writes += u32::from(matches!(want, Want::Write { .. }));
                want
            }
            Err(Err(why)) => Want::Over(Err(why)),
            Err(Ok(state)) => {
                self.others.insert(giver, state);
                self.own()
            }
            Ok(Going::GaveUp { .. }) => self.own(),
        }
    }
}

impl<V: Clone + PartialEq> Call<V> for Update<V> {
    type Answer = i64;

    fn begin(&mut self) -> Want<V, i64> {
        self.own()
    }

    fn read(&mut self, found: Found<V>) -> Want<V, i64> {
        match &mut self.stage {
            Stage::Own(edit) => match found {
                Ok((value, version)) => {
                    let next = edit.retry.read(value.as_ref(), version);
                    self.after_own(next)
                }
                Err(()) => Want::Over(Err(if edit.retry.is_uncertain() { Failure::Uncertain } else { Failure::Unreachable(edit.at) })),
            },
            Stage::Others(gathering) => {
                if let Err(why) = gathering.read(&self.place, found) {
                    return Want::Over(Err(why));
                }
                if let Some(want) = gathering.want(&self.place) {
                    return want;
                }
                self.blank = gathering.blank();
                self.others.extend(gathering.sheets.drain(..).map(|(dc, sheet)| (dc, sheet.state)));
                self.own()
            }
            Stage::Give(edit) => match found {
                Ok((value, version)) => {
                    let next = edit.retry.read(value.as_ref(), version);
                    self.after_give(next)
                }
                // Another may be reached, and the counter is as it was.
                Err(()) => self.own(),
            },
        }
    }

    fn written(&mut self, written: Written) -> Want<V, i64> {
        match &mut self.stage {
            Stage::Own(edit) => {
                let next = edit.retry.written(written);
                self.after_own(next)
            }
            Stage::Give(edit) => {
                let next = edit.retry.written(written);
                self.after_give(next)
            }
            Stage::Others(_) => self.own(),
        }
    }

    fn rested(&mut self) -> Want<V, i64> {
        match &self.stage {
            Stage::Own(edit) => Want::Read { at: edit.at, key: edit.key.clone() },
            Stage::Give(edit) => Want::Read { at: edit.at, key: edit.key.clone() },
            Stage::Others(_) => self.own(),
        }
    }
}
