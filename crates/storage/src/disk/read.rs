//! Reading own updates back from the log.

use super::format::{Kind, RECORD_HEADER, RecordHeader};
use super::log::{BLOCK_BYTES, Block, Log, segment_path};
use super::replay::kept_update;
use rheostat_clock::Timestamp;
use rheostat_core::version::Update;
use rheostat_core::wire::Wire;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

impl Log {
    /// Own updates after `after` from the segments, as `Store::own_updates` wants them.
    pub(super) fn read_own<M: Wire>(&self, after: Timestamp, max_bytes: usize) -> io::Result<Vec<Update<M>>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let first = self.blocks.partition_point(|block| block.first <= after).saturating_sub(1);
        for (number, block) in self.blocks.iter().enumerate().skip(first) {
            let next = self.blocks.get(number + 1).map_or(u64::MAX, |block| block.position);
            if !self.read_block(*block, next, after, max_bytes, &mut bytes, &mut found)? {
                break;
            }
        }
        Ok(found)
    }

    /// Reads the own updates of one block; false when the result is complete.
    fn read_block<M: Wire>(
        &self,
        block: Block,
        next: u64,
        after: Timestamp,
        max_bytes: usize,
        bytes: &mut usize,
        found: &mut Vec<Update<M>>,
    ) -> io::Result<bool> {
        let number = self.segments.partition_point(|segment| segment.base <= block.position).saturating_sub(1);
        let Some(segment) = self.segments.get(number) else { return Ok(false) };
        let segment_end = self.segments.get(number + 1).map_or(u64::MAX, |segment| segment.base);
        let limit = next.min(block.position + BLOCK_BYTES).min(segment_end).min(self.durable);
        // Only durable records are read, and those have their final name, or are in the last segment under its temporary one.
        let mut path = segment_path(&self.directory, segment.base);
        if self.provisional && number + 1 == self.segments.len() {
            path = super::log::provisional_path(&self.directory, segment.base);
        }
        let damaged = |position: u64, what: &str| {
            let offset = position - segment.base;
            io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged at byte {offset}: {what}", path.display()))
        };
        let mut file = File::open(&path)?;
        file.seek(SeekFrom::Start(block.position - segment.base))?;
        let mut file = BufReader::with_capacity(BLOCK_BYTES as usize, file);
        let (mut position, mut payload) = (block.position, Vec::new());
        while position < limit {
            let mut header = [0; RECORD_HEADER];
            file.read_exact(&mut header)?;
            let header = RecordHeader::decode(&header, position).ok_or_else(|| damaged(position, "no record begins here"))?;
            let end = position + (RECORD_HEADER + header.length) as u64;
            if end > self.durable {
                return Ok(false);
            }
            if header.kind != Kind::Own {
                file.seek_relative(header.length as i64)?;
                position = end;
                continue;
            }
            payload.resize(header.length, 0);
            file.read_exact(&mut payload)?;
            if !header.fits(&payload) {
                return Err(damaged(position, "the checksum does not fit"));
            }
            let update = kept_update::<M>(&payload).map_err(|error| damaged(position, &error.to_string()))?;
            position = end;
            let Some(update) = update.filter(|update| update.id.written > after) else { continue };
            *bytes += payload.len();
            if *bytes > max_bytes && !found.is_empty() {
                return Ok(false);
            }
            found.push(update);
        }
        Ok(limit < self.durable)
    }
}
