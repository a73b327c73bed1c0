//! What an archiver tells: a line each, for people on standard error, or for programs on standard output.

use crate::date::now;
use crate::output;
use serde_json::{Value, json};

/// Where it is told.
#[derive(Clone, Copy)]
pub(super) struct Events {
    json: bool,
}

impl Events {
    pub(super) fn new(json: bool) -> Events {
        Events { json }
    }

    /// `text` for people; `what` with `more` for programs.
    pub(super) fn tell(self, what: &str, text: &str, more: Value) {
        if !self.json {
            eprintln!("{} {text}", now());
            return;
        }
        let mut event = json!({ "event": what, "text": text });
        if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
            event.extend(more);
        }
        output::json(&event);
    }
}
