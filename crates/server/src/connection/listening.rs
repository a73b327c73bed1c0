//! A connection that listens to monitors: what they say is pushed between replies (RESP3).

use super::info::version_text;
use crate::monitors::{Heard, Told, What};
use crate::shared::Shared;
use rheostat_monitor::alarm::Evidence;
use rheostat_resp::ReplyWriter;

/// Pushes what a monitor has said: `monitor`, and a map.
pub(super) fn push(shared: &Shared, heard: &Heard, writer: &mut ReplyWriter<'_>) {
    writer.push(2);
    writer.bulk(b"monitor");
    match heard {
        Heard::Told(told) => match &told.what {
            What::Alarm(alarm) => {
                let verdict = alarm.verdict.to_string();
                head(writer, 8, &verdict, &alarm.target.to_string(), told);
                writer.bulk(b"not_before");
                writer.bulk(alarm.since.to_string().as_bytes());
                writer.bulk(b"evidence");
                writer.array(alarm.evidence.len());
                alarm.evidence.iter().for_each(|one| evidence(shared, one, writer));
            }
            What::Gap(target, why) => {
                head(writer, 7, "gap", &target.as_ref().map(ToString::to_string).unwrap_or_default(), told);
                text(writer, "why", why);
            }
        },
        Heard::Missed(count) => {
            writer.map(2);
            text(writer, "what", "gap");
            text(writer, "why", &Heard::missed(*count));
        }
    }
}

fn head(writer: &mut ReplyWriter<'_>, length: usize, what: &str, monitor: &str, told: &Told) {
    writer.map(length);
    text(writer, "what", what);
    text(writer, "monitor", monitor);
    text(writer, "keyspace", &told.keyspace);
    text(writer, "node", &told.node);
    writer.bulk(b"number");
    writer.integer(i64::try_from(told.number).unwrap_or(i64::MAX));
    writer.bulk(b"at_ms");
    writer.integer(i64::try_from(told.at_ms).unwrap_or(i64::MAX));
}

fn text(writer: &mut ReplyWriter<'_>, name: &str, value: &str) {
    writer.bulk(name.as_bytes());
    writer.bulk(value.as_bytes());
}

fn evidence(shared: &Shared, one: &Evidence, writer: &mut ReplyWriter<'_>) {
    writer.map(6);
    writer.bulk(b"key");
    writer.bulk(&one.variable);
    writer.bulk(b"value");
    writer.bulk_or_null(one.value.as_deref());
    writer.bulk(b"version");
    writer.bulk_or_null(one.version.map(|version| version_text(&shared.topology, version)).as_deref().map(str::as_bytes));
    text(writer, "data_center", shared.topology.dc_name(one.server.dc));
    text(writer, "from", &one.from.to_string());
    writer.bulk(b"until");
    writer.bulk_or_null(one.until.map(|until| until.to_string()).as_deref().map(str::as_bytes));
}
