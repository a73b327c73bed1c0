//! Runs seeds without the `rheostat` command, which takes long to build.
//!
//! `seeds [--seconds N] NAME FIRST COUNT ...`, each three words one batch: NAME is a protocol, perhaps with `+counters`, `+` and a profile, or `!` and a planted bug or `!all`. Prints seeds and
//! events per second of each, and stops with the first broken promise or, of each batch, after N seconds; for planted bugs, the first seed that catches each.

use rheostat_sim::batch::{self, BatchOptions, Summary, run_seed};
use std::time::Instant;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let limit = arguments.iter().position(|word| word == "--seconds").and_then(|place| arguments.get(place + 1)?.parse::<f64>().ok());
    let arguments = if limit.is_some() { &arguments[2..] } else { &arguments[..] };
    for batch in arguments.chunks(3) {
        let [name, first, count] = batch else { return Err("usage: seeds PROTOCOL[+counters] FIRST COUNT ...".into()) };
        let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{text} is not a number"));
        let (first, count) = (number(first)?, number(count)?);
        let (name, bugs) = name.split_once('!').map_or((name.as_str(), None), |(name, bugs)| (name, Some(bugs)));
        let mut words = name.split('+');
        let (protocol, words): (String, Vec<&str>) = (words.next().unwrap_or_default().to_owned(), words.collect());
        let profile = words.iter().find(|word| **word != "counters").map(|word| (*word).to_owned());
        let options =
            BatchOptions { protocol, options: toml::Table::new(), counters: words.contains(&"counters"), profile, planted: None, verify: false };
        for bug in bugs.map_or(Ok(Vec::new()), |bugs| batch::bugs(&options.protocol, bugs))? {
            let caught = batch::catch(&options, bug, first, count)?;
            let by = caught.by.map_or_else(|| "-".to_owned(), |(seed, promise)| format!("{seed} {promise}"));
            println!("{} {bug} {by} {}", options.protocol, caught.seeds);
        }
        if bugs.is_some() {
            continue;
        }
        let (began, mut summary) = (Instant::now(), Summary::default());
        for seed in first..first + count {
            if limit.is_some_and(|seconds| began.elapsed().as_secs_f64() >= seconds) {
                break;
            }
            run_seed(&options, seed, &mut summary)?;
            if let Some(found) = summary.found.first() {
                return Err(format!("{}: {}: {}", options.replay(found.seed), found.failure.promise, found.failure.text));
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let rate = |count: u64| count as f64 / seconds;
        println!(
            "{name}: {} seeds in {seconds:.2} s: {:.1} seeds, {:.0} events, {:.1} operations a second; {:.0} virtual hours an hour",
            summary.seeds,
            rate(summary.seeds),
            rate(summary.events),
            rate(summary.operations),
            summary.virtual_us as f64 / 1e6 / seconds
        );
    }
    Ok(())
}
