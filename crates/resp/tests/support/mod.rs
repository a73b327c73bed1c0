//! A strict reader of RESP replies, for tests.

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
        let (reply, rest) = read(bytes);
        replies.push(reply);
        bytes = rest;
    }
    replies
}

fn line(bytes: &[u8]) -> (&str, &[u8]) {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n").expect("an end of line");
    (std::str::from_utf8(&bytes[..end]).expect("text"), &bytes[end + 2..])
}

fn read(bytes: &[u8]) -> (Reply, &[u8]) {
    let (head, rest) = line(&bytes[1..]);
    let number = || head.parse::<i64>().expect("a number");
    match bytes[0] {
        b'+' => (Reply::Simple(head.to_owned()), rest),
        b'-' => (Reply::Error(head.to_owned()), rest),
        b':' => (Reply::Integer(number()), rest),
        b'_' => (Reply::Null, rest),
        b'$' | b'*' if number() == -1 => (Reply::Null, rest),
        b'$' | b'=' => {
            let (bulk, rest) = rest.split_at(number() as usize);
            (Reply::Bulk(bulk.to_vec()), rest.strip_prefix(b"\r\n").expect("CR LF after a bulk"))
        }
        b'*' => several(number(), rest, Reply::Array),
        b'~' => several(number(), rest, Reply::Set),
        b'%' => {
            let (flat, rest) = several(2 * number(), rest, Reply::Array);
            let Reply::Array(flat) = flat else { unreachable!("several makes what it is told to") };
            (Reply::Map(flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()), rest)
        }
        other => panic!("no reply begins with {}", other.escape_ascii()),
    }
}

fn several(count: i64, mut rest: &[u8], make: fn(Vec<Reply>) -> Reply) -> (Reply, &[u8]) {
    let mut replies = Vec::new();
    for _ in 0..count {
        let (reply, after) = read(rest);
        replies.push(reply);
        rest = after;
    }
    (make(replies), rest)
}
