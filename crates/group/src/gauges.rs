//! What servers of groups tell of themselves, in whichever way they are in one.

use rheostat_core::gauge::{Gauge, Metric};

/// Whether this server leads.
pub const LEADER: Gauge = Gauge::metric("leader", "group_leader", "1 at the server that leads its group and serves.");
/// Whether it knows who leads.
pub const LEADER_KNOWN: Gauge = Gauge::metric("leader_known", "group_leader_known", "1 while this server knows a leader of its group.");
/// The term of its group.
pub const TERM: Gauge = Gauge::metric("term", "group_term", "The term of the group that this server has seen; each election adds at least one.");
/// How far it has applied the log.
pub const APPLIED_INDEX: Gauge =
    Gauge::metric("applied_index", "group_applied_index", "The last entry of the group's log that this server has applied.");
/// Entries in memory.
pub const LOG_ENTRIES: Gauge = Gauge::metric("log_entries", "group_log_entries", "Entries of the group's log that this server has in memory.");
/// Their bytes.
pub const LOG_BYTES: Gauge = Gauge::metric("log_bytes", "group_log_bytes", "The bytes of these entries.");
/// Whether it takes the state of another one.
pub const INSTALLING: Gauge = Gauge::metric(
    "installing_snapshot",
    "group_installing_snapshot",
    "1 while this server takes the state of another one, since the log does not reach back to what it has.",
);

const REFUSED: Metric = Metric::counters(
    "messages_refused_total",
    "reason",
    "Messages of other servers of the partition that were not heard: their sender knows more of this server's log than it has itself (lost_log), or gives timestamps beyond limits.max_ahead_ms (too_far_ahead).",
);
/// Messages of a leader that knows more of this server's log than it has.
pub const LOST_LOG: Gauge =
    Gauge::of(REFUSED, "lost_log", "lost_log_messages", "Messages of a leader that knows more of this server's log than it has itself.");
/// Messages with timestamps that are too far ahead.
pub const TOO_FAR_AHEAD: Gauge =
    Gauge::of(REFUSED, "too_far_ahead", "too_far_ahead_messages", "Messages of servers whose timestamps are beyond limits.max_ahead_ms.");

const MEMBER: Metric = Metric::gauges(
    "group_member",
    "standing",
    "1 for what this server is that a member of its group which counts is not: nobody (it has lost its disk and asks for a new place), learner (it does not count yet), replaced (another one was put in its place), drained.",
);

/// Who a server is in its group: what [`crate::Standing::gauges`] tells.
pub const STANDING: &[Gauge] = &[
    Gauge::metric(
        "member_generation",
        "group_member_generation",
        "How often the member of this seat has been replaced; 0 too while this server is nobody.",
    ),
    Gauge::of(MEMBER, "nobody", "member_is_nobody", "1 while this server has lost its disk and asks the others for a new place."),
    Gauge::of(MEMBER, "learner", "member_is_learner", "1 while this server takes what the others have and does not count yet."),
    Gauge::of(MEMBER, "replaced", "member_was_replaced", "1 where another member was put in this one's place. It serves nothing."),
    Gauge::of(MEMBER, "drained", "member_is_drained", "1 while this server gives the lead to others."),
    Gauge::metric("learners", "group_learners", "Learners of the group."),
    Gauge::metric(
        "learners_behind_entries",
        "group_learners_behind_entries",
        "At the leader: entries that the learner lacks that is furthest behind.",
    ),
];

/// What replicas of a partition server tell, before [`STANDING`].
pub(crate) const REPLICAS: &[Gauge] = &[
    LEADER,
    LEADER_KNOWN,
    TERM,
    APPLIED_INDEX,
    LOG_ENTRIES,
    LOG_BYTES,
    Gauge::counter("times_led", "group_led_total", "Times that this server began to lead."),
    Gauge::counter("operations_passed_on", "group_operations_passed_on_total", "Operations that were passed on to the leader."),
    Gauge::counter("reads_at_follower", "group_follower_reads_total", "Reads that this server answered without leading."),
    INSTALLING,
    Gauge::status("pages_taken", "Pages of another one's state that this server has taken."),
    LOST_LOG,
];

/// What the members of a group of replicas tell, beside what the server inside tells.
pub const OF_REPLICAS: &[&[Gauge]] = &[REPLICAS, STANDING];
