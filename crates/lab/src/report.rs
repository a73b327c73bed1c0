//! The report: one HTML page with every picture, table and finding, and what differs from the papers' settings.

use crate::aggregate::{self, Over, Select};
use crate::chart::{self, Picture, spoken};
use crate::expect::{self, Finding, Verdict, bounds, number, place};
use crate::experiment::{Experiment, GroundName, TableOf};
use crate::quantile::quantile;
use crate::row::Row;
use std::collections::BTreeSet;
use std::fmt::Write;

const STYLE: &str = "\
body { font: 15px/1.5 sans-serif; color: #222; max-width: 1440px; margin: 2em auto; padding: 0 1.5em }
h1 { font-size: 1.6em } h2 { margin-top: 2.4em; border-top: 1px solid #ccc; padding-top: 1em }
table { border-collapse: collapse; margin: 1em 0 } th, td { padding: .25em .8em; border-bottom: 1px solid #ddd; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums }
.met { color: #00734f } .failed { color: #b33a00; font-weight: bold } .open { color: #777 }
svg { max-width: 100%; height: auto } .small { color: #666; font-size: .9em } code { background: #f3f3f3; padding: 0 .25em }";

/// An experiment with what was measured of it.
pub struct Chapter {
    /// The experiment.
    pub experiment: Experiment,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// Text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn cell(out: &mut String, class: &str, text: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = write!(out, "<td{class}>{}</td>", escaped(text));
}

/// The whole page. Errors: a picture cannot be drawn.
pub fn html(chapters: &[Chapter]) -> Result<String, String> {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Rheostat: the lab's report</title>\n<style>{STYLE}</style></head><body>\n"
    );
    out.push_str("<h1>The papers' figures, measured here</h1>\n");
    out.push_str(
        "<p>Lines and bars are what was measured here, with 95&nbsp;% confidence intervals over repetitions; hollow diamonds are values that the papers' text gives. A figure says \
         which ground it stands on: <em>virtual</em> time (the partition servers themselves, over a computed network, clocks and service times) or <em>processes</em> of this machine.</p>\n",
    );
    let findings: Vec<Vec<Finding>> = chapters.iter().map(|chapter| expect::judge(&chapter.experiment, &chapter.rows)).collect();
    overview(&mut out, chapters, &findings);
    for (chapter, findings) in chapters.iter().zip(&findings) {
        write_chapter(&mut out, chapter, findings)?;
    }
    out.push_str("</body></html>\n");
    Ok(out)
}

fn class(verdict: &Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Met => ("met", "met"),
        Verdict::Failed(_) => ("failed", "failed"),
        Verdict::NotMeasured => ("open", "not measured"),
    }
}

fn overview(out: &mut String, chapters: &[Chapter], findings: &[Vec<Finding>]) {
    let all = || findings.iter().flatten();
    let count = |wanted: &str| all().filter(|finding| class(&finding.verdict).0 == wanted).count();
    let _ = writeln!(
        out,
        "<p><b>{} expectations: <span class=\"met\">{} met</span>, <span class=\"failed\">{} failed</span>, <span class=\"open\">{} not measured</span>.</b></p>",
        all().count(),
        count("met"),
        count("failed"),
        count("open")
    );
    out.push_str("<table><tr><th>source</th><th>experiment</th><th>met</th><th>failed</th><th>not measured</th></tr>\n");
    for (chapter, findings) in chapters.iter().zip(findings) {
        let Experiment { name, source, title, .. } = &chapter.experiment;
        let _ = write!(out, "<tr><td>{}</td><td><a href=\"#{name}\">{}</a></td>", escaped(source), escaped(title));
        for wanted in ["met", "failed", "open"] {
            let count = findings.iter().filter(|finding| class(&finding.verdict).0 == wanted).count();
            cell(out, if count > 0 && wanted == "failed" { "n failed" } else { "n" }, &count.to_string());
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    let machines: BTreeSet<&str> = chapters.iter().flat_map(|chapter| &chapter.rows).map(|row| row.machine.as_str()).collect();
    let commits: BTreeSet<&str> = chapters.iter().flat_map(|chapter| &chapter.rows).map(|row| row.commit.as_str()).collect();
    let list = |words: BTreeSet<&str>| words.into_iter().map(escaped).collect::<Vec<_>>().join("; ");
    let _ = writeln!(out, "<p class=\"small\">Machine: {}. Commit: {}.</p>", list(machines), list(commits));
}

fn write_chapter(out: &mut String, chapter: &Chapter, findings: &[Finding]) -> Result<(), String> {
    let Chapter { experiment, rows } = chapter;
    let grounds: Vec<&str> = experiment.grounds.iter().map(|ground| ground.name()).collect();
    let _ = writeln!(out, "<h2 id=\"{}\">{}: {}</h2>", experiment.name, escaped(&experiment.source), escaped(&experiment.title));
    let _ = writeln!(out, "<p>{}</p>", escaped(&experiment.shows));
    let took: f64 = rows.iter().map(|row| row.took_s).sum();
    let _ = writeln!(
        out,
        "<p class=\"small\">Ground: {}. {} measurements, {took:.0} s. <code>rheostat lab run {}</code></p>",
        grounds.join(", "),
        rows.len(),
        experiment.name
    );
    for picture in chart::pictures(experiment, rows) {
        let _ = writeln!(out, "<p>{}</p>", chart::svg(&picture)?);
    }
    experiment.table.iter().for_each(|table| write_table(out, experiment, rows, table.get_ref()));
    write_paper(out, experiment);
    if !findings.is_empty() {
        out.push_str("<h3>What must hold</h3>\n<table><tr><th></th><th>expectation</th><th>bound</th><th>paper</th><th>found, at the worst place</th><th>ground</th></tr>\n");
        for finding in findings {
            let (class, word) = class(&finding.verdict);
            out.push_str("<tr>");
            cell(out, class, word);
            cell(out, "", &finding.expect.says);
            cell(out, "", &bounds(&finding.expect));
            cell(out, "n", &finding.expect.paper.map(number).unwrap_or_default());
            cell(out, "", &finding.worst.as_ref().map(|found| format!("{}  ({})", found.text(), found.place)).unwrap_or_default());
            cell(out, "", finding.ground.map_or("both", GroundName::name));
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
    }
    out.push_str("<h3>What differs from the paper's setting, and why</h3>\n<ul>\n");
    for text in &experiment.differs {
        let _ = writeln!(out, "<li>{}</li>", escaped(text));
    }
    out.push_str("</ul>\n");
    Ok(())
}

fn write_table(out: &mut String, experiment: &Experiment, rows: &[Row], table: &TableOf) {
    let _ = writeln!(out, "<h3>{}</h3>\n<table><tr><th></th>", escaped(&table.title));
    for column in &table.columns {
        let _ = write!(out, "<th>{}</th>", escaped(&spoken(column)));
    }
    out.push_str("</tr>\n");
    for ground in &experiment.grounds {
        for (contender, at) in aggregate::cells(rows, Select { ground: Some(*ground), ..Select::default() }) {
            out.push_str("<tr>");
            let ground_word = if experiment.grounds.len() > 1 { format!(" ({})", ground.name()) } else { String::new() };
            cell(out, "", &format!("{}{ground_word}", place(&contender, &at)));
            for column in &table.columns {
                let select = Select { ground: Some(*ground), contender: Some(&contender), at: Some(&at) };
                cell(out, "n", &summed(aggregate::values(rows, select, column, table.over), &table.percentiles));
            }
            out.push_str("</tr>\n");
        }
    }
    out.push_str("</table>\n");
}

/// Values as a table shows them: mean, interval, percentiles.
fn summed(mut values: Vec<f64>, percentiles: &[f64]) -> String {
    let Some(summary) = aggregate::summary(&values) else { return "–".into() };
    values.sort_by(f64::total_cmp);
    let mut text = number(summary.mean);
    if let Some(margin) = summary.margin.filter(|margin| *margin > 0.0) {
        let _ = write!(text, " ± {}", number(margin));
    }
    for percent in percentiles {
        let _ = write!(text, "; p{} {}", number(*percent), number(quantile(&values, percent / 100.0)));
    }
    text
}

fn write_paper(out: &mut String, experiment: &Experiment) {
    if experiment.paper.is_empty() {
        return;
    }
    out.push_str("<h3>What the paper gives</h3>\n<table><tr><th></th><th>what</th><th>value</th></tr>\n");
    for paper in experiment.paper.iter().map(|paper| paper.get_ref()) {
        out.push_str("<tr>");
        cell(out, "", &paper.contender);
        cell(out, "", &paper.what);
        cell(out, "n", &number(paper.value));
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

/// What an experiment's charts and tables show, as one table: a row for each ground, contender and place; the titles are its first row.
pub fn summary(chapter: &Chapter) -> Vec<Vec<String>> {
    let Chapter { experiment, rows } = chapter;
    let mut measures: Vec<&String> = Vec::new();
    for measure in
        experiment.chart.iter().filter(|chart| chart.get_ref().kind != crate::experiment::ChartKind::Cdf).flat_map(|chart| &chart.get_ref().y)
    {
        measures.push(measure);
    }
    measures.extend(experiment.table.iter().flat_map(|table| &table.get_ref().columns));
    let mut seen = BTreeSet::new();
    measures.retain(|measure| seen.insert(*measure));
    let mut table = vec![std::iter::once(String::new()).chain(measures.iter().map(|measure| spoken(measure))).collect()];
    for ground in &experiment.grounds {
        for (contender, at) in aggregate::cells(rows, Select { ground: Some(*ground), ..Select::default() }) {
            let select = Select { ground: Some(*ground), contender: Some(&contender), at: Some(&at) };
            let value = |measure: &&String| {
                let summary = aggregate::summary(&aggregate::values(rows, select, measure, Over::Repetitions));
                summary.map_or("-".into(), |summary| number(summary.mean))
            };
            let ground_word = if experiment.grounds.len() > 1 { format!("{} ", ground.name()) } else { String::new() };
            table.push(std::iter::once(ground_word + &place(&contender, &at)).chain(measures.iter().map(value)).collect());
        }
    }
    table
}

/// The report of one experiment for a terminal: a table of what its charts and tables show, and the findings.
pub fn text(chapter: &Chapter) -> String {
    let Chapter { experiment, rows } = chapter;
    let mut lines = summary(chapter).into_iter();
    let mut table = rheostat_bench::table::Table::with_titles(lines.next().unwrap_or_default());
    lines.for_each(|line| table.row(line));
    let mut out = format!("{}: {}\n\n{}\n", experiment.source, experiment.title, table.render());
    for finding in expect::judge(experiment, rows) {
        let _ = writeln!(out, "{}", finding.text());
    }
    out
}

/// The pictures of a chapter.
pub fn pictures(chapter: &Chapter) -> Vec<Picture> {
    chart::pictures(&chapter.experiment, &chapter.rows)
}
