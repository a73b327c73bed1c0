//! The log that a protocol keeps in the store's log.

use std::collections::VecDeque;

/// Entries in order of their index, without gaps. `T` is what is kept of each.
#[derive(Clone, Debug)]
pub(crate) struct Entries<T> {
    list: VecDeque<(u64, T)>,
}

impl<T> Default for Entries<T> {
    fn default() -> Entries<T> {
        Entries { list: VecDeque::new() }
    }
}

impl<T> Entries<T> {
    /// Adds entry `index`; what was there from `index` on is void.
    pub(crate) fn append(&mut self, index: u64, entry: T) {
        while self.list.pop_back_if(|(at, _)| *at >= index).is_some() {}
        self.list.push_back((index, entry));
    }

    /// Forgets everything up to `through`.
    pub(crate) fn compact(&mut self, through: u64) {
        while self.list.pop_front_if(|(at, _)| *at <= through).is_some() {}
    }

    /// The index of the last of the first entries that are `void`.
    pub(crate) fn last_void(&self, void: impl Fn(&T) -> bool) -> Option<u64> {
        self.list.iter().take_while(|(_, entry)| void(entry)).last().map(|(index, _)| *index)
    }

    /// What is kept of the oldest entry.
    pub(crate) fn oldest(&self) -> Option<&T> {
        self.list.front().map(|(_, entry)| entry)
    }

    /// The same log, with `change` of each entry.
    pub(crate) fn map(self, change: impl Fn(T) -> T) -> Entries<T> {
        Entries { list: self.list.into_iter().map(|(index, entry)| (index, change(entry))).collect() }
    }

    pub(crate) fn into_list(self) -> Vec<(u64, T)> {
        self.list.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_entry_makes_void_what_was_there_and_after_it() {
        let mut entries = Entries::default();
        for index in 1..=5 {
            entries.append(index, index * 10);
        }
        entries.append(3, 31);
        entries.compact(1);
        assert_eq!(entries.oldest(), Some(&20));
        assert_eq!(entries.into_list(), [(2, 20), (3, 31)]);
    }
}
