//! The keys that sign session tokens: where a node has them from, and where it keeps them.
//!
//! With `security.token_key_file` they are the operator's. Else the first start makes one, and nodes tell each other all they have when they connect
//! (`crate::peer`); so that a node whose data folder is new takes what the others have, and nodes that start at once come to agree.

use crate::folder;
use rheostat_core::token::{SECRET_BYTES, TokenKeys};
use rheostat_core::wire::Wire;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The file in the data directory; keyspaces' folders have no '.' in front.
const FILE: &str = ".token-keys";

/// The most secrets of an operator's file.
const MOST_SECRETS: usize = 2;

/// Why there are no keys.
#[derive(Debug)]
pub enum KeyFileError {
    /// The disk's error.
    Io(PathBuf, io::Error),
    /// What stands there is no key.
    Damaged(PathBuf, String),
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyFileError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            KeyFileError::Damaged(path, why) => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for KeyFileError {}

/// Bytes that nobody can guess. Errors: the system has none.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the operating system gives no random numbers"))?;
    Ok(bytes)
}

/// The keys in the operator's file: one or two lines of 64 hexadecimal digits, of which the first signs. Errors: not so.
pub(crate) fn read_operators(path: &Path) -> Result<TokenKeys, KeyFileError> {
    let text = std::fs::read_to_string(path).map_err(|error| KeyFileError::Io(path.to_owned(), error))?;
    let damaged = |why: String| KeyFileError::Damaged(path.to_owned(), why);
    let lines: Vec<(usize, &str)> = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect();
    let secret = |(number, line): &(usize, &str)| {
        secret_of(line)
            .ok_or_else(|| damaged(format!("line {}: not {} hexadecimal digits, as `openssl rand -hex 32` makes them", number + 1, 2 * SECRET_BYTES)))
    };
    let secrets = lines.iter().map(secret).collect::<Result<Vec<_>, _>>()?;
    let count = secrets.len();
    let keys = TokenKeys::in_order(&secrets).filter(|_| count <= MOST_SECRETS);
    keys.ok_or_else(|| damaged(format!("{count} keys; one, or two of which the first signs")))
}

fn secret_of(digits: &str) -> Option<[u8; SECRET_BYTES]> {
    let mut secret = [0; SECRET_BYTES];
    let (pairs, odd) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != SECRET_BYTES || !odd.is_empty() {
        return None;
    }
    for (byte, [high, low]) in secret.iter_mut().zip(pairs) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = (value(*high)? << 4 | value(*low)?) as u8;
    }
    Some(secret)
}

/// The keys of a node without an operator's file: those that its data directory keeps, else a new one, which is kept from now on. Errors: the disk's, or what stands there is
/// damaged.
pub(crate) fn load_or_make(dir: Option<&Path>, now_ms: u64) -> Result<TokenKeys, KeyFileError> {
    let path = dir.unwrap_or(Path::new("")).join(FILE);
    let io = |error| KeyFileError::Io(path.clone(), error);
    let Some(dir) = dir else { return Ok(TokenKeys::new(random().map_err(io)?, now_ms)) };
    match std::fs::read(&path) {
        Ok(bytes) => {
            let why = |_| "this is not a file of token keys; without it a new key is made, and tokens that were given out are refused".to_owned();
            TokenKeys::from_bytes(&bytes).map_err(|error| KeyFileError::Damaged(path.clone(), why(error)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let keys = TokenKeys::new(random().map_err(io)?, now_ms);
            save(dir, &keys).map_err(io)?;
            Ok(keys)
        }
        Err(error) => Err(io(error)),
    }
}

/// Keeps `keys` in the data directory `dir`, for the node's own user only.
pub(crate) fn save(dir: &Path, keys: &TokenKeys) -> io::Result<()> {
    folder::write_whole(dir, &dir.join(FILE), &keys.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_made_once_and_kept_for_oneself() {
        let folder = tempfile::tempdir().unwrap();
        let first = load_or_make(Some(folder.path()), 7).unwrap();
        assert_eq!(load_or_make(Some(folder.path()), 8).unwrap().to_bytes(), first.to_bytes());
        let mode = std::fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(load_or_make(None, 7).unwrap().to_bytes(), first.to_bytes());
        std::fs::write(folder.path().join(FILE), "garbage").unwrap();
        let refused = load_or_make(Some(folder.path()), 9).unwrap_err().to_string();
        assert!(refused.contains(FILE), "{refused}");
    }

    #[test]
    fn an_operators_file_has_one_or_two_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_operators(&path).map(|keys| keys.names(0).len()).map_err(|error| error.to_string())
        };
        let (a, b) = ("a1".repeat(32), "B2".repeat(32));
        assert_eq!(read(&a), Ok(1));
        assert_eq!(read(&format!("# signs\n{a}\n\n# until tomorrow\n{b}\n")), Ok(2));
        for wrong in
            [String::new(), "# nothing".into(), a[1..].into(), format!("{a}0"), "x".repeat(64), "\u{e9}".repeat(32), format!("{a}\n{b}\n{a}")]
        {
            let refused = read(&wrong).unwrap_err();
            assert!(refused.contains("key"), "{wrong:?}: {refused}");
            assert!(!refused.contains("a1a1"), "a secret in an error: {refused}");
        }
        assert!(read_operators(&folder.path().join("absent")).is_err());
    }
}
