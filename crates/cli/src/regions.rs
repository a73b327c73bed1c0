//! `--rtt`: round-trip times between regions that the user gives.

use rheostat_cluster::regions::{LONGEST_MS, RoundTrip, known, known_pairs, pairs};

/// The round-trip time of every pair of `regions`: what `given` says, else what is known.
///
/// `given` holds either one value for all pairs, or one for each pair in the order 1-2, 1-3, …, 2-3, …, or `a:b=ms` for some.
///
/// # Errors
/// A pair without value, a value that is not one, a pair that does not exist; in words for the user.
pub fn round_trips(regions: &[String], given: Option<&str>) -> Result<Vec<RoundTrip>, String> {
    let pairs = pairs(regions);
    let mut times: Vec<Option<f64>> = pairs.iter().map(|(a, b)| known(a, b)).collect();
    let items: Vec<&str> = given.map(|text| text.split(',').map(str::trim).collect()).unwrap_or_default();
    if items.iter().any(|item| item.contains('=')) {
        for item in items {
            let (pair, ms) = item.split_once('=').ok_or_else(|| format!("--rtt: `{item}` is not of the form a:b=ms, as the others are"))?;
            let (a, b) = pair.split_once(':').ok_or_else(|| format!("--rtt: `{pair}` is not a pair of regions, a:b"))?;
            let place = pairs.iter().position(|(left, right)| (*left == a && *right == b) || (*left == b && *right == a));
            let place = place.ok_or_else(|| format!("--rtt: `{pair}` is not a pair of this cluster's regions ({})", regions.join(", ")))?;
            times[place] = Some(milliseconds(ms)?);
        }
    } else if let [all] = items[..] {
        times.fill(Some(milliseconds(all)?));
    } else if !items.is_empty() {
        if items.len() != pairs.len() {
            let order: Vec<String> = pairs.iter().map(|(a, b)| format!("{a}:{b}")).collect();
            return Err(format!("--rtt: {} values for {} pairs; give one for each of {}", items.len(), pairs.len(), order.join(", ")));
        }
        for (time, item) in times.iter_mut().zip(items) {
            *time = Some(milliseconds(item)?);
        }
    }
    let missing: Vec<String> = pairs.iter().zip(&times).filter(|(_, time)| time.is_none()).map(|((a, b), _)| format!("{a}:{b}")).collect();
    if !missing.is_empty() {
        return Err(format!(
            "no round-trip time is known for {}; give it, for example --rtt {}=100. Known: {}",
            missing.join(", "),
            missing[0],
            known_pairs()
        ));
    }
    Ok(pairs.into_iter().zip(times).filter_map(|((a, b), ms)| Some(RoundTrip { a: a.clone(), b: b.clone(), ms: ms? })).collect())
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let ms: f64 = text.trim().parse().map_err(|_| format!("--rtt: `{text}` is not a number of milliseconds"))?;
    match (0.0..=LONGEST_MS).contains(&ms) {
        true => Ok(ms),
        false => Err(format!("--rtt: {text} is not between 0 and {LONGEST_MS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_cluster::regions::DEFAULT;

    fn times(regions: &[&str], given: Option<&str>) -> Result<Vec<f64>, String> {
        let regions: Vec<String> = regions.iter().map(|name| name.to_string()).collect();
        Ok(round_trips(&regions, given)?.into_iter().map(|pair| pair.ms).collect())
    }

    #[test]
    fn known_pairs_need_nothing() {
        assert_eq!(times(DEFAULT, None), Ok(vec![80.0, 96.0, 163.0]));
        assert_eq!(times(&["eu", "us-east"], None), Ok(vec![96.0]));
        assert_eq!(times(&["one"], None), Ok(vec![]));
    }

    #[test]
    fn what_is_given_comes_before_what_is_known() {
        assert_eq!(times(DEFAULT, Some("1, 2,3.5")), Ok(vec![1.0, 2.0, 3.5]));
        assert_eq!(times(DEFAULT, Some("7")), Ok(vec![7.0; 3]));
        assert_eq!(times(DEFAULT, Some("eu:us-west=5")), Ok(vec![80.0, 96.0, 5.0]));
        assert_eq!(times(&["a", "b"], Some("a:b=5")), Ok(vec![5.0]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (regions, given, says) in [
            (&["a", "b"][..], None, "no round-trip time is known for a:b"),
            (DEFAULT, Some("1,2"), "2 values for 3 pairs"),
            (DEFAULT, Some("1,2,x"), "`x` is not a number"),
            (DEFAULT, Some("-1"), "not between"),
            (DEFAULT, Some("NaN"), "not between"),
            (DEFAULT, Some("us-east:mars=5"), "not a pair of this cluster"),
            (DEFAULT, Some("us-east:eu=5,7"), "not of the form"),
        ] {
            let error = times(regions, given).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
