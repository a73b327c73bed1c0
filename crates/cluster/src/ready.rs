//! Whether the nodes of a cluster serve.

use crate::description::Description;
use crate::nodes::Planned;
use rheostat_client::{Client, Options, Tls, v1};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tonic::Code;

/// How long one question to a node may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// Between two questions how far a node is.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// How often it is told how far it is.
const TELL: Duration = Duration::from_secs(5);

/// Where the password is looked for of which a cluster file has the digest only.
const PASSWORD: &str = "RHEOSTAT_PASSWORD";

/// How clients reach a cluster, but for the address.
///
/// # Errors
/// In words: the authority's certificate cannot be read, or the password is not said.
pub fn options(description: &Description) -> Result<Options, String> {
    let tls = match &description.security.tls {
        None => None,
        Some(files) => {
            let authority_pem =
                std::fs::read_to_string(&files.authority).map_err(|error| format!("{}: cannot be read: {error}", files.authority.display()))?;
            Some(Tls { authority_pem, domain: None })
        }
    };
    let password = match &description.security.password {
        None if description.security.password_sha256.is_some() => {
            let said = std::env::var(PASSWORD).ok().filter(|password| !password.is_empty());
            Some(said.ok_or_else(|| format!("the cluster file has the password's digest only: say the password in {PASSWORD}"))?)
        }
        password => password.as_ref().map(|password| password.0.clone()),
    };
    Ok(Options { password, tls, deadline: DEADLINE, connect_timeout: DEADLINE, ..Options::default() })
}

/// What each of `nodes` says of itself, asked at the same time.
pub async fn statuses(options: &Options, nodes: &[Planned]) -> Vec<Result<v1::StatusResponse, String>> {
    let mut asking = JoinSet::new();
    for (index, node) in nodes.iter().enumerate() {
        let options = Options { addresses: vec![node.address(node.ports.grpc)], ..options.clone() };
        asking.spawn(async move { (index, status(options).await) });
    }
    let mut answers: Vec<Result<v1::StatusResponse, String>> = nodes.iter().map(|_| Err("no answer".to_owned())).collect();
    while let Some(done) = asking.join_next().await {
        if let Ok((index, answer)) = done {
            answers[index] = answer;
        }
    }
    answers
}

async fn status(options: Options) -> Result<v1::StatusResponse, String> {
    let client = Client::connect_with(options).await.map_err(|error| error.to_string())?;
    let answer = client.admin().status(client.request(v1::StatusRequest {})).await;
    answer.map(|answer| answer.into_inner()).map_err(|error| error.message().to_owned())
}

/// Asks the node of `client` to prepare a split into `partitions`, until it has; `told` hears every few seconds how far it is. `None`: it does not know of that.
///
/// # Errors
/// In words: it cannot, does not answer, or gets no further for `patience`.
pub async fn prepare_split(
    client: &Client,
    partitions: u16,
    patience: Duration,
    mut told: impl FnMut(&v1::PrepareSplitResponse),
) -> Result<Option<v1::PrepareSplitResponse>, String> {
    let (mut last, mut since, mut heard) = (v1::PrepareSplitResponse::default(), Instant::now(), Instant::now());
    loop {
        let request = v1::PrepareSplitRequest { partitions: partitions.into() };
        let answer = match client.admin().prepare_split(client.request(request)).await {
            Err(status) if status.code() == Code::Unimplemented => return Ok(None),
            Err(status) => return Err(status.message().to_owned()),
            Ok(answer) => answer.into_inner(),
        };
        if answer.done {
            return Ok(Some(answer));
        }
        if answer != last {
            if heard.elapsed() >= TELL {
                told(&answer);
                heard = Instant::now();
            }
            (last, since) = (answer, Instant::now());
        }
        if since.elapsed() >= patience {
            return Err(format!("its split is being prepared, and has got no further for {} s", patience.as_secs()));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// What each node still lacks before the cluster serves; `None` where nothing: it answers, is connected with those others that it `needs`, by its name and theirs, and the groups that its servers
/// belong to have a leader; with `alone`, those of their data center.
pub fn lacks(
    nodes: &[Planned],
    statuses: &[Result<v1::StatusResponse, String>],
    needs: impl Fn(&str, &str) -> bool,
    alone: bool,
) -> Vec<Option<String>> {
    let leaders: BTreeSet<Group> =
        statuses.iter().flatten().flat_map(|status| groups(status).filter(|(_, leads)| *leads).map(|(group, _)| group)).collect();
    let lack = |(node, status): (&Planned, &Result<v1::StatusResponse, String>)| {
        let status = match status {
            Ok(status) => status,
            Err(why) => return Some(why.clone()),
        };
        let who = status.topology.as_ref().map(|topology| (topology.cluster.as_str(), topology.node.as_str()));
        if who != Some((node.config.cluster.as_str(), node.config.node.as_str())) {
            let (cluster, name) = who.unwrap_or(("?", "?"));
            return Some(format!("node {name} of cluster {cluster} answers at its address"));
        }
        if let Some(failed) = status.replicas.iter().find(|replica| !replica.failed.is_empty()) {
            return Some(format!("partition {} of {}: {}", failed.partition, failed.keyspace, failed.failed));
        }
        let needed = |peer: &&v1::Peer| needs(&node.config.node, &peer.node);
        if let Some(peer) =
            status.peers.iter().filter(needed).find(|peer| !peer.connected && status.lost.iter().all(|lost| lost.data_center != peer.data_center))
        {
            return Some(format!("not connected with {}", peer.node));
        }
        let is_asked = |group: &Group| !alone || !group.2.is_empty();
        let headless = groups(status).find(|(group, _)| is_asked(group) && !leaders.contains(group));
        headless.map(|((keyspace, partition, _), _)| format!("partition {partition} of {keyspace} has no leader"))
    };
    nodes.iter().zip(statuses).map(lack).collect()
}

/// Servers that keep a partition's data together: keyspace, partition, and data center where each has its own.
type Group = (String, u32, String);

/// The groups with a leader of the servers of the node that says `status`, and whether its server leads each. A protocol that has none (`staged`) says so by not
/// speaking of one.
fn groups(status: &v1::StatusResponse) -> impl Iterator<Item = (Group, bool)> {
    let topology = status.topology.as_ref();
    status.replicas.iter().filter_map(move |replica| {
        let topology = topology?;
        let keyspace = topology.keyspaces.iter().find(|keyspace| keyspace.name == replica.keyspace)?;
        let place = match keyspace.span() {
            v1::Span::DataCenter => topology.data_center.clone(),
            v1::Span::Everywhere => String::new(),
            _ => return None,
        };
        let leader = replica.gauges.iter().find(|gauge| gauge.name == "leader")?;
        Some(((replica.keyspace.clone(), replica.partition, place), leader.value == 1.0))
    })
}
