//! How two nodes show each other that both know the cluster's password, without saying it, and what they may then tell each other in secret.
//!
//! The node that connects says hello with a nonce, the other answers with one of its own. Each then shows a MAC over both messages under the password, the node that connects
//! first: so who merely finds the port learns nothing to try passwords against. Without a password the MACs prove nothing, and what is sealed can be opened by whoever
//! reads along. Once greeted, a connection is as safe as its network, or its TLS.
//!
//! Hello and challenge say which formats their nodes can speak, and the connection is in the newest that both can. So these two messages keep their first fields in all formats, and what a later release adds
//! stands behind them: it is passed over here, and is part of what the MACs are over.

use crate::life::{Life, Start};
use crate::token_keys::random;
use rheostat_core::wire::{Reader, Wire, WireError};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use std::fmt;
use std::io;

/// Bytes of a nonce of the greeting.
const NONCE_BYTES: usize = 16;

/// Bytes of a proof.
const PROOF_BYTES: usize = 32;

/// The first bytes of a connection between nodes.
const MAGIC: [u8; 4] = *b"RHEO";

/// The formats that this version can speak between nodes. From the first release on, the oldest is the newest of the release before.
pub const FORMATS: Formats = Formats { oldest: 21, newest: 22 };

/// From this one on, a data center that was taken out is told from one that is lost.
pub(crate) const TELLS_REMOVED: u8 = 22;

/// Formats of what nodes say to each other, from the oldest to the newest that one can speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Formats {
    /// The least number.
    pub oldest: u8,
    /// The greatest.
    pub newest: u8,
}

impl Formats {
    /// The newest that both can speak. Errors: there is none, in words for the operator of this node.
    pub(super) fn common(self, theirs: Formats) -> Result<u8, String> {
        let format = self.newest.min(theirs.newest);
        match format >= self.oldest.max(theirs.oldest) {
            true => Ok(format),
            false => {
                Err(format!("it speaks {theirs} between nodes, and this node {self}: their releases are too far apart; take one in between first"))
            }
        }
    }
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "format {}", self.newest),
            false => write!(f, "formats {} to {}", self.oldest, self.newest),
        }
    }
}

/// As hello and challenge begin.
impl Wire for Formats {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[self.oldest, self.newest]);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        if input.take(MAGIC.len())? != MAGIC {
            return Err(WireError::Invalid("not a Rheostat node"));
        }
        let formats = Formats { oldest: input.byte()?, newest: input.byte()? };
        if formats.oldest > formats.newest {
            return Err(WireError::Invalid("formats from a newer to an older one"));
        }
        Ok(formats)
    }
}

/// A number that is used once.
pub(super) type Once = [u8; NONCE_BYTES];

/// A fresh one. Errors: the system has no randomness.
pub(super) fn once() -> io::Result<Once> {
    random()
}

fn take<const N: usize>(input: &mut Reader<'_>) -> Result<[u8; N], WireError> {
    let mut bytes = [0; N];
    bytes.copy_from_slice(input.take(N)?);
    Ok(bytes)
}

/// The earlier starts that stand behind hello and challenge. The release before says nothing of them.
fn earlier(input: &mut Reader<'_>) -> Result<Vec<Start>, WireError> {
    if input.rest().is_empty() { Ok(Vec::new()) } else { Wire::decode(input) }
}

/// The message that `bytes` begin with. What a later release says behind it is passed over.
pub(super) fn read<T: Wire>(bytes: &[u8]) -> Result<T, WireError> {
    T::decode(&mut Reader::new(bytes))
}

/// What the connecting node says first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hello {
    pub(super) formats: Formats,
    /// The cluster's identity.
    pub(super) cluster: u64,
    /// What both must agree on, in words: data centers, partitions, keyspaces.
    pub(super) agreement: String,
    /// Who connects.
    pub(super) from: String,
    /// Whom it wants.
    pub(super) to: String,
    /// Of the data directory of who connects.
    pub(super) life: Option<Life>,
    pub(super) once: Once,
    /// Those from it before; see [`earlier`].
    pub(super) earlier: Vec<Start>,
}

impl Wire for Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        self.formats.encode(out);
        self.cluster.encode(out);
        self.agreement.encode(out);
        self.from.encode(out);
        self.to.encode(out);
        self.life.encode(out);
        out.extend_from_slice(&self.once);
        self.earlier.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Hello {
            formats: Wire::decode(input)?,
            cluster: Wire::decode(input)?,
            agreement: Wire::decode(input)?,
            from: Wire::decode(input)?,
            to: Wire::decode(input)?,
            life: Wire::decode(input)?,
            once: take(input)?,
            earlier: earlier(input)?,
        })
    }
}

/// What the other node answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Challenge {
    pub(super) formats: Formats,
    pub(super) once: Once,
    /// What its physical clock shows, in microseconds.
    pub(super) shown_us: u64,
    /// Of its data directory.
    pub(super) life: Option<Life>,
    /// Those from it before; see [`earlier`].
    pub(super) earlier: Vec<Start>,
}

impl Wire for Challenge {
    fn encode(&self, out: &mut Vec<u8>) {
        self.formats.encode(out);
        out.extend_from_slice(&self.once);
        out.extend_from_slice(&self.shown_us.to_le_bytes());
        self.life.encode(out);
        self.earlier.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let formats = Wire::decode(input)?;
        let (once, shown_us) = (take(input)?, u64::from_le_bytes(take(input)?));
        Ok(Challenge { formats, once, shown_us, life: Wire::decode(input)?, earlier: earlier(input)? })
    }
}

/// The connecting node's proof.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Proof(pub(super) [u8; PROOF_BYTES]);

impl Wire for Proof {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Proof(take(input)?))
    }
}

/// The other node's last word: why the connection is refused, or its own proof and what it has to tell in secret.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Welcome {
    Refused(String),
    /// The data of the connecting node is lost or old, and why.
    Lost {
        proof: Proof,
        why: String,
    },
    Accepted {
        proof: Proof,
        sealed: Vec<u8>,
    },
}

impl Wire for Welcome {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Welcome::Refused(why) => {
                out.push(1);
                why.encode(out);
            }
            Welcome::Lost { proof, why } => {
                out.push(2);
                proof.encode(out);
                why.encode(out);
            }
            Welcome::Accepted { proof, sealed } => {
                out.push(0);
                proof.encode(out);
                sealed.encode(out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        match input.byte()? {
            0 => Ok(Welcome::Accepted { proof: Wire::decode(input)?, sealed: Wire::decode(input)? }),
            1 => Ok(Welcome::Refused(Wire::decode(input)?)),
            2 => Ok(Welcome::Lost { proof: Wire::decode(input)?, why: Wire::decode(input)? }),
            _ => Err(WireError::Invalid("the answer to a greeting")),
        }
    }
}

/// What both ends know once hello and challenge are exchanged.
pub(super) struct Greeting {
    connects: hmac::Tag,
    accepts: hmac::Tag,
    verify: hmac::Key,
    connects_said: Vec<u8>,
    accepts_said: Vec<u8>,
    sealing: LinkKey,
}

impl Greeting {
    /// Of `hello` and `challenge` as they were said, under the cluster's password; an empty one where there is none.
    pub(super) fn new(password: &str, hello: &[u8], challenge: &[u8]) -> Greeting {
        let key = hmac::Key::new(hmac::HMAC_SHA256, password.as_bytes());
        let said = |role: &str| [role.as_bytes(), &[0], challenge, hello].concat();
        let (connects_said, accepts_said) = (said("connects"), said("accepts"));
        let mut sealing = [0; 32];
        sealing.copy_from_slice(hmac::sign(&key, &said("seals")).as_ref());
        Greeting {
            connects: hmac::sign(&key, &connects_said),
            accepts: hmac::sign(&key, &accepts_said),
            verify: key,
            connects_said,
            accepts_said,
            sealing: LinkKey(sealing),
        }
    }

    /// What the connecting node shows.
    pub(super) fn connects(&self) -> Proof {
        proof(&self.connects)
    }

    /// What the other one shows.
    pub(super) fn accepts(&self) -> Proof {
        proof(&self.accepts)
    }

    /// Whether the connecting node knows the password.
    pub(super) fn is_of_connecting(&self, Proof(shown): &Proof) -> bool {
        hmac::verify(&self.verify, &self.connects_said, shown).is_ok()
    }

    /// Whether the other one does.
    pub(super) fn is_of_accepting(&self, Proof(shown): &Proof) -> bool {
        hmac::verify(&self.verify, &self.accepts_said, shown).is_ok()
    }

    /// For what the two say in secret.
    pub(super) fn link_key(&self) -> LinkKey {
        self.sealing.clone()
    }
}

fn proof(tag: &hmac::Tag) -> Proof {
    let mut bytes = [0; PROOF_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    Proof(bytes)
}

/// Seals what only the two ends of one connection may read.
#[derive(Clone)]
pub(super) struct LinkKey([u8; 32]);

impl LinkKey {
    fn key(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, &self.0).ok().map(LessSafeKey::new)
    }

    /// `plain`, to be opened with this key only. A connection seals little, so nonces by chance do not meet.
    pub(super) fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let mut body = plain.to_vec();
        let sealed = random::<NONCE_LEN>().ok().zip(self.key()).and_then(|(nonce, key)| {
            key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut body).ok()?;
            Some([&nonce, body.as_slice()].concat())
        });
        // Else nothing that the other end could open.
        sealed.unwrap_or_default()
    }

    /// What was sealed with this key. `None`: it was not.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut body = body.to_vec();
        let plain = self.key()?.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut body).ok()?;
        Some(plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            formats: FORMATS,
            cluster: 7,
            agreement: "a".into(),
            from: "b".into(),
            to: "c".into(),
            life: None,
            once: [1; 16],
            earlier: vec![(1, u64::MAX), (2, 7)],
        }
    }

    fn challenge() -> Challenge {
        Challenge { formats: FORMATS, once: [2; 16], shown_us: 77, life: None, earlier: vec![(3, 9)] }
    }

    #[test]
    fn greetings_come_back_as_they_were() {
        assert_eq!(Hello::from_bytes(&hello().to_bytes()), Ok(hello()));
        assert_eq!(Challenge::from_bytes(&challenge().to_bytes()), Ok(challenge()));
        for welcome in [
            Welcome::Refused("no".into()),
            Welcome::Lost { proof: Proof([5; 32]), why: "why".into() },
            Welcome::Accepted { proof: Proof([3; 32]), sealed: vec![4] },
        ] {
            assert_eq!(Welcome::from_bytes(&welcome.to_bytes()), Ok(welcome));
        }
        assert!(Hello::from_bytes(b"GET / HTTP/1.1").is_err());
    }

    #[test]
    fn only_who_knows_the_password_can_show_it_and_only_in_this_greeting() {
        let challenge = challenge();
        let greeting = |password, hello: &Hello, challenge: &Challenge| Greeting::new(password, &hello.to_bytes(), &challenge.to_bytes());
        let (ours, theirs) = (greeting("right", &hello(), &challenge), greeting("right", &hello(), &challenge));
        assert!(ours.is_of_connecting(&theirs.connects()) && ours.is_of_accepting(&theirs.accepts()));
        assert!(!ours.is_of_accepting(&theirs.connects()), "one end's proof is not the other's, so it cannot be sent back");
        let wrong = [
            greeting("wrong", &hello(), &challenge),
            greeting("", &hello(), &challenge),
            greeting("right", &Hello { once: [9; 16], ..hello() }, &challenge),
            greeting("right", &Hello { from: "d".into(), ..hello() }, &challenge),
            greeting("right", &Hello { formats: Formats { oldest: 20, newest: 21 }, ..hello() }, &challenge),
            greeting("right", &Hello { earlier: Vec::new(), ..hello() }, &challenge),
            greeting("right", &hello(), &Challenge { once: [9; 16], ..challenge.clone() }),
            greeting("right", &hello(), &Challenge { shown_us: 78, ..challenge.clone() }),
            Greeting::new("right", &[&hello().to_bytes(), [0].as_slice()].concat(), &challenge.to_bytes()),
        ];
        let sealed = ours.link_key().seal(b"keys");
        for other in wrong {
            assert!(!ours.is_of_connecting(&other.connects()) && !ours.is_of_accepting(&other.accepts()));
            assert_eq!(other.link_key().open(&sealed), None);
        }
        assert_eq!(theirs.link_key().open(&sealed).as_deref(), Some(b"keys".as_slice()));
        assert!(!sealed.windows(4).any(|bytes| bytes == b"keys"));
        let mut changed = sealed;
        changed[14] ^= 1;
        assert_eq!(theirs.link_key().open(&changed), None);
        assert_eq!(theirs.link_key().open(b"short"), None);
    }

    #[test]
    fn two_nodes_speak_the_newest_format_that_both_can() {
        let formats = |oldest, newest| Formats { oldest, newest };
        for (one, other, common) in [((21, 21), (21, 21), 21), ((21, 22), (21, 21), 21), ((21, 22), (22, 23), 22), ((20, 23), (21, 22), 22)] {
            let (one, other) = (formats(one.0, one.1), formats(other.0, other.1));
            assert_eq!((one.common(other), other.common(one)), (Ok(common), Ok(common)));
        }
        let (before, after) = (formats(21, 21), formats(22, 23));
        assert!(before.common(after).unwrap_err().starts_with("it speaks formats 22 to 23 between nodes, and this node format 21"));
        assert!(after.common(before).unwrap_err().starts_with("it speaks format 21 between nodes, and this node formats 22 to 23"));
    }

    #[test]
    fn what_a_later_release_says_behind_its_greeting_is_passed_over() {
        let later = Hello { formats: Formats { oldest: 21, newest: 40 }, ..hello() };
        assert_eq!(read::<Hello>(&[later.to_bytes().as_slice(), b"more"].concat()), Ok(later));
        assert_eq!(read::<Challenge>(&[challenge().to_bytes().as_slice(), b"more"].concat()), Ok(challenge()));
        for wrong in [b"RHEX\x15\x15".as_slice(), b"RHEO\x16\x15", b"RHEO\x15", b""] {
            assert!(read::<Formats>(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn the_release_before_greets_without_its_earlier_starts() {
        let (hello, challenge) = (Hello { earlier: Vec::new(), ..hello() }, Challenge { earlier: Vec::new(), ..challenge() });
        let without = |mut bytes: Vec<u8>| {
            assert_eq!(bytes.pop(), Some(0), "how many there are");
            bytes
        };
        assert_eq!(read::<Hello>(&without(hello.to_bytes())), Ok(hello));
        assert_eq!(read::<Challenge>(&without(challenge.to_bytes())), Ok(challenge));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = read::<Hello>(&[b"RHEO\x15\x15", bytes.as_slice()].concat());
            let _ = read::<Challenge>(&[b"RHEO\x15\x15", bytes.as_slice()].concat());
            let _ = Welcome::from_bytes(&bytes);
        }
    }
}
