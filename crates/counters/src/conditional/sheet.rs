//! A counter as one value that conditional writes keep: what it is, what has been done to it as one data center knows it, and which named updates that data center has made.

use super::names::{Known, Names};
use super::retry::{Edit, Edited};
use super::{Failure, Stopped};
use crate::definition::{Definition, Incarnation};
use crate::sealed::{open, seal};
use crate::state::{Circle, State};
use rheostat_clock::DcId;
use rheostat_core::counter::{Direction, UpdateName};
use rheostat_core::version::{Value, VersionId};
use rheostat_core::wire::{Wire, WireError};
use rheostat_core::wire_struct;

/// How the value begins.
const MAGIC: [u8; 11] = *b"\x00rheo sheet";

/// The form of such values that this software writes and reads.
const FORM: u8 = 1;

/// The value of one data center's key of a counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sheet {
    /// What the counter is.
    pub definition: Definition,
    /// What has been done to it.
    pub state: State,
    /// The named updates that this data center has made.
    pub names: Names,
}

impl Sheet {
    /// Nothing has been done to counter `made`.
    pub fn new(definition: Definition, made: VersionId) -> Sheet {
        Sheet { definition: Definition { incarnation: Incarnation::Of(made), ..definition }, state: State::new(made), names: Names::default() }
    }

    /// As a value.
    pub fn to_value(&self) -> Value {
        let mut out = MAGIC.to_vec();
        out.push(FORM);
        self.encode(&mut out);
        seal(out)
    }

    /// The sheet with this byte form. Errors: it is none, damaged, or of a later form.
    pub fn from_value(value: &[u8]) -> Result<Sheet, WireError> {
        if !value.starts_with(&MAGIC) {
            return Err(WireError::Invalid("the value is no counter of conditional writes"));
        }
        let body = open(value, "a counter, by its checksum")?.get(MAGIC.len()..).ok_or(WireError::Truncated)?;
        match body.split_first() {
            Some((&FORM, body)) => {
                let sheet = Sheet::from_bytes(body)?;
                // The rights in it are checked as those of any definition.
                Definition::from_value(&sheet.definition.to_value()).ok_or(WireError::Invalid("a counter's definition"))??;
                Ok(sheet)
            }
            _ => Err(WireError::Invalid("a counter of a form that this software does not know")),
        }
    }
}

/// Makes the counter.
#[derive(Debug)]
pub(super) struct Make {
    pub(super) sheet: Sheet,
}

impl Edit for Make {
    type Answer = Result<(), Failure>;

    fn edit(&mut self, before: Option<&Value>) -> Edited<Self::Answer> {
        let Some(value) = before else { return Edited::Write(self.sheet.to_value(), Ok(())) };
        // The name of a counter is drawn once, so one that has it was made by this very call.
        let mine = Sheet::from_value(value).is_ok_and(|there| there.state.incarnation == self.sheet.state.incarnation);
        Edited::Answer(if mine { Ok(()) } else { Err(Failure::Exists) })
    }
}

/// Adds to the counter, in its data center's own key.
#[derive(Debug)]
pub(super) struct Add {
    pub(super) circle: Circle,
    pub(super) amount: i64,
    pub(super) name: Option<UpdateName>,
    /// How many named updates had been made when this one was first tried.
    pub(super) since: Option<u64>,
    /// What the key holds if nothing has been written to it.
    pub(super) blank: Option<Sheet>,
    /// What others have done.
    pub(super) others: Vec<(DcId, State)>,
}

impl Edit for Add {
    type Answer = Result<i64, Stopped>;

    fn edit(&mut self, before: Option<&Value>) -> Edited<Self::Answer> {
        let mut sheet = match (before.map(|value| Sheet::from_value(value)), &self.blank) {
            (Some(Ok(sheet)), _) => sheet,
            (Some(Err(why)), _) => return Edited::Answer(Err(Stopped::Failed(Failure::Damaged(why)))),
            (None, Some(blank)) => blank.clone(),
            (None, None) => return Edited::Answer(Err(Stopped::Absent)),
        };
        let since = *self.since.get_or_insert(sheet.names.made());
        if let Some(name) = self.name {
            match sheet.names.look(name, Some(since)) {
                Known::New => {}
                Known::Made(value) => return Edited::Answer(Ok(value)),
                Known::Outdated => return Edited::Answer(Err(Stopped::Failed(Failure::Outdated))),
                Known::Forgotten => return Edited::Answer(Err(Stopped::Failed(Failure::Uncertain))),
            }
        }
        for (from, state) in &self.others {
            sheet.state.absorb(&self.circle, *from, state);
        }
        match sheet.state.add(&sheet.definition, &self.circle, self.amount) {
            Ok(value) => {
                if let Some(name) = self.name {
                    sheet.names.record(name, value);
                }
                Edited::Write(sheet.to_value(), Ok(value))
            }
            Err(refusal) => Edited::Answer(Err(Stopped::Refused(refusal, Box::new(sheet)))),
        }
    }
}

/// Moves rights to another data center, in the giver's key.
#[derive(Debug)]
pub(super) struct Give {
    /// The giver's.
    pub(super) circle: Circle,
    pub(super) to: DcId,
    pub(super) direction: Direction,
    pub(super) amount: u64,
    /// What the giver had moved there when this was first tried. Paper: R\[j\]\[i\], section IV-D.
    pub(super) known: Option<u64>,
    /// What the giver does not know yet.
    pub(super) news: State,
    /// What the key holds if nothing has been written to it.
    pub(super) blank: Sheet,
}

impl Edit for Give {
    type Answer = Result<State, Failure>;

    fn edit(&mut self, before: Option<&Value>) -> Edited<Self::Answer> {
        let mut sheet = match before.map(|value| Sheet::from_value(value)) {
            None => self.blank.clone(),
            Some(Ok(sheet)) => sheet,
            Some(Err(why)) => return Edited::Answer(Err(Failure::Damaged(why))),
        };
        sheet.state.absorb(&self.circle, self.to, &self.news);
        let (here, direction) = (self.circle.here, self.direction);
        let moved = sheet.state.row(here).moved(self.to, direction);
        if moved != *self.known.get_or_insert(moved) {
            return Edited::Answer(Ok(sheet.state));
        }
        let held = sheet.state.rights(&sheet.definition, &self.circle, here, direction).unwrap_or(0);
        match sheet.state.move_rights(&sheet.definition, &self.circle, self.to, direction, self.amount.min(held)) {
            Ok(()) if self.amount.min(held) > 0 => Edited::Write(sheet.to_value(), Ok(sheet.state)),
            _ => Edited::Answer(Ok(sheet.state)),
        }
    }
}

wire_struct!(Sheet { definition, state, names });
