//! The few answers of a store that are XML.

use quick_xml::Reader;
use quick_xml::events::Event;

/// The texts of `xml` with the names of the elements around each, without namespaces: `ListBucketResult/Contents/Key`. What cannot be read ends them.
pub(crate) fn texts(xml: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(xml);
    let mut reader = Reader::from_str(&text);
    let (mut names, mut found, mut current): (Vec<String>, Vec<(String, String)>, String) = (Vec::new(), Vec::new(), String::new());
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).rsplit(':').next().unwrap_or_default().to_string();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                names.push(name(start.name().as_ref().as_ref()));
                current.clear();
            }
            Ok(Event::Text(text)) => current.push_str(&text.xml10_content()),
            Ok(Event::CData(text)) => current.push_str(&text.xml10_content()),
            Ok(Event::GeneralRef(reference)) => match reference.resolve_char_ref() {
                Ok(Some(character)) => current.push(character),
                _ => current.push_str(match &*reference.xml10_content() {
                    "lt" => "<",
                    "gt" => ">",
                    "amp" => "&",
                    "quot" => "\"",
                    "apos" => "'",
                    _ => "?",
                }),
            },
            Ok(Event::End(_)) => {
                found.push((names.join("/"), std::mem::take(&mut current)));
                names.pop();
            }
            Ok(Event::Eof) | Err(_) => return found,
            Ok(_) => {}
        }
    }
}

/// The text of the first element of this name.
pub(crate) fn first<'a>(texts: &'a [(String, String)], name: &str) -> Option<&'a str> {
    texts.iter().find(|(path, _)| path == name).map(|(_, text)| text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_stores_are_read() {
        let xml =
            br#"<?xml version="1.0"?><a:Error xmlns:a="u"><Code>No&amp;Key&#x41;</Code><Empty/><In><Message> two words </Message></In></a:Error>"#;
        let found = texts(xml);
        assert_eq!((first(&found, "Error/Code"), first(&found, "Error/In/Message")), (Some("No&KeyA"), Some(" two words ")));
        assert_eq!(texts(b"<a><b>1</b><c>2</"), [("a/b".to_string(), "1".to_string())]);
        assert_eq!(texts(&[0xff, 0, b'<']), []);
    }
}
