//! `rheostat verify`: receipts against their signatures and against each other.

use crate::Failure;
use crate::output::say;
use clap::Args;
use rheostat_receipts::verify::{MOST_RECEIPTS, compare};
use rheostat_receipts::{MOST_LINE, Receipt, key_of, parse_key};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Lines that are not receipts, and contradictions, are told one by one up to here, and counted after.
const TOLD: usize = 20;

const EXAMPLES: &str = "\
Examples:
  rheostat kv --receipt mine.txt put photo sunset          each operation appends its receipt
  rheostat ctl status --verbose                            shows the nodes' keys; ask for them by a way that you trust
  rheostat verify --trust 9f1c..,77ab.. mine.txt yours.txt what any of them says against what the others say

Exit code 0: nothing contradicts anything. 1: a receipt is damaged, or not signed by a trusted key, or two contradict each other.";

/// Check receipts: their signatures, and whether two contradict each other
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Files of receipts, one on a line; empty lines and lines that begin with # are passed over
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Public keys of nodes that are trusted: 64 hexadecimal digits each
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = key)]
    trust: Vec<[u8; 32]>,
    /// A file with such keys, one on a line; what follows a key is a remark
    #[arg(long, value_name = "FILE")]
    trust_file: Option<PathBuf>,
    /// Nobody deletes keys, and nothing expires: then a read that found no version after it had one contradicts that too
    #[arg(long)]
    nothing_is_deleted: bool,
}

fn key(text: &str) -> Result<[u8; 32], String> {
    parse_key(text).ok_or_else(|| format!("`{text}` is no public key; one has 64 hexadecimal digits, as `rheostat ctl status --verbose` shows them"))
}

/// Runs it.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut trusted: BTreeSet<[u8; 32]> = arguments.trust.iter().copied().collect();
    if let Some(file) = &arguments.trust_file {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: cannot be read: {error}", file.display()))?;
        for (number, line) in text.lines().enumerate() {
            let word = line.split_whitespace().next().filter(|word| !word.starts_with('#'));
            if let Some(word) = word {
                trusted.insert(key(word).map_err(|why| format!("{}, line {}: {why}", file.display(), number + 1))?);
            }
        }
    }
    let (mut receipts, mut places, mut wrong) = (Vec::new(), Vec::new(), Wrong::default());
    for file in &arguments.files {
        read(file, &trusted, &mut receipts, &mut places, &mut wrong)?;
    }
    if trusted.is_empty() {
        let keys: BTreeSet<String> = wrong.keys.iter().map(key_of).collect();
        let found =
            if keys.is_empty() { "no receipt".to_string() } else { format!("receipts of {}", keys.into_iter().collect::<Vec<_>>().join(", ")) };
        return Err(format!("whom do you trust? Name the nodes' public keys with --trust or --trust-file; the files hold {found}"));
    }
    wrong.tell_the_rest();
    let verdict = compare(&receipts).map_err(|why| why.to_string())?;
    let (mut broken, mut possible) = (0, 0);
    for one in &verdict.contradictions {
        let doubt = one.unless_deleted && !arguments.nothing_is_deleted;
        *(if doubt { &mut possible } else { &mut broken }) += 1;
        if broken + possible <= TOLD {
            say!("{}: {}", if doubt { "POSSIBLY BROKEN" } else { "BROKEN" }, one.broken.text());
            for index in [one.known, one.later] {
                say!("  {}: {}", places[index], receipts[index].statement);
            }
            if doubt {
                say!("  Not if the key was deleted, or expired, in between; with --nothing-is-deleted this counts as broken.");
            }
        }
    }
    if broken + possible > TOLD {
        say!("... and {} more", broken + possible - TOLD);
    }
    say!(
        "{} receipts signed by trusted keys, in {} sessions or parts of such; {} continue another one's session, {} read what another one wrote",
        receipts.len(),
        verdict.chains,
        verdict.linked,
        verdict.caused
    );
    say!("{broken} contradictions, {possible} possible ones, {} lines that are no receipts of trusted keys", wrong.count);
    Ok(if broken == 0 && wrong.count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lines that cannot be relied on.
#[derive(Default)]
struct Wrong {
    count: usize,
    /// Keys that are not trusted.
    keys: BTreeSet<[u8; 32]>,
}

impl Wrong {
    fn tell(&mut self, file: &Path, line: usize, why: &dyn std::fmt::Display) {
        self.count += 1;
        if self.count <= TOLD {
            say!("{}, line {line}: {why}", file.display());
        }
    }

    fn tell_the_rest(&self) {
        if self.count > TOLD {
            say!("... and {} more lines", self.count - TOLD);
        }
    }
}

/// Reads the receipts of a file. Errors: it cannot be read, or there are too many.
fn read(file: &Path, trusted: &BTreeSet<[u8; 32]>, receipts: &mut Vec<Receipt>, places: &mut Vec<String>, wrong: &mut Wrong) -> Result<(), Failure> {
    let at = |why: &dyn std::fmt::Display| format!("{}: cannot be read: {why}", file.display());
    let mut input = BufReader::new(File::open(file).map_err(|error| at(&error))?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // However long a line is, no more of it is kept than tells that it is too long.
        let kept = input.by_ref().take(MOST_LINE as u64 + 1).read_until(b'\n', &mut line).map_err(|error| at(&error))?;
        if kept == 0 {
            break;
        }
        if kept > MOST_LINE && line.last() != Some(&b'\n') {
            skip_line(&mut input).map_err(|error| at(&error))?;
        }
        let text = line.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        match Receipt::from_line(text) {
            Err(why) => wrong.tell(file, number, &why),
            Ok(receipt) if !trusted.contains(&receipt.key()) => {
                wrong.keys.insert(receipt.key());
                if !trusted.is_empty() {
                    wrong.tell(file, number, &format!("signed by {}, which is not trusted", key_of(&receipt.key())));
                }
            }
            Ok(receipt) => {
                if receipts.len() >= MOST_RECEIPTS {
                    return Err(format!("{}, line {number}: there are more than {MOST_RECEIPTS} receipts; compare fewer at once", file.display()));
                }
                receipts.push(receipt);
                places.push(format!("{}, line {number}", file.display()));
            }
        }
    }
    Ok(())
}

fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let bytes = input.fill_buf()?;
        let (used, ends) = match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (bytes.len(), bytes.is_empty()),
        };
        input.consume(used);
        if ends {
            return Ok(());
        }
    }
}
