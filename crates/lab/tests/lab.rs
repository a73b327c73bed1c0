//! The lab from its files to its report.

use rheostat_bench::Progress;
use rheostat_lab::expect::{self, Verdict};
use rheostat_lab::experiment::{self, Experiment, GroundName, Point};
use rheostat_lab::ground::{Ground, Measured, VirtualTime};
use rheostat_lab::report::{self, Chapter};
use rheostat_lab::row::RowFile;
use rheostat_lab::run::{self, Ran, Run};
use rheostat_lab::{catalogue, chart};
use std::io::Write;
use std::path::Path;

const TINY: &str = r#"
name = "tiny"
source = "none"
title = "A small experiment"
shows = "Clock skew delays PUT in GentleRain."
differs = ["It is small."]
grounds = ["virtual"]

[cluster]
regions = ["one", "two"]
partitions = 2
round_trip_ms = 10.0
clocks = { pattern = "alternate", ms = 5.0 }

[[load]]
does = { amplified = { factor = 2, keys = 4 } }

[[contender]]
name = "GentleRain"
protocol = "gentlerain"

[[contender]]
name = "CausalSpartanX"
protocol = "causal"

[[sweep]]
name = "skew"
label = "skew, ms"
paths = ["cluster.clocks.ms"]
quick = [0, 5]
full = [0, 5, 20]

[quick]
settle_ms = 100
warm_ms = 20
measure_ms = 200
repetitions = 2

[full]
warm_ms = 100
measure_ms = 1000

[[chart]]
name = "latency"
title = "Latency"
kind = "line"
x = "skew"
y = ["put_mean_ms"]
label = "ms"

[[chart]]
name = "spread"
title = "Latency"
kind = "cdf"
y = ["put_ms"]
label = "ms"
panels = "skew"

[[chart]]
name = "bars"
title = "Latency"
kind = "bar"
x = "skew"
y = ["put_mean_ms"]
over = "CausalSpartanX"
label = "times"
log_y = true

[[table]]
title = "All"
columns = ["put_mean_ms", "request_mean_ms"]

[[paper]]
chart = "latency"
contender = "GentleRain"
what = "ms at 5 ms"
at = { skew = 5 }
value = 3

[[expect]]
says = "GentleRain waits"
measure = "put_mean_ms"
of = "GentleRain"
over = "CausalSpartanX"
at = { skew = 5 }
at_least = 2.0
"#;

fn tiny() -> Experiment {
    experiment::parse("tiny.toml", TINY).unwrap()
}

fn run_in(folder: &Path, text: &str, again: bool, ground: Box<dyn Ground>) -> Result<Ran, String> {
    let experiment = experiment::parse("tiny.toml", text).unwrap();
    let run = Run { experiment: &experiment, text, full: false, again, folder };
    run::run(&run, &mut [ground], &Progress::hidden())
}

#[test]
fn from_a_file_to_rows_pictures_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run_in(folder.path(), TINY, false, Box::new(VirtualTime)).unwrap();
    assert_eq!((ran.rows.len(), ran.measured, ran.skipped.len()), (8, 8, 0));
    let row = &ran.rows[0];
    assert!(row.values["put_count"] > 10.0 && !row.commit.is_empty() && !row.machine.is_empty() && row.told["cluster"]["partitions"] == 2, "{row:?}");
    assert_eq!(row.clients["latency_mean_ms"].len(), 2);
    let chapter = Chapter { experiment: tiny(), rows: ran.rows };
    let findings = expect::judge(&chapter.experiment, &chapter.rows);
    assert_eq!(findings.iter().map(|finding| finding.verdict.clone()).collect::<Vec<_>>(), [Verdict::Met], "{}", findings[0].text());
    let pictures = report::pictures(&chapter);
    assert_eq!(pictures.iter().map(|picture| picture.name.as_str()).collect::<Vec<_>>(), ["tiny-latency", "tiny-spread", "tiny-bars"]);
    for picture in &pictures {
        let svg = chart::svg(picture).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("GentleRain"), "{svg}");
        let file = folder.path().join("picture.png");
        chart::png(picture, &file).unwrap();
        assert!(std::fs::read(&file).unwrap().starts_with(b"\x89PNG"));
    }
    assert!(chart::svg(&pictures[0]).unwrap().contains("GentleRain (paper)"));
    let page = report::html(&[chapter]).unwrap();
    for part in ["It is small.", "GentleRain waits", "1 met", "<svg", "ms at 5 ms"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn the_same_point_gives_the_same_numbers() {
    let experiment = tiny();
    let point = &experiment::points(&experiment, TINY, false).unwrap()[0];
    assert_eq!(VirtualTime.run(point), VirtualTime.run(point));
}

/// A ground that stops after so many measurements, as a process that is killed does.
struct Stops(usize);

impl Ground for Stops {
    fn name(&self) -> GroundName {
        GroundName::Virtual
    }

    fn run(&mut self, _: &Point) -> Result<Measured, String> {
        self.0 = self.0.checked_sub(1).ok_or("stopped")?;
        Ok(Measured::default())
    }
}

#[test]
fn a_run_that_was_stopped_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let error = run_in(folder.path(), TINY, false, Box::new(Stops(3))).unwrap_err();
    assert!(error.contains("tiny on ground virtual: CausalSpartanX, skew 5: stopped"), "{error}");
    // Half a line, as a process leaves it that is killed while it writes; it ends within a character.
    let path = RowFile::path(folder.path(), "tiny");
    std::fs::File::options().append(true).open(&path).unwrap().write_all(b"{\"experiment\":\"ti\xce").unwrap();
    let ran = run_in(folder.path(), TINY, false, Box::new(Stops(100))).unwrap();
    assert_eq!((ran.rows.len(), ran.measured), (8, 5));
    let ran = run_in(folder.path(), TINY, false, Box::new(Stops(0))).unwrap();
    assert_eq!((ran.rows.len(), ran.measured), (8, 0), "everything is there");
    let ran = run_in(folder.path(), TINY, true, Box::new(Stops(100))).unwrap();
    assert_eq!((ran.rows.len(), ran.measured), (8, 8), "measured again");
    let ran = run_in(folder.path(), TINY, false, Box::new(Stops(0))).unwrap();
    assert_eq!(ran.rows.len(), 8, "of each the newest");
    // Another configuration is another measurement.
    let changed = TINY.replace("keys = 4", "keys = 5");
    assert_eq!(run_in(folder.path(), &changed, false, Box::new(Stops(100))).unwrap().measured, 8);
    std::fs::write(&path, "no row\n").unwrap();
    let error = run_in(folder.path(), TINY, false, Box::new(Stops(100))).unwrap_err();
    assert!(error.contains(":1: not a row"), "{error}");
}

/// A ground whose values are known, and which stops after so many measurements.
struct Known(usize);

impl Ground for Known {
    fn name(&self) -> GroundName {
        GroundName::Virtual
    }

    fn run(&mut self, point: &Point) -> Result<Measured, String> {
        self.0 = self.0.checked_sub(1).ok_or("stopped")?;
        let times = if point.contender.name == "GentleRain" { 3.0 } else { 1.0 };
        let mut measured = Measured::default();
        measured.values.insert("put_mean_ms".into(), times * f64::from(point.repetition + 1));
        Ok(measured)
    }
}

/// The finding of what `folder` has, as the report has it.
fn reported(folder: &Path) -> expect::Finding {
    let experiment = tiny();
    let run = Run { experiment: &experiment, text: TINY, full: false, again: false, folder };
    let ran = run::run(&run, &mut [], &Progress::hidden()).unwrap();
    expect::judge(&experiment, &ran.rows).remove(0)
}

#[test]
fn nothing_is_met_before_all_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    run_in(folder.path(), TINY, false, Box::new(Known(5))).unwrap_err();
    // Half a line, as one who reads finds it while another process writes.
    let path = RowFile::path(folder.path(), "tiny");
    std::fs::File::options().append(true).open(&path).unwrap().write_all(b"{\"experiment\":\"ti").unwrap();
    let before = std::fs::read(&path).unwrap();
    let found = reported(folder.path());
    assert_eq!(found.verdict, Verdict::NotMeasured, "{}", found.text());
    assert_eq!(std::fs::read(&path).unwrap(), before, "who reads changes nothing");
    run_in(folder.path(), TINY, false, Box::new(Known(3))).unwrap();
    assert_eq!(reported(folder.path()).verdict, Verdict::Met);
    let twice = TINY.replace("quick = [0, 5]", "quick = [0, 5, 5]");
    let experiment = experiment::parse("tiny.toml", &twice).unwrap();
    let ran = run_in(folder.path(), &twice, false, Box::new(Known(100))).unwrap();
    assert_eq!(expect::judge(&experiment, &ran.rows)[0].verdict, Verdict::Met, "a value that is there twice is one place");
}

#[test]
fn ratios_are_of_the_same_seed_though_a_part_was_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    run_in(folder.path(), TINY, false, Box::new(Known(8))).unwrap();
    assert_eq!(reported(folder.path()).worst.map(|found| found.value), Some(3.0));
    run_in(folder.path(), TINY, true, Box::new(Known(3))).unwrap_err();
    assert_eq!(reported(folder.path()).worst.map(|found| found.value), Some(3.0));
}

#[test]
fn a_ground_that_is_not_there_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let text = TINY.replace("grounds = [\"virtual\"]", "grounds = [\"virtual\", \"processes\"]");
    let ran = run_in(folder.path(), &text, false, Box::new(Stops(100))).unwrap();
    assert_eq!(ran.skipped, [GroundName::Processes]);
}

#[test]
fn expectations_can_fail() {
    let folder = tempfile::tempdir().unwrap();
    let verdict = |text: &str| {
        let experiment = experiment::parse("tiny.toml", text).unwrap();
        let run = Run { experiment: &experiment, text, full: false, again: false, folder: folder.path() };
        let ran = run::run(&run, &mut [Box::new(VirtualTime)], &Progress::hidden()).unwrap();
        expect::judge(&experiment, &ran.rows).remove(0)
    };
    let found = verdict(&TINY.replace("at_least = 2.0", "at_least = 2000.0"));
    assert_eq!(found.verdict, Verdict::Failed(1), "{}", found.text());
    assert!(found.text().contains("FAILED at 1 place"), "{}", found.text());
    assert_eq!(verdict(&TINY.replace("at_least = 2.0", "at_most = 1.0")).verdict, Verdict::Failed(1));
    assert_eq!(verdict(&TINY.replace("at_least = 2.0", "at_least = 2.0\nat_most = 100.0")).verdict, Verdict::Met);
    assert_eq!(verdict(&TINY.replace("measure = \"put_mean_ms\"", "measure = \"no_such_thing\"")).verdict, Verdict::NotMeasured);
    assert_eq!([0.0, 0.00042, -0.00042, 0.0421, 12.346].map(expect::number), ["0", "4.20e-4", "-4.20e-4", "0.042", "12.35"]);
    // At every place that fits: one of the two fails.
    let everywhere = TINY.replace("at = { skew = 5 }\nat_least", "at_least");
    assert_eq!(verdict(&everywhere).verdict, Verdict::Failed(1));
    let over_place = TINY.replace("over = \"CausalSpartanX\"\nat = { skew = 5 }", "over_at = { skew = 0 }\nat = { skew = 5 }");
    assert_eq!(verdict(&over_place).verdict, Verdict::Met);
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_line() {
    let line_of = |part: &str| TINY[..TINY.find(part).unwrap()].matches('\n').count() + 1;
    let cases = [
        ("partitions = 2\n", "partitons = 2\n", line_of("partitions = 2"), "unknown field `partitons`"),
        ("partitions = 2\n", "partitions = 0\n", line_of("[cluster]"), "cluster.partitions: 0 is not between 1 and 256"),
        ("round_trip_ms = 10.0\n", "", line_of("[cluster]"), "no round trip is known for one:two"),
        ("kind = \"line\"", "kind = \"pie\"", line_of("kind = \"line\""), "unknown variant `pie`"),
        ("protocol = \"gentlerain\"", "protocol = \"gentlerian\"", line_of("[[contender]]"), "there is no protocol `gentlerian`"),
        ("protocol = \"causal\"", "protocol = \"causal\"\noptions = { colour = 1 }", line_of("name = \"CausalSpartanX\"") - 1, "colour"),
        (
            "protocol = \"causal\"",
            "protocol = \"causal\"\nread_level = \"strong\"",
            line_of("name = \"CausalSpartanX\"") - 1,
            "does not serve level strong",
        ),
        ("cluster.clocks.ms", "cluster.clock.ms", line_of("[[sweep]]"), "there is nothing at `clock`"),
        ("cluster.clocks.ms", "quick.measure_ms", line_of("[[sweep]]"), "does not begin with cluster, load or contender"),
        ("quick = [0, 5]", "quick = [-1, 5]", line_of("[cluster]"), "cluster.clocks.ms: -1 is not between 0 and 60000 (where skew = -1)"),
        ("quick = [0, 5]", "quick = [\"much\", 5]", line_of("[[sweep]]"), "at skew = much: invalid type"),
        ("x = \"skew\"\ny", "x = \"clocks\"\ny", line_of("[[chart]]"), "there is no sweep `clocks`"),
        ("at_least = 2.0", "", line_of("[[expect]]"), "what has no bound cannot fail"),
        ("at = { skew = 5 }\nat_least", "at = { skew = 20 }\nat_least", line_of("[[expect]]"), "does not have 20 in both quick and full"),
        ("of = \"GentleRain\"", "of = \"Rain\"", line_of("[[expect]]"), "there is no contender `Rain`; there are GentleRain, CausalSpartanX"),
        ("at_least = 2.0", "at_least = nan", line_of("[[expect]]"), "finite numbers"),
        ("of = \"GentleRain\"", "of = \"CausalSpartanX\"", line_of("[[expect]]"), "divided by itself"),
        ("measure_ms = 200", "measure_ms = 200000000", line_of("[quick]"), "quick.measure_ms"),
        ("factor = 2, keys = 4", "factor = 0, keys = 4", line_of("[[load]]"), "load.does.amplified.factor: 0"),
        ("factor = 2, keys = 4", "factor = 2, keys = 600000", line_of("[[load]]"), "more than 1000000 in 2 partitions together"),
        ("does = { amp", "measured = false\ndoes = { amp", line_of("[[load]]"), "load: no client is measured"),
        ("round_trip_ms = 10.0\n", "round_trip_ms = -10.0\n", line_of("[cluster]"), "cluster.round_trip_ms: -10 is not between 0 and 3600000"),
        ("round_trip_ms = 10.0\n", "round_trip_ms = nan\n", line_of("[cluster]"), "cluster.round_trip_ms: NaN is not between"),
        (
            "round_trip_ms = 10.0\n",
            "round_trip_ms = 10.0\nround_trips_ms = { \"one:tow\" = 80 }\n",
            line_of("[cluster]"),
            "there are no two regions `one:tow`",
        ),
        (
            "round_trip_ms = 10.0\n",
            "round_trips_ms = { \"one:two\" = 80, \"two:one\" = 8 }\n",
            line_of("[cluster]"),
            "`one:two` is there in both directions",
        ),
        (
            "paths = [\"cluster.clocks.ms\"]\nquick = [0, 5]\nfull = [0, 5, 20]",
            "paths = [\"contender.1.read_level\"]\nquick = [\"eventaul\"]\nfull = [\"eventual\"]",
            line_of("[[sweep]]"),
            "contender `CausalSpartanX`: there is no level `eventaul`",
        ),
        ("name = \"spread\"", "name = \"latency\"", line_of("[[chart]]"), "chart `latency`: its name is there twice"),
    ];
    for (old, new, line, says) in cases {
        assert!(TINY.contains(old), "{old}");
        let error = experiment::parse("tiny.toml", &TINY.replacen(old, new, 1)).unwrap_err();
        assert!(error.starts_with(&format!("tiny.toml:{line}: ")) && error.contains(says), "{new:?}: expected line {line} and `{says}`: {error}");
    }
}

#[test]
fn every_built_in_file_is_whole_and_its_small_form_is_small() {
    let mut figures = Vec::new();
    let all = catalogue::all().unwrap();
    for (file, (experiment, text)) in catalogue::FILES.iter().zip(&all) {
        assert_eq!(format!("{}.toml", experiment.name), file.name);
        assert!(!experiment.differs.is_empty() && !experiment.expect.is_empty(), "{}: says nothing of differences, or expects nothing", file.name);
        assert!(!experiment.chart.is_empty() || !experiment.table.is_empty(), "{}: shows nothing", file.name);
        let points = experiment::points(experiment, text, false).unwrap();
        // In virtual time; a measurement is some hundred times faster or slower than that, by its load.
        let virtual_s: u64 = points.iter().map(|point| point.size.settle_ms + point.size.warm_ms + point.size.measure_ms).sum::<u64>() / 1000;
        assert!(points.len() <= 100 && virtual_s <= 3000, "{}: {} measurements of {virtual_s} s", file.name, points.len());
        assert!(experiment::points(experiment, text, true).unwrap().len() >= points.len(), "{}", file.name);
        figures.extend(experiment.figures.clone());
    }
    for figure in [
        "4.2",
        "4.3",
        "4.4",
        "4.5",
        "4.6",
        "5.1",
        "5.2",
        "5.3",
        "5.4",
        "5.6",
        "5.7",
        "7.2",
        "8.1",
        "8.4",
        "8.5",
        "8.6",
        "003-2",
        "003-3",
        "003-4",
        "003-5",
        "table-1",
        "004-7",
        "004-8",
        "004-9",
        "004-10",
        "004-III",
        "004-IV",
        "000-10",
        "000-11",
        "000-12",
        "000-13-social",
        "000-13-weather",
        "000-14a",
        "000-14b",
        "000-14c",
        "000-14d",
        "000-15",
        "000-table-2",
        "000-table-3-social",
        "000-table-3-weather",
        "000-table-3-conjunctive",
        "000-table-4",
    ] {
        assert!(figures.iter().any(|known| known == figure), "figure {figure} is missing");
    }
    assert!(catalogue::find("5.2").unwrap().iter().any(|(experiment, _)| experiment.name == "amplified-skew"));
    assert!(catalogue::find("5.99").unwrap_err().contains("5.2"));
}

fn all_is_met(name: &str) {
    let (experiment, text) = catalogue::find(name).unwrap().remove(0);
    let folder = tempfile::tempdir().unwrap();
    let run = Run { experiment: &experiment, text, full: false, again: false, folder: folder.path() };
    let ran = run::run(&run, &mut [Box::new(VirtualTime)], &Progress::hidden()).unwrap();
    for finding in expect::judge(&experiment, &ran.rows) {
        assert_eq!(finding.verdict, Verdict::Met, "{}", finding.text());
    }
}

#[test]
fn the_papers_shape_of_amplification_holds() {
    all_is_met("amplified-skew");
}

#[test]
fn eventual_with_monitors_and_rollback_colours_a_graph_sooner_than_sequential_and_right() {
    all_is_met("weak-completion");
}

const APPLICATION: &str = r#"
name = "application"
source = "none"
title = "A small application"
shows = "Nothing."
differs = ["It is small."]
grounds = ["virtual"]

[cluster]
regions = ["one", "two", "three"]
partitions = 2
round_trip_ms = 40.0
near_ms = 1.0
gamma_shape = 5

[[load]]
clients = 4
does = { social = { nodes = 120, graph = "regular" } }

[[contender]]
name = "nobody watches"
protocol = "quorum"

[[contender]]
name = "rolled back"
protocol = "quorum"
clients = { monitor = true, rollback = true, livelock = "backoff" }

[[contender]]
name = "sequential"
protocol = "quorum"
clients = { consistency = "sequential", reads = 1, writes = 3 }

[quick]
warm_ms = 0
measure_ms = 100000
slice_ms = 1000

[full]
warm_ms = 0
measure_ms = 100000
slice_ms = 1000

[[table]]
title = "All"
columns = ["task_per_second"]

[[expect]]
says = "something is done"
measure = "task_per_second"
at_least = 0.1
"#;

#[test]
fn an_application_goes_wrong_unwatched_and_right_rolled_back_or_in_quorums_that_meet() {
    let experiment = experiment::parse("application.toml", APPLICATION).unwrap();
    let points = experiment::points(&experiment, APPLICATION, false).unwrap();
    let run = |point: &Point| VirtualTime.run(point).unwrap();
    let (alone, back, sequential) = (run(&points[0]), run(&points[1]), run(&points[2]));
    assert_eq!(back, run(&points[1]), "the same point gives the same numbers");
    let value = |measured: &Measured, name: &str| measured.values.get(name).copied();
    // The graph, the delays and the order of tasks are such that clients collide.
    assert!(value(&alone, "wrong") > Some(0.0) && value(&alone, "overlaps") > Some(0.0), "{:?}", alone.values);
    assert_eq!((value(&alone, "alarms"), value(&alone, "detection_count")), (None, None));
    for measured in [&back, &sequential] {
        assert_eq!((value(measured, "wrong"), value(measured, "done_percent")), (Some(0.0), Some(100.0)), "{:?}", measured.values);
        assert_eq!(measured.slices["tasks"].iter().flatten().last(), Some(&120.0));
    }
    assert!(value(&back, "rolled_back") > Some(0.0) && value(&back, "detection_count") > Some(0.0), "{:?}", back.values);
    assert_eq!(value(&back, "alarms"), value(&back, "detection_count"), "each alarm is heard, and counted once");
    assert!(value(&back, "finished_s") < value(&sequential, "finished_s"));
    assert!(value(&sequential, "put_p50_ms") > Some(30.0) && value(&back, "put_p50_ms") < Some(5.0), "three replicas acknowledge, or the nearest");
}

#[test]
fn what_an_application_cannot_be_is_said() {
    let cases = [
        ("nodes = 120", "nodes = 2", "load.does.social.nodes: 2"),
        ("clients = 4\n", "clients = 4\ndata_centers = [0]\n", "the only load, in all data centers"),
        ("gamma_shape = 5", "gamma_shape = 0", "cluster.gamma_shape: 0"),
        ("livelock = \"backoff\"", "livelock = \"hope\"", "unknown variant `hope`"),
        ("{ social = { nodes = 120, graph = \"regular\" } }", "{ mix = { put = 0.5, keys = 10 } }", "contender.clients: is for applications"),
        ("grounds = [\"virtual\"]", "grounds = [\"virtual\", \"processes\"]", "is for virtual time only"),
    ];
    for (old, new, says) in cases {
        assert!(APPLICATION.contains(old), "{old}");
        let error = experiment::parse("application.toml", &APPLICATION.replace(old, new)).unwrap_err();
        assert!(error.contains(says), "{new:?}: {error}");
    }
    // What only shows when it is put together, or run.
    let small = APPLICATION.replace("nodes = 120", "nodes = 8").replace("warm_ms = 0", "warm_ms = 200000").replace("= 100000", "= 1000");
    let experiment = experiment::parse("application.toml", &small).unwrap();
    let error = VirtualTime.run(&experiment::points(&experiment, &small, false).unwrap()[2]).unwrap_err();
    assert!(error.contains("the application ended while it warmed up"), "{error}");
    for (old, new, says) in [
        ("monitor = true, rollback", "rollback", "needs --monitor"),
        ("clients = 4\ndoes = { social = { nodes = 120, graph = \"regular\" }", "clients = 400\ndoes = { weather = { nodes = 40 }", "each needs one"),
    ] {
        let text = APPLICATION.replace(old, new);
        let experiment = experiment::parse("application.toml", &text).unwrap();
        let points = experiment::points(&experiment, &text, false).unwrap();
        let error = VirtualTime.run(&points[1]).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

const CUT: &str = r#"
name = "cut"
source = "none"
title = "A link is cut"
shows = "What is sent meanwhile arrives afterwards."
differs = []
grounds = ["virtual"]

[cluster]
regions = ["a", "b", "c"]
round_trip_ms = 20
cut = [{ from_ms = 1000, until_ms = 1800, between = [1, 0] }, { from_ms = 1700, until_ms = 2000, between = [0, 1] }]

[[load]]
data_centers = [0, 1]
does = { ping-pong = { partition = 0 } }

[[contender]]
name = "eventual"
protocol = "eventual"

[quick]
warm_ms = 200
measure_ms = 4000
slice_ms = 1000

[full]
warm_ms = 200
measure_ms = 4000
slice_ms = 1000
"#;

#[test]
fn nothing_passes_a_link_that_is_cut() {
    let measure = |text: &str| {
        let experiment = experiment::parse("cut.toml", text).unwrap();
        VirtualTime.run(&experiment::points(&experiment, text, false).unwrap()[0]).unwrap()
    };
    let cut = measure(CUT);
    let seen = |slice: usize| cut.slices["visibility_count"][slice].unwrap_or(0.0);
    assert!(seen(0) > 10.0 && seen(2) > 10.0 && seen(3) > 10.0, "{:?}", cut.slices["visibility_count"]);
    assert!(seen(1) <= 2.0, "what was under way, and nothing else: {:?}", cut.slices["visibility_count"]);
    // From the first write that was held back to the end of the second cut, and a way or two.
    assert!((950.0..1200.0).contains(&cut.values["visibility_max_ms"]), "{:?}", cut.values);
    let early = CUT.replace("from_ms = 1000, until_ms = 1800", "from_ms = 0, until_ms = 1800");
    let at_first = measure(&early);
    let seen = &at_first.slices["visibility_count"];
    assert!(seen[0].is_none() && seen[1].is_none() && seen[2] > Some(10.0), "{seen:?}");
    let whole = measure(&CUT.replace("between = [1, 0]", "between = [2, 0]").replace("between = [0, 1]", "between = [2, 1]"));
    assert!(whole.values["visibility_max_ms"] < 120.0, "{:?}", whole.values);
    for (old, new, says) in [
        ("until_ms = 1800", "until_ms = 1000", "cluster.cut: from_ms, 1000, is not below until_ms, 1000"),
        ("between = [1, 0]", "between = [1, 1]", "there is no way between data centers 1 and 1"),
        ("between = [1, 0]", "between = [3, 0]", "there is no way between data centers 3 and 0"),
        ("until_ms = 1800", "until_ms = 4000000", "cluster.cut.until_ms: 4000000"),
        ("grounds = [\"virtual\"]", "grounds = [\"virtual\", \"processes\"]", "is for virtual time only"),
    ] {
        assert!(CUT.contains(old), "{old}");
        let error = experiment::parse("cut.toml", &CUT.replace(old, new)).unwrap_err();
        assert!(error.contains(says), "{new:?}: {error}");
    }
}

#[test]
fn a_slice_is_as_long_as_it_was_measured() {
    let rates = |size: &str| {
        let text =
            CUT.replace("measure_ms = 4000", size).replace("between = [1, 0]", "between = [2, 0]").replace("between = [0, 1]", "between = [2, 1]");
        let experiment = experiment::parse("cut.toml", &text).unwrap();
        let measured = VirtualTime.run(&experiment::points(&experiment, &text, false).unwrap()[0]).unwrap();
        measured.slices["operations_per_second"].clone()
    };
    let short = rates("measure_ms = 3500");
    assert_eq!(short.len(), 4);
    assert!(short[3].unwrap() > 0.8 * short[2].unwrap(), "half a second: {short:?}");
    let early = rates("measure_ms = 4000\noperations = 20");
    assert!(early[0].is_some() && early[3].is_none(), "it ended in the first second: {early:?}");
    assert!(early[0].unwrap() > 0.8 * short[0].unwrap(), "part of a second: {early:?}, {short:?}");
}

#[test]
fn a_predicted_transaction_of_another_data_center_goes_there() {
    let mix = "{ mix = { put = 0.0, transactions = 1.0, transaction_keys = 8, keys = 40, remote = 1.0 } }";
    let text = TINY
        .replace("{ amplified = { factor = 2, keys = 4 } }", mix)
        .replace("protocol = \"causal\"", "protocol = \"causal\"\nstrategy = \"predicted\"");
    let experiment = experiment::parse("tiny.toml", &text).unwrap();
    let point = experiment::points(&experiment, &text, false).unwrap().remove(1);
    let measured = VirtualTime.run(&point).unwrap();
    assert!(measured.values["transactions_predicted_percent"] > 0.0, "{:?}", measured.values);
    // None is sooner than a round trip.
    assert!(measured.distributions["transaction_ms"][0] >= 10.0, "{:?}", measured.distributions["transaction_ms"]);
}

#[test]
fn what_servers_do_after_the_measured_time_of_an_application_is_not_counted() {
    let busiest = |measure_ms: &str| {
        let unwatched = "protocol = \"causal\"\noptions = { heartbeat_ms = 5, stabilization_ms = 5 }\n\n[[contender]]\nname = \"rolled";
        let text = APPLICATION
            .replace("clients = 4\n", "clients = 1\n")
            .replace("{ social = { nodes = 120, graph = \"regular\" } }", "{ weather = { nodes = 40 } }")
            .replace("protocol = \"quorum\"\n\n[[contender]]\nname = \"rolled", unwatched)
            .replace("near_ms = 1.0", "near_ms = 1.0\nservice = { message_us = 200.0 }")
            .replace("measure_ms = 100000\nslice_ms = 1000", measure_ms);
        let experiment = experiment::parse("application.toml", &text).unwrap();
        let point = experiment::points(&experiment, &text, false).unwrap().remove(0);
        assert_eq!(point.contender.protocol, "causal");
        VirtualTime.run(&point).unwrap().values["busiest_server_percent"]
    };
    // Messages between servers are most of what they do, and three seconds at least pass until the outcome is looked at.
    let (short, long) = (busiest("measure_ms = 200"), busiest("measure_ms = 10000"));
    assert!(long > 0.0 && short < 3.0 * long, "{short} and {long} percent");
}

#[test]
fn who_watches_is_called_often_where_values_are_large() {
    let text = CUT
        .replace("{ ping-pong = { partition = 0 } }", "{ mix = { put = 1.0, keys = 1, value_bytes = 1000000 } }")
        .replace("measure_ms = 4000", "measure_ms = 4000\noperations = 50");
    let experiment = experiment::parse("cut.toml", &text).unwrap();
    let point = &experiment::points(&experiment, &text, false).unwrap()[0];
    let mut calls = 0u32;
    let measured = VirtualTime::run_watched(point, &mut |_| {
        calls += 1;
        Ok(())
    });
    let written_bytes = 1e6 * measured.unwrap().values["put_count"];
    assert!(written_bytes > 50e6 && f64::from(calls) > written_bytes / 10e6, "{calls} calls for {written_bytes} bytes");
}

#[test]
fn sweeps_are_counted_before_they_are_made() {
    let values: Vec<String> = (0..1000).map(|value| value.to_string()).collect();
    let values = values.join(", ");
    let sweep = |name: usize| {
        format!("[[sweep]]\nname = \"s{name}\"\nlabel = \"\"\npaths = [\"cluster.jitter_ms\"]\nquick = [{values}]\nfull = [{values}]\n")
    };
    for (count, says) in [(2, "sweep: makes 1000000 rows; at most 10000"), (30, "sweep: makes more rows than can be counted")] {
        let text = format!("{CUT}{}", (0..count).map(sweep).collect::<String>());
        let error = experiment::parse("cut.toml", &text).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}
