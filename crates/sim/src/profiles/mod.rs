//! Profiles: what a batch of seeds is about. Every plan begins as the seed draws it; its profile gives it options, faults and a load beside.

mod common;
mod data_centers;
mod expiring;
mod history;
mod servers;
mod ways;

use crate::generate::general_plan;
use crate::generate_counters;
use crate::plan::Plan;
use data_centers::{added, dead, joined, orphaned};
use expiring::expiring;
use history::{checkpoints, depending, feed, past, rolled};
use rheostat_core::random::Random;
use rheostat_counters::counting;
use servers::{asleep, away, drained, hurried, lost_disks, moved, replaced, replicas, split};
use ways::{alone, bursts, lagging, narrow, parted, slices, tested};

/// A kind of load and of trouble.
#[derive(Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in one line.
    pub about: &'static str,
    /// An option that it sets if the protocol has it and nobody else has set it.
    option: Option<(&'static str, Setting)>,
    /// Changes the plan whose load takes about so many microseconds.
    dress: fn(&mut Plan, u64, &mut Random),
    /// The planted bugs that it was made for; others are looked for with plans as they are drawn.
    bugs: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
enum Setting {
    Word(&'static str),
    Number(i64),
}

/// Every profile; the first leaves plans as they are drawn.
pub const ALL: &[Profile] = &[
    Profile { name: "plain", about: "what the seed draws, and no more", option: None, dress: |_, _, _| {}, bugs: &[] },
    Profile {
        name: "predicted",
        about: "clients predict the snapshots of their transactions",
        option: Some(("transactions", Setting::Word("predicted"))),
        dress: |_, _, _| {},
        bugs: &[
            "predicted-ignores-own-writes",
            "predicted-snapshot-goes-back",
            "predicted-retry-with-empty-vector",
            "predicted-validity-not-checked",
            "predicted-snapshot-not-kept",
        ],
    },
    Profile {
        name: "away",
        about: "short logs, and members of groups that are away for long",
        option: Some(("keep_entries", Setting::Number(4))),
        dress: away,
        bugs: &["snapshot-without-deletions", "tombstones-collected-under-pages", "leader-clock-behind-the-log", "batches-forgotten-too-early"],
    },
    Profile {
        name: "alone",
        about: "one data center alone for 6 to 10 seconds, while clients go on everywhere",
        option: None,
        dress: alone,
        bugs: &[],
    },
    Profile {
        name: "lagging",
        about: "several slow links between data centers, for the whole load, or ways that become slow and quick all at once",
        option: None,
        dress: lagging,
        bugs: &[],
    },
    Profile {
        name: "slices",
        about: "slow links inside data centers, wide reads, and writes elsewhere just after them",
        option: None,
        dress: slices,
        bugs: &[],
    },
    Profile {
        name: "bursts",
        about: "kills in short succession, each at a moment that matters",
        option: None,
        dress: bursts,
        bugs: &["held-write-not-recorded", "promise-not-recorded", "accepted-batch-not-recorded", "held-writes-cut-from-the-log"],
    },
    Profile {
        name: "narrow",
        about: "large values, so that batches, pages and windows end, and few operations that may wait",
        option: None,
        dress: narrow,
        bugs: &[],
    },
    Profile {
        name: "dead",
        about: "a data center dies for good, when some of what it wrote has reached only some of the others",
        option: None,
        dress: dead,
        bugs: &["passed-on-without-what-was-forgotten", "stream-ended-before-it-is-here"],
    },
    Profile {
        name: "joined",
        about: "a data center dies and is given up, and one with nothing on its disks has its place, among clients, cuts and crashes",
        option: None,
        dress: joined,
        bugs: &["joined-by-the-first-answer", "joined-reads-before-it-is-filled", "nothing-written-after-it-has-begun"],
    },
    Profile {
        name: "added",
        about: "a data center that was not there at first is started with nothing on its disks and let in, among clients, cuts and crashes",
        option: None,
        dress: added,
        bugs: &["counter-hello-forgotten-while-filled", "own-deletions-forgotten-early"],
    },
    Profile {
        name: "parted",
        about: "two data centers do not hear each other for long, and others pass on between them",
        option: None,
        dress: parted,
        bugs: &["passed-on-beyond-what-is-here"],
    },
    Profile {
        name: "lost-disks",
        about: "servers lose their disks, and what they wrote comes back from the others",
        option: None,
        dress: lost_disks,
        bugs: &[
            "refilled-by-the-first-answer",
            "read-before-refilled",
            "read-of-parts-goes-on",
            "filled-when-it-is-visible-here",
            "counts-while-it-is-filled",
        ],
    },
    Profile {
        name: "hurried",
        about: "reads and writes under a service level, over slow links: fresh, in time, in as many data centers, or the next best",
        option: None,
        dress: hurried,
        bugs: &[
            "stale-read-taken-as-fresh",
            "entry-said-that-was-asked-for",
            "entry-timed-from-its-attempt",
            "copies-told-that-were-asked-for",
            "copies-timed-from-their-wait",
        ],
    },
    Profile {
        name: "past",
        about: "keys are read as of times in the past, as far back as history is kept",
        option: None,
        dress: past,
        bugs: &["past-read-before-it-is-here", "history-half-as-long"],
    },
    Profile {
        name: "checkpoints",
        about: "keys are read as of checkpoints before a short window, also where servers lose their disks",
        option: None,
        dress: checkpoints,
        bugs: &["checkpoint-goes-with-the-window", "any-time-taken-for-a-checkpoint", "checkpoints-outlive-a-fill"],
    },
    Profile {
        name: "rolled",
        about: "clients roll all keys back while others write, and die in the middle of it",
        option: None,
        dress: rolled,
        bugs: &[
            "rollback-beside-writes",
            "rollback-looks-too-early",
            "rollback-ends-before-it-is-seen",
            "rollback-stop-forgotten-at-restart",
            "rollback-goes-on-with-old-clocks",
        ],
    },
    Profile {
        name: "depending",
        about: "clients roll back one of the last writes and what depends on it, where the protocol knows that",
        option: None,
        dress: depending,
        bugs: &["rollback-leaves-what-depends", "rollback-takes-what-does-not-depend", "rollback-forgets-what-is-beneath"],
    },
    Profile {
        name: "orphaned",
        about: "a client rolls back and is gone, or taken for gone, in some phase of it; another one takes over; servers are killed in some phase",
        option: None,
        dress: orphaned,
        bugs: &["rollback-begun-again", "rollback-by-two"],
    },
    Profile {
        name: "tested",
        about: "tests of a key that decide what is written to another, among writes of both",
        option: None,
        dress: tested,
        bugs: &["tested-before-its-place"],
    },
    Profile {
        name: "replicas",
        about: "several servers under each one that the protocol knows of: leaders killed, cut off, paused for longer than their lease",
        option: None,
        dress: replicas,
        bugs: rheostat_group::PLANTED,
    },
    Profile {
        name: "replaced",
        about: "members of groups lose their disks, one after the other, and come back as new ones",
        option: None,
        dress: replaced,
        bugs: rheostat_group::PLANTED_IN_MEMBERS,
    },
    Profile {
        name: "moved",
        about: "servers that stand alone move to other machines with their files, whose clocks are others, among cuts and crashes",
        option: None,
        dress: moved,
        bugs: &["moved-without-its-clock"],
    },
    Profile {
        name: "split",
        about: "each data center's partitions are split, one data center after the other or all about at once, among cuts and crashes",
        option: None,
        dress: split,
        bugs: &[
            "split-forgets-its-state",
            "split-leaves-keys-behind",
            "split-leaves-entries-behind",
            "split-heard-by-those-that-are-not",
            "counter-greeted-ahead-of-fences",
        ],
    },
    Profile {
        name: "drained",
        about: "servers that lead are drained, and hand over, among those that are cut off, paused and killed",
        option: None,
        dress: drained,
        bugs: rheostat_group::PLANTED_IN_HAND_OVER,
    },
    Profile {
        name: "asleep",
        about: "servers of which nobody has asked anything for a while are told so, and woken by those that are asked",
        option: None,
        dress: asleep,
        bugs: &[],
    },
    Profile {
        name: "feed",
        about: "clients follow the change feed of their data center, and go on from positions that they were given, old ones too",
        option: None,
        dress: feed,
        bugs: &["feed-ahead-of-what-has-arrived", "feed-too-old-not-said", "feed-page-taken-for-whole"],
    },
    Profile {
        name: "expiring",
        about: "values that expire while clients read, claim and replace them, in other data centers and by clocks that are off, too",
        option: None,
        dress: expiring,
        bugs: &[
            "expired-uncovers-an-older-one",
            "expired-goes-by-the-clock-here",
            "entry-decided-by-the-clock-here",
            "write-decided-by-the-clock-here",
        ],
    },
];

/// How many profiles `mixed` takes in turn: those that there were when the seeds were first run of which it is told. Those that came later are run by their names.
const IN_TURN: usize = 27;

/// The profile that a seed has where they are mixed.
pub fn in_turn(seed: u64) -> &'static Profile {
    &ALL[(seed % IN_TURN as u64) as usize]
}

/// The profile called `name`.
///
/// # Errors
/// There is none.
pub fn named(name: &str) -> Result<&'static Profile, String> {
    let names = || ALL.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    ALL.iter().find(|profile| profile.name == name).ok_or_else(|| format!("there is no profile `{name}`; there are: {}", names()))
}

/// The profile that a planted bug was made for, or plans as they are drawn.
pub fn of_bug(planted: Option<&str>) -> &'static Profile {
    ALL.iter().find(|profile| planted.is_some_and(|bug| profile.bugs.contains(&bug))).unwrap_or(&ALL[0])
}

/// Planted bugs of protocols that show only where counters lean on them.
const UNDER_COUNTERS: &[&str] = &["counter-guard-taken-as-met"];

/// Whether a planted bug needs a load of counters.
pub fn wants_counters(planted: Option<&str>) -> bool {
    planted.is_some_and(|bug| counting::PLANTED.contains(&bug) || UNDER_COUNTERS.contains(&bug))
}

impl Profile {
    /// The plan of `seed` for `protocol`, with `options` fixed and the rest drawn.
    pub fn plan(&self, protocol: &str, options: &toml::Table, planted: Option<&str>, counters: bool, seed: u64) -> Plan {
        let (mut options, mut random) = (options.clone(), Random::new(seed ^ 0x9E0F_11E5_5EED_0000));
        if let Some((name, setting)) = self.option
            && !options.contains_key(name)
        {
            let value = match setting {
                Setting::Word(word) => toml::Value::from(word),
                Setting::Number(number) => toml::Value::from(number),
            };
            let alone = toml::Table::from_iter([(name.to_owned(), value)]);
            if rheostat_protocols::registry::check_options(protocol, &alone).is_ok() {
                options.extend(alone);
            }
        }
        let (mut plan, horizon_us) = match counters {
            true => generate_counters::plan(protocol, &options, planted, seed),
            false => general_plan(protocol, &options, planted, seed),
        };
        (self.dress)(&mut plan, horizon_us.max(100_000), &mut random);
        // Which places are free is drawn just now.
        if counters && plan.reserved().next().is_some() {
            generate_counters::let_majorities_agree(&mut plan);
        }
        plan.faults.sort_by_key(|fault| fault.from_us);
        plan
    }
}

/// The plan of `seed` for `protocol`, with `options` fixed and the rest drawn; a planted bug brings the profile and the load that it was made for.
pub fn plan(protocol: &str, options: &toml::Table, planted: Option<&str>, seed: u64) -> Plan {
    of_bug(planted).plan(protocol, options, planted, wants_counters(planted), seed)
}

/// The plan of `seed` for `protocol` with a load of counters.
pub fn counter_plan(protocol: &str, options: &toml::Table, planted: Option<&str>, seed: u64) -> Plan {
    ALL[0].plan(protocol, options, planted, true, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_makes_plans_that_make_sense() {
        for protocol in rheostat_protocols::registry::names() {
            for profile in ALL {
                for (seed, counters) in (1..=40).flat_map(|seed| [(seed, false), (seed, true)]) {
                    let plan = profile.plan(protocol, &toml::Table::new(), None, counters, seed);
                    assert_eq!(Plan::parse(&plan.to_string()), Ok(plan), "{protocol} {} {seed}", profile.name);
                }
            }
        }
    }

    /// Two servers are a group while the third one's place is free; their clocks were further apart than they take from each other, and nothing was ever decided.
    #[test]
    fn those_that_are_there_before_others_come_can_agree_on_counters() {
        let profile = in_turn(11_026);
        let plan = profile.plan("strong", &toml::Table::new(), None, true, 11_026);
        assert_eq!((plan.reserved().count(), plan.data_centers), (1, 3), "{plan}");
        let behind_ms = plan.clocks.iter().map(|clock| -clock.offset_ms).max().unwrap_or(0);
        assert!(behind_ms > 3_101 && plan.max_ahead_ms > 2 * behind_ms as u64, "{plan}");
    }

    #[test]
    fn a_profile_is_found_by_its_name() {
        assert_eq!(named("alone").map(|profile| profile.name), Ok("alone"));
        assert!(named("allone").unwrap_err().contains("lagging"));
    }
}
