//! Replies that own their bytes, for tests.

use rheostat_resp::received::{self, parse_reply};

/// One reply, as it was written.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// `+`
    Simple(String),
    /// `-`
    Error(String),
    /// `:`
    Integer(i64),
    /// `$` or `=`
    Bulk(Vec<u8>),
    /// `_`, `$-1`, `*-1`
    Null,
    /// `*`
    Array(Vec<Reply>),
    /// `~`
    Set(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
}

/// The replies that `bytes` are, which must be whole and nothing else; panics otherwise.
pub fn read_replies(mut bytes: &[u8]) -> Vec<Reply> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        let (reply, length) = parse_reply(bytes).expect("a reply").expect("a whole reply");
        replies.push(owned(reply));
        bytes = &bytes[length..];
    }
    replies
}

fn owned(reply: received::Reply<'_>) -> Reply {
    let text = |line: &[u8]| std::str::from_utf8(line).expect("text").to_owned();
    match reply {
        received::Reply::Status(line) => Reply::Simple(text(line)),
        received::Reply::Error(line) => Reply::Error(text(line)),
        received::Reply::Integer(number) => Reply::Integer(number),
        received::Reply::Bulk(bytes) | received::Reply::Verbatim(bytes) => Reply::Bulk(bytes.to_vec()),
        received::Reply::Null => Reply::Null,
        received::Reply::Array(elements) => Reply::Array(elements.map(owned).collect()),
        received::Reply::Set(elements) => Reply::Set(elements.map(owned).collect()),
        received::Reply::Map(mut elements) => {
            Reply::Map(std::iter::from_fn(|| Some((owned(elements.next()?), owned(elements.next().expect("a value"))))).collect())
        }
        other => panic!("not expected here: {}", other.describe()),
    }
}
