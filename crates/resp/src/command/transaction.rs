//! Commands that make others one step.

use super::Command;
use crate::table::words::*;

pub(crate) const COMMANDS: &[Entry] = &[
    Entry::transactions("discard", 1, "2.0.0", |_| Ok(Command::Discard))
        .does("Forgets the commands that were kept since MULTI")
        .costs("O(N) where N is the number of commands kept"),
    Entry::transactions("exec", 1, "1.2.0", |_| Ok(Command::Exec))
        .does("Makes the commands that were kept since MULTI, on keys of one partition, as one step: all of them or none")
        .costs("Depends on the commands"),
    Entry::transactions("multi", 1, "1.2.0", |_| Ok(Command::Multi)).does("Has the commands that follow kept until EXEC"),
    Entry::transactions("unwatch", 1, "2.2.0", |_| Ok(Command::Unwatch)).does("Forgets the watched keys"),
    Entry::transactions("watch", -2, "2.2.0", |request| Ok(Command::Watch(request.from(1))))
        .does("Lets EXEC do nothing, and return null, if one of the keys is written before it; where a keyspace decides conditions")
        .costs(PER_KEY)
        .on_keys(LOOKS),
];
