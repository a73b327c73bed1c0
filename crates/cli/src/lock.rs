//! `rheostat demo --story monitor`.

use crate::Failure;
use crate::ctl::monitor::described;
use crate::ctl::rollback;
use crate::output::{self, say};
use rheostat_client::rollback::Rollback;
use rheostat_client::{Client, v1};
use std::time::{Duration, Instant};

/// A keyspace in which the last writer wins, and nothing else is promised.
const KEYSPACE: &str = "eventual";
const NAME: &str = "one-holder";
const EXPRESSION: &str = r#"!(lock_a = "taken" && lock_b = "taken")"#;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// For how long no alarm is waited for.
const CALM: Duration = Duration::from_secs(1);

/// Somebody who wants the lock.
struct Person {
    who: &'static str,
    region: String,
    client: Client,
    own: &'static str,
    other: &'static str,
}

/// Tells the story on a cluster of at least two data centers that has just been started; `ports` has the RESP and the gRPC port of each region's node. Errors: what the story meets.
pub async fn tell(regions: &[String], ports: &[(u16, u16)]) -> Result<(), Failure> {
    let mut clients = Vec::new();
    for (_, grpc) in ports {
        let address = format!("http://127.0.0.1:{grpc}");
        clients.push(Client::connect([address]).await.map_err(|error| error.to_string())?);
    }
    let (Some(first), Some(last)) = (regions.iter().zip(&clients).next(), regions.iter().zip(&clients).next_back()) else {
        return Err("there is no data center".to_string());
    };
    let person = |who, (region, client): (&String, &Client), own, other| Person { who, region: region.clone(), client: client.clone(), own, other };
    let (alice, bob) = (person("Alice", first, "lock_a", "lock_b"), person("Bob", last, "lock_b", "lock_a"));
    say!(
        "Alice in {} and Bob in {} share a lock that is made of two keys: who wants it looks at the other's key,\n\
         and if that is not taken, takes the own one. The program was written for one copy of the data. Here it runs on keyspace\n\
         `{KEYSPACE}`, where each data center answers by itself, and what is written here arrives there some time later.\n\n\
         What must never happen is said beforehand:\n\n  rheostat ctl monitor add {NAME} '{EXPRESSION}' --keyspace {KEYSPACE}\n",
        alice.region,
        bob.region
    );
    let monitor = v1::Monitor { name: NAME.into(), keyspace: KEYSPACE.into(), expression: EXPRESSION.into(), ..v1::Monitor::default() };
    let request = alice.client.request(v1::AddMonitorRequest { monitor: Some(monitor) });
    alice.client.admin().add_monitor(request).await.map_err(|status| status.to_string())?;
    for client in &clients {
        known(client).await?;
    }
    let request = alice.client.request(v1::WatchMonitorsRequest { name: NAME.into(), recent: 0 });
    let mut events = alice.client.admin().watch_monitors(request).await.map_err(|status| status.to_string())?.into_inner();

    say!("--- both at the same time ---");
    // What takes its time when a program begins is done before.
    let (one, other) = tokio::join!(alice.looks(), bob.looks());
    one?;
    other?;
    let (one, other) = tokio::join!(alice.takes(), bob.takes());
    one?;
    other?;
    let event = alarm(&mut events).await?;

    say!("\n--- back to before it ---");
    let at = rollback::before(&event)?;
    say!("\n  rheostat ctl rollback --before {}:{} --keys 'lock_*'\n", event.node, event.number);
    let keys = "lock_*".into();
    let back = Rollback { keyspace: KEYSPACE.into(), at, keys, because: Vec::new(), stop_for: PATIENCE, dry_run: false };
    let report = back.run(&clients, |phase| say!("  {phase} ...")).await.map_err(|error| error.to_string())?;
    output::text(&rollback::described_report(&report, false, usize::MAX, regions));
    if report.failed.is_some() {
        return Err("the rollback did not come to its end".to_string());
    }
    let mut kept = false;
    for (person, other) in [(&alice, &bob), (&bob, &alice)] {
        let holds = [alice.read(person.own).await?, bob.read(person.own).await?].map(|value| value == "taken");
        match holds {
            [false, false] => {}
            // On a busy machine the two can be further apart than the clocks' bound. Then nothing was wrong before the second one.
            [true, true] if !kept => {
                kept = true;
                say!("{} had it so long before that nothing was violated yet, keeps it, and has done with it now:", person.who);
                person.give_back().await?;
                other.sees("free").await?;
            }
            _ => return Err(format!("what was rolled back of {} is still read", person.own)),
        }
    }
    say!("Nobody has the lock, wherever one looks. A second later Alice happens to be first to try again; Bob looks when that has arrived:");
    // Until its end is known to who watches, what was rolled back may still have stood.
    tokio::time::sleep(CALM).await;
    alice.take().await?;
    bob.sees("taken").await?;
    bob.take().await?;

    say!("\n--- one after the other ---");
    alice.give_back().await?;
    bob.wait_and_take().await?;
    match tokio::time::timeout(CALM, events.message()).await {
        Err(_) => say!("No alarm: Alice had given it back when Bob took it, wherever the two are."),
        Ok(event) => {
            let event = event.map_err(|status| status.to_string())?.ok_or("the node has stopped")?;
            output::text(&described(&event));
            return Err("an alarm where nothing was violated".to_string());
        }
    }
    say!(
        "\nIn keyspace `strong` the lock would be one key, and `SET lock alice NX` would give it to one of them only, after a round trip to a majority."
    );
    Ok(())
}

impl Person {
    fn says(&self, what: &str) {
        say!("  {:<5} in {:<8} {what}", self.who, self.region);
    }

    async fn read(&self, key: &str) -> Result<String, Failure> {
        let read = self.client.session(KEYSPACE).get(key.to_owned()).await.map_err(|error| error.to_string())?;
        Ok(read.value.map_or_else(String::new, |value| String::from_utf8_lossy(&value).into_owned()))
    }

    async fn write(&self, value: &str) -> Result<(), Failure> {
        self.client.session(KEYSPACE).put(self.own, value.to_owned()).await.map(drop).map_err(|error| error.to_string())
    }

    async fn take(&self) -> Result<(), Failure> {
        if self.looks().await? { self.takes().await } else { Ok(()) }
    }

    /// Whether the lock is free, by what is seen here.
    async fn looks(&self) -> Result<bool, Failure> {
        let is_free = self.read(self.other).await? != "taken";
        if !is_free {
            self.says(&format!("{} is taken: waits", self.other));
        }
        Ok(is_free)
    }

    async fn takes(&self) -> Result<(), Failure> {
        self.write("taken").await?;
        self.says(&format!("{} is not taken: takes {}, and has the lock", self.other, self.own));
        Ok(())
    }

    async fn give_back(&self) -> Result<(), Failure> {
        self.write("free").await?;
        self.says("gives it back");
        Ok(())
    }

    /// Waits until the other's key has this value here.
    async fn sees(&self, value: &str) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        while self.read(self.other).await? != value {
            if Instant::now() > until {
                return Err(format!("{} did not become {value} in {}", self.other, self.region));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn wait_and_take(&self) -> Result<(), Failure> {
        self.sees("free").await?;
        self.take().await
    }
}

/// Waits until the node knows the predicate.
async fn known(client: &Client) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let request = client.request(v1::ListMonitorsRequest {});
        let list = client.admin().list_monitors(request).await.map_err(|status| status.to_string())?.into_inner();
        if list.monitors.iter().any(|monitor| monitor.name == NAME) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err("a node has not heard of the monitor".to_string());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Prints what comes up to the verdict that it was a violation.
async fn alarm(events: &mut rheostat_client::Events) -> Result<v1::MonitorEvent, Failure> {
    use v1::monitor_event::What;
    let mut told_after_ms = None;
    loop {
        let event = tokio::time::timeout(PATIENCE, events.message()).await.map_err(|_| "no alarm came".to_string())?;
        let event = event.map_err(|status| status.to_string())?.ok_or("the node has stopped")?;
        output::text(&described(&event));
        let Some(What::Alarm(alarm)) = &event.what else { continue };
        let last_ms = alarm.evidence.iter().filter_map(|evidence| evidence.from).map(|from| from.millis).max().unwrap_or_default();
        let after_ms = *told_after_ms.get_or_insert(event.at_ms.saturating_sub(last_ms));
        if alarm.verdict() == v1::MonitorVerdict::Violated {
            say!(
                "\nThe first word of it came {after_ms} ms after the second lock was taken: about what a message takes from there to node {}, which watches.",
                event.node
            );
            return Ok(event);
        }
    }
}
