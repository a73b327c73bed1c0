//! The limit server's reading of requests. The server calls [`parse_request`] and nothing else.

use std::ops::Range;

/// Longest argument, in bytes.
const MAX_ARGUMENT: usize = 16 << 20;

/// Most arguments of a request.
const MAX_ARGUMENTS: usize = 1 << 20;

/// Longest `*` or `$` line, in bytes.
const MAX_LINE: usize = 32;

/// Reads the request at the start of `input`: puts the places of its arguments into `arguments`, and returns its length in bytes; `None` if it is
/// not whole yet. A request is an array of bulk strings; inline commands are not understood.
///
/// # Errors
/// A text that says what is wrong. The connection cannot go on.
pub(super) fn parse_request(input: &[u8], arguments: &mut Vec<Range<usize>>) -> Result<Option<usize>, &'static str> {
    arguments.clear();
    let Some((count, mut at)) = header(input, 0, b'*', MAX_ARGUMENTS)? else { return Ok(None) };
    for _ in 0..count {
        let Some((length, start)) = header(input, at, b'$', MAX_ARGUMENT)? else { return Ok(None) };
        let end = start + length;
        if input.len() < end + 2 {
            return Ok(None);
        }
        if &input[end..end + 2] != b"\r\n" {
            return Err("an argument is longer than it says");
        }
        arguments.push(start..end);
        at = end + 2;
    }
    Ok(Some(at))
}

/// The number after the byte `kind` at `at`, and where the next line starts.
fn header(input: &[u8], at: usize, kind: u8, highest: usize) -> Result<Option<(usize, usize)>, &'static str> {
    let line = &input[at.min(input.len())..];
    let Some(first) = line.first() else { return Ok(None) };
    if *first != kind {
        return Err("a request is not an array of bulk strings");
    }
    let mut number = 0_usize;
    for (offset, byte) in line.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' => {
                number = number * 10 + usize::from(byte - b'0');
                if number > highest {
                    return Err("a length or a number of arguments is too large");
                }
            }
            b'\r' if offset > 1 => {
                return match line.get(offset + 1) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((number, at + offset + 2))),
                    Some(_) => Err("a carriage return is not followed by a line feed"),
                };
            }
            _ => return Err("a length or a number of arguments is not a number"),
        }
        if offset > MAX_LINE {
            return Err("a length or a number of arguments is too long");
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rheostat_resp::encode_request;

    #[test]
    fn malformed_requests_are_refused() {
        for input in [&b"PING\r\n"[..], b"*1\r\n:1\r\n", b"*x\r\n", b"*\r\n", b"*1\r\n$99999999\r\n", b"*1\r\n$1\r\nxyz", b"*1\rx", b"*9999999\r\n"] {
            assert!(parse_request(input, &mut Vec::new()).is_err(), "{}", String::from_utf8_lossy(input));
        }
        assert!(parse_request(&[&b"*"[..], &[b'0'; 64]].concat(), &mut Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn what_the_client_writes_is_read_and_every_cut_is_not_whole(
            arguments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..5),
        ) {
            let mut input = Vec::new();
            encode_request(&arguments, &mut input);
            let mut places = Vec::new();
            prop_assert_eq!(parse_request(&input, &mut places), Ok(Some(input.len())));
            let read: Vec<Vec<u8>> = places.iter().map(|place| input[place.clone()].to_vec()).collect();
            prop_assert_eq!(read, arguments);
            for cut in 0..input.len() {
                prop_assert_eq!(parse_request(&input[..cut], &mut places), Ok(None));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(
            input in proptest::collection::vec(prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), b'0'..=b'9', any::<u8>()], 0..60),
        ) {
            let mut places = Vec::new();
            if let Ok(Some(length)) = parse_request(&input, &mut places) {
                prop_assert!(length <= input.len());
            }
        }
    }
}
