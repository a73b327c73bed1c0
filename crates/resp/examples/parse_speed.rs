//! How fast requests are parsed on one core: `cargo run --release -p rheostat-resp --example parse_speed`.
//!
//! Each line is one kind of request, many of them in one buffer, as a pipelining client sends them: first only parsed into
//! arguments, then also into typed commands, then those that are one operation on one key into that operation. The best of several rounds is shown.

use rheostat_core::counter::Scope;
use rheostat_core::dial::Dial;
use rheostat_resp::{Arguments, Command, Limits, Parser, ReplyWriter, RespVersion, encode_request};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Requests in the buffer, and passes over it in one round.
const PIPELINED: usize = 16;
const PASSES: usize = 20_000;
const ROUNDS: usize = 7;

fn best(mut round: impl FnMut()) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed()
        })
        .min()
        .unwrap_or_default()
}

/// Calls `each` with every request of the buffer, again and again.
fn parse_all(buffer: &[u8], mut each: impl FnMut(Arguments<'_>)) {
    let mut parser = Parser::new(Limits::default());
    for _ in 0..PASSES {
        let mut found = 0;
        while let Some(request) = parser.next(black_box(buffer)).expect("requests are well-formed") {
            found += 1;
            each(request);
        }
        assert_eq!((found, parser.consume()), (PIPELINED, buffer.len()));
    }
}

fn main() {
    let value_64 = [b'v'; 64];
    let value_4096 = [b'v'; 4096];
    let key = b"key:000000012345".as_slice();
    let mget: Vec<&[u8]> = std::iter::once(b"MGET".as_slice()).chain(std::iter::repeat_n(key, 10)).collect();
    let kinds: [(&str, Vec<&[u8]>); 6] = [
        ("GET key", vec![b"GET", key]),
        ("SET key 64 bytes", vec![b"SET", key, &value_64]),
        ("SET key 64 bytes EX 60", vec![b"SET", key, &value_64, b"EX", b"60"]),
        ("SET key 4096 bytes", vec![b"SET", key, &value_4096]),
        ("MGET of 10 keys", mget),
        ("PING", vec![b"PING"]),
    ];
    let operation = |request: Arguments<'_>| match Command::parse(request, 1) {
        Ok(Command::One(one)) => Ok(one.operation(Dial::default(), Scope::default())),
        other => Err(other.is_ok()),
    };
    println!("{:<24} {:>11} {:>7} {:>17} {:>7} {:>19} {:>7}", "request", "parsed M/s", "ns", "with command M/s", "ns", "with operation M/s", "ns");
    let per_second = |took: Duration| (PIPELINED * PASSES) as f64 / took.as_secs_f64();
    for (name, request) in kinds {
        let mut buffer = Vec::new();
        for _ in 0..PIPELINED {
            encode_request(&request, &mut buffer);
        }
        let arguments = per_second(best(|| parse_all(&buffer, |request| _ = black_box(request))));
        let commands = per_second(best(|| parse_all(&buffer, |request| _ = black_box(Command::parse(request, 1)))));
        let operations = per_second(best(|| parse_all(&buffer, |request| _ = black_box(operation(request)))));
        let [(a, b), (c, d), (e, f)] = [arguments, commands, operations].map(|rate| (rate / 1e6, 1e9 / rate));
        println!("{name:<24} {a:>11.1} {b:>7.1} {c:>17.1} {d:>7.1} {e:>19.1} {f:>7.1}");
    }

    let mut out = Vec::new();
    let replies = per_second(best(|| {
        for _ in 0..PASSES {
            out.clear();
            let mut writer = ReplyWriter::new(&mut out, RespVersion::Two);
            for _ in 0..PIPELINED {
                writer.bulk(black_box(&value_64));
            }
        }
    }));
    println!("{:<24} {:>11.1} {:>7.1}", "reply of 64 bytes", replies / 1e6, 1e9 / replies);
}
