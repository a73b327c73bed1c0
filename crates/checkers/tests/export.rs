//! Histories as files: what is written is read again, and a fault in it is found; what others are given.

use rheostat_checkers::export::{Format, export, lines, parse_lines};
use rheostat_checkers::{History, Promises, check_all};
use rheostat_core::dial::Level;

#[path = "support/model.rs"]
mod model;

/// Every action, condition and outcome that there is.
const ALL: &str = "datacenters 2
keys x y
lost e0
e0 s1 dc0 100..200 put x=1 y=- -> 5.0@0
e1 s1 dc0 210..? put x=2 -> ?
e2 s2 dc1 300..400 get causal x -> 1@5.0@0
e3 s2 dc1 410..500 rotx causal x y -> 1@5.0@0 -@5.0@0
e4 s3 dc1 510..510 adopt e3 -> ok
e5 s3 dc1 520..600 get eventual y -> -
e6 s3 dc1 610..700 get causal y -> failed
e7 s3 dc1 710..800 put strong x=3 -> 8.0@1
e8 s3 dc1 810..900 change strong absent x=4 -> unmet was 3@8.0@1
e9 s3 dc1 910..990 change strong value:3 x=5 -> applied 9.0@1 was 3
e10 s3 dc1 991..992 change strong version:9.0@1 x=6 -> applied 10.0@1 was 5@9.0@1
e11 s3 dc1 993..994 change monotonic-reads version:- y=7 -> unmet
e12 s3 dc1 995..996 change causal present y=- -> unmet was -@5.0@0
e13 s3 dc1 997..998 change causal always y=8 -> applied
final dc0 1000 x=6@10.0@1
final dc1 1000 y=8
";

#[test]
fn what_is_written_is_read_again() {
    let history = History::parse(ALL).unwrap();
    assert_eq!(parse_lines(&lines(&history, Level::Causal)), Ok((history, Level::Causal)));
    for seed in 1..=40 {
        let history = model::history(seed, 200, 4, 3);
        assert_eq!(parse_lines(&lines(&history, Level::SESSION)), Ok((history, Level::SESSION)), "{seed}");
    }
}

#[test]
fn a_history_is_checked_as_well_from_its_file() {
    let mut broken = 0;
    for kind in ["good", "bad"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories").join(kind);
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let Ok(history) = History::parse(&std::fs::read_to_string(&file).unwrap()) else { continue };
            let (again, _) = parse_lines(&lines(&history, Level::Causal)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert_eq!(again, history, "{}", file.display());
            broken += u32::from(check_all(&again, &Promises::causal()).is_err());
        }
    }
    assert!(broken > 10);
}

#[test]
fn a_damaged_file_is_refused_with_its_line() {
    let text = lines(&History::parse(ALL).unwrap(), Level::Causal);
    let damage = [
        ("\"rheostat_history\":1", "\"rheostat_history\":2", 1, "form 2"),
        ("\"level\":\"causal\",\"lost\"", "\"level\":\"casual\",\"lost\"", 1, "casual"),
        ("\"event\":2", "\"event\":7", 4, "this is event 2"),
        ("\"session\":2", "\"session\":-2", 4, "`session` is not a number"),
        ("\"outcome\":\"adopted\"", "\"outcome\":\"lost\"", 6, "no outcome `lost`"),
        ("\"if\":\"absent\"", "\"if\":\"perhaps\"", 10, "no condition `perhaps`"),
        ("\"dc\":1,\"event\":3", "\"dc\":300,\"event\":3", 5, "`dc` is too great"),
    ];
    for (from, to, line, why) in damage {
        assert!(text.contains(from), "{from}");
        let error = parse_lines(&text.replacen(from, to, 1)).unwrap_err();
        assert!(error.line == line && error.what.contains(why), "{from}: {error}");
    }
    assert_eq!(parse_lines("").unwrap_err().to_string(), "the file is empty");
    assert!(parse_lines("{}\n").unwrap_err().to_string().contains("this is no history"));
    assert!(parse_lines("nonsense\n").unwrap_err().line == 1);
}

#[test]
fn other_checkers_are_given_transactions_of_unique_values() {
    let history = History::parse(ALL).unwrap();
    let text = export(&history, Level::Causal, Format::Text);
    // Key 0 is x. The delete of y writes 9, beyond the greatest value; nobody read the write without a reply.
    assert!(text.starts_with("w(0,1,0,0)\nw(1,9,0,0)\nr(0,1,1,1)\nr(0,1,1,2)\nr(1,9,1,2)\nw(0,3,2,3)\n"), "{text}");
    assert!(!text.contains(",2,0,"), "{text}");
    let dbcop: serde_json::Value = serde_json::from_str(&export(&history, Level::Causal, Format::Dbcop)).unwrap();
    assert_eq!(dbcop.as_array().unwrap().len(), 3);
    assert_eq!(dbcop[0][0]["events"][1], serde_json::json!({ "Write": { "variable": 1, "version": 9 } }));
    assert_eq!(dbcop[1][1]["events"][0], serde_json::json!({ "Read": { "variable": 0, "version": 1 } }));
    let edn = export(&history, Level::Causal, Format::Edn);
    assert!(edn.starts_with("{:index 0, :time 100000, :type :invoke, :process 1, :f :txn, :value [[:w 0 1] [:w 1 9]]}\n"), "{edn}");
    assert!(edn.contains(":type :ok, :process 2, :f :txn, :value [[:r 0 1] [:r 1 9]]}"), "{edn}");
    for (format, ending, _) in Format::ALL {
        assert_eq!(Format::of_ending(ending), Some(format));
    }
}
