//! `rheostat ctl convergence`.
//!
//! The claim is: everything written before the question is in every data center. It is checked by noting every partition server's clock first, and
//! then waiting until each of its peers has received its updates up to there. Then the content is compared, since what was received may have been lost. Where several servers of a partition keep their data together, what their stores
//! have takes the place of clocks and links.

use super::content::Writer;
use super::{WALK, absent, behind_ms, bits, content, is_group, one_of_each, status_of_all};
use crate::Failure;
use crate::connection::Node;
use crate::date::span;
use crate::output::{self, say};
use crate::paint::Paint;
use crate::table::Table;
use clap::Args;
use rheostat_client::v1;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Arguments of `ctl convergence`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// How long to wait, in seconds; 0 looks once
    #[arg(short, long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    wait: u64,
    /// Also show for each data center the number of keys and a digest of all keys and versions: equal only when nothing is being written
    #[arg(long)]
    digest: bool,
    /// Look at links only: what the data centers have is not compared, which walks over all data
    #[arg(long)]
    links: bool,
    /// Give each data center what it has lost and others have
    #[arg(long, conflicts_with = "links")]
    repair: bool,
}

/// A link: data center of the writer, data center of the receiver, keyspace, partition.
type Link = (String, String, String, u32);

/// What a link lacks.
struct Lag {
    /// The writer's clock when the question was asked.
    target: u64,
    received: u64,
    behind_ms: Option<u64>,
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let asked_at = Instant::now();
    let ends = asked_at + Duration::from_secs(arguments.wait);
    let Members { nodes, left, targets } = members(topology, nodes).await?;
    let nodes = &nodes[..];
    let lags = wait_for(topology, nodes, (&targets, &left[..]), ends).await?;
    let converged = lags.values().all(Lag::has_all);
    let waited_ms = asked_at.elapsed().as_millis() as u64;
    if !json {
        tell(&lags, converged, waited_ms);
    }
    let topology = &v1::TopologyResponse { data_centers: left, ..topology.clone() };
    let content = if arguments.links { None } else { Some(content_of(arguments, (topology, nodes), &targets, ends).await?) };
    let digests = if arguments.digest { Some(digests(topology, nodes).await?) } else { None };
    let same = content.as_ref().is_none_or(|content| content.differences.is_empty()) && digests.as_ref().is_none_or(|digests| digests.same);
    if json {
        let link = |((from, to, keyspace, partition), lag): (&Link, &Lag)| json!({ "from": from, "to": to, "keyspace": keyspace, "partition": partition, "behind_ms": lag.behind_ms, "has_all": lag.has_all() });
        output::json(&json!({
            "converged": converged, "waited_ms": waited_ms, "links": lags.iter().map(link).collect::<Vec<_>>(),
            "differences": content.as_ref().map(|content| content::as_json(&content.differences)),
            "restored": content.as_ref().and_then(|content| content.restored), "digests": digests.map(|digests| digests.as_json()),
        }));
    } else {
        content.iter().for_each(Content::tell);
        digests.iter().for_each(Digests::tell);
    }
    Ok(if converged && same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The data centers that take part: nobody waits for what is given up.
struct Members {
    nodes: Vec<Node>,
    /// Their names.
    left: Vec<String>,
    /// Up to where each of them has written.
    targets: BTreeMap<Writer, u64>,
}

/// Errors: a node of them that does not answer.
async fn members(topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<Members, Failure> {
    let lost = absent(nodes).await;
    let nodes: Vec<Node> = nodes.iter().filter(|node| !lost.contains(&node.info.data_center)).map(Node::same).collect();
    let left: Vec<String> = topology.data_centers.iter().filter(|name| !lost.contains(*name)).cloned().collect();
    let mut targets = targets(topology, &statuses(&nodes).await?);
    targets.retain(|(writer, ..), _| !lost.contains(writer));
    Ok(Members { nodes, left, targets })
}

/// What each link between `data_centers` lacks of `targets`, once none lacks anything or at `ends`. Errors: a node that does not answer.
async fn wait_for(
    topology: &v1::TopologyResponse,
    nodes: &[Node],
    (targets, data_centers): (&BTreeMap<Writer, u64>, &[String]),
    ends: Instant,
) -> Result<BTreeMap<Link, Lag>, Failure> {
    loop {
        let now = statuses(nodes).await?;
        let (lags, links) = (look(topology, targets, &now), links(topology, data_centers, targets, &now));
        let there = links.iter().filter(|link| lags.contains_key(*link)).count();
        if there != links.len() {
            return Err(format!("{} links should be there, {there} are: partition servers do not answer", links.len()));
        }
        if lags.values().all(Lag::has_all) || Instant::now() + PAUSE >= ends {
            return Ok(lags);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether everything that has been written so far is in every data center, now or within `wait`. Errors: a node that does not answer.
pub(super) async fn arrived(topology: &v1::TopologyResponse, nodes: &[Node], wait: Duration) -> Result<bool, Failure> {
    let Members { nodes, left, targets } = members(topology, nodes).await?;
    let lags = wait_for(topology, &nodes, (&targets, &left[..]), Instant::now() + wait).await?;
    Ok(lags.values().all(Lag::has_all))
}

impl Lag {
    fn has_all(&self) -> bool {
        self.received >= self.target
    }
}

/// Prints what each link has brought.
fn tell(lags: &BTreeMap<Link, Lag>, converged: bool, waited_ms: u64) {
    let mut table = Table::new(["from", "to", "keyspace", "partition", "behind by", "has all"]);
    for ((from, to, keyspace, partition), lag) in lags {
        let (behind, has_all) = (lag.behind_ms.map_or("-".to_string(), span), if lag.has_all() { "yes" } else { "no" });
        table.row([from.clone(), to.clone(), keyspace.clone(), partition.to_string(), behind, has_all.to_string()]);
    }
    table.print(0);
    let (waited, paint) = (span(waited_ms), Paint::of_output());
    match converged {
        true => say!("{}: after {waited}, everything written before the question is in every data center", paint.good("converged")),
        false => say!(
            "{} after {waited}: see the links without `yes`; rheostat ctl status says what is wrong, --wait waits longer",
            paint.grave("not converged")
        ),
    }
}

/// What was found of the data centers' content.
struct Content {
    differences: Vec<content::Difference>,
    /// How many versions were given to data centers that lacked them, where that was asked for.
    restored: Option<u64>,
}

impl Content {
    fn tell(&self) {
        content::print(&self.differences);
        if let Some(restored) = self.restored {
            say!("{restored} versions were given to data centers that lacked them");
        }
    }
}

/// Compares what the data centers have, until it is the same or `ends` has come, and repairs it if that is asked for.
async fn content_of(
    arguments: &Arguments,
    (topology, nodes): (&v1::TopologyResponse, &[Node]),
    targets: &BTreeMap<Writer, u64>,
    ends: Instant,
) -> Result<Content, Failure> {
    let mut restored = 0;
    let differences = loop {
        let differences = match content::compare(topology, nodes, targets).await {
            Ok(differences) => differences,
            Err(why) if Instant::now() + PAUSE >= ends => return Err(why),
            // Some server may be busy getting back what it has lost.
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let repaired = if arguments.repair { content::repair(topology, nodes, &differences).await? } else { 0 };
        restored += repaired;
        if differences.is_empty() || repaired == 0 && Instant::now() + PAUSE >= ends {
            break differences;
        }
        tokio::time::sleep(PAUSE).await;
    };
    Ok(Content { differences, restored: arguments.repair.then_some(restored) })
}

/// The status of every node. Errors: a node that does not answer, since without it nothing can be claimed.
async fn statuses(nodes: &[Node]) -> Result<Vec<v1::StatusResponse>, Failure> {
    let answers = status_of_all(nodes).await;
    nodes.iter().zip(answers).map(|(node, answer)| answer.map_err(|error| format!("node {} does not answer: {error}", node.info.name))).collect()
}

fn data_center(status: &v1::StatusResponse) -> String {
    status.topology.as_ref().map_or_else(String::new, |topology| topology.data_center.clone())
}

/// Whether servers of this keyspace keep their data together, without links.
fn is_grouped(topology: &v1::TopologyResponse, keyspace: &str) -> bool {
    topology.keyspaces.iter().any(|other| other.name == keyspace && is_group(other))
}

/// Up to where each data center has written: a single server's clock; of a group, the furthest that a server anywhere has in its store.
fn targets(topology: &v1::TopologyResponse, statuses: &[v1::StatusResponse]) -> BTreeMap<Writer, u64> {
    let mut targets = BTreeMap::new();
    for status in statuses {
        for replica in &status.replicas {
            if !is_grouped(topology, &replica.keyspace) {
                targets.insert((data_center(status), replica.keyspace.clone(), replica.partition), bits(replica.clock.as_ref()));
                continue;
            }
            for (writer, stable) in topology.data_centers.iter().zip(&replica.stable) {
                let target = targets.entry((writer.clone(), replica.keyspace.clone(), replica.partition)).or_default();
                *target = (*target).max(bits(Some(stable)));
            }
        }
    }
    targets
}

/// The links that there are to be between `data_centers`: of a group, and of a server that has failed, all; else as the servers say themselves, since not every data center need hold every partition.
fn links(
    topology: &v1::TopologyResponse,
    data_centers: &[String],
    targets: &BTreeMap<Writer, u64>,
    statuses: &[v1::StatusResponse],
) -> BTreeSet<Link> {
    let mut links = BTreeSet::new();
    let mut add = |from: &str, to: &str, keyspace: &str, partition: u32| {
        if from != to && data_centers.iter().any(|dc| dc == to) {
            links.insert((from.to_owned(), to.to_owned(), keyspace.to_owned(), partition));
        }
    };
    for (from, keyspace, partition) in targets.keys().filter(|(_, keyspace, _)| is_grouped(topology, keyspace)) {
        data_centers.iter().for_each(|to| add(from, to, keyspace, *partition));
    }
    for status in statuses {
        let here = data_center(status);
        for replica in status.replicas.iter().filter(|replica| !is_grouped(topology, &replica.keyspace)) {
            replica.links.iter().for_each(|link| add(&here, &link.data_center, &replica.keyspace, replica.partition));
            if !replica.failed.is_empty() && replica.links.is_empty() {
                data_centers.iter().for_each(|to| add(&here, to, &replica.keyspace, replica.partition));
            }
        }
    }
    links
}

/// What each data center has of what the others have written. Of a group, what one of its servers there has is there: the others follow.
fn look(topology: &v1::TopologyResponse, targets: &BTreeMap<Writer, u64>, statuses: &[v1::StatusResponse]) -> BTreeMap<Link, Lag> {
    let mut lags: BTreeMap<Link, Lag> = BTreeMap::new();
    for status in statuses {
        let here = data_center(status);
        for replica in &status.replicas {
            let received: Vec<(&String, Option<&v1::Timestamp>)> = match is_grouped(topology, &replica.keyspace) {
                false => replica.links.iter().map(|link| (&link.data_center, link.received.as_ref())).collect(),
                true => topology.data_centers.iter().zip(replica.stable.iter().map(Some)).filter(|(writer, _)| **writer != here).collect(),
            };
            for (from, at) in received {
                let writer = (from.clone(), replica.keyspace.clone(), replica.partition);
                let Some(target) = targets.get(&writer) else { continue };
                let lag = Lag { target: *target, received: bits(at), behind_ms: behind_ms(status.physical_ms, at) };
                let link = (from.clone(), here.clone(), replica.keyspace.clone(), replica.partition);
                if lags.get(&link).is_none_or(|other| other.received < lag.received) {
                    lags.insert(link, lag);
                }
            }
        }
    }
    lags
}

/// What every data center shows.
struct Digests {
    /// Keyspace, data center, number of keys, digest.
    rows: Vec<(String, String, u64, u64)>,
    same: bool,
}

impl Digests {
    fn tell(&self) {
        let mut table = Table::new(["keyspace", "data center", "keys", "digest"]);
        for (keyspace, data_center, keys, digest) in &self.rows {
            table.row([keyspace.clone(), data_center.clone(), keys.to_string(), format!("{digest:016x}")]);
        }
        say!();
        table.print(0);
        say!("{}", if self.same { "every data center shows the same" } else { "the data centers do not show the same" });
    }

    fn as_json(&self) -> Value {
        let row = |(keyspace, data_center, keys, digest): &(String, String, u64, u64)| json!({ "keyspace": keyspace, "data_center": data_center, "keys": keys, "digest": format!("{digest:016x}") });
        json!({ "same": self.same, "data_centers": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

async fn digests(topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<Digests, Failure> {
    let (mut same, mut rows) = (true, Vec::new());
    for keyspace in &topology.keyspaces {
        let mut first: Option<Vec<v1::PartitionDigest>> = None;
        for (data_center, node) in one_of_each(topology, nodes) {
            let client = node.and_then(|node| node.client.as_ref().map_err(ToString::to_string));
            let client = client.map_err(|why| format!("data center {data_center}: {why}"))?;
            let mut request = client.request(v1::DigestRequest { keyspace: keyspace.name.clone(), dial: None });
            request.set_timeout(WALK);
            let answer = client.admin().digest(request).await;
            let answer = answer.map_err(|status| format!("data center {data_center}: {}", rheostat_client::Error::from(status)))?.into_inner();
            let (keys, digest) = answer.partitions.iter().fold((0, 0), |(keys, digest), one| (keys + one.keys, digest ^ one.digest));
            rows.push((keyspace.name.clone(), data_center.to_string(), keys, digest));
            same &= *first.get_or_insert_with(|| answer.partitions.clone()) == answer.partitions;
        }
    }
    Ok(Digests { rows, same })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a node of `dc` says of partition 0, of which it has heard the data centers `linked` up to 7.
    fn status(dc: &str, linked: &[&str], failed: &str) -> v1::StatusResponse {
        let at = |millis| Some(v1::Timestamp { millis, counter: 0 });
        let link = |from: &&str| v1::Link { data_center: (*from).into(), received: at(7), ..v1::Link::default() };
        let replica = v1::Replica {
            keyspace: "k".into(),
            clock: at(7),
            links: linked.iter().map(link).collect(),
            failed: failed.into(),
            ..v1::Replica::default()
        };
        let topology = Some(v1::TopologyResponse { data_center: dc.into(), ..v1::TopologyResponse::default() });
        v1::StatusResponse { topology, replicas: vec![replica], ..v1::StatusResponse::default() }
    }

    #[test]
    fn no_link_is_missed_where_a_data_center_does_not_hold_a_partition() {
        let topology = v1::TopologyResponse::default();
        let names = ["us", "eu", "asia"].map(String::from);
        let missed = |statuses: &[v1::StatusResponse]| {
            let targets = targets(&topology, statuses);
            let lags = look(&topology, &targets, statuses);
            links(&topology, &names, &targets, statuses).into_iter().filter(|link| !lags.contains_key(link)).count()
        };
        let all = [status("us", &["eu", "asia"], ""), status("eu", &["us", "asia"], ""), status("asia", &["us", "eu"], "")];
        assert_eq!(missed(&all), 0);
        assert_eq!(missed(&all[..2]), 2, "both have nobody in asia");
        let placed = [status("us", &["eu"], ""), status("eu", &["us"], ""), status("asia", &[], "")];
        assert_eq!(missed(&placed), 0);
        assert_eq!(missed(&[status("us", &[], ""), status("eu", &[], "")]), 0, "one holds it alone");
        let failed = [status("us", &["eu"], ""), status("eu", &["us"], ""), status("asia", &[], "a disk")];
        assert!(missed(&failed) > 0);
    }
}
