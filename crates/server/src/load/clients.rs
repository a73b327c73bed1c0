//! Who is connected over RESP, and what each waits for.

use crate::shard::mailbox::Control;
use crate::shared::Shared;
use rheostat_core::dial::Level;
use rheostat_core::ids::KeyspaceId;
use tokio::sync::oneshot;

/// One connection.
#[derive(Clone, Default, Debug)]
pub(crate) struct ClientInfo {
    pub(crate) id: u64,
    pub(crate) address: String,
    /// The beginning of the name that it gave itself.
    pub(crate) name: Vec<u8>,
    pub(crate) user: String,
    /// It has shown a password, or none is needed.
    pub(crate) authenticated: bool,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) level: Option<Level>,
    pub(crate) service_level: Option<String>,
    /// What it says of its library: the name and the version.
    pub(crate) library: (Vec<u8>, Vec<u8>),
    pub(crate) age_ms: u64,
    /// Since bytes last came or went.
    pub(crate) idle_ms: u64,
    /// Empty before the first.
    pub(crate) last_command: &'static str,
    pub(crate) pending: Option<Pending>,
    /// Bytes that have come and not been looked at, and bytes of replies that have not left.
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
}

/// What a connection waits for.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) what: &'static str,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) key_bytes: usize,
    pub(crate) requests: u64,
    pub(crate) for_ms: u64,
    /// If it has waited for some time.
    pub(crate) waits_for: Option<String>,
}

/// At most `most` connections of the node, those first that wait, the longest first, then by their number; and how many there are.
pub(crate) async fn list(shared: &Shared, most: usize) -> (Vec<ClientInfo>, usize) {
    let asked: Vec<_> = shared
        .shards
        .iter()
        .map(|handle| {
            let (sender, receiver) = oneshot::channel();
            handle.control(Control::Run(Box::new(move |shard| {
                let shard = shard.borrow();
                let now = shard.now();
                let count = shard.connections.len();
                let mut clients: Vec<ClientInfo> =
                    shard.connections.values().filter_map(|connection| connection.client(now, &shard.shared.load)).collect();
                order(&mut clients, most);
                // Whoever asked may have gone.
                let _ = sender.send((clients, count));
            })));
            receiver
        })
        .collect();
    let (mut clients, mut count) = (Vec::new(), 0);
    for answer in asked {
        let (of_shard, in_shard) = answer.await.unwrap_or_default();
        clients.extend(of_shard);
        count += in_shard;
    }
    order(&mut clients, most);
    (clients, count)
}

fn order(clients: &mut Vec<ClientInfo>, most: usize) {
    clients.sort_by_key(|client| (std::cmp::Reverse(client.pending.as_ref().map(|pending| pending.for_ms)), client.id));
    clients.truncate(most);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_longest_come_first() {
        let waits = |for_ms| Pending { what: "GET", key: None, key_bytes: 0, requests: 1, for_ms, waits_for: None };
        let client = |id, pending| ClientInfo { id, pending, ..ClientInfo::default() };
        let mut clients = vec![client(1, None), client(2, Some(waits(5))), client(3, None), client(4, Some(waits(90)))];
        order(&mut clients, 3);
        assert_eq!(clients.iter().map(|client| client.id).collect::<Vec<_>>(), [4, 2, 1]);
    }
}
