//! What there is to choose.

use crate::scenarios;
use rheostat_checkers::Promise;
use rheostat_protocols::registry;
use rheostat_sim::{planted, profiles};
use serde::Serialize;

#[derive(Serialize)]
struct Protocol {
    name: &'static str,
    summary: &'static str,
    level: String,
    planted: Vec<&'static str>,
    /// Whether it can be run as its paper has it, faults included.
    published: bool,
}

#[derive(Serialize)]
struct Profile {
    name: &'static str,
    about: &'static str,
}

#[derive(Serialize)]
pub(crate) struct Catalogue {
    version: &'static str,
    protocols: Vec<Protocol>,
    profiles: Vec<Profile>,
    promises: Vec<&'static str>,
    scenarios: Vec<scenarios::Shown>,
}

pub(crate) fn catalogue() -> Catalogue {
    let published = toml::Table::from_iter([("published".to_owned(), true.into())]);
    let protocols = registry::list().into_iter().map(|info| Protocol {
        name: info.name,
        summary: info.summary,
        level: info.level.to_string(),
        planted: planted(info.name),
        published: registry::check_options(info.name, &published).is_ok(),
    });
    Catalogue {
        version: env!("CARGO_PKG_VERSION"),
        protocols: protocols.collect(),
        profiles: profiles::ALL.iter().map(|profile| Profile { name: profile.name, about: profile.about }).collect(),
        promises: Promise::ALL.iter().map(|promise| promise.name()).filter(|name| *name != Promise::WellFormed.name()).collect(),
        scenarios: scenarios::ALL.iter().map(scenarios::Scenario::shown).collect(),
    }
}
