//! How commands reach a cluster.

use crate::Failure;
use clap::Args;
use rheostat_client::{Client, Error, Options, Tls, v1};
use rheostat_cluster::ports::DEFAULT_BASE_PORT;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinSet;

/// How to reach a cluster.
#[derive(Args, Debug, Clone)]
pub struct Connection {
    /// gRPC address of a node, host:port; several are tried in order. [default: the demo's]
    #[arg(short, long, value_name = "HOST:PORT", value_delimiter = ',', env = "RHEOSTAT_ADDRESS")]
    address: Vec<String>,
    /// The user whose password it is; without, the cluster's own
    #[arg(long, env = "RHEOSTAT_USER", requires = "password", value_name = "NAME")]
    user: Option<String>,
    /// The cluster's password, or the user's
    #[arg(long, env = "RHEOSTAT_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Speak TLS, and check the servers' certificates against this authority's (PEM)
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// The name in the servers' certificates, where it is not that of the address
    #[arg(long, value_name = "NAME", requires = "authority")]
    server_name: Option<String>,
    /// How long an operation may take, in milliseconds
    #[arg(long, value_name = "MS", default_value = "5000", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    deadline_ms: u64,
}

/// One node of the cluster.
pub struct Node {
    /// What the cluster says of it.
    pub info: v1::Node,
    /// The connection to it.
    pub client: Result<Client, Error>,
}

impl Node {
    /// The same node, by the same connection.
    pub fn same(&self) -> Node {
        Node { info: self.info.clone(), client: self.client.clone() }
    }
}

impl Connection {
    /// The same, but at `address`.
    pub fn at(&self, address: &str) -> Connection {
        Connection { address: vec![address.to_string()], ..self.clone() }
    }

    /// The same, but at the first of `addresses` that answers.
    pub fn at_any(&self, addresses: Vec<String>) -> Connection {
        Connection { address: addresses, ..self.clone() }
    }

    /// What the arguments say, as options of the client.
    pub fn options(&self) -> Result<Options, Failure> {
        let addresses = match self.address.is_empty() {
            true => (0..3).map(|index| format!("127.0.0.1:{}", DEFAULT_BASE_PORT + 10 * index + 1)).collect(),
            false => self.address.clone(),
        };
        let tls = match &self.authority {
            None => None,
            Some(file) => {
                let authority_pem = std::fs::read_to_string(file).map_err(|error| format!("{}: cannot be read: {error}", file.display()))?;
                Some(Tls { authority_pem, domain: self.server_name.clone() })
            }
        };
        Ok(Options {
            user: self.user.clone(),
            password: self.password.clone(),
            tls,
            deadline: Duration::from_millis(self.deadline_ms),
            // The nodes say what is too large for them.
            max_message_bytes: usize::MAX,
            ..Options::new(addresses)
        })
    }

    /// Connects to the first address that answers.
    pub async fn client(&self) -> Result<Client, Failure> {
        Client::connect_with(self.options()?).await.map_err(|error| self.cannot_connect(&error))
    }

    /// Why there is no connection, and what to do.
    fn cannot_connect(&self, error: &Error) -> Failure {
        let next = match (error, self.address.is_empty()) {
            (Error::Unreachable(_), true) => "; these are the demo's addresses: `rheostat demo` starts it, -a HOST:PORT names another cluster",
            (Error::Unreachable(_), false) => {
                "; -a takes a gRPC address, `listen.grpc` of a node's configuration, and --authority where that speaks TLS"
            }
            _ => "",
        };
        format!("cannot connect: {}{next}", plain(error))
    }

    /// Connects to every node of the cluster: those at the given addresses, and those that they speak of. In the order of the topology.
    pub async fn nodes(&self) -> Result<(v1::TopologyResponse, Vec<Node>), Failure> {
        let options = self.options()?;
        let first = Client::connect_with(options.clone()).await.map_err(|error| self.cannot_connect(&error))?;
        let topology = first.topology().clone();
        let mut clients = vec![first];
        // A given address may lead to a node where the address that the cluster knows does not.
        for given in dial(&options, options.addresses.clone()).await.into_iter().flatten() {
            let known = clients.iter().any(|client| client.topology().node == given.topology().node);
            if !known && given.topology().cluster == topology.cluster {
                clients.push(given);
            }
        }
        let mut nodes = Vec::new();
        let missing: Vec<&v1::Node> = topology.nodes.iter().filter(|node| clients.iter().all(|client| client.topology().node != node.name)).collect();
        let mut dialled = dial(&options, missing.iter().map(|node| node.grpc.clone()).collect()).await.into_iter();
        for info in &topology.nodes {
            let client = match clients.iter().find(|client| client.topology().node == info.name) {
                Some(client) => Ok(client.clone()),
                None => dialled.next().unwrap_or_else(|| Err(Error::Unreachable("not asked".into()))),
            };
            nodes.push(Node { info: info.clone(), client });
        }
        Ok((topology, nodes))
    }
}

/// An error of a connection without the layers that repeat each other: `10.0.0.5:7401: Connection refused (os error 111)`.
pub fn plain(error: &Error) -> String {
    let text = error.to_string();
    let layers = ["unreachable", "transport error", "tcp connect error"];
    text.split(": ").filter(|part| !layers.contains(part)).collect::<Vec<_>>().join(": ")
}

/// Connects to each of `addresses` at the same time.
async fn dial(options: &Options, addresses: Vec<String>) -> Vec<Result<Client, Error>> {
    let mut results: Vec<Result<Client, Error>> = addresses.iter().map(|_| Err(Error::Unreachable("its gRPC address is not known".into()))).collect();
    let mut dialling = JoinSet::new();
    for (index, address) in addresses.into_iter().enumerate().filter(|(_, address)| !address.is_empty()) {
        let options = Options { addresses: vec![address], ..options.clone() };
        dialling.spawn(async move { (index, Client::connect_with(options).await) });
    }
    while let Some(done) = dialling.join_next().await {
        if let Ok((index, client)) = done {
            results[index] = client;
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_connection_says_it_once() {
        let error = Error::Unreachable(
            "127.0.0.1:1: unreachable: transport error: tcp connect error: tcp connect error: refused; 127.0.0.1:2: unreachable: none".into(),
        );
        assert_eq!(plain(&error), "127.0.0.1:1: refused; 127.0.0.1:2: none");
        assert!(plain(&Error::Refused("a: b".into())).ends_with("a: b"));
    }
}
