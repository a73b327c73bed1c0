//! The simulator in a page: runs that are asked for and told in JSON, and what a browser calls.
//!
//! Everything is text in and text out, and a function of the text that comes in: [`catalogue`] says what there is, [`run`] runs one plan and tells it, [`search`] looks for a seed that
//! breaks a promise, [`shrink`] makes a failing plan small. [`request`] has the form of what comes in and its bounds, [`report`] that of what goes out, [`scenarios`] the small plans
//! that are made to be looked at.
//!
//! Compiled to WebAssembly the crate exports what `ui/simulator` calls; everywhere else it is a library, and its tests are native.

mod bounds;
#[cfg(target_arch = "wasm32")]
mod browser;
mod catalogue;
pub mod report;
pub mod request;
pub mod scenarios;
mod seeds;

use serde::Serialize;
use serde_json::json;

/// The most letters of an error: some name all that there is.
const MOST_ERROR: usize = 600;

/// What there is to choose: protocols with their planted bugs, profiles, promises, scenarios.
pub fn catalogue() -> String {
    text(&catalogue::catalogue())
}

/// Runs what `request` asks for ([`request::Run`]) and tells it ([`report::Report`]); `{"error": "..."}` if it makes no sense.
pub fn run(request: &str) -> String {
    answer(request::Run::parse(request).and_then(|run| report::report(&run)))
}

/// Runs seeds, a few at a time, until one breaks a promise ([`request::Search`]).
pub fn search(request: &str) -> String {
    answer(request::Search::parse(request).and_then(|search| seeds::search(&search)))
}

/// Makes a failing plan smaller, a few runs at a time ([`request::Shrink`]).
pub fn shrink(request: &str) -> String {
    answer(request::Shrink::parse(request).and_then(|shrink| seeds::shrink(&shrink)))
}

fn answer<T: Serialize>(result: Result<T, String>) -> String {
    match result {
        Ok(value) => text(&value),
        Err(error) => text(&json!({ "error": report::cut(&error, MOST_ERROR) })),
    }
}

fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| json!({ "error": error.to_string() }).to_string())
}
