//! `rheostat designer`: it says what the command line says, and what it writes the command line runs.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program, serving the page.
struct Designer {
    child: Child,
    host: String,
}

impl Designer {
    fn start() -> Designer {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rheostat"));
        let mut child = command.args(["designer", "--port", "0"]).env_remove("RHEOSTAT_LOG").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let host =
            line.trim().strip_prefix("Designer: http://").and_then(|rest| rest.strip_suffix('/')).unwrap_or_else(|| panic!("{line}")).to_owned();
        Designer { child, host }
    }

    /// Status, head and body of what answers a request.
    fn send(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.host))
    }

    fn post(&self, path: &str, headers: &str, body: &Value) -> (u16, String, String) {
        let body = body.to_string();
        let (host, length) = (&self.host, body.len());
        self.send(&format!("POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"))
    }

    /// Asked as its page asks.
    fn ask(&self, call: &str, body: &Value) -> Value {
        let own = format!("origin: http://{}\r\ncontent-type: application/json\r\n", self.host);
        let (status, head, answer) = self.post(&format!("/api/design/{call}"), &own, body);
        assert_eq!(status, 200, "{head}\n{answer}");
        serde_json::from_str(&answer).unwrap()
    }
}

impl Drop for Designer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rheostat(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rheostat")).current_dir(folder).args(arguments).env_remove("RHEOSTAT_LOG").output().unwrap()
}

#[test]
fn it_serves_its_page_and_nothing_else_to_nobody_else() {
    let designer = Designer::start();
    let (status, head, body) = designer.get("/");
    assert!(status == 200 && body.contains("/js/alone.js"), "{head}");
    assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"), "{head}");
    for path in ["/js/designer.js", "/console.css", "/api/session", "/api/design/catalogue", "/api/design/progress"] {
        assert_eq!(designer.get(path).0, 200, "{path}");
    }
    for path in ["/js/main.js", "/js/key.js", "/metrics", "/health", "/api/status", "/api/key", "/api/design/none", "/../Cargo.toml"] {
        assert_eq!(designer.get(path).0, 404, "{path}");
    }
    assert_eq!((designer.get("/api/design/run").0, designer.get("/api/design/check").0), (405, 405));
    let foreign = designer.send("GET /api/design/catalogue HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
    assert_eq!(foreign.0, 403, "a name that points here");
    let check = json!({ "kind": "cluster", "example": "demo" });
    for headers in ["", "content-type: application/json\r\n", "origin: http://evil.example\r\ncontent-type: application/json\r\n"] {
        assert_eq!(designer.post("/api/design/check", headers, &check).0, 403, "{headers}");
    }
    let large = json!({ "kind": "cluster", "text": "#".repeat(70_000) });
    let own = format!("origin: http://{}\r\ncontent-type: application/json\r\n", designer.host);
    assert_eq!(designer.post("/api/design/check", &own, &large).0, 413);
    let address = designer.host.parse::<std::net::SocketAddr>().unwrap();
    assert!(address.ip().is_loopback());
    let busy = rheostat(Path::new("."), &["designer", "--port", &address.port().to_string()]);
    assert!(String::from_utf8_lossy(&busy.stderr).contains("--port 0 takes any free port"), "{busy:?}");
}

#[test]
fn what_is_wrong_is_what_the_command_line_says() {
    let designer = Designer::start();
    let folder = tempfile::tempdir().unwrap();
    let cluster = |rest: &str| format!("cluster = \"shop\"\npartitions = 2\n{rest}\n[[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n");
    let two = "[[data_center]]\nname = \"a\"\n[[data_center]]\nname = \"b\"\n";
    let clusters = [
        cluster(""),
        cluster("[[data_center]]\nname = \"a\"\n[[data_center]]\nname = \"a\""),
        cluster(&format!("{two}colour = \"red\"")),
        cluster(&format!("{two}[emulation]\nknown_regions = true")),
        cluster(&format!("{two}[[emulation.slow]]\ndata_center = \"a\"\npartition = 1\nms = 5")),
        cluster(&format!("{two}[emulation]\nround_trip_ms = \"far\"")),
        cluster(two).replace("causal", "casual"),
        cluster(two).replace("partitions = 2", "partitions = 70000"),
        cluster("[[data_center]]\nname = \"a\"\nhost = \"10.0.0.1\""),
        "cluster = ".to_owned(),
    ];
    let experiment = String::from_utf8(rheostat(folder.path(), &["lab", "list"]).stdout).unwrap();
    assert!(experiment.contains("get-put-share"));
    let base = designer.ask("check", &json!({ "kind": "experiment", "example": "slow-partition" }))["text"].as_str().unwrap().to_owned();
    let experiments = [
        base.replace("protocol = \"causal\"", "protocol = \"casual\""),
        base.replace("partitions = 6", "partitions = 0"),
        base.replace("put = 1.0", "put = 2.0"),
        base.replace("data_center = 0", "data_center = 4"),
        base.replace("paths = [\"cluster.slow.ms\"]", "paths = [\"cluster.slow.s.t\"]"),
        base.replace("regions = [\"virginia\"]", "regions = [\"virginia\", \"ohio\"]"),
        base.replace("[[expect]]", "[[expected]]"),
        "name = \"slow-partition\"\n".to_owned(),
    ];
    let files = clusters.iter().map(|text| ("cluster", text)).chain(experiments.iter().map(|text| ("experiment", text)));
    for (kind, text) in files {
        let told = designer.ask("check", &json!({ "kind": kind, "text": text }));
        let name = told["name"].as_str().unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        let output = match kind {
            "cluster" => rheostat(folder.path(), &["ctl", "cluster", "up", "--dry-run", name]),
            _ => rheostat(folder.path(), &["lab", "run", name]),
        };
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{text}");
        assert_eq!(format!("rheostat: {}\n", told["wrong"]["text"].as_str().unwrap_or_else(|| panic!("{text}"))), said, "{text}");
    }
}

#[test]
fn what_is_drawn_runs_on_the_command_line_with_the_same_numbers() {
    let designer = Designer::start();
    let folder = tempfile::tempdir().unwrap();
    let demo = designer.ask("check", &json!({ "kind": "cluster", "example": "demo" }));
    std::fs::write(folder.path().join("demo.toml"), demo["text"].as_str().unwrap()).unwrap();
    let up = rheostat(folder.path(), &["ctl", "cluster", "up", "--dry-run", "demo.toml"]);
    assert!(up.status.success() && String::from_utf8_lossy(&up.stdout).contains("# us-west-1"), "{up:?}");

    let mut drawn = designer.ask("take-over", &json!({ "kind": "experiment", "from": demo["file"], "into": null }))["file"].clone();
    drawn["contender"] =
        json!([{ "name": "causal", "protocol": "causal" }, { "name": "quorum", "protocol": "quorum", "options": { "reads": 2, "writes": 2 } }]);
    drawn["cluster"]["change"] = json!([{ "at_ms": 100, "between": [0, 2], "ms": 250 }]);
    drawn["quick"] = json!({ "warm_ms": 200, "measure_ms": 600, "repetitions": 2 });
    let file = designer.ask("check", &json!({ "kind": "experiment", "file": drawn }));
    assert_eq!(file["wrong"], Value::Null);
    let (name, text) = (file["name"].as_str().unwrap(), file["text"].as_str().unwrap());
    designer.ask("run", &json!({ "text": text, "form": "quick" }));
    let end = Instant::now() + Duration::from_secs(120);
    let told = loop {
        let told: Value = serde_json::from_str(&designer.get("/api/design/progress").2).unwrap();
        if told["state"] != "running" {
            break told;
        }
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!((&told["state"], &told["done"]), (&json!("done"), &json!(4)), "{told}");

    std::fs::write(folder.path().join(name), text).unwrap();
    let ran = rheostat(folder.path(), &["lab", "run", name]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let printed = String::from_utf8(ran.stdout).unwrap();
    for row in told["result"]["table"].as_array().unwrap().iter().skip(1) {
        let cells: Vec<&str> = row.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect();
        let line = printed.lines().find(|line| line.trim_start().starts_with(cells[0])).unwrap_or_else(|| panic!("{} in {printed}", cells[0]));
        let numbers: Vec<&str> = line.trim_start()[cells[0].len()..].split_whitespace().collect();
        assert_eq!(numbers, cells[1..], "{line}");
    }
}
