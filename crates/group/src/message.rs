//! Raft's messages in our own byte form. The library's own form is never used for bytes that come from elsewhere.

use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};
use rheostat_clock::TimestampVector;
use rheostat_core::wire::{Reader, Wire, WireError};

/// One entry of the log, as it travels and as it is on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// Its term.
    pub term: u64,
    /// What it says; empty for the entry with which a leader begins its term.
    pub data: Bytes,
}

impl LogEntry {
    /// The library's entry; both share its bytes.
    pub fn of(entry: &Entry) -> LogEntry {
        LogEntry { term: entry.term, data: entry.data.clone() }
    }

    /// [`Wire::to_bytes`], in one piece from the beginning.
    pub fn to_record(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.data.len() + MOST_BEFORE);
        self.encode(&mut out);
        out
    }
}

/// Bytes of an entry beside what it says, at most.
const MOST_BEFORE: usize = 20;

/// A message of Raft.
#[derive(Clone, Debug, PartialEq)]
pub struct RaftMessage {
    kind: u8,
    term: u64,
    log_term: u64,
    index: u64,
    /// The entries after `index`.
    entries: Vec<LogEntry>,
    commit: u64,
    commit_term: u64,
    /// Index and term of a snapshot, and the stable vector there.
    snapshot: Option<((u64, u64), TimestampVector)>,
    request_snapshot: u64,
    reject: bool,
    reject_hint: u64,
    context: Vec<u8>,
    /// What a client's read asks under, or is answered under.
    read: Option<Vec<u8>>,
}

/// The kinds that travel, by their number in the byte form.
const KINDS: [MessageType; 13] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgReadIndex,
    MessageType::MsgReadIndexResp,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgTransferLeader,
    MessageType::MsgTimeoutNow,
];

impl RaftMessage {
    /// The byte form of `message`; `None` for kinds that do not travel.
    pub fn of(message: Message) -> Option<RaftMessage> {
        let kind = KINDS.iter().position(|kind| *kind == message.get_msg_type())? as u8;
        let reading = matches!(message.get_msg_type(), MessageType::MsgReadIndex | MessageType::MsgReadIndexResp);
        let metadata = message.get_snapshot().get_metadata();
        Some(RaftMessage {
            kind,
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            entries: if reading { Vec::new() } else { message.entries.iter().map(LogEntry::of).collect() },
            commit: message.commit,
            commit_term: message.commit_term,
            snapshot: (metadata.index > 0).then(|| ((metadata.index, metadata.term), stable_at(message.get_snapshot()))),
            request_snapshot: message.request_snapshot,
            reject: message.reject,
            reject_hint: message.reject_hint,
            context: message.context.to_vec(),
            read: message.entries.first().filter(|_| reading).map(|entry| entry.data.to_vec()),
        })
    }

    /// The library's form of this message from member `from` to member `to`, in a group of `members`.
    pub fn into_library(self, from: u64, to: u64, members: &[u64]) -> Message {
        let mut message = Message::default();
        message.set_msg_type(KINDS[usize::from(self.kind)]);
        (message.from, message.to, message.term, message.log_term, message.index) = (from, to, self.term, self.log_term, self.index);
        let entries = self.entries.into_iter().enumerate().map(|(at, entry)| library_entry(self.index + 1 + at as u64, entry));
        let read = self.read.map(|read| Entry { data: read.into(), ..Entry::default() });
        message.set_entries(entries.chain(read).collect::<Vec<_>>().into());
        (message.commit, message.commit_term) = (self.commit, self.commit_term);
        if let Some((at, stable)) = &self.snapshot {
            message.set_snapshot(snapshot(*at, stable, members));
        }
        (message.request_snapshot, message.reject, message.reject_hint) = (self.request_snapshot, self.reject, self.reject_hint);
        message.context = self.context.into();
        message
    }

    /// Whether it asks for a vote that a lease must not allow: of a candidate that no leader has named.
    pub fn is_candidacy(&self) -> bool {
        matches!(KINDS[usize::from(self.kind)], MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
            && self.context != raft::CAMPAIGN_TRANSFER
    }

    /// Its sender's term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// What the entries say that come with this message.
    pub fn entries(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|entry| &*entry.data)
    }

    /// About how many bytes its byte form has.
    pub fn about_bytes(&self) -> usize {
        256 + self.context.len()
            + self.read.as_ref().map_or(0, Vec::len)
            + self.entries.iter().map(|entry| entry.data.len() + MOST_BEFORE).sum::<usize>()
    }

    /// The index and term of the snapshot that this message tells of.
    pub fn snapshot(&self) -> Option<(u64, u64)> {
        self.snapshot.as_ref().filter(|_| KINDS[usize::from(self.kind)] == MessageType::MsgSnapshot).map(|(at, _)| *at)
    }

    /// The last index that this message says is committed, if the receiver takes its word for it.
    pub fn committed(&self) -> Option<u64> {
        (KINDS[usize::from(self.kind)] == MessageType::MsgHeartbeat).then_some(self.commit)
    }
}

/// The library's form of an entry.
pub fn library_entry(index: u64, entry: LogEntry) -> Entry {
    let mut library = Entry { term: entry.term, index, data: entry.data, ..Entry::default() };
    library.set_entry_type(EntryType::EntryNormal);
    library
}

/// A snapshot that stands for the state at an index of a term, with the stable vector there; the versions go beside it.
pub fn snapshot((index, term): (u64, u64), stable: &TimestampVector, members: &[u64]) -> Snapshot {
    let mut snapshot = Snapshot { data: stable.to_bytes().into(), ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (index, term);
    metadata.mut_conf_state().voters = members.to_vec();
    snapshot
}

/// The stable vector that `snapshot` was made with.
pub fn stable_at(snapshot: &Snapshot) -> TimestampVector {
    TimestampVector::from_bytes(&snapshot.data).unwrap_or_default()
}

impl Wire for LogEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        self.term.encode(out);
        (self.data.len() as u64).encode(out);
        out.extend_from_slice(&self.data);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let term = Wire::decode(input)?;
        let length = input.length()?;
        Ok(LogEntry { term, data: Bytes::copy_from_slice(input.take(length)?) })
    }
}

impl Wire for RaftMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind);
        for number in [self.term, self.log_term, self.index, self.commit, self.commit_term, self.request_snapshot, self.reject_hint] {
            number.encode(out);
        }
        self.entries.encode(out);
        self.snapshot.encode(out);
        self.reject.encode(out);
        self.context.encode(out);
        self.read.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let kind = input.byte()?;
        if usize::from(kind) >= KINDS.len() {
            return Err(WireError::Invalid("a kind of Raft message"));
        }
        let mut number = || u64::decode(input);
        let (term, log_term, index, commit, commit_term) = (number()?, number()?, number()?, number()?, number()?);
        let (request_snapshot, reject_hint) = (number()?, number()?);
        if index > u64::MAX / 2 {
            return Err(WireError::Invalid("an index of a log"));
        }
        Ok(RaftMessage {
            kind,
            term,
            log_term,
            index,
            commit,
            commit_term,
            request_snapshot,
            reject_hint,
            entries: Wire::decode(input)?,
            snapshot: Wire::decode(input)?,
            reject: Wire::decode(input)?,
            context: Wire::decode(input)?,
            read: Wire::decode(input)?,
        })
    }
}
