//! Bytes that anybody may have written, as text that shows them and does nothing else.

use serde_json::{Value, json};

/// The most bytes of a key or value that a page gets.
pub(super) const MOST: usize = 256;

/// Whether `character` is shown as itself: no control character, and none that changes the direction or the look of others.
fn is_plain(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// `bytes` as text: what is UTF-8 as it is, with `\xNN` for other bytes and `\u{N}` for characters that are not plain.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                character if is_plain(character) => out.push(character),
                character => out.push_str(&format!("\\u{{{:x}}}", u32::from(character))),
            }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

/// `bytes` for a page: the beginning of them, and how many there are.
pub(super) fn json(bytes: &[u8]) -> Value {
    let cut = bytes.len() > MOST;
    // A character that the cut would halve is left out.
    let most = match cut {
        true => (MOST - 3..=MOST).rev().find(|end| std::str::from_utf8(&bytes[..*end]).is_ok()).unwrap_or(MOST),
        false => bytes.len(),
    };
    json!({ "text": text(&bytes[..most]), "bytes": bytes.len(), "cut": cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_plain_is_escaped() {
        for (bytes, shown) in [
            (&b"photo"[..], "photo"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"<script>alert(1)</script>", "<script>alert(1)</script>"),
            (b"a\0b\x1b[31m\n\\", "a\\u{0}b\\u{1b}[31m\\n\\\\"),
            (b"\xff\xfe a", "\\xff\\xfe a"),
            ("\u{202e}evil\u{2066}\u{200b}".as_bytes(), "\\u{202e}evil\\u{2066}\\u{200b}"),
            (b"", ""),
        ] {
            assert_eq!(text(bytes), shown);
        }
    }

    #[test]
    fn long_ones_are_cut_and_say_so() {
        assert_eq!(json(&[b'a'; 256])["cut"], false);
        let long = json(&vec![b'a'; 1 << 20]);
        assert_eq!((long["text"].as_str().unwrap().len(), &long["bytes"], &long["cut"]), (256, &json!(1 << 20), &json!(true)));
        let halved = json(format!("{}\u{20ac}\u{20ac}", "a".repeat(254)).as_bytes());
        assert_eq!(halved["text"].as_str().unwrap(), "a".repeat(254));
    }
}
