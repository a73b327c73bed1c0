//! `rheostat protocols`.

use crate::Failure;
use crate::output;
use crate::table::Table;
use rheostat_protocols::registry;
use std::process::ExitCode;

/// Prints the list of protocols.
pub fn run() -> Result<ExitCode, Failure> {
    let mut table = Table::new(["protocol", "level", "promise"]);
    for protocol in registry::list() {
        table.row([protocol.name, protocol.level.name(), protocol.summary]);
    }
    output::text(&table.text(0));
    Ok(ExitCode::SUCCESS)
}
