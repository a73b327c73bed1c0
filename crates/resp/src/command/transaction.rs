//! Commands that make others one step.

use super::{Arguments, Command, Entry, Parsed};

pub(crate) fn multi<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Multi)
}

pub(crate) fn exec<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Exec)
}

pub(crate) fn discard<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Discard)
}

pub(crate) fn watch<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Watch(arguments.from(1)))
}

pub(crate) fn unwatch<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Unwatch)
}
