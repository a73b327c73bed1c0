//! `rheostat config`: a configuration with every key.

use crate::{Failure, output};
use rheostat_server::config::reference::{KEYS, Key, default_of};
use std::process::ExitCode;

/// Widest comment line.
const WIDTH: usize = 110;

/// Prints the configuration.
pub fn run() -> Result<ExitCode, Failure> {
    output::text(&text());
    Ok(ExitCode::SUCCESS)
}

/// Keys without a default that the printed configuration sets, with their values.
const GIVEN: &[(&str, &str)] = &[
    ("cluster", r#""my-cluster""#),
    ("node", r#""node-1""#),
    ("data_center", r#""here""#),
    ("data_dir", r#""data""#),
    ("listen.resp", r#""127.0.0.1:6400""#),
    ("listen.grpc", r#""127.0.0.1:6401""#),
    ("listen.admin", r#""127.0.0.1:6402""#),
    ("keyspace[].name", r#""default""#),
    ("keyspace[].protocol", r#""causal""#),
];

/// Keys without a default that it only shows, with an example.
const SHOWN: &[(&str, &str)] = &[
    ("data_centers", r#"["here", "there"]"#),
    ("reserved_data_centers", r#"["there"]"#),
    ("first_partitions", "1"),
    ("listen.peer", r#""127.0.0.1:6403""#),
    ("member[].name", r#""node-1""#),
    ("member[].data_center", r#""here""#),
    ("member[].peer", r#""127.0.0.1:6403""#),
    ("member[].resp", r#""127.0.0.1:6400""#),
    ("member[].grpc", r#""127.0.0.1:6401""#),
    ("member[].admin", r#""127.0.0.1:6402""#),
    ("member[].partitions", "[0]"),
    ("member[].added", "false"),
    ("keyspace[].sla", r#""NAME""#),
    ("keyspace[].options", "{}"),
    ("sla.NAME.entries", r#""strong 200ms; causal 1s 20ms; eventual""#),
    ("cassandra.contact_points", r#"["10.0.0.1:9042"]"#),
    ("cassandra.local_data_center", r#""dc1""#),
    ("cassandra.replication_factor", "1"),
    ("cassandra.replication", "{ dc1 = 3 }"),
    ("cassandra.user", r#""rheostat""#),
    ("cassandra.password", r#""a secret""#),
    ("cassandra.tls_authority", r#""cassandra.pem""#),
    ("cassandra.tls_certificate", r#""node.pem""#),
    ("cassandra.tls_key", r#""node.key""#),
    ("security.password", r#""a long secret""#),
    ("security.password_sha256", r#""2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b""#),
    ("security.cluster_password", r#""another one""#),
    ("security.token_key_file", r#""token.key""#),
    ("security.tls.certificate", r#""node.pem""#),
    ("security.tls.key", r#""node.key""#),
    ("security.tls.authority", r#""authority.pem""#),
    ("user[].name", r#""shop""#),
    ("user[].password_sha256", r#""2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b""#),
    ("user[].role", r#""write""#),
    ("user[].keyspaces", r#"["default"]"#),
    ("user[].prefixes", r#"["shop:"]"#),
    ("emulation.delay[].from", r#""here""#),
    ("emulation.delay[].to", r#""there""#),
    ("emulation.delay[].one_way_ms", "40.0"),
    ("emulation.delay[].mbit_per_s", "100.0"),
];

/// Tables that are only shown: with their keys, another node or certificates would be needed.
const OPTIONAL: &[&str] = &["member[]", "sla.NAME", "cassandra", "security.tls", "user[]", "emulation.delay[]"];

/// The configuration: it can be started as it is, and what is commented out with `#` and no blank can be taken in.
fn text() -> String {
    let mut out = String::from("# A node's configuration: every key, with its default where it has one. Unknown keys are errors.\n");
    let mut table = "";
    for key in KEYS {
        let (of, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        let optional = OPTIONAL.contains(&of);
        if of != table {
            table = of;
            let header = match of.strip_suffix("[]") {
                Some(name) => format!("[[{name}]]"),
                None => format!("[{}]", of.replace("[]", "")),
            };
            out.push_str(&format!("\n{}{header}\n", if optional { "#" } else { "" }));
        }
        out.push_str(&comment(key));
        let of_list = |list: &[(&str, &str)]| list.iter().find(|(path, _)| *path == key.path).map(|(_, value)| value.to_string());
        let line = match (of_list(GIVEN), default_of(key.path)) {
            (Some(value), _) | (None, Some(value)) if !optional => format!("{name} = {value}\n"),
            (Some(value), _) | (None, Some(value)) => format!("#{name} = {value}\n"),
            (None, None) => of_list(SHOWN).map_or_else(String::new, |value| format!("#{name} = {value}\n")),
        };
        out.push_str(&line);
    }
    out
}

/// What a key means, wrapped.
fn comment(key: &Key) -> String {
    let mut out = String::new();
    let mut line = String::from("#");
    for word in key.text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_server::config::NodeConfig;

    #[test]
    fn it_can_be_started_as_it_is() {
        NodeConfig::from_toml(&text()).unwrap_or_else(|error| panic!("{error}\n{}", text()));
    }

    #[test]
    fn what_is_commented_out_can_be_taken_in() {
        let whole: String = text()
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            .fold(String::new(), |whole, line| whole + line + "\n");
        toml::from_str::<NodeConfig>(&whole).unwrap_or_else(|error| panic!("{error}\n{whole}"));
        for key in KEYS {
            let name = key.path.rsplit_once('.').map_or(key.path, |(_, name)| name);
            assert!(whole.lines().any(|line| line.starts_with(&format!("{name} = "))), "{} has no line", key.path);
        }
    }
}
