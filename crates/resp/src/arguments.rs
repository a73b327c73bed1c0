//! The arguments of one request, as views of the bytes it arrived in.

use super::number::put_u64;
use std::fmt;

/// Where an argument lies in its request's bytes: first byte, and one past the last.
pub(super) type Span = (u32, u32);

/// The arguments of one request: the command's name and what follows it. A copy is a view of the same bytes; nothing is
/// allocated.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    pub(super) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Arguments<'a> {
        Arguments { bytes, spans }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| self.slice(*span))
    }

    /// The argument at `index`. For indices below a length that has been checked; panics beyond it, as a slice does.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.slice(self.spans[index])
    }

    #[inline]
    fn slice(&self, (start, end): Span) -> &'a [u8] {
        &self.bytes[start as usize..end as usize]
    }

    /// The arguments from `first` on; none if there are not so many.
    pub fn from(&self, first: usize) -> Arguments<'a> {
        Arguments { bytes: self.bytes, spans: self.spans.get(first..).unwrap_or_default() }
    }

    /// The first `count` arguments; all of them if there are fewer.
    pub fn first(&self, count: usize) -> Arguments<'a> {
        Arguments { bytes: self.bytes, spans: &self.spans[..count.min(self.spans.len())] }
    }

    /// The arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |(start, end)| &bytes[*start as usize..*end as usize])
    }
}

/// Requests that are kept beyond the buffer in which they came.
#[derive(Debug, Default)]
pub struct Kept {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Where each request's spans end.
    ends: Vec<usize>,
}

impl Kept {
    /// Keeps a copy of a request. All of them together must have less than 4 GiB, see [`Kept::cost`].
    pub fn push(&mut self, request: Arguments<'_>) {
        for argument in request.iter() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(argument);
            self.spans.push((start as u32, self.bytes.len() as u32));
        }
        self.ends.push(self.spans.len());
    }

    /// Bytes of memory that the requests take.
    pub fn cost(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Span>() + self.ends.len() * size_of::<usize>()
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The requests, in order.
    pub fn iter(&self) -> impl Iterator<Item = Arguments<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| Arguments::new(&self.bytes, &self.spans[start..*end]))
    }
}

impl Arguments<'_> {
    /// What [`Kept::push`] would add to [`Kept::cost`].
    pub fn cost(&self) -> usize {
        self.iter().map(|argument| argument.len() + size_of::<Span>()).sum::<usize>() + size_of::<usize>()
    }
}

impl PartialEq for Arguments<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Arguments<'_> {}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|argument| argument.escape_ascii().to_string())).finish()
    }
}

/// Keys and values in turn (MSET).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pairs<'a>(Arguments<'a>);

impl<'a> Pairs<'a> {
    /// `arguments` as pairs; `None` if their number is odd.
    pub fn new(arguments: Arguments<'a>) -> Option<Pairs<'a>> {
        arguments.len().is_multiple_of(2).then_some(Pairs(arguments))
    }

    /// How many pairs.
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pairs in order; a key may occur more than once.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let arguments = self.0;
        (0..self.len()).map(move |index| (arguments.at(2 * index), arguments.at(2 * index + 1)))
    }

    /// The pairs with each key once, sorted by key; of a key's values the last one stays, as if they were set one after the other.
    pub fn last_of_each_key(&self) -> Vec<(&'a [u8], &'a [u8])> {
        let mut pairs: Vec<_> = self.iter().collect();
        // The sort is stable: reversed first, the last pair of a key comes first among its equals, and is the one kept.
        pairs.reverse();
        pairs.sort_by_key(|(key, _)| *key);
        pairs.dedup_by_key(|(key, _)| *key);
        pairs
    }
}

/// Appends the request that `arguments` make, as clients send it: an array of bulk strings.
pub fn encode_request<A: IntoIterator<Item: AsRef<[u8]>, IntoIter: ExactSizeIterator>>(arguments: A, out: &mut Vec<u8>) {
    let arguments = arguments.into_iter();
    out.push(b'*');
    put_u64(arguments.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    for argument in arguments {
        let argument = argument.as_ref();
        out.push(b'$');
        put_u64(argument.len() as u64, out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_requests_are_as_they_came() {
        let first = Arguments::new(b"setk1", &[(0, 3), (3, 4), (4, 5)]);
        let second = Arguments::new(b"getk", &[(0, 3), (3, 4)]);
        let mut kept = Kept::default();
        let cost = first.cost() + second.cost();
        kept.push(first);
        kept.push(second);
        assert_eq!(kept.iter().collect::<Vec<_>>(), [first, second]);
        assert_eq!((kept.len(), kept.cost()), (2, cost));
        assert!(Kept::default().iter().next().is_none());
    }

    #[test]
    fn views_of_one_request() {
        let arguments = Arguments::new(b"msetab1a2", &[(0, 4), (4, 5), (6, 7), (5, 6), (6, 7), (7, 8), (8, 9)]);
        assert_eq!(arguments.at(0), b"mset");
        assert_eq!(arguments.get(6), Some(b"2".as_slice()));
        assert_eq!(arguments.get(7), None);
        assert!(arguments.from(7).is_empty() && arguments.from(99).is_empty());
        assert_eq!(arguments.from(1).len(), 6);
        assert_eq!(format!("{:?}", arguments.from(5)), r#"["a", "2"]"#);

        assert_eq!(Pairs::new(arguments), None);
        let pairs = Pairs::new(arguments.from(1)).expect("an even number");
        let expected: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")];
        assert_eq!(pairs.iter().collect::<Vec<_>>(), expected);
        let expected: [(&[u8], &[u8]); 2] = [(b"a", b"2"), (b"b", b"1")];
        assert_eq!(pairs.last_of_each_key(), expected);
    }
}
