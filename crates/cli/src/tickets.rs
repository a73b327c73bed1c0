//! `rheostat demo --story tickets`.

use crate::Failure;
use crate::output::{self, say};
use rheostat_bench::Report;
use rheostat_bench::target::resp::RespTarget;
use rheostat_bench::tickets::{self, BoxOffice, Scene, TicketsOptions};
use std::time::{SystemTime, UNIX_EPOCH};

/// The keyspace of the tickets.
const KEYSPACE: &str = "default";

/// Tells the story on a cluster of at least two data centers that has just been started; `ports` has the RESP and the gRPC port of each region's node. Errors: what the story meets.
pub async fn tell(regions: &[String], ports: &[(u16, u16)]) -> Result<(), Failure> {
    let offices = regions.iter().zip(ports).map(|(region, (resp, grpc))| BoxOffice {
        target: RespTarget { keyspace: Some(KEYSPACE.to_string()), ..RespTarget::new(region, format!("127.0.0.1:{}", resp)) },
        grpc: format!("127.0.0.1:{}", grpc),
    });
    let run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    let options = TicketsOptions::new(offices.collect(), run);
    say!(
        "{} tickets are sold in {} at the same time, twice:\n\
         - weak: a counter that every data center changes at once. The seller looks at it, and takes one if some are left.\n\
         - bounded: a counter that is never below 0. The seller takes one, and the counter says whether that was possible.\n\
         When {} % are sold, {} is cut off from the others for {:.0} s.\n",
        options.tickets,
        regions.join(", "),
        options.cut_at_percent,
        regions[regions.len() - 1],
        options.cut_for.as_secs_f64()
    );
    say!("Below: tickets sold, and how many are left as {} see it.\n", regions.join("/"));
    let report = tickets::run(&options, scene).await.map_err(|error| error.to_string())?;
    say!();
    output::text(&report.text());
    Ok(())
}

fn scene(scene: &Scene) {
    match scene {
        Scene::Progress { at, kinds: [weak, bounded] } => {
            let kind = |(sold, left): &(Vec<u64>, Vec<Option<i64>>)| {
                let left: Vec<String> = left.iter().map(|value| value.map_or("?".to_string(), |value| value.to_string())).collect();
                format!("{:>5} sold, left {:<18}", sold.iter().sum::<u64>(), left.join("/"))
            };
            say!("{:>6.1} s   weak {}   bounded {}", at.as_secs_f64(), kind(weak), kind(bounded).trim_end());
        }
        Scene::Cut(name) => say!("           --- {name} is cut off ---"),
        Scene::Healed(name) => say!("           --- {name} is connected again ---"),
    }
}
