//! Who has signed in: random tokens in a cookie. The node remembers their digests, for half a day, and forgets them when it ends.

use crate::shared::lock;
use crate::token_keys;
use hyper::header::{COOKIE, HeaderMap, HeaderValue, InvalidHeaderValue};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a session is open.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// The most sessions; of more, the oldest ends.
const MOST: usize = 256;

type Digest = [u8; 32];

/// See the module.
#[derive(Default)]
pub(super) struct Sessions {
    /// By the token's digest: when it began, whether its user may operate, and the version of the users by which that is so.
    open: Mutex<BTreeMap<Digest, (Instant, bool, u64)>>,
}

fn digest_of(token: &str) -> Digest {
    let mut out = Digest::default();
    out.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    out
}

/// The tokens that the cookie called `name` carries.
fn tokens<'a>(name: &'a str, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|cookie| cookie.to_str().ok());
    cookies
        .flat_map(|cookie| cookie.split(';'))
        .filter_map(move |pair| pair.trim().split_once('=').filter(|(own, _)| *own == name).map(|(_, token)| token))
}

impl Sessions {
    /// Opens a session; the cookie that carries it. `encrypted`: it must not leave without TLS. It ends when the users are no longer those of version `users`. Errors: there is no randomness.
    pub(super) fn begin(&self, name: &str, encrypted: bool, operates: bool, users: u64) -> Result<HeaderValue, String> {
        let random: [u8; 32] = token_keys::random().map_err(|error| error.to_string())?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut open = lock(&self.open);
        open.retain(|_, (began, ..)| began.elapsed() < LIFETIME);
        if open.len() >= MOST
            && let Some(oldest) = open.iter().min_by_key(|(_, (began, ..))| *began).map(|(digest, _)| *digest)
        {
            open.remove(&oldest);
        }
        open.insert(digest_of(&token), (Instant::now(), operates, users));
        let secure = if encrypted { "; Secure" } else { "" };
        let cookie = format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}", LIFETIME.as_secs());
        HeaderValue::from_str(&cookie).map_err(|error: InvalidHeaderValue| error.to_string())
    }

    /// Whether the user of the request's open session may operate, if it carries one.
    pub(super) fn open(&self, name: &str, headers: &HeaderMap, users: u64) -> Option<bool> {
        let open = lock(&self.open);
        let good = |(began, _, version): &&(Instant, bool, u64)| began.elapsed() < LIFETIME && *version == users;
        tokens(name, headers).find_map(|token| open.get(&digest_of(token)).filter(good).map(|(_, operates, _)| *operates))
    }

    /// Ends the request's session; the cookie that says so.
    pub(super) fn end(&self, name: &str, headers: &HeaderMap) -> HeaderValue {
        let mut open = lock(&self.open);
        for token in tokens(name, headers) {
            open.remove(&digest_of(token));
        }
        let cookie = format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
        HeaderValue::from_str(&cookie).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(&format!("other=1; {pair}")).unwrap());
        headers
    }

    #[test]
    fn a_session_is_open_until_it_ends_and_under_its_name_only() {
        let sessions = Sessions::default();
        let cookie = sessions.begin("one", true, false, 7).unwrap();
        assert!(cookie.to_str().unwrap().ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure"));
        let headers = headers(&cookie);
        assert_eq!(sessions.open("one", &headers, 7), Some(false));
        assert_eq!(sessions.open("one", &headers, 8), None, "users have changed");
        assert_eq!((sessions.open("two", &headers, 7), Sessions::default().open("one", &headers, 7)), (None, None));
        sessions.end("one", &headers);
        assert_eq!(sessions.open("one", &headers, 7), None);
    }

    #[test]
    fn of_too_many_sessions_the_oldest_end() {
        let sessions = Sessions::default();
        let cookies: Vec<HeaderMap> = (0..=MOST).map(|_| headers(&sessions.begin("one", false, true, 0).unwrap())).collect();
        assert_eq!(sessions.open("one", &cookies[0], 0), None);
        assert!(cookies[1..].iter().all(|headers| sessions.open("one", headers, 0) == Some(true)));
    }
}
