//! docs/commands.md, made from the table.

use super::{COMMANDS, Entry, Group, Reason, UNSERVED};
use std::fmt::Write as _;

const HEAD: &str = "# Commands

This page is made from the server's table of commands; `RHEOSTAT_BLESS=1 cargo test -p rheostat-resp --test table` writes it anew.

Rheostat speaks RESP2 and RESP3. A command that is served does what it does in Redis 7, except where this page says otherwise. A command that
is not served answers with an error that gives the reason, never with something weaker. The commands of `rheostat` itself that run clusters and read and
write there, `ctl cluster` and `ctl shell`, are in [cluster.md](cluster.md).

- Reads and writes belong to the connection's session and have the level that `RHEO LEVEL` says.
- `MGET` is one read-only transaction. In keyspaces of causal protocols its values are of one snapshot, whatever partitions the keys are on; in the
  others, what is of one snapshot are the values of each partition.
- `MSET` writes all its keys together if they are of one partition, and else fails with `CROSSSLOT`.
- Requests of a pipeline go one after the other, each with what the one before it left. In `session` and `strong`, where every write waits for a group and a
  disk, plain `SET`s in a row (up to 64) are made at once: those to one partition as one write, in their order.
- `SET` with `NX` or `XX`, `SETNX`, `RHEO CAS` and `RHEO TEST` need a keyspace whose protocol decides such a write in one place: `strong` and `staged` for all data centers,
  `session` for this one, where another one's later write still wins. Other keyspaces answer with an error. `SET` with `GET` alone is served everywhere: it is
  one step in this data center.
- `INCR`, `DECR`, `INCRBY`, `DECRBY` and `RHEO COUNTER` update [counters](counters.md), which all data centers can change at once without losing changes. What a
  counter's bounds do not allow, for want of rights here (`LOCAL`) or anywhere (`GLOBAL`), is answered with `NORIGHTS`; nothing was changed then.
- `RHEO COUNTER` takes a data center's name or its number. In `ADD`, a word `LOCAL`, `GLOBAL` or `ID` at a key's place ends the keys, except at the first one.
- `MULTI` keeps the commands that follow, and `EXEC` makes them as one step: each sees what those before it have left, nothing comes between them, what they
  write appears together everywhere, and either all are made or none. Their keys must lie in one partition (give them one `{tag}`), else `EXEC` answers
  `CROSSSLOT`. A command that is refused after `MULTI` lets `EXEC` answer `EXECABORT`. A command that fails, as `INCR` of a word or without rights, fails all
  of them; Redis makes the others. Served after `MULTI` are the commands on values and keys but `SCAN` and `WAIT`, and `PING`, `ECHO`, `TIME`. A counter that
  a transaction adds to cannot be set or deleted in it (in `strong` it can), and in `session` transactions name no counters.
- `WATCH` needs a keyspace that decides conditions, as `SET` with `NX` does.
- An expiry is a point in time that is stored with the value, so that all data centers agree on it.
- `SELECT` takes a keyspace's number or its name.
- `WAIT` counts data centers that have on disk what this session has written in the data center that is asked. What it wrote elsewhere, before it came here with its token, is not looked at, but in `staged`: who moves says `WAIT` first.
  It is refused where the last of them can be lost: under durability `interval`, a server here has lost its machine's power since, or its
  disk. Look then whether it is there, and write again what is not; what is written from then on is waited for as ever.
- `INFO keyspace` says `expires=`, the keys with an expiry as stores count them: of those in memory, not of those on disk only; one that has expired counts until it is collected. `avg_ttl` is 0.
";

/// Options of commands that are served, which are not served.
const OPTIONS: &[(&str, Reason)] = &[("EXPIRE … XX LT", Reason::Instead("one of them"))];

fn heading(group: Group) -> &'static str {
    match group {
        Group::String => "Values",
        Group::Generic => "Keys",
        Group::Transactions => "Transactions",
        Group::Connection => "Connection",
        Group::Server => "Server",
        Group::Cluster => "Cluster",
        Group::Rheostat => "Rheostat's own",
    }
}

/// The whole of docs/commands.md.
pub fn commands_markdown() -> String {
    let mut out = HEAD.to_owned();
    for group in Group::ALL {
        // Writing to a String cannot fail.
        let _ = write!(out, "\n## {}\n\n| command | what it does | since |\n|---|---|---|\n", heading(group));
        for entry in COMMANDS.iter().filter(|entry| entry.group == group) {
            if entry.subcommands.is_empty() || entry.accepts(1) {
                row(entry, &mut out);
            }
            entry.subcommands.iter().for_each(|subcommand| row(subcommand, &mut out));
        }
    }
    out.push_str("\n\"Since\" is the Redis version that first had the command, and for `RHEO` the Rheostat version.\n");
    out.push_str("\n## Not served\n\n| commands | why |\n|---|---|\n");
    for (option, reason) in OPTIONS {
        let _ = writeln!(out, "| `{option}` | {} |", sentence(*reason));
    }
    for unserved in UNSERVED {
        let names: Vec<_> = unserved.names.iter().map(|name| format!("`{}`", name.to_uppercase().replace('|', " "))).collect();
        let _ = writeln!(out, "| {} | {} |", names.join(" "), sentence(unserved.reason));
    }
    out
}

fn row(entry: &Entry, out: &mut String) {
    let _ = writeln!(out, "| `{}` | {} | {} |", entry.syntax().replace('|', "\\|"), entry.summary, entry.since);
}

fn sentence(reason: Reason) -> String {
    reason.to_string().replace('|', "\\|")
}
