//! Opening the log: which segments there are, what they hold, and where the last one ends.

use super::format::{HeaderError, Kind, RECORD_HEADER, SEGMENT_HEADER, SegmentHeader, record_at};
use super::log::{Failure, Log, Segment, create_segment, provisional_path, segment_path, sync_directory};
use super::mark::{Mark, Marked};
use super::options::{DiskOptions, OpenError};
use rheostat_clock::Timestamp;
use rheostat_core::wire::Wire;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A record of the log, as a start reads it.
pub(super) struct Found<'a> {
    pub(super) kind: Kind,
    pub(super) payload: &'a [u8],
    /// The position where it ends.
    pub(super) end: u64,
}

/// Why a replay stops.
pub(super) enum Stopped {
    /// The record cannot be one of this log, and why.
    Record(String),
    /// The engine's error.
    Engine(io::Error),
}

/// The engine of the store in `directory` cannot be read, which says nothing of the log.
pub(super) fn engine_error(directory: &Path, error: io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::InvalidData => OpenError::damaged(directory, 0, error.to_string()),
        _ => OpenError::io("read from the engine of", directory)(error),
    }
}

/// A file that may be a segment.
struct Candidate {
    path: PathBuf,
    base: u64,
    provisional: bool,
}

/// Creates the log of store number `store` in `directory`, with one segment and nothing in it, and returns when it is on disk.
pub(super) fn begin_log(directory: &Path, store: u64) -> Result<(), OpenError> {
    // Under a temporary name first: a power loss must not leave half a header under the final one.
    let path = provisional_path(directory, 0);
    let created = create_segment(&path, SegmentHeader { store, base: 0 }).and_then(|file| {
        file.sync_all()?;
        fs::rename(&path, segment_path(directory, 0))?;
        sync_directory(directory)
    });
    created.map_err(OpenError::io("create", &path))
}

/// What is known of the log before it is read.
pub(super) struct Known {
    /// The store's number.
    pub(super) store: u64,
    /// The position of the last checkpoint.
    pub(super) checkpoint: u64,
    /// Everything below had been flushed, by the mark; `None` if there is no mark.
    pub(super) flushed: Option<u64>,
    /// Own updates after this were never deleted: peers may still have to get them.
    pub(super) released: Timestamp,
}

/// Opens the log in `directory`, and calls `replay` for each record in order. `replay` says why it cannot take a record; for an own update it returns the
/// timestamp. The mark at `mark` is written anew.
pub(super) fn open_log(
    directory: &Path,
    mark: &Path,
    options: &DiskOptions,
    known: &Known,
    notes: &mut Vec<String>,
    mut replay: impl FnMut(Found<'_>) -> Result<Option<Timestamp>, Stopped>,
) -> Result<Log, OpenError> {
    let Known { store, checkpoint, released, .. } = *known;
    let flushed = known.flushed.unwrap_or(0).max(checkpoint);
    let mut candidates = find(directory, notes)?;
    let mut log = Log {
        directory: directory.to_owned(),
        options: options.clone(),
        store,
        mark: None,
        segments: VecDeque::new(),
        blocks: VecDeque::new(),
        file: Arc::new(File::open(directory).map_err(OpenError::io("open", directory))?),
        buffer: Vec::new(),
        written: 0,
        durable: 0,
        marked: 0,
        flushing: false,
        provisional: false,
        directory_changed: false,
        failure: Failure::default(),
    };
    // A provisional segment without a whole header, or without a predecessor that is whole, holds nothing that was ever spoken of.
    let provisional = candidates.pop_if(|last| last.provisional);
    if let Some(stray) = candidates.iter().find(|candidate| candidate.provisional) {
        return Err(OpenError::damaged(&stray.path, 0, "a segment with a temporary name that is not the last"));
    }
    let mut end = candidates.first().map_or(0, |first| first.base);
    if end > checkpoint {
        let path = &candidates[0].path;
        return Err(OpenError::damaged(path, 0, format!("the log begins at {end}, and the checkpoint ends at {checkpoint}: a segment is missing")));
    }
    let count = candidates.len();
    let mut bytes = Vec::new();
    for (number, candidate) in candidates.into_iter().enumerate() {
        if candidate.base != end {
            // What a peer has still to get is not deleted, nor anything behind it.
            let is_needed = log.segments.back().is_some_and(|last| last.newest_own > released);
            if candidate.base < end || candidate.base > checkpoint || is_needed {
                return Err(OpenError::damaged(&candidate.path, 0, format!("the segment before it ends at {end}: a segment is missing")));
            }
            // Deleted after a checkpoint; the power failed before the directory was flushed, and some of the names came back.
            for left in log.segments.drain(..) {
                let path = segment_path(directory, left.base);
                fs::remove_file(&path).map_err(OpenError::io("delete", &path))?;
            }
            log.blocks.clear();
        }
        bytes.clear();
        File::open(&candidate.path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(OpenError::io("read", &candidate.path))?;
        // Earlier versions of this software named a segment before its header was on disk.
        if bytes.len() < SEGMENT_HEADER && number > 0 && number + 1 == count && candidate.base == end && flushed <= end {
            notes.push(format!("{}: begun when the power failed, and deleted", candidate.path.display()));
            fs::remove_file(&candidate.path).map_err(OpenError::io("delete", &candidate.path))?;
            break;
        }
        read_header(&candidate, &bytes, store)?;
        end = read_segment(&mut log, &candidate, &bytes, number + 1 == count, flushed, notes, &mut replay)?;
    }
    if let Some(candidate) = provisional {
        let bytes = fs::read(&candidate.path).map_err(OpenError::io("read", &candidate.path))?;
        match read_header(&candidate, &bytes, store) {
            Ok(()) if candidate.base == end && !log.segments.is_empty() => {
                flush_again(&log, known, end)?;
                File::open(&candidate.path).and_then(|file| file.sync_all()).map_err(OpenError::io("flush", &candidate.path))?;
                let path = segment_path(directory, candidate.base);
                fs::rename(&candidate.path, &path).map_err(OpenError::io("rename", &candidate.path))?;
                let candidate = Candidate { path, ..candidate };
                end = read_segment(&mut log, &candidate, &bytes, true, flushed, notes, &mut replay)?;
            }
            Err(error @ OpenError::FormatVersion { .. }) => return Err(error),
            _ => {
                notes.push(format!("{}: begun when the power failed, and deleted", candidate.path.display()));
                fs::remove_file(&candidate.path).map_err(OpenError::io("delete", &candidate.path))?;
            }
        }
    }
    if log.segments.is_empty() {
        return Err(OpenError::damaged(directory, 0, format!("there is no log, and everything up to byte {flushed} of it had been flushed to disk")));
    }
    if end < flushed {
        let path = segment_path(directory, log.segments.back().map_or(0, |last| last.base));
        let base = log.segments.back().map_or(0, |last| last.base);
        let what = format!(
            "the log ends here, and everything up to {} bytes further on had been flushed to disk: its end, or its last segment, is missing",
            flushed - end
        );
        return Err(OpenError::damaged(&path, end - base, what));
    }
    flush_again(&log, known, end)?;
    log.mark = Some(Arc::new(Mutex::new(Mark::create(mark, Marked { store, position: end }).map_err(OpenError::io("write", mark))?)));
    if let Some(parent) = mark.parent() {
        sync_directory(parent).map_err(OpenError::io("flush", parent))?;
    }
    sync_directory(directory).map_err(OpenError::io("flush", directory))?;
    let base = log.segments.back().map_or(0, |last| last.base);
    let path = segment_path(directory, base);
    let mut file = OpenOptions::new().write(true).open(&path).map_err(OpenError::io("open", &path))?;
    file.seek(SeekFrom::Start(end - base)).map_err(OpenError::io("seek in", &path))?;
    (log.file, log.written, log.durable, log.marked) = (Arc::new(file), end, end, 0);
    Ok(log)
}

/// What was read is spoken of from now on, so it must not depend on the operating system's cache. What is not known to have been flushed is written again: after a
/// flush that failed, the cache may hold bytes as clean that the disk does not have, and the next flush would succeed without them.
fn flush_again(log: &Log, known: &Known, end: u64) -> Result<(), OpenError> {
    let mut upto = end;
    for segment in log.segments.iter().rev() {
        let path = segment_path(&log.directory, segment.base);
        let from = known.flushed.unwrap_or(segment.base).clamp(segment.base, upto) - segment.base;
        let again = || {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let mut bytes = vec![0; (upto - segment.base - from) as usize];
            file.read_exact_at(&mut bytes, from)?;
            file.write_all_at(&bytes, from)?;
            file.sync_all()
        };
        again().map_err(OpenError::io("flush", &path))?;
        upto = segment.base;
        // Without a mark, all segments but the last were flushed before the last got its name.
        if known.flushed.is_none_or(|flushed| flushed >= segment.base) {
            break;
        }
    }
    Ok(())
}

/// The store's number in the first segment, if there is one.
pub(super) fn number_in_log(directory: &Path) -> Result<Option<u64>, OpenError> {
    let candidates = find(directory, &mut Vec::new())?;
    let Some(first) = candidates.first().filter(|first| !first.provisional) else { return Ok(None) };
    let mut bytes = Vec::new();
    let reading = || OpenError::io("read", &first.path);
    File::open(&first.path).map_err(reading())?.take(SEGMENT_HEADER as u64).read_to_end(&mut bytes).map_err(reading())?;
    Ok(header_of(first, &bytes)?.map(|header| header.store))
}

/// The segments in `directory`, by position.
fn find(directory: &Path, notes: &mut Vec<String>) -> Result<Vec<Candidate>, OpenError> {
    let reading = || OpenError::io("list", directory);
    let mut candidates = Vec::new();
    for entry in fs::read_dir(directory).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        let provisional = match path.extension().and_then(|extension| extension.to_str()) {
            Some("log") => false,
            Some("next") => true,
            _ => {
                notes.push(format!("{}: not a segment, and left alone", path.display()));
                continue;
            }
        };
        let Some(base) = stem else {
            return Err(OpenError::Foreign { path, what: "is not named as a segment of the log is".to_owned() });
        };
        candidates.push(Candidate { path, base, provisional });
    }
    candidates.sort_by_key(|candidate| (candidate.base, candidate.provisional));
    Ok(candidates)
}

/// The header of a segment; `None` if the file is too short for one.
fn header_of(candidate: &Candidate, bytes: &[u8]) -> Result<Option<SegmentHeader>, OpenError> {
    match SegmentHeader::decode(bytes) {
        Ok(header) => Ok(Some(header)),
        Err(HeaderError::Short) => Ok(None),
        Err(HeaderError::Foreign) => Err(OpenError::Foreign { path: candidate.path.clone(), what: "is not a segment of a Rheostat log".to_owned() }),
        Err(HeaderError::Version(found)) => Err(OpenError::FormatVersion { path: candidate.path.clone(), found }),
        Err(HeaderError::Damaged) => Err(OpenError::damaged(&candidate.path, 0, "the checksum of the header does not fit")),
    }
}

fn read_header(candidate: &Candidate, bytes: &[u8], store: u64) -> Result<(), OpenError> {
    match header_of(candidate, bytes)? {
        None => Err(OpenError::damaged(&candidate.path, bytes.len() as u64, "the file ends within the header")),
        Some(header) if header.store != store => {
            Err(OpenError::Foreign { path: candidate.path.clone(), what: "belongs to another store".to_owned() })
        }
        Some(header) if header.base != candidate.base => {
            Err(OpenError::damaged(&candidate.path, 20, format!("the header says position {}", header.base)))
        }
        Some(_) => Ok(()),
    }
}

/// Reads the records of a segment; returns the position where it ends, after a torn tail was cut off.
fn read_segment(
    log: &mut Log,
    candidate: &Candidate,
    bytes: &[u8],
    last: bool,
    flushed: u64,
    notes: &mut Vec<String>,
    replay: &mut impl FnMut(Found<'_>) -> Result<Option<Timestamp>, Stopped>,
) -> Result<u64, OpenError> {
    let base = candidate.base;
    let newest_own = log.segments.back().map_or(Timestamp::ZERO, |segment| segment.newest_own);
    log.segments.push_back(Segment { base, newest_own });
    let mut offset = SEGMENT_HEADER;
    while offset < bytes.len() {
        let Some((header, payload)) = record_at(bytes, offset, base) else {
            if !last {
                return Err(OpenError::damaged(&candidate.path, offset as u64, "no record begins here, and there are later segments"));
            }
            return cut_tail(candidate, bytes, offset, flushed, notes);
        };
        let end = offset + RECORD_HEADER + payload.len();
        let position = base + offset as u64;
        let found = Found { kind: header.kind, payload, end: base + end as u64 };
        let own = replay(found).map_err(|stopped| match stopped {
            Stopped::Record(what) => OpenError::damaged(&candidate.path, offset as u64, what),
            Stopped::Engine(error) => engine_error(log.directory.parent().unwrap_or(&log.directory), error),
        })?;
        if let Some(written) = own {
            log.note_own(written, position);
        }
        offset = end;
    }
    Ok(base + offset as u64)
}

/// What follows `offset` of the last segment is not a record. It is a torn tail, and cut off, unless something says that it was whole on disk once.
fn cut_tail(candidate: &Candidate, bytes: &[u8], offset: usize, mut flushed: u64, notes: &mut Vec<String>) -> Result<u64, OpenError> {
    let position = candidate.base + offset as u64;
    let (mut whole, mut at) = (0, offset + 1);
    while at < bytes.len() {
        let Some((header, payload)) = record_at(bytes, at, candidate.base) else {
            at += 1;
            continue;
        };
        if header.kind == Kind::Flushed {
            flushed = flushed.max(u64::from_bytes(payload).unwrap_or(0));
        }
        whole += 1;
        at += RECORD_HEADER + payload.len();
    }
    if flushed > position {
        let what = format!("no record begins here, and everything up to byte {} had been flushed to disk", flushed - candidate.base);
        return Err(OpenError::damaged(&candidate.path, offset as u64, what));
    }
    let file = OpenOptions::new().write(true).open(&candidate.path).map_err(OpenError::io("open", &candidate.path))?;
    file.set_len(offset as u64).map_err(OpenError::io("cut", &candidate.path))?;
    let bytes = bytes.len() - offset;
    notes.push(format!("{}: cut off {bytes} bytes of a torn tail at byte {offset} ({whole} whole records among them)", candidate.path.display()));
    Ok(position)
}
