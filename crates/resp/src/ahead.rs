//! A look at what the requests of a pipeline are about, before they are parsed.

/// The second arguments of the requests at the front of a buffer, which is where most commands have their key. It ends after so many requests, and at the first that is not whole or not
/// an array of bulks, and judges nothing: that is the parser's.
#[derive(Clone, Debug)]
pub struct SecondArguments<'a> {
    rest: &'a [u8],
    /// Requests that are still to be looked at.
    left: usize,
}

impl<'a> SecondArguments<'a> {
    /// Of at most `requests` in `buffer`, which begins with one. Those that have no second argument count: else a look at many of them would go through all that has arrived, each time.
    pub fn of(buffer: &'a [u8], requests: usize) -> SecondArguments<'a> {
        SecondArguments { rest: buffer, left: requests }
    }
}

/// The number after `marker` at the front of `bytes`, and what is behind its line.
#[inline]
fn number(bytes: &[u8], marker: u8) -> Option<(usize, &[u8])> {
    // Nearly all numbers.
    match bytes {
        [first, digit @ b'0'..=b'9', b'\r', _, behind @ ..] if *first == marker => return Some((usize::from(digit - b'0'), behind)),
        [first, ten @ b'0'..=b'9', digit @ b'0'..=b'9', b'\r', _, behind @ ..] if *first == marker => {
            return Some((usize::from(ten - b'0') * 10 + usize::from(digit - b'0'), behind));
        }
        _ => {}
    }
    let (first, mut rest) = bytes.split_first()?;
    if *first != marker {
        return None;
    }
    let mut value = 0usize;
    // No limit of the parser's has more digits.
    for _ in 0..10 {
        match rest.split_first()? {
            (digit @ b'0'..=b'9', behind) => {
                value = value * 10 + usize::from(digit - b'0');
                rest = behind;
            }
            (b'\r', behind) => return behind.split_first().map(|(_, behind)| (value, behind)),
            _ => return None,
        }
    }
    None
}

impl<'a> Iterator for SecondArguments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            self.left = self.left.checked_sub(1)?;
            let (count, mut rest) = number(self.rest, b'*')?;
            let mut second = None;
            for index in 0..count {
                let (length, behind) = number(rest, b'$')?;
                let end = length + 2;
                if index == 1 {
                    second = behind.get(..length);
                }
                rest = behind.get(end..)?;
            }
            self.rest = rest;
            if second.is_some() {
                return second;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Parser, encode_request};

    fn encoded(requests: &[&[&[u8]]]) -> Vec<u8> {
        let mut buffer = Vec::new();
        requests.iter().for_each(|request| encode_request(*request, &mut buffer));
        buffer
    }

    fn all(buffer: &[u8]) -> Vec<&[u8]> {
        SecondArguments::of(buffer, 100).collect()
    }

    #[test]
    fn they_are_those_that_the_parser_finds() {
        let requests: [&[&[u8]]; 6] =
            [&[b"GET", b"a"], &[b"PING"], &[b"SET", b"", b"value\r\n*1"], &[b"MSET", b"b", b"1", b"c", b"2"], &[b"DBSIZE"], &[b"GET", b"d"]];
        let buffer: Vec<u8> = encoded(&requests);
        let mut parser = Parser::new(Limits::default());
        let mut parsed = Vec::new();
        while let Ok(Some(arguments)) = parser.next(&buffer) {
            if arguments.len() > 1 {
                parsed.push(arguments.at(1).to_vec());
            }
        }
        assert_eq!(all(&buffer), parsed);
        assert_eq!(parsed.len(), 4);
    }

    #[test]
    fn it_ends_after_so_many_requests_whatever_they_are() {
        let buffer: Vec<u8> = encoded(&[&[b"GET", b"a"], &[b"PING"], &[b"PING"], &[b"GET", b"b"], &[b"PING"]]);
        let of = |requests| SecondArguments::of(&buffer, requests).collect::<Vec<_>>();
        let both: [&[u8]; 2] = [b"a", b"b"];
        let (none, first, both) = (&both[..0], &both[..1], &both[..]);
        assert_eq!([0, 1, 2, 3, 4, 9].map(of), [none, first, first, first, both, both]);
    }

    #[test]
    fn it_ends_where_a_request_does() {
        let buffer: Vec<u8> = encoded(&[&[b"GET", b"first"], &[b"GET", b"second"]]);
        let first = encoded(&[&[b"GET", b"first"]]).len();
        for end in 0..buffer.len() {
            assert_eq!(all(&buffer[..end]).len(), usize::from(end >= first), "{end} bytes");
        }
    }

    #[test]
    fn anything_can_stand_there() {
        for bytes in [
            b"GET a\r\n".as_slice(),
            b"*",
            b"*2",
            b"*2\r",
            b"*2\r\n$99999999999\r\n",
            b"*-1\r\n",
            b"*2\r\n:1\r\n",
            b"*2\r\n$-1\r\n",
            b"*0\r\n",
            b"*9999999999\r\n$1\r\na\r\n",
        ] {
            assert_eq!(all(bytes), Vec::<&[u8]>::new(), "{}", bytes.escape_ascii());
        }
    }
}
