//! A cluster in this process: its nodes side by side on loopback.

use crate::description::Description;
use crate::ports::Ports;
use rheostat_server::node::{Listeners, Node, StartError};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long nodes that have started are given to connect with each other.
const LONGEST_MEETING: Duration = Duration::from_secs(5);

/// A cluster that runs in this process.
pub struct InProcess {
    nodes: Vec<Node>,
    /// The ports of each node, in the order of the description.
    pub ports: Vec<Ports>,
    /// The port that something else listens at, because of which free ones were taken.
    pub in_use: Option<u16>,
}

impl InProcess {
    /// Starts the nodes of `description` with their data in folders of `data_dir`, at `wanted` ports, or at free ones if one of them is in use or none
    /// are wanted. Hosts are ignored: all listen on loopback. They serve and are connected with each other when it returns.
    ///
    /// # Errors
    /// In words for the user. Nothing is left running.
    pub async fn start(description: &Description, data_dir: &Path, wanted: Option<&[Ports]>) -> Result<InProcess, String> {
        let count = description.data_centers.iter().map(|data_center| data_center.size()).sum();
        let free = || listen(&vec![Ports::default(); count]).map_err(|error| error.to_string());
        let mut in_use = None;
        let listeners = match wanted.map(listen) {
            Some(Ok(listeners)) => listeners,
            Some(Err(StartError::Listen(address, error))) if error.kind() == ErrorKind::AddrInUse => {
                in_use = Some(address.port());
                free()?
            }
            Some(Err(error)) => return Err(error.to_string()),
            None => free()?,
        };
        let ports: Vec<Ports> = listeners.iter().map(|listeners| Ports::of(&listeners.addresses())).collect();
        let planned = description.nodes(Some(&ports)).map_err(|error| error.to_string())?;
        let mut cluster = InProcess { nodes: Vec::new(), ports, in_use };
        // At the same time, since each asks the others before it serves.
        let mut starting = JoinSet::new();
        for (index, (planned, listeners)) in planned.into_iter().zip(listeners).enumerate() {
            let mut config = planned.config;
            let name = config.node.clone();
            config.data_dir = config.data_dir.map(|_| data_dir.join(&name));
            starting.spawn(async move { (index, name, Node::start_with(config, listeners).await) });
        }
        let mut started = starting.join_all().await;
        started.sort_by_key(|(index, ..)| *index);
        let mut failure = None;
        for (_, name, node) in started {
            match node {
                Ok(node) => cluster.nodes.push(node),
                Err(error) => failure = failure.or(Some(format!("node {name}: {error}"))),
            }
        }
        match failure {
            None => {
                // One that does not come about in that time is no reason not to serve.
                let _ = tokio::time::timeout(LONGEST_MEETING, cluster.meet()).await;
                Ok(cluster)
            }
            Some(failure) => {
                cluster.end().await;
                Err(failure)
            }
        }
    }

    /// Its nodes, in the order of the description.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Waits until each node is connected with all others, and so has their keys: before that it refuses tokens that they have signed.
    async fn meet(&self) {
        for node in &self.nodes {
            while !node.router().status().await.peers.iter().all(|peer| peer.connected && peer.accepted) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Ends all nodes at the same time, since each waits for what is under way.
    pub async fn end(self) {
        let mut ending = JoinSet::new();
        for node in self.nodes {
            ending.spawn(node.shutdown());
        }
        ending.join_all().await;
    }
}

/// Binds the ports of each node; 0 is any free one.
fn listen(ports: &[Ports]) -> Result<Vec<Listeners>, StartError> {
    ports.iter().map(|ports| Listeners::bind(&ports.at(Ipv4Addr::LOCALHOST.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_noticed() {
        let held = listen(&[Ports::default()]).unwrap();
        let resp = Ports::of(&held[0].addresses()).resp;
        assert!(matches!(listen(&[Ports { resp, ..Ports::default() }]), Err(StartError::Listen(..))));
    }
}
