//! The one list of protocols. A protocol is added by its folder and one line here.

use rheostat_core::capabilities::Capabilities;
use rheostat_core::dial::Level;
use rheostat_core::gauge::Gauge;
use rheostat_core::protocol::{Card, Client, Protocol};
use rheostat_core::session::Session;
use rheostat_core::store::Cut;
use rheostat_core::wire::WireError;

/// What is done with a protocol chosen by name.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Called with the protocol as `P`.
    fn visit<P: Protocol>(self) -> Self::Output;
}

/// What is known of a protocol without running it.
#[derive(Clone, Debug)]
pub struct ProtocolInfo {
    /// Its name.
    pub name: &'static str,
    /// What it promises, in one line.
    pub summary: &'static str,
    /// Its own level.
    pub level: Level,
    /// The level at which it serves what asks for one, if it can.
    pub serves: fn(Level) -> Option<Level>,
    /// What it can do.
    pub can: Capabilities,
    /// Whether values of a key may stand side by side, and requests choose their quorum.
    pub siblings: bool,
    /// What it says of itself.
    pub card: Card,
    /// How long its code is.
    pub lines: Lines,
    /// The numbers that it tells of itself.
    pub gauges: &'static [&'static [Gauge]],
    /// The bugs that can be planted in it.
    pub planted: &'static [&'static str],
}

/// Lines of code, without comments, blank lines and tests, counted from the sources when this crate is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Of everything in the protocol's folder that is in none of the other files.
    pub server: usize,
    /// Of `client.rs`.
    pub client: usize,
    /// Of `message.rs`.
    pub message: usize,
}

/// Per folder of a protocol, how long its code is.
const LINES: &[(&str, Lines)] = include!(concat!(env!("OUT_DIR"), "/lines.rs"));

/// The files that several protocols share, with their lines of code.
pub const SHARED: &[(&str, usize)] = include!(concat!(env!("OUT_DIR"), "/shared.rs"));

/// The folder of protocol `name`: of that name, but for `strong`, which is `session` with another reach.
pub fn folder(name: &str) -> &str {
    if name == "strong" { "session" } else { name }
}

/// The lines of protocol `name`; none if there is no such folder.
fn lines_of(name: &str) -> Lines {
    let folder = folder(name);
    let found = LINES.iter().find(|(known, _)| *known == folder).map(|(_, lines)| *lines);
    found.unwrap_or(Lines { server: 0, client: 0, message: 0 })
}

macro_rules! protocols {
    ($($protocol:ty),* $(,)?) => {
        /// Calls `visitor` with the protocol called `name`; `None` if there is no such protocol.
        pub fn visit<V: Visitor>(name: &str, visitor: V) -> Option<V::Output> {
            $(if name == <$protocol>::NAME {
                return Some(visitor.visit::<$protocol>());
            })*
            None
        }

        /// Every protocol, in the order of the list.
        pub fn list() -> Vec<ProtocolInfo> {
            vec![$(ProtocolInfo {
                name: <$protocol>::NAME,
                summary: <$protocol>::SUMMARY,
                level: <$protocol>::LEVEL,
                serves: <$protocol as Protocol>::serves,
                can: <$protocol>::CAN,
                siblings: <<$protocol as Protocol>::Cut as Cut<_>>::SIBLINGS,
                card: <$protocol>::CARD,
                lines: lines_of(<$protocol>::NAME),
                gauges: <$protocol>::GAUGES,
                planted: <$protocol>::PLANTED,
            }),*]
        }
    };
}

protocols![
    crate::adaptive::Adaptive,
    crate::causal::Causal,
    crate::cops::Cops,
    crate::eventual::Eventual,
    crate::gentlerain::GentleRain,
    crate::hybrid::Hybrid,
    crate::session::Session,
    crate::session::Strong,
    crate::quorum::Quorum,
    crate::staged::Staged,
];

/// The names of every protocol.
pub fn names() -> Vec<&'static str> {
    list().into_iter().map(|protocol| protocol.name).collect()
}

/// What is known of the protocol called `name`.
pub fn info(name: &str) -> Option<ProtocolInfo> {
    list().into_iter().find(|protocol| protocol.name == name)
}

/// What can be done with sessions of a protocol without a partition server.
#[derive(Clone, Copy, Debug)]
pub struct Sessions {
    /// A session that has seen nothing.
    pub new: fn() -> Session,
    /// The session with this byte form. Errors: it is not one of this protocol.
    pub decode: fn(&[u8]) -> Result<Session, WireError>,
}

impl Sessions {
    /// Of protocol `P`.
    pub fn of<P: Protocol>() -> Sessions {
        fn new<C: Client>() -> Session {
            Session::new(C::default())
        }
        fn decode<C: Client>(bytes: &[u8]) -> Result<Session, WireError> {
            Ok(Session::new(C::from_bytes(bytes)?))
        }
        Sessions { new: new::<P::Client>, decode: decode::<P::Client> }
    }

    /// Of the protocol called `name`; `None` if there is no such protocol.
    pub fn named(name: &str) -> Option<Sessions> {
        struct Describe;
        impl Visitor for Describe {
            type Output = Sessions;

            fn visit<P: Protocol>(self) -> Sessions {
                Sessions::of::<P>()
            }
        }
        visit(name, Describe)
    }
}

/// Whether `options` are options of the protocol called `name`. Errors: no such protocol, an unknown option or a value of the wrong
/// kind, in words for the user.
pub fn check_options(name: &str, options: &toml::Table) -> Result<(), String> {
    struct Check<'a>(&'a toml::Table);
    impl Visitor for Check<'_> {
        type Output = Result<(), String>;

        fn visit<P: Protocol>(self) -> Result<(), String> {
            parse_options::<P>(self.0).map(|_| ())
        }
    }
    visit(name, Check(options)).unwrap_or_else(|| Err(format!("there is no protocol `{name}`; there are: {}", names().join(", "))))
}

/// The options of protocol `P` in `options`. Errors: as [`check_options`].
pub fn parse_options<P: Protocol>(options: &toml::Table) -> Result<P::Options, String> {
    options.clone().try_into().map_err(|error: toml::de::Error| format!("options of protocol {}: {}", P::NAME, error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_spelled_one_way() {
        let names = names();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} twice");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        }
    }

    #[test]
    fn every_protocol_has_its_folder_and_its_words() {
        for ProtocolInfo { name, card, lines, .. } in list() {
            assert!(lines.server > 0 && lines.client > 0 && lines.message > 0, "{name}: no folder of this name, or a file is missing: {lines:?}");
            for words in [card.rounds, card.reads_wait, card.writes_wait, card.cut_off] {
                assert!(!words.is_empty() && !words.contains(['|', '\n']) && !words.ends_with('.'), "{name}: {words}");
            }
        }
    }

    #[test]
    fn wrong_options_are_refused_by_name() {
        let unknown: toml::Table = toml::from_str("colour = 1").unwrap();
        assert!(check_options("causal", &unknown).unwrap_err().contains("colour"));
        assert!(check_options("casual", &toml::Table::new()).unwrap_err().contains("causal"));
        assert_eq!(check_options("causal", &toml::Table::new()), Ok(()));
    }
}
