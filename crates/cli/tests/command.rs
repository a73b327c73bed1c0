//! The command as a user runs it: what it prints, its exit codes, and a demonstration from start to SIGTERM.

use rheostat_core::dial::Level;
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use rheostat_receipts::{Act, Batch, Signer, Statement};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

fn rheostat(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_rheostat")).args(arguments).current_dir(root).env_remove("RHEOSTAT_LOG").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn fails(arguments: &[&str], code: i32, says: &str) {
    let output = rheostat(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(says), "{arguments:?} does not say {says:?}: {error}");
    assert!(!error.contains("panicked"), "{error}");
}

#[track_caller]
fn prints(arguments: &[&str], says: &[&str]) {
    let output = rheostat(arguments);
    let found = text(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    for part in says {
        assert!(found.contains(part), "{arguments:?} does not print {part:?}: {found}");
    }
}

/// It is there for `ctl` and `kv`, and says nothing of servers that are started for a measurement.
#[test]
fn a_password_in_the_environment_does_not_hinder_bench() {
    let wrong: [&[&str]; 5] = [
        &["ycsb", "a", "--connections", "0"],
        &["limit", "a", "--connections", "0"],
        &["visibility", "--rtt", "nonsense"],
        &["counter", "--rtt", "nonsense"],
        &["soak", "--duration=-1"],
    ];
    for arguments in wrong {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rheostat"));
        let output = command.arg("bench").args(arguments).env_remove("RHEOSTAT_LOG").env("RHEOSTAT_PASSWORD", "of a cluster").output().unwrap();
        // Not 2: nothing else is wrong with them.
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn wrong_arguments_are_refused_with_the_reason() {
    fails(&[], 2, "Usage: rheostat");
    fails(&["dmeo"], 2, "similar subcommand exists: 'demo'");
    fails(&["demo", "--partitions", "0"], 2, "0 is not in 1..=64");
    fails(&["demo", "--datacenters", "17"], 2, "17 is not in 1..=16");
    fails(&["demo", "--keep", "--data-dir", "x"], 2, "cannot be used with");
    fails(&["demo", "--datacenters", "4"], 1, "no round-trip time is known for us-east:dc4");
    fails(&["demo", "--regions", "mars,venus"], 1, "no round-trip time is known for mars:venus");
    fails(&["demo", "--regions", "eu,eu"], 1, "eu is there twice");
    fails(&["demo", "--datacenters", "2", "--regions", "a,b,c"], 1, "--regions names 3");
    fails(&["demo", "--rtt", "1,2"], 1, "2 values for 3 pairs");
    fails(&["demo", "--jitter", "-1"], 2, "unexpected argument '-1'");
    fails(&["demo", "--jitter", "NaN"], 1, "jitter_ms");
    fails(&["demo", "--base-port", "65530"], 1, "beyond 65535");
    fails(&["demo", "--story", "fairy"], 2, "possible values: tickets");
    fails(&["demo", "--story", "tickets", "--datacenters", "1"], 1, "needs at least two data centers");
    fails(&["kv", "counter", "move", "stock", "eu", "1", "sideways"], 2, "the directions are: down, up");
    fails(&["kv", "counter", "transfer", "a", "b", "0"], 2, "0 is not in 1..");
    fails(&["kv", "feed", "--limit", "0"], 2, "0 is not in 1..");
    fails(&["kv", "-a", "127.0.0.1:1", "feed"], 1, "cannot connect");
    fails(&["kv", "conflicts"], 2, "<KEY>");
    fails(&["ctl", "counter", "stock", "--yes"], 2, "--reclaim");
    fails(&["bench", "counter", "--clients", "0", "--resp", "a=127.0.0.1:1"], 1, "number of clients is 0");
    fails(&["ctl", "monitor", "add", "x"], 2, "<EXPRESSION>");
    fails(&["ctl", "monitor", "add", "x", "y = 1", "--file", "z"], 2, "cannot be used with");
    fails(&["serve"], 2, "--config <FILE>");
    fails(&["serve", "--config", "no-such.toml"], 1, "no-such.toml: cannot be read");
    fails(&["probe"], 2, "--config <FILE>");
    fails(&["probe", "--config", "no-such.toml"], 1, "no-such.toml: cannot be read");
    fails(&["completions", "dos"], 2, "possible values: bash");
    fails(&["man", "/dev/null/x"], 1, "/dev/null/x: cannot be made");
    fails(&["monitoring", "/proc/1/no"], 1, "/proc/1/no: cannot be made");
    fails(&["ctl", "status", "-a", "x"], 2, "unexpected argument '-a'");
    fails(&["ctl", "-a", "x", "status"], 1, "`x` has no port");
    fails(&["ctl", "-a", "127.0.0.1:1", "status"], 1, "cannot connect");
    fails(&["ctl", "-a", "127.0.0.1:1", "top"], 1, "cannot connect");
    fails(&["ctl", "top", "--every", "10ms"], 1, "at least 100ms");
    fails(&["ctl", "top", "--count", "0"], 2, "0 is not in 1..");
    fails(&["ctl", "-a", "127.0.0.1:1", "status"], 1, "-a takes a gRPC address");
    fails(&["kv", "--level", "stronger", "get", "k"], 2, "the levels are: eventual, session, causal");
    fails(&["kv", "--authority", "no-such.pem", "get", "k"], 1, "no-such.pem: cannot be read");
    fails(&["app", "social", "--settle", "100"], 1, "--settle goes with --rollback task");
    fails(&["bench", "ycsb", "z"], 2, "there is no workload \"z\"");
    fails(&["bench", "ycsb", "a", "--rate", "10", "--pipeline", "2"], 2, "cannot be used with");
    fails(&["bench", "ycsb", "a", "--in-flight", "2"], 2, "--rate <N>");
    fails(&["bench", "ycsb", "c", "--no-load"], 2, "--address <HOST:PORT>");
    fails(&["bench", "ycsb", "a", "--duration", "-1"], 2, "unexpected argument '-1'");
    fails(&["bench", "ycsb", "a", "--connections", "0"], 1, "number of connections");
    fails(&["bench", "--json", "/no/such/folder/file", "ycsb", "a"], 1, "/no/such/folder/file: cannot be written");
    fails(&["bench", "visibility", "--resp", "here"], 1, "name=host:port");
    fails(&["bench", "soak", "--resp", "here"], 1, "name=host:port");
    fails(&["bench", "soak", "--resp", "a=h:1,b=h:2", "--metrics", "h:3"], 1, "1 addresses for 2 data centers");
    fails(&["bench", "compare", "--resp", "here"], 1, "name=host:port");
    fails(&["bench", "compare", "--protocols", "causal,nope"], 1, "there is no protocol \"nope\"");
    fails(&["lab", "run", "figure", "9.9"], 1, "there is no experiment or figure `9.9`");
    fails(&["lab", "run", "no-such.toml"], 1, "no-such.toml: ");
    fails(&["lab", "run", "all", "--ground", "moon"], 2, "the grounds are virtual and processes");
    fails(&["lab", "report", "--out", "no-such-folder"], 1, "nothing was measured of the built-in experiments");
    fails(&["sim", "--stop-after", "0"], 2, "0 is not in 1..");
    fails(&["sim", "--plan", "no-such.plan", "--verify"], 2, "cannot be used with");
    fails(&["sim", "--plan", "no-such.plan", "--keep", "x"], 2, "cannot be used with");
    fails(&["sim", "--planted", "all", "--seed", "7"], 1, "not with --planted all");
    fails(&["sim", "--planted", "all", "--max-seconds", "1"], 1, "--max-seconds");
}

#[test]
fn a_report_stays_until_there_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    std::fs::write(&file, "of an earlier run").unwrap();
    fails(&["app", "social", "-a", "127.0.0.1:1", "--json", &file.display().to_string()], 1, "cannot connect");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "of an earlier run");
    fails(&["app", "social", "-a", "127.0.0.1:1", "--json", "/no/such/folder/file"], 1, "/no/such/folder/file: cannot be written");
    fails(&["bench", "--json", &file.display().to_string(), "ycsb", "a", "--connections", "0"], 1, "number of connections");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "of an earlier run");
}

#[test]
fn a_load_of_which_nothing_succeeds_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // One request at a time, and a read is one request.
            while let Ok(1..) = stream.read(&mut [0; 4096]) {
                let _ = stream.write_all(b"-NOAUTH Authentication required.\r\n");
            }
        }
    });
    let load = ["--no-load", "--fields", "1", "--connections", "1", "--warm-up", "0", "--operations", "5"];
    let output = rheostat(&[&["bench", "ycsb", "a", "--address", &address], &load[..]].concat());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(said.contains("Failed operations: 5 NOAUTH."), "{said}");
}

#[test]
fn a_benchmark_that_is_ended_takes_its_folder_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let is_empty = || std::fs::read_dir(folder.path()).unwrap().next().is_none();
    let mut child = Command::new(env!("CARGO_BIN_EXE_rheostat"))
        .args(["bench", "ycsb", "a", "--records", "10", "--rate", "1", "--duration", "3600"])
        .env("TMPDIR", folder.path())
        .env_remove("RHEOSTAT_LOG")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let error = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("ended by SIGINT") && is_empty(), "{error}");
}

#[test]
fn what_a_history_without_final_reads_is_not_checked_for_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (head, write, last) = (
        r#"{"rheostat_history":1,"level":"causal","data_centers":1,"keys":["x"],"lost":[]}"#,
        r#"{"event":0,"session":1,"dc":0,"from":100,"to":200,"level":"causal","put":[{"key":"x","value":1}],"outcome":"written","version":"5.0@0"}"#,
        r#"{"final":"x","dc":0,"at":900,"value":1,"version":"5.0@0"}"#,
    );
    for (name, lines, ends) in [
        ("cut.jsonl", &[head, write][..], "was broken; convergence and durability were not checked, since there are no final reads\n"),
        ("whole.jsonl", &[head, write, last], "was broken\n"),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        prints(&["check", &file.display().to_string()], &[ends]);
    }
}

#[test]
fn a_malformed_log_filter_is_said() {
    let output = Command::new(env!("CARGO_BIN_EXE_rheostat")).arg("protocols").env("RHEOSTAT_LOG", "a=b=c").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("RHEOSTAT_LOG=`a=b=c` is malformed"), "{}", text(&output.stderr));
}

#[test]
fn help_teaches() {
    prints(&["--help"], &["Examples:", "rheostat demo"]);
    for command in ["demo", "serve", "ctl", "kv", "app", "bench", "lab"] {
        prints(&["help", command], &["Examples:"]);
    }
}

#[test]
fn lists_are_printed() {
    prints(&["protocols"], &["causal", "eventual", "a read waits for", "lines of code"]);
    prints(&["protocols", "--markdown"], &["# Protocols", "| `causal` |", "| `eventual` |"]);
    prints(&["lab", "list"], &["amplified-skew", "001 Fig. 5.2", "003 Fig. 5"]);
    prints(&["config"], &["cluster = ", "[limits]", "max_connections = 10000"]);
}

/// What packages are made from. `packaging/try.sh` goes further, where there are other shells and packagers.
#[test]
fn completions_man_pages_and_monitoring_are_written() {
    prints(&["completions", "bash"], &["_rheostat()", "convergence"]);
    prints(&["completions", "zsh"], &["#compdef rheostat"]);
    prints(&["completions", "fish"], &["complete -c rheostat"]);
    let folder = tempfile::tempdir().unwrap();
    for (command, file, says) in [
        ("man", "rheostat-ctl-status.1", "\\fBrheostat ctl status\\fR"),
        ("monitoring", "rheostat-alerts.yml", "- alert: RheostatNodeDown"),
        ("monitoring", "rheostat-dashboard.json", "\"title\": \"Rheostat\""),
    ] {
        let path = folder.path().join("new").join(command);
        prints(&[command, path.to_str().unwrap()], &["files"]);
        let found = std::fs::read_to_string(path.join(file)).unwrap();
        assert!(found.contains(says), "{file} does not say {says}: {}", &found[..found.len().min(300)]);
    }
}

/// Completions are a program of the shell's. Where bash is, it runs them.
#[test]
fn bash_completes_what_the_command_line_takes() {
    if Command::new("bash").arg("--version").output().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("rheostat");
    std::fs::write(&script, rheostat(&["completions", "bash"]).stdout).unwrap();
    for (words, completed) in [("rheostat ctl converg", "convergence"), ("rheostat serve --chec", "--check"), ("rheostat ctl cluster lo", "logs")] {
        let run = r#". "$1"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _rheostat rheostat "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"; echo "${COMPREPLY[*]}""#;
        let output = Command::new("bash").args(["--norc", "-c", run, "-"]).arg(&script).arg(words).output().unwrap();
        assert_eq!(text(&output.stdout).trim(), completed, "{words}: {}", text(&output.stderr));
    }
}

/// The packaged configurations and the unit fit the program.
#[test]
fn packaged_configurations_are_right() {
    for name in ["deb", "container"] {
        prints(&["serve", "--check", "--config", &format!("packaging/{name}/node.toml")], &["right", "Node node-1 of 1"]);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unit = std::fs::read_to_string(root.join("packaging/deb/rheostat.service")).unwrap();
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(&format!("{key}="))).unwrap_or_else(|| panic!("no {key}"));
    let limits = rheostat_server::config::Limits::default();
    let stop_ms = value("TimeoutStopSec").parse::<u64>().unwrap() * 1000;
    assert!(stop_ms >= 10 * limits.stop_timeout_ms, "systemd would kill a node that still flushes");
    assert!(value("LimitNOFILE").parse::<usize>().unwrap() >= 2 * limits.max_connections);
    assert_eq!(value("ExecStart"), "/usr/bin/rheostat serve --config /etc/rheostat/node.toml");
    let image = std::fs::read_to_string(root.join("packaging/container/Containerfile")).unwrap();
    let check = image.lines().find(|line| line.starts_with("HEALTHCHECK")).unwrap();
    assert!(check.contains("\"probe\", \"--alive\""), "whoever is not ready would be restarted for it: {check}");
    for (version, file) in [("version: ", "packaging/helm/rheostat/Chart.yaml"), ("appVersion: ", "packaging/helm/rheostat/Chart.yaml")] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let found = text.lines().find_map(|line| line.strip_prefix(version)).unwrap().trim_matches('"').to_owned();
        assert_eq!(found, env!("CARGO_PKG_VERSION"), "{file}, {version}");
    }
}

#[test]
fn the_examples_are_right() {
    for name in ["us-east", "us-west", "eu"] {
        prints(&["serve", "--check", "--config", &format!("examples/{name}.toml")], &["right", &format!("Node {name}-1 of 3")]);
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    std::fs::write(&file, "cluster = \"c\"\nnode = \"a\"\ndata_center = \"here\"\ncolour = 1\n").unwrap();
    let path = file.to_str().unwrap();
    fails(&["serve", "--check", "--config", path], 1, &format!("{path}, line 4: unknown field `colour`"));
}

/// A demonstration that runs.
struct Demo {
    child: Child,
    /// RESP and gRPC port of each data center.
    ports: Vec<(u16, u16)>,
    output: BufReader<ChildStdout>,
    /// What it printed up to its tour's end.
    welcome: String,
}

/// A port that is in use, as long as the listener lives, and a first port for a demonstration: such that the taken port is among those wanted, and that there is room for three data
/// centers behind it.
fn taken_port() -> (TcpListener, u16, String) {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().port();
    (held, taken, taken.min(65_000).to_string())
}

impl Demo {
    /// Starts it where its first port is in use, so that it takes free ones.
    fn start(arguments: &[&str]) -> Demo {
        let (_held, taken, base) = taken_port();
        let mut child = Command::new(env!("CARGO_BIN_EXE_rheostat"))
            .args(["demo", "--base-port", &base])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (mut welcome, mut ports) = (String::new(), Vec::new());
        while !welcome.contains("Ctrl-C ends it.") {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "it ended early: {welcome}");
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [_, resp, grpc, metrics] = words[..]
                && metrics.starts_with("http://")
            {
                let port = |address: &str| address.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
                ports.push((port(resp), port(grpc)));
            }
            welcome.push_str(&line);
        }
        assert!(taken > 65_000 || welcome.contains(&format!("Port {taken} is in use")), "{welcome}");
        Demo { child, ports, output, welcome }
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        let address = format!("127.0.0.1:{}", self.ports[0].1);
        rheostat(&[&["ctl", "-a", &address], arguments].concat())
    }

    fn connect(&self, data_center: usize) -> Resp {
        Resp(BufReader::new(TcpStream::connect(("127.0.0.1", self.ports[data_center].0)).unwrap()))
    }

    /// Ends it with SIGTERM; returns what it printed after its welcome.
    fn terminate(mut self) -> String {
        let signalled = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(signalled.success());
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{status}");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that speaks just enough RESP2.
struct Resp(BufReader<TcpStream>);

impl Resp {
    /// Sends one command; returns its reply, arrays as their elements in parentheses.
    fn ask(&mut self, command: &[&str]) -> String {
        let mut request = format!("*{}\r\n", command.len());
        for word in command {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        self.reply()
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let number = || line[1..].parse::<i64>().unwrap();
        match &line[..1] {
            "$" if number() < 0 => "nil".to_string(),
            "$" => {
                let mut bytes = vec![0; number() as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                text(&bytes[..bytes.len() - 2])
            }
            "*" if number() < 0 => "nil".to_string(),
            "*" => format!("({})", (0..number()).map(|_| self.reply()).collect::<Vec<_>>().join(" ")),
            _ => line[1..].to_string(),
        }
    }
}

/// Asks again and again until the answer is `wanted`; every answer goes through `look` first.
#[track_caller]
fn until(wanted: &str, mut look: impl FnMut(&str), mut ask: impl FnMut() -> String) {
    let begun = Instant::now();
    loop {
        let answer = ask();
        look(&answer);
        if answer == wanted {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "still {answer:?}, not {wanted:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_tour_shows_that_no_effect_comes_before_its_cause() {
    let demo = Demo::start(&["--rtt", "20"]);
    assert_eq!(demo.ports.len(), 3);
    assert!(demo.welcome.contains("ctl -a 127.0.0.1:"), "its tour names its own ports: {}", demo.welcome);
    let paused = demo.ctl(&["pause-link", "us-east", "eu"]);
    assert_eq!(text(&paused.stdout), "us-east-1: paused\neu-1: paused\n", "{}", text(&paused.stderr));
    assert_eq!(demo.connect(0).ask(&["SET", "photo", "sunset"]), "OK");
    let mut us_west = demo.connect(1);
    until("sunset", |_| (), || us_west.ask(&["GET", "photo"]));
    assert_eq!(us_west.ask(&["SET", "comment", "wow"]), "OK");

    let explained = || text(&demo.ctl(&["explain", "comment"]).stdout);
    let begun = Instant::now();
    let in_eu = loop {
        let found = explained();
        let in_eu = found.split("eu (partition").nth(1).unwrap().to_string();
        if in_eu.contains("@us-west") {
            break in_eu;
        }
        assert!(begun.elapsed() < PATIENCE, "{found}");
    };
    assert!(in_eu.contains("hidden: "), "it has arrived, and its cause has not: {in_eu}");
    let mut eu = demo.connect(2);
    assert_eq!(eu.ask(&["MGET", "comment", "photo"]), "(nil nil)");
    let status = demo.ctl(&["status"]);
    let found = text(&status.stdout);
    assert!(found.contains("the link between us-east and eu is cut on purpose; rheostat ctl resume-link us-east eu"), "{found}");
    assert!(found.contains("behind the others by") && !found.contains("keyspace  partition"), "{found}");
    let verbose = text(&demo.ctl(&["status", "--verbose"]).stdout);
    assert!(verbose.starts_with("cluster demo: ") && verbose.contains("leader_known") && verbose.contains("under way"), "{verbose}");
    let said = eu.ask(&["RHEO", "EXPLAIN", "comment"]);
    assert!(said.contains("us-west") && said.contains("data center us-east") && !said.contains("data center 0"), "data centers have names: {said}");
    in_json(&demo);
    let reader = std::thread::spawn({
        let mut client = demo.connect(2);
        move || (0..100).for_each(|_| assert_eq!(client.ask(&["GET", "photo"]), "nil"))
    });
    let top = text(&demo.ctl(&["top", "--every", "100ms", "--count", "2"]).stdout);
    reader.join().unwrap();
    assert_eq!(top.matches("reads/s").count(), 2, "{top}");
    assert!(top.contains("cut on purpose") && top.contains("eu is behind us-east") && !top.contains('\x1b'), "{top}");
    let convergence = demo.ctl(&["convergence", "--wait", "0"]);
    assert_eq!(convergence.status.code(), Some(1), "{}", text(&convergence.stdout));
    assert!(text(&convergence.stdout).contains("not converged"), "{}", text(&convergence.stdout));

    assert!(demo.ctl(&["resume-link", "us-east", "eu"]).status.success());
    let whole = |answer: &str| assert_ne!(answer, "(wow nil)", "an effect without its cause");
    until("(wow sunset)", whole, || eu.ask(&["MGET", "comment", "photo"]));
    let convergence = demo.ctl(&["convergence", "--wait", "30", "--digest"]);
    let found = text(&convergence.stdout);
    assert!(convergence.status.success() && found.contains("every data center shows the same"), "{found}{}", text(&convergence.stderr));
    assert!(demo.terminate().contains("SIGTERM: ending."));
}

#[test]
fn the_dial_says_what_reads_missed_while_a_link_was_cut() {
    let demo = Demo::start(&["--datacenters", "2", "--rtt", "4", "--partitions", "1"]);
    let dial = |more: &[&str]| text(&demo.ctl(&[&["dial", "--keyspace", "eventual"], more].concat()).stdout);
    assert_eq!(dial(&[]), "keyspace eventual (eventual): one of 1000 reads of one key is sampled\n  none so far\n");
    let (mut near, mut far) = (demo.connect(0), demo.connect(1));
    for client in [&mut near, &mut far] {
        assert_eq!(client.ask(&["SELECT", "eventual"]), "OK");
    }
    assert!(demo.ctl(&["pause-link", "us-east", "us-west"]).status.success());
    assert_eq!(near.ask(&["SET", "k", "new"]), "OK");
    std::thread::sleep(Duration::from_millis(5));
    for _ in 0..2000 {
        assert_eq!(far.ask(&["GET", "k"]), "nil");
    }
    assert!(dial(&[]).contains("strong: nothing is settled yet"), "{}", dial(&[]));
    assert!(demo.ctl(&["resume-link", "us-east", "us-west"]).status.success());
    until("true", |_| (), || dial(&[]).contains("strong would change 100 % of reads (2 of 2;").to_string());
    let json = dial(&["--json", "--data-center", "us-west"]);
    assert!(json.contains("\"differ\":2") && json.contains("\"level\":\"eventual\""), "{json}");
    let elsewhere = dial(&["--data-center", "us-east"]);
    assert!(elsewhere.contains("none so far"), "{elsewhere}");
    let wrong = demo.ctl(&["dial", "--keyspace", "nope"]);
    assert!(text(&wrong.stderr).contains("there is no keyspace `nope`; there are: default, eventual"), "{}", text(&wrong.stderr));
    demo.terminate();
}

#[test]
fn receipts_are_kept_and_verified_and_what_is_wrong_with_them_is_said() {
    let demo = Demo::start(&["--datacenters", "2", "--rtt", "4", "--partitions", "2"]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (mine, yours) = (path("mine"), path("yours"));
    let address = |node: usize| format!("127.0.0.1:{}", demo.ports[node].1);
    let kv = |node: usize, arguments: &[&str]| rheostat(&[&["kv", "-a", &address(node)], arguments].concat());
    let put = kv(0, &["--receipt", &mine, "--show-session", "put", "photo", "sunset"]);
    assert!(put.status.success(), "{}", text(&put.stderr));
    let token = text(&put.stderr).trim().to_string();
    // In the other data center the session waits for what it has written.
    let read = kv(1, &["--receipt", &mine, "--session", &token, "get", "photo"]);
    assert_eq!(text(&read.stdout), "sunset\n", "{}", text(&read.stderr));
    assert!(kv(1, &["--receipt", &yours, "get", "photo"]).status.success());
    assert!(kv(0, &["--receipt", &yours, "del", "photo", "nothing"]).status.code() == Some(1), "one key is not there");
    let none = kv(0, &["--receipt", &yours, "mget", "photo"]);
    assert!(text(&none.stderr).contains("no receipt"), "{}", text(&none.stderr));
    // A write that misses its service level is made all the same, and is in the session.
    assert!(demo.ctl(&["pause-link", "us-east", "us-west"]).status.success());
    let missed = kv(0, &["--sla", "durable 2 100ms", "--show-session", "put", "first", "1"]);
    assert_eq!(missed.status.code(), Some(1), "{}", text(&missed.stderr));
    assert!(demo.ctl(&["resume-link", "us-east", "us-west"]).status.success());
    let said = text(&missed.stderr);
    let token = said.lines().next().unwrap();
    until("1\n", |_| {}, || text(&kv(1, &["--session", token, "get", "first"]).stdout));

    let status = text(&demo.ctl(&["status", "--verbose"]).stdout);
    let keys: Vec<String> = status.split_whitespace().filter(|word| word.len() == 64).map(str::to_string).collect();
    assert_eq!(keys.len(), 2, "{status}");
    let trust = keys.join(",");
    let verified = |arguments: &[&str]| {
        let output = rheostat(&[&["verify"], arguments].concat());
        assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = verified(&["--trust", &trust, &mine, &yours]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("4 receipts signed by trusted keys") && said.contains("1 continue another one's session"), "{said}");
    assert!(said.contains("0 contradictions, 0 possible ones, 0 lines"), "{said}");
    let (code, said) = verified(&[&mine]);
    assert!(code == Some(1) && said.contains("whom do you trust?") && said.contains(&keys[0]), "{said}");
    let (code, said) = verified(&["--trust", &"0".repeat(64), &mine]);
    assert!(code == Some(1) && said.contains("which is not trusted") && said.contains("2 lines that are no receipts"), "{said}");
    let trusting = path("trusting");
    std::fs::write(&trusting, format!("# ours\n{} us-east\n\n{} us-west\n", keys[0], keys[1])).unwrap();
    assert_eq!(verified(&["--trust-file", &trusting, &mine]).0, Some(0));
    demo.terminate();

    // Altered, cut short, not text, without end, empty, not there.
    let whole = std::fs::read_to_string(&mine).unwrap();
    let altered = whole.replacen("a", "b", 3);
    let hostile: Vec<(&str, Vec<u8>)> = vec![
        ("altered", altered.into_bytes()),
        ("cut", whole.as_bytes()[..whole.len() - 40].to_vec()),
        ("binary", (0..100_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect()),
        ("endless", vec![b'a'; 30 << 20]),
        ("digits", [b"rheo-receipt-1:".to_vec(), vec![b'0'; 1 << 20]].concat()),
    ];
    for (name, bytes) in hostile {
        let file = path(name);
        std::fs::write(&file, bytes).unwrap();
        let (code, said) = verified(&["--trust", &trust, &file]);
        assert!(code == Some(1) && !said.contains(" 0 lines that are no receipts"), "{name}: {said}");
        assert!(said.len() < 20_000, "{name}: {} bytes", said.len());
    }
    std::fs::write(path("empty"), "").unwrap();
    assert_eq!(verified(&["--trust", &trust, &path("empty")]).0, Some(0));
    fails(&["verify", "--trust", &trust, "no-such-file"], 1, "no-such-file: cannot be read");
    fails(&["verify", "--trust", "12", &mine], 2, "is no public key");
    fails(&["verify", "--trust", &trust], 2, "<FILE>");

    // What no store can have said that keeps its promises.
    let signer = Signer::new().unwrap();
    let mut one = Statement {
        cluster: 1,
        node: "liar".into(),
        here: DcId(0),
        keyspace: "default".into(),
        salt: 7,
        key: Statement::key_digest(b"photo"),
        act: Act::Write,
        version: Some(VersionId { written: Timestamp::new(20, 0), origin: DcId(0) }),
        lasting: true,
        level: Level::Causal,
        staleness_ms: None,
        began_ms: 30,
        before: [0; 32],
        after: [1; 32],
        past: Default::default(),
        previous: None,
    };
    let mut lines = String::new();
    for read in [Some(VersionId { written: Timestamp::new(10, 0), origin: DcId(1) }), None] {
        let mut batch = Batch::default();
        let wrote = one.clone();
        one.salt += 1;
        let missed = Statement { act: Act::Read, version: read, before: wrote.after, previous: Some(wrote.digest()), ..one.clone() };
        let places = [&wrote, &missed].map(|statement| batch.add(statement.digest()).unwrap());
        for (statement, place) in [wrote, missed].into_iter().zip(places) {
            lines += &format!("{}\n", batch.receipt(statement, place, &signer).unwrap().to_line());
        }
    }
    std::fs::write(path("lies"), lines).unwrap();
    let (code, said) = verified(&["--trust", &signer.public(), &path("lies")]);
    assert!(code == Some(1) && said.contains("BROKEN: read your writes") && said.contains("lies, line 1") && said.contains("lies, line 2"), "{said}");
    assert!(said.contains("POSSIBLY BROKEN") && said.contains("1 contradictions, 1 possible ones"), "{said}");
    let (_, said) = verified(&["--nothing-is-deleted", "--trust", &signer.public(), &path("lies")]);
    assert!(said.contains("2 contradictions, 0 possible ones"), "{said}");
}

#[test]
fn counters_from_the_command_line() {
    let demo = Demo::start(&["--datacenters", "2", "--rtt", "4"]);
    let kv = |node: usize, arguments: &[&str]| {
        let address = format!("127.0.0.1:{}", demo.ports[node].1);
        rheostat(&[&["kv", "-a", &address, "counter"], arguments].concat())
    };
    let made = kv(0, &["create", "{t}stock", "--min", "0", "--value", "100", "--place", "3,1"]);
    let said = text(&made.stdout);
    assert!(said.contains("value 100, never below 0") && said.contains("us-east") && said.contains("75"), "{said}{}", text(&made.stderr));
    assert_eq!(text(&kv(0, &["add", "{t}stock", "-5", "{t}sold", "5"]).stdout), "{t}stock: 95\n{t}sold: 5\n");
    let refused = kv(0, &["add", "{t}stock", "-90"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("scope global may get them"), "{}", text(&refused.stderr));
    assert_eq!(text(&kv(0, &["add", "{t}stock", "-90", "--global"]).stdout), "{t}stock: 5\n");

    let drawn = || text(&demo.ctl(&["counter", "{t}stock"]).stdout);
    until("2", |_| (), || drawn().matches("value 5, never below 0").count().to_string());
    assert!(drawn().contains("as us-west sees it"), "{}", drawn());
    let unsure = demo.ctl(&["counter", "{t}stock", "--reclaim", "us-west"]);
    assert_eq!(unsure.status.code(), Some(1));
    assert!(
        text(&unsure.stdout).contains("Type us-west to go on") && text(&unsure.stderr).contains("nothing was reclaimed"),
        "{}",
        text(&unsure.stderr)
    );
    let sure = demo.ctl(&["counter", "{t}stock", "--reclaim", "us-west", "--yes"]);
    assert!(text(&sure.stdout).contains("us-east reclaims the rights of us-west."), "{}{}", text(&sure.stdout), text(&sure.stderr));
    // As both data centers see it.
    until("2", |_| (), || drawn().matches("its rights were reclaimed by us-east").count().to_string());
    let fenced = kv(1, &["add", "{t}stock", "-1"]);
    assert!(text(&fenced.stderr).contains("were reclaimed by"), "{}{}", text(&fenced.stdout), text(&fenced.stderr));
    demo.terminate();
}

#[test]
fn the_story_of_the_tickets_ends_with_who_oversold() {
    let (_held, _, base) = taken_port();
    let told = rheostat(&["demo", "--story", "tickets", "--base-port", &base, "--rtt", "20", "--keep"]);
    let said = text(&told.stdout);
    let kept = said.lines().find_map(|line| line.strip_prefix("Data: ")).unwrap_or_else(|| panic!("no folder that is kept: {said}"));
    std::fs::remove_dir_all(kept).unwrap();
    assert!(told.status.success(), "{said}{}", text(&told.stderr));
    assert!(said.contains("--- eu is cut off ---") && said.contains("--- eu is connected again ---"), "{said}");
    assert!(said.contains("bounded: 1000 of 1000 tickets sold, none twice."), "{said}");
    assert!(said.contains("weak: OVERSOLD."), "{said}");
}

#[test]
fn the_story_of_the_lock_ends_with_its_alarm_and_a_hand_over_without_one() {
    let (_held, _, base) = taken_port();
    let told = rheostat(&["demo", "--story", "monitor", "--base-port", &base, "--rtt", "150"]);
    let said = text(&told.stdout);
    assert!(told.status.success(), "{said}{}", text(&told.stderr));
    assert!(said.contains("one-holder: VIOLATED in keyspace eventual"), "{said}");
    assert!(said.contains("lock_a = \"taken\"  in us-east") && said.contains("lock_b = \"taken\"  in eu"), "{said}");
    let both = said.contains("2 of 2 keys were written back; 2 versions written since are lost.");
    // On a busy machine the second lock can be taken so late that before it nothing was violated.
    let one =
        said.contains("1 of 1 keys were written back; 1 versions written since are lost.") && said.contains("nothing was violated yet, keeps it");
    assert!(both || one, "{said}");
    assert!(said.contains("Every data center shows what was.") && said.contains("Clients write again."), "{said}");
    assert!(said.contains("lock_a is taken: waits"), "{said}");
    assert!(said.contains("No alarm: Alice had given it back"), "{said}");
}

/// The way between data centers takes so long that the coordinator is killed while servers wait for each other.
#[test]
fn a_rollback_that_is_killed_lets_clients_go_on_and_comes_to_its_end_when_it_is_run_again() {
    let demo = Demo::start(&["--rtt", "4000", "--partitions", "1"]);
    let address = format!("127.0.0.1:{}", demo.ports[0].1);
    let mut client = demo.connect(0);
    assert_eq!(client.ask(&["SELECT", "eventual"]), "OK");
    assert_eq!(client.ask(&["SET", "seat", "free"]), "OK");
    assert_eq!(client.ask(&["GET", "seat"]), "free");
    let quality = client.ask(&["RHEO", "QUALITY"]);
    let then = quality.split(' ').find_map(|word| word.strip_suffix("@us-east")).expect("a version").to_string();
    assert_eq!(client.ask(&["SET", "seat", "taken"]), "OK");
    let rollback = ["rollback", "--keyspace", "eventual", "--to", &then, "--keys", "s*", "--stop-for", "20"];
    let mut coordinator =
        Command::new(env!("CARGO_BIN_EXE_rheostat")).args(["ctl", "-a", &address]).args(rollback).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(coordinator.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("looking for what has changed") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    let refused = client.ask(&["SET", "seat", "mine"]);
    assert!(refused.starts_with("BUSY keys that match `s*` are being rolled back; try again"), "{refused}");
    assert_eq!((client.ask(&["GET", "seat"]), client.ask(&["SET", "other", "1"])), ("taken".to_string(), "OK".to_string()));
    until("OK", |answer| assert!(answer == "OK" || answer.starts_with("BUSY"), "{answer}"), || client.ask(&["SET", "seat", "mine"]));
    for wrong in [&["rollback", "--keyspace", "eventual"][..], &["rollback", "--to", "-1s", "--before", "us-east-1:1"], &["rollback", "--to", "soon"]]
    {
        let said = demo.ctl(wrong);
        assert!(!said.status.success() && text(&said.stdout).is_empty(), "{wrong:?}: {}", text(&said.stdout));
    }
    let looked = demo.ctl(&[&rollback[..], &["--dry-run", "--json"]].concat());
    let looked: serde_json::Value = serde_json::from_slice(&looked.stdout).expect("one value");
    let seat = &looked["keys"][0];
    assert_eq!((looked["all_keys"].as_u64(), looked["to_restore"].as_u64(), looked["restored"].as_u64()), (Some(1), Some(1), Some(0)), "{looked}");
    assert_eq!((&seat["key"]["text"], &seat["then"]["origin"], &looked["failed"]), (&"seat".into(), &"us-east".into(), &serde_json::Value::Null));
    let lost: Vec<_> = seat["lost"].as_array().unwrap().iter().map(|one| one["bytes"].as_u64()).collect();
    assert_eq!(lost, [Some(4), Some(5)], "mine, and before it taken: {looked}");
    let again = demo.ctl(&rollback);
    assert!(again.status.success(), "{}{}", text(&again.stdout), text(&again.stderr));
    assert!(text(&again.stdout).contains("1 of 1 keys were written back; 2 versions written since are lost."), "{}", text(&again.stdout));
    for data_center in 0..3 {
        let mut client = demo.connect(data_center);
        assert_eq!(client.ask(&["SELECT", "eventual"]), "OK");
        assert_eq!(client.ask(&["GET", "seat"]), "free", "{data_center}");
    }
    assert_eq!(client.ask(&["SET", "seat", "mine"]), "OK");
    demo.terminate();
}

/// Each command of `ctl` that looks at something answers in JSON as well: one value.
fn in_json(demo: &Demo) {
    let ask = |arguments: &[&str]| -> serde_json::Value {
        let output = demo.ctl(arguments);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}{}", text(&output.stdout), text(&output.stderr)))
    };
    let status = ask(&["--json", "status"]);
    assert!(status["wrong"].as_array().unwrap().iter().any(|one| one["next"] == "rheostat ctl resume-link us-east eu lets it go on"), "{status}");
    assert_eq!((status["data_centers"][2]["name"].as_str(), status["nodes"].as_array().unwrap().len()), (Some("eu"), 3), "{status}");
    let top = ask(&["top", "--every", "300ms", "--count", "1", "--json"]);
    let rates = |index: usize| top["nodes"][index]["per_second"]["reads"].as_f64();
    assert!((0..3).all(|index| rates(index).is_some_and(|reads| reads >= 0.0)) && top["nodes"].as_array().unwrap().len() == 3, "{top}");
    assert!(top["wrong"].as_array().unwrap().iter().any(|one| one.as_str().unwrap().contains("cut on purpose")), "{top}");
    let explained = ask(&["explain", "comment", "--json"]);
    let versions = &explained["data_centers"][2]["versions"];
    assert_eq!(versions[0]["version"]["origin"], "us-west", "{explained}");
    assert!(versions[0]["hidden"].as_str().unwrap().contains("data center us-east"), "{explained}");
    let convergence = ask(&["convergence", "--links", "--wait", "0", "--json"]);
    assert!(convergence["converged"] == false && convergence["links"].as_array().unwrap().len() > 6, "{convergence}");
    assert_eq!(ask(&["pause-link", "eu", "us-east", "--json"])["nodes"][0]["changed"], false);
    assert_eq!(ask(&["monitor", "--json", "list"]), serde_json::json!([]));
    assert_eq!(ask(&["counter", "none", "--json"])["data_centers"].as_array().unwrap().len(), 3);
    assert!(ask(&["rotate-token-key", "--json"])["generation"].is_u64());
    assert!(text(&demo.ctl(&["shell", "--json"]).stderr).contains("leave --json out"));
}

#[test]
fn a_demonstration_with_a_folder_finds_everything_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_string();
    let arguments = ["--datacenters", "2", "--partitions", "1", "--data-dir", &path];
    let demo = Demo::start(&arguments);
    let address = format!("127.0.0.1:{}", demo.ports[0].1);
    let written = rheostat(&["kv", "-a", &address, "--show-session", "put", "kept", "value"]);
    assert!(text(&written.stdout).trim_end().ends_with("@us-east"), "{}", text(&written.stderr));
    let token = text(&written.stderr).trim().to_string();
    demo.terminate();

    let demo = Demo::start(&arguments);
    let address = format!("127.0.0.1:{}", demo.ports[1].1);
    let read = rheostat(&["kv", "-a", &address, "--session", &token, "--verbose", "get", "kept"]);
    assert_eq!(text(&read.stdout), "value\n", "{}", text(&read.stderr));
    assert!(text(&read.stderr).contains("level causal"), "{}", text(&read.stderr));
    let absent = rheostat(&["kv", "-a", &address, "get", "absent"]);
    assert_eq!((absent.status.code(), text(&absent.stdout)), (Some(1), String::new()));
    let foreign = rheostat(&["kv", "-a", &address, "--session", "nonsense", "get", "kept"]);
    assert_eq!(foreign.status.code(), Some(1));
    assert!(text(&foreign.stderr).contains("not a session token"), "{}", text(&foreign.stderr));
    demo.terminate();

    // The folder is one of a cluster with other data centers.
    let other = rheostat(&["demo", "--datacenters", "1", "--data-dir", &path]);
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains("made with another configuration"), "{}", text(&other.stderr));
}

/// What an application says at its end, as JSON, and its exit code.
fn app(demo: &Demo, arguments: &[&str]) -> (String, Output) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let address = format!("127.0.0.1:{}", demo.ports[0].1);
    let common = ["-a", &address, "--json", file.to_str().unwrap()];
    let output = rheostat(&[&["app"], arguments, &common].concat());
    (std::fs::read_to_string(&file).unwrap_or_default(), output)
}

#[test]
fn applications_end_with_an_outcome_that_the_store_has() {
    let demo = Demo::start(&["--rtt", "60"]);
    let says = |(json, output): (String, Output), parts: &[&str]| {
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}{}", text(&output.stderr));
        for part in parts {
            assert!(json.contains(part) || said.contains(part), "no {part:?}: {said}{json}");
        }
    };
    let watched = ["--monitor", "--rollback", "task"];
    let social = [&["social", "--nodes", "16", "--clients", "4", "--graph", "regular"][..], &watched].concat();
    says(app(&demo, &social), &["16 of 16 tasks", "16 nodes and 48 edges", "\"faults\": []", "\"overlaps\": 0", "\"gaps\": 0", "outcome      right"]);
    says(
        app(&demo, &["social", "--nodes", "9", "--clients", "3", "--consistency", "sequential"]),
        &["\"rolled_back\": 0", "9 of 9 tasks", "nobody watched"],
    );
    let adaptive = [&["social", "--nodes", "12", "--clients", "6", "--consistency", "adaptive", "--livelock", "reorder"][..], &watched].concat();
    says(app(&demo, &adaptive), &["12 of 12 tasks", "\"faults\": []"]);
    let weather =
        [&["weather", "--shape", "grid", "--nodes", "16", "--clients", "4", "--put-share", "50", "--duration", "4", "--write-all"][..], &watched]
            .concat();
    says(app(&demo, &weather), &["a grid of 4 x 4 nodes", "of states,", "each is in all data centers what its client wrote last"]);
    let conjunctive = ["conjunctive", "--predicates", "3", "--locals", "2", "--clients", "3", "--chance", "0.5", "--rate", "10", "--duration", "5"];
    says(app(&demo, &conjunctive), &["were true at once", "; 0 of them without an alarm", "told after"]);
    // A weak keyspace without quorums will do, too, as far as it goes.
    says(app(&demo, &["weather", "--nodes", "4", "--clients", "1", "--keyspace", "eventual", "--duration", "1", "--quiet"]), &["outcome      right"]);
    // Nothing is left behind.
    let list = text(&demo.ctl(&["monitor", "list"]).stdout);
    assert!(!list.contains("flag"), "{list}");

    for (arguments, words) in [
        (&["social", "--rollback", "task"][..], "needs --monitor"),
        (&["social", "--consistency", "adaptive"], "rolled back"),
        (&["social", "--consistency", "sequential", "--monitor", "--rollback", "task"], "where quorums meet nothing is rolled back"),
        (&["social", "--consistency", "sequential", "--keyspace", "eventual"], "which has no quorums"),
        (&["social", "--write-all", "--keyspace", "eventual"], "--write-all needs one of protocol quorum"),
        (&["social", "--keyspace", "nope"], "there is no keyspace `nope`"),
        (&["social", "--graph", "regular", "--nodes", "8", "--clients", "0"], "0 is not in 1..=1000"),
        (&["weather", "--nodes", "4", "--clients", "9"], "each needs one"),
        (&["weather", "--put-share", "100"], "100 is not in 5..=90"),
        (&["conjunctive", "--clients", "2", "--locals", "3"], "each of another client"),
        (&["conjunctive", "--chance", "1.5"], "from 0 to 1"),
    ] {
        let (_, output) = app(&demo, arguments);
        assert!(!output.status.success() && text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
    demo.terminate();
}

/// While data centers differ its outcome is waited for.
#[test]
fn an_application_ends_while_its_outcome_is_waited_for() {
    let demo = Demo::start(&["--rtt", "40"]);
    for other in ["us-east", "us-west"] {
        let paused = demo.ctl(&["pause-link", other, "eu"]);
        assert!(paused.status.success(), "{}", text(&paused.stderr));
    }
    let address = format!("127.0.0.1:{}", demo.ports[0].1);
    let mut child = Command::new(env!("CARGO_BIN_EXE_rheostat"))
        .args(["app", "social", "-a", &address, "--nodes", "8", "--clients", "3", "--duration", "1"])
        .env_remove("RHEOSTAT_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.contains(" done, "), "{line}");
    // The first one ends its clients, if they still work.
    while child.try_wait().unwrap().is_none() {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(100));
    }
    let ended = child.wait_with_output().unwrap();
    let error = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("it was ended before its outcome had been read"), "{error}");
    demo.terminate();
}

/// An outcome that is wrong ends with an exit code that says so: here a colouring that is not whole.
#[test]
fn an_application_whose_outcome_is_wrong_fails() {
    let demo = Demo::start(&["--rtt", "40"]);
    let (json, output) = app(&demo, &["social", "--nodes", "2000", "--clients", "3", "--consistency", "sequential", "--duration", "2"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("outcome      WRONG") && json.contains("nodes were coloured when the time was over"), "{said}{json}");
    demo.terminate();
}
