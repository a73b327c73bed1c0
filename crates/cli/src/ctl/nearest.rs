//! Whom to ask first.

use super::Node;
use rheostat_client::Client;
use rheostat_proto::v1;

/// The nodes that answer, those of the nearest data center first.
pub(super) fn nearest_first(topology: &v1::TopologyResponse, nodes: &[Node]) -> Vec<Client> {
    let mut clients: Vec<Client> = nodes.iter().filter_map(|node| node.client.clone().ok()).collect();
    clients.sort_by_key(|client| client.topology().data_center != topology.data_center);
    clients
}
