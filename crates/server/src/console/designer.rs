//! The page *Designer*: what answers it is made above this room, where cluster files and experiments are known. It is a page of the console, or served alone, without a node.

use super::refusal::Refusal;
use super::{Caller, PATIENCE, Rate, check_origin, host_of, json_response, pages, read, reply, secured};
use crate::admin::{self, Site};
use crate::shared::lock;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// What the page asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Protocols, regions, examples: what there is to choose from.
    Catalogue,
    /// Whether a file is right, and what follows from it.
    Check,
    /// A file of one kind, from one of the other.
    TakeOver,
    /// How far a run is, and what came of it.
    Progress,
    /// Run an experiment.
    Run,
    /// End the run.
    Cancel,
}

impl Call {
    /// The call with this name in an address.
    pub(super) fn named(name: &str) -> Option<Call> {
        Some(match name {
            "catalogue" => Call::Catalogue,
            "check" => Call::Check,
            "take-over" => Call::TakeOver,
            "progress" => Call::Progress,
            "run" => Call::Run,
            "cancel" => Call::Cancel,
            _ => return None,
        })
    }

    /// Whether it comes with a body.
    pub(super) fn is_post(self) -> bool {
        !matches!(self, Call::Catalogue | Call::Progress)
    }

    /// Whether it costs so much that it takes role `operate`.
    pub(super) fn is_for_operators(self) -> bool {
        matches!(self, Call::Run | Call::Cancel)
    }
}

/// What answers the page.
pub trait Designer: Send + Sync + 'static {
    /// The JSON that answers `call` with `body`; called on a thread that may wait, one call at a time. It takes no longer than a few seconds: a run goes on by itself.
    ///
    /// # Errors
    /// In words for the user.
    fn answer(&self, call: Call, body: &[u8]) -> Result<String, String>;
}

/// A designer, and the one place at it.
#[derive(Clone)]
pub(crate) struct Desk {
    designer: Arc<dyn Designer>,
    place: Arc<Semaphore>,
}

impl Desk {
    pub(crate) fn new(designer: Arc<dyn Designer>) -> Desk {
        Desk { designer, place: Arc::new(Semaphore::new(1)) }
    }

    /// Answers `call`, after those that came before.
    pub(super) async fn answer(&self, call: Call, body: Bytes) -> Result<Response<Full<Bytes>>, Refusal> {
        let desk = self.clone();
        let answering = async {
            let place = desk.place.acquire_owned().await.map_err(Refusal::internal)?;
            let answer = tokio::task::spawn_blocking(move || {
                // Until the answer is there, whoever asked and went away.
                let _place = place;
                desk.designer.answer(call, &body)
            });
            answer.await.map_err(Refusal::internal)?.map_err(Refusal::bad)
        };
        let answer = tokio::time::timeout(PATIENCE.1, answering).await;
        let answer = answer.map_err(|_| Refusal::busy("the Designer is busy with something else; try again"))??;
        Ok(json_response(answer.into()))
    }
}

/// The page without a node.
struct Alone {
    desk: Desk,
    rate: Mutex<Rate>,
}

impl Alone {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Refusal> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        if let Some(page) = pages::find_alone(path) {
            return match parts.method {
                Method::GET | Method::HEAD => Ok(page.response()),
                _ => Err(Refusal::method("GET, HEAD")),
            };
        }
        let call = path.strip_prefix("/api/").ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "there is: / (the Designer)"))?;
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).map_or("", host_of);
        // A name that somebody else owns may point here.
        if host.trim_matches(['[', ']']).parse::<IpAddr>().is_err() && !host.eq_ignore_ascii_case("localhost") {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "the Designer answers to addresses and to localhost only"));
        }
        if !lock(&self.rate).take(std::time::Instant::now()) {
            return Err(Refusal::busy("too many questions"));
        }
        if call == "session" {
            return match parts.method {
                Method::GET => Ok(reply(&json!({ "operates": true, "release": env!("CARGO_PKG_VERSION") }))),
                _ => Err(Refusal::method("GET")),
            };
        }
        let call = call.strip_prefix("design/").and_then(Call::named);
        let call = call.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "there is no such call"))?;
        match (&parts.method, call.is_post()) {
            (&Method::GET, false) => self.desk.answer(call, Bytes::new()).await,
            (&Method::POST, true) => {
                check_origin(&parts.headers)?;
                self.desk.answer(call, read(body).await?).await
            }
            (_, true) => Err(Refusal::method("POST")),
            _ => Err(Refusal::method("GET")),
        }
    }
}

impl Site for Alone {
    async fn answer(self: Arc<Self>, _: Caller, request: Request<Incoming>) -> Response<Full<Bytes>> {
        secured(self.respond(request).await)
    }
}

/// Serves the page alone at `listener`, to whoever reaches it, until `stopping` is done. It asks for no password: `listener` should be on loopback.
pub async fn serve(listener: TcpListener, designer: Arc<dyn Designer>, stopping: impl Future<Output = ()> + Send) {
    let alone = Alone { desk: Desk::new(designer), rate: Mutex::new(Rate::new()) };
    drop(admin::accept(listener, Arc::new(alone), None, stopping).await);
}
