//! Violations that monitors tell, with the evidence: for an application that undoes them in its own way (document 000, §6.1, application-specific rollback).
//!
//! ```no_run
//! # async fn tour(client: rheostat_client::Client) -> Result<(), rheostat_client::Error> {
//! use rheostat_client::violation::{Of, Violations};
//!
//! let mut session = client.session("shop");
//! let mut violations = Violations::listen(&client, "no_seat_twice").await?;
//! violations
//!     .each(Of::All, async |violation| {
//!         // Of two who have the same seat, the later one gives it back.
//!         let latest = violation.evidence.iter().max_by_key(|state| state.version.clone());
//!         if let Some(latest) = latest {
//!             session.delete(latest.key.clone()).await?;
//!         }
//!         Ok::<_, rheostat_client::Error>(())
//!     })
//!     .await?;
//! // It ends where the node refuses to tell, such as when the password is another one.
//! violations.refused().cloned().map_or(Ok(()), Err)
//! # }
//! ```

use crate::session::Version;
use crate::{Client, Error, Events, v1};
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use v1::monitor_event::What;

/// The last of what monitors said, asked for when the subscription begins again.
const RECENT: u32 = 100;
/// Between two attempts to subscribe.
const AGAIN: Duration = Duration::from_millis(200);
/// Violations that were told and are not told again.
const SEEN: usize = 4096;

/// A violation of a predicate.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The node whose monitor says it.
    pub node: String,
    /// Its number there.
    pub number: u64,
    /// When it was said, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The keyspace.
    pub keyspace: String,
    /// The predicate; of a pattern with what stands in its braces, as `name[17,4]`.
    pub monitor: String,
    /// Whether there was a moment at which all states stood; otherwise there may have been.
    pub certain: bool,
    /// A moment at which these states did not violate it yet, in milliseconds since the Unix epoch and a counter: a time for [`crate::rollback::Rollback::at`].
    pub not_before: (u64, u32),
    /// The states that violate it together.
    pub evidence: Vec<Evidence>,
}

/// One of the states that violate a predicate together.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The key.
    pub key: Bytes,
    /// Its value, or how it begins; `None` if it was absent.
    pub value: Option<Bytes>,
    /// The value's version; `None` if it was never written.
    pub version: Option<Version>,
    /// The data center where it stood.
    pub data_center: String,
    /// Since when, on that server's clock: milliseconds since the Unix epoch, and a counter.
    pub from: (u64, u32),
    /// Until when; `None` if it stands, as far as is known.
    pub until: Option<(u64, u32)>,
}

fn time(at: Option<v1::Timestamp>) -> (u64, u32) {
    at.map_or((0, 0), |at| (at.millis, at.counter))
}

impl Violation {
    fn new(event: v1::MonitorEvent) -> Result<Violation, Option<String>> {
        let alarm = match event.what {
            Some(What::Alarm(alarm)) => alarm,
            Some(What::Gap(why)) => return Err(Some(why)),
            None => return Err(None),
        };
        let certain = alarm.verdict() == v1::MonitorVerdict::Violated;
        let evidence = |one: v1::MonitorEvidence| Evidence {
            key: one.variable,
            value: one.value,
            version: one.version.map(Version::from),
            data_center: one.data_center,
            from: time(one.from),
            until: one.until.map(|until| time(Some(until))),
        };
        Ok(Violation {
            node: event.node,
            number: event.number,
            at_ms: event.at_ms,
            keyspace: event.keyspace,
            monitor: event.monitor,
            certain,
            not_before: time(alarm.since),
            evidence: alarm.evidence.into_iter().map(evidence).collect(),
        })
    }
}

/// What there is to be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// A predicate was violated, or possibly was. What was possible and turns out to be certain is told again, under the same node and number.
    Violation(Violation),
    /// Violations may have been missed, and why.
    Missed(String),
    /// The node refuses to tell, as when the password is another one now. It is asked again when somebody asks for what is told next.
    Refused(Error),
}

/// Which violations are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// Each once, at the first word.
    All,
    /// Those of which the clocks leave no doubt.
    Certain,
}

/// What a subscription brings.
#[derive(Debug)]
pub enum Heard {
    /// A monitor has said this.
    Event(Box<v1::MonitorEvent>),
    /// From now on nobody tells anything.
    Silence,
    /// Somebody tells again, beginning with the last of what was said meanwhile; there may have been more.
    Again,
    /// Nobody tells again: the node refuses, as when the password is another one now. It is asked again when somebody asks for what comes next.
    Refused(Error),
}

/// What monitors say, told by one node of the client's data center, at first the one that it met first, as long as somebody asks for it: after a failure it subscribes again, at one node after the other, unless it is refused.
pub struct Subscription {
    client: Client,
    name: String,
    events: Option<Events>,
    /// How often it was asked for.
    asked: usize,
}

impl Subscription {
    /// To what is said from now on, of the predicate `name`, or of all if that is empty.
    ///
    /// # Errors
    /// There is nobody to listen to.
    pub async fn new(client: &Client, name: impl Into<String>) -> Result<Subscription, Error> {
        let mut subscription = Subscription { client: client.clone(), name: name.into(), events: None, asked: 0 };
        loop {
            match subscription.subscribe(0).await {
                Err(Error::Unreachable(_)) if subscription.asked < client.any().len() => {}
                result => return result.map(|()| subscription),
            }
        }
    }

    /// What comes next.
    pub async fn next(&mut self) -> Heard {
        if let Some(events) = &mut self.events {
            if let Ok(Some(event)) = events.message().await {
                return Heard::Event(Box::new(event));
            }
            self.events = None;
            return Heard::Silence;
        }
        loop {
            tokio::time::sleep(AGAIN).await;
            match self.subscribe(RECENT).await {
                Ok(()) => return Heard::Again,
                Err(error) if error.is_refusal() => return Heard::Refused(error),
                Err(_) => {}
            }
        }
    }

    /// At one node, and the next time at the next one: alarms are told to all.
    async fn subscribe(&mut self, recent: u32) -> Result<(), Error> {
        let nodes = self.client.any();
        let node = nodes[self.asked % nodes.len()];
        self.asked += 1;
        // The password goes with it; the deadline of a call does not end a subscription.
        let mut request = self.client.request(v1::WatchMonitorsRequest { name: self.name.clone(), recent });
        request.metadata_mut().remove("grpc-timeout");
        self.events = Some(self.client.admin_of(node)?.watch_monitors(request).await?.into_inner());
        Ok(())
    }
}

/// Violations, one after the other.
pub struct Violations {
    subscription: Subscription,
    /// By node, number and verdict, in the order in which they came.
    seen: BTreeSet<(String, u64, bool)>,
    order: VecDeque<(String, u64, bool)>,
    /// The one whose undoing failed.
    failed: Option<Violation>,
    missed: u64,
    refused: Option<Error>,
}

impl Violations {
    /// Of the predicate `monitor`, or of all if that is empty, from now on.
    ///
    /// # Errors
    /// There is nobody to listen to.
    pub async fn listen(client: &Client, monitor: impl Into<String>) -> Result<Violations, Error> {
        let subscription = Subscription::new(client, monitor).await?;
        Ok(Violations { subscription, seen: BTreeSet::new(), order: VecDeque::new(), failed: None, missed: 0, refused: None })
    }

    /// How often violations may have been missed so far.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Why the last call of [`Violations::each`] ended without an error: the node refuses to tell.
    pub fn refused(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    /// What is told next. While no node can be reached they are asked again and again.
    pub async fn next(&mut self) -> Said {
        loop {
            match self.subscription.next().await {
                Heard::Again => return self.miss("the node that tells could not be reached for a while".into()),
                Heard::Silence => {}
                Heard::Refused(error) => return Said::Refused(error),
                Heard::Event(event) => match Violation::new(*event) {
                    Ok(violation) if self.is_news(&violation) => return Said::Violation(violation),
                    Err(Some(why)) => return self.miss(why),
                    _ => {}
                },
            }
        }
    }

    fn miss(&mut self, why: String) -> Said {
        self.missed += 1;
        Said::Missed(why)
    }

    fn is_news(&mut self, violation: &Violation) -> bool {
        let id = (violation.node.clone(), violation.number, violation.certain);
        // What is certain is not told as possible afterwards.
        if !violation.certain && self.seen.contains(&(id.0.clone(), id.1, true)) || !self.seen.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > SEEN
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }

    /// Calls `undo` with each violation of `of`, one after the other, until the node refuses to tell ([`Violations::refused`]).
    ///
    /// # Errors
    /// What `undo` says: the next call begins with the same violation.
    pub async fn each<E>(&mut self, of: Of, mut undo: impl AsyncFnMut(&Violation) -> Result<(), E>) -> Result<(), E> {
        self.refused = None;
        loop {
            let violation = match self.failed.take() {
                Some(failed) => failed,
                None => match self.next().await {
                    Said::Violation(violation) => violation,
                    Said::Missed(_) => continue,
                    Said::Refused(error) => {
                        self.refused = Some(error);
                        return Ok(());
                    }
                },
            };
            let was_told = violation.certain && self.seen.contains(&(violation.node.clone(), violation.number, false));
            let wanted = match of {
                Of::All => !was_told,
                Of::Certain => violation.certain,
            };
            if wanted && let Err(error) = undo(&violation).await {
                self.failed = Some(violation);
                return Err(error);
            }
        }
    }
}
