//! A server's state in pages, for one that is further behind than the log that the others keep: the newest version of each key, slot by slot.

use rheostat_core::protocol::Protocol;
use rheostat_core::slots;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::{Item, Update};
use smallvec::smallvec;

/// Bytes of versions in one page, about.
const PAGE_BYTES: usize = 128 << 10;
/// Keys of one slot that a page asks the store for at once.
pub(crate) const PAGE_KEYS: usize = 256;
/// Slots that one page goes through at most.
const PAGE_SLOTS: u16 = 2048;

/// A place in the state: a slot, and where to go on in it.
pub(crate) type PagePlace = (u16, u32);

/// The newest versions of the keys from `from` on, one item each, as many as make a page, and where the next one begins; `None` after the last slot.
pub(crate) fn page<P: Protocol, S: Store<P::Meta>>(step: &mut Step<'_, P, S>, from: PagePlace) -> (Vec<Update<P::Meta>>, Option<PagePlace>) {
    page_of(step.store, from)
}

fn page_of<M: Clone, S: Store<M>>(store: &mut S, from: PagePlace) -> (Vec<Update<M>>, Option<PagePlace>) {
    let (mut slot, mut place) = from;
    let (mut updates, mut bytes) = (Vec::new(), 0);
    while slot < slots::SLOTS {
        if bytes >= PAGE_BYTES || slot - from.0 >= PAGE_SLOTS {
            return (updates, Some((slot, place)));
        }
        let found = store.scan(slot, place, PAGE_KEYS);
        let mut before = None;
        for key in found.keys {
            let here = slots::walk_hash(&key);
            // Large values: the page ends between two keys, but not between those of one place.
            if bytes >= PAGE_BYTES && before != Some(here) {
                return (updates, Some((slot, here)));
            }
            before = Some(here);
            if let Some(version) = store.latest(&key, |_| true).cloned() {
                bytes += key.len() + version.value.as_ref().map_or(0, |value| value.len()) + 32;
                let items = smallvec![Item { key, value: version.value, expires_ms: version.expires_ms }];
                updates.push(Update { id: version.id, items, meta: version.meta });
            }
        }
        (slot, place) = found.next.map_or((slot + 1, 0), |next| (slot, next));
    }
    (updates, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::{DcId, Timestamp};
    use rheostat_core::store::KeepAll;
    use rheostat_core::version::{Key, Value, VersionId};
    use rheostat_storage::MemoryStore;

    fn put(store: &mut MemoryStore<()>, key: &str, bytes: usize) {
        let item = Item { key: Key::from(key.as_bytes()), value: Some(Value::from(vec![b'v'; bytes])), expires_ms: 0 };
        let id = VersionId { written: Timestamp::new(1, 0), origin: DcId(0) };
        store.append(&Update { id, items: smallvec![item], meta: () }, false, &KeepAll).unwrap();
    }

    /// The keys and bytes of values of each page that has any.
    fn pages(store: &mut MemoryStore<()>) -> Vec<(Vec<Key>, usize)> {
        let (mut pages, mut from) = (Vec::new(), Some((0, 0)));
        while let Some(at) = from {
            let (updates, next) = page_of(store, at);
            assert!(next.is_none_or(|next| next > at));
            let items = || updates.iter().flat_map(|update| &update.items);
            let keys: Vec<Key> = items().map(|item| item.key.clone()).collect();
            if !keys.is_empty() {
                pages.push((keys, items().map(|item| item.value.as_ref().map_or(0, |value| value.len())).sum()));
            }
            from = next;
        }
        pages
    }

    #[test]
    fn large_values_of_one_slot_come_in_many_pages_and_each_key_once() {
        const VALUE: usize = 64 << 10;
        let mut store = MemoryStore::new();
        let mut keys: Vec<Key> = (0..40).map(|n| Key::from(format!("{{tag}}{n}").as_bytes())).collect();
        (0..40).for_each(|n| put(&mut store, &format!("{{tag}}{n}"), VALUE));
        let pages = pages(&mut store);
        assert!(pages.iter().all(|(_, bytes)| *bytes <= PAGE_BYTES + VALUE), "{:?}", pages.iter().map(|(_, bytes)| bytes).collect::<Vec<_>>());
        let mut came: Vec<Key> = pages.into_iter().flat_map(|(keys, _)| keys).collect();
        keys.sort();
        came.sort();
        assert_eq!(came, keys);
    }

    /// Where a page begins is a place, so all keys of one are on one page.
    #[test]
    fn keys_of_one_place_come_together() {
        let two = ["{tag}72551", "{tag}154510"];
        assert_eq!(slots::walk_hash(two[0].as_bytes()), slots::walk_hash(two[1].as_bytes()));
        let mut store = MemoryStore::new();
        two.iter().for_each(|key| put(&mut store, key, PAGE_BYTES));
        put(&mut store, "{tag}", PAGE_BYTES);
        let pages: Vec<usize> = pages(&mut store).iter().map(|(keys, _)| keys.len()).collect();
        assert!(pages == [1, 2] || pages == [2, 1], "{pages:?}");
    }
}
