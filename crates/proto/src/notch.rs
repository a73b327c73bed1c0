//! What was sampled of other notches of the dial, between its two forms.

use crate::dial::{level_in, level_out};
use crate::v1;
use rheostat_core::dial::Level;
use rheostat_core::notch::{AGES, AGES_MS, Lags, Sampled, Share, Tally, Waits};
use std::collections::BTreeMap;

fn share_out(share: Share) -> v1::Compared {
    v1::Compared { of: share.of, differ: share.differ }
}

fn share_in(share: Option<&v1::Compared>) -> Share {
    share.map_or(Share::default(), |share| Share { of: share.of, differ: share.differ })
}

/// The message of what was sampled in the keyspace called `keyspace`, whose own level is `level`; `name` tells the service level of a label.
pub fn out(keyspace: &str, level: Level, sample_reads: u32, sampled: &Sampled, name: impl Fn(u16) -> String) -> v1::KeyspaceNotches {
    let of = |(level, label, tally): &(Level, u16, Tally)| {
        let (level, guarantees) = level_out(*level);
        v1::LevelNotches {
            level,
            guarantees,
            service_level: if *label == 0 { String::new() } else { name(*label) },
            reads: tally.reads,
            failed: tally.failed,
            waited_us: tally.waits.sum_us,
            longest_us: tally.waits.longest_us,
            eventual: Some(share_out(tally.eventual)),
            own: Some(share_out(tally.own)),
            strong: Some(share_out(tally.strong)),
            unsettled: tally.unsettled,
            ages: tally.ages.map(share_out).to_vec(),
        }
    };
    let (level, guarantees) = level_out(level);
    v1::KeyspaceNotches {
        keyspace: keyspace.into(),
        level,
        guarantees,
        sample_reads,
        levels: sampled.tallies.iter().map(of).collect(),
        arrived: sampled.arrived.0.to_vec(),
        visible: sampled.visible.0.to_vec(),
        age_ends_ms: AGES_MS.to_vec(),
        dropped: sampled.dropped,
        under_way: sampled.under_way,
    }
}

/// What several nodes have sampled in one keyspace.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// The keyspace's own level.
    pub level: Option<Level>,
    /// One of so many reads is sampled; 0: none.
    pub sample_reads: u32,
    /// By service level (empty: none) and level, in the order of their names and words.
    pub tallies: BTreeMap<(String, String), (Level, Tally)>,
    /// How long writes took to arrive.
    pub arrived: Lags,
    /// How long they took to be visible at the keyspace's own level.
    pub visible: Lags,
    /// Reads that were to be sampled when there was no room.
    pub dropped: u64,
    /// Sampled reads that are not settled yet.
    pub under_way: u64,
}

impl Gathered {
    /// Adds a node's message. Errors: a level that this version does not know, or other intervals of ages.
    pub fn add(&mut self, message: &v1::KeyspaceNotches) -> Result<(), String> {
        if message.age_ends_ms != AGES_MS {
            return Err("the node counts ages of writes in other intervals; use its own version of this command".into());
        }
        self.level = level_in(message.level, &message.guarantees)?;
        self.sample_reads = self.sample_reads.max(message.sample_reads);
        let lags = |counts: &[u64]| Lags(std::array::from_fn(|index| counts.get(index).copied().unwrap_or_default()));
        self.arrived.add(&lags(&message.arrived));
        self.visible.add(&lags(&message.visible));
        self.dropped += message.dropped;
        self.under_way += message.under_way;
        for one in &message.levels {
            let level = level_in(one.level, &one.guarantees)?.ok_or("a level is missing")?;
            let ages: [Share; AGES] = std::array::from_fn(|index| share_in(one.ages.get(index)));
            let tally = Tally {
                reads: one.reads,
                failed: one.failed,
                waits: Waits { count: one.reads, sum_us: one.waited_us, longest_us: one.longest_us },
                eventual: share_in(one.eventual.as_ref()),
                own: share_in(one.own.as_ref()),
                strong: share_in(one.strong.as_ref()),
                unsettled: one.unsettled,
                ages,
            };
            self.tallies.entry((one.service_level.clone(), level.to_string())).or_insert((level, Tally::default())).1.add(&tally);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sampled_survives_the_journey_and_adds_up() {
        let share = |of, differ| Share { of, differ };
        let mut tally = Tally {
            reads: 7,
            failed: 1,
            waits: Waits { count: 7, sum_us: 90, longest_us: 50 },
            eventual: share(7, 2),
            own: share(3, 1),
            strong: share(5, 4),
            unsettled: 2,
            ages: [Share::default(); AGES],
        };
        tally.ages[3] = share(5, 4);
        let mut sampled = Sampled { tallies: vec![(Level::Causal, 9, tally.clone()), (Level::SESSION, 0, tally.clone())], ..Sampled::default() };
        sampled.arrived.0[2] = 3;
        (sampled.visible.0[AGES - 1], sampled.dropped, sampled.under_way) = (4, 5, 6);
        let message = out("posts", Level::Causal, 10, &sampled, |label| format!("nr {label}"));
        let mut gathered = Gathered::default();
        gathered.add(&message).unwrap();
        let key = |label: &str, level: &str| (label.to_string(), level.to_string());
        assert_eq!(gathered.tallies[&key("nr 9", "causal")], (Level::Causal, tally.clone()));
        assert_eq!(gathered.tallies[&key("", "session")], (Level::SESSION, tally));
        assert_eq!((gathered.arrived, gathered.visible, gathered.level), (sampled.arrived, sampled.visible, Some(Level::Causal)));
        gathered.add(&message).unwrap();
        let twice = &gathered.tallies[&key("nr 9", "causal")].1;
        assert_eq!((twice.reads, twice.strong, twice.ages[3], twice.waits.longest_us), (14, share(10, 8), share(10, 8), 50));
        assert_eq!((gathered.dropped, gathered.under_way, gathered.visible.0[AGES - 1]), (10, 12, 8));
        assert!(gathered.add(&v1::KeyspaceNotches { level: 99, ..message.clone() }).is_err());
        assert!(gathered.add(&v1::KeyspaceNotches { age_ends_ms: vec![1], ..message }).is_err());
    }
}
