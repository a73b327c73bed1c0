//! The dial of a request, between its two forms.

use crate::v1;
use rheostat_core::Timestamp;
use rheostat_core::dial::{AsOf, Dial, Groups, Guarantees, Level, Quorum, Strategy};

const GUARANTEES: [(v1::Guarantee, Guarantees); 4] = [
    (v1::Guarantee::MonotonicReads, Guarantees::MONOTONIC_READS),
    (v1::Guarantee::ReadYourWrites, Guarantees::READ_YOUR_WRITES),
    (v1::Guarantee::MonotonicWrites, Guarantees::MONOTONIC_WRITES),
    (v1::Guarantee::WritesFollowReads, Guarantees::WRITES_FOLLOW_READS),
];

/// The message for `level`, and for its guarantees.
pub fn level_out(level: Level) -> (i32, Vec<i32>) {
    let (level, set) = match level {
        Level::Eventual => (v1::Level::Eventual, Guarantees::NONE),
        Level::Session(set) => (v1::Level::Session, set),
        Level::Causal => (v1::Level::Causal, Guarantees::NONE),
        Level::Local => (v1::Level::Local, Guarantees::NONE),
        Level::Strong => (v1::Level::Strong, Guarantees::NONE),
    };
    (level.into(), GUARANTEES.into_iter().filter(|(_, one)| set.has(*one)).map(|(message, _)| message.into()).collect())
}

/// The level that the messages mean; `None` if they name none. Errors: a level or guarantee that this version does not know, guarantees without
/// `LEVEL_SESSION`.
pub fn level_in(level: i32, guarantees: &[i32]) -> Result<Option<Level>, String> {
    let mut set = Guarantees::NONE;
    for number in guarantees {
        let known = GUARANTEES.into_iter().find(|(message, _)| i32::from(*message) == *number);
        set = set.with(known.ok_or_else(|| format!("there is no session guarantee {number}"))?.1);
    }
    let level = match v1::Level::try_from(level).map_err(|_| format!("there is no level {level}"))? {
        v1::Level::Unspecified => None,
        v1::Level::Eventual => Some(Level::Eventual),
        v1::Level::Causal => Some(Level::Causal),
        v1::Level::Local => Some(Level::Local),
        v1::Level::Strong => Some(Level::Strong),
        v1::Level::Session => Some(Level::Session(if set == Guarantees::NONE { Guarantees::ALL } else { set })),
    };
    match level {
        Some(Level::Session(_)) => Ok(level),
        _ if !guarantees.is_empty() => Err("guarantees are for LEVEL_SESSION".into()),
        _ => Ok(level),
    }
}

/// The message for `dial`; it names no service level.
pub fn dial_out(dial: Dial) -> v1::Dial {
    let (level, guarantees) = dial.level.map_or((v1::Level::Unspecified.into(), Vec::new()), level_out);
    let strategy = match dial.strategy {
        Strategy::Auto => v1::Strategy::Auto,
        Strategy::Coordinated => v1::Strategy::Coordinated,
        Strategy::Predicted => v1::Strategy::Predicted,
    };
    v1::Dial {
        level,
        guarantees,
        strategy: strategy.into(),
        groups: dial.groups.0,
        fresh_ms: dial.fresh_ms,
        within_us: dial.within_us,
        service_level: String::new(),
        quorum: (dial.quorum != Quorum::KEYSPACE).then(|| v1::Quorum {
            asked: dial.quorum.asked.into(),
            reads: dial.quorum.reads.into(),
            writes: dial.quorum.writes.into(),
        }),
        receipt: false,
        previous_receipt: bytes::Bytes::new(),
        as_of: dial.as_of.map(|at| v1::Timestamp { millis: at.time().millis(), counter: at.time().counter().into() }),
    }
}

/// What the message asks for. Errors: as [`level_in`], a strategy that this version does not know, a bound of 0.
pub fn dial_in(dial: &v1::Dial) -> Result<Dial, String> {
    let strategy = match v1::Strategy::try_from(dial.strategy).map_err(|_| format!("there is no strategy {}", dial.strategy))? {
        v1::Strategy::Auto => Strategy::Auto,
        v1::Strategy::Coordinated => Strategy::Coordinated,
        v1::Strategy::Predicted => Strategy::Predicted,
    };
    if dial.fresh_ms == Some(0) {
        return Err("fresh_ms = 0: no operation can keep that; leave it out for no bound".to_owned());
    }
    let level = level_in(dial.level, &dial.guarantees)?;
    let number = |name: &str, number: u32| u8::try_from(number).map_err(|_| format!("quorum.{name} = {number}: there are not so many replicas"));
    let quorum = dial.quorum.unwrap_or_default();
    let quorum = Quorum { asked: number("asked", quorum.asked)?, reads: number("reads", quorum.reads)?, writes: number("writes", quorum.writes)? };
    let as_of = dial.as_of.map(|at| match u16::try_from(at.counter).map(|counter| AsOf::new(Timestamp::new(at.millis, counter))) {
        Ok(Some(as_of)) if at.millis < 1 << 48 => Ok(as_of),
        _ => Err(format!("as_of = {}.{}: not a time that a clock can show", at.millis, at.counter)),
    });
    let (groups, as_of) = (Groups(dial.groups), as_of.transpose()?);
    Ok(Dial { level, strategy, groups, fresh_ms: dial.fresh_ms, within_us: dial.within_us, quorum, as_of, label: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dial_survives_the_journey() {
        let some = Level::Session(Guarantees::MONOTONIC_READS.with(Guarantees::WRITES_FOLLOW_READS));
        for level in Level::WORDS.into_iter().chain([some]).map(Some).chain([None]) {
            for strategy in Strategy::ALL {
                let quorum = Quorum { asked: 0, reads: 2, writes: 3 };
                let as_of = AsOf::new(Timestamp::new(1_795_350_898_000, 3));
                let dial = Dial { level, strategy, groups: Groups(5), fresh_ms: Some(3), within_us: None, quorum, as_of, label: 0 };
                assert_eq!(dial_in(&dial_out(dial)), Ok(dial));
            }
        }
    }

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        assert_eq!(level_in(99, &[]), Err("there is no level 99".into()));
        assert_eq!(level_in(v1::Level::Session.into(), &[9]), Err("there is no session guarantee 9".into()));
        assert!(level_in(v1::Level::Causal.into(), &[1]).unwrap_err().contains("LEVEL_SESSION"));
        assert_eq!(level_in(v1::Level::Session.into(), &[]), Ok(Some(Level::SESSION)));
        assert!(dial_in(&v1::Dial { fresh_ms: Some(0), ..Default::default() }).unwrap_err().contains("fresh_ms = 0"));
        assert_eq!(dial_in(&v1::Dial { within_us: Some(0), ..Default::default() }).unwrap().within_us, Some(0));
        for (millis, counter) in [(0, 0), (1 << 48, 0), (1, 65_536)] {
            let as_of = Some(v1::Timestamp { millis, counter });
            assert!(dial_in(&v1::Dial { as_of, ..Default::default() }).unwrap_err().contains(&format!("as_of = {millis}.{counter}")));
        }
        assert!(dial_in(&v1::Dial { strategy: 7, ..Default::default() }).unwrap_err().contains("strategy 7"));
    }
}
