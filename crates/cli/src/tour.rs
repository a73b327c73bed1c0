//! What to type first.

use rheostat_cluster::ports::{DEFAULT_BASE_PORT, Ports};

/// Five lines that show causality, as far as the number of data centers allows. `rheostat` is how the user calls this command.
pub fn text(regions: &[String], ports: &[Ports], rheostat: &str) -> String {
    let address = match ports.first() {
        Some(ports) if ports.resp != DEFAULT_BASE_PORT => format!(" -a 127.0.0.1:{}", ports.grpc),
        _ => String::new(),
    };
    let lines: Vec<(String, String)> = match (regions, ports) {
        ([a, b, c, ..], [at_a, at_b, at_c, ..]) => vec![
            (format!("{rheostat} ctl{address} pause-link {a} {c}"), format!("nothing passes between {a} and {c}")),
            (format!("redis-cli -p {} SET photo sunset", at_a.resp), format!("the cause, written in {a}")),
            (
                format!("(sleep 1; echo GET photo; echo SET comment wow) | redis-cli -p {}", at_b.resp),
                format!("the effect: somebody in {b} sees it and comments"),
            ),
            (
                format!("sleep 1; redis-cli -p {0} MGET comment photo; redis-cli -p {0} RHEO EXPLAIN comment", at_c.resp),
                format!("{c} has the comment, and hides it: its cause is missing"),
            ),
            (
                format!("{rheostat} ctl{address} resume-link {a} {c}; sleep 3; redis-cli -p {} MGET comment photo", at_c.resp),
                "cause and effect".to_string(),
            ),
        ],
        ([a, b], [at_a, at_b]) => vec![
            (format!("redis-cli -p {} SET photo sunset", at_a.resp), format!("written in {a}")),
            (format!("sleep 1; redis-cli -p {} GET photo", at_b.resp), format!("read in {b}")),
            (format!("redis-cli -p {} RHEO EXPLAIN photo", at_b.resp), "its versions there".to_string()),
            (format!("{rheostat} ctl{address} pause-link {a} {b}"), "cut the link; both sides go on".to_string()),
            (format!("{rheostat} ctl{address} resume-link {a} {b}; {rheostat} ctl{address} convergence"), "and heal it".to_string()),
        ],
        (_, [at, ..]) => vec![
            (format!("redis-cli -p {} SET photo sunset", at.resp), "write".to_string()),
            (format!("redis-cli -p {} GET photo", at.resp), "read".to_string()),
            (format!("redis-cli -p {} RHEO EXPLAIN photo", at.resp), "its versions".to_string()),
            (format!("redis-cli -p {} RHEO SESSION GET", at.resp), "the session's token".to_string()),
            (format!("{rheostat} ctl{address} status"), "the node at a glance".to_string()),
        ],
        _ => Vec::new(),
    };
    let mut out = match regions {
        [a, b, c, ..] => format!("In another terminal; 1 to 4 at once, since some seconds after the cut {b} passes on what {c} lacks of {a}:\n"),
        _ => String::from("In another terminal, line by line:\n"),
    };
    for (index, (command, note)) in lines.iter().enumerate() {
        out.push_str(&format!("  # {}. {note}\n  {command}\n", index + 1));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_cluster::ports::ports_from;
    use rheostat_cluster::regions::names;

    #[test]
    fn every_size_has_five_lines_with_its_own_ports() {
        for count in 1..=5 {
            let text = text(&names(count), &ports_from(9000, count).unwrap(), "rheostat");
            assert_eq!(text.lines().filter(|line| line.starts_with("  # ")).count(), 5);
            assert!(text.contains("-p 9000") && !text.contains("7400"));
            assert!(text.contains("-a 127.0.0.1:9001"));
        }
        assert!(!text(&names(3), &ports_from(DEFAULT_BASE_PORT, 3).unwrap(), "rheostat").contains("-a "));
    }
}
