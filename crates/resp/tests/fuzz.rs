//! Damaged requests: whatever bytes arrive, in whatever pieces, they become commands or clear errors, and the answers the table
//! gives are well-formed.

mod support;

use rheostat_core::random::Random;
use rheostat_resp::{Command, CommandError, Limits, Parser, ReplyWriter, RespVersion, encode_request, table};
use support::read_replies;

/// Words that mean something somewhere.
fn words() -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = table::COMMANDS
        .iter()
        .flat_map(|entry| std::iter::once(entry.name).chain(entry.subcommands.iter().map(|subcommand| subcommand.short_name())))
        .chain(table::UNSERVED.iter().flat_map(|unserved| unserved.names.iter().copied()))
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let others = "EX PX EXAT PXAT KEEPTTL GET NX XX GT LT PERSIST MATCH COUNT TYPE string AUTH SETNAME ON OFF ID NORMAL FILTERBY MODULE ACLCAT PATTERN \
                  RESUME MERGE RESET eventual causal LIB-NAME LIB-VER 0 1 2 3 10 -1 16383 16384 9223372036854775807 -9223372036854775808 1.5 \
                  k {tag}k * [a-z]? default";
    words.extend(others.split_whitespace().map(|word| word.as_bytes().to_vec()));
    words.extend([Vec::new(), b"\r\n".to_vec(), b"\xff\xfe".to_vec(), b"a b".to_vec(), vec![b'x'; 300]]);
    words
}

fn pick<'a, T>(random: &mut Random, from: &'a [T]) -> &'a T {
    &from[random.below(from.len() as u64) as usize]
}

/// A request that begins like one that is served, more often than not.
fn request(random: &mut Random, words: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let entry = pick(random, table::COMMANDS);
    let mut request: Vec<Vec<u8>> = vec![entry.name.as_bytes().to_vec()];
    if !entry.subcommands.is_empty() && random.chance(4, 5) {
        request.push(pick(random, entry.subcommands).short_name().as_bytes().to_vec());
    } else if random.chance(1, 10) {
        request[0].clone_from(pick(random, words));
    }
    for _ in 0..random.below(6) {
        request.push(pick(random, words).clone());
    }
    request
}

const SPECIAL: &[u8] = b"*$\r\n 0123456789-\"'\\x\0\xff";

/// Changes a few bytes: overwrites, inserts, removes, doubles, cuts off.
fn damage(random: &mut Random, stream: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = random.below(stream.len() as u64 + 1) as usize;
        match random.below(6) {
            0 if at < stream.len() => stream[at] = *pick(random, SPECIAL),
            1 if at < stream.len() => stream[at] ^= 1 << random.below(8),
            2 => stream.insert(at, *pick(random, SPECIAL)),
            3 if at < stream.len() => drop(stream.remove(at)),
            4 => {
                let end = (at + random.below(20) as usize).min(stream.len());
                let copy = stream[at..end].to_vec();
                stream.splice(at..at, copy);
            }
            _ => stream.truncate(at),
        }
    }
}

/// What came of a run, so that a run in which nothing happens does not pass.
#[derive(Default, Debug)]
struct Seen {
    commands: u64,
    answered_by_the_table: u64,
    command_errors: u64,
    unserved: u64,
    protocol_errors: u64,
}

fn receive(random: &mut Random, stream: &[u8], seen: &mut Seen) {
    let limits = Limits { max_arguments: 64, max_bulk_bytes: 4096, max_inline_bytes: 1024, max_request_bytes: 8192 };
    let mut parser = Parser::new(limits);
    let mut buffer = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(1 + random.below(rest.len() as u64) as usize);
        rest = after;
        buffer.extend_from_slice(part);
        loop {
            match parser.next(&buffer) {
                Ok(Some(arguments)) => {
                    let version = if random.chance(1, 2) { RespVersion::Two } else { RespVersion::Three };
                    execute(Command::parse(arguments, 1), version, seen);
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(error.to_string().starts_with("ERR Protocol error: "));
                    seen.protocol_errors += 1;
                    return;
                }
            }
        }
        buffer.drain(..parser.consume());
        assert!(buffer.len() <= limits.max_request_bytes, "an incomplete request grows beyond its limit");
    }
}

fn execute(command: Result<Command<'_>, CommandError>, version: RespVersion, seen: &mut Seen) {
    let mut out = Vec::new();
    let mut reply = ReplyWriter::new(&mut out, version);
    match command {
        Ok(command) => {
            seen.commands += 1;
            assert!(!format!("{command:?}").is_empty());
            match command {
                Command::Catalogue(catalogue) => catalogue.reply(&mut reply),
                Command::Help(entry) => table::help::reply(entry, &mut reply),
                _ => return,
            }
            seen.answered_by_the_table += 1;
        }
        Err(error) => {
            match &error {
                CommandError::Unserved { .. } | CommandError::UnservedOption { .. } => seen.unserved += 1,
                _ => seen.command_errors += 1,
            }
            let text = error.to_string();
            assert!(text.starts_with("ERR ") || text.starts_with("NOPROTO "), "{text}");
            assert!(text.chars().count() < 700, "{text}");
            assert!(!text.contains(['\r', '\n']), "{text:?}");
            reply.error(&text);
        }
    }
    assert_eq!(read_replies(&out).len(), 1, "{}", out.escape_ascii());
}

#[test]
fn damaged_requests_become_commands_or_clear_errors() {
    let words = words();
    let mut random = Random::new(1);
    let mut seen = Seen::default();
    for _ in 0..200_000 {
        let mut stream = Vec::new();
        for _ in 0..=random.below(3) {
            let request = request(&mut random, &words);
            if random.chance(1, 6) {
                stream.extend_from_slice(&request.join(b" ".as_slice()));
                stream.extend_from_slice(b"\r\n");
            } else {
                encode_request(&request, &mut stream);
            }
        }
        damage(&mut random, &mut stream);
        receive(&mut random, &stream, &mut seen);
    }
    let Seen { commands, answered_by_the_table, command_errors, unserved, protocol_errors } = seen;
    assert!(commands > 20_000 && command_errors > 50_000 && protocol_errors > 20_000, "{seen:?}");
    assert!(answered_by_the_table > 1000 && unserved > 1000, "{seen:?}");
}

#[test]
fn arbitrary_bytes_become_commands_or_clear_errors() {
    let mut random = Random::new(2);
    let mut seen = Seen::default();
    for _ in 0..200_000 {
        let special = random.chance(1, 2);
        let length = random.below(40);
        let stream: Vec<u8> = (0..length).map(|_| if special { *pick(&mut random, SPECIAL) } else { random.next_u64() as u8 }).collect();
        receive(&mut random, &stream, &mut seen);
    }
    assert!(seen.protocol_errors > 1000 && seen.command_errors > 1000, "{seen:?}");
}
