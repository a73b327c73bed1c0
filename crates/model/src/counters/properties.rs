//! What must hold in every state of the model, and what must be possible.

use super::{Counters, World};
use rheostat_clock::DcId;
use rheostat_counters::State;
use rheostat_counters::state::Circle;
use stateright::Property;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The value is within the bounds wherever it is read, and in all that is known together. What was written was read before.
pub const WITHIN_BOUNDS: &str = "the value is within the bounds everywhere";
/// Rights are neither made nor lost: together they are the distance of the value from the bound.
pub const CONSERVED: &str = "rights are conserved";
/// A data center never takes itself to have more rights than it has.
pub const NEVER_MORE: &str = "no data center knows of more rights of its own than it has";
/// Asks move what was asked for at most once.
pub const SERVED_ONCE: &str = "every ask is served at most once";
/// What arrives again changes nothing, but for a data center that has learned that it is gone and let go of what only it knew.
pub const OLD_NEWS: &str = "a write that comes again changes nothing";
/// What an heir counts on stays.
pub const SEALED_STAYS: &str = "what a sealed data center has done does not change any more";
/// A data center that was taken for gone before it started does not use its rights.
pub const GONE_AT_START: &str = "a data center that was gone when it started uses no rights";

/// Rights can move.
pub const MOVED: &str = "rights can move";
/// An operation can use rights that others had.
pub const USED_AFTER_MOVE: &str = "an operation can use rights that another data center had";
/// An ask can be refused.
pub const REFUSED_ASK: &str = "an ask can be answered with nothing";
/// A data center can be sealed.
pub const SEALED: &str = "a data center can be sealed";
/// The rights of a sealed data center can be used.
pub const USED_AFTER_SEALING: &str = "an operation can use rights that were taken over";
/// A data center can use its rights after a restart.
pub const USED_AFTER_RESTART: &str = "a data center can use rights after a restart";

/// The properties of `model`.
pub(super) fn of(model: &Counters) -> Vec<Property<Counters>> {
    let always = [
        Property::always(WITHIN_BOUNDS, within_bounds),
        Property::always(CONSERVED, conserved),
        Property::always(NEVER_MORE, never_more),
        Property::always(SERVED_ONCE, served_once),
        Property::always(OLD_NEWS, old_news),
        Property::always(SEALED_STAYS, sealed_stays),
        Property::always(GONE_AT_START, |_, world: &World| !world.nodes.iter().any(|node| node.gone_at_start && node.used_since_start)),
    ];
    let sometimes = [
        Property::sometimes(MOVED, moved),
        Property::sometimes(USED_AFTER_MOVE, |_, world: &World| world.used_moved),
        Property::sometimes(REFUSED_ASK, |_, world: &World| world.refused),
        Property::sometimes(SEALED, |model: &Counters, world: &World| {
            model.everyone().any(|dc| !world.memory(dc).sealed(model.circle(dc)).is_empty())
        }),
        Property::sometimes(USED_AFTER_SEALING, |_, world: &World| world.used_sealed),
        Property::sometimes(USED_AFTER_RESTART, |_, world: &World| world.used_restarted),
    ];
    let possible = sometimes.into_iter().filter(|property| model.scenario.possible.contains(&property.name));
    always.into_iter().chain(possible).collect()
}

/// All that is known to those whom nobody takes for gone, and who they are.
#[derive(Clone)]
struct Together {
    all: State,
    members: Vec<DcId>,
}

thread_local! {
    /// Of the state that was looked at last: several properties ask for it, one after the other.
    static LAST: RefCell<Option<(World, Option<Rc<Together>>)>> = const { RefCell::new(None) };
}

/// `None` if everyone is taken for gone by somebody.
fn together(model: &Counters, world: &World) -> Option<Rc<Together>> {
    LAST.with_borrow_mut(|last| match last {
        Some((of, together)) if of == world => together.clone(),
        _ => last.insert((world.clone(), put_together(model, world).map(Rc::new))).1.clone(),
    })
}

fn put_together(model: &Counters, world: &World) -> Option<Together> {
    let gone: BTreeSet<DcId> = model.everyone().flat_map(|dc| world.memory(dc).row(dc).gone.iter().copied()).collect();
    let members: Vec<DcId> = model.everyone().filter(|dc| !gone.contains(dc)).collect();
    let mut all = world.memory(*members.first()?).clone();
    for dc in &members {
        all.merge(world.memory(*dc));
    }
    Some(Together { all, members })
}

fn in_bounds(model: &Counters, state: &State) -> bool {
    let value = state.value(&model.definition);
    model.definition.lower.is_none_or(|lower| lower <= value) && model.definition.upper.is_none_or(|upper| value <= upper)
}

fn within_bounds(model: &Counters, world: &World) -> bool {
    let read = |state: &State| in_bounds(model, state);
    let everywhere = world.nodes.iter().all(|node| read(node.memory.state()));
    everywhere && together(model, world).is_none_or(|together| read(&together.all))
}

fn conserved(model: &Counters, world: &World) -> bool {
    let Some(together) = together(model, world) else { return true };
    let Together { all, members } = &*together;
    let circle = Circle { here: members[0], members: model.everyone().collect() };
    model.directions().all(|direction| {
        let bound = model.definition.bound(direction).unwrap_or_default();
        let rights: u64 = model.everyone().filter_map(|dc| all.rights(&model.definition, &circle, dc, direction)).sum();
        rights == all.value(&model.definition).abs_diff(bound)
    })
}

fn never_more(model: &Counters, world: &World) -> bool {
    let Some(together) = together(model, world) else { return true };
    let Together { all, members } = &*together;
    // Who knows that it is gone uses no rights, whatever it has let go of.
    members.iter().copied().filter(|dc| world.memory(*dc).fenced(*dc).is_none()).all(|dc| {
        let rights = |state: &State, direction| state.rights(&model.definition, model.circle(dc), dc, direction);
        model.directions().all(|direction| rights(world.memory(dc), direction) <= rights(all, direction))
    })
}

/// Rights that moved from one to another were asked for, each number once, or moved unasked.
fn served_once(model: &Counters, world: &World) -> bool {
    let mut all = Counters::nothing_done();
    world.nodes.iter().for_each(|node| {
        all.merge(node.memory.state());
    });
    let unasked = u64::from(model.bounds().moves - world.moves);
    let pair = |from: DcId, to: DcId| {
        model.directions().all(|direction| {
            let asked = all.row(to).toward.get(&from).and_then(|toward| *toward.asks.of(direction)).map_or(0, |ask| ask.number);
            all.row(from).moved(to, direction) <= asked * u64::from(model.bounds().amount) + unasked
        })
    };
    model.everyone().all(|from| model.everyone().filter(|to| *to != from).all(|to| pair(from, to)))
}

fn old_news(model: &Counters, world: &World) -> bool {
    let again = |at: DcId, from: DcId| {
        let upto = usize::from(world.nodes[at.index()].arrived[from.index()]);
        world.nodes[from.index()].log[..=upto].iter().all(|write| {
            let mut state = world.memory(at).clone();
            state.absorb(model.circle(at), from, write.state());
            state == *world.memory(at)
        })
    };
    model.everyone().filter(|at| world.memory(*at).fenced(*at).is_none()).all(|at| model.circle(at).others().all(|from| again(at, from)))
}

fn sealed_stays(model: &Counters, world: &World) -> bool {
    let Some(together) = together(model, world) else { return true };
    let Together { all, members } = &*together;
    let stays = |dc: &DcId| {
        let dc = *dc;
        world.memory(dc).sealed(model.circle(dc)).iter().all(|gone| world.memory(dc).row(*gone) == all.row(*gone))
    };
    members.iter().all(stays)
}

fn moved(model: &Counters, world: &World) -> bool {
    let some = |state: &State| state.rows.values().any(|row| row.toward.values().any(|toward| model.directions().any(|to| *toward.moved.of(to) > 0)));
    world.nodes.iter().any(|node| some(node.memory.state()))
}
