//! The comparison of the protocols is what it says: the page is true, the measurement repeats, the options are options.

use rheostat_core::protocol::Protocol;
use rheostat_protocols::registry::{self, Visitor};
use rheostat_sim::comparison::{Row, markdown, rows, text};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn measured() -> Vec<Row> {
    rows().unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn the_page_is_what_the_protocols_say() {
    let (path, expected) = (root().join("docs/protocols.md"), markdown(&measured()));
    if std::env::var_os("RHEOSTAT_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/protocols.md is not what the protocols say; RHEOSTAT_BLESS=1 writes it anew");
    let columns = |line: &str| line.matches('|').count();
    let lines: Vec<&str> = expected.lines().collect();
    for pair in lines.windows(2).filter(|pair| pair.iter().all(|line| line.starts_with('|'))) {
        assert_eq!(columns(pair[0]), columns(pair[1]), "{}", pair[1]);
    }
}

#[test]
fn every_protocol_is_measured() {
    let rows = measured();
    assert_eq!(rows.iter().map(|row| row.info.name).collect::<Vec<_>>(), registry::names());
    for row in &rows {
        let name = row.info.name;
        assert!(row.measured.metadata.count >= 40, "{name}: {} updates were sent", row.measured.metadata.count);
        assert!(row.measured.metadata.mean() <= row.measured.metadata.largest as u64, "{name}");
        assert!(row.measured.session.count == 900, "{name}: {} operations were run", row.measured.session.count);
        let links = row.measured.links.keys();
        let messages = row.measured.messages.keys().chain(row.measured.idle_messages.keys());
        for kind in links.chain(messages) {
            assert!(kind != "?" && !kind.is_empty(), "{name}: a frame is not understood");
        }
    }
    // Vectors of three data centers are stored by `causal`, and nothing by `eventual`.
    let metadata = |name: &str| rows.iter().find(|row| row.info.name == name).map(|row| row.measured.metadata);
    assert_eq!(metadata("eventual").map(|sizes| sizes.largest), Some(0));
    assert!(metadata("causal").is_some_and(|sizes| sizes.largest > 3 * 9));
    let printed = text(&rows);
    assert!(rows.iter().all(|row| printed.contains(row.info.summary) && printed.contains(row.info.card.cut_off)));
}

/// The options of the page can be written into a configuration, and change nothing there.
#[test]
fn the_defaults_are_the_defaults() {
    struct Same<'a>(&'a toml::Table);
    impl Visitor for Same<'_> {
        type Output = Result<bool, String>;

        fn visit<P: Protocol>(self) -> Self::Output {
            let options = registry::parse_options::<P>(self.0)?;
            Ok(format!("{options:?}") == format!("{:?}", P::Options::default()))
        }
    }
    for row in measured() {
        let name = row.info.name;
        let set: String = row.options.iter().filter(|(_, value)| value != "-").map(|(option, value)| format!("{option} = {value}\n")).collect();
        let set: toml::Table = toml::from_str(&set).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(registry::visit(name, Same(&set)), Some(Ok(true)), "{name}: {set}");
        let mut unknown = toml::Table::new();
        unknown.insert("no_such_option".into(), toml::Value::Boolean(true));
        let refused = registry::check_options(name, &unknown).expect_err("options are checked by name");
        for (option, _) in &row.options {
            assert!(refused.contains(&format!("`{option}`")), "{name}: {option} is no option: {refused}");
        }
        assert_eq!(refused.matches('`').count() / 2, row.options.len() + 1, "{name}: not every option is on the page: {refused}");
    }
}

/// Counted once more, file by file.
#[test]
fn lines_are_those_of_the_sources() {
    let count = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut lines = 0;
        for line in text.lines() {
            if line.trim_start().starts_with("#[cfg(test)]") {
                break;
            }
            lines += usize::from(!line.trim().is_empty() && !line.trim_start().starts_with("//"));
        }
        lines
    };
    for protocol in registry::list() {
        let folder = root().join("crates/protocols/src").join(registry::folder(protocol.name));
        assert_eq!(protocol.lines.client, count(folder.join("client.rs")), "{}", protocol.name);
        assert_eq!(protocol.lines.message, count(folder.join("message.rs")), "{}", protocol.name);
        let all: usize = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .map(count)
            .sum();
        let counted = protocol.lines.server + protocol.lines.client + protocol.lines.message + count(folder.join("mod.rs"));
        assert_eq!(counted, all, "{}", protocol.name);
    }
}
