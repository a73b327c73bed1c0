//! `rheostat ctl dial`.

use crate::Failure;
use crate::connection::Node;
use crate::output::{self, say};
use crate::table::Table;
use clap::Args;
use rheostat_client::v1;
use rheostat_core::dial::Level;
use rheostat_core::notch::{AGES, AGES_MS, Share, Tally, Waits};
use rheostat_proto::notch::Gathered;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Arguments of `ctl dial`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Only this keyspace, by its name
    #[arg(short, long, value_name = "KEYSPACE")]
    keyspace: Option<String>,
    /// Only what clients of this data center read
    #[arg(long, value_name = "NAME")]
    data_center: Option<String>,
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    if let Some(name) = &arguments.data_center
        && !topology.data_centers.contains(name)
    {
        return Err(format!("there is no data center `{name}`; there are: {}", topology.data_centers.join(", ")));
    }
    let names: Vec<&str> = topology.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
    if let Some(name) = arguments.keyspace.as_deref()
        && !names.contains(&name)
    {
        return Err(format!("there is no keyspace `{name}`; there are: {}", names.join(", ")));
    }
    let (mut all, mut silent): (BTreeMap<String, Gathered>, Vec<String>) = Default::default();
    for node in nodes.iter().filter(|node| arguments.data_center.as_ref().is_none_or(|name| node.info.data_center == *name)) {
        match ask(node).await {
            Ok(answer) => {
                for one in &answer.keyspaces {
                    let gathered = all.entry(one.keyspace.clone()).or_default();
                    gathered.add(one).map_err(|why| format!("node {}: {why}", node.info.name))?;
                }
            }
            Err(error) => silent.push(format!("node {} does not answer, so what it sampled is missing: {error}", node.info.name)),
        }
    }
    let wanted = || names.iter().filter(|name| arguments.keyspace.as_ref().is_none_or(|wanted| wanted == *name));
    let shown: Vec<(&str, &Gathered)> = wanted().filter_map(|name| Some((*name, all.get(*name)?))).collect();
    if json {
        let keyspaces: Vec<Value> = shown.iter().map(|(name, gathered)| to_json(name, gathered)).collect();
        output::json(&json!({ "keyspaces": keyspaces, "missing": silent }));
    } else {
        for (name, gathered) in shown {
            output::text(&page(name, gathered, &all));
        }
        silent.iter().for_each(|line| say!("{line}"));
    }
    Ok(if silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn ask(node: &Node) -> Result<v1::NotchesResponse, rheostat_client::Error> {
    let client = node.client.as_ref().map_err(Clone::clone)?;
    Ok(client.admin().notches(client.request(v1::NotchesRequest::default())).await?.into_inner())
}

/// What is said of one keyspace; `all` is where the costs of levels that it does not serve are looked for.
fn page(name: &str, gathered: &Gathered, all: &BTreeMap<String, Gathered>) -> String {
    let own = gathered.level.map_or_else(String::new, |level| format!(" ({level})"));
    let mut page = match gathered.sample_reads {
        0 => return format!("keyspace {name}{own}: no reads are sampled\n"),
        1 => format!("keyspace {name}{own}: every read of one key is sampled\n"),
        every => format!("keyspace {name}{own}: one of {every} reads of one key is sampled\n"),
    };
    if gathered.tallies.is_empty() {
        page += "  none so far\n";
    }
    for ((service_level, _), (level, tally)) in &gathered.tallies {
        let under = if service_level.is_empty() { String::new() } else { format!("service level {service_level}: ") };
        page += &format!("  {under}{}\n", sentence((*level, tally), (name, gathered), all));
        if tally.failed > 0 {
            page += &format!("    {} more reads failed; nothing is compared\n", tally.failed);
        }
        if tally.unsettled > 0 {
            page += &format!("    of {} answers it is not known: what was written before them has not come within a minute\n", tally.unsettled);
        }
        page += &missed(*level, tally, gathered);
    }
    if gathered.dropped > 0 {
        page += &format!("  {} reads were not sampled, since too many waited to be settled\n", gathered.dropped);
    }
    if gathered.under_way > 0 {
        page += &format!("  {} sampled reads are not settled yet\n", gathered.under_way);
    }
    page
}

/// Such as *causal changed 0.02 % of reads against eventual, at +0.0 ms; strong would change 0.0004 % and cost +81 ms*.
fn sentence((level, tally): (Level, &Tally), (name, gathered): (&str, &Gathered), all: &BTreeMap<String, Gathered>) -> String {
    let mut parts = Vec::new();
    if level == Level::Eventual {
        if let Some(own) = gathered.level.filter(|_| tally.own.of > 0) {
            parts.push(format!("{own} would change {} {}", compared(tally.own), cost(own, tally.waits, name, gathered, all)));
        }
    } else {
        let at = tally.waits.mean_ms().map_or_else(String::new, |mean_ms| format!(", at +{mean_ms:.1} ms"));
        parts.push(format!("changed {} against eventual{at}", compared(tally.eventual)));
    }
    if level != Level::Strong {
        parts.push(match tally.strong.of {
            0 => "strong: nothing is settled yet".to_string(),
            _ => format!("strong would change {} {}", compared(tally.strong), cost(Level::Strong, tally.waits, name, gathered, all)),
        });
    }
    format!("{level}: {}", parts.join("; "))
}

/// What `level` would cost more than `waits`, as measured in this keyspace, else in the one where it was sampled most.
fn cost(level: Level, waits: Waits, name: &str, gathered: &Gathered, all: &BTreeMap<String, Gathered>) -> String {
    let of = |gathered: &Gathered| {
        let mut sum = Waits::default();
        gathered.tallies.values().filter(|(other, _)| *other == level).for_each(|(_, tally)| sum.add(tally.waits));
        sum
    };
    let (here, base_ms) = (of(gathered), waits.mean_ms().unwrap_or(0.0));
    if let Some(mean_ms) = here.mean_ms() {
        return format!("and cost {:+.1} ms", mean_ms - base_ms);
    }
    let elsewhere =
        all.iter().filter(|(other, _)| *other != name).map(|(other, gathered)| (other, of(gathered))).max_by_key(|(_, waits)| waits.count);
    match elsewhere.and_then(|(other, waits)| Some((other, waits.mean_ms()?))) {
        Some((other, mean_ms)) => format!("and cost {:+.1} ms, as measured in keyspace {other}", mean_ms - base_ms),
        None => "(its cost is not measured: no read at that level was sampled)".to_string(),
    }
}

fn compared(share: Share) -> String {
    let (low, high) = share.bounds();
    let between = match share.differ {
        0 => format!("below {} %", percent(high)),
        _ => format!("{} to {} %", percent(low), percent(high)),
    };
    format!("{} % of reads ({} of {}; with 95 % confidence {between})", percent(share.rate()), share.differ, share.of)
}

/// In percent, with two digits that count.
fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent <= 0.0 {
        return "0".to_string();
    }
    let digits = (1 - percent.log10().floor() as i32).clamp(0, 8) as usize;
    format!("{percent:.digits$}")
}

/// The chance that a read misses the key's last write, by the age of that write.
fn missed(level: Level, tally: &Tally, gathered: &Gathered) -> String {
    let mut table = Table::new(["last write, ms ago", "reads", "missed it", "95 % confidence", "predicted"]);
    for (index, share) in tally.ages.iter().enumerate().filter(|(_, share)| share.of > 0) {
        let (low, high) = share.bounds();
        let predicted = predicted(level, gathered, index).map_or("-".to_string(), |part| format!("{} %", percent(part)));
        table.row([
            interval(index),
            share.of.to_string(),
            format!("{} %", percent(share.rate())),
            format!("{} to {} %", percent(low), percent(high)),
            predicted,
        ]);
    }
    if table.is_empty() { String::new() } else { table.text(4) }
}

/// The same as it follows from how long writes took, if reads and writes are independent.
fn predicted(level: Level, gathered: &Gathered, age: usize) -> Option<f64> {
    let lags = if level == Level::Causal { &gathered.visible } else { &gathered.arrived };
    lags.missed(age)
}

fn interval(index: usize) -> String {
    let from = if index == 0 { 0 } else { AGES_MS[index - 1] };
    if index + 1 == AGES { format!("{from} and more") } else { format!("{from} to {}", AGES_MS[index]) }
}

fn to_json(name: &str, gathered: &Gathered) -> Value {
    let share = |share: Share| {
        let (low, high) = share.bounds();
        json!({ "of": share.of, "differ": share.differ, "low": low, "high": high })
    };
    let level = |((service_level, level), (of, tally)): (&(String, String), &(Level, Tally))| {
        let ages = tally.ages.iter().enumerate().filter(|(_, share)| share.of > 0).map(|(index, one)| {
            let mut row = share(*one);
            row["from_ms"] = json!(if index == 0 { 0 } else { AGES_MS[index - 1] });
            row["to_ms"] = json!(AGES_MS.get(index));
            row["predicted"] = json!(predicted(*of, gathered, index));
            row
        });
        json!({
            "level": level,
            "service_level": service_level,
            "reads": tally.reads,
            "failed": tally.failed,
            "unsettled": tally.unsettled,
            "waited_ms": { "mean": tally.waits.mean_ms(), "longest": tally.waits.longest_us as f64 / 1e3 },
            "eventual": share(tally.eventual),
            "own": share(tally.own),
            "strong": share(tally.strong),
            "missed_by_age": ages.collect::<Vec<_>>(),
        })
    };
    json!({
        "keyspace": name,
        "level": gathered.level.map(|level| level.to_string()),
        "sample_reads": gathered.sample_reads,
        "levels": gathered.tallies.iter().map(level).collect::<Vec<_>>(),
        "dropped": gathered.dropped,
        "under_way": gathered.under_way,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(of: u64, differ: u64) -> Share {
        Share { of, differ }
    }

    fn keyspace(level: Level, tallies: Vec<(&str, Level, Tally)>) -> Gathered {
        let tallies = tallies.into_iter().map(|(label, of, tally)| ((label.to_string(), of.to_string()), (of, tally))).collect();
        Gathered { level: Some(level), sample_reads: 1000, tallies, ..Gathered::default() }
    }

    fn waits(count: u64, mean_us: u64) -> Waits {
        Waits { count, sum_us: count * mean_us, longest_us: 2 * mean_us }
    }

    #[test]
    fn the_sentence_says_what_a_notch_changes_and_costs() {
        let causal = Tally { reads: 15_000, waits: waits(15_000, 20), eventual: share(15_000, 3), strong: share(10_000, 0), ..Tally::default() };
        let strong = Tally { reads: 10, waits: waits(10, 81_020), eventual: share(10, 5), ..Tally::default() };
        let mut all = BTreeMap::from([("posts".to_string(), keyspace(Level::Causal, vec![("", Level::Causal, causal.clone())]))]);
        let said = |all: &BTreeMap<String, Gathered>, name: &str, (level, tally): (Level, &Tally)| sentence((level, tally), (name, &all[name]), all);
        assert_eq!(
            said(&all, "posts", (Level::Causal, &causal)),
            "causal: changed 0.020 % of reads (3 of 15000; with 95 % confidence 0.0068 to 0.059 %) against eventual, at +0.0 ms; \
             strong would change 0 % of reads (0 of 10000; with 95 % confidence below 0.030 %) (its cost is not measured: no read at that level was sampled)"
        );
        all.insert("locks".into(), keyspace(Level::Strong, vec![("", Level::Strong, strong.clone())]));
        let with_cost = said(&all, "posts", (Level::Causal, &causal));
        assert!(with_cost.ends_with("and cost +81.0 ms, as measured in keyspace locks"), "{with_cost}");
        let top = said(&all, "locks", (Level::Strong, &strong));
        assert!(top.starts_with("strong: changed 50 % of reads") && top.ends_with("against eventual, at +81.0 ms"), "{top}");
        let eventual = Tally { reads: 8, waits: waits(8, 0), own: share(8, 2), ..Tally::default() };
        let below = said(&all, "posts", (Level::Eventual, &eventual));
        assert!(below.starts_with("eventual: causal would change 25 % of reads (2 of 8;"), "{below}");
        assert!(below.contains("and cost +0.0 ms; strong: nothing is settled yet"), "{below}");
    }

    #[test]
    fn a_page_tells_what_is_not_known_too() {
        let mut tally = Tally { reads: 5, failed: 2, unsettled: 3, strong: share(2, 1), ..Tally::default() };
        (tally.ages[0], tally.ages[AGES - 1]) = (share(1, 1), share(1, 0));
        let mut gathered = keyspace(Level::Eventual, vec![("checkout", Level::Eventual, tally)]);
        (gathered.arrived.0[4], gathered.arrived.0[0], gathered.dropped, gathered.under_way) = (1, 1, 4, 6);
        let all = BTreeMap::from([("plain".to_string(), gathered)]);
        let page = page("plain", &all["plain"], &all);
        for part in [
            "keyspace plain (eventual): one of 1000 reads",
            "service level checkout: eventual: strong would change 50 %",
            "2 more reads failed",
            "of 3 answers it is not known",
            "4 reads were not sampled",
            "6 sampled reads are not settled",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.iter().any(|row| row.starts_with(&["0", "to", "1", "1", "100", "%"]) && row.ends_with(&["75", "%"])), "{page}");
        assert!(rows.iter().any(|row| row.starts_with(&["10000", "and", "more", "1", "0", "%"]) && row.ends_with(&["0", "%"])), "{page}");
        let json = to_json("plain", &all["plain"]);
        assert_eq!(json["levels"][0]["missed_by_age"][0]["predicted"], 0.75);
        assert_eq!((json["levels"][0]["unsettled"].as_u64(), json["levels"][0]["strong"]["differ"].as_u64()), (Some(3), Some(1)));
        let off = Gathered { sample_reads: 0, ..Gathered::default() };
        assert!(super::page("x", &off, &all).contains("no reads are sampled"));
    }

    #[test]
    fn percents_have_two_digits_that_count() {
        for (part, text) in [(0.0, "0"), (1.0, "100"), (0.5, "50"), (0.0512, "5.1"), (0.000_204, "0.020"), (0.000_004, "0.00040"), (0.999, "100")] {
            assert_eq!(percent(part), text);
        }
    }
}
