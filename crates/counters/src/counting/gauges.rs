//! What owners of counters tell of themselves.

use rheostat_core::gauge::{Gauge, Metric};

const RIGHTS: Metric = Metric::gauges(
    "counter_rights",
    "direction",
    "Rights that this server holds over the counters in its memory, to take away (down) and to add (up).",
);
const ASKS: Metric =
    Metric::counters("counter_asks_total", "result", "Asks for rights: sent to other data centers; answered with rights, and refused, to them.");
const MOVED: Metric =
    Metric::counters("counter_rights_moved_total", "cause", "Rights that were given to other data centers: on demand, or in the background.");
const REFUSED: Metric = Metric::counters(
    "counter_refusals_total",
    "reason",
    "Updates that were not made although the bounds allow them: the others have not greeted this server since it started (not_greeted), or this data center's rights were reclaimed (reclaimed).",
);

/// What [`super::Counting`] tells, beside what the server inside tells. How many updates were made and refused by scope is among the node's metrics.
pub const GAUGES: &[Gauge] = &[
    Gauge::metric("counters_cached", "counters_in_memory", "Counters that this server has in memory."),
    Gauge::of(RIGHTS, "down", "counters_rights_down", "Rights held to take away."),
    Gauge::of(RIGHTS, "up", "counters_rights_up", "Rights held to add."),
    Gauge::status("counters_local_done", "Updates of scope local that were made; rheostat_counter_updates_total has the node's."),
    Gauge::status("counters_local_refused", "Updates of scope local that lacked rights."),
    Gauge::status("counters_global_done", "Updates of scope global that were made."),
    Gauge::status("counters_global_refused", "Updates of scope global that the bounds did not allow."),
    Gauge::counter("counters_global_parked", "counter_updates_parked_total", "Updates of scope global that waited for rights of other data centers."),
    Gauge::counter("counters_parked_seconds", "counter_parked_seconds_total", "How long updates have waited for rights, all together."),
    Gauge::of(ASKS, "sent", "counters_asks_sent", "Asks for rights that were sent."),
    Gauge::of(ASKS, "answered", "counters_asks_answered", "Asks of others that were answered with rights."),
    Gauge::of(ASKS, "refused", "counters_asks_refused", "Asks of others that were refused."),
    Gauge::of(MOVED, "demand", "counters_moved_on_demand", "Rights given to others that asked."),
    Gauge::of(MOVED, "background", "counters_moved_in_background", "Rights given to others unasked."),
    Gauge::counter("counters_rows_written", "counter_rows_written_total", "Rows of counters that were written; many updates can go out in one."),
    Gauge::status("counters_updates_in_them", "Updates that went out in these rows."),
    Gauge::status("counters_repeats", "Updates that came again and were known."),
    Gauge::of(REFUSED, "not_greeted", "counters_refused_not_greeted", "Updates refused since the others had not greeted this server yet."),
    Gauge::of(REFUSED, "reclaimed", "counters_refused_reclaimed", "Updates refused since this data center's rights were reclaimed."),
    Gauge::counter("counters_forwarded", "counter_forwarded_total", "Updates that were passed on to the leader of the group."),
    Gauge::counter("counters_tried_again", "counter_retries_total", "Updates that were tried again: others came first, or the leader had changed."),
    Gauge::counter(
        "counters_forgotten",
        "counter_rows_forgotten_total",
        "Rows and bounds of counters that went long after their counter had expired or was deleted.",
    ),
];
