//! The first election of a group that has never decided anything.
//!
//! Nobody was promised anything then, so nothing is gained by waiting for an election's time: the member in an appointed seat asks to be elected as soon as it runs. It asks as everybody does, first whether it would be
//! elected, so it may ask again while the others are not there yet; and if it is not there itself, the others elect one when their time comes.

use crate::member::Member;

/// Has `member`, which is number `me`, ask to be elected, if it is in seat `first` of a group that has never decided anything and in which it has asked nobody for a vote. Says whether it has.
pub fn convene(member: &mut Member, me: u64, first: u64) -> bool {
    let blank = member.raft.term == 0 && member.log().last() == 0 && member.leader().is_none();
    // In a group that is new, a member's number is its seat.
    blank && me == first && member.campaign().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::log::Log;
    use crate::member::{Kept, Member};
    use raft::eraftpb::{Message, MessageType};
    use rheostat_clock::TimestampVector;

    fn member(me: u64, kept: Kept) -> Member {
        Member::new(me, Log::new(Configuration::first(&[1, 2, 3]), (0, 0), TimestampVector::new()), kept, (1, 10)).unwrap()
    }

    /// What `member` wants sent, with everything that it wants logged on disk.
    fn sent(member: &mut Member) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(wanted) = member.take() {
            messages.extend(wanted.messages.into_iter().chain(wanted.promises));
            member.on_persist_ready(wanted.number);
        }
        messages
    }

    #[test]
    fn the_one_in_the_first_seat_is_elected_without_a_tick_even_if_the_others_come_late() {
        let mut members: Vec<Member> = (1..=3).map(|me| member(me, Kept::default())).collect();
        for _ in 0..5 {
            assert!(convene(&mut members[0], 1, 1));
            // Nobody is there yet.
            let asked = sent(&mut members[0]);
            assert!(asked.iter().all(|message| message.get_msg_type() == MessageType::MsgRequestPreVote), "{asked:?}");
        }
        assert!(!convene(&mut members[1], 2, 1) && !convene(&mut members[2], 3, 1), "one asks");
        assert!(convene(&mut members[0], 1, 1));
        // The third one never comes.
        for _ in 0..10 {
            for from in 0..2 {
                for message in sent(&mut members[from]) {
                    if message.to <= 2 {
                        let _ = members[message.to as usize - 1].step(message);
                    }
                }
            }
        }
        assert!(members[0].is_leader() && members[1].leader() == Some(1));
        let term = members[0].raft.term;
        assert!(!convene(&mut members[0], 1, 1) && members[0].raft.term == term, "it leads");
    }

    #[test]
    fn a_group_that_has_voted_elects_as_ever() {
        let mut voted = member(1, Kept { term: 1, vote: 2, applied: 0 });
        assert!(!convene(&mut voted, 1, 1) && sent(&mut voted).is_empty());
    }
}
