//! What partition servers declare of themselves agrees: whatever reads it knows none of the names.

use rheostat_core::gauge::{Gauge, Metric};
use rheostat_protocols::registry;
use rheostat_stack::{gauges, gauges_of};

/// What is wrong with numbers that may be told by different servers.
fn contradictions(declared: &[Gauge]) -> Vec<String> {
    let mut found = Vec::new();
    let samples = || declared.iter().filter_map(|gauge| gauge.sample);
    for (index, gauge) in declared.iter().enumerate() {
        if declared[..index].iter().any(|other| other.name == gauge.name) {
            found.push(format!("{} is declared in two ways", gauge.name));
        }
        if gauge.help.is_empty() || !gauge.help.ends_with('.') || gauge.help.contains(['|', '\n', '"']) {
            found.push(format!("{} needs a sentence", gauge.name));
        }
        let Some(sample) = gauge.sample else { continue };
        let Metric { name, counts, label, help } = sample.metric;
        if samples().any(|other| other.metric.name == name && other.metric != sample.metric) {
            found.push(format!("{name} is declared in two ways"));
        }
        if counts != name.ends_with("_total") {
            found.push(format!("{name} ends with _total if it is a counter, and only then"));
        }
        let unit = |word: &str| name.trim_end_matches("_total").ends_with(word);
        if ["_ms", "_us", "_millis", "_micros", "_kb"].into_iter().any(unit)
            || (sample.per != 1.0) != (unit("_seconds") && !gauge.name.ends_with("_seconds"))
        {
            found.push(format!("{name} is in seconds and bytes"));
        }
        if label.is_some() == sample.label.is_empty() || help.is_empty() || help.contains(['|', '\n', '"']) {
            found.push(format!("{name} has no help, or a label without a value, or a value without a label"));
        }
    }
    found
}

/// Numbers of one server that would be the same sample.
fn twice(declared: &[Gauge]) -> Vec<&'static str> {
    let key = |gauge: &Gauge| gauge.sample.map(|sample| (sample.metric.name, sample.label));
    let is_twice = |(index, gauge): &(usize, &Gauge)| {
        declared[..*index].iter().any(|other| other.name == gauge.name || key(gauge).is_some() && key(other) == key(gauge))
    };
    declared.iter().enumerate().filter(is_twice).map(|(_, gauge)| gauge.name).collect()
}

#[test]
fn declarations_agree() {
    assert_eq!(contradictions(&gauges()), Vec::<String>::new());
    for protocol in registry::names() {
        assert_eq!(twice(&gauges_of(protocol)), Vec::<&str>::new(), "{protocol}");
    }
    assert!(gauges_of("nonsense").is_empty());
}

#[test]
fn wrong_declarations_are_found() {
    const FAMILY: Metric = Metric::counters("things_total", "kind", "Things.");
    let found = |declared: &[Gauge]| contradictions(declared).join(", ");
    let fine = [Gauge::of(FAMILY, "a", "a", "A."), Gauge::of(FAMILY, "b", "b", "B."), Gauge::metric("c_us", "c_seconds", "C.").per(1e6)];
    assert_eq!((found(&fine), twice(&fine)), (String::new(), Vec::new()));
    assert!(found(&[Gauge::status("a", "A."), Gauge::status("a", "B.")]).contains("a is declared in two ways"));
    assert!(found(&[Gauge::metric("a", "x", "A."), Gauge::metric("b", "x", "B.")]).contains("x is declared in two ways"));
    assert!(found(&[Gauge::metric("a", "x_total", "A.")]).contains("_total"));
    assert!(found(&[Gauge::counter("a", "x", "A.")]).contains("_total"));
    assert!(found(&[Gauge::metric("a_us", "a_us", "A.")]).contains("seconds"));
    assert!(found(&[Gauge::metric("a_us", "a_seconds", "A.")]).contains("seconds"), "nothing is divided");
    assert!(found(&[Gauge::of(FAMILY, "", "a", "A.")]).contains("label"));
    assert!(found(&[Gauge::status("a", "")]).contains("sentence"));
    assert_eq!(twice(&[Gauge::of(FAMILY, "a", "a", "A."), Gauge::of(FAMILY, "a", "b", "B.")]), ["b"]);
}
