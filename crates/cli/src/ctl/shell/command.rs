//! What can be typed.

/// What `help` prints.
pub const HELP: &str = "\
get KEY                 a key's value
put KEY VALUE           write a key
del KEY...              delete keys
mget KEY...             values of several keys, of one snapshot where the protocol promises it
explain KEY             every version of a key at this server, and why it is visible or not
level [NAME]            the level to ask for: default, eventual, session, causal, local, strong, or session guarantees
strategy [NAME]         how mget finds its snapshot: auto, coordinated or predicted
keyspace [NAME]         the keyspace, by name or number
session                 the session's token in this keyspace
session new             begin a new one
session resume TOKEN    go on with another one
session merge TOKEN     take in what another one has seen
connect ADDRESS         go to another server (gRPC, host:port); in the same cluster, sessions go along
details on|off          whether reads also say version, level and staleness
status                  nodes, links and lags
help                    this
quit                    end; so does Ctrl-D
Words with blanks stand in quotes; what follows # is a comment.";

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Get(String),
    Put(String, String),
    Del(Vec<String>),
    Mget(Vec<String>),
    Explain(String),
    Level(Option<String>),
    Strategy(Option<String>),
    Keyspace(Option<String>),
    Session(SessionCommand),
    Connect(String),
    Details(bool),
    Status,
    Help,
    Quit,
}

/// What to do with the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    Show,
    New,
    Resume(String),
    Merge(String),
}

/// How each command is written, for errors.
const USAGE: &[(&str, &str)] = &[
    ("get", "get KEY"),
    ("put", "put KEY VALUE"),
    ("del", "del KEY..."),
    ("mget", "mget KEY..."),
    ("explain", "explain KEY"),
    ("level", "level [NAME]"),
    ("strategy", "strategy [NAME]"),
    ("keyspace", "keyspace [NAME]"),
    ("session", "session [new | resume TOKEN | merge TOKEN]"),
    ("connect", "connect ADDRESS"),
    ("details", "details on|off"),
    ("status", "status"),
    ("help", "help"),
    ("quit", "quit"),
];

impl Command {
    /// The command in `line`; `None` if there is none. Errors: what is wrong, and how it is written.
    pub fn parse(line: &str) -> Result<Option<Command>, String> {
        let words = shell_words::split(line).map_err(|_| "a quote is not closed".to_string())?;
        let Some((name, rest)) = words.split_first() else { return Ok(None) };
        let texts: Vec<&str> = rest.iter().map(String::as_str).collect();
        let text = |word: &str| word.to_string();
        let command = match (name.as_str(), texts.as_slice()) {
            ("get", [key]) => Command::Get(text(key)),
            ("put", [key, value]) => Command::Put(text(key), text(value)),
            ("del", [_, ..]) => Command::Del(rest.to_vec()),
            ("mget", [_, ..]) => Command::Mget(rest.to_vec()),
            ("explain", [key]) => Command::Explain(text(key)),
            ("level", []) => Command::Level(None),
            ("level", [level]) => Command::Level(Some(text(level))),
            ("strategy", []) => Command::Strategy(None),
            ("strategy", [strategy]) => Command::Strategy(Some(text(strategy))),
            ("keyspace", []) => Command::Keyspace(None),
            ("keyspace", [keyspace]) => Command::Keyspace(Some(text(keyspace))),
            ("session", []) => Command::Session(SessionCommand::Show),
            ("session", ["new"]) => Command::Session(SessionCommand::New),
            ("session", ["resume", token]) => Command::Session(SessionCommand::Resume(text(token))),
            ("session", ["merge", token]) => Command::Session(SessionCommand::Merge(text(token))),
            ("connect", [address]) => Command::Connect(text(address)),
            ("details", ["on"]) => Command::Details(true),
            ("details", ["off"]) => Command::Details(false),
            ("status", []) => Command::Status,
            ("help", []) => Command::Help,
            ("quit" | "exit", []) => Command::Quit,
            _ => {
                return Err(match USAGE.iter().find(|(known, _)| known == name) {
                    Some((_, usage)) => format!("it is written: {usage}"),
                    None => {
                        let names: Vec<&str> = USAGE.iter().map(|(name, _)| *name).collect();
                        format!("there is no command `{name}`; there are: {}", names.join(", "))
                    }
                });
            }
        };
        Ok(Some(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_commands() {
        let parse = |line| Command::parse(line);
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("  # nothing"), Ok(None));
        assert_eq!(parse("put 'a b' \"c d\" # why"), Ok(Some(Command::Put("a b".into(), "c d".into()))));
        assert_eq!(parse("mget a b"), Ok(Some(Command::Mget(vec!["a".into(), "b".into()]))));
        assert_eq!(parse("session resume x"), Ok(Some(Command::Session(SessionCommand::Resume("x".into())))));
        assert_eq!(parse("exit"), Ok(Some(Command::Quit)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, says) in [
            ("get", "it is written: get KEY"),
            ("get a b", "it is written: get KEY"),
            ("details maybe", "details on|off"),
            ("session sideways", "session [new"),
            ("gett a", "no command `gett`; there are: get, put"),
            ("put a 'b", "quote is not closed"),
        ] {
            let error = Command::parse(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn every_command_has_its_line_of_help() {
        for (name, _) in USAGE {
            assert!(HELP.lines().any(|line| line.split(' ').next() == Some(name)), "{name}");
        }
    }
}
