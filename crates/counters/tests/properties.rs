//! What holds of counters' states in every order in which they are made and reach each other.

use proptest::prelude::*;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::counter::{Direction, NewCounter};
use rheostat_core::planted::Planted;
use rheostat_core::random::Random;
use rheostat_core::version::VersionId;
use rheostat_counters::fence::Absorbed;
use rheostat_counters::state::{Circle, DIRECTIONS, Demand};
use rheostat_counters::{Definition, Refusal, State};

const DOWN: Direction = Direction::Down;

fn made() -> VersionId {
    VersionId { written: Timestamp::new(1, 0), origin: DcId(0) }
}

/// Data centers that hold one counter, and all states that each of them has written, which reach the others in any order, or not.
struct Desk {
    definition: Definition,
    planted: Planted,
    states: Vec<State>,
    written: Vec<Vec<State>>,
    /// Amounts that were acknowledged, by data center.
    acknowledged: Vec<i64>,
}

impl Desk {
    fn new(data_centers: u8, counter: &NewCounter) -> Desk {
        let circle = Circle::of_all(DcId(0), data_centers);
        let definition = Definition::new(counter, data_centers, &circle.members).unwrap();
        let count = usize::from(data_centers);
        Desk {
            definition,
            planted: Planted::NONE,
            states: vec![State::new(made()); count],
            written: vec![Vec::new(); count],
            acknowledged: vec![0; count],
        }
    }

    fn circle(&self, dc: usize) -> Circle {
        Circle::of_all(DcId(dc as u8), self.states.len() as u8)
    }

    fn write(&mut self, dc: usize) {
        let state = self.states[dc].clone();
        self.written[dc].push(state);
    }

    fn add(&mut self, dc: usize, amount: i64) -> Result<i64, Refusal> {
        let circle = self.circle(dc);
        let added = self.states[dc].add(&self.definition, &circle, amount)?;
        self.acknowledged[dc] += amount;
        self.write(dc);
        Ok(added)
    }

    /// State number `which` of `from` reaches `to`, which answers asks and makes fences at once.
    fn deliver(&mut self, from: usize, which: usize, to: usize) -> Absorbed {
        let (circle, state) = (self.circle(to), self.written[from][which].clone());
        let absorbed = self.states[to].absorb(&circle, DcId(from as u8), &state);
        let before = self.states[to].clone();
        for asked in self.states[to].asked(&circle) {
            self.states[to].answer(&self.definition, &circle, asked, self.planted);
        }
        if self.states[to] != before || absorbed == Absorbed::News {
            self.write(to);
        }
        absorbed
    }

    fn exchange(&mut self) {
        for _ in 0..3 * self.states.len() {
            for from in 0..self.states.len() {
                for to in 0..self.states.len() {
                    if from != to && !self.written[from].is_empty() {
                        self.deliver(from, self.written[from].len() - 1, to);
                    }
                }
            }
        }
    }

    fn rights(&self, at: usize, of: usize, direction: Direction) -> u64 {
        self.states[at].rights(&self.definition, &self.circle(at), DcId(of as u8), direction).unwrap()
    }

    fn within(&self, state: &State, what: &str) {
        let value =
            i128::from(self.definition.initial) + state.rows.values().map(|row| i128::from(row.added) - i128::from(row.removed)).sum::<i128>();
        let ok = self.definition.lower.is_none_or(|lower| value >= i128::from(lower))
            && self.definition.upper.is_none_or(|upper| value <= i128::from(upper));
        assert!(ok, "{what}: value {value} is out of bounds: {state:?}");
    }

    /// No more rights are held at `at` than its value leaves, as far as it knows.
    fn conserved(&self, at: usize, exactly: bool) {
        let state = &self.states[at];
        for direction in DIRECTIONS {
            let Some(bound) = self.definition.bound(direction) else { continue };
            let left = u128::from(state.value(&self.definition).abs_diff(bound));
            let held: u128 = (0..self.states.len()).map(|dc| u128::from(self.rights(at, dc, direction))).sum();
            assert!(held <= left, "{held} rights are held and {left} are left: {state:#?}");
            assert!(!exactly || held == left, "{held} rights are held and {left} are left after everything has arrived: {state:#?}");
        }
    }

    fn gone(&self, dc: usize) -> bool {
        self.states.iter().any(|state| state.fenced(DcId(dc as u8)).is_some())
    }
}

/// One random step of a desk; `reclaim` says who may be taken for gone.
fn step(desk: &mut Desk, random: &mut Random, reclaim: &[usize]) {
    let count = desk.states.len() as u64;
    let dc = random.below(count) as usize;
    let other = ((dc as u64 + random.between(1, count - 1)) % count) as usize;
    let direction = if random.chance(1, 2) { DOWN } else { Direction::Up };
    let here = DcId(dc as u8);
    match random.below(if reclaim.is_empty() { 20 } else { 21 }) {
        0..8 => {
            let amount = random.between(0, 12) as i64 - 7;
            let _ = desk.add(dc, amount);
        }
        8 | 9 if desk.definition.bound(direction).is_some() => {
            let (amount, urgent) = (random.between(1, 9), random.chance(1, 2));
            desk.states[dc].ask(here, DcId(other as u8), direction, amount, urgent);
            desk.write(dc);
        }
        10 => {
            let (circle, amount) = (desk.circle(dc), random.between(0, 5));
            if desk.states[dc].move_rights(&desk.definition, &circle, DcId(other as u8), direction, amount).is_ok() {
                desk.write(dc);
            }
        }
        11..20 if !desk.written[dc].is_empty() => {
            // The newest, or any older one, again or for the first time.
            let last = desk.written[dc].len() as u64 - 1;
            let which = if random.chance(2, 3) { last } else { random.below(last + 1) };
            desk.deliver(dc, which as usize, other);
        }
        20 => {
            let gone = reclaim[random.below(reclaim.len() as u64) as usize];
            if gone != dc && desk.states[dc].fenced(here).is_none() && desk.states[dc].fence(here, DcId(gone as u8)) {
                desk.write(dc);
            }
        }
        _ => {}
    }
}

fn bounds() -> impl Strategy<Value = NewCounter> {
    let bounds = prop_oneof![Just((Some(-3), None)), Just((None, Some(20))), Just((Some(0), Some(12))), Just((Some(5), Some(5)))];
    (bounds, 0..=12i64, 0..2u32).prop_map(|((lower, upper), initial, even)| {
        let initial = initial.clamp(lower.unwrap_or(i64::MIN), upper.unwrap_or(i64::MAX));
        NewCounter { lower, upper, initial, placement: if even == 0 { vec![] } else { vec![1, 0, 0, 0] } }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_value_never_leaves_its_bounds_and_rights_are_conserved(counter in bounds(), seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let mut desk = Desk::new(4, &counter);
        for _ in 0..120 {
            step(&mut desk, &mut random, &[]);
            // What anybody can read, and the union of everything.
            let mut some = State::new(made());
            let mut all = State::new(made());
            for (at, state) in desk.states.iter().enumerate() {
                desk.within(state, &format!("data center {at}"));
                desk.conserved(at, false);
                all.merge(state);
                if let Some(older) = desk.written[at].last().filter(|_| random.chance(1, 2)) {
                    some.merge(older);
                }
            }
            desk.within(&some, "states of some");
            desk.within(&all, "the union");
            prop_assert_eq!(all.value(&desk.definition), desk.definition.initial + desk.acknowledged.iter().sum::<i64>());
        }
        desk.exchange();
        for at in 0..desk.states.len() {
            prop_assert_eq!(&desk.states[at], &desk.states[0]);
            desk.conserved(at, true);
        }
    }

    #[test]
    fn a_data_center_that_is_gone_takes_no_rights_with_it(counter in bounds(), seed in any::<u64>(), who in 0..3usize) {
        let mut random = Random::new(seed);
        let mut desk = Desk::new(4, &counter);
        let reclaim: &[usize] = [&[1][..], &[1, 3], &[0, 1, 3]][who];
        for _ in 0..150 {
            step(&mut desk, &mut random, reclaim);
            let mut all = State::new(made());
            for (at, state) in desk.states.iter().enumerate() {
                desk.within(state, &format!("data center {at}"));
                if state.fenced(DcId(at as u8)).is_none() {
                    desk.conserved(at, false);
                }
                if !desk.gone(at) {
                    all.merge(state);
                }
            }
            desk.within(&all, "those who are left");
        }
        desk.exchange();
        // One whom only others who are gone took for gone is not.
        let left: Vec<usize> = (0..4).filter(|dc| desk.states[2].fenced(DcId(*dc as u8)).is_none()).collect();
        for at in &left {
            prop_assert_eq!(&desk.states[*at], &desk.states[left[0]]);
            desk.conserved(*at, true);
        }
        for gone in (0..4).filter(|dc| !left.contains(dc)) {
            let refused = matches!(desk.add(gone, -1), Err(Refusal::Reclaimed { .. }));
            prop_assert!(refused);
        }
        let known = &desk.states[left[0]];
        prop_assert!(left.iter().all(|dc| i128::from(known.row(DcId(*dc as u8)).added) - i128::from(known.row(DcId(*dc as u8)).removed) == i128::from(desk.acknowledged[*dc])));
    }

    #[test]
    fn merge_is_a_join(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let mut desk = Desk::new(3, &NewCounter { lower: Some(0), upper: Some(40), initial: 20, placement: vec![] });
        (0..60).for_each(|_| step(&mut desk, &mut random, &[2]));
        let join = |states: &[&State]| {
            let mut all = State::new(made());
            states.iter().for_each(|state| { all.merge(state); });
            all
        };
        let [a, b, c] = &desk.states[..] else { unreachable!() };
        prop_assert_eq!(join(&[a, b, c]), join(&[c, &join(&[b, a])]));
        prop_assert_eq!(join(&[a, a]), join(&[a]));
        let mut above = join(&[a, b]);
        prop_assert!(!above.merge(a) && !above.merge(b));
    }

    #[test]
    fn a_state_survives_its_byte_form_and_damage_is_refused(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let mut desk = Desk::new(4, &NewCounter { lower: Some(0), upper: Some(40), initial: 20, placement: vec![] });
        (0..40).for_each(|_| step(&mut desk, &mut random, &[2]));
        for state in &desk.states {
            let value = state.to_value();
            prop_assert_eq!(State::from_value(&value), Ok(state.clone()));
            let mut damaged = value.to_vec();
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] ^= 1 << random.below(8);
            prop_assert!(State::from_value(&damaged).is_err());
            prop_assert!(State::from_value(&value[..random.below(value.len() as u64) as usize]).is_err());
        }
    }
}

fn stock(initial: i64, placement: &[u32]) -> Desk {
    Desk::new(placement.len() as u8, &NewCounter { lower: Some(0), initial, placement: placement.to_vec(), ..NewCounter::default() })
}

#[test]
fn a_decrement_needs_rights_and_says_what_is_missing() {
    let mut desk = stock(40, &[3, 1, 0]);
    assert_eq!(desk.add(0, -30), Ok(10));
    let missing = Refusal::OutOfRights { value: 10, direction: DOWN, needed: 1, here: 0, elsewhere: 10 };
    assert_eq!(desk.add(0, -1), Err(missing));
    assert_eq!(desk.add(0, 2), Ok(12));
    assert_eq!(desk.add(0, -2), Ok(10));
}

#[test]
fn an_ask_that_comes_again_moves_rights_once() {
    let mut desk = stock(10, &[1, 0]);
    desk.states[1].ask(DcId(1), DcId(0), DOWN, 4, true);
    desk.write(1);
    for _ in 0..3 {
        desk.deliver(1, 0, 0);
    }
    assert_eq!(desk.rights(0, 0, DOWN), 6);
    // Asked anew before the answer has come: it is answered, and nothing moves.
    desk.states[1].ask(DcId(1), DcId(0), DOWN, 4, true);
    desk.write(1);
    desk.deliver(1, 1, 0);
    assert_eq!(desk.rights(0, 0, DOWN), 6);
    desk.exchange();
    assert_eq!((desk.rights(1, 0, DOWN), desk.rights(1, 1, DOWN)), (6, 4));
    assert_eq!(desk.states[1].open_ask(DcId(1), DcId(0), DOWN), None);
}

#[test]
fn what_nobody_waits_for_gets_at_most_half() {
    let mut desk = stock(9, &[1, 0]);
    desk.states[1].ask(DcId(1), DcId(0), DOWN, 9, false);
    desk.write(1);
    desk.deliver(1, 0, 0);
    assert_eq!(desk.rights(0, 0, DOWN), 5);
}

#[test]
fn without_all_fences_the_rights_of_one_that_is_gone_stay_reserved() {
    let mut desk = stock(9, &[1, 1, 1]);
    desk.states[0].fence(DcId(0), DcId(2));
    desk.write(0);
    assert_eq!((desk.rights(0, 0, DOWN), desk.rights(0, 2, DOWN)), (3, 3));
    assert_eq!(desk.deliver(0, 0, 1), Absorbed::News);
    assert_eq!(desk.rights(1, 0, DOWN), 6);
    assert_eq!(desk.rights(0, 0, DOWN), 3);
    desk.deliver(1, 0, 0);
    assert_eq!((desk.rights(0, 0, DOWN), desk.rights(0, 2, DOWN)), (6, 0));
}

/// Two that are gone, one of which had heard more of the other than anybody else: what it did with that does not count without what it rests on.
#[test]
fn what_rests_on_a_row_that_is_gone_keeps_it() {
    let mut desk = stock(0, &[1, 1, 1, 1]);
    desk.states[0].fence(DcId(0), DcId(3));
    desk.write(0);
    desk.add(3, 5).unwrap();
    let circle = desk.circle(3);
    let definition = desk.definition.clone();
    desk.states[3].move_rights(&definition, &circle, DcId(2), DOWN, 5).unwrap();
    desk.write(3);
    desk.deliver(3, 1, 2);
    desk.add(2, -5).unwrap();
    let last = desk.written[2].len() - 1;
    desk.deliver(2, last, 0);
    desk.states[0].fence(DcId(0), DcId(2));
    desk.write(0);
    desk.exchange();
    for at in 0..2 {
        assert_eq!(desk.states[at].value(&desk.definition), 0);
        desk.conserved(at, true);
    }
}

#[test]
fn of_two_that_take_each_other_for_gone_one_goes_on() {
    let mut desk = stock(8, &[1, 1]);
    desk.states[0].fence(DcId(0), DcId(1));
    desk.write(0);
    desk.states[1].fence(DcId(1), DcId(0));
    desk.write(1);
    desk.exchange();
    assert_eq!(desk.add(0, -8), Ok(0));
    assert_eq!(desk.add(1, -1), Err(Refusal::Reclaimed { by: DcId(1) }));
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let mut desk = Desk::new(2, &NewCounter { initial: i64::MAX - 1, ..NewCounter::default() });
    assert_eq!(desk.add(0, 1), Ok(i64::MAX));
    assert_eq!(desk.add(0, 1), Err(Refusal::Overflow));
    assert_eq!(desk.add(0, i64::MIN), Ok(-1));
}

#[test]
fn the_newest_word_about_what_is_needed_counts() {
    let mut here = State::new(made());
    let mut there = State::new(made());
    let demand = |number, down| Demand { number, down, up: 0 };
    there.row_mut(DcId(1)).demand = demand(2, 50);
    assert!(here.merge(&there), "that is news");
    assert_eq!(here.row(DcId(1)).demand, demand(2, 50));
    there.row_mut(DcId(1)).demand = demand(1, 90);
    assert!(!here.merge(&there), "that is old");
    assert_eq!(here.row(DcId(1)).demand, demand(2, 50));
}

/// Who finds itself taken for gone takes over what another knows, and takes for gone whom that one does: it would hear from them otherwise.
#[test]
fn who_was_gone_takes_for_gone_whom_the_others_do() {
    let circle = Circle::of_all(DcId(2), 4);
    let mut theirs = State::new(made());
    theirs.fence(DcId(0), DcId(2));
    theirs.fence(DcId(0), DcId(1));
    let mut state = State::new(made());
    assert_eq!(state.absorb(&circle, DcId(0), &theirs), Absorbed::News);
    assert_eq!(state.row(DcId(2)).gone.iter().copied().collect::<Vec<_>>(), [DcId(1), DcId(2)]);
    assert_eq!(state.absorb(&circle, DcId(1), &State::new(made())), Absorbed::Ignored);
}
