//! Commands on counters: the family `RHEO COUNTER`.

use super::{Arguments, Command, CommandError, Parsed, REPEATED, Request, RheoCommand, printable};
use crate::number::{parse_i64, parse_u64};
use rheostat_core::counter::{Direction, Scope, UpdateName};

/// RHEO COUNTER's subcommands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterCommand<'a> {
    /// CREATE.
    Create(CreateCounter<'a>),
    /// ADD.
    Add {
        /// The counters and what is added to each.
        changes: Changes<'a>,
        /// The rest.
        how: HowToAdd,
    },
    /// GET.
    Look(&'a [u8]),
    /// MOVE.
    Move {
        /// The key.
        key: &'a [u8],
        /// The data center that gets the rights: its name or its number.
        to: &'a [u8],
        /// Which rights.
        direction: Direction,
        /// How many.
        amount: u64,
    },
    /// TRANSFER.
    Transfer {
        /// The counter that is decremented.
        from: &'a [u8],
        /// The counter that is incremented.
        to: &'a [u8],
        /// By how much; greater than 0.
        amount: i64,
        /// The rest.
        how: HowToAdd,
    },
    /// RECLAIM.
    Reclaim {
        /// The key.
        key: &'a [u8],
        /// The data center that is gone: its name or its number.
        gone: &'a [u8],
    },
}

/// RHEO COUNTER CREATE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateCounter<'a> {
    /// The key.
    pub key: &'a [u8],
    /// MIN.
    pub lower: Option<i64>,
    /// MAX.
    pub upper: Option<i64>,
    /// VALUE; 0 if it is not given.
    pub initial: i64,
    /// PLACE; empty if it is not given.
    pub placement: Weights<'a>,
}

/// How ADD and TRANSFER go about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HowToAdd {
    /// LOCAL or GLOBAL; `None` is the connection's scope.
    pub scope: Option<Scope>,
    /// ID.
    pub name: Option<UpdateName>,
}

/// Keys and what is added to each, by turns; every second argument is an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changes<'a>(Arguments<'a>);

impl<'a> Changes<'a> {
    /// `None` unless there is at least one pair and every second argument is an integer.
    pub fn new(arguments: Arguments<'a>) -> Option<Changes<'a>> {
        let changes = Changes(arguments);
        (!arguments.is_empty() && changes.iter().count() * 2 == arguments.len()).then_some(changes)
    }

    /// Each key with what is added to it.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], i64)> + use<'a> {
        let arguments = self.0;
        (0..arguments.len() / 2).filter_map(move |pair| Some((arguments.get(2 * pair)?, parse_i64(arguments.get(2 * pair + 1)?)?)))
    }
}

/// Weights of data centers; every argument is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weights<'a>(Arguments<'a>);

impl<'a> Weights<'a> {
    /// The weights at the beginning of `arguments`.
    fn at_the_beginning_of(arguments: Arguments<'a>) -> Weights<'a> {
        Weights(arguments.first(arguments.iter().map_while(weight).count()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of the data centers.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.iter().filter_map(weight)
    }
}

fn weight(text: &[u8]) -> Option<u32> {
    parse_u64(text).and_then(|weight| u32::try_from(weight).ok())
}

fn other(text: impl Into<std::borrow::Cow<'static, str>>) -> CommandError {
    CommandError::Other(text.into())
}

pub(super) fn integer(text: &[u8]) -> Result<i64, CommandError> {
    parse_i64(text).ok_or(CommandError::NotAnInteger)
}

/// A number of rights or units to move.
fn amount(text: &[u8]) -> Result<u64, CommandError> {
    let amount = parse_u64(text).filter(|amount| *amount > 0 && *amount <= i64::MAX as u64);
    amount.ok_or_else(|| other("ERR the amount must be an integer greater than 0"))
}

/// Whether `word` is `name`, in any case.
fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

pub(super) fn rheo_scope(request: Request<'_>) -> Parsed<'_> {
    if request.len() > 3 {
        return Err(CommandError::WrongArity(request.entry.name));
    }
    let named = |word: &[u8]| {
        scope(word).ok_or_else(|| other(format!("ERR there is no scope '{}', the scopes are local, global", printable(word, REPEATED))))
    };
    Ok(Command::Rheo(RheoCommand::Scope(request.get(2).map(named).transpose()?)))
}

fn scope(word: &[u8]) -> Option<Scope> {
    std::str::from_utf8(word).ok().and_then(Scope::from_name)
}

fn counter(command: CounterCommand<'_>) -> Parsed<'_> {
    Ok(Command::Counter(command))
}

pub(super) fn counter_create(request: Request<'_>) -> Parsed<'_> {
    let (mut lower, mut upper, mut initial, mut placement) = (None, None, None, None);
    let mut rest = request.from(4);
    while let Some(word) = rest.get(0) {
        let next = || rest.get(1).ok_or(CommandError::Syntax).and_then(integer);
        let used = match word {
            _ if is(word, "min") && lower.is_none() => {
                lower = Some(next()?);
                2
            }
            _ if is(word, "max") && upper.is_none() => {
                upper = Some(next()?);
                2
            }
            _ if is(word, "value") && initial.is_none() => {
                initial = Some(next()?);
                2
            }
            _ if is(word, "place") && placement.is_none() => {
                let weights = Weights::at_the_beginning_of(rest.from(1));
                if weights.iter().all(|weight| weight == 0) {
                    let limit = u32::MAX;
                    return Err(other(format!("ERR PLACE needs a weight from 0 to {limit} for each data center, and one of them greater than 0")));
                }
                placement = Some(weights);
                1 + weights.len()
            }
            _ => return Err(CommandError::Syntax),
        };
        rest = rest.from(used);
    }
    let placement = placement.unwrap_or(Weights(request.first(0)));
    counter(CounterCommand::Create(CreateCounter { key: request.at(3), lower, upper, initial: initial.unwrap_or(0), placement }))
}

/// Reads the options LOCAL, GLOBAL and ID; there is nothing behind them.
fn how_to_add(mut options: Arguments<'_>) -> Result<HowToAdd, CommandError> {
    let mut how = HowToAdd::default();
    while let Some(word) = options.get(0) {
        let used = match scope(word) {
            Some(scope) if how.scope.is_none() => {
                how.scope = Some(scope);
                1
            }
            None if is(word, "id") && how.name.is_none() => {
                let (Some(client), Some(number)) = (options.get(1), options.get(2)) else { return Err(CommandError::Syntax) };
                let number_of = |text: &[u8]| {
                    parse_u64(text).ok_or_else(|| other("ERR ID takes two integers from 0 to 18446744073709551615: the client's and the update's"))
                };
                how.name = Some(UpdateName { client: number_of(client)?, number: number_of(number)? });
                3
            }
            _ => return Err(CommandError::Syntax),
        };
        options = options.from(used);
    }
    Ok(how)
}

pub(super) fn counter_add(request: Request<'_>) -> Parsed<'_> {
    let rest = request.from(3);
    // The first word is a key whatever it is.
    let is_option = |index: &usize| rest.get(*index).is_some_and(|word| scope(word).is_some() || is(word, "id"));
    let pairs = (2..rest.len()).step_by(2).find(is_option).unwrap_or(rest.len());
    if pairs % 2 != 0 {
        return Err(CommandError::Syntax);
    }
    let changes = Changes::new(rest.first(pairs)).ok_or(CommandError::NotAnInteger)?;
    let how = how_to_add(rest.from(pairs))?;
    counter(CounterCommand::Add { changes, how })
}

pub(super) fn counter_get(request: Request<'_>) -> Parsed<'_> {
    counter(CounterCommand::Look(request.at(3)))
}

pub(super) fn counter_move(request: Request<'_>) -> Parsed<'_> {
    let word = request.at(6);
    let direction = std::str::from_utf8(word).ok().and_then(Direction::from_name);
    let direction = direction.ok_or_else(|| {
        let word = printable(word, REPEATED);
        other(format!("ERR there are no rights '{word}', there are DOWN (to decrement) and UP (to increment)"))
    })?;
    counter(CounterCommand::Move { key: request.at(3), to: request.at(4), direction, amount: amount(request.at(5))? })
}

pub(super) fn counter_transfer(request: Request<'_>) -> Parsed<'_> {
    // Not above the greatest integer, as `amount` has checked.
    let amount = amount(request.at(5))? as i64;
    counter(CounterCommand::Transfer { from: request.at(3), to: request.at(4), amount, how: how_to_add(request.from(6))? })
}

pub(super) fn counter_reclaim(request: Request<'_>) -> Parsed<'_> {
    counter(CounterCommand::Reclaim { key: request.at(3), gone: request.at(4) })
}
