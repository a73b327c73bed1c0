use super::*;
use rheostat_bench::Progress;
use rheostat_lab::ground::Ground;
use rheostat_lab::run::{self as lab, Run};

const TINY: &str = r#"
name = "tiny"
source = "none"
title = "A small experiment"
shows = "Two protocols."
differs = []
grounds = ["virtual"]
seed = 7

[cluster]
regions = ["one", "two"]
partitions = 2
round_trip_ms = 10

[[load]]
clients = 3
does = { mix = { put = 0.5, keys = 40, think_ms = 1 } }

[[contender]]
name = "causal"
protocol = "causal"

[[contender]]
name = "eventual"
protocol = "eventual"

[[sweep]]
name = "put"
label = "share of writes"
paths = ["load.0.does.mix.put"]
quick = [0.2, 0.8]
full = [0.2, 0.8]

[quick]
warm_ms = 50
measure_ms = 200
repetitions = 2

[full]
warm_ms = 50
measure_ms = 3600000

[[chart]]
name = "latency"
title = "Latency"
kind = "line"
x = "put"
y = ["get_mean_ms", "put_mean_ms"]
label = "ms"

[[chart]]
name = "reads"
title = "Reads"
kind = "cdf"
y = ["get_ms"]
label = "ms"

[[expect]]
says = "reads are answered"
measure = "get_mean_ms"
at_least = 0.1
at_most = 5
"#;

const LIMITS: Limits =
    Limits { real: Duration::from_secs(120), in_virtual: Duration::from_secs(10_000_000), rows: 100, growth: 1 << 40, last: false };

fn wait(runs: &Runs) -> Value {
    loop {
        let told = runs.progress();
        if told["state"] != "running" {
            return told;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn numbers_and_pictures_are_those_of_the_command_line() {
    let runs = Runs::new(LIMITS);
    assert_eq!(runs.progress(), json!({ "state": "none" }));
    runs.begin(TINY, Form::Quick).unwrap();
    let told = wait(&runs);
    assert_eq!((&told["state"], &told["done"], &told["of"]), (&json!("done"), &json!(8), &json!(8)), "{told}");

    let experiment = experiment::parse("tiny.toml", TINY).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = Run { experiment: &experiment, text: TINY, full: false, again: false, folder: folder.path() };
    let ran = lab::run(&run, &mut [Box::new(VirtualTime)], &Progress::hidden()).unwrap();
    let chapter = Chapter { experiment, rows: ran.rows };
    assert_eq!(told["result"]["table"], json!(report::summary(&chapter)));
    let pictures = chart::pictures(&chapter.experiment, &chapter.rows);
    assert_eq!(told["result"]["pictures"].as_array().unwrap().len(), pictures.len());
    for (told, picture) in told["result"]["pictures"].as_array().unwrap().iter().zip(&pictures) {
        let points: Vec<&Value> = told["panels"][0]["series"].as_array().unwrap().iter().map(|series| &series["points"]).collect();
        let drawn: Vec<Value> = picture.panels[0].series.iter().map(|series| json!(series.points)).collect();
        assert_eq!(points, drawn.iter().collect::<Vec<_>>(), "{}", picture.name);
    }
    assert_eq!(told["result"]["findings"][0]["verdict"], "met");
}

#[test]
fn one_runs_at_a_time_and_can_be_cancelled() {
    let runs = Runs::new(LIMITS);
    runs.begin(TINY, Form::Full).unwrap();
    assert_eq!(runs.begin(TINY, Form::Quick).unwrap_err(), "another experiment runs; cancel it, or wait");
    assert_eq!(runs.progress()["state"], "running");
    runs.cancel();
    let told = wait(&runs);
    assert_eq!((&told["state"], &told["done"]), (&json!("cancelled"), &json!(0)), "{told}");
    runs.begin(TINY, Form::Quick).unwrap();
    assert_eq!(wait(&runs)["state"], "done");
}

#[test]
fn a_run_ends_at_its_limits() {
    let late = Runs::new(Limits { real: Duration::from_millis(60), ..LIMITS });
    late.begin(TINY, Form::Full).unwrap();
    let told = wait(&late);
    assert!(told["state"] == "failed" && told["why"].as_str().unwrap().contains("of real time"), "{told}");
    assert!(told["took_s"].as_f64().unwrap() < 30.0);

    let large = Runs::new(Limits { growth: 1 << 20, ..LIMITS });
    let many = TINY.replace("keys = 40, think_ms = 1", "keys = 100000, value_bytes = 100000");
    large.begin(&many, Form::Full).unwrap();
    let told = wait(&large);
    assert!(told["state"] == "failed" && told["why"].as_str().unwrap().contains("has grown by"), "{told}");

    let long = Runs::new(Limits { in_virtual: Duration::from_secs(60), ..LIMITS });
    let error = long.begin(TINY, Form::Full).unwrap_err();
    assert!(error.contains("4 measurements of 14404 s of virtual time together; here are at most 100 and 60 s"), "{error}");
    let few = Runs::new(Limits { rows: 7, ..LIMITS });
    assert!(few.begin(TINY, Form::Quick).unwrap_err().contains("8 measurements"));
    assert_eq!((few.progress(), long.progress()), (json!({ "state": "none" }), json!({ "state": "none" })));
}

#[test]
fn what_is_not_right_is_said_as_on_the_command_line() {
    let runs = Runs::new(LIMITS);
    let error = |text: &str| runs.begin(text, Form::Quick).unwrap_err();
    let wrong = TINY.replace("put = 0.5", "put = 1.5").replace("[\"load.0.does.mix.put\"]", "[\"cluster.jitter_ms\"]");
    assert_eq!(error(&wrong), experiment::parse("tiny.toml", &wrong).unwrap_err());
    assert!(error(&TINY.replace("[\"virtual\"]", "[\"processes\"]")).starts_with("grounds: "));
}

#[test]
fn an_error_of_one_measurement_leaves_what_came_before() {
    let runs = Runs::new(LIMITS);
    // Nothing is answered within the measured time.
    runs.begin(
        &TINY.replace("paths = [\"load.0.does.mix.put\"]", "paths = [\"cluster.near_ms\"]").replace("quick = [0.2, 0.8]", "quick = [0.2, 800]"),
        Form::Quick,
    )
    .unwrap();
    let told = wait(&runs);
    assert_eq!((&told["state"], &told["done"], &told["result"]["rows"]), (&json!("failed"), &json!(2), &json!(2)), "{told}");
    assert!(told["why"].as_str().unwrap().starts_with("causal, put 800: no operation was answered"), "{told}");
}

#[test]
fn who_watches_changes_nothing() {
    let experiment = experiment::parse("tiny.toml", TINY).unwrap();
    let point = &experiment::points(&experiment, TINY, false).unwrap()[0];
    let mut shares = Vec::new();
    let watched = VirtualTime::run_watched(point, &mut |share| {
        shares.push(share);
        Ok(())
    });
    assert_eq!(watched, VirtualTime.run(point));
    assert!(!shares.is_empty() && shares.is_sorted() && shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert_eq!(VirtualTime::run_watched(point, &mut |_| Err("enough".into())), Err("enough".into()));
}
