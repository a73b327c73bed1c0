//! Subscribers to what monitors say: callers of gRPC's `WatchMonitors`, and RESP connections that listen.

use super::message::{Told, What};
use crate::shared::{Shared, lock};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
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

/// One of [`SUBSCRIBERS`] places: another one's as soon as the first of its two holders has dropped it.
#[derive(Clone)]
struct Place(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Drop for Place {
    fn drop(&mut self) {
        *lock(&self.0) = None;
    }
}

/// A subscription: what is heard.
pub(crate) struct Listening {
    heard: mpsc::Receiver<Heard>,
    _place: Place,
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
    /// Subscribes to what monitors anywhere say of the predicate `name` (empty: of all): the last `recent` events, and what follows, until the subscription is dropped or it is `over`, or its owner
    /// has taken nothing of what waits for twice `limits.stall_timeout_ms`: a connection that does not read is closed before that. Errors: there are too many subscribers.
    pub(crate) fn listen_to_monitors(&self, name: String, recent: usize, over: watch::Receiver<bool>) -> Result<Listening, String> {
        let place = self.monitors.subscribers.clone().try_acquire_owned();
        let place = place.map_err(|_| format!("{SUBSCRIBERS} are subscribed to this node already"))?;
        let _place = Place(Arc::new(Mutex::new(Some(place))));
        let (sender, heard) = mpsc::channel(WAITING);
        let (told, before) = self.monitors.subscribe();
        let skipped = before.len().saturating_sub(recent);
        let before = before.into_iter().skip(skipped).collect();
        let (place, patience) = (_place.clone(), Duration::from_millis(self.config.limits.stall_timeout_ms) * 2);
        tokio::spawn(async move {
            forward((told, before), name, Handing { sender, over, patience }).await;
            drop(place);
        });
        Ok(Listening { heard, _place })
    }
}

async fn forward((mut told, before): (broadcast::Receiver<Arc<Told>>, Vec<Arc<Told>>), name: String, mut to: Handing) {
    for told in before {
        if told.is_for(&name) && !to.hand_over(Heard::Told(told)).await {
            return;
        }
    }
    loop {
        let next = tokio::select! {
            next = told.recv() => next,
            () = to.sender.closed() => return,
            // An error is the end too.
            _ = to.over.wait_for(|over| *over) => return,
        };
        let heard = match next {
            Ok(told) if !told.is_for(&name) => continue,
            Ok(told) => Heard::Told(told),
            Err(broadcast::error::RecvError::Lagged(missed)) => Heard::Missed(missed),
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if !to.hand_over(heard).await {
            return;
        }
    }
}

/// To whom it is told.
struct Handing {
    sender: mpsc::Sender<Heard>,
    over: watch::Receiver<bool>,
    /// So long it may take nothing of what waits.
    patience: Duration,
}

impl Handing {
    /// Says whether it was handed over: the subscriber may read nothing for too long, or it be over meanwhile.
    async fn hand_over(&mut self, heard: Heard) -> bool {
        tokio::select! {
            sent = self.sender.send(heard) => sent.is_ok(),
            _ = self.over.wait_for(|over| *over) => false,
            () = tokio::time::sleep(self.patience) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(number: u64) -> Arc<Told> {
        Arc::new(Told { node: "a".into(), number, at_ms: 1, keyspace: "k".into(), what: What::Gap(None, "a gap".into()) })
    }

    #[tokio::test]
    async fn who_takes_nothing_of_what_waits_is_told_nothing_more() {
        let (_tell, hears) = broadcast::channel(1);
        let (_over, over) = watch::channel(false);
        let (sender, mut heard) = mpsc::channel(1);
        let handing = Handing { sender, over, patience: Duration::from_millis(20) };
        // It ends though nobody reads, and nobody says that it is over.
        forward((hears, (0..3).map(told).collect()), String::new(), handing).await;
        assert!(matches!(heard.recv().await, Some(Heard::Told(told)) if told.number == 0));
        assert!(heard.recv().await.is_none());
    }

    #[test]
    fn a_place_is_free_when_one_of_its_holders_has_gone() {
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        for first in [true, false] {
            let place = Place(Arc::new(Mutex::new(places.clone().try_acquire_owned().ok())));
            let other = place.clone();
            assert_eq!(places.available_permits(), 0);
            drop(if first { place } else { other });
            assert_eq!(places.available_permits(), 1, "though the other one is there");
        }
    }
}
