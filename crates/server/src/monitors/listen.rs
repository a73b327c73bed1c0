//! Subscribers to what monitors say: callers of gRPC's `WatchMonitors`, and RESP connections that listen.

use super::message::{Told, What};
use crate::shared::Shared;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc};

/// Subscribers of one node at once.
pub(crate) const SUBSCRIBERS: usize = 64;

/// Events that wait for one subscriber to read them, beside those that the node keeps for all.
const WAITING: usize = 64;

/// What a subscriber hears.
pub(crate) enum Heard {
    /// A monitor has said this.
    Told(Arc<Told>),
    /// So many events were left out, since it reads too slowly.
    Missed(u64),
}

impl Heard {
    /// What is said of so many events that were left out.
    pub(crate) fn missed(count: u64) -> String {
        format!("this subscriber reads too slowly: {count} events were left out")
    }
}

impl Told {
    /// Whether it is for those who listen to the predicate called `name`; empty: to all.
    fn is_for(&self, name: &str) -> bool {
        let target = match &self.what {
            What::Alarm(alarm) => Some(&alarm.target),
            What::Gap(target, _) => target.as_ref(),
        };
        name.is_empty() || target.is_none_or(|target| *target.name == *name)
    }
}

impl Shared {
    /// Subscribes to what monitors anywhere say of the predicate `name` (empty: of all): the last `recent` events, and what follows, until the receiver is dropped or the node stops. Errors: there are
    /// too many subscribers.
    pub(crate) fn listen_to_monitors(&self, name: String, recent: usize) -> Result<mpsc::Receiver<Heard>, String> {
        let place = self.monitors.subscribers.clone().try_acquire_owned();
        let place = place.map_err(|_| format!("{SUBSCRIBERS} are subscribed to this node already"))?;
        let (sender, receiver) = mpsc::channel(WAITING);
        let (told, before) = self.monitors.subscribe();
        let skipped = before.len().saturating_sub(recent);
        let before = before.into_iter().skip(skipped).collect();
        tokio::spawn(forward(told, before, name, sender, self.stopping.subscribe(), place));
        Ok(receiver)
    }
}

async fn forward(
    mut told: broadcast::Receiver<Arc<Told>>,
    before: Vec<Arc<Told>>,
    name: String,
    sender: mpsc::Sender<Heard>,
    mut stopping: tokio::sync::watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    for told in before {
        if told.is_for(&name) && sender.send(Heard::Told(told)).await.is_err() {
            return;
        }
    }
    loop {
        let next = tokio::select! {
            next = told.recv() => next,
            () = sender.closed() => return,
            _ = stopping.changed() => return,
        };
        let heard = match next {
            Ok(told) if !told.is_for(&name) => continue,
            Ok(told) => Heard::Told(told),
            Err(broadcast::error::RecvError::Lagged(missed)) => Heard::Missed(missed),
            Err(broadcast::error::RecvError::Closed) => return,
        };
        // The caller may read nothing for long, and the node stop meanwhile.
        let sent = tokio::select! {
            sent = sender.send(heard) => sent,
            _ = stopping.changed() => return,
        };
        if sent.is_err() {
            return;
        }
    }
}
