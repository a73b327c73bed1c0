//! What a session token costs a server: written and read, with its signature and without.

use rheostat_clock::{DcId, Timestamp};
use rheostat_core::ids::KeyspaceId;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::session::{ClusterId, Session};
use rheostat_core::token::{self, Token, TokenKeys};
use rheostat_core::wire::{Reader, Wire, WireError};
use std::hint::black_box;
use std::time::Instant;

/// As much as a session of `causal` between three data centers remembers.
#[derive(Clone, Default)]
struct Memory(Vec<u8>);

impl Client for Memory {
    type Request = Call;
    type Reply = Outcome;

    fn request(&self, call: Call) -> Call {
        call
    }

    fn accept(&mut self, reply: Outcome) -> Outcome {
        reply
    }

    fn merge(&mut self, _: &Memory) {}

    fn newest(&self) -> Timestamp {
        Timestamp::ZERO
    }

    fn last_write(&self, _: DcId) -> Timestamp {
        Timestamp::ZERO
    }

    fn data_centers(&self) -> usize {
        0
    }
}

impl Wire for Memory {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Memory(Wire::decode(input)?))
    }
}

fn decode(bytes: &[u8]) -> Result<Session, WireError> {
    Ok(Session::new(Memory::from_bytes(bytes)?))
}

/// The best of ten rounds, in nanoseconds for one.
fn measured(mut work: impl FnMut()) -> u128 {
    const TIMES: u128 = 20_000;
    let round = |work: &mut dyn FnMut()| {
        let begin = Instant::now();
        (0..TIMES).for_each(|_| work());
        begin.elapsed().as_nanos() / TIMES
    };
    (0..10).map(|_| round(&mut work)).min().unwrap_or_default()
}

fn main() {
    let (keys, cluster, keyspace) = (TokenKeys::new([7; 32], 0), ClusterId::from_name("speed"), KeyspaceId(0));
    let session = Session::new(Memory(vec![0xA5; 60]));
    let text = token::sign(&keys, 0, cluster, keyspace, &session);
    let parse = |text: &str| Token::parse(cluster, keyspace, text).expect("our own token");
    let parsed = parse(&text);
    let write_signed = measured(|| {
        black_box(token::sign(&keys, 0, cluster, keyspace, black_box(&session)));
    });
    let write = measured(|| {
        black_box(black_box(&session).signed_bytes());
        black_box(black_box(&parsed).to_text());
    });
    let read_signed = measured(|| {
        black_box(parse(black_box(&text)).verify(&keys, decode)).expect("signed");
    });
    let read = measured(|| {
        black_box(parse(black_box(&text)).read(decode)).expect("readable");
    });
    println!("a token of {} digits, nanoseconds: written {write_signed}, of which signing {}", text.len(), write_signed.saturating_sub(write));
    println!("read {read_signed}, of which checking the signature {}", read_signed.saturating_sub(read));
}
