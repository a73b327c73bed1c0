//! Digests, and bytes of a fixed number.

use rheostat_core::wire::{Reader, Wire, WireError};
use ring::digest::{Context, SHA256};

/// SHA-256 of something.
pub type Digest = [u8; 32];

/// The SHA-256 of `bytes`, one after the other, behind a byte that says what they are.
pub fn digest(kind: u8, bytes: &[&[u8]]) -> Digest {
    let mut context = Context::new(&SHA256);
    context.update(&[kind]);
    bytes.iter().for_each(|part| context.update(part));
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

/// An array, as it is.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<const N: usize>(pub(crate) [u8; N]);

impl<const N: usize> Wire for Bytes<N> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(input.take(N)?);
        Ok(Bytes(bytes))
    }
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).map(char::from).collect()
}

/// Their bytes; `None` if there are others.
pub(crate) fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16);
    pairs.iter().map(|[high, low]| Some((value(*high)? << 4 | value(*low)?) as u8)).collect()
}
