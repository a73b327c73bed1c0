//! Why a request to the console is not answered.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use serde_json::json;

/// See the module.
pub(super) struct Refusal {
    status: StatusCode,
    why: String,
    header: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Refusal {
        Refusal { status, why: why.into(), header: None }
    }

    /// The request has no sense.
    pub(super) fn bad(why: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, why)
    }

    /// Another method is wanted.
    pub(super) fn method(allowed: &'static str) -> Refusal {
        Refusal { header: Some((ALLOW, allowed)), ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed}")) }
    }

    /// Try again later.
    pub(super) fn busy(why: &str) -> Refusal {
        Refusal { header: Some((RETRY_AFTER, "1")), ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, why) }
    }

    /// A password is missing or wrong.
    pub(super) fn unauthorized(why: &str) -> Refusal {
        Refusal { header: Some((WWW_AUTHENTICATE, "Bearer")), ..Refusal::new(StatusCode::UNAUTHORIZED, why) }
    }

    /// A fault of this machine.
    pub(super) fn internal(why: impl ToString) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(json!({ "error": self.why }).to_string())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some((name, value)) = self.header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
