//! What monitors say, as messages.

use crate::rollback::timestamp_out;
use crate::v1;
use rheostat_core::DcId;
use rheostat_monitor::alarm::{Alarm, Evidence, Verdict};

/// An alarm; `dc_name` names data centers.
pub fn alarm_out<'n>(alarm: &Alarm, dc_name: impl Fn(DcId) -> &'n str) -> v1::MonitorAlarm {
    let evidence = |evidence: &Evidence| v1::MonitorEvidence {
        variable: evidence.variable.to_vec().into(),
        value: evidence.value.clone().map(Into::into),
        version: evidence.version.map(|id| v1::Version { written: Some(timestamp_out(id.written)), origin: dc_name(id.origin).to_owned() }),
        data_center: dc_name(evidence.server.dc).to_owned(),
        partition: evidence.server.partition.0.into(),
        replica: evidence.server.replica.into(),
        from: Some(timestamp_out(evidence.from)),
        until: evidence.until.map(timestamp_out),
    };
    let verdict = match alarm.verdict {
        Verdict::Possible => v1::MonitorVerdict::Possible,
        Verdict::Violated => v1::MonitorVerdict::Violated,
    };
    v1::MonitorAlarm { verdict: verdict.into(), since: Some(timestamp_out(alarm.since)), evidence: alarm.evidence.iter().map(evidence).collect() }
}
