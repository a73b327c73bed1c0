//! `rheostat ctl restore`.

mod writing;

use self::writing::{Targets, held, write};
use super::WALK;
use super::backup::{Progress, check};
use super::convergence::arrived;
use super::nearest::nearest_first;
use super::place::{self, Objects};
use crate::Failure;
use crate::connection::Node;
use crate::output::{self, say};
use clap::Args;
use rheostat_backup::archive::{Archive, MOST_KEYS, Plan, Replay, in_words};
use rheostat_backup::{Report, Store, open_records, verify};
use rheostat_client::backup::Imported;
use rheostat_client::{Client, Error, v1};
use rheostat_core::Timestamp;
use rheostat_core::export::Exported;
use rheostat_core::moment::Moment;
use rheostat_protocols::registry;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const EXAMPLES: &str = "\
Examples:
  rheostat ctl -a 10.0.1.5:7401 restore /backups/monday --dry-run        whether it can be restored there
  rheostat ctl -a 10.0.1.5:7401 restore /backups/monday                  all its keyspaces, into empty ones of the same names
  rheostat ctl restore /backups/monday --keyspace default=try            one of them, into another
  rheostat ctl restore /backups/monday /backups/tuesday                  a full backup, and what was written between the two
  rheostat ctl restore /backups/monday --overwrite                       over what is there; also after one that was interrupted
  rheostat ctl restore s3://backups/archive --to 2026-11-22T12:34:58.590Z    what was there at that moment, from an archive of `ctl archive`
docs/backup.md says what is promised. Restoring again is safe.";

/// Records that are written together at most, and their bytes; and how many such batches are under way.
const BATCH_KEYS: usize = 500;
const BATCH_BYTES: usize = 512 << 10;
const BATCHES: usize = 4;
/// Between two looks at what the data centers show.
const PAUSE: Duration = Duration::from_millis(200);

/// Arguments of `ctl restore`.
#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", place::HELP))]
pub struct Arguments {
    /// Where the backup is, a folder or s3://BUCKET/PREFIX; several: a full backup, then the incremental ones that follow it; or an archive
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
    /// Of an archive: the moment to put back, as milliseconds since 1970, a version, a date such as 2026-11-22T12:34:58.590Z, or a time ago such as -30s (ms, s or m)
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    to: Option<Moment>,
    /// Only this keyspace of the backup, into the one of the same name or, as A=B, into B; several times for several
    #[arg(short, long, value_name = "A[=B]")]
    keyspace: Vec<String>,
    /// The data center to write to [default: that of the first node that answers]; the others get it from there, and what it does not hold from one that does
    #[arg(long, value_name = "DATA-CENTER")]
    at: Option<String>,
    /// Write over what is in these keyspaces; keys that are not in the backup stay
    #[arg(long)]
    overwrite: bool,
    /// Change nothing: only check the backup, and whether it can be restored
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for nodes that do not answer, and then until every data center has everything, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
    #[command(flatten)]
    objects: Objects,
}

/// A keyspace of the backup, and where it goes.
struct Way {
    /// Its place in the manifest.
    place: usize,
    to: String,
}

/// Some keys at a time; `None`: those were all.
type Blocks = Box<dyn FnMut() -> Result<Option<Vec<Exported>>, Failure>>;

/// What is restored.
enum Source {
    /// A full backup, and incremental ones that follow it.
    Backups(Vec<(Arc<dyn Store>, Report)>),
    /// A moment of an archive, with what is read for each keyspace.
    Moment(Arc<dyn Store>, Timestamp, Vec<Plan>),
}

/// A keyspace of a [`Source`].
struct Offered {
    name: String,
    has_siblings: bool,
    keys: u64,
    bytes: u64,
}

impl Source {
    /// What there is, once it has been read and is whole.
    async fn open(arguments: &Arguments, nodes: &[Node]) -> Result<Source, Failure> {
        let stores = arguments.places.iter().map(|place| arguments.objects.open(place)).collect::<Result<Vec<_>, Failure>>()?;
        let mut archive = None;
        for store in &stores {
            archive = archive.or(Archive::look(&**store).map_err(|error| error.to_string())?);
        }
        let (Some(archive), [store, rest @ ..]) = (archive, &stores[..]) else {
            if arguments.to.is_some() {
                return Err(format!("{}: is no archive, so it has no other moment than its own; --to is for archives", arguments.places[0]));
            }
            let reports = check(&stores)?;
            whole(reports.iter().flat_map(|report| &report.faults))?;
            return Ok(Source::Backups(stores.into_iter().zip(reports).collect()));
        };
        if !rest.is_empty() {
            return Err("an archive is restored by itself".into());
        }
        let spans: Vec<String> = archive.spans().iter().map(|span| format!("from {} to {}", in_words(span.from), in_words(span.to))).collect();
        let words = if spans.is_empty() { "there is none yet".into() } else { spans.join(", and ") };
        let Some(to) = arguments.to else {
            return Err(format!("{}: is an archive; --to says which moment is put back ({words})", store.name()));
        };
        let to = match to {
            Moment::At(at) => at,
            Moment::Ago(_) => {
                let client = nodes.iter().find_map(|node| node.client.as_ref().ok()).ok_or("no node to ask")?;
                let status = client.admin().status(client.request(v1::StatusRequest {})).await;
                to.resolve(status.map_err(|status| Error::from(status).to_string())?.into_inner().physical_ms)
            }
        };
        let plans = (0..archive.settings.keyspaces.len()).filter(|place| {
            let name = &archive.settings.keyspaces[*place].name;
            arguments.keyspace.is_empty()
                || arguments.keyspace.iter().any(|pair| pair.split_once('=').map_or(pair.as_str(), |(from, _)| from) == name)
        });
        let plans = plans.map(|place| archive.plan(place, to)).collect::<Result<Vec<Plan>, String>>()?;
        if let Some(plan) = plans.first() {
            whole(&verify(&*store.within(&plan.base)).map_err(|error| error.to_string())?.faults)?;
        }
        Ok(Source::Moment(store.clone(), to, plans))
    }

    fn offered(&self) -> Vec<Offered> {
        match self {
            Source::Backups(all) => {
                let keyspaces = all.first().map_or(0, |(_, first)| first.manifest.keyspaces.len());
                let offered = |place: usize| {
                    let of = || all.iter().map(|(_, report)| &report.manifest.keyspaces[place]);
                    Offered {
                        name: all[0].1.manifest.keyspaces[place].name.clone(),
                        has_siblings: of().any(|one| one.values > one.keys),
                        keys: of().map(|one| one.keys).sum(),
                        bytes: of().map(|one| one.bytes).sum(),
                    }
                };
                (0..keyspaces).map(offered).collect()
            }
            Source::Moment(_, _, plans) => {
                let offered = |plan: &Plan| {
                    let one = plan.entry();
                    Offered { name: one.name.clone(), has_siblings: one.values > one.keys, keys: one.keys + plan.changes, bytes: one.bytes }
                };
                plans.iter().map(offered).collect()
            }
        }
    }

    /// Of an archive: as of when a keyspace's keys and counters are.
    fn as_of(&self, place: usize) -> Option<(Timestamp, Timestamp)> {
        let Source::Moment(_, at, plans) = self else { return None };
        let plan = plans.get(place)?;
        Some(if plan.is_followed { (*at, plan.counters_at) } else { (plan.base_at, plan.base_at) })
    }

    /// A keyspace's keys, once for each backup in their order.
    fn blocks(&self, place: usize) -> Result<Vec<Blocks>, Failure> {
        match self {
            Source::Backups(all) => {
                let one = |(store, report): &(Arc<dyn Store>, Report)| {
                    let entry = &report.manifest.keyspaces[place];
                    let path = store.path(&entry.file.name);
                    let mut reader = open_records(&**store, entry).map_err(|fault| format!("{path}: {fault}"))?;
                    Ok(Box::new(move || reader.next_block().map_err(|fault| format!("{path}: {fault}"))) as Blocks)
                };
                all.iter().map(one).collect()
            }
            Source::Moment(store, _, plans) => {
                let mut replay = Replay::new(store.clone(), plans[place].clone(), MOST_KEYS);
                Ok(vec![Box::new(move || replay.next_block().map_err(|error| error.to_string()))])
            }
        }
    }

    /// Reads what is read of an archive, so that nothing is written where something is damaged.
    fn check(&self, ways: &[Way]) -> Result<(), Failure> {
        let Source::Moment(_, at, plans) = self else { return Ok(()) };
        for way in ways {
            for mut blocks in self.blocks(way.place)? {
                while blocks().map_err(|why| format!("{why}; nothing was restored"))?.is_some() {}
            }
            let plan = &plans[way.place];
            let name = &plan.entry().name;
            let base = in_words(plan.base_at);
            match plan.is_followed {
                true => eprintln!(
                    "  {name}: as of {}, from the full backup of {base} and {} changes; counters as of {}",
                    in_words(*at),
                    plan.changes,
                    in_words(plan.counters_at)
                ),
                false => eprintln!("  {name}: as of {base}, the full backup before {}: the changes of this keyspace are not archived", in_words(*at)),
            }
        }
        Ok(())
    }
}

/// Errors: something is wrong, which is told.
fn whole<'a>(faults: impl IntoIterator<Item = &'a String>) -> Result<(), Failure> {
    let mut is_whole = true;
    for fault in faults {
        eprintln!("{fault}");
        is_whole = false;
    }
    if is_whole { Ok(()) } else { Err("the backup is not whole; nothing was restored".into()) }
}

/// A server's clock: this machine's may be another.
#[derive(Clone, Copy)]
struct Clock {
    said_ms: u64,
    at: Instant,
}

impl Clock {
    /// Errors: it cannot be asked.
    async fn of(client: &Client) -> Result<Clock, Failure> {
        let status = client.admin().status(client.request(v1::StatusRequest {})).await;
        Ok(Clock { said_ms: status.map_err(|status| Error::from(status).to_string())?.into_inner().physical_ms, at: Instant::now() })
    }

    fn now_ms(self) -> u64 {
        self.said_ms + self.at.elapsed().as_millis() as u64
    }
}

/// What a keyspace has come to.
struct Restored {
    from: String,
    to: String,
    written: Imported,
    /// Of what was written, keys that may have expired meanwhile.
    expiring: u64,
    /// Of an archive: as of when keys are, and counters.
    as_of: Option<(Timestamp, Timestamp)>,
    /// What the data centers show: their names, and how many keys.
    shown: Vec<(String, u64)>,
    /// Why that is not what was to be expected.
    wrong: Option<String>,
}

impl Restored {
    /// Compares with what is there: all of it, or more if it is not `alone`.
    fn look(&mut self, there: Shown, alone: bool) {
        let most = self.written.written;
        let keys = there.total;
        self.wrong = match there.agree {
            false => Some("the data centers do not show the same".into()),
            true if alone && !(most.saturating_sub(self.expiring)..=most).contains(&keys) => {
                Some(format!("{most} keys were written, and {keys} are there"))
            }
            true => None,
        };
        self.shown = there.keys;
    }
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    // What a data center shows that takes no part is nobody's matter.
    let absent = super::absent(nodes).await;
    let nodes: &[Node] = &nodes.iter().filter(|node| !absent.contains(&node.info.data_center)).map(Node::same).collect::<Vec<_>>();
    let source = Source::open(arguments, nodes).await?;
    let offered = source.offered();
    let ways = ways(&arguments.keyspace, &offered, topology)?;
    let at = arguments.at.as_ref().unwrap_or(&topology.data_center);
    if absent.contains(at) {
        return Err(format!("data center {at} takes no part: --at names another one"));
    }
    let clients = nearest_first(topology, nodes);
    let Some(first) = clients.iter().find(|client| client.topology().data_center == *at) else {
        return Err(format!("no node of data center {at} can be reached"));
    };
    for way in &ways {
        let there = shown(topology, nodes, &way.to).await?;
        if let Some((data_center, keys)) = there.keys.iter().find(|(_, keys)| *keys > 0).filter(|_| !arguments.overwrite) {
            return Err(format!(
                "keyspace {} has {keys} keys in data center {data_center}; --overwrite writes over what is there (also after a restore that was interrupted)",
                way.to
            ));
        }
    }
    source.check(&ways)?;
    let mut targets = Vec::new();
    for way in &ways {
        targets.push(Targets::find(&way.to, at, topology, &clients).await?);
    }
    if arguments.dry_run {
        return Ok(tell_dry(json, &offered, &ways));
    }
    let clock = Clock::of(first).await?;
    let began = Instant::now();
    let patience = Duration::from_secs(arguments.wait);
    let mut restored = Vec::new();
    for (way, targets) in ways.iter().zip(&targets) {
        restored.push(keyspace(arguments, &source, &offered[way.place].name, way, targets, (patience, clock)).await?);
    }
    let seconds = began.elapsed().as_secs_f64();
    // What is written is written, whoever cannot be asked now.
    let has_arrived = arrived(topology, nodes, patience).await.unwrap_or_else(|why| {
        eprintln!("{why}");
        false
    });
    let ends = Instant::now() + patience;
    for one in &mut restored {
        // What has arrived is shown when what it depends on has, too.
        loop {
            one.look(shown(topology, nodes, &one.to).await?, !arguments.overwrite && arguments.places.len() == 1);
            if one.wrong.is_none() || !has_arrived || Instant::now() >= ends {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    let is_right = has_arrived && restored.iter().all(|one| one.wrong.is_none());
    if json {
        let one = |one: &Restored| {
            let shown: serde_json::Map<String, Value> = one.shown.iter().map(|(name, keys)| (name.clone(), json!(keys))).collect();
            let Restored { from, to, written, wrong, .. } = one;
            let mut told = json!({ "from": from, "to": to, "written": written.written, "deleted": written.deleted, "keys": shown, "wrong": wrong });
            if let Some((keys, counters)) = one.as_of {
                told["as_of_ms"] = keys.millis().into();
                told["counters_as_of_ms"] = counters.millis().into();
            }
            told
        };
        let keyspaces: Vec<Value> = restored.iter().map(one).collect();
        output::json(&json!({ "arrived": has_arrived, "seconds": seconds, "keyspaces": keyspaces }));
    } else {
        for one in &restored {
            let shown: Vec<String> = one.shown.iter().map(|(name, keys)| format!("{name} {keys}")).collect();
            let absent = if one.written.deleted > 0 { format!(", {} deleted or expired", one.written.deleted) } else { String::new() };
            say!("keyspace {} into {}: {} keys{absent}; there are now: {}", one.from, one.to, one.written.written, shown.join(", "));
            one.wrong.iter().for_each(|why| say!("keyspace {}: {why}", one.to));
        }
        say!("restored in {seconds:.1} s");
        match has_arrived {
            true => say!("every data center has it"),
            false => say!("not every data center has it yet: rheostat ctl convergence waits for that"),
        }
    }
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Which keyspaces go where. Errors: one of them is not there, or cannot take what it is to.
fn ways(asked: &[String], offered: &[Offered], topology: &v1::TopologyResponse) -> Result<Vec<Way>, Failure> {
    let there = |to: &str| topology.keyspaces.iter().find(|keyspace| keyspace.name == to || keyspace.number.to_string() == to);
    let mut ways: Vec<Way> = Vec::new();
    let pairs: Vec<(String, String)> = match asked.is_empty() {
        true => offered.iter().map(|one| (one.name.clone(), one.name.clone())).collect(),
        false => asked.iter().map(|pair| pair.split_once('=').map_or((pair.clone(), pair.clone()), |(from, to)| (from.into(), to.into()))).collect(),
    };
    for (from, to) in pairs {
        let place = offered.iter().position(|one| one.name == from).ok_or_else(|| format!("the backup has no keyspace `{from}`"))?;
        let keyspace = there(&to).ok_or_else(|| format!("the cluster has no keyspace `{to}`; --keyspace {from}=OTHER restores into another one"))?;
        let takes_siblings = registry::info(&keyspace.protocol).is_some_and(|protocol| protocol.siblings);
        if offered[place].has_siblings && !takes_siblings {
            return Err(format!("keyspace {from} has values side by side, and in {to}, of protocol {}, a key has one value", keyspace.protocol));
        }
        if ways.iter().any(|way| way.to == keyspace.name) {
            return Err(format!("two keyspaces into {}", keyspace.name));
        }
        ways.push(Way { place, to: keyspace.name.clone() });
    }
    Ok(ways)
}

fn tell_dry(json: bool, offered: &[Offered], ways: &[Way]) -> ExitCode {
    if json {
        let one = |way: &Way| {
            let Offered { name, keys, bytes, .. } = &offered[way.place];
            json!({ "from": name, "to": way.to, "keys": keys, "bytes": bytes })
        };
        output::json(&json!({ "dry_run": true, "keyspaces": ways.iter().map(one).collect::<Vec<Value>>() }));
    } else {
        for way in ways {
            let Offered { name, keys, bytes, .. } = &offered[way.place];
            say!("keyspace {name} into {}: {keys} keys, {:.1} MB", way.to, *bytes as f64 / 1e6);
        }
        say!("The backup is whole, and can be restored. Nothing was changed.");
    }
    ExitCode::SUCCESS
}

/// Writes a keyspace of each backup, in their order.
async fn keyspace(
    arguments: &Arguments,
    source: &Source,
    from: &str,
    way: &Way,
    targets: &Targets,
    (patience, clock): (Duration, Clock),
) -> Result<Restored, Failure> {
    let mut restored = Restored {
        from: from.into(),
        to: way.to.clone(),
        written: Imported::default(),
        expiring: 0,
        as_of: source.as_of(way.place),
        shown: Vec::new(),
        wrong: None,
    };
    // Nothing need be said of what has expired where nothing was.
    let skips = !arguments.overwrite && arguments.places.len() == 1;
    for blocks in source.blocks(way.place)? {
        file(blocks, &mut restored, targets, (patience, clock, skips)).await?;
    }
    Ok(restored)
}

async fn file(
    mut blocks: Blocks,
    restored: &mut Restored,
    targets: &Targets,
    (patience, clock, skips): (Duration, Clock, bool),
) -> Result<(), Failure> {
    let mut progress = Progress::new(&restored.to);
    let keyspace: Arc<str> = restored.to.as_str().into();
    let mut under_way: JoinSet<Result<Imported, Error>> = JoinSet::new();
    // For each data center that is written to, and what it weighs.
    let mut batches: Vec<(Vec<Exported>, usize)> = vec![(Vec::new(), 0); targets.len()];
    let (mut bytes, mut keys) = (0_u64, 0_u64);
    let (mut block, mut sent) = (Vec::new().into_iter(), 0);
    loop {
        let next: Option<Exported> = match block.next() {
            Some(one) => Some(one),
            None => match blocks()? {
                Some(records) => {
                    block = records.into_iter();
                    continue;
                }
                None => None,
            },
        };
        let ended = next.is_none();
        if let Some(mut one) = next {
            restored.expiring += u64::from(one.reads.iter().any(|read| read.expires_ms > 0));
            if skips {
                one.reads.retain(|read| read.expires_ms == 0 || read.expires_ms > clock.now_ms());
                if one.reads.is_empty() {
                    restored.written.deleted += 1;
                    continue;
                }
            }
            let more = one.key.len() + one.reads.iter().map(|read| read.value.as_ref().map_or(0, |value| value.len()) + 32).sum::<usize>();
            keys += 1;
            bytes += more as u64;
            let (batch, weight) = &mut batches[targets.of(&one.key)];
            *weight += more;
            batch.push(one);
        }
        for (place, (batch, weight)) in batches.iter_mut().enumerate() {
            if batch.is_empty() || !ended && batch.len() < BATCH_KEYS && *weight < BATCH_BYTES {
                continue;
            }
            let (keys, keyspace) = (std::mem::take(batch), keyspace.clone());
            *weight = 0;
            sent += 1;
            let mut clients = targets.clients(place).to_vec();
            let first = sent % clients.len();
            clients.rotate_left(first);
            under_way.spawn(async move { write(&clients, &keyspace, keys, (patience, clock)).await });
        }
        while under_way.len() >= BATCHES || ended && !under_way.is_empty() {
            let Some(done) = under_way.join_next().await else { break };
            let done = done.map_err(|error| error.to_string())?;
            let done = done.map_err(|error| format!("keyspace {keyspace}: {error}; restoring again with --overwrite goes on from here"))?;
            restored.written.written += done.written;
            restored.written.deleted += done.deleted;
            progress.tell(keys, bytes);
        }
        if ended {
            progress.end(keys, bytes);
            return Ok(());
        }
    }
}

/// What the data centers show of a keyspace.
struct Shown {
    keys: Vec<(String, u64)>,
    /// How many keys there are: each partition as one shows it that has it.
    total: u64,
    /// Those that hold a partition show the same of it.
    agree: bool,
}

async fn shown(topology: &v1::TopologyResponse, nodes: &[Node], keyspace: &str) -> Result<Shown, Failure> {
    let (mut keys, mut digests) = (Vec::new(), Vec::new());
    for (data_center, node) in super::one_of_each(topology, nodes) {
        // One that is away gets it when it is back.
        let Some(client) = node.ok().and_then(|node| node.client.as_ref().ok()) else { continue };
        let mut request = client.request(v1::DigestRequest { keyspace: keyspace.into(), dial: None });
        request.set_timeout(WALK);
        let answer = client.admin().digest(request).await.map_err(|status| format!("data center {data_center}: {}", Error::from(status)))?;
        let partitions = answer.into_inner().partitions;
        let there: Arc<[Client]> = vec![client.clone()].into();
        keys.push((data_center.to_string(), partitions.iter().map(|one| one.keys).sum::<u64>()));
        digests.push((there, partitions));
    }
    let of = |partition: u32| digests.iter().filter_map(move |(_, one)| one.get(partition as usize)).filter(|one| one.keys > 0);
    let most = |partition: u32| of(partition).map(|one| one.keys).max().unwrap_or(0);
    let same = |partition: u32| {
        let mut held = of(partition);
        let first = held.next();
        held.all(|other| Some(other) == first)
    };
    let mut agree = (0..topology.partitions).all(same);
    for (client, digest) in &digests {
        // Who shows nothing of what others show need not hold it.
        let shows_none = |partition: &u32| digest.get(*partition as usize).is_none_or(|one| one.keys == 0) && most(*partition) > 0;
        let silent: Vec<u32> = (0..topology.partitions).filter(shows_none).collect();
        agree &= held(client, keyspace, silent, false).await.is_empty();
    }
    Ok(Shown { keys, total: (0..topology.partitions).map(most).sum(), agree })
}
