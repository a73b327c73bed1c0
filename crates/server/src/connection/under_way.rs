//! What a connection's request is that waits, for the list of slow operations and that of clients.

use super::state::{Collected, State};
use crate::load::clients::Pending;
use crate::load::slow::{Described, SlowOperation};
use crate::load::{Load, beginning};
use crate::shared::Shared;
use crate::topology::NodeId;
use rheostat_core::ids::Now;
use rheostat_resp::Arguments;
use rheostat_resp::table::{Entry, Flags};

/// See the module. Its buffer is used again.
#[derive(Default)]
pub(super) struct UnderWay {
    /// The command; `None`: nothing waits, or something that is to wait.
    what: Option<&'static str>,
    has_key: bool,
    key: Vec<u8>,
    key_bytes: usize,
    keys: usize,
    requests: u64,
    since_us: u64,
    /// The node of this data center that has it.
    node: Option<NodeId>,
    /// When an operation of this connection was last kept as slow, by when it began.
    kept_us: u64,
}

/// Whether requests of `entry` are operations on data, that do not wait because they are asked to.
fn is_operation(entry: &Entry) -> bool {
    let works = entry.flags.has(Flags::READONLY) || entry.flags.has(Flags::WRITE) || entry.name == "exec";
    works && !entry.flags.has(Flags::BLOCKING) && entry.name != "rheo|feed"
}

impl UnderWay {
    fn begin_with(&mut self, now: Now, entry: Option<&'static Entry>) -> Option<&'static Entry> {
        let entry = entry.filter(|entry| is_operation(entry));
        self.what = entry.map(|entry| entry.name);
        self.key.clear();
        (self.has_key, self.key_bytes, self.keys, self.requests, self.node) = (false, 0, 0, 1, None);
        self.since_us = now.monotonic_us;
        entry
    }

    fn set_key(&mut self, key: &[u8]) {
        self.has_key = true;
        self.key.extend_from_slice(beginning(key));
        self.key_bytes = key.len();
    }

    /// The request `arguments` of `entry` waits from now on.
    pub(super) fn begin(&mut self, now: Now, entry: Option<&'static Entry>, arguments: Arguments<'_>) {
        if let Some(keys) = self.begin_with(now, entry).and_then(|entry| entry.keys) {
            let mut keys = keys.of(arguments);
            if let Some(first) = keys.next() {
                self.set_key(first);
                self.keys = 1 + keys.count();
            }
        }
    }

    /// Likewise several requests.
    pub(super) fn begin_several(&mut self, now: Now, collected: &Collected) {
        if self.begin_with(now, collected.entry).is_some() {
            (self.requests, self.keys, self.node) = (collected.requests as u64, collected.requests, collected.node);
            if let Some(first) = &collected.first {
                self.set_key(first);
            }
        }
    }

    /// It waits no more, since `now_us`. If it has waited for long it is kept; `failed` tells the error that it ended with.
    pub(super) fn end(&mut self, now_us: u64, shared: &Shared, state: &State, failed: impl FnOnce() -> Option<String>) {
        let Some(what) = self.what.take() else { return };
        let took_us = now_us.saturating_sub(self.since_us);
        if took_us < shared.load.look_after_us() {
            return;
        }
        let reason = shared.load.take_reason(state.id());
        if took_us >= shared.load.slow.threshold_us() {
            let described = Described {
                what,
                key: self.has_key.then(|| self.key.clone()),
                key_bytes: self.key_bytes,
                keys: self.keys,
                requests: self.requests,
                keyspace: state.keyspace(),
                level: state.level(),
            };
            let elsewhere = || self.node.map(|node| format!("an answer of node {}", shared.topology.nodes[node.index()].name));
            self.keep(took_us, shared, state, (described, reason.or_else(elsewhere), failed()));
            self.kept_us = self.since_us;
        }
    }

    /// `requests` of this connection, the first of which came at `since_us`, are answered only now, though none waited for other servers.
    pub(super) fn late(&mut self, now: Now, shared: &Shared, state: &State, (since_us, requests): (u64, u64)) {
        // What was kept already is the reason.
        if self.kept_us >= since_us && self.kept_us > 0 {
            return;
        }
        let Some(entry) = state.last_command().filter(|entry| is_operation(entry)) else { return };
        let (keyspace, level) = (state.keyspace(), state.level());
        let described = Described { what: entry.name, key: None, key_bytes: 0, keys: 0, requests, keyspace, level };
        let reason = "the disk, or other work of this shard".to_owned();
        self.keep(now.monotonic_us.saturating_sub(since_us), shared, state, (described, Some(reason), None));
    }

    fn keep(&self, took_us: u64, shared: &Shared, state: &State, (described, waited_for, failed): (Described, Option<String>, Option<String>)) {
        let (client, client_name, user) = state.who();
        let at_ms = shared.clocks.physical_ms();
        shared.load.slow.add(SlowOperation { id: 0, at_ms, took_us, described, waited_for, failed, client, client_name, user });
    }

    /// What waits now.
    pub(super) fn pending(&self, now: Now, load: &Load, ticket: u64) -> Option<Pending> {
        let what = self.what?;
        Some(Pending {
            what,
            key: self.has_key.then(|| self.key.clone()),
            key_bytes: self.key_bytes,
            requests: self.requests,
            for_ms: now.monotonic_us.saturating_sub(self.since_us) / 1000,
            waits_for: load.reason(ticket),
        })
    }
}
