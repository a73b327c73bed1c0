//! Regions to choose from: those of the papers, with the round trips that were measured there, and those of three large clouds, with round trips that are estimated from where they are.

use rheostat_cluster::regions::{self, KNOWN};

/// A region of a cloud.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// The cloud's own name for it.
    pub name: &'static str,
    /// Whose it is.
    pub cloud: &'static str,
    /// Near which city, or where.
    pub place: &'static str,
    /// Degrees north and east.
    at: (f64, f64),
}

const fn region(cloud: &'static str, name: &'static str, place: &'static str, north: f64, east: f64) -> Region {
    Region { name, cloud, place, at: (north, east) }
}

const AWS: &str = "Amazon Web Services";
const GOOGLE: &str = "Google Cloud";
const AZURE: &str = "Microsoft Azure";

/// Regions of clouds. Where they are: as their owners say, to the city or the state.
pub const CLOUDS: &[Region] = &[
    region(AWS, "us-east-1", "Northern Virginia", 39.04, -77.49),
    region(AWS, "us-east-2", "Ohio", 39.96, -83.0),
    region(AWS, "us-west-1", "Northern California", 37.34, -121.89),
    region(AWS, "us-west-2", "Oregon", 45.84, -119.70),
    region(AWS, "ca-central-1", "Montreal", 45.50, -73.57),
    region(AWS, "sa-east-1", "Sao Paulo", -23.55, -46.63),
    region(AWS, "eu-west-1", "Ireland", 53.35, -6.26),
    region(AWS, "eu-west-2", "London", 51.51, -0.13),
    region(AWS, "eu-west-3", "Paris", 48.86, 2.35),
    region(AWS, "eu-central-1", "Frankfurt", 50.11, 8.68),
    region(AWS, "eu-central-2", "Zurich", 47.37, 8.54),
    region(AWS, "eu-south-1", "Milan", 45.46, 9.19),
    region(AWS, "eu-north-1", "Stockholm", 59.33, 18.07),
    region(AWS, "af-south-1", "Cape Town", -33.92, 18.42),
    region(AWS, "me-south-1", "Bahrain", 26.07, 50.55),
    region(AWS, "ap-south-1", "Mumbai", 19.08, 72.88),
    region(AWS, "ap-southeast-1", "Singapore", 1.35, 103.82),
    region(AWS, "ap-southeast-2", "Sydney", -33.87, 151.21),
    region(AWS, "ap-northeast-1", "Tokyo", 35.68, 139.69),
    region(AWS, "ap-northeast-2", "Seoul", 37.57, 126.98),
    region(AWS, "ap-east-1", "Hong Kong", 22.32, 114.17),
    region(GOOGLE, "us-central1", "Iowa", 41.26, -95.86),
    region(GOOGLE, "us-east1", "South Carolina", 33.20, -80.01),
    region(GOOGLE, "us-east4", "Northern Virginia", 39.04, -77.49),
    region(GOOGLE, "us-west1", "Oregon", 45.60, -121.18),
    region(GOOGLE, "northamerica-northeast1", "Montreal", 45.50, -73.57),
    region(GOOGLE, "southamerica-east1", "Sao Paulo", -23.55, -46.63),
    region(GOOGLE, "europe-west1", "Belgium", 50.45, 3.82),
    region(GOOGLE, "europe-west3", "Frankfurt", 50.11, 8.68),
    region(GOOGLE, "europe-west4", "Netherlands", 53.44, 6.84),
    region(GOOGLE, "europe-north1", "Finland", 60.57, 27.19),
    region(GOOGLE, "asia-south1", "Mumbai", 19.08, 72.88),
    region(GOOGLE, "asia-southeast1", "Singapore", 1.35, 103.82),
    region(GOOGLE, "asia-east1", "Taiwan", 24.05, 120.52),
    region(GOOGLE, "asia-northeast1", "Tokyo", 35.68, 139.69),
    region(GOOGLE, "australia-southeast1", "Sydney", -33.87, 151.21),
    region(AZURE, "eastus", "Virginia", 37.37, -79.82),
    region(AZURE, "centralus", "Iowa", 41.59, -93.62),
    region(AZURE, "westus2", "Washington", 47.23, -119.85),
    region(AZURE, "canadacentral", "Toronto", 43.65, -79.38),
    region(AZURE, "brazilsouth", "Sao Paulo", -23.55, -46.63),
    region(AZURE, "northeurope", "Ireland", 53.35, -6.26),
    region(AZURE, "westeurope", "Netherlands", 52.37, 4.90),
    region(AZURE, "uksouth", "London", 51.51, -0.13),
    region(AZURE, "germanywestcentral", "Frankfurt", 50.11, 8.68),
    region(AZURE, "uaenorth", "Dubai", 25.27, 55.31),
    region(AZURE, "southafricanorth", "Johannesburg", -26.20, 28.05),
    region(AZURE, "centralindia", "Pune", 18.52, 73.86),
    region(AZURE, "southeastasia", "Singapore", 1.35, 103.82),
    region(AZURE, "eastasia", "Hong Kong", 22.32, 114.17),
    region(AZURE, "japaneast", "Tokyo", 35.68, 139.69),
    region(AZURE, "australiaeast", "Sydney", -33.87, 151.21),
];

/// Where the papers' regions are that they name by a place; `us-east`, `us-west` and `eu` are the clouds' of that time.
const PAPERS: &[(&str, (f64, f64))] = &[
    ("us-east", (39.04, -77.49)),
    ("us-west", (37.34, -121.89)),
    ("eu", (53.35, -6.26)),
    ("california", (37.34, -121.89)),
    ("oregon", (45.84, -119.70)),
    ("virginia", (39.04, -77.49)),
    ("ireland", (53.35, -6.26)),
    ("sydney", (-33.87, 151.21)),
    ("singapore", (1.35, 103.82)),
];

/// The regions that the papers measured, in their order.
pub fn papers() -> Vec<&'static str> {
    let mut names = Vec::new();
    for name in KNOWN.iter().flat_map(|(a, b, _)| [*a, *b]) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn place(name: &str) -> Option<(f64, f64)> {
    let of_paper = PAPERS.iter().find(|(known, _)| *known == name).map(|(_, at)| *at);
    of_paper.or_else(|| CLOUDS.iter().find(|region| region.name == name).map(|region| region.at))
}

/// Kilometers over the surface between two places, by their latitude and longitude.
fn kilometers(a: (f64, f64), b: (f64, f64)) -> f64 {
    let half = |angle: f64| (angle.to_radians() / 2.0).sin().powi(2);
    let chord = half(a.0 - b.0) + a.0.to_radians().cos() * b.0.to_radians().cos() * half(a.1 - b.1);
    2.0 * 6371.0 * chord.sqrt().min(1.0).asin()
}

/// The round trip in milliseconds that is likely over so many kilometers: light in glass does 200 km in a millisecond, cables are a quarter longer than the way, and 8 ms go for the rest.
/// Fitted to Table 5.1 of CausalSpartanX, which it misses by at most a fifth. In one place: 1 ms.
fn likely_ms(kilometers: f64) -> f64 {
    if kilometers < 100.0 { 1.0 } else { (1.25 * 2.0 * kilometers / 200.0 + 8.0).round() }
}

/// A round trip between two regions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trip {
    /// Milliseconds there and back.
    pub ms: f64,
    /// A paper measured it; else it is estimated from the distance.
    pub measured: bool,
}

/// The round trip between two regions that can be chosen; `None` if one of them is another name.
pub fn trip(a: &str, b: &str) -> Option<Trip> {
    let measured = regions::known(a, b).map(|ms| Trip { ms, measured: true });
    measured.or_else(|| Some(Trip { ms: likely_ms(kilometers(place(a)?, place(b)?)), measured: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_misses_what_was_measured_by_at_most_a_fifth() {
        for (a, b, ms) in KNOWN.iter().filter(|(a, ..)| *a == "california") {
            let likely = likely_ms(kilometers(place(a).unwrap(), place(b).unwrap()));
            assert!((likely / ms - 1.0).abs() < 0.21, "{a}:{b} takes {ms} ms, not {likely}");
            assert_eq!(trip(b, a), Some(Trip { ms: *ms, measured: true }));
        }
    }

    #[test]
    fn names_are_unique_and_are_names() {
        let mut names: Vec<&str> = CLOUDS.iter().map(|region| region.name).chain(papers()).collect();
        assert!(papers().iter().all(|name| place(name).is_some()));
        names.iter().for_each(|name| rheostat_server::config::check_name(name, "name").unwrap());
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn every_pair_has_a_round_trip_and_no_other_name_has() {
        for a in CLOUDS {
            for b in CLOUDS.iter().filter(|b| b.name != a.name) {
                let trip = trip(a.name, b.name).unwrap();
                assert!((1.0..400.0).contains(&trip.ms) && !trip.measured, "{}:{} {trip:?}", a.name, b.name);
            }
        }
        assert_eq!(trip("us-east-1", "atlantis"), None);
    }
}
