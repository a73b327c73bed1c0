//! Redis' glob patterns: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before a character that stands for itself.

/// Longest pattern that commands accept, in bytes. Matching takes at most |pattern| × |text| steps.
pub const MAX_PATTERN_BYTES: usize = 1024;

/// Whether `text` as a whole matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, |byte| byte)
}

/// As [`matches`], with ASCII letters of either case being equal.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, |byte| byte.to_ascii_lowercase())
}

/// Only the last `*` is ever tried again: what an earlier one could take, the last one can take too.
fn run(pattern: &[u8], text: &[u8], fold: impl Fn(u8) -> u8 + Copy) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            if at == pattern.len() {
                return true;
            }
            retry = Some((at, read));
            continue;
        }
        let Some(byte) = text.get(read) else {
            return at == pattern.len();
        };
        if let Some(next) = one(pattern, at, *byte, fold) {
            (at, read) = (next, read + 1);
        } else if let Some((after, from)) = retry {
            (at, read) = (after, from + 1);
            retry = Some((after, from + 1));
        } else {
            return false;
        }
    }
}

/// If the pattern's element at `at` matches `byte`: where the next element is.
fn one(pattern: &[u8], at: usize, byte: u8, fold: impl Fn(u8) -> u8 + Copy) -> Option<usize> {
    match &pattern[at..] {
        [] => None,
        [b'?', ..] => Some(at + 1),
        [b'[', ..] => {
            let (found, next) = class(pattern, at + 1, byte, fold);
            found.then_some(next)
        }
        [b'\\', literal, ..] => (fold(*literal) == fold(byte)).then_some(at + 2),
        [literal, ..] => (fold(*literal) == fold(byte)).then_some(at + 1),
    }
}

/// Whether `byte` is in the class whose inside starts at `at`, and where the class ends. A class that is not closed reaches
/// to the end of the pattern.
fn class(pattern: &[u8], mut at: usize, byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        at += match &pattern[at..] {
            [] => return (found != negated, at),
            [b'\\', literal, ..] => {
                found |= fold(*literal) == fold(byte);
                2
            }
            [b']', ..] => return (found != negated, at + 1),
            [low, b'-', high, ..] => {
                let (low, high) = (fold(*low), fold(*high));
                found |= (low.min(high)..=low.max(high)).contains(&fold(byte));
                3
            }
            [literal, ..] => {
                found |= fold(*literal) == fold(byte);
                1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "abc", true),
            ("a", "", false),
            ("a*", "a", true),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("?", "", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[]a]", "a", false),
            ("[^]", "a", true),
            ("[\\]]", "]", true),
            ("[a\\-c]", "b", false),
            ("[a\\-c]", "-", true),
            ("[abc", "b", true),
            ("[abc", "d", false),
            ("[", "a", false),
            ("[a-", "a", true),
            ("[a-]x]", "x", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("*[0-9]*z", "abc5xyz", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("user:*:name", "user:1:2:name", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern:?} {text:?}");
        }
        assert!(matches_ignoring_case(b"Max*[A-C]", b"mAXMEMORYb"));
        assert!(!matches(b"Max*", b"max"));
        assert!(matches(b"\xff*[\x80-\xff]", b"\xff\x00\x90"));
    }

    /// The definition, exponential: for short inputs only.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|taken| by_definition(rest, &text[taken..])),
            _ => text
                .split_first()
                .is_some_and(|(first, rest)| one(pattern, 0, *first, |byte| byte).is_some_and(|next| by_definition(&pattern[next..], rest))),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn as_defined(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", text in "[ab\\-\\]]{0,8}") {
            prop_assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), by_definition(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn any_bytes(pattern: Vec<u8>, text: Vec<u8>) {
            matches(&pattern, &text);
            matches_ignoring_case(&pattern, &text);
        }
    }

    #[test]
    fn many_stars_do_not_blow_up() {
        let steps = std::cell::Cell::new(0u64);
        let counted = |byte: u8| {
            steps.set(steps.get() + 1);
            byte
        };
        let pattern = [b"*a".repeat(100), b"*b".to_vec()].concat();
        let text = b"a".repeat(2000);
        assert!(!run(&pattern, &text, counted));
        assert!(steps.get() <= 2 * (pattern.len() * text.len()) as u64, "{} steps", steps.get());
    }
}
