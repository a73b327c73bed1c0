//! Breaks a cluster of real processes on purpose, in the middle of load, and checks what its clients saw: Jepsen's idea, for this store, in one command.
//!
//! | module | what it is |
//! |---|---|
//! | [`course`] | what goes wrong, and when: drawn from a seed before anything runs |
//! | `operator` | who does it: signals to processes, and commands as an operator gives them |
//! | `load` | what clients do meanwhile: keys, and a counter with a bound |
//! | `beside` | the same where values stand side by side |
//! | [`record`] | what they see, as a history |
//! | [`report`] | what came of it |
//!
//! The course is the same for a seed. What processes do is not: a run is no proof, and is not to be repeated as one of the simulator is. It finds what the simulator cannot have: the operating system, disks, sockets, and
//! everything of the server around its protocols.

mod beside;
pub mod course;
mod load;
mod operator;
pub mod record;
pub mod report;
mod world;

use course::{Act, Drawn, Fault, Words};
use operator::Operator;
use report::{Counter, Happened, Report};
use rheostat_checkers::export::lines;
use rheostat_checkers::history::{Event, Observation, Outcome};
use rheostat_checkers::{History, check_all};
use rheostat_client::{Client, Session};
use rheostat_cluster::description::{DataCenter, ListedNode, Network};
use rheostat_cluster::{Description, Processes};
use rheostat_core::dial::Level;
use rheostat_protocols::registry::{self, ProtocolInfo};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use world::{Asked, Gone, KEYSPACE, Tally, World, lock};

/// How long a client may take to come to its end when the load is over.
const LAST_OPERATION: Duration = Duration::from_secs(30);

/// Before a data center is lost, no session goes there or leaves it for so long; what was acknowledged there in this time may be lost.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Operations of keys that are recorded and checked: in memory.
const MOST_OPERATIONS: u64 = 2_000_000;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// A cluster, its load, and what goes wrong with it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `rheostat` program: what nodes and commands of the operator are.
    pub program: PathBuf,
    /// Another release of it, as which nodes begin; those that are started again are `program` from then on, so both releases serve together.
    pub first_program: Option<PathBuf>,
    /// Where nodes have their data and logs, and the history stays.
    pub folder: PathBuf,
    /// The keyspace's protocol.
    pub protocol: String,
    /// Its options, as in a node's configuration.
    pub protocol_options: toml::Table,
    /// The level to whose promises the history is held, if not those of the protocol's own.
    pub held_to: Option<Level>,
    /// How many data centers; 1 to 5.
    pub data_centers: u8,
    /// How many nodes each has; at least as many as replicas.
    pub nodes: u16,
    /// How many servers a partition has in each data center.
    pub replicas: u8,
    /// Partitions.
    pub partitions: u16,
    /// How many clients of keys each data center has. One more adds to a counter.
    pub clients: usize,
    /// The longest pause of a client between two operations, in milliseconds.
    pub pause_ms: u64,
    /// How long there is load.
    pub duration: Duration,
    /// From one fault to the next.
    pub every: Duration,
    /// How long nodes may take to serve again.
    pub patience: Duration,
    /// What may go wrong.
    pub faults: Vec<Fault>,
    /// Of the course, and of what clients draw.
    pub seed: u64,
}

/// The names of the data centers.
const NAMES: [&str; 5] = ["us-east", "us-west", "eu", "asia", "africa"];

impl Options {
    /// Whether a run can be made of this. Returns what is known of its protocol.
    ///
    /// # Errors
    /// In words: the first thing that cannot be.
    pub fn check(&self) -> Result<ProtocolInfo, String> {
        let info = registry::info(&self.protocol)
            .ok_or_else(|| format!("there is no protocol `{}`; there are {}", self.protocol, registry::names().join(", ")))?;
        if info.can.keeps_bounds {
            return Err(format!(
                "protocol {} answers within bounds, which these clients do not ask for; rheostat sim --protocol {} does",
                info.name, info.name
            ));
        }
        if !(1..=NAMES.len()).contains(&usize::from(self.data_centers)) {
            return Err(format!("{} data centers: 1 to {} are possible", self.data_centers, NAMES.len()));
        }
        if self.replicas == 0 || self.replicas > info.can.most_replicas {
            return Err(format!(
                "protocol {} has 1 to {} servers of a partition in a data center, not {}",
                info.name, info.can.most_replicas, self.replicas
            ));
        }
        if self.nodes < u16::from(self.replicas) {
            return Err(format!("{} replicas need as many nodes in each data center, not {}", self.replicas, self.nodes));
        }
        if self.partitions == 0 || self.clients == 0 {
            return Err("at least one partition and one client are needed".into());
        }
        if self.every < Duration::from_secs(1) {
            return Err("faults come a second apart at the least".into());
        }
        if !self.faults.is_empty() && self.duration < 2 * self.every {
            return Err(format!(
                "a run of {} s has no room for a fault: it needs twice the {} s between them",
                self.duration.as_secs(),
                self.every.as_secs()
            ));
        }
        let operations = self.operations();
        if operations > MOST_OPERATIONS {
            return Err(format!(
                "some {operations} operations would be recorded, and at most {MOST_OPERATIONS} are: fewer clients, longer pauses, or a shorter run"
            ));
        }
        if let Some(fault) = self.faults.iter().find(|fault| fault.needs_replicas() && self.replicas < 3) {
            return Err(format!("{} needs three replicas: with fewer, what one server alone has is lost with it", fault.name()));
        }
        if self.faults.contains(&Fault::Lose) && self.data_centers < 3 {
            return Err("lose needs three data centers, so that two go on".into());
        }
        if self.faults.contains(&Fault::Split) && !info.can.splits {
            return Err(format!("the partitions of protocol {} cannot be split (docs/splitting.md)", info.name));
        }
        if self.faults == [Fault::Move] && self.roomy().is_empty() {
            return Err(format!("there is nowhere to move to: {} nodes have {} replicas of each partition", self.nodes, self.replicas));
        }
        if !self.faults.is_empty() && self.course().is_empty() {
            return Err("none of these faults can come: cut and slow need two data centers, move more nodes than there are replicas".into());
        }
        Ok(info)
    }

    /// About as many operations of keys are made if each takes a millisecond.
    fn operations(&self) -> u64 {
        let clients = self.clients as u64 * u64::from(self.data_centers);
        clients.saturating_mul(self.duration.as_millis() as u64) / (self.pause_ms / 2 + 1)
    }

    /// The names of the data centers.
    fn names(&self) -> Vec<String> {
        NAMES[..usize::from(self.data_centers)].iter().map(|name| (*name).to_owned()).collect()
    }

    /// Whether the first data center has a node more, to which servers move.
    fn adds_a_node(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Join | Fault::Empty))
    }

    /// Data centers with more nodes than a partition has servers there.
    fn roomy(&self) -> Vec<usize> {
        let more = self.nodes > u16::from(self.replicas);
        (0..usize::from(self.data_centers)).filter(|dc| more || *dc == 0 && self.adds_a_node()).collect()
    }

    fn description(&self) -> Result<Description, String> {
        let mut keyspace = rheostat_cluster::nodes::keyspace(KEYSPACE, &self.protocol)?;
        (keyspace.replicas, keyspace.options) = (self.replicas, self.protocol_options.clone());
        let data_center = |(dc, name): (usize, String)| {
            let owned = |place: u16| (0..self.partitions).filter(|partition| partition % self.nodes == place).collect();
            let mut listed: Vec<ListedNode> =
                (0..self.nodes).map(|place| ListedNode { partitions: Some(owned(place)), ..ListedNode::default() }).collect();
            if dc == 0 && self.adds_a_node() {
                listed.push(ListedNode { added: true, ..ListedNode::default() });
            }
            DataCenter { name, listed, ..DataCenter::default() }
        };
        let mut description = Description {
            partitions: self.partitions,
            shards: 1,
            keyspaces: vec![keyspace],
            data_centers: self.names().into_iter().enumerate().map(data_center).collect(),
            emulation: Network { round_trip_ms: (self.data_centers > 1).then_some(10.0), ..Network::default() },
            ..Description::new("nemesis", &[])
        };
        description.console.faults = true;
        Ok(description)
    }

    /// An act of the course in words. Nodes are called as the description calls them.
    pub fn words(&self, act: &Act) -> String {
        let names = self.names();
        let node = act.node().map_or(String::new(), |node| format!("{}-{}", names[node.dc], node.place + 1));
        Words { act, data_centers: &names, node: &node }.to_string()
    }

    /// What goes wrong in the run.
    pub fn course(&self) -> Vec<course::Episode> {
        let nodes = vec![usize::from(self.nodes); usize::from(self.data_centers)];
        let (duration_ms, every_ms) = (self.duration.as_millis() as u64, self.every.as_millis() as u64);
        course::draw(&Drawn { seed: self.seed, duration_ms, every_ms, nodes: &nodes, roomy: &self.roomy(), faults: &self.faults })
    }
}

/// Starts the cluster, puts load on it, has everything go wrong that the seed draws, and checks what clients saw. `say` is told what happens, in lines.
///
/// # Errors
/// In words: there could be no run. What the run found wrong is in the report.
pub async fn run(options: &Options, mut say: impl FnMut(&str)) -> Result<Report, String> {
    let info = options.check()?;
    let (description, names) = (options.description()?, options.names());
    std::fs::create_dir_all(&options.folder).map_err(|error| format!("{}: {error}", options.folder.display()))?;
    let first = options.first_program.as_ref().unwrap_or(&options.program);
    let mut processes = Processes::start(&description, first, &options.folder).await?;
    processes.ready(options.patience).await?;
    processes.set_program(&options.program);
    let mut operator = Operator { processes, program: options.program.clone(), description, patience: options.patience, repeated: Vec::new() };
    let addresses = addresses(&operator, names.len());
    begin_counter(&addresses, options.patience).await?;
    say(&format!("{} nodes run and serve; {} clients", operator.processes.nodes.len(), (options.clients + 1) * names.len()));

    let world = World::new(names, addresses, Asked::of(&info, options.held_to), options.pause_ms, options.duration.as_millis() as u64);
    let world = Arc::new(world);
    let mut clients = start_clients(&world, options);
    let began = Instant::now();
    let (mut happened, mut came) = (Vec::new(), BTreeSet::new());
    for episode in options.course() {
        let at = began + Duration::from_millis(episode.at_ms);
        if at.max(Instant::now()) + options.every > began + options.duration {
            break;
        }
        tokio::time::sleep_until(at).await;
        world.told();
        let from_us = lock(&world.recorder).now_us();
        let acts: Vec<String> = episode.acts.iter().map(|(_, act)| options.words(act)).collect();
        for act in &acts {
            say(&format!("{:6.1} s  {act}", began.elapsed().as_secs_f64()));
        }
        if let Some((_, Act::Lose(dc))) = episode.acts.first() {
            // Sessions that have been there have let go of what may be lost before it is.
            world.left_alone.store(*dc, Ordering::Relaxed);
            tokio::time::sleep(LAST_WORDS).await;
            let _ = world.gone.set(Gone { dc: *dc, from_us });
        }
        came.extend(episode.acts.iter().map(|(_, act)| act.fault()));
        let done = operator.run(&episode).await;
        let repeated = std::mem::take(&mut operator.repeated);
        let told = world.told();
        happened.push(Happened { from_us, to_us: lock(&world.recorder).now_us(), acts, silence_ms: Vec::new(), repeated, told });
        if let Err(why) = done {
            say(&format!("{:6.1} s  FOUND: {why}", began.elapsed().as_secs_f64()));
            world.find(why);
            break;
        }
    }
    if lock(&world.findings).is_empty() {
        tokio::time::sleep_until(began + options.duration).await;
    }
    world.done.store(true, Ordering::Relaxed);
    let over = tokio::time::timeout(LAST_OPERATION, async {
        while let Some(ended) = clients.join_next().await {
            if let Err(why) = ended {
                world.find(format!("a client ended in panic: {why}"));
            }
        }
    });
    if over.await.is_err() {
        world.find(format!("a client's operation had no end after {} s, whatever its deadline", LAST_OPERATION.as_secs()));
        clients.shutdown().await;
    }
    say(&format!("{:6.1} s  the load is over; waiting until all agree", began.elapsed().as_secs_f64()));
    let missing: Vec<&str> = options.faults.iter().filter(|fault| !came.contains(fault)).map(|fault| fault.name()).collect();
    if !missing.is_empty() {
        say(&format!("          did not come: {}", missing.join(", ")));
    }
    let counter = settle(&mut operator, &world).await;
    operator.processes.end().await;
    let world = Arc::into_inner(world).ok_or("a client has not ended")?;
    judge(options, &info, world, happened, counter)
}

/// By data center: the addresses of its nodes.
fn addresses(operator: &Operator, data_centers: usize) -> Vec<Vec<String>> {
    let of = |dc: usize| {
        let name = &operator.description.data_centers[dc].name;
        let there = operator.processes.nodes.iter().filter(|node| node.config.data_center == *name);
        there.map(|node| node.address(node.ports.grpc)).collect()
    };
    (0..data_centers).map(of).collect()
}

/// Makes the counter, and waits until every data center has it.
async fn begin_counter(addresses: &[Vec<String>], patience: Duration) -> Result<(), String> {
    let until = Instant::now() + patience;
    loop {
        let done = async {
            let clients = one_of_each(addresses, &(0..addresses.len()).collect::<Vec<_>>()).await?;
            load::make_counter(&clients[0]).await?;
            load::check_counter(&clients, &Tally::default(), None, Duration::ZERO).await
        };
        match done.await {
            Ok(_) => return Ok(()),
            Err(why) if Instant::now() >= until => return Err(why),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// A client of a node in each of the data centers `there`.
async fn one_of_each(addresses: &[Vec<String>], there: &[usize]) -> Result<Vec<Client>, String> {
    let mut clients = Vec::new();
    for dc in there {
        let name = NAMES[*dc];
        let mut found = Err(format!("{name} has no node"));
        for address in &addresses[*dc] {
            found = world::connect(address, true).await.map_err(|error| format!("{name}: {error}"));
            if found.is_ok() {
                break;
            }
        }
        clients.push(found?);
    }
    Ok(clients)
}

fn start_clients(world: &Arc<World>, options: &Options) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    let seed = options.seed;
    for dc in 0..world.data_centers.len() {
        for number in 0..options.clients {
            let world = world.clone();
            let number = dc * options.clients + number;
            clients.spawn(async move { load::use_keys(&world, dc, number, seed).await });
        }
        let world = world.clone();
        clients.spawn(async move { load::use_counter(&world, dc, seed).await });
    }
    clients
}

/// Waits until all nodes serve and agree, and reads what they have. Returns the counter's value.
async fn settle(operator: &mut Operator, world: &World) -> Option<i64> {
    if let Err(why) = operator.ready().await {
        world.find(format!("in the end: {why}"));
    }
    let there = world.there();
    let clients = match one_of_each(&world.addresses, &there).await {
        Ok(clients) => clients,
        Err(why) => {
            world.find(format!("in the end: {why}"));
            return None;
        }
    };
    let keys = lock(&world.recorder).keys();
    match agreed(&clients, operator.patience, async |session| read_all(session, keys, &world.data_centers).await).await {
        Ok(finals) => {
            let mut recorder = lock(&world.recorder);
            // Clients of a data center that is gone find what another one has.
            let gone = world.gone.get().map(|gone| (&gone.dc, &finals[0]));
            for (dc, seen) in there.iter().zip(&finals).chain(gone) {
                seen.iter().enumerate().for_each(|(key, seen)| recorder.final_read(*dc, key, *seen));
            }
        }
        Err(why) => world.find(why),
    }
    if world.asked.siblings
        && let Err(why) = beside::settle(&clients, world, operator.patience).await
    {
        world.find(why);
    }
    let tally = lock(&world.tally).clone();
    load::check_counter(&clients, &tally, world.gone.get(), operator.patience).await.map_err(|why| world.find(why)).ok()
}

/// What `read` finds of every key in every data center, with sessions that have seen nothing, once all agree. By data center.
async fn agreed<T: PartialEq + Debug>(
    clients: &[Client],
    patience: Duration,
    read: impl AsyncFn(Session) -> Result<Vec<T>, String>,
) -> Result<Vec<Vec<T>>, String> {
    let until = Instant::now() + patience;
    loop {
        let (mut all, mut why) = (Vec::new(), String::new());
        for client in clients {
            match read(client.session(KEYSPACE)).await {
                Ok(seen) => all.push(seen),
                Err(error) => why = error,
            }
        }
        if all.len() == clients.len() {
            let Some(key) = (0..all[0].len()).find(|key| all.iter().any(|seen| seen[*key] != all[0][*key])) else { return Ok(all) };
            let seen: Vec<String> = all.iter().map(|seen| format!("{:?}", seen[key])).collect();
            why = format!("{} is {}", record::key_name(key), seen.join(", "));
        }
        if Instant::now() >= until {
            return Err(format!("the data centers do not agree {} s after the load: {why}", patience.as_secs()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn read_all(mut session: Session, keys: usize, names: &[String]) -> Result<Vec<Observation>, String> {
    let mut seen = Vec::new();
    for key in 0..keys {
        let read = session.get(record::key_name(key)).await.map_err(|error| format!("{}: {error}", record::key_name(key)))?;
        seen.push(record::observation(names, &read));
    }
    Ok(seen)
}

/// What was acknowledged in the last moments of a data center that is gone may have been done, if anybody else has seen it; and what was read there is told to nobody.
fn may_be_lost(history: &mut History, gone: Gone) {
    let last = |event: &&mut Event| usize::from(event.dc.0) == gone.dc && event.completed_us.is_none_or(|at| at >= gone.from_us);
    for event in history.events.iter_mut().filter(last) {
        match event.outcome {
            Outcome::Written(_) | Outcome::Changed { .. } => (event.outcome, event.completed_us) = (Outcome::Unknown, None),
            Outcome::Read(_) => event.outcome = Outcome::Failed,
            Outcome::Unknown | Outcome::Failed | Outcome::Adopted => {}
        }
    }
}

/// Checks what was recorded.
fn judge(options: &Options, info: &ProtocolInfo, world: World, mut happened: Vec<Happened>, counter: Option<i64>) -> Result<Report, String> {
    let tally = lock(&world.tally).clone();
    let gone = world.gone.get().copied();
    let (refused_sessions, moves) = (world.refused_sessions.load(Ordering::Relaxed), world.moves.load(Ordering::Relaxed));
    let recorder = world.recorder.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut findings = world.findings.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut history = recorder.builder.finish().map_err(|error| error.to_string())?;
    let counts = report::Counts::of(&history);
    if let Some(gone) = gone {
        may_be_lost(&mut history, gone);
    }
    for one in &mut happened {
        one.silence_ms = (0..world.data_centers.len()).map(|dc| report::silence_ms(&history, dc, one.from_us, one.to_us)).collect();
    }
    let asked = Asked::of(info, options.held_to);
    let promises = asked.promises();
    let promises = if history.finals.is_empty() { promises.before_the_end() } else { promises };
    let mut checked = match check_all(&history, &promises) {
        Ok(summary) => summary.to_string(),
        Err(violation) => {
            findings.push(violation.to_string());
            String::new()
        }
    };
    if asked.siblings {
        let record = world.beside.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        match beside::check(record, beside::quorums_meet(&options.protocol_options, options.data_centers), gone.is_some()) {
            Ok(words) => checked = format!("{}\n{words}", checked.trim_end()),
            Err(why) => findings.push(why),
        }
    }
    let file = options.folder.join("history.jsonl");
    if let Err(error) = std::fs::write(&file, lines(&history, options.held_to.unwrap_or(info.level))) {
        // A full disk is to hide nothing.
        findings.push(format!("the history is not kept: {}: {error}", file.display()));
    }
    let counter = Counter { answered: tally.answered.len() as u64, refused: tally.refused, value: counter };
    Ok(Report { data_centers: world.data_centers, counts, refused_sessions, moves, happened, counter, checked, findings, history: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            program: PathBuf::new(),
            first_program: None,
            folder: PathBuf::from("/no/such/folder"),
            protocol: "causal".into(),
            protocol_options: toml::Table::new(),
            held_to: None,
            data_centers: 1,
            nodes: 1,
            replicas: 1,
            partitions: 1,
            clients: 1,
            pause_ms: 1,
            duration: Duration::from_secs(10),
            every: Duration::from_secs(2),
            patience: Duration::from_secs(1),
            faults: Vec::new(),
            seed: 1,
        }
    }

    #[test]
    fn a_run_in_which_nothing_can_go_wrong_though_it_was_asked_for_is_refused() {
        let of = |data_centers: u8, faults: &[Fault]| Options { data_centers, faults: faults.to_vec(), ..options() }.check().map(drop);
        let refused = of(1, &[Fault::Cut, Fault::Slow, Fault::Move]);
        assert!(refused.is_err_and(|why| why.contains("cut and slow need two data centers")));
        for (data_centers, faults) in [(1, &[][..]), (2, &[Fault::Cut][..]), (1, &[Fault::Cut, Fault::Kill][..])] {
            assert_eq!(of(data_centers, faults), Ok(()), "{faults:?}");
        }
    }

    #[test]
    fn what_was_found_is_told_though_the_history_cannot_be_kept() {
        let info = registry::info("causal").unwrap();
        let options = options();
        let world = World::new(options.names(), vec![Vec::new()], Asked::of(&info, None), 1, 10_000);
        world.find("something".into());
        let report = judge(&options, &info, world, Vec::new(), None).unwrap();
        assert_eq!(report.findings[0], "something");
        assert!(report.findings[1].starts_with("the history is not kept: /no/such/folder/history.jsonl"), "{:?}", report.findings);
    }
}
