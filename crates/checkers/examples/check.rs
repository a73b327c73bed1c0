//! Checks histories kept in files: `check [eventual|causal] FILE...`. Final reads are checked where a history has them.

use rheostat_checkers::{History, Promises, check_all};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut promises = Promises::causal();
    if let Some(kind) = arguments.next_if(|word| word == "eventual" || word == "causal")
        && kind == "eventual"
    {
        promises = Promises::eventual();
    }
    for file in arguments {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let history = History::parse(&text).map_err(|error| format!("{file}: {error}"))?;
        let promises = if history.finals.is_empty() { promises.before_the_end() } else { promises };
        let summary = check_all(&history, &promises).map_err(|violation| format!("{file}: {violation}"))?;
        print!("{file}: {} events\n{summary}", history.events.len());
    }
    Ok(())
}
