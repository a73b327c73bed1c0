//! Rheostat's Cluster Designer (001, section 8.4.2): what answers its page.
//!
//! A file is what the command line reads, a cluster file or an experiment; the page has it as a tree, so that what it has no field for stays as it is. Whether it is right, the command line's own
//! readers say ([`file`]); [`take_over`] makes one kind of file from the other; [`run`] runs experiments in virtual time, within limits; [`catalogue`] is what there is to choose from, [`regions`] where.

pub mod catalogue;
pub mod file;
pub mod regions;
pub mod run;
pub mod take_over;

use file::Kind;
use rheostat_server::designer::{Call, Designer};
use run::{Form, Limits, Runs};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Answers the page. One for all nodes of a process: it runs one experiment at a time.
pub struct Desk {
    runs: Runs,
}

impl Desk {
    /// One whose runs stay within `limits`.
    pub fn new(limits: Limits) -> Desk {
        Desk { runs: Runs::new(limits) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    kind: Kind,
    /// One of these three.
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    file: Option<Value>,
    #[serde(default)]
    example: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeOver {
    /// The kind that is made.
    kind: Kind,
    from: Value,
    /// What is there of it already.
    into: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    text: String,
    form: Form,
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the body is not what is expected: {error}"))
}

impl Designer for Desk {
    fn answer(&self, call: Call, body: &[u8]) -> Result<String, String> {
        let answer = match call {
            Call::Catalogue => {
                let mut catalogue = catalogue::all();
                catalogue["limits"] = self.runs.limits().told();
                catalogue
            }
            Call::Check => {
                let Check { kind, text, file, example } = parse(body)?;
                match (text, file, example) {
                    (Some(text), None, None) => file::checked(kind, &text),
                    (None, Some(file), None) => file::checked(kind, &file::write(&file)?),
                    (None, None, Some(name)) => file::checked(kind, catalogue::example(kind, &name)?),
                    _ => return Err("one of text, file and example".into()),
                }
            }
            Call::TakeOver => {
                let TakeOver { kind, from, into } = parse(body)?;
                let (file, notes) = match kind {
                    Kind::Experiment => take_over::experiment(&from, &into)?,
                    Kind::Cluster => take_over::cluster(&from, &into)?,
                };
                let mut answer = file::checked(kind, &file::write(&file)?);
                answer["notes"] = json!(notes);
                answer
            }
            Call::Progress => self.runs.progress(),
            Call::Run => {
                let Wanted { text, form } = parse(body)?;
                self.runs.begin(&text, form)?;
                self.runs.progress()
            }
            Call::Cancel => {
                self.runs.cancel();
                self.runs.progress()
            }
        };
        Ok(answer.to_string())
    }
}
