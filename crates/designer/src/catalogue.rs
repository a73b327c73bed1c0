//! What there is to choose from.

use crate::file::Kind;
use crate::regions::{self, CLOUDS};
use rheostat_core::dial::Level;
use rheostat_core::protocol::Protocol;
use rheostat_lab::catalogue::FILES;
use rheostat_lab::experiment;
use rheostat_protocols::registry::{self, Visitor};
use serde::de::{Deserialize, Deserializer, Error as _, Visitor as Reader, value};
use serde_json::{Value, json};

/// The cluster of `rheostat demo`.
const DEMO: &str = include_str!("../../../examples/demo.toml");

/// The text of a built-in file. Errors: there is none of this name.
pub fn example(kind: Kind, name: &str) -> Result<&'static str, String> {
    let text = match kind {
        Kind::Cluster => (name == "demo").then_some(DEMO),
        Kind::Experiment => FILES.iter().find(|file| file.name.strip_suffix(".toml") == Some(name)).map(|file| file.text),
    };
    text.ok_or_else(|| format!("there is no example `{name}`"))
}

/// Asks a type that is read from a table for the names of its keys: it says them to whatever it reads from.
struct Names<'n>(&'n mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = value::Error;

    fn deserialize_any<V: Reader<'de>>(self, _: V) -> Result<V::Value, value::Error> {
        Err(value::Error::custom("nothing is read"))
    }

    fn deserialize_struct<V: Reader<'de>>(self, _: &'static str, fields: &'static [&'static str], _: V) -> Result<V::Value, value::Error> {
        *self.0 = fields;
        Err(value::Error::custom("nothing is read"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The names of the options of the protocol called `name`.
pub fn options(name: &str) -> &'static [&'static str] {
    struct Ask;
    impl Visitor for Ask {
        type Output = &'static [&'static str];

        fn visit<P: Protocol>(self) -> Self::Output {
            let mut names: &[&str] = &[];
            // An error always: see `Names`.
            let _ = P::Options::deserialize(Names(&mut names));
            names
        }
    }
    registry::visit(name, Ask).unwrap_or_default()
}

/// What the page chooses from.
pub fn all() -> Value {
    let protocols = registry::list().into_iter().map(|info| {
        let serves: Vec<&str> = Level::WORDS.into_iter().filter(|level| (info.serves)(*level).is_some()).map(Level::name).collect();
        json!({ "name": info.name, "summary": info.summary, "level": info.level.name(), "serves": serves, "options": options(info.name), "most_replicas": info.can.most_replicas })
    });
    let papers = regions::papers();
    let names: Vec<&str> = papers.iter().copied().chain(CLOUDS.iter().map(|region| region.name)).collect();
    let of_papers = papers.iter().map(|name| json!({ "name": name, "cloud": "the papers", "place": "" }));
    let of_clouds = CLOUDS.iter().map(|region| json!({ "name": region.name, "cloud": region.cloud, "place": region.place }));
    // By the places of both in the list of regions: milliseconds; negative where they are estimated.
    let trips = names.iter().enumerate().map(|(place, a)| {
        let row = names[..place].iter().map(|b| regions::trip(a, b).map(|trip| if trip.measured { trip.ms } else { -trip.ms }));
        row.collect::<Vec<_>>()
    });
    let experiments = FILES.iter().filter_map(|file| {
        let experiment = experiment::parse(file.name, file.text).ok()?;
        let here = experiment.grounds.contains(&rheostat_lab::experiment::GroundName::Virtual);
        here.then(|| json!({ "name": experiment.name, "title": experiment.title, "source": experiment.source }))
    });
    json!({
        "protocols": protocols.collect::<Vec<_>>(), "levels": Level::WORDS.map(Level::name), "regions": of_papers.chain(of_clouds).collect::<Vec<_>>(),
        "trips": trips.collect::<Vec<_>>(), "clusters": ["demo"], "experiments": experiments.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_that_the_protocol_takes() {
        for info in registry::list() {
            let known = options(info.name);
            let wrong: toml::Table = toml::from_str("no_such_option = 1").unwrap();
            let error = registry::check_options(info.name, &wrong).unwrap_err();
            known.iter().for_each(|name| assert!(error.contains(&format!("`{name}`")), "{}: {name}: {error}", info.name));
        }
        assert!(!options("causal").is_empty());
        assert!(options("none").is_empty());
    }

    #[test]
    fn every_example_can_be_taken() {
        let all = all();
        assert!(all["experiments"].as_array().unwrap().len() > 30);
        for one in all["experiments"].as_array().unwrap() {
            example(Kind::Experiment, one["name"].as_str().unwrap()).unwrap();
        }
        example(Kind::Cluster, "demo").unwrap();
        assert_eq!(example(Kind::Cluster, "../demo").unwrap_err(), "there is no example `../demo`");
    }
}
