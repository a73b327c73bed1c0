//! Marks: things that must happen in some runs of a batch, or the batch proves nothing.

use std::collections::BTreeMap;

/// One thing that must happen now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Its name.
    pub name: &'static str,
    /// Whether only protocols that promise causal consistency can show it.
    pub causal: bool,
}

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $causal:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: Mark = Mark { name: $text, causal: $causal };)*

        /// Every mark.
        pub const ALL: &[Mark] = &[$($name),*];
    };
}

/// A client took a transaction to the partitions itself, with a snapshot that it predicted.
pub(crate) const SNAPSHOT_PREDICTED: Mark = Mark { name: "a snapshot was predicted", causal: true };
/// A partition refused a predicted snapshot, and there was a second round.
pub(crate) const SNAPSHOT_REFUSED: Mark = Mark { name: "a predicted snapshot was refused", causal: true };

/// A bounded read was as good as one without a bound.
pub(crate) const BOUND_LEFT_TIME: Mark = Mark { name: "a bounded read was strong", causal: false };
/// A bounded read took what was there.
pub(crate) const BOUND_CAME_FIRST: Mark = Mark { name: "a bounded read took what was there", causal: false };
/// A bounded read took what was there, although its session had read further in another partition.
pub(crate) const BOUND_CAME_TOO_EARLY: Mark = Mark { name: "a bounded read was no more than eventual", causal: false };
/// A write was kept where it was made, for later.
pub(crate) const WRITE_KEPT: Mark = Mark { name: "a write was kept for later", causal: false };

/// Marks of runs of a protocol that keeps bounds.
pub const OF_BOUNDS: &[Mark] = &[BOUND_LEFT_TIME, BOUND_CAME_FIRST, BOUND_CAME_TOO_EARLY, WRITE_KEPT];

/// A mark that the gauge of a server's counters shows.
#[derive(Clone, Copy, Debug)]
pub struct CounterMark {
    /// The mark.
    pub mark: Mark,
    /// The gauge.
    pub gauge: &'static str,
}

const fn of_gauge(name: &'static str, gauge: &'static str) -> CounterMark {
    CounterMark { mark: Mark { name, causal: false }, gauge }
}

/// Marks of runs with a load of counters.
pub const OF_COUNTERS: &[CounterMark] = &[
    of_gauge("a local update of a counter was made", "counters_local_done"),
    of_gauge("a local update lacked rights", "counters_local_refused"),
    of_gauge("an update waited for rights", "counters_global_parked"),
    of_gauge("rights moved on demand", "counters_moved_on_demand"),
    of_gauge("rights moved in the background", "counters_moved_in_background"),
    of_gauge("an ask was refused", "counters_asks_refused"),
    of_gauge("a repeated update was known", "counters_repeats"),
    of_gauge("a server that started used no rights yet", "counters_refused_not_greeted"),
    of_gauge("a reclaimed data center was refused", "counters_refused_reclaimed"),
];

/// The same, where the servers of a data center keep a partition together.
pub const OF_GROUPS: &[CounterMark] =
    &[of_gauge("an update was passed on to the leader", "counters_forwarded"), of_gauge("an update was made again", "counters_tried_again")];

/// Marks of runs whose plan sets a strategy for transactions.
pub const OF_PREDICTION: &[Mark] = &[SNAPSHOT_PREDICTED, SNAPSHOT_REFUSED];

/// It was killed just when something had happened.
pub(crate) const KILLED_AT_A_MOMENT: Mark = Mark { name: "a process was killed at a moment that matters", causal: false };

/// What it needed was on disk only.
pub(crate) const READ_FROM_DISK: Mark = Mark { name: "something was read from disk before it went on", causal: false };

/// A client read what expires.
pub const EXPIRING_READ: Mark = Mark { name: "a value was read that expires", causal: false };

/// A client found what had expired.
pub const EXPIRED_READ: Mark = Mark { name: "a value was found expired", causal: false };

/// And took its place.
pub const EXPIRED_CLAIMED: Mark = Mark { name: "a key was claimed whose value had expired", causal: false };

/// Nobody can say which write a value was read of.
pub(crate) const NOT_JUDGED: Mark = Mark { name: "a history was not judged, since an expiry may have been changed", causal: false };

/// Nobody asked it anything for a while.
pub(crate) const ASLEEP: Mark = Mark { name: "a server was told that nobody asks", causal: false };

/// Marks of runs whose profile brings them about.
pub const OF_PROFILES: &[Mark] = &[
    KILLED_AT_A_MOMENT,
    READ_FROM_DISK,
    ASLEEP,
    EXPIRING_READ,
    EXPIRED_READ,
    EXPIRED_CLAIMED,
    NOT_JUDGED,
    PASSED_ON,
    GIVEN_UP,
    LET_IN,
    LOWER_ENTRY_HELD,
    ENTRY_PASSED_OVER,
    ENTRY_MISSED,
    ASKED_ELSEWHERE,
    HELD_ELSEWHERE,
    SIBLINGS_HELD,
    MULTI_HELD,
    COUNTER_HELD,
    COUNTER_HELD_ELSEWHERE,
    COPIES_HELD,
    FEWER_COPIES_HELD,
    COPIES_MISSED,
    PAST_READ,
    FEED_READ,
    FEED_RESUMED,
    CHECKPOINT_READ,
    PAST_OF_SEVERAL,
    ROLLED_BACK,
    ROLLBACK_DIED,
    MEMBER_LOST,
    MEMBER_REPLACED,
    DRAINED,
];

/// A member of a group lost what it had promised.
pub(crate) const MEMBER_LOST: Mark = Mark { name: "a member of a group lost its disk", causal: false };
/// Another one came in its place.
pub(crate) const MEMBER_REPLACED: Mark = Mark { name: "a member of a group was replaced", causal: false };
/// Marks of runs that read checkpoints.
pub const OF_CHECKPOINTS: &[Mark] = &[PAST_READ, CHECKPOINT_READ];

/// What happens where clients roll back.
pub const OF_ROLLBACKS: &[Mark] = &[ROLLED_BACK, ROLLBACK_DIED];

/// What rollbacks that others take over are to show.
pub const OF_TAKING_OVER: &[Mark] = &[TAKEN_OVER, TAKEN_OVER_LATE, OVERTAKEN];

/// In which phase a coordinator was gone, or taken for gone.
pub const COORDINATOR_GONE: [Mark; 5] = [
    Mark { name: "a coordinator was gone while clients were being stopped", causal: false },
    Mark { name: "a coordinator was gone while what had changed was being found", causal: false },
    Mark { name: "a coordinator was gone while it wrote back", causal: false },
    Mark { name: "a coordinator was gone before every data center showed what was", causal: false },
    Mark { name: "a coordinator was gone while clients were told to go on", causal: false },
];

/// In which phase of a rollback a server was killed.
pub const KILLED_IN: [Mark; 5] = [
    Mark { name: "a server was killed while clients were being stopped", causal: false },
    Mark { name: "a server was killed while what had changed was being found", causal: false },
    Mark { name: "a server was killed while a rollback wrote back", causal: false },
    Mark { name: "a server was killed before every data center showed what was", causal: false },
    Mark { name: "a server was killed while clients were told to go on", causal: false },
];
/// A server that led was drained.
pub const DRAINED: Mark = Mark { name: "a server that led was drained", causal: false };
/// Marks of runs in which groups lose disks.
pub const OF_MEMBERS: &[Mark] = &[MEMBER_LOST, MEMBER_REPLACED];

/// A data center was out of reach, and others had what it wrote.
pub(crate) const PASSED_ON: Mark = Mark { name: "updates were passed on for another data center", causal: false };
/// Nobody waits for a data center any more.
pub(crate) const GIVEN_UP: Mark = Mark { name: "a lost data center was given up", causal: false };
/// Another data center has the place of one that was lost.
pub(crate) const LET_IN: Mark = Mark { name: "a data center was let in, in the place of a lost one", causal: false };
/// An answer satisfied another entry of its service level than the first.
pub(crate) const LOWER_ENTRY_HELD: Mark = Mark { name: "a lower entry of a service level was held", causal: false };
/// The first entry was not even tried.
pub(crate) const ENTRY_PASSED_OVER: Mark = Mark { name: "an entry of a service level was passed over", causal: false };
/// A time in the past was read.
pub(crate) const PAST_READ: Mark = Mark { name: "keys were read as of a time in the past", causal: false };
/// A change was read of a feed.
pub(crate) const FEED_READ: Mark = Mark { name: "changes were read of a feed", causal: false };
/// A reader went back to where it had been.
pub(crate) const FEED_RESUMED: Mark = Mark { name: "a feed was read again from an earlier position", causal: false };
/// One that the window did not reach.
pub(crate) const CHECKPOINT_READ: Mark = Mark { name: "keys were read as of a checkpoint before the window", causal: false };
/// Of several partitions.
pub(crate) const PAST_OF_SEVERAL: Mark = Mark { name: "keys of several partitions were read as of one time", causal: false };
/// A rollback came to its end.
pub(crate) const ROLLED_BACK: Mark = Mark { name: "keys were rolled back in all data centers", causal: false };
/// Another coordinator came to the end of a rollback that it had taken over.
pub(crate) const TAKEN_OVER: Mark = Mark { name: "a rollback that was taken over came to its end", causal: false };
/// It had been over already.
pub(crate) const TAKEN_OVER_LATE: Mark = Mark { name: "a rollback that was taken over had been over", causal: false };
/// A coordinator heard that another one had taken over.
pub(crate) const OVERTAKEN: Mark = Mark { name: "a coordinator heard that another one had taken over", causal: false };
/// Its coordinator died.
pub(crate) const ROLLBACK_DIED: Mark = Mark { name: "the coordinator of a rollback died", causal: false };
/// No answer satisfied any.
pub(crate) const ENTRY_MISSED: Mark = Mark { name: "no entry of a service level was held", causal: false };
/// Another data center was asked for an entry.
pub(crate) const ASKED_ELSEWHERE: Mark = Mark { name: "another data center was asked for an entry of a service level", causal: false };
/// Its answer satisfied one.
pub(crate) const HELD_ELSEWHERE: Mark = Mark { name: "another data center held an entry of a service level", causal: false };

/// Values side by side satisfied an entry.
pub(crate) const SIBLINGS_HELD: Mark = Mark { name: "values side by side were read under a service level", causal: false };
/// What a transaction of commands got satisfied one.
pub(crate) const MULTI_HELD: Mark = Mark { name: "a transaction that gets keys satisfied an entry of a service level", causal: false };
/// A counter's value did.
pub(crate) const COUNTER_HELD: Mark = Mark { name: "a counter was read under a service level", causal: false };
/// The same, in another data center.
pub(crate) const COUNTER_HELD_ELSEWHERE: Mark = Mark { name: "a counter was read under a service level in another data center", causal: false };
/// A write was in as many data centers as the first entry for writes asks.
pub(crate) const COPIES_HELD: Mark = Mark { name: "the first entry for writes of a service level was held", causal: false };
/// In as many as another one asks.
pub(crate) const FEWER_COPIES_HELD: Mark = Mark { name: "a lower entry for writes of a service level was held", causal: false };
/// In fewer than any.
pub(crate) const COPIES_MISSED: Mark = Mark { name: "no entry for writes of a service level was held", causal: false };
/// What happens under service levels, whatever is read or written.
pub const OF_SERVICE_LEVELS: &[Mark] = &[
    LOWER_ENTRY_HELD,
    ENTRY_PASSED_OVER,
    ENTRY_MISSED,
    ASKED_ELSEWHERE,
    HELD_ELSEWHERE,
    SIBLINGS_HELD,
    MULTI_HELD,
    COUNTER_HELD,
    COUNTER_HELD_ELSEWHERE,
    COPIES_HELD,
    FEWER_COPIES_HELD,
    COPIES_MISSED,
];

/// A read had to see what had been acknowledged in its data center.
pub(crate) const RECENT: Mark = Mark { name: "a read had to see what had been acknowledged in its data center", causal: false };

/// A test found what it expected.
pub(crate) const TEST_HELD: Mark = Mark { name: "a tested key was as expected", causal: false };
/// A test found something else.
pub(crate) const TEST_FAILED: Mark = Mark { name: "a tested key was not as expected", causal: false };

/// Marks of runs with tests of keys that decide writes of others.
pub const OF_TESTS: &[Mark] = &[TEST_HELD, TEST_FAILED];

/// A test was answered before it was decided.
pub(crate) const TEST_UNDECIDED: Mark = Mark { name: "a test was answered before it was decided", causal: false };
/// It was made when its servers met again.
pub(crate) const TEST_KEPT: Mark = Mark { name: "a test was kept for later", causal: false };

/// The same, where the protocol keeps bounds.
pub const OF_BOUNDED_TESTS: &[Mark] = &[TEST_UNDECIDED, TEST_KEPT];

/// A server went on as several.
pub(crate) const SPLIT: Mark = Mark { name: "a server was split", causal: false };

/// A read found values side by side.
pub(crate) const SIBLINGS_READ: Mark = Mark { name: "values were read side by side", causal: false };
/// The replicas that answer a read and those that have a write are together more than there are.
pub(crate) const QUORUMS_MEET: Mark = Mark { name: "quorums of reads and writes met", causal: false };

/// Marks of runs whose protocol lets values stand side by side.
pub const OF_SIBLINGS: &[Mark] = &[SIBLINGS_READ, QUORUMS_MEET];

marks! {
    /// A client read what was written in another data center.
    REMOTE_READ = "a remote version was read", false;
    /// A write that was acknowledged later lost against one that was acknowledged earlier.
    CLOCK_DECIDED = "an older write won by its clock", false;
    /// A read returned a tombstone or nothing for a key that was deleted.
    DELETE_READ = "a deleted key was read", false;
    /// A read-only transaction got its reads from two partitions or more.
    WIDE_TRANSACTION = "a transaction read from several partitions", false;
    /// A transaction returned two keys of one put.
    PUT_SEEN_WHOLE = "a put of several keys was read by a transaction", false;
    /// A request waited for the past of its session.
    SESSION_PARKED = "a session's past was waited for", true;
    /// A session went on in another data center.
    SESSION_MOVED = "a session moved", false;
    /// A session took over another's token.
    SESSION_ADOPTED = "a session's token was taken over", false;
    /// A client did not learn what came of a write.
    UNKNOWN_WRITE = "a write's outcome stayed unknown", false;
    /// And somebody read it.
    UNKNOWN_WRITE_READ = "a write of unknown outcome was read", false;
    /// Replication was awaited, and had happened.
    REPLICATION_AWAITED = "replication was awaited", false;
    /// A server lost power, and with it records that its disk did not have.
    RECORDS_LOST = "a power loss cost records", false;
    /// A server's process was killed, and started again.
    KILLED = "a process was killed", false;
    /// It was killed between its work and the operating system.
    KILLED_MID_ROUND = "a process was killed in the middle of a round", false;
    /// A server that stood still had something to do when it went on.
    PAUSED = "a paused server caught up", false;
    /// A frame was lost.
    FRAME_LOST = "a frame was lost", false;
    /// A frame came twice.
    FRAME_DOUBLED = "a frame came twice", false;
    /// A stream between data centers went on from where it had stopped.
    LINK_RESUMED = "a link resumed", false;
    /// A clock jumped back.
    CLOCK_BACK = "a clock jumped back", false;
    /// A batch or a session was refused because its timestamps were too far ahead.
    TOO_FAR_AHEAD = "a timestamp was refused as too far ahead", false;
    /// An old version was collected.
    VERSION_COLLECTED = "an old version was collected", false;
    /// A tombstone was collected.
    TOMBSTONE_COLLECTED = "a tombstone was collected", false;
}

/// How often each mark was seen: in one run how many times, in a batch in how many runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<&'static str, u64>);

impl Marks {
    /// Notes that `mark` was seen.
    pub(crate) fn see(&mut self, mark: Mark) {
        self.see_times(mark, 1);
    }

    /// Notes that `mark` was seen `times` times.
    pub(crate) fn see_times(&mut self, mark: Mark, times: u64) {
        if times > 0 {
            *self.0.entry(mark.name).or_default() += times;
        }
    }

    /// How often `mark` was seen.
    pub fn count(&self, mark: Mark) -> u64 {
        self.0.get(mark.name).copied().unwrap_or(0)
    }
}
