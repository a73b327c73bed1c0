//! A file of records: a beginning, then blocks. A block is the length of its records in bytes, their CRC-32, and the records, each after its length.

use crate::sum::Sum;
use rheostat_core::export::Exported;
use rheostat_core::wire::{Reader as Input, Wire, put_varint};
use std::fmt;
use std::io::{self, Read, Write};

/// How a file begins: what it is, and the number of its form.
const BEGINNING: [u8; 8] = *b"rheobak\x01";
/// A block is written when it has so many bytes.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes before a block's records.
const HEADER: usize = 8;

/// What a file has in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of the file.
    pub size: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Blocks.
    pub blocks: u64,
    /// Keys with a value.
    pub keys: u64,
    /// Of them such as hold a counter.
    pub counters: u64,
    /// Values; more than keys where they stand side by side.
    pub values: u64,
    /// Keys that were deleted.
    pub deleted: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

impl Totals {
    fn add(&mut self, one: &Exported) {
        self.keys += u64::from(!one.reads.is_empty());
        self.counters += u64::from(one.counter.is_some());
        self.values += one.reads.len() as u64;
        self.deleted += u64::from(one.reads.is_empty());
        let values: usize = one.reads.iter().map(|read| read.value.as_ref().map_or(0, |value| value.len())).sum();
        self.bytes += (one.key.len() + values) as u64;
    }
}

/// Writes a file of records.
pub struct Writer<W> {
    out: W,
    block: Vec<u8>,
    record: Vec<u8>,
    sum: Sum,
    totals: Totals,
}

impl<W: Write> Writer<W> {
    /// Begins a file. Errors: the disk's.
    pub fn new(out: W) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, block: Vec::new(), record: Vec::new(), sum: Sum::new(), totals: Totals::default() };
        writer.write(&BEGINNING)?;
        Ok(writer)
    }

    /// Adds a record. Errors: the disk's.
    pub fn push(&mut self, one: &Exported) -> io::Result<()> {
        self.record.clear();
        one.encode(&mut self.record);
        if !self.block.is_empty() && self.block.len() + self.record.len() > BLOCK_BYTES {
            self.end_block()?;
        }
        put_varint(self.record.len() as u64, &mut self.block);
        self.block.extend_from_slice(&self.record);
        self.totals.add(one);
        Ok(())
    }

    /// What has been added so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Ends the file; returns where it was written, and what it has in it. Errors: the disk's.
    pub fn finish(mut self) -> io::Result<(W, Totals)> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        self.out.flush()?;
        Ok((self.out, Totals { sha256: self.sum.finish(), ..self.totals }))
    }

    fn end_block(&mut self) -> io::Result<()> {
        let block = std::mem::take(&mut self.block);
        let length = u32::try_from(block.len()).map_err(|_| io::Error::other("a record of more than 4 GiB"))?;
        self.write(&length.to_le_bytes())?;
        self.write(&crc32fast::hash(&block).to_le_bytes())?;
        self.write(&block)?;
        self.totals.blocks += 1;
        self.block = block;
        self.block.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.sum.add(bytes);
        self.totals.size += bytes.len() as u64;
        Ok(())
    }
}

/// Why a file cannot be read on.
#[derive(Debug)]
pub enum Fault {
    /// It cannot be read.
    Disk(io::Error),
    /// It does not begin as a file of records does.
    Foreign,
    /// It has another form, written by another version of the software.
    Version(u8),
    /// It ends inside a block that begins at this byte.
    Truncated(u64),
    /// The block that begins at this byte is not what was written.
    Damaged(u64, String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Disk(error) => write!(f, "cannot be read: {error}"),
            Fault::Foreign => f.write_str("is not a file of a backup"),
            Fault::Version(version) => write!(f, "has form {version}; this version of the software reads form {}", BEGINNING[7]),
            Fault::Truncated(at) => write!(f, "is cut short in the block at byte {at}"),
            Fault::Damaged(at, why) => write!(f, "is damaged in the block at byte {at}: {why}"),
        }
    }
}

impl std::error::Error for Fault {}

/// Reads a file of records, block by block.
pub struct Reader<R> {
    input: R,
    /// Bytes that the file has yet.
    left: u64,
    sum: Sum,
    totals: Totals,
}

impl<R: Read> Reader<R> {
    /// Begins to read a file of `size` bytes. Errors: it is none.
    pub fn new(input: R, size: u64) -> Result<Reader<R>, Fault> {
        let mut reader = Reader { input, left: size, sum: Sum::new(), totals: Totals::default() };
        let beginning = reader.take(BEGINNING.len()).map_err(|fault| if matches!(fault, Fault::Truncated(_)) { Fault::Foreign } else { fault })?;
        match beginning.split_last() {
            Some((_, name)) if name != &BEGINNING[..7] => Err(Fault::Foreign),
            Some((version, _)) if *version != BEGINNING[7] => Err(Fault::Version(*version)),
            _ => Ok(reader),
        }
    }

    /// The records of the next block; `None` at the file's end. Errors: see [`Fault`]; nothing can be read after one.
    pub fn next_block(&mut self) -> Result<Option<Vec<Exported>>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        let at = self.totals.size;
        let damaged = |why: String| Fault::Damaged(at, why);
        let header = self.take(HEADER).map_err(|fault| begins_at(fault, at))?;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        let (length, crc) = (number(&header[..4]), number(&header[4..]));
        if length == 0 {
            return Err(damaged("it is empty".into()));
        }
        let block = self.take(length as usize).map_err(|fault| begins_at(fault, at))?;
        if crc32fast::hash(&block) != crc {
            return Err(damaged("its checksum is another".into()));
        }
        let mut records = Vec::new();
        let mut input = Input::new(&block);
        while !input.rest().is_empty() {
            let record = input.length().and_then(|length| input.take(length)).and_then(Exported::from_bytes);
            let record = record.map_err(|error| damaged(error.to_string()))?;
            if let Some(why) = unfit(&record) {
                return Err(damaged(why.into()));
            }
            self.totals.add(&record);
            records.push(record);
        }
        self.totals.blocks += 1;
        Ok(Some(records))
    }

    /// What the file has in it, when all blocks have been read.
    pub fn finish(self) -> Totals {
        Totals { sha256: self.sum.finish(), ..self.totals }
    }

    /// The next `length` bytes. Memory is taken for what is there only.
    fn take(&mut self, length: usize) -> Result<Vec<u8>, Fault> {
        let at = self.totals.size;
        if length as u64 > self.left {
            return Err(Fault::Truncated(at));
        }
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(length as u64).read_to_end(&mut bytes).map_err(Fault::Disk)?;
        if read < length {
            return Err(Fault::Truncated(at));
        }
        self.left -= length as u64;
        self.totals.size += length as u64;
        self.sum.add(&bytes);
        Ok(bytes)
    }
}

fn begins_at(fault: Fault, at: u64) -> Fault {
    if matches!(fault, Fault::Truncated(_)) { Fault::Truncated(at) } else { fault }
}

/// Why `record` is none that a backup writes.
fn unfit(record: &Exported) -> Option<&'static str> {
    match (&record.counter, &record.reads[..]) {
        (Some(_), [read]) if read.value.is_none() => None,
        (Some(_), _) => Some("a counter beside a value"),
        (None, reads) if reads.iter().any(|read| read.value.is_none()) => Some("a key without its value"),
        _ => None,
    }
}
