//! What can go wrong in a benchmark.

use std::fmt;

/// Why a benchmark could not be started or finished.
///
/// A failed operation inside a running load is not an `Error`: it is counted by kind in the report.
#[derive(Debug)]
pub enum Error {
    /// An option is outside its bounds, or options contradict each other. The text names the option and the bound.
    Options(String),
    /// No connection to `address`, or it was lost.
    Connection {
        /// The address as it was given.
        address: String,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The peer at `address` answered something that is not of its protocol, or not an answer to what was asked.
    Protocol {
        /// The address as it was given.
        address: String,
        /// What was wrong with the answer.
        detail: String,
    },
    /// The peer at `address` refused a request that the benchmark needs (`AUTH`, `SELECT`, a load's insert).
    Refused {
        /// The address as it was given.
        address: String,
        /// The peer's error, or what was counted.
        detail: String,
    },
    /// Nothing came back from `address` within the time that the options allow.
    Timeout {
        /// The address as it was given.
        address: String,
        /// What was waited for.
        waiting_for: String,
    },
    /// A program that the benchmark drives is not installed. The text says which, and what package has it.
    Missing(String),
    /// A program that the benchmark drives failed. The text has its own message.
    Program(String),
    /// The machine refused something local: a thread, a temporary directory, a port.
    Local {
        /// What was attempted.
        attempt: String,
        /// What the operating system says.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn options(text: impl Into<String>) -> Error {
        Error::Options(text.into())
    }

    pub(crate) fn local(attempt: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Local { attempt: attempt.into(), source }
    }

    /// A short word under which failed operations are counted.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Error::Options(_) => "options",
            Error::Connection { .. } => "connection",
            Error::Protocol { .. } => "protocol",
            Error::Refused { .. } => "refused",
            Error::Timeout { .. } => "timeout",
            Error::Missing(_) | Error::Program(_) | Error::Local { .. } => "local",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Options(text) | Error::Missing(text) | Error::Program(text) => f.write_str(text),
            Error::Connection { address, source } => write!(f, "connection to {address}: {source}"),
            Error::Protocol { address, detail } => write!(f, "{address} does not answer as expected: {detail}"),
            Error::Refused { address, detail } => write!(f, "{address} refused: {detail}"),
            Error::Timeout { address, waiting_for } => write!(f, "{address} did not answer in time: {waiting_for}"),
            Error::Local { attempt, source } => write!(f, "{attempt}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Connection { source, .. } | Error::Local { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Checks that `value` is from `low` to `high`, both included; the error names the option.
pub(crate) fn check_range<T: PartialOrd + fmt::Display>(option: &str, value: T, low: T, high: T) -> Result<(), Error> {
    if value >= low && value <= high { Ok(()) } else { Err(Error::Options(format!("{option} is {value}; it must be from {low} to {high}"))) }
}
