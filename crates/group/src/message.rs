//! Raft's messages in our own byte form. The library's own form is never used for bytes that come from elsewhere.

use crate::configuration::{Configuration, seat_of};
use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};
use rheostat_clock::TimestampVector;
use rheostat_core::wire::{Reader, Wire, WireError};

/// One entry of the log, as it travels and as it is on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// Its term.
    pub term: u64,
    /// It changes the group's configuration ([`crate::configuration::Change`]; empty: a joint one ends).
    pub changes: bool,
    /// What it says; empty for the entry with which a leader begins its term.
    pub data: Bytes,
}

impl LogEntry {
    /// The library's entry; both share its bytes. What a change says stands in the context: the data are the library's own, for the leader that proposes it.
    pub fn of(entry: &Entry) -> LogEntry {
        let changes = entry.get_entry_type() == EntryType::EntryConfChangeV2;
        LogEntry { term: entry.term, changes, data: if changes { entry.context.clone() } else { entry.data.clone() } }
    }

    /// [`Wire::to_bytes`], in one piece from the beginning.
    pub fn to_record(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.data.len() + MOST_BEFORE);
        self.encode(&mut out);
        out
    }
}

/// An entry of a group's log in its byte form, with `within` of what it says: nothing of one that says nothing or changes the configuration. Errors: it cannot be read.
pub fn entry_within(entry: &[u8], within: impl FnOnce(&[u8]) -> Result<Vec<u8>, WireError>) -> Result<Vec<u8>, WireError> {
    let mut entry = LogEntry::from_bytes(entry)?;
    if !entry.changes && !entry.data.is_empty() {
        entry.data = within(&entry.data)?.into();
    }
    Ok(entry.to_record())
}

/// Bytes of an entry beside what it says, at most.
const MOST_BEFORE: usize = 21;

/// A message of Raft.
#[derive(Clone, Debug, PartialEq)]
pub struct RaftMessage {
    kind: u8,
    /// Members, by number: what is meant for one that was replaced, or comes from it, is known by that.
    from: u64,
    to: u64,
    term: u64,
    log_term: u64,
    index: u64,
    /// The entries after `index`.
    entries: Vec<LogEntry>,
    commit: u64,
    commit_term: u64,
    /// Index and term of a snapshot, and what is there.
    snapshot: Option<Box<((u64, u64), Mark)>>,
    request_snapshot: u64,
    reject: bool,
    reject_hint: u64,
    context: Vec<u8>,
    /// What a client's read asks under, or is answered under.
    read: Option<Vec<u8>>,
}

/// What a snapshot says itself: the stable vector, and the configuration. The versions go beside it.
pub type Mark = (TimestampVector, Configuration);

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
            from: message.from,
            to: message.to,
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            entries: if reading { Vec::new() } else { message.entries.iter().map(LogEntry::of).collect() },
            commit: message.commit,
            commit_term: message.commit_term,
            snapshot: (metadata.index > 0).then(|| Box::new(((metadata.index, metadata.term), mark_of(message.get_snapshot())))),
            request_snapshot: message.request_snapshot,
            reject: message.reject,
            reject_hint: message.reject_hint,
            context: message.context.to_vec(),
            read: message.entries.first().filter(|_| reading).map(|entry| entry.data.to_vec()),
        })
    }

    /// The library's form of this message.
    pub fn into_library(self) -> Message {
        let mut message = Message::default();
        message.set_msg_type(KINDS[usize::from(self.kind)]);
        (message.from, message.to, message.term, message.log_term, message.index) = (self.from, self.to, self.term, self.log_term, self.index);
        let entries = self.entries.into_iter().enumerate().map(|(at, entry)| library_entry(self.index + 1 + at as u64, entry));
        let read = self.read.map(|read| Entry { data: read.into(), ..Entry::default() });
        message.set_entries(entries.chain(read).collect::<Vec<_>>().into());
        (message.commit, message.commit_term) = (self.commit, self.commit_term);
        if let Some((at, (stable, configuration))) = self.snapshot.as_deref() {
            message.set_snapshot(snapshot(*at, stable, configuration));
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

    /// Whether it asks the receiver to lead at once, since the leader hands over.
    pub fn hands_over(&self) -> bool {
        KINDS[usize::from(self.kind)] == MessageType::MsgTimeoutNow
    }

    /// Which members it goes from and to, if they are of these seats.
    pub(crate) fn between(&self, from_seat: u64, to_seat: u64) -> Option<(u64, u64)> {
        (seat_of(self.from) == from_seat && seat_of(self.to) == to_seat).then_some((self.from, self.to))
    }

    /// The member that it comes from.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Its sender's term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// What the entries say that come with this message.
    pub fn entries(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().filter(|entry| !entry.changes).map(|entry| &*entry.data)
    }

    /// About how many bytes its byte form has.
    pub fn about_bytes(&self) -> usize {
        256 + self.context.len()
            + self.read.as_ref().map_or(0, Vec::len)
            + self.entries.iter().map(|entry| entry.data.len() + MOST_BEFORE).sum::<usize>()
    }

    /// The index and term of the snapshot that this message tells of.
    pub fn snapshot(&self) -> Option<(u64, u64)> {
        self.snapshot.as_ref().filter(|_| KINDS[usize::from(self.kind)] == MessageType::MsgSnapshot).map(|snapshot| snapshot.0)
    }

    /// The stable vector at the snapshot that this message tells of.
    pub fn snapshot_stable(&self) -> Option<&TimestampVector> {
        self.snapshot().and(self.snapshot.as_ref()).map(|snapshot| &snapshot.1.0)
    }

    /// The last index that this message says is committed, if the receiver takes its word for it.
    pub fn committed(&self) -> Option<u64> {
        (KINDS[usize::from(self.kind)] == MessageType::MsgHeartbeat).then_some(self.commit)
    }
}

/// The library's form of an entry.
pub fn library_entry(index: u64, entry: LogEntry) -> Entry {
    let mut library = Entry { term: entry.term, index, ..Entry::default() };
    match entry.changes {
        true => {
            library.set_entry_type(EntryType::EntryConfChangeV2);
            library.context = entry.data;
        }
        false => library.data = entry.data,
    }
    library
}

/// A snapshot that stands for the state at an index of a term, with the stable vector and the configuration there; the versions go beside it.
pub fn snapshot((index, term): (u64, u64), stable: &TimestampVector, configuration: &Configuration) -> Snapshot {
    let mut data = stable.to_bytes();
    configuration.encode(&mut data);
    let mut snapshot = Snapshot { data: data.into(), ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (index, term);
    metadata.set_conf_state(configuration.to_library());
    snapshot
}

/// What `snapshot` was made with.
pub fn mark_of(snapshot: &Snapshot) -> Mark {
    let mut input = Reader::new(&snapshot.data);
    let read = |input: &mut Reader<'_>| Ok::<Mark, WireError>((Wire::decode(input)?, Wire::decode(input)?));
    read(&mut input).unwrap_or_default()
}

/// Stands where the term does in entries that change the configuration, before it. No entry has it as its term.
const CHANGES: u64 = 0;

impl Wire for LogEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        if self.changes {
            CHANGES.encode(out);
        }
        self.term.encode(out);
        (self.data.len() as u64).encode(out);
        out.extend_from_slice(&self.data);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut term = Wire::decode(input)?;
        let changes = term == CHANGES;
        if changes {
            term = Wire::decode(input)?;
        }
        let length = input.length()?;
        Ok(LogEntry { term, changes, data: Bytes::copy_from_slice(input.take(length)?) })
    }
}

impl Wire for RaftMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind);
        for number in
            [self.from, self.to, self.term, self.log_term, self.index, self.commit, self.commit_term, self.request_snapshot, self.reject_hint]
        {
            number.encode(out);
        }
        self.entries.encode(out);
        self.snapshot.as_deref().cloned().encode(out);
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
        let (from, to) = (number()?, number()?);
        let (term, log_term, index, commit, commit_term) = (number()?, number()?, number()?, number()?, number()?);
        let (request_snapshot, reject_hint) = (number()?, number()?);
        if index > u64::MAX / 2 {
            return Err(WireError::Invalid("an index of a log"));
        }
        Ok(RaftMessage {
            kind,
            from,
            to,
            term,
            log_term,
            index,
            commit,
            commit_term,
            request_snapshot,
            reject_hint,
            entries: Wire::decode(input)?,
            snapshot: Option::decode(input)?.map(Box::new),
            reject: Wire::decode(input)?,
            context: Wire::decode(input)?,
            read: Wire::decode(input)?,
        })
    }
}
