//! What this node has counted since its start. A page that asks again and again makes courses of it.

use super::Console;
use crate::status::{FailureKind, Histogram, OperationKind, ServiceLevelStatus, ServiceLevelTally, ShardStatus, level_index};
use rheostat_core::dial::Level;
use serde_json::{Map, Value, json};

impl Console {
    /// What `GET /api/time` answers. Histograms count by powers of two, see [`Histogram`].
    pub(super) async fn time(&self) -> Value {
        let status = self.router.status().await;
        let sum = |of: &dyn Fn(&ShardStatus) -> u64| status.shards.iter().map(of).sum::<u64>();
        let by_level = |of: fn(&ShardStatus) -> &[Histogram]| -> Map<String, Value> {
            let level = |level: Level| {
                let mut all = Histogram::default();
                status.shards.iter().for_each(|shard| all.add(&of(shard)[level_index(level)]));
                (level.name().to_owned(), json!(all.buckets))
            };
            Level::WORDS.into_iter().map(level).collect()
        };
        let operations = OperationKind::ALL.map(|kind| (kind.name().to_owned(), json!(sum(&|shard| shard.counters.operations[kind as usize]))));
        let failures = FailureKind::ALL.map(|kind| (kind.name().to_owned(), json!(sum(&|shard| shard.counters.failures[kind as usize]))));
        let reads = Level::WORDS.map(|level| (level.name().to_owned(), json!(sum(&|shard| shard.counters.reads[level_index(level)]))));
        let tally = |tally: &ServiceLevelTally| {
            let entries = tally.entries.iter().map(|(number, aim, held)| json!({ "entry": number, "aim": aim, "held": held }));
            json!({ "entries": entries.collect::<Vec<_>>(), "missed": tally.missed })
        };
        let used = status.service_levels.iter().filter(|level| level.reads.is_used() || level.writes.is_used());
        let level = |level: &ServiceLevelStatus| json!({ "name": level.name, "reads": tally(&level.reads), "writes": tally(&level.writes) });
        json!({
            "service_levels": used.map(level).collect::<Vec<_>>(),
            "at_ms": status.physical_ms, "uptime_ms": status.uptime_ms, "connections": status.connections, "memory_bytes": status.memory_bytes,
            "operations": Map::from_iter(operations), "failures": Map::from_iter(failures), "reads": Map::from_iter(reads),
            "latency_us": by_level(|shard| &shard.counters.latency_us), "staleness_ms": by_level(|shard| &shard.counters.staleness_ms),
        })
    }
}
