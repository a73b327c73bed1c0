//! Session tokens: what carries a session from connection to connection and from data center to data center, and how a server knows that a server made it.
//!
//! A token has parts that servers signed, and hints that anybody may change. A part is what a client has seen and written ([`crate::protocol::Client`]) behind a
//! MAC (HMAC-SHA-256) under a key that the cluster's servers share. Several parts mean what all of them say together: so a client joins what several servers told it
//! without being able to say anything of its own. Hints ([`crate::protocol::Client::encode_hints`]) make transactions fast, and servers judge them like any request.

#[cfg(target_arch = "wasm32")]
use crate::hmac;
use crate::ids::KeyspaceId;
use crate::session::{ClusterId, Session};
use crate::wire::{Reader, Wire, WireError, put_varint};
#[cfg(not(target_arch = "wasm32"))]
use ring::hmac;
use std::fmt;

/// Why a session token was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenError {
    /// It does not look like a token at all.
    NotAToken,
    /// Another format than this server knows.
    Version(u8),
    /// Its checksum does not match: cut short, mistyped or altered.
    Damaged,
    /// Made by another cluster.
    ForeignCluster,
    /// Made in another keyspace.
    ForeignKeyspace(KeyspaceId),
    /// Longer than any token.
    TooLong,
    /// Signed with a key that this server does not have: too old, or of a server that this one has not met yet.
    UnknownKey,
    /// Its signature is wrong: no server made it.
    Forged,
    /// It names a data center that there is not.
    NoSuchDataCenter,
    /// What it says is no state of a client of the keyspace's protocol.
    Unreadable(WireError),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenError::NotAToken => f.write_str("this is not a session token"),
            TokenError::Version(version) => write!(f, "session token of format {version}, this server knows format {VERSION}"),
            TokenError::Damaged => f.write_str("session token is damaged: its checksum does not match"),
            TokenError::ForeignCluster => f.write_str("session token belongs to another cluster"),
            TokenError::ForeignKeyspace(id) => write!(f, "session token belongs to keyspace {}, not to this one", id.0),
            TokenError::TooLong => f.write_str("session token is too long"),
            TokenError::UnknownKey => {
                f.write_str("session token is signed with a key that is not valid here: it is too old, or its server has not met this one")
            }
            TokenError::Forged => f.write_str("session token is forged: its signature is wrong"),
            TokenError::NoSuchDataCenter => f.write_str("session token names a data center that there is not"),
            TokenError::Unreadable(error) => write!(f, "session token is not one of this keyspace's protocol: {error}"),
        }
    }
}

impl std::error::Error for TokenError {}

const VERSION: u8 = 2;
const PREFIX: &str = "rheo-";

/// The longest token, in digits. Those of protocols that remember single versions are long; one of an operation on many long keys is longest.
const MAX_TEXT: usize = 1 << 20;

/// The most parts of a token: one of each partition that a client asked at once.
pub const MAX_PARTS: usize = 64;

/// Bytes of a MAC.
const MAC_BYTES: usize = 32;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// The most keys of one generation.
const MAX_PER_GENERATION: usize = 8;

/// A new generation's key signs when it is so old, in milliseconds: until then it goes round.
const SIGNS_AFTER_MS: u64 = 5_000;

/// A key's name, made of its secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct KeyId([u8; 8]);

/// A key for signing tokens.
#[derive(Clone)]
struct Key {
    /// How many times the cluster has changed its key before.
    generation: u32,
    /// When it was made, in milliseconds since 1970.
    made_ms: u64,
    secret: [u8; SECRET_BYTES],
    id: KeyId,
    mac: hmac::Key,
}

impl Key {
    fn new(generation: u32, made_ms: u64, secret: [u8; SECRET_BYTES]) -> Key {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let mut id = [0; 8];
        id.copy_from_slice(&hmac::sign(&root, b"rheostat: a token key's name").as_ref()[..8]);
        // The secret itself signs nothing that leaves.
        let mac = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, b"rheostat: session tokens").as_ref());
        Key { generation, made_ms, secret, id: KeyId(id), mac }
    }

    /// Which of two keys signs: the later generation's, and of one generation the older, so that a server that comes later takes what is there.
    fn rank(&self) -> (std::cmp::Reverse<u32>, u64, KeyId) {
        (std::cmp::Reverse(self.generation), self.made_ms, self.id)
    }

    fn sign(&self, cluster: ClusterId, keyspace: KeyspaceId, state: &[u8]) -> hmac::Tag {
        let mut signing = hmac::Context::with_key(&self.mac);
        signing.update(&signed_head(cluster, keyspace));
        signing.update(state);
        signing.sign()
    }

    fn verify(&self, cluster: ClusterId, keyspace: KeyspaceId, part: &Part) -> bool {
        // Compared in constant time.
        let message = [&signed_head(cluster, keyspace), part.state.as_slice()].concat();
        hmac::verify(&self.mac, &message, &part.mac).is_ok()
    }
}

/// What a MAC covers before a part's state: nothing signed for one cluster or keyspace says anything in another.
fn signed_head(cluster: ClusterId, keyspace: KeyspaceId) -> [u8; 11] {
    let mut head = [0; 11];
    head[0] = VERSION;
    head[1..9].copy_from_slice(&cluster.0.to_le_bytes());
    head[9..].copy_from_slice(&keyspace.0.to_le_bytes());
    head
}

/// The keys with which a cluster signs tokens.
///
/// The last two generations are valid. Servers that start at the same time make one key each of the first generation; when they meet, all are valid and the oldest signs.
/// [`TokenKeys::merge`] is associative, commutative and idempotent, so servers that have heard of the same keys agree, in whatever order they did.
#[derive(Clone)]
pub struct TokenKeys(Vec<Key>);

impl TokenKeys {
    /// One key of the first generation.
    pub fn new(secret: [u8; SECRET_BYTES], made_ms: u64) -> TokenKeys {
        TokenKeys(vec![Key::new(0, made_ms, secret)])
    }

    /// The first secret signs, the others are valid too. Errors: none.
    pub fn in_order(secrets: &[[u8; SECRET_BYTES]]) -> Option<TokenKeys> {
        let keys: Vec<Key> = secrets.iter().enumerate().map(|(index, secret)| Key::new(0, index as u64, *secret)).collect();
        (!keys.is_empty()).then_some(TokenKeys(keys))
    }

    /// Takes in `other`'s keys; says whether that changed anything.
    pub fn merge(&mut self, other: &TokenKeys) -> bool {
        let before: Vec<KeyId> = self.0.iter().map(|key| key.id).collect();
        self.0.extend(other.0.iter().cloned());
        self.0.sort_by_key(Key::rank);
        self.0.dedup_by_key(|key| key.id);
        let newest = self.0.first().map_or(0, |key| key.generation);
        let mut of_generation = [0; 2];
        self.0.retain(|key| {
            let Some(count) = of_generation.get_mut((newest - key.generation) as usize) else { return false };
            *count += 1;
            *count <= MAX_PER_GENERATION
        });
        before.len() != self.0.len() || self.0.iter().zip(&before).any(|(key, before)| key.id != *before)
    }

    /// Begins a new generation: what the last one signed stays valid until the next change. Errors: `None` if there are no more generations.
    pub fn rotated(&self, secret: [u8; SECRET_BYTES], now_ms: u64) -> Option<TokenKeys> {
        let mut next = TokenKeys(vec![Key::new(self.generation().checked_add(1)?, now_ms, secret)]);
        next.merge(self);
        Some(next)
    }

    /// How many times the key has been changed.
    pub fn generation(&self) -> u32 {
        self.0.first().map_or(0, |key| key.generation)
    }

    /// The names of the valid keys, the signing one's first.
    pub fn names(&self, now_ms: u64) -> Vec<String> {
        let signing = self.signing(now_ms).map(|key| key.id);
        let mut keys: Vec<&Key> = self.0.iter().collect();
        keys.sort_by_key(|key| Some(key.id) != signing);
        keys.into_iter().map(|key| key.id.0.iter().map(|byte| format!("{byte:02x}")).collect()).collect()
    }

    fn signing(&self, now_ms: u64) -> Option<&Key> {
        let newest = self.generation();
        let goes_round = |key: &&Key| key.generation == newest && newest > 0 && now_ms < key.made_ms.saturating_add(SIGNS_AFTER_MS);
        self.0.iter().find(|key| !goes_round(key)).or(self.0.first())
    }
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKeys({} of generation {} and before)", self.0.len(), self.generation())
    }
}

impl Wire for TokenKeys {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.0.len() as u64, out);
        for key in &self.0 {
            key.generation.encode(out);
            key.made_ms.encode(out);
            out.extend_from_slice(&key.secret);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let count = input.length()?;
        if !(1..=2 * MAX_PER_GENERATION).contains(&count) {
            return Err(WireError::Invalid("no or too many token keys"));
        }
        let mut keys = TokenKeys(Vec::new());
        for _ in 0..count {
            let (generation, made_ms) = (Wire::decode(input)?, Wire::decode(input)?);
            let mut secret = [0; SECRET_BYTES];
            secret.copy_from_slice(input.take(SECRET_BYTES)?);
            keys.0.push(Key::new(generation, made_ms, secret));
        }
        let order = TokenKeys(Vec::new());
        keys.merge(&order);
        Ok(keys)
    }
}

/// What one server signed.
#[derive(Clone, PartialEq, Eq)]
struct Part {
    key: [u8; 8],
    state: Vec<u8>,
    mac: [u8; MAC_BYTES],
}

/// A token, taken apart. Whether its parts are what they seem only a server can say.
#[derive(Clone)]
pub struct Token {
    cluster: ClusterId,
    keyspace: KeyspaceId,
    parts: Vec<Part>,
    hints: Vec<u8>,
}

impl Token {
    /// Reads a token's text. Errors: not a token of this cluster and keyspace, in words for the user.
    pub fn parse(cluster: ClusterId, keyspace: KeyspaceId, text: &str) -> Result<Token, TokenError> {
        if text.len() > MAX_TEXT {
            return Err(TokenError::TooLong);
        }
        let digits = text.trim().strip_prefix(PREFIX).ok_or(TokenError::NotAToken)?;
        let bytes = from_hex(digits)?;
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or(TokenError::Damaged)?;
        let version = *body.first().ok_or(TokenError::Damaged)?;
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return Err(TokenError::Damaged);
        }
        if version != VERSION {
            return Err(TokenError::Version(version));
        }
        let mut input = Reader::new(&body[1..]);
        let damaged = |_| TokenError::Damaged;
        if input.take(8).map_err(damaged)? != cluster.0.to_le_bytes() {
            return Err(TokenError::ForeignCluster);
        }
        let made_in = KeyspaceId(u16::decode(&mut input).map_err(damaged)?);
        if made_in != keyspace {
            return Err(TokenError::ForeignKeyspace(made_in));
        }
        Token::decode(cluster, keyspace, &mut input).map_err(damaged)
    }

    fn decode(cluster: ClusterId, keyspace: KeyspaceId, input: &mut Reader<'_>) -> Result<Token, WireError> {
        let count = input.length()?;
        if !(1..=MAX_PARTS).contains(&count) {
            return Err(WireError::Invalid("no or too many parts"));
        }
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            let mut part = Part { key: [0; 8], state: Vec::new(), mac: [0; MAC_BYTES] };
            part.key.copy_from_slice(input.take(8)?);
            let length = input.length()?;
            part.state = input.take(length)?.to_vec();
            part.mac.copy_from_slice(input.take(MAC_BYTES)?);
            parts.push(part);
        }
        Ok(Token { cluster, keyspace, parts, hints: input.rest().to_vec() })
    }

    /// Its text: `rheo-` and hexadecimal digits of format version, cluster, keyspace, the parts with key and MAC, the hints, and a checksum over everything.
    pub fn to_text(&self) -> String {
        let size: usize = self.parts.iter().map(|part| part.state.len() + MAC_BYTES + 12).sum();
        let mut bytes = Vec::with_capacity(32 + size + self.hints.len());
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.cluster.0.to_le_bytes());
        self.keyspace.0.encode(&mut bytes);
        put_varint(self.parts.len() as u64, &mut bytes);
        for part in &self.parts {
            bytes.extend_from_slice(&part.key);
            put_varint(part.state.len() as u64, &mut bytes);
            bytes.extend_from_slice(&part.state);
            bytes.extend_from_slice(&part.mac);
        }
        bytes.extend_from_slice(&self.hints);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        to_hex(&bytes)
    }

    /// What its parts say, without asking who signed them: enough for a client, which believes its servers, and for nobody else. Errors: it is not one of the protocol
    /// that `decode` is for.
    pub fn read(&self, decode: impl Fn(&[u8]) -> Result<Session, WireError>) -> Result<Session, TokenError> {
        let (first, others) = self.parts.split_first().ok_or(TokenError::Damaged)?;
        let mut session = decode(&first.state).map_err(TokenError::Unreadable)?;
        for part in others {
            session.merge(&decode(&part.state).map_err(TokenError::Unreadable)?);
        }
        session.take_hints(&self.hints).map_err(TokenError::Unreadable)?;
        Ok(session)
    }

    /// As [`Token::read`], of a token whose every part was signed with one of `keys`. Errors: not so, or not one of the protocol that `decode` is for.
    pub fn verify(&self, keys: &TokenKeys, decode: impl Fn(&[u8]) -> Result<Session, WireError>) -> Result<Session, TokenError> {
        for part in &self.parts {
            let key = keys.0.iter().find(|key| key.id.0 == part.key).ok_or(TokenError::UnknownKey)?;
            if !key.verify(self.cluster, self.keyspace, part) {
                return Err(TokenError::Forged);
            }
        }
        self.read(decode)
    }

    /// What several servers told one client, as one token, with the hints of `session`. The parts of `self` are left out if another token is given: servers
    /// sign what they were sent with what they saw. `None`: they are too many.
    pub fn joined<'a>(&self, others: impl IntoIterator<Item = &'a Token>, session: &Session) -> Option<Token> {
        let mut joined = Token { parts: Vec::new(), hints: session.hints(), ..*self };
        for part in others.into_iter().flat_map(|other| &other.parts) {
            if !joined.parts.contains(part) {
                joined.parts.push(part.clone());
            }
        }
        if joined.parts.is_empty() {
            joined.parts.clone_from(&self.parts);
        }
        (joined.parts.len() <= MAX_PARTS).then_some(joined)
    }
}

/// The token of `session`, signed at `now_ms`, in milliseconds since 1970.
pub fn sign(keys: &TokenKeys, now_ms: u64, cluster: ClusterId, keyspace: KeyspaceId, session: &Session) -> String {
    let state = session.signed_bytes();
    let mut part = Part { key: [0; 8], state, mac: [0; MAC_BYTES] };
    if let Some(key) = keys.signing(now_ms) {
        part.key = key.id.0;
        part.mac.copy_from_slice(key.sign(cluster, keyspace, &part.state).as_ref());
    }
    Token { cluster, keyspace, parts: vec![part], hints: session.hints() }.to_text()
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(PREFIX.len() + 2 * bytes.len());
    text.push_str(PREFIX);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn from_hex(digits: &str) -> Result<Vec<u8>, TokenError> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8).ok_or(TokenError::NotAToken);
    let (pairs, odd) = digits.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Ok(value(*high)? << 4 | value(*low)?)).collect();
    match odd {
        [] => bytes,
        [last] => bytes.and_then(|_: Vec<u8>| value(*last)).and(Err(TokenError::Damaged)),
        _ => Err(TokenError::Damaged),
    }
}
