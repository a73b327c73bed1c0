//! AWS Signature Version 4, as Amazon's reference for S3 describes it ("Authenticating Requests (AWS Signature Version 4)", signature in a header, payload in a single chunk).

use crate::settings::Credentials;
use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};
use std::fmt::Write;

/// A request, as far as it is signed.
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    /// Encoded, from `/` on.
    pub(crate) path: &'a str,
    /// Not encoded, in any order.
    pub(crate) query: &'a [(&'a str, String)],
    /// SHA-256 of the body, in hexadecimal digits.
    pub(crate) body_sha256: &'a str,
    /// `20130524T000000Z`.
    pub(crate) time: &'a str,
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// `text` as URIs have it; `/` stays where it is said so.
pub(crate) fn encoded(text: &str, keep_slash: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            b'/' if keep_slash => out.push('/'),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// What [`encoded`] made of a text, and other stores' ways of it. `None`: it is no text.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => out.push(b' '),
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = after;
            }
            other => out.push(*other),
        }
    }
    String::from_utf8(out).ok()
}

/// A query as URIs have it, in the order in which it is signed.
pub(crate) fn query(pairs: &[(&str, String)]) -> String {
    let mut words: Vec<String> = pairs.iter().map(|(name, value)| format!("{}={}", encoded(name, false), encoded(value, false))).collect();
    words.sort();
    words.join("&")
}

/// The value of the header `authorization`.
pub(crate) fn authorization(request: &Signed<'_>, region: &str, credentials: &Credentials) -> String {
    let Signed { method, host, path, query: pairs, body_sha256, time } = request;
    let mut headers = format!("host:{host}\nx-amz-content-sha256:{body_sha256}\nx-amz-date:{time}\n");
    let mut names = "host;x-amz-content-sha256;x-amz-date".to_string();
    if let Some(token) = &credentials.session_token {
        headers.push_str(&format!("x-amz-security-token:{}\n", token.trim()));
        names.push_str(";x-amz-security-token");
    }
    let canonical = format!("{method}\n{path}\n{}\n{headers}\n{names}\n{body_sha256}", query(pairs));
    let date = &time[..time.len().min(8)];
    let scope = format!("{date}/{region}/s3/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let step = |key: &[u8], text: &str| sign(&Key::new(HMAC_SHA256, key), text.as_bytes());
    let mut key = step(format!("AWS4{}", credentials.secret_key).as_bytes(), date);
    for word in [region, "s3", "aws4_request"] {
        key = step(key.as_ref(), word);
    }
    let signature = hex(step(key.as_ref(), &to_sign).as_ref());
    format!("AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}", credentials.access_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Credentials {
        Credentials { access_key: "AKIAIOSFODNN7EXAMPLE".into(), secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(), session_token: None }
    }

    fn signature(query: &[(&str, String)]) -> String {
        let body_sha256 = sha256(b"");
        let host = "examplebucket.s3.amazonaws.com";
        let request = Signed { method: "GET", host, path: "/", query, body_sha256: &body_sha256, time: "20130524T000000Z" };
        authorization(&request, "us-east-1", &example()).rsplit_once("Signature=").unwrap().1.to_string()
    }

    /// The examples of Amazon's reference that have no other headers than those that are signed here.
    #[test]
    fn the_references_examples() {
        let list = signature(&[("prefix", "J".into()), ("max-keys", "2".into())]);
        assert_eq!(list, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
        assert_eq!(signature(&[("lifecycle", String::new())]), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    }

    #[test]
    fn texts_are_encoded_and_back() {
        assert_eq!(encoded("a b/ü+~", true), "a%20b/%C3%BC%2B~");
        assert_eq!(encoded("a/b", false), "a%2Fb");
        for text in ["", "a b/ü+~%", "100%"] {
            assert_eq!(decoded(&encoded(text, false)).as_deref(), Some(text));
        }
        assert_eq!(decoded("a+b%2").as_deref(), None);
        assert_eq!(decoded("%FF").as_deref(), None);
    }
}
