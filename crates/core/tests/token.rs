//! Session tokens: what is refused, and what a client can and cannot change.

use proptest::prelude::*;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::ids::KeyspaceId;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::session::{ClusterId, Session};
use rheostat_core::token::{self, Token, TokenError, TokenKeys};
use rheostat_core::wire::{Reader, Wire, WireError};

const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// A client state for the token's tests.
#[derive(Clone, Default, Debug, PartialEq)]
struct Tale {
    seen: String,
    guess: String,
}

impl Client for Tale {
    type Request = Call;
    type Reply = Outcome;

    fn request(&self, call: Call) -> Call {
        call
    }

    fn accept(&mut self, reply: Outcome) -> Outcome {
        reply
    }

    fn encode_signed(&self, out: &mut Vec<u8>) {
        self.seen.encode(out);
    }

    fn encode_hints(&self, out: &mut Vec<u8>) {
        self.guess.encode(out);
    }

    fn take_hints(&mut self, input: &mut Reader<'_>) -> Result<(), WireError> {
        self.guess = Wire::decode(input)?;
        Ok(())
    }

    fn merge(&mut self, other: &Tale) {
        self.seen.push_str(&other.seen);
    }

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

impl Wire for Tale {
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_signed(out);
        self.encode_hints(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let seen = Wire::decode(input)?;
        let guess = if input.rest().is_empty() { String::new() } else { Wire::decode(input)? };
        Ok(Tale { seen, guess })
    }
}

fn ours() -> ClusterId {
    ClusterId::from_name("ours")
}

fn keys(secret: u8) -> TokenKeys {
    TokenKeys::new([secret; 32], u64::from(secret))
}

fn session(seen: &str) -> Session {
    Session::new(Tale { seen: seen.into(), guess: "soon".into() })
}

fn signed(by: &TokenKeys, seen: &str) -> String {
    token::sign(by, 1_000_000, ours(), KEYSPACE, &session(seen))
}

fn decode(bytes: &[u8]) -> Result<Session, WireError> {
    Ok(Session::new(Tale::from_bytes(bytes)?))
}

/// What a server with `keys` makes of `text`.
fn taken(keys: &TokenKeys, text: &str) -> Result<Tale, TokenError> {
    let session = Token::parse(ours(), KEYSPACE, text)?.verify(keys, decode)?;
    Ok(session.client::<Tale>().unwrap().clone())
}

/// The token as its bytes, and back with a right checksum: what somebody does who knows the format.
fn reworked(text: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let digits = text.strip_prefix("rheo-").unwrap();
    let mut bytes: Vec<u8> = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    bytes.truncate(bytes.len() - 4);
    change(&mut bytes);
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    format!("rheo-{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[test]
fn a_token_is_refused_unless_it_is_whole_and_of_this_cluster_and_keyspace() {
    let token = signed(&keys(1), "once");
    assert_eq!(taken(&keys(1), &token), Ok(Tale { seen: "once".into(), guess: "soon".into() }));
    let refused = |cluster, keyspace, text: &str| Token::parse(cluster, keyspace, text).err();
    assert_eq!(refused(ClusterId::from_name("theirs"), KEYSPACE, &token), Some(TokenError::ForeignCluster));
    assert_eq!(refused(ours(), KeyspaceId(2), &token), Some(TokenError::ForeignKeyspace(KEYSPACE)));
    for text in ["hello", "rheo-xyz", "rheo-xy", "rheo-\u{e9}\u{e9}", "rheo-x"] {
        assert_eq!(refused(ours(), KEYSPACE, text), Some(TokenError::NotAToken), "{text}");
    }
    assert_eq!(refused(ours(), KEYSPACE, "rheo-"), Some(TokenError::Damaged));
    assert_eq!(refused(ours(), KEYSPACE, "rheo-0"), Some(TokenError::Damaged));
    assert_eq!(refused(ours(), KEYSPACE, &"rheo-".repeat(220_000)), Some(TokenError::TooLong));
    let former = reworked(&token, |bytes| bytes[0] = 1);
    assert_eq!(refused(ours(), KEYSPACE, &former), Some(TokenError::Version(1)));
    for place in 5..token.len() {
        let mut damaged = token.clone().into_bytes();
        damaged[place] = if damaged[place] == b'0' { b'1' } else { b'0' };
        assert_eq!(taken(&keys(1), std::str::from_utf8(&damaged).unwrap()), Err(TokenError::Damaged), "digit {place} changed");
    }
    for cut in 5..token.len() {
        assert_eq!(taken(&keys(1), &token[..cut]), Err(TokenError::Damaged), "cut at {cut}");
    }
}

#[test]
fn who_knows_the_format_but_no_key_can_change_nothing_that_was_signed() {
    let token = signed(&keys(1), "once");
    let length = token.len() / 2 - 2 - 4;
    // Version, cluster and keyspace have refusals of their own; the last five bytes are hints, "soon" and its length.
    for place in 10..length - 5 {
        let forged = reworked(&token, |bytes| bytes[place] ^= 1);
        let refused = taken(&keys(1), &forged).unwrap_err();
        let expected = matches!(refused, TokenError::Forged | TokenError::UnknownKey | TokenError::Damaged);
        assert!(expected, "byte {place}: {refused}");
    }
    // Of another keyspace or cluster, with a right checksum.
    let moved = reworked(&token, |bytes| bytes[9] = 2);
    assert_eq!(Token::parse(ours(), KeyspaceId(2), &moved).unwrap().verify(&keys(1), decode).err(), Some(TokenError::Forged));
    let elsewhere = ClusterId::from_name("theirs");
    let moved = reworked(&token, |bytes| bytes[1..9].copy_from_slice(&elsewhere.0.to_le_bytes()));
    assert_eq!(Token::parse(elsewhere, KEYSPACE, &moved).unwrap().verify(&keys(1), decode).err(), Some(TokenError::Forged));
    // Signed with a key of one's own, under its own name and under that of the cluster's key.
    let own = signed(&keys(2), "always");
    assert_eq!(taken(&keys(1), &own), Err(TokenError::UnknownKey));
    let name = Token::parse(ours(), KEYSPACE, &token).unwrap().to_text();
    assert_eq!(name, token, "a token comes back as it was");
    let borrowed = reworked(&own, |bytes| {
        let of_the_cluster: Vec<u8> = (0..8).map(|at| u8::from_str_radix(&token[5 + 22 + 2 * at..][..2], 16).unwrap()).collect();
        bytes[11..19].copy_from_slice(&of_the_cluster);
    });
    assert_eq!(taken(&keys(1), &borrowed), Err(TokenError::Forged));
}

#[test]
fn hints_are_the_clients_own() {
    let token = signed(&keys(1), "once");
    let changed = reworked(&token, |bytes| {
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(b"late");
    });
    assert_eq!(taken(&keys(1), &changed), Ok(Tale { seen: "once".into(), guess: "late".into() }));
    let cut = reworked(&token, |bytes| bytes.truncate(bytes.len() - 1));
    assert_eq!(taken(&keys(1), &cut), Err(TokenError::Unreadable(WireError::Truncated)));
    let more = reworked(&token, |bytes| bytes.push(0));
    assert_eq!(taken(&keys(1), &more), Err(TokenError::Unreadable(WireError::TrailingBytes)));
}

#[test]
fn a_client_joins_what_servers_told_it_and_adds_nothing() {
    let parse = |text: &str| Token::parse(ours(), KEYSPACE, text).unwrap();
    let (before, first, second) = (parse(&signed(&keys(1), "a")), parse(&signed(&keys(1), "ab")), parse(&signed(&keys(1), "ac")));
    let hints = Session::new(Tale { seen: "all there ever was".into(), guess: "now".into() });
    let joined = before.joined([&first, &second, &first], &hints).unwrap();
    assert_eq!(taken(&keys(1), &joined.to_text()), Ok(Tale { seen: "abac".into(), guess: "now".into() }));
    let none = before.joined([], &hints).unwrap();
    assert_eq!(taken(&keys(1), &none.to_text()), Ok(Tale { seen: "a".into(), guess: "now".into() }));
    // One forged part among right ones.
    let forged = before.joined([&first, &parse(&signed(&keys(2), "x"))], &hints).unwrap();
    assert_eq!(taken(&keys(1), &forged.to_text()), Err(TokenError::UnknownKey));
    let many: Vec<Token> = (0..=token::MAX_PARTS).map(|part| parse(&signed(&keys(1), &part.to_string()))).collect();
    assert!(before.joined(&many[1..], &hints).is_some());
    assert!(before.joined(&many, &hints).is_none());
}

#[test]
fn two_generations_of_keys_are_valid() {
    let made_ms = 1_000_000;
    let first = keys(1);
    let second = first.rotated([2; 32], made_ms).unwrap();
    let third = second.rotated([3; 32], made_ms + 60_000).unwrap();
    assert_eq!([first.generation(), second.generation(), third.generation()], [0, 1, 2]);
    let sign = |keys: &TokenKeys, at_ms| token::sign(keys, at_ms, ours(), KEYSPACE, &session("once"));
    let old = sign(&first, made_ms);
    assert!(taken(&second, &old).is_ok());
    assert_eq!(taken(&third, &old), Err(TokenError::UnknownKey));
    // A new key goes round before it signs, so a server that has not heard of it reads what is signed meanwhile.
    assert!(taken(&first, &sign(&second, made_ms)).is_ok());
    assert!(taken(&first, &sign(&second, made_ms + 4_999)).is_ok());
    let new = sign(&second, made_ms + 5_000);
    assert_eq!(taken(&first, &new), Err(TokenError::UnknownKey));
    assert!(taken(&second, &new).is_ok());
    assert!(taken(&third, &new).is_ok());
    let last = TokenKeys::from_bytes(&{
        let mut bytes = Vec::new();
        rheostat_core::wire::put_varint(1, &mut bytes);
        u32::MAX.encode(&mut bytes);
        0u64.encode(&mut bytes);
        bytes.extend_from_slice(&[9; 32]);
        bytes
    });
    assert!(last.unwrap().rotated([1; 32], 0).is_none(), "there is no generation after the last");
}

#[test]
fn operators_keys_sign_in_their_order() {
    let both = TokenKeys::in_order(&[[5; 32], [6; 32]]).unwrap();
    let sign = |secrets: &[[u8; 32]]| token::sign(&TokenKeys::in_order(secrets).unwrap(), 0, ours(), KEYSPACE, &session("once"));
    for secrets in [[[5; 32]].as_slice(), &[[6; 32]], &[[5; 32], [6; 32]]] {
        assert!(taken(&both, &sign(secrets)).is_ok());
    }
    assert!(taken(&TokenKeys::in_order(&[[5; 32]]).unwrap(), &sign(&[[5; 32], [6; 32]])).is_ok(), "the first one signs");
    assert_eq!(taken(&TokenKeys::in_order(&[[5; 32]]).unwrap(), &sign(&[[6; 32]])), Err(TokenError::UnknownKey));
    assert!(TokenKeys::in_order(&[]).is_none());
}

#[test]
fn the_oldest_key_signs_where_servers_started_at_once() {
    let (mut a, mut b) = (keys(3), keys(2));
    let from_b = signed(&b, "b");
    let from_a = signed(&a, "a");
    assert!(a.merge(&b.clone()) && b.merge(&keys(3)));
    assert!(!a.merge(&b), "nothing new");
    for one in [&a, &b] {
        assert!(taken(one, &from_a).is_ok() && taken(one, &from_b).is_ok());
        assert_eq!(taken(&keys(2), &signed(one, "c")).map(|tale| tale.seen), Ok("c".into()));
    }
    assert_eq!(a.names(0), b.names(0));
    let debug = format!("{a:?}");
    assert!(!debug.contains("03, 03") && debug.contains('2'), "{debug}");
}

/// A set of keys as servers could make them.
fn any_keys() -> impl Strategy<Value = TokenKeys> {
    proptest::collection::vec(0u8..24, 1..12).prop_map(|made| {
        let mut bytes = Vec::new();
        rheostat_core::wire::put_varint(made.len() as u64, &mut bytes);
        for secret in made {
            // Generation and time follow from the secret: one key is made once.
            (u32::from(secret % 3)).encode(&mut bytes);
            u64::from(secret % 5).encode(&mut bytes);
            bytes.extend_from_slice(&[secret; 32]);
        }
        TokenKeys::from_bytes(&bytes).unwrap()
    })
}

proptest! {
    #[test]
    fn servers_that_heard_the_same_agree(a in any_keys(), b in any_keys(), c in any_keys()) {
        let merged = |order: [&TokenKeys; 4]| {
            let mut keys = order[0].clone();
            order[1..].iter().for_each(|other| { keys.merge(other); });
            keys.to_bytes()
        };
        let expected = merged([&a, &b, &c, &a]);
        for order in [[&a, &c, &b, &b], [&b, &a, &c, &c], [&c, &b, &a, &a], [&c, &a, &c, &b]] {
            prop_assert_eq!(&merged(order), &expected);
        }
        let mut first = a.clone();
        first.merge(&b);
        let mut then = c.clone();
        then.merge(&first);
        prop_assert_eq!(then.to_bytes(), expected);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = TokenKeys::from_bytes(&bytes);
        let mut token = vec![2];
        token.extend_from_slice(&ours().0.to_le_bytes());
        token.push(1);
        token.extend_from_slice(&bytes);
        let checksum = crc32fast::hash(&token);
        token.extend_from_slice(&checksum.to_le_bytes());
        let text: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        let refused = taken(&keys(1), &format!("rheo-{text}")).is_err();
        prop_assert!(refused);
    }
}
