//! The reply writer: RESP2 or RESP3, appended to a connection's output buffer.

use super::number::{put_i64, put_u64};
use std::io::Write as _;

/// Which RESP a connection speaks; it begins with 2 and changes with HELLO.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RespVersion {
    /// RESP2.
    #[default]
    Two,
    /// RESP3.
    Three,
}

impl RespVersion {
    /// 2 or 3.
    pub fn number(self) -> u8 {
        match self {
            RespVersion::Two => 2,
            RespVersion::Three => 3,
        }
    }
}

/// Writes replies. What RESP2 has no type for is written as Redis writes it there: maps, sets and pushes as arrays, doubles and
/// verbatim strings as bulk strings, booleans as 1 and 0.
#[derive(Debug)]
pub struct ReplyWriter<'o> {
    out: &'o mut Vec<u8>,
    version: RespVersion,
}

impl<'o> ReplyWriter<'o> {
    /// A writer that appends to `out`.
    pub fn new(out: &'o mut Vec<u8>, version: RespVersion) -> ReplyWriter<'o> {
        ReplyWriter { out, version }
    }

    /// The version that replies are written in.
    pub fn version(&self) -> RespVersion {
        self.version
    }

    /// Calls `write`, which writes one reply; says whether that is not an error.
    pub fn is_no_error(&mut self, write: impl FnOnce(&mut ReplyWriter<'_>)) -> bool {
        let begin = self.out.len();
        write(self);
        self.out.get(begin) != Some(&b'-')
    }

    /// `OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string. A CR or LF in it becomes a space: the type cannot carry them.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error; `message` begins with its kind, as in `ERR syntax error`. A CR or LF in it becomes a space.
    pub fn error(&mut self, message: &str) {
        self.line(b'-', message);
    }

    fn line(&mut self, marker: u8, text: &str) {
        self.out.push(marker);
        self.out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.out.push(b':');
        put_i64(value, self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + 16);
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A bulk string, or null.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Null, where a bulk string could have been.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            RespVersion::Two => b"$-1\r\n",
            RespVersion::Three => b"_\r\n",
        });
    }

    /// Null, where an array could have been.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            RespVersion::Two => b"*-1\r\n",
            RespVersion::Three => b"_\r\n",
        });
    }

    #[inline]
    fn header(&mut self, marker: u8, length: usize) {
        self.out.push(marker);
        put_u64(length as u64, self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Begins an array: `length` replies follow.
    #[inline]
    pub fn array(&mut self, length: usize) {
        self.header(b'*', length);
    }

    /// Begins a map: `length` keys follow, each with its value.
    pub fn map(&mut self, length: usize) {
        match self.version {
            RespVersion::Two => self.header(b'*', length * 2),
            RespVersion::Three => self.header(b'%', length),
        }
    }

    /// Begins a set: `length` replies follow.
    pub fn set(&mut self, length: usize) {
        self.typed(b'~', length);
    }

    /// Begins an out-of-band message: `length` replies follow, the first is its kind.
    pub fn push(&mut self, length: usize) {
        self.typed(b'>', length);
    }

    fn typed(&mut self, marker: u8, length: usize) {
        match self.version {
            RespVersion::Two => self.array(length),
            RespVersion::Three => self.header(marker, length),
        }
    }

    /// A boolean.
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.version, value) {
            (RespVersion::Two, true) => b":1\r\n",
            (RespVersion::Two, false) => b":0\r\n",
            (RespVersion::Three, true) => b"#t\r\n",
            (RespVersion::Three, false) => b"#f\r\n",
        });
    }

    /// A double, in the shortest form that reads back as the same one.
    pub fn double(&mut self, value: f64) {
        let mut text = Vec::new();
        // Writing to a Vec cannot fail.
        let _ = if value.is_nan() {
            write!(text, "nan")
        } else if value.is_finite() && value != 0.0 && !(1e-5..1e17).contains(&value.abs()) {
            write!(text, "{value:e}")
        } else {
            write!(text, "{value}")
        };
        match self.version {
            RespVersion::Two => self.bulk(&text),
            RespVersion::Three => {
                self.out.push(b',');
                self.out.extend_from_slice(&text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Text for a person to read as it is (INFO, CLIENT LIST).
    pub fn verbatim(&mut self, text: &str) {
        match self.version {
            RespVersion::Two => self.bulk(text.as_bytes()),
            RespVersion::Three => {
                self.header(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut ReplyWriter<'_>)) -> (String, String) {
        let in_version = |version| {
            let mut out = Vec::new();
            write(&mut ReplyWriter::new(&mut out, version));
            String::from_utf8(out).expect("text")
        };
        (in_version(RespVersion::Two), in_version(RespVersion::Three))
    }

    fn check(two: &str, three: &str, write: impl Fn(&mut ReplyWriter<'_>)) {
        assert_eq!(both(write), (two.to_owned(), three.to_owned()));
    }

    #[test]
    fn every_type_in_both_versions() {
        check("+OK\r\n", "+OK\r\n", |w| w.ok());
        check("+PONG\r\n", "+PONG\r\n", |w| w.simple("PONG"));
        check("-ERR a  b\r\n", "-ERR a  b\r\n", |w| w.error("ERR a\r\nb"));
        check(":-42\r\n", ":-42\r\n", |w| w.integer(-42));
        check(":-9223372036854775808\r\n", ":-9223372036854775808\r\n", |w| w.integer(i64::MIN));
        check("$0\r\n\r\n", "$0\r\n\r\n", |w| w.bulk(b""));
        check("$12\r\na\r\nb\0cdefghi\r\n", "$12\r\na\r\nb\0cdefghi\r\n", |w| w.bulk(b"a\r\nb\0cdefghi"));
        check("$-1\r\n", "_\r\n", |w| w.bulk_or_null(None));
        check("$1\r\nx\r\n", "$1\r\nx\r\n", |w| w.bulk_or_null(Some(b"x")));
        check("*-1\r\n", "_\r\n", |w| w.null_array());
        check("*3\r\n", "*3\r\n", |w| w.array(3));
        check("*6\r\n", "%3\r\n", |w| w.map(3));
        check("*3\r\n", "~3\r\n", |w| w.set(3));
        check("*3\r\n", ">3\r\n", |w| w.push(3));
        check(":1\r\n", "#t\r\n", |w| w.boolean(true));
        check(":0\r\n", "#f\r\n", |w| w.boolean(false));
        check("$5\r\na\r\nbc\r\n", "=9\r\ntxt:a\r\nbc\r\n", |w| w.verbatim("a\r\nbc"));
    }

    #[test]
    fn doubles() {
        check("$3\r\n1.5\r\n", ",1.5\r\n", |w| w.double(1.5));
        check("$1\r\n0\r\n", ",0\r\n", |w| w.double(0.0));
        check("$3\r\ninf\r\n", ",inf\r\n", |w| w.double(f64::INFINITY));
        check("$4\r\n-inf\r\n", ",-inf\r\n", |w| w.double(f64::NEG_INFINITY));
        check("$3\r\nnan\r\n", ",nan\r\n", |w| w.double(-f64::NAN));
        check("$6\r\n1e-300\r\n", ",1e-300\r\n", |w| w.double(1e-300));
    }
}
