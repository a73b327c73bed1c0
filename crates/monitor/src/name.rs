//! Names of variables, with holes where a predicate stands for many.

use rheostat_core::glob;
use rheostat_core::version::Key;
use std::sync::Arc;

/// What stands in the holes of a name.
pub type Bindings = Vec<Arc<[u8]>>;

/// The longest that may stand in a hole, in bytes.
const MOST_IN_HOLE: usize = 64;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Segment {
    Text(Arc<[u8]>),
    /// What stands here, by its number.
    Hole(usize),
    /// Whatever fits this glob pattern; alone in its name.
    Keys(Arc<[u8]>),
}

/// A variable's name, or a text in a predicate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name(Vec<Segment>);

/// What may stand in a hole.
fn fits(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

impl Name {
    /// Exactly these bytes.
    pub fn plain(bytes: &[u8]) -> Name {
        Name(vec![Segment::Text(bytes.into())])
    }

    /// All keys that fit the glob pattern `pattern`.
    pub fn keys(pattern: &[u8]) -> Name {
        Name(vec![Segment::Keys(pattern.into())])
    }

    /// Whether it stands for all keys of a pattern at once.
    pub fn is_keys(&self) -> bool {
        matches!(self.0.as_slice(), [Segment::Keys(_)])
    }

    /// `text` with holes in braces, which are numbered in `holes` in the order in which they are first named. Errors: braces that name no hole; two holes, or a hole and a letter, that nothing separates.
    pub fn with_holes(text: &str, holes: &mut Vec<String>) -> Result<Name, String> {
        let mut segments = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (before, after) = rest.split_at(open);
            let close = after.find('}').ok_or_else(|| format!("`{text}`: a brace that is not closed"))?;
            let hole = &after[1..close];
            if hole.is_empty() || !hole.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return Err(format!("`{text}`: `{{{hole}}}` names nothing; a pattern has names of letters and digits in its braces"));
            }
            if before.is_empty() && !segments.is_empty() {
                return Err(format!("`{text}`: nothing separates two pairs of braces, so what stands in each cannot be told"));
            }
            if !before.is_empty() {
                segments.push(Segment::Text(before.as_bytes().into()));
            }
            let number = holes.iter().position(|known| known == hole).unwrap_or_else(|| {
                holes.push(hole.to_owned());
                holes.len() - 1
            });
            segments.push(Segment::Hole(number));
            rest = &after[close + 1..];
            if rest.bytes().next().is_some_and(fits) {
                return Err(format!("`{text}`: a letter, a digit or `-` follows `{{{hole}}}`, so what stands in it cannot be told"));
            }
        }
        if !rest.is_empty() {
            segments.push(Segment::Text(rest.as_bytes().into()));
        }
        Ok(Name(segments))
    }

    /// The holes that it names, by number.
    pub fn holes(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Hole(number) => Some(*number),
            Segment::Text(_) | Segment::Keys(_) => None,
        })
    }

    /// How all keys of this name begin.
    pub fn beginning(&self) -> &[u8] {
        match self.0.first() {
            Some(Segment::Text(text)) => text,
            Some(Segment::Keys(pattern)) => {
                let literal = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
                &pattern[..literal]
            }
            _ => &[],
        }
    }

    /// Whether `key` may be of this name, by how it begins.
    pub fn may_match(&self, key: &[u8]) -> bool {
        key.starts_with(self.beginning())
    }

    /// What must stand in the `holes` holes for `key` to be of this name; `None` if it is not.
    pub fn matches(&self, key: &[u8], holes: usize) -> Option<Bindings> {
        if !self.may_match(key) {
            return None;
        }
        if let [Segment::Keys(pattern)] = self.0.as_slice() {
            return glob::matches(pattern, key).then(Vec::new);
        }
        let mut bound: Vec<Option<&[u8]>> = vec![None; holes];
        let mut rest = key;
        for segment in &self.0 {
            match segment {
                Segment::Text(text) | Segment::Keys(text) => rest = rest.strip_prefix(&**text)?,
                Segment::Hole(number) => {
                    let length = rest.iter().position(|byte| !fits(*byte)).unwrap_or(rest.len());
                    let (value, after) = rest.split_at(length);
                    if length == 0 || length > MOST_IN_HOLE || bound[*number].is_some_and(|before| before != value) {
                        return None;
                    }
                    bound[*number] = Some(value);
                    rest = after;
                }
            }
        }
        if !rest.is_empty() {
            return None;
        }
        bound.into_iter().map(|value| value.map(Arc::from)).collect()
    }

    /// The bytes that it stands for; a pattern itself. What is not bound stays empty.
    pub fn fill(&self, bindings: &[Arc<[u8]>]) -> Key {
        if let [Segment::Text(text) | Segment::Keys(text)] = self.0.as_slice() {
            return text.clone();
        }
        let mut bytes = Vec::new();
        for segment in &self.0 {
            match segment {
                Segment::Text(text) | Segment::Keys(text) => bytes.extend_from_slice(text),
                Segment::Hole(number) => bytes.extend_from_slice(bindings.get(*number).map_or(&[][..], |bound| bound)),
            }
        }
        bytes.into()
    }

    /// Whether `bytes` is what it stands for.
    pub fn is(&self, bytes: &[u8], bindings: &[Arc<[u8]>]) -> bool {
        match self.0.as_slice() {
            [Segment::Text(text)] => **text == *bytes,
            _ => *self.fill(bindings) == *bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bindings: &Bindings) -> Vec<&str> {
        bindings.iter().map(|bound| std::str::from_utf8(bound).unwrap()).collect()
    }

    #[test]
    fn the_papers_names() {
        let mut holes = Vec::new();
        let flag = Name::with_holes("flag{A}_{B}_{A}", &mut holes).unwrap();
        let turn = Name::with_holes("turn{A}_{B}", &mut holes).unwrap();
        assert_eq!(holes, ["A", "B"]);
        assert_eq!(text(&flag.matches(b"flag17_4_17", 2).unwrap()), ["17", "4"]);
        assert_eq!(flag.matches(b"flag17_4_4", 2), None, "one name, one value");
        assert_eq!(flag.matches(b"flag17_4_", 2), None);
        assert_eq!(flag.matches(b"flag_4_", 2), None);
        assert_eq!(turn.matches(b"turn17_4_17", 2), None, "a hole ends at what is no letter or digit");
        let bound = turn.matches(b"turn17_4", 2).unwrap();
        assert_eq!(&*flag.fill(&bound), b"flag17_4_17");
        assert_eq!(turn.matches(&[b"turn1_".as_slice(), &[b'x'; 65]].concat(), 2), None);
        assert_eq!(turn.matches(b"", 2), None);
    }

    #[test]
    fn keys_of_a_pattern() {
        let name = Name::keys(b"stock:*:eu");
        assert!(name.is_keys() && name.may_match(b"stock:1") && !name.may_match(b"stoc"));
        assert_eq!((name.matches(b"stock:7:eu", 0), name.matches(b"stock:7:us", 0)), (Some(Vec::new()), None));
        assert_eq!(&*name.fill(&[]), b"stock:*:eu");
        assert!(Name::keys(b"*").may_match(b"") && Name::keys(br"\*a").may_match(b"*a"));
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        for text in ["x{A}{B}", "x{A}b", "x{A", "x{}", "x{ A }", "{A}{B}"] {
            assert!(Name::with_holes(text, &mut Vec::new()).is_err(), "{text}");
        }
        assert!(Name::with_holes("{A}:{B}.", &mut Vec::new()).is_ok());
    }
}
