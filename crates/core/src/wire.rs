//! The byte form of everything that crosses a socket or reaches a disk.
//!
//! Integers are LEB128 varints, timestamps 8 bytes little endian (they are never small), byte strings and sequences carry
//! their length first. Decoding never panics, never allocates more than the input can fill, and refuses what it does
//! not understand.

use rheostat_clock::{DcId, DependencyVector, HybridVector, StableVector, Timestamp, TimestampVector};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// Why bytes could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The input ends inside a value.
    Truncated,
    /// Bytes follow where none belong.
    TrailingBytes,
    /// A value that no encoder writes; says which.
    Invalid(&'static str),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Truncated => f.write_str("the message is cut short"),
            WireError::TrailingBytes => f.write_str("the message has bytes after its end"),
            WireError::Invalid(what) => write!(f, "the message is damaged: {what}"),
        }
    }
}

impl std::error::Error for WireError {}

/// Something with a byte form.
pub trait Wire: Sized {
    /// Appends the byte form to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads one value off the front of `input`.
    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError>;

    /// The byte form alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Reads a value that fills `bytes` exactly.
    fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        let mut input = Reader::new(bytes);
        let value = Self::decode(&mut input)?;
        input.finish()?;
        Ok(value)
    }
}

/// A cursor over encoded bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.take(1)?[0])
    }

    /// The next varint.
    pub fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(WireError::Invalid("a number over 64 bits"));
            }
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Invalid("a number over 64 bits"))
    }

    /// A length, which cannot exceed the bytes that are left.
    pub fn length(&mut self) -> Result<usize, WireError> {
        let length = self.varint()?;
        if length > self.0.len() as u64 {
            return Err(WireError::Truncated);
        }
        Ok(length as usize)
    }

    /// Errors unless everything has been read.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::TrailingBytes) }
    }
}

/// Appends a varint.
pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

macro_rules! wire_integer {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                put_varint(u64::from(*self), out);
            }

            fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
                <$type>::try_from(input.varint()?).map_err(|_| WireError::Invalid("a number out of range"))
            }
        }
    )*};
}

wire_integer!(u16, u32, u64);

/// Zigzag: small numbers of either sign are short.
impl Wire for i64 {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint((self << 1 ^ self >> 63) as u64, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let value = input.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

impl Wire for u8 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        input.byte()
    }
}

impl Wire for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Invalid("a boolean that is neither 0 nor 1")),
        }
    }
}

impl Wire for () {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(_: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(())
    }
}

impl Wire for Arc<[u8]> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.len() as u64, out);
        out.extend_from_slice(self);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let length = input.length()?;
        Ok(Arc::from(input.take(length)?))
    }
}

impl Wire for String {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.len() as u64, out);
        out.extend_from_slice(self.as_bytes());
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let length = input.length()?;
        let text = std::str::from_utf8(input.take(length)?).map_err(|_| WireError::Invalid("text that is not UTF-8"))?;
        Ok(text.to_owned())
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(if bool::decode(input)? { Some(T::decode(input)?) } else { None })
    }
}

impl<T: Wire> Wire for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Box::new(T::decode(input)?))
    }
}

fn encode_sequence<T: Wire>(values: &[T], out: &mut Vec<u8>) {
    put_varint(values.len() as u64, out);
    for value in values {
        value.encode(out);
    }
}

/// Elements take at least one byte each, so a length beyond the input is refused before anything is allocated.
fn decode_sequence<T: Wire, C: FromIterator<T>>(input: &mut Reader<'_>) -> Result<C, WireError> {
    let length = input.length()?;
    (0..length).map(|_| T::decode(input)).collect()
}

impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_sequence(self, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        decode_sequence(input)
    }
}

impl<T: Wire> Wire for SmallVec<[T; 1]> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_sequence(self, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        decode_sequence(input)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok((A::decode(input)?, B::decode(input)?))
    }
}

impl Wire for Timestamp {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bits().to_le_bytes());
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let bytes = input.take(8)?;
        Ok(Timestamp::from_bits(u64::from_le_bytes(bytes.try_into().map_err(|_| WireError::Truncated)?)))
    }
}

impl Wire for DcId {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(DcId(input.byte()?))
    }
}

impl Wire for TimestampVector {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.entries().count() as u64, out);
        for (dc, at) in self.entries() {
            dc.encode(out);
            at.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let length = input.length()?;
        if length > 256 {
            return Err(WireError::Invalid("a vector of more than 256 data centers"));
        }
        (0..length).map(|_| <(DcId, Timestamp)>::decode(input)).collect()
    }
}

impl Wire for HybridVector {
    fn encode(&self, out: &mut Vec<u8>) {
        HybridVector::encode(self, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut rest = input.rest();
        let vector = HybridVector::decode(&mut rest).map_err(|error| WireError::Invalid(error.why()))?;
        input.take(input.rest().len() - rest.len())?;
        Ok(vector)
    }
}

impl Wire for DependencyVector {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(DependencyVector(Wire::decode(input)?))
    }
}

impl Wire for StableVector {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(StableVector(Wire::decode(input)?))
    }
}

/// Gives a struct the byte form: its fields, in the order given.
#[macro_export]
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* }) => {
        impl $crate::wire::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::wire::Wire::encode(&self.$field, out);)*
            }

            fn decode(input: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::WireError> {
                Ok($name { $($field: $crate::wire::Wire::decode(input)?),* })
            }
        }
    };
}

/// Gives an enum the byte form: its tag, then its fields in order.
#[macro_export]
macro_rules! wire_enum {
    ($name:ident, $what:literal, { $($tag:literal => $variant:ident $({ $($field:ident),* })? $(( $($position:ident),* ))?),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant $({ $($field),* })? $(( $($position),* ))? => {
                        out.push($tag);
                        $($($field.encode(out);)*)?
                        $($($position.encode(out);)*)?
                    })*
                }
            }

            fn decode(input: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::WireError> {
                Ok(match input.byte()? {
                    $($tag => {
                        $($(let $field = $crate::wire::Wire::decode(input)?;)*)?
                        $($(let $position = $crate::wire::Wire::decode(input)?;)*)?
                        $name::$variant $({ $($field),* })? $(( $($position),* ))?
                    })*
                    _ => return Err($crate::wire::WireError::Invalid($what)),
                })
            }
        }
    };
}
