//! What the front ends check of calls of counters before they run them.

use crate::load::{beginning, repeated};
use crate::topology::Topology;
use rheostat_core::DcId;
use rheostat_core::ids::PartitionId;
use rheostat_core::version::Key;
use std::fmt;

/// Why counters cannot be updated together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unfit {
    /// There is none.
    None,
    /// They are of several partitions.
    Apart,
    /// One comes twice.
    Twice(Key),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::None => f.write_str("no counter to update"),
            Unfit::Apart => {
                f.write_str("the counters are of different partitions, so they cannot be updated together; keys with the same {hash tag} are of one")
            }
            Unfit::Twice(key) => write!(f, "the counter {} comes twice", repeated(&String::from_utf8_lossy(beginning(key)))),
        }
    }
}

/// The partition of counters that are to be updated together.
pub(crate) fn partition(topology: &Topology, changes: &[(Key, i64)]) -> Result<PartitionId, Unfit> {
    let (first, others) = changes.split_first().ok_or(Unfit::None)?;
    let partition = topology.partition_of(&first.0);
    if others.is_empty() {
        return Ok(partition);
    }
    if others.iter().any(|(key, _)| topology.partition_of(key) != partition) {
        return Err(Unfit::Apart);
    }
    let mut keys: Vec<&Key> = changes.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Unfit::Twice(pair[0].clone())),
        None => Ok(partition),
    }
}

/// The data center with this name, or with this number. Errors: which ones there are.
pub(crate) fn data_center(topology: &Topology, name: &str) -> Result<DcId, String> {
    let numbered = || name.parse::<u8>().ok().map(DcId).filter(|dc| dc.index() < topology.data_centers.len());
    topology.dc_named(name).or_else(numbered).ok_or_else(|| {
        let known: Vec<String> = topology.data_centers.iter().enumerate().map(|(number, name)| format!("{number} {name}")).collect();
        format!("there is no data center '{}'; there are: {}", repeated(name), known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;

    fn topology() -> Topology {
        let mut config = NodeConfig::new("test", "a", "east");
        config.data_centers = vec!["east".into(), "west".into()];
        config.partitions = 4;
        Topology::new(&config)
    }

    #[test]
    fn data_centers_have_names_and_numbers() {
        let topology = topology();
        assert_eq!(data_center(&topology, "west"), Ok(DcId(1)));
        assert_eq!(data_center(&topology, "0"), Ok(DcId(0)));
        let long = "ä".repeat(1 << 16);
        assert!(data_center(&topology, &long).is_err_and(|why| why.contains("'ää") && why.len() < 300), "an error repeats the beginning of a name");
        for wrong in ["2", "", "WEST", "256", "-1"] {
            assert_eq!(data_center(&topology, wrong), Err(format!("there is no data center '{wrong}'; there are: 0 east, 1 west")));
        }
    }

    #[test]
    fn counters_are_updated_together_on_one_partition_and_once_each() {
        let topology = topology();
        let of = |keys: &[&str]| partition(&topology, &keys.iter().map(|key| (Key::from(key.as_bytes()), 1)).collect::<Vec<_>>());
        assert_eq!(of(&["{a}x", "{a}y"]), Ok(topology.partition_of(b"a")));
        assert_eq!(of(&["{a}x", "{a}y", "{a}x"]), Err(Unfit::Twice(Key::from(&b"{a}x"[..]))));
        let long = ["{a}", &"x".repeat(1 << 16)].concat();
        assert!(of(&[&long, &long]).is_err_and(|why| why.to_string().starts_with("the counter {a}x") && why.to_string().len() < 300));
        let apart =
            (0..100).map(|number| number.to_string()).find(|key| topology.partition_of(key.as_bytes()) != topology.partition_of(b"a")).unwrap();
        assert_eq!(of(&["a", &apart]), Err(Unfit::Apart));
        assert_eq!(of(&[]), Err(Unfit::None));
    }
}
