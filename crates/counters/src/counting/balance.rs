//! Rights move before anybody waits for them: the paper's rule (document 002, section IV-D) and one by forecast.

use super::Counting;
use super::cell::Cell;
use crate::options::Rebalance;
use crate::state::{Circle, DIRECTIONS};
use rheostat_clock::DcId;
use rheostat_core::counter::Direction;
use rheostat_core::ids::Now;
use rheostat_core::version::Key;

/// A counter that was not used for so long is left alone, in microseconds.
const IDLE_US: u64 = 5_000_000;

/// The most counters that ask in one round.
const MOST_ASKS: usize = 256;

impl Counting {
    /// A counter with bounds has been used.
    pub(super) fn stay_active(&mut self, now: Now) {
        self.active_until_us = now.monotonic_us + IDLE_US;
        if self.balance_at_us < now.monotonic_us {
            self.balance_at_us = now.monotonic_us + self.setup.options.balance_ms * 1000;
        }
    }

    pub(super) fn next_balance_us(&self) -> u64 {
        let due = self.setup.options.rebalance != Rebalance::Off && self.circle.members.len() > 1 && self.balance_at_us <= self.active_until_us;
        if due && self.active_until_us > 0 { self.balance_at_us } else { u64::MAX }
    }

    /// Looks at the counters that were used of late, if it is time.
    pub(super) fn balance(&mut self, now: Now) {
        if now.monotonic_us < self.next_balance_us() {
            return;
        }
        let options = self.setup.options.clone();
        let every_us = options.balance_ms * 1000;
        self.balance_at_us = now.monotonic_us + every_us;
        let circle = &self.circle;
        let mut asks = 0;
        for (key, cell) in self.cells.iter_mut().filter(|(_, cell)| cell.is_bounded() && cell.used_us + IDLE_US > now.monotonic_us) {
            let mut wants: Vec<(DcId, Direction, u64)> = Vec::new();
            match options.rebalance {
                Rebalance::Off => {}
                Rebalance::Paper => wants.extend(DIRECTIONS.into_iter().filter_map(|way| by_paper(cell, circle, way, options.low_percent))),
                Rebalance::Forecast => {
                    if learn(cell, circle, every_us) {
                        self.touched.insert(Key::clone(key));
                    }
                    wants.extend(DIRECTIONS.into_iter().filter_map(|way| by_forecast(cell, circle, way)));
                }
            }
            for (to, direction, amount) in wants {
                // One that is open waits for its answer first, unless it was lost with who was asked.
                let waits = cell.state.open_ask(circle.here, to, direction).is_some()
                    && *cell.balanced_us.of(direction) + options.ask_timeout_ms * 1000 > now.monotonic_us;
                if asks == MOST_ASKS || waits || cell.hunted.of(direction).contains_key(&to) || cell.state.fenced(circle.here).is_some() {
                    continue;
                }
                cell.state.ask(circle.here, to, direction, amount, false);
                *cell.balanced_us.of_mut(direction) = now.monotonic_us;
                asks += 1;
                self.touched.insert(Key::clone(key));
            }
        }
        self.numbers.asks_sent += asks as u64;
    }
}

/// The rights of everyone who takes part.
fn held(cell: &Cell, circle: &Circle, direction: Direction) -> Vec<(DcId, u64)> {
    let member = |dc: &DcId| cell.state.fenced(*dc).is_none();
    let rights = |dc: DcId| Some((dc, cell.state.rights(&cell.definition, circle, dc, direction)?));
    circle.members.iter().copied().filter(member).filter_map(rights).collect()
}

/// Who holds less than a part of an even share asks the richest for half the difference.
fn by_paper(cell: &Cell, circle: &Circle, direction: Direction, low_percent: u64) -> Option<(DcId, Direction, u64)> {
    let held = held(cell, circle, direction);
    let here = held.iter().find(|(dc, _)| *dc == circle.here)?.1;
    let all: u128 = held.iter().map(|(_, rights)| u128::from(*rights)).sum();
    let low = all * u128::from(low_percent) / 100 / held.len() as u128;
    let (dc, theirs) = held.into_iter().filter(|(dc, _)| *dc != circle.here).max_by_key(|(dc, rights)| (*rights, std::cmp::Reverse(*dc)))?;
    let amount = theirs.saturating_sub(here) / 2;
    (u128::from(here) < low && amount > 0).then_some((dc, direction, amount))
}

/// Learns how fast rights are used up here, and says it in the row; says whether it must be written for that alone.
fn learn(cell: &mut Cell, circle: &Circle, every_us: u64) -> bool {
    let row = cell.state.row(circle.here);
    let (removed, added) = (row.removed - cell.usage.seen.down.min(row.removed), row.added - cell.usage.seen.up.min(row.added));
    (cell.usage.seen.down, cell.usage.seen.up) = (row.removed, row.added);
    // What goes down frees rights to go up, and the other way round.
    let per = |used: u64| u64::try_from(u128::from(used) * 1_000_000_000 / u128::from(every_us)).unwrap_or(u64::MAX);
    let smooth = |rate: u64, new: u64| (u128::from(rate) * 3 / 4 + u128::from(new) / 4) as u64;
    let rate = &mut cell.usage.rate;
    rate.down = smooth(rate.down, per(removed.saturating_sub(added)));
    rate.up = smooth(rate.up, per(added.saturating_sub(removed)));
    let (rate, said) = (*rate, row.demand);
    let differs = |rate: u64, said: u64| rate.abs_diff(said) > said / 4;
    if !differs(rate.down, said.down) && !differs(rate.up, said.up) {
        return false;
    }
    let demand = &mut cell.state.row_mut(circle.here).demand;
    (demand.number, demand.down, demand.up) = (demand.number + 1, rate.down, rate.up);
    // With use comes the next write; that there is no use any more is said once.
    rate.down == 0 && rate.up == 0
}

/// Rights are to lie where they are used up: who has less than half of the share that its use deserves asks the one that is furthest above its own.
fn by_forecast(cell: &Cell, circle: &Circle, direction: Direction) -> Option<(DcId, Direction, u64)> {
    let held = held(cell, circle, direction);
    let demand = |dc: DcId| {
        let demand = cell.state.row(dc).demand;
        u128::from(if direction == Direction::Down { demand.down } else { demand.up })
    };
    let (all, wanted): (u128, u128) = held.iter().fold((0, 0), |(all, wanted), (dc, rights)| (all + u128::from(*rights), wanted + demand(*dc)));
    if wanted == 0 || demand(circle.here) == 0 {
        return None;
    }
    // Everyone keeps a little, so that a change of use finds something everywhere.
    let (count, least) = (held.len() as u128, wanted / (8 * held.len() as u128) + 1);
    let target = |dc: DcId| (all.min(u128::from(u64::MAX)) * (demand(dc) + least).min(u128::from(u64::MAX)) / (wanted + least * count)) as u64;
    let here = held.iter().find(|(dc, _)| *dc == circle.here)?.1;
    let surplus = |(dc, rights): (DcId, u64)| (rights.saturating_sub(target(dc)), std::cmp::Reverse(dc));
    let (theirs, std::cmp::Reverse(dc)) = held.iter().copied().filter(|(dc, _)| *dc != circle.here).map(surplus).max()?;
    let amount = target(circle.here).saturating_sub(here).min(theirs);
    (here < target(circle.here) / 2 && amount > 0).then_some((dc, direction, amount))
}
