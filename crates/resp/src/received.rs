//! Replies, as clients read them: of RESP2, and those of RESP3 that [`ReplyWriter`](crate::ReplyWriter) writes.

/// Longest bulk string that is accepted, in bytes.
pub const MAX_BULK: usize = 64 << 20;

/// Most elements of an array.
pub const MAX_ELEMENTS: usize = 1 << 20;

/// Longest status, error or number line, in bytes.
const MAX_LINE: usize = 64 << 10;

/// Deepest nesting of arrays.
const MAX_DEPTH: u32 = 16;

/// One reply, borrowed from the bytes it was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// `+OK`
    Status(&'a [u8]),
    /// `-ERR ...`
    Error(&'a [u8]),
    /// `:1`
    Integer(i64),
    /// `$3`
    Bulk(&'a [u8]),
    /// `$-1`, `*-1` or `_`
    Null,
    /// `*2`
    Array(Elements<'a>),
    /// `#t`
    Boolean(bool),
    /// `=7`: the text behind `txt:`
    Verbatim(&'a [u8]),
    /// `~2`
    Set(Elements<'a>),
    /// `>2`
    Push(Elements<'a>),
    /// `%1`: keys and values by turns
    Map(Elements<'a>),
}

impl Reply<'_> {
    /// What the reply is, for messages: never longer than a line.
    pub fn describe(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        match self {
            Reply::Status(line) => format!("status {:?}", text(line)),
            Reply::Error(line) => format!("error {:?}", text(line)),
            Reply::Integer(number) => format!("integer {number}"),
            Reply::Bulk(bytes) => format!("bulk string of {} bytes", bytes.len()),
            Reply::Null => "null".to_owned(),
            Reply::Array(elements) => format!("array of {} elements", elements.len()),
            Reply::Boolean(value) => format!("boolean {value}"),
            Reply::Verbatim(bytes) => format!("verbatim string of {} bytes", bytes.len()),
            Reply::Set(elements) => format!("set of {} elements", elements.len()),
            Reply::Push(elements) => format!("push of {} elements", elements.len()),
            Reply::Map(elements) => format!("map of {} elements", elements.len()),
        }
    }
}

/// The elements of an array reply, already checked to be whole and well formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elements<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl Elements<'_> {
    /// How many elements are left.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether no element is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Reply<'a>;

    fn next(&mut self) -> Option<Reply<'a>> {
        if self.left == 0 {
            return None;
        }
        match parse_reply(self.bytes) {
            Ok(Some((reply, length))) => {
                self.bytes = &self.bytes[length..];
                self.left -= 1;
                Some(reply)
            }
            // The elements were checked when the array was parsed.
            Ok(None) | Err(_) => unreachable!("an array's elements were whole when the array was parsed"),
        }
    }
}

/// The first word of an error line, by which failures are counted: `BUSY`, `MOVED`, `ERR`.
pub fn error_word(line: &[u8]) -> String {
    let word = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned()
}

/// The reply at the start of `input` and its length in bytes; `None` if it is not whole yet.
///
/// # Errors
/// A text that says what is wrong with the bytes.
pub fn parse_reply(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
    parse(input, 0)
}

fn parse(input: &[u8], depth: u32) -> Result<Option<(Reply<'_>, usize)>, String> {
    let Some(kind) = input.first() else { return Ok(None) };
    if !b"+-:$*_#=~>%".contains(kind) {
        return Err(format!("a reply starts with byte {kind:#04x}, which is none of + - : $ * _ # = ~ > %"));
    }
    let Some((line, after)) = line(input)? else { return Ok(None) };
    match kind {
        b'+' => Ok(Some((Reply::Status(line), after))),
        b'-' => Ok(Some((Reply::Error(line), after))),
        b':' => Ok(Some((Reply::Integer(number(line)?), after))),
        b'_' if line.is_empty() => Ok(Some((Reply::Null, after))),
        b'#' if matches!(line, b"t" | b"f") => Ok(Some((Reply::Boolean(line == b"t"), after))),
        b'_' | b'#' => Err("a null or a boolean is neither".to_owned()),
        b'$' | b'=' => {
            let Some(length) = length(line, MAX_BULK)? else { return Ok(Some((Reply::Null, after))) };
            let end = after + length;
            if input.len() < end + 2 {
                return Ok(None);
            }
            if &input[end..end + 2] != b"\r\n" {
                return Err("a bulk string is longer than it says".to_owned());
            }
            let bytes = &input[after..end];
            let reply = match kind {
                b'$' => Reply::Bulk(bytes),
                _ => Reply::Verbatim(bytes.strip_prefix(b"txt:").ok_or("a verbatim string is no text")?),
            };
            Ok(Some((reply, end + 2)))
        }
        _ => {
            let Some(count) = length(line, MAX_ELEMENTS)? else { return Ok(Some((Reply::Null, after))) };
            if depth == MAX_DEPTH {
                return Err(format!("arrays are nested deeper than {MAX_DEPTH}"));
            }
            let count = if *kind == b'%' { 2 * count } else { count };
            let mut end = after;
            for _ in 0..count {
                let Some((_, length)) = parse(&input[end..], depth + 1)? else { return Ok(None) };
                end += length;
            }
            let elements = Elements { bytes: &input[after..end], left: count };
            let reply = match kind {
                b'~' => Reply::Set(elements),
                b'>' => Reply::Push(elements),
                b'%' => Reply::Map(elements),
                _ => Reply::Array(elements),
            };
            Ok(Some((reply, end)))
        }
    }
}

/// The line after the type byte, and where the next one starts.
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, String> {
    let searched = &input[1..input.len().min(MAX_LINE)];
    match searched.iter().position(|byte| *byte == b'\r') {
        None if input.len() >= MAX_LINE => Err(format!("a line is longer than {MAX_LINE} bytes")),
        None => Ok(None),
        Some(end) => match input.get(end + 2) {
            None => Ok(None),
            Some(b'\n') => Ok(Some((&input[1..=end], end + 3))),
            Some(_) => Err("a carriage return is not followed by a line feed".to_owned()),
        },
    }
}

fn number(line: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(line).map_err(|_| "a number is not text".to_owned())?;
    text.parse().map_err(|_| format!("{:?} is not a number", text.chars().take(40).collect::<String>()))
}

/// A length, where -1 says that there is nothing.
fn length(line: &[u8], highest: usize) -> Result<Option<usize>, String> {
    match number(line)? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) if length <= highest => Ok(Some(length)),
            _ => Err(format!("a length is {length}; it must be from 0 to {highest}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(input: &[u8]) -> Reply<'_> {
        let (reply, length) = parse_reply(input).unwrap().unwrap();
        assert_eq!(length, input.len());
        reply
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(whole(b"+OK\r\n"), Reply::Status(b"OK"));
        assert_eq!(whole(b"-BUSY later\r\n"), Reply::Error(b"BUSY later"));
        assert_eq!(whole(b":-12\r\n"), Reply::Integer(-12));
        assert_eq!(whole(b"$4\r\na\r\nb\r\n"), Reply::Bulk(b"a\r\nb"));
        assert_eq!(whole(b"$0\r\n\r\n"), Reply::Bulk(b""));
        assert_eq!(whole(b"$-1\r\n"), Reply::Null);
        assert_eq!(whole(b"*-1\r\n"), Reply::Null);
        let Reply::Array(elements) = whole(b"*3\r\n$1\r\nx\r\n$-1\r\n*1\r\n:7\r\n") else { panic!("not an array") };
        assert_eq!(elements.len(), 3);
        let described: Vec<String> = elements.map(|element| element.describe()).collect();
        assert_eq!(described, ["bulk string of 1 bytes", "null", "array of 1 elements"]);
        assert_eq!((whole(b"_\r\n"), whole(b"#f\r\n")), (Reply::Null, Reply::Boolean(false)));
        assert_eq!(whole(b"=8\r\ntxt:a\r\nb\r\n"), Reply::Verbatim(b"a\r\nb"));
        let map = b"%1\r\n+k\r\n~1\r\n#t\r\n";
        let Reply::Map(mut elements) = whole(map) else { panic!("not a map") };
        assert_eq!(elements.next(), Some(Reply::Status(b"k")));
        let Some(Reply::Set(set)) = elements.next() else { panic!("not a set") };
        assert!(set.eq([Reply::Boolean(true)]) && elements.is_empty());
        assert!(matches!(whole(b">1\r\n+monitor\r\n"), Reply::Push(elements) if elements.len() == 1));
    }

    #[test]
    fn a_reply_in_pieces_is_not_whole_until_its_last_byte() {
        let input = b"*3\r\n$1\r\nx\r\n$-1\r\n*2\r\n:7\r\n-ERR no\r\n";
        for cut in 0..input.len() {
            assert_eq!(parse_reply(&input[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn malformed_replies_are_refused() {
        for (input, text) in [
            (&b"hello"[..], "starts with"),
            (b"$x\r\n", "not a number"),
            (b"$-2\r\n", "a length is -2"),
            (b"$99999999999\r\n", "a length is"),
            (b"*1048577\r\n", "a length is"),
            (b"$1\r\nxyz\r\n", "longer than it says"),
            (b"+OK\rx", "carriage return"),
            (b"#x\r\n", "neither"),
            (b"_x\r\n", "neither"),
            (b"=1\r\nx\r\n", "no text"),
            (b":\xff\r\n", "not text"),
            (":ÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜÜ\r\n".as_bytes(), "not a number"),
        ] {
            let error = parse_reply(input).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        assert!(parse_reply(&b"*1\r\n".repeat(20)).unwrap_err().contains("nested"));
        assert!(parse_reply(&[b'+'; MAX_LINE + 1]).unwrap_err().contains("longer than"));
    }

    #[test]
    fn error_words() {
        assert_eq!(error_word(b"MOVED 1 host"), "MOVED");
        assert_eq!(error_word(b""), "");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            input in proptest::collection::vec(prop_oneof![Just(b'*'), Just(b'$'), Just(b'%'), Just(b'\r'), Just(b'\n'), b'0'..=b'9', any::<u8>()], 0..60),
        ) {
            if let Ok(Some((reply, length))) = parse_reply(&input) {
                prop_assert!(length <= input.len());
                if let Reply::Array(elements) = reply {
                    prop_assert_eq!(elements.len(), elements.count());
                }
            }
        }
    }
}
