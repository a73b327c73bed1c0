//! Driving `redis-benchmark` and reading what it prints.

use crate::error::Error;
use serde::Serialize;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// What `redis-benchmark` is asked to do, beside where and how deep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Benchmark {
    pub(super) program: PathBuf,
    pub(super) connections: u32,
    pub(super) value_length: u32,
    pub(super) keys: u32,
    pub(super) timeout: Duration,
}

/// Where `redis-benchmark` is to go.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) password: Option<String>,
    pub(super) database: Option<u32>,
}

/// One line of `redis-benchmark --csv`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Line {
    pub(super) test: String,
    pub(super) per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// What `redis-benchmark` sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load<'a> {
    /// Tests that it knows: `set,get`.
    Tests(&'a str),
    /// The same command again and again; told under its name.
    Command(&'a [&'a str]),
}

impl Benchmark {
    /// Runs `load` with `requests` requests for each test.
    ///
    /// # Errors
    /// [`Error::Missing`] if the program is not there; [`Error::Program`] if it fails, takes too long or prints something else than its CSV.
    pub(super) async fn run(&self, place: &Place, load: Load<'_>, pipeline: u32, requests: u64) -> Result<Vec<Line>, Error> {
        let mut command = Command::new(&self.program);
        command.args(["-h", &place.host, "-p", &place.port.to_string()]);
        if let Load::Tests(tests) = load {
            command.args(["-t", tests]);
        }
        command.args(["--csv", "-P", &pipeline.to_string()]);
        command.args(["-n", &requests.to_string(), "-c", &self.connections.to_string()]);
        command.args(["-d", &self.value_length.to_string(), "-r", &self.keys.to_string()]);
        if let Some(password) = &place.password {
            command.args(["-a", password]);
        }
        if let Some(database) = place.database {
            command.args(["--dbnum", &database.to_string()]);
        }
        if let Load::Command(words) = load {
            command.args(words);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().map_err(|source| not_started(&self.program, "redis-tools", source))?;
        let failed = |text: String| Error::Program(format!("redis-benchmark against {} ({}:{}): {text}", place.name, place.host, place.port));
        let output = match tokio::time::timeout(self.timeout, child.wait_with_output()).await {
            Ok(output) => output.map_err(|source| failed(source.to_string()))?,
            Err(_) => return Err(failed(format!("not done after {} s", self.timeout.as_secs()))),
        };
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said = || stderr.lines().chain(stdout.lines()).find(|line| !line.trim().is_empty()).unwrap_or("nothing was printed").trim().to_owned();
        if !output.status.success() {
            return Err(failed(format!("{}: {}", output.status, said())));
        }
        let mut lines = parse_csv(&stdout).map_err(|text| failed(format!("{text}; it said: {}", said())))?;
        let wanted = match load {
            Load::Tests(tests) => tests.split(',').count(),
            Load::Command(words) => {
                // It prints the whole command, with its key.
                lines.iter_mut().for_each(|line| line.test = words.first().copied().unwrap_or_default().to_owned());
                1
            }
        };
        if lines.len() != wanted {
            return Err(failed(format!("{} results for {wanted} tests; it said: {}", lines.len(), said())));
        }
        Ok(lines)
    }
}

/// The error of a program that could not be started: not installed, if there is no such file.
pub(super) fn not_started(program: &std::path::Path, package: &str, source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::NotFound => {
            Error::Missing(format!("{} is not installed; Debian and Ubuntu have it in the package {package}", program.display()))
        }
        _ => Error::Local { attempt: format!("starting {}", program.display()), source },
    }
}

/// Reads the CSV that `redis-benchmark` 6 and 7 print: a line of column names, then a line per test, all cells quoted.
fn parse_csv(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = text.lines().map(str::trim).filter(|line| line.starts_with('"'));
    let names: Vec<&str> = lines.next().map(cells).ok_or("it printed no CSV")?;
    let column = |name: &str| names.iter().position(|have| *have == name).ok_or_else(|| format!("its CSV has no column {name}"));
    let (test, per_second, p50, p99) = (column("test")?, column("rps")?, column("p50_latency_ms")?, column("p99_latency_ms")?);
    lines
        .map(|line| {
            let row = cells(line);
            let cell = |column: usize| row.get(column).copied().ok_or_else(|| format!("its CSV has a short line: {line}"));
            let number = |column: usize| {
                let number = cell(column)?.parse::<f64>().ok().filter(|number| number.is_finite());
                number.ok_or_else(|| format!("its CSV has something else than a number: {line}"))
            };
            Ok(Line { test: cell(test)?.to_owned(), per_second: number(per_second)?, p50_ms: number(p50)?, p99_ms: number(p99)? })
        })
        .collect()
}

/// The cells of a line; none of them has a quote or a comma inside.
fn cells(line: &str) -> Vec<&str> {
    line.split(',').map(|cell| cell.trim().trim_matches('"')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_csv_of_version_7_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\
            \"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET\",\"606060.62\",\"1.136\",\"0.216\",\"1.071\",\"2.055\",\"2.511\",\"2.647\"\n\
            \"GET\",\"1428571.38\",\"0.456\",\"0.096\",\"0.447\",\"0.663\",\"0.767\",\"0.855\"\n";
        let lines = parse_csv(text).unwrap();
        assert_eq!(lines[0], Line { test: "SET".to_owned(), per_second: 606060.62, p50_ms: 1.071, p99_ms: 2.511 });
        assert_eq!((lines.len(), lines[1].test.as_str(), lines[1].p99_ms), (2, "GET", 0.767));
    }

    #[test]
    fn other_output_is_refused_with_what_is_wrong() {
        assert!(parse_csv("Could not connect\n").unwrap_err().contains("no CSV"));
        // Version 5 has no header and no latencies.
        assert!(parse_csv("\"SET\",\"81234.00\"\n").unwrap_err().contains("no column test"));
        let header = "\"test\",\"rps\",\"p50_latency_ms\",\"p99_latency_ms\"\n";
        assert!(parse_csv(&format!("{header}\"SET\",\"1\"\n")).unwrap_err().contains("short line"));
        assert!(parse_csv(&format!("{header}\"SET\",\"nan\",\"1\",\"2\"\n")).unwrap_err().contains("else than a number"));
    }
}
