//! Round-trip times between regions, as the papers give them.

/// Round-trip times in milliseconds that are known, one value for each pair.
///
/// Bounded Counter, Table I (its two directions differ by up to 3 ms; the value of the row is taken), and CausalSpartanX, Table 5.1 (each location to
/// data center A in California, rounded to 0.1 ms).
pub const KNOWN: &[(&str, &str, f64)] = &[
    ("us-east", "us-west", 80.0),
    ("us-east", "eu", 96.0),
    ("us-west", "eu", 163.0),
    ("california", "oregon", 21.9),
    ("california", "virginia", 67.0),
    ("california", "ireland", 138.3),
    ("california", "sydney", 159.1),
    ("california", "singapore", 175.6),
];

/// The regions of a demonstration whose user names none.
pub const DEFAULT: &[&str] = &["us-east", "us-west", "eu"];

/// The longest round trip that can be asked for, in milliseconds.
pub const LONGEST_MS: f64 = 60_000.0;

/// The round-trip time of one pair of regions.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundTrip {
    /// The one region.
    pub a: String,
    /// The other.
    pub b: String,
    /// Milliseconds there and back.
    pub ms: f64,
}

/// The names of `count` regions: the default ones, then `dc4`, `dc5`, ….
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| DEFAULT.get(index).map_or_else(|| format!("dc{}", index + 1), |name| name.to_string())).collect()
}

/// The known round-trip time between two regions, in milliseconds.
pub fn known(a: &str, b: &str) -> Option<f64> {
    KNOWN.iter().find(|(left, right, _)| (*left == a && *right == b) || (*left == b && *right == a)).map(|(_, _, ms)| *ms)
}

/// The pairs that are known, for messages.
pub fn known_pairs() -> String {
    KNOWN.iter().map(|(a, b, ms)| format!("{a}:{b}={ms}")).collect::<Vec<_>>().join(", ")
}

/// Every pair of `regions`, in the order 1-2, 1-3, …, 2-3, ….
pub fn pairs(regions: &[String]) -> Vec<(&String, &String)> {
    regions.iter().enumerate().flat_map(|(index, a)| regions[index + 1..].iter().map(move |b| (a, b))).collect()
}
