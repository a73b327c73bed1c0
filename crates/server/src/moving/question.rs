//! What nodes say to each other of the files of a server that moves.

use super::files::Listed;
use crate::seats::{Seat, put_seat, read_seat};
use rheostat_core::wire::{Reader, Wire, WireError};

/// Why a node refuses what it is asked of a server that does not move with its files, as far as its configuration says. Other nodes know it by these words.
pub(super) const NO_SUCH_SERVER: &str = "there is no such server that moves with its files";

/// Of the node that has a server's files; [`Answer`] is what it says.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Question {
    /// Which files are there? With version 0: as they are now, while the server runs. Else, of that move to the asker: when the server is closed and they change no more.
    List { seat: Seat, version: u32 },
    /// What is in a block of one?
    Block { seat: Seat, file: String, number: u32 },
    /// The asker has all of them on its disk: may it be the only one that does?
    Give { seat: Seat, version: u32 },
}

/// See [`Question`].
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Answer {
    Files(Vec<Listed>),
    Block(Vec<u8>),
    /// They are not here any more, and will not be opened here again.
    Given,
    /// Not now; ask again.
    NotYet(String),
    /// It cannot be.
    Refused(String),
}

const LIST: u8 = 0;
const BLOCK: u8 = 1;
const GIVE: u8 = 2;

impl Wire for Question {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut begin = |tag, seat| {
            out.push(tag);
            put_seat(seat, out);
        };
        match self {
            Question::List { seat, version } => {
                begin(LIST, *seat);
                version.encode(out);
            }
            Question::Block { seat, file, number } => {
                begin(BLOCK, *seat);
                file.encode(out);
                number.encode(out);
            }
            Question::Give { seat, version } => {
                begin(GIVE, *seat);
                version.encode(out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (tag, seat) = (input.byte()?, read_seat(input)?);
        Ok(match tag {
            LIST => Question::List { seat, version: Wire::decode(input)? },
            BLOCK => Question::Block { seat, file: Wire::decode(input)?, number: Wire::decode(input)? },
            GIVE => Question::Give { seat, version: Wire::decode(input)? },
            _ => return Err(WireError::Invalid("a question for files")),
        })
    }
}

const FILES: u8 = 0;
const BYTES: u8 = 1;
const GIVEN: u8 = 2;
const NOT_YET: u8 = 3;
const REFUSED: u8 = 4;

impl Wire for Answer {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Answer::Files(files) => {
                out.push(FILES);
                files.encode(out);
            }
            // The rest.
            Answer::Block(bytes) => {
                out.push(BYTES);
                out.extend_from_slice(bytes);
            }
            Answer::Given => out.push(GIVEN),
            Answer::NotYet(why) => {
                out.push(NOT_YET);
                why.encode(out);
            }
            Answer::Refused(why) => {
                out.push(REFUSED);
                why.encode(out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match input.byte()? {
            FILES => Answer::Files(Wire::decode(input)?),
            BYTES => Answer::Block(input.take(input.rest().len())?.to_vec()),
            GIVEN => Answer::Given,
            NOT_YET => Answer::NotYet(Wire::decode(input)?),
            REFUSED => Answer::Refused(Wire::decode(input)?),
            _ => return Err(WireError::Invalid("an answer about files")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Digest;
    use super::*;
    use proptest::prelude::*;
    use rheostat_core::DcId;
    use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};

    #[test]
    fn questions_and_answers_come_back_as_they_were() {
        let seat = (KeyspaceId(3), ServerId { replica: 1, ..ServerId::new(DcId(2), PartitionId(700)) });
        for question in [
            Question::List { seat, version: 0 },
            Question::Block { seat, file: "log/00.log".into(), number: 70_000 },
            Question::Give { seat, version: 9 },
        ] {
            assert_eq!(Question::from_bytes(&question.to_bytes()), Ok(question));
        }
        let listed = Listed { name: "a/b".into(), length: 12, blocks: vec![Digest::of(b"abc"), Digest::of(b"")] };
        for answer in [
            Answer::Files(vec![listed]),
            Answer::Block(b"bytes".to_vec()),
            Answer::Block(Vec::new()),
            Answer::Given,
            Answer::NotYet("it serves".into()),
            Answer::Refused("no".into()),
        ] {
            assert_eq!(Answer::from_bytes(&answer.to_bytes()), Ok(answer));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, tag in 0u8..6) {
            let bytes = [&[tag], bytes.as_slice()].concat();
            let _ = (Question::from_bytes(&bytes), Answer::from_bytes(&bytes));
        }
    }
}
