//! The request parser: requests are found wherever the stream is cut, and limits hold.

use proptest::prelude::*;
use rheostat_resp::{Limits, Parser, ProtocolError, encode_request};

type Request = Vec<Vec<u8>>;

/// What a connection sees that receives `stream` in `parts`: the requests, and the error that ended it.
fn receive<'a>(parts: impl IntoIterator<Item = &'a [u8]>, limits: Limits) -> (Vec<Request>, Option<ProtocolError>) {
    let mut parser = Parser::new(limits);
    let (mut buffer, mut requests) = (Vec::new(), Vec::new());
    for part in parts {
        buffer.extend_from_slice(part);
        loop {
            match parser.next(&buffer) {
                Ok(Some(request)) => {
                    assert!(!request.is_empty());
                    requests.push(request.iter().map(<[u8]>::to_vec).collect());
                }
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
        let consumed = parser.consume();
        assert!(consumed <= buffer.len());
        buffer.drain(..consumed);
        assert!(parser.wanted().is_none_or(|length| length > buffer.len()));
    }
    (requests, None)
}

fn whole(stream: &[u8]) -> (Vec<Request>, Option<ProtocolError>) {
    receive([stream], Limits::default())
}

fn requests(expected: &[&[&[u8]]]) -> Vec<Request> {
    expected.iter().map(|request| request.iter().map(|argument| argument.to_vec()).collect()).collect()
}

#[test]
fn arrays_and_lines_mix() {
    let stream = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n*0\r\n\r\n  \r\n*-1\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n\r\n*1\r\nset 'a b' \"c\\x64\"\n*1\r\n$4\r\nQUIT\r\n";
    let expected = requests(&[&[b"GET", b"k"], &[b"PING"], &[b"SET", b"", b"\r\n*1"], &[b"set", b"a b", b"cd"], &[b"QUIT"]]);
    assert_eq!(whole(stream), (expected.clone(), None));
    for piece in 1..stream.len() {
        assert_eq!(receive(stream.chunks(piece), Limits::default()), (expected.clone(), None), "pieces of {piece}");
    }
}

#[test]
fn a_request_that_is_put_back_comes_again() {
    let stream = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n\r\nset 'a b' \"c\\x64\"\n*1\r\n$4\r\nQUIT\r\n*1\r\n!";
    let mut parser = Parser::new(Limits::default());
    let mut buffer = stream.to_vec();
    let mut seen = Vec::new();
    while let Ok(Some(first)) = parser.next(&buffer) {
        let first: Request = first.iter().map(<[u8]>::to_vec).collect();
        parser.put_back();
        // Also when what came before it has been dropped.
        buffer.drain(..parser.consume());
        let again = parser.next(&buffer).unwrap().unwrap();
        assert_eq!(again.iter().map(<[u8]>::to_vec).collect::<Request>(), first);
        seen.push(first);
    }
    assert_eq!(seen, requests(&[&[b"GET", b"a"], &[b"set", b"a b", b"cd"], &[b"QUIT"]]));
    assert_eq!(parser.next(&buffer), Err(ProtocolError::ExpectedBulk(b'!')));
}

#[test]
fn what_is_no_request_is_refused() {
    use ProtocolError::*;
    for (stream, error, text) in [
        (b"*x\r\n".as_slice(), ArrayLength, "invalid multibulk length"),
        (b"*\r\n", ArrayLength, "invalid multibulk length"),
        (b"* 1\r\n", ArrayLength, "invalid multibulk length"),
        (b"*+1\r\n", ArrayLength, "invalid multibulk length"),
        (b"*01\r\n", ArrayLength, "invalid multibulk length"),
        (b"*-0\r\n", ArrayLength, "invalid multibulk length"),
        (b"*--1\r\n", ArrayLength, "invalid multibulk length"),
        (b"*1\n", ArrayLength, "invalid multibulk length"),
        (b"*1\rx", ArrayLength, "invalid multibulk length"),
        (b"*1048577\r\n", ArrayLength, "invalid multibulk length"),
        (b"*99999999999999999999", ArrayLength, "invalid multibulk length"),
        (b"*1\r\nPING\r\n", ExpectedBulk(b'P'), "expected '$', got 'P'"),
        (b"*1\r\n\r\n", ExpectedBulk(b'\r'), "expected '$', got '\\r'"),
        (b"*1\r\n\xff", ExpectedBulk(0xFF), "expected '$', got '\\xff'"),
        (b"*1\r\n$-1\r\n", BulkLength, "invalid bulk length"),
        (b"*1\r\n$x", BulkLength, "invalid bulk length"),
        (b"*1\r\n$04\r\n", BulkLength, "invalid bulk length"),
        (b"*1\r\n$67108865\r\n", BulkLength, "invalid bulk length"),
        (b"*1\r\n$9999999999999999999", BulkLength, "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGxx", BulkEnd, "expected CR LF after a bulk string"),
        (b"*1\r\n$3\r\nPING\r\n", BulkEnd, "expected CR LF after a bulk string"),
        (b"GET \"a\r\n", UnbalancedQuotes, "unbalanced quotes in request"),
        (b"GET 'a'b\r\n", UnbalancedQuotes, "unbalanced quotes in request"),
    ] {
        let expected = (Vec::new(), Some(error));
        assert_eq!(whole(stream), expected, "{}", stream.escape_ascii());
        assert_eq!(receive(stream.chunks(1), Limits::default()), expected, "{}", stream.escape_ascii());
        assert_eq!(error.to_string(), format!("ERR Protocol error: {text}"));
    }
}

#[test]
fn a_length_of_signs_alone_is_refused_at_its_second_one() {
    let signs = vec![b'-'; 4 << 20];
    for (begin, error) in [(b"*".as_slice(), ProtocolError::ArrayLength), (b"*1\r\n$", ProtocolError::BulkLength)] {
        assert_eq!(receive([begin, b"-"], Limits::unauthenticated()), (Vec::new(), None));
        assert_eq!(receive([begin, b"-", b"-"], Limits::unauthenticated()), (Vec::new(), Some(error)));
        assert_eq!(receive([[begin, &signs].concat().as_slice()], Limits::unauthenticated()), (Vec::new(), Some(error)));
    }
}

#[test]
fn requests_before_an_error_are_served_and_the_error_stays() {
    let stream = b"PING\r\n*1\r\n$4\r\nQUIT\r\n*1\r\n!";
    assert_eq!(whole(stream), (requests(&[&[b"PING"], &[b"QUIT"]]), Some(ProtocolError::ExpectedBulk(b'!'))));
    let mut parser = Parser::new(Limits::default());
    let error = Err(ProtocolError::ArrayLength);
    assert_eq!(parser.next(b"*x\r\n"), error);
    assert_eq!(parser.next(b"PING\r\n"), error);
    assert_eq!(parser.next(b""), error);
}

#[test]
fn limits_hold_at_their_edges() {
    let limits = Limits { max_arguments: 3, max_bulk_bytes: 10, max_inline_bytes: 16, max_request_bytes: 40 };
    let first = |stream: &[u8]| {
        let (requests, error) = receive([stream], limits);
        (requests.len(), error)
    };
    assert_eq!(first(b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"), (1, None));
    assert_eq!(first(b"*4\r\n"), (0, Some(ProtocolError::ArrayLength)));
    assert_eq!(first(b"*1\r\n$10\r\n0123456789\r\n"), (1, None));
    assert_eq!(first(b"*1\r\n$11\r\n"), (0, Some(ProtocolError::BulkLength)));
    // 4 + 9 + 12 + 15 bytes are 40. One more, and the length of the last bulk is refused before the bulk arrives.
    assert_eq!(first(b"*3\r\n$3\r\nabc\r\n$6\r\nabcdef\r\n$9\r\n012345678\r\n"), (1, None));
    assert_eq!(first(b"*3\r\n$3\r\nabc\r\n$7\r\nabcdefg\r\n$9\r\n"), (0, Some(ProtocolError::RequestTooLong)));
    // What must still follow counts already.
    assert_eq!(first(b"*3\r\n$9\r\n012345678\r\n$9\r\n"), (0, None));
    assert_eq!(first(b"*3\r\n$9\r\n012345678\r\n$10\r\n"), (0, Some(ProtocolError::RequestTooLong)));
    assert_eq!(first(b"ECHO 0123456789\n"), (1, None));
    assert_eq!(first(b"ECHO 01234567890\n"), (0, Some(ProtocolError::InlineTooLong)));
    assert_eq!(first(b"ECHO 01234567890"), (0, Some(ProtocolError::InlineTooLong)));
    assert_eq!(first(b"ECHO 0123456789"), (0, None));
    assert_eq!(first(b"a b c\n"), (1, None));
    assert_eq!(first(b"a b c d\n"), (0, Some(ProtocolError::TooManyArguments)));

    // A count that fits by itself, but whose shortest request does not.
    let limits = Limits { max_arguments: 1000, ..limits };
    assert_eq!(receive([b"*7\r\n".as_slice()], limits), (Vec::new(), Some(ProtocolError::RequestTooLong)));
}

#[test]
fn before_authentication_little_is_accepted() {
    let accept = |stream: &[u8]| receive([stream], Limits::unauthenticated()).1;
    assert_eq!(accept(b"*4\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$16384\r\n"), None);
    assert_eq!(accept(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n"), Some(ProtocolError::BulkLength));
    assert_eq!(accept(b"*17\r\n"), Some(ProtocolError::ArrayLength));

    // Limits change between two requests.
    let stream = b"PING\r\n*17\r\n";
    let mut parser = Parser::new(Limits::unauthenticated());
    assert!(parser.next(stream).expect("a request").is_some());
    parser.set_limits(Limits::default());
    assert_eq!(parser.next(stream), Ok(None));
}

fn request() -> impl Strategy<Value = Request> {
    let argument = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..12),
        2 => prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$'), Just(b'*'), Just(b'1')], 0..12),
        1 => prop::collection::vec(any::<u8>(), 0..2000),
    ];
    prop::collection::vec(argument, 1..8)
}

/// `stream` cut at the positions that `cuts` picks.
fn cut<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    at.extend([0, stream.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

/// A word in double quotes, every byte of it escaped.
fn quoted(word: &[u8]) -> String {
    let inside: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{inside}\"")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_requests_cut_anywhere_are_the_same_requests(sent in prop::collection::vec(request(), 0..6), cuts: Vec<prop::sample::Index>) {
        let mut stream = Vec::new();
        sent.iter().for_each(|request| encode_request(request, &mut stream));
        prop_assert_eq!(receive(cut(&stream, &cuts), Limits::default()), (sent, None));
    }

    #[test]
    fn any_words_in_quotes_are_the_same_words(sent in request(), cuts: Vec<prop::sample::Index>) {
        let line = sent.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ") + "\r\n";
        prop_assert_eq!(receive(cut(line.as_bytes(), &cuts), Limits::default()), (vec![sent], None));
    }

    #[test]
    fn where_a_stream_is_cut_never_matters(stream: Vec<u8>, cuts: Vec<prop::sample::Index>) {
        prop_assert_eq!(receive(cut(&stream, &cuts), Limits::default()), whole(&stream));
    }
}
