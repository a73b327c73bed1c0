//! Whether a node's physical clock is right, as far as can be told: from how it runs beside the monotonic one, and from the clocks of the nodes that it talks to.
//!
//! The *lead* of a physical clock is its distance from this node's monotonic clock. A right clock's lead hardly moves, so a leap shows at once, without asking anybody. That of
//! another node's clock is known up to the time that a question and its answer took. While the own clock is not believed, its last good lead counts, or the majority's.

/// What this node thinks of its physical clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// Nothing speaks against it, or a majority agrees with it.
    Right,
    /// It has leapt beside the monotonic clock, and no majority says that it is right now.
    Leapt {
        /// By how much, in milliseconds.
        by_ms: i64,
    },
    /// A majority's clocks agree with each other, and not with this one.
    Wrong {
        /// How far it is ahead of them, in milliseconds; behind if negative.
        by_ms: i64,
    },
}

impl Trust {
    /// Whether the clock is believed.
    pub fn is_right(self) -> bool {
        self == Trust::Right
    }
}

impl std::fmt::Display for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |by_ms: i64| by_ms.unsigned_abs() as f64 / 1e3;
        match *self {
            Trust::Right => write!(f, "the clock is right"),
            Trust::Leapt { by_ms } => {
                let way = if by_ms < 0 { "back" } else { "forward" };
                write!(f, "the clock has leapt {:.1} s {way}, and no majority of the nodes confirms it", seconds(by_ms))
            }
            Trust::Wrong { by_ms } => {
                let way = if by_ms < 0 { "behind" } else { "ahead of" };
                write!(f, "the clock is {:.1} s {way} those of a majority of the nodes", seconds(by_ms))
            }
        }
    }
}

/// How long another node's clock is known after it was asked, in microseconds.
pub const KNOWN_US: u64 = 20_000_000;

/// Clocks that differ by no more than this agree whatever the limit is, in microseconds: clocks that are disciplined do, and answers take time.
const LEAST_AGREE_US: i64 = 1_000_000;

/// The lead of another node's clock, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    least_us: i64,
    most_us: i64,
    /// When it was heard, on the monotonic clock.
    at_us: u64,
}

impl Sample {
    fn width_us(&self) -> i64 {
        self.most_us.saturating_sub(self.least_us)
    }

    fn middle_us(&self) -> i64 {
        self.least_us + self.width_us() / 2
    }
}

/// The clocks of the nodes, as one of them knows them.
///
/// Promises, if the limit is at least three seconds, and the right clocks differ by less than a tenth of it: where more than half of the nodes have right clocks and hear each other, each of those is [`Trust::Right`], and
/// a node whose clock is off by the limit or more is not, from the moment on when its clock leaps, or when it has heard them. What [`ClockWatch::reading`] says there
/// is within the limit of every right clock.
#[derive(Clone, Debug)]
pub struct ClockWatch {
    /// Clocks that differ by no more agree, in microseconds.
    agree_us: i64,
    others: Vec<Option<Sample>>,
    /// The own lead when the clock was last believed.
    believed_us: Option<i64>,
    /// The lead that counts while it is not.
    held_us: Option<i64>,
    trust: Trust,
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

/// The lead of a clock that shows `physical_us` when the monotonic one shows `monotonic_us`.
fn lead(physical_us: u64, monotonic_us: u64) -> i64 {
    signed(physical_us).saturating_sub(signed(monotonic_us))
}

impl ClockWatch {
    /// A node that talks to `others` other nodes, each of which refuses timestamps that are more than `limit_ms` ahead.
    pub fn new(others: usize, limit_ms: u64) -> ClockWatch {
        let agree_us = (signed(limit_ms).saturating_mul(1000) / 3).clamp(LEAST_AGREE_US, i64::MAX / 8);
        ClockWatch { agree_us, others: vec![None; others], believed_us: None, held_us: None, trust: Trust::Right }
    }

    /// How many other nodes this one talks to.
    pub fn others(&self) -> usize {
        self.others.len()
    }

    /// What was thought of the clock when it was last judged.
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// The lead that counts now, if it is not the physical clock's own; and the one from which that must not differ by more than the second number, if it is. In microseconds.
    pub fn bounds(&self) -> (Option<i64>, Option<(i64, i64)>) {
        (self.held_us, self.believed_us.filter(|_| !self.others.is_empty()).map(|believed| (believed, self.agree_us)))
    }

    /// The time that counts when the physical clock shows `physical_us` and the monotonic one `monotonic_us`, in microseconds.
    pub fn reading(&self, physical_us: u64, monotonic_us: u64) -> u64 {
        let at = |lead_us: i64| monotonic_us.saturating_add_signed(lead_us);
        match self.bounds() {
            (Some(held), _) => at(held),
            (None, Some((believed, agree_us))) if lead(physical_us, monotonic_us).abs_diff(believed) > agree_us.unsigned_abs() => at(believed),
            _ => physical_us,
        }
    }

    /// Node number `of` was asked at `asked_us` for its physical clock, and `physical_us` was heard at `heard_us`, both on the monotonic clock.
    pub fn hear(&mut self, of: usize, asked_us: u64, heard_us: u64, physical_us: u64) {
        let agree_us = self.agree_us;
        let Some(known) = self.others.get_mut(of).filter(|_| asked_us <= heard_us) else { return };
        let sample = Sample { least_us: lead(physical_us, heard_us), most_us: lead(physical_us, asked_us), at_us: heard_us };
        // An answer that took long says little.
        if sample.width_us() > agree_us {
            return;
        }
        let better = |old: &Sample| {
            let contradicts = sample.least_us > old.most_us || sample.most_us < old.least_us;
            contradicts || sample.width_us() <= old.width_us() || heard_us > old.at_us.saturating_add(KNOWN_US / 2)
        };
        if known.as_ref().is_none_or(better) {
            *known = Some(sample);
        }
    }

    /// By how much the physical clock is ahead of that of each node that was heard lately, in milliseconds.
    pub fn ahead_of(&self, physical_us: u64, monotonic_us: u64) -> Vec<Option<i64>> {
        let own = lead(physical_us, monotonic_us);
        let fresh = |sample: &Sample| monotonic_us <= sample.at_us.saturating_add(KNOWN_US);
        self.others.iter().map(|sample| sample.filter(fresh).map(|sample| own.saturating_sub(sample.middle_us()) / 1000)).collect()
    }

    /// By how much two of the clocks that are known, this one among them, are apart at least, in microseconds: by as much as the time that answers took leaves no doubt of.
    pub fn apart_us(&self, physical_us: u64, monotonic_us: u64) -> u64 {
        let own = lead(physical_us, monotonic_us);
        let fresh = self.others.iter().flatten().filter(|sample| monotonic_us <= sample.at_us.saturating_add(KNOWN_US));
        let (least, most) = fresh.fold((own, own), |(least, most), sample| (least.min(sample.most_us), most.max(sample.least_us)));
        u64::try_from(most.saturating_sub(least)).unwrap_or(0)
    }

    /// Judges the physical clock, which shows `physical_us` when the monotonic one shows `monotonic_us`.
    pub fn judge(&mut self, physical_us: u64, monotonic_us: u64) -> Trust {
        if self.others.is_empty() {
            return self.trust;
        }
        let (own, agree_us) = (lead(physical_us, monotonic_us), self.agree_us);
        let mut known: Vec<i64> = Vec::with_capacity(self.others.len());
        known.extend(self.others.iter().flatten().filter(|sample| monotonic_us <= sample.at_us.saturating_add(KNOWN_US)).map(Sample::middle_us));
        known.sort_unstable();
        // Of this node and the others.
        let majority = self.others.len().div_ceil(2) + 1;
        let mut against: Option<(i64, i64)> = None;
        for (first, least) in known.iter().enumerate() {
            let agreeing = known[first..].iter().take_while(|lead_us| lead_us.saturating_sub(*least) <= agree_us).count();
            let most = known[first + agreeing - 1];
            let agrees = own >= least.saturating_sub(agree_us) && own <= most.saturating_add(agree_us);
            if agrees && agreeing + 1 >= majority {
                (self.believed_us, self.held_us, self.trust) = (Some(own), None, Trust::Right);
                return self.trust;
            }
            if !agrees && agreeing >= majority {
                against = Some((*least, most));
            }
        }
        if let Some((least, most)) = against {
            let middle = least + (most - least) / 2;
            let fits = |lead_us: &i64| *lead_us >= least.saturating_sub(agree_us) && *lead_us <= most.saturating_add(agree_us);
            self.held_us = Some(self.held_us.or(self.believed_us).filter(fits).unwrap_or(middle));
            self.trust = Trust::Wrong { by_ms: own.saturating_sub(middle) / 1000 };
            return self.trust;
        }
        let before = self.held_us.or(self.believed_us);
        let kept = before.is_none_or(|before| own.abs_diff(before) <= agree_us.unsigned_abs());
        match self.trust {
            // Only a majority that agrees with it makes it right again.
            Trust::Wrong { .. } => {}
            _ if kept => (self.believed_us, self.held_us, self.trust) = (Some(own), None, Trust::Right),
            _ => {
                self.held_us = before;
                self.trust = Trust::Leapt { by_ms: own.saturating_sub(before.unwrap_or(own)) / 1000 };
            }
        }
        self.trust
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: i64 = 3_600_000_000;
    const LIMIT_MS: u64 = 60_000;
    const LIMIT_US: i64 = LIMIT_MS as i64 * 1000;
    /// True time is so far ahead of every monotonic clock here.
    const TRUE_LEAD_US: i64 = 1_700_000_000_000_000;

    fn shown(monotonic_us: u64, off_us: i64) -> u64 {
        monotonic_us.saturating_add_signed(TRUE_LEAD_US + off_us)
    }

    /// How far off the reading of `watch` is at `monotonic_us`, where the physical clock is off by `off_us`.
    fn error_us(watch: &ClockWatch, monotonic_us: u64, off_us: i64) -> i64 {
        watch.reading(shown(monotonic_us, off_us), monotonic_us) as i64 - monotonic_us as i64 - TRUE_LEAD_US
    }

    /// Node `of` is off by `off_us`; the question took `there_us`, the answer `back_us`.
    fn hear(watch: &mut ClockWatch, of: usize, heard_us: u64, (there_us, back_us): (u64, u64), off_us: i64) {
        watch.hear(of, heard_us - there_us - back_us, heard_us, shown(heard_us - back_us, off_us));
    }

    /// An answer that agrees with one that is known and says less is not taken in its place, also where the two have one moment in common only.
    #[test]
    fn a_wider_answer_that_does_not_contradict_says_nothing_new() {
        let mut watch = ClockWatch::new(1, LIMIT_MS);
        let now_us = 100_000_000;
        hear(&mut watch, 0, now_us, (0, 10_000), 0);
        let ahead = |watch: &ClockWatch| watch.ahead_of(shown(now_us, 0), now_us);
        let known = ahead(&watch);
        assert_eq!(known, [Some(5)], "the middle of what the answer leaves open");
        // It leaves open twice as much, and ends where the other begins.
        hear(&mut watch, 0, now_us, (20_000, 0), -30_000);
        assert_eq!(ahead(&watch), known);
    }

    /// All courses in which each of up to five nodes is right, a little off, or wrong in one of several ways, some are out of reach, and ways are slow one way or the other.
    #[test]
    fn where_a_majority_is_right_and_hears_itself_the_right_are_believed_and_the_wrong_are_not() {
        let offs = [0, LIMIT_US / 25, -LIMIT_US / 25, HOUR_US, -HOUR_US, LIMIT_US + 1_000_000];
        let ways = [(0, 0), (5_000_000, 0), (0, 5_000_000)];
        let is_right = |off: i64| off.abs() < LIMIT_US / 20;
        let (mut judged, now_us) = ([0; 2], 100_000_000);
        for nodes in 2..=5usize {
            for course in 0..offs.len().pow(nodes as u32) {
                let off_of = |node: usize| offs[course / offs.len().pow(node as u32) % offs.len()];
                for away in [None, Some(nodes - 1)].into_iter().take(1 + usize::from(nodes > 2)) {
                    let heard: Vec<usize> = (1..nodes).filter(|node| Some(*node) != away).collect();
                    let right = heard.iter().filter(|node| is_right(off_of(**node))).count();
                    let mut watch = ClockWatch::new(nodes - 1, LIMIT_MS);
                    assert!(watch.judge(shown(now_us, off_of(0)), now_us).is_right(), "nobody has been heard");
                    for node in &heard {
                        hear(&mut watch, node - 1, now_us, ways[(node + course) % 3], off_of(*node));
                    }
                    let trust = watch.judge(shown(now_us, off_of(0)), now_us);
                    if right + usize::from(is_right(off_of(0))) <= nodes / 2 {
                        continue;
                    }
                    judged[usize::from(trust.is_right())] += 1;
                    // The middle of an answer's bounds is off by half of what one way takes longer than the other.
                    assert!(error_us(&watch, now_us, off_of(0)).abs() < LIMIT_US, "{nodes} nodes, course {course}: {trust:?}");
                    if is_right(off_of(0)) {
                        assert_eq!(trust, Trust::Right, "{nodes} nodes, course {course}");
                    } else if right > nodes / 2 {
                        assert!(!trust.is_right(), "{nodes} nodes, course {course}");
                        let Trust::Wrong { by_ms } = trust else { panic!("{trust:?}") };
                        assert_eq!(by_ms.signum(), off_of(0).signum());
                    }
                }
            }
        }
        assert!(judged.iter().all(|judged| *judged > 100), "{judged:?}");
    }

    #[test]
    fn a_leap_shows_before_anybody_is_asked_and_a_majority_decides_it() {
        let mut watch = ClockWatch::new(2, LIMIT_MS);
        let mut at_us = 1_000_000;
        assert!(watch.judge(shown(at_us, 0), at_us).is_right());
        at_us += 10_000_000;
        assert_eq!(error_us(&watch, at_us, HOUR_US), 0, "also when it was not judged yet");
        assert_eq!(error_us(&watch, at_us, -HOUR_US), 0);
        assert_eq!(watch.judge(shown(at_us, HOUR_US), at_us), Trust::Leapt { by_ms: 3_600_000 });
        assert_eq!(error_us(&watch, at_us, HOUR_US), 0);
        // One of three that agrees with it is a majority with it.
        let mut agreeing = watch.clone();
        hear(&mut agreeing, 0, at_us, (1000, 1000), HOUR_US);
        assert!(agreeing.judge(shown(at_us, HOUR_US), at_us).is_right());
        assert_eq!(error_us(&agreeing, at_us, HOUR_US), HOUR_US);
        // One that does not is none.
        hear(&mut watch, 0, at_us, (1000, 1000), 0);
        assert_eq!(watch.judge(shown(at_us, HOUR_US), at_us), Trust::Leapt { by_ms: 3_600_000 });
        hear(&mut watch, 1, at_us, (1000, 1000), 0);
        assert_eq!(watch.judge(shown(at_us, HOUR_US), at_us), Trust::Wrong { by_ms: 3_600_000 });
        // It stays so while nobody is heard, whatever the clock does, until one of them is heard when it is right.
        at_us += 2 * KNOWN_US;
        assert!(!watch.judge(shown(at_us, HOUR_US), at_us).is_right() && !watch.judge(shown(at_us, 0), at_us).is_right());
        assert_eq!(error_us(&watch, at_us, 2 * HOUR_US).abs(), 0);
        hear(&mut watch, 1, at_us, (1000, 1000), 0);
        assert!(watch.judge(shown(at_us, 0), at_us).is_right());
    }

    #[test]
    fn a_leap_that_is_undone_is_forgotten() {
        let mut watch = ClockWatch::new(1, LIMIT_MS);
        watch.judge(shown(0, 0), 0);
        assert!(!watch.judge(shown(1_000_000, -HOUR_US), 1_000_000).is_right());
        assert!(watch.judge(shown(2_000_000, 1_000), 2_000_000).is_right());
    }

    #[test]
    fn two_nodes_that_differ_are_no_majority() {
        let mut watch = ClockWatch::new(1, LIMIT_MS);
        hear(&mut watch, 0, 5_000_000, (1000, 1000), HOUR_US);
        assert!(watch.judge(shown(5_000_000, 0), 5_000_000).is_right());
        assert_eq!(watch.ahead_of(shown(5_000_000, 0), 5_000_000), [Some(-3_600_000)]);
        assert_eq!(watch.ahead_of(shown(5_000_000, 0), 5_000_001 + KNOWN_US), [None]);
    }

    #[test]
    fn a_slow_drift_is_followed_until_it_is_too_much() {
        let mut watch = ClockWatch::new(2, LIMIT_MS);
        for second in 1..200u64 {
            let (at_us, off_us) = (second * 1_000_000, second as i64 * 500_000);
            (0..2).for_each(|of| hear(&mut watch, of, at_us, (1000, 1000), 0));
            let trust = watch.judge(shown(at_us, off_us), at_us);
            assert_eq!(trust.is_right(), off_us <= LIMIT_US / 3, "{off_us}");
            assert!(error_us(&watch, at_us, off_us).abs() <= LIMIT_US / 3);
        }
    }

    #[test]
    fn an_answer_that_took_long_says_nothing_and_a_finer_one_is_kept_for_a_while() {
        let mut watch = ClockWatch::new(2, LIMIT_MS);
        hear(&mut watch, 0, 90_000_000, (40_000_000, 0), 0);
        assert_eq!(watch.ahead_of(shown(90_000_000, 0), 90_000_000), [None, None]);
        hear(&mut watch, 0, 90_000_000, (1000, 1000), 0);
        hear(&mut watch, 0, 91_000_000, (10_000_000, 0), 0);
        assert_eq!(watch.ahead_of(shown(91_000_000, 0), 91_000_000), [Some(0), None]);
        hear(&mut watch, 0, 101_000_000, (10_000_000, 0), 0);
        assert_eq!(watch.ahead_of(shown(101_000_000, 0), 101_000_000), [Some(-5_000), None]);
        // What contradicts it counts at once.
        hear(&mut watch, 0, 101_000_001, (10_000_000, 0), HOUR_US);
        assert!(watch.ahead_of(shown(101_000_001, 0), 101_000_001)[0] < Some(-3_000_000));
        watch.hear(7, 0, 1, 2);
        watch.hear(1, 3, 1, 2);
        watch.hear(1, 0, 1, u64::MAX);
        watch.judge(u64::MAX, 0);
        watch.judge(0, u64::MAX);
    }

    #[test]
    fn how_far_clocks_are_apart_at_least() {
        let mut watch = ClockWatch::new(3, LIMIT_MS);
        assert_eq!(watch.apart_us(shown(90_000_000, 0), 90_000_000), 0);
        // An answer took 40 ms each way: what it says is 40 ms less, or more.
        hear(&mut watch, 0, 90_000_000, (40_000, 40_000), 30_000);
        assert_eq!(watch.apart_us(shown(90_000_000, 0), 90_000_000), 0);
        hear(&mut watch, 1, 90_000_000, (1000, 1000), 30_000);
        assert_eq!(watch.apart_us(shown(90_000_000, 0), 90_000_000), 29_000);
        hear(&mut watch, 2, 90_000_000, (1000, 1000), -10_000);
        assert_eq!(watch.apart_us(shown(90_000_000, 0), 90_000_000), 38_000, "two others can be further apart than either is from this one");
        assert_eq!(watch.apart_us(shown(90_000_001 + KNOWN_US, 0), 90_000_001 + KNOWN_US), 0, "what was heard long ago says nothing");
    }

    #[test]
    fn a_limit_of_milliseconds_makes_no_clock_wrong_that_is_adjusted() {
        let mut watch = ClockWatch::new(2, 1);
        for second in 1..100u64 {
            let at_us = second * 1_000_000;
            hear(&mut watch, 0, at_us, (100_000, 100_000), 0);
            assert!(watch.judge(shown(at_us, if second % 2 == 0 { 0 } else { 300_000 }), at_us).is_right());
        }
    }

    #[test]
    fn a_node_alone_believes_its_clock() {
        let mut watch = ClockWatch::new(0, LIMIT_MS);
        assert!(watch.judge(shown(0, 0), 0).is_right() && watch.judge(shown(1, HOUR_US), 1).is_right());
        assert_eq!(error_us(&watch, 1, HOUR_US), HOUR_US);
    }
}
