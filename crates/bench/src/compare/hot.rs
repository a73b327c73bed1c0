//! One counter that all connections decrement.

use super::Depth;
use super::benchmark::{Benchmark, Line, Load, Place};
use crate::error::Error;
use crate::target::resp::{RespStream, RespTarget};
use rheostat_resp::received::Reply;

/// What is in it: more than any run takes out.
const PLENTY: &str = "1000000000000";

async fn connect(place: &Place) -> Result<RespStream, Error> {
    let target = RespTarget {
        password: place.password.clone(),
        keyspace: place.database.map(|number| number.to_string()),
        ..RespTarget::new(&place.name, format!("{}:{}", place.host, place.port))
    };
    target.connect(0).await
}

/// Makes the counter, never below 0 where the server knows bounds.
///
/// # Errors
/// Those of connecting; [`Error::Refused`] if the server does not make it.
pub(super) async fn make(place: &Place, key: &str) -> Result<(), Error> {
    let mut stream = connect(place).await?;
    let bounded = stream.expect_ok(&[b"RHEO", b"COUNTER", b"CREATE", key.as_bytes(), b"MIN", b"0", b"VALUE", PLENTY.as_bytes()]).await;
    match bounded {
        Err(Error::Refused { detail, .. }) if detail.contains("unknown command") => {
            stream.expect_ok(&[b"SET", key.as_bytes(), PLENTY.as_bytes()]).await
        }
        made => made,
    }
}

async fn value(stream: &mut RespStream, key: &str) -> Result<i64, Error> {
    stream.queue([b"GET", key.as_bytes()].into_iter());
    let number = |reply: Reply<'_>| match reply {
        Reply::Bulk(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or_else(|| reply.describe()),
        other => Err(other.describe()),
    };
    let value = stream.next_reply(number).await?;
    value.map_err(|detail| Error::Protocol { address: stream.address().to_owned(), detail: format!("GET of a counter was answered with {detail}") })
}

/// Decrements it, and checks that every decrement was made: `redis-benchmark` counts errors as answers.
///
/// # Errors
/// Those of [`Benchmark::run`] and of connecting; [`Error::Refused`] if decrements are missing.
pub(super) async fn measure(benchmark: &Benchmark, place: &Place, key: &str, depth: &Depth) -> Result<Line, Error> {
    let mut stream = connect(place).await?;
    let before = value(&mut stream, key).await?;
    let lines = benchmark.run(place, Load::Command(&["DECR", key]), depth.pipeline, depth.requests).await?;
    let made = before - value(&mut stream, key).await?;
    // It sends whole pipelines, so a few more than asked for.
    if made < depth.requests as i64 {
        let detail = format!("of {} decrements {made} were made", depth.requests);
        return Err(Error::Refused { address: stream.address().to_owned(), detail });
    }
    lines.into_iter().next().ok_or_else(|| Error::Program("redis-benchmark printed no result of DECR".to_owned()))
}
