//! Waiting until all see the same.

use crate::recorder::key_name;
use crate::support::PATIENCE;
use rheostat_client::{Client, Error, Read};
use std::time::{Duration, Instant};

/// Reads the first `keys` keys at every one of `clients` with fresh sessions until all agree.
pub async fn converged(clients: &[Client], keys: usize) -> Vec<Vec<Read>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut seen = Vec::new();
        for client in clients {
            let read = client.session("default").read_transaction((0..keys).map(key_name)).await;
            seen.push(read.map(|many| many.reads));
        }
        let values =
            |reads: &Result<Vec<Read>, Error>| reads.as_ref().ok().map(|reads| reads.iter().map(|read| read.value.clone()).collect::<Vec<_>>());
        if values(&seen[0]).is_some() && seen.iter().all(|reads| values(reads) == values(&seen[0])) {
            return seen.into_iter().map(Result::unwrap).collect();
        }
        assert!(Instant::now() < until, "they do not agree: {seen:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
