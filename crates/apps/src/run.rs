//! Applications on a cluster that runs: clients of its nodes, who listens to the monitors, and how the outcome is read from all data centers.

use crate::course::{Course, FAILED_PAUSE, KEPT, Setting, Worker};
use crate::report::{Progress, Report, per_second};
use rheostat_client::task::{Alarms, Backend};
use rheostat_client::violation::{Heard, Subscription};
use rheostat_client::{Client, Session, v1};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Between two words of progress.
const PROGRESS: Duration = Duration::from_secs(2);
/// For how long data centers may differ when all clients have ended, and a monitor may be unknown to a node.
const PATIENCE: Duration = Duration::from_secs(30);
/// Reads under way at once, when the outcome is read.
const READERS: usize = 32;
/// What is said when it is ended after clients have begun, and before the outcome has been read.
const UNREAD: &str = "it was ended before its outcome had been read: nothing is known of it";

/// What an application runs on, and how.
#[derive(Clone)]
pub struct Options {
    /// A client of each node that can be reached; clients use the first one of each data center, in turn.
    pub nodes: Vec<Client>,
    /// The keyspace, by name or number.
    pub keyspace: String,
    /// For how long a task waits for an alarm about what it has locked; `None`: as measured.
    pub settle: Option<Duration>,
    /// What clients do.
    pub setting: Setting,
}

/// An application under way.
pub(crate) struct Run {
    options: Options,
    /// One for each data center, and its name.
    homes: Vec<(String, Client)>,
    keyspace: String,
    alarms: Vec<Alarms>,
    pub(crate) course: Rc<Course>,
    updates_before: u64,
    began: Instant,
    /// For how long clients worked, in seconds.
    worked_s: Cell<f64>,
}

impl Run {
    /// Makes ready, unless `ended` comes; `predicate` is a pattern that is watched for, for keys that begin with what it is told.
    pub(crate) async fn begin(options: Options, predicate: impl Fn(&str) -> String, ended: &mut impl AsyncFnMut()) -> Result<Rc<Run>, String> {
        let first = options.nodes.first().ok_or("no node to ask")?;
        let topology = first.topology().clone();
        let number = |keyspace: &v1::Keyspace| keyspace.number.to_string() == options.keyspace;
        let found = topology.keyspaces.iter().find(|keyspace| keyspace.name == options.keyspace || number(keyspace));
        let found = found.ok_or_else(|| format!("there is no keyspace `{}`", options.keyspace))?;
        let of_dc = |name: &String| options.nodes.iter().find(|client| client.topology().data_center == *name).cloned();
        let homes: Option<Vec<_>> = topology.data_centers.iter().map(|name| Some((name.clone(), of_dc(name)?))).collect();
        let homes = homes.ok_or("a data center has no node that can be reached: the outcome is read from all of them")?;
        let mut run = Run {
            course: Course::new(options.setting.clone(), &found.name, &found.protocol, homes.len(), Duration::ZERO)?,
            alarms: vec![Alarms::none(); homes.len()],
            updates_before: 0,
            began: Instant::now(),
            worked_s: Cell::new(0.0),
            keyspace: found.name.clone(),
            homes,
            options: options.clone(),
        };
        let ready = tokio::select! {
            ready = run.make_ready(&found.protocol, predicate) => ready,
            () = ended() => Err("it was ended before its clients began".to_owned()),
        };
        if ready.is_err() {
            run.let_go(ended).await;
        }
        ready.map(|()| Rc::new(run))
    }

    async fn make_ready(&mut self, protocol: &str, predicate: impl Fn(&str) -> String) -> Result<(), String> {
        if self.options.setting.rollback {
            let settle = match self.options.settle {
                Some(settle) => settle,
                None => self.longest_way().await?.mul_f64(2.5) + Duration::from_millis(50),
            };
            self.course = Course::new(self.options.setting.clone(), &self.keyspace, protocol, self.homes.len(), settle)?;
            for (alarms, (_, client)) in self.alarms.iter_mut().zip(&self.homes) {
                *alarms = Alarms::listen(client).await.map_err(|error| error.to_string())?;
            }
        }
        if self.options.setting.monitor {
            self.watch(predicate(self.course.prefix())).await?;
        }
        self.updates_before = self.updates().await;
        self.began = Instant::now();
        self.course.begin(self.session(0).now());
        Ok(())
    }

    fn monitor_name(&self) -> String {
        format!("app{}", self.options.setting.run)
    }

    async fn watch(&self, expression: String) -> Result<(), String> {
        let (name, first) = (self.monitor_name(), &self.homes[0].1);
        let monitor = v1::Monitor { name: name.clone(), keyspace: self.keyspace.clone(), expression, infer: true, ..v1::Monitor::default() };
        let said = |status: tonic::Status| status.message().to_owned();
        first.admin().add_monitor(first.request(v1::AddMonitorRequest { monitor: Some(monitor) })).await.map_err(said)?;
        let until = Instant::now() + PATIENCE;
        for client in &self.options.nodes {
            loop {
                let list = client.admin().list_monitors(client.request(v1::ListMonitorsRequest {})).await.map_err(said)?.into_inner();
                if list.monitors.iter().any(|monitor| monitor.name == name) {
                    break;
                }
                if Instant::now() > until {
                    return Err(format!("node {} has not heard of the monitor", client.topology().node));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let mut subscription = Subscription::new(first, name).await.map_err(|error| error.to_string())?;
        let course = Rc::downgrade(&self.course);
        tokio::task::spawn_local(async move {
            loop {
                let heard = subscription.next().await;
                let Some(course) = course.upgrade() else { return };
                match heard {
                    Heard::Event(event) => course.hear(&event),
                    Heard::Silence => {}
                    Heard::Again => course.told.gaps.set(course.told.gaps.get() + 1),
                    Heard::Refused(_) => {
                        course.told.gaps.set(course.told.gaps.get() + 1);
                        return;
                    }
                }
            }
        });
        Ok(())
    }

    /// Ends the monitor, at the first node that does it: the one where it was added may have gone.
    async fn unwatch(&self) {
        for client in &self.options.nodes {
            let request = client.request(v1::RemoveMonitorRequest { name: self.monitor_name() });
            if client.admin().remove_monitor(request).await.is_ok() {
                return;
            }
        }
    }

    /// Ends the monitor, if there is one, unless `ended` comes.
    async fn let_go(&self, ended: &mut impl AsyncFnMut()) {
        if self.options.setting.monitor {
            tokio::select! {
                () = self.unwatch() => {}
                () = ended() => {}
            }
        }
    }

    /// How long it takes at most until what is written in one data center can be read in another one.
    async fn longest_way(&self) -> Result<Duration, String> {
        let (mut longest, dial) = (Duration::ZERO, self.course.weak());
        for (from, (name, client)) in self.homes.iter().enumerate() {
            let key = format!("{}probe{from}", self.course.prefix());
            let mut session = client.session(&self.keyspace);
            session.set_dial(dial);
            let put = rheostat_client::Put { expires_after: Some(KEPT), ..rheostat_client::Put::new(key.clone(), "1") };
            session.put_item(put).await.map_err(|error| format!("{name}: {error}"))?;
            let began = Instant::now();
            for (other, client) in &self.homes {
                let mut session = client.session(&self.keyspace);
                session.set_dial(dial);
                while session.get(key.clone()).await.map_err(|error| format!("{other}: {error}"))?.value.is_none() {
                    if began.elapsed() > PATIENCE {
                        return Err(format!("what is written in {name} does not arrive in {other}"));
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            longest = longest.max(began.elapsed());
        }
        Ok(longest)
    }

    /// What servers have written and received so far, as far as they can be asked.
    async fn updates(&self) -> u64 {
        let mut sum = 0;
        for client in &self.options.nodes {
            if let Ok(status) = client.admin().status(client.request(v1::StatusRequest {})).await {
                let of = status.into_inner().replicas.into_iter().filter(|replica| replica.keyspace == self.keyspace);
                sum += of.map(|replica| replica.updates_written + replica.updates_received).sum::<u64>();
            }
        }
        sum
    }

    /// A client's way to do tasks.
    pub(crate) fn worker(&self, number: usize) -> Worker<Session> {
        let home = number % self.homes.len();
        self.course.worker(number, self.homes[home].1.session(&self.keyspace), self.alarms[home].clone())
    }

    /// A session of client `number`, which asks for what clients ask for at first.
    pub(crate) fn session(&self, number: usize) -> Session {
        let mut session = self.homes[number % self.homes.len()].1.session(&self.keyspace);
        session.set_dial(self.course.dial());
        session
    }

    /// Lets `workers` work until all have ended, the time is over, or `ended` comes; what they say at the end, or why they gave up.
    ///
    /// # Errors
    /// `ended` came again before they had.
    pub(crate) async fn drive<T: 'static>(
        &self,
        workers: Vec<impl Future<Output = Result<T, String>> + 'static>,
        of: Option<u64>,
        mut progress: impl FnMut(&Progress),
        ended: &mut impl AsyncFnMut(),
    ) -> Result<(Vec<T>, Vec<String>), String> {
        let mut working = JoinSet::new();
        for worker in workers {
            working.spawn_local(worker);
        }
        let (mut done, mut faults) = (Vec::new(), Vec::new());
        let mut ticks = tokio::time::interval(PROGRESS);
        ticks.tick().await;
        let session = self.session(0);
        let now = || session.now();
        loop {
            tokio::select! {
                worked = working.join_next() => match worked {
                    None => break,
                    Some(Ok(Ok(one))) => done.push(one),
                    Some(Ok(Err(why))) => faults.push(why),
                    Some(Err(error)) => faults.push(format!("a client ended badly: {error}")),
                },
                _ = ticks.tick() => progress(&self.course.progress(now(), of)),
                () = ended() => {
                    if !self.course.stop() {
                        self.let_go(ended).await;
                        return Err(UNREAD.to_owned());
                    }
                    faults.push("it was ended before its time".into());
                }
            }
        }
        self.worked_s.set(self.began.elapsed().as_secs_f64());
        progress(&self.course.progress(now(), of));
        Ok((done, faults))
    }

    /// What `outcome` finds.
    ///
    /// # Errors
    /// `ended` came before.
    pub(crate) async fn found<T>(&self, outcome: impl Future<Output = T>, ended: &mut impl AsyncFnMut()) -> Result<T, String> {
        let found = tokio::select! {
            found = outcome => Ok(found),
            () = ended() => Err(UNREAD.to_owned()),
        };
        if found.is_err() {
            self.let_go(ended).await;
        }
        found
    }

    /// Ends the monitor, and says what has been done. `faults` is what is known to be wrong already.
    pub(crate) async fn end(&self, app: &str, setting: String, of: Option<u64>, faults: Vec<String>) -> Report {
        let seconds = self.worked_s.get();
        let updates = self.updates().await.saturating_sub(self.updates_before);
        if self.options.setting.monitor {
            // What has happened last is told by then.
            tokio::time::sleep(self.course.settle().max(Duration::from_secs(1))).await;
            self.unwatch().await;
        }
        let report = self.course.report(app, setting, of, seconds);
        Report { faults, server_updates: updates, server_updates_per_s: per_second(updates, seconds), ..report }
    }

    /// The values of `keys`, once all data centers have the same.
    pub(crate) async fn agreed(self: &Rc<Run>, keys: &[String]) -> Result<BTreeMap<String, Option<String>>, String> {
        let until = Instant::now() + PATIENCE;
        let mut open = keys.to_vec();
        let mut agreed = BTreeMap::new();
        loop {
            let mut of_dc = Vec::new();
            for (name, client) in &self.homes {
                of_dc.push(self.read_all(client, &open).await.map_err(|why| format!("{name}: {why}"))?);
            }
            let mut differ = Vec::new();
            for (place, key) in open.iter().enumerate() {
                match of_dc.iter().all(|values| values[place] == of_dc[0][place]) {
                    true => drop(agreed.insert(key.clone(), of_dc[0][place].clone())),
                    false => differ.push(key.clone()),
                }
            }
            match differ.first() {
                None => return Ok(agreed),
                Some(first) if Instant::now() > until => {
                    return Err(format!("{} keys are not the same in all data centers, {first} among them", differ.len()));
                }
                Some(_) => tokio::time::sleep(FAILED_PAUSE).await,
            }
            open = differ;
        }
    }

    async fn read_all(self: &Rc<Run>, client: &Client, keys: &[String]) -> Result<Vec<Option<String>>, String> {
        let mut values = vec![None; keys.len()];
        let mut reading = JoinSet::new();
        for reader in 0..READERS.min(keys.len()) {
            let mine: Vec<(usize, String)> = keys.iter().cloned().enumerate().skip(reader).step_by(READERS).collect();
            let mut session = client.session(&self.keyspace);
            session.set_dial(self.course.weak());
            reading.spawn_local(async move {
                let mut read = Vec::new();
                for (place, key) in mine {
                    let value = session.get(key).await.map_err(|error| error.to_string())?.value;
                    read.push((place, value.map(|value| String::from_utf8_lossy(&value).into_owned())));
                }
                Ok::<_, String>(read)
            });
        }
        while let Some(read) = reading.join_next().await {
            for (place, value) in read.map_err(|error| error.to_string())?? {
                values[place] = value;
            }
        }
        Ok(values)
    }
}
