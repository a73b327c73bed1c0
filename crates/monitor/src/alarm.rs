//! What a monitor tells everybody.

use crate::predicate::Target;
use rheostat_clock::Timestamp;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::{wire_enum, wire_struct};
use std::fmt;

/// What is known of a violation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The states can have stood at one moment; the clocks are too close to say whether they did. Paper: the uncertain case, which counts.
    Possible,
    /// There was a moment at which all of them stood, if the clocks are no further apart than ε.
    Violated,
}

wire_enum!(Verdict, "a verdict of unknown kind", { 0 => Possible, 1 => Violated });

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Possible => "possible",
            Verdict::Violated => "violated",
        })
    }
}

/// One of the states that violate a predicate together. Paper: an element of the global state GS.
#[derive(Clone, PartialEq, Debug)]
pub struct Evidence {
    /// The variable.
    pub variable: Key,
    /// Its value, or how it begins; `None` if it was absent.
    pub value: Option<Vec<u8>>,
    /// The value's version; `None` if it was never written.
    pub version: Option<VersionId>,
    /// Where it stood.
    pub server: ServerId,
    /// Since when, on that server's clock.
    pub from: Timestamp,
    /// Until when; `None` if it stands, as far as is known.
    pub until: Option<Timestamp>,
}

/// A predicate was violated.
#[derive(Clone, PartialEq, Debug)]
pub struct Alarm {
    /// Its number; with the monitor's, unique in a cluster. When more is known of it, it is told again under the same number.
    pub number: u64,
    /// The predicate.
    pub target: Target,
    /// What is known.
    pub verdict: Verdict,
    /// A moment before which it was not violated by these states. Paper: T_violate.
    pub since: Timestamp,
    /// The states.
    pub evidence: Vec<Evidence>,
}

impl Wire for Evidence {
    fn encode(&self, out: &mut Vec<u8>) {
        self.variable.encode(out);
        self.value.encode(out);
        self.version.encode(out);
        self.server.dc.encode(out);
        self.server.partition.0.encode(out);
        self.server.replica.encode(out);
        self.from.encode(out);
        self.until.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Evidence {
            variable: Wire::decode(input)?,
            value: Wire::decode(input)?,
            version: Wire::decode(input)?,
            server: ServerId { dc: Wire::decode(input)?, partition: PartitionId(Wire::decode(input)?), replica: Wire::decode(input)? },
            from: Wire::decode(input)?,
            until: Wire::decode(input)?,
        })
    }
}

wire_struct!(Alarm { number, target, verdict, since, evidence });
