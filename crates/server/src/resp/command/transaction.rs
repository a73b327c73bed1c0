//! Commands that make others one step.

use super::{Arguments, Command, Entry, Parsed};

pub(in crate::resp) fn multi<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Multi)
}

pub(in crate::resp) fn exec<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Exec)
}

pub(in crate::resp) fn discard<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Discard)
}

pub(in crate::resp) fn watch<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Watch(arguments.from(1)))
}

pub(in crate::resp) fn unwatch<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Unwatch)
}
