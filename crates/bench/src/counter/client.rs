//! A client of one counter, in one of three styles.

use crate::error::Error;
use crate::target::resp::{RespStream, RespTarget};
use rheostat_resp::received::{Reply, error_word};
use serde::Serialize;
use std::time::{Duration, Instant};

/// How a client keeps a counter from falling below 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// A counter with a lower bound, updated with scope global.
    Bounded,
    /// A counter without bounds: the client reads it and decrements it if it was positive.
    Weak,
    /// A value in a keyspace that agrees on every write everywhere: the client reads it and writes it back, if it is still the same.
    Strong,
}

impl Style {
    /// All styles.
    pub const ALL: [Style; 3] = [Style::Bounded, Style::Weak, Style::Strong];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Style::Bounded => "bounded",
            Style::Weak => "weak",
            Style::Strong => "strong",
        }
    }
}

/// What came of an update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was made.
    Made,
    /// It was not made: nothing was left, for all that the server or the client knew.
    Refused,
    /// It was not made: another client was faster.
    Conflict,
    /// It failed; the first word of the server's error, or `timeout`.
    Failed(String),
}

/// A connection, and a style.
pub struct CounterClient {
    stream: RespStream,
    style: Style,
    timeout: Duration,
}

impl CounterClient {
    /// Connects to `target`. An update may take `timeout`.
    ///
    /// # Errors
    /// Those of [`RespTarget::connect`]; a server that does not know scopes.
    pub async fn connect(target: &RespTarget, style: Style, timeout: Duration) -> Result<CounterClient, Error> {
        let mut stream = target.connect(0).await?;
        if style == Style::Bounded {
            stream.expect_ok(&[b"RHEO", b"SCOPE", b"GLOBAL"]).await?;
        }
        Ok(CounterClient { stream, style, timeout })
    }

    /// Makes the counter at `key`, with `initial` in it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server does not make it; those of the connection.
    pub async fn create(&mut self, key: &[u8], initial: i64) -> Result<(), Error> {
        let value = initial.to_string();
        let made = match self.style {
            Style::Bounded => self.ask(&[b"RHEO", b"COUNTER", b"CREATE", key, b"MIN", b"0", b"VALUE", value.as_bytes()]).await?,
            Style::Weak => self.ask(&[b"INCRBY", key, value.as_bytes()]).await?,
            Style::Strong => self.ask(&[b"SET", key, value.as_bytes()]).await?,
        };
        match made {
            Answer::Failed(detail) => Err(Error::Refused { address: self.stream.address().to_owned(), detail }),
            _ => Ok(()),
        }
    }

    /// The counter's value as it is known here; `None` if there is none yet.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server does not tell; those of the connection.
    pub async fn value(&mut self, key: &[u8]) -> Result<Option<i64>, Error> {
        match self.ask(&[b"GET", key]).await? {
            Answer::Number(value) => Ok(Some(value)),
            Answer::Nothing => Ok(None),
            Answer::Failed(detail) => Err(Error::Refused { address: self.stream.address().to_owned(), detail }),
            Answer::Ok => Err(Error::Protocol { address: self.stream.address().to_owned(), detail: "GET was answered with a status".to_owned() }),
        }
    }

    /// Waits until the counter is known here.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it is not before `until`; those of [`CounterClient::value`].
    pub async fn appears(&mut self, key: &[u8], until: Instant) -> Result<(), Error> {
        while self.value(key).await?.is_none() {
            if Instant::now() > until {
                return Err(Error::Timeout { address: self.stream.address().to_owned(), waiting_for: "a counter made elsewhere".to_owned() });
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Adds `by`, if that leaves at least 0.
    ///
    /// # Errors
    /// Those of the connection, and [`Error::Timeout`]: its next answer would belong to this update, so it is of no more use.
    pub async fn update(&mut self, key: &[u8], by: i64) -> Result<Outcome, Error> {
        let delta = by.to_string();
        let answer = match self.style {
            Style::Bounded => self.ask(&[b"INCRBY", key, delta.as_bytes()]).await?,
            Style::Weak => {
                // The race is here: others decrement between the look and the update.
                if by < 0 {
                    match self.ask(&[b"GET", key]).await? {
                        Answer::Number(value) if value + by >= 0 => {}
                        Answer::Failed(line) => return Ok(Outcome::Failed(error_word(line.as_bytes()))),
                        _ => return Ok(Outcome::Refused),
                    }
                }
                self.ask(&[b"INCRBY", key, delta.as_bytes()]).await?
            }
            Style::Strong => {
                let value = match self.ask(&[b"GET", key]).await? {
                    Answer::Number(value) if value + by >= 0 => value,
                    Answer::Failed(line) => return Ok(Outcome::Failed(error_word(line.as_bytes()))),
                    _ => return Ok(Outcome::Refused),
                };
                let (old, new) = (value.to_string(), (value + by).to_string());
                match self.ask(&[b"RHEO", b"CAS", key, old.as_bytes(), new.as_bytes()]).await? {
                    Answer::Number(0) => return Ok(Outcome::Conflict),
                    answer => answer,
                }
            }
        };
        Ok(match answer {
            Answer::Failed(line) => match error_word(line.as_bytes()) {
                word if word == "NORIGHTS" => Outcome::Refused,
                word => Outcome::Failed(word),
            },
            Answer::Number(_) | Answer::Ok | Answer::Nothing => Outcome::Made,
        })
    }

    async fn ask(&mut self, arguments: &[&[u8]]) -> Result<Answer, Error> {
        self.stream.queue(arguments.iter().copied());
        let address = self.stream.address().to_owned();
        let read = self.stream.next_reply(Answer::read);
        let late = Error::Timeout { address: address.clone(), waiting_for: String::from_utf8_lossy(arguments[0]).into_owned() };
        let answer = tokio::time::timeout(self.timeout, read).await.unwrap_or(Err(late))?;
        answer.map_err(|detail| Error::Protocol { address, detail })
    }
}

/// A reply, as far as counters go.
#[derive(Debug)]
enum Answer {
    Number(i64),
    Ok,
    Nothing,
    /// The error.
    Failed(String),
}

impl Answer {
    fn read(reply: Reply<'_>) -> Result<Answer, String> {
        match reply {
            Reply::Integer(number) => Ok(Answer::Number(number)),
            Reply::Bulk(bytes) => {
                let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
                number.map(Answer::Number).ok_or_else(|| "a value that is no number".to_owned())
            }
            Reply::Status(_) => Ok(Answer::Ok),
            Reply::Null => Ok(Answer::Nothing),
            Reply::Error(line) => Ok(Answer::Failed(String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned())),
            other => Err(other.describe()),
        }
    }
}
