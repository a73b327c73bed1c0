//! Counters: numbers that every data center can change at once, within bounds.

use crate::error::Error;
use crate::session::{Achieved, Achievement, Copies, Failed, Session, Tries, Version, quality};
use crate::v1::counters_client::CountersClient;
use crate::{Level, v1};
use bytes::Bytes;
use rheostat_core::counter::{Direction, NewCounter, Scope};
use rheostat_proto::rights::direction_out;
use tonic::transport::Channel;
use tonic::{Response, Status};

/// A connection to a node's counters.
type Counters = CountersClient<Channel>;

/// A counter, as known in one data center.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterView {
    /// Its value.
    pub value: i64,
    /// It is never below this.
    pub lower: Option<i64>,
    /// It is never above this.
    pub upper: Option<i64>,
    /// Per data center; the first is the one that answered.
    pub rights: Vec<Rights>,
    /// The level that was achieved.
    pub level: Level,
    /// Every update of another data center that is older than this many milliseconds is reflected; `None` when no bound is known.
    pub staleness_ms: Option<u64>,
    /// Under a service level: which of its entries a look satisfies.
    pub achieved: Option<Achieved>,
}

/// What one data center may do to a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The data center's name.
    pub data_center: String,
    /// By how much it may decrement; `None` without a lower bound.
    pub down: Option<u64>,
    /// By how much it may increment; `None` without an upper bound.
    pub up: Option<u64>,
    /// Its part.
    pub standing: Standing,
}

/// A data center's part in a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It takes part.
    Member,
    /// Its rights are being reclaimed: not every other data center is known to have stopped listening to it.
    Reclaiming,
    /// Its rights have gone to the data center of this name.
    Reclaimed(String),
}

/// The values of counters after an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// In the order of the counters, as known in the data center that made the update.
    pub values: Vec<i64>,
    /// The version that was written.
    pub version: Version,
}

/// One counter, through a session. See [`Session::counter`].
pub struct Counter<'s> {
    session: &'s mut Session,
    key: Bytes,
    scope: Scope,
}

impl Session {
    /// The counter at `key`. Updates have scope local: they are decided at once, with the rights of this data center.
    pub fn counter(&mut self, key: impl Into<Bytes>) -> Counter<'_> {
        Counter { session: self, key: key.into(), scope: Scope::Local }
    }

    /// Adds to several counters of one partition, to all or to none; less than 0 decrements.
    ///
    /// # Errors
    /// See [`Error`]. Retried as [`Counter::add`].
    pub async fn add_all<K: Into<Bytes>>(&mut self, additions: impl IntoIterator<Item = (K, i64)>, scope: Scope) -> Result<Added, Error> {
        let additions: Vec<v1::Addition> = additions.into_iter().map(|(key, delta)| v1::Addition { key: key.into(), delta }).collect();
        let first = additions.first().map(|addition| addition.key.clone()).ok_or_else(|| Error::Refused("no counter to update".into()))?;
        let scope = match scope {
            Scope::Local => v1::Scope::Local,
            Scope::Global => v1::Scope::Global,
        };
        let (name, dial) = (Some(self.names.next()), self.served_dial(self.dial()));
        let mut tries = Tries::named(self.client.options());
        let mut doubt = None;
        let reply = loop {
            let add = |mut counters: Counters, context| {
                let (additions, scope) = (additions.clone(), scope.into());
                let message = v1::AddRequest { context: Some(context), additions, scope, name, dial: dial.clone() };
                let request = self.client.request_within(message, tries.left());
                async move { counters.add(request).await }
            };
            let mut failed = match self.call(&first, &tries, add).await {
                Ok(reply) => break reply,
                Err(failed) => failed,
            };
            if failed.doubt {
                let error = if failed.error.is_doubt() { failed.error.clone() } else { Error::Timeout("the server did not answer in time".into()) };
                doubt = Some(error);
            }
            if tries.again(&failed.error).await {
                continue;
            }
            // That a try has changed nothing is not so of those before it. Only what the bounds do not allow is said of the update, whichever try it was.
            if !failed.error.is_doubt()
                && !matches!(failed.error, Error::NoRights(_))
                && let Some(doubt) = doubt
            {
                failed.error = doubt;
            }
            break self.told(Err(failed))?;
        };
        if reply.values.len() != additions.len() {
            return Err(Error::Server(format!("{} counters were updated, {} were answered", additions.len(), reply.values.len())));
        }
        self.copies = reply.copies.map(Copies::from);
        self.set_token(reply.session);
        let version = reply.version.ok_or_else(|| Error::Server("the answer does not say which version was written".into()))?;
        Ok(Added { values: reply.values, version: version.into() })
    }

    /// As [`Session::send`], to the counters.
    async fn call<R, F: Future<Output = Result<Response<R>, Status>>>(
        &self,
        key: &[u8],
        tries: &Tries,
        call: impl Fn(Counters, v1::Context) -> F,
    ) -> Result<R, Failed> {
        self.send_by(&self.token, key, tries, |node, context| Ok(call(self.client.counters(node)?, context))).await
    }

    /// A call that answers with the counter; `again` says whether it may be sent again.
    async fn view<F: Future<Output = Result<Response<v1::CounterResponse>, Status>>>(
        &mut self,
        key: &[u8],
        again: bool,
        call: impl Fn(Counters, v1::Context) -> F,
    ) -> Result<CounterView, Error> {
        let options = self.client.options();
        let mut tries = if again { Tries::reading(options) } else { Tries::new(options) };
        let reply = loop {
            let sent = self.call(key, &tries, &call).await;
            match sent {
                Err(failed) if again && tries.again(&failed.error).await => {}
                sent if again => break sent?,
                sent => break self.told(sent)?,
            }
        };
        self.set_token(reply.session);
        if !again {
            self.copies = reply.copies.map(Copies::from);
        }
        let counter = reply.counter.ok_or_else(|| Error::Server("the answer does not say what the counter is".into()))?;
        let Achievement { level, staleness_ms, achieved } = quality(counter.quality)?;
        let rights = counter.rights.into_iter().map(rights).collect::<Result<_, _>>()?;
        Ok(CounterView { value: counter.value, lower: counter.lower, upper: counter.upper, rights, level, staleness_ms, achieved })
    }
}

fn rights(rights: v1::Rights) -> Result<Rights, Error> {
    let standing = match v1::Standing::try_from(rights.standing) {
        Ok(v1::Standing::Member) => Standing::Member,
        Ok(v1::Standing::Reclaiming) => Standing::Reclaiming,
        Ok(v1::Standing::Reclaimed) => Standing::Reclaimed(rights.heir),
        Err(_) => return Err(Error::Server(format!("the answer has a standing {}, which this client does not know", rights.standing))),
    };
    Ok(Rights { data_center: rights.data_center, down: rights.down, up: rights.up, standing })
}

impl Counter<'_> {
    /// Lets updates fetch the rights that they lack from other data centers, as long as the deadline allows.
    pub fn global(self) -> Self {
        Counter { scope: Scope::Global, ..self }
    }

    /// Makes the counter.
    ///
    /// # Errors
    /// See [`Error`]; not retried. Refused when the key is there.
    pub async fn create(&mut self, counter: NewCounter) -> Result<CounterView, Error> {
        let (key, dial) = (self.key.clone(), self.session.served_dial(self.session.dial()));
        let client = self.session.client.clone();
        let create = |mut counters: Counters, context| {
            let NewCounter { lower, upper, initial, placement } = counter.clone();
            let (context, key, dial) = (Some(context), key.clone(), dial.clone());
            let request = client.request(v1::CreateCounterRequest { context, key, lower, upper, initial, placement, dial });
            async move { counters.create(request).await }
        };
        self.session.view(&key, false, create).await
    }

    /// Adds `delta`, or decrements if it is less than 0; returns the value afterwards, as known in this data center.
    ///
    /// # Errors
    /// [`Error::NoRights`] if the bounds do not allow it with the rights that the scope can use; nothing was changed then. See [`Error`] for the others. Retried as the options say,
    /// also where the first try may have been made: the update has a name, under which it is made once.
    pub async fn add(&mut self, delta: i64) -> Result<i64, Error> {
        let added = self.session.add_all([(self.key.clone(), delta)], self.scope).await?;
        Ok(added.values[0])
    }

    /// Takes `amount` from this counter and adds it to the one at `to`, which is of the same partition: both or neither. Returns both values afterwards.
    ///
    /// # Errors
    /// As [`Counter::add`]. Refused when `amount` is less than 1.
    pub async fn transfer(&mut self, to: impl Into<Bytes>, amount: i64) -> Result<(i64, i64), Error> {
        if amount < 1 {
            return Err(Error::Refused(format!("{amount} cannot be transferred; the amount is at least 1")));
        }
        let added = self.session.add_all([(self.key.clone(), -amount), (to.into(), amount)], self.scope).await?;
        Ok((added.values[0], added.values[1]))
    }

    /// The counter as it is known in this data center.
    ///
    /// # Errors
    /// See [`Error`]; retried as the options say. Refused when there is no counter at the key.
    pub async fn look(&mut self) -> Result<CounterView, Error> {
        let (key, dial) = (self.key.clone(), self.session.served_dial(self.session.dial()));
        let client = self.session.client.clone();
        let look = |mut counters: Counters, context| {
            let request = client.request(v1::LookRequest { context: Some(context), key: key.clone(), dial: dial.clone() });
            async move { counters.look(request).await }
        };
        self.session.view(&key, true, look).await
    }

    /// Moves `amount` rights of this data center to the one called `to` (its name, or its number).
    ///
    /// # Errors
    /// [`Error::NoRights`] if this data center has not so many. See [`Error`] for the others; not retried.
    pub async fn move_rights(&mut self, to: impl Into<String>, direction: Direction, amount: u64) -> Result<CounterView, Error> {
        let (key, data_center, dial) = (self.key.clone(), to.into(), self.session.served_dial(self.session.dial()));
        let client = self.session.client.clone();
        let move_rights = |mut counters: Counters, context| {
            let (key, data_center, direction, dial) = (key.clone(), data_center.clone(), direction_out(direction).into(), dial.clone());
            let request = client.request(v1::MoveRequest { context: Some(context), key, data_center, direction, amount, dial });
            async move { counters.r#move(request).await }
        };
        self.session.view(&key, false, move_rights).await
    }

    /// Takes over the rights of the data center called `gone` (its name, or its number), which is gone for ever. From then on nothing that it does to this counter counts.
    ///
    /// # Errors
    /// See [`Error`]; retried as the options say, since to reclaim twice is to reclaim once.
    pub async fn reclaim(&mut self, gone: impl Into<String>) -> Result<CounterView, Error> {
        let (key, data_center, dial) = (self.key.clone(), gone.into(), self.session.served_dial(self.session.dial()));
        let client = self.session.client.clone();
        let reclaim = |mut counters: Counters, context| {
            let (key, data_center, dial) = (key.clone(), data_center.clone(), dial.clone());
            let request = client.request(v1::ReclaimRequest { context: Some(context), key, data_center, dial });
            async move { counters.reclaim(request).await }
        };
        self.session.view(&key, true, reclaim).await
    }
}
