//! What can go wrong, in the client's words.

use rheostat_core::counter::OutOfRights;
use rheostat_proto::rights::details_in;
use rheostat_proto::{REFUSED, REFUSED_SESSION, REFUSED_TOO_OLD};
use std::error::Error as _;
use std::fmt;
use tonic::{Code, Status};

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The request is malformed. Nothing was changed.
    Refused(String),
    /// What was asked for is not kept any more: a feed's position is too old. Nothing was changed.
    TooOld(String),
    /// The session token is damaged or forged, does not belong to this cluster, keyspace or protocol, or was signed too long ago. Nothing was changed.
    Token(String),
    /// A counter would leave its bounds, with the rights that the update could use. Nothing was changed.
    NoRights(Box<OutOfRights>),
    /// The password is missing or wrong. Nothing was changed.
    Unauthenticated(String),
    /// The server has too much to do, or the message is too large. Nothing was changed.
    Busy(String),
    /// The deadline passed. A write may have happened.
    Timeout(String),
    /// No node that serves the key can be reached. A write may have happened.
    Unreachable(String),
    /// The server's store failed, or the server answered something that this client does not understand. A write may have happened.
    Server(String),
}

impl Error {
    /// Whether the same read, sent again, may succeed.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Busy(_) | Error::Unreachable(_))
    }

    /// Whether a write may have happened.
    pub(crate) fn is_doubt(&self) -> bool {
        matches!(self, Error::Timeout(_) | Error::Unreachable(_) | Error::Server(_))
    }

    /// Whether the same, asked for again, is refused again.
    pub(crate) fn is_refusal(&self) -> bool {
        !self.is_doubt() && !self.is_passing()
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        if let Some(why) = details_in(status.details()) {
            return Error::NoRights(Box::new(why));
        }
        let text = status.message().to_string();
        match status.metadata().get(REFUSED) {
            Some(what) if what == REFUSED_SESSION => return Error::Token(text),
            Some(what) if what == REFUSED_TOO_OLD => return Error::TooOld(text),
            _ => {}
        }
        match status.code() {
            // The connection broke under the call: nobody has said this.
            code if status.source().is_some() && !matches!(code, Code::DeadlineExceeded | Code::Cancelled) => Error::Unreachable(text),
            Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound | Code::OutOfRange | Code::Unimplemented => Error::Refused(text),
            Code::Unauthenticated => Error::Unauthenticated(text),
            Code::PermissionDenied => Error::Refused(text),
            Code::ResourceExhausted => Error::Busy(text),
            Code::DeadlineExceeded | Code::Cancelled => Error::Timeout(text),
            Code::Unavailable => Error::Unreachable(text),
            _ => Error::Server(format!("{:?}: {text}", status.code())),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(why) => write!(f, "refused: {why}"),
            Error::TooOld(why) => write!(f, "too old: {why}"),
            Error::Token(why) => write!(f, "session refused: {why}"),
            Error::NoRights(why) => write!(f, "no rights: {why}"),
            Error::Unauthenticated(why) => write!(f, "not authenticated: {why}"),
            Error::Busy(why) => write!(f, "busy: {why}"),
            Error::Timeout(why) => write!(f, "timeout: {why}"),
            Error::Unreachable(why) => write!(f, "unreachable: {why}"),
            Error::Server(why) => write!(f, "server error: {why}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_breaks_under_a_call_is_no_answer_of_the_server() {
        let broken = Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::BrokenPipe)));
        assert_eq!(broken.code(), Code::Unknown);
        assert!(matches!(Error::from(broken), Error::Unreachable(_)));
        assert!(matches!(Error::from(Status::unknown("it says so")), Error::Server(_)));
        assert!(matches!(Error::from(Status::from_error(Box::new(tonic::TimeoutExpired(())))), Error::Timeout(_)));
    }
}
