//! Subscribers to what monitors say: callers of gRPC's `WatchMonitors`, and RESP connections that listen.

use super::message::{Told, What};
use crate::shared::Shared;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc, watch};
use tokio_stream::Stream;

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

/// A subscription: what is heard.
pub(crate) struct Listening {
    heard: mpsc::Receiver<Heard>,
    /// Another one's as soon as this is dropped.
    _place: OwnedSemaphorePermit,
}

impl Listening {
    /// The next of it; `None`: there is no more.
    pub(crate) fn poll_heard(&mut self, context: &mut Context<'_>) -> Poll<Option<Heard>> {
        self.heard.poll_recv(context)
    }
}

impl Stream for Listening {
    type Item = Heard;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Heard>> {
        self.poll_heard(context)
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
    /// Subscribes to what monitors anywhere say of the predicate `name` (empty: of all): the last `recent` events, and what follows, until the subscription is dropped or it is `over`. Errors: there are
    /// too many subscribers.
    pub(crate) fn listen_to_monitors(&self, name: String, recent: usize, over: watch::Receiver<bool>) -> Result<Listening, String> {
        let place = self.monitors.subscribers.clone().try_acquire_owned();
        let _place = place.map_err(|_| format!("{SUBSCRIBERS} are subscribed to this node already"))?;
        let (sender, heard) = mpsc::channel(WAITING);
        let (told, before) = self.monitors.subscribe();
        let skipped = before.len().saturating_sub(recent);
        let before = before.into_iter().skip(skipped).collect();
        tokio::spawn(forward(told, before, name, sender, over));
        Ok(Listening { heard, _place })
    }
}

async fn forward(
    mut told: broadcast::Receiver<Arc<Told>>,
    before: Vec<Arc<Told>>,
    name: String,
    sender: mpsc::Sender<Heard>,
    mut over: watch::Receiver<bool>,
) {
    for told in before {
        if told.is_for(&name) && !hand_over(&sender, Heard::Told(told), &mut over).await {
            return;
        }
    }
    loop {
        let next = tokio::select! {
            next = told.recv() => next,
            () = sender.closed() => return,
            // An error is the end too.
            _ = over.wait_for(|over| *over) => return,
        };
        let heard = match next {
            Ok(told) if !told.is_for(&name) => continue,
            Ok(told) => Heard::Told(told),
            Err(broadcast::error::RecvError::Lagged(missed)) => Heard::Missed(missed),
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if !hand_over(&sender, heard, &mut over).await {
            return;
        }
    }
}

/// Says whether it was handed over: the subscriber may read nothing for long, and it be over meanwhile.
async fn hand_over(sender: &mpsc::Sender<Heard>, heard: Heard, over: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        sent = sender.send(heard) => sent.is_ok(),
        _ = over.wait_for(|over| *over) => false,
    }
}
