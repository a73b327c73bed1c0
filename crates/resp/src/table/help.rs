//! What `HELP` subcommands answer.

use super::{COMMANDS, Entry};
use crate::reply::ReplyWriter;

/// Writes the help of the container that `help` (`client|help`) is a subcommand of: its subcommands, each with its syntax and
/// what it does.
pub fn reply(help: &Entry, out: &mut ReplyWriter<'_>) {
    let container = help.name.split_once('|').and_then(|(name, _)| COMMANDS.iter().find(|entry| entry.name == name));
    let name = container.map_or(help.name, |entry| entry.name).to_uppercase();
    let subcommands = container.map_or([].as_slice(), |entry| entry.subcommands);
    out.array(1 + 2 * subcommands.len());
    out.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for subcommand in subcommands {
        let syntax = subcommand.syntax();
        out.simple(syntax.strip_prefix(name.as_str()).map_or(syntax.as_str(), str::trim_start));
        out.simple(&format!("    {}.", subcommand.summary));
    }
}
