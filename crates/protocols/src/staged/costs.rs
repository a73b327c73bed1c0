//! What steps cost, learned from recent timings (section V-B): a line `k·n + b` for n writes, in which newer timings weigh more, and how far timings go beyond it.

use super::options::Estimate;
use rheostat_clock::DcId;

/// What a timing counts for when the next one comes.
const KEEP: f64 = 0.95;

/// What a timing counts for halves in so many microseconds, so that where timings come seldom old ones do not outvote the new.
const HALF_LIFE_US: f64 = 1_000_000.0;

/// What has not been learned for so long, in microseconds, may not hold any more: what nobody plans would never be learned to take less.
const OLD_US: u64 = 1_000_000;

/// What that costs at most, as a multiple of what the questions that it is made of take now.
const OLD_TIMES: f64 = 1.5;

/// Servers of a partition, at most: one in each data center.
const MOST_SERVERS: usize = 64;

/// Timings of which a line begins to say something.
const FEW: f64 = 4.0;

/// Timings of less than this part of what is expected, so many in a row, say that the way is another one than before.
const MUCH_QUICKER: f64 = 0.25;
const IN_A_ROW: u8 = 2;

/// A question of which so much is known is expected to take that: a way that is asked twice a second has no more.
const SOME: f64 = 2.0;

/// By how much sums of equal timings can be off.
const ROUNDING: f64 = 1e-9;

/// Of this share of timings it is said that they are below the raised line.
const SHARE: f64 = 0.99;

/// A learned line: how long n writes take, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    weight: f64,
    n: f64,
    us: f64,
    nn: f64,
    n_us: f64,
    us_us: f64,
    /// What most timings are below, as a multiple of the line.
    most: f64,
    /// When the last one came.
    at_us: u64,
    /// How many of the last ones were much quicker than expected.
    quicker: u8,
}

impl Line {
    fn add(&mut self, now_us: u64, n: f64, us: f64) {
        let since_us = now_us.saturating_sub(self.at_us);
        let keep = KEEP * 0.5f64.powf(since_us as f64 / HALF_LIFE_US);
        self.at_us = now_us;
        for sum in [&mut self.weight, &mut self.n, &mut self.us, &mut self.nn, &mut self.n_us, &mut self.us_us] {
            *sum *= keep;
        }
        self.weight += 1.0;
        self.n += n;
        self.us += us;
        self.nn += n * n;
        self.n_us += n * us;
        self.us_us += us * us;
    }

    /// Takes in that `n` writes took `us` microseconds, as is known at `now_us`.
    pub fn learn(&mut self, now_us: u64, n: u32, us: u64) {
        let (n, us) = (f64::from(n), us as f64);
        let (expected, known) = (self.mean(n), self.weight);
        self.add(now_us, n, us);
        // By how much a line of few timings was missed says more of the line than of the timing.
        if expected > 0.0 && known >= FEW {
            // A step up for each timing above, and one down for each below, in the ratio of their shares: it comes to rest where that many are above.
            let over = us > expected * self.most * (1.0 + ROUNDING);
            self.most = (self.most + if over { 0.1 * SHARE } else { -0.1 * (1.0 - SHARE) }).clamp(1.0, 16.0);
        }
    }

    /// Takes in that a question took `us` microseconds. It waits for nothing but the way and the other server, so one that is much quicker than expected, and then another one, say that the way is quick again: what
    /// was learned while it was slow says nothing any more, nor does how far that was missed when it became so.
    pub fn learn_question(&mut self, now_us: u64, us: u64) {
        self.quicker = if self.weight >= SOME && (us as f64) < MUCH_QUICKER * self.mean(1.0) { self.quicker + 1 } else { 0 };
        if self.quicker == IN_A_ROW {
            *self = Line::default();
        }
        self.learn(now_us, 1, us);
    }

    /// Takes in that `n` writes have been given up after `us` microseconds: they take that long at least. Without it only what comes in time would be learned of a way that has become slow, and
    /// each operation would wait for it in vain.
    pub fn learn_at_least(&mut self, now_us: u64, n: u32, us: u64) {
        let (n, us) = (f64::from(n), us as f64);
        if self.weight > 0.0 && us > self.mean(n) {
            self.add(now_us, n, us);
        }
    }

    /// k and b. A slope that is less than twice its standard error is taken for none: from a few timings of small batches nothing would be known of large ones.
    pub fn line(&self) -> (f64, f64) {
        if self.weight == 0.0 {
            return (0.0, 0.0);
        }
        let mean = self.us / self.weight;
        let spread = self.weight * self.nn - self.n * self.n;
        // Of timings of about one number of writes nothing can be said about others.
        if spread <= 1e-6 * self.nn * self.weight || self.weight <= 2.0 {
            return (0.0, mean);
        }
        let together = self.weight * self.n_us - self.n * self.us;
        let k = together / spread;
        let rest = (self.weight * self.us_us - self.us * self.us - k * together).max(0.0);
        let error = (rest / (spread * (self.weight - 2.0))).sqrt();
        let k = if k > 2.0 * error { k } else { 0.0 };
        (k, (mean - k * self.n / self.weight).max(0.0))
    }

    /// Whether nothing has been learned.
    pub fn is_unknown(&self) -> bool {
        self.weight == 0.0
    }

    fn is_old(&self, now_us: u64) -> bool {
        now_us >= self.at_us + OLD_US
    }

    fn mean(&self, n: f64) -> f64 {
        let (k, b) = self.line();
        k * n + b
    }

    /// k and b to plan with; b is `unknown_us` while nothing has been learned.
    pub fn planned(&self, estimate: Estimate, unknown_us: f64) -> (f64, f64) {
        if self.weight == 0.0 {
            return (0.0, unknown_us);
        }
        let (k, b) = self.line();
        match estimate {
            Estimate::Mean => (k, b),
            Estimate::P99 => (k * self.most.max(1.0), b * self.most.max(1.0)),
        }
    }
}

/// k and b.
pub type Price = (f64, f64);

/// A step that is done when a majority has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The question that comes before (Ask and Told).
    Question,
    /// Steps 4 to 7: writes on disks.
    Hold,
    /// Steps 9 to 11: what is held.
    Collect,
    /// Steps 13 to 16: a batch on disks.
    Accept,
}

/// What steps cost with one server, from the message to its answer; with this one, its own disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ways {
    asked: [Line; 4],
    /// Until a batch is made here that this server has coordinated, where that one was the last of the majority.
    pub last: Line,
    /// Until a batch is made here that it has coordinated.
    pub leads: Line,
}

impl Ways {
    /// What a step costs with it.
    pub fn asked(&mut self, step: Asked) -> &mut Line {
        &mut self.asked[step as usize]
    }
}

/// Who has coordinated a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Led {
    /// This server, and that one completed the majority.
    Here(DcId),
    /// That server.
    There(DcId),
}

/// Servers, a bit each.
pub type Heard = u64;

/// What costs are looked at with.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The monotonic clock, in microseconds.
    pub now_us: u64,
    /// Who is heard; this server counts in any case.
    pub heard: Heard,
    /// How many servers are a majority.
    pub majority: usize,
    /// What steps are planned with.
    pub estimate: Estimate,
    /// What takes as long as nobody knows, in microseconds.
    pub unknown_us: f64,
}

/// What each step costs here, with each of the others. What is done within one handler takes no time that could be measured there; the ways between servers, and their disks, do (`PAPER.md`, D4).
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    here: usize,
    ways: Vec<Ways>,
    /// By how much this server is late when an answer is due: others are served before it. Equations 1 and 2: the answer's own cost.
    pub late: Line,
}

impl Costs {
    /// Nothing is known, by the server in `here` of one in each of so many data centers.
    pub fn new(here: DcId, data_centers: u8) -> Costs {
        Costs { here: here.index(), ways: vec![Ways::default(); usize::from(data_centers)], late: Line::default() }
    }

    /// Those with the server in data center `dc`, which there must be.
    pub fn with(&mut self, dc: DcId) -> &mut Ways {
        &mut self.ways[dc.index()]
    }

    /// What coordination costs, by who leads it.
    pub fn led(&mut self, led: Led) -> &mut Line {
        match led {
            Led::Here(last) => &mut self.with(last).last,
            Led::There(by) => &mut self.with(by).leads,
        }
    }

    /// What is learned, or, where that is old, at most [`OLD_TIMES`] what the questions that it is made of take now.
    fn not_old(line: &Line, view: &View, questions_us: Option<f64>) -> Price {
        let (k, b) = line.planned(view.estimate, view.unknown_us);
        match questions_us.map(|us| OLD_TIMES * us).filter(|most| line.is_old(view.now_us) && k + b > *most) {
            Some(most) => (0.0, most),
            None => (k, b),
        }
    }

    fn question_us(&self, dc: usize, estimate: Estimate) -> Option<f64> {
        let question = &self.ways[dc].asked[Asked::Question as usize];
        (!question.is_unknown()).then(|| question.planned(estimate, 0.0).1)
    }

    /// What `step` costs with the server of number `dc`. What has not been learned of it takes as long as a question to it.
    fn of(&self, dc: usize, step: Asked, view: &View) -> Option<Price> {
        let (line, question_us) = (&self.ways[dc].asked[step as usize], self.question_us(dc, view.estimate));
        match line.is_unknown() {
            false if step == Asked::Question => Some(line.planned(view.estimate, 0.0)),
            false => Some(Costs::not_old(line, view, question_us)),
            true if dc == self.here => Some((0.0, 0.0)),
            true => question_us.map(|us| (0.0, us)),
        }
    }

    /// Of the servers that are heard, and this one, the one that completes a majority: the others of it take no longer. `cost`: how long each takes, if that is known.
    fn last_of(&self, view: &View, cost: impl Fn(usize) -> Option<f64>) -> Option<usize> {
        let servers = || (0..self.ways.len().min(MOST_SERVERS)).filter(|dc| *dc == self.here || view.heard & 1 << dc != 0);
        let mut us = [f64::INFINITY; MOST_SERVERS];
        servers().for_each(|dc| us[dc] = cost(dc).unwrap_or(f64::INFINITY));
        let rank = |dc: usize| servers().filter(|other| (us[*other], *other) < (us[dc], dc)).count();
        servers().find(|dc| rank(*dc) + 1 == view.majority).filter(|dc| us[*dc].is_finite())
    }

    /// What `step` costs with those that make a majority.
    pub fn majority(&self, step: Asked, view: &View) -> Price {
        let of = |dc: usize| self.of(dc, step, view);
        let last = self.last_of(view, |dc| of(dc).map(|(k, b)| k + b));
        last.and_then(of).unwrap_or((0.0, view.unknown_us))
    }

    /// What coordination costs if this server does it: what it took when the same server completed the majority, else the two steps' costs.
    pub fn led_here(&self, view: &View) -> Price {
        let Some(last) = self.last_here(view).map(DcId::index) else { return (0.0, view.unknown_us) };
        let whole = &self.ways[last].last;
        match whole.is_unknown() {
            true => self.two_steps(last, view).unwrap_or((0.0, view.unknown_us)),
            false => Costs::not_old(whole, view, self.question_us(last, view.estimate).map(|us| 2.0 * us)),
        }
    }

    fn two_steps(&self, dc: usize, view: &View) -> Option<Price> {
        let ((k, b), (more_k, more_b)) = (self.of(dc, Asked::Collect, view)?, self.of(dc, Asked::Accept, view)?);
        Some((k + more_k, b + more_b))
    }

    /// Who would complete the majority if this server coordinated, if what it takes is known.
    pub fn last_here(&self, view: &View) -> Option<DcId> {
        self.last_of(view, |dc| self.two_steps(dc, view).map(|(k, b)| k + b)).map(|dc| DcId(dc as u8))
    }

    /// Whether it is known what coordination by that server costs.
    pub fn has_led(&self, by: DcId) -> bool {
        !self.ways[by.index()].leads.is_unknown()
    }

    /// What a question to the nearest of the others that are heard costs, and to the farthest.
    pub fn questions_us(&self, view: &View) -> (f64, f64) {
        let others = (0..self.ways.len()).filter(|dc| *dc != self.here && view.heard & 1 << dc != 0);
        let us = others.map(|dc| self.question_us(dc, view.estimate).unwrap_or(view.unknown_us));
        let both = us.fold(None, |found: Option<(f64, f64)>, us| Some(found.map_or((us, us), |(least, most)| (least.min(us), most.max(us)))));
        both.unwrap_or((view.unknown_us, view.unknown_us))
    }

    /// What it costs if the server `by` does it, which takes `round_us` to a majority and back as it says: what it took, and not less than the ways there and from there take now.
    pub fn led_by(&self, by: DcId, round_us: u64, view: &View) -> Price {
        let leads = &self.ways[by.index()].leads;
        let questions_us = |estimate| self.question_us(by.index(), estimate).filter(|_| round_us > 0).map(|us| us + 2.0 * round_us as f64);
        let least_us = questions_us(Estimate::Mean);
        match leads.is_unknown() {
            true => (0.0, least_us.unwrap_or(view.unknown_us)),
            false => {
                let (k, b) = Costs::not_old(leads, view, questions_us(view.estimate));
                (k, b.max(least_us.unwrap_or(0.0)))
            }
        }
    }
}

/// k and b of each step, by number from 1: what is waited for, and nothing else.
pub fn steps(hold: Price, coordination: Price) -> [Price; 19] {
    let mut steps = [(0.0, 0.0); 19];
    steps[3] = hold;
    steps[8] = coordination;
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_followed() {
        let mut line = Line::default();
        assert_eq!(line.line(), (0.0, 0.0));
        for n in 0..200u32 {
            line.learn(u64::from(n) * 1_000, n % 20, u64::from(7 * (n % 20) + 900));
        }
        let (k, b) = line.line();
        assert!((k - 7.0).abs() < 0.1 && (b - 900.0).abs() < 2.0, "{k} n + {b}");
        // The way becomes ten times as long.
        for n in 0..100u32 {
            line.learn(u64::from(n) * 1_000, n % 20, u64::from(7 * (n % 20) + 9_000));
        }
        let (_, b) = line.line();
        assert!((b - 9_000.0).abs() < 200.0, "{b}");
    }

    /// A way that is quick again is planned with after two timings; one quick timing among slow ones says little, and the tail of a busy server is not forgotten.
    #[test]
    fn a_way_that_is_much_quicker_again_is_learned_at_once() {
        let mut line = Line::default();
        (0..50u64).for_each(|turn| line.learn_question(turn * 500_000, if turn < 25 { 20_000 } else { 200_000 }));
        let planned = |line: &Line| line.planned(Estimate::P99, 0.0).1;
        assert!(planned(&line) > 190_000.0, "{line:?}");
        let mut once = line;
        once.learn_question(25_000_000, 20_000);
        once.learn_question(25_500_000, 200_000);
        once.learn_question(26_000_000, 20_000);
        assert!(planned(&once) > 100_000.0, "{once:?}");
        line.learn_question(25_000_000, 20_000);
        line.learn_question(25_500_000, 20_100);
        near(planned(&line), 20_050.0);
        let mut busy = Line::default();
        (0..2_000u64).for_each(|turn| busy.learn_question(turn * 10_000, if turn % 20 == 0 { 100_000 } else { 15_000 }));
        assert!(planned(&busy) > 60_000.0, "{busy:?}");
    }

    /// The same, but for a hundredth.
    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected / 100.0, "{found}, not {expected}");
    }

    const UNKNOWN: f64 = 7e5;

    fn view(heard: Heard, majority: usize) -> View {
        View { now_us: 1_000_000, heard, majority, estimate: Estimate::P99, unknown_us: UNKNOWN }
    }

    /// Of `data_centers`, at the first: a question to the server of each number takes so many milliseconds, learned from 100.
    fn costs(ways_ms: &[u64]) -> Costs {
        let mut costs = Costs::new(DcId(0), ways_ms.len() as u8 + 1);
        for turn in 0..100 {
            for (index, ms) in ways_ms.iter().enumerate() {
                costs.with(DcId(index as u8 + 1)).asked(Asked::Question).learn(turn * 10_000, 1, ms * 1_000);
            }
        }
        costs
    }

    #[test]
    fn what_has_not_been_learned_is_planned_as_unknown() {
        let mut costs = Costs::new(DcId(0), 3);
        for step in [Asked::Question, Asked::Hold, Asked::Collect, Asked::Accept] {
            assert_eq!(costs.majority(step, &view(0b111, 2)), (0.0, UNKNOWN), "{step:?}");
        }
        assert_eq!(costs.led_here(&view(0b111, 2)), (0.0, UNKNOWN));
        assert_eq!(costs.led_by(DcId(1), 0, &view(0b111, 2)), (0.0, UNKNOWN));
        costs.led(Led::There(DcId(1))).learn(1, 1, 300);
        assert_eq!(costs.led_by(DcId(1), 0, &view(0b111, 2)), (0.0, 300.0));
        assert_eq!(costs.led_by(DcId(2), 0, &view(0b111, 2)), (0.0, UNKNOWN));
        // Alone it waits for nobody but its own disk.
        let mut alone = Costs::new(DcId(0), 1);
        let of_one = View { unknown_us: 0.0, estimate: Estimate::Mean, ..view(0, 1) };
        assert_eq!(alone.majority(Asked::Hold, &of_one), (0.0, 0.0));
        alone.with(DcId(0)).asked(Asked::Hold).learn(1, 1, 900);
        assert_eq!(alone.majority(Asked::Hold, &of_one), (0.0, 900.0));
    }

    #[test]
    fn a_slow_peer_spoils_no_plan_and_a_majority_through_it_costs_what_it_takes() {
        let question = |costs: &Costs, heard, majority| costs.majority(Asked::Question, &view(heard, majority)).1;
        // Of three, the second is slow.
        let three = costs(&[20, 400]);
        near(question(&three, 0b111, 2), 20_000.0);
        near(question(&three, 0b101, 2), 400_000.0);
        assert_eq!(question(&three, 0b001, 2), UNKNOWN, "nobody is");
        // Of five.
        let five = costs(&[300, 30, 20, 90]);
        near(question(&five, 0b11111, 3), 30_000.0);
        near(question(&five, 0b10111, 3), 90_000.0);
        near(question(&five, 0b00111, 3), 300_000.0);
        // The one mean for all that this was would say the same of all three.
        for (costs, heard, us) in [(&three, 0b111, 40_000.0), (&three, 0b101, 800_000.0), (&five, 0b00111, 600_000.0)] {
            let majority = if std::ptr::eq(costs, &three) { 2 } else { 3 };
            near(costs.led_here(&view(heard, majority)).1, us);
        }
    }

    #[test]
    fn coordination_costs_what_it_took_with_the_same_majority() {
        let mut costs = costs(&[20, 400]);
        (0..50).for_each(|turn| costs.led(Led::Here(DcId(1))).learn(turn * 10_000, 1, 55_000));
        near(costs.led_here(&view(0b111, 2)).1, 55_000.0);
        near(costs.led_here(&view(0b101, 2)).1, 800_000.0);
        (0..50).for_each(|turn| costs.led(Led::Here(DcId(2))).learn(turn * 10_000, 1, 850_000));
        near(costs.led_here(&view(0b101, 2)).1, 850_000.0);
        near(costs.led_here(&view(0b111, 2)).1, 55_000.0);
        // Where another one leads, its own majority counts, as it says it is now.
        (0..50).for_each(|turn| costs.led(Led::There(DcId(1))).learn(turn * 10_000, 1, 70_000));
        near(costs.led_by(DcId(1), 20_000, &view(0b111, 2)).1, 70_000.0);
        near(costs.led_by(DcId(1), 400_000, &view(0b111, 2)).1, 820_000.0);
        near(costs.led_by(DcId(2), 15_000, &view(0b111, 2)).1, 430_000.0);
    }

    /// While a way is slow nothing is planned with it, so that nobody learns that coordination is quick again; but questions are put all the time.
    #[test]
    fn what_is_old_costs_little_more_than_what_questions_take_now() {
        let mut costs = costs(&[20, 400]);
        let later = View { now_us: 5_000_000, ..view(0b111, 2) };
        for (led, old) in [(Led::Here(DcId(1)), 600_000), (Led::There(DcId(1)), 700_000)] {
            (0..50).for_each(|turn| costs.led(led).learn(turn * 10_000, 1, old));
        }
        near(costs.led_here(&view(0b111, 2)).1, 600_000.0);
        near(costs.led_by(DcId(1), 25_000, &view(0b111, 2)).1, 700_000.0);
        near(costs.led_here(&later).1, 60_000.0);
        near(costs.led_by(DcId(1), 25_000, &later).1, 105_000.0);
        (0..50).for_each(|turn| costs.with(DcId(1)).asked(Asked::Hold).learn(turn * 10_000, 1, 300_000));
        near(costs.majority(Asked::Hold, &View { heard: 0b011, ..later }).1, 30_000.0);
        // What takes less than that is believed, however old.
        (0..200).for_each(|turn| costs.led(Led::Here(DcId(1))).learn(turn * 10_000, 1, 55_000));
        assert!((54_900.0..55_100.0).contains(&costs.led_here(&later).1), "{:?}", costs.led_here(&later));
    }

    #[test]
    fn a_slope_that_timings_do_not_bear_out_is_none() {
        let mut random = rheostat_core::random::Random::new(3);
        let mut steep = 0;
        for _ in 0..200 {
            let mut line = Line::default();
            (0..40).for_each(|turn| line.learn(turn * 10_000, 1 + random.below(2) as u32, 20_000 + random.below(20_000)));
            // Two hundred writes are planned as one batch's timings say, and not hundreds of milliseconds beyond.
            steep += u32::from(line.line().0 > 0.0);
        }
        assert!(steep < 20, "{steep} of 200 lines have a slope");
        let mut line = Line::default();
        for turn in 0..160 {
            let n = 1 + random.below(30);
            line.learn(turn * 10_000, n as u32, 20_000 + 1_000 * n + random.below(5_000));
        }
        let (k, _) = line.line();
        assert!((900.0..1_100.0).contains(&k), "{k}");
    }

    #[test]
    fn timings_of_one_size_give_no_slope() {
        let mut line = Line::default();
        (0..50).for_each(|turn| line.learn(turn, 3, 400));
        let (k, b) = line.line();
        assert!(k == 0.0 && (b - 400.0).abs() < 1e-6, "{k} n + {b}");
    }

    #[test]
    fn the_raised_line_is_above_all_but_few() {
        // Nine of ten take 1 ms, the tenth 5 ms.
        let mut line = Line::default();
        let us = |turn: u32| if turn.is_multiple_of(10) { 5_000 } else { 1_000 };
        (0..4_000).for_each(|turn| line.learn(u64::from(turn) * 1_000, 1, us(turn)));
        let above = (0..1_000).filter(|turn| us(*turn) as f64 > line.planned(Estimate::P99, 0.0).1).count();
        assert!(above <= 20, "{above} of 1000 are above {:?}", line.planned(Estimate::P99, 0.0));
        let (_, mean) = line.planned(Estimate::Mean, 0.0);
        assert!(mean < 3_000.0, "{mean}");
    }

    #[test]
    fn where_timings_are_few_the_last_ones_count() {
        let mut line = Line::default();
        (0..200).for_each(|turn| line.learn(turn * 10_000, 1, 200_000));
        // The way is quick again, and is asked twice a second.
        for turn in 1..=8 {
            line.learn(2_000_000 + turn * 500_000, 1, 20_000);
        }
        let (_, b) = line.planned(Estimate::P99, 0.0);
        assert!(b < 70_000.0, "{b}");
        // Where nobody asks, what was learned stays.
        let before = line.planned(Estimate::P99, 0.0);
        assert_eq!(line.planned(Estimate::P99, 1e6), before);
    }

    #[test]
    fn what_was_given_up_takes_that_long_at_least() {
        let mut line = Line::default();
        line.learn_at_least(0, 1, 100_000);
        assert_eq!(line.planned(Estimate::P99, 7e5), (0.0, 7e5), "of what is not known it says nothing");
        (0..100).for_each(|turn| line.learn(turn * 10_000, 1, 20_000));
        let usual = line.planned(Estimate::P99, 0.0).1;
        line.learn_at_least(1_000_000, 1, 15_000);
        assert_eq!(line.planned(Estimate::P99, 0.0).1, usual, "less than is expected is no news");
        (0..60).for_each(|turn| line.learn_at_least(1_000_000 + turn * 5_000, 1, 100_000));
        let (_, b) = line.planned(Estimate::P99, 0.0);
        assert!((95_000.0..110_000.0).contains(&b), "{b}");
    }
}
