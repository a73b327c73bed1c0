//! From a file's text to an experiment that makes sense, or to the line that does not.

use super::points::Fault;
use super::*;
use rheostat_core::dial::Level;
use rheostat_core::sla::ServiceLevel;
use rheostat_protocols::registry;
use std::collections::BTreeSet;
use std::ops::Range;

/// Most data centers of a cluster.
const DATA_CENTERS: usize = 16;
/// Most partition servers of a cluster, over all data centers.
const SERVERS: usize = 512;
/// Most clients of an experiment.
const CLIENTS: u64 = 10_000;
/// Longest time of any kind, in milliseconds.
pub(super) const LONGEST_MS: f64 = 3_600_000.0;
/// Most slices of the measured time.
const SLICES: u64 = 1_000;
/// Most rows of one size of an experiment.
const ROWS: usize = 10_000;
/// Most keys of all partitions together that are listed before they are drawn from.
const LISTED: u64 = 1_000_000;

/// The experiment that `text` describes; `file` is its name in errors.
///
/// # Errors
/// Anything unknown, missing, of the wrong kind, out of range or without a counterpart; in words, with file and line.
pub fn parse(file: &str, text: &str) -> Result<Experiment, String> {
    let at = |span: Option<Range<usize>>, what: &str| match span {
        Some(span) => format!("{file}:{}: {what}", text[..span.start.min(text.len())].matches('\n').count() + 1),
        None => format!("{file}: {what}"),
    };
    let experiment: Experiment = toml::from_str(text).map_err(|error| at(error.span(), error.message()))?;
    let table: toml::Table = toml::from_str(text).map_err(|error| at(error.span(), error.message()))?;
    check(&experiment, table).map_err(|(span, what)| at(span.or_else(|| section(text, &what)), &what))?;
    Ok(experiment)
}

/// Where the section stands that a message without a place begins with, as `cluster: …` does.
fn section(text: &str, what: &str) -> Option<Range<usize>> {
    let name = what.split([':', '.']).next()?;
    let start = text
        .find(&format!("[{name}]"))
        .or_else(|| text.find(&format!("[[{name}]]")))
        .or_else(|| text.find(&format!("\n{name} =")).map(|at| at + 1))?;
    Some(start..start)
}

fn fault<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err((None, what.into()))
}

fn fault_at<S, T>(place: &Spanned<S>, what: impl Into<String>) -> Result<T, Fault> {
    Err((Some(place.span()), what.into()))
}

fn range(name: &str, value: f64, low: f64, high: f64) -> Result<(), Fault> {
    if (low..=high).contains(&value) { Ok(()) } else { fault(format!("{name}: {value} is not between {low} and {high}")) }
}

fn check(experiment: &Experiment, table: toml::Table) -> Result<(), Fault> {
    let name = &experiment.name;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')) {
        return fault(format!("name: `{name}` may only have small letters, digits, `-` and `.`"));
    }
    if experiment.grounds.is_empty() {
        return fault("grounds: name at least one of virtual, processes");
    }
    if experiment.contender.is_empty() {
        return fault("contender: there is none");
    }
    experiment.contender.iter().try_for_each(|contender| check_contender(experiment, contender))?;
    for (index, sweep) in experiment.sweep.iter().enumerate() {
        let other = experiment.sweep[..index].iter().find(|other| other.get_ref().name == sweep.get_ref().name);
        if sweep.get_ref().name == TIME {
            return fault_at(sweep, format!("sweep `{TIME}`: that is the axis of what is measured in slices; take another name"));
        }
        if other.is_some() || sweep.get_ref().quick.is_empty() || sweep.get_ref().full.is_empty() {
            return fault_at(sweep, format!("sweep `{}`: has no values, or its name is there twice", sweep.get_ref().name));
        }
    }
    for (name, size) in [("quick", &experiment.quick), ("full", &experiment.full)] {
        for (what, ms) in [("settle_ms", size.settle_ms), ("warm_ms", size.warm_ms), ("measure_ms", size.measure_ms)] {
            range(&format!("{name}.{what}"), ms as f64, 0.0, LONGEST_MS)?;
        }
        range(&format!("{name}.measure_ms"), size.measure_ms as f64, 1.0, LONGEST_MS)?;
        if let Some(slice_ms) = size.slice_ms {
            range(&format!("{name}.slice_ms"), slice_ms as f64, size.measure_ms.div_ceil(SLICES) as f64, size.measure_ms as f64)?;
        }
        range(&format!("{name}.repetitions"), size.repetitions.into(), 1.0, 1000.0)?;
    }
    let (mut regions, mut pairs) = (BTreeSet::new(), BTreeSet::new());
    for full in [false, true] {
        // Counted before any is made: a few sweeps of a few values each are more than a machine holds.
        match experiment.rows(full) {
            Some(rows) if rows <= ROWS => {}
            Some(rows) => return fault(format!("sweep: makes {rows} rows; at most {ROWS}")),
            None => return fault(format!("sweep: makes more rows than can be counted; at most {ROWS}")),
        }
        experiment.each(&table, full, |point| {
            let place = || point.at.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ");
            let described = |(span, what): Fault| (span, if point.at.is_empty() { what } else { format!("{what} (where {})", place()) });
            regions.extend(point.cluster.regions.iter().cloned());
            pairs.extend(point.cluster.round_trips_ms.keys().cloned());
            check_asked(&point.contender).map_err(|what| described((of_contenders(experiment), what)))?;
            check_cluster(&point.cluster).map_err(described)?;
            check_load(point).map_err(described)?;
            match virtual_only(point).filter(|_| experiment.grounds.contains(&GroundName::Processes)) {
                Some(what) => Err(described((None, format!("grounds: {what} is for virtual time only")))),
                None => Ok(()),
            }
        })?;
    }
    // A sweep can change which regions there are, and the file has the round trips of all of them.
    let known = |pair: &&String| pair.match_indices(':').any(|(at, _)| regions.contains(&pair[..at]) && regions.contains(&pair[at + 1..]));
    if let Some(pair) = pairs.iter().find(|pair| !known(pair)) {
        return fault(format!("cluster.round_trips_ms: there are no two regions `{pair}`"));
    }
    experiment.chart.iter().try_for_each(|chart| check_chart(experiment, chart))?;
    for table in &experiment.table {
        if table.get_ref().columns.is_empty() || table.get_ref().percentiles.iter().any(|percent| !(0.0..=100.0).contains(percent)) {
            return fault_at(table, "table: needs columns, and percentiles between 0 and 100");
        }
    }
    for paper in &experiment.paper {
        check_contender_name(experiment, paper, &paper.get_ref().contender)?;
        check_place(experiment, paper, &paper.get_ref().at, false)?;
        if let Some(chart) = &paper.get_ref().chart
            && !experiment.chart.iter().any(|known| known.get_ref().name == *chart)
        {
            return fault_at(paper, format!("paper: there is no chart `{chart}`"));
        }
    }
    experiment.expect.iter().try_for_each(|expect| check_expect(experiment, expect))
}

/// What `point` asks for that processes do not have.
fn virtual_only(point: &Point) -> Option<&'static str> {
    let all = [
        (!point.cluster.change.is_empty(), "cluster.change"),
        (!point.cluster.cut.is_empty(), "cluster.cut"),
        (point.cluster.megabits.is_some(), "cluster.megabits"),
        (point.cluster.gamma_shape.is_some(), "cluster.gamma_shape"),
        (point.contender.service_level.is_some(), "contender.service_level"),
        (point.size.slice_ms.is_some(), "slice_ms"),
    ];
    all.into_iter().find_map(|(asked, what)| asked.then_some(what))
}

fn check_contender(experiment: &Experiment, contender: &Spanned<Contender>) -> Result<(), Fault> {
    let name = &contender.get_ref().name;
    if experiment.contender.iter().filter(|other| other.get_ref().name == *name).count() > 1 {
        return fault_at(contender, format!("contender: `{name}` is there twice"));
    }
    check_asked(contender.get_ref()).or_else(|what| fault_at(contender, what))
}

/// Where what a sweep puts into a contender stands.
fn of_contenders(experiment: &Experiment) -> Option<Range<usize>> {
    let into = |sweep: &&Spanned<Sweep>| sweep.get_ref().paths.iter().any(|path| path.starts_with("contender."));
    experiment.sweep.iter().find(into).map(Spanned::span)
}

/// Whether its protocol has what a contender asks for. Errors: in words.
fn check_asked(contender: &Contender) -> Result<(), String> {
    let Contender { name, protocol, options, read_level, write_level, service_level, clients, .. } = contender;
    let wrong = |what: String| format!("contender `{name}`: {what}");
    registry::check_options(protocol, options).map_err(wrong)?;
    if let Some(text) = service_level {
        ServiceLevel::parse(text).map_err(wrong)?;
    }
    let serves = registry::info(protocol).map(|info| info.serves);
    for level in [read_level, write_level].into_iter().flatten() {
        let Some(asked) = Level::from_name(level) else {
            return Err(wrong(format!("there is no level `{level}`; there are {}", Level::names())));
        };
        if serves.is_some_and(|serves| serves(asked).is_none()) {
            return Err(wrong(format!("protocol {protocol} does not serve level {level}")));
        }
    }
    match clients.as_ref().and_then(|clients| clients.settle_ms) {
        Some(ms) => range("clients.settle_ms", ms, 0.0, LONGEST_MS).map_err(|(_, what)| wrong(what)),
        None => Ok(()),
    }
}

fn check_cluster(cluster: &Cluster) -> Result<(), Fault> {
    let Cluster { regions, partitions, replicas, .. } = cluster;
    if regions.is_empty() || regions.len() > DATA_CENTERS {
        return fault(format!("cluster.regions: from 1 to {DATA_CENTERS} data centers, not {}", regions.len()));
    }
    range("cluster.partitions", (*partitions).into(), 1.0, 256.0)?;
    range("cluster.replicas", (*replicas).into(), 1.0, 9.0)?;
    let servers = regions.len() * usize::from(*partitions) * usize::from(*replicas);
    if servers > SERVERS {
        return fault(format!("cluster: {servers} servers; at most {SERVERS}"));
    }
    for (pair, ms) in &cluster.round_trips_ms {
        range(&format!("cluster.round_trips_ms.{pair}"), *ms, 0.0, LONGEST_MS)?;
        let Some((one, other)) = pair.split_once(':').filter(|(one, other)| one != other) else {
            return fault(format!("cluster.round_trips_ms: `{pair}` is not a pair of regions, a:b"));
        };
        if cluster.round_trips_ms.contains_key(&format!("{other}:{one}")) {
            return fault(format!("cluster.round_trips_ms: `{pair}` is there in both directions; a round trip has one time"));
        }
    }
    if let Some(ms) = cluster.round_trip_ms {
        range("cluster.round_trip_ms", ms, 0.0, LONGEST_MS)?;
    }
    for a in 0..regions.len() {
        for b in a + 1..regions.len() {
            if cluster.round_trip(a, b).is_none() {
                return fault(format!(
                    "cluster: no round trip is known for {}:{}; give it in cluster.round_trips_ms, or cluster.round_trip_ms for all",
                    regions[a], regions[b]
                ));
            }
        }
    }
    let one_way = [
        ("local_ms", cluster.local_ms),
        ("near_ms", cluster.near_ms),
        ("jitter_ms", cluster.jitter_ms),
        ("local_jitter_ms", cluster.local_jitter_ms),
    ];
    one_way.into_iter().try_for_each(|(name, ms)| range(&format!("cluster.{name}"), ms, 0.0, LONGEST_MS))?;
    // Beyond this a server refuses sessions and updates as too far ahead of its clock.
    range("cluster.clocks.ms", cluster.clocks.ms, 0.0, 60_000.0)?;
    let known = |dc: u8, partition: u16| usize::from(dc) < regions.len() && partition < *partitions;
    if let Some(Slow { data_center, partition, ms }) = cluster.slow {
        range("cluster.slow.ms", ms, 0.0, LONGEST_MS)?;
        if !known(data_center, partition) {
            return fault(format!("cluster.slow: there is no partition {partition} in data center {data_center}"));
        }
    }
    for Link { from, to, ms } in &cluster.link {
        range("cluster.link.ms", *ms, 0.0, LONGEST_MS)?;
        if from == to || !known(*from, 0) || !known(*to, 0) {
            return fault(format!("cluster.link: there is no link from data center {from} to {to}"));
        }
    }
    for Change { at_ms, between: [from, to], ms } in &cluster.change {
        range("cluster.change.ms", *ms, 0.0, LONGEST_MS)?;
        range("cluster.change.at_ms", *at_ms as f64, 0.0, LONGEST_MS)?;
        if from == to || !known(*from, 0) || !known(*to, 0) {
            return fault(format!("cluster.change: there is no way between data centers {from} and {to}"));
        }
    }
    for Cut { from_ms, until_ms, between: [from, to] } in &cluster.cut {
        range("cluster.cut.until_ms", *until_ms as f64, 0.0, LONGEST_MS)?;
        if from_ms >= until_ms {
            return fault(format!("cluster.cut: from_ms, {from_ms}, is not below until_ms, {until_ms}"));
        }
        if from == to || !known(*from, 0) || !known(*to, 0) {
            return fault(format!("cluster.cut: there is no way between data centers {from} and {to}"));
        }
    }
    if let Some(megabits) = cluster.megabits {
        range("cluster.megabits", megabits, 0.001, 1e6)?;
    }
    if let Some(shape) = cluster.gamma_shape {
        range("cluster.gamma_shape", shape.into(), 1.0, 100.0)?;
    }
    let Service { request_us, key_us, message_us, kilobyte_us, tapped_us, .. } = cluster.service;
    let costs = [("request_us", request_us), ("key_us", key_us), ("message_us", message_us), ("kilobyte_us", kilobyte_us), ("tapped_us", tapped_us)];
    costs.into_iter().try_for_each(|(name, us)| range(&format!("cluster.service.{name}"), us, 0.0, 1e6))
}

fn check_load(point: &Point) -> Result<(), Fault> {
    let (regions, partitions) = (point.cluster.regions.len(), point.cluster.partitions);
    let (mut clients, mut measured) = (0, 0);
    if point.load.is_empty() {
        return fault("load: there is none");
    }
    for load in &point.load {
        if let Some(dc) = load.data_centers.iter().find(|dc| usize::from(**dc) >= regions) {
            return fault(format!("load.data_centers: there is no data center {dc}"));
        }
        let places = if load.data_centers.is_empty() { regions } else { load.data_centers.len() };
        let of_load = u64::from(load.clients) * places as u64;
        clients += of_load;
        // Of an application all is measured.
        measured += if load.measured || load.does.is_application() { of_load } else { 0 };
        match &load.does {
            Act::Mix(mix) => {
                let shares = [("put", mix.put), ("transactions", mix.transactions), ("remote", mix.remote)];
                shares.into_iter().try_for_each(|(name, share)| range(&format!("load.does.mix.{name}"), share, 0.0, 1.0))?;
                range("load.does.mix.keys", mix.keys as f64, 1.0, 1e6)?;
                range("load.does.mix.transaction_keys", mix.transaction_keys.into(), 1.0, (mix.keys as f64).min(1000.0))?;
                range("load.does.mix.value_bytes", mix.value_bytes as f64, 0.0, 1e6)?;
                range("load.does.mix.think_ms", mix.think_ms, 0.0, LONGEST_MS)?;
                range("load.does.mix.rate", mix.rate, 0.0, 1e5)?;
            }
            Act::Amplified(amplified) => {
                range("load.does.amplified.factor", amplified.factor.into(), 1.0, 10_000.0)?;
                range("load.does.amplified.keys", amplified.keys as f64, 1.0, 1e6)?;
                range("load.does.amplified.value_bytes", amplified.value_bytes as f64, 0.0, 1e6)?;
                if amplified.keys * u64::from(partitions) > LISTED {
                    return fault(format!("load.does.amplified.keys: more than {LISTED} in {partitions} partitions together"));
                }
            }
            Act::PingPong(ping) => {
                range("load.does.ping-pong.poll_ms", ping.poll_ms, 0.0, LONGEST_MS)?;
                range("load.does.ping-pong.partition", ping.partition.into(), 0.0, f64::from(partitions) - 1.0)?;
                if load.data_centers.len() != 2 || load.clients != 1 {
                    return fault("load: ping-pong is of one client in each of two data_centers");
                }
            }
            Act::Alternating(alternating) => {
                range("load.does.alternating.think_ms", alternating.think_ms, 0.0, LONGEST_MS)?;
                if alternating.partitions.is_empty() || alternating.partitions.iter().any(|partition| *partition >= partitions) {
                    return fault(format!("load.does.alternating.partitions: some, of the {partitions} that there are"));
                }
            }
            Act::Groups(groups) => {
                range("load.does.groups.writes", groups.writes.into(), 1.0, 10_000.0)?;
                range("load.does.groups.keys", groups.keys as f64, 1.0, 1e6)?;
                range("load.does.groups.value_bytes", groups.value_bytes as f64, 0.0, 1e6)?;
                range("load.does.groups.think_ms", groups.think_ms, 0.0, LONGEST_MS)?;
            }
            Act::Social(colouring) => range("load.does.social.nodes", colouring.nodes as f64, 8.0, 200_000.0)?,
            Act::Weather(weather) => {
                range("load.does.weather.nodes", weather.nodes as f64, 4.0, 200_000.0)?;
                if let Some(percent) = weather.put_percent {
                    range("load.does.weather.put_percent", percent.into(), 5.0, 90.0)?;
                }
            }
            Act::Conjunctive(conjunctive) => range("load.does.conjunctive.chance", conjunctive.chance, 0.0, 1.0)?,
            Act::LinesOfCode(_) => {}
        }
        if load.does.is_application() && (point.load.len() > 1 || !load.data_centers.is_empty()) {
            return fault("load: an application is the only load, in all data centers");
        }
        if point.contender.clients.is_some() && !load.does.is_application() {
            return fault("contender.clients: is for applications");
        }
    }
    range("load.clients: of all groups together", clients as f64, 1.0, CLIENTS as f64)?;
    if measured == 0 { fault("load: no client is measured") } else { Ok(()) }
}

fn check_contender_name<S>(experiment: &Experiment, place: &Spanned<S>, name: &str) -> Result<(), Fault> {
    let known = || experiment.contender.iter().map(|contender| contender.get_ref().name.as_str());
    if known().any(|other| other == name) {
        return Ok(());
    }
    fault_at(place, format!("there is no contender `{name}`; there are {}", known().collect::<Vec<_>>().join(", ")))
}

/// Whether `at` names sweeps that there are, at values that they have; in both sizes, if it `must` be measured.
fn check_place<S>(experiment: &Experiment, place: &Spanned<S>, at: &BTreeMap<String, Value>, must: bool) -> Result<(), Fault> {
    for (name, value) in at {
        let Some(sweep) = experiment.sweep.iter().find(|sweep| sweep.get_ref().name == *name) else {
            return fault_at(place, format!("there is no sweep `{name}`"));
        };
        let (quick, full) = (&sweep.get_ref().quick, &sweep.get_ref().full);
        if must && !(quick.contains(value) && full.contains(value)) {
            return fault_at(place, format!("sweep `{name}` does not have {value} in both quick and full"));
        }
    }
    Ok(())
}

fn check_chart(experiment: &Experiment, spanned: &Spanned<Chart>) -> Result<(), Fault> {
    let chart = spanned.get_ref();
    if chart.y.is_empty() {
        return fault_at(spanned, format!("chart `{}`: y names nothing", chart.name));
    }
    // Pictures' files go by it.
    if experiment.chart.iter().filter(|other| other.get_ref().name == chart.name).count() > 1 || chart.name.contains(['/', '\\']) {
        return fault_at(spanned, format!("chart `{}`: its name is there twice, or has a `/`; it is that of a file", chart.name));
    }
    if (chart.kind == ChartKind::Line) && chart.x.is_none() {
        return fault_at(spanned, format!("chart `{}`: a line needs x, the name of a sweep", chart.name));
    }
    let over_time = chart.x.as_deref() == Some(TIME);
    if over_time && (chart.kind != ChartKind::Line || !is_sliced(experiment)) {
        return fault_at(spanned, format!("chart `{}`: what is drawn over {TIME} is a line, and needs slice_ms in both quick and full", chart.name));
    }
    for name in chart.x.iter().filter(|_| !over_time).chain(&chart.panels) {
        if !experiment.sweep.iter().any(|sweep| sweep.get_ref().name == *name) {
            return fault_at(spanned, format!("chart `{}`: there is no sweep `{name}`", chart.name));
        }
    }
    check_place(experiment, spanned, &chart.at, true)?;
    chart.contenders.iter().chain(&chart.over).try_for_each(|name| check_contender_name(experiment, spanned, name))
}

fn is_sliced(experiment: &Experiment) -> bool {
    experiment.quick.slice_ms.is_some() && experiment.full.slice_ms.is_some()
}

fn check_expect(experiment: &Experiment, spanned: &Spanned<Expect>) -> Result<(), Fault> {
    let expect = spanned.get_ref();
    if expect.at_least.is_none() && expect.at_most.is_none() {
        return fault_at(spanned, "expect: give at_least, at_most or both; what has no bound cannot fail");
    }
    if expect.at_least.iter().chain(&expect.at_most).any(|bound| !bound.is_finite()) {
        return fault_at(spanned, "expect: at_least and at_most are finite numbers; beside others nothing can fail");
    }
    let same_measure = expect.over_measure.as_ref().is_none_or(|over| *over == expect.measure);
    let same_place = expect.over_at.iter().all(|(name, value)| expect.at.get(name) == Some(value));
    let divided = expect.over.is_some() || expect.over_measure.is_some() || !expect.over_at.is_empty();
    if divided && same_measure && same_place && (expect.over.is_none() || expect.over == expect.of) {
        return fault_at(spanned, "expect: what is divided by itself is always 1");
    }
    if expect.from_s.or(expect.until_s).is_some() && (!is_sliced(experiment) || expect.between_grounds) {
        return fault_at(spanned, "expect: from_s and until_s need slice_ms in both quick and full, and one ground");
    }
    if expect.between_grounds && experiment.grounds.len() < 2 {
        return fault_at(spanned, "expect: between_grounds needs two grounds");
    }
    if expect.ground.is_some_and(|ground| !experiment.grounds.contains(&ground)) {
        return fault_at(spanned, "expect: the experiment does not run on this ground");
    }
    check_place(experiment, spanned, &expect.at, true)?;
    check_place(experiment, spanned, &expect.over_at, true)?;
    expect.of.iter().chain(&expect.over).try_for_each(|name| check_contender_name(experiment, spanned, name))
}
