//! Inline requests: one line of words, as a person types them into telnet, with the quotes that Redis knows.

use super::arguments::Span;

/// A quote was not closed, or was closed in the middle of a word.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unbalanced;

/// Where the words of a line are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// The spans are of the line itself.
    InLine,
    /// Quotes were taken off: the spans are of the other buffer.
    Unquoted,
}

/// What separates words: the six characters of C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0B | 0x0C | b'\r')
}

/// Splits `line` into words, whose places are appended to `spans`. The caller bounds the line.
pub(super) fn split(line: &[u8], spans: &mut Vec<Span>, unquoted: &mut Vec<u8>) -> Result<Words, Unbalanced> {
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        return split_quoted(line, spans, unquoted).map(|()| Words::Unquoted);
    }
    let mut at = 0;
    for word in line.split(|byte| is_space(*byte)) {
        if !word.is_empty() {
            spans.push((at as u32, (at + word.len()) as u32));
        }
        at += word.len() + 1;
    }
    Ok(Words::InLine)
}

fn split_quoted(line: &[u8], spans: &mut Vec<Span>, unquoted: &mut Vec<u8>) -> Result<(), Unbalanced> {
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest
            && is_space(*first)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = unquoted.len();
        rest = word(rest, unquoted)?;
        spans.push((start as u32, unquoted.len() as u32));
    }
}

/// Takes one word, which may have quoted parts, off the front of `rest`.
fn word<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    while let [first, tail @ ..] = rest {
        rest = match first {
            byte if is_space(*byte) => break,
            b'"' => closed(double_quoted(tail, out)?)?,
            b'\'' => closed(single_quoted(tail, out)?)?,
            byte => {
                out.push(*byte);
                tail
            }
        };
    }
    Ok(rest)
}

/// A closing quote ends its word.
fn closed(rest: &[u8]) -> Result<&[u8], Unbalanced> {
    if rest.first().is_none_or(|byte| is_space(*byte)) { Ok(rest) } else { Err(Unbalanced) }
}

fn double_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_default() as u8;
                out.push(digit(*high) << 4 | digit(*low));
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                tail
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                tail
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => {
                out.push(b'\'');
                tail
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                tail
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, Unbalanced> {
        let (mut spans, mut unquoted) = (Vec::new(), Vec::new());
        let words = split(line, &mut spans, &mut unquoted)?;
        let bytes = if words == Words::InLine { line } else { &unquoted };
        Ok(spans.iter().map(|(start, end)| bytes[*start as usize..*end as usize].to_vec()).collect())
    }

    fn ok(line: &[u8], expected: &[&[u8]]) {
        assert_eq!(words(line).expect("balanced"), expected, "{}", line.escape_ascii());
    }

    #[test]
    fn plain_words() {
        ok(b"", &[]);
        ok(b" \t\x0b\x0c ", &[]);
        ok(b"PING", &[b"PING"]);
        ok(b"  set  a\tb ", &[b"set", b"a", b"b"]);
        ok(b"a\\n b\0c", &[b"a\\n", b"b\0c"]);
    }

    #[test]
    fn quoted_words() {
        ok(br#"echo "a b" 'c d'"#, &[b"echo", b"a b", b"c d"]);
        ok(br#"echo "" ''"#, &[b"echo", b"", b""]);
        ok(br#""\x41\n\r\t\b\a\q\"\\""#, &[b"A\n\r\t\x08\x07q\"\\"]);
        ok(br#""\x4" "\xzz""#, &[b"x4", b"xzz"]);
        ok(br"'a\'b\n'", &[br"a'b\n"]);
        ok(br#"x"y z" w"#, &[b"xy z", b"w"]);
        ok(b"'a'\x0b'b'", &[b"a", b"b"]);
    }

    #[test]
    fn quotes_must_balance() {
        for line in [br#"get "a"#.as_slice(), b"get 'a", br#"get "a"b"#, b"get 'a'b", br#"get "a\"#, br#"get "a\""#, br#"""""#] {
            assert_eq!(words(line), Err(Unbalanced), "{}", line.escape_ascii());
        }
    }
}
