//! Recording a history, and what the text form refuses.

use rheostat_checkers::{Action, EventId, History, HistoryBuilder, Observation, Outcome, Promise, SessionId, UniqueValue, WriteItem, check};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::Level;
use rheostat_core::version::VersionId;

const ALICE: SessionId = SessionId(1);
const BOB: SessionId = SessionId(2);
const HERE: DcId = DcId(0);

fn version(millis: u64) -> VersionId {
    VersionId { written: Timestamp::new(millis, 0), origin: HERE }
}

fn put(builder: &mut HistoryBuilder, key: &[u8]) -> (Action, UniqueValue) {
    let value = builder.fresh_value();
    (Action::Put { items: vec![WriteItem { key: builder.key(key), value: Some(value) }], level: Level::Causal }, value)
}

#[test]
fn a_recorded_history_has_the_tokens_as_they_were_taken() {
    let mut builder = HistoryBuilder::new(1);
    assert_eq!(builder.token(ALICE), None);
    let (first, one) = put(&mut builder, b"a key");
    let first = builder.begin(ALICE, HERE, 10, first).unwrap();
    builder.end(first, 20, Outcome::Written(Some(version(1)))).unwrap();
    let token = builder.token(ALICE).unwrap();
    let (second, _) = put(&mut builder, b"a key");
    let second = builder.begin(ALICE, HERE, 30, second).unwrap();
    builder.unknown(second).unwrap();
    assert_eq!(builder.token(ALICE), Some(token), "what has no reply is in no token");
    builder.adopt(BOB, HERE, 40, &[token]).unwrap();
    let key = builder.key(b"a key");
    let read = builder.begin(BOB, HERE, 50, Action::Get { key, level: Level::Causal }).unwrap();
    builder.end(read, 60, Outcome::Read(vec![Observation { version: Some(version(1)), value: Some(one) }])).unwrap();
    builder.final_read(70, HERE, key, Observation { version: Some(version(1)), value: Some(one) });
    let history = builder.finish().unwrap();
    let text = "\
datacenters 1
keys a%20key
e0 s1 dc0 10..20 put a%20key=1 -> 1.0@0
e1 s1 dc0 30..? put a%20key=2 -> ?
e2 s2 dc0 40..40 adopt e0 -> ok
e3 s2 dc0 50..60 get causal a%20key -> 1@1.0@0
final dc0 70 a%20key=1@1.0@0
";
    assert_eq!(history.to_string(), text);
    assert_eq!(History::parse(text).unwrap(), history);
    for promise in Promise::ALL {
        check(&history, promise).unwrap();
    }
}

#[test]
fn a_recorder_used_wrongly_is_refused() {
    let mut builder = HistoryBuilder::new(1);
    let (action, _) = put(&mut builder, b"x");
    let first = builder.begin(ALICE, HERE, 10, action.clone()).unwrap();
    assert!(builder.begin(ALICE, HERE, 11, action.clone()).is_err(), "one operation at a time");
    assert!(builder.adopt(ALICE, HERE, 11, &[]).is_err());
    builder.end(first, 20, Outcome::Failed).unwrap();
    assert!(builder.end(first, 21, Outcome::Failed).is_err(), "it has ended");
    assert!(builder.unknown(EventId(9)).is_err(), "no such event");
    builder.allow_loss(first);
    assert!(builder.finish().is_err(), "a refused write cannot be lost");

    let mut builder = HistoryBuilder::new(1);
    let event = builder.begin(ALICE, HERE, 10, action).unwrap();
    builder.end(event, 20, Outcome::Read(Vec::new())).unwrap();
    assert!(builder.finish().is_err(), "a put reads nothing");
}

#[test]
fn text_that_is_no_history_is_refused_with_its_line() {
    let refused = |text: &str| History::parse(&format!("datacenters 2\n{text}\n")).expect_err(text).to_string();
    for (text, expected) in [
        ("e1 s1 dc0 0..1 put x=1 -> ok", "line 2: this is event e0"),
        ("e0 s1 dc0 0..1 put x=1", "line 2: an event has an outcome: `-> …`"),
        ("e0 s1 dc0 0..1 swap x=1 -> ok", "line 2: `swap` is no action: put, change, get, rotx, adopt"),
        ("e0 s1 dc0 0..1 get x -> -", "line 2: an operation names its level, for example causal or eventual"),
        ("e0 s1 dc0 0..1 put x=one -> ok", "line 2: `one` is not a number"),
        ("e0 s1 dc0 0..1 put x=1 -> 5@0", "line 2: `5@0` is not a version (milliseconds.counter@data center)"),
        ("e0 s1 dc0 0..1 put x%2=1 -> ok", "line 2: `x%2` is not a key"),
        ("e0 s1 dc0 0..1 put x=1 x=2 -> ok", "e0: a key occurs twice"),
        ("e0 s1 dc0 0..1 put -> ok", "e0: no key, or one that is not in the table of keys"),
        ("e0 s1 dc2 0..1 put x=1 -> ok", "e0: no data center 2"),
        ("e0 s1 dc0 0..1 put x=1 -> 5.0@1", "e0: a write at dc0 got a version of 1"),
        ("e0 s1 dc0 2..1 put x=1 -> ok", "e0: completed before it was invoked"),
        ("e0 s1 dc0 0..1 put x=1 -> ?", "e0: only an unknown outcome has no time of completion"),
        ("e0 s1 dc0 0..1 get causal x -> - -", "e0: 1 keys were read and 2 results came back"),
        ("e0 s1 dc0 0..1 get causal x -> 1@0.0@0", "e0: a version with the timestamp 0"),
        ("e0 s1 dc0 0..1 adopt e0 -> ok", "e0: adopts e0, which is not before it"),
        ("e0 s1 dc0 0..9 get causal x -> -\ne1 s1 dc0 5..6 get causal x -> -", "e1: s1 had another operation under way until 9"),
        ("e0 s1 dc0 0..1 put nonsense x=1 -> ok", "line 2: an operation names its level, for example causal or eventual"),
        ("e0 s1 dc0 0..1 change absent x=1 -> applied", "line 2: an operation names its level, for example causal or eventual"),
        (
            "e0 s1 dc0 0..1 change local missing x=1 -> applied",
            "line 2: `missing` is no condition: always, absent, present, expiring, value:…, version:…",
        ),
        ("e0 s1 dc0 0..1 change local absent x=1 y=2 -> applied", "line 2: `y=2` is too much: a change writes one key"),
        ("e0 s1 dc0 0..1 change local absent x=1 -> ok", "line 2: a change was `applied` or `unmet`"),
        ("e0 s1 dc0 0..1 change local absent x=1 -> unmet 5.0@0", "line 2: a change was `applied` or `unmet`"),
        ("e0 s1 dc0 0..1 change local always x=1 -> unmet", "e0: it was not applied and has a version, or no condition"),
        ("e0 s1 dc0 0..1 change local absent x=1 -> applied 5.0@1", "e0: a write at dc0 got a version of 1"),
        ("e0 s1 dc0 0..1 change local version:5.0@9 x=1 -> unmet", "e0: a version from data center 9"),
        ("lost e0", "lost e0: no write"),
        ("final dc0 5 x", "line 2: a final read is `key=value@version`"),
        ("final dc7 5 x=-", "final dc7 5: no such data center or key"),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
}
