//! A change feed tells each version that was written after its beginning, once and in its place: no reader that goes on from a position it was given misses one, and no effect comes before its cause.

use crate::history::{History, KeyId};
use rheostat_core::feed::Position;
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};

/// What one reader was told, from where it began to where it is, over all of its resumptions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Where it began.
    pub from: Position,
    /// Where it is.
    pub upto: Position,
    /// In order.
    pub changes: Vec<(KeyId, VersionId)>,
    /// Whether the feed says that causes come before their effects.
    pub causal: bool,
}

/// Checks what each of `readers` was told against what `history` knows to have been written. Of versions that may be lost ([`History::lost_allowed`]), none need be told.
///
/// # Errors
/// The first version that is missing, told twice, out of order, or before one that its session had seen, in words.
pub fn check(history: &History, readers: &[Told]) -> Result<(), String> {
    let mut written = BTreeSet::new();
    for (id, event) in history.numbered() {
        if let Some(Some(version)) = event.acknowledged()
            && !history.lost_allowed.contains(&id)
        {
            written.extend(event.items().iter().map(|item| (version, item.key)));
        }
    }
    for (number, Told { from, upto, changes, causal }) in readers.iter().enumerate() {
        let name = |key: KeyId, version: VersionId| format!("version {version} of {}", history.key_name(key));
        let reader = format!("reader {number}, from {} to {}", from.0, upto.0);
        let mut places = BTreeMap::new();
        for (place, (key, version)) in changes.iter().enumerate() {
            if Position(*version) <= *from || Position(*version) > *upto {
                return Err(format!("{reader}: {} is not between\n", name(*key, *version)));
            }
            if places.insert((*version, *key), place).is_some() {
                return Err(format!("{reader}: {} was told twice\n", name(*key, *version)));
            }
        }
        for (version, key) in &written {
            if Position(*version) > *from && Position(*version) <= *upto && !places.contains_key(&(*version, *key)) {
                return Err(format!("{reader}: {} was not told\n", name(*key, *version)));
            }
        }
        if *causal {
            in_causal_order(history, &places).map_err(|why| format!("{reader}: {why}\n"))?;
        }
    }
    Ok(())
}

/// What a session wrote comes after all that it had written and read. What others had read of it then follows by their own.
fn in_causal_order(history: &History, places: &BTreeMap<(VersionId, KeyId), usize>) -> Result<(), String> {
    let mut seen: BTreeMap<_, (usize, KeyId, VersionId)> = BTreeMap::new();
    for event in &history.events {
        let before = seen.get(&event.session).copied();
        let mut now = before;
        let mut note = |key: KeyId, version: VersionId| {
            let place = places.get(&(version, key)).map(|place| (*place, key, version));
            now = now.max(place);
        };
        if event.is_causal_read() {
            event.observations().filter_map(|(key, observed)| Some((key, observed.version?))).for_each(|(key, version)| note(key, version));
        }
        if let Some(Some(version)) = event.acknowledged() {
            for item in event.items() {
                if let (Some(place), Some((cause, key, of))) = (places.get(&(version, item.key)), before)
                    && *place < cause
                {
                    let (effect, name) = (history.key_name(item.key), history.key_name(key));
                    return Err(format!("version {version} of {effect} was told before version {of} of {name}, which its session had seen"));
                }
                note(item.key, version);
            }
        }
        if let Some(now) = now {
            seen.insert(event.session, now);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::{DcId, Timestamp};

    const HISTORY: &str = "datacenters 2\nkeys x y\ne0 s1 dc0 100..200 put x=1 -> 5.0@0\ne1 s2 dc1 210..300 get causal x -> 1@5.0@0\ne2 s2 dc1 310..400 put y=2 -> 7.0@1\n";

    fn id(millis: u64, origin: u8) -> VersionId {
        VersionId { written: Timestamp::new(millis, 0), origin: DcId(origin) }
    }

    fn told(changes: &[(u32, VersionId)], upto: u64) -> Told {
        let changes = changes.iter().map(|(key, version)| (KeyId(*key), *version)).collect();
        Told { from: Position(id(1, 0)), upto: Position(id(upto, 9)), changes, causal: true }
    }

    fn why(changes: &[(u32, VersionId)], upto: u64) -> String {
        check(&History::parse(HISTORY).unwrap(), &[told(changes, upto)]).err().unwrap_or_default()
    }

    #[test]
    fn each_version_is_told_once_in_its_place() {
        let (x, y) = ((0, id(5, 0)), (1, id(7, 1)));
        assert_eq!(why(&[x, y], 7), "");
        assert_eq!(why(&[x], 6), "");
        assert!(why(&[x], 7).contains("version 7.0@1 of y was not told"));
        assert!(why(&[y], 7).contains("version 5.0@0 of x was not told"));
        assert!(why(&[x, x, y], 7).contains("told twice"));
        assert!(why(&[x, y], 6).contains("is not between"));
        assert!(why(&[y, x], 7).contains("version 7.0@1 of y was told before version 5.0@0 of x"));
        // What was written, and nobody was answered for, may be told.
        assert_eq!(why(&[x, (1, id(6, 0)), y], 7), "");
        let by_clocks = Told { causal: false, ..told(&[y, x], 7) };
        assert_eq!(check(&History::parse(HISTORY).unwrap(), &[by_clocks]), Ok(()));
    }
}
