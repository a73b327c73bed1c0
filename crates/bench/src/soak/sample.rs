//! What the servers say they hold.

use super::SoakDataCenter;
use crate::error::Error;
use crate::target::resp::{RespStream, RespTarget};
use rheostat_resp::received::Reply;
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer to a request for metrics, in bytes.
const MAX_METRICS: u64 = 16 << 20;

/// What one node holds at one time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// Since the start of the soak.
    pub seconds: f64,
    /// Keys with at least one version, tombstones included.
    pub keys: u64,
    /// Versions in memory; `None` where no address of metrics was given.
    pub versions: Option<u64>,
    /// Keys, values and metadata in memory, as the server estimates it.
    pub memory_bytes: u64,
    /// The log on disk.
    pub log_bytes: u64,
    /// The server's process.
    pub process: u64,
    /// Memory of the process as the system counts it (resident set); `None` if the process is not on this machine.
    pub resident_bytes: Option<u64>,
}

/// Asks one node.
pub(super) struct Sampler {
    /// The data center's name, and the node's number in it if there are several.
    pub(super) name: String,
    target: RespTarget,
    metrics: Option<String>,
    stream: Option<RespStream>,
    timeout: Duration,
}

impl Sampler {
    /// Of node `node` of `data_center`.
    pub(super) async fn connect(data_center: &SoakDataCenter, node: usize, timeout: Duration) -> Result<Sampler, Error> {
        let resp = &data_center.resp;
        let name = if resp.addresses.len() == 1 { resp.name.clone() } else { format!("{}/{}", resp.name, node + 1) };
        let target = RespTarget { addresses: vec![resp.addresses[node].clone()], ..resp.clone() };
        let stream = Some(target.connect(0).await?);
        Ok(Sampler { name, target, metrics: data_center.metrics.get(node).cloned(), stream, timeout })
    }

    /// A sample, now. A connection that was lost is made again.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::Timeout`], [`Error::Refused`], and [`Error::Protocol`] if the answer has not the figures that are needed.
    pub(super) async fn sample(&mut self, start: Instant) -> Result<Sample, Error> {
        let address = self.target.addresses[0].clone();
        let late = Error::Timeout { address: address.clone(), waiting_for: "its figures".to_owned() };
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.target.connect(0).await?,
        };
        let (stream, info) = tokio::time::timeout(self.timeout, info(stream)).await.unwrap_or(Err(late))?;
        let this_machine = stream.is_local();
        self.stream = Some(stream);
        let wrong = |detail| Error::Protocol { address: address.clone(), detail };
        let mut sample = read_info(&info).map_err(wrong)?;
        sample.seconds = start.elapsed().as_secs_f64();
        if let Some(metrics) = &self.metrics {
            let late = Error::Timeout { address: metrics.clone(), waiting_for: "its metrics".to_owned() };
            let text = tokio::time::timeout(self.timeout, get_metrics(metrics, self.target.password.as_deref())).await.unwrap_or(Err(late))?;
            let versions = sum_metric(&text, "rheostat_versions");
            let missing = || Error::Protocol { address: metrics.clone(), detail: "its metrics have no rheostat_versions".to_owned() };
            sample.versions = Some(versions.ok_or_else(missing)?);
        }
        if this_machine {
            let status = std::fs::read_to_string(format!("/proc/{}/status", sample.process));
            sample.resident_bytes = status.ok().and_then(|status| read_resident(&status));
        }
        Ok(sample)
    }
}

/// Asks for INFO, and hands the connection back.
async fn info(mut stream: RespStream) -> Result<(RespStream, String), Error> {
    stream.queue([&b"INFO"[..]].into_iter());
    let answer = stream
        .next_reply(|reply| match reply {
            Reply::Bulk(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            other => Err(other.describe()),
        })
        .await?;
    let address = stream.address().to_owned();
    let text = answer.map_err(|detail| Error::Refused { address, detail: format!("INFO was answered with {detail}") })?;
    Ok((stream, text))
}

/// The figures in INFO's text. Errors: one of them is not there.
fn read_info(info: &str) -> Result<Sample, String> {
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse().ok()).ok_or_else(|| format!("INFO has no {name}; is this Rheostat?"))
    };
    // db0:keys=1,expires=0,...
    let is_database = |line: &&str| line.strip_prefix("db").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    let databases = info.lines().filter(is_database);
    let keys = databases.filter_map(|line| line.split_once(":keys=")?.1.split(',').next()?.parse::<u64>().ok()).sum();
    Ok(Sample {
        seconds: 0.0,
        keys,
        versions: None,
        memory_bytes: field("used_memory")?,
        log_bytes: field("log_bytes")?,
        process: field("process_id")?,
        resident_bytes: None,
    })
}

/// `VmRSS` of `/proc/<pid>/status`, in bytes.
fn read_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The sum of all samples of a metric; `None` if there is none.
fn sum_metric(text: &str, name: &str) -> Option<u64> {
    let of_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let values = text.lines().filter(of_it).map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()));
    values.reduce(|sum, value| Some(sum? + value?)).flatten().map(|sum| sum as u64)
}

/// The metrics that `address` serves. HTTP 1.0, so that the answer ends with the connection and comes in one piece.
async fn get_metrics(address: &str, password: Option<&str>) -> Result<String, Error> {
    let connection = |source| Error::Connection { address: address.to_owned(), source };
    let mut stream = TcpStream::connect(address).await.map_err(connection)?;
    let authorization = password.map(|password| format!("Authorization: Bearer {password}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(connection)?;
    let mut answer = String::new();
    stream.take(MAX_METRICS).read_to_string(&mut answer).await.map_err(connection)?;
    let first = answer.lines().next().unwrap_or_default();
    if first.split(' ').nth(1) != Some("200") {
        return Err(Error::Refused { address: address.to_owned(), detail: format!("/metrics: {first}") });
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nprocess_id:77\r\n\r\n# Memory\r\nused_memory:1234\r\n\r\n# Persistence\r\nlog_bytes:99\r\n\r\n# Keyspace\r\n\
                        db0:keys=5,expires=0,avg_ttl=0\r\ndb1:keys=7,expires=0\r\n";

    #[test]
    fn figures_are_read() {
        let sample = read_info(INFO).unwrap();
        assert_eq!((sample.keys, sample.memory_bytes, sample.log_bytes, sample.process), (12, 1234, 99, 77));
        let without = read_info(&INFO.replace("log_bytes", "other_bytes")).unwrap_err();
        assert!(without.contains("no log_bytes"), "{without}");
        assert!(read_info(&INFO.replace("1234", "x")).unwrap_err().contains("no used_memory"));
    }

    #[test]
    fn resident_memory_is_read() {
        assert_eq!(read_resident("VmPeak:\t  9 kB\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(read_resident("Name:\tx\n"), None);
        assert_eq!(read_resident("VmRSS:\tx kB\n"), None);
    }

    #[test]
    fn metrics_are_summed_by_their_whole_name() {
        let text =
            "# TYPE rheostat_versions gauge\nrheostat_versions{partition=\"0\"} 4\nrheostat_versions{partition=\"1\"} 5\nrheostat_versions_x 90\n";
        assert_eq!(sum_metric(text, "rheostat_versions"), Some(9));
        assert_eq!(sum_metric(text, "rheostat_versions_x"), Some(90));
        assert_eq!(sum_metric(text, "rheostat"), None);
        assert_eq!(sum_metric("a x\n", "a"), None);
    }
}
