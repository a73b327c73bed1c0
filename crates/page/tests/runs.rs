//! Runs as a page asks for them: every scenario comes to what it says, watching changes nothing, what is done to messages is done, and no request breaks anything.

use rheostat_core::random::Random;
use rheostat_page::report::{Report, report};
use rheostat_page::request::{self, Run};
use rheostat_page::scenarios::{self, Expected};
use rheostat_protocols::registry;
use rheostat_sim::batch::BatchOptions;
use rheostat_sim::plan::Plan;
use rheostat_sim::watch::{Touch, Watching};
use rheostat_sim::{TraceLevel, run_plan, watch_plan};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn told(request: &Value) -> Value {
    serde_json::from_str(&rheostat_page::run(&request.to_string())).unwrap()
}

fn error(request: &Value) -> String {
    let told = told(request);
    told["error"].as_str().unwrap_or_else(|| panic!("{request} is taken")).to_owned()
}

fn of_plan(plan: Plan) -> Report {
    report(&Run { plan, touches: BTreeMap::new(), command: None }).unwrap()
}

/// The numbers of the messages that `wanted` says.
fn messages(report: &Report, wanted: impl Fn(&rheostat_page::report::Message) -> bool) -> Vec<u32> {
    (1..).zip(&report.messages).filter(|(_, message)| wanted(message)).map(|(number, _)| number).collect()
}

#[test]
fn every_scenario_comes_to_what_it_says() {
    for scenario in scenarios::ALL {
        assert!(!scenario.title.is_empty() && scenario.look.split(". ").count() >= 2, "{} says what to look at", scenario.name);
        for variant in scenario.variants {
            let name = format!("{} under {}", scenario.name, variant.name);
            let report = of_plan(scenario.plan(variant).unwrap());
            let expected = match variant.expected {
                Expected::Kept => ("kept", None),
                Expected::Broken(promise) => ("broken", Some(promise)),
            };
            assert_eq!((report.verdict.came, report.verdict.promise.as_deref()), expected, "{name}: {}", report.verdict.text);
            assert!(!report.full && report.operations.len() >= 2, "{name}");
            let asked = messages(&report, |message| message.asked).len();
            assert!((4..=250).contains(&asked), "{name} has {asked} messages to look at");
            for (event, _) in &report.verdict.shown {
                assert!(report.operations.iter().any(|operation| operation.event.as_ref() == Some(event)), "{name}: {event} is among the operations");
            }
            if scenario.name != "oversold" && matches!(variant.expected, Expected::Broken(_)) {
                assert!(report.verdict.shown.len() >= 2, "{name} shows the operations");
            }
            let bytes = serde_json::to_string(&report).unwrap().len();
            assert!(bytes < 2_000_000, "{name} is told in {bytes} bytes");
            assert!(
                report.operations.iter().all(|operation| !operation.text.is_empty() && operation.ended.is_none_or(|ended| ended >= operation.begun)),
                "{name}"
            );
        }
    }
}

fn seeds(protocol: &str, profile: &str, counters: bool) -> BatchOptions {
    BatchOptions {
        protocol: protocol.into(),
        options: toml::Table::new(),
        counters,
        profile: Some(profile.into()),
        planted: None,
        held_to: None,
        verify: false,
    }
}

fn quietly() -> Watching {
    Watching { touches: BTreeMap::new(), most_events: u64::MAX, most_us: u64::MAX, most_messages: 100_000 }
}

#[test]
fn watching_changes_nothing() {
    for (place, protocol) in registry::names().into_iter().enumerate() {
        for (profile, counters) in [("plain", false), ("plain", true), ("bursts", false)] {
            let plan = seeds(protocol, profile, counters).plan(place as u64 + 1).unwrap();
            let (alone, (watched, course)) = (run_plan(&plan, TraceLevel::Off).unwrap(), watch_plan(&plan, &quietly()).unwrap());
            assert_eq!((alone.hash, alone.events), (watched.hash, watched.events), "{protocol} {profile}");
            assert!(course.messages.len() > 50 && course.steps.len() > 50, "{protocol} {profile}");
            let arrived = course.messages.iter().filter(|message| !message.arrived_us.is_empty()).count();
            assert!(arrived * 2 > course.messages.len(), "{protocol} {profile}: {arrived} of {} messages arrive", course.messages.len());
            assert!(course.messages.iter().all(|message| message.arrived_us.iter().all(|at| *at >= message.sent_us)));
            // Each message is sent in one step, and arrives in as many as it does; healing is told.
            let mut sent: Vec<u32> = course.steps.iter().flat_map(|step| step.sent.clone()).collect();
            sent.sort_unstable();
            assert!(sent.iter().copied().eq(1..=course.messages.len() as u32), "{protocol} {profile}");
            let got: usize = course.steps.iter().map(|step| step.got.len()).sum();
            assert_eq!(got, course.messages.iter().map(|message| message.arrived_us.len()).sum::<usize>(), "{protocol} {profile}");
            assert_eq!(course.steps.iter().flat_map(|step| &step.told).filter(|(who, _)| who == "healing").count(), 1, "{protocol} {profile}");
            assert!(course.steps.is_sorted_by_key(|step| step.at_us), "{protocol} {profile}");
        }
    }
}

#[test]
fn the_same_request_is_answered_by_the_same_text() {
    for request in [
        json!({"scenario": "published"}),
        json!({"seed": "7", "protocol": "causal", "counters": true}),
        json!({"scenario": "photo", "touches": [[40, "drop"], [41, 30.5]]}),
    ] {
        let text = request.to_string();
        assert_eq!(rheostat_page::run(&text), rheostat_page::run(&text));
    }
}

#[test]
fn a_delayed_message_arrives_later_and_a_dropped_one_does_not() {
    let run = |touches: Value| {
        let run = Run::parse(&json!({"scenario": "photo", "variant": "eventual", "touches": touches}).to_string()).unwrap();
        report(&run).unwrap()
    };
    let before = run(json!([]));
    assert_eq!(before.verdict.came, "broken");
    let comment = |message: &rheostat_page::report::Message| message.updates && message.words.contains(" comment=") && message.arrived.len() == 1;
    let [number, ..] = messages(&before, comment)[..] else { panic!("the comment is never sent") };
    let arrived = |report: &Report| report.messages[number as usize - 1].arrived.clone();
    let delayed = run(json!([[number, 400]]));
    assert_eq!(arrived(&delayed), [arrived(&before)[0] + 400.0]);
    assert_eq!(delayed.verdict.came, "kept", "a comment that comes after its photo: {}", delayed.verdict.text);
    let dropped = run(json!([[number, "drop"]]));
    assert_eq!((arrived(&dropped), dropped.messages[number as usize - 1].lost), (vec![], Some("dropped by hand")));
    assert!(dropped.untouched.is_empty());
    assert!(run(json!([[number, "drop"]])).verdict.came != "stopped");
}

#[test]
fn what_there_is_not_is_not_touched() {
    let plain = told(&json!({"scenario": "photo", "variant": "causal"}));
    let healed = plain["healed"].as_f64().unwrap();
    let late = plain["messages"].as_array().unwrap().iter().position(|message| message["sent"].as_f64().unwrap() > healed).unwrap() + 1;
    let touched = told(&json!({"scenario": "photo", "variant": "causal", "touches": [[0, "drop"], [4_000_000_000_u32, 5], [late, "drop"]]}));
    assert_eq!(touched["untouched"], json!([0, late, 4_000_000_000_u32]));
    assert_eq!(touched["hash"], plain["hash"]);
}

#[test]
fn over_a_connection_nothing_is_lost_alone() {
    let scenario = scenarios::ALL.iter().find(|scenario| scenario.name == "photo").unwrap();
    let variant = scenario.variants.iter().find(|variant| variant.name == "causal").unwrap();
    let mut plan = scenario.plan(variant).unwrap();
    plan.transport = rheostat_sim::plan::Transport::Stream;
    let before = of_plan(plan.clone());
    let [number, ..] = messages(&before, |message| message.updates && message.words.contains(" photo="))[..] else {
        panic!("the photo is never sent")
    };
    let run = Run { plan, touches: BTreeMap::from([(number, Touch::Drop)]), command: None };
    let after = report(&run).unwrap();
    let with_it = messages(&after, |message| message.lost == Some("its connection broke"));
    assert!(!with_it.is_empty(), "what is under way on the connection is lost with it");
    assert_eq!(after.verdict.came, "kept", "what is lost with a connection is sent again: {}", after.verdict.text);
}

/// Dropping and delaying whatever there is breaks nothing that is promised: what is lost is sent again, and what is late is waited for.
#[test]
fn nothing_that_is_promised_is_broken_by_hand() {
    let mut random = Random::new(11);
    for scenario in scenarios::ALL {
        for variant in scenario.variants.iter().filter(|variant| variant.expected == Expected::Kept) {
            let mut plan = scenario.plan(variant).unwrap();
            // What the protocol itself promises, no matter what the scenario shows.
            plan.held_to = None;
            let sent = of_plan(plan.clone()).messages.len() as u64;
            for _ in 0..3 {
                let touch = |random: &mut Random| if random.chance(1, 2) { Touch::Drop } else { Touch::Delay(random.below(2_000_000)) };
                let touches = (0..12).map(|_| (1 + random.below(sent) as u32, touch(&mut random))).collect();
                let run = Run { plan: plan.clone(), touches, command: None };
                let report = report(&run).unwrap();
                assert_eq!(report.verdict.came, "kept", "{} under {}, {:?}: {}", scenario.name, variant.name, run.touches, report.verdict.text);
            }
        }
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_in_words() {
    let plan = |lines: &str| json!({"plan": format!("protocol eventual\nkeys a\n{lines}")});
    let huge = "9".repeat(15);
    let cases = [
        (json!(17), "no request"),
        (json!({"scenarios": "photo"}), "unknown field"),
        (json!({}), "of one of them"),
        (json!({"scenario": "photo", "seed": "1", "protocol": "causal"}), "of one of them"),
        (json!({"scenario": "nothing"}), "there is no such scenario"),
        (json!({"scenario": "photo", "variant": "nothing"}), "cannot be run so"),
        (json!({"seed": "1"}), "needs a protocol"),
        (json!({"seed": "1", "protocol": "none"}), "there is no protocol"),
        (json!({"seed": "-1", "protocol": "causal"}), "is no seed"),
        (json!({"seed": "18446744073709551616", "protocol": "causal"}), "is no seed"),
        (json!({"seed": "1", "protocol": "causal", "profile": "none"}), "none"),
        (json!({"seed": "1", "protocol": "causal", "planted": "none"}), "no planted bug"),
        (json!({"seed": "1", "protocol": "causal", "held_to": "nothing"}), "no promise"),
        (json!({"seed": "1", "protocol": "causal", "options": ["published"]}), "name=value"),
        (json!({"seed": "1", "protocol": "causal", "options": ["published=true\n[x]"]}), "options of protocol"),
        (json!({"seed": "1", "protocol": "causal", "options": ["nothing=1"]}), "nothing"),
        (json!({"scenario": "photo", "touches": [[1, "lose"]]}), "neither"),
        (json!({"scenario": "photo", "touches": [[1, -5]]}), "neither"),
        (json!({"scenario": "photo", "touches": [[-1, 5]]}), "no request"),
        (json!({"scenario": "photo", "touches": (0..300).map(|n| json!([n, "drop"])).collect::<Vec<_>>()}), "at most"),
        (plan("cluster 8 x 64"), "servers"),
        (plan("cluster 8 x 8 x 9"), "servers"),
        (plan("cluster 0 x 1"), "data centers"),
        (plan("nonsense"), "line 3"),
        (plan("client 7 start 0ms"), "no data center"),
        (plan("client 0 start 0ms\n +0ms get causal b"), "no key"),
        (plan(&format!("client 0 start {huge}ms")), "start"),
        (plan("client 0 start 999999999999999999ms"), "not a time"),
        (plan("client 0 start 0ms\n +99999999999ms put a"), "pause"),
        (plan(&format!("delay 0 0 1ms+{huge}ms")), "delay"),
        (plan("delay 0 0 1ms+500000000ms"), "delay"),
        (plan("padding 4000000000 4000000000"), "bytes of a value"),
        (plan(&format!("clock p0@0 offset -{huge}ms drift 0ppm")), "offset"),
        (plan("clock p0@0 offset 0ms drift -2000000ppm"), "drift"),
        (plan(&format!("fault 0ms..1ms clock-jump p0@0 {huge}ms")), "jump"),
        (plan(&format!("counter n - - {huge}")), "counter"),
        (plan(&format!("counter n - - 0\nclient 0 start 0ms\n +0ms add n {huge}")), "amount"),
        (plan(&format!("client 0 start 0ms\n +0ms rollback 5ms stop {huge}ms")), "stop"),
        (plan("option heartbeat_ms = 0"), ""),
        (plan("planted nothing"), "planted"),
        (json!({"plan": "protocol none\nkeys a"}), "there is no protocol"),
        (json!({"plan": "#".repeat(80_000)}), "at most"),
    ];
    for (request, says) in cases {
        let why = error(&request);
        assert!(why.contains(says), "{request} is refused so: {why}");
        assert!(why.len() < 2_000);
    }
    for text in ["", "{", "null", "\u{0}", "[[[[[[", "{\"plan\": 5}"] {
        assert!(rheostat_page::run(text).starts_with("{\"error\":"), "{text}");
        assert!(rheostat_page::search(text).starts_with("{\"error\":"), "{text}");
        assert!(rheostat_page::shrink(text).starts_with("{\"error\":"), "{text}");
    }
    assert!(rheostat_page::run(&"x".repeat(request::MOST_BYTES + 1)).contains("at most"));
}

/// Words of a plan exchanged, doubled and left out: whatever comes of it is refused or runs, and ends.
#[test]
fn plans_that_are_mangled_break_nothing() {
    let mut random = Random::new(5);
    let words = [
        "0",
        "1",
        "65535",
        "18446744073709551615",
        "-1",
        "0ms",
        "119000ms",
        "-",
        "a",
        "p0@0",
        "p9@9",
        "causal",
        "strong",
        "kill",
        "cut",
        "hold",
        "!photo",
        "photo",
        "put",
        "move",
        "1ms+1ms",
    ];
    let (mut ran, mut refused) = (0, 0);
    for round in 0..240 {
        let scenario = &scenarios::ALL[round % scenarios::ALL.len()];
        let text = scenario.plan(&scenario.variants[round / 8 % scenario.variants.len()]).unwrap().to_string();
        let mut lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        for _ in 0..1 + random.below(3) {
            let line = random.below(lines.len() as u64) as usize;
            match random.below(4) {
                0 => lines.insert(line, lines[random.below(lines.len() as u64) as usize].clone()),
                1 => drop(lines.remove(line)),
                _ if lines[line].is_empty() => {}
                _ => {
                    let word = random.below(lines[line].len() as u64) as usize;
                    lines[line][word] = words[random.below(words.len() as u64) as usize];
                }
            }
        }
        let plan: Vec<String> = lines.iter().map(|line| line.join(" ")).collect();
        let came = told(&json!({"plan": plan.join("\n")}));
        if came["error"].is_string() { refused += 1 } else { ran += 1 }
    }
    assert!(ran > 30 && refused > 30, "{ran} ran, {refused} were refused");
}

#[test]
fn a_run_without_end_is_stopped() {
    let steps = "  +119000ms put a\n".repeat(8);
    let plan = format!("protocol causal\noption heartbeat_ms = 20\ncluster 3 x 2\nkeys a\nclient 0 start 0ms\n{steps}");
    let report = told(&json!({"plan": plan}));
    assert_eq!(report["verdict"]["came"], "stopped", "{}", report["verdict"]);
    assert!(report["verdict"]["text"].as_str().unwrap().contains("stopped after"));
    assert_eq!(report["full"], true);
    // Nor does the page stand still while somebody wants it smaller.
    let made: Value = serde_json::from_str(&rheostat_page::shrink(&json!({"plan": plan, "count": 1}).to_string())).unwrap();
    assert!(made["error"].as_str().unwrap().contains("stopped after"), "{made}");
}

#[test]
fn the_last_seed_of_all_can_be_run() {
    let report = told(&json!({"seed": u64::MAX.to_string(), "protocol": "eventual"}));
    assert_eq!(report["verdict"]["came"], "kept");
    let searched: Value =
        serde_json::from_str(&rheostat_page::search(&json!({"seed": u64::MAX.to_string(), "protocol": "eventual", "count": 5}).to_string())).unwrap();
    assert_eq!(searched, json!({"tried": 1, "next": null, "found": null}));
}

#[test]
fn a_planted_bug_is_found_and_its_plan_made_smaller() {
    let mut request = json!({"seed": "0", "protocol": "causal", "options": ["published=true"], "count": 100});
    let (mut found, mut tried) = (Value::Null, 0);
    while found.is_null() && tried < 4_000 {
        let searched: Value = serde_json::from_str(&rheostat_page::search(&request.to_string())).unwrap();
        tried += searched["tried"].as_u64().unwrap();
        found = searched["found"].clone();
        request["seed"] = searched["next"].clone();
    }
    let seed = found[0].as_str().expect("a seed breaks the published rule").to_owned();
    let report = told(&json!({"seed": seed, "protocol": "causal", "options": ["published=true"]}));
    assert_eq!((report["verdict"]["came"].as_str(), &report["verdict"]["promise"]), (Some("broken"), &found[1]));
    assert!(report["command"].as_str().unwrap().contains(&format!("--seed {seed}")));
    let plan = report["plan"].as_str().unwrap();
    let made: Value = serde_json::from_str(&rheostat_page::shrink(&json!({"plan": plan, "count": 120}).to_string())).unwrap();
    assert_eq!(made["promise"], found[1]);
    assert!(made["plan"].as_str().unwrap().len() < plan.len() && made["runs"].as_u64().unwrap() <= 120);
    let again = told(&json!({"plan": made["plan"]}));
    assert_eq!(again["verdict"]["promise"], found[1]);
    let kept: Value = serde_json::from_str(&rheostat_page::shrink(&json!({"plan": "protocol eventual\nkeys a", "count": 1}).to_string())).unwrap();
    assert!(kept["error"].as_str().unwrap().contains("breaks no promise"));
}

#[test]
fn the_catalogue_names_what_there_is() {
    let catalogue: Value = serde_json::from_str(&rheostat_page::catalogue()).unwrap();
    assert_eq!(catalogue["protocols"].as_array().unwrap().len(), registry::names().len());
    assert!(catalogue["scenarios"].as_array().unwrap().len() >= 9);
    for scenario in catalogue["scenarios"].as_array().unwrap() {
        for variant in scenario["variants"].as_array().unwrap() {
            let report = told(&json!({"scenario": scenario["name"], "variant": variant["name"]}));
            assert_eq!(report["verdict"]["promise"], variant["breaks"], "{} under {}", scenario["name"], variant["name"]);
        }
    }
}
