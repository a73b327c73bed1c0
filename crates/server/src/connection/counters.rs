//! Calls of counters, and how what comes of them is told.

use crate::counters::{self, Unfit};
use crate::topology::Topology;
use rheostat_core::counter::{CounterCall, CounterView, NewCounter, Scope, Standing};
use rheostat_core::ids::PartitionId;
use rheostat_core::version::Key;
use rheostat_resp::command::{CounterCommand, HowToAdd};
use rheostat_resp::{Render, ReplyWriter};
use smallvec::SmallVec;

/// How the outcome of a call is told.
pub(super) enum Telling {
    /// Without names of data centers.
    Short(Render),
    /// The counter as it is known here.
    View,
}

/// What `command` asks for, and where, on a connection whose scope is `scope`. Errors: the error reply.
pub(super) fn call(topology: &Topology, scope: Scope, command: CounterCommand<'_>) -> Result<(PartitionId, CounterCall, Telling), String> {
    let data_center = |name: &[u8]| counters::data_center(topology, &String::from_utf8_lossy(name)).map_err(|why| format!("ERR {why}"));
    let (call, telling) = match command {
        CounterCommand::Create(create) => {
            let placement = create.placement.iter().collect();
            let counter = NewCounter { lower: create.lower, upper: create.upper, initial: create.initial, placement };
            (CounterCall::Create { key: create.key.into(), counter }, Telling::Short(Render::Ok))
        }
        CounterCommand::Add { changes, how } => {
            let changes: SmallVec<[(Key, i64); 1]> = changes.iter().map(|(key, by)| (key.into(), by)).collect();
            let render = if changes.len() == 1 { Render::Counted } else { Render::CountedAll };
            return add(topology, scope, changes, how, render);
        }
        CounterCommand::Transfer { from, to, amount, how } => {
            let changes = SmallVec::from_iter([(Key::from(from), -amount), (Key::from(to), amount)]);
            return add(topology, scope, changes, how, Render::CountedAll);
        }
        CounterCommand::Look(key) => (CounterCall::Look { key: key.into() }, Telling::View),
        CounterCommand::Move { key, to, direction, amount } => {
            (CounterCall::Move { key: key.into(), to: data_center(to)?, direction, amount }, Telling::View)
        }
        CounterCommand::Reclaim { key, gone } => (CounterCall::Reclaim { key: key.into(), gone: data_center(gone)? }, Telling::View),
    };
    let partition = call.key().map_or(PartitionId(0), |key| topology.partition_of(key));
    Ok((partition, call, telling))
}

fn add(
    topology: &Topology,
    scope: Scope,
    changes: SmallVec<[(Key, i64); 1]>,
    how: HowToAdd,
    render: Render,
) -> Result<(PartitionId, CounterCall, Telling), String> {
    let partition = counters::partition(topology, &changes).map_err(|unfit| match unfit {
        Unfit::Apart => format!("CROSSSLOT {unfit}"),
        Unfit::None | Unfit::Twice(_) => format!("ERR {unfit}"),
    })?;
    Ok((partition, CounterCall::Add { changes, scope: how.scope.unwrap_or(scope), name: how.name }, Telling::Short(render)))
}

/// Writes a counter as it is known here: a map, in it one of the data centers' rights.
pub(super) fn write_view(view: &CounterView, topology: &Topology, writer: &mut ReplyWriter<'_>) {
    fn count(name: &str, count: Option<u64>, writer: &mut ReplyWriter<'_>) {
        number(name, count.map(|count| i64::try_from(count).unwrap_or(i64::MAX)), writer);
    }
    fn number(name: &str, number: Option<i64>, writer: &mut ReplyWriter<'_>) {
        writer.bulk(name.as_bytes());
        match number {
            Some(number) => writer.integer(number),
            None => writer.null(),
        }
    }
    writer.map(6);
    number("value", Some(view.value), writer);
    number("min", view.lower, writer);
    number("max", view.upper, writer);
    writer.bulk(b"rights");
    writer.map(view.rights.len());
    for rights in &view.rights {
        writer.bulk(topology.dc_name(rights.dc).as_bytes());
        writer.map(3);
        count("down", rights.down, writer);
        count("up", rights.up, writer);
        writer.bulk(b"standing");
        match rights.standing {
            Standing::Member => writer.bulk(b"member"),
            Standing::Reclaiming => writer.bulk(b"reclaiming"),
            Standing::Reclaimed(by) => writer.bulk(format!("reclaimed by {}", topology.dc_name(by)).as_bytes()),
        }
    }
    writer.bulk(b"level");
    writer.bulk(view.quality.level.to_string().as_bytes());
    count("staleness_ms", view.quality.staleness_ms, writer);
}
