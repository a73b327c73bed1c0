//! Why an update of counters lacked rights, in the details of a gRPC status.

use crate::v1;
use bytes::Bytes;
use prost::{Message, Name};
use prost_types::Any;
use rheostat_core::counter::{Direction, OutOfRights};
use rheostat_core::version::Key;

/// `google.rpc.Status`, which is what clients in every language look for in the details.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

impl Name for v1::OutOfRights {
    const NAME: &'static str = "OutOfRights";
    const PACKAGE: &'static str = "rheostat.v1";

    fn type_url() -> String {
        format!("type.googleapis.com/{}", Self::full_name())
    }
}

/// The message for a direction.
pub fn direction_out(direction: Direction) -> v1::Direction {
    match direction {
        Direction::Down => v1::Direction::Down,
        Direction::Up => v1::Direction::Up,
    }
}

/// The direction that the message means; `None` if it means none that this version knows.
pub fn direction_in(direction: i32) -> Option<Direction> {
    match v1::Direction::try_from(direction) {
        Ok(v1::Direction::Down) => Some(Direction::Down),
        Ok(v1::Direction::Up) => Some(Direction::Up),
        Ok(v1::Direction::Unspecified) | Err(_) => None,
    }
}

/// The details of a status with this code and text.
pub fn details_out(code: tonic::Code, text: &str, why: &OutOfRights) -> Bytes {
    let OutOfRights { key, value, direction, needed, here, elsewhere } = why;
    let why = v1::OutOfRights {
        key: Bytes::copy_from_slice(key),
        value: *value,
        direction: direction_out(*direction).into(),
        needed: *needed,
        here: *here,
        elsewhere: *elsewhere,
    };
    let detail = Any { type_url: v1::OutOfRights::type_url(), value: why.encode_to_vec() };
    RpcStatus { code: code.into(), message: text.to_string(), details: vec![detail] }.encode_to_vec().into()
}

/// What a status' details say of rights; `None` if they say nothing of them.
pub fn details_in(details: &[u8]) -> Option<OutOfRights> {
    let details = RpcStatus::decode(details).ok()?.details;
    let why: v1::OutOfRights = details.iter().find_map(|detail| detail.to_msg().ok())?;
    let v1::OutOfRights { key, value, direction, needed, here, elsewhere } = why;
    Some(OutOfRights { key: Key::from(&key[..]), value, direction: direction_in(direction)?, needed, here, elsewhere })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_survives_the_journey_and_other_details_are_passed_over() {
        for direction in Direction::ALL {
            let why = OutOfRights { key: Key::from(&b"stock"[..]), value: -3, direction, needed: 5, here: 2, elsewhere: u64::MAX };
            let details = details_out(tonic::Code::FailedPrecondition, "no", &why);
            assert_eq!(details_in(&details), Some(why));
            assert_eq!(details_in(&details[..details.len() - 1]), None);
        }
        assert_eq!(details_in(b""), None);
        let other = Any { type_url: "type.googleapis.com/google.rpc.Help".into(), value: vec![8, 1] };
        assert_eq!(details_in(&RpcStatus { code: 9, message: "no".into(), details: vec![other] }.encode_to_vec()), None);
    }
}
