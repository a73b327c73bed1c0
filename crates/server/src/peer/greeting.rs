//! How two nodes show each other that both know the cluster's password, without saying it, and what they may then tell each other in secret.
//!
//! The node that connects says hello with a nonce, the other answers with one of its own. Each then shows a MAC over both messages under the password, the node that connects
//! first: so who merely finds the port learns nothing to try passwords against. Without a password the MACs prove nothing, and what is sealed can be opened by whoever
//! reads along. Once greeted, a connection is as safe as its network, or its TLS.

use crate::life::Life;
use crate::token_keys::random;
use rheostat_core::wire::{Reader, Wire, WireError};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use std::io;

/// Bytes of a nonce of the greeting.
const NONCE_BYTES: usize = 16;

/// Bytes of a proof.
const PROOF_BYTES: usize = 32;

/// The first bytes of a connection between nodes.
const MAGIC: [u8; 4] = *b"RHEO";

/// The format that this version speaks between nodes; others are refused.
pub const FORMAT: u8 = 20;

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

fn expect_magic(input: &mut Reader<'_>) -> Result<(), WireError> {
    if input.take(MAGIC.len())? != MAGIC {
        return Err(WireError::Invalid("not a Rheostat node"));
    }
    if input.byte()? != FORMAT {
        return Err(WireError::Invalid("a node that speaks another format; all nodes must run versions that fit together"));
    }
    Ok(())
}

/// What the connecting node says first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hello {
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
}

impl Wire for Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.push(FORMAT);
        self.cluster.encode(out);
        self.agreement.encode(out);
        self.from.encode(out);
        self.to.encode(out);
        self.life.encode(out);
        out.extend_from_slice(&self.once);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        expect_magic(input)?;
        Ok(Hello {
            cluster: Wire::decode(input)?,
            agreement: Wire::decode(input)?,
            from: Wire::decode(input)?,
            to: Wire::decode(input)?,
            life: Wire::decode(input)?,
            once: take(input)?,
        })
    }
}

/// What the other node answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Challenge {
    pub(super) once: Once,
    /// What its physical clock shows, in microseconds.
    pub(super) shown_us: u64,
    /// Of its data directory.
    pub(super) life: Option<Life>,
}

impl Wire for Challenge {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.push(FORMAT);
        out.extend_from_slice(&self.once);
        out.extend_from_slice(&self.shown_us.to_le_bytes());
        self.life.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        expect_magic(input)?;
        Ok(Challenge { once: take(input)?, shown_us: u64::from_le_bytes(take(input)?), life: Wire::decode(input)? })
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
    /// Of `hello` and `challenge`, under the cluster's password; an empty one where there is none.
    pub(super) fn new(password: &str, hello: &Hello, challenge: &Challenge) -> Greeting {
        let key = hmac::Key::new(hmac::HMAC_SHA256, password.as_bytes());
        let said = |role: &str| [role.as_bytes(), &[0], &challenge.to_bytes(), &hello.to_bytes()].concat();
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
        Hello { cluster: 7, agreement: "a".into(), from: "b".into(), to: "c".into(), life: None, once: [1; 16] }
    }

    #[test]
    fn greetings_come_back_as_they_were() {
        assert_eq!(Hello::from_bytes(&hello().to_bytes()), Ok(hello()));
        let challenge = Challenge { once: [2; 16], shown_us: 77, life: None };
        assert_eq!(Challenge::from_bytes(&challenge.to_bytes()), Ok(challenge));
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
        let challenge = Challenge { once: [2; 16], shown_us: 77, life: None };
        let (ours, theirs) = (Greeting::new("right", &hello(), &challenge), Greeting::new("right", &hello(), &challenge));
        assert!(ours.is_of_connecting(&theirs.connects()) && ours.is_of_accepting(&theirs.accepts()));
        assert!(!ours.is_of_accepting(&theirs.connects()), "one end's proof is not the other's, so it cannot be sent back");
        let wrong = [
            Greeting::new("wrong", &hello(), &challenge),
            Greeting::new("", &hello(), &challenge),
            Greeting::new("right", &Hello { once: [9; 16], ..hello() }, &challenge),
            Greeting::new("right", &Hello { from: "d".into(), ..hello() }, &challenge),
            Greeting::new("right", &hello(), &Challenge { once: [9; 16], shown_us: 77, life: None }),
            Greeting::new("right", &hello(), &Challenge { once: [2; 16], shown_us: 78, life: None }),
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

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Hello::from_bytes(&[b"RHEO\x06", bytes.as_slice()].concat());
            let _ = Challenge::from_bytes(&[b"RHEO\x06", bytes.as_slice()].concat());
            let _ = Welcome::from_bytes(&bytes);
        }
    }
}
