//! Logs to standard error.

use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object for each line.
    Json,
}

/// The store's engine says only what is wrong, unless RHEOSTAT_LOG asks for more. Of Cassandra's driver nothing: what is wrong there is told by those who use it.
const ENGINE: &str = "fjall=error,lsm_tree=error,value_log=error,scylla=off";

/// Starts logging. What is logged: the environment variable RHEOSTAT_LOG (as in `info,rheostat_server=debug`), else `default`.
///
/// # Errors
/// RHEOSTAT_LOG is malformed, in words for the user.
pub fn start(format: Format, default: &str) -> Result<(), String> {
    let wanted = std::env::var("RHEOSTAT_LOG").unwrap_or_else(|_| format!("{default},{ENGINE}"));
    let filter = EnvFilter::try_new(&wanted).map_err(|error| format!("RHEOSTAT_LOG=`{wanted}` is malformed: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        Format::Json => builder.json().try_init(),
    };
    started.map_err(|error| error.to_string())
}
