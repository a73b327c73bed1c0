//! A change: a GET, and a PUT that depends on what it found, in one step.

use rheostat_core::answer::Read;
use rheostat_core::operation::Change;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Client;
use rheostat_core::version::{Item, Key};

/// The reply to a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed<R> {
    /// The key as it was.
    pub before: Read,
    /// The reply to the GET, and to the PUT if something was written: what the client remembers.
    pub replies: Vec<R>,
}

/// What `change` makes of `key` at physical time `now_ms`, where `reply` is that of the GET of the key by a session that has seen so much. `seen` takes it in, so a PUT after it
/// depends on what was found. Returns the reply so far, and what is to be written.
pub(crate) fn decide<C: Client<Reply: Clone>>(
    key: Key,
    change: Change,
    now_ms: u64,
    seen: &mut C,
    reply: C::Reply,
) -> (Changed<C::Reply>, Option<Item>) {
    let before = match seen.accept(reply.clone()) {
        Outcome::Read(before, _) => before,
        other => unreachable!("a GET is answered by a read, not by {other:?}"),
    };
    let item = change.item(now_ms, key, &before);
    (Changed { before, replies: vec![reply] }, item)
}

/// What the application gets of a change, when `client` has taken in the replies.
pub(crate) fn accept<C: Client>(client: &mut C, Changed { before, replies }: Changed<C::Reply>) -> Outcome {
    let mut version = None;
    for reply in replies {
        if let Outcome::Written(written) = client.accept(reply) {
            version = Some(written);
        }
    }
    Outcome::Changed { before, version }
}
