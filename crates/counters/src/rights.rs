//! Rights move by data: an ask is an entry in the asker's row, its answer one in the giver's (document 002, section IV-D). Both rows reach the other side as states do, late, again
//! or not at all, and rights move once.

use crate::definition::Definition;
use crate::state::{Ask, Circle, Refusal, State};
use rheostat_clock::DcId;
use rheostat_core::counter::Direction;
use rheostat_core::planted::Planted;

/// The bugs that can be planted in what is done with rights.
pub const PLANTED: &[&str] = &["counter-ask-served-again", "counter-gives-more-than-held"];

/// An ask that waits for an answer here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Who asks.
    pub from: DcId,
    /// For which rights.
    pub direction: Direction,
    /// The ask.
    pub ask: Ask,
}

impl State {
    /// Asks `to` for rights, in place of what it was asked for before.
    pub fn ask(&mut self, here: DcId, to: DcId, direction: Direction, amount: u64, urgent: bool) -> Ask {
        let known = self.row(to).moved(here, direction);
        let slot = self.row_mut(here).toward.entry(to).or_default().asks.of_mut(direction);
        let number = slot.map_or(0, |last| last.number) + 1;
        *slot.insert(Ask { number, amount, known, urgent })
    }

    /// The last ask of `here` to `to`, while it has not been answered.
    pub fn open_ask(&self, here: DcId, to: DcId, direction: Direction) -> Option<Ask> {
        let ask = self.row(here).toward.get(&to).and_then(|toward| *toward.asks.of(direction))?;
        let answered = self.row(to).toward.get(&here).map_or(0, |toward| *toward.answered.of(direction));
        (ask.number > answered).then_some(ask)
    }

    /// What this data center is asked for and has not answered. One that was reclaimed answers nobody, and nobody answers one that is gone.
    pub fn asked(&self, circle: &Circle) -> Vec<Asked> {
        if self.fenced(circle.here).is_some() {
            return Vec::new();
        }
        let asked = |from: DcId| {
            let open = move |direction| Some(Asked { from, direction, ask: self.open_ask(from, circle.here, direction)? });
            crate::state::DIRECTIONS.into_iter().filter_map(open)
        };
        circle.others().filter(|dc| self.rows.contains_key(dc) && self.fenced(*dc).is_none()).flat_map(asked).collect()
    }

    /// Answers `asked`: moves what is asked for, as far as it is here; of what nobody waits for, at most half. Nothing moves if more has moved than the asker
    /// knew of, since then it may have been served already. Returns how many rights moved.
    pub fn answer(&mut self, definition: &Definition, circle: &Circle, asked: Asked, planted: Planted) -> u64 {
        let Asked { from, direction, ask } = asked;
        let held = self.rights(definition, circle, circle.here, direction).unwrap_or(0);
        let spare = if ask.urgent { held } else { held / 2 };
        let mut amount = if planted.is("counter-gives-more-than-held") { ask.amount } else { ask.amount.min(spare) };
        if self.row(circle.here).moved(from, direction) != ask.known && !planted.is("counter-ask-served-again") {
            amount = 0;
        }
        let toward = self.row_mut(circle.here).toward.entry(from).or_default();
        // Rights moved back and forth without end would exceed the numbers; then no more of them move.
        match toward.moved.of(direction).checked_add(amount) {
            Some(moved) => *toward.moved.of_mut(direction) = moved,
            None => amount = 0,
        }
        if !planted.is("counter-ask-served-again") {
            *toward.answered.of_mut(direction) = ask.number;
        }
        amount
    }

    /// Moves `amount` rights to `to`. Errors: nothing was changed. Paper: transfer, Fig. 2.
    pub fn move_rights(&mut self, definition: &Definition, circle: &Circle, to: DcId, direction: Direction, amount: u64) -> Result<(), Refusal> {
        definition.bound(direction).ok_or(Refusal::Unbounded(direction))?;
        if to == circle.here || !circle.members.contains(&to) || self.fenced(to).is_some() {
            return Err(Refusal::NoPart(to));
        }
        self.check_rights(definition, circle, direction, amount)?;
        let moved = self.row_mut(circle.here).toward.entry(to).or_default().moved.of_mut(direction);
        *moved = moved.checked_add(amount).ok_or(Refusal::Overflow)?;
        Ok(())
    }
}
